//! A copy or a shard of a placement group, as it lies on a disk, and what two of them must have in common.

use bytes::Bytes;
use std::collections::BTreeMap;
use types::EVersion;

/// The data of a shard's object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Of the whole object.
    pub size: u64,
    pub data: Bytes,
}

/// One copy or shard of a PG: its objects, in words that are compared, and its log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copy {
    pub objects: BTreeMap<String, String>,
    /// Of shards, which do not have the same data.
    pub parts: BTreeMap<String, Part>,
    pub log: BTreeMap<EVersion, Vec<u8>>,
}

/// What two copies, or shards, do not have in common.
pub fn difference(a: &Copy, b: &Copy) -> Option<String> {
    for oid in a.objects.keys().chain(b.objects.keys()) {
        let (x, y) = (a.objects.get(oid), b.objects.get(oid));
        if x != y {
            return Some(format!("{oid}:\n      {x:?}\n      {y:?}"));
        }
    }
    if a.log.keys().next_back() != b.log.keys().next_back() {
        let ends = (a.log.keys().next_back(), b.log.keys().next_back());
        return Some(format!("logs end at {ends:?}"));
    }
    // Each may have trimmed more than the other.
    let from = a.log.keys().next().max(b.log.keys().next())?;
    let (x, y) = (a.log.range(from..), b.log.range(from..));
    (!x.clone().eq(y.clone())).then(|| {
        let versions = |l: std::collections::btree_map::Range<'_, EVersion, Vec<u8>>| {
            l.map(|e| *e.0).collect::<Vec<_>>()
        };
        format!("logs hold {:?} and {:?}", versions(x), versions(y))
    })
}
