//! One placement group: takes inputs apart and keeps the order.

use crate::api::{ClientOp, ClusterView, Context, Input, Output};
use crate::broken::{self, Rule};
use crate::checks::{self, Class, Verdict};
use crate::commit::Commits;
use crate::cost::Cost;
use crate::count::Count;
use crate::execute::{Exec, Fail, Work};
use crate::fetch::{Copies, copies_objects};
use crate::log::{LogEntry, PgLog};
use crate::meta::PgMeta;
use crate::object::{ObjectCache, ObjectState};
use crate::object_info::INFO_ATTR;
use crate::parked::{Job, Order, Parked, Task};
use crate::pool::{PoolView, SnapIntervals};
use crate::range::HashRange;
use crate::replication::{May, Replication, Shown};
use crate::scrub::{Scrub, Watched};
use crate::snapset::{Resolved, SnapSet};
use crate::store::{IoError, ObjectStore, Seq};
use crate::trim::Trim;
use crate::watch::{NotifyBytes, WatchTable};
use bytes::Bytes;
use denc::{Decode, Encode};
use messages::osd::{MOSDOpReply, flag};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use types::{Errno, HObject, NOSNAP, ObjectId, Op, SNAPDIR, SPgId, Transaction};

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
    pub(crate) id: SPgId,
    pub(crate) pool: Arc<PoolView>,
    pub(crate) range: HashRange,
    /// The newest transaction when it was loaded: what it finds in the store may be as young as that.
    pub(crate) loaded_seq: Seq,
    /// When it was loaded: watches found in the store count from here.
    pub(crate) loaded_at: Duration,
    pub(crate) log: PgLog,
    pub(crate) meta: PgMeta,
    pub(crate) cache: ObjectCache,
    pub(crate) commits: Commits,
    /// The newest transaction submitted: what a listing shows.
    pub(crate) last_seq: Seq,
    pub(crate) watches: WatchTable,
    pub(crate) notify_id: u32,
    pub(crate) parked: Parked,
    pub(crate) trim: Option<Trim>,
    /// While the statistics are being counted anew.
    pub(crate) count: Option<Count>,
    pub(crate) repl: Replication,
    /// Only reads are executed, of a member's copy, and only what this lets it show.
    pub(crate) shown: Option<Box<Shown>>,
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
        self.watches.bytes = bytes;
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
                pg.is_born();
            }
        }
        crate::scrub::clear_scratch(id, pg.range, store).map_err(read)?;
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
        pg.meta = PgMeta::from_bytes(&meta).map_err(|source| LoadError::Decode {
            pg: id,
            what: "metadata",
            source,
        })?;
        pg.meta.removed.union(&pg.pool.removed_snaps);
        pg.commits = Commits::nothing_waits();
        Ok(Some(pg))
    }

    fn new(id: SPgId, pool: Arc<PoolView>, submitted: Seq, now: Duration) -> Self {
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
            cache: ObjectCache::default(),
            commits: Commits::default(),
            last_seq: submitted,
            watches: WatchTable::default(),
            // Not the ids of the life before, in the same epoch.
            notify_id: now.as_micros() as u32,
            parked: Parked::new(now.as_micros() as u64),
            trim: None,
            count: None,
            repl: Replication::alone(),
            shown: None,
            scrub: Scrub::default(),
        }
    }

    fn load_meta_and_log(
        &mut self,
        meta: &Bytes,
        store: &mut dyn ObjectStore,
        now: Duration,
    ) -> Result<(), LoadError> {
        let pg = self.id;
        let read = |source| LoadError::Read { pg, source };
        let decode = |what| move |source| LoadError::Decode { pg, what, source };
        self.meta = PgMeta::from_bytes(meta).map_err(decode("metadata"))?;
        let mut rows = store.log_entries(pg).map_err(read)?;
        if broken::is(Rule::LoadedWhole) {
            rows.pop();
        }
        for (_, bytes) in rows {
            let entry = LogEntry::from_bytes(&bytes).map_err(decode("log entry"))?;
            if entry.version.version > self.meta.stats.version {
                self.meta.stats.add(&entry.delta);
                self.meta.stats.version = entry.version.version;
                self.meta.stats.user_version = entry.last_user_version;
            }
            // Those of PGs that were split off answer nobody here, and not every copy has them.
            if self.range.contains(entry.object.hash) {
                self.log.push(entry, self.loaded_seq);
            }
        }
        if self.meta.pg_num != self.pool.pg_num {
            self.recount(store, now);
        }
        Ok(())
    }

    pub fn id(&self) -> SPgId {
        self.id
    }

    pub fn pool(&self) -> &Arc<PoolView> {
        &self.pool
    }

    /// One input; outputs are appended to `ctx.out`.
    pub fn apply(&mut self, input: Input, ctx: &mut Context<'_>) {
        match input {
            Input::ClientOp(c) => {
                if let Some(c) = self.hold(c, ctx.now) {
                    self.client_op(c, ctx);
                }
            }
            Input::Committed(seq) => self.durable_here(seq, ctx),
            Input::Group(group) => self.group_changed(*group, ctx),
            Input::PeerUp(osd) => self.peer_up(osd, ctx),
            Input::PeerDown(osd) => self.peer_down(osd, ctx),
            Input::Peer { from, interval, body } => self.peer(from, interval, body, ctx),
            Input::Twin(osd) => self.note_twin(osd),
            Input::Grant { objects } => self.grant(objects, ctx),
            Input::Prefetched(ticket) => self.prefetched(ticket, ctx),
            Input::ConnectionClosed(conn) => {
                self.drop_held(|op| op.conn == conn);
                self.drop_jobs_from(conn, ctx);
                self.watches.connection_closed(conn, ctx.now);
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
        let replication = [self.replication_timer(), self.repair_timer()]
            .into_iter()
            .flatten()
            .min();
        if !self.is_active() {
            // The PG's own changes wait as clients' do.
            return replication;
        }
        [
            self.watches.next_timer(),
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
        self.commits.is_waiting() || self.repair_waits_for_flush() || self.repl.waits_for_durability()
    }

    /// Removed snapshots whose clones are gone from every object.
    pub fn trimmed_snaps(&self) -> &SnapIntervals {
        &self.meta.trimmed
    }

    /// What its log and its object cache may take of memory. A longer log shrinks with the next writes, or by
    /// [`Pg::trim_log`]; the cache at once, but for what is not durable.
    pub fn allow(&mut self, log_bytes: u64, cache_bytes: u64) {
        self.log.allow(log_bytes);
        self.cache.allow(cache_bytes, self.commits.committed());
    }

    /// Memory of its log and of its object cache, roughly.
    pub fn memory(&self) -> (u64, u64) {
        (self.log.bytes(), self.cache.bytes())
    }

    /// Trims the log to what it may take, where no write comes along to do it. Members trim with the next write.
    pub fn trim_log(&mut self, store: &mut dyn ObjectStore) {
        let excess = self.log.excess(self.commits.committed());
        let Some(to) = excess.filter(|_| self.is_active()) else {
            return;
        };
        let mut txn = Transaction::new(self.id);
        txn.ops.push(self.meta_op());
        txn.ops.push(Op::LogTrim { to });
        match store.submit(txn) {
            Ok(_) => self.log.trimmed(to),
            Err(e) => tracing::warn!("pg {}: its log is not trimmed: {e}", self.id),
        }
    }

    pub fn cached_objects(&self) -> usize {
        self.cache.len()
    }

    /// Notifications that began at `before` or earlier and wait for somebody, at most `max`.
    pub fn unanswered(&self, before: Duration, max: usize) -> Vec<crate::Unanswered> {
        self.watches.unanswered(before, max)
    }

    pub fn locks_seen(&self, now: Duration, max: usize) -> Vec<crate::LockSeen> {
        self.watches.locks_seen(now, max)
    }

    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    pub(crate) fn object_id(&self, object: HObject) -> ObjectId {
        ObjectId {
            shard: self.id.shard,
            object,
        }
    }

    pub(crate) fn meta_op(&self) -> Op {
        Op::SetMeta {
            meta: self.meta.to_bytes(),
        }
    }

    /// Takes the object's state out of the cache, or reads it. [`Pg::put_back`] ends the use.
    pub(crate) fn take(
        &mut self,
        oid: &ObjectId,
        ctx: &mut Context<'_>,
    ) -> Result<Box<ObjectState>, IoError> {
        if let Some(state) = self.cache.take(&oid.object) {
            return Ok(state);
        }
        let mut state = ObjectState::load(oid, ctx.store)?;
        state.last_write = self.loaded_seq;
        if oid.object.is_head() && self.shown.is_none() {
            self.watches
                .adopt(&oid.object, &mut state.info.watchers, self.loaded_at, ctx.now);
        }
        Ok(Box::new(state))
    }

    pub(crate) fn put_back(&mut self, object: HObject, state: Box<ObjectState>) {
        self.cache.put(object, state, self.commits.committed());
    }

    /// The transaction that an answer about this object must wait for.
    pub(crate) fn last_write(&self, head: &HObject) -> Seq {
        self.cache.get(head).map_or(self.loaded_seq, |s| s.last_write)
    }

    pub(crate) fn admit(&self, c: &ClientOp, cluster: &dyn ClusterView) -> Verdict {
        checks::admit(c, &self.pool, &self.range, cluster)
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
        if !self.parked.is_free_for(&head, order) {
            let tickets = match verdict {
                Verdict::Go(class) => self.prefetch_behind(&c, class, &head, ctx),
                _ => Vec::new(),
            };
            return self.park(Job::new(Task::Message(c), head, order, tickets), ctx);
        }
        let Some((c, class)) = self.answer_early(c, verdict, &head, ctx) else {
            return;
        };
        let head = self.object_id(head);
        let state = match self.take(&head, ctx) {
            Ok(state) => state,
            Err(e) => {
                tracing::error!("pg {}: {e}", self.id);
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
            self.id,
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
            self.pool.id,
            m.hash,
            m.oloc.nspace.clone(),
            m.oloc.key.clone(),
            m.oid.clone(),
            NOSNAP,
        )
    }

    /// An early error: return values 0, nothing remembered. Still in order with the object's other answers.
    pub(crate) fn refuse(&mut self, c: Box<ClientOp>, head: &HObject, e: Errno, ctx: &mut Context<'_>) {
        let reply = MOSDOpReply::to(&c.op, self.pool.epoch, e.code());
        self.reply(c, self.last_write(head), reply, ctx);
    }

    pub(crate) fn reply(&mut self, c: Box<ClientOp>, seq: Seq, reply: MOSDOpReply, ctx: &mut Context<'_>) {
        let reply = match self.shown.is_some() && is_unreadable(&reply) {
            // Only this copy is known to be damaged.
            true => {
                let head = self.head_of(&c);
                self.shown.get_or_insert_default().damage.meet(head);
                MOSDOpReply::to(&c.op, self.pool.epoch, Errno::EAGAIN.code())
            }
            false => reply,
        };
        let output = Output::Reply {
            conn: c.conn,
            reply,
            permit: c.permit,
        };
        self.commits.release_of(seq, Some(c.op.hash), output, ctx.out);
    }

    /// A message whose object cannot be read: refused, or given back if a repair is on its way.
    fn refuse_unless_repaired(
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

    /// Finds the object and runs the message on it. Given back if its copy here is damaged and on the way to be
    /// repaired: nothing has happened then.
    pub(crate) fn execute(
        &mut self,
        c: Box<ClientOp>,
        class: Class,
        head: HObject,
        fetched: Copies,
        may_repair: bool,
        ctx: &mut Context<'_>,
    ) -> Option<Box<ClientOp>> {
        let head = self.object_id(head);
        match self.take(&head, ctx) {
            Ok(state) => self.execute_on(c, class, (head, state), fetched, may_repair, ctx),
            Err(e) => {
                tracing::error!("pg {}: {e}", self.id);
                self.refuse_unless_repaired(c, &head.object, may_repair, ctx)
            }
        }
    }

    fn execute_on(
        &mut self,
        c: Box<ClientOp>,
        class: Class,
        (head, state): (ObjectId, Box<ObjectState>),
        fetched: Copies,
        may_repair: bool,
        ctx: &mut Context<'_>,
    ) -> Option<Box<ClientOp>> {
        let shown = self.shown.as_deref();
        if shown.is_some_and(|s| s.may(&head.object, ctx.now) != May::Show) {
            // Time has passed since it was admitted.
            self.put_back(head.object.clone(), state);
            self.refuse(c, &head.object, Errno::EAGAIN, ctx);
            return None;
        }
        let met = Cell::new(false);
        let damage = Damage {
            met: &met,
            may_repair,
        };
        let object = head.object.clone();
        let mut store = Watched::new(ctx.store, &object, &met);
        let ctx = &mut Context {
            store: &mut store,
            cluster: ctx.cluster,
            now: ctx.now,
            wall: ctx.wall,
            random: &mut *ctx.random,
            out: &mut *ctx.out,
        };
        match class {
            Class::Write => self.execute_write(c, head, state, fetched, damage, ctx),
            Class::Read | Class::Pg => self.execute_read(c, head, state, damage, ctx),
        }
    }

    /// True if a message met a damaged copy that is on its way to be repaired: it is to be tried again.
    pub(crate) fn is_repaired_first(
        &mut self,
        damage: Damage<'_>,
        head: &HObject,
        ctx: &mut Context<'_>,
    ) -> bool {
        damage.may_repair && damage.met.get() && self.damaged(head, ctx)
    }

    fn execute_read(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        state: Box<ObjectState>,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<Box<ClientOp>> {
        let last_write = state.last_write;
        let snap = c.op.snapid;
        let found = if snap == NOSNAP || snap == SNAPDIR {
            let there = state.exists || (snap == SNAPDIR && !state.snapset.clones.is_empty());
            there.then_some(None)
        } else {
            match self.resolve(&state.snapset, &c) {
                Resolved::Head if state.exists => Some(None),
                Resolved::Clone(id) => Some(Some(id)),
                _ => None,
            }
        };
        let reply = match found {
            None => Some(MOSDOpReply::to(&c.op, self.pool.epoch, Errno::ENOENT.code())),
            Some(None) => self.run_read(&c, &head, &head, &state, damage, ctx),
            Some(Some(clone)) => self.read_clone(&c, &head, clone, damage, ctx),
        };
        self.put_back(head.object, state);
        match reply {
            Some(reply) => {
                self.reply(c, last_write, reply, ctx);
                None
            }
            None => Some(c),
        }
    }

    /// What a read's snapshot means for the object.
    pub(crate) fn resolve(&self, snapset: &SnapSet, c: &ClientOp) -> Resolved {
        let snap = c.op.snapid;
        if c.op.has(flag::MAP_SNAP_CLONE) {
            snapset.resolve_exact(snap)
        } else if self.meta.removed.contains(snap) {
            Resolved::Absent
        } else {
            snapset.resolve(snap)
        }
    }

    fn read_clone(
        &mut self,
        c: &ClientOp,
        head: &ObjectId,
        clone: u64,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<MOSDOpReply> {
        let source = self.object_id(head.object.with_snap(clone));
        let epoch = self.pool.epoch;
        match self.take(&source, ctx) {
            Ok(state) if state.exists => {
                let reply = self.run_read(c, head, &source, &state, damage, ctx);
                self.put_back(source.object, state);
                return reply;
            }
            Ok(_) => tracing::error!(
                "{}: the snapset lists a clone that the store does not have",
                source.object
            ),
            Err(e) => tracing::error!("{e}"),
        }
        damage.met.set(true);
        match self.is_repaired_first(damage, &head.object, ctx) {
            true => None,
            false => Some(MOSDOpReply::to(&c.op, epoch, Errno::EIO.code())),
        }
    }

    fn run_read(
        &mut self,
        c: &ClientOp,
        head: &ObjectId,
        source: &ObjectId,
        old: &ObjectState,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<MOSDOpReply> {
        let pool = self.pool.clone();
        let cost = match Cost::of(&c.op, old) {
            Ok(cost) => cost,
            Err(e) => return Some(MOSDOpReply::to(&c.op, pool.epoch, e.code())),
        };
        let mut exec = Exec {
            ctx,
            pool: &pool,
            watches: &mut self.watches,
            client: &c.client,
            conn: c.conn,
            message: &c.op,
            head,
            source,
            old,
            work: Work {
                new: old.clone(),
                ..Work::default()
            },
            cost,
            effects: Vec::new(),
            fetched: Default::default(),
            notify_id: &mut self.notify_id,
            read_bytes: 0,
        };
        let ran = exec.run();
        let (effects, read_bytes) = (exec.effects, exec.read_bytes);
        if self.is_repaired_first(damage, &head.object, ctx) {
            return None;
        }
        if self.shown.is_some() && damage.met.get() {
            // Whatever an operation or a class method made of it.
            return Some(MOSDOpReply::to(&c.op, pool.epoch, Errno::EIO.code()));
        }
        self.meta.stats.reads += 1;
        self.meta.stats.read_bytes += read_bytes;
        if ran.result >= 0 {
            self.carry_out(&head.object, effects, c.conn, old.last_write, ctx);
        }
        Some(self.read_reply(c, old, ran))
    }

    fn map_changed(&mut self, pool: Arc<PoolView>, ctx: &mut Context<'_>) {
        let split = pool.pg_num != self.pool.pg_num;
        self.pool = pool;
        if split {
            self.note_split();
            self.restart_catching_up(ctx);
            self.leave_split_off(ctx);
            let range = self.range;
            self.drop_held(|op| !range.contains(op.op.hash));
            self.recount(ctx.store, ctx.now);
        }
        self.note_removed_snaps(ctx.now);
        for (object, key) in self.watches.blocked(&self.pool.blocklist) {
            self.end_watch(&object, key, false, ctx);
        }
    }

    fn tick(&mut self, ctx: &mut Context<'_>) {
        self.replication_tick(ctx);
        if !self.is_active() {
            return;
        }
        let mut ended = Vec::new();
        let due = self.watches.expired(ctx.now, &mut ended);
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
        } else if self.meta.removed.contains(object.snap) {
            Err(Errno::ENOENT)
        } else {
            crate::ops::copy::export(object, self.id.shard, ctx.store).map_err(|f: Fail| Errno(-f.rval))
        };
        let result = match result {
            // The asker's client asks again, and may find it repaired.
            Err(Errno::EIO) if self.damaged(&object.head(), ctx) => Err(Errno::EAGAIN),
            result => result,
        };
        let seq = self.last_write(&object.head());
        self.commits
            .release(seq, Output::Exported { token, result }, ctx.out);
    }

    /// Whether a head is a whiteout, which no listing shows.
    pub(crate) fn is_whiteout(&self, oid: &ObjectId, store: &mut dyn ObjectStore) -> Result<bool, IoError> {
        if let Some(state) = self.cache.get(&oid.object) {
            return Ok(!state.exists);
        }
        let info: Option<Bytes> = store.attr(oid, INFO_ATTR)?;
        let info = info.map(|b| crate::object_info::ObjectInfo::from_bytes(&b));
        Ok(matches!(info, Some(Ok(i)) if i.whiteout))
    }
}

/// Something of it could not be read.
fn is_unreadable(reply: &MOSDOpReply) -> bool {
    let eio = Errno::EIO.code();
    reply.result == eio || reply.ops.iter().any(|op| op.rval == eio)
}
