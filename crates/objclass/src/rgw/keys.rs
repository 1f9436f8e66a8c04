//! The keys of a bucket's index.
//!
//! An object has the row of its name; what is not an object's row begins with the byte 0x80 and the number of its kind. A version
//! has an *instance row*, and a *list row* whose key sorts behind the object's name, latest version first.

use super::types::{DirEntry, ObjKey};
use bytes::Bytes;

/// In front of all keys that are not names.
pub const SPECIAL: u8 = 0x80;
pub const LOG: &[u8] = b"\x800_";
pub const INSTANCE: &[u8] = b"\x801000_";
pub const HEAD: &[u8] = b"\x801001_";
/// Behind all of them, whose kinds are numbers.
pub const BEHIND_SPECIAL: &[u8] = b"\x80\xff";

/// The row of an instance.
pub fn instance(key: &ObjKey) -> Bytes {
    [INSTANCE, &key.name[..], b"\0i", &key.instance[..]]
        .concat()
        .into()
}

/// Where an entry is: the name's row, or the instance's.
pub fn entry(key: &ObjKey) -> Bytes {
    match key.instance.is_empty() {
        true => key.name.clone(),
        false => instance(key),
    }
}

/// The row of the logical head.
pub fn head(name: &[u8]) -> Bytes {
    [HEAD, name].concat().into()
}

/// What the list rows of an object begin with.
pub fn list_prefix(name: &[u8]) -> Bytes {
    [name, b"\0v"].concat().into()
}

/// The list row of a version.
pub fn listed(entry: &DirEntry) -> Bytes {
    let at = falling(entry.epoch);
    [
        &entry.key.name[..],
        b"\0v",
        at.as_bytes(),
        b"\0i",
        &entry.key.instance[..],
    ]
    .concat()
    .into()
}

/// Text that sorts the earlier the greater the number is, below 2^32. Above, as 16.2 has it.
fn falling(number: u64) -> String {
    match number {
        n @ 0..0x10 => format!("9{:02}", 0xf - n),
        n @ 0x10..0x100 => format!("8{:03}", 0xff - n),
        n @ 0x100..0x1000 => format!("7{:04}", 0xfff - n),
        n @ 0x1000..0x1_0000 => format!("6{:05}", 0xffff - n),
        n @ 0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xffff_ffff - n),
        n => format!("4{:020}", (n as i64).wrapping_neg()),
    }
}
