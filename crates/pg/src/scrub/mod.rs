//! Scrub: the copies of a PG compared with one another, and bad ones repaired (docs/internals/scrub.md).
//!
//! Vocabulary: a *light* scrub compares versions, sizes and attributes, a *deep* one all data and omap. The [`run`] walks
//! the PG in *stretches* that are compared without stopping writes; what differs there is *suspect*, and is looked at once
//! more while its writes wait (a *check*). The back end
//! looks at objects, says which copy is right and puts it in the place of the others.
//!
//! Invariants: only a PG that is whole, active and has nothing to copy is scrubbed; a run ends when that does. What is
//! compared in a check is one state of the object on all copies. An operation that meets an unreadable copy on the
//! primary is answered with an error only if no other member has a good one.
//!
//! Not here: when a scrub begins and how fast it goes (the shell: it orders a run and grants its stretches).

mod compare;
mod ls;
mod member_damage;
mod run;
mod state;

pub(crate) use state::Scrub;

use crate::Pg;
use crate::api::{Context, Output, ScrubOrder};
use crate::backend::findings::{Inconsistent, Side, shard_error};
use crate::backend::pull_turns::PullTurns;
use crate::state::stamps::ScrubStamps;
use crate::store::Ticket;
use messages::osd::peer_scrub::ScrubBody;
use state::{FOUND_MAX, Run};
use types::{HObject, OsdId, Transaction};

/// How a PG stands, for the shell and for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubView {
    pub stamps: ScrubStamps,
    pub running: Option<ScrubOrder>,
    /// A stretch could be taken on now.
    pub wants_grant: bool,
    /// Copies repaired since this OSD leads the PG.
    pub repaired: u64,
    /// It could be scrubbed now.
    pub ready: bool,
}

impl Pg {
    /// From now on it repairs its own copies in turn with the other PGs that share these.
    pub fn share_pull_turns(&mut self, turns: PullTurns) {
        self.backend.share_pull_turns(turns);
    }

    pub fn scrub_view(&self) -> ScrubView {
        let run = self.scrub.run.as_deref().filter(|r| !r.alone);
        ScrubView {
            stamps: self.state.meta.scrub,
            running: run.map(|r| r.order),
            wants_grant: run.is_some_and(Run::wants_grant),
            repaired: self.backend.repaired(),
            ready: self.can_scrub(),
        }
    }

    /// What the last scrubs of this interval found; None: there was none.
    pub fn inconsistent(&self) -> Option<impl Iterator<Item = &Inconsistent>> {
        self.scrub.found.as_ref().map(|f| f.values())
    }

    /// Whole, active, and every member has everything: only then all copies are the same.
    fn can_scrub(&self) -> bool {
        let g = self.backend.group();
        self.is_active() && g.is_primary() && g.is_whole() && self.backend.all_full() && self.count.is_none()
    }

    pub(crate) fn scrub_said(&mut self, from: OsdId, body: ScrubBody, ctx: &mut Context<'_>) {
        match body {
            ScrubBody::Digests { token, items, next } => self.digests(from, token, items, next),
            ScrubBody::Damaged { head } => self.damage_reported(from, head, ctx),
            // The back end's.
            _ => {}
        }
    }

    /// True if the read was scrub's.
    pub(crate) fn scrub_read_ended(&mut self, ticket: Ticket, ctx: &mut Context<'_>) -> bool {
        self.scrub.run.as_mut().is_some_and(|r| r.read_ended(ticket))
            || self.repair(ctx, |b, lent| b.read_ended(ticket, lent))
    }

    /// After every input: goes on with what it may have set free.
    pub(crate) fn scrub_on(&mut self, ctx: &mut Context<'_>) {
        if self.scrub.run.is_some() && !self.can_scrub() {
            self.stop_scrub(ctx);
        }
        self.repair(ctx, |b, lent| b.recover(lent));
        if self.scrub.run.is_some() {
            self.go_on_scrubbing(ctx);
        }
    }

    /// Something of an object cannot be read here, and nobody could give it.
    pub(crate) fn note_unreadable(&mut self, head: &HObject, ctx: &mut Context<'_>) {
        let me = Side {
            osd: self.backend.group().me,
            shard: self.state.id.shard,
            digest: None,
            errors: shard_error::READ,
            bad: true,
        };
        let one = Inconsistent {
            object: head.clone(),
            errors: 0,
            sides: vec![me],
            good: None,
            shallow: 0,
            deep: 1,
        };
        let found = self.scrub.found.get_or_insert_default();
        if found.contains_key(head) || found.len() >= FOUND_MAX {
            return;
        }
        found.insert(head.clone(), one);
        self.state.meta.scrub.deep_errors = self.state.meta.scrub.deep_errors.saturating_add(1);
        self.write_stamps(ctx);
    }

    /// The stamps go to all members.
    fn write_stamps(&mut self, ctx: &mut Context<'_>) {
        let mut txn = Transaction::new(self.state.id);
        txn.ops.push(self.state.meta_op());
        if let Err(e) = self.submit_txn(txn, None, ctx) {
            // They are written with the next change of the metadata.
            tracing::warn!(
                "pg {}: when it was scrubbed is not written down: {e}",
                self.state.id
            );
        }
    }

    /// A PG that was never scrubbed counts as scrubbed when it was first led here: the periods begin then.
    pub fn begin_scrub_periods(&mut self, ctx: &mut Context<'_>) {
        if self.state.meta.scrub.at.is_zero() && self.is_active() {
            (self.state.meta.scrub.at, self.state.meta.scrub.deep_at) = (ctx.wall, ctx.wall);
            self.state.meta.scrub.clean_at = ctx.wall;
            self.write_stamps(ctx);
        }
    }

    pub(crate) fn leave_scrub(&mut self, ctx: &mut Context<'_>) {
        self.stop_scrub(ctx);
        self.repair(ctx, |b, lent| b.leave(lent));
    }

    fn tell_scrubbed(&self, bytes: u64, ctx: &mut Context<'_>) {
        ctx.out.push(Output::Scrubbed { bytes });
    }
}
