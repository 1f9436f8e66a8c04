//! One message of the messenger: header fields and three segments. Bodies are typed in `messages`.

use bytes::Bytes;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// Message number, e.g. 42 for OSD_OP.
    pub kind: u16,
    pub version: u16,
    pub compat: u16,
    pub priority: u16,
    pub tid: u64,
    pub data_off: u16,
    pub front: Bytes,
    pub middle: Bytes,
    pub data: Bytes,
}
