//! What commands say, as transcripts: command, code and status, output. The texts are those of 16.2.15.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use crate::commands::table;

/// Runs `command` and compares code and status; the state goes on.
fn check(c: &mut Cluster, command: &str, code: i32, status: &str) {
    let out = c.run(command, b"");
    assert_eq!((out.code, out.status.as_str()), (code, status), "{command}");
}

fn shown(c: &mut Cluster, command: &str, want: &str) {
    let have = c.text(command);
    assert!(have.contains(want), "{command}:\n{have}\nlacks:\n{want}");
}

#[test]
fn pools_live_and_die() {
    let c = &mut Cluster::new();
    check(
        c,
        r#"{"prefix":"osd pool create","pool":"p"}"#,
        0,
        "pool 'p' created",
    );
    check(
        c,
        r#"{"prefix":"osd pool create","pool":"p"}"#,
        0,
        "pool 'p' already exists",
    );
    check(
        c,
        r#"{"prefix":"osd pool create","pool":"q","pool_type":"weird"}"#,
        -22,
        "unknown pool type 'weird'",
    );
    check(
        c,
        r#"{"prefix":"osd pool create","pool":"q","rule":"no"}"#,
        -2,
        "specified rule no doesn't exist",
    );
    check(
        c,
        r#"{"prefix":"osd pool create","pool":"q","pg_num":8,"pool_type":"replicated","erasure_code_profile":"replicated_rule"}"#,
        0,
        "pool 'q' created",
    );
    check(
        c,
        r#"{"prefix":"osd pool rename","srcpool":"q","destpool":"p"}"#,
        -17,
        "pool 'p' already exists",
    );
    check(
        c,
        r#"{"prefix":"osd pool rename","srcpool":"q","destpool":"r"}"#,
        0,
        "pool 'q' renamed to 'r'",
    );
    check(
        c,
        r#"{"prefix":"osd pool set","pool":"p","var":"nodelete","val":"1"}"#,
        0,
        "set pool 1 nodelete to 1",
    );
    let sure = r#"{"prefix":"osd pool rm","pool":"p","pool2":"p","yes_i_really_really_mean_it":true}"#;
    check(
        c,
        sure,
        -1,
        "pool deletion is disabled; you must unset nodelete flag for the pool first",
    );
    check(
        c,
        r#"{"prefix":"osd pool set","pool":"p","var":"nodelete","val":"0"}"#,
        0,
        "set pool 1 nodelete to 0",
    );
    assert_eq!(
        c.run(r#"{"prefix":"osd pool rm","pool":"p","pool2":"p"}"#, b"")
            .code,
        -1
    );
    check(c, sure, 0, "pool 'p' removed");
    check(c, sure, 0, "pool 'p' does not exist");
    assert_eq!(c.text(r#"{"prefix":"osd lspools"}"#), "2 r\n");
}

#[test]
fn osds_go_out_and_come_in() {
    let c = &mut Cluster::new();
    check(c, r#"{"prefix":"osd out","ids":["1"]}"#, 0, "marked out osd.1. ");
    check(
        c,
        r#"{"prefix":"osd out","ids":["osd.1","2"]}"#,
        0,
        "osd.1 is already out. marked out osd.2. ",
    );
    check(
        c,
        r#"{"prefix":"osd out","ids":["99"]}"#,
        0,
        "osd.99 does not exist. ",
    );
    check(
        c,
        r#"{"prefix":"osd out","ids":["abc"]}"#,
        -22,
        "Expected option value to be integer, got 'abc'invalid osd id-1",
    );
    check(
        c,
        r#"{"prefix":"osd in","ids":["all"]}"#,
        0,
        "marked in osd.1. marked in osd.2. ",
    );
    check(
        c,
        r#"{"prefix":"osd reweight","id":2,"weight":0.8}"#,
        0,
        "reweighted osd.2 to 0.8 (cccc)",
    );
    shown(
        c,
        r#"{"prefix":"osd tree"}"#,
        " 2    hdd  0.00400          osd.2      up   0.79999  1.00000\n",
    );
    check(
        c,
        r#"{"prefix":"osd down","ids":["2"]}"#,
        0,
        "marked down osd.2. ",
    );
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "[WRN] OSD_DOWN: 1 osds down\n    osd.2 (root=default,host=vm) is down\n",
    );
    assert_eq!(c.json("osd stat")["num_up_osds"], 2);
    check(
        c,
        r#"{"prefix":"osd rm","ids":["1"]}"#,
        -16,
        "osd.1 is still up; must be down before removal. ",
    );
    check(c, r#"{"prefix":"osd rm","ids":["2"]}"#, 0, "removed osd.2");
    assert_eq!(c.text(r#"{"prefix":"osd ls"}"#), "0\n1\n");
}

#[test]
fn a_degraded_cluster_says_so() {
    let c = &mut Cluster::new();
    check(
        c,
        r#"{"prefix":"osd pool create","pool":"p","pg_num":32}"#,
        0,
        "pool 'p' created",
    );
    shown(
        c,
        r#"{"prefix":"health"}"#,
        "HEALTH_WARN 1 pool(s) do not have an application enabled\n",
    );
    check(
        c,
        r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#,
        0,
        "enabled application 'rbd' on pool 'p'",
    );
    assert_eq!(c.text(r#"{"prefix":"health"}"#), "HEALTH_OK\n");
    // The only copy of a third of the groups is on the OSD that dies.
    for id in ["0", "1", "2"] {
        c.run(&format!(r#"{{"prefix":"osd down","ids":["{id}"]}}"#), b"");
    }
    shown(
        c,
        r#"{"prefix":"health"}"#,
        "Reduced data availability: 32 pgs down",
    );
    shown(
        c,
        r#"{"prefix":"status"}"#,
        "100.000% pgs not active\n             32 down\n",
    );
    assert_eq!(
        c.json("health")["checks"]["OSD_ROOT_DOWN"]["summary"]["message"],
        "1 root (3 osds) down"
    );
}

#[test]
fn flags_and_mutes() {
    let c = &mut Cluster::new();
    check(
        c,
        r#"{"prefix":"osd set","key":"full"}"#,
        -22,
        "unrecognized flag 'full'",
    );
    check(
        c,
        r#"{"prefix":"osd set","key":"pause"}"#,
        0,
        "pauserd,pausewr is set",
    );
    check(
        c,
        r#"{"prefix":"osd unset","key":"pause"}"#,
        0,
        "pauserd,pausewr is unset",
    );
    check(c, r#"{"prefix":"osd set","key":"noout"}"#, 0, "noout is set");
    check(c, r#"{"prefix":"osd set","key":"noout"}"#, 0, "noout is set");
    assert_eq!(
        c.text(r#"{"prefix":"health"}"#),
        "HEALTH_WARN noout flag(s) set\n"
    );
    let reclaim = r#""who":"mon","name":"auth_allow_insecure_global_id_reclaim""#;
    check(
        c,
        &format!(r#"{{"prefix":"config set",{reclaim},"value":"true"}}"#),
        0,
        "",
    );
    assert_eq!(
        c.text(r#"{"prefix":"health"}"#),
        "HEALTH_WARN mon is allowing insecure global_id reclaim; noout flag(s) set\n"
    );
    check(c, &format!(r#"{{"prefix":"config rm",{reclaim}}}"#), 0, "");
    check(
        c,
        r#"{"prefix":"health mute","code":"OSD_DOWN"}"#,
        -2,
        "health alert OSD_DOWN is not currently raised",
    );
    check(
        c,
        r#"{"prefix":"health mute","code":"OSDMAP_FLAGS","ttl":"xx"}"#,
        -22,
        "invalid duration: xx (expected digit)",
    );
    check(
        c,
        r#"{"prefix":"health mute","code":"OSDMAP_FLAGS","ttl":"1h"}"#,
        0,
        "",
    );
    assert_eq!(
        c.text(r#"{"prefix":"health"}"#),
        "HEALTH_OK (muted: OSDMAP_FLAGS(60m))\n"
    );
    check(c, r#"{"prefix":"health unmute"}"#, 0, "");
    check(
        c,
        r#"{"prefix":"osd set-group","flags":"noout,noup","who":["0","vm","hdd"]}"#,
        0,
        "",
    );
    let detail = c.text(r#"{"prefix":"health","detail":"detail"}"#);
    assert!(
        detail.contains("osd.0 has flags noup,noout") && detail.contains("host vm has flags"),
        "{detail}"
    );
    check(
        c,
        r#"{"prefix":"osd unset-group","flags":"noout,noup","who":["0","vm","hdd"]}"#,
        0,
        "",
    );
    check(c, r#"{"prefix":"osd unset","key":"noout"}"#, 0, "noout is unset");
    assert_eq!(c.text(r#"{"prefix":"health"}"#), "HEALTH_OK\n");
}

#[test]
fn keys_and_capabilities() {
    let c = &mut Cluster::new();
    let made = c.text(r#"{"prefix":"auth get-or-create","entity":"client.a","caps":["mon","profile rbd"]}"#);
    assert!(
        made.starts_with("[client.a]\n\tkey = ") && made.lines().count() == 2,
        "{made}"
    );
    let again = c.text(r#"{"prefix":"auth get-or-create","entity":"client.a"}"#);
    assert_eq!(made, again);
    check(
        c,
        r#"{"prefix":"auth get-or-create","entity":"client.a","caps":["mon","allow r"]}"#,
        -22,
        "key for client.a exists but cap mon does not match",
    );
    check(
        c,
        r#"{"prefix":"auth caps","entity":"client.a","caps":["mon"]}"#,
        -22,
        "bad capabilities request; odd number of arguments",
    );
    check(
        c,
        r#"{"prefix":"auth caps","entity":"client.a","caps":["mon","garbage("]}"#,
        -22,
        "mon capability parse failed, stopped at 'garbage(' of 'garbage('",
    );
    check(
        c,
        r#"{"prefix":"auth caps","entity":"client.a","caps":["osd","allow *"]}"#,
        0,
        "updated caps for client.a",
    );
    shown(
        c,
        r#"{"prefix":"auth get","entity":"client.a"}"#,
        "\tcaps osd = \"allow *\"\n",
    );
    check(
        c,
        r#"{"prefix":"auth get","entity":"bad"}"#,
        -22,
        "invalid entity_auth bad",
    );
    check(c, r#"{"prefix":"auth rm","entity":"client.a"}"#, 0, "updated");
    check(
        c,
        r#"{"prefix":"auth rm","entity":"client.a"}"#,
        0,
        "entity client.a does not exist",
    );
    let ring = b"[client.imp]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n\tcaps mon = \"allow r\"\n";
    assert_eq!(
        c.run(r#"{"prefix":"auth import"}"#, ring).status,
        "imported keyring"
    );
    shown(
        c,
        r#"{"prefix":"auth print-key","entity":"client.imp"}"#,
        "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==",
    );
    assert_eq!(c.run(r#"{"prefix":"auth import"}"#, b"garbage").code, -22);
}

fn check_import(c: &mut Cluster, keyring: &str, code: i32) {
    let out = c.run(r#"{"prefix":"auth import"}"#, keyring.as_bytes());
    assert_eq!(out.code, code, "{}", out.status);
}

#[test]
fn a_key_is_replaced_while_both_are_valid() {
    let c = &mut Cluster::new();
    let ask = |prefix: &str| format!(r#"{{"prefix":"auth {prefix}","entity":"client.a"}}"#);
    c.run(&ask("get-or-create"), b"");
    let key = c.text(&ask("print-key"));
    check(c, &ask("commit-pending"), 0, "client.a has no pending key");
    check(c, &ask("clear-pending"), 0, "client.a has no pending key");
    let ring = c.text(&ask("get-or-create-pending"));
    assert_eq!(ring, c.text(&ask("get-or-create-pending")), "it is made once");
    let pending = ring.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(pending.len() == 40 && pending != key, "{ring}");
    // Keyrings have the key; who asks for JSON sees both.
    assert_eq!(c.text(&ask("print-key")), key);
    assert!(!c.text(&ask("get")).contains(&pending));
    for form in ["get", "export", "get-or-create-pending"] {
        let json = c.json(&ask(form));
        assert_eq!(json[0]["key"], key.as_str(), "{form}");
        assert_eq!(json[0]["pending_key"], pending.as_str(), "{form}");
    }
    shown(
        c,
        r#"{"prefix":"auth ls"}"#,
        &format!("\tpending key: {pending}\n"),
    );
    // Other commands about the entity leave it.
    let caps = r#"{"prefix":"auth caps","entity":"client.a","caps":["mon","allow r"]}"#;
    check(c, caps, 0, "updated caps for client.a");
    let same = format!("[client.a]\n\tkey = {key}\n\tcaps mon = \"allow r\"\n");
    c.run(r#"{"prefix":"auth import"}"#, same.as_bytes());
    assert_eq!(c.json(&ask("get"))[0]["pending_key"], pending.as_str());
    check(
        c,
        &ask("commit-pending"),
        0,
        "the pending key of client.a is its key now",
    );
    assert_eq!(c.text(&ask("print-key")), pending);
    assert_eq!(c.json(&ask("get"))[0].get("pending_key"), None);
    // Dropped; and one that another key was imported over.
    c.run(&ask("get-or-create-pending"), b"");
    check(c, &ask("clear-pending"), 0, "dropped the pending key of client.a");
    c.run(&ask("get-or-create-pending"), b"");
    c.run(r#"{"prefix":"auth import"}"#, same.as_bytes());
    assert_eq!(c.json(&ask("get"))[0].get("pending_key"), None);
    // At once.
    let ring = c.text(&ask("rotate"));
    assert!(
        !ring.contains(&key) && ring.contains("caps mon = \"allow r\""),
        "{ring}"
    );
    let own = r#"{"prefix":"auth rotate","entity":"client.admin"}"#;
    assert_eq!(c.run(own, b"").code, -1, "it would not hear of its new key");
    for prefix in ["get-or-create-pending", "rotate"] {
        let mons = format!(r#"{{"prefix":"auth {prefix}","entity":"mon."}}"#);
        assert_eq!(c.run(&mons, b"").code, -22, "{prefix}");
    }
    let daemons = r#"{"prefix":"auth rotate","entity":"mgr.x"}"#;
    assert_eq!(c.run(daemons, b"").code, -1, "unless it is meant");
    let sure = r#"{"prefix":"auth rotate","entity":"mgr.x","yes_i_really_mean_it":true}"#;
    assert_eq!(c.run(sure, b"").code, 0);
    // A keyring of a newer Ceph may have both.
    let both = format!("{same}\tpending key = {pending}\n");
    check_import(c, &both, 0);
    assert_eq!(c.json(&ask("get"))[0]["pending_key"], pending.as_str());
    check_import(c, &both.replace("client.a", "mon."), -22);
    check(c, &ask("rm"), 0, "updated");
    check(
        c,
        &ask("get-or-create-pending"),
        -2,
        "failed to find client.a in keyring",
    );
}

#[test]
fn keys_that_expire() {
    let c = &mut Cluster::new();
    let ask = |prefix: &str| format!(r#"{{"prefix":"auth {prefix}","entity":"client.a"}}"#);
    let expire = |who: &str, when: &str, more: &str| {
        format!(r#"{{"prefix":"auth expire","entity":"{who}","when":"{when}"{more}}}"#)
    };
    c.run(&ask("get-or-create"), b"");
    assert_eq!(c.run(&expire("client.a", "soon", ""), b"").code, -22);
    assert_eq!(c.run(&expire("client.a", "0", ""), b"").code, -22, "has passed");
    assert_eq!(
        c.run(&expire("client.a", "2026-01-01", ""), b"").code,
        -22,
        "has passed"
    );
    assert_eq!(c.run(&expire("client.a", "2027", ""), b"").code, -22, "a year");
    assert_eq!(c.run(&expire("client.b", "90d", ""), b"").code, -2);
    let sure = r#","yes_i_really_mean_it":true"#;
    assert_eq!(c.run(&expire("mon.", "90d", sure), b"").code, -22);
    let said = c.run(&expire("client.a", "10d", ""), b"").status;
    assert!(said.ends_with(", in 10d"), "{said}");
    let at = "2026-11-18T12:00:00.000000+0000";
    let said = c.run(&expire("client.a", "2026-11-18T12:00:00Z", ""), b"").status;
    assert!(
        said.starts_with(&format!("client.a expires at {at}, in ")),
        "{said}"
    );
    assert_eq!(c.json(&ask("get"))[0]["expires"], at);
    let said = c.run(&ask("get"), b"").status;
    assert_eq!(said, format!("exported keyring for client.a; it expires at {at}"));
    // It stays whatever becomes of the keys.
    c.run(&ask("get-or-create-pending"), b"");
    c.run(&ask("commit-pending"), b"");
    let ring = b"[client.a]\n\tkey = AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==\n";
    c.run(r#"{"prefix":"auth import"}"#, ring);
    c.run(&ask("rotate"), b"");
    assert_eq!(c.json(&ask("get"))[0]["expires"], at);
    check(c, &expire("client.a", "never", ""), 0, "client.a does not expire");
    assert_eq!(c.json(&ask("get"))[0].get("expires"), None);
    // Nobody locks himself out by mistake.
    for who in ["client.admin", "osd.0", "mgr.x"] {
        assert_eq!(c.run(&expire(who, "90d", ""), b"").code, -1, "{who}");
        assert_eq!(c.run(&expire(who, "never", ""), b"").code, 0, "{who}");
        assert_eq!(c.run(&expire(who, "90d", sure), b"").code, 0, "{who}");
    }
}

#[test]
fn configuration() {
    let c = &mut Cluster::new();
    let set = |who: &str, name: &str, value: &str| {
        format!(r#"{{"prefix":"config set","who":"{who}","name":"{name}","value":"{value}"}}"#)
    };
    check(c, &set("client", "rbd_cache", "0"), 0, "");
    check(c, &set("client.foo", "rbd_cache_size", "32M"), 0, "");
    check(
        c,
        &set("global", "nosuch_option", "1"),
        -22,
        "unrecognized config option 'nosuch_option'",
    );
    check(
        c,
        &set("badname", "rbd_cache", "true"),
        -22,
        "unrecognized config target 'badname'",
    );
    assert_eq!(
        c.text(r#"{"prefix":"config get","who":"client.foo","key":"rbd_cache_size"}"#),
        "33554432\n"
    );
    assert_eq!(
        c.text(r#"{"prefix":"config get","who":"client.foo","key":"rbd_cache"}"#),
        "false\n"
    );
    assert_eq!(
        c.text(r#"{"prefix":"config get","who":"client.foo","key":"rbd_op_threads"}"#),
        "1\n"
    );
    check(
        c,
        r#"{"prefix":"config get","who":"client.foo","key":"nosuch"}"#,
        -2,
        "unrecognized key 'nosuch'",
    );
    let before = c.state.config.version;
    check(
        c,
        r#"{"prefix":"config rm","who":"client","name":"rbd_cache"}"#,
        0,
        "",
    );
    check(
        c,
        &format!(r#"{{"prefix":"config reset","num":{before}}}"#),
        0,
        "",
    );
    assert_eq!(
        c.text(r#"{"prefix":"config get","who":"client","key":"rbd_cache"}"#),
        "false\n"
    );
    let rest = c.run(
        r#"{"prefix":"config assimilate-conf"}"#,
        b"[osd]\nosd_max_backfills = 4\nmine = 1\n",
    );
    assert_eq!((rest.code, &rest.data[..]), (0, &b"\n[osd]\n\tmine = 1\n"[..]));
    assert_eq!(c.state.config.get("osd", "osd_max_backfills"), Some("4"));
    shown(
        c,
        r#"{"prefix":"config generate-minimal-conf"}"#,
        "\tmon_host = [v2:127.0.0.1:3300/0]\n",
    );
}

#[test]
fn crush_changes() {
    let c = &mut Cluster::new();
    check(
        c,
        r#"{"prefix":"osd crush add-bucket","name":"rack1","type":"rack"}"#,
        0,
        "added bucket rack1 type rack to crush map",
    );
    check(
        c,
        r#"{"prefix":"osd crush move","name":"rack1","args":["root=default"]}"#,
        0,
        "moved item id -5 name 'rack1' to location {root=default} in crush map",
    );
    check(
        c,
        r#"{"prefix":"osd crush rm","name":"default"}"#,
        -39,
        "(39) Directory not empty",
    );
    check(
        c,
        r#"{"prefix":"osd crush reweight","name":"osd.2","weight":0.004}"#,
        0,
        "reweighted item id 2 name 'osd.2' to 0.004 in crush map",
    );
    check(
        c,
        r#"{"prefix":"osd crush set-device-class","class":"ssd","ids":["2"]}"#,
        -16,
        "osd.2 has already bound to class 'hdd', can not reset class to 'ssd'; use 'ceph osd crush rm-device-class <id>' to remove old class first",
    );
    check(
        c,
        r#"{"prefix":"osd crush rm-device-class","ids":["2"]}"#,
        0,
        "done removing class of osd(s): 2",
    );
    let rename = |from: &str, to: &str| {
        format!(r#"{{"prefix":"osd crush class rename","srcname":"{from}","dstname":"{to}"}}"#)
    };
    check(c, &rename("hdd", "slow"), 0, "rename class 'hdd' to 'slow'");
    assert_eq!(
        c.json(r#"{"prefix":"osd crush class ls-osd","class":"slow"}"#),
        serde_json::json!([0, 1])
    );
    check(c, &rename("hdd", "slow"), 0, "already renamed to 'slow'");
    check(
        c,
        &rename("ssd", "fast"),
        -2,
        "fail to rename 'ssd' to 'fast' : (2) No such file or directory",
    );
    check(
        c,
        r#"{"prefix":"osd crush rule rm","name":"nosuch"}"#,
        0,
        "rule nosuch does not exist",
    );
    // The map survives the way out and in again.
    let map = c.run(r#"{"prefix":"osd getcrushmap"}"#, b"");
    let version: u32 = map.status.parse().unwrap();
    let back = c.run(r#"{"prefix":"osd setcrushmap"}"#, &map.data);
    assert_eq!((back.code, back.status), (0, (version + 1).to_string()));
    assert_eq!(c.run(r#"{"prefix":"osd setcrushmap"}"#, b"junk").code, -22);
    check(
        c,
        r#"{"prefix":"osd setcrushmap"}"#,
        -22,
        "Failed to parse crushmap: End of buffer",
    );
}

#[test]
fn what_is_not_built_says_so() {
    let c = &mut Cluster::new();
    check(
        c,
        r#"{"prefix":"mgr fail","who":"zz"}"#,
        0,
        "Daemon not found 'zz', already failed?",
    );
    check(
        c,
        r#"{"prefix":"rbd task add migration commit","image_spec":"nopool/i"}"#,
        -2,
        "[errno 2] RADOS object not found (error opening pool 'nopool')",
    );
    check(c, r#"{"prefix":"nosuch"}"#, -22, "command not known");
}

/// Every command of the table with no arguments, and with nonsense for each: an answer, never a panic.
#[test]
fn bad_arguments_are_answered() {
    let c = &mut Cluster::new();
    c.run(r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#, b"");
    for spec in table::all() {
        let prefix = crate::commands::language::signature::prefix(spec.sig);
        let args = crate::commands::language::signature::args(spec.sig);
        for nonsense in [
            r#""""#,
            r#""zz""#,
            "-1",
            "99999999999",
            "1e300",
            "[]",
            r#"["","x=y","-7"]"#,
            "true",
        ] {
            let all: Vec<String> = args
                .iter()
                .map(|a| format!(r#","{}":{nonsense}"#, a.name))
                .collect();
            for format in ["json", "plain"] {
                let text = format!(r#"{{"prefix":"{prefix}","format":"{format}"{}}}"#, all.concat());
                c.run(&text, b"\xff\x00nonsense");
                c.run(&format!(r#"{{"prefix":"{prefix}","format":"{format}"}}"#), b"");
            }
        }
    }
    assert_eq!(c.run(r#"{"prefix":"status"}"#, b"").code, 0);
}

/// Every daemon of a mixed cluster was said to be of the version of the monitor that answered.
#[test]
fn versions_are_what_the_daemons_said() {
    const OLD: &str = "ceph version 16.2.15 (skep-0.0.1) pacific (stable)";
    let now = types::release::VERSION_TEXT;
    let c = &mut Cluster::new();
    c.add_monitor("b", 3301);
    c.monitor_lives("b");
    let of_b = c.stats.mons.get_mut("b").unwrap();
    of_b.metadata.insert("ceph_version".into(), OLD.into());
    c.add_monitor("c", 3302);
    c.monitor_lives("c");
    let mut metadata = (*c.state.osd_metadata).clone();
    metadata
        .get_mut(&1)
        .unwrap()
        .insert("ceph_version".into(), OLD.into());
    c.state.osd_metadata = metadata.into();
    let mut counts = |command: &str| -> serde_json::Value { serde_json::from_str(&c.text(command)).unwrap() };
    let all = counts(r#"{"prefix":"versions"}"#);
    assert_eq!(all["mon"], serde_json::json!({now: 1, OLD: 1, "unknown": 1}));
    assert_eq!(all["osd"], serde_json::json!({now: 2, OLD: 1}));
    assert_eq!(all["mgr"], serde_json::json!({now: 1}));
    assert_eq!(all["overall"], serde_json::json!({now: 4, OLD: 2, "unknown": 1}));
    assert_eq!(counts(r#"{"prefix":"mon versions"}"#), all["mon"]);
    assert_eq!(counts(r#"{"prefix":"osd versions"}"#), all["osd"]);
    assert_eq!(
        counts(r#"{"prefix":"mon metadata","id":"b"}"#)["ceph_version"],
        OLD
    );
    assert_eq!(
        counts(r#"{"prefix":"osd metadata","id":"1"}"#)["ceph_version"],
        OLD
    );
}
