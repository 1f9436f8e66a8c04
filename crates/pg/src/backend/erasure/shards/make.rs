//! One shard's objects, made anew out of the other shards: the unit of a head with its clones, piece by piece.
//!
//! Invariants: the attributes of an object come last, and only if it still has the version that its data was read at: what was made in
//! part has no version, and is never taken for what it is not.
//!
//! Bound: one piece of [`PIECE_BYTES`] on its way.

use crate::backend::digest::version_now;
use crate::backend::erasure::cut::{Coding, object_on, on_shard};
use crate::backend::erasure::reads::What;
use crate::state::versions::Versions;
use crate::store::{IoError, ObjectStore, Ticket};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use types::{EVersion, HObject, ObjectId, Op};

/// Of a shard's units.
const PIECE_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone)]
enum Item {
    /// The member has it, and nobody should.
    Remove(HObject),
    Make {
        object: HObject,
        version: EVersion,
        size: u64,
    },
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing is left.
    Done,
    /// An answer is on its way.
    Wait,
    Read(What),
    Send(Vec<Op>),
    /// The object is another one by now.
    Changed,
}

#[derive(Debug)]
pub(super) struct Making {
    /// The shard that is made.
    place: usize,
    left: VecDeque<Item>,
    /// The next stripe of the first.
    stripe: u64,
    begun: bool,
    pub reading: Option<Ticket>,
    /// The number of the transaction that was sent last.
    pub sent: Option<u64>,
}

impl Making {
    /// `ours`: the unit as this OSD's shard `own` has it; `theirs`: as the one has it that is to get it.
    pub fn of_unit(
        place: usize,
        ours: &Versions,
        theirs: &Versions,
        own: impl Fn(&HObject) -> ObjectId,
        store: &mut dyn ObjectStore,
    ) -> Result<Self, IoError> {
        let mut left = VecDeque::new();
        for (object, _) in theirs.iter().filter(|(o, _)| !ours.iter().any(|(x, _)| x == o)) {
            left.push_back(Item::Remove(object.clone()));
        }
        for (object, version) in ours {
            let same = theirs.iter().any(|(o, v)| o == object && v == version);
            if same && *version != EVersion::default() {
                continue;
            }
            let oid = own(object);
            let Some(stat) = store.stat(&oid)? else { continue };
            left.push_back(Item::Make {
                object: object.clone(),
                version: *version,
                size: stat.size,
            });
        }
        Ok(Self {
            place,
            left,
            stripe: 0,
            begun: false,
            reading: None,
            sent: None,
        })
    }

    fn total(coding: &Coding, size: u64) -> u64 {
        size.div_ceil(coding.layout.stripe())
    }

    fn piece(&self, coding: &Coding, size: u64) -> Range<u64> {
        let stripes = (PIECE_BYTES / coding.layout.unit()).max(1);
        self.stripe..(self.stripe + stripes).min(Self::total(coding, size))
    }

    /// `own`: the object on this OSD's shard.
    pub fn next(
        &mut self,
        coding: &Coding,
        own: impl Fn(&HObject) -> ObjectId,
        store: &mut dyn ObjectStore,
    ) -> Result<Next, IoError> {
        if self.reading.is_some() || self.sent.is_some() {
            return Ok(Next::Wait);
        }
        match self.left.front().cloned() {
            None => Ok(Next::Done),
            Some(Item::Remove(object)) => {
                self.left.pop_front();
                let oid = object_on(&object, self.place);
                Ok(Next::Send(vec![
                    Op::Touch { oid: oid.clone() },
                    Op::Remove { oid },
                ]))
            }
            Some(Item::Make {
                object,
                version,
                size,
            }) => {
                let oid = own(&object);
                if version_now(&oid, store) != version {
                    return Ok(Next::Changed);
                }
                let stripes = self.piece(coding, size);
                if stripes.is_empty() {
                    return self.ends(&oid, size, Vec::new(), store);
                }
                Ok(Next::Read(What {
                    oid,
                    version,
                    stripes,
                    wanted: vec![self.place],
                    without: vec![self.place],
                }))
            }
        }
    }

    /// The units of the piece have come.
    pub fn came(
        &mut self,
        coding: &Coding,
        units: Vec<u8>,
        own: impl Fn(&HObject) -> ObjectId,
        store: &mut dyn ObjectStore,
    ) -> Result<Next, IoError> {
        let Some(Item::Make {
            object,
            version,
            size,
        }) = self.left.front().cloned()
        else {
            return Ok(Next::Done);
        };
        let oid = own(&object);
        if version_now(&oid, store) != version {
            return Ok(Next::Changed);
        }
        let stripes = self.piece(coding, size);
        let offset = coding.layout.extent_on_shard(&stripes).0;
        let mut data = Bytes::from(units);
        data.truncate(coding.layout.shard_size(self.place, size).saturating_sub(offset) as usize);
        let mut ops = self.begins(&oid);
        // A hole stays one.
        if data.iter().any(|b| *b != 0) {
            let oid = on_shard(&oid, self.place);
            ops.push(Op::Write { oid, offset, data });
        }
        self.stripe = stripes.end;
        match self.stripe < Self::total(coding, size) {
            true => Ok(Next::Send(ops)),
            false => self.ends(&oid, size, ops, store),
        }
    }

    /// Whatever is there is none of it.
    fn begins(&mut self, oid: &ObjectId) -> Vec<Op> {
        if std::mem::replace(&mut self.begun, true) {
            return Vec::new();
        }
        let oid = || on_shard(oid, self.place);
        vec![
            Op::Touch { oid: oid() },
            Op::Remove { oid: oid() },
            Op::Touch { oid: oid() },
        ]
    }

    fn ends(
        &mut self,
        own: &ObjectId,
        size: u64,
        mut ops: Vec<Op>,
        store: &mut dyn ObjectStore,
    ) -> Result<Next, IoError> {
        let attrs = store.attrs(own)?;
        if ops.is_empty() {
            ops = self.begins(own);
        }
        let oid = || on_shard(own, self.place);
        ops.push(Op::Truncate { oid: oid(), size });
        ops.push(Op::SetAttrs { oid: oid(), attrs });
        self.left.pop_front();
        (self.stripe, self.begun) = (0, false);
        Ok(Next::Send(ops))
    }
}
