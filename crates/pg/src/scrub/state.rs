//! What is kept of a PG's scrubs: the run under way, its checks, and what was found.
//!
//! Bounds: [`SUSPECTS_MAX`], [`ALONE_MAX`], [`FOUND_MAX`].

use super::compare::Compare;
use crate::api::ScrubOrder;
use crate::backend::findings::Inconsistent;
use crate::front::parked::JobId;
use crate::store::Ticket;
use std::collections::{BTreeMap, VecDeque};
use types::{EVersion, HObject};

/// Inconsistent objects that a PG remembers one by one; more are only counted.
pub(super) const FOUND_MAX: usize = 1024;
/// While so many wait to be checked no stretch is compared.
const SUSPECTS_MAX: usize = 256;
/// Units that wait to be checked alone; of one more a member has to say so again.
pub(super) const ALONE_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Scrub {
    pub(super) run: Option<Box<Run>>,
    /// Of the last runs of this interval; None: there was none.
    pub(super) found: Option<BTreeMap<HObject, Inconsistent>>,
    pub(super) ended: u64,
}

/// A suspect object (a head with its clones) that nothing changes now.
#[derive(Debug)]
pub(super) struct Check {
    pub head: HObject,
    pub order: ScrubOrder,
    pub job: Option<JobId>,
    pub compare: Option<Compare>,
    pub tries: u32,
    /// What was found before the repair whose outcome is looked at now.
    pub before: Option<Vec<Inconsistent>>,
    pub repairing: bool,
}

#[derive(Debug)]
pub(super) struct Run {
    pub order: ScrubOrder,
    /// Nothing but what members could not read is looked at.
    pub alone: bool,
    pub began_at: EVersion,
    /// None: all was compared.
    pub cursor: Option<HObject>,
    pub stretch: Option<Compare>,
    pub suspects: VecDeque<(HObject, ScrubOrder)>,
    pub checks: BTreeMap<u64, Check>,
    pub found: BTreeMap<HObject, Inconsistent>,
    pub objects: u64,
    pub shallow: u32,
    pub deep: u32,
    pub fixed: u32,
    /// Units that were bad, and are not any more.
    pub mended: Vec<HObject>,
}

impl Run {
    pub fn new(order: ScrubOrder, began_at: EVersion, cursor: Option<HObject>) -> Self {
        Self {
            order,
            alone: cursor.is_none(),
            began_at,
            cursor,
            stretch: None,
            suspects: VecDeque::new(),
            checks: BTreeMap::new(),
            found: BTreeMap::new(),
            objects: 0,
            shallow: 0,
            deep: 0,
            fixed: 0,
            mended: Vec::new(),
        }
    }

    pub fn wants_grant(&self) -> bool {
        self.cursor.is_some() && self.stretch.is_none() && self.suspects.len() < SUSPECTS_MAX
    }

    pub fn read_ended(&mut self, ticket: Ticket) -> bool {
        let checks = self.checks.values_mut().filter_map(|c| c.compare.as_mut());
        self.stretch
            .iter_mut()
            .chain(checks)
            .any(|c| c.read_ended(ticket))
    }

    pub fn compares(&mut self) -> impl Iterator<Item = &mut Compare> {
        let checks = self.checks.values_mut().filter_map(|c| c.compare.as_mut());
        self.stretch.iter_mut().chain(checks)
    }

    pub fn suspect(&mut self, head: HObject, order: ScrubOrder) {
        match self.suspects.iter_mut().find(|(h, _)| *h == head) {
            Some((_, o)) => *o = o.and(order),
            None => self.suspects.push_back((head, order)),
        }
    }

    /// Not one that is being looked at: two checks of a unit would see one another's repairs half done.
    pub fn next_suspect(&mut self) -> Option<(HObject, ScrubOrder)> {
        let free = |(head, _): &(HObject, ScrubOrder)| self.checks.values().all(|c| c.head != *head);
        let at = self.suspects.iter().position(free)?;
        self.suspects.remove(at)
    }

    pub fn note(&mut self, wrong: Inconsistent) {
        self.shallow = self.shallow.saturating_add(wrong.shallow);
        self.deep = self.deep.saturating_add(wrong.deep);
        if self.found.len() < FOUND_MAX {
            self.found.insert(wrong.object.clone(), wrong);
        }
    }
}
