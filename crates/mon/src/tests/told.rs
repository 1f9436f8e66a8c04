//! `ceph tell mon.X`: words that mean the daemon there, and the cluster elsewhere.

use super::*;
use messages::osd::{MCommand, MCommandReply};

fn tell(rig: &mut Rig, id: u64, text: &str) -> (i32, String, String) {
    let tell = MCommand {
        tid: 9,
        fsid: FSID,
        cmd: vec![Bytes::from(text.to_string())],
        input: Bytes::new(),
    };
    let out = rig.message(id, tell.to_message());
    let reply = MCommandReply::from_message(out.last().unwrap()).unwrap();
    let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
    (reply.result, text(&reply.status), text(&reply.output))
}

#[test]
fn what_a_monitor_is_told_holds_for_all_of_them() {
    let mut rig = Rig::new();
    rig.admin(1);
    let (code, _, out) = tell(
        &mut rig,
        1,
        r#"{"prefix": "config set", "var": "mon_max_pg_per_osd", "val": ["299"]}"#,
    );
    assert!(code == 0 && out.contains("mon_max_pg_per_osd = '299'"), "{out}");
    assert_eq!(rig.state().config.get("mon", "mon_max_pg_per_osd"), Some("299"));
    let (code, said, _) = tell(
        &mut rig,
        1,
        r#"{"prefix": "injectargs", "injected_args": ["--mon-allow-pool-delete=true", "--mon_osd_cache_size=7"]}"#,
    );
    assert!(
        code == 0
            && said.contains("for all monitors")
            && said.contains("mon_osd_cache_size = '7' (not observed"),
        "{said}"
    );
    assert_eq!(
        rig.state().config.get("mon", "mon_allow_pool_delete"),
        Some("true")
    );
    assert_eq!(rig.state().config.get("mon", "mon_osd_cache_size"), None);
    let (_, _, out) = tell(
        &mut rig,
        1,
        r#"{"prefix": "config get", "var": "mon_max_pg_per_osd"}"#,
    );
    assert!(out.contains("\"299\""), "{out}");
    let (_, _, out) = tell(&mut rig, 1, r#"{"prefix": "config diff"}"#);
    assert!(out.contains("mon_allow_pool_delete"), "{out}");
    let unset = r#"{"prefix": "config unset", "var": "mon_max_pg_per_osd"}"#;
    assert!(tell(&mut rig, 1, unset).1.contains("mon_max_pg_per_osd = '250'"));
    assert_eq!(rig.state().config.get("mon", "mon_max_pg_per_osd"), None);
    for (text, code) in [
        (r#"{"prefix": "config set", "var": "nonesuch", "val": ["1"]}"#, -2),
        (
            r#"{"prefix": "config set", "var": "mon_max_pg_per_osd", "val": ["x"]}"#,
            -22,
        ),
        (
            r#"{"prefix": "injectargs", "injected_args": ["--nonesuch=1"]}"#,
            -22,
        ),
        (r#"{"prefix": "config get", "var": "nonesuch"}"#, -2),
        (r#"{"prefix": "compact"}"#, -95),
        (r#"{"prefix": "heap", "heapcmd": "stats"}"#, -95),
    ] {
        assert_eq!(tell(&mut rig, 1, text).0, code, "{text}");
    }
}

#[test]
fn only_who_may_all_tells_a_monitor_something() {
    let mut rig = Rig::new();
    rig.open(2, &[("mon", "allow rw")]);
    let sessions = r#"{"prefix": "sessions"}"#;
    assert_eq!(tell(&mut rig, 2, sessions).0, -13);
    assert_eq!(
        tell(&mut rig, 2, r#"{"prefix": "get_command_descriptions"}"#).0,
        -13
    );
    rig.admin(1);
    let (code, _, out) = tell(&mut rig, 1, sessions);
    assert!(
        code == 0 && out.contains("\"entity_name\": \"client.test\""),
        "{out}"
    );
    // The program is told of the daemon's `config set`, and of the cluster's elsewhere.
    let (_, _, told) = tell(&mut rig, 1, r#"{"prefix": "get_command_descriptions"}"#);
    assert!(
        told.contains(r#"["config","set",{"name":"var""#)
            && !told.contains(r#"["config","set",{"name":"who""#)
    );
    assert!(told.contains(r#"["mon_status"]"#));
}
