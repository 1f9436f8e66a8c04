//! Which of all the PGs that had one id a PG is: an id comes back where a pool's pg_num shrinks and grows again, and
//! OSDs that were away meanwhile hold what an earlier one left.

use denc::{Decode, Encode, Reader, Writer};
use types::{EVersion, Epoch, OsdId};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Life {
    /// Map epoch in which it was split off. 0: it came with its pool, or before that was kept.
    pub since: Epoch,
    /// The newest merge into it.
    pub joined: Option<Box<Joined>>,
}

/// A merge: what each of `members` has to find on its disk to carry it out there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Map epoch in which the source's objects became the target's.
    pub epoch: Epoch,
    /// Seed of the source. The pool had one PG more than that.
    pub source: u32,
    /// The newest entries of the logs, and the [`Life::epoch`] of both before.
    pub source_head: EVersion,
    pub target_head: EVersion,
    pub source_life: Epoch,
    pub target_life: Epoch,
    /// Who held every acknowledged write of both.
    pub members: Vec<OsdId>,
}
denc::envelope_denc!(Joined, 1, 1, {
    epoch,
    source,
    source_head,
    target_head,
    source_life,
    target_life,
    members,
});

impl Life {
    pub fn begun(since: Epoch) -> Self {
        Self { since, joined: None }
    }

    /// A copy from before this is that of another PG, or one that a merge is missing from.
    pub fn epoch(&self) -> Epoch {
        self.joined.as_ref().map_or(self.since, |j| j.epoch)
    }
}

impl Encode for Life {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.since);
        let joined: Vec<Joined> = self.joined.iter().map(|j| (**j).clone()).collect();
        w.put(&joined);
    }
}

impl Decode for Life {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        let since = r.get()?;
        let joined: Vec<Joined> = r.get()?;
        Ok(Self {
            since,
            joined: joined.into_iter().next().map(Box::new),
        })
    }
}
