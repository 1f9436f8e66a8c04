//! What goes into a PG and what comes out.

use crate::backend::group::{Group, Proposal};
use crate::pool::PoolView;
use crate::store::{ObjectStore, Seq, Ticket};
use bytes::Bytes;
use messages::osd::peer::PeerBody;
use messages::osd::{MOSDOp, MOSDOpReply, MWatchNotify};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use types::{EVersion, Epoch, Errno, HObject, ObjectLocator, OsdId, PoolId, Utime};

pub use crate::client::{Allow, Capabilities, Client, ConnId, Fence, Need};
pub use crate::exec::request::ObjectCopy;
pub use crate::state::stats::PgStats;

/// Whatever the shell wants to have back when the operation is over (flow control); dropped with it.
#[derive(Default)]
pub struct Permit {
    pub rider: Option<Box<dyn Any>>,
    /// When the operation was executed; from then on it is only its answer that waits.
    pub executed: Option<Duration>,
    /// What its answer had waited for last; None: it did not wait.
    pub last: Option<Word>,
}

/// Whose word was the last that an answer waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// That of the disk here.
    Disk,
    Osd(OsdId),
    /// Nobody's: somebody who had not answered counts no more.
    Change,
}

impl Permit {
    pub fn new(rider: impl Any) -> Self {
        Self {
            rider: Some(Box::new(rider)),
            executed: None,
            last: None,
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.rider.is_some() { "Permit" } else { "-" })
    }
}

#[derive(Debug)]
pub struct ClientOp {
    pub conn: ConnId,
    pub client: Arc<Client>,
    pub op: MOSDOp,
    pub permit: Permit,
}

/// What the operator, or the schedule, wants of a PG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubOrder {
    pub deep: bool,
    pub repair: bool,
}

impl ScrubOrder {
    /// What both want.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            deep: self.deep || other.deep,
            repair: self.repair || other.repair,
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubResult {
    pub order: ScrubOrder,
    pub objects: u64,
    /// Bad copies found, and of these repaired.
    pub errors: u32,
    pub fixed: u32,
}

#[derive(Debug)]
pub enum Input {
    ClientOp(Box<ClientOp>),
    /// Every transaction up to this one is durable.
    Committed(Seq),
    /// A read that [`crate::ObjectReads::prefetch`] started has ended, well or not.
    Prefetched(Ticket),
    /// Its watches wait for the client to come back, its notifies end, what it sent and was not executed yet is
    /// dropped.
    ConnectionClosed(ConnId),
    /// A new map; same or later epoch.
    MapChanged(Arc<PoolView>),
    /// The configuration, or where CRUSH wants the PG, has changed; also the first input of a PG that has others.
    Group(Box<Group>),
    /// A connection to this OSD was made: nothing that was sent before counts.
    PeerUp(OsdId),
    /// The connection has ended, or the peer is silent.
    PeerDown(OsdId),
    /// What a member answered, over the connection of the last [`Input::PeerUp`].
    Peer {
        from: OsdId,
        /// The sender's shard; -1: copies.
        shard: i8,
        interval: Epoch,
        body: PeerBody,
    },
    /// The member, whose first answer comes now, holds the objects that are here: see [`crate::Kin`].
    SplitSibling(OsdId),
    /// The PG shall be merged with another one: it executes nothing any more and says [`Output::AtRest`], or goes on
    /// after a while.
    Merge,
    /// The shell lets the PG copy so many objects to its members now; see [`crate::Pg::wants_to_copy`].
    Grant {
        objects: usize,
    },
    /// Compare the copies, if nothing stands against it now; see [`crate::Pg::scrub_view`].
    Scrub(ScrubOrder),
    /// The shell lets the running scrub take one stretch more.
    ScrubGrant,
    /// The time given by [`crate::Pg::next_timer`] has come (or any other time).
    Tick,
    /// Answer to [`Output::FetchObject`].
    Fetched {
        id: u64,
        result: Result<Box<ObjectCopy>, Errno>,
    },
    /// Another PG wants a copy of one of this PG's objects: answered by [`Output::Exported`].
    Export {
        token: u64,
        /// `snap` may be a snapshot id.
        object: HObject,
    },
}

#[derive(Debug)]
pub enum Output {
    /// The answer to a client; its permit ends with it.
    Reply {
        conn: ConnId,
        reply: MOSDOpReply,
        permit: Permit,
    },
    /// The operation was not for this PG; no answer.
    Dropped {
        conn: ConnId,
        tid: u64,
        why: &'static str,
    },
    Send {
        conn: ConnId,
        event: MWatchNotify,
    },
    /// A message that no honest client sends: close the connection.
    Close {
        conn: ConnId,
        why: &'static str,
    },
    /// For the member (or, from a member, for the primary) of this PG.
    Peer {
        to: OsdId,
        /// The shard that it is about: the receiver's where the primary speaks, the sender's where a member does; -1: copies.
        shard: i8,
        interval: Epoch,
        body: PeerBody,
    },
    /// Change the configuration by compare-and-swap. The answer is a new [`Input::Group`], or none: the PG asks
    /// again after a while.
    Propose(Proposal),
    /// Everything that was ever executed is durable on all members, which have all the same; nothing is executed before the
    /// configuration is another one.
    AtRest {
        group: Group,
        head: EVersion,
    },
    /// So many bytes of an object went to a member that is not in sync: what the recovery's budget counts.
    Copied {
        bytes: u64,
    },
    /// So many bytes of copies are being compared: what the scrub's budget counts.
    Scrubbed {
        bytes: u64,
    },
    /// A scrub is over; its stamps are in the report.
    ScrubEnded(ScrubResult),
    /// Get an object that another OSD holds, and give it back as [`Input::Fetched`] with the same id.
    FetchObject {
        id: u64,
        object: HObject,
    },
    Exported {
        token: u64,
        result: Result<Box<ObjectCopy>, Errno>,
    },
}

/// Where an object named by a client lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// In a PG of this store.
    Local(HObject),
    Remote(HObject),
    NoPool,
}

/// The cluster beyond this PG: needed for the source of COPY_FROM.
pub trait ClusterView {
    /// The pool's name and applications, by which capabilities go. None: there is no such pool.
    fn pool(&self, id: PoolId) -> Option<&PoolView>;

    /// Hashes and places `oid` at `oloc`; the result has `snap` as its snapshot.
    fn locate(&self, oloc: &ObjectLocator, oid: &Bytes, snap: u64) -> Located;
}

/// What the shell lends a PG for one input.
pub struct Context<'a> {
    pub store: &'a mut dyn ObjectStore,
    pub cluster: &'a dyn ClusterView,
    /// Monotonic time; timers and timeouts.
    pub now: Duration,
    /// Wall clock, for class methods.
    pub wall: Utime,
    /// Unpredictable numbers.
    pub random: &'a mut dyn FnMut() -> u64,
    pub out: &'a mut Vec<Output>,
}
