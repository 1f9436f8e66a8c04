//! Who has a PG and who should: the configuration as one OSD sees it.

use types::{Epoch, OsdId};

/// The configuration of a PG (from the cluster state) with where CRUSH wants it (from the OSD map).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// This OSD.
    pub me: OsdId,
    /// Term of the primary.
    pub interval: Epoch,
    pub primary: OsdId,
    /// Hold every acknowledged write; the primary first.
    pub in_sync: Vec<OsdId>,
    /// Where the PG should be, in order; only OSDs that are up.
    pub up: Vec<OsdId>,
    pub size: u32,
    /// Fewer in sync: nothing is executed.
    pub min_size: u32,
    /// Of an erasure-coded PG who has which shard: a position is a *place*. Empty: copies, which are all the same.
    pub acting: Vec<Option<OsdId>>,
    /// Who learns which shard (`types::places::learners`).
    pub learners: Vec<Option<OsdId>>,
}

impl Group {
    /// A PG that is on this OSD alone and wants to be nowhere else.
    pub fn alone(me: OsdId) -> Self {
        Self {
            me,
            primary: me,
            in_sync: vec![me],
            up: vec![me],
            size: 1,
            min_size: 1,
            ..Self::default()
        }
    }

    pub fn is_primary(&self) -> bool {
        self.primary == self.me
    }

    pub fn is_in_sync(&self, osd: OsdId) -> bool {
        self.in_sync.contains(&osd)
    }

    /// Each member has another part, at its place.
    pub fn is_coded(&self) -> bool {
        !self.acting.is_empty() || !self.learners.is_empty()
    }

    /// The shard that an OSD has, if it is in sync, or learns.
    pub fn place_of(&self, osd: OsdId) -> Option<usize> {
        let at = |list: &[Option<OsdId>]| list.iter().position(|o| *o == Some(osd));
        match self.is_in_sync(osd) {
            true => at(&self.acting),
            false => at(&self.learners),
        }
    }

    /// The same as part of messages: -1 for copies, and for who has no place.
    pub fn shard_of(&self, osd: OsdId) -> i8 {
        let place = self.place_of(osd).and_then(|at| i8::try_from(at).ok());
        place.unwrap_or(-1)
    }

    /// Who is in sync at a place.
    pub fn holder(&self, place: usize) -> Option<OsdId> {
        let osd = self.acting.get(place).copied().flatten();
        osd.filter(|osd| self.is_in_sync(*osd))
    }

    /// `in_sync` and *up* together, each once.
    pub fn members(&self) -> Vec<OsdId> {
        let mut all = self.in_sync.clone();
        all.extend(self.up.iter().filter(|o| !self.in_sync.contains(o)));
        all
    }

    pub fn is_member(&self, osd: OsdId) -> bool {
        self.in_sync.contains(&osd) || self.up.contains(&osd)
    }

    /// The others.
    pub fn peers(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.members().into_iter().filter(|o| *o != self.me)
    }

    /// Enough are in sync for operations to be executed.
    pub fn is_enough(&self) -> bool {
        self.in_sync.len() >= self.min_size as usize
    }

    /// All are in sync that should be, and no one else.
    pub fn is_whole(&self) -> bool {
        self.in_sync.len() >= self.size as usize
            && self.in_sync.len() == self.up.len()
            && self.up.iter().all(|o| self.in_sync.contains(o))
    }
}

/// What a primary wants the configuration to be; refused where it is not `expect` any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub interval: Epoch,
    /// The set it stands on.
    pub expect: Vec<OsdId>,
    /// The primary first; another one than the present makes a new interval.
    pub in_sync: Vec<OsdId>,
    /// Every place, of shards; None: copies.
    pub acting: Option<Vec<Option<OsdId>>>,
}
