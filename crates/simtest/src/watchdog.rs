//! What must hold at every moment: no placement group is served by two OSDs.
//!
//! An OSD serves until the end of its lease by its own clock, unless it says otherwise before or is killed; a paused one
//! may go on at any moment of that time. Both are taken at their word, so that no answer has to be wrong first.

use io_sim::Sim;
use osd::probe::Serving;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{Epoch, OsdId, PgId};

/// Wrongs that are noted: more say the same.
const NOTED_MAX: usize = 3;
const MILLION: i128 = 1_000_000;

#[derive(Debug, Default)]
struct Word {
    until: Duration,
    pgs: Vec<(PgId, Epoch)>,
}

#[derive(Debug)]
pub struct Watchdog {
    sim: Sim,
    /// How much faster the clocks of OSDs run, in millionths.
    drifts: RefCell<BTreeMap<OsdId, i32>>,
    words: RefCell<BTreeMap<OsdId, Word>>,
    wrongs: RefCell<Vec<String>>,
}

impl Watchdog {
    /// Hears every OSD of this thread from now on.
    pub fn start(sim: &Sim) -> Rc<Self> {
        let dog = Rc::new(Self {
            sim: sim.clone(),
            drifts: RefCell::default(),
            words: RefCell::default(),
            wrongs: RefCell::default(),
        });
        let listener = dog.clone();
        osd::probe::listen(Some(Rc::new(move |s| listener.hear(s))));
        dog
    }

    pub fn know(&self, osd: OsdId, drift_ppm: i32) {
        self.drifts.borrow_mut().insert(osd, drift_ppm);
    }

    /// It was killed.
    pub fn forget(&self, osd: OsdId) {
        self.words.borrow_mut().remove(&osd);
    }

    pub fn wrongs(&self) -> Vec<String> {
        self.wrongs.borrow().clone()
    }

    /// The simulation's time at which an OSD's clock shows `own`.
    fn real(&self, osd: OsdId, own: Duration) -> Duration {
        let drift = self.drifts.borrow().get(&osd).copied().unwrap_or(0);
        let own = own.saturating_sub(Duration::from_secs(1)).as_nanos() as i128;
        let real = own.saturating_mul(MILLION) / (MILLION + i128::from(drift));
        Duration::from_nanos(u64::try_from(real).unwrap_or(u64::MAX))
    }

    fn hear(&self, s: Serving) {
        let now = self.sim.elapsed();
        let until = self.real(s.osd, s.until);
        let mut words = self.words.borrow_mut();
        for (pg, interval) in &s.pgs {
            for (other, word) in words.iter().filter(|(o, w)| **o != s.osd && w.until > now) {
                let Some((_, theirs)) = word.pgs.iter().find(|(p, _)| p == pg) else {
                    continue;
                };
                let line = format!(
                    "two primaries: at {now:?} osd.{} serves {pg} in interval {interval}, and osd.{other} in {theirs} until {:?}",
                    s.osd, word.until
                );
                self.sim.trace.note(format_args!("{line}"));
                let mut wrongs = self.wrongs.borrow_mut();
                if wrongs.len() < NOTED_MAX {
                    wrongs.push(line);
                }
            }
        }
        words.insert(s.osd, Word { until, pgs: s.pgs });
    }
}
