//! Numbers by which the machine and who drives it name things.

/// Number of an operation on the wire.
pub type Tid = u64;

/// A connection, by the name that the machine gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// What a user waits for, by the name that the owner gave it: another one each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A watch; its cookie on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);
