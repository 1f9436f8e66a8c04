//! One object as the PG knows it, and the bounded cache of these.

use crate::state::object_info::{INFO_ATTR, ObjectInfo, SNAPSET_ATTR};
use crate::state::snapset::SnapSet;
use crate::{IoError, ObjectStore, Seq};
use denc::Decode;
use std::collections::HashMap;
use std::sync::Arc;
use types::{HObject, ObjectId};

/// A head (or a clone, whose snapset is empty).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObjectState {
    /// The store has it; a whiteout is physical and does not exist.
    pub physical: bool,
    pub exists: bool,
    pub size: u64,
    pub info: ObjectInfo,
    pub snapset: Arc<SnapSet>,
    /// The newest transaction that touched it.
    pub last_write: Seq,
}

impl ObjectState {
    /// Reads it from the store; a missing object is the default.
    pub fn load(oid: &ObjectId, store: &mut dyn ObjectStore) -> Result<Self, IoError> {
        let Some(stat) = store.stat(oid)? else {
            return Ok(Self::default());
        };
        let damaged = |what, e| IoError(format!("{}: {what} does not decode: {e}", oid.object));
        let info = match store.attr(oid, INFO_ATTR)? {
            Some(b) => ObjectInfo::from_bytes(&b).map_err(|e| damaged("object info", e))?,
            None => return Err(IoError(format!("{}: no object info", oid.object))),
        };
        let snapset = match store.attr(oid, SNAPSET_ATTR)? {
            Some(b) if oid.object.is_head() => SnapSet::from_bytes(&b).map_err(|e| damaged("snapset", e))?,
            _ => SnapSet::default(),
        };
        Ok(Self {
            physical: true,
            exists: !info.whiteout,
            size: stat.size,
            info,
            snapset: Arc::new(snapset),
            last_write: 0,
        })
    }
}

/// Memory of one cached object, roughly, without what its clones take.
const OBJECT_BYTES: u64 = 768;
/// The same for each clone that its snapset knows.
const CLONE_BYTES: u64 = 160;
/// Bytes cached per PG where nobody says less, at most about twice this.
const GENERATION_BYTES: u64 = 128 * OBJECT_BYTES;
/// And however little memory there is.
const GENERATION_BYTES_MIN: u64 = 4 * OBJECT_BYTES;

/// Recently used objects, in two generations: when the young one is full the old one is dropped, but for
/// objects with writes that are not durable yet, which must keep their `last_write`.
#[derive(Debug, Default)]
struct Generation {
    objects: HashMap<HObject, Box<ObjectState>>,
    bytes: u64,
}

impl Generation {
    fn insert(&mut self, object: HObject, state: Box<ObjectState>) {
        self.bytes += weight(&state);
        if let Some(before) = self.objects.insert(object, state) {
            self.bytes -= weight(&before);
        }
    }

    fn remove(&mut self, object: &HObject) -> Option<Box<ObjectState>> {
        let state = self.objects.remove(object)?;
        self.bytes -= weight(&state);
        Some(state)
    }

    fn retain(&mut self, keep: impl Fn(&HObject) -> bool) {
        self.objects.retain(|o, _| keep(o));
        self.bytes = self.objects.values().map(|s| weight(s)).sum();
    }
}

fn weight(state: &ObjectState) -> u64 {
    OBJECT_BYTES + CLONE_BYTES * state.snapset.clones.len() as u64
}

#[derive(Debug)]
pub(crate) struct ObjectCache {
    young: Generation,
    old: Generation,
    /// Bytes of one generation.
    generation_bytes: u64,
    /// Bytes of `young` at which the generations turn: more where much had to be carried over.
    turn_at: u64,
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            generation_bytes: GENERATION_BYTES,
            turn_at: 0,
        }
    }
}

impl ObjectCache {
    /// Takes the object out; the caller puts it back.
    pub fn take(&mut self, object: &HObject) -> Option<Box<ObjectState>> {
        self.young.remove(object).or_else(|| self.old.remove(object))
    }

    pub fn get(&self, object: &HObject) -> Option<&ObjectState> {
        let young = self.young.objects.get(object);
        young.or_else(|| self.old.objects.get(object)).map(Box::as_ref)
    }

    pub fn put(&mut self, object: HObject, state: Box<ObjectState>, committed: Seq) {
        if !state.physical && state.last_write <= committed {
            return;
        }
        self.young.insert(object, state);
        if self.young.bytes >= self.turn_at.max(self.generation_bytes) {
            self.turn(committed);
        }
    }

    /// The old generation goes, the young one is the old one.
    fn turn(&mut self, committed: Seq) {
        let dropped = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        for (object, state) in dropped.objects {
            if state.last_write > committed {
                self.young.insert(object, state);
            }
        }
        self.turn_at = 2 * self.young.bytes;
    }

    /// So much may both generations take.
    pub fn allow(&mut self, bytes: u64, committed: Seq) {
        self.generation_bytes = (bytes / 2).clamp(GENERATION_BYTES_MIN, GENERATION_BYTES);
        let most = self.generation_bytes;
        if self.young.bytes > most {
            self.turn(committed);
        }
        if self.old.bytes > most {
            self.turn(committed);
        }
    }

    /// Memory that it takes, roughly.
    pub fn bytes(&self) -> u64 {
        self.young.bytes + self.old.bytes
    }

    pub fn len(&self) -> usize {
        self.young.objects.len() + self.old.objects.len()
    }

    pub fn retain(&mut self, keep: impl Fn(&HObject) -> bool) {
        self.young.retain(&keep);
        self.old.retain(&keep);
    }

    pub fn forget(&mut self, object: &HObject) {
        self.young.remove(object);
        self.old.remove(object);
    }
}
