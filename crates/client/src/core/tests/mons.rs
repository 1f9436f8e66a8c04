//! Monitors: hunting, questions, maps that are waited for.

use super::world::{World, fsid};
use crate::Error;
use crate::core::mon::{Credentials, PING_EVERY, Question, SILENT_MAX};
use crate::core::*;
use auth::{CephxClient, CryptoKey, GrantedTicket, MAUTH, MAUTH_REPLY, MAuthReply, TicketBlob};
use denc::{Encode, Writer};
use messages::mon::{
    Body, MMonCommand, MMonCommandAck, MMonGetVersion, MMonSubscribe, MPoolOpReply, PaxosHeader, PoolOpKind,
};
use types::AuthName;

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

fn ticket(service: EntityKind, seconds: u32) -> GrantedTicket {
    GrantedTicket {
        service: service as u32,
        session_key: CryptoKey::new([service as u8; 16], Utime::ZERO),
        validity: Utime {
            sec: seconds,
            nsec: 0,
        },
        blob: TicketBlob::default(),
    }
}

/// Service tickets are renewed over the session, the AUTH ticket by another one.
#[test]
fn tickets_are_renewed_at_three_quarters_of_their_life() {
    let mut w = World::unconnected(Limits::default(), 1);
    w.turn(Event::Timer);
    let (auth, osd) = (ticket(EntityKind::Auth, 300), ticket(EntityKind::Osd, 100));
    let mut cephx = CephxClient::new(
        AuthName::new(EntityKind::Client, "admin"),
        auth.session_key.clone(),
    );
    cephx.tickets = [&auth, &osd].map(|t| (t.service, t.clone())).into();
    let conn = w.dials[0].0;
    w.mon = Some(conn);
    let credentials = Credentials::Cephx(cephx);
    w.turn(Event::Opened { conn, credentials });
    w.mon_map();
    let asked = |w: &World| w.sent.iter().filter(|(_, m)| m.kind == MAUTH).count();
    let pass = |w: &mut World, seconds: u32| {
        for _ in 0..seconds {
            w.pass(Duration::from_secs(1));
            // The monitor is there.
            w.mon_map();
        }
    };
    pass(&mut w, 74);
    assert_eq!(asked(&w), 0);
    pass(&mut w, 3);
    assert!((1..4).contains(&asked(&w)), "again while there is no answer");
    let mut payload = Writer::new();
    payload.u16(0x0200);
    payload.i32(0);
    GrantedTicket::encode_reply(&mut payload, &auth.session_key, None, &[osd]);
    let reply = MAuthReply {
        protocol: 2,
        result: 0,
        global_id: 1,
        payload: payload.finish(),
        message: String::new(),
    };
    w.mon_says(Message {
        kind: MAUTH_REPLY,
        front: reply.to_bytes(),
        ..Message::default()
    });
    w.sent.clear();
    pass(&mut w, 70);
    assert_eq!(asked(&w), 0);
    w.dials.clear();
    while w.now < Duration::from_secs(1000 + 224) {
        w.pass(Duration::from_secs(1));
        w.mon_map();
    }
    assert!(w.dials.is_empty());
    pass(&mut w, 2);
    assert_eq!(
        (w.dials.len(), w.hung_up.contains(&conn)),
        (2, true),
        "all monitors of the map"
    );
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
