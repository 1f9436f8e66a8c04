//! From an executed write message to its transaction: versions, clones, whiteouts, the log entry.

use crate::Pg;
use crate::api::{ClientOp, ConnId, Context, Output};
use crate::broken::{self, Rule};
use crate::exec::cost::{Cost, rows_to_clone, shared_blocks};
use crate::exec::{Change, Effect, Exec, Ran, Work};
use crate::front::fetch::Copies;
use crate::front::locks::RBD_LOCK;
use crate::front::reply::{Versions, returns_fit};
use crate::front::watch::{WatchKey, key_of};
use crate::pg::Damage;
use crate::state::intervals::Intervals;
use crate::state::log::{EntryKind, LogEntry};
use crate::state::object::ObjectState;
use crate::state::object_info::{INFO_ATTR, NO_REQID, SNAPSET_ATTR, user_attr};
use crate::state::snapset::{CloneInfo, SnapSet, context_is_valid};
use crate::state::stats::StatsDelta;
use crate::store::Seq;
use bytes::Bytes;
use denc::Encode;
use messages::osd::{MOSDOp, flag};
use std::sync::Arc;
use types::{EVersion, Errno, HObject, ObjectId, Op, Transaction, Utime};

/// The snapshot context that counts for a write.
#[derive(Debug, Default)]
struct SnapContext {
    seq: u64,
    /// Descending, without removed ones.
    snaps: Vec<u64>,
}

/// Values of a failed message's operations that the log keeps; a duplicate is told 0 for those behind.
const RETURNS_KEPT: usize = 1024;
/// Ranges of a write that its log entry keeps; a copy that lacks one with more gets the object whole.
const RANGES_MAX: usize = 256;

/// A log entry's fields that differ between the ways of writing.
struct Record {
    kind: EntryKind,
    version: EVersion,
    user_version: u64,
    mtime: Utime,
    result: i32,
    clone: u64,
    returns: Vec<(i32, Bytes)>,
    delta: StatsDelta,
    reqid: types::OsdReqId,
    /// See [`LogEntry::instance`].
    instance: u64,
    prior: EVersion,
    /// See [`LogEntry::ranges`].
    ranges: Option<Intervals>,
}

impl Pg {
    fn snap_context(&self, m: &MOSDOp) -> Result<SnapContext, Errno> {
        let pools = self.state.pool.pool_snaps_mode && !m.has(flag::ENFORCE_SNAPC);
        let (seq, snaps) = if pools {
            (self.state.pool.snap_seq, &self.state.pool.snaps)
        } else {
            (m.snap_seq, &m.snaps)
        };
        if !context_is_valid(seq, snaps) {
            return Err(Errno::EINVAL);
        }
        let kept = snaps.iter().filter(|s| !self.state.meta.removed.contains(**s));
        Ok(SnapContext {
            seq,
            snaps: kept.copied().collect(),
        })
    }

    pub(crate) fn execute_write(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        old: Box<ObjectState>,
        fetched: Copies,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<Box<ClientOp>> {
        let context = self.snap_context(&c.op).and_then(|s| {
            let outdated = c.op.has(flag::ORDERSNAP) && s.seq < old.snapset.seq;
            if outdated { Err(Errno::EOLDSNAPC) } else { Ok(s) }
        });
        let admitted = context.and_then(|s| {
            let mut cost = Cost::of(&c.op, &old)?;
            self.charge_clone(&head, &old, &s, &mut cost, ctx)?;
            Ok((s, cost))
        });
        let (context, cost) = match admitted {
            Ok(admitted) => admitted,
            Err(e) => {
                self.put_back(head.object.clone(), old);
                self.refuse(c, &head.object, e, ctx);
                return None;
            }
        };
        let pool = self.state.pool.clone();
        let mut exec = Exec {
            ctx,
            pool: &pool,
            watches: &mut self.front.watches,
            client: &c.client,
            conn: c.conn,
            message: &c.op,
            head: &head,
            source: &head,
            old: &old,
            work: Work {
                new: (*old).clone(),
                ..Work::default()
            },
            cost,
            effects: Vec::new(),
            fetched,
            notify_id: &mut self.front.notify_id,
            read_bytes: 0,
        };
        let mut ran = exec.run();
        let (work, effects) = (exec.work, exec.effects);
        if self.is_repaired_first(damage, &head.object, ctx) {
            self.put_back(head.object, old);
            return Some(c);
        }
        if ran.result >= 0
            && let Err(e) = returns_fit(&c.op, &ran)
        {
            ran = Ran {
                results: Vec::new(),
                result: e.code(),
            };
        }
        if ran.result < 0 {
            self.finish_failure(c, head, old, ran, ctx);
            return None;
        }
        self.finish_write(c, head, old, (context, damage), (work, effects, ran), ctx)
    }

    /// The clone that this context demands of a write, before anything is done: the blocks that it begins to share, and its
    /// rows, which the store copies.
    fn charge_clone(
        &self,
        head: &ObjectId,
        old: &ObjectState,
        context: &SnapContext,
        cost: &mut Cost,
        ctx: &mut Context<'_>,
    ) -> Result<(), Errno> {
        if !old.exists
            || context
                .snaps
                .first()
                .is_none_or(|newest| *newest <= old.snapset.seq)
        {
            return Ok(());
        }
        cost.charge(0, shared_blocks(old.size))?;
        rows_to_clone(head, old, ctx.store)
            .map(drop)
            .map_err(|f| Errno(-f.rval))
    }

    /// A failed write changes nothing but the log, which remembers the failure.
    fn finish_failure(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        mut old: Box<ObjectState>,
        ran: Ran,
        ctx: &mut Context<'_>,
    ) {
        let version = self.next_version(1);
        let user_version = match old.exists {
            true => old.info.user_version,
            false if ran.result == Errno::ENOENT.code() => self.state.meta.stats.user_version,
            false => 0,
        };
        let record = Record {
            kind: EntryKind::Error,
            version,
            user_version,
            mtime: c.op.mtime,
            result: ran.result,
            clone: 0,
            returns: remembered(&c.op, &ran),
            delta: StatsDelta::default(),
            reqid: c.op.effective_reqid(c.client.name),
            instance: c.client.instance,
            prior: old.info.version,
            ranges: None,
        };
        let seq = self.submit(&head.object, Vec::new(), record, ctx);
        // Not to be able to remember it (a full disk) does not change that it failed.
        let seq = seq.unwrap_or(old.last_write);
        old.last_write = seq;
        self.put_back(head.object, old);
        let versions = Versions {
            replay: version,
            bad_replay: EVersion::new(version.epoch, user_version),
            user: user_version,
        };
        let reply = self.failure_reply(&c, ran, versions);
        self.reply(c, seq, reply, ctx);
    }

    fn finish_write(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        old: Box<ObjectState>,
        (context, damage): (SnapContext, Damage<'_>),
        (mut work, effects, ran): (Work, Vec<Effect>, Ran),
        ctx: &mut Context<'_>,
    ) -> Option<Box<ClientOp>> {
        let clone = self.clone_and_overlap(&head, &old, &mut work, context);
        let version = self.next_version(if clone == 0 { 1 } else { 2 });
        self.set_versions(&c, &old, &mut work, version);
        let writes = |op: &Op| matches!(op, Op::Write { .. }) || broken::is(Rule::RangesOnly);
        let only_wrote = clone == 0 && old.exists && work.txn.iter().all(writes);
        let few = work.modified.intervals().len() <= RANGES_MAX;
        let ranges = (only_wrote && few && work.change == Change::Content).then(|| work.modified.clone());
        let new = &work.new;
        let user_version = match (work.change, new.exists) {
            (Change::Content, false) if !old.exists => 0,
            (Change::Content, _) => work.user_version.unwrap_or(0),
            _ => old.info.user_version,
        };
        self.write_attrs(&head, &old, &mut work);
        let mut delta = StatsDelta::between(&old, &work.new);
        if let Err(e) = self.full_check(&c.op, &delta) {
            self.put_back(head.object.clone(), old);
            self.refuse(c, &head.object, e, ctx);
            return None;
        }
        delta.write_bytes = work.write_bytes;
        let deleted = old.exists && !work.new.exists;
        let record = Record {
            kind: if deleted {
                EntryKind::Delete
            } else {
                EntryKind::Modify
            },
            version,
            user_version,
            mtime: c.op.mtime,
            result: if c.op.has(flag::RETURNVEC) { ran.result } else { 0 },
            clone,
            returns: remembered(&c.op, &ran),
            delta,
            reqid: c.op.effective_reqid(c.client.name),
            instance: c.client.instance,
            prior: old.info.version,
            ranges,
        };
        match self.submit(&head.object, work.txn, record, ctx) {
            Err(e) => {
                self.put_back(head.object.clone(), old);
                if self.is_repaired_first(damage, &head.object, ctx) {
                    return Some(c);
                }
                let mut refused = Some(c);
                if e == Errno::ENOSPC {
                    refused = refused.and_then(|c| self.hold_for_room(c, ctx));
                }
                if let Some(c) = refused {
                    self.refuse(c, &head.object, e, ctx);
                }
            }
            Ok(seq) => {
                let mut state = old;
                *state = work.new;
                state.last_write = seq;
                if clone != 0 {
                    self.front.cache.forget(&head.object.with_snap(clone));
                }
                self.put_back(head.object.clone(), state);
                if deleted {
                    self.front.watches.locks.forget(&head.object);
                }
                let versions = Versions {
                    replay: version,
                    bad_replay: EVersion::new(version.epoch, user_version),
                    user: user_version,
                };
                let (reply, conn) = (self.write_reply(&c, ran, versions), c.conn);
                self.reply(c, seq, reply, ctx);
                self.carry_out(&head.object, effects, conn, seq, ctx);
            }
        }
        None
    }

    /// 11.3: a clone if the context has snapshots that the head has not seen, and what the clones share.
    /// The id of the new clone, or 0.
    fn clone_and_overlap(
        &self,
        head: &ObjectId,
        old: &ObjectState,
        work: &mut Work,
        context: SnapContext,
    ) -> u64 {
        if work.change != Change::Content {
            return 0;
        }
        let snaps = if old.exists {
            old.snapset.clone_needed(&context.snaps)
        } else {
            Vec::new()
        };
        let touches_clones = !old.snapset.clones.is_empty() && !work.modified.is_empty();
        if snaps.is_empty() && context.seq <= old.snapset.seq && !touches_clones {
            return 0;
        }
        let set = Arc::make_mut(&mut work.new.snapset);
        let mut clone = 0;
        if snaps.is_empty() {
            set.head_changed(&work.modified);
        } else {
            clone = context.seq;
            let dst = ObjectId {
                shard: head.shard,
                object: head.object.with_snap(clone),
            };
            let make = Op::Clone {
                src: head.clone(),
                dst,
            };
            work.txn.insert(0, make);
            set.clones.push(CloneInfo {
                id: clone,
                snaps,
                size: old.size,
                overlap: Intervals::range(0, old.size).minus(&work.modified),
            });
        }
        set.seq = set.seq.max(context.seq);
        clone
    }

    /// A PG-log version, `step` after the last one used.
    fn next_version(&self, step: u64) -> EVersion {
        let epoch = match broken::is(Rule::EpochInVersion) {
            true => 1,
            false => self.state.pool.epoch,
        };
        EVersion::new(epoch, self.state.meta.stats.version + step)
    }

    /// Puts versions, time and request id into the new object info.
    fn set_versions(&self, c: &ClientOp, old: &ObjectState, work: &mut Work, version: EVersion) {
        if work.change == Change::Nothing {
            return;
        }
        let info = &mut work.new.info;
        if work.change == Change::Content {
            let last = self.state.meta.stats.user_version.max(old.info.user_version);
            let user = work.user_version.unwrap_or((last + 1).max(version.version));
            work.user_version = Some(user);
            info.user_version = user;
        }
        info.version = version;
        info.last_reqid = c.op.effective_reqid(c.client.name);
        match work.mtime {
            Some(mtime) => info.mtime = mtime,
            None if !c.op.mtime.is_zero() => info.mtime = c.op.mtime,
            None => {}
        }
    }

    /// The last steps of the transaction: object info and snapset, or the whiteout, or nothing.
    fn write_attrs(&self, head: &ObjectId, old: &ObjectState, work: &mut Work) {
        if work.change == Change::Nothing {
            return;
        }
        let new = &mut work.new;
        if !new.exists {
            if new.snapset.clones.is_empty() {
                if new.physical {
                    work.txn.push(Op::Remove { oid: head.clone() });
                }
                new.physical = false;
                new.snapset = Arc::new(SnapSet::default());
                new.info = Default::default();
                return;
            }
            if !new.physical {
                work.txn.push(Op::Touch { oid: head.clone() });
                new.physical = true;
                work.snapset_lost = true;
            }
            new.info.whiteout = true;
        }
        let mut attrs = vec![(Bytes::from_static(INFO_ATTR), new.info.to_bytes())];
        let fresh =
            !old.physical || work.snapset_lost || work.txn.iter().any(|op| matches!(op, Op::Remove { .. }));
        if !new.snapset.is_default() && (fresh || new.snapset != old.snapset) {
            attrs.push((Bytes::from_static(SNAPSET_ATTR), new.snapset.to_bytes()));
        }
        work.txn.push(Op::SetAttrs {
            oid: head.clone(),
            attrs,
        });
    }

    /// 14.1: a client that asks for it (FULL_TRY) is told that a full pool does not take more. One that does
    /// not has sent this before it knew of the full pool, and is served.
    fn full_check(&self, m: &MOSDOp, delta: &StatsDelta) -> Result<(), Errno> {
        if !m.has(flag::FULL_TRY) || m.has(flag::FULL_FORCE) || !delta.grows() {
            return Ok(());
        }
        if self.state.pool.full_quota {
            return Err(Errno::EDQUOT);
        }
        if self.state.pool.full {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// Submits the steps with their log entry, and remembers it.
    fn submit(
        &mut self,
        object: &HObject,
        ops: Vec<Op>,
        r: Record,
        ctx: &mut Context<'_>,
    ) -> Result<Seq, Errno> {
        let last_user_version = self.state.meta.stats.user_version.max(r.user_version);
        let entry = LogEntry {
            kind: r.kind,
            version: r.version,
            prior_version: r.prior,
            object: object.clone(),
            reqid: r.reqid,
            user_version: r.user_version,
            last_user_version,
            mtime: r.mtime,
            result: r.result,
            clone: r.clone,
            returns: r.returns,
            delta: r.delta,
            ranges: r.ranges,
            instance: r.instance,
        };
        let mut txn = Transaction {
            collection: self.state.id,
            ops,
        };
        txn.ops.push(Op::LogAppend {
            version: r.version,
            entry: entry.to_bytes(),
        });
        let before = self.state.meta.stats;
        self.state.meta.stats.add(&entry.delta);
        self.state.meta.stats.version = r.version.version;
        self.state.meta.stats.user_version = last_user_version;
        // What a member of the set has not confirmed is still needed to tell what it lacks.
        let trim = self.state.log.trim_point(self.front.commits.committed());
        if let Some(to) = trim {
            // The sums first: the deltas of the trimmed entries go.
            txn.ops.push(self.state.meta_op());
            txn.ops.push(Op::LogTrim { to });
        }
        match self.submit_txn(txn, Some(object), ctx) {
            Ok(seq) => {
                self.count_change(object, &entry.delta);
                self.state.log.push(entry, seq);
                if let Some(to) = trim {
                    self.state.log.trimmed(to);
                }
                Ok(seq)
            }
            Err(e) => {
                tracing::warn!("pg {}: {object}: the store refused a write: {e}", self.state.id);
                self.state.meta.stats = before;
                Err(e)
            }
        }
    }

    /// Watches and notifies change once the message has succeeded; what clients get of it waits like replies.
    pub(crate) fn carry_out(
        &mut self,
        object: &HObject,
        effects: Vec<Effect>,
        conn: ConnId,
        seq: Seq,
        ctx: &mut Context<'_>,
    ) {
        for effect in effects {
            let out: Vec<Output> = match effect {
                Effect::Connect(r) => self.front.watches.connect(object, &r, conn, ctx.now),
                Effect::Remove(key) => self.front.watches.remove(object, key, false),
                Effect::Disconnect(keys) => keys
                    .into_iter()
                    .flat_map(|k| self.front.watches.remove(object, k, true))
                    .collect(),
                Effect::Notify(r) => self.front.watches.notify(object, r, ctx.now),
                Effect::Ack { id, key, reply } => self.front.watches.ack(object, id, key, reply),
            };
            for o in out {
                self.front.commits.release(seq, o, ctx.out);
            }
        }
    }

    /// Takes a watch out of the object: its time is over, or its client is blocked.
    pub(crate) fn end_watch(&mut self, object: &HObject, key: WatchKey, tell: bool, ctx: &mut Context<'_>) {
        let oid = self.state.object_id(object.clone());
        let old = match self.take(&oid, ctx) {
            Ok(old) => old,
            Err(e) => return tracing::error!("pg {}: ending a watch: {e}", self.state.id),
        };
        if old.physical {
            self.note_lost_holder(&oid, key, ctx);
        }
        let mut new = (*old).clone();
        new.info.watchers.retain(|w| key_of(w) != key);
        let seq = if old.physical {
            self.write_internal(&oid, old, new, Vec::new(), ctx)
        } else {
            Some(old.last_write)
        };
        // A removal that could not be written is tried again when the watch's timer comes round.
        if let Some(seq) = seq {
            for o in self.front.watches.remove(object, key, tell) {
                self.front.commits.release(seq, o, ctx.out);
            }
        }
    }

    /// Who loses its watch here may hold the image's lock, for which others wait then.
    fn note_lost_holder(&mut self, oid: &ObjectId, key: WatchKey, ctx: &mut Context<'_>) {
        let attr = user_attr(&objclass::lock_attr(RBD_LOCK));
        let Ok(Some(attr)) = ctx.store.attr(oid, &attr) else {
            return;
        };
        let holders = objclass::lock_holders(&attr, ctx.wall);
        if holders.iter().any(|h| h.entity.num == key.0) {
            self.front
                .watches
                .locks
                .lost(&oid.object, RBD_LOCK, holders, ctx.now);
        }
    }

    /// A change of the PG's own: logged, no request. `None` if the store refused it.
    pub(crate) fn write_internal(
        &mut self,
        oid: &ObjectId,
        old: Box<ObjectState>,
        mut new: ObjectState,
        mut ops: Vec<Op>,
        ctx: &mut Context<'_>,
    ) -> Option<Seq> {
        let version = self.next_version(1);
        if new.physical {
            // A version stands for what the object is, watches and clones included: copies are compared by it.
            new.info.version = version;
            ops.push(Op::SetAttrs {
                oid: oid.clone(),
                attrs: vec![(Bytes::from_static(INFO_ATTR), new.info.to_bytes())],
            });
        }
        let record = Record {
            kind: EntryKind::Internal,
            version,
            user_version: old.info.user_version,
            mtime: old.info.mtime,
            result: 0,
            clone: 0,
            returns: Vec::new(),
            delta: StatsDelta::between(&old, &new),
            reqid: NO_REQID,
            instance: 0,
            prior: old.info.version,
            ranges: None,
        };
        match self.submit(&oid.object, ops, record, ctx) {
            Ok(seq) => {
                new.last_write = seq;
                self.put_back(oid.object.clone(), Box::new(new));
                Some(seq)
            }
            Err(_) => {
                self.put_back(oid.object.clone(), old);
                None
            }
        }
    }
}

/// What a duplicate under RETURNVEC will be told.
fn remembered(m: &MOSDOp, ran: &Ran) -> Vec<(i32, Bytes)> {
    if !m.has(flag::RETURNVEC) {
        return Vec::new();
    }
    // The outputs of a failed write may be large; its duplicates get the values only.
    let fits = |out: &Bytes| ran.result >= 0 && out.len() <= 64;
    let keep = |(rval, out): &(i32, Bytes)| (*rval, if fits(out) { out.clone() } else { Bytes::new() });
    ran.results.iter().take(RETURNS_KEPT).map(keep).collect()
}
