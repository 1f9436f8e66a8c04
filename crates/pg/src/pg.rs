//! One placement group: takes inputs apart and keeps the order.

use crate::api::{ClientOp, ClusterView, Context, Input, Output};
use crate::backend::Backend;
use crate::backend::replicated::Replicated;
use crate::broken::{self, Rule};
use crate::count::Count;
use crate::exec::notifies::NotifyBytes;
use crate::front::Front;
use crate::front::checks::{self, Class, Verdict};
use crate::front::commit::Commits;
use crate::front::fetch::{Copies, copies_objects};
use crate::front::parked::{Job, Order, Task};
use crate::pool::{PoolView, SnapIntervals};
use crate::scrub::Scrub;
use crate::state::log::{LOG_KEPT, LOG_KEPT_MIN, LogEntry};
use crate::state::meta::PgMeta;
use crate::state::object::ObjectState;
use crate::state::object_info::INFO_ATTR;
use crate::state::pg::PgState;
use crate::store::{IoError, ObjectStore, Seq};
use crate::trim::Trim;
use bytes::Bytes;
use denc::Decode;
use messages::osd::MOSDOpReply;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use types::{Errno, HObject, NOSNAP, ObjectId, SPgId};

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
    /// Only reads are executed, of a member's copy, and only what this lets it show.
    pub(crate) scrub: Scrub,
}

/// Whether a message met something that cannot be read here, and what that leads to.
#[derive(Clone, Copy)]
pub(crate) struct Damage<'a> {
    pub met: &'a Cell<bool>,
    /// No repair was tried for this message yet.
    pub may_repair: bool,
}

impl Pg {
    /// From now on its notifications share these bytes with those of the OSD's other PGs.
    pub fn share_notify_bytes(&mut self, bytes: NotifyBytes) {
        self.front.watches.bytes = bytes;
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

    /// What answers reads of a member's copy; None where it has none. It changes nothing, and is told by
    /// [`crate::Replica`] what has changed.
    pub(crate) fn reader(
        id: SPgId,
        pool: Arc<PoolView>,
        store: &mut dyn ObjectStore,
        now: Duration,
    ) -> Result<Option<Self>, LoadError> {
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
        pg.front.commits = Commits::nothing_waits();
        Ok(Some(pg))
    }

    fn new(id: SPgId, pool: Arc<PoolView>, submitted: Seq, now: Duration) -> Self {
        Self {
            state: PgState::new(id, pool, submitted, now),
            front: Front::new(now),
            trim: None,
            count: None,
            backend: Box::new(Replicated::alone()),
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
        if self.state.meta.pg_num != self.state.pool.pg_num {
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
            Input::Peer { from, interval, body } => self.peer(from, interval, body, ctx),
            Input::Twin(osd) => self.backend.note_twin(osd, &self.state),
            Input::Grant { objects } => self.tell_backend(ctx, |b, lent| b.grant(objects, lent)),
            Input::Prefetched(ticket) => self.prefetched(ticket, ctx),
            Input::ConnectionClosed(conn) => {
                self.drop_held(|op| op.conn == conn);
                self.drop_jobs_from(conn, ctx);
                self.front.watches.connection_closed(conn, ctx.now);
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
        [
            self.front.watches.next_timer(),
            self.next_fetch_again(),
            walk,
            replication,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// True while answers, a repair, or what learners get, wait for durability: only such a PG needs [`Input::Committed`], at once if what it
    /// waits for is durable already (a PG that was just loaded cannot know that).
    pub fn is_waiting(&self) -> bool {
        self.front.commits.is_waiting() || self.backend.waits_for_durability()
    }

    /// Removed snapshots whose clones are gone from every object.
    pub fn trimmed_snaps(&self) -> &SnapIntervals {
        &self.state.meta.trimmed
    }

    /// How many log entries to remember, as memory allows: between [`LOG_KEPT_MIN`] and [`LOG_KEPT`].
    pub fn keep_log_entries(&mut self, entries: usize) {
        self.state.log.keep = entries.clamp(LOG_KEPT_MIN, LOG_KEPT);
    }

    /// Notifications that began at `before` or earlier and wait for somebody, at most `max`.
    pub fn unanswered(&self, before: Duration, max: usize) -> Vec<crate::Unanswered> {
        self.front.watches.unanswered(before, max)
    }

    pub fn locks_seen(&self, now: Duration, max: usize) -> Vec<crate::LockSeen> {
        self.front.watches.locks_seen(now, max)
    }

    pub fn log_len(&self) -> usize {
        self.state.log.len()
    }

    /// Takes the object's state out of the cache, or reads it. [`Pg::put_back`] ends the use.
    pub(crate) fn take(
        &mut self,
        oid: &ObjectId,
        ctx: &mut Context<'_>,
    ) -> Result<Box<ObjectState>, IoError> {
        self.front.take(oid, &self.state, ctx.store, ctx.now)
    }

    pub(crate) fn put_back(&mut self, object: HObject, state: Box<ObjectState>) {
        self.front.put_back(object, state);
    }

    /// The transaction that an answer about this object must wait for.
    pub(crate) fn last_write(&self, head: &HObject) -> Seq {
        self.front.last_write_of(head, &self.state)
    }

    pub(crate) fn admit(&self, c: &ClientOp, cluster: &dyn ClusterView) -> Verdict {
        checks::admit(c, &self.state.pool, &self.state.range, cluster)
    }

    pub(crate) fn client_op(&mut self, c: Box<ClientOp>, ctx: &mut Context<'_>) {
        let verdict = self.admit(&c, ctx.cluster);
        match verdict {
            Verdict::Drop(why) => return self.drop_message(&c, why, ctx),
            Verdict::Go(Class::Pg) => return self.list(*c, ctx),
            _ => {}
        }
        let head = self.head_of(&c);
        let order = Order::of(&c.op, verdict);
        if !self.front.parked.is_free_for(&head, order) {
            let tickets = match verdict {
                Verdict::Go(class) => self.prefetch_behind(&c, class, &head, ctx),
                _ => Vec::new(),
            };
            return self.park(Job::new(Task::Message(c), head, order, tickets), ctx);
        }
        let Some((c, class)) = self.answer_early(c, verdict, &head, ctx) else {
            return;
        };
        let head = self.state.object_id(head);
        let state = match self.take(&head, ctx) {
            Ok(state) => state,
            Err(e) => {
                tracing::error!("pg {}: {e}", self.state.id);
                let c = self.refuse_unless_repaired(c, &head.object, true, ctx);
                return self.again_when_repaired(c, head.object, order, ctx);
            }
        };
        let tickets = self.prefetch(&c, class, &head, &state, ctx);
        if tickets.is_empty() && !copies_objects(&c) {
            let object = head.object.clone();
            let c = self.execute_on(c, class, (head, state), Copies::default(), true, ctx);
            return self.again_when_repaired(c, object, order, ctx);
        }
        self.put_back(head.object.clone(), state);
        self.park(Job::new(Task::Message(c), head.object, order, tickets), ctx);
    }

    fn drop_message(&mut self, c: &ClientOp, why: &'static str, ctx: &mut Context<'_>) {
        let (conn, tid) = (c.conn, c.op.tid);
        tracing::warn!(
            "pg {}: operation {tid} of {} dropped: {why}",
            self.state.id,
            c.client.name
        );
        ctx.out.push(Output::Dropped { conn, tid, why });
    }

    /// Answers what needs no look at the object: early errors, and writes that were done before. Gives any other
    /// message back with its class.
    pub(crate) fn answer_early(
        &mut self,
        c: Box<ClientOp>,
        verdict: Verdict,
        head: &HObject,
        ctx: &mut Context<'_>,
    ) -> Option<(Box<ClientOp>, Class)> {
        let class = match verdict {
            Verdict::Drop(why) => {
                self.drop_message(&c, why, ctx);
                return None;
            }
            Verdict::Refuse(e) => {
                self.refuse(c, head, e, ctx);
                return None;
            }
            Verdict::Go(class) => class,
        };
        if class == Class::Write
            && let Some((seq, reply)) = self.duplicate(&c)
        {
            let seq = match broken::is(Rule::DuplicateWaits) {
                true => 0,
                false => seq.max(self.last_write(head)),
            };
            self.reply(c, seq, reply, ctx);
            return None;
        }
        if !checks::snapdir_fits(&c.op) {
            self.refuse(c, head, Errno::EINVAL, ctx);
            return None;
        }
        Some((c, class))
    }

    pub(crate) fn head_of(&self, c: &ClientOp) -> HObject {
        let m = &c.op;
        HObject::new(
            self.state.pool.id,
            m.hash,
            m.oloc.nspace.clone(),
            m.oloc.key.clone(),
            m.oid.clone(),
            NOSNAP,
        )
    }

    /// An early error: return values 0, nothing remembered. Still in order with the object's other answers.
    pub(crate) fn refuse(&mut self, c: Box<ClientOp>, head: &HObject, e: Errno, ctx: &mut Context<'_>) {
        let reply = MOSDOpReply::to(&c.op, self.state.pool.epoch, e.code());
        self.reply(c, self.last_write(head), reply, ctx);
    }

    pub(crate) fn reply(&mut self, c: Box<ClientOp>, seq: Seq, reply: MOSDOpReply, ctx: &mut Context<'_>) {
        let reply = match self.front.shown.is_some() && is_unreadable(&reply) {
            // Only this copy is known to be damaged.
            true => {
                let head = self.head_of(&c);
                self.front.shown.get_or_insert_default().damage.meet(head);
                MOSDOpReply::to(&c.op, self.state.pool.epoch, Errno::EAGAIN.code())
            }
            false => reply,
        };
        let output = Output::Reply {
            conn: c.conn,
            reply,
            permit: c.permit,
        };
        self.front
            .commits
            .release_of(seq, Some(c.op.hash), output, ctx.out);
    }

    /// A message whose object cannot be read: refused, or given back if a repair is on its way.
    pub(crate) fn refuse_unless_repaired(
        &mut self,
        c: Box<ClientOp>,
        head: &HObject,
        may_repair: bool,
        ctx: &mut Context<'_>,
    ) -> Option<Box<ClientOp>> {
        if may_repair && self.damaged(head, ctx) {
            return Some(c);
        }
        self.refuse(c, head, Errno::EIO, ctx);
        None
    }

    /// Parks a message that was given back by its execution.
    fn again_when_repaired(
        &mut self,
        c: Option<Box<ClientOp>>,
        head: HObject,
        order: Order,
        ctx: &mut Context<'_>,
    ) {
        if let Some(c) = c {
            self.park_behind_repair(c, head.clone(), order);
            self.pump(&head, ctx);
        }
    }

    fn map_changed(&mut self, pool: Arc<PoolView>, ctx: &mut Context<'_>) {
        let split = pool.pg_num != self.state.pool.pg_num;
        self.state.pool = pool;
        if split {
            self.tell_backend(ctx, |b, lent| b.split(lent));
            self.leave_split_off(ctx);
            let range = self.state.range;
            self.drop_held(|op| !range.contains(op.op.hash));
            self.recount(ctx.store, ctx.now);
        }
        self.note_removed_snaps(ctx.now);
        for (object, key) in self.front.watches.blocked(&self.state.pool.blocklist) {
            self.end_watch(&object, key, false, ctx);
        }
    }

    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.tell_backend(ctx, |b, lent| b.tick(lent));
        if !self.is_active() {
            return;
        }
        let mut ended = Vec::new();
        let due = self.front.watches.expired(ctx.now, &mut ended);
        ctx.out.append(&mut ended);
        for (object, key) in due {
            self.end_watch(&object, key, true, ctx);
        }
        self.fetch_again(ctx);
        self.count_step(ctx.store, ctx.now);
        self.trim_step(ctx);
    }

    fn export(&mut self, token: u64, object: HObject, ctx: &mut Context<'_>) {
        let tickets = self.prefetch_export(&object, ctx);
        let head = object.head();
        if tickets.is_empty() {
            self.export_now(token, &object, ctx);
            // What it met may have to be repaired.
            return self.pump(&head, ctx);
        }
        self.park(
            Job::new(Task::Export { token, object }, head, Order::Free, tickets),
            ctx,
        );
    }

    pub(crate) fn export_now(&mut self, token: u64, object: &HObject, ctx: &mut Context<'_>) {
        let result = if !self.is_active() {
            // What is here may be older, or newer, than what stands.
            Err(Errno::EAGAIN)
        } else if self.state.meta.removed.contains(object.snap) {
            Err(Errno::ENOENT)
        } else {
            self.exported(object, ctx)
        };
        let result = match result {
            // The asker's client asks again, and may find it repaired.
            Err(Errno::EIO) if self.damaged(&object.head(), ctx) => Err(Errno::EAGAIN),
            result => result,
        };
        let seq = self.last_write(&object.head());
        self.front
            .commits
            .release(seq, Output::Exported { token, result }, ctx.out);
    }

    /// Whether a head is a whiteout, which no listing shows.
    pub(crate) fn is_whiteout(&self, oid: &ObjectId, store: &mut dyn ObjectStore) -> Result<bool, IoError> {
        if let Some(state) = self.front.cache.get(&oid.object) {
            return Ok(!state.exists);
        }
        let info: Option<Bytes> = store.attr(oid, INFO_ATTR)?;
        let info = info.map(|b| crate::state::object_info::ObjectInfo::from_bytes(&b));
        Ok(matches!(info, Some(Ok(i)) if i.whiteout))
    }
}

/// Something of it could not be read.
fn is_unreadable(reply: &MOSDOpReply) -> bool {
    let eio = Errno::EIO.code();
    reply.result == eio || reply.ops.iter().any(|op| op.rval == eio)
}
