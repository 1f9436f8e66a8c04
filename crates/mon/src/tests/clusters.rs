//! Which cluster a client means, and how it learns of it.

use super::*;

#[test]
fn a_foreign_fsid_is_refused() {
    let mut rig = Rig::new();
    rig.admin(1);
    let (fsid, cmd) = (Uuid([8; 16]), vec![r#"{"prefix":"fsid"}"#.to_string()]);
    let out = rig.ask(
        1,
        MMonCommand {
            paxos: PaxosHeader::default(),
            fsid,
            cmd: cmd.clone(),
            input: Bytes::new(),
        },
    );
    let ack = MMonCommandAck::from_message(&out[0]).unwrap();
    assert_eq!(
        (ack.code, ack.status.as_str(), &ack.cmd),
        (-1, "wrong fsid", &cmd)
    );
    let tell = messages::osd::MCommand {
        tid: 3,
        fsid,
        cmd: vec![Bytes::from_static(b"{}")],
        input: Bytes::new(),
    };
    let out = rig.message(1, tell.to_message());
    let reply = messages::osd::MCommandReply::from_message(&out[0]).unwrap();
    assert_eq!(
        (reply.tid, reply.result, &reply.status[..]),
        (3, -13, &b"wrong fsid"[..])
    );
    let op = MPoolOp {
        paxos: PaxosHeader::default(),
        fsid,
        pool: 0,
        op: 1,
        snapid: 0,
        name: "p".into(),
        crush_rule: -1,
    };
    assert_eq!(MPoolOpReply::from_message(&rig.ask(1, op)[0]).unwrap().code, -22);
    assert!(
        rig.ask(
            1,
            MStatfs {
                paxos: PaxosHeader::default(),
                fsid,
                data_pool: None
            }
        )
        .is_empty()
    );
}

/// A stock client of messenger v1 sent its first command before it had taken the monitor map, and was refused.
#[test]
fn a_command_that_names_no_cluster_is_for_this_one() {
    let mut rig = Rig::new();
    rig.admin(1);
    let out = rig.ask(
        1,
        MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: Uuid([0; 16]),
            cmd: vec![r#"{"prefix":"fsid"}"#.to_string()],
            input: Bytes::new(),
        },
    );
    assert_eq!(MMonCommandAck::from_message(&out[0]).unwrap().code, 0);
}

/// Stock clients of messenger v1 do not ask for the monitor map, and sent commands that named no cluster.
#[test]
fn a_client_that_says_what_monitor_map_it_has_gets_a_newer_one() {
    let mut rig = Rig::new();
    let epoch = rig.state().monmap.epoch;
    for (id, known, told) in [
        (1, None, false),
        (2, Some(0), true),
        (3, Some(epoch - 1), true),
        (4, Some(epoch), false),
    ] {
        rig.open_with(id, "test", &[("mon", "allow r")], known);
        let greeting = rig.monitor.greeting(id).map(|m| m.kind);
        assert_eq!(greeting, told.then_some(MMonMap::KIND), "{known:?}");
    }
}
