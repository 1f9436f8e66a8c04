//! Limits are set, shown and taken away.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use serde_json::{Value, json};

fn run(c: &mut Cluster, command: Value, code: i32, status: &str) {
    let out = c.run(&command.to_string(), b"");
    assert_eq!((out.code, out.status.as_str()), (code, status), "{command}");
}

fn set(what: &str, who: &str, amounts: &[&str]) -> Value {
    json!({"prefix": "qos set", "what": what, "who": who, "amounts": amounts})
}

#[test]
fn of_pools_namespaces_and_users() {
    let c = &mut Cluster::with_osds(1);
    let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8});
    assert_eq!(c.run(&pool.to_string(), b"").code, 0);
    run(c, set("pool", "p", &["iops_limit=500", "iops_burst=1000"]), 0, "");
    run(c, set("namespace", "p/ns", &["write_bps_limit=20M"]), 0, "");
    run(c, set("user", "client.admin", &["bps_limit=1G"]), 0, "");
    // What is said later is added.
    run(c, set("pool", "p", &["read_iops_limit=7"]), 0, "");
    let all = c.json(r#"{"prefix":"qos ls"}"#);
    let want = json!([
        {"what": "pool", "who": "p", "iops_limit": 500, "iops_burst": 1000, "iops_burst_seconds": 1,
         "read_iops_limit": 7},
        {"what": "namespace", "who": "p/ns", "write_bps_limit": 20 << 20},
        {"what": "user", "who": "client.admin", "bps_limit": 1 << 30},
    ]);
    assert_eq!(all, want);
    let text = c.text(r#"{"prefix":"qos ls"}"#);
    assert!(
        text.contains("namespace p/ns: write_bps_limit=20 MiB\n"),
        "{text}"
    );

    // A reservation is one more amount, and can be taken away alone.
    run(c, set("pool", "p", &["iops_reserve=90", "bps_reserve=2M"]), 0, "");
    let all = c.json(r#"{"prefix":"qos ls"}"#);
    let reserved = (
        &all[0]["iops_reserve"],
        &all[0]["bps_reserve"],
        &all[0]["iops_limit"],
    );
    assert_eq!(reserved, (&json!(90), &json!(2 << 20), &json!(500)));
    let text = c.text(r#"{"prefix":"qos ls"}"#);
    assert!(text.contains(" iops_reserve=90 bps_reserve=2 MiB\n"), "{text}");
    let too_much = set("pool", "p", &["iops_reserve=501"]);
    run(c, too_much, -22, "iops_reserve is above iops_limit");
    let kinds = ["iops_reserve", "bps_reserve"];
    let rm = json!({"prefix": "qos rm", "what": "pool", "who": "p", "kinds": kinds});
    run(c, rm, 0, "");

    for (command, code, status) in [
        (set("pool", "q", &["iops_limit=5"]), -2, "unrecognized pool 'q'"),
        (set("pool", "p", &["iops=5"]), -22, "there is no limit iops"),
        (
            set("pool", "p", &["iops_limit"]),
            -22,
            "'iops_limit' is not NAME=AMOUNT",
        ),
        (
            set("pool", "p", &["iops_limit=-1"]),
            -22,
            "'-1' is not a number (20000, 64K, 20M, 1G)",
        ),
        (
            set("pool", "p", &["iops_burst=500"]),
            -22,
            "iops_burst is not above iops_limit",
        ),
        (
            set("namespace", "p", &["iops_limit=5"]),
            -22,
            "'p' is not POOL/NAMESPACE",
        ),
        (
            set("user", "osd.0", &["iops_limit=5"]),
            -22,
            "'osd.0' is not client.NAME",
        ),
        (
            set("user", "client.nobody", &["iops_limit=5"]),
            -2,
            "there is no user client.nobody",
        ),
        (
            set("image", "p", &["iops_limit=5"]),
            -22,
            "'p' is not POOL/IMAGE or POOL/NAMESPACE/IMAGE",
        ),
    ] {
        run(c, command, code, status);
    }
    assert_eq!(
        c.json(r#"{"prefix":"qos ls"}"#),
        want,
        "what was refused changed nothing"
    );

    let rm = |what: &str, who: &str, kinds: &[&str]| json!({"prefix": "qos rm", "what": what, "who": who, "kinds": kinds});
    run(c, rm("pool", "p", &["iops"]), 0, "");
    run(c, rm("user", "client.admin", &[]), 0, "");
    run(
        c,
        rm("user", "client.admin", &[]),
        -2,
        "user client.admin has no limits",
    );
    let all = c.json(r#"{"prefix":"qos ls"}"#);
    assert_eq!(all[0], json!({"what": "pool", "who": "p", "read_iops_limit": 7}));
    assert_eq!(all.as_array().unwrap().len(), 2);

    // They end with their pool.
    let key = "mon_allow_pool_delete";
    let allow = json!({"prefix": "config set", "who": "mon", "name": key, "value": "true"});
    assert_eq!(c.run(&allow.to_string(), b"").code, 0);
    let delete =
        json!({"prefix": "osd pool delete", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true});
    assert_eq!(c.run(&delete.to_string(), b"").code, 0);
    c.upkeep();
    assert_eq!(c.json(r#"{"prefix":"qos ls"}"#), json!([]));
}

/// One step takes so many rows that a transaction holds them, and the next the rest.
#[test]
fn many_that_have_both_end_with_their_pool_in_steps() {
    let c = &mut Cluster::with_osds(1);
    let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8});
    assert_eq!(c.run(&pool.to_string(), b"").code, 0);
    for i in 0..600 {
        let both = &["iops_limit=50", "iops_reserve=5"];
        run(c, set("namespace", &format!("p/n{i}"), both), 0, "");
    }
    let key = "mon_allow_pool_delete";
    let allow = json!({"prefix": "config set", "who": "mon", "name": key, "value": "true"});
    assert_eq!(c.run(&allow.to_string(), b"").code, 0);
    let delete =
        json!({"prefix": "osd pool delete", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true});
    assert_eq!(c.run(&delete.to_string(), b"").code, 0);
    c.upkeep();
    let left = c.json(r#"{"prefix":"qos ls"}"#).as_array().map(Vec::len);
    assert!(left.is_some_and(|n| (1..600).contains(&n)), "{left:?}");
    c.upkeep();
    assert_eq!(c.json(r#"{"prefix":"qos ls"}"#), json!([]));
}
