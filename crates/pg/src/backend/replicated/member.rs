//! One other OSD of the PG, as the primary sees it.

pub(super) mod catchup;
pub(super) mod resync;

use crate::backend::reports::MemberState;
use crate::broken::{self, Rule};
use crate::store::Seq;
use catchup::Catchup;
use messages::osd::peer::PgInfo;
use resync::Resync;
use std::collections::VecDeque;
use std::time::Duration;
use types::{HObject, OsdId};

/// A question without an answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A member that refused a transaction (a full or broken disk) is left alone so long.
const FAILED_REST: Duration = Duration::from_secs(5);
/// A member of `in_sync` without a connection for so long leaves the set. The shell calls a silent one down only
/// after a while of its own; this is for connections that are being made again.
const AWAY_MAX: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) enum Phase {
    /// No connection.
    Away,
    /// A Query is on its way.
    Asked {
        at: Duration,
    },
    /// What it has; nothing is done about it before the PG has peered.
    Heard(PgInfo),
    /// A Rewind or a Reset is on its way.
    Undoing {
        at: Duration,
    },
    Resync(Resync),
    CatchUp(Box<Catchup>),
    Full,
    /// It refused something.
    Failed {
        at: Duration,
    },
}

#[derive(Debug)]
pub(super) struct Member {
    pub phase: Phase,
    pub away_since: Option<Duration>,
    /// Everything up to here is durable there, however it goes on.
    floor: Seq,
    /// Transactions that it has not confirmed, by their number, each with what was confirmed before it.
    pending: VecDeque<(u64, Seq)>,
    /// It has confirmed everything up to where it became full.
    pub synced: bool,
    /// Its store does not take what a resync puts into one transaction.
    pub small_steps: bool,
    /// Its disk had no room, and it has not taken everything since.
    pub no_room: bool,
    /// Something of its copy cannot be read there: objects go there whole.
    pub damaged: bool,
}

impl Member {
    pub fn new(now: Duration) -> Self {
        Self {
            phase: Phase::Away,
            away_since: Some(now),
            floor: 0,
            pending: VecDeque::new(),
            synced: false,
            small_steps: false,
            no_room: false,
            damaged: false,
        }
    }

    pub fn is_full(&self) -> bool {
        matches!(self.phase, Phase::Full)
    }

    /// The newest transaction here that is durable there.
    pub fn confirmed(&self) -> Seq {
        match (&self.phase, self.pending.front()) {
            (Phase::Full, None) => Seq::MAX,
            (_, Some((_, before))) => *before,
            (_, None) => self.floor,
        }
    }

    /// It has everything up to `last`.
    pub fn become_full(&mut self, last: Seq) {
        self.phase = Phase::Full;
        self.pending.clear();
        self.floor = last;
        self.synced = true;
        self.no_room = false;
    }

    /// It will have everything with transaction `number`.
    pub fn become_full_with(&mut self, number: u64) {
        self.phase = Phase::Full;
        self.pending.clear();
        self.pending.push_back((number, self.floor));
        self.synced = false;
    }

    pub fn sent(&mut self, number: u64, before: Seq) {
        self.pending.push_back((number, before));
    }

    /// Answers come in order.
    pub fn applied(&mut self, number: u64) {
        let number = if broken::is(Rule::AppliedExact) {
            number + 1
        } else {
            number
        };
        while self.pending.front().is_some_and(|(n, _)| *n <= number) {
            self.pending.pop_front();
            self.synced = true;
        }
        self.no_room &= !self.is_full() || !self.pending.is_empty();
    }

    /// The connection has ended; `last` is the newest transaction here.
    pub fn lose(&mut self, last: Seq, now: Duration) {
        let confirmed = self.confirmed();
        self.floor = self
            .floor
            .max(if confirmed == Seq::MAX || broken::is(Rule::ConfirmedOnly) {
                last
            } else {
                confirmed
            });
        self.pending.clear();
        self.phase = Phase::Away;
        self.synced = false;
        self.away_since.get_or_insert(now);
    }

    /// Whether changes of the object's bytes go there although it is not full.
    pub fn takes_objects(&mut self, head: &HObject) -> bool {
        match &mut self.phase {
            Phase::CatchUp(c) => c.takes(head),
            _ => false,
        }
    }

    /// If it is caught up by its log.
    pub fn caught_up_by_log(&mut self) -> Option<&mut Catchup> {
        match &mut self.phase {
            Phase::CatchUp(c) if !c.is_backfill() && !broken::is(Rule::LearnerHasNoMore) => Some(&mut **c),
            _ => None,
        }
    }

    pub fn waits_for_durability(&self) -> bool {
        matches!(&self.phase, Phase::CatchUp(c) if c.waits_for_durability())
    }

    pub fn wants_to_be_asked(&self, now: Duration) -> bool {
        match self.phase {
            Phase::Away => true,
            Phase::Asked { at } | Phase::Undoing { at } => now >= at + ASK_AGAIN,
            Phase::Failed { at } => now >= at + FAILED_REST,
            _ => false,
        }
    }

    /// Of no use now.
    pub fn is_gone(&self, now: Duration) -> bool {
        match self.phase {
            Phase::Failed { .. } => true,
            Phase::Away => self.away_since.is_some_and(|at| now >= at + AWAY_MAX),
            _ => false,
        }
    }

    /// `lacks`: changes that it has not confirmed.
    pub fn state(&self, osd: OsdId, in_sync: bool, lacks: usize) -> MemberState {
        let (name, dirty, backfill) = match &self.phase {
            Phase::Away => ("away", 0, false),
            Phase::Asked { .. } | Phase::Heard(_) | Phase::Undoing { .. } => ("asked", 0, false),
            Phase::Resync(r) => ("resync", r.objects(), false),
            Phase::CatchUp(c) => ("recovering", c.objects(), c.is_backfill()),
            Phase::Full => ("full", 0, false),
            Phase::Failed { .. } => ("failed", 0, false),
        };
        MemberState {
            osd,
            in_sync,
            state: name,
            dirty,
            backfill,
            no_room: self.no_room,
            lacks,
        }
    }
}
