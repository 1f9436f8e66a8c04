//! Transcripts about copies: sizes, placement by hand, what is safe, what a cluster with failed OSDs says. The texts
//! are those of 16.2.15, recorded from it where it can be brought into the same state.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use types::pgstats::{SlowOp, Wait, pg_state, wait};
use types::{PgId, Utime};

fn check(c: &mut Cluster, command: &str, code: i32, status: &str) {
    let out = c.run(command, b"");
    assert_eq!((out.code, out.status.as_str()), (code, status), "{command}");
}

fn shown(c: &mut Cluster, command: &str, want: &str) {
    let have = c.text(command);
    assert!(have.contains(want), "{command}:\n{have}\nlacks:\n{want}");
}

fn ok(c: &mut Cluster, command: &str) {
    let out = c.run(command, b"");
    assert_eq!(out.code, 0, "{command}: {}", out.status);
}

/// Four OSDs, a pool of three copies named p with 8 PGs, in use by rbd.
fn four() -> Cluster {
    let mut c = Cluster::with_osds(4);
    ok(
        &mut c,
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"pgp_num":8,"size":3}"#,
    );
    ok(
        &mut c,
        r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#,
    );
    c
}

fn sizes(c: &mut Cluster, pool: &str) -> (u64, u64) {
    let of = |c: &mut Cluster, var: &str| {
        let v = c.json(&format!(
            r#"{{"prefix":"osd pool get","pool":"{pool}","var":"{var}"}}"#
        ));
        v[var].as_u64().unwrap()
    };
    (of(c, "size"), of(c, "min_size"))
}

#[test]
fn sizes_of_pools() {
    let c = &mut four();
    assert_eq!(sizes(c, "p"), (3, 2));
    let set = |var: &str, val: &str| {
        format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#)
    };
    check(
        c,
        &set("min_size", "4"),
        -22,
        "pool min_size must be between 1 and size, which is set to 3",
    );
    check(
        c,
        &set("min_size", "0"),
        -22,
        "pool min_size must be between 1 and size, which is set to 3",
    );
    check(c, &set("size", "4"), 0, "set pool 1 size to 4");
    assert_eq!(sizes(c, "p"), (4, 2));
    check(c, &set("size", "5"), 0, "set pool 1 size to 5");
    assert_eq!(sizes(c, "p"), (5, 3));
    check(c, &set("size", "2"), 0, "set pool 1 size to 2");
    assert_eq!(sizes(c, "p"), (2, 1));
    check(c, &set("size", "0"), -22, "pool size must be between 1 and 10");
    check(
        c,
        &set("size", "1"),
        -1,
        "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
    );
    ok(
        c,
        r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"1","yes_i_really_mean_it":true}"#,
    );
    assert_eq!(sizes(c, "p"), (1, 1));
    ok(
        c,
        r#"{"prefix":"config set","who":"global","name":"mon_allow_pool_size_one","value":"false"}"#,
    );
    check(
        c,
        r#"{"prefix":"osd pool create","pool":"one","size":1}"#,
        -1,
        "configuring pool size as 1 is disabled by default.",
    );
}

/// Without a wish a pool takes three copies, or as many as its rule finds places for.
#[test]
fn the_size_of_a_pool_that_names_none() {
    for (osds, want) in [(1, 1), (2, 2), (3, 3), (5, 3)] {
        let c = &mut Cluster::with_osds(osds);
        ok(
            c,
            r#"{"prefix":"config rm","who":"global","name":"osd_pool_default_size"}"#,
        );
        ok(c, r#"{"prefix":"osd pool create","pool":"d","pg_num":8}"#);
        assert_eq!(sizes(c, "d").0, want, "{osds} OSDs");
    }
    // Over hosts there is one place on one host.
    let c = &mut Cluster::with_osds(3);
    ok(
        c,
        r#"{"prefix":"config rm","who":"global","name":"osd_pool_default_size"}"#,
    );
    ok(
        c,
        r#"{"prefix":"osd crush rule create-replicated","name":"hosts","root":"default","type":"host"}"#,
    );
    ok(
        c,
        r#"{"prefix":"osd pool create","pool":"h","pg_num":8,"rule":"hosts"}"#,
    );
    assert_eq!(sizes(c, "h").0, 1);
}

#[test]
fn placement_by_hand() {
    let c = &mut four();
    let up = c.state.osdmap.pg_to_up_acting(PgId::new(1, 7)).up;
    let other = (0..4).find(|o| !up.contains(o)).unwrap();
    let map = |ids: &str| format!(r#"{{"prefix":"osd pg-upmap","pgid":"1.7","id":[{ids}]}}"#);
    check(c, &map("3,0,2"), 0, "set 1.7 pg_upmap mapping to [3,0,2]");
    check(
        c,
        &map("0,0,1"),
        0,
        "osd.0 already exists, set 1.7 pg_upmap mapping to [0,1]",
    );
    check(c, &map("99,1,2"), -2, "osd.99 does not exist");
    check(c, &map("0,1,2,3"), -22, "num of osds (4) > pool size (3)");
    check(
        c,
        r#"{"prefix":"osd pg-upmap","pgid":"99.0","id":[0]}"#,
        -2,
        "pg 99.0 does not exist",
    );
    let rm = r#"{"prefix":"osd rm-pg-upmap","pgid":"1.7"}"#;
    check(c, rm, 0, "clear 1.7 pg_upmap mapping");
    check(c, rm, 0, "clear 1.7 pg_upmap mapping");
    assert_eq!(c.state.osdmap.pg_to_up_acting(PgId::new(1, 7)).up, up);
    let items = |ids: &str| format!(r#"{{"prefix":"osd pg-upmap-items","pgid":"1.7","id":[{ids}]}}"#);
    let from = up[2];
    check(
        c,
        &items(&format!("{from},{other}")),
        0,
        &format!("set 1.7 pg_upmap_items mapping to [{from}->{other}]"),
    );
    let moved = c.state.osdmap.pg_to_up_acting(PgId::new(1, 7)).up;
    assert_eq!(moved, [up[0], up[1], other]);
    check(
        c,
        &items("3,3"),
        -22,
        "from osd.3 == to osd.3, no valid upmap items(pairs) is specified",
    );
    check(
        c,
        &items("3"),
        -22,
        "you must specify pairs of osd ids to be remapped",
    );
    check(c, &items("98,99"), -2, "osd.98 does not exist");
    ok(c, r#"{"prefix":"osd rm-pg-upmap-items","pgid":"1.7"}"#);
    assert!(c.state.osdmap.pg_upmap_items.is_empty());
    check(
        c,
        r#"{"prefix":"osd pg-temp","pgid":"1.7"}"#,
        0,
        "done cleaning up pg_temp of 1.7",
    );
}

#[test]
fn buckets_in_several_places() {
    let c = &mut Cluster::new();
    ok(
        c,
        r#"{"prefix":"osd crush add-bucket","name":"r1","type":"rack"}"#,
    );
    let link = r#"{"prefix":"osd crush link","name":"vm","args":["rack=r1"]}"#;
    let id = c.state.osdmap.crush.item_id("vm").unwrap();
    check(
        c,
        link,
        0,
        &format!("linked item id {id} name 'vm' to location {{rack=r1}} in crush map"),
    );
    check(
        c,
        link,
        0,
        &format!("no need to move item id {id} name 'vm' to location {{rack=r1}} in crush map"),
    );
    check(
        c,
        r#"{"prefix":"osd crush link","name":"nosuch","args":["rack=r1"]}"#,
        -2,
        "item nosuch does not exist",
    );
    // Both places follow the weights below.
    let weight = |c: &Cluster, name: &str| {
        let crush = &c.state.osdmap.crush;
        crush.bucket(crush.item_id(name).unwrap()).unwrap().weight
    };
    ok(
        c,
        r#"{"prefix":"osd crush reweight","name":"osd.0","weight":2.0}"#,
    );
    assert_eq!(weight(c, "r1"), weight(c, "vm"));
    assert_eq!(weight(c, "default"), weight(c, "vm"));
    check(
        c,
        r#"{"prefix":"osd crush reweight-all"}"#,
        0,
        "reweighted crush hierarchy",
    );
    let unlink = r#"{"prefix":"osd crush unlink","name":"vm","ancestor":"r1"}"#;
    check(
        c,
        unlink,
        0,
        &format!("removed item id {id} name 'vm' from crush map"),
    );
    check(
        c,
        unlink,
        0,
        &format!("item {id} does not appear in that position"),
    );
    assert_eq!(weight(c, "r1"), 0);
    shown(c, r#"{"prefix":"osd tree"}"#, "host vm");
}

#[test]
fn what_is_safe() {
    let c = &mut four();
    check(
        c,
        r#"{"prefix":"osd safe-to-destroy","ids":["77"]}"#,
        0,
        "OSD(s) 77 are safe to destroy without reducing data durability.",
    );
    let out = c.run(r#"{"prefix":"osd safe-to-destroy","ids":["0"]}"#, b"");
    assert_eq!(out.code, -16);
    assert!(
        out.status.starts_with("OSD(s) 0 have ") && out.status.ends_with(" pgs currently mapped to them. ")
    );
    let stop = |c: &mut Cluster, ids: &str| {
        let out = c.run(&format!(r#"{{"prefix":"osd ok-to-stop","ids":[{ids}]}}"#), b"");
        let v: serde_json::Value = serde_json::from_slice(&out.data).unwrap();
        (out.code, v)
    };
    let (code, v) = stop(c, r#""0""#);
    assert_eq!(
        (code, &v["ok_to_stop"], &v["num_not_ok_pgs"]),
        (0, &true.into(), &0.into())
    );
    assert!(!v["ok_become_degraded"].as_array().unwrap().is_empty());
    let (code, v) = stop(c, r#""0","1","2""#);
    assert_eq!((code, &v["ok_to_stop"]), (-16, &false.into()));
    assert!(!v["bad_become_inactive"].as_array().unwrap().is_empty());
    assert_eq!(stop(c, r#""77""#).0, 0);
    check(
        c,
        r#"{"prefix":"osd purge","id":77,"yes_i_really_mean_it":true}"#,
        0,
        "osd.77 does not exist",
    );
    check(
        c,
        r#"{"prefix":"osd lost","id":0,"yes_i_really_mean_it":true}"#,
        -16,
        "osd.0 is not down",
    );
    assert_eq!(c.run(r#"{"prefix":"osd destroy","id":0}"#, b"").code, -16);
}

#[test]
fn an_osd_less() {
    let c = &mut four();
    assert_eq!(c.text(r#"{"prefix":"health"}"#), "HEALTH_OK\n");
    ok(c, r#"{"prefix":"osd down","ids":["3"]}"#);
    // The new primaries have not reported yet.
    c.each_pg(|s| {
        s.state = pg_state::ACTIVE | pg_state::CLEAN;
        s.stats.sum.num_objects = 10;
    });
    let sick = c
        .state
        .osdmap
        .pgs()
        .filter(|pg| c.state.osdmap.pg_to_up_acting(*pg).acting.len() < 3)
        .count();
    assert!(sick > 0);
    let v = c.json("status");
    let states: Vec<(String, u64)> = v["pgmap"]["pgs_by_state"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            (
                s["state_name"].as_str().unwrap().to_string(),
                s["count"].as_u64().unwrap(),
            )
        })
        .collect();
    assert!(
        states.contains(&("active+undersized+degraded".to_string(), sick as u64)),
        "{states:?}"
    );
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "[WRN] PG_DEGRADED: Degraded data redundancy: ",
    );
    shown(c, r#"{"prefix":"health"}"#, &format!("{sick} pg"));
    shown(c, r#"{"prefix":"doctor"}"#, "RISK     osd.3: is down, on host vm");
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "will be marked out 600 s after it went down",
    );
    ok(c, r#"{"prefix":"osd set","key":"noout"}"#);
    shown(c, r#"{"prefix":"doctor"}"#, "stays in: noout is set");
    shown(c, r#"{"prefix":"doctor"}"#, "or: ceph osd out 3\n");
    // Without room elsewhere that would not help.
    c.pool_bytes(1, 4 << 20);
    (0..3).for_each(|osd| c.fill(osd, 1.0));
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "or add an OSD where its copies find a place\n",
    );
}

#[test]
fn objects_that_lack_copies() {
    let c = &mut four();
    c.each_pg(|s| {
        s.state = pg_state::ACTIVE | pg_state::DEGRADED | pg_state::RECOVERING;
        s.stats.sum.num_objects = 100;
        s.stats.sum.num_object_copies = 300;
        s.stats.sum.num_objects_degraded = 30;
        s.stats.sum.num_objects_misplaced = 3;
    });
    let (all, bad, wrong) = (8 * 300, 8 * 30, 8 * 3);
    let lines = format!(
        "    pgs:     {bad}/{all} objects degraded (10.000%)\n             {wrong}/{all} objects misplaced (1.000%)\n             8 active+recovering+degraded\n"
    );
    shown(c, r#"{"prefix":"status"}"#, &lines);
    shown(
        c,
        r#"{"prefix":"pg stat"}"#,
        &format!("; {bad}/{all} objects degraded (10.000%); {wrong}/{all} objects misplaced (1.000%)"),
    );
    let v = c.json("status");
    assert_eq!(v["pgmap"]["degraded_objects"], bad);
    assert_eq!(v["pgmap"]["misplaced_total"], all);
    shown(
        c,
        r#"{"prefix":"osd pool stats"}"#,
        &format!("pool p id 1\n  {bad}/{all} objects degraded (10.000%)\n"),
    );
    shown(
        c,
        r#"{"prefix":"health"}"#,
        &format!("Degraded data redundancy: {bad}/{all} objects degraded (10.000%), 8 pgs degraded"),
    );
    c.progress.observe(&c.state, &c.stats, c.now);
    shown(
        c,
        r#"{"prefix":"status"}"#,
        "  progress:\n    Global Recovery Event (0s)\n      [....",
    );
    let v = c.json("progress json");
    assert_eq!(v["events"][0]["copies_left"], bad + wrong);
    shown(c, r#"{"prefix":"doctor"}"#, "NOTE     healing: ");
    ok(c, r#"{"prefix":"osd set","key":"norecover"}"#);
    c.each_pg(|s| s.stats.sum.num_objects_degraded = 5);
    shown(c, r#"{"prefix":"doctor"}"#, "healing is held up by norecover");
}

#[test]
fn damage_is_an_error() {
    let c = &mut four();
    c.each_pg(|s| {
        if s.pgid.seed == 0 {
            s.state |= pg_state::INCONSISTENT;
            s.stats.sum.num_scrub_errors = 3;
        }
        if s.pgid.seed == 1 {
            s.stats.sum.num_objects = 100;
            s.stats.sum.num_objects_unfound = 1;
        }
    });
    shown(c, r#"{"prefix":"health"}"#, "HEALTH_ERR");
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "[ERR] PG_DAMAGED: Possible data damage: 1 pg inconsistent\n    pg 1.0 is active+clean+inconsistent, acting [",
    );
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "[ERR] OSD_SCRUB_ERRORS: 3 scrub errors\n",
    );
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "objects unfound (0.877%)\n    pg 1.1 has 1 unfound objects\n",
    );
    assert_eq!(
        c.text(r#"{"prefix":"pg debug","debugop":"unfound_objects_exist"}"#),
        "TRUE"
    );
}

/// What may pass by itself is raised when it has lasted a minute.
#[test]
fn inactive_for_long() {
    let c = &mut four();
    let now = c.now;
    let before = |sec: u32| Utime {
        sec: now.sec - sec,
        nsec: 0,
    };
    c.each_pg(|s| {
        s.state = pg_state::PEERING;
        s.last_active = before(10);
    });
    assert_eq!(c.text(r#"{"prefix":"health"}"#), "HEALTH_OK\n");
    c.each_pg(|s| {
        s.last_active = before(61);
        s.blocked_by = vec![2];
    });
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "[WRN] PG_AVAILABILITY: Reduced data availability: 8 pgs inactive, 8 pgs peering\n    pg 1.0 is stuck inactive for 61s, current state peering, last acting [",
    );
    let v = c.json("osd blocked-by");
    assert_eq!(
        v["osd_blocked_by"]["osd_blocked_by_infos"],
        serde_json::json!([{"osd": 2, "num_blocked": 8}])
    );
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "BLOCKED  pg 1.0, 1.1, 1.2, 1.3, 1.4 and 3 more: cannot serve (peering); waits for osd.2 on host vm (for 61s)\n",
    );
}

/// A primary that does not know since when: this monitor does.
#[test]
fn inactive_since_the_monitor_saw_it() {
    let c = &mut four();
    c.each_pg(|s| {
        s.state = pg_state::PEERING;
        s.last_active = Utime::ZERO;
    });
    let (state, stats) = (c.state.clone(), c.stats.clone());
    c.progress.observe(&state, &stats, c.now);
    c.now.sec += 59;
    assert_eq!(c.text(r#"{"prefix":"health"}"#), "HEALTH_OK\n");
    c.now.sec += 2;
    shown(
        c,
        r#"{"prefix":"health"}"#,
        "Reduced data availability: 8 pgs inactive, 8 pgs peering",
    );
    shown(c, r#"{"prefix":"doctor"}"#, "(for 61s)");
}

#[test]
fn slow_operations_and_what_they_wait_for() {
    let c = &mut four();
    let since = Utime {
        sec: c.now.sec - 36,
        nsec: 0,
    };
    let op = |kind: u8, osd: i32, who: &str| SlowOp {
        since,
        client: "client.4123 10.0.0.7:0/33".into(),
        what: "osd_op(client.4123:17 1.3 rbd_header.1 [notify])".into(),
        pg: PgId::new(1, 3),
        object: "rbd_header.1".into(),
        waits: vec![Wait {
            kind,
            osd,
            who: who.into(),
            since,
        }],
    };
    c.each_osd(1, |s| {
        s.slow_ops = vec![op(wait::WATCHER, -1, "client.4200 10.0.0.8:0/77")];
        s.slow_ops_count = 1;
    });
    shown(
        c,
        r#"{"prefix":"health"}"#,
        "HEALTH_WARN 1 slow ops, oldest one blocked for 36 sec, osd.1 has slow ops\n",
    );
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "watcher client.4200 10.0.0.8:0/77 has not answered (since ",
    );
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "next: if that client is dead: ceph osd blocklist add 10.0.0.8:0/77\n",
    );
    c.each_osd(2, |s| {
        s.slow_ops = vec![op(wait::DURABLE, 3, "")];
        s.slow_ops_count = 12;
    });
    shown(
        c,
        r#"{"prefix":"health"}"#,
        "13 slow ops, oldest one blocked for 36 sec, daemons [osd.1,osd.2] have slow ops.",
    );
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "osd.3 on host vm has not made it durable",
    );
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "SLOW     11 more operations: wait too",
    );
    let v = c.json("doctor");
    assert_eq!(v["findings"][0]["level"], "slow");
    assert_eq!(v["findings"][0]["seconds"], 36);
}

#[test]
fn a_disk_slower_than_the_others() {
    let c = &mut four();
    for (id, ms) in [(0, 2), (1, 3), (2, 200), (3, 2)] {
        c.each_osd(id, |s| s.commit_latency_ns = ms * 1_000_000);
    }
    shown(
        c,
        r#"{"prefix":"doctor"}"#,
        "SLOW     osd.2: its disk takes 200 ms to commit, the others of class hdd 2.0 ms; writes wait for it\n",
    );
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "[WRN] OSD_SLOW_DISK: 1 osds have a disk much slower than the others\n    osd.2 on host vm takes 200 ms to commit, the \
         others of class hdd 2.0 ms\n",
    );
    // A class of its own: nothing to compare it with.
    ok(c, r#"{"prefix":"osd crush rm-device-class","ids":["2"]}"#);
    for (id, ms) in [(0, 2), (1, 3), (2, 200), (3, 2)] {
        c.each_osd(id, |s| s.commit_latency_ns = ms * 1_000_000);
    }
    assert!(!c.text(r#"{"prefix":"doctor"}"#).contains("its disk"));
}

#[test]
fn nothing_to_tell() {
    let c = &mut four();
    assert_eq!(
        c.text(r#"{"prefix":"doctor"}"#),
        "Nothing is blocked, slow or at risk.\n"
    );
    assert_eq!(c.json("doctor"), serde_json::json!({"findings": []}));
    let out = c.run(r#"{"prefix":"progress"}"#, b"");
    assert_eq!(out.status, "Nothing in progress");
}

#[test]
fn several_monitors() {
    let c = &mut Cluster::new();
    c.add_monitor("b", 3301);
    c.add_monitor("c", 3302);
    let v = c.json("quorum_status");
    assert_eq!(v["quorum_names"], serde_json::json!(["a"]));
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "[WRN] MON_DOWN: 2/3 mons down, quorum a\n    mon.b (rank 1) addr [v2:127.0.0.1:3301/0] is down (out of quorum)\n",
    );
    for name in ["a", "b", "c"] {
        c.monitor_lives(name);
    }
    let v = c.json("quorum_status");
    assert_eq!(v["quorum"], serde_json::json!([0, 1, 2]));
    assert_eq!(v["quorum_leader_name"], "a");
    assert_eq!(c.text(r#"{"prefix":"health"}"#), "HEALTH_OK\n");
    shown(c, r#"{"prefix":"status"}"#, "mon: 3 daemons, quorum a,b,c (age ");
    shown(c, r#"{"prefix":"mon stat"}"#, "leader 0 a, quorum 0,1,2 a,b,c\n");
    let v = c.json("mon metadata");
    assert_eq!(v[1]["hostname"], "host-b");
    // Any of them answers alike; only who answers differs.
    c.mon.name = "b".into();
    c.mon.rank = 1;
    assert_eq!(c.json("quorum_status")["quorum_leader_name"], "a");
    assert_eq!(c.json("mon_status")["state"], "peon");
    check(
        c,
        r#"{"prefix":"mon ok-to-stop","ids":["a","c"]}"#,
        0,
        "quorum should be preserved (b) after stopping [a,c]",
    );
    check(
        c,
        r#"{"prefix":"mon rm","name":"c"}"#,
        0,
        "removing mon.c at [v2:127.0.0.1:3302/0], there will be 2 monitors",
    );
    check(
        c,
        r#"{"prefix":"mon rm","name":"c"}"#,
        0,
        "mon.c does not exist or has already been removed",
    );
    ok(c, r#"{"prefix":"mon rm","name":"a"}"#);
    check(
        c,
        r#"{"prefix":"mon rm","name":"b"}"#,
        -22,
        "error: refusing removal of last monitor b",
    );
}

/// Pools of one copy are warned of only where they could have more.
#[test]
fn one_copy_is_no_news_where_there_is_one_place() {
    for (osds, warned) in [(1, false), (2, true)] {
        let c = &mut Cluster::with_osds(osds);
        ok(
            c,
            r#"{"prefix":"config rm","who":"mon","name":"mon_warn_on_pool_no_redundancy"}"#,
        );
        ok(
            c,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"size":1}"#,
        );
        let checks = c.json("health")["checks"].clone();
        assert_eq!(
            checks.get("POOL_NO_REDUNDANCY").is_some(),
            warned,
            "{osds}: {checks}"
        );
    }
}

/// An OSD that may serve is asked to go down; one that cannot is marked at once, if that is still so.
#[test]
fn down_of_one_that_serves_is_a_wish() {
    let c = &mut Cluster::new();
    c.leased(&[0, 1]);
    let down = |c: &mut Cluster, ids: &str| c.run(&format!(r#"{{"prefix":"osd down","ids":[{ids}]}}"#), b"");
    let out = down(c, r#""0","2""#);
    assert_eq!(out.status, "marked down osd.0. marked down osd.2. ");
    assert_eq!(out.changes.unleased, [2]);
    assert!(c.state.osdmap.is_up(0) && c.state.osdmap.is_down(2));
    assert!(c.state.is_asked_down(0) && !c.state.is_asked_down(1));
    // A wish alone makes no map, and is forgotten once it is down.
    let epoch = c.state.osdmap.epoch;
    assert_eq!(
        down(c, r#""all""#).status,
        "marked down osd.0. marked down osd.1. "
    );
    assert_eq!(c.state.osdmap.epoch, epoch);
    c.leased(&[1]);
    down(c, r#""0""#);
    assert!(c.state.osdmap.is_down(0));
    c.boot(0);
    assert!(c.state.osdmap.is_up(0) && !c.state.is_asked_down(0));
}
