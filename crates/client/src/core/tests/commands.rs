//! Commands to OSDs, PGs and the manager: targets, answers, errors, sent again, bounds.

use super::world::{POOL, World, addr, fsid, lead};
use crate::Error;
use crate::core::command::{Command, OUTPUT_MAX, SENDS_MAX, Target};
use crate::core::*;
use denc::Encode;
use messages::mon::{Body, MMgrCommand, MMgrMap, MMonGetVersion, MMonGetVersionReply, MMonSubscribe};
use messages::osd::{MCommand, MCommandReply, kind};
use types::osdmap::osd_state;
use types::{EntityAddrVec, Errno, MgrMap, OsdId, PgId};

const VERSION: &str = r#"{"prefix": "version"}"#;

fn world() -> World {
    World::new(Limits::default())
}

fn command(w: &mut World, to: Target) -> OpId {
    command_within(w, to, None)
}

fn command_within(w: &mut World, to: Target, timeout: Option<Duration>) -> OpId {
    let id = w.next_id();
    let command = Command {
        to,
        cmd: VERSION.into(),
        input: Bytes::new(),
        timeout,
    };
    w.turn(Event::Command { id, command });
    id
}

/// Commands sent since the last look, with the connections.
fn sent(w: &mut World) -> Vec<(ConnId, MCommand)> {
    let all = std::mem::take(&mut w.sent).into_iter();
    let commands = all.filter(|(_, m)| m.kind == kind::COMMAND);
    commands
        .map(|(c, m)| (c, MCommand::from_message(&m).unwrap()))
        .collect()
}

fn reply(tid: Tid, result: i32, output: impl Into<Bytes>) -> Message {
    let (status, output) = (Bytes::from_static(b"said"), output.into());
    MCommandReply {
        tid,
        result,
        status,
        output,
    }
    .to_message()
}

fn down(map: &mut OsdMap, osd: usize) {
    map.osds[osd].state = osd_state::EXISTS;
}

fn told(w: &World, id: OpId) -> Option<Answer> {
    w.done.get(&id.0).and_then(|t| t.clone().ok())
}

fn errno(w: &World, id: OpId) -> Option<Errno> {
    w.error(id).map(|e| e.errno())
}

/// The monitor answers all questions about its newest map.
fn newest(w: &mut World, newest: u64) {
    let asked: Vec<_> = w
        .sent
        .iter()
        .filter(|(_, m)| m.kind == MMonGetVersion::KIND)
        .map(|(_, m)| m.tid)
        .collect();
    assert!(!asked.is_empty(), "it asks");
    w.sent.clear();
    for tid in asked {
        let version = MMonGetVersionReply {
            handle: tid,
            newest,
            oldest: 1,
        };
        w.mon_says(version.message(tid));
    }
}

#[test]
fn a_command_goes_to_its_osd_and_the_answer_comes_back() {
    let mut w = world();
    let id = command(&mut w, Target::Osd(1));
    assert!(sent(&mut w).is_empty(), "before there is a session");
    let conn = w.open_osd(1);
    let (to, c) = sent(&mut w).remove(0);
    assert_eq!((to, c.fsid, &c.cmd[0][..]), (conn, fsid(), VERSION.as_bytes()));
    w.osd_says(1, reply(c.tid + 1, 0, "of another"));
    assert!(told(&w, id).is_none());
    w.osd_says(1, reply(c.tid, 0, "out"));
    let answer = Answer::Command {
        code: 0,
        status: "said".into(),
        output: "out".into(),
    };
    assert_eq!(told(&w, id), Some(answer));
    assert_eq!(w.core.load(), (0, 0));
    // The session stays for the next one, and for operations.
    let id = command(&mut w, Target::Osd(1));
    let (to, c) = sent(&mut w).remove(0);
    assert_eq!(to, conn);
    w.osd_says(1, reply(c.tid, Errno::EINVAL.code(), ""));
    assert!(matches!(told(&w, id), Some(Answer::Command { code: -22, .. })));
    w.change(|m| lead(m, &[1, 0, 2]));
    w.write("a", "x");
    assert_eq!(w.ops().len(), 1);
}

#[test]
fn a_command_to_a_pg_goes_to_its_primary() {
    let mut w = world();
    // Seeds beyond the PGs that there are mean one of them.
    let ids = [0, 5].map(|seed| command(&mut w, Target::Pg(PgId::new(POOL, seed))));
    w.open_osd(0);
    let first = sent(&mut w);
    assert_eq!(first.len(), 2);
    w.change(|m| lead(m, &[2, 0, 1]));
    w.open_osd(2);
    let again = sent(&mut w);
    let tids = |sent: &[(ConnId, MCommand)]| sent.iter().map(|s| s.1.tid).collect::<Vec<_>>();
    assert_eq!(tids(&first), tids(&again));
    w.osd_says(0, reply(first[0].1.tid, 0, "of who leads no more"));
    assert!(told(&w, ids[0]).is_none());
    w.osd_says(2, reply(first[0].1.tid, 0, ""));
    assert!(told(&w, ids[0]).is_some() && told(&w, ids[1]).is_none());
}

#[test]
fn after_a_lost_connection_it_is_sent_again_under_its_number() {
    let mut w = world();
    let ids = [(); 2].map(|()| command(&mut w, Target::Osd(0)));
    w.open_osd(0);
    let first = sent(&mut w);
    w.lose(0);
    w.pass(Duration::from_millis(100));
    w.open_osd(0);
    let again = sent(&mut w);
    assert_eq!(again.len(), 2);
    assert!(again[0].0 != first[0].0 && again[0].1 == first[0].1 && again[1].1 == first[1].1);
    w.osd_says(0, reply(again[1].1.tid, 0, ""));
    assert!(told(&w, ids[0]).is_none() && told(&w, ids[1]).is_some());
    // Also to where the OSD is after its return, if no map says that it was away.
    w.change(|m| m.osds[0].client_addrs = EntityAddrVec::one(addr(6800, 2)));
    w.open_osd(0);
    assert_eq!(sent(&mut w).len(), 1);
}

#[test]
fn a_command_that_ends_every_connection_is_given_up() {
    let mut w = world();
    let id = command(&mut w, Target::Osd(0));
    for _ in 0..SENDS_MAX {
        w.open_osd(0);
        assert_eq!(sent(&mut w).len(), 1);
        w.lose(0);
        w.pass(Duration::from_millis(100));
    }
    assert_eq!(errno(&w, id), None);
    w.open_osd(0);
    assert!(sent(&mut w).is_empty());
    assert_eq!((errno(&w, id), w.core.load()), (Some(Errno::ENOTCONN), (0, 0)));
}

#[test]
fn what_the_newest_map_lacks_is_an_error() {
    let no_pool = PgId::new(9, 0);
    for (to, want) in [
        (Target::Osd(7), Errno::ENOENT),
        (Target::Osd(2), Errno::ENXIO),
        (Target::Pg(no_pool), Errno::ENOENT),
    ] {
        let mut w = world();
        w.change(|m| down(m, 2));
        w.sent.clear();
        let id = command(&mut w, to);
        newest(&mut w, 12);
        assert_eq!(
            errno(&w, id),
            None,
            "{to}: it may be in a map that is still to come"
        );
        w.change(|_| ());
        assert_eq!((errno(&w, id), w.core.load()), (Some(want), (0, 0)), "{to}");
    }
}

#[test]
fn an_osd_that_the_next_map_has_is_asked() {
    let mut w = world();
    w.change(|m| down(m, 2));
    w.sent.clear();
    let id = command(&mut w, Target::Osd(2));
    newest(&mut w, 12);
    w.change(|m| m.osds[2].state |= osd_state::UP);
    w.open_osd(2);
    assert_eq!((sent(&mut w).len(), errno(&w, id)), (1, None));
}

#[test]
fn an_osd_that_goes_down_ends_what_it_was_asked() {
    let mut w = world();
    let id = command(&mut w, Target::Osd(1));
    let other = command(&mut w, Target::Osd(0));
    w.open(w.dials[w.dials.len() - 2].0);
    w.sent.clear();
    w.change(|m| down(m, 1));
    newest(&mut w, 11);
    assert_eq!((errno(&w, id), errno(&w, other)), (Some(Errno::ENXIO), None));
    assert_eq!(w.hung_up.len(), 1);
}

#[test]
fn a_pg_without_a_primary_is_waited_for() {
    let mut w = world();
    w.change(|m| (0..3).for_each(|osd| down(m, osd)));
    let id = command_within(
        &mut w,
        Target::Pg(PgId::new(POOL, 0)),
        Some(Duration::from_secs(30)),
    );
    w.change(|_| ());
    assert!(w.dials.iter().all(|d| d.1 == EntityKind::Mon));
    w.pass(Duration::from_secs(31));
    assert_eq!(w.error(id), Some(Error::TimedOut));
}

#[test]
fn flags_and_backoffs_do_not_hold_commands_back() {
    let mut w = world();
    w.change(|m| m.flags |= types::osdmap::map_flag::PAUSERD | types::osdmap::map_flag::PAUSEWR);
    command(&mut w, Target::Pg(PgId::new(POOL, 0)));
    w.open_osd(0);
    assert_eq!(sent(&mut w).len(), 1);
}

#[test]
fn a_time_limit_and_a_cancellation_end_it() {
    let mut w = world();
    let late = command_within(&mut w, Target::Osd(0), Some(Duration::from_secs(2)));
    let unwanted = command(&mut w, Target::Osd(0));
    w.open_osd(0);
    let tids: Vec<_> = sent(&mut w).iter().map(|s| s.1.tid).collect();
    w.turn(Event::Cancel { id: unwanted });
    w.pass(Duration::from_millis(2100));
    assert_eq!(w.error(late), Some(Error::TimedOut));
    assert_eq!(w.core.load(), (0, 0));
    for tid in tids {
        w.osd_says(0, reply(tid, 0, "late"));
    }
    w.lose(0);
    w.pass(Duration::from_secs(1));
    assert!(!w.done.contains_key(&unwanted.0) && sent(&mut w).is_empty());
}

#[test]
fn commands_count_with_what_they_may_bring() {
    let mut w = World::new(Limits {
        ops: 3,
        bytes: OUTPUT_MAX + 100,
    });
    let first = command(&mut w, Target::Osd(0));
    let second = command(&mut w, Target::Osd(0));
    assert_eq!((w.error(first), w.error(second)), (None, Some(Error::Busy)));
    w.open_osd(0);
    let tid = sent(&mut w).remove(0).1.tid;
    w.osd_says(0, reply(tid, 0, vec![0; OUTPUT_MAX + 1]));
    assert_eq!(errno(&w, first), Some(Errno::EMSGSIZE));
    assert_eq!(w.core.load(), (0, 0));
}

#[test]
fn the_end_tells_who_asked() {
    let mut w = world();
    let id = command(&mut w, Target::Osd(0));
    let mgr = command(&mut w, Target::Mgr);
    w.turn(Event::Stop);
    assert_eq!(
        (w.error(id), w.error(mgr)),
        (Some(Error::Closed), Some(Error::Closed))
    );
    assert!(w.stopped);
    let late = command(&mut w, Target::Osd(0));
    assert_eq!(w.error(late), Some(Error::Closed));
}

fn manager(epoch: u32, port: u16) -> Message {
    let addrs = EntityAddrVec::one(addr(port, 1));
    let map = MgrMap::active(epoch, "x", 5, addrs, Utime::ZERO);
    let map = map.to_bytes();
    MMgrMap { map }.message(0)
}

fn open_mgr(w: &mut World, port: u16) -> ConnId {
    let (conn, peer, to) = *w.dials.last().unwrap();
    assert_eq!((peer, to.sock.unwrap().port()), (EntityKind::Mgr, port));
    w.open(conn);
    conn
}

#[test]
fn the_manager_is_found_by_its_map_and_followed() {
    let mut w = world();
    let modules = command(&mut w, Target::MgrModules);
    let own = command(&mut w, Target::Mgr);
    let names = |m: &Message| MMonSubscribe::from_message(m).unwrap().what;
    let subscribed = w.sent.iter().filter(|(_, m)| m.kind == MMonSubscribe::KIND);
    let subscribed: Vec<_> = subscribed.map(|(_, m)| names(m)).collect();
    assert_eq!(subscribed.len(), 1);
    assert!(subscribed[0].contains_key("mgrmap"));
    w.mon_says(manager(4, 7000));
    let conn = open_mgr(&mut w, 7000);
    let kinds: Vec<_> = w.sent.iter().map(|(c, m)| (*c, m.kind)).collect();
    assert!(kinds.ends_with(&[(conn, MMgrCommand::KIND), (conn, kind::COMMAND)]));
    w.sent.clear();
    w.mon_says(manager(5, 7000));
    assert!(w.sent.is_empty(), "nothing is sent twice over one connection");
    // It broke, and then there is another one.
    let why = "reset".to_string();
    let refused = false;
    w.turn(Event::Ended { conn, refused, why });
    w.pass(Duration::from_millis(100));
    open_mgr(&mut w, 7000);
    assert_eq!(w.sent.drain(..).count(), 2);
    w.mon_says(manager(6, 7001));
    let conn = open_mgr(&mut w, 7001);
    let again: Vec<_> = w.sent.drain(..).map(|(_, m)| m.tid).collect();
    for tid in again {
        let message = reply(tid, 0, "out");
        w.turn(Event::Message { conn, message });
    }
    assert!(told(&w, modules).is_some() && told(&w, own).is_some());
}

#[test]
fn without_a_manager_a_command_waits_for_one() {
    let mut w = world();
    let id = command_within(&mut w, Target::MgrModules, Some(Duration::from_secs(5)));
    let none = MgrMap {
        epoch: 3,
        ..MgrMap::default()
    };
    w.mon_says(MMgrMap { map: none.to_bytes() }.message(0));
    w.pass(Duration::from_secs(6));
    assert_eq!(w.error(id), Some(Error::TimedOut));
}

#[test]
fn targets_are_written_as_ceph_tell_takes_them() {
    for (text, want) in [
        ("osd.12", Target::Osd(12 as OsdId)),
        ("1.1f", Target::Pg(PgId::new(1, 0x1f))),
        ("mgr", Target::Mgr),
    ] {
        assert_eq!(text.parse::<Target>().unwrap(), want);
        assert_eq!(want.to_string(), text);
    }
    for text in ["osd.", "osd.-1", "osd.x", "mon.a", "", "1.", "1"] {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
}
