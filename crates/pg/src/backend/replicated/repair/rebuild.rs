//! Making a unit in scratch objects, piece by piece, and putting it in the place of a bad copy with one last transaction.
//!
//! Here for the primary's own copy, whose parts may come from any copy that can read them, or on a member, whose parts the
//! primary gives. One piece is on its way at a time.
//!
//! Invariants: nobody's copy changes before all was made; what was made here was read again whole before. If anything was
//! written to the unit since the outline was asked for, nothing takes its place. However it ends, what was made and is not
//! used is removed: at once where this OSD can, else by who finds it ([`super::scratch`]).
//!
//! Bounds: a piece ([`super::piece::PIECE_BYTES`]); a part is asked for once of each source before it counts as lost.

use super::fixes::Fix;
use super::plan::Plan;
use crate::backend::pull_turns::PullTurn;
use crate::store::{Seq, Ticket};
use std::collections::BTreeSet;
use types::{EVersion, HObject, OsdId};

#[derive(Debug)]
pub(super) enum Phase {
    /// What the unit is made of.
    Outline,
    Parts(Box<Plan>),
    /// All was made here; the next of it to be read again: the object's index, and where in it.
    Look(Box<Plan>, usize, u64),
    Replace(Box<Plan>),
    Done,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    Member {
        token: u64,
        source: OsdId,
    },
    Disk(Ticket),
    /// A member makes something durable.
    Durable(u64),
    /// The store here does.
    Flush(Seq),
}

/// Why it does not go on.
#[derive(Debug)]
pub(super) enum Halt {
    /// The unit was changed meanwhile.
    Outrun,
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Rebuild {
    /// What it was begun for.
    pub fix: Fix,
    pub from: HObject,
    pub to: HObject,
    /// Where it is made; None: here.
    pub member: Option<OsdId>,
    /// Who may be asked, this OSD first if it is among them.
    pub sources: Vec<OsdId>,
    /// Who gave the last part: it is asked first for the next.
    pub current: Option<OsdId>,
    /// Who could not give what is wanted now.
    pub failed: BTreeSet<OsdId>,
    /// The log's newest version when the outline was asked for.
    pub as_of: EVersion,
    pub phase: Phase,
    pub wait: Option<Wait>,
    /// Held while it is made here.
    _turn: Option<PullTurn>,
}

impl Rebuild {
    pub fn new(fix: Fix, (from, to): (HObject, HObject), member: Option<OsdId>, sources: Vec<OsdId>) -> Self {
        Self {
            fix,
            from,
            to,
            member,
            sources,
            current: None,
            failed: BTreeSet::new(),
            as_of: EVersion::default(),
            phase: Phase::Outline,
            wait: None,
            _turn: None,
        }
    }

    pub fn in_turn(mut self, turn: PullTurn) -> Self {
        self._turn = Some(turn);
        self
    }

    /// Whose copy it is about.
    pub fn whose(&self, me: OsdId) -> OsdId {
        self.member.unwrap_or(me)
    }

    pub fn is_here(&self) -> bool {
        self.member.is_none()
    }

    pub fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    pub fn waits_for_answer(&self, from: OsdId, answer: u64) -> bool {
        matches!(self.wait, Some(Wait::Member { token, source }) if token == answer && source == from)
    }

    pub fn waits_for_disk(&self, ended: Ticket) -> bool {
        matches!(self.wait, Some(Wait::Disk(t)) if t == ended)
    }

    /// The member that it is made on has made everything up to `number` durable.
    pub fn applied(&mut self, osd: OsdId, number: u64) {
        if let Some(Wait::Durable(n)) = self.wait
            && self.member == Some(osd)
            && n <= number
        {
            self.wait = None;
        }
    }

    /// The store here has made more durable.
    pub fn flushed(&mut self, is_durable: impl Fn(Seq) -> bool) {
        if let Some(Wait::Flush(seq)) = self.wait
            && is_durable(seq)
        {
            self.wait = None;
        }
    }

    pub fn waits_for_flush(&self) -> bool {
        matches!(self.wait, Some(Wait::Flush(_)))
    }

    /// Connections have ended. True: the member that it is made on is gone.
    pub fn lost(&mut self, is_full: impl Fn(OsdId) -> bool) -> bool {
        if let Some(Wait::Member { source, .. }) = self.wait
            && !is_full(source)
        {
            self.wait = None;
            self.failed.insert(source);
        }
        self.member.is_some_and(|m| !is_full(m))
    }

    pub fn fails(&mut self, source: OsdId) {
        self.failed.insert(source);
        self.wait = None;
    }

    pub fn plan(&mut self) -> Option<&mut Plan> {
        match &mut self.phase {
            Phase::Parts(p) | Phase::Look(p, ..) | Phase::Replace(p) => Some(p),
            Phase::Outline | Phase::Done => None,
        }
    }
}
