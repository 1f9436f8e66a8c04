//! Who sends operations, and what it may do.

use crate::pool::PoolView;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use types::{EntityAddr, EntityName};

/// The shell's number of a client connection; never used twice.
pub type ConnId = u64;

/// What an operation needs of the client's capabilities (10.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allow<'a> {
    Data {
        read: bool,
        write: bool,
    },
    Call {
        class: &'a str,
        method: &'a str,
        read: bool,
        write: bool,
    },
}

/// Where it needs it.
#[derive(Debug, Clone, Copy)]
pub struct Need<'a> {
    pub pool: &'a PoolView,
    pub nspace: &'a [u8],
    pub oid: &'a [u8],
    /// Where the client's packets come from.
    pub from: Option<IpAddr>,
}

/// A client's parsed OSD capabilities.
pub trait Capabilities: fmt::Debug {
    fn allows(&self, need: &Need<'_>, what: Allow<'_>) -> bool;
}

/// Who sent an operation, as the handshake established it.
#[derive(Debug)]
pub struct Client {
    /// `client.<global id>`.
    pub name: EntityName,
    pub global_id: u64,
    /// Of the entity and its global id: what its writes are remembered by, beside the number that it gave them. The same when it
    /// comes again, here or to another primary; nobody else has it. Never 0.
    pub instance: u64,
    /// The address under which it would be blocklisted: its own word.
    pub addr: EntityAddr,
    /// Where its packets come from.
    pub from: Option<IpAddr>,
    pub features: u64,
    pub caps: Arc<dyn Capabilities + Send + Sync>,
    pub fence: Fence,
}

/// Whether a client is fenced, as far as it was looked up: once for each epoch of the map.
#[derive(Debug, Default)]
pub struct Fence {
    /// The shell knows it of old, under another address.
    known: AtomicBool,
    /// The epoch in which the blocklist was looked at, twice, plus 1 if it was found; 0: never.
    seen: AtomicU64,
}

impl Fence {
    pub fn set_known(&self, fenced: bool) {
        self.known.store(fenced, Relaxed);
    }
}

impl Client {
    pub fn is_fenced(&self, pool: &PoolView) -> bool {
        if self.fence.known.load(Relaxed) {
            return true;
        }
        let list = &pool.blocklist;
        if list.is_empty() {
            return false;
        }
        let (epoch, seen) = (u64::from(pool.epoch), self.fence.seen.load(Relaxed));
        if seen != 0 && seen >> 1 == epoch {
            return seen & 1 == 1;
        }
        let fenced = list.has_id(self.global_id) || list.entry_for(&self.addr, self.from).is_some();
        self.fence.seen.store(epoch << 1 | u64::from(fenced), Relaxed);
        fenced
    }
}
