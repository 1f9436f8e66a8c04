//! Everything that makes an OSD do something.

use crate::links::LinkId;
use crate::peers::{Copied, FetchRequest};
use crate::turns::Part;
use metastore::Lease;
use net::{DialEvent, NetEvent};
use types::{Epoch, OsdId, SPgId};

#[derive(Debug)]
pub enum Event {
    /// From a connection that a client or another OSD made.
    Net(NetEvent),
    /// From a connection that we made to another OSD.
    Link(LinkId, DialEvent),
    /// The store made more of its transactions durable, or read from the disk, or failed.
    Store,
    /// The cluster state moved on.
    Cluster,
    /// What we asked of the cluster state was done.
    StateReply(StateReply),
    /// Another OSD of this process wants an object.
    Fetch(FetchRequest),
    /// An object that a PG of ours asked another OSD for.
    Fetched { pg: SPgId, id: u64, result: Copied },
    /// A PG's timer has come, or a connection is to be tried again.
    Timer,
    /// Five times a second: heartbeats, the lease, who is up.
    Beat,
    /// Once a second: housekeeping and, every few of them, the report.
    Tick,
    /// Asked to end.
    Stop,
}

impl Event {
    pub fn part(&self) -> Part {
        match self {
            Self::Net(_) => Part::Net,
            Self::Link(..) => Part::Link,
            Self::Store => Part::Store,
            Self::Cluster => Part::Cluster,
            Self::StateReply(_) => Part::StateReply,
            Self::Fetch(_) => Part::Fetch,
            Self::Fetched { .. } => Part::Fetched,
            Self::Timer => Part::Timer,
            Self::Beat => Part::Beat,
            Self::Tick => Part::Tick,
            Self::Stop => Part::Stop,
        }
    }
}

/// The end of something that was asked of the cluster state; at most one of each kind is on its way.
#[derive(Debug)]
pub enum StateReply {
    /// A batch of proposals is through, whatever came of each.
    Proposed,
    /// A merge is through, whatever came of it.
    Merged,
    Leased(Result<Lease, metastore::Error>),
    Booted(Result<Epoch, metastore::Error>),
    /// These were marked down, or could not be.
    Marked(Vec<OsdId>),
    SteppedDown,
}
