//! Writes: from an executed message to its submitted transaction and its answer; and the PG's own changes.

use crate::Pg;
use crate::api::{ClientOp, Context};
use crate::broken::{self, Rule};
use crate::exec::finish::{Finished, LogHead, Written, finish, internal};
use crate::exec::request::CopySource;
use crate::exec::snap_context::SnapContext;
use crate::exec::{Outcome, Ran, Request, Results};
use crate::front::execute::{Again, Stop, Why, run};
use crate::front::fetch::{fetched_of, sources};
use crate::front::locks::RBD_LOCK;
use crate::front::messages::Damage;
use crate::front::parked::Copies;
use crate::front::reply::Versions;
use crate::state::log::{EntryKind, LogEntry};
use crate::state::object::ObjectState;
use crate::state::object_info::{WatchKey, key_of, user_attr};
use crate::store::Seq;
use denc::Encode;
use messages::osd::{MOSDOp, flag};
use std::collections::HashMap;
use types::{Errno, HObject, ObjectId, Op, Transaction};

impl Pg {
    fn log_head(&self) -> LogHead {
        LogHead {
            epoch: match broken::is(Rule::EpochInVersion) {
                true => 1,
                false => self.state.pool.epoch,
            },
            version: self.state.meta.stats.version,
            user_version: self.state.meta.stats.user_version,
        }
    }

    /// The snapshot context of a write of an object that has `seq`.
    fn snap_context(&self, m: &MOSDOp, seq: u64) -> Result<SnapContext, Errno> {
        let context = SnapContext::of(m, &self.state.pool, &self.state.meta.removed)?;
        match m.has(flag::ORDERSNAP) && context.seq < seq {
            true => Err(Errno::EOLDSNAPC),
            false => Ok(context),
        }
    }

    pub(crate) fn execute_write(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        old: Box<ObjectState>,
        fetched: Copies,
        damage: Damage<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<Again> {
        let sources = sources(&c, fetched, ctx.cluster);
        let executed = self.run_write(&c, &head, &old, &sources, ctx);
        if executed.is_ok() && self.is_repaired_first(damage, &head.object, ctx) {
            self.put_back(head.object, old);
            return Some(Again::new(c, Why::Repair));
        }
        let (written, mut results) = match executed {
            Ok(executed) => executed,
            Err(stop) => {
                self.put_back(head.object.clone(), old);
                return match stop {
                    Stop::Lacks(lacks) => Some(Again {
                        copies: fetched_of(sources),
                        ..Again::new(c, Why::Lacks(lacks))
                    }),
                    Stop::Refused(e) => {
                        self.refuse(c, &head.object, e, ctx);
                        None
                    }
                };
            }
        };
        match written {
            Written::Done(finished) => {
                let mut again = self.submit_write(c, head, old, (*finished, results, damage), ctx);
                if let Some(again) = &mut again {
                    again.copies = fetched_of(sources);
                }
                again
            }
            Written::Refused(e) => {
                self.note(&head.object, &mut results, (c.conn, c.client.name), ctx);
                self.put_back(head.object.clone(), old);
                self.refuse(c, &head.object, e, ctx);
                None
            }
            Written::Failed(entry) => {
                self.note(&head.object, &mut results, (c.conn, c.client.name), ctx);
                self.remember_failure(c, head, old, (*entry, results.ran), ctx);
                None
            }
        }
    }

    /// Executes a write and completes its transaction. Nothing has happened yet.
    fn run_write(
        &self,
        c: &ClientOp,
        head: &ObjectId,
        old: &ObjectState,
        sources: &HashMap<usize, CopySource>,
        ctx: &mut Context<'_>,
    ) -> Result<(Written, Results), Stop> {
        let context = self.snap_context(&c.op, old.snapset.seq)?;
        let request = Request {
            message: &c.op,
            client: &c.client,
            conn: c.conn,
            pool: &self.state.pool,
            head,
            source: head,
            old,
            context: Some(&context),
            sources,
            watches: &self.front.watches,
            notify_id: self.front.notify_id,
            wall: ctx.wall,
        };
        let Outcome { work, mut results } = run(&request, &*self.backend, ctx)?;
        let written = finish(&request, work, &mut results.ran, self.log_head());
        Ok((written, results))
    }

    fn remember_failure(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        mut old: Box<ObjectState>,
        (entry, ran): (LogEntry, Ran),
        ctx: &mut Context<'_>,
    ) {
        let versions = Versions::of(&entry);
        let seq = self.submit(Vec::new(), entry, ctx);
        // Not to be able to remember it (a full disk) does not change that it failed.
        let seq = seq.unwrap_or(old.last_write);
        old.last_write = seq;
        self.put_back(head.object, old);
        let reply = self.failure_reply(&c, ran, versions);
        self.reply(c, seq, reply, ctx);
    }

    fn submit_write(
        &mut self,
        c: Box<ClientOp>,
        head: ObjectId,
        old: Box<ObjectState>,
        (finished, mut results, damage): (Finished, Results, Damage<'_>),
        ctx: &mut Context<'_>,
    ) -> Option<Again> {
        let Finished { ops, new, entry } = finished;
        let (versions, clone) = (Versions::of(&entry), entry.clone);
        let deleted = entry.kind == EntryKind::Delete;
        let submitted = self.submit(ops, entry, ctx);
        if submitted.is_err() {
            let lacks = self.backend.take_lacking();
            if !lacks.is_empty() {
                self.put_back(head.object, old);
                return Some(Again::new(c, Why::Lacks(lacks)));
            }
        }
        self.note(&head.object, &mut results, (c.conn, c.client.name), ctx);
        match submitted {
            Err(e) => {
                self.put_back(head.object.clone(), old);
                if self.is_repaired_first(damage, &head.object, ctx) {
                    return Some(Again::new(c, Why::Repair));
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
                *state = new;
                state.last_write = seq;
                if clone != 0 {
                    self.front.cache.forget(&head.object.with_snap(clone));
                }
                self.put_back(head.object.clone(), state);
                if deleted {
                    self.front.watches.locks.forget(&head.object);
                }
                let (reply, conn) = (self.write_reply(&c, results.ran, versions), c.conn);
                self.reply(c, seq, reply, ctx);
                self.carry_out(&head.object, results.effects, conn, seq, ctx);
            }
        }
        None
    }

    /// Submits the steps with their log entry, and remembers it.
    fn submit(&mut self, ops: Vec<Op>, entry: LogEntry, ctx: &mut Context<'_>) -> Result<Seq, Errno> {
        let mut txn = Transaction {
            collection: self.state.id,
            ops,
        };
        txn.ops.push(Op::LogAppend {
            version: entry.version,
            entry: entry.to_bytes(),
        });
        let before = self.state.meta.stats;
        self.state.meta.stats.add(&entry.delta);
        self.state.meta.stats.version = entry.version.version;
        self.state.meta.stats.user_version = entry.last_user_version;
        // What a member of the set has not confirmed is still needed to tell what it lacks.
        let trim = self.state.log.trim_point(self.front.commits.committed());
        if let Some(to) = trim {
            // The sums first: the deltas of the trimmed entries go.
            txn.ops.push(self.state.meta_op());
            txn.ops.push(Op::LogTrim { to });
        }
        match self.submit_txn(txn, Some(&entry.object), ctx) {
            Ok(seq) => {
                if let Some(count) = &mut self.count {
                    count.change(&entry.object, &entry.delta);
                }
                self.state.log.push(entry, seq);
                if let Some(to) = trim {
                    self.state.log.trimmed(to);
                }
                Ok(seq)
            }
            Err(e) => {
                let (pg, object) = (self.state.id, &entry.object);
                match e {
                    Errno::EAGAIN => tracing::debug!("pg {pg}: {object}: a write waits for data"),
                    e => tracing::warn!("pg {pg}: {object}: the store refused a write: {e}"),
                }
                self.state.meta.stats = before;
                Err(e)
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
        let entry = internal(oid, &old, &mut new, &mut ops, self.log_head());
        match self.submit(ops, entry, ctx) {
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
