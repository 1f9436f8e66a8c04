//! Capability texts: every text that was given to a real 16.2.15 monitor gets the same verdict and words,
//! and the examples of docs/protocol/ceph/01-messenger.md, section 7, are allowed and denied as it says.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::caps::{ClassCall, MdsNeed, MgrNeed, MonNeed, OsdNeed, validate};
use auth::{Access, MdsCaps, MgrCaps, MonCaps, OsdCaps};
use std::collections::BTreeMap;

#[test]
fn texts_get_the_verdict_of_the_real_monitor() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../vectors/auth/caps-validate.jsonl"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let mut n = 0;
    for line in text.lines() {
        let (service, caps, result, message): (String, String, i32, String) =
            serde_json::from_str(line).unwrap();
        let ours = validate(&service, &caps);
        match result {
            0 => assert_eq!(ours, Ok(()), "{service} {caps:?}"),
            _ => assert_eq!(ours.map_err(|e| e.0), Err(message), "{service} {caps:?}"),
        }
        n += 1;
    }
    assert!(n > 350, "the vector file has its cases");
}

fn args(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect()
}

#[test]
fn a_file_system_is_shown_to_whom_its_grants_name() {
    let check = |caps: &str, shown: &[&str]| {
        let caps = MonCaps::parse(caps).unwrap();
        let all = ["a", "b", "c"]
            .into_iter()
            .filter(|fs| caps.shows_file_system(fs));
        assert_eq!(all.collect::<Vec<_>>(), shown, "{caps:?}");
    };
    check("allow r fsname=a", &["a"]);
    check("allow r fsname=a, allow rw fsname c", &["a", "c"]);
    check("allow r fsname=a, allow r", &["a", "b", "c"]);
    check("allow *", &["a", "b", "c"]);
    check("profile fs-client", &["a", "b", "c"]);
    // The rights themselves are those of any other grant.
    let need = MonNeed {
        service: "mds",
        command: "",
        args: &BTreeMap::new(),
        access: Access::R,
        peer: None,
    };
    assert!(MonCaps::parse("allow r fsname=a").unwrap().allows(&need));
}

#[test]
fn monitor_profile_rbd() {
    let caps = MonCaps::parse("profile rbd").unwrap();
    let check = |want: bool, service: &str, command: &str, pairs: &[(&str, &str)], access: Access| {
        let args = args(pairs);
        let need = MonNeed {
            service,
            command,
            args: &args,
            access,
            peer: None,
        };
        assert_eq!(caps.allows(&need), want, "{service} {command} {pairs:?}");
    };
    check(true, "osd", "osd pool ls", &[], Access::R);
    check(true, "mon", "df", &[], Access::R);
    check(true, "mon", "status", &[], Access::R);
    check(true, "osd", "osd blocklist ls", &[], Access::R);
    let rw = Access::RW;
    let add = ("blocklistop", "add");
    check(true, "osd", "osd blocklist", &[add, ("addr", "1.2.3.4:0/55")], rw);
    check(
        true,
        "osd",
        "osd blacklist",
        &[("blacklistop", "add"), ("addr", "1.2.3.4:0/55")],
        rw,
    );
    check(false, "osd", "osd blocklist", &[add, ("addr", "1.2.3.4")], rw);
    check(false, "osd", "osd blocklist", &[add], rw);
    check(
        false,
        "osd",
        "osd blocklist",
        &[("blocklistop", "rm"), ("addr", "1.2.3.4:0/55")],
        rw,
    );
    check(false, "osd", "osd pool create", &[("pool", "p")], rw);
    check(
        false,
        "config-key",
        "config-key get",
        &[("key", "rbd/mirror/x")],
        Access::R,
    );
    check(false, "auth", "auth ls", &[], rw | Access::X);
    check(false, "fs", "fs ls", &[], Access::R);
    check(false, "mds", "mds stat", &[], Access::R);
}

#[test]
fn monitor_grants_add_up() {
    let check = |want: bool, caps: &str, service: &str, command: &str, access: Access, peer: &str| {
        let none = BTreeMap::new();
        let need = MonNeed {
            service,
            command,
            args: &none,
            access,
            peer: peer.parse().ok(),
        };
        let got = MonCaps::parse(caps).unwrap().allows(&need);
        assert_eq!(got, want, "{caps} {service} {command} {access:?} {peer}");
    };
    check(true, "allow r, allow w", "osd", "", Access::RW, "");
    check(true, "allow r, allow service osd w", "osd", "", Access::RW, "");
    check(false, "allow r, allow service osd w", "pg", "", Access::RW, "");
    check(false, "allow rwx", "config-key", "config-key get", Access::R, "");
    check(true, "allow *", "config-key", "config-key get", Access::R, "");
    check(
        true,
        "allow service config-key r",
        "config-key",
        "config-key get",
        Access::R,
        "",
    );
    check(true, "profile read-only", "osd", "", Access::R, "");
    check(false, "profile read-only", "osd", "", Access::W, "");
    check(
        false,
        "profile read-write",
        "auth",
        "",
        Access::RW | Access::X,
        "",
    );
    check(true, "profile role-definer", "auth", "", Access::ALL, "");
    check(false, "profile nosuch", "mon", "", Access::R, "");
    check(
        true,
        "allow r network 10.0.0.0/8",
        "mon",
        "",
        Access::R,
        "10.1.2.3",
    );
    check(
        false,
        "allow r network 10.0.0.0/8",
        "mon",
        "",
        Access::R,
        "11.1.2.3",
    );
    check(false, "allow r network 10.0.0.0/8", "mon", "", Access::R, "");
    check(
        false,
        "allow r network 1.2.3.4/99",
        "mon",
        "",
        Access::R,
        "1.2.3.4",
    );
    check(true, "allow r network 1.2.3.4", "mon", "", Access::R, "1.2.3.4");
    check(true, "allow r network ::1/128", "mon", "", Access::R, "::1");
    check(
        true,
        "allow command \"osd tree\"",
        "osd",
        "osd tree",
        Access::R,
        "",
    );
    check(
        false,
        "allow command \"osd tree\"",
        "osd",
        "osd dump",
        Access::R,
        "",
    );
    check(
        false,
        "allow command \"osd tree\" with format=json",
        "osd",
        "osd tree",
        Access::R,
        "",
    );
}

struct Osd {
    pool: &'static str,
    ns: &'static str,
    object: &'static str,
    rw: &'static str,
    calls: &'static [(&'static str, &'static str, &'static str)],
}

fn osd_allows(caps: &str, o: &Osd) -> bool {
    let apps = match o.pool {
        "fsdata" => BTreeMap::from([("cephfs".to_string(), args(&[("data", "a")]))]),
        _ => BTreeMap::new(),
    };
    let calls: Vec<_> = o
        .calls
        .iter()
        .map(|(class, method, flags)| ClassCall {
            class,
            method,
            read: flags.contains('r'),
            write: flags.contains('w'),
        })
        .collect();
    OsdCaps::parse(caps).unwrap().allows(&OsdNeed {
        pool: o.pool,
        applications: &apps,
        namespace: o.ns.as_bytes(),
        object: o.object.as_bytes(),
        read: o.rw.contains('r'),
        write: o.rw.contains('w'),
        calls: &calls,
        peer: None,
    })
}

#[test]
fn osd_places_and_rights() {
    let check = |want: bool, caps: &str, pool, ns, object, rw| {
        let o = Osd {
            pool,
            ns,
            object,
            rw,
            calls: &[],
        };
        assert_eq!(osd_allows(caps, &o), want, "{caps}: {rw} {pool}/{ns}/{object}");
    };
    check(true, "allow *", "p", "n", "o", "rw");
    check(true, "allow rw pool=p", "p", "", "o", "rw");
    check(false, "allow rw pool=p", "q", "", "o", "r");
    check(false, "allow r, allow w", "p", "", "o", "rw");
    check(true, "allow r, allow w", "p", "", "o", "w");
    check(true, "allow rw namespace=n", "p", "n", "o", "rw");
    check(false, "allow rw namespace=n", "p", "", "o", "rw");
    check(true, "allow rw namespace=n*", "p", "nn", "o", "rw");
    check(false, "allow rw namespace=n*", "p", "m", "o", "rw");
    check(true, "allow rw namespace=\"\"", "p", "", "o", "rw");
    check(false, "allow rw namespace=\"\"", "p", "n", "o", "rw");
    check(true, "allow r object_prefix ab", "p", "", "abc", "r");
    check(false, "allow r object_prefix ab", "p", "", "bc", "r");
    check(false, "allow r object_prefix ab", "p", "", "", "r");
    check(true, "allow rw tag cephfs data=a", "fsdata", "", "o", "rw");
    check(true, "allow rw tag cephfs *=*", "fsdata", "", "o", "rw");
    check(false, "allow rw tag cephfs data=b", "fsdata", "", "o", "rw");
    check(false, "allow rw tag cephfs data=a", "p", "", "o", "rw");
    check(false, "allow x", "p", "", "o", "r");
    check(false, "profile nosuch", "p", "", "o", "r");
    check(false, "allow rw network 10.0.0.0/8", "p", "", "o", "r");
}

#[test]
fn osd_class_calls() {
    let check = |want: bool, caps: &str, object, rw, calls| {
        let o = Osd {
            pool: "p",
            ns: "",
            object,
            rw,
            calls,
        };
        assert_eq!(osd_allows(caps, &o), want, "{caps}: {object} {rw} {calls:?}");
    };
    check(true, "allow x", "o", "", &[("lock", "lock", "rw")]);
    check(true, "allow class-read", "o", "", &[("lock", "get_info", "r")]);
    check(false, "allow class-read", "o", "", &[("lock", "lock", "rw")]);
    check(
        true,
        "allow class-read, allow class-write",
        "o",
        "",
        &[("lock", "a", "r"), ("lock", "b", "w")],
    );
    check(false, "allow rw", "o", "r", &[("lock", "lock", "rw")]);
    check(true, "allow class lock", "o", "", &[("lock", "lock", "rw")]);
    check(false, "allow class lock", "o", "", &[("rbd", "create", "rw")]);
    check(true, "allow class lock lock", "o", "", &[("lock", "lock", "rw")]);
    check(
        false,
        "allow class lock lock",
        "o",
        "",
        &[("lock", "unlock", "rw")],
    );
    check(
        false,
        "allow class lock lock",
        "o",
        "r",
        &[("lock", "lock", "rw")],
    );
    check(
        true,
        "allow r, allow class lock lock",
        "o",
        "r",
        &[("lock", "lock", "rw")],
    );
}

#[test]
fn osd_profile_rbd() {
    let check = |want: bool, pool, object, rw, calls| {
        for caps in [
            "profile rbd pool=p",
            "profile rbd pool=p, profile rbd-read-only pool=r",
        ] {
            let o = Osd {
                pool,
                ns: "",
                object,
                rw,
                calls,
            };
            assert_eq!(osd_allows(caps, &o), want, "{pool}/{object} {rw} {calls:?}");
        }
    };
    check(true, "p", "anything", "rw", &[("rbd", "create", "rw")]);
    check(true, "q", "rbd_info", "r", &[]);
    check(false, "q", "rbd_info", "w", &[]);
    check(false, "q", "rbd_directory", "r", &[]);
    check(false, "q", "", "r", &[]);
    check(true, "q", "rbd_children", "", &[("rbd", "get_children", "r")]);
    check(false, "q", "rbd_children", "", &[("rbd", "add_child", "rw")]);
    check(true, "p", "rbd_info", "", &[("rbd", "metadata_list", "r")]);
    check(false, "q", "rbd_header.1", "", &[("rbd", "create", "rw")]);

    let read_only = |want: bool, object, rw, calls| {
        let o = Osd {
            pool: "r",
            ns: "",
            object,
            rw,
            calls,
        };
        assert_eq!(osd_allows("profile rbd-read-only pool=r", &o), want, "{object}");
    };
    read_only(true, "rbd_data.1.0", "r", &[]);
    read_only(false, "rbd_data.1.0", "w", &[]);
    read_only(true, "rbd_header.1", "", &[("rbd", "child_attach", "rw")]);
    read_only(false, "rbd_header.1", "", &[("rbd", "set_size", "rw")]);
    read_only(false, "rbd_children", "", &[("rbd", "child_attach", "rw")]);
}

#[test]
fn manager() {
    let check = |want: bool, caps: &str, module: &str, command: &str, pairs: &[(&str, &str)], access| {
        let args = args(pairs);
        let need = MgrNeed {
            service: "mgr",
            module,
            command,
            args: &args,
            access,
            peer: None,
        };
        let got = MgrCaps::parse(caps).unwrap().allows(&need);
        assert_eq!(got, want, "{caps} {module} {command}");
    };
    check(true, "profile rbd", "rbd_support", "rbd task ls", &[], Access::RW);
    check(false, "profile rbd", "balancer", "balancer on", &[], Access::RW);
    check(
        true,
        "profile rbd pool=p",
        "rbd_support",
        "x",
        &[("pool", "p")],
        Access::RW,
    );
    check(
        false,
        "profile rbd pool=p",
        "rbd_support",
        "x",
        &[("pool", "q")],
        Access::RW,
    );
    check(false, "profile rbd pool=p", "rbd_support", "x", &[], Access::RW);
    check(
        false,
        "profile rbd-read-only",
        "rbd_support",
        "x",
        &[],
        Access::RW,
    );
    check(
        true,
        "allow module x with a prefix b rw",
        "x",
        "c",
        &[("a", "bb")],
        Access::RW,
    );
    check(true, "allow command c", "x", "c", &[], Access::RW);
    check(true, "allow *", "x", "c", &[], Access::ALL);
    check(false, "profile osd", "x", "c", &[], Access::R);
}

#[test]
fn mds_places() {
    let check = |want: bool, caps: &str, fs, path, uid, write| {
        let need = MdsNeed {
            fs,
            path,
            uid,
            read: true,
            write,
            ..MdsNeed::default()
        };
        assert_eq!(
            MdsCaps::parse(caps).unwrap().allows(&need),
            want,
            "{caps} {path} {uid}"
        );
    };
    check(true, "allow", "a", "x", 0, true);
    check(false, "allow r", "a", "x", 0, true);
    check(true, "allow rw path=/x", "a", "x/y", 0, true);
    check(false, "allow rw path=/x", "a", "xy", 0, true);
    check(false, "allow rw fsname=b", "a", "x", 0, true);
    check(false, "allow rw root_squash", "a", "x", 0, true);
    check(true, "allow rw root_squash", "a", "x", 5, true);
    check(true, "allow rw uid=5 gids=1,2", "a", "x", 5, true);
    check(false, "allow rw uid=5", "a", "x", 6, true);
}

#[test]
fn hostile_texts_are_refused_without_blowing_up() {
    let long = "allow r,".repeat(100_000);
    assert!(validate("mon", &long).is_err());
    // A regular expression that would compile to something huge matches nothing.
    let bomb = "allow command x with a regex \"(a{1000}){1000}\"";
    let caps = MonCaps::parse(bomb).unwrap();
    let args = args(&[("a", "a")]);
    let need = MonNeed {
        service: "mon",
        command: "x",
        args: &args,
        access: Access::R,
        peer: None,
    };
    assert!(!caps.allows(&need));
    for text in [
        "allow r network \u{e9}",
        "allow command \"\u{e9}",
        "\u{2028}",
        "allow r\u{0}",
    ] {
        for service in ["mon", "osd", "mds", "mgr"] {
            assert!(validate(service, text).is_err(), "{service} {text:?}");
        }
    }
}
