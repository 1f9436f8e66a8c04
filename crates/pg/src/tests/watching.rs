//! Watch and notify as transcripts (docs/protocol/ceph/04-osd.md, section 12).

use super::*;
use messages::osd::{WatchArg, WatchEvent};

fn watch(o: u8, cookie: u64, timeout: u32) -> OsdOp {
    op(code::WATCH).with_watch(WatchArg {
        cookie,
        op: o,
        timeout,
        ..Default::default()
    })
}
const UNWATCH: u8 = 0;
const WATCH: u8 = 3;
const RECONNECT: u8 = 5;
const PING: u8 = 7;

fn notify(cookie: u64, timeout: u32) -> OsdOp {
    let mut w = denc::Writer::new();
    w.u32(1);
    w.u32(timeout);
    w.blob(b"hello");
    op(code::NOTIFY).with_first_u64(cookie).with_data(w.finish())
}

fn ack(id: &Bytes, cookie: u64, reply: &[u8]) -> OsdOp {
    let mut w = denc::Writer::new();
    w.raw(id);
    w.u64(cookie);
    w.blob(reply);
    op(code::NOTIFY_ACK).with_data(w.finish())
}

/// Speaks as client `n`: identity and connection.
fn client(rig: &mut Rig, n: u64) {
    (rig.gid, rig.conn) = (4100 + n, n);
}

fn with_two_watchers() -> Rig {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    for (n, cookie) in [(1, 11), (2, 22)] {
        client(&mut rig, n);
        assert_eq!(rig.one("o", watch(WATCH, cookie, 10)), 0);
    }
    client(&mut rig, 3);
    rig
}

fn kinds(rig: &mut Rig) -> Vec<(ConnId, WatchEvent, u64, i32)> {
    let all = rig.events();
    all.into_iter()
        .map(|(c, e)| (c, e.event, e.cookie, e.return_code))
        .collect()
}

#[test]
fn a_notify_completes_when_all_have_acknowledged() {
    let mut rig = with_two_watchers();
    let id = rig.run("o", vec![notify(333, 5)]).ops[0].outdata.clone();
    let n = WatchEvent::Notify;
    assert_eq!(kinds(&mut rig), [(1, n, 11, 0), (2, n, 22, 0)]);
    client(&mut rig, 1);
    assert_eq!(rig.one("o", ack(&id, 11, b"A")), 0);
    assert_eq!(rig.one("o", ack(&id, 11, b"again")), 0);
    assert!(rig.events().is_empty());
    client(&mut rig, 2);
    assert_eq!(rig.one("o", ack(&id, 22, b"")), 0);
    let (conn, done) = rig.events().remove(0);
    assert_eq!(
        (conn, done.event, done.cookie, done.return_code),
        (3, WatchEvent::NotifyComplete, 333, 0)
    );
    let mut w = denc::Writer::new();
    w.u32(2);
    for (gid, cookie, reply) in [(4101u64, 11u64, &b"A"[..]), (4102, 22, b"")] {
        w.u64(gid);
        w.u64(cookie);
        w.blob(reply);
    }
    w.u32(0);
    assert_eq!(done.data, w.finish());
}

#[test]
fn a_notify_times_out_and_names_those_missing() {
    let mut rig = with_two_watchers();
    rig.one("o", notify(333, 2));
    rig.events();
    rig.tick_after(Duration::from_millis(1999));
    assert!(rig.events().is_empty());
    rig.tick_after(Duration::from_millis(1));
    assert_eq!(kinds(&mut rig), [(3, WatchEvent::NotifyComplete, 333, -110)]);
    rig.run("o", vec![op(code::DELETE)]);
    let gone = WatchEvent::Disconnect;
    assert_eq!(kinds(&mut rig), [(1, gone, 11, 0), (2, gone, 22, 0)]);
    rig.run("o", vec![write_full(b"x")]);
    rig.one("o", notify(334, 2));
    assert_eq!(
        kinds(&mut rig),
        [(3, WatchEvent::NotifyComplete, 334, 0)],
        "nobody watches"
    );
}

#[test]
fn pings_keep_a_watch_and_silence_ends_it() {
    let mut rig = with_two_watchers();
    for _ in 0..3 {
        rig.tick_after(Duration::from_secs(6));
        client(&mut rig, 1);
        assert_eq!(rig.one("o", watch(PING, 11, 0)), 0);
    }
    assert_eq!(kinds(&mut rig), [(2, WatchEvent::Disconnect, 22, 0)]);
    client(&mut rig, 2);
    assert_eq!(rig.one("o", watch(PING, 22, 0)), -107);
    assert_eq!(rig.one("o", watch(RECONNECT, 22, 0)), -107);
    assert_eq!(rig.one("o", watch(UNWATCH, 22, 0)), 0);
    assert_eq!(rig.one("none", watch(WATCH, 22, 0)), -2);
    client(&mut rig, 1);
    rig.conn = 9;
    assert_eq!(rig.one("o", watch(PING, 11, 0)), -110, "another connection");
    assert_eq!(rig.one("o", watch(RECONNECT, 11, 0)), 0);
    assert_eq!(rig.one("o", watch(PING, 11, 0)), 0);
}

#[test]
fn a_watcher_that_comes_back_in_time_gets_what_it_missed() {
    let mut rig = with_two_watchers();
    rig.apply(Input::ConnectionClosed(2));
    rig.one("o", notify(333, 9));
    assert_eq!(kinds(&mut rig), [(1, WatchEvent::Notify, 11, 0)]);
    client(&mut rig, 2);
    rig.conn = 20;
    assert_eq!(rig.one("o", watch(RECONNECT, 22, 10)), 0);
    assert_eq!(kinds(&mut rig), [(20, WatchEvent::Notify, 22, 0)]);
    rig.apply(Input::ConnectionClosed(3));
    rig.tick_after(Duration::from_secs(9));
    assert!(rig.events().is_empty(), "the notifier is gone");
}

#[test]
fn watches_survive_a_restart_for_their_timeout() {
    let mut rig = with_two_watchers();
    rig.restart();
    client(&mut rig, 1);
    assert_eq!(rig.one("o", watch(PING, 11, 0)), -110);
    assert_eq!(rig.one("o", watch(RECONNECT, 11, 10)), 0);
    rig.tick_after(Duration::from_secs(9));
    assert_eq!(rig.one("o", watch(PING, 11, 0)), 0);
    rig.tick_after(Duration::from_secs(2));
    assert!(rig.events().is_empty(), "the lost one has no connection to tell");
    client(&mut rig, 2);
    assert_eq!(rig.one("o", watch(RECONNECT, 22, 10)), -107);
    // Its end was written: another restart does not bring it back.
    rig.restart();
    assert_eq!(rig.one("o", watch(RECONNECT, 22, 10)), -107);
    client(&mut rig, 1);
    assert_eq!(rig.one("o", watch(RECONNECT, 11, 10)), 0);
}

#[test]
fn watching_changes_neither_version_nor_data_but_the_time() {
    let mut rig = Rig::new();
    let uv = rig.run("o", vec![write_full(b"x")]).user_version;
    rig.mtime = Utime { sec: 99, nsec: 1 };
    assert_eq!(rig.run("o", vec![watch(WATCH, 1, 0)]).user_version, uv);
    let stat = rig.run("o", vec![op(code::STAT)]).ops[0].outdata.clone();
    assert_eq!(stat[8..], [99, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_watch_that_died_with_the_server_is_not_seen_long_after() {
    // `rbd rm` asks for watchers once, and refuses if there is one.
    let mut rig = with_two_watchers();
    rig.restart();
    rig.now += Duration::from_secs(11);
    let r = rig.run("o", vec![op(code::LIST_WATCHERS)]);
    assert_eq!(r.ops[0].outdata[..], [1, 1, 4, 0, 0, 0, 0, 0, 0, 0]);
    client(&mut rig, 1);
    assert_eq!(rig.one("o", watch(RECONNECT, 11, 0)), -107);
}

/// What `skep doctor` says of a client that waits for the holder of a lock.
#[test]
fn who_has_not_answered_is_named() {
    let mut rig = with_two_watchers();
    let late = |rig: &Rig| {
        rig.pg
            .unanswered(rig.now.saturating_sub(Duration::from_secs(1)), 10)
    };
    let id = rig.run("o", vec![notify(7, 30)]).ops[0].outdata.clone();
    assert!(late(&rig).is_empty(), "it has just been asked");
    rig.now += Duration::from_secs(2);
    let found = late(&rig);
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].object.oid[..], found[0].by), (&b"o"[..], 4103));
    let who = |n: &crate::Unanswered| n.watchers.iter().map(|(c, _, on)| (*c, *on)).collect::<Vec<_>>();
    assert_eq!(who(&found[0]), [(4101, true), (4102, true)]);
    client(&mut rig, 1);
    rig.run("o", vec![ack(&id, 11, b"")]);
    assert_eq!(who(&late(&rig)[0]), [(4102, true)]);
    client(&mut rig, 2);
    rig.run("o", vec![ack(&id, 22, b"")]);
    assert!(late(&rig).is_empty());
}

/// A notification lived as long as its client said, 2^32 s, and kept its payload.
#[test]
fn a_notify_does_not_live_longer_than_the_longest_timeout() {
    let mut rig = with_two_watchers();
    rig.one("o", watch(WATCH, 33, u32::MAX));
    rig.one("o", notify(333, u32::MAX));
    rig.events();
    rig.tick_after(Duration::from_secs(u64::from(
        crate::front::watch::NOTIFY_TIMEOUT_MAX_S,
    )));
    assert!(kinds(&mut rig).contains(&(3, WatchEvent::NotifyComplete, 333, -110)));
    rig.tick_after(Duration::from_secs(u64::from(
        crate::exec::ops::watch::WATCH_TIMEOUT_MAX_S,
    )));
    assert!(
        kinds(&mut rig).contains(&(3, WatchEvent::Disconnect, 33, 0)),
        "and so for watches"
    );
}

/// 20 messages held 1.2 GiB, for as long as a watcher did not answer.
#[test]
fn what_notifications_hold_is_bounded() {
    let mut rig = with_two_watchers();
    let big = |bytes: usize| {
        let mut w = denc::Writer::new();
        w.u32(1);
        w.u32(30);
        w.blob(&vec![7; bytes]);
        op(code::NOTIFY).with_first_u64(333).with_data(w.finish())
    };
    assert_eq!(rig.one("o", big(60 << 20)), -7, "never fits");
    let mut taken = 0;
    while rig.one("o", big(1 << 20)) == 0 {
        taken += 1;
        assert!(taken < 16, "all that one client may have, and more");
    }
    assert!(taken > 4);
    assert_eq!(rig.one("o", big(1 << 20)), -16);
    client(&mut rig, 1);
    assert_eq!(rig.one("o", big(1 << 20)), 0, "another client");
    rig.tick_after(Duration::from_secs(30));
    client(&mut rig, 3);
    rig.run("o", vec![write_full(b"x")]);
    assert_eq!(rig.one("o", big(1 << 20)), 0, "their time is over");
}
