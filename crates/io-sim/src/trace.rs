//! What happened in a simulation: a line each, hashed, and printed for who follows one seed.
//!
//! Not here: levels and filters. What is noted is part of the hash, always; a run whose hash nobody asks for only counts.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// FNV-1a, 64 bits: a difference is to be seen, not to be withstood.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[derive(Debug)]
struct Inner {
    start: Instant,
    /// None: nobody will ask for it.
    hash: Option<u64>,
    events: u64,
    /// Where lines go as well.
    sink: Option<fn(&str)>,
}

impl Write for Inner {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(FNV_PRIME);
        self.hash = self.hash.map(|hash| s.bytes().fold(hash, step));
        Ok(())
    }
}

/// A handle; clones are the same trace.
#[derive(Debug, Clone)]
pub struct Trace(Arc<Mutex<Inner>>);

impl Trace {
    pub(crate) fn new(start: Instant, sink: Option<fn(&str)>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            start,
            hash: Some(FNV_OFFSET),
            events: 0,
            sink,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, line: fmt::Arguments<'_>) {
        let mut inner = self.lock();
        let at = inner.start.elapsed();
        inner.events += 1;
        if inner.hash.is_some() {
            // Hashing cannot fail.
            let _ = writeln!(inner, "{} {line}", at.as_nanos());
        }
        if let Some(sink) = inner.sink {
            sink(&format!("{:10.3} {line}", at.as_secs_f64() * 1e3));
        }
    }

    /// From now on lines are counted and not hashed: a line that nobody reads is not formatted either.
    pub fn count_only(&self) {
        self.lock().hash = None;
    }

    /// Of all lines; None after [`Trace::count_only`].
    pub fn hash(&self) -> Option<u64> {
        self.lock().hash
    }

    pub fn events(&self) -> u64 {
        self.lock().events
    }
}
