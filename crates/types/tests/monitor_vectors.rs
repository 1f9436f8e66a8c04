//! Monitor, manager and file-system maps and pool statistics recorded from Ceph 16.2.15, byte for byte.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use denc::{Decode, Encode, Reader};
use std::path::PathBuf;
use types::fsmap::{FsMapUser, MDS_INCOMPAT};
use types::pgstats::PoolStat;
use types::{EntityAddr, EntityAddrVec, FsMap, MdsMap, MgrMap, MonMap, Utime, Uuid};

fn front(name: &str) -> Reader {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/monitor"));
    let bytes = std::fs::read(dir.join(format!("{name}.front.bin"))).unwrap();
    Reader::new(bytes.into())
}

/// Decodes, encodes, and wants the same bytes, with nothing left over.
fn check<T: Decode + Encode + std::fmt::Debug>(bytes: &Bytes) -> T {
    let mut r = Reader::new(bytes.clone());
    let value = T::decode(&mut r).unwrap();
    assert!(r.is_empty(), "{} bytes left", r.remaining());
    assert_eq!(value.to_bytes(), bytes);
    value
}

#[test]
fn monitor_map() {
    let map: MonMap = check(&front("mon_map").blob().unwrap());
    assert_eq!(map.ranks, ["a"]);
    assert_eq!(map.rank_of("a"), Some(0));
    // A map made here from the same facts is the same but for its times.
    let mons = map.by_rank().map(|m| (m.name.clone(), m.addrs.clone()));
    let mut made = MonMap::new(map.fsid, map.created, mons);
    made.last_changed = map.last_changed;
    assert_eq!(made.to_bytes(), map.to_bytes());
}

#[test]
fn manager_map() {
    let map: MgrMap = check(&front("mgr_map-minimal").rest());
    assert_eq!(map.active_gid, 4100);
    let addrs = EntityAddrVec::one(EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), 4242));
    let made = MgrMap::active(map.epoch, "x", 4100, addrs, map.active_change);
    assert_eq!(made, map);
}

#[test]
fn file_system_maps() {
    let mut r = front("mds_map");
    let (_fsid, _epoch): (Uuid, u32) = (r.get().unwrap(), r.u32().unwrap());
    let map: MdsMap = check(&r.blob().unwrap());
    assert_eq!(map.fs_name, "monfs");
    assert_eq!(map.compat.incompat, types::fsmap::FeatureSet::of(&MDS_INCOMPAT));
    let mut r = front("fs_map");
    r.u32().unwrap();
    let all: FsMap = check(&r.rest());
    assert_eq!(all.default_compat, types::fsmap::CompatSet::fs_default());
    let mut r = front("fsmap_user");
    r.u32().unwrap();
    let user: FsMapUser = check(&r.rest());
    assert_eq!(all.for_users(), user);
    // Empty maps survive a round trip, too.
    check::<FsMap>(&FsMap::default().to_bytes());
    check::<MdsMap>(&MdsMap::default().to_bytes());
}

#[test]
fn pool_statistics() {
    let mut r = front("getpoolstats_reply");
    r.skip(18 + 16).unwrap();
    let n = r.u32().unwrap();
    assert_eq!(n, 8);
    for _ in 0..n {
        let name = r.string().unwrap();
        let at = r.clone();
        let stat: PoolStat = r.get().unwrap();
        let len = r.position() - at.position();
        assert_eq!(stat.to_bytes(), at.clone().bytes(len).unwrap(), "{name}");
    }
    assert_eq!(r.remaining(), 1);
}

#[test]
fn times_print_as_ceph_prints_them() {
    let t = Utime {
        sec: 1_700_000_000,
        nsec: 0,
    };
    assert_eq!(t.to_string(), "2023-11-14T22:13:20.000000+0000");
}
