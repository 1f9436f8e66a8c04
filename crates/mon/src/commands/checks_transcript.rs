//! Health checks one by one: raised while their cause is there, gone after it. The texts are those of 16.2.15.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use types::Utime;
use types::pgstats::pg_state;

fn ok(c: &mut Cluster, command: &str) {
    let out = c.run(command, b"");
    assert_eq!(out.code, 0, "{command}: {}", out.status);
}

/// `CODE: summary`, and what is said of it in detail.
fn said(c: &mut Cluster, code: &str) -> Option<(String, String, String)> {
    let health = c.json(r#"{"prefix":"health","detail":"detail"}"#);
    let check = health["checks"].get(code)?;
    let lines: Vec<&str> = check["detail"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["message"].as_str().unwrap())
        .collect();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    Some((
        text(&check["severity"]),
        text(&check["summary"]["message"]),
        lines.join("\n"),
    ))
}

fn raised(c: &mut Cluster, code: &str, severity: &str, summary: &str, detail: &str) {
    let (have, text, lines) = said(c, code).unwrap_or_else(|| panic!("{code} is not raised"));
    assert_eq!((have.as_str(), text.as_str()), (severity, summary), "{code}");
    assert!(lines.contains(detail), "{code}: {lines}");
}

fn gone(c: &mut Cluster, code: &str) {
    assert_eq!(said(c, code), None, "{code}");
}

fn pool(c: &mut Cluster) {
    ok(
        c,
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"pgp_num":8}"#,
    );
}

#[test]
fn a_host_of_which_every_osd_is_down() {
    let c = &mut Cluster::with_osds(2);
    ok(c, r#"{"prefix":"osd down","ids":["0"]}"#);
    raised(c, "OSD_DOWN", "HEALTH_WARN", "1 osds down", "osd.0 (");
    gone(c, "OSD_HOST_DOWN");
    ok(c, r#"{"prefix":"osd down","ids":["1"]}"#);
    raised(
        c,
        "OSD_HOST_DOWN",
        "HEALTH_WARN",
        "1 host (2 osds) down",
        "host vm (root=default) (2 osds) is down",
    );
    gone(c, "OSD_RACK_DOWN");
    ok(
        c,
        r#"{"prefix":"osd crush add-bucket","name":"r1","type":"rack","args":["root=default"]}"#,
    );
    ok(c, r#"{"prefix":"osd crush move","name":"vm","args":["rack=r1"]}"#);
    raised(
        c,
        "OSD_RACK_DOWN",
        "HEALTH_WARN",
        "1 rack (2 osds) down",
        "rack r1 (root=default) (2 osds) is down",
    );
    c.boot(0);
    c.boot(1);
    gone(c, "OSD_HOST_DOWN");
    gone(c, "OSD_DOWN");
}

#[test]
fn an_osd_is_told_of_at_its_highest_level_of_fullness() {
    let c = &mut Cluster::new();
    for (used, code, severity, summary, detail) in [
        (
            0.86,
            "OSD_NEARFULL",
            "HEALTH_WARN",
            "1 nearfull osd(s)",
            "osd.1 is near full",
        ),
        (
            0.91,
            "OSD_BACKFILLFULL",
            "HEALTH_WARN",
            "1 backfillfull osd(s)",
            "osd.1 is backfill full",
        ),
        (0.96, "OSD_FULL", "HEALTH_ERR", "1 full osd(s)", "osd.1 is full"),
    ] {
        c.fill(1, used);
        raised(c, code, severity, summary, detail);
        for other in ["OSD_NEARFULL", "OSD_BACKFILLFULL", "OSD_FULL"] {
            if other != code {
                gone(c, other);
            }
        }
    }
    c.fill(1, 0.5);
    gone(c, "OSD_FULL");
}

#[test]
fn ratios_that_contradict_one_another() {
    let c = &mut Cluster::new();
    gone(c, "OSD_OUT_OF_ORDER_FULL");
    ok(c, r#"{"prefix":"osd set-nearfull-ratio","ratio":0.93}"#);
    raised(
        c,
        "OSD_OUT_OF_ORDER_FULL",
        "HEALTH_ERR",
        "full ratio(s) out of order",
        "backfillfull_ratio (0.9) < nearfull_ratio (0.93), increased",
    );
    ok(c, r#"{"prefix":"osd set-nearfull-ratio","ratio":0.85}"#);
    gone(c, "OSD_OUT_OF_ORDER_FULL");
}

#[test]
fn flags_of_some_osds() {
    let c = &mut Cluster::new();
    ok(c, r#"{"prefix":"osd set-group","flags":"noout","who":["osd.2"]}"#);
    raised(
        c,
        "OSD_FLAGS",
        "HEALTH_WARN",
        "1 OSDs or CRUSH {nodes, device-classes} have {NOUP,NODOWN,NOIN,NOOUT} flags set",
        "osd.2 has flags noout",
    );
    ok(
        c,
        r#"{"prefix":"osd unset-group","flags":"noout","who":["osd.2"]}"#,
    );
    gone(c, "OSD_FLAGS");
}

#[test]
fn pools_that_somebody_should_look_at() {
    let c = &mut Cluster::new();
    ok(
        c,
        r#"{"prefix":"osd pool create","pool":"p","pg_num":12,"pgp_num":12}"#,
    );
    c.report();
    raised(
        c,
        "POOL_PG_NUM_NOT_POWER_OF_TWO",
        "HEALTH_WARN",
        "1 pool(s) have non-power-of-two pg_num",
        "pool 'p' pg_num 12 is not a power of two",
    );
    c.each_pg(|s| s.stats.sum.num_objects = 0);
    gone(c, "POOL_APP_NOT_ENABLED");
    c.each_pg(|s| s.stats.sum.num_objects = 1);
    raised(
        c,
        "POOL_APP_NOT_ENABLED",
        "HEALTH_WARN",
        "1 pool(s) do not have an application enabled",
        "application not enabled on pool 'p'",
    );
    ok(
        c,
        r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#,
    );
    gone(c, "POOL_APP_NOT_ENABLED");
    ok(
        c,
        r#"{"prefix":"config set","who":"global","name":"osd_pool_default_size","value":"5"}"#,
    );
    raised(
        c,
        "TOO_FEW_OSDS",
        "HEALTH_WARN",
        "OSD count 3 < osd_pool_default_size 5",
        "",
    );
    ok(
        c,
        r#"{"prefix":"config rm","who":"global","name":"osd_pool_default_size"}"#,
    );
    gone(c, "TOO_FEW_OSDS");
    ok(
        c,
        r#"{"prefix":"config set","who":"global","name":"mon_max_pg_per_osd","value":"3"}"#,
    );
    raised(
        c,
        "TOO_MANY_PGS",
        "HEALTH_WARN",
        "too many PGs per OSD (4 > max 3)",
        "",
    );
}

#[test]
fn objects_that_are_nowhere_or_elsewhere() {
    let c = &mut Cluster::new();
    pool(c);
    c.report();
    let mark = |c: &mut Cluster| {
        c.each_pg(|s| {
            s.stats.sum.num_objects = 2;
            s.stats.sum.num_object_copies = 4;
            s.stats.sum.num_objects_unfound = 1;
            s.stats.sum.num_objects_misplaced = 1;
            s.state |= pg_state::RECOVERY_UNFOUND;
        });
    };
    mark(c);
    raised(
        c,
        "OBJECT_UNFOUND",
        "HEALTH_WARN",
        "8/16 objects unfound (50.000%)",
        "pg 1.0 has 1 unfound objects",
    );
    gone(c, "OBJECT_MISPLACED");
    ok(
        c,
        r#"{"prefix":"config set","who":"mon","name":"mon_warn_on_misplaced","value":"true"}"#,
    );
    mark(c);
    raised(
        c,
        "OBJECT_MISPLACED",
        "HEALTH_WARN",
        "8/32 objects misplaced (25.000%)",
        "",
    );
    c.report();
    gone(c, "OBJECT_UNFOUND");
}

#[test]
fn groups_that_were_not_compared_in_time() {
    let c = &mut Cluster::new();
    pool(c);
    c.report();
    let now = c.now;
    // A week, and half (three quarters) as much again.
    let ago = move |days: f64| Utime {
        sec: now.sec - (days * 86_400.0) as u32,
        nsec: 0,
    };
    let stamp = |c: &mut Cluster, days: f64| {
        c.each_pg(|s| (s.last_scrub_stamp, s.last_deep_scrub_stamp) = (ago(days), ago(days)));
    };
    stamp(c, 10.4);
    gone(c, "PG_NOT_SCRUBBED");
    stamp(c, 10.6);
    raised(
        c,
        "PG_NOT_SCRUBBED",
        "HEALTH_WARN",
        "8 pgs not scrubbed in time",
        "pg 1.0 not scrubbed since ",
    );
    gone(c, "PG_NOT_DEEP_SCRUBBED");
    stamp(c, 12.3);
    raised(
        c,
        "PG_NOT_DEEP_SCRUBBED",
        "HEALTH_WARN",
        "8 pgs not deep-scrubbed in time",
        "pg 1.0 not deep-scrubbed since ",
    );
}

#[test]
fn a_manager_that_is_not_there() {
    let c = &mut Cluster::new();
    gone(c, "MGR_DOWN");
    let mut map = (*c.state.mgrmap).clone();
    map.available = false;
    let changes = ::cluster::Changes::one(::cluster::Change::MgrMap(Box::new(map)));
    c.state = c.state.apply(changes, c.now).unwrap().0;
    raised(c, "MGR_DOWN", "HEALTH_WARN", "no active mgr", "");
}

#[test]
fn a_placement_map_with_the_old_straw() {
    let c = &mut Cluster::new();
    gone(c, "OLD_CRUSH_STRAW_CALC_VERSION");
    ok(
        c,
        r#"{"prefix":"osd crush set-tunable","tunable":"straw_calc_version","value":0}"#,
    );
    raised(
        c,
        "OLD_CRUSH_STRAW_CALC_VERSION",
        "HEALTH_WARN",
        "crush map has straw_calc_version=0",
        "",
    );
}

#[test]
fn clients_that_need_not_prove_their_global_ids() {
    let c = &mut Cluster::new();
    gone(c, "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED");
    ok(
        c,
        r#"{"prefix":"config set","who":"mon","name":"auth_allow_insecure_global_id_reclaim","value":"true"}"#,
    );
    raised(
        c,
        "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED",
        "HEALTH_WARN",
        "mon is allowing insecure global_id reclaim",
        "mon.a has auth_allow_insecure_global_id_reclaim set to true",
    );
}

#[test]
fn users_whose_keys_expire() {
    let c = &mut Cluster::new();
    let code = "AUTH_KEY_EXPIRES";
    let expire = |c: &mut Cluster, when: &str| {
        ok(
            c,
            &format!(r#"{{"prefix":"auth expire","entity":"client.a","when":"{when}"}}"#),
        );
    };
    ok(c, r#"{"prefix":"auth get-or-create","entity":"client.a"}"#);
    expire(c, "8d");
    gone(c, code);
    expire(c, "7d");
    let summary = "1 user(s) whose keys expire soon, or have expired";
    raised(c, code, "HEALTH_WARN", summary, "client.a expires at ");
    // Its time comes: what is open ends, once, and both logs say so.
    let name = types::AuthName::new(types::EntityKind::Client, "a");
    let epoch = |c: &Cluster| c.state.auth.get(&name).unwrap().epoch;
    let open = epoch(c);
    assert!(c.upkeep().is_empty() && epoch(c) == open, "not yet");
    c.now.sec += 7 * 86_400;
    assert_eq!(
        c.upkeep(),
        ["The time of client.a is over: its sessions and tickets end"]
    );
    assert!(epoch(c) > open);
    let ended = epoch(c);
    assert!(c.upkeep().is_empty() && epoch(c) == ended, "it is done");
    raised(c, code, "HEALTH_WARN", summary, "client.a expired at ");
    let log = c.text(r#"{"prefix":"log last","num":5,"level":"info","channel":"audit"}"#);
    assert!(log.contains("The time of client.a is over"), "{log}");
    ok(
        c,
        r#"{"prefix":"auth expire","entity":"client.a","when":"never"}"#,
    );
    gone(c, code);
    assert_eq!(epoch(c), ended);
}

#[test]
fn a_pool_placed_as_if_it_had_fewer_groups() {
    let c = &mut Cluster::new();
    pool(c);
    gone(c, "SMALLER_PGP_NUM");
    ok(
        c,
        r#"{"prefix":"osd pool set","pool":"p","var":"pgp_num","val":"4"}"#,
    );
    raised(
        c,
        "SMALLER_PGP_NUM",
        "HEALTH_WARN",
        "1 pools have pg_num > pgp_num",
        "pool p pg_num 8 > pgp_num 4",
    );
}

#[test]
fn a_pool_with_an_osd_that_is_nearly_full() {
    let c = &mut Cluster::with_osds(1);
    pool(c);
    c.fill(0, 0.86);
    c.upkeep();
    raised(
        c,
        "POOL_NEARFULL",
        "HEALTH_WARN",
        "1 pool(s) nearfull",
        "pool 'p' is nearfull",
    );
}
