//! What each capability opens: every command of the table, by every route, against rules of this file's own.
//!
//! The oracle knows a command's service and rights from the recorded descriptions of a real 16.2.15, and of each
//! capability one line of Rust; it shares no code with the parser and the evaluation it judges. What neither the
//! recording nor [`OURS`] lists fails the test: a new command is classified before it is served.

use crate::commands::command::Command;
use crate::commands::table;
use crate::shell::monitor::check_command;
use crate::shell::requests::Route;
use crate::shell::session::Session;
use auth::{AuthMethod, CryptoKey, EntityAuth, KeyDb, PeerCaps};
use bytes::Bytes;
use msgr::Peer;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

/// What a command is, for the oracle.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    service: String,
    rights: String,
    /// None: the monitor's. "" the manager's own, else its module's.
    manager: Option<&'static str>,
}

/// Ours alone, or other than in Ceph: with the reason.
const OURS: [(&str, &str, &str, &str); 24] = [
    ("fs volume rename", "mgr", "rw", "of 18.2"),
    (
        "auth get-or-create-pending",
        "auth",
        "rwx",
        "of versions after the recorded one",
    ),
    (
        "auth commit-pending",
        "auth",
        "rwx",
        "of versions after the recorded one",
    ),
    (
        "auth clear-pending",
        "auth",
        "rwx",
        "of versions after the recorded one",
    ),
    ("auth rotate", "auth", "rwx", "of versions after the recorded one"),
    ("auth expire", "auth", "rwx", "ours"),
    ("doctor", "mon", "r", "ours"),
    ("skep metrics", "mgr", "r", "ours"),
    (
        "osd perf query add",
        "mgr",
        "w",
        "of a module that the recorded manager lacks",
    ),
    ("osd perf query remove", "mgr", "w", "the same"),
    ("osd perf counters get", "mgr", "r", "the same"),
    ("osd pool near", "osd", "rw", "ours"),
    ("qos set", "osd", "rw", "ours"),
    ("qos rm", "osd", "rw", "ours"),
    ("qos ls", "osd", "r", "ours"),
    (
        "perf dump",
        "mon",
        "r",
        "of the admin socket in Ceph, hidden here",
    ),
    (
        "perf schema",
        "mon",
        "r",
        "of the admin socket in Ceph, hidden here",
    ),
    (
        "get_command_descriptions",
        "mon",
        "r",
        "not in the recording of itself",
    ),
    (
        "injectargs",
        "config",
        "rw",
        "not built; would be a change of the configuration",
    ),
    // Ceph's manager does these four to the OSD map with its own rights, whatever the caller's at the monitor.
    ("osd purge", "osd", "rw", "changes the OSD map"),
    ("osd destroy", "osd", "rw", "changes the OSD map"),
    ("osd reweight-by-utilization", "osd", "rw", "changes the OSD map"),
    ("osd reweight-by-pg", "osd", "rw", "changes the OSD map"),
    ("mds stat", "mds", "r", "the monitor's, hidden here"),
];

/// First words of the commands of modules.
const MODULES: [(&str, &str); 37] = [
    ("osd status", "status"),
    ("device monitoring", "devicehealth"),
    ("device query-daemon-health-metrics", "devicehealth"),
    ("device scrape", "devicehealth"),
    ("device get-health-metrics", "devicehealth"),
    ("device check-health", "devicehealth"),
    ("device predict-life-expectancy", "devicehealth"),
    ("device ls-lights", "orchestrator"),
    ("device light", "orchestrator"),
    ("osd perf query", "osd_perf_query"),
    ("osd perf counters", "osd_perf_query"),
    ("fs status", "status"),
    ("osd pool autoscale-status", "pg_autoscaler"),
    ("osd pool set noautoscale", "pg_autoscaler"),
    ("osd pool unset noautoscale", "pg_autoscaler"),
    ("osd pool get noautoscale", "pg_autoscaler"),
    ("fs volume", "volumes"),
    ("fs subvolume", "volumes"),
    ("fs clone", "volumes"),
    ("balancer", "balancer"),
    ("crash", "crash"),
    ("progress", "progress"),
    ("telemetry", "telemetry"),
    ("orch", "orchestrator"),
    ("iostat", "iostat"),
    ("insights", "insights"),
    ("rbd ", "rbd_support"),
    ("nfs", "nfs"),
    ("alerts", "alerts"),
    ("healthcheck history", "prometheus"),
    ("influx", "influx"),
    ("mgr self-test", "selftest"),
    ("prometheus", "prometheus"),
    ("restful", "restful"),
    ("telegraf", "telegraf"),
    ("test_orchestrator", "test_orchestrator"),
    ("zabbix", "zabbix"),
];
/// Flag of a command description: the manager answers it.
const FLAG_MGR: u64 = 8;

fn module_of(prefix: &str) -> Option<&'static str> {
    let named = MODULES.iter().find(|(first, _)| prefix.starts_with(first));
    named.map(|(_, module)| *module)
}

fn known() -> BTreeMap<String, Known> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../vectors/monitor/command-descriptions-nohelp.json"
    );
    #[allow(clippy::disallowed_methods)]
    let text = std::fs::read_to_string(path).unwrap();
    let all: Map<String, Value> = serde_json::from_str(&text).unwrap();
    let mut out = BTreeMap::new();
    for d in all.values() {
        let words: Vec<&str> = d["sig"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let prefix = words.join(" ");
        let by_manager = d["flags"].as_u64().unwrap() & FLAG_MGR != 0;
        let one = Known {
            service: d["module"].as_str().unwrap().into(),
            rights: d["perm"].as_str().unwrap().into(),
            manager: by_manager.then(|| module_of(&prefix).unwrap_or_default()),
        };
        out.insert(prefix, one);
    }
    for (prefix, service, rights, _) in OURS {
        let manager = module_of(prefix);
        let (service, rights) = (service.into(), rights.into());
        out.insert(
            prefix.into(),
            Known {
                service,
                rights,
                manager,
            },
        );
    }
    out
}

/// One thing asked.
struct Ask {
    prefix: String,
    args: Map<String, Value>,
    known: Known,
}

impl Ask {
    fn text(&self) -> String {
        let mut all = self.args.clone();
        all.insert("prefix".into(), self.prefix.clone().into());
        Value::Object(all).to_string()
    }
    fn only(&self, rights: &str) -> bool {
        self.known.rights.chars().all(|c| rights.contains(c))
    }
    fn of(&self, services: &[&str]) -> bool {
        services.contains(&self.known.service.as_str())
    }
    fn arg(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or("")
    }
    fn module(&self, name: &str) -> bool {
        self.known.manager == Some(name)
    }
    fn plain(&self, rights: &str) -> bool {
        self.only(rights) && !self.of(&["config-key"])
    }
    fn maps(&self) -> bool {
        self.only("r") && self.of(&["mon", "osd", "pg"])
    }
    /// Fences exactly one client that runs. The list is the test's: no rule to get wrong.
    fn fences_one(&self) -> bool {
        let op = match self.prefix.as_str() {
            "osd blocklist" => "blocklistop",
            "osd blacklist" => "blacklistop",
            _ => return false,
        };
        self.arg(op) == "add" && self.arg("range").is_empty() && SINGLE_CLIENTS.contains(&self.arg("addr"))
    }
}

const SINGLE_CLIENTS: [&str; 4] = ["1.2.3.4:0/55", "v1:1.2.3.4:0/55", "v2:9.9.9.9:0/1", "[::1]:0/5"];
const NO_CLIENTS: [&str; 14] = [
    "1.2.3.4",
    "1.2.3.4:0/0",
    "1.2.3.4/0",
    "0.0.0.0/0",
    "0.0.0.0:0/55",
    "[::]:0/55",
    "::/0",
    "10.0.0.0/8/8",
    "1.2.3.4:6800/55",
    "224.0.0.1:0/5",
    "1.2.3.4:0/55 ",
    "1.2.3.4:0/-1",
    "cidr:10.0.0.0:0/8",
    "",
];

/// Every command bare, and some with arguments that capabilities look at.
fn asks() -> Vec<Ask> {
    let known = known();
    let ask = |prefix: &str, args: Value| Ask {
        prefix: prefix.into(),
        args: args.as_object().unwrap().clone(),
        known: known
            .get(prefix)
            .unwrap_or_else(|| panic!("'{prefix}' is not classified: see OURS"))
            .clone(),
    };
    let mut out: Vec<Ask> = table::all()
        .map(|s| ask(&crate::commands::prefix_of(s), json!({})))
        .collect();
    for addr in SINGLE_CLIENTS.into_iter().chain(NO_CLIENTS) {
        for op in ["add", "rm"] {
            out.push(ask("osd blocklist", json!({"blocklistop": op, "addr": addr})));
            out.push(ask("osd blacklist", json!({"blacklistop": op, "addr": addr})));
            out.push(ask(
                "osd blocklist",
                json!({"range": "range", "blocklistop": op, "addr": addr}),
            ));
            // The operation under the other command's name counts for nothing.
            out.push(ask("osd blocklist", json!({"blacklistop": op, "addr": addr})));
            out.push(ask("osd blacklist", json!({"blocklistop": op, "addr": addr})));
        }
    }
    for pool in ["p", "q", "P", "p "] {
        out.push(ask(
            "osd pool rm",
            json!({"pool": pool, "pool2": pool, "yes_i_really_really_mean_it": true}),
        ));
    }
    for key in [
        "rbd/mirror/x",
        "rbd/mirror/",
        "rbd/mirror/peer/2/u",
        "rbd/mirror/peer",
        "dm-crypt/osd/1",
        "rbd/mirro",
    ] {
        out.push(ask("config-key get", json!({"key": key})));
        out.push(ask("config-key rm", json!({"key": key})));
        out.push(ask("config-key set", json!({"key": key, "val": "v"})));
    }
    for spec in [
        "p/i", "p/n/i", "p/m/i", "q/i", "q/n/i", "p", "/", "p/n/i/x", "p//i",
    ] {
        out.push(ask("rbd task add flatten", json!({"image_spec": spec})));
        // A place that the signature does not know is none.
        let lie = json!({"image_spec": spec, "pool": "p", "namespace": "n"});
        out.push(ask("rbd task add remove", lie));
        out.push(ask("rbd task add trash remove", json!({"image_id_spec": spec})));
        out.push(ask("rbd trash purge schedule list", json!({"level_spec": spec})));
        out.push(ask(
            "rbd trash purge schedule add",
            json!({"level_spec": spec, "interval": "1d"}),
        ));
    }
    out
}

type Rule = fn(&Ask) -> bool;
const NOTHING: Rule = |_| false;
const ALL: Rule = |_| true;

/// Monitor capabilities, and what they open.
const MON: [(&str, Rule); 50] = [
    ("", NOTHING),
    ("allow *", ALL),
    ("allow all", ALL),
    (" \tallow * ", ALL),
    ("allow * network 127.0.0.0/8", ALL),
    ("allow * network 10.0.0.0/8", NOTHING),
    ("allow * network 127.0.0.1/33", NOTHING),
    ("allow * network fe", NOTHING),
    ("allow * network ::/0", NOTHING),
    ("allow r", |a| a.plain("r")),
    ("allow  r", |a| a.plain("r")),
    ("allow rw", |a| a.plain("rw")),
    ("allow rwx", |a| a.plain("rwx")),
    ("allow rx", |a| a.plain("rx")),
    ("allow x", |a| a.plain("x")),
    ("allow r,allow w", |a| a.plain("rw")),
    ("allow r ; allow service auth x", |a| {
        a.plain("r") || (a.only("rx") && a.of(&["auth"]))
    }),
    ("allow r, allow * network 10.0.0.0/8", |a| a.plain("r")),
    ("profile rbd", |a| a.maps() || a.fences_one()),
    ("allow profile rbd", |a| a.maps() || a.fences_one()),
    ("profile=\"rbd\"", |a| a.maps() || a.fences_one()),
    ("profile rbd-mirror", |a| {
        a.maps()
            || a.fences_one()
            || (a.prefix == "config-key get" && a.arg("key").starts_with("rbd/mirror/"))
    }),
    ("profile rbd-mirror-peer", |a| {
        let key = a.arg("key");
        a.maps()
            || a.fences_one()
            || (a.prefix == "config-key get" && ["rbd/mirror/x", "rbd/mirror/peer"].contains(&key))
            || (a.prefix == "config-key set" && key.starts_with("rbd/mirror/peer/"))
    }),
    ("profile simple-rados-client", Ask::maps),
    ("profile simple-rados-client-with-blocklist", |a| {
        a.maps() || a.fences_one()
    }),
    ("profile rbd-read-only", Ask::maps),
    ("profile fs-client", |a| {
        a.only("r") && a.of(&["mon", "mds", "osd", "pg"])
    }),
    ("profile read-only", |a| a.plain("r")),
    ("profile read-write", |a| a.plain("rw")),
    ("profile role-definer", |a| {
        (a.only("r") && a.of(&["mon"])) || a.of(&["auth"])
    }),
    ("profile osd", DAEMON),
    ("allow profile osd", DAEMON),
    ("profile mgr", |a| {
        DAEMON(a) || (a.fences_one() && a.prefix == "osd blocklist")
    }),
    ("profile mds", DAEMON),
    ("profile bootstrap-osd", |a| a.only("r") && a.of(&["mon"])),
    ("profile bootstrap-rbd", |a| a.only("r") && a.of(&["mon"])),
    ("profile crash", NOTHING),
    ("profile RBD", NOTHING),
    ("profile nosuch", NOTHING),
    ("allow command \"osd pool rm\"", |a| a.prefix == "osd pool rm"),
    ("allow command \"osd pool rm\" with pool=p", |a| {
        a.prefix == "osd pool rm" && a.arg("pool") == "p"
    }),
    ("allow command 'auth get', allow service osd r", |a| {
        a.prefix == "auth get" || (a.only("r") && a.of(&["osd"]))
    }),
    ("allow command \"osd  pool rm\"", NOTHING),
    ("allow service config-key r", |a| {
        a.only("r") && a.of(&["config-key"])
    }),
    ("allow service osd rw", |a| a.only("rw") && a.of(&["osd"])),
    ("ALLOW *", NOTHING),
    ("allow wr", NOTHING),
    ("allow *, garbage", NOTHING),
    ("allow", NOTHING),
    ("allow r; ; allow w", NOTHING),
];
const DAEMON: Rule = |a| a.only("r") && a.of(&["mon", "osd", "pg", "mds", "mgr", "log", "config"]);

/// The pool and namespace of a command of rbd_support, if it is about one: as the test wrote them down.
fn place(a: &Ask) -> Option<(&'static str, &'static str)> {
    let names = ["image_spec", "image_id_spec", "level_spec"];
    let spec = names.iter().map(|n| a.arg(n)).find(|s| !s.is_empty())?;
    let level = !a.arg("level_spec").is_empty();
    Some(match (spec, level) {
        ("p/i", false) => ("p", ""),
        ("q/i", false) => ("q", ""),
        ("p/n/i", _) => ("p", "n"),
        ("p/m/i", _) => ("p", "m"),
        ("q/n/i", _) => ("q", "n"),
        ("p//i", _) => ("p", ""),
        ("p", true) => ("p", ""),
        // A namespace, or an image: one or the other.
        ("p/i", true) => ("p", "?"),
        ("q/i", true) => ("q", "?"),
        _ => ("?", "?"),
    })
}

/// Within pool p; with `namespace` only there.
fn within(a: &Ask, namespace: Option<&str>) -> bool {
    match place(a) {
        Some((pool, ns)) => pool == "p" && namespace.is_none_or(|n| n == ns),
        None => a.only("r"),
    }
}

/// Manager capabilities, and what they open there, by themselves.
const MGR: [(&str, Rule); 24] = [
    ("", NOTHING),
    ("allow *", ALL),
    ("allow r", |a| a.only("r")),
    ("allow rw", |a| a.only("rw")),
    ("allow rwx", |a| a.only("rwx")),
    ("allow rw network 10.0.0.0/8", NOTHING),
    ("profile rbd", |a| a.module("rbd_support") && a.only("rw")),
    ("profile rbd pool=p", |a| {
        a.module("rbd_support") && a.only("rw") && within(a, None)
    }),
    ("profile rbd pool=p namespace=n", |a| {
        a.module("rbd_support") && a.only("rw") && within(a, Some("n"))
    }),
    ("profile rbd-read-only", |a| {
        a.module("rbd_support") && a.only("r")
    }),
    ("profile read-only", |a| a.only("r")),
    ("profile read-write", |a| a.only("rw")),
    ("profile crash", |a| a.prefix == "crash post"),
    ("profile osd", NOTHING),
    ("profile mds", NOTHING),
    ("profile nosuch", NOTHING),
    ("allow service osd r", |a| {
        a.only("r") && a.of(&["osd"]) && a.known.manager.unwrap_or("").is_empty()
    }),
    ("allow module balancer rw", |a| {
        a.module("balancer") && a.only("rw")
    }),
    ("allow module rbd_support r", |a| {
        a.module("rbd_support") && a.only("r")
    }),
    ("allow command \"pg dump\"", |a| a.prefix == "pg dump"),
    ("allow command 'osd pool rm'", |a| a.prefix == "osd pool rm"),
    ("Allow *", NOTHING),
    ("allow r w", NOTHING),
    ("profile rbd image=x", NOTHING),
];

fn peer(caps: &[(&str, &str)]) -> Arc<Peer> {
    let given = caps.iter().filter(|(_, text)| !text.is_empty());
    Arc::new(Peer {
        name: EntityName::client(1),
        auth_name: name(),
        global_id: 1,
        caps: PeerCaps::Texts(given.map(|(s, t)| (s.to_string(), t.to_string())).collect()),
        addrs: EntityAddrVec::one(EntityAddr::msgr2(([10, 0, 0, 1], 0).into(), 7)),
        sock: ([127, 0, 0, 1], 40000).into(),
        features: u64::MAX,
        method: AuthMethod::Cephx,
        secure: false,
        key_epoch: None,
        server_challenge: Some(1),
        lifeline: false,
        lossless: false,
        monmap_epoch: None,
    })
}

fn name() -> AuthName {
    AuthName::new(EntityKind::Client, "tenant")
}

fn opens(session: &Session, route: &Route, ask: &Ask) -> bool {
    match check_command(session, route, &[ask.text()], Bytes::new()) {
        Ok(Command { prefix, .. }) => {
            assert_eq!(prefix, ask.prefix);
            true
        }
        Err(denied) => {
            assert!(denied.asked.is_some(), "a record is kept of it");
            let reply = denied.reply;
            assert_eq!(
                (reply.code, reply.status.as_str()),
                (-13, "access denied"),
                "{}",
                ask.text()
            );
            false
        }
    }
}

/// Every command of ours has the service, the rights and the server that Ceph's has.
#[test]
fn every_command_is_classified() {
    let known = known();
    for s in table::all() {
        let prefix = crate::commands::prefix_of(s);
        let k = known
            .get(&prefix)
            .unwrap_or_else(|| panic!("'{prefix}' is not classified: see OURS"));
        assert_eq!(
            (s.module, s.perm, s.manager),
            (k.service.as_str(), k.rights.as_str(), k.manager),
            "{prefix}"
        );
    }
}

/// The `ceph` program asks for it before every other, whoever it runs for.
fn lists(a: &Ask) -> bool {
    a.prefix == crate::commands::DESCRIPTIONS
}

#[test]
fn the_monitors_routes_open_to_monitor_capabilities_only() {
    let asks = asks();
    for (text, rule) in MON {
        for mgr in ["", "allow *"] {
            let session = Session::new(peer(&[("mon", text), ("mgr", mgr), ("osd", "allow *")]));
            for ask in &asks {
                // To tell a daemon something takes everything; what commands there are everybody may know.
                let all = [
                    "allow *",
                    "allow all",
                    " \tallow * ",
                    "allow * network 127.0.0.0/8",
                ]
                .contains(&text);
                for (route, want) in [
                    (Route::Mon { cmd: Vec::new() }, rule(ask) || lists(ask)),
                    (Route::Tell, rule(ask) && all),
                ] {
                    assert_eq!(
                        opens(&session, &route, ask),
                        want,
                        "mon '{text}', {route:?}: {}",
                        ask.text()
                    );
                }
            }
        }
    }
}

/// Every pair of a manager's and a monitor's capability in `dev/test --all`, else every third: each monitor's beside eight of the manager's.
fn pairs() -> impl Iterator<Item = ((&'static str, Rule), (&'static str, Rule))> {
    let all = std::env::var_os("SKEP_TEST_LONG").is_some();
    let numbered = MGR.into_iter().enumerate();
    numbered.flat_map(move |(i, mgr)| {
        let beside = MON.into_iter().enumerate();
        beside
            .filter(move |(j, _)| all || (i + j) % 3 == 0)
            .map(move |(_, mon)| (mgr, mon))
    })
}

/// `mgr 'allow rw'`, as ceph-csi's guide has it, deleted pools and set the configuration; `mgr 'allow *'` printed the
/// admin's key: manager capabilities were taken for the monitor's.
#[test]
fn manager_capabilities_are_not_the_monitors() {
    let asks = asks();
    for ((mgr_text, mgr), (mon_text, mon)) in pairs() {
        let mut keys = KeyDb::default();
        let entity = EntityAuth::new(CryptoKey::new([1; 16], Utime::ZERO));
        let entity = match mon_text {
            "" => entity,
            text => entity.with_cap("mon", text),
        };
        keys.entities.insert(name(), entity);
        // At the manager's port the ticket tells of the manager's capabilities alone.
        let mut there = Session::new(peer(&[("mgr", mgr_text)]));
        there.look_up_mon_caps(&keys);
        let here = Session::new(peer(&[("mgr", mgr_text), ("mon", mon_text)]));
        for ask in &asks {
            let want = mgr(ask) && (ask.known.manager.is_some() || mon(ask));
            for (session, route) in [
                (&there, Route::Mgr),
                (&there, Route::MgrTell),
                (&here, Route::Mgr),
            ] {
                let want = want || lists(ask) && matches!(route, Route::Mgr);
                assert_eq!(
                    opens(session, &route, ask),
                    want,
                    "mgr '{mgr_text}', mon '{mon_text}', {route:?}: {}",
                    ask.text()
                );
            }
        }
    }
}

/// A key that was removed, and a ticket that claims everything: no right at the monitor comes of either.
#[test]
fn a_ticket_for_the_manager_says_nothing_of_the_monitor() {
    let asks = asks();
    let mut everything = (*peer(&[])).clone();
    everything.caps = PeerCaps::AllowAll;
    for peer in [
        Arc::new(everything),
        peer(&[("mgr", "allow *"), ("mon", "allow *")]),
    ] {
        let mut session = Session::new(peer);
        session.look_up_mon_caps(&KeyDb::default());
        let monitors = asks.iter().filter(|a| a.known.manager.is_none() && !lists(a));
        for ask in monitors {
            assert!(!opens(&session, &Route::Mgr, ask), "{}", ask.text());
        }
    }
}
