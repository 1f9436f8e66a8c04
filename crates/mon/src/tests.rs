//! The monitor without sockets: messages in, effects out, changes committed to a cluster in a temporary file.

mod clusters;
mod files;
mod follow;
mod told;

use crate::commands::context::MonInfo;
use crate::shell::monitor::{Effect, MessageEnv, Monitor};
use crate::shell::requests::Request;
use auth::{AuthMethod, PeerCaps};
use bytes::Bytes;
use cluster::{Change, Changes, ClusterState, CreateOptions, OsdBoot};
use denc::Decode;
use io::{Random, SystemClock, SystemRandom};
use messages::mon::*;
use metastore::{ClusterHandle, Embedded, create_cluster};
use msgr::{Message, Peer};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::clusterlog::{LogEntry, LogLevel};
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime, Uuid};
use types::{osdmap::Incremental, pool::pool_flag};

const FSID: Uuid = Uuid([7; 16]);

fn addrs(port: u16) -> EntityAddrVec {
    EntityAddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 0))
}

pub(crate) fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(f)
}

/// A cluster with three OSDs that are up, and no pools.
pub(crate) struct Rig {
    _dir: tempfile::TempDir,
    pub cluster: ClusterHandle,
    pub monitor: Monitor,
    now: Utime,
    next_tid: u64,
    records: crate::shell::audit::Records,
}

fn info() -> MonInfo {
    MonInfo {
        images: Arc::default(),
        name: "a".into(),
        rank: 0,
        mgr_name: "x".into(),
        hostname: "vm".into(),
        cephx: true,
        started: Utime::ZERO,
        stalled: None,
        trouble: None,
        behind: std::time::Duration::ZERO,
        stance: Default::default(),
        metadata: BTreeMap::new(),
        registry: Default::default(),
    }
}

impl Rig {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::shared();
        let store = Arc::new(Embedded::open(&dir.path().join("state"), clock.clone()).unwrap());
        let mut options = CreateOptions::new(FSID, "a", addrs(3300).first());
        let set = |who: &str, name: &str, value: &str| (who.to_string(), name.to_string(), value.to_string());
        options.config.push(set("global", "osd_pool_default_size", "1"));
        options.config.push(set("mon", "mon_allow_pool_delete", "true"));
        block_on(create_cluster(&*store, &options, &*clock, &SystemRandom)).unwrap();
        let cluster = block_on(ClusterHandle::open(store, clock)).unwrap().unwrap();
        for id in 0..3 {
            let boot = OsdBoot {
                id,
                uuid: Uuid([id as u8 + 1; 16]),
                client_addrs: addrs(6800 + id as u16),
                cluster_addrs: addrs(6800 + id as u16),
                hb_back_addrs: addrs(6800 + id as u16),
                hb_front_addrs: addrs(6800 + id as u16),
                size_bytes: 64 << 30,
                host: "vm".into(),
                device_class: String::new(),
                features: types::release::feature::ALL_PACIFIC,
                metadata: BTreeMap::new(),
            };
            block_on(cluster.osd_boot(&boot)).unwrap();
        }
        let monitor = Monitor::new(info(), cluster.state(), cluster.stats());
        Self {
            _dir: dir,
            cluster,
            monitor,
            now: Utime {
                sec: 1_700_000_000,
                nsec: 0,
            },
            next_tid: 10,
            records: Default::default(),
        }
    }

    pub fn state(&self) -> Arc<ClusterState> {
        self.cluster.state()
    }

    pub fn open(&mut self, id: u64, caps: &[(&str, &str)]) {
        self.open_with(id, "test", caps, None);
    }

    pub fn open_with(&mut self, id: u64, who: &str, caps: &[(&str, &str)], monmap_epoch: Option<u32>) {
        let texts = caps.iter().map(|(s, t)| (s.to_string(), t.to_string()));
        let peer = Peer {
            name: EntityName::client(id),
            auth_name: AuthName::new(EntityKind::Client, who),
            global_id: id,
            caps: PeerCaps::Texts(texts.collect()),
            addrs: addrs(0),
            sock: ([127, 0, 0, 1], 40000).into(),
            features: u64::MAX,
            method: AuthMethod::Cephx,
            secure: false,
            // As if authentication were off: the tests give what capabilities they like.
            key_epoch: None,
            server_challenge: Some(1),
            lifeline: false,
            lossless: false,
            monmap_epoch,
        };
        assert!(self.monitor.opened(id, Arc::new(peer)));
    }

    pub fn admin(&mut self, id: u64) {
        self.open(id, &[("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *")]);
    }

    /// One message, with what it decides committed; gives what was sent to `id`.
    pub fn message(&mut self, id: u64, m: Message) -> Vec<Message> {
        let random = SystemRandom;
        let env = MessageEnv {
            now: self.now,
            random: &random,
        };
        let effects = self.monitor.message(id, m, &env);
        let mut out = Vec::new();
        for effect in effects {
            out.extend(self.carry_out(id, effect));
        }
        out
    }

    fn carry_out(&mut self, id: u64, effect: Effect) -> Vec<Message> {
        match effect {
            Effect::Send(to, m) if to == id => vec![m],
            Effect::Refused(request, reply) => {
                self.records.refused(&request, &reply, self.now);
                Vec::new()
            }
            Effect::Decide(_, request) => {
                let random = SystemRandom;
                let sessions = self.monitor.session_infos();
                let done = {
                    let env = self.monitor.env(
                        &MessageEnv {
                            now: self.now,
                            random: &random,
                        },
                        &sessions,
                    );
                    block_on(self.cluster.commit(|s| request.decide(s, &env))).unwrap()
                };
                match done.changed {
                    true => self.records.changed(&request, &done.reply, self.now),
                    false => self.records.unchanged(&request, &done.reply, self.now),
                }
                let mut out = self.pushed(id);
                out.push(request.answer(done.reply, &done.state));
                out
            }
            _ => Vec::new(),
        }
    }

    /// What the newest state makes due to `id`.
    fn pushed(&mut self, id: u64) -> Vec<Message> {
        let effects = self.monitor.state_changed(self.cluster.state()).into_iter();
        effects
            .filter_map(|e| match e {
                Effect::Send(to, m) if to == id => Some(m),
                _ => None,
            })
            .collect()
    }

    fn ask<T: Body>(&mut self, id: u64, body: T) -> Vec<Message> {
        self.next_tid += 1;
        let m = body.message(self.next_tid);
        let tid = self.next_tid;
        let out = self.message(id, m);
        for m in &out {
            assert!(m.tid == tid || m.tid == 0);
        }
        out
    }

    fn subscribe(&mut self, id: u64, list: &[(&str, u64, u8)]) -> Vec<Message> {
        let what = list
            .iter()
            .map(|(n, start, flags)| {
                (
                    n.to_string(),
                    SubscribeItem {
                        start: *start,
                        flags: *flags,
                    },
                )
            })
            .collect();
        self.ask(
            id,
            MMonSubscribe {
                what,
                hostname: "vm".into(),
            },
        )
    }

    fn change(&mut self, id: u64, changes: impl Fn(&ClusterState) -> Changes) -> Vec<Message> {
        block_on(self.cluster.commit(|s| (changes(s), ()))).unwrap();
        self.pushed(id)
    }

    /// All that a change brings about.
    pub fn changed(&mut self, changes: impl Fn(&ClusterState) -> Changes) -> Vec<Effect> {
        block_on(self.cluster.commit(|s| (changes(s), ()))).unwrap();
        self.monitor.state_changed(self.cluster.state())
    }

    /// What a command wants decided; None: it is refused at once.
    pub fn decision(&mut self, id: u64, command: &str) -> Option<Request> {
        let body = MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: FSID,
            cmd: vec![command.to_string()],
            input: Bytes::new(),
        };
        let random = SystemRandom;
        let env = MessageEnv {
            now: self.now,
            random: &random,
        };
        let effects = self.monitor.message(id, body.message(1), &env);
        effects.into_iter().find_map(|e| match e {
            Effect::Decide(_, request) => Some(*request),
            _ => None,
        })
    }

    /// Decides it by the newest state. The error is the refusal.
    pub fn decide(&mut self, request: &Request) -> Result<(), String> {
        let random = SystemRandom;
        let env = MessageEnv {
            now: self.now,
            random: &random,
        };
        let (_, reply) = request.decide(&self.cluster.state(), &self.monitor.env(&env, &[]));
        match reply.code {
            0 => Ok(()),
            _ => Err(reply.status),
        }
    }

    /// Makes `n` epochs.
    fn epochs(&mut self, id: u64, n: usize) -> Vec<Message> {
        let flag = types::osdmap::map_flag::NOOUT;
        (0..n)
            .flat_map(|_| {
                self.change(id, |s| {
                    let mut inc = Incremental::next_after(&s.osdmap, Utime::ZERO);
                    inc.new_flags = Some(s.osdmap.flags ^ flag);
                    Changes::map(inc)
                })
            })
            .collect()
    }

    pub fn pool_op(
        &mut self,
        id: u64,
        op: PoolOpKind,
        pool: i64,
        name: &str,
        snapid: u64,
    ) -> (i32, u32, Option<u64>) {
        let body = MPoolOp {
            paxos: PaxosHeader::default(),
            fsid: FSID,
            pool,
            op: op as u32,
            snapid,
            name: name.into(),
            crush_rule: -1,
        };
        let out = self.ask(id, body);
        let reply = MPoolOpReply::from_message(out.last().unwrap()).unwrap();
        let data = reply.data.map(|d| u64::from_le_bytes(d[..].try_into().unwrap()));
        (reply.code, reply.epoch, data)
    }
}

fn kinds(messages: &[Message]) -> Vec<u16> {
    messages.iter().map(|m| m.kind).collect()
}

/// (epochs of increments, epochs of full maps, oldest, newest)
fn epochs_in(m: &Message) -> (Vec<u32>, Vec<u32>, u32, u32) {
    let b = MOsdMap::from_message(m).unwrap();
    (
        b.incrementals.into_keys().collect(),
        b.fulls.into_keys().collect(),
        b.oldest,
        b.newest,
    )
}

#[test]
fn a_client_connects() {
    let mut rig = Rig::new();
    rig.admin(1);
    assert_eq!(kinds(&rig.ask(1, MMonGetMap {})), [MMonMap::KIND]);
    let mut out = kinds(&rig.subscribe(1, &[("config", 0, 0), ("monmap", 0, 0)]));
    out.sort();
    assert_eq!(out, [MMonMap::KIND, MConfig::KIND]);
    assert_eq!(kinds(&rig.subscribe(1, &[("mgrmap", 0, 0)])), [MMgrMap::KIND]);
    let out = rig.subscribe(1, &[("osdmap", 0, 1)]);
    let epoch = rig.state().osdmap.epoch;
    assert_eq!(epochs_in(&out[0]), (vec![], vec![epoch], epoch, epoch));
    let map =
        types::osdmap::OsdMap::from_bytes(&MOsdMap::from_message(&out[0]).unwrap().fulls[&epoch]).unwrap();
    assert_eq!(map, *rig.state().osdmap);
    assert!(
        rig.epochs(1, 3).is_empty(),
        "a satisfied one-time subscription is not served again"
    );
}

#[test]
fn osd_maps_go_out_as_the_subscription_says() {
    let mut rig = Rig::new();
    rig.admin(1);
    let e = rig.state().osdmap.epoch;
    assert!(
        rig.subscribe(1, &[("osdmap", u64::from(e) + 1, 1)]).is_empty(),
        "not there yet"
    );
    let out = rig.epochs(1, 2);
    assert_eq!(
        out.iter().map(epochs_in).collect::<Vec<_>>(),
        [(vec![e + 1], vec![], 1, e + 1)]
    );
    let out = rig.subscribe(1, &[("osdmap", u64::from(e) + 1, 0)]);
    assert_eq!(epochs_in(&out[0]).0, [e + 1, e + 2]);
    let out = rig.epochs(1, 2);
    assert_eq!(
        out.iter().map(|m| epochs_in(m).0).collect::<Vec<_>>(),
        [[e + 3], [e + 4]],
        "a standing one goes on"
    );
    rig.subscribe(1, &[("osdmap", 1 << 40, 0)]);
    rig.epochs(1, 90);
    let newest = rig.state().osdmap.epoch;
    let out = rig.subscribe(1, &[("osdmap", u64::from(newest) - 89, 1)]);
    assert_eq!(out.len(), 1, "one time: the first 40 only");
    assert_eq!(
        epochs_in(&out[0]).0,
        (newest - 89..=newest - 50).collect::<Vec<_>>()
    );
    let out = rig.subscribe(1, &[("osdmap", u64::from(newest) - 89, 0)]);
    assert_eq!(
        out.iter().map(|m| epochs_in(m).0.len()).collect::<Vec<_>>(),
        [40, 40, 10]
    );
}

#[test]
fn a_client_from_before_the_window_jumps() {
    let mut rig = Rig::new();
    rig.admin(1);
    rig.epochs(1, 600);
    let (first, newest) = (rig.state().history.first(), rig.state().osdmap.epoch);
    assert!(first > 1);
    let out = rig.subscribe(1, &[("osdmap", 2, 1)]);
    assert_eq!(epochs_in(&out[0]), (vec![], vec![newest], newest, newest));
    let out = rig.subscribe(1, &[("osdmap", u64::from(first) + 1, 1)]);
    assert_eq!(epochs_in(&out[0]).0[0], first + 1);
    let out = rig.ask(
        1,
        MMonGetVersion {
            handle: 5,
            what: "osdmap".into(),
        },
    );
    let reply = MMonGetVersionReply::from_message(&out[0]).unwrap();
    assert_eq!(
        (reply.handle, reply.newest, reply.oldest),
        (5, newest.into(), first.into())
    );
    assert!(
        rig.ask(
            1,
            MMonGetVersion {
                handle: 6,
                what: "mgrmap".into()
            }
        )
        .is_empty()
    );
}

#[test]
fn configuration_is_pushed_to_whom_it_changes() {
    let mut rig = Rig::new();
    rig.admin(1);
    let options = |m: &[Message]| MConfig::from_message(m.last().unwrap()).unwrap().options;
    let out = rig.subscribe(1, &[("config", 0, 0)]);
    assert_eq!(
        options(&out).get("osd_pool_default_size").map(String::as_str),
        Some("1")
    );
    let set = |who: &str, name: &str, value: &str| {
        let change = Change::ConfigSet {
            who: who.into(),
            name: name.into(),
            value: value.into(),
        };
        move |_: &ClusterState| Changes::one(change.clone())
    };
    assert!(rig.change(1, set("osd", "x", "1")).is_empty(), "not its business");
    assert!(
        rig.change(1, set("global", "mon_host", "evil")).is_empty(),
        "how it found us stays its own"
    );
    let out = rig.change(1, set("client.test", "rbd_cache", "false"));
    assert_eq!(options(&out)["rbd_cache"], "false");
    let rm = |_: &ClusterState| {
        Changes::one(Change::ConfigRm {
            who: "client.test".into(),
            name: "rbd_cache".into(),
        })
    };
    let out = rig.change(1, rm);
    assert!(!options(&out).contains_key("rbd_cache"));
    let out = rig.subscribe(1, &[("config", 0, 0)]);
    assert_eq!(kinds(&out), [MConfig::KIND], "asked anew, answered anew");
    assert!(rig.subscribe(1, &[("config", 1 << 40, 0)]).is_empty());
}

/// Numbers of a real cluster (docs/protocol/ceph/02-monitor.md, 6.4; docs/protocol/ceph/03-placement.md, 2.3).
#[test]
fn pool_operations_of_librados() {
    let mut rig = Rig::new();
    rig.admin(1);
    let (code, epoch, _) = rig.pool_op(1, PoolOpKind::Create, 0, "p", 0);
    assert_eq!((code, epoch), (0, rig.state().osdmap.epoch));
    assert_eq!(
        rig.pool_op(1, PoolOpKind::Create, 0, "p", 0),
        (0, epoch, None),
        "a repeated request changes nothing"
    );
    let id = rig.state().osdmap.pool_by_name("p").unwrap();
    let snap = |rig: &mut Rig| {
        rig.pool_op(1, PoolOpKind::CreateSelfManagedSnap, id, "", 0)
            .2
            .unwrap()
    };
    let remove = |rig: &mut Rig, s| rig.pool_op(1, PoolOpKind::RemoveSelfManagedSnap, id, "", s).0;
    assert_eq!(remove(&mut rig, 1), -95, "never in this mode");
    assert_eq!((snap(&mut rig), snap(&mut rig)), (2, 3));
    assert_eq!(remove(&mut rig, 2), 0);
    let map = rig.state().osdmap.clone();
    assert!(map.new_removed_snaps[&id].contains(2) && map.removed_snaps_queue[&id].contains(2));
    assert_eq!(map.pool(id).unwrap().snap_seq, 4);
    assert_eq!(remove(&mut rig, 2), 0, "removed already");
    assert_eq!(rig.state().osdmap.epoch, map.epoch);
    assert_eq!(snap(&mut rig), 5);
    assert_eq!(remove(&mut rig, 99), -2);
    assert_eq!(
        rig.pool_op(1, PoolOpKind::CreateSnap, id, "s", 0).0,
        -22,
        "the modes exclude each other"
    );
    assert_eq!(rig.pool_op(1, PoolOpKind::RemoveSnap, id, "s", 0).0, -22);

    rig.pool_op(1, PoolOpKind::Create, 0, "q", 0);
    let id = rig.state().osdmap.pool_by_name("q").unwrap();
    assert_eq!(
        rig.pool_op(1, PoolOpKind::RemoveSelfManagedSnap, id, "", 0).0,
        -95
    );
    assert_eq!(rig.pool_op(1, PoolOpKind::CreateSnap, id, "s", 0).0, 0);
    assert_eq!(rig.pool_op(1, PoolOpKind::CreateSnap, id, "s", 0).0, 0, "exists");
    assert_eq!(
        rig.pool_op(1, PoolOpKind::CreateSelfManagedSnap, id, "", 0).0,
        -22
    );
    assert_eq!(rig.pool_op(1, PoolOpKind::RemoveSnap, id, "s", 0).0, 0);
    assert_eq!(rig.pool_op(1, PoolOpKind::RemoveSnap, id, "s", 0).0, 0, "absent");
    let pool = rig.state().osdmap.pool(id).unwrap().clone();
    assert_eq!(
        (
            pool.snap_seq,
            pool.snaps.len(),
            pool.flags & pool_flag::POOL_SNAPS != 0
        ),
        (2, 0, true)
    );
    assert_eq!(pool.snap_epoch, pool.last_change);

    assert_eq!(
        rig.pool_op(1, PoolOpKind::CreateSnap, 77, "s", 0).0,
        -2,
        "no such pool"
    );
    assert_eq!(rig.pool_op(1, PoolOpKind::Delete, id, "delete", 0).0, 0);
    assert!(rig.state().osdmap.pool(id).is_none());
    assert_eq!(
        rig.pool_op(1, PoolOpKind::Delete, id, "delete", 0).0,
        0,
        "unknown id"
    );
    rig.pool_op(1, PoolOpKind::Create, 0, "r", 0);
    assert_eq!(
        rig.state().osdmap.pool_by_name("r"),
        Some(id + 1),
        "ids are never reused"
    );
}

#[test]
fn what_capabilities_do_not_grant_is_denied() {
    let mut rig = Rig::new();
    rig.admin(1);
    rig.pool_op(1, PoolOpKind::Create, 0, "p", 0);
    rig.pool_op(1, PoolOpKind::Create, 0, "other", 0);
    let pool = |rig: &Rig, n: &str| rig.state().osdmap.pool_by_name(n).unwrap();
    let (p, other) = (pool(&rig, "p"), pool(&rig, "other"));
    rig.open(2, &[("mon", "profile rbd"), ("osd", "profile rbd pool=p")]);
    assert_eq!(rig.pool_op(2, PoolOpKind::Create, 0, "x", 0).0, -1);
    assert_eq!(rig.pool_op(2, PoolOpKind::Delete, p, "delete", 0).0, -1);
    assert_eq!(
        rig.pool_op(2, PoolOpKind::CreateSelfManagedSnap, p, "", 0),
        (0, rig.state().osdmap.epoch, Some(2))
    );
    assert_eq!(
        rig.pool_op(2, PoolOpKind::CreateSelfManagedSnap, other, "", 0).0,
        -1
    );
    assert_eq!(rig.pool_op(2, PoolOpKind::CreateSnap, other, "s", 0).0, -1);
    rig.open(
        4,
        &[("mon", "profile rbd"), ("osd", "profile rbd pool=p namespace=n")],
    );
    assert_eq!(
        rig.pool_op(4, PoolOpKind::CreateSelfManagedSnap, p, "", 0).2,
        Some(3),
        "one namespace is enough"
    );
    assert_eq!(
        rig.pool_op(4, PoolOpKind::CreateSelfManagedSnap, other, "", 0).0,
        -1
    );
    rig.open(
        5,
        &[("mon", "profile rbd"), ("osd", "profile rbd-read-only pool=p")],
    );
    assert_eq!(
        rig.pool_op(5, PoolOpKind::CreateSelfManagedSnap, p, "", 0).0,
        -1,
        "reading is not"
    );
    assert_eq!(rig.subscribe(2, &[("osdmap", 0, 1)]).len(), 1);
    assert!(rig.subscribe(2, &[("fsmap", 0, 1)]).is_empty());
    rig.open(3, &[("mon", "allow command fsid")]);
    assert!(
        rig.subscribe(3, &[("osdmap", 0, 1)]).is_empty(),
        "no right to read, no answer"
    );
    assert_eq!(kinds(&rig.subscribe(3, &[("monmap", 0, 1)])), [MMonMap::KIND]);
    assert!(
        rig.ask(
            3,
            MStatfs {
                paxos: PaxosHeader::default(),
                fsid: FSID,
                data_pool: None
            }
        )
        .is_empty()
    );
}

/// A tenant of one namespace deleted another's snapshots by their ids, which belong to the pool.
#[test]
fn a_tenant_removes_no_snapshot_of_another() {
    let mut rig = Rig::new();
    rig.admin(1);
    rig.pool_op(1, PoolOpKind::Create, 0, "p", 0);
    let p = rig.state().osdmap.pool_by_name("p").unwrap();
    let within = |ns: &str| format!("profile rbd pool=p{ns}");
    let tenants = [
        (2, "x", within(" namespace=x")),
        (3, "y", within(" namespace=y")),
        (4, "owner", within("")),
        (5, "prefix", "allow rwx pool=p object_prefix a".to_string()),
        (6, "star", "allow rw pool=p namespace=\"\"*".to_string()),
    ];
    for (id, who, osd) in &tenants {
        rig.open_with(*id, who, &[("mon", "profile rbd"), ("osd", osd)], None);
    }
    let make = |rig: &mut Rig, who| {
        rig.pool_op(who, PoolOpKind::CreateSelfManagedSnap, p, "", 0)
            .2
            .unwrap()
    };
    let remove =
        |rig: &mut Rig, who, snap| rig.pool_op(who, PoolOpKind::RemoveSelfManagedSnap, p, "", snap).0;
    let (mine, theirs) = (make(&mut rig, 2), make(&mut rig, 3));
    for thief in [2, 5] {
        assert_eq!(remove(&mut rig, thief, theirs), -1);
    }
    let map = rig.state().osdmap.clone();
    assert!(
        map.removed_snaps_queue
            .get(&p)
            .is_none_or(|q| !q.contains(theirs)),
        "it is still there"
    );
    assert_eq!(remove(&mut rig, 2, mine), 0);
    // Its answer was lost, and the OSDs have purged it meanwhile: the same again, and no new epoch.
    let purged = rig.change(1, |s| {
        let mut inc = Incremental::next_after(&s.osdmap, Utime::ZERO);
        inc.new_purged_snaps.entry(p).or_default().insert(mine);
        Changes::map(inc)
    });
    drop(purged);
    let epoch = rig.state().osdmap.epoch;
    assert_eq!((remove(&mut rig, 2, mine), rig.state().osdmap.epoch), (0, epoch));
    assert_eq!(remove(&mut rig, 3, mine), -1, "not even one that is gone");
    // Whoever may write in all of the pool may remove any; so may the administrator.
    let others = [make(&mut rig, 3), make(&mut rig, 3)];
    assert_eq!(
        (
            remove(&mut rig, 4, theirs),
            remove(&mut rig, 6, others[0]),
            remove(&mut rig, 1, others[1])
        ),
        (0, 0, 0)
    );

    // From before owners were kept.
    rig.change(1, |s| {
        let mut inc = Incremental::next_after(&s.osdmap, Utime::ZERO);
        inc.pool_mut(&s.osdmap, p)
            .unwrap()
            .new_selfmanaged_snap(s.osdmap.epoch + 1);
        Changes::map(inc)
    });
    let old = rig.state().osdmap.pool(p).unwrap().snap_seq;
    assert_eq!(
        remove(&mut rig, 2, old),
        -1,
        "nobody's: for those of the whole pool"
    );
    assert_eq!(remove(&mut rig, 4, old), 0);
    rig.pool_op(1, PoolOpKind::Delete, p, "delete", 0);
    assert!(!rig.state().snap_owners.has_pool(p), "owners go with the pool");
}

/// An operator's default guards of new pools were accepted, and did nothing.
#[test]
fn new_pools_get_the_flags_that_were_asked_for() {
    let mut rig = Rig::new();
    rig.admin(1);
    for name in ["nodelete", "nopgchange", "nosizechange"] {
        let set = Change::ConfigSet {
            who: "mon".into(),
            name: format!("osd_pool_default_flag_{name}"),
            value: "true".into(),
        };
        rig.change(1, |_| Changes::one(set.clone()));
    }
    rig.pool_op(1, PoolOpKind::Create, 0, "p", 0);
    let map = rig.state().osdmap.clone();
    let id = map.pool_by_name("p").unwrap();
    let all = pool_flag::NODELETE | pool_flag::NOPGCHANGE | pool_flag::NOSIZECHANGE;
    assert_eq!(map.pool(id).unwrap().flags & all, all);
    assert_eq!(rig.pool_op(1, PoolOpKind::Delete, id, "delete", 0).0, -1);
}

fn command(rig: &mut Rig, id: u64, text: &str) -> MMonCommandAck {
    let body = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: FSID,
        cmd: vec![text.to_string()],
        input: Bytes::from_static(b"secret-input"),
    };
    MMonCommandAck::from_message(rig.ask(id, body).last().unwrap()).unwrap()
}

fn last_of(rig: &mut Rig, channel: &str) -> String {
    let text = format!(r#"{{"prefix":"log last","num":100,"level":"debug"{channel}}}"#);
    let body = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: FSID,
        cmd: vec![text],
        input: Bytes::new(),
    };
    let ack = MMonCommandAck::from_message(rig.ask(1, body).last().unwrap()).unwrap();
    String::from_utf8(ack.output.to_vec()).unwrap()
}

/// Who changed what, who looked at a secret, who was refused; and nothing of the secrets themselves.
#[test]
fn changes_secrets_and_refusals_leave_a_record() {
    const AUDIT: &str = r#","channel":"audit""#;
    let mut rig = Rig::new();
    rig.admin(1);
    rig.open_with(2, "thief", &[("mon", "allow r")], None);
    let run = |rig: &mut Rig, id, text: &str| command(rig, id, text).code;
    assert_eq!(run(&mut rig, 1, r#"{"prefix":"osd pool create","pool":"p"}"#), 0);
    assert_eq!(
        run(
            &mut rig,
            1,
            r#"{"prefix":"config-key set","key":"k","val":"secret-val","junk":"secret-junk"}"#
        ),
        0
    );
    let option = "mgr/dashboard/admin_password";
    let set = format!(
        r#"{{"prefix":"config set","who":"mgr","name":"{option}","value":"secret-option","force":true}}"#
    );
    command(&mut rig, 1, &set);
    assert_eq!(run(&mut rig, 1, r#"{"prefix":"config-key get","key":"k"}"#), 0);
    assert_eq!(
        run(&mut rig, 1, r#"{"prefix":"auth get","entity":"client.admin"}"#),
        0
    );
    assert_eq!(run(&mut rig, 1, r#"{"prefix":"osd pool ls"}"#), 0);
    assert_eq!(
        run(&mut rig, 2, r#"{"prefix":"auth get","entity":"client.admin"}"#),
        -13
    );
    assert_eq!(rig.pool_op(2, PoolOpKind::Delete, 1, "delete", 0).0, -1);
    rig.pool_op(1, PoolOpKind::CreateSelfManagedSnap, 1, "", 0);
    // What changed something has its record with the change, before any round of chores: the pool, the key, the option.
    let at_once = last_of(&mut rig, AUDIT);
    assert_eq!(at_once.lines().count(), 3, "{at_once}");
    for (level, text) in rig.records.waiting(rig.now) {
        rig.change(1, |s| {
            Changes::one(Change::Audit(s.log_entry(Utime::ZERO, level, text.clone())))
        });
    }
    let all = last_of(&mut rig, AUDIT);
    for want in [
        r#"[INF] from='client.1 127.0.0.1:40000' entity='client.test' cmd=[{"prefix":"osd pool create","pool":"p","input_bytes":12}]: finished"#,
        r#"{"prefix":"config-key set","key":"k","val":"***","input_bytes":12}"#,
        r#""value":"***""#,
        r#"{"prefix":"config-key get","key":"k","input_bytes":12}]: finished"#,
        r#"{"prefix":"auth get","entity":"client.admin","input_bytes":12}]: finished"#,
        r#"[SEC] from='client.2 127.0.0.1:40000' entity='client.thief' cmd=[{"prefix":"auth get","entity":"client.admin","input_bytes":12}]: refused (-13)"#,
        r#""pool_op":"Delete","pool":1,"name":"delete","snap":0}]: refused (-1)"#,
    ] {
        assert!(all.contains(want), "{want}\n{all}");
    }
    assert!(
        !all.contains("secret-") && !all.contains("pool ls") && !all.contains("SelfManaged"),
        "{all}"
    );
    let plain = last_of(&mut rig, "");
    assert!(
        !plain.contains("audit") && !plain.is_empty(),
        "the channels are apart: {plain}"
    );
    let both = last_of(&mut rig, r#","channel":"*""#);
    assert_eq!(both.lines().count(), plain.lines().count() + all.lines().count());
}

/// Neither channel pushes the other's lines out, and nobody but the monitors writes records.
#[test]
fn the_channel_of_records_is_bounded_and_the_monitors_own() {
    let mut rig = Rig::new();
    rig.admin(1);
    let forged = LogEntry {
        name: AuthName::new(EntityKind::Mon, "a"),
        rank: EntityName::new(EntityKind::Mon, 0),
        addrs: addrs(0),
        stamp: Utime::ZERO,
        seq: 1,
        level: LogLevel::Info,
        message: "all is well".into(),
        channel: "audit".into(),
    };
    let body = MLog {
        paxos: PaxosHeader::default(),
        fsid: FSID,
        entries: vec![forged],
    };
    rig.ask(1, body);
    let state = rig.state();
    let line = state.log.entries.back().unwrap();
    assert_eq!(
        (line.channel.as_str(), line.name.to_string().as_str()),
        ("cluster", "client.test")
    );
    assert!(state.audit.entries.is_empty());
    let max = cluster::LOG_MAX;
    for _ in 0..4 {
        rig.change(1, |s| {
            let entry = |n| Change::Audit(s.log_entry(Utime::ZERO, LogLevel::Info, format!("{n}")));
            Changes {
                list: (0..200).map(entry).collect(),
                ..Changes::default()
            }
        });
    }
    let state = rig.state();
    assert_eq!(state.audit.entries.len(), max);
    assert!(state.log.entries.iter().any(|e| e.message == "all is well"));
}

#[test]
fn who_has_a_session_under_a_blocklisted_address_is_fenced_as_an_instance() {
    let mut rig = Rig::new();
    rig.admin(1);
    rig.open(7, &[]);
    let (fsid, add) = (
        FSID,
        r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"127.0.0.1:0/0"}"#,
    );
    let cmd = vec![add.to_string()];
    let message = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid,
        cmd,
        input: Bytes::new(),
    };
    let out = rig.ask(1, message);
    let ack = MMonCommandAck::from_message(out.last().unwrap()).unwrap();
    assert_eq!(ack.code, 0, "{}", ack.status);
    let ids: Vec<u64> = rig.state().fenced_ids().collect();
    assert_eq!(ids, [1, 7], "in the same change");
    // Another monitor's sessions, when that one looks.
    rig.open(8, &[]);
    block_on(rig.cluster.fence(&rig.monitor.instances())).unwrap();
    assert!(rig.state().is_fenced_id(8));
}

/// What a real monitor says (docs/protocol/ceph/03-placement.md, section 8; docs/protocol/ceph/02-monitor.md, 13.8).
#[test]
fn pools_are_made_and_set_with_cephs_words() {
    use crate::policies::pool_set::*;
    use crate::policies::pools::{Done, NewPool, Result, RuleChoice, create, delete, rename};
    let rig = std::cell::RefCell::new(Rig::new());
    let run = |f: &dyn Fn(&ClusterState, &mut Incremental) -> Result<Done>| {
        let cluster = rig.borrow().cluster.clone();
        let done = block_on(cluster.commit(|s| {
            let mut inc = Incremental::next_after(&s.osdmap, Utime::ZERO);
            match f(s, &mut inc) {
                Ok(Done::Changed(t)) => (Changes::map(inc), (0, t)),
                Ok(Done::Already(t)) => (Changes::none(), (0, t)),
                Err(e) => (Changes::none(), (e.errno.code(), e.text)),
            }
        }));
        done.unwrap().reply
    };
    let make = |new: NewPool<'_>, code: i32, text: &str| {
        let got = run(&|s, inc| create(s, &new, Utime::ZERO, inc).map(|(d, _)| d));
        assert!(got.0 == code && got.1.starts_with(text), "{got:?} for {new:?}");
    };
    let pool = |name| NewPool {
        name,
        ..NewPool::default()
    };
    make(pool("p"), 0, "pool 'p' created");
    make(pool("p"), 0, "pool 'p' already exists");
    make(pool(""), -22, "");
    make(pool(".q/r"), 0, "pool '.q/r' created");
    make(
        NewPool {
            pg_num: 99_999,
            ..pool("a")
        },
        -34,
        "'pg_num' must be greater than 0 and less than or equal to 65536",
    );
    make(
        NewPool {
            pg_num: 8,
            pgp_num: 9,
            ..pool("a")
        },
        -34,
        "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is 8",
    );
    make(
        NewPool {
            pg_num: 4096,
            ..pool("a")
        },
        -34,
        " pg_num 4096 size 1 would mean 4160 total pgs, which exceeds max 750 (mon_max_pg_per_osd 250 * num_in_osds 3)",
    );
    make(
        NewPool {
            rule: RuleChoice::Name("norule"),
            ..pool("a")
        },
        -2,
        "specified rule norule doesn't exist",
    );
    make(
        NewPool {
            rule: RuleChoice::Id(7),
            ..pool("a")
        },
        -2,
        "specified rule 7 doesn't exist",
    );
    make(
        NewPool {
            size: 11,
            ..pool("a")
        },
        -22,
        "pool size must be between 1 and 10",
    );
    make(
        NewPool {
            erasure: Some("default"),
            ..pool("a")
        },
        -95,
        "no OSD of this cluster serves erasure-coded pools",
    );

    let check = |var: &str, val: &str, sure: bool, code: i32, text: &str| {
        let got = run(&|s, inc| set(s, "p", var, val, sure, inc));
        assert!(
            got.0 == code && got.1.starts_with(text),
            "{got:?} for {var} {val}"
        );
    };
    check(
        "size",
        "1",
        false,
        -1,
        "WARNING: setting pool size 1 could lead to data loss without recovery.",
    );
    check("size", "1", true, 0, "set pool 1 size to 1");
    check("size", "99", true, -22, "pool size must be between 1 and 10");
    check(
        "size",
        "abc",
        true,
        -22,
        "error parsing integer value 'abc': Expected option value to be integer, got 'abc'",
    );
    check(
        "min_size",
        "2",
        true,
        -22,
        "pool min_size must be between 1 and size, which is set to 1",
    );
    check("pg_num", "64", true, 0, "set pool 1 pg_num to 64");
    check("pg_num", "4096", true, -34, " pg_num 4096 size 1");
    check("pgp_num", "65", true, -22, "specified pgp_num 65 > pg_num 64");
    check(
        "pg_autoscale_mode",
        "banana",
        true,
        -22,
        "specified invalid mode banana",
    );
    check(
        "pg_autoscale_mode",
        "off",
        true,
        0,
        "set pool 1 pg_autoscale_mode to off",
    );
    check(
        "crush_rule",
        "nosuch",
        true,
        -2,
        "crush rule nosuch does not exist",
    );
    check(
        "crush_rule",
        "replicated_rule",
        true,
        0,
        "set pool 1 crush_rule to replicated_rule",
    );
    check(
        "compression_mode",
        "aggressive",
        true,
        0,
        "set pool 1 compression_mode to aggressive",
    );
    check(
        "target_size_bytes",
        "100M",
        true,
        0,
        "set pool 1 target_size_bytes to 100M",
    );
    check("nosuch", "1", true, -22, "unrecognized variable 'nosuch'");
    check("nodelete", "true", true, 0, "set pool 1 nodelete to true");
    let state = rig.borrow().state();
    let p = state.osdmap.pool(1).unwrap();
    assert_eq!((p.pg_num, p.pg_num_target, p.pgp_num_target), (64, 64, 64));
    assert_eq!(
        p.opts.get("target_size_bytes"),
        Some(&types::pool::PoolOption::Int(104_857_600))
    );
    let got = run(&|s, inc| delete(s, 1, inc));
    assert_eq!(
        got,
        (
            -1,
            "pool deletion is disabled; you must unset nodelete flag for the pool first".into()
        )
    );
    check("nodelete", "false", true, 0, "set pool 1 nodelete to false");

    let got = run(&|s, inc| set_quota(&s.osdmap, "p", "max_bytes", "1G", inc));
    assert_eq!(got, (0, "set-quota max_bytes = 1073741824 for pool p".into()));
    let got = run(&|s, inc| set_quota(&s.osdmap, "p", "max_bytes", "abc", inc));
    assert_eq!(
        got,
        (
            -22,
            "error parsing value 'abc': strict_iecstrtoll: illegal prefix (length > 2)".into()
        )
    );

    let enable = |app: &str, sure| run(&|s, inc| application_enable(&s.osdmap, "p", app, sure, inc));
    assert_eq!(
        enable("rbd", false),
        (0, "enabled application 'rbd' on pool 'p'".into())
    );
    assert_eq!(
        enable("rbd", false),
        (0, "enabled application 'rbd' on pool 'p'".into())
    );
    assert_eq!(enable("rgw", false).0, -1);
    assert_eq!(
        enable("rgw", true),
        (0, "enabled application 'rgw' on pool 'p'".into())
    );
    let got = run(&|s, inc| application_key(&s.osdmap, "p", "rbd", "k", Some("v"), inc));
    assert_eq!(
        got,
        (0, "set application 'rbd' key 'k' to 'v' on pool 'p'".into())
    );
    assert_eq!(
        run(&|s, inc| application_disable(&s.osdmap, "p", "rgw", false, inc)).0,
        -1
    );
    assert_eq!(
        run(&|s, inc| application_disable(&s.osdmap, "p", "rgw", true, inc)).0,
        0
    );
    assert_eq!(
        rig.borrow().state().osdmap.pool(1).unwrap().application_metadata["rbd"]["k"],
        "v"
    );

    let move_to = |from: &str, to: &str| run(&|s, inc| rename(&s.osdmap, from, to, inc));
    assert_eq!(move_to("p", ".q/r"), (-17, "pool '.q/r' already exists".into()));
    assert_eq!(move_to("nosuch", "x"), (-2, "unrecognized pool 'nosuch'".into()));
    assert_eq!(move_to("p", "pp"), (0, "pool 'p' renamed to 'pp'".into()));
    assert_eq!(run(&|s, inc| delete(s, 1, inc)), (0, "pool 'pp' removed".into()));
    assert_eq!(run(&|s, inc| delete(s, 1, inc)).0, 0);
}

#[test]
fn upkeep_does_what_is_due_and_no_more() {
    use crate::policies::upkeep::{SILENCE_GRACE_SEC, Silence, due};
    use cluster::{ClusterStats, OsdReport};
    use types::PgId;
    let mut rig = Rig::new();
    rig.admin(1);
    rig.pool_op(1, PoolOpKind::Create, 0, "p", 0);
    rig.pool_op(1, PoolOpKind::CreateSelfManagedSnap, 1, "", 0);
    rig.pool_op(1, PoolOpKind::RemoveSelfManagedSnap, 1, "", 2);
    let now = Utime {
        sec: 2_000_000_000,
        nsec: 0,
    };
    let mut stats = ClusterStats::default();
    assert!(due(&rig.state(), &stats, &[], now).is_empty());
    let apply = |rig: &Rig, stats: &ClusterStats| {
        block_on(rig.cluster.commit(|s| (due(s, stats, &[], now), ())))
            .unwrap()
            .changed
    };

    let blocked = |port| addrs(port).first().to_blocklist_form();
    rig.change(1, |s| {
        let mut ch = Changes::none();
        let list = &mut ch.inc(s, now).new_blocklist;
        for (port, sec) in [(1, now.sec + 1), (2, now.sec), (3, now.sec - 5)] {
            list.insert(blocked(port), Utime { sec, nsec: 0 });
        }
        ch
    });
    assert!(apply(&rig, &stats));
    let left: Vec<_> = rig.state().osdmap.blocklist.keys().copied().collect();
    assert_eq!(left, [blocked(1)]);

    let report = |used: i64, objects: i64| {
        let mut r = OsdReport::default();
        (r.stat.statfs.total, r.stat.statfs.available) = (1000, 1000 - used);
        let mut pg = types::pgstats::PgStat::unknown(PgId::new(1, 0));
        pg.stats.sum.num_objects = objects;
        r.pgs.insert(pg.pgid, pg);
        (0..32).for_each(|seed| {
            drop(
                r.purged_snaps
                    .insert(PgId::new(1, seed), [2].into_iter().collect()),
            )
        });
        Arc::new(r)
    };
    stats.osds.insert(0, report(500, 1));
    assert!(apply(&rig, &stats), "the snapshot is purged");
    let map = rig.state().osdmap.clone();
    assert!(map.removed_snaps_queue.is_empty() && map.new_purged_snaps[&1].contains(2));
    assert!(!apply(&rig, &stats));

    let flags = |rig: &Rig| {
        let s = rig.state();
        let osd = s.osdmap.osd(0).unwrap().state
            & !(types::osdmap::osd_state::EXISTS | types::osdmap::osd_state::UP);
        (
            types::osdmap::osd_state::names(osd).join(","),
            pool_flag::names(s.osdmap.pool(1).unwrap().flags),
        )
    };
    for (used, want) in [
        (860, "nearfull"),
        (905, "backfillfull"),
        (960, "full"),
        (947, "full"),
        (940, "backfillfull"),
        (10, ""),
    ] {
        stats.osds.insert(0, report(used, 1));
        apply(&rig, &stats);
        let (osd, pool) = flags(&rig);
        assert_eq!(osd, want, "{used}");
        assert!(want.is_empty() || pool.contains(want), "{used}: {pool}");
        assert!(!apply(&rig, &stats), "{used}: steady");
    }
    rig.change(1, |s| {
        let mut ch = Changes::none();
        ch.inc(s, now).pool_mut(&s.osdmap, 1).unwrap().quota_max_objects = 5;
        ch
    });
    for (objects, full) in [(4, false), (5, true), (9, true), (1, false)] {
        stats.osds.insert(0, report(10, objects));
        apply(&rig, &stats);
        assert_eq!(flags(&rig).1.contains("full_quota"), full, "{objects} objects");
    }

    let mut silence = Silence::default();
    let map = rig.state().osdmap.clone();
    assert!(silence.due(&map, &stats, 100).is_empty());
    assert_eq!(
        silence.due(&map, &stats, 100 + SILENCE_GRACE_SEC),
        [1, 2],
        "osd.0 reports"
    );
    assert!(
        silence
            .due(&map, &ClusterStats::default(), 100 + SILENCE_GRACE_SEC)
            .len()
            == 2,
        "osd.0 has its grace"
    );
}

/// Bytes of every message number: an answer, nothing, or the end of the connection; never a panic.
#[test]
fn senseless_messages_do_no_harm() {
    let mut rig = Rig::new();
    rig.admin(1);
    let before = rig.state().version;
    let random = SystemRandom;
    let mut kinds: Vec<u16> = (0..128).collect();
    kinds.extend(0x600..0x710);
    for kind in kinds {
        for len in [0usize, 1, 7, 40, 200] {
            let mut front = vec![0; len];
            random.fill(&mut front);
            for front in [front, vec![0; len], vec![0xff; len]] {
                let m = Message {
                    kind,
                    version: 9,
                    compat: 1,
                    tid: 1,
                    front: front.into(),
                    ..Message::default()
                };
                rig.message(1, m);
            }
        }
    }
    assert_eq!(rig.state().version, before, "and nothing is changed by them");
}
