//! Quotas and settings of pools, as transcripts. What is answered was tried with 16.2.15.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;

/// The sample with a pool `p` of one PG.
fn with_pool() -> Cluster {
    let mut c = Cluster::new();
    let make = r#"{"prefix":"osd pool create","pool":"p","pg_num":1,"pgp_num":1}"#;
    assert_eq!(c.run(make, b"").code, 0);
    c.report();
    c
}

fn said(c: &mut Cluster, command: &str) -> (i32, String) {
    let out = c.run(command, b"");
    (out.code, out.status)
}

fn set_quota(c: &mut Cluster, field: &str, val: &str) -> (i32, String) {
    let text = format!(r#"{{"prefix":"osd pool set-quota","pool":"p","field":"{field}","val":"{val}"}}"#);
    said(c, &text)
}

#[test]
fn quotas_are_read_as_the_real_one_reads_them() {
    let c = &mut with_pool();
    for (field, val, want) in [
        ("max_objects", "10", Ok(10)),
        ("max_objects", "10K", Ok(10_000)),
        ("max_objects", "9E", Ok(9_000_000_000_000_000_000u64)),
        ("max_objects", "+5", Ok(5)),
        ("max_objects", "", Err("strict_sistrtoll: value not specified")),
        (
            "max_objects",
            "10Ki",
            Err("strict_si_cast: unit prefix not recognized"),
        ),
        (
            "max_objects",
            "1k",
            Err("strict_si_cast: unit prefix not recognized"),
        ),
        (
            "max_objects",
            "-1",
            Err("strict_sistrtoll: value should not be negative"),
        ),
        (
            "max_objects",
            "10KB",
            Err("Expected option value to be integer, got '10KB'"),
        ),
        (
            "max_objects",
            "1.5K",
            Err("Expected option value to be integer, got '1.5'"),
        ),
        (
            "max_objects",
            "K",
            Err("Expected option value to be integer, got ''"),
        ),
        ("max_objects", "100E", Err("strict_sistrtoll: value out of range")),
        // The real one stores a negative number.
        ("max_objects", "10E", Err("strict_sistrtoll: value out of range")),
        (
            "max_objects",
            "99999999999999999999",
            Err("The option value '99999999999999999999' seems to be invalid"),
        ),
        ("max_bytes", "10K", Ok(10_240)),
        ("max_bytes", "10Ki", Ok(10_240)),
        ("max_bytes", "10KB", Ok(10_240)),
        ("max_bytes", "10B", Ok(10)),
        (
            "max_bytes",
            "10KiB",
            Err("strict_iecstrtoll: illegal prefix (length > 2)"),
        ),
        (
            "max_bytes",
            "1.5G",
            Err("strict_iecstrtoll: illegal prefix (length > 2)"),
        ),
        (
            "max_bytes",
            "10k",
            Err("strict_iecstrtoll: unit prefix not recognized"),
        ),
        (
            "max_bytes",
            " 5",
            Err("strict_iecstrtoll: unit prefix not recognized"),
        ),
        (
            "max_bytes",
            "10Bi",
            Err("strict_iecstrtoll: illegal prefix \"Bi\""),
        ),
        (
            "max_bytes",
            "B",
            Err("Expected option value to be integer, got ''"),
        ),
        (
            "max_bytes",
            "5-3",
            Err("Expected option value to be integer, got '5-3'"),
        ),
        (
            "max_bytes",
            "-5",
            Err("strict_iecstrtoll: value should not be negative"),
        ),
        (
            "max_bytes",
            "100E",
            Err("strict_iecstrtoll: value seems to be too large"),
        ),
        (
            "max_bytes",
            "é",
            Err("strict_iecstrtoll: unit prefix not recognized"),
        ),
        ("max_bytes", "", Err("strict_iecstrtoll: value not specified")),
        ("max_bytes", "0", Ok(0)),
    ] {
        let want = match want {
            Ok(n) => (0, format!("set-quota {field} = {n} for pool p")),
            Err(why) => (-22, format!("error parsing value '{val}': {why}")),
        };
        assert_eq!(set_quota(c, field, val), want);
    }
    let nothing = r#"{"prefix":"osd pool set-quota","pool":"no","field":"max_bytes","val":"1"}"#;
    assert_eq!(said(c, nothing), (-2, "unrecognized pool 'no'".into()));
    let field = (
        -22,
        "unrecognized field 'size'; should be 'max_bytes' or 'max_objects'".into(),
    );
    assert_eq!(set_quota(c, "size", "1"), field);
}

#[test]
fn a_quota_is_told_before_it_is_reached_and_then() {
    let c = &mut with_pool();
    for (name, percent) in [("warn", 70), ("crit", 90)] {
        let option = format!("mon_pool_quota_{name}_threshold");
        let text =
            format!(r#"{{"prefix":"config set","who":"global","name":"{option}","value":"{percent}"}}"#);
        assert_eq!(c.run(&text, b"").code, 0);
    }
    fn health(c: &mut Cluster, objects: i64, bytes: i64) -> (Vec<String>, String) {
        c.each_pg(|s| {
            s.stats.sum.num_objects = objects;
            s.stats.sum.num_bytes = bytes;
        });
        let logged = c.upkeep();
        let all = c.text(r#"{"prefix":"health","detail":"detail"}"#);
        let of_pool = |l: &&str| l.contains("POOL_") && l.contains("FULL") || l.starts_with("    pool 'p' ");
        let lines: Vec<&str> = all.lines().filter(of_pool).collect();
        let lines = lines.into_iter().filter(|l| !l.contains("application"));
        (logged, lines.collect::<Vec<_>>().join("\n"))
    }
    assert_eq!(set_quota(c, "max_objects", "2000").0, 0);
    let check = |c: &mut Cluster, objects: i64, bytes: i64, log: &[&str], want: &str| {
        let (logged, lines) = health(c, objects, bytes);
        assert_eq!(
            (logged, lines.as_str()),
            (log.iter().map(|l| l.to_string()).collect(), want)
        );
    };
    check(c, 1399, 0, &[], "");
    let near = "[WRN] POOL_NEAR_FULL: 1 pools nearfull\n    pool 'p' has 1400 objects (max 2000)";
    check(c, 1400, 0, &[], near);
    let crit = "[ERR] POOL_FULL: 1 pools full\n    pool 'p' has 1800 objects (max 2000)";
    check(c, 1800, 0, &[], crit);
    assert_eq!(set_quota(c, "max_bytes", "25000").0, 0);
    let both =
        format!("{crit}\n[WRN] POOL_NEAR_FULL: 1 pools nearfull\n    pool 'p' has 18 KiB (max 24 KiB)");
    check(c, 1800, 18_003, &[], &both);
    let full = "[WRN] POOL_FULL: 1 pool(s) full\n    pool 'p' is full (running out of quota)";
    let reached = "pool 'p' is full (reached quota's max_bytes: 24 KiB)";
    check(
        c,
        1800,
        25_000,
        &[reached],
        &format!("{full}\n    pool 'p' has 1800 objects (max 2000)"),
    );
    // Said once.
    check(c, 2001, 30_000, &[], full);
    let shown = c.text(r#"{"prefix":"osd pool get-quota","pool":"p"}"#);
    assert_eq!(
        shown,
        "quotas for pool 'p':\n  max objects: 2k objects  (current num objects: 2001 objects)\n  max bytes  : 24 \
         KiB  (current num bytes: 30000 bytes)\n"
    );
    assert_eq!(set_quota(c, "max_bytes", "0").0, 0);
    assert_eq!(set_quota(c, "max_objects", "1M").0, 0);
    check(
        c,
        2001,
        30_000,
        &["pool 'p' no longer out of quota; removing NO_QUOTA flag"],
        "",
    );
}

#[test]
fn settings_are_checked_as_the_real_one_checks_them() {
    let c = &mut with_pool();
    let boolean = "expecting value 'true', 'false', '0', or '1'";
    let tier = "(13) Permission denied";
    let double = |kind: &str, v: &str| {
        format!("error parsing {kind} value '{v}': strict_strtod: expected double, got: '{v}'")
    };
    let int = |kind: &str, v: &str| {
        format!("error parsing {kind} value '{v}': Expected option value to be integer, got '{v}'")
    };
    let sure = "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, \
                pass --yes-i-really-mean-it if you really do.";
    let refused: Vec<(&str, &str, i32, String)> = [
        ("nodelete", "yes", -22, boolean),
        ("eio", "2", -22, boolean),
        ("hashpspool", "false", -1, sure),
        ("crush_rule", "0", -2, "crush rule 0 does not exist"),
        ("pgp_num", "2", -22, "specified pgp_num 2 > pg_num 1"),
        (
            "pgp_num",
            "-1",
            -22,
            "specified pgp_num must > 0, but you set to -1",
        ),
        ("pg_autoscale_mode", "", -22, "specified invalid mode "),
        (
            "fast_read",
            "false",
            -22,
            "fast read is not supported in replication pool",
        ),
        ("use_gmt_hitset", "1", -13, tier),
        ("hit_set_type", "bloom", -13, tier),
        ("target_max_bytes", "1", -13, tier),
        (
            "target_size_ratio",
            "-1",
            -22,
            "target_size_ratio cannot be negative",
        ),
        (
            "pg_autoscale_bias",
            "5000",
            -22,
            "pg_autoscale_bias must be between 0 and 1000",
        ),
        (
            "pg_autoscale_bias",
            "-1",
            -22,
            "pg_autoscale_bias must be between 0 and 1000",
        ),
        (
            "compression_required_ratio",
            "1.5",
            -22,
            "compression_required_ratio is out of range (0-1): '1.5'",
        ),
        (
            "recovery_priority",
            "11",
            -22,
            "pool recovery_priority must be between -10 and 10",
        ),
        ("pg_num_min", "2", -22, "specified pg_num_min 2 > pg_num 1"),
        ("pg_num_max", "-1", -22, "specified pg_num_max -1 < pg_num 1"),
        ("compression_mode", "", -22, "unrecognized compression mode ''"),
        (
            "compression_algorithm",
            "brotli",
            -22,
            "unrecognized compression_algorithm 'brotli'",
        ),
        (
            "fingerprint_algorithm",
            "none",
            -22,
            "unrecognized fingerprint_algorithm 'none'",
        ),
        ("csum_type", "4", -22, "unrecognized csum_type '4'"),
        ("dedup_tier", "1", -22, "expecting value 'pool name'"),
        ("dedup_tier", "no", -2, "unrecognized pool 'no'"),
        (
            "target_size_bytes",
            "unset",
            -22,
            "error parsing unit value 'unset': strict_iecstrtoll: illegal prefix (length > 2)",
        ),
        (
            "csum_max_block",
            "1.5",
            -22,
            "error parsing int value '1.5': strict_iecstrtoll: unit prefix not recognized",
        ),
        ("read_ratio", "5", -22, "unrecognized variable 'read_ratio'"),
    ]
    .into_iter()
    .map(|(var, val, code, said)| (var, val, code, said.to_string()))
    .chain([
        (
            "scrub_min_interval",
            "unset",
            -22,
            double("floating point", "unset"),
        ),
        ("compression_required_ratio", "abc", -22, double("float", "abc")),
        // The real one stores both.
        ("scrub_max_interval", "nan", -22, double("floating point", "nan")),
        ("deep_scrub_interval", "inf", -22, double("floating point", "inf")),
        ("scrub_priority", "1.5", -22, int("integer", "1.5")),
        ("pg_num_max", "2K", -22, int("int", "2K")),
        ("dedup_cdc_chunk_size", "4K", -22, int("int", "4K")),
    ])
    .collect();
    let set = |c: &mut Cluster, var: &str, val: &str| {
        let text = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#);
        said(c, &text)
    };
    let get = |c: &mut Cluster, var: &str| {
        let text = format!(r#"{{"prefix":"osd pool get","pool":"p","var":"{var}"}}"#);
        c.text(&text)
    };
    for (var, val, code, want) in refused {
        assert_eq!(set(c, var, val), (code, want), "{var} {val}");
    }
    for (var, val, shown) in [
        ("eio", "1", "eio: true\n"),
        ("eio", "false", "eio: false\n"),
        ("scrub_min_interval", "-1", "scrub_min_interval: -1\n"),
        ("scrub_min_interval", "0.25", "scrub_min_interval: 0.25\n"),
        ("scrub_min_interval", "0", ""),
        ("pg_autoscale_bias", "1e3", "pg_autoscale_bias: 1000\n"),
        (
            "recovery_op_priority",
            "9999999999",
            "recovery_op_priority: 9999999999\n",
        ),
        ("compression_mode", "none", "compression_mode: none\n"),
        ("csum_type", "none", "csum_type: none\n"),
        ("csum_max_block", "4Ki", "csum_max_block: 4096\n"),
        ("fingerprint_algorithm", "sha1", "fingerprint_algorithm: sha1\n"),
        ("dedup_tier", "p", "dedup_tier: 1\n"),
        ("dedup_cdc_chunk_size", "-1", "dedup_cdc_chunk_size: -1\n"),
        ("pg_num_max", "4", "pg_num_max: 4\n"),
        ("pg_num_min", "1", "pg_num_min: 1\n"),
    ] {
        assert_eq!(set(c, var, val), (0, format!("set pool 1 {var} to {val}")));
        assert_eq!(get(c, var), shown);
    }
    let beyond = (-22, "specified pg_num 8 < pg_num_max 4".to_string());
    assert_eq!(set(c, "pg_num", "8"), beyond);
    assert_eq!(set(c, "pg_num_max", "0").0, 0);
    for var in ["csum_type", "compression_mode", "fingerprint_algorithm"] {
        assert_eq!(set(c, var, "unset"), (0, format!("unset pool 1 {var}")));
        assert_eq!(get(c, var), "");
    }
    assert_eq!(set(c, "nopgchange", "1").0, 0);
    let held =
        |var| format!("pool {var} change is disabled; you must unset nopgchange flag for the pool first");
    assert_eq!(set(c, "pg_num", "8"), (-1, held("pg_num")));
    assert_eq!(set(c, "pgp_num", "1"), (-1, held("pgp_num")));
}
