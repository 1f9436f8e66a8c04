//! What goes into the machine, and what comes out.

use super::caps::Caching;
use super::loads::{PageRead, Read};
use super::traces::Trace;
use super::tx::{ClientId, Conn};
use super::writes::Write;
use crate::membership::{Assigned, MdsState};
use crate::place::Fragment;
use crate::row::Job;
use bytes::Bytes;
use msgr::{Message, Peer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{EntityAddr, Epoch, Utime};

#[derive(Debug)]
pub enum Event {
    Opened {
        conn: Conn,
        peer: Arc<Peer>,
    },
    Closed {
        conn: Conn,
    },
    Message {
        conn: Conn,
        message: Message,
    },
    /// Rows that were asked for.
    Loaded {
        id: u64,
        rows: Vec<Option<Bytes>>,
    },
    /// A page of names; `end`: there are no more in the object.
    Paged {
        id: u64,
        rows: Vec<(Bytes, Bytes)>,
        end: bool,
    },
    /// Keys of versions that a snapshot is the last to show; `end`: there are no more in the object.
    Olds {
        snap: u64,
        keys: Vec<Bytes>,
        end: bool,
    },
    /// All transactions up to this one are durable.
    Appended {
        last_tx: u64,
    },
    Flushed {
        id: u64,
    },
    /// The names of this directory's fragment are in both its halves.
    Split {
        dir: u64,
    },
    Trimmed,
    /// `size`: what a probe found.
    JobDone {
        id: u64,
        size: Option<u64>,
    },
    /// An object says where its inode is.
    Traced {
        ino: u64,
    },
    Fenced {
        client: ClientId,
        epoch: Epoch,
    },
    Assigned(Assigned),
    Pools(BTreeMap<i64, String>),
    /// The time of [`Effect::Nudge`] is over.
    Nudge,
    /// Once or more in a second.
    Tick,
}

#[derive(Debug)]
pub enum Effect {
    Send {
        conn: Conn,
        message: Message,
    },
    Close {
        conn: Conn,
        why: &'static str,
    },
    Load {
        id: u64,
        reads: Vec<Read>,
    },
    Page {
        id: u64,
        read: PageRead,
    },
    /// Lists versions that a snapshot is the last to show, behind a key.
    Olds {
        snap: u64,
        shard: u64,
        after: Bytes,
    },
    /// A snapshot is of no use any more to the data pools.
    DropSnap {
        id: u64,
        snap: u64,
        pools: Vec<i64>,
    },
    /// `new`: the segment begins with it.
    Append {
        segment: u64,
        new: bool,
        bytes: Bytes,
        last_tx: u64,
    },
    Flush {
        id: u64,
        writes: Vec<Write>,
    },
    /// Copies the names of a fragment, as they are in the pool, to its halves.
    Split {
        dir: u64,
        fragment: Fragment,
    },
    /// Segments below `first` are needed no more.
    Trim {
        first: u64,
        next_tx: u64,
        gone: Vec<u64>,
    },
    Job {
        id: u64,
        job: Arc<Job>,
    },
    /// Writes a backtrace.
    Trace(Box<Trace>),
    Fence {
        client: ClientId,
        addr: EntityAddr,
    },
    Report(MdsState),
    /// An event is wanted after so long.
    Nudge {
        after: Duration,
    },
}

/// Now, as the shell sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    pub monotonic: Duration,
    pub wall: Utime,
}

/// What may be chosen.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows that nobody uses are kept in so much memory.
    pub cache_bytes: usize,
    pub caching: Caching,
    /// Names of directories that several change may be trusted for a while.
    pub leases: bool,
    /// Changes are answered before they are durable, where a client can bring them back.
    pub early: bool,
    /// Who has a directory for itself may make and remove names in it without waiting for the answer.
    pub async_names: bool,
    /// How long clients may take to come back after a restart.
    pub reconnect: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            caching: Caching::Shared,
            leases: true,
            early: true,
            async_names: false,
            reconnect: Duration::from_secs(45),
        }
    }
}
