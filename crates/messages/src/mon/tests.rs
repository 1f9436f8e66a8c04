//! Recorded messages both ways, and bytes that nobody would send.

use super::*;
use crate::osd::{MCommand, MCommandReply};
use types::fsmap::{FsMap, MdsMap};
use types::mgrmap::MgrMap;
use types::monmap::MonMap;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/monitor/");

fn file(name: &str) -> Option<Bytes> {
    std::fs::read(format!("{DIR}{name}")).ok().map(Bytes::from)
}

fn load<T: Body>(name: &str) -> Message {
    Message {
        kind: T::KIND,
        version: T::VERSION,
        compat: T::COMPAT,
        front: file(&format!("{name}.front.bin")).unwrap(),
        data: file(&format!("{name}.data.bin")).unwrap_or_default(),
        ..Message::default()
    }
}

/// Decodes, encodes again, compares; no byte may be left over.
fn check<T: Body>(name: &str) -> T {
    let m = load::<T>(name);
    let mut r = Reader::new(m.front.clone());
    T::decode_front(m.version, &mut r).unwrap();
    assert!(r.is_empty(), "{name}: {} bytes left over", r.remaining());
    let body = T::from_message(&m).unwrap();
    let again = body.message(0);
    assert_eq!(again.front, m.front, "{name}");
    assert_eq!(again.data, m.data, "{name}");
    hostile::<T>(&m);
    body
}

/// Every truncation and some changed bytes: an error or a value, never a panic.
fn hostile<T: Body>(m: &Message) {
    for len in 0..m.front.len() {
        let _ = T::from_message(&Message {
            front: m.front.slice(..len),
            ..m.clone()
        });
    }
    for at in 0..m.front.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut front = m.front.to_vec();
            front[at] = value;
            let _ = T::from_message(&Message {
                front: front.into(),
                ..m.clone()
            });
        }
    }
}

#[test]
fn subscriptions() {
    let items = |name: &str| {
        let body = check::<MMonSubscribe>(name);
        assert_eq!(body.hostname, "vm");
        body.what
            .into_iter()
            .map(|(k, v)| (k, v.start, v.flags))
            .collect::<Vec<_>>()
    };
    let one = |name: &str, start, flags| (name.to_string(), start, flags);
    assert_eq!(
        items("subscribe-connect"),
        [one("config", 0, 0), one("monmap", 0, 0)]
    );
    assert_eq!(items("subscribe-mgrmap"), [one("mgrmap", 0, 0)]);
    assert_eq!(items("subscribe-osdmap-first"), [one("osdmap", 0, 1)]);
    assert_eq!(items("subscribe-osdmap-next"), [one("osdmap", 9, 1)]);
    assert_eq!(
        items("subscribe-fuse-mdsmap"),
        [one("config", 0, 0), one("mdsmap", 0, 0), one("monmap", 2, 0)]
    );
    assert_eq!(
        items("subscribe-fuse-fsmapuser"),
        [one("config", 0, 0), one("fsmap.user", 4, 1), one("monmap", 2, 0)]
    );
    assert_eq!(items("subscribe-fuse-mdsmap1"), [one("mdsmap.1", 0, 0)]);
    assert_eq!(items("subscribe-log"), [one("log-info", 0, 0)]);
}

#[test]
fn maps() {
    let body = check::<MMonMap>("mon_map");
    assert_eq!(MonMap::from_bytes(&body.map).unwrap().ranks, ["a"]);
    let body = check::<MMgrMap>("mgr_map-minimal");
    assert_eq!(MgrMap::from_bytes(&body.map).unwrap().active_gid, 4100);
    let body = check::<MOsdMap>("osd_map-full");
    assert_eq!((body.fulls.len(), body.oldest, body.newest), (1, 1, 8));
    let body = check::<MOsdMap>("osd_map-inc");
    assert_eq!(body.incrementals.keys().copied().collect::<Vec<_>>(), [9]);
    let body = check::<MMdsMap>("mds_map");
    assert_eq!(body.fs_name, "monfs");
    assert_eq!(MdsMap::from_bytes(&body.map).unwrap().fs_name, "monfs");
    let body = check::<MFsMap>("fs_map");
    assert_eq!(FsMap::from_bytes(&body.map).unwrap().filesystems.len(), 1);
    let body = check::<MFsMapUser>("fsmap_user");
    assert_eq!(
        (
            body.map.legacy_client_fscid,
            body.map.filesystems[0].name.as_str()
        ),
        (1, "monfs")
    );
}

#[test]
fn queries() {
    assert_eq!(check::<MStatfs>("statfs").data_pool, None);
    assert_eq!(check::<MStatfs>("statfs-pool").data_pool, Some(4));
    let reply = check::<MStatfsReply>("statfs_reply");
    assert_eq!(
        (reply.kb_total, reply.kb_used, reply.kb_avail),
        (4_194_304, 297_168, 3_897_136)
    );
    check::<MStatfsReply>("statfs-pool_reply");
    let version = check::<MMonGetVersion>("get_version");
    assert_eq!((version.handle, version.what.as_str()), (1, "osdmap"));
    let reply = check::<MMonGetVersionReply>("get_version_reply");
    assert_eq!((reply.newest, reply.oldest), (8, 1));
    assert_eq!(check::<MGetPoolStats>("getpoolstats").pools.len(), 8);
    let reply = check::<MGetPoolStatsReply>("getpoolstats_reply");
    assert_eq!((reply.pools.len(), reply.per_pool), (8, true));
}

#[test]
fn pool_operations() {
    let op = |name: &str| {
        let body = check::<MPoolOp>(name);
        (
            PoolOpKind::from_u32(body.op).unwrap(),
            body.pool,
            body.snapid,
            body.name,
        )
    };
    let text = |s: &str| s.to_string();
    assert_eq!(op("poolop-create"), (PoolOpKind::Create, 0, 0, text("monspec1")));
    assert_eq!(op("poolop-delete"), (PoolOpKind::Delete, 2, 0, text("delete")));
    assert_eq!(op("poolop-mksnap"), (PoolOpKind::CreateSnap, 2, 0, text("s1")));
    assert_eq!(op("poolop-rmsnap"), (PoolOpKind::RemoveSnap, 2, 0, text("s1")));
    assert_eq!(
        op("poolop-selfmanaged-create"),
        (PoolOpKind::CreateSelfManagedSnap, 5, 0, text(""))
    );
    assert_eq!(
        op("poolop-selfmanaged-delete"),
        (PoolOpKind::RemoveSelfManagedSnap, 5, 4, text(""))
    );
    let reply = |name: &str| {
        let body = check::<MPoolOpReply>(name);
        (body.code, body.epoch, body.data)
    };
    assert_eq!(reply("poolop-create_reply"), (0, 9, None));
    let id = Bytes::copy_from_slice(&4u64.to_le_bytes());
    assert_eq!(reply("poolop-selfmanaged-create_reply"), (0, 30, Some(id)));
    assert_eq!(reply("poolop-enoent_reply").0, -2);
}

#[test]
fn commands() {
    assert_eq!(
        check::<MMonCommand>("mon_command-fsid").cmd,
        [r#"{"prefix": "fsid"}"#]
    );
    let ack = check::<MMonCommandAck>("mon_command-fsid_ack");
    assert_eq!((ack.code, ack.output.len()), (0, 37));
    let ack = check::<MMonCommandAck>("mon_command-unknown_ack");
    assert_eq!((ack.code, ack.status.as_str()), (-22, "command not known"));
    check::<MMonCommandAck>("mon_command-app-enable_ack");
    check::<MMgrCommand>("mgr_command");
    check::<MMgrCommand>("mgr_command-cli");
    assert_eq!(check::<MMgrCommandReply>("mgr_command_reply").output.len(), 69);
    // COMMAND belongs to the OSD family but was recorded here too.
    let front = file("command-osd-version.front.bin").unwrap();
    let m = Message {
        front: front.clone(),
        ..Message::default()
    };
    assert_eq!(MCommand::from_message(&m).unwrap().to_message().front, front);
    let front = file("command-osd-version_reply.front.bin").unwrap();
    let m = Message {
        front: front.clone(),
        ..Message::default()
    };
    assert_eq!(MCommandReply::from_message(&m).unwrap().to_message().front, front);
}

#[test]
fn sessions_and_services() {
    let options = check::<MConfig>("config").options;
    assert_eq!(options["rbd_cache"], "false");
    assert_eq!(options["rbd_cache_size"], "16777216");
    assert_eq!(check::<MLog>("log").entries.len(), 3);
    let configure = check::<MMgrConfigure>("mgr_configure");
    assert_eq!((configure.stats_period, configure.stats_threshold), (5, 5));
    assert_eq!(
        check::<MMgrReport>("mgr_report").service().unwrap().service_name,
        "monspec"
    );
    service_reports();
    let close = check::<MMgrClose>("mgr_close");
    assert_eq!(
        (close.daemon_name.as_str(), close.service_name.as_str()),
        ("d1", "monspec")
    );
    assert!(check::<MPing>("ping_reply").text.unwrap().contains("mon_status"));
}

/// Behind its counters a daemon says how it fares; whatever else stands there is an error, never a panic.
fn service_reports() {
    let report = check::<MMgrReport>("mgr_report_rbd_mirror");
    let said = report.service().unwrap();
    assert_eq!(said.service_name, "rbd-mirror");
    let status = said.status.unwrap();
    assert!(status["json"].contains(r#""leader":true"#), "{status:?}");
    assert_eq!(said.task_status, None);
    for len in 0..report.rest.len() {
        let rest = report.rest.slice(..len);
        let short = MMgrReport {
            rest,
            ..report.clone()
        };
        let _ = short.service();
        let mut rest = report.rest.to_vec();
        rest[len] ^= 0xff;
        let changed = MMgrReport {
            rest: rest.into(),
            ..report.clone()
        };
        let _ = changed.service();
    }
}

/// Bodies of which no recording exists: what we write we can read.
#[test]
fn unrecorded_bodies_survive_the_wire() {
    fn check<T: Body + PartialEq + std::fmt::Debug>(body: T) {
        let m = body.message(7);
        assert_eq!(T::from_message(&m).unwrap(), body);
        hostile::<T>(&m);
    }
    check(MMonGetMap {});
    check(MPing { text: None });
    check(MMonSubscribeAck {
        interval_seconds: 300,
        fsid: types::Uuid([3; 16]),
    });
    check(MLogAck {
        fsid: types::Uuid([3; 16]),
        last: 9,
        channel: String::new(),
    });
    let name = types::AuthName::new(types::EntityKind::Osd, "1");
    check(MGetConfig {
        name,
        host: "h".into(),
        device_class: "ssd".into(),
    });
    check(MMgrOpen {
        daemon_name: "d".into(),
        service_name: "s".into(),
        service: Some(([("a".to_string(), "b".to_string())].into(), Default::default())),
        config: Bytes::from_static(b"x"),
        config_defaults: Bytes::new(),
    });
}

/// Older headers: fields that their senders did not know are absent.
#[test]
fn older_versions_decode() {
    let mut w = Writer::new();
    w.put(&PaxosHeader::default());
    w.put(&types::Uuid([1; 16]));
    let m = Message {
        kind: 13,
        version: 1,
        front: w.finish(),
        ..Message::default()
    };
    assert_eq!(MStatfs::from_message(&m).unwrap().data_pool, None);
}
