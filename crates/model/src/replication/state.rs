//! The state: the cluster's, each OSD's, what travels between them, and what clients saw.
//!
//! Invariants: of equal systems the states are equal: what a role does not use has its first value, so that the
//! search does not tell them apart.

use super::log::{Entry, Log};
use super::wire::{Answer, Request};

pub const OSDS: usize = 3;
/// The primary in the view of an OSD that is not it.
const NOBODY: u8 = OSDS as u8;
pub fn bit(osd: usize) -> u8 {
    1 << osd
}

pub fn is_in(set: u8, osd: usize) -> bool {
    set & bit(osd) != 0
}

pub fn ups(set: u8) -> impl Iterator<Item = usize> {
    (0..OSDS).filter(move |o| is_in(set, *o))
}

pub fn count(set: u8) -> usize {
    set.count_ones() as usize
}

/// `PgConfig` of the cluster state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Config {
    pub interval: u8,
    pub in_sync: u8,
    pub primary: u8,
}

/// What an OSD knows of the cluster state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct View {
    pub config: Config,
    pub up: u8,
    pub place: u8,
}

impl View {
    /// An OSD that is not the primary uses the interval alone.
    pub fn forget_unused(&mut self, osd: usize) {
        if self.config.primary as usize != osd {
            let interval = self.config.interval;
            *self = Self::default();
            self.config.interval = interval;
            self.config.primary = NOBODY;
        }
    }
}

/// A proposal on its way to the cluster state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flight {
    pub expect: Config,
    pub in_sync: u8,
    pub primary: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Status {
    /// No process.
    #[default]
    Dead,
    /// A process without a lease: it answers no client, and must boot.
    Idle,
    /// It holds its lease.
    Live,
    /// Its disk is gone, for good.
    Lost,
}

/// What the primary knows of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Phase {
    #[default]
    Away,
    Asked,
    /// It said what it has; what follows waits until all of the in-sync set have.
    Heard,
    Finishing,
    Full,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Node {
    pub status: Status,
    pub view: View,
    /// With what is queued but not durable yet.
    pub log: Log,
    pub content: Entry,
    pub durable_log: Log,
    pub durable_content: Entry,
    /// Length of log plus one that each primary is owed an answer for.
    pub owed: [u8; OSDS],
    // What follows belongs to the primary of `view.config`.
    pub phase: [Phase; OSDS],
    /// Entries known to be durable on each member.
    pub durable: [u8; OSDS],
    /// The version of the newest entry of each member in phase `Heard`.
    pub heads: [(u8, u8); OSDS],
    /// All of the in-sync set were heard in this interval, and none is ahead.
    pub peered: bool,
    /// Entries that clients may have been answered for.
    pub acked: u8,
    /// Members that a proposal adds.
    pub adding: u8,
    pub handing_over: bool,
    pub flight: Option<Flight>,
}

impl Node {
    pub fn runs(&self) -> bool {
        matches!(self.status, Status::Idle | Status::Live)
    }
    pub fn is_primary(&self, me: usize) -> bool {
        self.runs() && self.view.config.primary as usize == me
    }
    pub fn serves(&self, me: usize) -> bool {
        self.status == Status::Live && self.is_primary(me) && !self.handing_over
    }
    /// The object has no write that could not be acknowledged yet.
    pub fn reads(&self) -> bool {
        self.peered && self.acked as usize == self.log.len()
    }
    /// OSDs of the in-sync set that were not heard yet.
    pub fn unheard(&self, me: usize) -> impl Iterator<Item = usize> + '_ {
        ups(self.view.config.in_sync)
            .filter(move |m| *m != me && matches!(self.phase[*m], Phase::Away | Phase::Asked))
    }
    /// The longest log of the in-sync set, once all of it was heard.
    pub fn longest(&self, me: usize) -> Option<usize> {
        if self.peered || self.unheard(me).next().is_some() {
            return None;
        }
        let heard = ups(self.view.config.in_sync).filter(|m| self.phase[*m] == Phase::Heard);
        let mut longest = (self.log.head(), me);
        for m in heard {
            if self.heads[m] > longest.0 {
                longest = (self.heads[m], m);
            }
        }
        Some(longest.1)
    }
    pub fn forget_role(&mut self) {
        self.phase = Default::default();
        self.durable = Default::default();
        self.heads = Default::default();
        self.peered = false;
        self.acked = 0;
        self.adding = 0;
        self.handing_over = false;
        self.flight = None;
    }
    pub fn lose_volatile(&mut self) {
        self.log = self.durable_log;
        self.content = self.durable_content;
        self.owed = Default::default();
        self.view = View::default();
        self.forget_role();
    }
}

/// Faults of each kind that may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// A process ends; it may start again.
    pub crashes: u8,
    /// A connection breaks.
    pub cuts: u8,
    /// A lease ends: a pause, a partition from the cluster state.
    pub expiries: u8,
    /// A disk is lost for good.
    pub losses: u8,
    /// The map places the PG elsewhere.
    pub moves: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub config: Config,
    pub up: u8,
    pub place: u8,
    pub nodes: [Node; OSDS],
    /// From a primary to a member, in order.
    pub requests: [[Vec<Request>; OSDS]; OSDS],
    /// From the member back: `answers[primary][member]`.
    pub answers: [[Vec<Answer>; OSDS]; OSDS],
    /// A proposal whose process is gone.
    pub orphan: Option<Flight>,
    /// What clients saw.
    pub exposed: Log,
    /// Writes that clients began.
    pub issued: u8,
    pub budget: Budget,
    pub broken: Option<&'static str>,
}

impl State {
    /// All OSDs live; the first of `in_sync` is the primary.
    pub fn new(in_sync: &[usize], budget: Budget) -> Self {
        let all = (1 << OSDS) - 1;
        let config = Config {
            interval: 1,
            in_sync: in_sync.iter().fold(0, |set, o| set | bit(*o)),
            primary: in_sync[0] as u8,
        };
        let node = Node {
            status: Status::Live,
            view: View {
                config,
                up: all,
                place: 0,
            },
            ..Node::default()
        };
        let mut state = Self {
            config,
            up: all,
            place: 0,
            nodes: [node.clone(), node.clone(), node],
            requests: Default::default(),
            answers: Default::default(),
            orphan: None,
            exposed: Log::default(),
            issued: 0,
            budget,
            broken: None,
        };
        // The members of the in-sync set are known to be empty and full: one round of Query less in every path.
        for m in in_sync.iter().copied() {
            state.nodes[in_sync[0]].phase[m] = Phase::Full;
        }
        state.nodes[in_sync[0]].phase[in_sync[0]] = Phase::Away;
        state.nodes[in_sync[0]].peered = true;
        for osd in 0..OSDS {
            state.nodes[osd].view.forget_unused(osd);
        }
        state
    }

    pub fn view(&self) -> View {
        View {
            config: self.config,
            up: self.up,
            place: self.place,
        }
    }
}
