//! What a PG keeps in the store, decoded for people: log entries, object info, metadata.
//!
//! For tools that look at the store of an OSD that has ended. Not here: the store, and any use of this by a
//! PG that lives.

use crate::state::log::{EntryKind, LogEntry};
use crate::state::meta::PgMeta;
use crate::state::object_info::{self, INFO_ATTR, ObjectInfo};
use bytes::Bytes;
use denc::{Decode, Result};
use types::{EVersion, HObject, OsdReqId, Utime};

/// A write that the log remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// modify, delete, error or internal.
    pub kind: &'static str,
    pub version: EVersion,
    pub prior_version: EVersion,
    pub object: HObject,
    pub reqid: OsdReqId,
    pub user_version: u64,
    pub mtime: Utime,
    pub result: i32,
}

pub fn log_entry(raw: &Bytes) -> Result<LogLine> {
    let e = LogEntry::from_bytes(raw)?;
    Ok(LogLine {
        kind: match e.kind {
            EntryKind::Modify => "modify",
            EntryKind::Delete => "delete",
            EntryKind::Error => "error",
            EntryKind::Internal => "internal",
        },
        version: e.version,
        prior_version: e.prior_version,
        object: e.object,
        reqid: e.reqid,
        user_version: e.user_version,
        mtime: e.mtime,
        result: e.result,
    })
}

/// The pool's pg_num when the PG last wrote its metadata; None: not known.
pub fn pg_num(meta: &Bytes) -> Option<u32> {
    PgMeta::from_bytes(meta).ok().map(|m| m.pg_num).filter(|n| *n > 0)
}

/// Name of the attribute that [`is_whiteout`] decodes.
pub const INFO: &[u8] = INFO_ATTR;

/// Whether the object is deleted, and only kept for its clones.
pub fn is_whiteout(info: &Bytes) -> bool {
    ObjectInfo::from_bytes(info).is_ok_and(|i| i.whiteout)
}

/// What a client said the object will be used for (SETALLOCHINT's flags, docs/protocol/ceph/04-osd.md); 0: nothing.
pub fn alloc_hint(info: &Bytes) -> u32 {
    let info = ObjectInfo::from_bytes(info).ok();
    info.and_then(|i| i.alloc_hint).map_or(0, |h| h.flags)
}

/// An object's info that says this of it, for tests.
#[doc(hidden)]
pub fn info_with_hint(flags: u32) -> Bytes {
    let hint = object_info::AllocHint {
        flags,
        ..object_info::AllocHint::default()
    };
    denc::Encode::to_bytes(&ObjectInfo {
        alloc_hint: Some(hint),
        ..ObjectInfo::default()
    })
}

/// The client's name of an attribute; None for the PG's own.
pub fn user_attr(name: &Bytes) -> Option<Bytes> {
    object_info::user_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Encode;

    #[test]
    fn what_a_pg_keeps_can_be_read() {
        let meta = PgMeta {
            pg_num: 32,
            ..PgMeta::default()
        };
        assert_eq!(pg_num(&meta.to_bytes()), Some(32));
        assert_eq!(pg_num(&PgMeta::default().to_bytes()), None);
        assert_eq!(pg_num(&Bytes::from_static(b"?")), None);
        let info = |whiteout| ObjectInfo {
            whiteout,
            ..ObjectInfo::default()
        };
        assert!(is_whiteout(&info(true).to_bytes()) && !is_whiteout(&info(false).to_bytes()));
        assert_eq!(alloc_hint(&info_with_hint(0x100)), 0x100);
        assert_eq!(alloc_hint(&info(false).to_bytes()) + alloc_hint(&Bytes::new()), 0);
        assert!(log_entry(&Bytes::from_static(b"\x01\x01\x01\0\0\0\x09")).is_err());
        assert_eq!(user_attr(&object_info::user_attr(b"x")).unwrap(), "x");
    }
}
