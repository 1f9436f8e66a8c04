//! Shards of the PG on other OSDs, as its primary keeps them (docs/internals/erasure.md).
//!
//! Vocabulary: a *member* is another OSD that has a shard, or learns one, at its *place*; it is *full* when it has everything and gets
//! every transaction of its shard. A member of `in_sync` whose connection ended *resumes*: it gets what it lacks once more. A *learner*
//! is brought up object by object ([`learn`]), each made out of the other shards ([`make`]).
//!
//! Invariants:
//! - Nothing is executed before every OSD of `in_sync` was heard in the interval, and all have the same newest entry: what some have more
//!   was never confirmed, and is taken back ([`peer`]).
//! - Nothing is executed with fewer than k shards that can be read, or fewer in sync than min_size.
//! - An answer waits for every OSD of `in_sync`, and for those whose addition was proposed, until the outcome is seen.
//! - What was set aside is let go when all of these have the entry, not before.
//! - A learner joins when all that are in the set with it have everything that it was given as it stood: it cannot take that back.
//!
//! Bounds: `UNCONFIRMED_MAX` changes that not all have; clients' operations wait beyond that. The rest is named where it is.

mod contract;
mod learn;
mod learning;
mod make;
mod member;
mod peer;
mod propose;
mod repair;
mod scrub;
mod submit;
mod whole;

use super::cut::Coding;
use super::reads::Reads;
use crate::api::{Output, Word};
use crate::backend::group::Group;
use crate::backend::pull_turns::PullTurns;
use crate::backend::reports::MemberState;
use crate::backend::{Backend, Lack, Lent};
use crate::state::pg::PgState;
use crate::store::Seq;
use member::{Member, Phase};
use messages::osd::peer::PeerBody;
use messages::osd::peer_scrub::ScrubBody;
use repair::{Extent, Owner, Repair};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use submit::Aside;
use types::{Errno, HObject, OsdId};

/// How often a PG whose members are not all full looks after them.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A primary keeps its lead for so long, so that clients that followed it find it.
const LEAD_MIN: Duration = Duration::from_secs(2);
/// Changes that not all of `in_sync` have; most have one or two objects set aside.
const UNCONFIRMED_MAX: usize = 1500;
/// Objects set aside: some changes remove many clones. With what one step of a trim adds it is less than what an undoing takes.
const ASIDES_MAX: usize = 3000;

/// What the primary knows of the shards.
#[derive(Debug)]
pub(crate) struct Shards {
    coding: Arc<Coding>,
    /// The shard of this OSD.
    own: usize,
    group: Group,
    members: BTreeMap<OsdId, Member>,
    /// Connections, whether the OSD is a member now or not.
    connected: BTreeSet<OsdId>,
    /// Durable here.
    durable: Seq,
    /// All of `in_sync` have been heard in this interval, and have the same.
    peered: bool,
    /// What not all have is being taken back here.
    reloading: bool,
    /// Why it does not peer, as it was said last: it is tried again and again.
    stuck: String,
    /// The PG was made here now: it may be new, or what was here is gone.
    born: bool,
    handing: Option<Duration>,
    no_handing_before: Duration,
    /// Another primary was proposed, and the outcome was not seen: it may serve already.
    handed: bool,
    /// The newest transaction that answers may show: it never goes back.
    confirmed: Seq,
    /// Who has spoken of transactions in this call.
    word: Option<Word>,
    /// A proposal is on its way, since then.
    proposal: Option<Duration>,
    /// Proposed additions whose outcome is not known: answers wait for them, too.
    counted: BTreeSet<OsdId>,
    /// Number of the last question or transaction.
    last_number: u64,
    look_at: Option<Duration>,
    asides: VecDeque<Aside>,
    /// Objects of all of them.
    set_aside: usize,
    /// The newest transaction when the PG was looked after last.
    idle_since: Option<Seq>,
    reads: Reads,
    /// Who can be read, as [`Reads`] was told.
    readable: BTreeSet<OsdId>,
    lacking: Vec<Lack>,
    repairs: BTreeMap<u64, Repair>,
    /// Shards of objects that nobody could make good, and until when that is not tried again.
    given_up: BTreeMap<(HObject, usize), Duration>,
    turns: PullTurns,
    repaired: u64,
    /// When those that wait for a turn of this OSD ask again.
    repair_at: Option<Duration>,
    /// The newest transaction here, when that was looked at last.
    newest: Seq,
    /// Too much is not confirmed.
    crowded: bool,
}

impl Shards {
    /// Before the shell has said who else there is nothing is executed. `own`: this OSD's shard.
    pub fn alone(coding: Arc<Coding>, own: i8) -> Self {
        let own = usize::try_from(own).unwrap_or(0);
        Self {
            reads: Reads::new(coding.clone(), own),
            coding,
            own,
            group: Group::default(),
            members: BTreeMap::new(),
            connected: BTreeSet::new(),
            durable: 0,
            peered: false,
            reloading: false,
            stuck: String::new(),
            born: false,
            handing: None,
            no_handing_before: Duration::ZERO,
            handed: false,
            confirmed: 0,
            word: None,
            proposal: None,
            counted: BTreeSet::new(),
            last_number: 0,
            look_at: None,
            asides: VecDeque::new(),
            set_aside: 0,
            idle_since: None,
            readable: BTreeSet::new(),
            lacking: Vec::new(),
            repairs: BTreeMap::new(),
            given_up: BTreeMap::new(),
            turns: PullTurns::default(),
            repaired: 0,
            repair_at: None,
            newest: 0,
            crowded: false,
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// To the shard that this OSD has, or learns.
    fn send_to(&self, to: OsdId, body: PeerBody, ctx: &mut Lent<'_>) {
        let place = self.members.get(&to).map(|m| m.place);
        ctx.out.push(Output::Peer {
            to,
            shard: place.map_or(-1, |p| p as i8),
            interval: self.group.interval,
            body,
        });
    }

    /// Those of `in_sync` whose shards can be read, this OSD among them.
    fn readable(&self) -> usize {
        let full = |(osd, m): &(&OsdId, &Member)| m.is_full() && self.group.is_in_sync(**osd);
        1 + self.members.iter().filter(full).count()
    }

    fn may_execute(&self) -> bool {
        self.handing.is_none() && !self.handed && self.could_be_active()
    }

    /// Active, if it is to lead at all.
    fn could_be_active(&self) -> bool {
        // One that is made, or made anew, is none before it has said that it is.
        let lacks = |m: &Member| m.lost || m.is_full() && !m.is_synced();
        let mut members = self.members.iter();
        let lost = members.any(|(osd, m)| self.group.is_in_sync(*osd) && lacks(m));
        let enough = self.group.is_enough() && self.readable() >= self.coding.layout.k();
        self.peered && !self.reloading && enough && !lost && !self.crowded
    }

    // --- inputs ---------------------------------------------------------------------------------------

    fn group_changed(&mut self, group: Group, ctx: &mut Lent<'_>) {
        let old = std::mem::replace(&mut self.group, group);
        let new_interval = old.interval != self.group.interval;
        if new_interval || old.in_sync != self.group.in_sync || old.acting != self.group.acting {
            // Whatever was proposed on the old set has happened, or never will.
            self.proposal = None;
            self.counted.clear();
            self.handing = None;
            self.handed = false;
        }
        let place = |osd: OsdId| Some((osd, self.group.place_of(osd)?));
        let places: BTreeMap<OsdId, usize> = self.group.peers().filter_map(place).collect();
        let moved = |(osd, m): &(&OsdId, &Member)| places.get(osd) != Some(&m.place);
        let gone: Vec<OsdId> = self.members.iter().filter(moved).map(|(o, _)| *o).collect();
        for osd in gone {
            self.stop_learning(osd, ctx);
            self.members.remove(&osd);
        }
        if new_interval {
            self.peered = false;
            self.stuck.clear();
            self.no_handing_before = ctx.now + LEAD_MIN;
            let stay: Vec<OsdId> = self.members.keys().copied().collect();
            stay.iter().for_each(|osd| self.stop_learning(*osd, ctx));
            self.drop_repairs(|_| true, ctx);
            self.reads.interval_changed();
            self.readable.clear();
            for osd in stay {
                self.lose(osd, ctx);
                if self.connected.contains(&osd) {
                    self.ask(osd, ctx);
                }
            }
        }
        for (osd, place) in places {
            if let std::collections::btree_map::Entry::Vacant(v) = self.members.entry(osd) {
                v.insert(Member::new(place, ctx.now));
                if self.connected.contains(&osd) {
                    self.ask(osd, ctx);
                }
            }
        }
        // A learner that joined by a proposal whose outcome came late, or one that was heard again meanwhile and left alone.
        let joined = |(osd, m): &(&OsdId, &Member)| {
            let waits = m.is_learning() || matches!(m.phase, Phase::Heard(_));
            waits && self.group.is_in_sync(**osd) && !old.in_sync.contains(osd)
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

    /// The member says anew what it has; what it has confirmed counts on, and one that counts gets what it lacks then.
    fn lose(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        self.stop_learning(osd, ctx);
        let last = ctx.pg.last_seq;
        let keeps = self.group.is_in_sync(osd) || self.counted.contains(&osd);
        if let Some(m) = self.members.get_mut(&osd) {
            m.lose(last, keeps && !m.lost, ctx.now);
        }
        self.repairs_lose(osd, ctx);
        self.update_sources(ctx);
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

    /// A message of a member that this one hears. What is for the scrub is given back.
    fn said(&mut self, from: OsdId, body: PeerBody, ctx: &mut Lent<'_>) -> Option<ScrubBody> {
        match body {
            PeerBody::Info(info) => self.heard(from, info, ctx),
            PeerBody::Applied { seq, result } if result < 0 => self.refused(from, seq, result, ctx),
            PeerBody::Applied { seq, .. } => {
                self.word = Some(Word::Osd(from));
                if let Some(m) = self.members.get_mut(&from) {
                    m.applied(seq);
                }
                self.copy_applied(from, seq, ctx);
                self.repair_applied(from, seq, ctx);
            }
            PeerBody::Listing { token, items, next } => self.listed(from, token, items, next, ctx),
            PeerBody::Units {
                token,
                result,
                version,
                data,
            } => {
                // What is not there has another version, and can be read for all that.
                let missing = result == Errno::ENOENT.code();
                let data = (result == 0 || missing).then_some(data);
                self.reads.said(from, token, version, data, ctx.store);
                self.go_on_reading(ctx);
                // Nothing else depends on it.
                return None;
            }
            // No grants are given: nobody answers reads from a shard.
            PeerBody::Ask { .. } => {}
            PeerBody::Scrub(body) => return self.scrub_told(from, body, ctx),
            PeerBody::Stale { known } => {
                tracing::debug!("pg {}: osd.{from} knows interval {known}", ctx.pg.id);
                self.begun_anew(from, ctx);
            }
            PeerBody::Query
            | PeerBody::Rewind { .. }
            | PeerBody::Reset
            | PeerBody::Learn { .. }
            | PeerBody::Scan { .. }
            | PeerBody::Apply { .. }
            | PeerBody::Granted { .. }
            | PeerBody::Stable { .. }
            | PeerBody::ReadUnits { .. } => {
                tracing::warn!(
                    "pg {}: osd.{from} takes itself for the primary of our interval",
                    ctx.pg.id
                );
            }
        }
        self.review(ctx);
        None
    }

    /// What the member was asked has no answer: it gave its part in the PG up, and may have it again by now.
    fn begun_anew(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let refuses = |m: &Member| matches!(m.phase, Phase::Undoing { .. } | Phase::Failed { .. });
        if self.members.get(&osd).is_some_and(|m| !refuses(m)) {
            self.lose(osd, ctx);
        }
    }

    fn refused(&mut self, from: OsdId, seq: u64, result: i32, ctx: &mut Lent<'_>) {
        let in_sync = self.group.is_in_sync(from);
        let Some(m) = self.members.get_mut(&from) else {
            return;
        };
        m.no_room |= result == Errno::ENOSPC.code();
        match m.phase {
            // It cannot go back: all of it is made anew.
            Phase::Undoing { learns: Some(_), .. } => return self.undo(from, PeerBody::Reset, None, ctx),
            Phase::Undoing { .. } if in_sync && !m.lost => {
                tracing::error!(
                    "pg {}: osd.{from} cannot take back what not all have ({result}): its shard counts as lost",
                    ctx.pg.id
                );
                m.lost = true;
                return self.undo(from, PeerBody::Reset, None, ctx);
            }
            _ => {}
        }
        let why = format!("refused transaction {seq} ({result})");
        self.fail(from, &why, ctx);
    }

    // --- reads ----------------------------------------------------------------------------------------

    /// Whose units can be read now.
    fn update_sources(&mut self, ctx: &mut Lent<'_>) {
        let g = &self.group;
        let lost = |osd: &OsdId| self.members.get(osd).is_some_and(|m| m.lost);
        let mut sources = vec![(self.own, g.me)];
        let places = (0..self.coding.layout.shards()).filter(|p| *p != self.own);
        let holder = |p: usize| Some((p, g.holder(p).filter(|o| *o != g.me && !lost(o))?));
        sources.extend(places.filter_map(holder));
        let full = |osd: &OsdId| self.members.get(osd).is_some_and(Member::is_full);
        let now: BTreeSet<OsdId> = sources.iter().map(|(_, o)| *o).filter(full).collect();
        let known: BTreeSet<OsdId> = sources.iter().map(|(_, o)| *o).filter(|o| *o != g.me).collect();
        for osd in known.iter().filter(|o| !now.contains(o)) {
            self.reads.lost(*osd, ctx.store);
        }
        self.reads.set_sources(sources, ctx.store);
        for osd in now.difference(&self.readable) {
            self.reads.back(*osd, ctx.store);
        }
        self.readable = now;
        self.go_on_reading(ctx);
    }

    /// What is to be asked leaves, and who waits for what has come goes on.
    fn go_on_reading(&mut self, ctx: &mut Lent<'_>) {
        loop {
            for ask in self.reads.take_asks() {
                ctx.out.push(Output::Peer {
                    to: ask.to,
                    shard: ask.shard as i8,
                    interval: self.group.interval,
                    body: PeerBody::ReadUnits {
                        token: ask.token,
                        object: ask.object,
                        offset: ask.offset,
                        len: ask.len,
                    },
                });
            }
            let ended = self.reads.take_ended();
            if ended.is_empty() {
                break;
            }
            for ticket in ended {
                if !self.copy_read(ticket, ctx) && !self.repair_read(ticket, ctx) {
                    ctx.front.came(ticket);
                }
            }
        }
        for (object, place) in self.reads.take_bad() {
            self.begin_repair(object.head(), place, (Owner::Read, Extent::Units), ctx);
        }
    }

    // --- time -----------------------------------------------------------------------------------------

    /// After anything that may have changed what is to be done.
    fn review(&mut self, ctx: &mut Lent<'_>) {
        let at_rest = self.is_at_rest();
        if !at_rest {
            self.try_to_peer(ctx);
            self.begin_learners(ctx);
            self.update_sources(ctx);
            self.go_on_learning(ctx);
        }
        self.release_committed();
        self.newest = ctx.pg.last_seq;
        let unconfirmed = ctx.pg.log.since(self.confirmed);
        self.crowded = unconfirmed > UNCONFIRMED_MAX || self.set_aside > ASIDES_MAX;
        if !at_rest {
            self.propose(ctx);
        }
        // Not put off by what comes in meanwhile: under load that never ends.
        let at = self.look_at.unwrap_or(ctx.now + LOOK_EVERY);
        self.look_at = (self.is_restless() && self.group.is_primary()).then_some(at);
    }

    /// Something is under way, or wanted, that needs looking after.
    fn is_restless(&self) -> bool {
        self.has_asides() || !self.is_settled()
    }

    /// A primary that is as it should be: of all that is reviewed only answers may be due.
    fn is_at_rest(&self) -> bool {
        let nothing_open = self.counted.is_empty() && !self.handed && !self.reloading;
        let synced = self.members.values().all(|m| m.is_synced());
        let all_read = self.readable.len() == self.members.len();
        self.group.is_primary() && self.is_settled() && nothing_open && synced && all_read
    }

    fn is_settled(&self) -> bool {
        let open = self.proposal.is_some() || self.handing.is_some() || self.wants_another_group();
        self.peered && Backend::all_full(self) && !open
    }

    fn look_after_members(&mut self, ctx: &mut Lent<'_>) {
        if self.look_at.is_none_or(|at| at > ctx.now) {
            return;
        }
        self.look_at = None;
        let again =
            |(osd, m): &(&OsdId, &Member)| self.connected.contains(osd) && m.wants_to_be_asked(ctx.now);
        let again: Vec<OsdId> = self.members.iter().filter(again).map(|(o, _)| *o).collect();
        for osd in again {
            self.ask(osd, ctx);
        }
        if self.peered && !self.reloading {
            self.let_go_idle(ctx);
        }
        self.review(ctx);
    }

    fn durable_here(&mut self, seq: Seq, ctx: &mut Lent<'_>) {
        self.durable = self.durable.max(seq);
        self.word = Some(Word::Disk);
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
