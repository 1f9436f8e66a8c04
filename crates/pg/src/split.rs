//! Birth of a PG: empty, or by a split of PGs that hold its objects already.
//!
//! A split moves no object, since objects are ordered by reversed hash; what the new PG needs is the memory
//! of the old one: request ids of writes to its objects (a client sends again what was in flight when the
//! map changed), removed snapshots, and the last versions. It takes them from the logs of its ancestors in
//! the same store.

use crate::Pg;
use crate::api::Context;
use crate::pg::LoadError;
use crate::state::log::LogEntry;
use crate::state::meta::PgMeta;
use crate::state::range::{HashRange, ancestors};
use crate::store::{IoError, ObjectStore};
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EVersion, Errno, Op, Transaction};

/// Log entries taken over in one transaction.
const BIRTH_OPS: usize = 256;

/// What keeps a PG from being born.
enum Birth {
    Read(IoError),
    Write(Errno),
}

impl Pg {
    /// Creates the collection, with what its ancestors know of its objects.
    pub(crate) fn create(&mut self, store: &mut dyn ObjectStore, now: Duration) -> Result<(), LoadError> {
        let pg = self.state.id;
        let read = |source| LoadError::Read { pg, source };
        let decode = |what| move |source| LoadError::Decode { pg, what, source };
        let mut entries: BTreeMap<EVersion, LogEntry> = BTreeMap::new();
        // No object has a version above those of the PG that it came from.
        let (mut newest, mut user_version) = (0, 0);
        let mut nearest = true;
        for ancestor in ancestors(self.state.id) {
            if !store.has_collection(ancestor).map_err(read)? {
                continue;
            }
            if let Some(meta) = store.meta(ancestor).map_err(read)? {
                let meta = PgMeta::from_bytes(&meta).map_err(decode("ancestor's metadata"))?;
                self.state.meta.removed.union(&meta.removed);
                // What the one that it came from here lacks, it lacks.
                if std::mem::take(&mut nearest) {
                    let whole = meta.life >= self.state.pool.life_of(ancestor.pg.seed);
                    self.state.meta.complete = meta.complete && meta.dirty.is_empty() && whole;
                }
                newest = meta.stats.version.max(newest);
                user_version = meta.stats.user_version.max(user_version);
            }
            for (version, bytes) in store.log_entries(ancestor).map_err(read)? {
                let entry = LogEntry::from_bytes(&bytes).map_err(decode("ancestor's log entry"))?;
                newest = entry.version.version.max(newest);
                user_version = entry.last_user_version.max(user_version);
                if self.state.range.contains(entry.object.hash) {
                    entries.insert(version, entry);
                }
            }
        }
        // A store that is empty knows nothing of what others have confirmed, however often its OSD starts before it has asked them.
        self.state.meta.complete &= !(nearest && self.state.pool.coding.is_some());
        (self.state.meta.stats.version, self.state.meta.stats.user_version) = (newest, user_version);
        self.state.meta.life = self.state.pool.life_of(self.state.id.pg.seed);
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
        let mut txn = Transaction::new(self.state.id);
        let mut have = EVersion::default();
        if store.has_collection(self.state.id).map_err(Birth::Read)? {
            let there = store.log_entries(self.state.id).map_err(Birth::Read)?;
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
            self.state.log.push(entry, self.state.loaded_seq);
            if txn.ops.len() == BIRTH_OPS {
                let full = std::mem::replace(&mut txn, Transaction::new(self.state.id));
                store.submit(&full).map_err(Birth::Write)?;
            }
        }
        txn.ops.push(self.state.meta_op());
        store.submit(&txn).map_err(Birth::Write)?;
        Ok(())
    }

    /// Forgets what belongs to other PGs now. Answers that wait for durability stay: a client sends again only
    /// what was for a PG that split. With copies those about others' objects go: a member that is caught up from here on
    /// gets the objects of this PG alone, so that it has confirmed says nothing of the others'; the new PG answers
    /// who sends again. Watches go on in the new PG once their clients reconnect.
    pub(crate) fn leave_split_off(&mut self, ctx: &mut Context<'_>) {
        let range = HashRange::of(self.state.id.pg.seed, self.state.pool.pg_num);
        self.state.range = range;
        self.forget_their_writes(ctx);
        self.front.keep(range, !self.backend.is_shared());
        self.drop_jobs_of_others(ctx);
    }

    /// The memory of writes to objects that are others' now; the store's log keeps them until they are trimmed.
    fn forget_their_writes(&mut self, ctx: &mut Context<'_>) {
        let mut log = self.state.log.emptied();
        let entries = match self.state.log_since(None, ctx.store) {
            Ok(entries) => entries,
            Err(e) => return tracing::error!("pg {}: {e}", self.state.id),
        };
        for entry in entries {
            if self.state.range.contains(entry.object.hash) {
                // All that was submitted has to be durable before one of them is answered again.
                log.push(entry, self.state.last_seq);
            }
        }
        self.state.log = log;
    }

    /// Counts anew what is left after a split.
    pub(crate) fn recount(&mut self, store: &mut dyn ObjectStore, now: Duration) {
        self.begin_count(store, now);
        if self.count.is_none() {
            self.write_counted(store);
        }
    }
}
