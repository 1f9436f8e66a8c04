//! Plain data of the cluster: ids, addresses, times, object names and their order, checksums, the cluster
//! maps, and the transaction that a PG hands to its store. No I/O, no clock, no threads.
//!
//! Names follow Ceph's where the concept is Ceph's (docs/protocol/ceph: 01, 03, 04). Object names, locator keys
//! and namespaces are byte strings ([`bytes::Bytes`]), since clients may put any byte there; names of
//! pools, entities and services are `String`.

pub mod addr;
pub mod broken;
pub mod checksum;
pub mod clusterlog;
pub mod entity;
pub mod errno;
pub mod fsmap;
pub mod interval;
pub mod mgrmap;
pub mod monmap;
pub mod numbers;
pub mod object;
pub mod osdmap;
pub mod pgid;
pub mod pgmap;
pub mod pgstats;
pub mod places;
pub mod pool;
pub mod release;
pub mod time;
pub mod transaction;
pub mod uuid;

pub use addr::{AddrKind, EntityAddr, EntityAddrVec, LEGACY_LEN};
pub use entity::{AuthName, EntityKind, EntityName};
pub use errno::Errno;
pub use fsmap::{FsMap, MdsMap};
pub use interval::IntervalSet;
pub use mgrmap::MgrMap;
pub use monmap::{MonInfo, MonMap};
pub use object::{HObject, NOSNAP, ObjectLocator, SNAPDIR};
pub use osdmap::{Incremental, OsdMap};
pub use pgid::{EVersion, Epoch, OsdId, OsdReqId, PgId, PoolId, SPgId};
pub use pool::PgPool;
pub use time::Utime;
pub use transaction::{ObjectId, Op, Transaction};
pub use uuid::Uuid;
