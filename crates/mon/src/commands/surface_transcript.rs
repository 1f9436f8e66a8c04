//! Transcripts of commands that users know from Ceph and seldom give: classes, weight sets, new OSDs, what is not here.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use serde_json::{Value, json};

fn check(c: &mut Cluster, command: Value, code: i32, status: &str) {
    with(c, command, "", code, status);
}

fn with(c: &mut Cluster, command: Value, input: &str, code: i32, status: &str) {
    let out = c.run(&command.to_string(), input.as_bytes());
    assert_eq!((out.code, out.status.as_str()), (code, status), "{command}");
}

fn text(c: &mut Cluster, command: Value) -> String {
    let out = c.run(&command.to_string(), b"");
    assert_eq!(out.code, 0, "{command}: {}", out.status);
    String::from_utf8(out.data.to_vec()).unwrap()
}

#[test]
fn classes_and_buckets() {
    let c = &mut Cluster::new();
    let class = |what: &str, name: &str| json!({"prefix": format!("osd crush class {what}"), "class": name});
    check(
        c,
        class("create", "foo"),
        0,
        "created class foo with id 1 to crush map",
    );
    check(c, class("create", "foo"), 0, "class 'foo' already exists");
    assert_eq!(
        text(c, json!({"prefix": "osd crush class ls"}))
            .matches('"')
            .count(),
        4
    );
    check(
        c,
        class("rm", "foo"),
        0,
        "removed class foo with id 1 from crush map",
    );
    check(c, class("rm", "foo"), 0, "");
    let rule = json!({"prefix": "osd crush rule create-replicated", "name": "r", "root": "default", "type": "osd",
                      "class": "hdd"});
    check(c, rule, 0, "");
    check(
        c,
        class("rm", "hdd"),
        -16,
        "class 'hdd' still referenced by crush_rule(s): 'r'",
    );
    check(c, json!({"prefix": "osd crush rule rm", "name": "r"}), 0, "");
    check(
        c,
        class("rm", "hdd"),
        0,
        "removed class hdd with id 0 from crush map",
    );
    assert_eq!(
        text(c, json!({"prefix": "osd crush get-device-class", "ids": ["0"]})),
        "\n"
    );

    check(
        c,
        json!({"prefix": "osd crush add-bucket", "name": "new", "type": "host"}),
        0,
        "added bucket new type host to crush map",
    );
    let swap = |a: &str, b: &str| json!({"prefix": "osd crush swap-bucket", "source": a, "dest": b});
    check(c, swap("new", "vm"), 0, "swapped bucket of new to vm");
    let orphan = "source item new is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway";
    check(c, swap("new", "vm"), -1, orphan);
    check(c, swap("vm", "nosuch"), -2, "item nosuch does not exist");
    check(c, swap("vm", "osd.0"), -22, "item osd.0 is not a bucket");
    let tree = |c: &mut Cluster, node: &str| text(c, json!({"prefix": "osd crush ls", "node": node}));
    assert_eq!(tree(c, "default"), "new\n");
    assert_eq!(tree(c, "vm"), "osd.0\nosd.1\nosd.2\n");
    check(
        c,
        json!({"prefix": "osd crush set-all-straw-buckets-to-straw2"}),
        0,
        "",
    );
}

#[test]
fn weight_sets() {
    let c = &mut Cluster::new();
    check(
        c,
        json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}),
        0,
        "pool 'p' created",
    );
    let of = |what: &str, args: Value| {
        let mut all = json!({"prefix": format!("osd crush weight-set {what}")});
        all.as_object_mut()
            .unwrap()
            .extend(args.as_object().unwrap().clone());
        all
    };
    let none = || json!({});
    let compat = |w: Value| of("reweight-compat", json!({"item": "osd.0", "weight": w}));
    check(c, compat(json!([0.5])), -2, "no backward-compat weight-set");
    check(c, of("create-compat", none()), 0, "");
    check(
        c,
        of("create-compat", none()),
        0,
        "compat weight-set already created",
    );
    let pool = |mode: &str| of("create", json!({"pool": "p", "mode": mode}));
    check(c, pool("zzz"), -22, "unrecognized weight-set mode 'zzz'");
    check(c, pool("flat"), 0, "");
    check(c, pool("flat"), 0, "weight-set for pool 'p' already created");
    assert_eq!(text(c, of("ls", none())), "(compat)\np\n");
    check(c, compat(json!([0.5])), 0, "");
    check(
        c,
        compat(json!([0.5, 0.5])),
        -22,
        "must specify exact 1 weight values",
    );
    let set = |pool: &str, item: &str| of("reweight", json!({"pool": pool, "item": item, "weight": [0.9]}));
    check(c, set("p", "osd.0"), 0, "");
    check(c, set("q", "osd.0"), -2, "pool 'q' not found");
    check(c, set("p", "nosuch"), -2, "item 'nosuch' does not exist");
    check(c, set("p", "default"), -2, "item -1 not found in crush map");
    let dump = c.json(&of("dump", none()).to_string());
    let host = dump["-1"]
        .as_array()
        .unwrap()
        .iter()
        .find(|b| b["bucket_id"] == -3);
    assert_eq!(host.unwrap()["weight_set"][0][0], 0.5, "{dump}");
    check(c, of("rm", json!({"pool": "p"})), 0, "");
    check(c, of("rm", json!({"pool": "p"})), 0, "");
    check(c, set("p", "osd.0"), -2, "no weight-set for pool 'p'");
    check(c, of("rm-compat", none()), 0, "");
    assert_eq!(text(c, of("ls", none())), "");
}

#[test]
fn new_osds_and_their_keys() {
    const A: &str = "11111111-1111-4111-8111-111111111111";
    const B: &str = "22222222-2222-4222-8222-222222222222";
    const KEY: &str = "AQBIDAdrpYRdLRAANwwFS4yzoBmIAnuUs7+kSw==";
    const OTHER: &str = "AQBIDAdrpYRdLRAANwwFS4yzoBmIAnuUs7+kTw==";
    let c = &mut Cluster::new();
    let new = |uuid: &str| json!({"prefix": "osd new", "uuid": uuid});
    let at = |uuid: &str, id: i32| json!({"prefix": "osd new", "uuid": uuid, "id": id});
    let mut id = |command: Value, input: &str| {
        let out = c.run(&command.to_string(), input.as_bytes());
        (
            out.code,
            String::from_utf8(out.data.to_vec()).unwrap().trim().to_string(),
        )
    };
    let (first, other) = (
        json!({"cephx_secret": KEY}).to_string(),
        json!({"cephx_secret": OTHER}).to_string(),
    );
    assert_eq!(id(new(A), &first), (0, "3".into()));
    assert_eq!(id(new(A), &first), (0, "3".into()), "asked again");
    assert_eq!(id(new(A), ""), (0, "3".into()));
    assert_eq!(id(new(A), &other).0, -17);
    assert_eq!(id(at(A, 4), ""), (-17, String::new()));
    assert_eq!(id(at(B, 3), ""), (-22, String::new()));
    assert_eq!(id(new(B), "junk").0, -22);
    assert_eq!(id(new("notauuid"), "").0, -22);
    let disk = |more: Value| {
        let mut all = json!({"cephx_secret": KEY, "cephx_lockbox_secret": OTHER});
        all.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        all.to_string()
    };
    assert_eq!(id(at(B, 5), &disk(json!({}))).0, -22, "without the disk's key");
    assert_eq!(id(at(B, 5), &disk(json!({"dmcrypt_key": "k"}))), (0, "5".into()));
    let box_of = format!("client.osd-lockbox.{B}");
    let key = format!("dm-crypt/osd/{B}/luks");
    assert!(
        c.text(&json!({"prefix": "auth get", "entity": box_of}).to_string())
            .contains(&key)
    );
    assert_eq!(text(c, json!({"prefix": "config-key get", "key": key})), "k");

    let sure = json!({"prefix": "osd destroy", "id": 5, "yes_i_really_mean_it": true});
    check(c, sure, 0, "destroyed osd.5");
    let gone = format!("failed to find {box_of} in keyring");
    check(c, json!({"prefix": "auth get", "entity": box_of}), -2, &gone);
    assert_eq!(
        c.run(&json!({"prefix": "config-key get", "key": key}).to_string(), b"")
            .code,
        -2
    );
    let reused = c.run(&at("33333333-3333-4333-8333-333333333333", 5).to_string(), b"");
    assert_eq!(
        (reused.code, reused.data.as_ref()),
        (0, &b"5\n"[..]),
        "a destroyed one's id is free"
    );
    let dump = c.json("osd dump");
    let state = dump["osds"]
        .as_array()
        .unwrap()
        .iter()
        .find(|o| o["osd"] == 5)
        .unwrap()["state"]
        .clone();
    assert_eq!(state, json!(["exists", "new"]));
    check(
        c,
        json!({"prefix": "osd purge-new", "id": 5, "yes_i_really_mean_it": true}),
        0,
        "purged osd.5",
    );
}

/// Its user was made before, with the key that is given now: what that has besides stays.
#[test]
fn a_new_osd_whose_user_is_there() {
    const KEY: &str = "AQBIDAdrpYRdLRAANwwFS4yzoBmIAnuUs7+kSw==";
    let c = &mut Cluster::new();
    let ring = format!("[osd.7]\n\tkey = {KEY}\n");
    assert_eq!(c.run(r#"{"prefix":"auth import"}"#, ring.as_bytes()).code, 0);
    c.run(r#"{"prefix":"auth get-or-create-pending","entity":"osd.7"}"#, b"");
    let secret = json!({"cephx_secret": KEY}).to_string();
    let new = json!({"prefix": "osd new", "uuid": "11111111-1111-4111-8111-111111111111", "id": 7});
    assert_eq!(c.run(&new.to_string(), secret.as_bytes()).code, 0);
    let users = c.json(r#"{"prefix":"auth get","entity":"osd.7"}"#);
    assert_eq!(users[0]["caps"]["osd"], "allow *");
    assert!(users[0]["pending_key"].is_string(), "{users}");
}

#[test]
fn what_is_not_here_says_so() {
    let c = &mut Cluster::new();
    check(
        c,
        json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}),
        0,
        "pool 'p' created",
    );
    c.report();
    check(
        c,
        json!({"prefix": "pg force-recovery", "pgid": ["1.0"]}),
        0,
        "pg 1.0 doesn't require recovery; \n",
    );
    check(
        c,
        json!({"prefix": "pg cancel-force-backfill", "pgid": ["1.0"]}),
        0,
        "pg 1.0 backfill not forced; \n",
    );
    check(
        c,
        json!({"prefix": "pg force-backfill", "pgid": ["1.99"]}),
        -2,
        "pg 1.99 does not exist; \n",
    );
    check(
        c,
        json!({"prefix": "pg repeer", "pgid": "1.99"}),
        -2,
        "pg '1.99' does not exist",
    );
    check(c, json!({"prefix": "pg repeer", "pgid": "1.0"}), 0, "");
    let map = c.run(&json!({"prefix": "pg getmap"}).to_string(), b"");
    assert!(map.status.starts_with("got pgmap version "), "{}", map.status);
    assert_eq!(
        (map.code, map.data.first()),
        (0, Some(&8)),
        "its envelope's version"
    );
    for (command, code, said) in [
        (
            json!({"prefix": "osd stop", "ids": ["0"]}),
            -95,
            "stop the process",
        ),
        (
            json!({"prefix": "osd tier add", "pool": "p", "tierpool": "p"}),
            -95,
            "no cache tiers",
        ),
        (
            json!({"prefix": "osd tier cache-mode", "pool": "p", "mode": "none"}),
            -22,
            "is not a tier",
        ),
        (
            json!({"prefix": "mon add", "name": "z", "addr": "1.2.3.4"}),
            -95,
            "adds itself",
        ),
        (
            json!({"prefix": "mon add", "name": "a", "addr": "1.2.3.4"}),
            -17,
            "already exists",
        ),
        (
            json!({"prefix": "mon set-rank", "name": "z", "rank": 0}),
            -2,
            "does not exist in monmap",
        ),
        (
            json!({"prefix": "mon set-weight", "name": "a", "weight": 1}),
            -95,
            "all monitors alike",
        ),
        (
            json!({"prefix": "mon feature set", "feature_name": "nosuch"}),
            -2,
            "unknown feature",
        ),
        (
            json!({"prefix": "mon feature set", "feature_name": "nautilus"}),
            -1,
            "--yes-i-really-mean-it",
        ),
        (json!({"prefix": "orch ps"}), -2, "No orchestrator configured"),
        (
            json!({"prefix": "zabbix send"}),
            -95,
            "Module 'zabbix' is not enabled/loaded",
        ),
    ] {
        let out = c.run(&command.to_string(), b"");
        assert!(
            out.code == code && out.status.contains(said),
            "{command}: {} {}",
            out.code,
            out.status
        );
    }
}

#[test]
fn options_of_every_name() {
    let c = &mut Cluster::new();
    let set = |who: &str, name: &str, value: &str| json!({"prefix": "config set", "who": who, "name": name, "value": value});
    for (name, value, code, said) in [
        (
            "osd_scrub_begin_hour",
            "25",
            -22,
            "error parsing value: Value '25' exceeds maximum 23",
        ),
        (
            "mon_host",
            "a",
            -22,
            "mon_host is special and cannot be stored by the mon",
        ),
        ("public_addr", "foo", -22, "error parsing value: "),
        ("nosuch", "1", -22, "unrecognized config option 'nosuch'"),
        (
            "debug_ms",
            "x",
            -22,
            "error parsing value: value must take the form N or N/M, where N and M are integers",
        ),
        (
            "mds_cache_memory_limit",
            "4G",
            0,
            "note: mds_cache_memory_limit is kept, but Skep's daemons do not use it: it does nothing",
        ),
    ] {
        check(c, set("global", name, value), code, said);
    }
    let odd = set("osd/rack:r", "osd_max_scrubs", "2");
    let note = "note: the mask rack:r is kept, but matches no daemon here: use class: or host:";
    check(c, odd, 0, note);
    let help = c.json(r#"{"prefix":"config help","key":"bluestore_compression_mode"}"#);
    assert_eq!(
        help["enum_values"],
        json!(["none", "passive", "aggressive", "force"])
    );
    assert_eq!(help["long_desc"], "Read from: global, osd");
    // What is read from other sections than it is set for was kept without a word.
    let elsewhere = set("mon.a", "mon_allow_pool_delete", "true");
    let note = "note: mon_allow_pool_delete is kept, and does nothing for mon.a: it is read from global, mon";
    check(c, elsewhere, 0, note);
    for (name, says) in [
        ("mon_max_pool_pg_num", "groups that a pool may have"),
        ("rbd_cache", "Read by clients"),
        ("mon_host", "`config set` refuses it"),
        ("osd_op_queue", "it does nothing"),
    ] {
        let help = text(c, json!({"prefix": "config help", "key": name}));
        assert!(help.contains(says), "{help}");
    }
}

#[test]
fn xml_is_what_json_is() {
    let c = &mut Cluster::new();
    let xml = |c: &mut Cluster, prefix: &str, form: &str| text(c, json!({"prefix": prefix, "format": form}));
    assert_eq!(
        xml(c, "osd ls", "xml"),
        "<osds><osd>0</osd><osd>1</osd><osd>2</osd></osds>"
    );
    assert_eq!(
        xml(c, "osd getmaxosd", "xml-pretty").lines().nth(2).unwrap(),
        " <max_osd>3</max_osd>"
    );
    assert!(xml(c, "osd dump", "xml").contains("<osds><osd_info><osd>0</osd>"));
    assert!(xml(c, "osd blocklist ls", "xml").contains("<range_blocklist></range_blocklist>"));
    assert!(xml(c, "osd crush dump", "xml").starts_with("<crush_map><devices><device><id>0</id>"));
}
