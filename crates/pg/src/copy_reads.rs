//! Reads that a member of `in_sync` answers where the client asked for any copy, or the nearest
//! (docs/internals/replication.md, reads of copies).
//!
//! Vocabulary: the *reader* executes them: a PG over the member's objects without a log or a group. A read *waits* while the
//! primary is asked for a grant, or until what was here when that began is stable; *refused* reads are answered with
//! EAGAIN, and the client asks the primary.
//!
//! Invariants: what cannot be read here is refused, and told to the primary ([`crate::scrub`]). Whatever ends the member's knowledge of its copy (another interval, a question of the primary, a connection that
//! breaks, a transaction that fails) ends all this; the next read begins anew. Every read is answered or refused.
//!
//! Bounds: [`WAITING_MAX`] reads wait, each for [`WAIT_MAX`] and the shell's next look; nothing is left after [`IDLE_MAX`].

use crate::api::{ClientOp, Context, Output};
use crate::backend::ReadsHere;
use crate::backend::replicated::grants::GRANT;
use crate::backend::replicated::{May, Shown};
use crate::backend::steps::objects_of;
use crate::front::checks::{self, Class};
use crate::pool::PoolView;
use crate::state::log::LogEntry;
use crate::state::meta::PgMeta;
use crate::store::Ticket;
use crate::{Pg, Replica};
use denc::Decode;
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::ScrubBody;
use messages::osd::{MOSDOp, MOSDOpReply, code, flag};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use types::{EVersion, Epoch, Errno, Op, Transaction};

/// Reads that wait for the primary's word; one more is refused.
const WAITING_MAX: usize = 1024;
/// After this they are refused.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// A question without an answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Without a read for so long nothing is watched any more.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// What an OSD that does not lead the PG does with a client's operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForCopy {
    /// It is the primary's alone: no answer, the client hears from a map where that is.
    Drop,
    /// The client asked for a copy, but only the primary can do it.
    Refuse,
    Read,
}

impl ForCopy {
    pub fn of(m: &MOSDOp) -> Self {
        if !m.has(flag::BALANCE_READS | flag::LOCALIZE_READS) {
            return Self::Drop;
        }
        // Who watches is known to the primary alone; the rest is not a client's.
        let special = |c| {
            matches!(
                c,
                code::WATCH | code::NOTIFY | code::NOTIFY_ACK | code::LIST_WATCHERS | code::COPY_GET
            )
        };
        match checks::classify(m) {
            Ok(Class::Write | Class::Pg) => Self::Drop,
            Err(_) => Self::Refuse,
            Ok(Class::Read) if m.has(flag::RWORDERED) || m.ops.iter().any(|o| special(o.code)) => {
                Self::Refuse
            }
            Ok(Class::Read) => Self::Read,
        }
    }
}

#[derive(Debug)]
struct CopyReads {
    /// With what it may show inside.
    reader: Box<Pg>,
    /// A question to the primary under way: its token, and when it was sent.
    asked: Option<(u64, Duration)>,
    waiting: VecDeque<(Duration, Box<ClientOp>)>,
    last_read: Duration,
    /// Nothing is known any more: it only has to be taken down.
    pub ended: bool,
}

/// The reads of one copy.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    now: Option<Box<CopyReads>>,
    /// Reads may be answered at this moment: see [`Replica::set_serving`].
    serving: bool,
}

impl ReadsHere for Reads {
    fn forget(&mut self) {
        if let Some(reads) = &mut self.now {
            reads.ended = true;
            reads.shown().serving = false;
        }
    }

    fn coming(&mut self, txn: &Transaction, now: Duration) {
        if let Some(reads) = &mut self.now
            && let Err(e) = reads.note(txn, now)
        {
            tracing::error!(
                "pg {}: a transaction of the primary does not decode: {e}",
                txn.collection
            );
            reads.ended = true;
        }
    }
}

/// The client asks the primary.
pub fn refuse(c: ClientOp, epoch: Epoch, ctx: &mut Context<'_>) {
    ctx.out.push(Output::Reply {
        conn: c.conn,
        reply: MOSDOpReply::to(&c.op, epoch, Errno::EAGAIN.code()),
        permit: c.permit,
    });
}

impl CopyReads {
    fn shown(&mut self) -> &mut Shown {
        self.reader.front.shown()
    }

    fn refuse_waiting(&mut self, due: impl Fn(Duration) -> bool, ctx: &mut Context<'_>) {
        let epoch = self.reader.state.pool.epoch;
        for (since, c) in std::mem::take(&mut self.waiting) {
            match due(since) {
                true => refuse(*c, epoch, ctx),
                false => self.waiting.push_back((since, c)),
            }
        }
    }

    /// Executes the read, lets it wait, or refuses it.
    fn go(&mut self, since: Duration, c: Box<ClientOp>, ctx: &mut Context<'_>) {
        let head = self.reader.head_of(&c);
        match self.shown().may(&head, ctx.now) {
            May::Show => self.reader.client_op(c, ctx),
            May::Later if self.waiting.len() < WAITING_MAX => self.waiting.push_back((since, c)),
            May::Later | May::No => refuse(*c, self.reader.state.pool.epoch, ctx),
        }
    }

    /// Half of the grant is over, or all: a token for the question for the next one.
    fn wants_to_ask(&mut self, ctx: &mut Context<'_>) -> Option<u64> {
        let runs = self.shown().left(ctx.now) > GRANT / 2;
        let asked = self.asked.is_some_and(|(_, at)| ctx.now < at + ASK_AGAIN);
        if runs || asked {
            return None;
        }
        let token = (ctx.random)();
        self.asked = Some((token, ctx.now));
        Some(token)
    }

    /// A transaction of the primary comes in.
    fn note(&mut self, txn: &Transaction, now: Duration) -> Result<(), denc::Error> {
        self.ended |= now > self.last_read + IDLE_MAX && self.waiting.is_empty();
        if self.ended {
            return Ok(());
        }
        for op in &txn.ops {
            objects_of(op).for_each(|oid| self.reader.front.forget(&oid.object));
            match op {
                Op::LogAppend { version, entry } => {
                    let head = LogEntry::from_bytes(entry)?.object.head();
                    self.ended |= !self.shown().wrote(*version, head);
                }
                Op::SetMeta { meta } => {
                    self.reader.state.meta = PgMeta::from_bytes(meta)?;
                    self.reader
                        .state
                        .meta
                        .removed
                        .union(&self.reader.state.pool.removed_snaps);
                }
                Op::RemoveCollection => self.ended = true,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Replica {
    /// True if the shell's word counts: [`Replica::set_serving`] comes before every other input then.
    pub fn has_reads(&self) -> bool {
        self.reads.now.is_some()
    }

    /// Whether, at this moment, the OSD's lease lives and the newest cluster state has it in this PG's `in_sync`, in the
    /// interval that it knows.
    pub fn set_serving(&mut self, serving: bool) {
        self.reads.serving = serving;
        if let Some(reads) = &mut self.reads.now {
            let ended = reads.ended;
            reads.shown().serving = serving && !ended;
        }
    }

    /// A read for which the client asks for any copy ([`ForCopy::Read`]).
    pub fn read(&mut self, c: Box<ClientOp>, pool: &Arc<PoolView>, ctx: &mut Context<'_>) {
        let usable = |r: &CopyReads| !r.ended && r.reader.state.pool.pg_num == pool.pg_num;
        if !self.reads.serving {
            return refuse(*c, pool.epoch, ctx);
        }
        if !self.reads.now.as_deref().is_some_and(usable) {
            self.end_reads(ctx);
            match self.begin_reads(pool, ctx) {
                Ok(reads) => self.reads.now = reads.map(Box::new),
                Err(e) => tracing::error!("pg {}: {e}", self.id()),
            }
        }
        let Some(reads) = &mut self.reads.now else {
            return refuse(*c, pool.epoch, ctx);
        };
        if reads.reader.state.pool.epoch != pool.epoch {
            reads.reader.state.meta.removed.union(&pool.removed_snaps);
            reads.reader.state.pool = pool.clone();
        }
        reads.last_read = ctx.now;
        reads.go(ctx.now, c, ctx);
        self.tell_damage(ctx);
        self.ask(ctx);
    }

    /// What could not be read here was refused, and the primary has it repaired.
    fn tell_damage(&mut self, ctx: &mut Context<'_>) {
        let (to, interval) = (self.group().primary, self.group().interval);
        let Some(reads) = &mut self.reads.now else { return };
        for head in reads.shown().damage.tell(ctx.now) {
            tracing::error!(
                "pg {}: {head}: the copy here is damaged: osd.{to} is told",
                self.id()
            );
            let body = PeerBody::Scrub(ScrubBody::Damaged { head });
            ctx.out.push(Output::Peer {
                to,
                shard: -1,
                interval,
                body,
            });
        }
    }

    fn begin_reads(
        &self,
        pool: &Arc<PoolView>,
        ctx: &mut Context<'_>,
    ) -> Result<Option<CopyReads>, crate::LoadError> {
        let Some(mut reader) = Pg::reader(self.id(), pool.clone(), ctx.store, ctx.now)? else {
            return Ok(None);
        };
        let read = |source| crate::LoadError::Read {
            pg: self.id(),
            source,
        };
        let log = ctx.store.log_entries(self.id()).map_err(read)?;
        let floor = log.last().map_or(EVersion::default(), |(v, _)| *v);
        reader.front.show(Shown::from(floor, self.reads.serving));
        Ok(Some(CopyReads {
            reader: Box::new(reader),
            asked: None,
            waiting: VecDeque::new(),
            last_read: ctx.now,
            ended: false,
        }))
    }

    fn ask(&mut self, ctx: &mut Context<'_>) {
        let (to, interval) = (self.group().primary, self.group().interval);
        if let Some(reads) = &mut self.reads.now
            && let Some(token) = reads.wants_to_ask(ctx)
        {
            let body = PeerBody::Ask { token };
            ctx.out.push(Output::Peer {
                to,
                shard: -1,
                interval,
                body,
            });
        }
    }

    /// The primary's answer to a question.
    pub(crate) fn granted(&mut self, token: u64, pg_num: u32, stable: EVersion, ctx: &mut Context<'_>) {
        let Some(reads) = self.reads.now.as_deref_mut().filter(|r| !r.ended) else {
            return;
        };
        // The grant counts from the sending of its own question: an answer to another one says nothing.
        let Some((_, at)) = reads.asked.take_if(|(asked, _)| *asked == token) else {
            return;
        };
        if pg_num != reads.reader.state.pool.pg_num {
            return reads.refuse_waiting(|_| true, ctx);
        }
        reads.shown().granted(at + GRANT, stable);
        self.retry_reads(ctx);
    }

    pub(crate) fn stable(&mut self, to: EVersion, ctx: &mut Context<'_>) {
        if let Some(reads) = &mut self.reads.now {
            reads.shown().settle(to);
            self.retry_reads(ctx);
        }
    }

    fn retry_reads(&mut self, ctx: &mut Context<'_>) {
        let Some(reads) = &mut self.reads.now else { return };
        if reads.waiting.is_empty() {
            return;
        }
        for (since, c) in std::mem::take(&mut reads.waiting) {
            reads.go(since, c, ctx);
        }
        let waits = !reads.waiting.is_empty();
        self.tell_damage(ctx);
        if waits {
            self.ask(ctx);
        }
    }

    /// A read of the disk that the reader began has ended.
    pub(crate) fn read_prefetched(&mut self, ticket: Ticket, ctx: &mut Context<'_>) {
        if let Some(reads) = &mut self.reads.now {
            reads.reader.prefetched(ticket, ctx);
            self.tell_damage(ctx);
        }
    }

    /// A few times a second where there are reads: those that have waited for too long are refused, and what nobody needs goes.
    pub fn look_after_reads(&mut self, ctx: &mut Context<'_>) {
        let Some(reads) = &mut self.reads.now else { return };
        let now = ctx.now;
        reads.refuse_waiting(|since| since + WAIT_MAX <= now, ctx);
        if reads.ended || reads.waiting.is_empty() && ctx.now > reads.last_read + IDLE_MAX {
            self.end_reads(ctx);
        }
    }

    /// Refuses everything that is not answered, and gives back what was asked of the store.
    pub fn end_reads(&mut self, ctx: &mut Context<'_>) {
        if let Some(mut reads) = self.reads.now.take() {
            reads.refuse_waiting(|_| true, ctx);
            reads.reader.refuse_jobs(ctx);
        }
    }
}
