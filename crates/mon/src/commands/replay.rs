//! Recorded runs of the real 16.2.15 against ours: leniency of the parser, and shapes of the JSON output.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use serde_json::Value;

fn vector(name: &str) -> String {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/monitor/");
    std::fs::read_to_string(format!("{dir}{name}")).unwrap()
}

/// Where we are lenient on purpose (numbers and booleans as text), and where the recording depends on what
/// else was in that cluster (more than one copy, erasure code, an imported keyring in the input).
fn differs_on_purpose(text: &str) -> bool {
    const LENIENT: [&str; 10] = [
        r#""pg_num":"8""#,
        r#""yes_i_really_really_mean_it":"true"}"#,
        r#""bulk":"true""#,
        r#""weight":1}"#,
        r#""weight":"1.0""#,
        r#""id":"1""#,
        r#""expire":"10""#,
        r#""expire":10}"#,
        r#""target_size_ratio":1}"#,
        r#""size":2"#,
    ];
    const OF_THAT_CLUSTER: [&str; 6] = [
        "osd_pool_default_size",
        // It had junk in its input.
        "setcrushmap",
        "client.imp",
        "auth import",
        "client.t4",
        "\"epoch\":3",
    ];
    LENIENT.iter().chain(&OF_THAT_CLUSTER).any(|p| text.contains(p))
}

#[test]
fn leniency_of_the_parser() {
    let mut c = Cluster::new();
    let pool = c.run(
        r#"{"prefix":"osd pool create","pool":"monspec2","pg_num":8}"#,
        b"",
    );
    assert_eq!(pool.code, 0, "{}", pool.status);
    let mut checked = 0;
    for line in vector("json-leniency.txt").lines() {
        let Some((text, result)) = line.strip_prefix("MON ").and_then(|l| l.rsplit_once(" => ")) else {
            continue;
        };
        // The recorder repeated three texts without their braces.
        if differs_on_purpose(text) || text.is_empty() {
            continue;
        }
        let code: i32 = result.split(' ').next().unwrap().parse().unwrap();
        let out = c.run(text, b"");
        assert_eq!(out.code, code, "{line}\nours: {}", out.status);
        if code < 0 {
            let said = result.splitn(3, ' ').nth(2).unwrap();
            let said = &said[1..said.len() - 1];
            assert_eq!(out.status, said.replace("\\'", "'"), "{line}");
        }
        checked += 1;
    }
    assert!(checked > 60, "{checked}");
}

/// Commands as they stand in the recording, and how ours are called; without a second they are called alike.
const SAME_SHAPE: [(&str, &str); 66] = [
    ("status", ""),
    ("health", ""),
    ("health detail", r#"{"prefix":"health","detail":"detail"}"#),
    ("df", ""),
    ("df detail", r#"{"prefix":"df","detail":"detail"}"#),
    ("osd tree", ""),
    ("osd df", ""),
    ("osd df tree", r#"{"prefix":"osd df","output_method":"tree"}"#),
    ("osd dump", ""),
    ("osd stat", ""),
    ("osd lspools", ""),
    ("osd pool ls", ""),
    (
        "osd pool ls detail",
        r#"{"prefix":"osd pool ls","detail":"detail"}"#,
    ),
    ("osd pool stats", ""),
    (
        "osd pool get monspec2 all",
        r#"{"prefix":"osd pool get","pool":"monspec2","var":"all"}"#,
    ),
    (
        "osd pool get monspec2 size",
        r#"{"prefix":"osd pool get","pool":"monspec2","var":"size"}"#,
    ),
    (
        "osd pool application get monspec2",
        r#"{"prefix":"osd pool application get","pool":"monspec2"}"#,
    ),
    (
        "osd pool get-quota monspec2",
        r#"{"prefix":"osd pool get-quota","pool":"monspec2"}"#,
    ),
    ("osd pool autoscale-status", ""),
    ("pg stat", ""),
    (
        "pg dump pools",
        r#"{"prefix":"pg dump","dumpcontents":["pools"]}"#,
    ),
    (
        "pg dump pgs_brief",
        r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"]}"#,
    ),
    ("pg dump sum", r#"{"prefix":"pg dump","dumpcontents":["sum"]}"#),
    ("pg map 5.0", r#"{"prefix":"pg map","pgid":"1.0"}"#),
    ("pg dump_stuck", ""),
    ("mon dump", ""),
    ("mon stat", ""),
    ("quorum_status", ""),
    ("fsid", ""),
    ("version", ""),
    ("config dump", ""),
    ("config log", ""),
    ("config-key ls", ""),
    ("osd crush rule ls", ""),
    ("osd crush rule dump", ""),
    (
        "osd crush rule dump replicated_rule",
        r#"{"prefix":"osd crush rule dump","name":"replicated_rule"}"#,
    ),
    ("osd crush tree", ""),
    ("osd crush dump", ""),
    ("osd crush class ls", ""),
    ("osd crush show-tunables", ""),
    ("osd erasure-code-profile ls", ""),
    (
        "osd erasure-code-profile get default",
        r#"{"prefix":"osd erasure-code-profile get","name":"default"}"#,
    ),
    ("osd getmaxosd", ""),
    ("osd ls", ""),
    (
        "osd ls-tree default",
        r#"{"prefix":"osd ls-tree","name":"default"}"#,
    ),
    (
        "osd map monspec2 someobject",
        r#"{"prefix":"osd map","pool":"monspec2","object":"someobject"}"#,
    ),
    ("osd perf", ""),
    ("osd utilization", ""),
    ("osd blocked-by", ""),
    ("osd info 0", r#"{"prefix":"osd info","id":0}"#),
    ("osd numa-status", ""),
    ("mgr stat", ""),
    ("mgr services", ""),
    ("fs volume ls", ""),
    ("log last 3", r#"{"prefix":"log last","num":3}"#),
    ("time-sync-status", ""),
    ("device ls", ""),
    ("crash ls", ""),
    ("service dump", ""),
    ("service status", ""),
    ("progress json", ""),
    (
        "auth get client.admin",
        r#"{"prefix":"auth get","entity":"client.admin"}"#,
    ),
    (
        "auth get-key client.admin",
        r#"{"prefix":"auth get-key","entity":"client.admin"}"#,
    ),
    ("auth ls", ""),
    (
        "osd crush rule dump r2",
        r#"{"prefix":"osd crush rule dump","name":"r2"}"#,
    ),
    ("balancer status", ""),
];

/// Keys that depend on what is in the cluster: names, options, checks, metadata servers.
const DYNAMIC: [&str; 16] = [
    "checks",
    "options",
    "application_metadata",
    "erasure_code_profiles",
    "blocklist",
    "caps",
    "fsmap",
    "pool_stats",
    "stats_by_class",
    "services",
    "progress_events",
    "modules",
    "osd_xinfo",
    "completed",
    // Counters of a Ceph newer or older than the recording's file system pools.
    "snaps",
    "children",
];

/// Compares keys, their order, and kinds of values; of lists the first element.
fn same_shape(real: &Value, ours: &Value, path: &str, wrong: &mut Vec<String>) {
    match (real, ours) {
        (Value::Object(r), Value::Object(o)) => {
            let keys = |m: &serde_json::Map<String, Value>| m.keys().cloned().collect::<Vec<_>>();
            if keys(r) != keys(o) {
                wrong.push(format!("{path}: {:?} against {:?}", keys(r), keys(o)));
                return;
            }
            for (k, v) in r.iter().filter(|(k, _)| !DYNAMIC.contains(&k.as_str())) {
                same_shape(v, &o[k], &format!("{path}.{k}"), wrong);
            }
        }
        (Value::Array(r), Value::Array(o)) => {
            if let (Some(r), Some(o)) = (r.first(), o.first()) {
                same_shape(r, o, &format!("{path}[]"), wrong);
            }
        }
        (r, o) if std::mem::discriminant(r) != std::mem::discriminant(o) => {
            wrong.push(format!("{path}: {r} against {o}"));
        }
        _ => {}
    }
}

fn recorded(cmd: &str) -> Value {
    let all = vector("commands.jsonl");
    let runs = all.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let of = |v: &Value| match &v["cmd"] {
        Value::String(s) => s.clone(),
        Value::Array(a) => a.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    };
    let run = runs.into_iter().find(|v| of(v) == cmd && v["json_rc"] == 0);
    // Some were recorded in their plain form only, which is JSON.
    let run = run.unwrap_or_else(|| {
        vector("commands.jsonl")
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap())
            .find(|v| of(v) == cmd && v["rc"] == 0)
            .unwrap_or_else(|| panic!("{cmd}: not in the recording"))
    });
    let text = run["json_stdout"]
        .as_str()
        .filter(|t| !t.trim().is_empty())
        .or(run["stdout"].as_str())
        .unwrap();
    let mut stream = serde_json::Deserializer::from_str(text.trim()).into_iter();
    stream.next().unwrap_or_else(|| panic!("{cmd}: empty")).unwrap()
}

/// Lists that XML has no name of entries for; none in commands that have no XML with the real one either.
fn nameless(words: &str, answer: &Value) -> Vec<String> {
    let asked: Value = serde_json::from_str(words).unwrap_or_else(|_| serde_json::json!({"prefix": words}));
    let prefix = asked["prefix"].as_str().unwrap();
    let modules = ["progress", "fs volume", "crash", "osd pool autoscale", "balancer"];
    if modules.iter().any(|m| prefix.starts_with(m)) {
        return Vec::new();
    }
    let names = forms::names::Names {
        prefix,
        args: asked.as_object().unwrap(),
        told: false,
    };
    forms::names::nameless(answer, &names)
}

#[test]
fn output_has_the_recorded_shape() {
    let mut c = Cluster::new();
    for setup in [
        r#"{"prefix":"osd pool create","pool":"monspec2","pg_num":32}"#,
        r#"{"prefix":"osd pool application enable","pool":"monspec2","app":"rbd"}"#,
        r#"{"prefix":"osd crush rule create-replicated","name":"r2","root":"default","type":"host","class":"hdd"}"#,
        r#"{"prefix":"config-key set","key":"a/b","val":"c"}"#,
    ] {
        let out = c.run(setup, b"");
        assert_eq!(out.code, 0, "{setup}: {}", out.status);
    }
    let mut wrong = Vec::new();
    for (cmd, ours) in SAME_SHAPE {
        let real = recorded(cmd);
        let words = if ours.is_empty() { cmd } else { ours };
        let ours = c.json(words);
        same_shape(&real, &ours, cmd, &mut wrong);
        wrong.extend(nameless(words, &ours));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pg_dump_has_the_recorded_shape() {
    let mut c = Cluster::new();
    c.run(r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#, b"");
    let real: Value = serde_json::from_str(&vector("pg-dump-shape.json")).unwrap();
    let ours = c.json("pg dump");
    let mut wrong = Vec::new();
    same_shape(&real, &ours, "pg dump", &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
