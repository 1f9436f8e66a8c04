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

/// Objects cached per PG, at most about twice this.
const CACHE_GENERATION: usize = 128;

/// Recently used objects, in two generations: when the young one is full the old one is dropped, but for
/// objects with writes that are not durable yet, which must keep their `last_write`.
#[derive(Debug, Default)]
pub(crate) struct ObjectCache {
    young: HashMap<HObject, Box<ObjectState>>,
    old: HashMap<HObject, Box<ObjectState>>,
    /// Size of `young` at which the generations turn: more where much had to be carried over.
    turn_at: usize,
}

impl ObjectCache {
    /// Takes the object out; the caller puts it back.
    pub fn take(&mut self, object: &HObject) -> Option<Box<ObjectState>> {
        self.young.remove(object).or_else(|| self.old.remove(object))
    }

    pub fn get(&self, object: &HObject) -> Option<&ObjectState> {
        self.young
            .get(object)
            .or_else(|| self.old.get(object))
            .map(Box::as_ref)
    }

    pub fn put(&mut self, object: HObject, state: Box<ObjectState>, committed: Seq) {
        if !state.physical && state.last_write <= committed {
            return;
        }
        self.young.insert(object, state);
        if self.young.len() >= self.turn_at.max(CACHE_GENERATION) {
            let dropped = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.young
                .extend(dropped.into_iter().filter(|(_, s)| s.last_write > committed));
            self.turn_at = 2 * self.young.len();
        }
    }

    pub fn retain(&mut self, keep: impl Fn(&HObject) -> bool) {
        self.young.retain(|o, _| keep(o));
        self.old.retain(|o, _| keep(o));
    }

    pub fn forget(&mut self, object: &HObject) {
        self.young.remove(object);
        self.old.remove(object);
    }
}
