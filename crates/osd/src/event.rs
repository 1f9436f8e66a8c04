//! Everything that makes an OSD do something.

use crate::peers::{Copied, FetchRequest};
use net::NetEvent;
use types::PgId;

#[derive(Debug)]
pub enum Event {
    /// From a client's connection.
    Net(NetEvent),
    /// The store made more of its transactions durable, or read from the disk, or failed.
    Store,
    /// The cluster state moved on.
    Cluster,
    /// Another OSD of this process wants an object.
    Fetch(FetchRequest),
    /// An object that a PG of ours asked another OSD for.
    Fetched { pg: PgId, id: u64, result: Copied },
    /// A PG's timer has come.
    Timer,
    /// Once a second: housekeeping and, every few of them, the report.
    Tick,
    /// Asked to end.
    Stop,
}
