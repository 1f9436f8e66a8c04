//! What the primary of shards wants the configuration to be: rules 4 and 6 of docs/internals/replication.md, with places.

use super::Shards;
use super::member::Member;
use crate::api::Output;
use crate::backend::Lent;
use crate::backend::group::Proposal;
use crate::state::pg::PgState;
use std::time::Duration;
use types::OsdId;

/// A proposal without an outcome is made again.
const PROPOSE_AGAIN: Duration = Duration::from_secs(1);
/// A hand-over that does not come about is given up.
const HANDING_MAX: Duration = Duration::from_secs(2);
/// And not tried again before.
const HANDING_REST: Duration = Duration::from_secs(10);

/// A set, the primary first, and who of it has which shard.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set {
    in_sync: Vec<OsdId>,
    acting: Vec<Option<OsdId>>,
}

impl Set {
    /// Whoever had the place leaves.
    fn put(&mut self, place: usize, osd: Option<OsdId>) {
        if place >= self.acting.len() {
            self.acting.resize(place + 1, None);
        }
        if let Some(old) = std::mem::replace(&mut self.acting[place], osd) {
            self.in_sync.retain(|o| *o != old);
        }
        self.in_sync.extend(osd);
    }

    fn lead(&mut self, osd: OsdId) {
        self.in_sync.retain(|o| *o != osd);
        self.in_sync.insert(0, osd);
    }
}

impl Shards {
    fn present(&self) -> Set {
        let g = &self.group;
        let mut acting: Vec<Option<OsdId>> =
            g.acting.iter().map(|o| o.filter(|o| g.is_in_sync(*o))).collect();
        acting.resize(acting.len().max(self.coding.layout.shards()), None);
        Set {
            in_sync: g.in_sync.clone(),
            acting,
        }
    }

    /// The set as it should be now. What a learner was given as it stood it cannot take back: all that are in the set with it have that.
    /// Who leaves with this need not: one that is gone for good, and cannot leave before another one is there, would else keep all out.
    fn wanted_set(&self, now: Duration, pg: &PgState) -> Set {
        let answered = self.confirmed.min(pg.last_seq);
        let ready = |m: &Member| m.is_full() && m.is_synced() && m.confirmed() >= answered;
        let set = self.set_with(now, ready);
        let has = |osd: &OsdId| match *osd == self.group.me {
            true => self.durable,
            false => self.members.get(osd).map_or(0, Member::confirmed),
        };
        let all_have = set.in_sync.iter().map(has).min().unwrap_or(0);
        let new = set.in_sync.iter().filter(|o| !self.group.is_in_sync(**o));
        let mut new = new.filter_map(|o| self.members.get(o));
        match new.all(|m| m.joins_at <= all_have) {
            true => set,
            false => self.set_with(now, |m| ready(m) && m.joins_at <= self.confirmed),
        }
    }

    fn set_with(&self, now: Duration, ready: impl Fn(&Member) -> bool) -> Set {
        let g = &self.group;
        let mut set = self.present();
        // Learners that are ready come in; who has the place leaves, but not a primary: another one leads first.
        for (osd, m) in &self.members {
            let joins = !g.is_in_sync(*osd) && self.peered && ready(m);
            if joins && set.acting.get(m.place).copied().flatten() != Some(g.me) {
                set.put(m.place, Some(*osd));
            }
        }
        // Those of no use go, while enough stay.
        let least = (g.min_size as usize).max(self.coding.layout.k());
        let gone = |o: &OsdId| *o != g.me && self.members.get(o).is_none_or(|m| m.is_gone(now));
        for osd in g.in_sync.iter().filter(|o| gone(o)) {
            let place = set.acting.iter().position(|o| o == &Some(*osd));
            if let Some(place) = place.filter(|_| set.in_sync.len() > least) {
                set.put(place, None);
            }
        }
        let in_up = |o: &OsdId| set.in_sync.contains(o);
        let covered = !g.up.is_empty() && g.up.iter().all(in_up);
        if covered {
            // The order is CRUSH's, and those that it does not want come last.
            let extra: Vec<OsdId> = set
                .in_sync
                .iter()
                .filter(|o| !g.up.contains(o))
                .copied()
                .collect();
            set.in_sync = g.up.iter().copied().chain(extra).collect();
        } else if !g.up.contains(&g.me)
            && let Some(next) = self.next_lead()
        {
            set.lead(next);
        }
        set
    }

    /// Who leads after this OSD: the first that CRUSH wants of those that are in sync.
    fn next_lead(&self) -> Option<OsdId> {
        let g = &self.group;
        g.up.iter().find(|o| g.is_in_sync(**o)).copied()
    }

    pub(super) fn wants_another_group(&self) -> bool {
        let g = &self.group;
        g.is_primary() && g.in_sync != g.up
    }

    pub(super) fn propose(&mut self, ctx: &mut Lent<'_>) {
        let g = &self.group;
        if !g.is_primary() || !g.is_in_sync(g.me) || self.reloading {
            return;
        }
        if !self.handed && self.handing.is_some_and(|at| ctx.now >= at + HANDING_MAX) {
            self.handing = None;
            self.no_handing_before = ctx.now + HANDING_REST;
        }
        if self.proposal.is_some_and(|at| ctx.now < at + PROPOSE_AGAIN) {
            return;
        }
        let mut want = self.wanted_set(ctx.now, ctx.pg);
        let present = self.present();
        if want == present {
            // An addition, or another primary, was proposed and is not wanted any more: a proposal of what is (which
            // makes a new interval) rules out that it still comes true.
            let open = !self.counted.is_empty() || self.handed;
            return match open {
                true => self.send_proposal(want, ctx),
                false => self.proposal = None,
            };
        }
        let leaves = want.in_sync.first() != Some(&self.group.me);
        if leaves {
            let next_is_in = want.in_sync.first().is_some_and(|o| self.group.is_in_sync(*o));
            let ready = next_is_in && self.is_ready_to_hand_over(ctx);
            if !next_is_in || !self.handed && !ready {
                // Not yet: what can be had without another primary, first.
                want.lead(self.group.me);
                if want.acting == present.acting {
                    return;
                }
            }
        }
        self.send_proposal(want, ctx);
    }

    /// Nothing new is executed, and everything is durable everywhere: the next primary has nothing to take back.
    fn is_ready_to_hand_over(&mut self, ctx: &mut Lent<'_>) -> bool {
        let full = self.members.values().all(|m| m.is_full() && m.is_synced());
        if !self.peered || !full || ctx.now < self.no_handing_before {
            return false;
        }
        self.handing.get_or_insert(ctx.now);
        !ctx.front.answers_wait(self.confirmed) && ctx.front.is_idle() && self.committed() >= ctx.pg.last_seq
    }

    /// Another one leads: what is here is not enough for that.
    pub(super) fn yield_to(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        if self.proposal.is_some_and(|at| ctx.now < at + PROPOSE_AGAIN) {
            return;
        }
        let mut want = self.present();
        want.lead(osd);
        self.send_proposal(want, ctx);
    }

    fn send_proposal(&mut self, want: Set, ctx: &mut Lent<'_>) {
        let g = &self.group;
        tracing::info!(
            "pg {}: in sync {:?} -> {:?}, shards {:?}, proposed",
            ctx.pg.id,
            g.in_sync,
            want.in_sync,
            want.acting
        );
        let additions: Vec<OsdId> = want
            .in_sync
            .iter()
            .filter(|o| !g.is_in_sync(**o))
            .copied()
            .collect();
        self.handed |= want.in_sync.first() != Some(&g.me);
        let proposal = Proposal {
            interval: g.interval,
            expect: g.in_sync.clone(),
            in_sync: want.in_sync,
            acting: Some(want.acting),
        };
        self.counted.extend(additions);
        self.proposal = Some(ctx.now);
        ctx.out.push(Output::Propose(proposal));
    }
}
