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

/// The message bodies of one type among those recorded with a file system.
fn recorded(kind: u64) -> Vec<(String, Reader)> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../vectors/monitor/file-systems.jsonl"
    );
    let lines = std::fs::read_to_string(path).unwrap();
    let all = lines
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
    let front = |v: &serde_json::Value| Bytes::from(hex::decode(v["front"].as_str().unwrap()).unwrap());
    all.filter(|v| v["type"] == kind)
        .map(|v| (v["name"].as_str().unwrap().to_string(), Reader::new(front(&v))))
        .collect()
}

/// What a client saw while its metadata server was killed and started again.
#[test]
fn maps_through_a_restart_of_the_metadata_server() {
    let mut states = Vec::new();
    for (name, mut r) in recorded(21) {
        let (_fsid, epoch): (Uuid, u32) = (r.get().unwrap(), r.u32().unwrap());
        let map: MdsMap = check(&r.blob().unwrap());
        assert_eq!(r.string().unwrap(), map.fs_name, "{name}");
        let info = map.mds_info.values().next();
        assert_eq!(info.map(|i| i.gid), map.up.get(&0).copied(), "{name}");
        let Some(info) = info else {
            // Of a file system that is not there.
            let absent = MdsMap {
                epoch,
                ..MdsMap::default()
            };
            assert_eq!(map, absent, "{name}");
            continue;
        };
        assert_eq!((map.epoch, map.in_ranks), (epoch, [0].into()), "{name}");
        states.push(info.state);
    }
    use types::fsmap::MdsState::*;
    let restart = [Active, Active, Replay, Reconnect, Rejoin, ClientReplay];
    assert_eq!(states, restart);
}

#[test]
fn a_map_of_one_file_system_for_tools_and_for_users() {
    let (_, mut r) = recorded(45).remove(0);
    let epoch = r.u32().unwrap();
    let all: FsMap = check(&r.rest());
    assert_eq!(all.epoch, epoch);
    assert_eq!(all.filesystems.len(), 1);
    let (_, mut r) = recorded(103).remove(0);
    let epoch = r.u32().unwrap();
    let user: FsMapUser = check(&r.rest());
    assert_eq!((user.epoch, user.legacy_client_fscid), (epoch, 1));
    assert_eq!(user.filesystems[0].name, "fs1");
}

#[test]
fn an_unknown_state_of_a_metadata_server_is_an_error() {
    let known = types::fsmap::MdsState::Rejoin.to_bytes();
    assert_eq!(known, Bytes::from_static(&[11, 0, 0, 0]));
    assert!(types::fsmap::MdsState::from_bytes(&Bytes::from_static(&[77, 0, 0, 0])).is_err());
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
