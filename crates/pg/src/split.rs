//! Birth of a PG: empty, or by a split of PGs that hold its objects already.
//!
//! A split moves no object, since objects are ordered by reversed hash; what the new PG needs is the memory
//! of the old one: request ids of writes to its objects (a client sends again what was in flight when the
//! map changed), removed snapshots, and the last versions. It takes them from the logs of its ancestors in
//! the same store.

use crate::Pg;
use crate::api::Context;
use crate::log::LogEntry;
use crate::meta::PgMeta;
use crate::pg::LoadError;
use crate::range::HashRange;
use crate::store::{IoError, ObjectStore};
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EVersion, Errno, HObject, Op, PgId, SPgId, Transaction};

/// Log entries taken over in one transaction.
const BIRTH_OPS: usize = 256;

/// What keeps a PG from being born.
enum Birth {
    Read(IoError),
    Write(Errno),
}

/// The PGs out of which one may have been split, the nearest first: its seed with top bits cleared.
pub fn ancestors(id: SPgId) -> impl Iterator<Item = SPgId> {
    let mut seed = id.pg.seed;
    std::iter::from_fn(move || {
        if seed == 0 {
            return None;
        }
        seed &= !(1 << seed.ilog2());
        Some(SPgId {
            pg: PgId::new(id.pg.pool, seed),
            shard: id.shard,
        })
    })
}

impl Pg {
    /// Creates the collection, with what its ancestors know of its objects.
    pub(crate) fn create(&mut self, store: &mut dyn ObjectStore, now: Duration) -> Result<(), LoadError> {
        let pg = self.id;
        let read = |source| LoadError::Read { pg, source };
        let decode = |what| move |source| LoadError::Decode { pg, what, source };
        let mut entries: BTreeMap<EVersion, LogEntry> = BTreeMap::new();
        // No object has a version above those of the PG that it came from.
        let (mut newest, mut user_version) = (0, 0);
        let mut nearest = true;
        for ancestor in ancestors(self.id) {
            if !store.has_collection(ancestor).map_err(read)? {
                continue;
            }
            if let Some(meta) = store.meta(ancestor).map_err(read)? {
                let meta = PgMeta::from_bytes(&meta).map_err(decode("ancestor's metadata"))?;
                self.meta.removed.union(&meta.removed);
                // What the one that it came from here lacks, it lacks.
                if std::mem::take(&mut nearest) {
                    self.meta.complete = meta.complete && meta.dirty.is_empty();
                }
                newest = meta.stats.version.max(newest);
                user_version = meta.stats.user_version.max(user_version);
            }
            for (version, bytes) in store.log_entries(ancestor).map_err(read)? {
                let entry = LogEntry::from_bytes(&bytes).map_err(decode("ancestor's log entry"))?;
                newest = entry.version.version.max(newest);
                user_version = entry.last_user_version.max(user_version);
                if self.range.contains(entry.object.hash) {
                    entries.insert(version, entry);
                }
            }
        }
        (self.meta.stats.version, self.meta.stats.user_version) = (newest, user_version);
        self.begin_count(store, now);
        self.write_birth(entries, store).map_err(|e| match e {
            Birth::Read(source) => LoadError::Read { pg, source },
            Birth::Write(errno) => LoadError::Create { pg, errno },
        })
    }

    /// In steps, since a transaction has a bound; the metadata comes last, and a PG without it is born again
    /// from where it was.
    fn write_birth(
        &mut self,
        entries: BTreeMap<EVersion, LogEntry>,
        store: &mut dyn ObjectStore,
    ) -> Result<(), Birth> {
        let mut txn = Transaction::new(self.id);
        let mut have = EVersion::default();
        if store.has_collection(self.id).map_err(Birth::Read)? {
            let there = store.log_entries(self.id).map_err(Birth::Read)?;
            have = there.last().map_or(have, |(v, _)| *v);
        } else {
            txn.ops.push(Op::CreateCollection);
        }
        for (version, entry) in entries {
            if version > have {
                txn.ops.push(Op::LogAppend {
                    version,
                    entry: entry.to_bytes(),
                });
            }
            self.log.push(entry, self.loaded_seq);
            if txn.ops.len() == BIRTH_OPS {
                let full = std::mem::replace(&mut txn, Transaction::new(self.id));
                store.submit(full).map_err(Birth::Write)?;
            }
        }
        txn.ops.push(self.meta_op());
        store.submit(txn).map_err(Birth::Write)?;
        Ok(())
    }

    /// Forgets what belongs to other PGs now. Answers that wait for durability stay: a client sends again only
    /// what was for a PG that split. With copies those about others' objects go: a member that is caught up from here on
    /// gets the objects of this PG alone, so that it has confirmed says nothing of the others'; the new PG answers
    /// who sends again. Watches go on in the new PG once their clients reconnect.
    pub(crate) fn leave_split_off(&mut self, ctx: &mut Context<'_>) {
        let range = HashRange::of(self.id.pg.seed, self.pool.pg_num);
        self.range = range;
        if self.is_replicated() {
            self.commits.drop_others(|hash| range.contains(hash));
        }
        self.forget_their_writes(ctx);
        let ours = |o: &HObject| range.contains(o.hash);
        self.cache.retain(ours);
        self.watches.retain(ours);
        self.drop_jobs_of_others(ctx);
    }

    /// The memory of writes to objects that are others' now; the store's log keeps them until they are trimmed.
    fn forget_their_writes(&mut self, ctx: &mut Context<'_>) {
        let mut log = self.log.emptied();
        let entries = match self.log_since(None, ctx.store) {
            Ok(entries) => entries,
            Err(e) => return tracing::error!("pg {}: {e}", self.id),
        };
        for entry in entries {
            if self.range.contains(entry.object.hash) {
                // All that was submitted has to be durable before one of them is answered again.
                log.push(entry, self.last_seq);
            }
        }
        self.log = log;
    }

    /// Counts anew what is left after a split.
    pub(crate) fn recount(&mut self, store: &mut dyn ObjectStore, now: Duration) {
        self.begin_count(store, now);
        if self.count.is_none() {
            self.write_counted(store);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_lose_their_top_bits() {
        let check = |seed, want: &[u32]| {
            let id = SPgId::replicated(PgId::new(1, seed));
            assert_eq!(ancestors(id).map(|a| a.pg.seed).collect::<Vec<_>>(), want);
        };
        check(13, &[5, 1, 0]);
        check(1, &[0]);
        check(0, &[]);
    }
}
