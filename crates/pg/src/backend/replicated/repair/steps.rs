//! The steps of a rebuild ([`super::rebuild`]): who is asked for what next, and what becomes of the answers.

use super::fixes::Fix;
use super::piece::{self, PIECE_BYTES};
use super::plan::Plan;
use super::rebuild::{Halt, Phase, Rebuild, Wait};
use super::scratch::{self, scratch};
use crate::api::Output;
use crate::backend::Lent;
use crate::backend::replicated::Replicated;
use crate::backend::replicated::weight;
use crate::state::log::EntryKind;
use crate::state::object::ObjectState;
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::{Outline, OutlineItem, Part, ScrubBody};
use types::{EVersion, Errno, HObject, Op, OsdId, Transaction};

type Step = Result<(), Halt>;

impl Replicated {
    /// Goes on until it has to wait; true when it is over.
    pub(super) fn rebuild_on(&mut self, b: &mut Rebuild, ctx: &mut Lent<'_>) -> Result<bool, Halt> {
        while b.wait.is_none() {
            match &mut b.phase {
                Phase::Outline => self.want_outline(b, ctx)?,
                Phase::Parts(plan) => match plan.next() {
                    Some((item, part)) => self.want_part(b, item, &part, ctx)?,
                    None => self.all_made(b),
                },
                Phase::Look(..) => self.look_at_made(b, ctx)?,
                Phase::Replace(_) => self.put_in_place(b, ctx)?,
                Phase::Done => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Who is asked next.
    fn source_of(&self, b: &Rebuild) -> Option<OsdId> {
        let me = self.group.me;
        let fits = |o: &OsdId| !b.failed.contains(o) && (*o == me || self.is_full(*o));
        b.current
            .filter(fits)
            .or_else(|| b.sources.iter().copied().find(fits))
    }

    fn ask_source(
        &mut self,
        b: &mut Rebuild,
        source: OsdId,
        body: impl FnOnce(u64) -> ScrubBody,
        ctx: &mut Lent<'_>,
    ) {
        let token = self.next_number();
        b.wait = Some(Wait::Member { token, source });
        self.send_to(source, PeerBody::Scrub(body(token)), ctx);
    }

    // --- the outline ----------------------------------------------------------------------------------

    fn want_outline(&mut self, b: &mut Rebuild, ctx: &mut Lent<'_>) -> Step {
        b.as_of = ctx.pg.log.head();
        let source = self.source_of(b);
        let source = source.ok_or_else(|| Halt::Failed("nobody can tell what it is made of".into()))?;
        let (from, to) = (b.from.clone(), b.to.clone());
        if source != self.group.me {
            self.ask_source(b, source, |token| ScrubBody::Outline { token, from, to }, ctx);
            return Ok(());
        }
        match piece::outline(&ctx.pg.object_id(from), &to, ctx.store) {
            Ok(outline) => self.outlined(b, source, outline, ctx),
            Err(e) => {
                tracing::info!("pg {}: {e}", ctx.pg.id);
                b.fails(source);
                Ok(())
            }
        }
    }

    fn outlined(&mut self, b: &mut Rebuild, source: OsdId, outline: Outline, ctx: &mut Lent<'_>) -> Step {
        match Plan::new(ctx.pg.id.shard, &b.from, &b.to, outline) {
            Ok(plan) => {
                for item in &plan.items {
                    let known = self.version_here(&item.object, ctx);
                    if known.is_none_or(|v| v == item.version) {
                        continue;
                    }
                    if self.was_written(&b.to.head(), b.as_of, ctx) {
                        return Err(Halt::Outrun);
                    }
                    tracing::error!(
                        "pg {}: {}: osd.{source} has version {}",
                        ctx.pg.id,
                        item.object,
                        item.version
                    );
                    b.fails(source);
                    return Ok(());
                }
                b.wait = None;
                b.failed.clear();
                b.current = Some(source);
                b.phase = Phase::Parts(Box::new(plan));
            }
            Err(why) => {
                tracing::error!("pg {}: {}: osd.{source}: {why}", ctx.pg.id, b.to);
                b.fails(source);
            }
        }
        Ok(())
    }

    /// A member's answer to the question for the outline.
    pub(super) fn outline_came(
        &mut self,
        b: &mut Rebuild,
        source: OsdId,
        (result, outline): (i32, Outline),
        ctx: &mut Lent<'_>,
    ) -> Step {
        if result != 0 || !matches!(b.phase, Phase::Outline) {
            b.fails(source);
            return Ok(());
        }
        self.outlined(b, source, outline, ctx)
    }

    // --- parts ----------------------------------------------------------------------------------------

    fn want_part(&mut self, b: &mut Rebuild, item: OutlineItem, part: &Part, ctx: &mut Lent<'_>) -> Step {
        let OutlineItem { object, version, .. } = item;
        let Some(source) = self.source_of(b) else {
            // Members say of another version that it is not what was asked for.
            return Err(match self.was_written(&b.to.head(), b.as_of, ctx) {
                true => Halt::Outrun,
                false => Halt::Failed(format!("{object}: no copy of {part:?} can be read")),
            });
        };
        let oid = ctx.pg.object_id(object);
        if source != self.group.me {
            let (object, part) = (oid.object, part.clone());
            let body = |token| ScrubBody::Piece {
                token,
                object,
                version,
                part,
            };
            self.ask_source(b, source, body, ctx);
            return Ok(());
        }
        b.current = Some(source);
        match piece::prefetch(&oid, part, ctx.store) {
            Some(ticket) => {
                b.wait = Some(Wait::Disk(ticket));
                Ok(())
            }
            None => self.part_from_here(b, ctx),
        }
    }

    fn part_from_here(&mut self, b: &mut Rebuild, ctx: &mut Lent<'_>) -> Step {
        let Some((item, part)) = b.plan().and_then(Plan::next) else {
            return Ok(());
        };
        let oid = ctx.pg.object_id(item.object);
        let me = self.group.me;
        match piece::piece(&oid, item.version, &part, ctx.store) {
            Ok((ops, next)) => self.part_given(b, me, ops, next, ctx),
            Err(Errno::ESTALE) => Err(Halt::Outrun),
            Err(_) => {
                b.fails(me);
                Ok(())
            }
        }
    }

    /// A member's answer to the question for a part.
    pub(super) fn piece_came(
        &mut self,
        b: &mut Rebuild,
        source: OsdId,
        result: i32,
        (txn, next): (Transaction, Option<Part>),
        ctx: &mut Lent<'_>,
    ) -> Step {
        if result != 0 || txn.collection != ctx.pg.id {
            b.fails(source);
            return Ok(());
        }
        self.part_given(b, source, txn.ops, next, ctx)
    }

    fn part_given(
        &mut self,
        b: &mut Rebuild,
        source: OsdId,
        ops: Vec<Op>,
        next: Option<Part>,
        ctx: &mut Lent<'_>,
    ) -> Step {
        let Phase::Parts(plan) = &mut b.phase else {
            return Ok(());
        };
        let steps = match plan.given(ops, next) {
            Ok(steps) => steps,
            Err(why) => {
                tracing::error!("pg {}: {}: a part from osd.{source}: {why}", ctx.pg.id, b.to);
                b.fails(source);
                return Ok(());
            }
        };
        b.wait = None;
        b.failed.clear();
        b.current = Some(source);
        let bytes = steps.iter().map(weight).sum();
        ctx.out.push(Output::Scrubbed { bytes });
        self.write_made(b, steps, ctx)
    }

    /// To where it is made.
    fn write_made(&mut self, b: &mut Rebuild, ops: Vec<Op>, ctx: &mut Lent<'_>) -> Step {
        let mut txn = Transaction::new(ctx.pg.id);
        txn.ops = ops;
        if let Some(member) = b.member {
            let number = self.next_number();
            b.wait = Some(Wait::Durable(number));
            self.send_to(
                member,
                PeerBody::Apply {
                    seq: number,
                    txn: txn.into(),
                },
                ctx,
            );
            return Ok(());
        }
        let refused = |e| Halt::Failed(format!("the store refused it: {e}"));
        ctx.pg.last_seq = ctx.store.submit(&txn).map_err(refused)?;
        // One piece at a time: others want to write here, too.
        b.wait = Some(Wait::Flush(ctx.pg.last_seq));
        Ok(())
    }

    fn all_made(&mut self, b: &mut Rebuild) {
        b.phase = match std::mem::replace(&mut b.phase, Phase::Done) {
            // The primary looks at what members have when all of it is over.
            Phase::Parts(plan) if b.member.is_some() => Phase::Replace(plan),
            Phase::Parts(plan) => Phase::Look(plan, 0, 0),
            other => other,
        };
    }

    // --- what was made, read again --------------------------------------------------------------------

    fn look_at_made(&mut self, b: &mut Rebuild, ctx: &mut Lent<'_>) -> Step {
        let Phase::Look(plan, n, at) = &mut b.phase else {
            return Ok(());
        };
        let Some(item) = plan.items.get(*n) else {
            b.phase = match std::mem::replace(&mut b.phase, Phase::Done) {
                Phase::Look(plan, ..) => Phase::Replace(plan),
                other => other,
            };
            return Ok(());
        };
        let oid = scratch(&plan.id(&item.object));
        if *at == 0 {
            let made = ObjectState::load(&oid, ctx.store).map_err(|e| Halt::Failed(e.to_string()))?;
            if (made.size, made.info.version) != (item.size, item.version) {
                return Err(Halt::Failed(format!(
                    "{}: what was made is another object",
                    item.object
                )));
            }
        }
        if *at >= item.size {
            (*n, *at) = (*n + 1, 0);
            return Ok(());
        }
        let len = PIECE_BYTES.min(item.size - *at);
        ctx.store.uncache(&oid, *at, len);
        match ctx.store.prefetch(&oid, *at, len) {
            Some(ticket) => {
                b.wait = Some(Wait::Disk(ticket));
                Ok(())
            }
            None => Self::read_made(b, ctx),
        }
    }

    fn read_made(b: &mut Rebuild, ctx: &mut Lent<'_>) -> Step {
        let Phase::Look(plan, n, at) = &mut b.phase else {
            return Ok(());
        };
        let Some(item) = plan.items.get(*n) else {
            return Ok(());
        };
        let oid = scratch(&plan.id(&item.object));
        let len = PIECE_BYTES.min(item.size - *at);
        match ctx.store.read(&oid, *at, len) {
            Ok(data) if data.len() as u64 == len => {
                *at += len;
                if *at == item.size {
                    (*n, *at) = (*n + 1, 0);
                }
                Ok(())
            }
            Ok(_) => Err(Halt::Failed("what was made is shorter than it should be".into())),
            Err(e) => Err(Halt::Failed(e.to_string())),
        }
    }

    /// The disk has brought what is wanted next.
    pub(super) fn rebuild_read_ended(&mut self, b: &mut Rebuild, ctx: &mut Lent<'_>) -> Step {
        let Some(Wait::Disk(ticket)) = b.wait.take() else {
            return Ok(());
        };
        let step = match b.phase {
            Phase::Look(..) => Self::read_made(b, ctx),
            _ => self.part_from_here(b, ctx),
        };
        ctx.store.release(ticket);
        step
    }

    // --- the last step --------------------------------------------------------------------------------

    fn put_in_place(&mut self, b: &mut Rebuild, ctx: &mut Lent<'_>) -> Step {
        if self.was_written(&b.to.head(), b.as_of, ctx) {
            return Err(Halt::Outrun);
        }
        let Some(plan) = b.plan() else { return Ok(()) };
        let made: Vec<(HObject, EVersion)> =
            plan.items.iter().map(|i| (i.object.clone(), i.version)).collect();
        let mut ops = Vec::new();
        for (object, _) in &made {
            ops.extend(scratch::replace_steps(&ctx.pg.object_id(object.clone())));
        }
        let failed = |e: crate::IoError| Halt::Failed(e.to_string());
        if b.is_here() {
            // What is here beside it is nobody else's.
            let start = ctx.pg.object_id(b.from.clone());
            let here = crate::backend::digest::versions_of(&start, &b.to, ctx.store).map_err(failed)?;
            let stray = here.into_iter().filter(|o| !made.iter().any(|(m, _)| m == o));
            ops.extend(stray.map(|o| Op::Remove {
                oid: ctx.pg.object_id(o),
            }));
        }
        self.write_made(b, ops, ctx)?;
        b.phase = Phase::Done;
        if b.is_here() {
            // Whoever is answered from it waits for that.
            b.wait = None;
            self.forget_replaced(&b.to.head(), &made, ctx.pg.last_seq, ctx)
                .map_err(failed)?;
        }
        Ok(())
    }

    /// Whether the unit was written since its log entries ended at `as_of`, as far as anybody can know.
    pub(super) fn was_written(&self, head: &HObject, as_of: EVersion, ctx: &mut Lent<'_>) -> bool {
        if ctx.pg.log.head() == as_of {
            return false;
        }
        let reaches = as_of == EVersion::default() || ctx.pg.log.at_or_before(as_of).is_some();
        let written =
            |e: &crate::state::log::LogEntry| e.object.head() == *head && e.kind != EntryKind::Error;
        match ctx.pg.log_since(Some(as_of), ctx.store) {
            Ok(entries) if reaches => entries.iter().any(written),
            _ => true,
        }
    }

    /// It does not go on: what was made and is not used goes.
    pub(super) fn drop_rebuild(&mut self, mut b: Rebuild, ctx: &mut Lent<'_>) -> Fix {
        if let Some(Wait::Disk(ticket)) = b.wait.take() {
            ctx.store.release(ticket);
        }
        let Some(plan) = b.plan() else { return b.fix };
        let mut left: Vec<_> = plan.begun().iter().map(scratch).collect();
        if b.is_here() {
            left.retain(|oid| !matches!(ctx.store.stat(oid), Ok(None)));
        }
        let mut txn = Transaction::new(ctx.pg.id);
        txn.ops = left.into_iter().map(|oid| Op::Remove { oid }).collect();
        if txn.ops.is_empty() {
            return b.fix;
        }
        match b.member {
            Some(member) if self.is_full(member) => {
                let seq = self.next_number();
                self.send_to(member, PeerBody::Apply { seq, txn: txn.into() }, ctx);
            }
            // It removes them when it is asked again what it has.
            Some(_) => {}
            None => match ctx.store.submit(&txn) {
                Ok(seq) => ctx.pg.last_seq = seq,
                Err(e) => tracing::warn!("pg {}: {}: what was made of it stays: {e}", ctx.pg.id, b.to),
            },
        }
        b.fix
    }

    /// Who may give parts of a copy that is made here: those that a check named, or everybody.
    pub(super) fn sources_of(&self, named: Option<&[OsdId]>) -> Vec<OsdId> {
        let group = &self.group;
        let me = std::iter::once(group.me);
        let all = me.chain(group.in_sync.iter().copied().filter(|o| *o != group.me));
        all.filter(|o| named.is_none_or(|n| n.contains(o))).collect()
    }
}
