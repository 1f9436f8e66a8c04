//! Pools of shards, as transcripts: made by profiles where every OSD serves them, set, shown, and counted.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use crate::commands::views::pg_stats::Figures;
use types::PgId;
use types::pgstats::{NoRoom, pg_state};
use types::pool::pool_flag;

fn said(c: &mut Cluster, command: &str) -> (i32, String) {
    let out = c.run(command, b"");
    (out.code, out.status)
}

fn profile(c: &mut Cluster, name: &str, words: &str) -> (i32, String) {
    let words: Vec<String> = words.split(' ').map(|w| format!("\"{w}\"")).collect();
    let text = format!(
        r#"{{"prefix":"osd erasure-code-profile set","name":"{name}","profile":[{}]}}"#,
        words.join(",")
    );
    said(c, &text)
}

fn create(c: &mut Cluster, pool: &str, rest: &str) -> (i32, String) {
    let text =
        format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8,"pool_type":"erasure"{rest}}}"#);
    said(c, &text)
}

fn set(c: &mut Cluster, var: &str, val: &str) -> (i32, String) {
    said(
        c,
        &format!(r#"{{"prefix":"osd pool set","pool":"e","var":"{var}","val":"{val}"}}"#),
    )
}

/// Six OSDs that serve shards, and a pool `e` of 4+2.
fn coded() -> Cluster {
    let mut c = Cluster::with_osds(6);
    c.serve_shards();
    let words = "k=4 m=2 crush-failure-domain=osd";
    assert_eq!(profile(&mut c, "wide", words), (0, String::new()));
    let made = create(&mut c, "e", r#","erasure_code_profile":"wide""#);
    assert_eq!(made, (0, "pool 'e' created".into()));
    c
}

fn pg_of(c: &Cluster) -> PgId {
    c.state.pgs.iter().next().unwrap().0
}

#[test]
fn without_osds_that_serve_them_there_are_none() {
    let no = (
        -95,
        "no OSD of this cluster serves erasure-coded pools: start OSDs of this release first".to_string(),
    );
    assert_eq!(create(&mut Cluster::with_osds(0), "e", ""), no);
    let mut c = Cluster::with_osds(4);
    assert_eq!(create(&mut c, "e", ""), no);
    c.serve_shards();
    c.serves_shards(2, false);
    let (code, why) = create(&mut c, "e", "");
    assert!(
        code == -95 && why.contains("1 of 4") && why.contains("osd.2"),
        "{why}"
    );
    // Also while it is down: it may come back.
    assert_eq!(c.run(r#"{"prefix":"osd down","ids":["2"]}"#, b"").code, 0);
    assert_eq!(create(&mut c, "e", "").0, -95);
    assert_eq!(c.state.format.unwrap().features, 0);
    c.serves_shards(2, true);
    let domain = "k=2 m=1 crush-failure-domain=osd";
    assert_eq!(profile(&mut c, "p", domain).0, 0);
    // Nor while a monitor lives that would end with the first such pool.
    c.add_monitor("b", 6800);
    let before = cluster::MonReport {
        name: "b".into(),
        ..cluster::MonReport::default()
    };
    c.stats.mons.insert("b".into(), before);
    let (code, why) = create(&mut c, "e", r#","erasure_code_profile":"p""#);
    assert!(code == -95 && why.contains("mon.b does not know of"), "{why}");
    c.monitor_lives("b");
    assert_eq!(create(&mut c, "e", r#","erasure_code_profile":"p""#).0, 0);
    // From now on only programs that know of shards read this state, and only OSDs that serve them come up.
    assert_eq!(c.state.format.unwrap().features, 1 << 1);
    c.serves_shards(2, false);
    c.boot(2);
    assert!(!c.state.osdmap.is_up(2));
    c.serves_shards(2, true);
    c.boot(2);
    assert!(c.state.osdmap.is_up(2));
}

#[test]
fn a_profile_gives_the_pool_its_shape() {
    let mut c = coded();
    let map = c.state.osdmap.clone();
    let pool = map.pool(map.pool_by_name("e").unwrap()).unwrap();
    assert_eq!((pool.size, pool.min_size, pool.stripe_width), (6, 5, 16_384));
    assert_eq!(pool.erasure_code_profile, "wide");
    let rule = map.crush.rule(u32::from(pool.crush_rule)).unwrap();
    assert_eq!((rule.kind, rule.max_size), (3, 6));
    assert_eq!(
        map.crush.rule_id("e"),
        Some(i32::from(pool.crush_rule)),
        "named as the pool"
    );
    let lines = c.text(r#"{"prefix":"osd pool ls","detail":"detail"}"#);
    assert!(
        lines.contains("'e' erasure profile wide size 6 min_size 5 crush_rule")
            && lines.contains("stripe_width 16384"),
        "{lines}"
    );
    let dump = c.json("osd dump");
    let shown = &dump["pools"][0];
    assert_eq!(
        (&shown["type"], &shown["erasure_code_profile"]),
        (&3.into(), &"wide".into())
    );
    // Again: as Ceph, no error.
    let again = create(&mut c, "e", r#","erasure_code_profile":"wide""#);
    assert_eq!(again, (0, "pool 'e' already exists".into()));
    // The default profile shares one rule.
    let domain = "k=2 m=1 crush-failure-domain=osd stripe_unit=16K";
    assert_eq!(profile(&mut c, "small", domain).0, 0);
    let made = create(&mut c, "f", r#","erasure_code_profile":"small","rule":"e""#);
    assert_eq!(made.0, 0, "{}", made.1);
    let map = c.state.osdmap.clone();
    let pool = map.pool(map.pool_by_name("f").unwrap()).unwrap();
    assert_eq!((pool.size, pool.min_size, pool.stripe_width), (3, 2, 32_768));
    assert_eq!(map.crush.rule_id("f"), None);
}

#[test]
fn what_cannot_be_a_pool_of_shards_is_refused() {
    let mut c = coded();
    let (code, why) = create(&mut c, "x", r#","erasure_code_profile":"nobody""#);
    assert!(code == -22 && why.contains("no 'plugin' entry"), "{why}");
    let (code, why) = create(
        &mut c,
        "x",
        r#","erasure_code_profile":"wide","rule":"replicated_rule""#,
    );
    assert!(
        code == -22 && why.contains("not for erasure-coded pools"),
        "{why}"
    );
    let (code, why) = create(&mut c, "x", r#","erasure_code_profile":"wide","rule":"no""#);
    assert_eq!((code, why.as_str()), (-2, "specified rule no doesn't exist"));
    assert_eq!(c.state.osdmap.pools.len(), 1);
    for (words, code, part) in [
        ("k=1 m=1", -22, "k=1 must be >= 2"),
        ("k=2 m=0", -22, "m=0 must be >= 1"),
        (
            "k=x m=1",
            -22,
            "could not convert k=x to int because Expected option value to be integer, got 'x', set to default 7",
        ),
        ("k=33 m=1", -22, "k=33 must be <= 32"),
        ("k=2 m=17", -22, "m=17 must be <= 16"),
        ("k=2 m=1 w=9", -22, "w=9 must be one of {8, 16, 32}"),
        ("k=2 m=1 mapping=D_D", -95, "'mapping' is not here"),
        (
            "k=2 m=1 ruleset-failure-domain=osd",
            -22,
            "property 'ruleset-failure-domain' is no longer supported; try 'crush-failure-domain' instead",
        ),
        (
            "k=2 m=1 crush-failure-domain=nosuch",
            -22,
            "erasure-code-profile {crush-failure-domain=nosuch,k=2,m=1,plugin=jerasure,technique=reed_sol_van} contains an invalid failure-domain \"nosuch\"",
        ),
        ("k=2 m=1 stripe_unit=1000", -22, "multiple of 4096"),
        ("k=2 m=1 stripe_unit=8M", -22, "multiple of 4096"),
        ("k=2 m=1 stripe_unit=x", -22, "could not parse stripe_unit"),
        (
            "plugin=lrc k=4 m=2 l=3",
            -95,
            "erasure code plugin 'lrc' is not here",
        ),
        (
            "plugin=shec k=4 m=3 c=2",
            -95,
            "erasure code plugin 'shec' is not here",
        ),
        (
            "plugin=clay k=4 m=2 d=5",
            -95,
            "erasure code plugin 'clay' is not here",
        ),
        ("plugin=zebra k=4 m=2", -95, "nobody knows it"),
        (
            "k=2 m=2 technique=liberation",
            -95,
            "technique 'liberation' is not here",
        ),
        (
            "plugin=isa k=2 m=2 technique=cauchy_good",
            -95,
            "reed_sol_van, cauchy",
        ),
    ] {
        let (got, why) = profile(&mut c, "bad", words);
        assert!(got == code && why.contains(part), "{words}: {got} {why}");
    }
    assert!(!c.state.osdmap.erasure_code_profiles.contains_key("bad"));
}

#[test]
fn every_code_that_needs_any_k_is_taken() {
    let mut c = coded();
    for (words, key, value) in [
        ("plugin=isa", "k", "7"),
        ("plugin=isa technique=cauchy k=3 m=2", "technique", "cauchy"),
        ("technique=cauchy_good k=3 m=2", "packetsize", "2048"),
        ("technique=cauchy_orig", "k", "2"),
        ("k=5", "m", "2"),
    ] {
        let name = words.replace(['=', ' '], "-");
        assert_eq!(profile(&mut c, &name, words), (0, String::new()), "{words}");
        let kept = &c.state.osdmap.erasure_code_profiles[&name];
        assert_eq!(
            kept.get(key).map(String::as_str),
            Some(value),
            "{words}: {kept:?}"
        );
    }
}

#[test]
fn a_profile_in_use_stays_as_it_is() {
    let mut c = coded();
    let force =
        r#"{"prefix":"osd erasure-code-profile set","name":"wide","profile":["k=2","m=1"],"force":true}"#;
    let busy = (
        -16,
        "e pool(s) are using the erasure code profile 'wide'".to_string(),
    );
    assert_eq!(said(&mut c, force), busy);
    assert_eq!(
        said(
            &mut c,
            r#"{"prefix":"osd erasure-code-profile rm","name":"wide"}"#
        ),
        busy
    );
    let rm = r#"{"prefix":"osd pool rm","pool":"e","pool2":"e","yes_i_really_really_mean_it":true}"#;
    assert_eq!(said(&mut c, rm).0, 0);
    assert_eq!(said(&mut c, force), (0, String::new()));
}

#[test]
fn what_is_set_of_a_pool_of_shards() {
    let mut c = coded();
    for (var, val, code, text) in [
        (
            "size",
            "5",
            -95,
            "can not change the size of an erasure-coded pool",
        ),
        (
            "min_size",
            "3",
            -22,
            "pool min_size must be between 4 and size, which is set to 6",
        ),
        (
            "min_size",
            "7",
            -22,
            "pool min_size must be between 4 and size, which is set to 6",
        ),
        ("min_size", "4", 0, "set pool 1 min_size to 4"),
        ("crush_rule", "replicated_rule", -22, "(22) Invalid argument"),
        ("crush_rule", "e", 0, "set pool 1 crush_rule to e"),
        (
            "pg_num",
            "16",
            -95,
            "splitting placement groups of an erasure-coded pool is not built in skep yet",
        ),
        (
            "pg_num",
            "4",
            -95,
            "merging placement groups of an erasure-coded pool is not built in skep yet",
        ),
        (
            "fast_read",
            "1",
            -95,
            "fast_read of erasure-coded pools is not built in skep yet",
        ),
        (
            "allow_ec_overwrites",
            "maybe",
            -22,
            "expecting value 'true', 'false', '0', or '1'",
        ),
        (
            "allow_ec_overwrites",
            "false",
            -22,
            "ec overwrites cannot be disabled once enabled",
        ),
        (
            "allow_ec_overwrites",
            "true",
            0,
            "set pool 1 allow_ec_overwrites to true",
        ),
        (
            "allow_ec_overwrites",
            "0",
            -22,
            "ec overwrites cannot be disabled once enabled",
        ),
    ] {
        assert_eq!(set(&mut c, var, val), (code, text.to_string()), "{var} {val}");
    }
    let pool = c.state.osdmap.pool(1).unwrap();
    assert!(pool.has(pool_flag::EC_OVERWRITES) && pool.min_size == 4);
    let get = |c: &mut Cluster, var: &str| {
        c.text(&format!(
            r#"{{"prefix":"osd pool get","pool":"e","var":"{var}"}}"#
        ))
    };
    assert_eq!(get(&mut c, "allow_ec_overwrites"), "allow_ec_overwrites: true\n");
    assert_eq!(
        get(&mut c, "erasure_code_profile"),
        "erasure_code_profile: wide\n"
    );
    assert!(get(&mut c, "all").contains("erasure_code_profile: wide\n"));
}

#[test]
fn space_is_counted_with_parity() {
    let mut c = coded();
    c.pool_bytes(1, 8 << 20);
    let df = c.json(r#"{"prefix":"df","detail":"detail"}"#);
    let stats = &df["pools"][0]["stats"];
    let (stored, raw) = (
        stats["stored"].as_u64().unwrap(),
        stats["stored_raw"].as_u64().unwrap(),
    );
    assert_eq!(raw, stored * 3 / 2, "{stats}");
    // Copies of the same OSDs have a third of the space, where this has two thirds.
    let free = |c: &Cluster, id| crate::policies::usage::pool_max_avail(&c.state, &c.stats, id);
    let copies = r#"{"prefix":"osd pool create","pool":"r","pg_num":8,"size":3}"#;
    assert_eq!(said(&mut c, copies).0, 0);
    let (coded, copies) = (free(&c, 1), free(&c, 2));
    assert!(copies > 0 && coded.abs_diff(copies * 2) <= 2, "{coded} {copies}");
    let status = c.json("osd pool autoscale-status");
    let rate = |at: usize| status[at]["raw_used_rate"].as_f64();
    assert_eq!((rate(0), rate(1)), (Some(1.5), Some(3.0)));
}

#[test]
fn groups_without_enough_shards_are_not_available() {
    let mut c = coded();
    let pg = pg_of(&c);
    let state = |c: &Cluster| Figures::new(&c.state, &c.stats).pgs[&pg].state;
    assert_eq!(state(&c), pg_state::ACTIVE | pg_state::CLEAN);
    let at: Vec<i32> = c
        .state
        .pgs
        .get(pg)
        .unwrap()
        .acting
        .iter()
        .map(|o| o.unwrap())
        .collect();
    let down = |c: &mut Cluster, osd: i32| {
        let text = format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#);
        assert_eq!(c.run(&text, b"").code, 0);
    };
    down(&mut c, at[0]);
    let s = state(&c);
    assert!(
        s & pg_state::ACTIVE != 0 && s & pg_state::UNDERSIZED != 0 && s & pg_state::CLEAN == 0,
        "{s:x}"
    );
    down(&mut c, at[1]);
    assert!(state(&c) & pg_state::DOWN == 0, "four of six have every object");
    down(&mut c, at[2]);
    let (s, stat) = (state(&c), Figures::new(&c.state, &c.stats).pgs[&pg].clone());
    assert!(s & pg_state::DOWN != 0 && s & pg_state::ACTIVE == 0, "{s:x}");
    assert!(stat.blocked_by.contains(&at[2]), "{stat:?}");
    let health = c.text(r#"{"prefix":"health","detail":"detail"}"#);
    assert!(
        health.contains("PG_AVAILABILITY") && health.contains("8 pgs down"),
        "{health}"
    );
    // Removing what is needed is refused by the same count.
    let map = c.text(&format!(r#"{{"prefix":"pg map","pgid":"{pg}"}}"#));
    assert!(map.contains("NONE"), "{map}");
    c.boot(at[2]);
    assert!(state(&c) & pg_state::DOWN == 0);
}

#[test]
fn file_systems_take_them_for_data_with_overwrites() {
    let mut c = coded();
    for pool in ["meta", "first"] {
        let text = format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8}}"#);
        assert_eq!(said(&mut c, &text).0, 0);
    }
    let new = |meta: &str, data: &str, force: bool| {
        format!(r#"{{"prefix":"fs new","fs_name":"a","metadata":"{meta}","data":"{data}","force":{force}}}"#)
    };
    let (code, why) = said(&mut c, &new("e", "first", true));
    assert!(code == -22 && why.contains("metadata is not permitted"), "{why}");
    let (code, why) = said(&mut c, &new("meta", "e", true));
    assert!(code == -22 && why.contains("no overwrite support"), "{why}");
    let add = r#"{"prefix":"fs add_data_pool","fs_name":"a","pool":"e"}"#;
    assert_eq!(said(&mut c, &new("meta", "first", true)).0, 0);
    let (code, why) = said(&mut c, add);
    assert!(code == -22 && why.contains("no overwrite support"), "{why}");
    assert_eq!(set(&mut c, "allow_ec_overwrites", "true").0, 0);
    let (code, why) = said(&mut c, add);
    assert_eq!((code, why.as_str()), (0, "added data pool 1 to fsmap"));
}

/// Three of 2 + 2 shards are the least, and then two; one has no object.
#[test]
fn with_a_full_disk_one_does_not_go_below_the_data_shards() {
    let mut c = coded();
    assert_eq!(profile(&mut c, "four", "k=2 m=2 crush-failure-domain=osd").0, 0);
    assert_eq!(create(&mut c, "f", r#","erasure_code_profile":"four""#).0, 0);
    let doctor = |c: &mut Cluster| {
        let pool = c.state.osdmap.pool_by_name("f").unwrap();
        let (pg, config) = c.state.pgs.of_pool(pool).next().unwrap();
        let lacking = NoRoom {
            osd: config.in_sync[1],
            needed: true,
            lacks: 5,
        };
        let (leads, lists) = (config.primary, (pg, vec![lacking]));
        c.report_of(leads, |r| r.no_room.extend([lists]));
        c.text(r#"{"prefix":"doctor"}"#)
    };
    let said = doctor(&mut c);
    assert!(said.contains("ceph osd pool set f min_size 2"), "{said}");
    let down = r#"{"prefix":"osd pool set","pool":"f","var":"min_size","val":"2"}"#;
    assert_eq!(c.run(down, b"").code, 0);
    let said = doctor(&mut c);
    assert!(
        said.contains("writes wait") && !said.contains("min_size 1"),
        "{said}"
    );
}

#[test]
fn a_units_size_may_have_a_prefix_in_the_option_too() {
    let mut c = coded();
    let set =
        r#"{"prefix":"config set","who":"mon","name":"osd_pool_erasure_code_stripe_unit","value":"16K"}"#;
    assert_eq!(c.run(set, b"").code, 0);
    assert_eq!(create(&mut c, "f", r#","erasure_code_profile":"wide""#).0, 0);
    let map = c.state.osdmap.clone();
    let pool = map.pool(map.pool_by_name("f").unwrap()).unwrap();
    assert_eq!(pool.stripe_width, 4 << 14);
}
