//! Monitors: hunting, questions, maps that are waited for.

use super::world::{World, fsid};
use crate::Error;
use crate::core::mon::{PING_EVERY, Question, SILENT_MAX};
use crate::core::*;
use messages::mon::{
    Body, MMonCommand, MMonCommandAck, MMonGetVersion, MMonSubscribe, MPoolOpReply, PaxosHeader, PoolOpKind,
};

fn ask(w: &mut World, question: Question) -> OpId {
    let id = w.next_id();
    let timeout = Some(Duration::from_secs(100));
    w.turn(Event::Ask {
        id,
        question,
        timeout,
    });
    id
}

fn command() -> Question {
    Question::Command {
        cmd: "{}".into(),
        input: Bytes::new(),
    }
}

fn ended(w: &mut World, conn: ConnId) {
    let why = "reset".into();
    w.turn(Event::Ended {
        conn,
        refused: false,
        why,
    });
}

#[test]
fn several_monitors_are_tried_and_the_first_is_kept() {
    let mut w = World::unconnected(Limits::default(), 5);
    w.turn(Event::Timer);
    let conns: Vec<_> = w.dials.iter().map(|d| d.0).collect();
    assert_eq!(conns.len(), 3);
    ended(&mut w, conns[0]);
    w.open(conns[2]);
    assert_eq!(w.hung_up, [conns[1]]);
    let subscribed = w
        .sent
        .iter()
        .find(|(_, m)| m.kind == MMonSubscribe::KIND)
        .unwrap();
    let names = MMonSubscribe::from_message(&subscribed.1).unwrap().what;
    assert!(names.contains_key("monmap") && names.contains_key("osdmap"));
}

#[test]
fn who_says_nothing_is_left_for_others() {
    let mut w = World::unconnected(Limits::default(), 5);
    w.turn(Event::Timer);
    let first: Vec<_> = w.dials.drain(..).map(|d| d.2).collect();
    w.pass(Duration::from_secs(4));
    assert_eq!(w.hung_up.len(), 3);
    assert!(w.dials.iter().any(|d| !first.contains(&d.2)));
    // All refuse at once: after a pause, not in a circle.
    let conns: Vec<_> = w.dials.drain(..).map(|d| d.0).collect();
    for conn in conns {
        ended(&mut w, conn);
    }
    assert!(w.dials.is_empty());
    w.pass(Duration::from_millis(300));
    assert!(!w.dials.is_empty());
}

#[test]
fn questions_are_asked_again_of_the_next_monitor() {
    let mut w = World::new(Limits::default());
    let id = ask(&mut w, command());
    let first = w.sent.pop().unwrap().1;
    assert_eq!(MMonCommand::from_message(&first).unwrap().fsid, fsid());
    w.dials.clear();
    let conn = w.mon.take().unwrap();
    ended(&mut w, conn);
    let conn = w.dials[0].0;
    w.open(conn);
    w.mon = Some(conn);
    let again = w.sent.pop().unwrap().1;
    assert_eq!((again.kind, again.tid), (first.kind, first.tid));
    let ack = MMonCommandAck {
        paxos: PaxosHeader::default(),
        code: -22,
        status: "no".into(),
        cmd: Vec::new(),
        output: Bytes::new(),
    };
    w.mon_says(ack.message(first.tid));
    assert!(matches!(
        w.done.get(&id.0),
        Some(Ok(Answer::Command { code: -22, .. }))
    ));
    w.mon_says(ack.message(first.tid));
}

#[test]
fn a_monitor_that_does_not_answer_is_left() {
    let mut w = World::new(Limits::default());
    w.dials.clear();
    w.pass(PING_EVERY + Duration::from_millis(100));
    let asked = w
        .sent
        .iter()
        .filter(|(_, m)| m.kind == MMonGetVersion::KIND)
        .count();
    assert_eq!(asked, 1);
    w.pass(SILENT_MAX);
    assert_eq!(w.hung_up.first(), w.mon.as_ref());
    assert!(!w.dials.is_empty());
}

#[test]
fn a_pool_operation_is_told_once_the_map_has_it() {
    let mut w = World::new(Limits::default());
    let id = ask(
        &mut w,
        Question::PoolOp {
            op: PoolOpKind::CreateSelfManagedSnap,
            pool: 1,
            name: String::new(),
            snap: 0,
        },
    );
    let tid = w.sent.pop().unwrap().1.tid;
    let reply = MPoolOpReply {
        paxos: PaxosHeader::default(),
        fsid: fsid(),
        code: 0,
        epoch: 11,
        data: Some(Bytes::copy_from_slice(&7u64.to_le_bytes())),
    };
    w.mon_says(reply.message(tid));
    assert!(w.done.is_empty());
    assert!(
        w.sent.iter().any(|(_, m)| m.kind == MMonSubscribe::KIND),
        "it asks for the map"
    );
    w.change(|_| ());
    assert_eq!(w.done.get(&id.0), Some(&Ok(Answer::PoolOp { snap: Some(7) })));
}

#[test]
fn a_question_has_its_time() {
    let mut w = World::new(Limits::default());
    let id = ask(&mut w, command());
    w.pass(Duration::from_secs(101));
    assert_eq!(w.error(id), Some(Error::TimedOut));
}

#[test]
fn questions_have_a_bound() {
    let mut w = World::new(Limits::default());
    let ids: Vec<_> = (0..=mon::QUESTIONS_MAX).map(|_| ask(&mut w, command())).collect();
    assert_eq!(w.error(*ids.last().unwrap()), Some(Error::Busy));
    assert!(w.error(ids[0]).is_none());
    w.turn(Event::Cancel { id: ids[0] });
    let id = ask(&mut w, command());
    assert!(w.error(id).is_none());
}
