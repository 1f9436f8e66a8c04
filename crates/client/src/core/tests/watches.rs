//! Watches and notifies: registration, pings, reconnects, losses.

use super::world::{World, lead};
use crate::core::op::WatchOp;
use crate::core::watch::{Kind, Notified, WatchEvent};
use crate::core::*;
use denc::Writer;
use messages::osd::{MOSDOp, MWatchNotify, WatchArg, WatchEvent as On, code};
use types::Errno;

fn watch(w: &mut World, kind: Kind) -> OpId {
    let id = w.next_id();
    let place = World::request("a", Default::default()).place;
    w.turn(Event::Watch { id, place, kind });
    id
}

/// A watch that is registered at osd.0.
fn watching() -> (World, WatchId) {
    let mut w = World::new(Limits::default());
    let id = watch(&mut w, Kind::Watch { timeout: 20 });
    w.open_osd(0);
    let op = only(&mut w);
    assert_eq!(
        (op.ops[0].watch().op, op.ops[0].watch().timeout),
        (WatchOp::Watch as u8, 20)
    );
    w.answer(0, &op, 0);
    let Some(Ok(Answer::Watching(watch))) = w.done.get(&id.0) else {
        panic!("{:?}", w.done);
    };
    let watch = *watch;
    (w, watch)
}

fn only(w: &mut World) -> MOSDOp {
    let mut ops = w.ops();
    assert_eq!(ops.len(), 1, "{ops:?}");
    ops.remove(0).1
}

fn arg(op: &MOSDOp) -> (u8, u32) {
    assert_eq!(op.ops[0].code, code::WATCH);
    let WatchArg { op, gen_, .. } = op.ops[0].watch();
    (op, gen_)
}

fn event(on: On, cookie: u64, data: bytes::Bytes) -> MWatchNotify {
    MWatchNotify {
        event: on,
        cookie,
        ver: 1,
        notify_id: 77,
        payload: "hello".into(),
        return_code: 0,
        notifier_gid: 5,
        data,
    }
}

#[test]
fn a_notify_reaches_the_watcher_and_its_ack_the_osd() {
    let (mut w, watch) = watching();
    w.osd_says(0, event(On::Notify, watch.0, Default::default()).to_message());
    let want = WatchEvent::Notify {
        notify_id: 77,
        notifier: 5,
        payload: "hello".into(),
    };
    assert_eq!(w.events, [(watch, want)]);
    let id = w.next_id();
    w.turn(Event::Ack {
        id,
        watch,
        notify_id: 77,
        reply: "yes".into(),
    });
    let op = only(&mut w);
    assert_eq!(op.ops[0].code, code::NOTIFY_ACK);
    w.answer(0, &op, 0);
    assert!(w.is_ok(id));
    // About nothing of ours.
    w.osd_says(0, event(On::Notify, 999, Default::default()).to_message());
    assert_eq!(w.events.len(), 1);
}

#[test]
fn it_is_pinged_and_an_error_is_its_end() {
    let (mut w, watch) = watching();
    w.pass(Duration::from_millis(5100));
    let ping = only(&mut w);
    assert_eq!(arg(&ping), (WatchOp::Ping as u8, 0));
    assert!(ping.mtime.is_zero());
    w.pass(Duration::from_secs(5));
    assert!(w.ops().is_empty(), "one at a time");
    w.answer(0, &ping, 0);
    assert!(w.core.confirmed(watch).unwrap() >= Duration::from_secs(5));
    w.pass(Duration::from_secs(5));
    let ping = only(&mut w);
    w.answer(0, &ping, Errno::ENOENT.code());
    assert_eq!(w.events, [(watch, WatchEvent::Lost(Errno::ENOTCONN))]);
    assert_eq!(w.core.confirmed(watch), None);
}

#[test]
fn it_is_registered_again_after_a_lost_connection_and_a_moved_pg() {
    let (mut w, watch) = watching();
    w.lose(0);
    w.pass(Duration::from_millis(100));
    w.open_osd(0);
    let op = only(&mut w);
    assert_eq!((arg(&op), op.retry_attempt), ((WatchOp::Reconnect as u8, 1), 0));
    // An OSD that had answered this number would not look at the operation: it gets another one.
    w.lose(0);
    w.pass(Duration::from_millis(200));
    w.open_osd(0);
    let again = only(&mut w);
    assert!(again.tid > op.tid && again.retry_attempt == 0);
    w.answer(0, &again, 0);
    w.change(|m| lead(m, &[2, 1, 0]));
    w.open_osd(2);
    let op = only(&mut w);
    assert_eq!(arg(&op).0, WatchOp::Reconnect as u8);
    w.answer(2, &op, 0);
    assert!(w.events.is_empty() && w.core.confirmed(watch).is_some());
}

#[test]
fn a_reconnect_that_is_refused_is_the_end() {
    let (mut w, watch) = watching();
    w.change(|m| lead(m, &[2, 1, 0]));
    w.open_osd(2);
    let op = only(&mut w);
    w.answer(2, &op, Errno::ENOTCONN.code());
    assert_eq!(w.events, [(watch, WatchEvent::Lost(Errno::ENOTCONN))]);
}

#[test]
fn a_removed_object_ends_it() {
    let (mut w, watch) = watching();
    w.osd_says(0, event(On::Disconnect, watch.0, Default::default()).to_message());
    assert_eq!(w.events, [(watch, WatchEvent::Lost(Errno::ENOTCONN))]);
    w.pass(Duration::from_secs(20));
    assert!(w.ops().is_empty(), "no pings any more");
}

#[test]
fn who_ends_it_tells_the_osd() {
    let (mut w, watch) = watching();
    let id = w.next_id();
    w.turn(Event::Unwatch { id: Some(id), watch });
    let op = only(&mut w);
    assert_eq!(arg(&op).0, WatchOp::Unwatch as u8);
    w.answer(0, &op, 0);
    assert!(w.is_ok(id));
}

#[test]
fn cancelled_before_it_is_registered_it_is_ended_where_it_was_sent() {
    let mut w = World::new(Limits::default());
    let id = watch(&mut w, Kind::Watch { timeout: 0 });
    w.open_osd(0);
    w.sends();
    w.turn(Event::Cancel { id });
    let op = only(&mut w);
    assert_eq!(arg(&op).0, WatchOp::Unwatch as u8);
    assert!(w.done.is_empty());
}

#[test]
fn the_end_of_the_client_ends_its_watches_first() {
    let (mut w, _) = watching();
    w.turn(Event::Stop);
    let op = only(&mut w);
    assert_eq!(arg(&op).0, WatchOp::Unwatch as u8);
    assert!(!w.stopped);
    w.answer(0, &op, 0);
    assert!(w.stopped);
}

#[test]
fn a_notify_waits_for_its_completion_and_is_sent_again_until_then() {
    let mut w = World::new(Limits::default());
    let kind = Kind::Notify {
        payload: "x".into(),
        timeout: 10,
    };
    let id = watch(&mut w, kind);
    w.open_osd(0);
    let op = only(&mut w);
    assert_eq!(op.ops[0].code, code::NOTIFY);
    let cookie = op.ops[0].first_u64();
    w.answer(0, &op, 0);
    assert!(w.done.is_empty());
    w.lose(0);
    w.pass(Duration::from_millis(100));
    w.open_osd(0);
    let again = only(&mut w);
    assert_eq!((again.ops[0].code, again.tid > op.tid), (code::NOTIFY, true));
    let mut data = Writer::new();
    data.u32(1);
    data.u64(8);
    data.u64(9);
    data.blob(b"yes");
    data.u32(1);
    data.u64(10);
    data.u64(11);
    let mut done = event(On::NotifyComplete, cookie, data.finish());
    done.return_code = Errno::ETIMEDOUT.code();
    // Before the answer to the operation itself.
    w.osd_says(0, done.to_message());
    let want = Notified {
        replies: vec![(8, 9, "yes".into())],
        missed: vec![(10, 11)],
    };
    assert_eq!(w.done.get(&id.0), Some(&Ok(Answer::Notified(want))));
    w.answer(0, &again, 0);
    assert_eq!(w.done.len(), 1);
}

#[test]
fn on_a_full_cluster_watches_go_on() {
    let (mut w, _) = watching();
    w.change(|m| m.flags |= types::osdmap::map_flag::FULL);
    w.pass(Duration::from_secs(6));
    let ping = only(&mut w);
    assert_eq!(arg(&ping).0, WatchOp::Ping as u8);
}
