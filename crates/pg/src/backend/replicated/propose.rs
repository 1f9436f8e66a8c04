//! What the primary wants the configuration to be (rules 4 and 6 of docs/internals/replication.md).

use super::Replicated;
use super::member::Member;
use crate::api::Output;
use crate::backend::Lent;
use crate::backend::group::Proposal;
use crate::broken::{self, Rule};
use crate::state::pg::PgState;
use std::collections::BTreeSet;
use std::time::Duration;
use types::OsdId;

/// A proposal without an outcome is made again.
const PROPOSE_AGAIN: Duration = Duration::from_secs(1);
/// A hand-over that does not come about is given up.
const HANDING_MAX: Duration = Duration::from_secs(2);
/// And not tried again before.
const HANDING_REST: Duration = Duration::from_secs(10);

impl Replicated {
    /// The set as it should be now.
    fn wanted_group(&self, now: Duration, pg: &PgState) -> Vec<OsdId> {
        let r = self;
        if self.can_step_down(now) {
            return self.group_without_me(now);
        }
        let g = &r.group;
        let gone = |o: &OsdId| *o != g.me && r.members.get(o).is_none_or(|m| m.is_gone(now));
        // Everything that anybody was ever answered for is durable there.
        let answered = self.confirmed.min(pg.last_seq);
        let all = |m: &Member| m.synced && m.confirmed() >= answered || broken::is(Rule::LearnerHasAll);
        let has_all = |m: &Member| m.is_full() && all(m);
        let ready = |o: &OsdId| *o == g.me || r.members.get(o).is_some_and(has_all);
        // Learners that are ready come in.
        let mut set = g.in_sync.clone();
        if self.may_add() {
            set.extend(g.up.iter().filter(|o| !g.in_sync.contains(o) && ready(o)));
        }
        // Those of no use go, while enough stay.
        for osd in g.in_sync.iter().filter(|o| gone(o)) {
            if set.len() > (g.min_size as usize).max(1) {
                set.retain(|o| o != osd);
            }
        }
        // All are there that should be: no one else is needed, and the order is CRUSH's.
        let enough = g.up.len() >= g.size as usize;
        let covered = !g.up.is_empty() && g.up.iter().all(|o| set.contains(o));
        if covered && enough {
            return g.up.clone();
        }
        if covered {
            let extra: Vec<OsdId> = set.iter().filter(|o| !g.up.contains(o)).copied().collect();
            return g.up.iter().copied().chain(extra).collect();
        }
        set
    }

    /// A learner joins a primary that knows its own place.
    fn may_add(&self) -> bool {
        let g = &self.group;
        // While others of the set were not heard yet, additions make up for them.
        self.peered || g.in_sync.len() <= g.min_size as usize
    }

    pub(super) fn wants_another_group(&self) -> bool {
        let g = &self.group;
        g.is_primary() && g.in_sync != g.up
    }

    pub(super) fn propose(&mut self, ctx: &mut Lent<'_>) {
        let g = &self.group;
        if !g.is_primary() || !g.is_in_sync(g.me) {
            return;
        }
        if !self.handed && self.handing.is_some_and(|at| ctx.now >= at + HANDING_MAX) {
            self.handing = None;
            self.no_handing_before = ctx.now + HANDING_REST;
        }
        if self.proposal.is_some_and(|at| ctx.now < at + PROPOSE_AGAIN) {
            return;
        }
        if self.rest.is_some() {
            return self.rest_on(ctx);
        }
        let mut want = self.wanted_group(ctx.now, ctx.pg);
        if want == self.group.in_sync {
            // An addition, or another primary, was proposed and is not wanted any more: a proposal of what is (which
            // makes a new interval) rules out that it still comes true. So for a removal, if the member wants to answer reads.
            let open = !self.counted.is_empty() || self.handed || self.grants.is_kept_waiting();
            self.grants.let_go(BTreeSet::new(), ctx.now);
            return match !open {
                true => self.proposal = None,
                false => self.send_proposal(want, ctx),
            };
        }
        let in_sync = self.group.in_sync.iter();
        let leaving = in_sync.filter(|o| !want.contains(o)).copied().collect();
        if !self.grants.let_go(leaving, ctx.now) {
            // They may answer reads yet.
            return;
        }
        let leaves = want.first() != Some(&self.group.me);
        let ready = match self.can_step_down(ctx.now) {
            true => self.is_settled(&want, ctx),
            false => self.is_ready_to_hand_over(ctx),
        };
        // Also while an earlier hand-over is under way whose outcome nobody told: this one would be refused, again and again.
        let next_is_in = want.first().is_some_and(|o| self.group.is_in_sync(*o));
        if leaves && (!next_is_in || !self.handed && !ready) {
            // Not yet: what can be had without another primary, first.
            want = self.keep_the_lead(want);
            if want == self.group.in_sync {
                return;
            }
        }
        self.send_proposal(want, ctx);
    }

    fn keep_the_lead(&self, mut want: Vec<OsdId>) -> Vec<OsdId> {
        let me = self.group.me;
        want.retain(|o| *o != me);
        want.insert(0, me);
        want
    }

    /// The next primary must have all that was answered, and is spared to take back what was not: nothing new is
    /// executed, and everything is durable everywhere.
    fn is_ready_to_hand_over(&mut self, ctx: &mut Lent<'_>) -> bool {
        if !self.peered {
            return false;
        }
        let in_sync = |o: &OsdId| self.group.is_in_sync(*o);
        let next_is_in = self.group.up.first().is_some_and(in_sync);
        if !next_is_in || !self.members.values().all(|m| m.is_full()) || ctx.now < self.no_handing_before {
            return false;
        }
        self.handing.get_or_insert(ctx.now);
        !ctx.front.answers_wait(self.confirmed) && ctx.front.is_idle() && self.committed() >= ctx.pg.last_seq
    }

    /// Another one's log is longer: it leads.
    pub(super) fn yield_to(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        if self.proposal.is_some_and(|at| ctx.now < at + PROPOSE_AGAIN) {
            return;
        }
        let mut want = self.group.in_sync.clone();
        want.retain(|o| *o != osd);
        want.insert(0, osd);
        self.send_proposal(want, ctx);
    }

    pub(super) fn send_proposal(&mut self, in_sync: Vec<OsdId>, ctx: &mut Lent<'_>) {
        let g = &self.group;
        let (in_sync_first, proposal_of) = (in_sync.first().copied(), g.me);
        let g_in_sync = g.in_sync.clone();
        let additions: Vec<OsdId> = in_sync
            .iter()
            .filter(|o| !g.in_sync.contains(o))
            .copied()
            .collect();
        tracing::info!(
            "pg {}: in sync {:?} -> {in_sync:?} proposed",
            ctx.pg.id,
            g.in_sync
        );
        let proposal = Proposal {
            interval: g.interval,
            expect: g.in_sync.clone(),
            in_sync,
            acting: None,
        };
        self.handed |= in_sync_first != Some(proposal_of);
        self.counted.extend(additions);
        let removed = g_in_sync.into_iter().filter(|o| !proposal.in_sync.contains(o));
        self.grants.proposed(removed);
        self.proposal = Some(ctx.now);
        ctx.out.push(Output::Propose(proposal));
    }
}
