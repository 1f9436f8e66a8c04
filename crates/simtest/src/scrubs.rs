//! Scrubs: what they say, held against which bits have flipped.
//!
//! - A check calls a copy bad only where a bit has flipped on its disk, says that it cannot be read and nothing else, and
//!   finds a good copy beside it.
//! - A run that found something is one in a cluster in which bits have flipped.
//! - Every run ends or is given up.
//!
//! Not here: scrubs that are asked for (`wishes`), the copies themselves (`check` compares them, too).

use crate::rot::Rot;
use io_sim::Sim;
use pg::probe::{self, Scrubbed};
use pg::{Inconsistent, ScrubResult, shard_error};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{OsdId, PgId};

/// A run that goes on for so long after the cluster was healed hangs.
const RUNS_MAX: Duration = Duration::from_secs(60);
/// Wrongs that are noted: more say the same.
const NOTED_MAX: usize = 3;

pub struct Scrubs {
    sim: Sim,
    rot: Rc<Rot>,
    running: RefCell<BTreeMap<(OsdId, PgId), Duration>>,
    /// The newest of each PG.
    pub last: RefCell<BTreeMap<PgId, (Duration, ScrubResult)>>,
    wrongs: RefCell<Vec<String>>,
    pub ended: Cell<u64>,
    pub given_up: Cell<u64>,
    /// Bad copies that checks found.
    pub found: Cell<u64>,
}

fn more(count: &Cell<u64>, by: u64) {
    count.set(count.get() + by);
}

impl Scrubs {
    /// Hears every PG of this thread from now on.
    pub fn listen(sim: &Sim, rot: &Rc<Rot>) -> Rc<Self> {
        let scrubs = Rc::new(Self {
            sim: sim.clone(),
            rot: rot.clone(),
            running: RefCell::default(),
            last: RefCell::default(),
            wrongs: RefCell::default(),
            ended: Cell::new(0),
            given_up: Cell::new(0),
            found: Cell::new(0),
        });
        let listener = scrubs.clone();
        probe::listen(Some(Rc::new(move |pg, by, what: Scrubbed<'_>| {
            listener.hear(pg, by, &what);
        })));
        scrubs
    }

    /// It was killed, with the scrubs that it ran.
    pub fn forget(&self, osd: OsdId) {
        self.running.borrow_mut().retain(|(by, _), _| *by != osd);
    }

    pub fn wrongs(&self) -> Vec<String> {
        self.wrongs.borrow().clone()
    }

    fn wrong(&self, line: String) {
        self.sim.trace.note(format_args!("{line}"));
        let mut wrongs = self.wrongs.borrow_mut();
        if wrongs.len() < NOTED_MAX {
            wrongs.push(line);
        }
    }

    fn hear(&self, pg: PgId, by: OsdId, what: &Scrubbed<'_>) {
        let now = self.sim.elapsed();
        self.sim.trace.note(format_args!("osd.{by}: {pg} scrub {what:?}"));
        match what {
            Scrubbed::Began(_) => {
                if self.running.borrow_mut().insert((by, pg), now).is_some() {
                    self.wrong(format!("{pg}: two scrubs at a time"));
                }
            }
            Scrubbed::Judged(wrong) => wrong.iter().for_each(|w| self.judged(pg, w)),
            Scrubbed::Ended(result) => {
                self.running.borrow_mut().remove(&(by, pg));
                self.last.borrow_mut().insert(pg, (now, *result));
                more(&self.ended, 1);
                if result.errors > 0 && self.rot.osd().is_none() {
                    self.wrong(format!("{pg}: false alarm: no bit has flipped: {result:?}"));
                }
            }
            Scrubbed::GivenUp => {
                self.running.borrow_mut().remove(&(by, pg));
                more(&self.given_up, 1);
            }
        }
    }

    fn judged(&self, pg: PgId, w: &Inconsistent) {
        let rotten = self.rot.osd();
        more(&self.found, w.bad().count() as u64);
        if w.bad().any(|osd| Some(osd) != rotten) {
            self.wrong(format!(
                "{pg}: false alarm: bits have flipped on {rotten:?}: {w:?}"
            ));
        } else if w.errors != 0 || w.union_errors() & !shard_error::READ != 0 {
            self.wrong(format!("{pg}: a flipped bit is taken for something else: {w:?}"));
        } else if w.good.is_none() {
            self.wrong(format!("{pg}: no copy is good, and one is: {w:?}"));
        }
    }

    /// What runs and has not ended although nothing hinders it.
    pub fn hang(&self) -> Option<String> {
        let (now, running) = (self.sim.elapsed(), self.running.borrow());
        let old = running.iter().find(|(_, since)| **since + RUNS_MAX < now);
        old.map(|((by, pg), since)| format!("{pg}: a scrub by osd.{by} goes on since {since:?}"))
    }
}
