//! One other OSD of the PG, as the primary of shards sees it.
//!
//! What was sent to a member of `in_sync` is kept until it has confirmed it: one whose connection ended says what it has and gets the
//! rest once more. Such a member has no gaps, and a primary that stays takes nothing back.
//!
//! Bound: what is kept is what answers wait for; `UNCONFIRMED_MAX` of the room.

use super::learning::Learning;
use crate::backend::reports::MemberState;
use crate::store::Seq;
use messages::osd::SharedTxn;
use messages::osd::peer::PgInfo;
use std::collections::VecDeque;
use std::time::Duration;
use types::{EVersion, Op, OsdId, Transaction};

/// A question without an answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A member that refused a transaction is left alone so long.
const FAILED_REST: Duration = Duration::from_secs(5);
/// One without a connection for so long is of no use.
const AWAY_MAX: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(super) enum Phase {
    /// No connection.
    Away,
    /// A Query is on its way.
    Asked {
        at: Duration,
    },
    /// What it has; nothing is done about it yet.
    Heard(PgInfo),
    /// It was told to go back: one that learns by its log, to there.
    Undoing {
        at: Duration,
        learns: Option<EVersion>,
    },
    Learning(Box<Learning>),
    Full,
    /// It refused something.
    Failed {
        at: Duration,
    },
}

/// A transaction on its way.
#[derive(Debug)]
struct Sent {
    number: u64,
    /// What was confirmed before it.
    before: Seq,
    /// Of its log entry.
    version: Option<EVersion>,
    /// None: it cannot be sent once more.
    txn: Option<SharedTxn>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub place: usize,
    pub phase: Phase,
    pub away_since: Option<Duration>,
    /// Everything up to here is durable there, however it goes on.
    floor: Seq,
    pending: VecDeque<Sent>,
    /// The newest entry that it has confirmed; None: it has not confirmed its beginning yet.
    base: Option<EVersion>,
    /// It joins when all that are in the set with it have everything up to here: what it was given as it stood it cannot take back.
    pub joins_at: Seq,
    /// Its store does not have what the set says that it has.
    pub lost: bool,
    pub no_room: bool,
}

pub(super) fn version_of(txn: &Transaction) -> Option<EVersion> {
    txn.ops.iter().find_map(|op| match op {
        Op::LogAppend { version, .. } => Some(*version),
        _ => None,
    })
}

impl Member {
    pub fn new(place: usize, now: Duration) -> Self {
        Self {
            place,
            phase: Phase::Away,
            away_since: Some(now),
            floor: 0,
            pending: VecDeque::new(),
            base: None,
            joins_at: 0,
            lost: false,
            no_room: false,
        }
    }

    pub fn is_full(&self) -> bool {
        matches!(self.phase, Phase::Full)
    }

    pub fn is_learning(&self) -> bool {
        matches!(self.phase, Phase::Learning(_))
    }

    /// The newest transaction here that is durable there.
    pub fn confirmed(&self) -> Seq {
        match (&self.phase, self.pending.front()) {
            (_, Some(sent)) => sent.before,
            (Phase::Full, None) => Seq::MAX,
            (_, None) => self.floor,
        }
    }

    /// It has confirmed all with which it became full.
    pub fn is_synced(&self) -> bool {
        self.base.is_some()
    }

    /// It has everything up to `last`, whose newest entry is `head`.
    pub fn become_full(&mut self, last: Seq, head: EVersion) {
        self.phase = Phase::Full;
        self.pending.clear();
        self.floor = self.floor.max(last);
        self.base = Some(head);
        self.joins_at = last;
        self.lost = false;
        self.no_room = false;
    }

    /// It will with transaction `number`.
    pub fn become_full_with(&mut self, number: u64, last: Seq, head: EVersion) {
        self.phase = Phase::Full;
        self.pending.clear();
        self.pending.push_back(Sent {
            number,
            before: self.floor,
            version: Some(head),
            txn: None,
        });
        self.base = None;
        self.joins_at = last;
        self.lost = false;
    }

    pub fn sent(&mut self, number: u64, before: Seq, txn: SharedTxn) {
        self.pending.push_back(Sent {
            number,
            before,
            version: version_of(&txn),
            txn: Some(txn),
        });
    }

    /// Answers come in order.
    pub fn applied(&mut self, number: u64) {
        while let Some(sent) = self.pending.pop_front_if(|sent| sent.number <= number) {
            self.base = sent.version.or(self.base);
        }
        self.no_room &= !self.is_full() || !self.pending.is_empty();
    }

    /// The connection has ended; `last` is the newest transaction here. `keeps`: it goes on where it was.
    pub fn lose(&mut self, last: Seq, keeps: bool, now: Duration) {
        let confirmed = match self.confirmed() {
            Seq::MAX => last,
            seq => seq,
        };
        self.floor = self.floor.max(confirmed);
        if !keeps {
            self.pending.clear();
            self.base = None;
        }
        self.phase = Phase::Away;
        self.away_since.get_or_insert(now);
    }

    /// It gets nothing once more.
    pub fn keep_nothing(&mut self) {
        self.pending.clear();
        self.base = None;
    }

    /// It has this, and what is kept for it goes on from there.
    pub fn can_resume(&self, head: EVersion) -> bool {
        let Some(base) = self.base else { return false };
        let at = |sent: &Sent| sent.version == Some(head);
        (base == head || self.pending.iter().any(at)) && self.pending.iter().all(|s| s.txn.is_some())
    }

    /// What it lacks, to be sent once more.
    pub fn resume(&mut self, head: EVersion) -> Vec<(u64, SharedTxn)> {
        let had = |sent: &Sent| sent.version.is_some_and(|v| v <= head);
        if let Some(at) = self.pending.iter().rposition(had) {
            self.pending.drain(..=at);
        }
        self.base = Some(head);
        self.phase = Phase::Full;
        let left = self.pending.iter();
        left.filter_map(|s| Some((s.number, s.txn.clone()?))).collect()
    }

    /// Whether changes of the object's bytes go there although it is not full.
    pub fn takes_objects(&mut self, head: &types::HObject) -> bool {
        match &mut self.phase {
            Phase::Learning(learning) => learning.takes(head),
            _ => false,
        }
    }

    pub fn wants_to_be_asked(&self, now: Duration) -> bool {
        match self.phase {
            Phase::Away => true,
            Phase::Asked { at } | Phase::Undoing { at, .. } => now >= at + ASK_AGAIN,
            Phase::Failed { at } => now >= at + FAILED_REST,
            _ => false,
        }
    }

    /// Of no use now.
    pub fn is_gone(&self, now: Duration) -> bool {
        match self.phase {
            Phase::Failed { .. } => true,
            Phase::Away => self.away_since.is_some_and(|at| now >= at + AWAY_MAX),
            _ => self.lost,
        }
    }

    /// `lacks`: changes that it has not confirmed.
    pub fn state(&self, osd: OsdId, in_sync: bool, lacks: usize) -> MemberState {
        let (state, dirty, backfill) = match &self.phase {
            Phase::Away => ("away", 0, false),
            Phase::Asked { .. } | Phase::Heard(_) | Phase::Undoing { .. } => ("asked", 0, false),
            Phase::Learning(l) => ("recovering", l.objects(), l.is_backfill()),
            Phase::Full => ("full", 0, false),
            Phase::Failed { .. } => ("failed", 0, false),
        };
        MemberState {
            osd,
            in_sync,
            state,
            dirty,
            backfill,
            no_room: self.no_room,
            lacks,
        }
    }
}
