//! Whole objects from one OSD to another: the source of COPY_FROM. Within a process over a queue, else over the
//! connections between OSDs.
//!
//! Bounds: each entry belongs to a client's operation in flight, of which `net` has a budget; [`crate::peers::ANSWER_TIMEOUT`].

mod exchange;

use crate::peers::Copied;
use net::ConnId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::oneshot;
use types::{HObject, OsdId, SPgId};

/// Who wants an object of ours.
#[derive(Debug)]
pub enum Asker {
    Local(oneshot::Sender<Copied>),
    Peer { conn: ConnId, id: u64 },
}

/// An object that we want of an OSD of another process.
#[derive(Debug)]
struct Wanted {
    from: OsdId,
    pg: SPgId,
    /// The PG's own number.
    id: u64,
    object: HObject,
    until: Duration,
    sent: bool,
}

#[derive(Debug, Default)]
pub struct Fetches {
    exports: BTreeMap<u64, Asker>,
    wanted: BTreeMap<u64, Wanted>,
    next: u64,
}

impl Fetches {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// OSDs with which there has to be a connection.
    pub fn sources(&self) -> BTreeSet<OsdId> {
        self.wanted.values().map(|w| w.from).collect()
    }
}
