//! A session's capabilities, shared by all its operations wherever they wait, so that one which is judged late is judged
//! by what holds then.
//!
//! Almost no session's capabilities ever change: what an operation pays for it is one look at a flag.

use crate::caps::ClientCaps;
use pg::{Allow, Capabilities, Need};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub struct SessionCaps {
    /// Those that it began with.
    first: ClientCaps,
    /// `later` holds instead.
    changed: AtomicBool,
    later: Mutex<Option<Arc<ClientCaps>>>,
}

impl SessionCaps {
    pub fn new(first: ClientCaps) -> Self {
        Self {
            first,
            changed: AtomicBool::new(false),
            later: Mutex::new(None),
        }
    }

    /// From now on these.
    pub fn set(&self, caps: ClientCaps) {
        *self.later.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(caps));
        self.changed.store(true, Ordering::Release);
    }
}

impl Capabilities for SessionCaps {
    fn allows(&self, need: &Need<'_>, what: Allow<'_>) -> bool {
        if !self.changed.load(Ordering::Acquire) {
            return self.first.allows(need, what);
        }
        let later = self.later.lock().unwrap_or_else(PoisonError::into_inner).clone();
        later.is_some_and(|caps| caps.allows(need, what))
    }
}
