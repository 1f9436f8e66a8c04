//! The work of a store's threads on virtual time: how long writes and flushes take, and a disk that hangs.
//!
//! Invariant: between the write of a batch and its flush time passes, so that a kill finds some of it, all or nothing.

use io_sim::Dice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Background, Driver};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// How a disk behaves; changed while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub flush_us: (u64, u64),
    pub hangs: bool,
}

impl Pace {
    pub const FAST: Self = Self {
        flush_us: (500, 4000),
        hangs: false,
    };
}

/// One disk's pace, and the dice that it is drawn with; clones are the same.
#[derive(Debug, Clone)]
pub struct Pacing {
    pace: Arc<watch::Sender<Pace>>,
    dice: Arc<Mutex<Dice>>,
}

impl Pacing {
    pub fn new(dice: Dice) -> Self {
        Self {
            pace: Arc::new(watch::channel(Pace::FAST).0),
            dice: Arc::new(Mutex::new(dice)),
        }
    }

    pub fn set(&self, pace: Pace) {
        self.pace.send_replace(pace);
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn flush(&self) {
        let (least, most) = self.pace.borrow().flush_us;
        let us = least + self.dice().below(most - least + 1);
        sleep(Duration::from_micros(us)).await;
        // The sender lives in `self`.
        let _ = self.pace.subscribe().wait_for(|p| !p.hangs).await;
    }
}

/// Drives one life of one store, in the process that opens it.
#[derive(Debug)]
pub struct SimDriver {
    pacing: Pacing,
    log: Arc<Notify>,
    helper: Arc<Notify>,
}

impl SimDriver {
    pub fn new(pacing: Pacing) -> Arc<Self> {
        Arc::new(Self {
            pacing,
            log: Arc::new(Notify::new()),
            helper: Arc::new(Notify::new()),
        })
    }
}

impl Driver for SimDriver {
    fn start(&self, work: Background) {
        let (pacing, log, helper) = (self.pacing.clone(), self.log.clone(), self.helper.clone());
        let (more, committer) = (self.helper.clone(), work.clone());
        tokio::task::spawn_local(async move {
            loop {
                while committer.begin_log() {
                    pacing.flush().await;
                    committer.end_log();
                    more.notify_one();
                }
                log.notified().await;
            }
        });
        let pacing = self.pacing.clone();
        tokio::task::spawn_local(async move {
            loop {
                while work.step_helper() {
                    pacing.flush().await;
                }
                helper.notified().await;
            }
        });
    }

    fn wake(&self) {
        self.log.notify_one();
        self.helper.notify_one();
    }
}
