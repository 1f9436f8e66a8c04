//! What the maps say, compared with the JSON dumps that Ceph's tool made of the same files; and the changes that
//! a monitor makes.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::PathBuf;
use types::osdmap::{Incremental, NewCluster, NewPool, OsdBoot, map_flag, osd_state};
use types::pool::{PoolOption, autoscale_mode_name, cache_mode_name, pool_flag};
use types::release::name as release_name;
use types::{EntityAddr, EntityAddrVec, OsdMap, Utime, Uuid};

use denc::Decode;

fn vector(name: &str, ext: &str) -> Vec<u8> {
    let dir = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../vectors/placement/osdmap"
    ));
    std::fs::read(dir.join(format!("{name}.{ext}"))).unwrap()
}

fn sorted(mut v: Vec<&'static str>) -> Vec<&'static str> {
    v.sort_unstable();
    v
}

fn check_pools(map: &OsdMap, dump: &Value) {
    assert_eq!(dump["pools"].as_array().unwrap().len(), map.pools.len());
    for p in dump["pools"].as_array().unwrap() {
        let id = map.pool_by_name(p["pool_name"].as_str().unwrap()).unwrap();
        assert_eq!(id, p["pool"]);
        let pool = map.pool(id).unwrap();
        assert_eq!(pool_flag::names(pool.flags), p["flags_names"]);
        assert_eq!(pool.pg_num, p["pg_num"]);
        assert_eq!(pool.pgp_num, p["pg_placement_num"]);
        assert_eq!(pool.min_size, p["min_size"]);
        assert_eq!(pool.create_time.to_string(), p["create_time"]);
        assert_eq!(pool.last_change.to_string(), p["last_change"]);
        assert_eq!(pool.quota_max_bytes, p["quota_max_bytes"]);
        assert_eq!(pool.stripe_width, p["stripe_width"]);
        assert_eq!(
            autoscale_mode_name(pool.pg_autoscale_mode),
            p["pg_autoscale_mode"]
        );
        assert_eq!(cache_mode_name(pool.cache_mode), p["cache_mode"]);
        let mode = if pool.is_pool_snaps_mode() {
            "pool"
        } else {
            "selfmanaged"
        };
        assert_eq!(mode, p["snap_mode"]);
        assert_eq!(pool.snap_seq, p["snap_seq"]);
        let snaps: Vec<&str> = pool.snaps.values().map(|s| s.name.as_str()).collect();
        let want: Vec<&str> = p["pool_snaps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["name"].as_str().unwrap())
            .collect();
        assert_eq!(snaps, want);
        let options = p["options"].as_object().unwrap();
        assert_eq!(pool.opts.iter().count(), options.len());
        for (name, want) in options {
            match pool.opts.get(name).unwrap() {
                PoolOption::Str(s) => assert_eq!(s, want, "{name}"),
                PoolOption::Int(i) => assert_eq!(*i, want.as_i64().unwrap(), "{name}"),
                PoolOption::Double(d) => assert_eq!(*d, want.as_f64().unwrap(), "{name}"),
            }
        }
        let apps = serde_json::to_value(
            pool.application_metadata
                .iter()
                .map(|(k, v)| {
                    (
                        k.clone(),
                        serde_json::to_value(v.iter().collect::<std::collections::BTreeMap<_, _>>()).unwrap(),
                    )
                })
                .collect::<serde_json::Map<_, _>>(),
        );
        assert_eq!(apps.unwrap(), p["application_metadata"]);
    }
}

fn check_osds(map: &OsdMap, dump: &Value) {
    assert_eq!(map.num_osds(), dump["osds"].as_array().unwrap().len());
    for o in dump["osds"].as_array().unwrap() {
        let id = o["osd"].as_i64().unwrap() as i32;
        let slot = map.osd(id).unwrap();
        let names: Vec<Value> = sorted(osd_state::names(slot.state))
            .into_iter()
            .map(Value::from)
            .collect();
        assert_eq!(Value::from(names), o["state"], "osd.{id}");
        assert_eq!(u64::from(map.is_up(id)), o["up"]);
        assert_eq!(u64::from(map.is_in(id)), o["in"]);
        assert_eq!(f64::from(map.weight(id)) / 65536.0, o["weight"].as_f64().unwrap());
        assert_eq!(
            f64::from(map.affinity(id)) / 65536.0,
            o["primary_affinity"].as_f64().unwrap()
        );
        assert_eq!(slot.uuid.to_string(), o["uuid"]);
        assert_eq!(slot.info.up_from, o["up_from"]);
        assert_eq!(slot.info.down_at, o["down_at"]);
        assert_eq!(
            slot.client_addrs.legacy_or_first().place_and_nonce(),
            o["public_addr"]
        );
        let first = &o["public_addrs"]["addrvec"][0];
        if !first.is_null() {
            assert_eq!(slot.client_addrs.first().place(), first["addr"]);
        }
        assert_eq!(
            slot.hb_front_addrs.legacy_or_first().place_and_nonce(),
            o["heartbeat_front_addr"]
        );
    }
}

#[test]
fn maps_say_what_the_tools_dump_says() {
    for name in [
        "minimal", "lab1", "lab4", "lab5", "lab6", "lab8", "lab9", "simple3", "fromconf",
    ] {
        let map = OsdMap::from_bytes(&vector(name, "bin").into()).unwrap();
        let dump: Value = serde_json::from_slice(&vector(name, "json")).unwrap();
        assert_eq!(map.epoch, dump["epoch"], "{name}");
        assert_eq!(map.fsid.to_string(), dump["fsid"]);
        assert_eq!(map.flags, dump["flags_num"], "{name}");
        assert_eq!(map_flag::names(map.flags).join(","), dump["flags"]);
        assert_eq!(release_name(map.require_osd_release), dump["require_osd_release"]);
        assert_eq!(
            release_name(map.min_compat_client()),
            dump["min_compat_client"],
            "{name}"
        );
        assert_eq!(map.pool_max, dump["pool_max"]);
        check_pools(&map, &dump);
        check_osds(&map, &dump);
        for (list, key) in [
            (&map.blocklist, "blocklist"),
            (&map.range_blocklist, "range_blocklist"),
        ] {
            let want = dump[key].as_object().unwrap();
            assert_eq!(list.len(), want.len(), "{name} {key}");
            for (addr, until) in list {
                assert_eq!(until.to_string(), want[&addr.to_string()], "{name}");
            }
        }
    }
}

const NOW: Utime = Utime {
    sec: 1_700_000_000,
    nsec: 0,
};

fn boot(port: u16) -> OsdBoot {
    let sock = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(sock, 1));
    OsdBoot {
        client_addrs: addrs.clone(),
        cluster_addrs: addrs.clone(),
        hb_back_addrs: addrs.clone(),
        hb_front_addrs: addrs,
        features: types::release::feature::ALL_PACIFIC,
    }
}

/// One step of a monitor: the change is sealed, travels as bytes, and leads an old reader to the same map.
fn step(map: &mut OsdMap, change: impl FnOnce(&OsdMap, &mut Incremental)) {
    let mut inc = Incremental::next_after(map, NOW);
    change(map, &mut inc);
    let (next, full, bytes) = map.seal(&mut inc, u64::MAX).unwrap();
    let received = Incremental::from_bytes(&bytes).unwrap();
    let mut reader = map.clone();
    reader.apply(&received).unwrap();
    assert_eq!(reader, next);
    assert_eq!(OsdMap::from_bytes(&full).unwrap(), next);
    assert_eq!(reader.encode_for(u64::MAX), (full, received.full_crc));
    *map = next;
}

fn new_cluster() -> OsdMap {
    let cluster = NewCluster {
        fsid: Uuid([7; 16]),
        created: NOW,
        failure_domain: crush::FailureDomain::Osd,
    };
    let mut map = OsdMap::empty(cluster.fsid);
    map.apply(&cluster.first()).unwrap();
    assert_eq!(map, cluster.map());
    step(&mut map, |m, inc| {
        for i in 0..3 {
            let id = inc.create_osd(m, Uuid([i; 16])).unwrap();
            assert_eq!(id, i32::from(i));
            let place = [("root", "default"), ("host", "vm")];
            inc.crush_mut(m).add_osd(id, 0x10000, &place).unwrap();
        }
    });
    assert_eq!(map.osd(0).unwrap().state, osd_state::EXISTS | osd_state::NEW);
    step(&mut map, |m, inc| {
        for id in 0..3 {
            inc.boot_osd(m, id, &boot(6800 + id as u16));
        }
    });
    map
}

#[test]
fn life_of_an_osd() {
    let mut map = new_cluster();
    assert_eq!((map.num_osds(), map.num_up_osds(), map.num_in_osds()), (3, 3, 3));
    assert_eq!(map.osd(1).unwrap().state, osd_state::EXISTS | osd_state::UP);
    step(&mut map, |m, inc| {
        inc.mark_down(m, 1);
        inc.mark_down(m, 1); // told twice, still down
    });
    assert!(map.is_down(1) && map.is_in(1));
    assert_eq!(map.osd(1).unwrap().info.down_at, map.epoch);
    step(&mut map, |m, inc| inc.mark_down(m, 1)); // and does not come up again
    assert!(map.is_down(1));
    step(&mut map, |m, inc| {
        inc.set_weight(1, 0x8000);
        let _ = m;
    });
    step(&mut map, |m, inc| inc.auto_out(m, 1));
    assert!(!map.is_in(1));
    step(&mut map, |m, inc| inc.boot_osd(m, 1, &boot(6900)));
    assert!(map.is_up(1));
    assert_eq!(map.weight(1), 0x8000, "the weight before it went out");
    step(&mut map, |m, inc| inc.mark_out(m, 2));
    assert!(!map.is_in(2) && map.is_up(2));
    step(&mut map, |m, inc| inc.mark_in(m, 2));
    assert_eq!(map.weight(2), 0x10000);
    step(&mut map, |m, inc| {
        inc.remove_osd(m, 2);
        inc.crush_mut(m).remove_item("osd.2").unwrap();
    });
    assert!(!map.exists(2) && map.max_osd() == 3);
    assert_eq!(map.crush.devices_under(-1), [0, 1]);
    step(&mut map, |m, inc| {
        // A freed slot is used again.
        assert_eq!(inc.create_osd(m, Uuid([9; 16])), Some(2));
    });
    assert!(map.exists(2));
}

#[test]
fn life_of_a_pool() {
    let mut map = new_cluster();
    let new = NewPool {
        name: "rbd".to_string(),
        pg_num: 8,
        application: "rbd".to_string(),
        ..NewPool::default()
    };
    step(&mut map, |m, inc| {
        assert_eq!(inc.create_pool(m, &new), 1);
    });
    assert_eq!((map.pool(1).unwrap().size, map.pool(1).unwrap().min_size), (3, 2));
    assert_eq!(map.pgs().count(), 8);
    for pg in map.pgs() {
        let sets = map.pg_to_up_acting(pg);
        assert_eq!(sets.acting.len(), 3);
        assert_eq!(sets.acting_primary, sets.acting[0]);
    }
    // Self-managed snapshots: the first id is 2; removals take a number, too.
    let mut ids = Vec::new();
    step(&mut map, |m, inc| {
        let epoch = inc.epoch;
        ids.push(inc.pool_mut(m, 1).unwrap().new_selfmanaged_snap(epoch));
        ids.push(inc.pool_mut(m, 1).unwrap().new_selfmanaged_snap(epoch));
    });
    assert_eq!(ids, [2, 3]);
    step(&mut map, |m, inc| {
        let epoch = inc.epoch;
        let pool = inc.pool_mut(m, 1).unwrap();
        assert!(pool.remove_selfmanaged_snap(9, epoch).is_none());
        pool.remove_selfmanaged_snap(2, epoch).unwrap();
        inc.new_removed_snaps.entry(1).or_default().insert(2);
    });
    assert_eq!(map.pool(1).unwrap().snap_seq, 4);
    assert!(map.removed_snaps_queue[&1].contains(2));
    step(&mut map, |_, inc| {
        inc.new_purged_snaps.entry(1).or_default().insert(2)
    });
    assert!(map.removed_snaps_queue.is_empty() && map.new_removed_snaps.is_empty());
    step(&mut map, |m, inc| {
        let epoch = inc.epoch;
        inc.pool_mut(m, 1).unwrap().set_pg_num(12, epoch);
    });
    assert_eq!(map.pgs().count(), 12);
    step(&mut map, |m, inc| {
        inc.new_pg_temp.insert(types::PgId::new(1, 3), vec![2, 1]);
        let _ = m;
    });
    assert_eq!(map.pg_to_up_acting(types::PgId::new(1, 3)).acting, [2, 1]);
    step(&mut map, |m, inc| inc.delete_pool(m, 1));
    assert!(map.pools.is_empty() && map.pg_temp.is_empty());
    step(&mut map, |m, inc| {
        assert_eq!(inc.create_pool(m, &new), 2, "ids are never used again");
    });
}

#[test]
fn refused_incrementals_change_nothing() {
    let map = new_cluster();
    let check = |change: &dyn Fn(&mut Incremental), words: &str| {
        let mut inc = Incremental::next_after(&map, NOW);
        change(&mut inc);
        let mut copy = map.clone();
        let e = copy.apply(&inc).unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
        assert_eq!(copy, map);
    };
    check(&|inc| inc.epoch += 1, "is for epoch");
    check(&|inc| inc.fsid = Uuid([1; 16]), "another cluster");
    check(&|inc| inc.new_state = [(5, 2)].into(), "osd.5 is beyond");
    check(&|inc| inc.new_state = [(-1, 2)].into(), "osd.-1 is beyond");
    check(&|inc| inc.new_max_osd = Some(i32::MAX), "too many");
    check(
        &|inc| inc.new_pools = [(4, types::PgPool::default())].into(),
        "names would differ",
    );
    check(
        &|inc| inc.new_pool_names = [(4, "x".to_string())].into(),
        "names would differ",
    );
    check(
        &|inc| {
            inc.new_up_client.insert(0, EntityAddrVec::default());
        },
        "heartbeat",
    );
    check(
        &|inc| inc.new_purged_snaps = [(4, types::IntervalSet::new())].into(),
        "pool 4",
    );
    check(
        &|inc| inc.fullmap = Some(bytes::Bytes::from_static(b"junk")),
        "full map",
    );
}
