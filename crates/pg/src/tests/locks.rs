//! What a report says of locks: who was refused, whose holder lost its watch.

use super::*;
use messages::osd::WatchArg;

const LOCK: &str = "rbd_lock";

/// Input of class `lock`, method `lock`: exclusive.
fn lock(cookie: &str) -> OsdOp {
    let mut w = denc::Writer::new();
    w.envelope(1, 1, |w| {
        w.string(LOCK);
        w.u8(1);
        w.string(cookie);
        w.string("internal");
        w.string("");
        w.put(&Utime::ZERO);
        w.u8(0);
    });
    OsdOp::on_class("lock", "lock", &w.finish())
}

fn unlock(cookie: &str) -> OsdOp {
    let mut w = denc::Writer::new();
    w.envelope(1, 1, |w| {
        w.string(LOCK);
        w.string(cookie);
    });
    OsdOp::on_class("lock", "unlock", &w.finish())
}

fn watch(cookie: u64) -> OsdOp {
    op(code::WATCH).with_watch(WatchArg {
        cookie,
        op: 3,
        timeout: 10,
        ..Default::default()
    })
}

fn client(rig: &mut Rig, n: u64) {
    (rig.gid, rig.conn) = (4100 + n, n);
}

fn seen(rig: &Rig) -> Vec<LockSeen> {
    rig.pg.locks_seen(rig.now, 10)
}

/// Client 1 watches the object and holds its lock; client 2 was refused it.
fn contended() -> Rig {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    client(&mut rig, 1);
    assert_eq!(rig.one("o", watch(11)), 0);
    assert_eq!(rig.one("o", lock("auto 1")), 0);
    assert!(seen(&rig).is_empty(), "nobody else wants it");
    client(&mut rig, 2);
    assert_eq!(rig.one("o", lock("auto 2")), -16);
    rig
}

#[test]
fn who_holds_what_another_was_refused() {
    let mut rig = contended();
    rig.now += Duration::from_secs(5);
    assert_eq!(rig.one("o", lock("auto 2")), -16);
    let found = seen(&rig);
    assert_eq!(found.len(), 1);
    let s = &found[0];
    assert_eq!((&s.object.oid[..], &s.lock[..]), (&b"o"[..], LOCK.as_bytes()));
    assert_eq!(
        (s.holder.entity.num, &s.holder.cookie[..]),
        (4101, &b"auto 1"[..])
    );
    assert_eq!(s.holder.addr.sock, Some("1.2.3.4:5000".parse().unwrap()));
    assert_eq!((s.watches, s.lost), (Some(true), None));
    let r = s.refused.as_ref().unwrap();
    assert_eq!((r.by, r.times, r.last), (EntityName::client(4102), 2, rig.now));
    // It asks for what it has.
    client(&mut rig, 1);
    assert_eq!(rig.one("o", lock("auto 1")), -17);
    assert_eq!(seen(&rig)[0].refused.as_ref().unwrap().times, 2);
    // Given up, and taken by the other: nothing to tell any more.
    assert_eq!(rig.one("o", unlock("auto 1")), 0);
    assert!(seen(&rig).is_empty());
    client(&mut rig, 2);
    assert_eq!(rig.one("o", lock("auto 2")), 0);
    assert!(seen(&rig).is_empty());
}

#[test]
fn a_holder_whose_watch_runs_out_is_lost() {
    let mut rig = contended();
    rig.apply(Input::ConnectionClosed(1));
    assert_eq!(seen(&rig)[0].watches, Some(false));
    rig.tick_after(Duration::from_secs(11));
    assert_eq!((seen(&rig)[0].watches, seen(&rig)[0].lost), (None, Some(rig.now)));
    // Long after the other one has given up it is known still.
    rig.now += Duration::from_secs(3600);
    assert_eq!((seen(&rig).len(), &seen(&rig)[0].refused), (1, &None));
    client(&mut rig, 1);
    assert_eq!(rig.one("o", watch(11)), 0);
    assert!(seen(&rig).is_empty(), "it has come back");
}

#[test]
fn a_watch_that_its_client_ends_is_no_loss_and_what_goes_is_forgotten() {
    let mut rig = contended();
    let end = |cookie: u64| {
        op(code::WATCH).with_watch(WatchArg {
            cookie,
            ..Default::default()
        })
    };
    client(&mut rig, 1);
    assert_eq!(rig.one("o", end(11)), 0);
    rig.now += Duration::from_secs(3600);
    assert!(seen(&rig).is_empty());
    let mut rig = contended();
    assert_eq!(seen(&rig).len(), 1);
    assert_eq!(rig.one("o", op(code::DELETE)), 0);
    assert!(seen(&rig).is_empty());
}
