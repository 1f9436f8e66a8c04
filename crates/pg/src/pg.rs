//! One placement group: takes inputs apart and keeps the order.

use crate::api::{ClientOp, ClusterView, Context, Input, PgStats};
use crate::backend::Backend;
use crate::backend::erasure::shards::Shards;
use crate::backend::replicated::Replicated;
use crate::broken::{self, Rule};
use crate::count::Count;
use crate::exec::notifies::NotifyBytes;
use crate::front::Front;
use crate::front::checks::{Class, Verdict};
use crate::pool::{PoolView, SnapIntervals};
use crate::scrub::Scrub;
use crate::state::log::LogEntry;
use crate::state::meta::PgMeta;
use crate::state::pg::PgState;
use crate::state::range::HashRange;
use crate::store::{IoError, ObjectStore, Seq};
use crate::trim::Trim;
use bytes::Bytes;
use denc::Decode;
use std::sync::Arc;
use std::time::Duration;
use types::{Errno, SPgId, Transaction};

/// Why a PG could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("pg {pg}: {source}")]
    Read { pg: SPgId, source: IoError },
    #[error("pg {pg}: {what} does not decode: {source}")]
    Decode {
        pg: SPgId,
        what: &'static str,
        source: denc::Error,
    },
    #[error("pg {pg}: the collection cannot be created: {errno}")]
    Create { pg: SPgId, errno: Errno },
}

#[derive(Debug)]
pub struct Pg {
    pub(crate) state: PgState,
    pub(crate) front: Front,
    pub(crate) trim: Option<Trim>,
    /// While the statistics are being counted anew.
    pub(crate) count: Option<Count>,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) scrub: Scrub,
}

impl Pg {
    /// From now on its notifications share these bytes with those of the OSD's other PGs.
    pub fn share_notify_bytes(&mut self, bytes: NotifyBytes) {
        self.front.share_notify_bytes(bytes);
    }

    /// Loads the PG from the store, or creates its collection if it is new. A new collection may find objects
    /// there: those of the PG from which it was split.
    pub fn load(
        id: SPgId,
        pool: Arc<PoolView>,
        store: &mut dyn ObjectStore,
        now: Duration,
    ) -> Result<Self, LoadError> {
        let read = |source| LoadError::Read { pg: id, source };
        let mut pg = Self::new(id, pool, store.submitted(), now);
        match store.meta(id).map_err(read)? {
            Some(meta) => pg.load_meta_and_log(&meta, store, now)?,
            None => {
                pg.create(store, now)?;
                pg.backend.is_born(&pg.state);
            }
        }
        crate::backend::replicated::clear_scratch(id, pg.state.range, store).map_err(read)?;
        pg.note_removed_snaps(now);
        Ok(pg)
    }

    /// What the back end took back was never executed in this interval: what the PG remembers is read anew, and only clients'
    /// messages that wait are kept.
    pub(crate) fn reload(&mut self, ctx: &mut Context<'_>) {
        let fresh = Self::load(self.state.id, self.state.pool.clone(), ctx.store, ctx.now);
        let fresh = match fresh {
            Ok(fresh) => fresh,
            // It stays inactive: the back end has not been told.
            Err(e) => return tracing::error!("{e}"),
        };
        self.abandon_answers(ctx);
        self.state = fresh.state;
        self.trim = fresh.trim;
        self.count = fresh.count;
        self.front.begin_anew();
        self.lend(ctx, |b, lent| b.reloaded(lent));
    }

    /// What answers reads of a member's copy; None where it has none. It changes nothing, and is told by
    /// [`crate::Replica`] what has changed.
    pub(crate) fn reader(
        id: SPgId,
        pool: Arc<PoolView>,
        store: &mut dyn ObjectStore,
        now: Duration,
    ) -> Result<Option<Self>, LoadError> {
        // What one shard has is no copy.
        if pool.coding.is_some() {
            return Ok(None);
        }
        let Some(meta) = store
            .meta(id)
            .map_err(|source| LoadError::Read { pg: id, source })?
        else {
            return Ok(None);
        };
        let mut pg = Self::new(id, pool, store.submitted(), now);
        pg.state.meta = PgMeta::from_bytes(&meta).map_err(|source| LoadError::Decode {
            pg: id,
            what: "metadata",
            source,
        })?;
        pg.state.meta.removed.union(&pg.state.pool.removed_snaps);
        pg.front = Front::of_reader(now);
        Ok(Some(pg))
    }

    fn new(id: SPgId, pool: Arc<PoolView>, submitted: Seq, now: Duration) -> Self {
        let backend: Box<dyn Backend> = match &pool.coding {
            None => Box::new(Replicated::alone()),
            Some(coding) => Box::new(Shards::alone(coding.clone(), id.shard)),
        };
        Self {
            state: PgState::new(id, pool, submitted, now),
            front: Front::new(now),
            trim: None,
            count: None,
            backend,
            scrub: Scrub::default(),
        }
    }

    fn load_meta_and_log(
        &mut self,
        meta: &Bytes,
        store: &mut dyn ObjectStore,
        now: Duration,
    ) -> Result<(), LoadError> {
        let pg = self.state.id;
        let read = |source| LoadError::Read { pg, source };
        let decode = |what| move |source| LoadError::Decode { pg, what, source };
        self.state.meta = PgMeta::from_bytes(meta).map_err(decode("metadata"))?;
        let mut rows = store.log_entries(pg).map_err(read)?;
        if broken::is(Rule::LoadedWhole) {
            rows.pop();
        }
        for (_, bytes) in rows {
            let entry = LogEntry::from_bytes(&bytes).map_err(decode("log entry"))?;
            if entry.version.version > self.state.meta.stats.version {
                self.state.meta.stats.add(&entry.delta);
                self.state.meta.stats.version = entry.version.version;
                self.state.meta.stats.user_version = entry.last_user_version;
            }
            // Those of PGs that were split off answer nobody here, and not every copy has them.
            if self.state.range.contains(entry.object.hash) {
                self.state.log.push(entry, self.state.loaded_seq);
            }
        }
        let counted = self.state.meta.pg_num;
        if counted == 0 || HashRange::of(pg.pg.seed, counted) != self.state.range {
            self.recount(store, now);
        }
        Ok(())
    }

    pub fn id(&self) -> SPgId {
        self.state.id
    }

    pub fn pool(&self) -> &Arc<PoolView> {
        &self.state.pool
    }

    /// One input; outputs are appended to `ctx.out`.
    pub fn apply(&mut self, input: Input, ctx: &mut Context<'_>) {
        match input {
            Input::ClientOp(c) => {
                if let Some(c) = self.hold(c, ctx.now) {
                    self.client_op(c, ctx);
                }
            }
            Input::Committed(seq) => self.tell_backend(ctx, |b, lent| b.durable(seq, lent)),
            Input::Group(group) => self.tell_backend(ctx, |b, lent| b.set_group(*group, lent)),
            Input::PeerUp(osd) => self.tell_backend(ctx, |b, lent| b.peer_up(osd, lent)),
            Input::PeerDown(osd) => self.tell_backend(ctx, |b, lent| b.peer_down(osd, lent)),
            Input::Peer {
                from,
                shard,
                interval,
                body,
            } => self.peer((from, shard), interval, body, ctx),
            Input::Merge => self.tell_backend(ctx, |b, lent| b.come_to_rest(lent)),
            Input::SplitSibling(osd) => self.backend.note_sibling(osd, &self.state),
            Input::Grant { objects } => self.tell_backend(ctx, |b, lent| b.grant(objects, lent)),
            Input::Prefetched(ticket) => self.prefetched(ticket, ctx),
            Input::ConnectionClosed(conn) => {
                self.drop_held(|op| op.conn == conn);
                self.drop_jobs_from(conn, ctx);
                self.front.connection_closed(conn, ctx.now);
            }
            Input::MapChanged(pool) => self.map_changed(pool, ctx),
            Input::Scrub(order) => self.begin_scrub(order, ctx),
            Input::ScrubGrant => self.scrub_granted(ctx),
            Input::Tick => self.tick(ctx),
            Input::Fetched { id, result } => self.fetched(id, result, ctx),
            Input::Export { token, object } => self.export(token, object, ctx),
        }
        self.scrub_on(ctx);
    }

    /// Whether a client's operation on an object passes admission: it may do it, and it belongs here.
    pub fn lets_in(&self, op: &ClientOp, cluster: &dyn ClusterView) -> bool {
        matches!(self.admit(op, cluster), Verdict::Go(Class::Read | Class::Write))
    }

    /// When the PG next wants an [`Input::Tick`].
    pub fn next_timer(&self) -> Option<Duration> {
        let walk = match (&self.count, &self.trim) {
            (Some(count), _) => Some(count.next_at),
            (None, trim) => trim.as_ref().map(|t| t.next_at),
        };
        let replication = self.backend.next_timer();
        if !self.is_active() {
            // The PG's own changes wait as clients' do.
            return replication;
        }
        [self.front.next_timer(), walk, replication]
            .into_iter()
            .flatten()
            .min()
    }

    /// True while answers, a repair, or what learners get, wait for durability: only such a PG needs [`Input::Committed`], at once if what it
    /// waits for is durable already (a PG that was just loaded cannot know that).
    pub fn is_waiting(&self) -> bool {
        self.front.is_waiting() || self.backend.waits_for_durability()
    }

    /// Removed snapshots whose clones are gone from every object.
    pub fn trimmed_snaps(&self) -> &SnapIntervals {
        &self.state.meta.trimmed
    }

    /// Notifications that began at `before` or earlier and wait for somebody, at most `max`.
    pub fn unanswered(&self, before: Duration, max: usize) -> Vec<crate::Unanswered> {
        self.front.watches().unanswered(before, max)
    }

    /// Who watches objects of this PG.
    pub fn watchers(&self, max: usize) -> Vec<crate::Watcher> {
        self.front.watches().watchers(max)
    }

    pub fn locks_seen(&self, now: Duration, max: usize) -> Vec<crate::LockSeen> {
        self.front.watches().locks_seen(now, max)
    }

    pub fn log_len(&self) -> usize {
        self.state.log.len()
    }

    pub fn stats(&self) -> PgStats {
        let stats = &self.state.meta.stats;
        self.count.as_ref().map_or(*stats, |count| count.sums_in(stats))
    }

    /// Begins to count with a first step, after which a small PG is done.
    pub(crate) fn begin_count(&mut self, store: &mut dyn ObjectStore, now: Duration) {
        let mut count = Count::new(&self.state, now);
        let more = count.step(&mut self.state, store, now);
        self.count = more.then_some(count);
    }

    /// One step, if it is time; the result is written down when it is the last.
    fn count_step(&mut self, store: &mut dyn ObjectStore, now: Duration) {
        let due = self.count.as_mut().filter(|count| count.next_at <= now);
        if due.is_some_and(|count| !count.step(&mut self.state, store, now)) {
            self.count = None;
            self.write_counted(store);
        }
    }

    /// If this fails, the next load counts again.
    pub(crate) fn write_counted(&mut self, store: &mut dyn ObjectStore) {
        let mut txn = Transaction::new(self.state.id);
        txn.ops.push(self.state.meta_op());
        if let Err(e) = store.submit(&txn) {
            tracing::warn!(
                "pg {}: the count of its objects is not written: {e}",
                self.state.id
            );
        }
    }

    fn map_changed(&mut self, pool: Arc<PoolView>, ctx: &mut Context<'_>) {
        let range = HashRange::of(self.state.id.pg.seed, pool.pg_num);
        let split = range != self.state.range;
        self.state.pool = pool;
        if split {
            self.tell_backend(ctx, |b, lent| b.split(lent));
            self.leave_split_off(ctx);
            let range = self.state.range;
            self.drop_held(|op| !range.contains(op.op.hash));
            self.recount(ctx.store, ctx.now);
        }
        self.note_removed_snaps(ctx.now);
        for (object, key) in self.front.watches().blocked(&self.state.pool.blocklist) {
            self.end_watch(&object, key, false, ctx);
        }
    }

    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.tell_backend(ctx, |b, lent| b.tick(lent));
        if !self.is_active() {
            return;
        }
        let due = self.front.expired(ctx.now, ctx.out);
        for (object, key) in due {
            self.end_watch(&object, key, true, ctx);
        }
        self.fetch_again(ctx);
        self.count_step(ctx.store, ctx.now);
        self.trim_step(ctx);
    }
}
