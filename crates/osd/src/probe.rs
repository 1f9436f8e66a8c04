//! What a simulation hears of an OSD that nobody else has to know: which placement groups it serves just now. And how it makes its
//! loop slow.
//!
//! Invariant: only in builds with debug assertions, and only in a thread that set a listener; else this costs nothing.

use crate::osd::Osd;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{Epoch, OsdId, PgId};

/// An OSD's word: it executes operations of these placement groups, each in this interval, until then by its own
/// monotonic clock unless it says otherwise before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    pub osd: OsdId,
    pub until: Duration,
    pub pgs: Vec<(PgId, Epoch)>,
}

pub type Listener = Rc<dyn Fn(Serving)>;

thread_local! {
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// From now on the OSDs of this thread are heard.
pub fn listen(listener: Option<Listener>) {
    LISTENER.with(|l| *l.borrow_mut() = listener);
}

thread_local! {
    static DRAGS: RefCell<BTreeMap<OsdId, Duration>> = const { RefCell::new(BTreeMap::new()) };
}

/// From now on each turn of this OSD's loop takes so much longer; none: as long as it takes.
pub fn slow_down(osd: OsdId, drag: Option<Duration>) {
    DRAGS.with(|d| match drag {
        Some(drag) => drop(d.borrow_mut().insert(osd, drag)),
        None => drop(d.borrow_mut().remove(&osd)),
    });
}

pub(crate) fn drag(osd: OsdId) -> Option<Duration> {
    DRAGS.with(|d| d.borrow().get(&osd).copied())
}

impl Osd {
    /// At the end of each turn of the loop.
    pub(crate) fn tell_probe(&self) {
        let Some(listener) = LISTENER.with(|l| l.borrow().clone()) else {
            return;
        };
        let serving = self.serving();
        let pgs = self.pgs().filter(|(_, pg)| serving && pg.is_active());
        listener(Serving {
            osd: self.id,
            until: self.membership.valid_until(),
            pgs: pgs.map(|(id, pg)| (id.pg, pg.group().interval)).collect(),
        });
    }
}
