//! Panics on demand, for tests of what follows from one.
//!
//! [`point`] stands where a thread is in the midst of its work. It costs one load, unless the process was started to be
//! tested so ([`allow`]) and somebody has [`ask`]ed for a panic there. Bound: one is asked for at a time.

use crate::group::Group;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

static ALLOWED: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);
/// The group and the point.
static WANTED: Mutex<Option<(String, String)>> = Mutex::new(None);

/// From now on this process panics where it is asked to.
pub fn allow() {
    ALLOWED.store(true, Ordering::Relaxed);
}

pub fn are_allowed() -> bool {
    ALLOWED.load(Ordering::Relaxed)
}

/// The next thread of this group that comes by this point panics, once. False: that is not allowed here.
pub fn ask(group: &str, point: &str) -> bool {
    if !are_allowed() {
        return false;
    }
    *WANTED.lock().unwrap_or_else(PoisonError::into_inner) = Some((group.to_owned(), point.to_owned()));
    ASKED.store(true, Ordering::Relaxed);
    true
}

/// Panics if that was asked for.
#[inline]
pub fn point(name: &str) {
    if ASKED.load(Ordering::Relaxed) {
        panic_if_wanted(name);
    }
}

#[cold]
fn panic_if_wanted(name: &str) {
    let Some(group) = Group::current() else { return };
    let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
    if wanted
        .as_ref()
        .is_some_and(|(g, p)| g == group.name() && p == name)
    {
        *wanted = None;
        ASKED.store(false, Ordering::Relaxed);
        drop(wanted);
        panic!("a test asked for a panic at the point {name:?}");
    }
}
