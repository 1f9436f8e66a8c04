//! The PG as this OSD has it: what all rooms go by.

use super::log::{LogEntry, PgLog};
use super::meta::PgMeta;
use super::range::HashRange;
use crate::broken::{self, Rule};
use crate::pool::PoolView;
use crate::store::{IoError, ObjectStore, Seq};
use denc::{Decode, Encode};
use std::sync::Arc;
use std::time::Duration;
use types::{EVersion, HObject, ObjectId, Op, SPgId};

#[derive(Debug)]
pub(crate) struct PgState {
    pub id: SPgId,
    pub pool: Arc<PoolView>,
    pub range: HashRange,
    /// The newest transaction when it was loaded: what it finds in the store may be as young as that.
    pub loaded_seq: Seq,
    /// When it was loaded: watches found in the store count from here.
    pub loaded_at: Duration,
    pub log: PgLog,
    pub meta: PgMeta,
    /// The newest transaction submitted: what a listing shows.
    pub last_seq: Seq,
}

impl PgState {
    /// Nothing of it is read yet.
    pub fn new(id: SPgId, pool: Arc<PoolView>, submitted: Seq, now: Duration) -> Self {
        Self {
            id,
            range: HashRange::of(id.pg.seed, pool.pg_num),
            pool,
            loaded_seq: if broken::is(Rule::LoadedIsYoung) {
                0
            } else {
                submitted
            },
            loaded_at: now,
            log: PgLog::default(),
            meta: PgMeta::default(),
            last_seq: submitted,
        }
    }

    pub fn object_id(&self, object: HObject) -> ObjectId {
        ObjectId {
            shard: self.id.shard,
            object,
        }
    }

    /// Objects of this PG at or behind `from`.
    pub fn list_objects(
        &self,
        from: &HObject,
        max: usize,
        store: &mut dyn ObjectStore,
    ) -> Result<Vec<ObjectId>, IoError> {
        let end = self.object_id(self.range.end_cursor(self.pool.id));
        let mut found = store.list_within(&self.object_id(from.clone()), &end, max)?;
        let end = found.iter().position(|o| {
            o.shard != self.id.shard
                || o.object.pool != self.pool.id
                || u64::from(o.object.reversed_hash()) >= self.range.end
        });
        if let Some(end) = end {
            found.truncate(end);
        }
        Ok(found)
    }

    pub fn meta_op(&self) -> Op {
        Op::SetMeta {
            meta: self.meta.to_bytes(),
        }
    }

    /// The log as it stands, ascending; from behind `since` if given.
    pub fn log_since(
        &self,
        since: Option<EVersion>,
        store: &mut dyn ObjectStore,
    ) -> Result<Vec<LogEntry>, IoError> {
        let bad = |e| IoError(format!("a log entry does not decode: {e}"));
        let rows = store.log_entries(self.id)?;
        let behind = |v: &EVersion, s: EVersion| {
            *v > s && !(broken::is(Rule::SinceWhole) && v.version == s.version + 1)
        };
        let wanted = rows
            .into_iter()
            .filter(|(v, _)| since.is_none_or(|s| behind(v, s)));
        wanted
            .map(|(_, raw)| LogEntry::from_bytes(&raw).map_err(bad))
            .collect()
    }
}
