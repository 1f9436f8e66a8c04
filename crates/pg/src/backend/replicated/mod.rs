//! Copies of the PG on other OSDs, as its primary keeps them (docs/internals/replication.md).
//!
//! Vocabulary: a *member* is another OSD that has the PG or shall have it; it is *full* when it has everything and
//! gets every transaction as it is. [`resync`] brings a member of `in_sync` to the primary's state in one atomic
//! step, [`catchup`] brings any other up object by object, and [`copy`] builds the transactions of both.
//!
//! Invariants:
//! - Nothing is executed before every other OSD of `in_sync` has said what it has (or has left the set), and never
//!   while fewer than min_size are in sync.
//! - The logs of `in_sync` are prefixes of one another; the longest becomes primary and is never undone.
//! - An answer waits for every OSD of `in_sync` and for those whose addition was proposed, until the outcome is seen.
//!
//! Bounds: clients' operations that wait are bounded by their permits; the rest is named where it is.
//!
//! Place of erasure coding: a back end that gives each member its shard instead of the transaction as it is.

mod answer;
mod birth;
mod catchup;
mod contract;
mod copy;
mod damage;
mod gather;
mod granting;
pub(crate) mod grants;
pub(crate) mod local;
mod member;
mod propose;
pub(crate) mod repair;
mod rest;
mod resync;
mod shown;
mod split_siblings;
mod step_down;
mod uncommitted;
mod verdict;

pub(crate) use copy::{anew_steps, is_large, weight};
pub(crate) use repair::scratch::clear as clear_scratch;
pub use repair::scratch::first_scratch;
pub(crate) use shown::{May, Shown};

use crate::api::{Output, Word};
use crate::backend::group::Group;
use crate::backend::reports::MemberState;
use crate::backend::{Backend, Lent};
use crate::broken::{self, Rule};
use crate::state::pg::PgState;
use crate::store::Seq;
use birth::Birth;
use grants::Grants;
use member::{Member, Phase};
use messages::osd::SharedTxn;
use messages::osd::peer::{PeerBody, PgInfo};
use messages::osd::peer_scrub::ScrubBody;
use repair::Repairs;
use rest::Rest;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Errno, HObject, Op, OsdId, Transaction};

/// How often a PG whose members are not all full looks after them.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A primary keeps its lead for so long, so that clients that followed it find it: the one that it shall go back to may
/// have stepped down for lack of room.
const LEAD_MIN: Duration = Duration::from_secs(2);

/// What the primary knows of the copies.
#[derive(Debug, Default)]
pub(crate) struct Replicated {
    group: Group,
    members: BTreeMap<OsdId, Member>,
    /// Connections, whether the OSD is a member now or not.
    connected: BTreeSet<OsdId>,
    /// Durable here.
    durable: Seq,
    /// All of `in_sync` have been heard in this interval.
    peered: bool,
    /// Nothing new is executed: the PG is being handed over, since then.
    handing: Option<Duration>,
    no_handing_before: Duration,
    /// Nothing new is executed: the PG is to be merged.
    rest: Option<Rest>,
    /// Another primary was proposed, and the outcome was not seen: it may serve already.
    handed: bool,
    /// The store here has no room, since then: another one of the set shall lead (see [`step_down`]).
    stepping_down: Option<Duration>,
    /// When that came to nothing last.
    stepping_down_failed: Option<Duration>,
    /// The `stepping_down` for which the reads were taken out of what is held.
    sifted: Option<Duration>,
    /// The newest transaction that answers may show: it never goes back.
    confirmed: Seq,
    /// Who has spoken of transactions in this call.
    word: Option<Word>,
    /// A proposal is on its way, since then.
    proposal: Option<Duration>,
    /// Proposed additions whose outcome is not known: answers wait for them, too.
    counted: BTreeSet<OsdId>,
    grants: Grants,
    /// Number of the last [`PeerBody::Apply`] or [`PeerBody::Scan`].
    last_number: u64,
    look_at: Option<Duration>,
    birth: Birth,
    repairs: Repairs,
}

impl Replicated {
    /// Before the shell has said otherwise the PG is here alone.
    pub fn alone() -> Self {
        Self {
            group: Group::alone(0),
            peered: true,
            ..Self::default()
        }
    }

    /// The newest transaction that all of whom it takes have made durable.
    fn committed(&self) -> Seq {
        if broken::is(Rule::AllDurable) {
            return self.durable;
        }
        let counts = !broken::is(Rule::CountedToo);
        let counted = |osd: &OsdId| self.counted.contains(osd) && counts;
        // One that is wanted no more may join all the same, and hears of nothing: nothing more is answered before the outcome is known,
        // which a proposal of what is brings about.
        if counts && self.counted.iter().any(|osd| !self.members.contains_key(osd)) {
            return self.confirmed;
        }
        let required = |osd: &OsdId| self.group.is_in_sync(*osd) || counted(osd);
        self.members
            .iter()
            .filter(|(osd, _)| required(osd))
            .map(|(_, m)| m.confirmed())
            .fold(self.durable, Seq::min)
    }

    /// A member of `in_sync` is being caught up in place: until it has everything its objects may be newer than its
    /// log, so nothing new is written that it might show without a memory of it.
    fn is_filling(&self) -> bool {
        let filling = |m: &Member| matches!(m.phase, Phase::CatchUp(_) | Phase::Undoing { .. });
        let in_sync = |osd: &OsdId| self.group.is_in_sync(*osd);
        self.members.iter().any(|(osd, m)| in_sync(osd) && filling(m))
    }

    fn may_execute(&self) -> bool {
        let handing = self.handing.is_some() && !broken::is(Rule::HandingStops);
        let stays = !handing && !self.handed && self.stepping_down.is_none() && !self.is_resting();
        stays && self.could_be_active()
    }

    /// Active, if it is to lead at all.
    fn could_be_active(&self) -> bool {
        self.peered && self.group.is_enough() && !self.is_filling()
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn is_full(&self, osd: OsdId) -> bool {
        self.members.get(&osd).is_some_and(Member::is_full)
    }

    /// Those that have everything.
    fn full_members(&self) -> Vec<OsdId> {
        let full = self.members.iter().filter(|(_, m)| m.is_full());
        full.map(|(osd, _)| *osd).collect()
    }
}

impl Replicated {
    fn send_to(&self, to: OsdId, body: PeerBody, ctx: &mut Lent<'_>) {
        self.send(to, body, ctx.out);
    }

    pub(crate) fn send(&self, to: OsdId, body: PeerBody, out: &mut Vec<Output>) {
        let interval = self.group.interval;
        out.push(Output::Peer {
            to,
            shard: -1,
            interval,
            body,
        });
    }

    // --- inputs ---------------------------------------------------------------------------------------

    fn group_changed(&mut self, group: Group, ctx: &mut Lent<'_>) {
        let old = std::mem::replace(&mut self.group, group);
        let group = &self.group;
        let new_interval = old.interval != group.interval;
        if new_interval || old.in_sync != group.in_sync {
            // Whatever was proposed on the old set has happened, or never will.
            self.proposal = None;
            self.counted.clear();
            self.handing = None;
            self.handed = false;
            self.grants.set_changed(&group.in_sync);
            self.stepping_down = None;
            self.rest = None;
        }
        let peers: BTreeSet<OsdId> = group.peers().collect();
        let gone: Vec<OsdId> = self
            .members
            .keys()
            .filter(|o| new_interval || !peers.contains(o))
            .copied()
            .collect();
        for osd in gone {
            self.stop_catching_up(osd, ctx);
            self.members.remove(&osd);
            self.birth.falls += 1;
            self.birth.forget(osd);
        }
        if new_interval {
            self.peered &= broken::is(Rule::PeeredAnew);
            let r = &mut *self;
            let others = r.group.in_sync.iter().filter(|o| **o != r.group.me);
            r.grants.new_interval(others.copied(), ctx.now);
            self.no_handing_before = ctx.now + LEAD_MIN;
        }
        for osd in peers {
            if let std::collections::btree_map::Entry::Vacant(v) = self.members.entry(osd) {
                v.insert(Member::new(ctx.now));
                if self.connected.contains(&osd) {
                    self.ask(osd, ctx);
                }
            }
        }
        // A learner that joins by a proposal whose outcome came late: it changes in one step from here on.
        let joined = |(osd, m): &(&OsdId, &Member)| {
            matches!(m.phase, Phase::CatchUp(_)) && self.group.is_in_sync(**osd) && !old.in_sync.contains(osd)
        };
        let joined: Vec<OsdId> = self.members.iter().filter(joined).map(|(o, _)| *o).collect();
        for osd in joined {
            self.lose(osd, ctx);
            self.ask(osd, ctx);
        }
        self.review(ctx);
    }

    fn connected_again(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        self.connected.insert(osd);
        if self.members.contains_key(&osd) {
            self.lose(osd, ctx);
            self.ask(osd, ctx);
        }
        self.review(ctx);
    }

    fn disconnected(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        self.connected.remove(&osd);
        self.lose(osd, ctx);
        self.review(ctx);
    }

    /// Everything about the member is begun anew; what it has confirmed counts on.
    fn lose(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        self.stop_catching_up(osd, ctx);
        self.birth.falls += 1;
        self.birth.forget(osd);
        let last = ctx.pg.last_seq;
        if let Some(m) = self.members.get_mut(&osd) {
            m.lose(last, ctx.now);
        }
    }

    /// What the member was asked has no answer: it gave its part in the PG up, and may have it again by now. Asked when
    /// members are looked after, so that two who do not agree do not ask each other without end.
    fn begun_anew(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let refuses = |m: &Member| matches!(m.phase, Phase::Undoing { .. } | Phase::Failed { .. });
        if self.members.get(&osd).is_some_and(|m| !refuses(m)) {
            self.lose(osd, ctx);
        }
    }

    fn ask(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        if let Some(m) = self.members.get_mut(&osd) {
            m.phase = Phase::Asked { at: ctx.now };
            m.away_since = None;
            self.send_to(osd, PeerBody::Query, ctx);
        }
    }

    /// A member that cannot keep up: its disk refused something.
    fn fail(&mut self, osd: OsdId, why: &str, ctx: &mut Lent<'_>) {
        tracing::warn!("pg {}: osd.{osd} {why}: left alone for a while", ctx.pg.id);
        self.lose(osd, ctx);
        if let Some(m) = self.members.get_mut(&osd) {
            m.phase = Phase::Failed { at: ctx.now };
        }
    }

    /// A message of another OSD that this one hears.
    fn said(&mut self, from: OsdId, body: PeerBody, ctx: &mut Lent<'_>) -> Option<ScrubBody> {
        let mut for_scrub = None;
        match body {
            PeerBody::Info(info) => self.heard(from, info, ctx),
            PeerBody::Applied { seq, result } if result < 0 => {
                if let Some(m) = self.members.get_mut(&from) {
                    m.small_steps |= result == Errno::EFBIG.code();
                    m.no_room |= result == Errno::ENOSPC.code();
                    // A part of a block that cannot be read there was to be written: whole objects can.
                    m.damaged |= result == Errno::EIO.code();
                }
                let why = format!("refused transaction {seq} ({result})");
                self.fail(from, &why, ctx);
            }
            PeerBody::Applied { seq, .. } => self.applied(from, seq, ctx),
            PeerBody::Listing { token, items, next } => self.listed(from, token, items, next, ctx),
            PeerBody::Ask { token } => self.asked_for_grant(from, token, ctx),
            PeerBody::Scrub(body) => for_scrub = self.scrub_said(from, body, ctx),
            // Copies have no units, and nobody was asked for any.
            PeerBody::Units { .. } => {}
            PeerBody::Stale { known } => {
                tracing::debug!("pg {}: osd.{from} knows interval {known}", ctx.pg.id);
                self.begun_anew(from, ctx);
            }
            // What only a primary sends: the other one is told that it is none, if it is not.
            PeerBody::Query
            | PeerBody::Rewind { .. }
            | PeerBody::Reset
            | PeerBody::Scan { .. }
            | PeerBody::Apply { .. }
            | PeerBody::Granted { .. }
            | PeerBody::Stable { .. }
            | PeerBody::Learn { .. }
            | PeerBody::ReadUnits { .. } => {
                tracing::warn!(
                    "pg {}: osd.{from} takes itself for the primary of our interval",
                    ctx.pg.id
                );
            }
        }
        self.review(ctx);
        for_scrub
    }

    /// What members say for repairs; what is for the scrub is given back.
    fn scrub_said(&mut self, from: OsdId, body: ScrubBody, ctx: &mut Lent<'_>) -> Option<ScrubBody> {
        match body {
            ScrubBody::Digests { .. } | ScrubBody::Damaged { .. } => return Some(body),
            ScrubBody::Pulled { token, result, txn } => self.pulled(from, token, result, txn, ctx),
            ScrubBody::Outlined {
                token,
                result,
                outline,
            } => self.outline_answered(from, token, (result, outline), ctx),
            ScrubBody::Pieced {
                token,
                result,
                next,
                txn,
            } => self.pieced(from, token, result, (txn, next), ctx),
            ScrubBody::Digest { .. }
            | ScrubBody::Pull { .. }
            | ScrubBody::Outline { .. }
            | ScrubBody::Piece { .. } => {
                tracing::warn!(
                    "pg {}: osd.{from} takes itself for the primary of our interval",
                    ctx.pg.id
                );
            }
        }
        None
    }

    fn heard(&mut self, from: OsdId, info: PgInfo, ctx: &mut Lent<'_>) {
        let Some(m) = self.members.get_mut(&from) else {
            return;
        };
        tracing::debug!(
            "pg {}: osd.{from} has {:?} to {:?}, complete {}, dirty {}, exists {}",
            ctx.pg.id,
            info.tail,
            info.head,
            info.complete,
            info.dirty.len(),
            info.exists
        );
        match &m.phase {
            Phase::Asked { .. } => {
                m.phase = Phase::Heard(info);
                self.grants.heard(from);
                // Nobody is filled from a copy that is not whole, unless no other is.
                let may_fill = ctx.pg.meta.complete && !self.group.is_in_sync(from);
                if self.peered || may_fill {
                    self.begin(from, ctx);
                }
            }
            Phase::Undoing { .. } => {
                m.phase = Phase::Heard(info);
                self.begin(from, ctx);
            }
            _ => {}
        }
    }

    fn applied(&mut self, from: OsdId, number: u64, ctx: &mut Lent<'_>) {
        self.word = Some(Word::Osd(from));
        if let Some(m) = self.members.get_mut(&from) {
            m.applied(number);
        }
        self.copy_applied(from, number, ctx);
        self.repair_applied(from, number, ctx);
    }

    // --- peering --------------------------------------------------------------------------------------

    /// Once all of `in_sync` have been heard: the longest log leads.
    fn try_to_peer(&mut self, ctx: &mut Lent<'_>) {
        let group = &self.group;
        if self.peered || !group.is_primary() || !group.is_in_sync(group.me) {
            return;
        }
        // One that holds no whole copy (a new PG's member, a split one's) leads only where nobody holds one.
        let mut longest = ((ctx.pg.meta.complete, ctx.pg.log.head()), group.me);
        for osd in group.in_sync.iter().filter(|o| **o != group.me) {
            let info = match self.members.get(osd).map(|m| &m.phase) {
                Some(Phase::Heard(info)) => info,
                // It was brought to what is here before it joined the set.
                Some(Phase::Full) if ctx.pg.meta.complete => continue,
                _ => return,
            };
            if (info.complete, info.head) > longest.0 && !broken::is(Rule::LongestLeads) {
                longest = ((info.complete, info.head), *osd);
            }
        }
        if longest.1 != group.me {
            return self.yield_to(longest.1, ctx);
        }
        self.peered = true;
        ctx.pg.meta.complete = true;
        tracing::debug!("pg {}: peered in interval {}", ctx.pg.id, group.interval);
        let others: Vec<OsdId> = self.members.keys().copied().collect();
        for osd in others {
            self.begin(osd, ctx);
        }
    }

    /// Somebody of `in_sync` will not be heard soon: others make up for him.
    fn peers_in_vain(&self, now: Duration) -> bool {
        let in_sync = |osd: &OsdId| self.group.is_in_sync(*osd);
        let mut members = self.members.iter();
        members.any(|(osd, m)| in_sync(osd) && m.is_gone(now))
    }

    /// Learners that were heard while it could be that all of `in_sync` are, too.
    fn begin_without_peers(&mut self, ctx: &mut Lent<'_>) {
        let group = &self.group;
        let may_fill = ctx.pg.meta.complete && group.is_primary() && group.is_in_sync(group.me);
        if self.peered || !may_fill || !self.peers_in_vain(ctx.now) {
            return;
        }
        let waits = |(osd, m): &(&OsdId, &Member)| {
            matches!(m.phase, Phase::Heard(_)) && !self.group.is_in_sync(**osd)
        };
        let heard: Vec<OsdId> = self.members.iter().filter(waits).map(|(o, _)| *o).collect();
        heard.into_iter().for_each(|osd| self.begin(osd, ctx));
    }

    /// What is to be done about a member that was heard.
    fn begin(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let head = ctx.pg.log.head();
        let empty = ctx.pg.log.len() == 0 && ctx.pg.meta.stats.version == 0;
        let in_vain = self.peers_in_vain(ctx.now);
        let Some(m) = self.members.get_mut(&osd) else {
            return;
        };
        let Phase::Heard(info) = &m.phase else { return };
        let whole = info.exists && info.complete && info.dirty.is_empty();
        let in_sync = self.group.is_in_sync(osd);
        // One that was split off may have no log, and neither may its members: of those in sync that tells enough.
        let has_log = ctx.pg.log.len() > 0 || empty || in_sync;
        if whole && has_log && info.head == head {
            let last = ctx.pg.last_seq;
            m.become_full(last);
        } else if in_sync && whole && !m.small_steps && ctx.pg.log.goes_on_from(info.head) {
            let since = info.head;
            self.begin_resync(osd, since, ctx);
        } else if self.peered || in_sync || in_vain {
            let info = info.clone();
            if info.exists || !self.give_sibling_its_log(osd, ctx) {
                self.begin_catching_up(osd, info, ctx);
            }
        }
    }

    // --- writes ---------------------------------------------------------------------------------------

    /// Sends a transaction that was submitted here as `seq` to the members.
    fn replicate(&mut self, txn: SharedTxn, head: Option<&HObject>, seq: Seq, ctx: &mut Lent<'_>) {
        let interval = self.group.interval;
        let mut number = self.last_number;
        let mut objects_only: Option<SharedTxn> = None;
        for (osd, m) in &mut self.members {
            let in_sync = self.group.is_in_sync(*osd);
            let txn = if m.is_full() {
                txn.clone()
            } else if !in_sync && let Some(c) = m.caught_up_by_log() {
                c.put_off(seq, head, &txn);
                continue;
            } else if head.is_some_and(|h| m.takes_objects(h)) {
                objects_only.get_or_insert_with(|| strip(&txn).into()).clone()
            } else {
                continue;
            };
            number += 1;
            if m.is_full() {
                m.sent(number, seq - 1);
            }
            if txn.ops.is_empty() {
                continue;
            }
            let body = PeerBody::Apply { seq: number, txn };
            ctx.out.push(Output::Peer {
                to: *osd,
                shard: -1,
                interval,
                body,
            });
        }
        self.last_number = number;
    }

    /// Lets answers go that all have made durable.
    fn release_committed(&mut self, ctx: &mut Lent<'_>) {
        self.confirmed = self.confirmed.max(self.committed());
        self.send_committed(ctx.out);
        self.tell_stable(ctx.pg, ctx.out);
    }

    fn durable_here(&mut self, seq: Seq, ctx: &mut Lent<'_>) {
        self.durable = self.durable.max(seq);
        self.word = Some(Word::Disk);
        self.release_committed(ctx);
        if self.members.values().any(Member::waits_for_durability) {
            self.go_on_catching_up(ctx);
        }
    }

    // --- time -----------------------------------------------------------------------------------------

    /// After anything that may have changed what is to be done.
    fn review(&mut self, ctx: &mut Lent<'_>) {
        self.grants.forget_ended(ctx.now);
        if self.is_at_rest() {
            self.look_at = None;
            return self.release_committed(ctx);
        }
        self.try_to_peer(ctx);
        self.begin_without_peers(ctx);
        self.go_on_resyncing(ctx);
        self.go_on_catching_up(ctx);
        self.release_committed(ctx);
        self.give_up_stepping_down(ctx.now, ctx.pg);
        self.propose(ctx);
        let restless = self.is_restless();
        // Not put off by what comes in meanwhile: under load that never ends.
        let at = self.look_at.unwrap_or(ctx.now + LOOK_EVERY);
        self.look_at = (restless && self.group.is_primary()).then_some(at);
    }

    /// Something is under way, or wanted, that needs looking after.
    fn is_restless(&self) -> bool {
        !self.peered
            || !Backend::all_full(self)
            || self.proposal.is_some()
            || self.handing.is_some()
            || self.stepping_down.is_some()
            || self.rest.is_some()
            || self.wants_another_group()
    }

    /// A primary that is as it should be, which proposes nothing: of all that is reviewed only answers may be due.
    fn is_at_rest(&self) -> bool {
        let g = &self.group;
        let leads = g.is_primary() && g.is_in_sync(g.me);
        let nothing_open = self.counted.is_empty() && !self.handed && self.grants.is_settled();
        leads && nothing_open && !self.is_restless()
    }

    fn look_after_members(&mut self, ctx: &mut Lent<'_>) {
        if self.look_at.is_none_or(|at| at > ctx.now) {
            return;
        }
        self.look_at = None;
        let again: Vec<OsdId> = self
            .members
            .iter()
            .filter(|(osd, m)| self.connected.contains(osd) && m.wants_to_be_asked(ctx.now))
            .map(|(osd, _)| *osd)
            .collect();
        for osd in again {
            self.ask(osd, ctx);
        }
        self.review(ctx);
    }

    /// Who has what, for reports.
    fn states(&self, pg: &PgState) -> Vec<MemberState> {
        let of = |(osd, m): (&OsdId, &Member)| {
            let lacks = pg.log.since(m.confirmed());
            m.state(*osd, self.group.is_in_sync(*osd), lacks)
        };
        self.members.iter().map(of).collect()
    }
}

/// A transaction without what speaks of the log.
fn strip(txn: &Transaction) -> Transaction {
    let of_object = |op: &&Op| !matches!(op, Op::LogAppend { .. } | Op::LogTrim { .. } | Op::SetMeta { .. });
    Transaction {
        collection: txn.collection,
        ops: txn.ops.iter().filter(of_object).cloned().collect(),
    }
}
