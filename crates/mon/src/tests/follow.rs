//! Who follows the cluster's log is told what is new in it, at the level that he named last.

use super::*;

#[test]
fn log_entries_reach_who_follows_the_log() {
    let mut rig = Rig::new();
    rig.admin(1);
    let entry = |level, text: &str| LogEntry {
        name: AuthName::new(EntityKind::Client, "test"),
        rank: EntityName::client(1),
        addrs: addrs(0),
        stamp: Utime::ZERO,
        seq: 41,
        level,
        message: text.into(),
        channel: "cluster".into(),
    };
    let log = |e: LogEntry| move |_: &ClusterState| Changes::one(Change::Log(e.clone()));
    rig.change(1, log(entry(LogLevel::Error, "long before")));
    rig.change(1, log(entry(LogLevel::Info, "before")));
    assert!(
        rig.subscribe(1, &[("log-warn", 0, 0)]).is_empty(),
        "from the newest on"
    );
    assert!(rig.change(1, log(entry(LogLevel::Info, "quiet"))).is_empty());
    let out = rig.change(1, log(entry(LogLevel::Error, "loud")));
    let texts = |m: &Message| {
        MLog::from_message(m)
            .unwrap()
            .entries
            .into_iter()
            .map(|e| e.message)
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(&out[0]), ["loud"]);
    let body = MLog {
        paxos: PaxosHeader::default(),
        fsid: FSID,
        entries: vec![entry(LogLevel::Warning, "mine")],
    };
    let out = rig.ask(1, body);
    assert_eq!(texts(&out[0]), ["mine"], "pushed before it is acknowledged");
    assert_eq!(MLogAck::from_message(&out[1]).unwrap().last, 41);
    // Another level takes the place of the one before.
    let out = rig.subscribe(1, &[("log-info", 0, 0)]);
    assert_eq!(texts(&out[0]), ["mine"], "the newest is told at once");
    let out = rig.change(1, log(entry(LogLevel::Error, "once")));
    assert_eq!(out.len(), 1, "not by both levels");
    rig.subscribe(1, &[("log-error", 0, 0)]);
    assert!(rig.change(1, log(entry(LogLevel::Info, "unheard"))).is_empty());
}
