//! A request under way.

use super::leases::Name;
use super::tx::ClientId;
use bytes::Bytes;
use messages::fs::{MClientRequest, Trace};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use types::Utime;

pub type RequestId = u64;

#[derive(Debug)]
pub struct Request {
    pub id: RequestId,
    pub client: ClientId,
    pub tid: u64,
    pub m: Arc<MClientRequest>,
    /// When it came.
    pub began: Duration,
    /// Inodes at which it keeps something back.
    pub frozen: BTreeSet<u64>,
    /// Names that nobody is given a lease of before it has ended.
    pub names: BTreeSet<Name>,
    pub phase: Phase,
    /// Its client asked the server before, and goes on as if it were done.
    pub is_replay: bool,
    /// What its client gave up with it is taken back: once, since it says how things were when it was sent.
    pub heard_releases: bool,
}

/// What a request has begun that it must not begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    New,
    /// Objects are being cut by this job.
    Cutting(u64),
    Cut,
    /// It waits for a file lock.
    Locking,
    /// Its lock was taken, or it was woken up with an error.
    Woken(i32),
}

impl Request {
    pub fn job_done(&mut self, id: u64) {
        if self.phase == Phase::Cutting(id) {
            self.phase = Phase::Cut;
        }
    }

    /// It is about more than looking.
    pub fn changes(&self) -> bool {
        self.m.op & 0x1000 != 0
    }

    /// When the change was made, by the client's clock.
    pub fn stamp(&self) -> Utime {
        self.m.stamp
    }
}

/// What is answered.
#[derive(Debug, Default)]
pub struct Answer {
    pub trace: Trace,
    pub extra: Bytes,
    /// Not 0 where it says that something is not there, and how that may be known.
    pub result: i32,
    /// The inode whose realms are told.
    pub realms_of: Option<u64>,
}

/// Of a request that comes again after its answer was lost.
pub fn done_before(made: u64) -> Answer {
    let extra = match made {
        0 => Bytes::new(),
        ino => Bytes::copy_from_slice(&ino.to_le_bytes()),
    };
    Answer {
        extra,
        ..Answer::default()
    }
}
