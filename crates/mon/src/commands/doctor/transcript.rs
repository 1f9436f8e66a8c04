//! Transcripts of the doctor on what OSDs and the monitor report of others: locks, disks without room, a cluster state out
//! of reach. Copies and slow operations: `copies_transcript`.

#![allow(clippy::unwrap_used)]

use crate::commands::sample::Cluster;
use types::pgstats::{HeldLock, NoRoom, holder, pg_state};
use types::{PgId, Utime};

fn shown(c: &mut Cluster, command: &str, want: &str) {
    let have = c.text(command);
    assert!(have.contains(want), "{command}:\n{have}\nlacks:\n{want}");
}

/// Four OSDs, a pool of three copies named p.
fn four() -> Cluster {
    let mut c = Cluster::with_osds(4);
    let made = c.run(
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"pgp_num":8,"size":3}"#,
        b"",
    );
    assert_eq!(made.code, 0, "{}", made.status);
    c
}

fn held(cookie: &str, watch: u8) -> HeldLock {
    HeldLock {
        pg: PgId::new(1, 3),
        nspace: String::new(),
        object: "rbd_header.10f2a".into(),
        lock: "rbd_lock".into(),
        holder: "client.4200".into(),
        addr: types::EntityAddr {
            kind: types::AddrKind::Legacy,
            ..types::EntityAddr::msgr2(([10, 0, 0, 8], 0).into(), 77)
        },
        cookie: cookie.into(),
        watch,
        lost: Utime::ZERO,
        refused: 0,
        refused_since: Utime::ZERO,
        refused_last: Utime::ZERO,
        refused_by: String::new(),
    }
}

#[test]
fn who_holds_a_lock_that_others_want() {
    let c = &mut four();
    let doctor = r#"{"prefix":"doctor"}"#;
    let ago = |c: &Cluster, sec: u32| Utime {
        sec: c.now.sec - sec,
        nsec: 0,
    };
    // Alive, and another one waits.
    let mut lock = held("auto 94", holder::CONNECTED);
    lock.refused = 3;
    lock.refused_since = ago(c, 70);
    lock.refused_last = ago(c, 4);
    lock.refused_by = "client.4300".into();
    c.report_of(1, |r| r.locks = vec![lock.clone()]);
    shown(
        c,
        doctor,
        "BLOCKED  image 10f2a in pool 'p' (rbd_header.10f2a): its lock rbd_lock is held by client.4200 at 10.0.0.8:0/77 (cookie \"auto 94\"), which watches it and is connected",
    );
    shown(
        c,
        doctor,
        "client.4300 was refused it 4s ago (3 refusals of late) (for 70s)",
    );
    shown(
        c,
        doctor,
        "next: have that client give it up; if it is dead or hangs: ceph osd blocklist add 10.0.0.8:0/77; rbd lock rm p/IMAGE \"auto 94\" client.4200 (rbd info --pool p --image-id 10f2a says the IMAGE)\n",
    );
    // Dead, and nobody waits.
    let mut lock = held("auto 94", holder::NO_WATCH);
    lock.lost = ago(c, 9);
    c.report_of(1, |r| r.locks = vec![lock.clone()]);
    shown(c, doctor, "RISK     image 10f2a");
    shown(
        c,
        doctor,
        "which watches it no more (its watch ended 9s ago): that client is dead or was cut off (for 9s)",
    );
    shown(
        c,
        doctor,
        "next: the next client that opens the image for writing takes it over; else: ceph osd blocklist add 10.0.0.8:0/77; rbd lock rm",
    );
    // Blocklisted.
    c.run(
        r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.8:0/77"}"#,
        b"",
    );
    c.report_of(1, |r| r.locks = vec![lock.clone()]);
    shown(c, doctor, "which is blocklisted and watches it no more");
    shown(c, doctor, "next: rbd lock rm p/IMAGE \"auto 94\" client.4200 (");
    // By hand; and another kind of lock.
    let mut lock = held("mine", holder::NO_WATCH);
    lock.addr = types::EntityAddr::msgr2(([10, 0, 0, 9], 0).into(), 78);
    lock.nspace = "n1".into();
    c.report_of(1, |r| r.locks = vec![lock.clone()]);
    shown(c, doctor, "NOTE     image 10f2a in pool 'p', namespace 'n1'");
    shown(c, doctor, "a lock that somebody took by hand");
    shown(
        c,
        doctor,
        "next: if whoever took it is done: rbd lock rm p/IMAGE \"mine\" client.4200 --namespace n1 (",
    );
    lock.lock = "other".into();
    c.report_of(1, |r| r.locks = vec![lock.clone()]);
    shown(
        c,
        doctor,
        "next: if whoever took it is done: rados -p p --namespace n1 lock break rbd_header.10f2a other client.4200 --lock-cookie \"mine\"\n",
    );
    // Clients choose names: what is proposed does what it says, and a terminal shows what is there.
    lock.nspace = String::new();
    lock.object = "o;reboot".into();
    lock.cookie = "$(reboot)\u{1b}[2J".into();
    c.report_of(1, |r| r.locks = vec![lock.clone()]);
    shown(
        c,
        doctor,
        r"rados -p p lock break 'o;reboot' other client.4200 --lock-cookie $'$(reboot)\U0000001b[2J'",
    );
    shown(c, doctor, r#"(cookie "$(reboot)\u{1b}[2J")"#);
}

#[test]
fn a_disk_without_room_that_writes_wait_for() {
    let c = &mut four();
    let doctor = r#"{"prefix":"doctor"}"#;
    let pg = c.state.osdmap.pgs().find(|pg| pg.pool == 1).unwrap();
    c.each_pg(|s| s.up = vec![1, 2]);
    c.each_pg(|s| s.stats.sum.num_bytes = 3 << 20);
    c.fill(2, 1.0);
    let lacking = |needed| NoRoom {
        osd: 2,
        needed,
        lacks: 5,
    };
    c.report_of(1, |r| drop(r.no_room.insert(pg, vec![lacking(true)])));
    shown(
        c,
        doctor,
        &format!(
            "BLOCKED  pg {pg} of pool p: writes wait: osd.2 on host vm has no room for the copy (has 0 B free of 4 GiB; the placement groups that belong there hold 24 MiB)"
        ),
    );
    shown(
        c,
        doctor,
        "and without it there would be fewer copies than min_size; 5 changes wait",
    );
    shown(
        c,
        doctor,
        "to go on with one copy less until then: ceph osd pool set p min_size 1\n",
    );
    // One copy less than it needs, which need not be one; and nothing where one is enough.
    for (min_size, want) in [
        (
            "3",
            "by themselves; to go on with one copy less until then: ceph osd pool set p min_size 2\n",
        ),
        ("1", "to which copies move by themselves\n"),
    ] {
        let set = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"min_size","val":"{min_size}"}}"#);
        assert_eq!(c.run(&set, b"").code, 0);
        c.report_of(1, |r| drop(r.no_room.insert(pg, vec![lacking(true)])));
        shown(c, doctor, want);
    }
    c.report_of(1, |r| drop(r.no_room.insert(pg, vec![lacking(false)])));
    shown(
        c,
        doctor,
        &format!("RISK     pg {pg}: osd.2 on host vm has no room for its copy"),
    );
    shown(c, doctor, "ceph osd out 2, and its copies are made elsewhere");
    // Where nobody else has room either, that would not help.
    (0..4).for_each(|osd| c.fill(osd, 1.0));
    c.report_of(1, |r| drop(r.no_room.insert(pg, vec![lacking(false)])));
    shown(c, doctor, "make room on host vm, or add OSDs\n");
}

#[test]
fn a_monitor_cut_off_says_so() {
    let c = &mut four();
    let doctor = r#"{"prefix":"doctor"}"#;
    c.mon.stalled = Some(Utime {
        sec: c.now.sec - 20,
        nsec: 0,
    });
    shown(
        c,
        doctor,
        "BLOCKED  mon.a: cannot reach the cluster state: nothing can be changed",
    );
    c.mon.trouble = Some("No space left on device".into());
    shown(
        c,
        doctor,
        "BLOCKED  mon.a: cannot write the cluster state (No space left on device): nothing can be changed",
    );
    c.mon.stance = crate::policies::lag::Stance::Away(vec!["b".into(), "c".into()]);
    shown(
        c,
        doctor,
        "is cut off from the cluster state, and mon.b, mon.c is not: its clients are sent there (for 20s)",
    );
    shown(
        c,
        r#"{"prefix":"health","detail":"detail"}"#,
        "clients are sent to those who follow it: mon.b, mon.c",
    );
}

/// How many groups the doctor calls not clean, and the sentences.
fn not_clean(c: &mut Cluster) -> (usize, Vec<String>) {
    let found = c.json("doctor")["findings"].as_array().unwrap().clone();
    let (mut count, mut said) = (0, Vec::new());
    for f in found {
        let waits = f["waits_for"].as_str().unwrap().to_string();
        let Some(why) = waits.strip_prefix("not clean: ") else {
            continue;
        };
        assert!(!f["next"].as_str().unwrap().is_empty());
        let names = f["subject"]
            .as_str()
            .unwrap()
            .strip_prefix("pg ")
            .unwrap()
            .to_string();
        let (named, more) = names.split_once(" and ").unwrap_or((names.as_str(), "0 more"));
        count += named.split(", ").count() + more.strip_suffix(" more").unwrap().parse::<usize>().unwrap();
        said.push(why.to_string());
    }
    (count, said)
}

#[test]
fn every_group_that_is_not_clean_has_a_sentence() {
    let c = &mut four();
    assert_eq!(not_clean(c), (0, vec![]));
    c.each_pg(|s| s.state = pg_state::ACTIVE | pg_state::RECOVERING);
    let (count, said) = not_clean(c);
    assert_eq!(count, 8);
    let all = said
        .iter()
        .all(|s| s.starts_with("its copies are brought to the same state by osd."));
    assert!(all, "{said:?}");
    c.each_pg(|s| s.blocked_by = vec![2]);
    let (count, said) = not_clean(c);
    assert_eq!(
        (count, said),
        (8, vec!["waits for an answer of osd.2 on host vm".to_string()])
    );
    // One is down: its groups have a copy less, and nowhere to make it.
    let down = c.run(r#"{"prefix":"osd down","ids":["3"]}"#, b"");
    assert_eq!(down.code, 0, "{}", down.status);
    c.each_pg(|s| (s.state, s.blocked_by) = (pg_state::ACTIVE | pg_state::DEGRADED, vec![]));
    let (count, said) = not_clean(c);
    assert_eq!(count, 8);
    let want = "3 copies are wanted, and there are OSDs for 2";
    assert!(said.iter().any(|s| s == want), "{said:?}");
    // Its disk has no room for the copy: that comes first.
    for pg in c.state.osdmap.pgs().collect::<Vec<_>>() {
        let none = NoRoom {
            osd: 1,
            needed: false,
            lacks: 3,
        };
        c.report_of(0, |r| drop(r.no_room.insert(pg, vec![none])));
    }
    let (_, said) = not_clean(c);
    let roomless = |s: &&String| s.starts_with("there is no room for the copy on osd.1");
    assert!(said.iter().any(|s| roomless(&s)), "{said:?}");
}
