//! What is kept of a PG's repairs: each with what is being done, and what is to be done then.

use super::fixes::Fix;
use super::rebuild::Rebuild;
use crate::backend::TurnId;
use crate::backend::pull_turns::{PullTurn, PullTurns};
use crate::store::Ticket;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::{EVersion, HObject, OsdId};

#[derive(Debug)]
pub(super) enum Doing {
    Pulling {
        token: u64,
        source: OsdId,
        /// The log's newest version when it was asked.
        as_of: EVersion,
        fix: Fix,
        /// Held until the copy is here.
        _turn: PullTurn,
    },
    /// The disk reads what is to be pushed.
    Reading {
        tickets: Vec<Ticket>,
        left: usize,
        fix: Fix,
    },
    Pushing {
        member: OsdId,
        number: u64,
    },
    Rebuilding(Box<Rebuild>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Clients' operations wait for it.
    Read,
    /// A check of the running scrub, which holds the object.
    Check(u64),
}

#[derive(Debug)]
pub(super) struct Repair {
    pub head: HObject,
    pub owner: Owner,
    pub since: Duration,
    /// Its turn, if it is one of its own.
    pub job: Option<TurnId>,
    pub todo: VecDeque<Fix>,
    pub doing: Option<Doing>,
    /// Members that could not give all of the object.
    pub failed: BTreeSet<OsdId>,
    /// Whose pieces together were not enough.
    pub asked: Vec<OsdId>,
    /// Copies that were of another version than the one here: a change of the PG's own had passed by.
    pub outrun: u32,
    /// It waits for a member, or for its turn, until then.
    pub until: Option<Duration>,
}

impl Repair {
    /// The primary's own copy is being made good.
    pub fn is_pulling(&self) -> bool {
        match &self.doing {
            Some(Doing::Pulling { .. }) => true,
            Some(Doing::Rebuilding(b)) => b.is_here(),
            _ => false,
        }
    }

    /// What is being made in pieces.
    pub fn rebuild(&mut self) -> Option<&mut Rebuild> {
        match &mut self.doing {
            Some(Doing::Rebuilding(b)) => Some(b),
            _ => None,
        }
    }

    pub fn may_begin(&self) -> bool {
        self.doing.is_none() && (self.job.is_some() || self.owner != Owner::Read)
    }
}

/// The repairs of a PG.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    pub(super) all: BTreeMap<u64, Repair>,
    pub(super) turns: PullTurns,
    /// Objects whose repair failed: not tried again before.
    pub(super) given_up: BTreeMap<HObject, Duration>,
    /// Copies made good since this OSD leads the PG.
    pub(super) repaired: u64,
}
