//! Operations: targets, order, resends, pauses, bounds, cancellation.

use super::world::{POOL, World, lead};
use crate::core::*;
use crate::{Error, Operation};
use messages::mon::{Body, MMonGetVersionReply};
use messages::osd::{BackoffOp, MOSDBackoff, MOSDOpReply, flag};
use types::osdmap::{map_flag, osd_state};
use types::pool::pool_flag;
use types::{Errno, HObject};

fn world() -> World {
    World::new(Limits::default())
}

#[test]
fn an_operation_goes_to_the_primary_and_its_answer_comes_back() {
    let mut w = world();
    let id = w.write("a", "x");
    assert!(w.ops().is_empty(), "before there is a session");
    let conn = w.open_osd(0);
    let ops = w.ops();
    let (to, op) = &ops[0];
    assert_eq!((*to, ops.len(), op.epoch, op.retry_attempt), (conn, 1, 10, 0));
    assert_eq!(op.flags, flag::WRITE | flag::ONDISK | flag::KNOWN_REDIR);
    w.answer(0, op, 0);
    assert!(w.is_ok(id));
    assert_eq!(w.core.load(), (0, 0));
}

#[test]
fn after_a_lost_connection_all_is_sent_again_in_order_under_its_number() {
    let mut w = world();
    let ids: Vec<_> = (0..5).map(|_| w.write("a", "x")).collect();
    w.open_osd(0);
    let first = w.ops();
    assert_eq!(first.iter().map(|o| o.1.tid).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    w.answer(0, &first[1].1, 0);
    w.lose(0);
    assert!(w.sends().is_empty());
    // Said while there is no connection: behind what waits.
    w.write("a", "y");
    w.pass(Duration::from_millis(100));
    w.open_osd(0);
    assert_eq!(w.sends(), [(1, 1), (3, 1), (4, 1), (5, 1), (6, 0)]);
    assert!(w.is_ok(ids[1]) && !w.is_ok(ids[0]));
}

#[test]
fn a_new_primary_gets_all_in_order_and_the_old_ones_answers_are_dropped() {
    let mut w = world();
    let ids: Vec<_> = (0..3).map(|_| w.write("a", "x")).collect();
    w.open_osd(0);
    let old = w.ops();
    w.change(|m| lead(m, &[1, 0, 2]));
    let new = w.open_osd(1);
    let again = w.ops();
    assert!(
        again
            .iter()
            .all(|(c, o)| *c == new && o.epoch == 11 && o.has(flag::RETRY))
    );
    assert_eq!(
        again
            .iter()
            .map(|o| (o.1.tid, o.1.retry_attempt))
            .collect::<Vec<_>>(),
        [(1, 1), (2, 1), (3, 1)]
    );
    w.answer(0, &old[0].1, 0);
    assert!(!w.is_ok(ids[0]), "from who leads no more");
    w.answer(1, &old[0].1, 0);
    assert!(!w.is_ok(ids[0]), "to an earlier send");
    w.answer(1, &again[0].1, 0);
    assert!(w.is_ok(ids[0]));
}

/// An OSD that led, led not, and leads again drops what came before: epochs in between count, too.
#[test]
fn a_map_is_compared_epoch_by_epoch() {
    let mut w = world();
    w.write("a", "x");
    w.open_osd(0);
    w.sends();
    let mut away = w.map.clone();
    away.epoch = 11;
    lead(&mut away, &[1, 0, 2]);
    let mut back = w.map.clone();
    back.epoch = 12;
    w.map.epoch = 12;
    let mut maps = w.maps();
    maps.fulls = [&away, &back]
        .map(|m| (m.epoch, denc::Encode::to_bytes(m)))
        .into();
    w.mon_says(maps.message(0));
    assert_eq!(w.sends(), [(1, 1)]);
}

#[test]
fn what_a_map_does_not_touch_is_not_sent_again() {
    let mut w = world();
    w.write("a", "x");
    w.open_osd(0);
    w.sends();
    w.change(|m| m.osd_weight[2] = 0);
    assert_eq!(w.sends(), []);
    // Whatever happened in epochs that were never seen.
    w.map.epoch += 5;
    let mut maps = w.maps();
    maps.oldest = w.map.epoch;
    w.mon_says(maps.message(0));
    assert_eq!(w.sends(), [(1, 1)]);
}

#[test]
fn told_eagain_it_goes_on_under_another_number() {
    let mut w = world();
    let id = w.write("a", "x");
    w.open_osd(0);
    let ops = w.ops();
    w.answer(0, &ops[0].1, Errno::EAGAIN.code());
    assert_eq!(w.sends(), []);
    w.pass(Duration::from_millis(200));
    let ops = w.ops();
    assert_eq!((ops[0].1.tid, ops[0].1.retry_attempt), (2, 1));
    w.answer(0, &ops[0].1, 0);
    assert!(w.is_ok(id));
}

#[test]
fn a_copy_that_refuses_a_read_sends_it_to_the_primary() {
    let mut w = world();
    lead(&mut w.map, &[0, 1, 2]);
    let op = Operation::new().read(0, 1).flags(flag::BALANCE_READS);
    let id = w.submit(World::request("a", op));
    // The test's randomness is zeros: the first member.
    w.open_osd(0);
    let ops = w.ops();
    assert!(ops[0].1.has(flag::BALANCE_READS));
    w.answer(0, &ops[0].1, Errno::EAGAIN.code());
    let ops = w.ops();
    assert!(!ops[0].1.has(flag::BALANCE_READS) && ops[0].1.tid == 2);
    w.answer(0, &ops[0].1, 0);
    assert!(w.is_ok(id));
}

#[test]
fn backoffs_hold_back_and_release_in_order() {
    let mut w = world();
    w.write("a", "1");
    w.open_osd(0);
    let first = w.ops();
    let pgid = first[0].1.pgid;
    let say = |op| MOSDBackoff {
        pgid,
        epoch: 10,
        op,
        id: 3,
        begin: HObject::min(),
        end: HObject::max(),
    };
    w.osd_says(0, say(BackoffOp::Block).to_message());
    let ack = MOSDBackoff::from_message(&w.sent.remove(0).1).unwrap();
    assert_eq!((ack.op, ack.id), (BackoffOp::AckBlock, 3));
    w.write("a", "2");
    w.read("a");
    assert_eq!(w.sends(), []);
    w.osd_says(0, say(BackoffOp::Unblock).to_message());
    assert_eq!(w.sends(), [(1, 1), (2, 0), (3, 0)]);
    // They end with their session.
    w.osd_says(0, say(BackoffOp::Block).to_message());
    w.lose(0);
    w.pass(Duration::from_millis(100));
    w.sent.clear();
    w.open_osd(0);
    assert_eq!(w.sends(), [(1, 2), (2, 1), (3, 1)]);
}

#[test]
fn a_full_pool_holds_back_writes_alone() {
    let mut w = world();
    w.write("a", "1");
    w.open_osd(0);
    w.sends();
    let set = |m: &mut OsdMap, flags| m.pools.get_mut(&POOL).unwrap().flags = flags;
    w.change(|m| set(m, pool_flag::FULL | pool_flag::HASHPSPOOL));
    let write = w.write("a", "2");
    w.read("a");
    assert_eq!(w.sends(), [(3, 0)], "the read");
    w.submit(World::request(
        "a",
        Operation::new().remove().flags(flag::FULL_TRY),
    ));
    assert_eq!(w.sends(), [(4, 0)], "who says that he knows");
    w.change(|m| set(m, pool_flag::HASHPSPOOL));
    assert_eq!(w.sends(), [(1, 1), (2, 0)]);
    assert!(!w.done.contains_key(&write.0));
}

#[test]
fn pause_flags_hold_back_reads_and_writes() {
    let mut w = world();
    w.read("a");
    w.open_osd(0);
    w.sends();
    w.change(|m| m.flags |= map_flag::PAUSERD | map_flag::PAUSEWR);
    w.read("a");
    w.write("a", "1");
    assert_eq!(w.sends(), []);
    w.change(|m| m.flags = 0);
    assert_eq!(w.sends(), [(1, 1), (2, 0), (3, 0)]);
}

#[test]
fn what_is_cancelled_is_neither_sent_again_nor_told() {
    let mut w = world();
    let (a, b) = (w.write("a", "1"), w.write("a", "2"));
    w.open_osd(0);
    let ops = w.ops();
    w.turn(Event::Cancel { id: a });
    w.answer(0, &ops[0].1, 0);
    w.lose(0);
    w.pass(Duration::from_millis(100));
    w.open_osd(0);
    assert_eq!(w.sends(), [(2, 1)]);
    assert!(!w.done.contains_key(&a.0));
    w.turn(Event::Cancel { id: b });
    assert_eq!(w.core.load(), (0, 0));
}

#[test]
fn load_has_a_bound_and_comes_back() {
    let mut w = World::new(Limits { ops: 3, bytes: 100 });
    let big = |n: usize| World::request("a", Operation::new().append(vec![0; n]));
    let first = w.submit(big(60));
    let over = w.submit(big(60));
    assert_eq!(w.error(over), Some(Error::Busy));
    let ids = [w.submit(big(40)), w.read("b")];
    assert!(w.error(ids[0]).is_none());
    assert_eq!(w.error(ids[1]), Some(Error::Busy), "what it would read counts");
    w.submit(World::request("b", Operation::new().stat()));
    let over = w.submit(World::request("b", Operation::new().stat()));
    assert_eq!(w.error(over), Some(Error::Busy));
    assert_eq!(w.core.load(), (3, 100));
    for id in [first, ids[0]] {
        w.turn(Event::Cancel { id });
    }
    let larger_than_all = w.submit(big(1000));
    assert!(w.error(larger_than_all).is_none());
}

#[test]
fn a_time_limit_ends_an_operation_wherever_it_is() {
    let mut w = world();
    w.change(|m| m.osds[0].state = osd_state::EXISTS);
    let mut request = World::request("a", Operation::new().stat());
    request.timeout = Some(Duration::from_secs(2));
    let id = w.submit(request);
    w.pass(Duration::from_secs(1));
    assert!(!w.done.contains_key(&id.0));
    w.pass(Duration::from_millis(1100));
    assert_eq!(w.error(id), Some(Error::TimedOut));
    assert_eq!(w.core.load(), (0, 0));
}

#[test]
fn a_pool_is_gone_once_the_newest_map_lacks_it() {
    let mut w = world();
    let mut request = World::request("a", Operation::new().stat());
    request.place.pool = 9;
    let id = w.submit(request);
    assert!(!w.done.contains_key(&id.0));
    let version = |newest| MMonGetVersionReply {
        handle: 1,
        newest,
        oldest: 1,
    };
    w.mon_says(version(11).message(1));
    assert!(
        !w.done.contains_key(&id.0),
        "it may be in a map that is still to come"
    );
    w.change(|_| ());
    assert_eq!(w.error(id).unwrap().errno(), Errno::ENOENT);
}

#[test]
fn what_can_never_be_done_is_refused_at_once() {
    let mut w = world();
    let mut to_snap = World::request("a", Operation::new().append("x"));
    to_snap.snap = 4;
    let mut long = World::request("a", Operation::new().stat());
    long.place.oid = vec![b'x'; 2049].into();
    for (request, want) in [(to_snap, Errno::EROFS), (long, Errno::ENAMETOOLONG)] {
        let id = w.submit(request);
        assert_eq!(w.error(id).unwrap().errno(), want);
    }
    let nothing = w.submit(World::request("a", Operation::new()));
    assert!(w.is_ok(nothing));
}

#[test]
fn a_malformed_reply_ends_its_operation_alone() {
    let mut w = world();
    let (a, b) = (w.write("a", "1"), w.write("a", "2"));
    w.open_osd(0);
    let ops = w.ops();
    let mut reply = MOSDOpReply::to(&ops[0].1, 10, 0).to_message();
    reply.front = reply.front.slice(..20);
    w.osd_says(0, reply);
    assert!(matches!(w.error(a), Some(Error::Malformed(_))));
    w.answer(0, &ops[1].1, 0);
    assert!(w.is_ok(b));
}

#[test]
fn an_osd_at_another_address_is_dialled_there() {
    let mut w = world();
    w.write("a", "1");
    let old = w.open_osd(0);
    w.sends();
    w.change(|m| {
        m.osds[0].client_addrs = types::EntityAddrVec::one(super::world::addr(6800, 2));
    });
    assert_eq!(w.hung_up, [old]);
    w.open_osd(0);
    assert_eq!(w.sends(), [(1, 1)]);
}

#[test]
fn the_end_tells_all_who_wait() {
    let mut w = world();
    let id = w.write("a", "1");
    w.open_osd(0);
    w.turn(Event::Stop);
    assert_eq!(w.error(id), Some(Error::Closed));
    assert!(w.stopped);
    let late = w.write("a", "1");
    assert_eq!(w.error(late), Some(Error::Closed));
}
