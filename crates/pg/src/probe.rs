//! What a simulation hears of scrubs that nobody else has to know: every judgement, also of what is repaired at once, and
//! how each run ends.
//!
//! Invariant: only in builds with debug assertions, and only in a thread that set a listener; else this costs nothing.

use crate::api::{ScrubOrder, ScrubResult};
use crate::backend::findings::Inconsistent;
use std::cell::RefCell;
use std::rc::Rc;
use types::{OsdId, PgId};

#[derive(Debug)]
pub enum Scrubbed<'a> {
    Began(ScrubOrder),
    /// A check looked at an object on all copies while its writes waited: these copies are bad.
    Judged(&'a [Inconsistent]),
    Ended(ScrubResult),
    /// The PG is not whole any more, or is led by another OSD.
    GivenUp,
}

/// Of which PG, and by its primary's word.
pub type Listener = Rc<dyn Fn(PgId, OsdId, Scrubbed<'_>)>;

thread_local! {
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// From now on the scrubs of this thread are heard.
pub fn listen(listener: Option<Listener>) {
    LISTENER.with(|l| *l.borrow_mut() = listener);
}

pub(crate) fn tell(pg: PgId, primary: OsdId, what: Scrubbed<'_>) {
    if cfg!(debug_assertions) {
        let listener = LISTENER.with(|l| l.borrow().clone());
        if let Some(listener) = listener {
            listener(pg, primary, what);
        }
    }
}
