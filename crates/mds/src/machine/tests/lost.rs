//! Connections whose sessions end with what waits on them.

use super::world;
use super::world::World;
use crate::machine::*;
use crate::membership::MdsState;
use messages::fs::{Args, MClientSession, cap, op, session_op};
use messages::mon::Body;

/// Client 1 was asked to give something back and did not hear of it; client 2 waits: for what.
fn waiting() -> (World, u64) {
    let mut w = world();
    let f = w.make(1, 1, "f");
    w.clients.get_mut(&1).unwrap().stubborn = true;
    let tid = w.ask(2, op::GETATTR, (f, ""), (0, ""), Args::words(&[cap::FS]));
    w.settle();
    assert!(w.reply(2, tid).is_none());
    (w, tid)
}

/// It renewed for ever, and who waited for it waited for ever.
#[test]
fn who_lost_what_it_was_told_is_evicted() {
    for closed_first in [true, false] {
        let (mut w, tid) = waiting();
        if closed_first {
            w.apply(Event::Closed { conn: 1 });
        }
        let again = w.connect_again(1, true);
        if !closed_first {
            w.apply(Event::Closed { conn: 1 });
        }
        w.renew_for(100, &[2, again]);
        assert_eq!(w.fenced, [1], "{closed_first}");
        assert_eq!(w.reply(2, tid).unwrap().result, 0);
        w.renew_for(600, &[2]);
        assert_eq!(w.fenced, [1]);
    }
}

#[test]
fn who_lost_nothing_stays() {
    // A client whose connections are lossy knows that it has to ask again.
    let mut w = world();
    w.open_lossy(3);
    w.settle();
    w.make(3, 1, "f");
    let again = w.connect_again(3, false);
    w.renew_for(300, &[1, 2, again]);
    w.apply(Event::Closed { conn: again });
    w.apply(Event::Closed { conn: 3 });
    let again = w.connect_again(3, false);
    w.renew_for(600, &[1, 2, again]);
    assert!(w.fenced.is_empty());

    let mut w = world();
    w.apply(Event::Closed { conn: 2 });
    let again = w.connect_again(2, true);
    w.say_open(again, &[]);
    w.renew_for(600, &[1, again]);
    assert!(w.fenced.is_empty(), "it began anew, with nothing in its hands");

    // After a restart a first connection may come to nothing.
    w.make(1, 1, "f");
    w.restart_as(true);
    w.come_back(2);
    w.apply(Event::Opened {
        conn: 1,
        peer: super::world::peer(1),
    });
    let again = w.connect_again(1, true);
    w.say_held(1, again);
    w.apply(Event::Closed { conn: 1 });
    w.settle();
    w.renew_for(600, &[2, again]);
    assert!(w.fenced.is_empty());

    // One that closes and opens.
    let counted = w.clients[&1].counted;
    w.say(
        again,
        MClientSession::short(session_op::REQUEST_CLOSE, counted).message(0),
    );
    w.settle();
    assert!(w.clients[&1].closed);
    w.open(1);
    w.apply(Event::Closed { conn: again });
    w.make(1, 1, "g");
    w.renew_for(600, &[1, 2]);
    assert!(w.fenced.is_empty());
}

#[test]
fn who_comes_back_to_a_session_that_went_on_is_evicted() {
    let (mut w, tid) = waiting();
    w.say_held(1, 1);
    w.settle();
    assert!(w.clients[&1].closed);
    assert_eq!(w.fenced, [1]);
    assert_eq!(w.reply(2, tid).unwrap().result, 0);
}

/// The clients that had named a time of their own were evicted at once.
#[test]
fn a_longer_time_to_come_back_begins_with_the_restart() {
    let mut w = world();
    w.open_saying(3, &[("timeout", "100")]);
    w.settle();
    w.clock += 10_000;
    w.restart_as(true);
    w.come_back(1);
    w.tick(10);
    w.tell(
        1,
        r#"{"prefix": "config set", "var": "mds_reconnect_timeout", "val": ["300"]}"#,
    );
    w.tick(80);
    assert!(w.fenced.is_empty());
    w.tick(11);
    assert_eq!(w.fenced, [3]);
    w.come_back(2);
    w.settle();
    assert_eq!(w.m.state, MdsState::Active);
}

/// Others were waited for, for longer than its connection lasted. It was evicted, and its locks were gone.
#[test]
fn who_says_again_what_it_holds_while_others_are_waited_for_stays() {
    for lossless in [true, false] {
        let mut w = world();
        let f = w.make(1, 1, "f");
        w.settle();
        w.restart_as(true);
        w.come_back(1);
        w.settle();
        assert_eq!(w.m.state, MdsState::Reconnect);
        let again = w.connect_again(1, lossless);
        w.say_held(1, again);
        w.apply(Event::Closed { conn: 1 });
        w.settle();
        assert!(!w.clients[&1].closed && w.m.state == MdsState::Reconnect);
        w.come_back(2);
        w.settle();
        assert_eq!(w.m.state, MdsState::Active);
        assert!(w.m.caps[&f].holders.contains_key(&1), "what it said is known");
        w.renew_for(600, &[2, again]);
        assert!(w.fenced.is_empty() && !w.clients[&1].closed, "{lossless}");
    }
}

/// Nothing was answered since. What it replays before it says what it holds is not carried out once for each connection.
#[test]
fn what_is_replayed_again_while_others_are_waited_for_is_in_the_queue_once() {
    let mut w = world();
    let (tid, f) = w.make_unsafe(1, "f");
    let other = w.ask(1, op::MKDIR, (1, "d"), (0, ""), Args::words(&[0o755]));
    w.clients.get_mut(&1).unwrap().unsafes.insert(other, f + 1);
    w.restart_as(true);
    w.come_back(1);
    w.apply(Event::Closed { conn: 1 });
    let again = w.connect_again(1, true);
    w.say_held(1, again);
    assert_eq!(w.m.replays.queue[&1].len(), 2);
    w.settle();
    w.come_back(2);
    w.settle();
    assert_eq!(w.m.state, MdsState::Active);
    assert!(w.m.cached(f).is_some() && w.m.cached(f + 1).is_some());
    let safe = &w.clients[&1].safe;
    assert_eq!((safe[&tid], safe[&other]), (0, 0));
    assert!(w.fenced.is_empty() && w.clients[&1].unsafes.is_empty());
}

/// What still comes by the one before would lead the answer there.
#[test]
fn what_comes_late_by_an_earlier_connection_is_not_heard() {
    let mut w = world();
    let f = w.make(1, 1, "f");
    w.settle();
    w.restart_as(true);
    w.come_back(1);
    let again = w.connect_again(1, true);
    w.say_held(1, again);
    w.say_held(1, 1);
    w.apply(Event::Closed { conn: 1 });
    w.come_back(2);
    w.say_held(1, 1);
    w.settle();
    assert_eq!(w.m.state, MdsState::Active);
    let s = w.m.sessions.get(1).unwrap();
    assert!(s.conn == Some(again) && !s.lost);
    assert!(w.m.caps[&f].holders.contains_key(&1));
    w.renew_for(600, &[2, again]);
    assert!(w.fenced.is_empty() && !w.clients[&1].closed);
}

/// By the same connection it is no client that knows what it does.
#[test]
fn who_says_it_twice_by_one_connection_is_evicted() {
    let mut w = world();
    w.make(1, 1, "f");
    w.restart_as(true);
    w.come_back(1);
    w.say_held(1, 1);
    w.settle();
    assert!(w.clients[&1].closed);
    assert_eq!(w.fenced, [1]);
}
