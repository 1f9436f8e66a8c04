//! A cluster for the tests of commands: three OSDs on one host, made through the real creation, then changed by
//! commands like any other.

#![allow(clippy::unwrap_used)]

use super::*;
use io::{Clock, SystemRandom};
use metastore::cluster::{CreateOptions, OsdBoot, create_cluster};
use metastore::{ClusterHandle, Embedded, OsdReport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::pgstats::{OsdStat, PgStat, StoreStatfs, pg_state};
use types::{EntityAddrVec, EntityKind, Uuid};

const START: u64 = 1_795_000_000;

struct Still;
impl Clock for Still {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn wall(&self) -> Duration {
        Duration::from_secs(START)
    }
}

pub struct Cluster {
    pub state: ClusterState,
    pub stats: ClusterStats,
    mon: MonInfo,
    pub now: Utime,
}

fn addrs(port: u16, nonce: u32) -> EntityAddrVec {
    EntityAddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), nonce))
}

fn boot(id: i32) -> OsdBoot {
    let addrs = addrs(6800 + id as u16, 7);
    OsdBoot {
        id,
        uuid: Uuid([id as u8 + 1; 16]),
        client_addrs: addrs.clone(),
        cluster_addrs: addrs.clone(),
        hb_back_addrs: addrs.clone(),
        hb_front_addrs: addrs,
        size_bytes: 4 << 30,
        host: "vm".into(),
        device_class: "hdd".into(),
        features: types::release::feature::ALL_PACIFIC,
        metadata: BTreeMap::from([
            ("hostname".into(), "vm".into()),
            ("osd_objectstore".into(), "skep".into()),
        ]),
    }
}

async fn make() -> ClusterState {
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(Still);
    let store = Arc::new(Embedded::open(&dir.path().join("state"), clock.clone()).unwrap());
    let options = CreateOptions {
        osds: vec![0, 1, 2],
        ..CreateOptions::new(Uuid([9; 16]), "a", addrs(3300, 0).first())
    };
    create_cluster(&*store, &options, &*clock, &SystemRandom)
        .await
        .unwrap();
    let handle = ClusterHandle::open(store, clock).await.unwrap().unwrap();
    for id in 0..3 {
        handle.osd_boot(&boot(id)).await.unwrap();
    }
    (*handle.state()).clone()
}

impl Cluster {
    pub fn new() -> Self {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut state = rt.block_on(make());
        let now = Utime {
            sec: START as u32 + 60,
            nsec: 0,
        };
        let mgr = types::mgrmap::MgrMap::active(1, "x", 4100, addrs(6900, 1), now);
        let changes = Changes::one(metastore::Change::MgrMap(Box::new(mgr)));
        state = state.apply(changes, now).unwrap().0;
        let mon = MonInfo {
            name: "a".into(),
            rank: 0,
            mgr_name: "x".into(),
            hostname: "vm".into(),
            started: Utime {
                sec: START as u32,
                nsec: 0,
            },
            metadata: BTreeMap::new(),
        };
        let mut made = Self {
            state,
            stats: ClusterStats::default(),
            mon,
            now,
        };
        made.report();
        made
    }

    /// Every OSD reports its disk and all PGs that it leads as active and clean.
    pub fn report(&mut self) {
        let map = self.state.osdmap.clone();
        self.stats.version += 1;
        for id in 0..3 {
            let mut report = OsdReport {
                stamp: self.now,
                stat: OsdStat {
                    osd: id,
                    statfs: StoreStatfs {
                        total: 4 << 30,
                        available: (4 << 30) - (292 << 20),
                        ..StoreStatfs::default()
                    },
                    ..OsdStat::default()
                },
                ..OsdReport::default()
            };
            for pg in map.pgs() {
                if map.acting_primary(pg) == Some(id) {
                    let mut stat = PgStat::unknown(pg);
                    stat.state = pg_state::ACTIVE | pg_state::CLEAN;
                    stat.stats.sum.num_objects = 2;
                    stat.stats.sum.num_bytes = 1000;
                    report.pgs.insert(pg, stat);
                }
            }
            self.stats.osds.insert(id, Arc::new(report));
        }
    }

    /// As a message brings it: parsed, checked against the table, run, its changes applied.
    pub fn run(&mut self, text: &str, input: &[u8]) -> Outcome {
        let cmd = match parse(&[text.to_string()], Bytes::copy_from_slice(input)) {
            Ok(cmd) => cmd,
            Err(refusal) => return refusal,
        };
        assert!(need(&cmd).is_some(), "{text}: no permission in the table");
        let who = AuthName::new(EntityKind::Client, "admin");
        let ctx = Context {
            state: &self.state,
            stats: &self.stats,
            now: self.now,
            random: &SystemRandom,
            target: Target::Mon,
            mon: &self.mon,
            sessions: &[],
            who: &who,
            addr: EntityAddr::BLANK,
        };
        let out = run(&cmd, &ctx);
        assert!(out.code <= 0, "{text}: code {}", out.code);
        if out.code == 0 && !out.changes.is_empty() {
            self.state = self.state.apply(out.changes.clone(), self.now).unwrap().0;
            self.report();
        }
        out
    }

    pub fn text(&mut self, text: &str) -> String {
        String::from_utf8_lossy(&self.run(text, b"").data).into_owned()
    }

    /// JSON output of a command without arguments, or of a whole JSON command.
    pub fn json(&mut self, command: &str) -> Value {
        let text = match command.strip_prefix('{') {
            Some(rest) => format!("{{\"format\":\"json\",{rest}"),
            None => format!("{{\"prefix\":\"{command}\",\"format\":\"json\"}}"),
        };
        let out = self.run(&text, b"");
        assert_eq!(out.code, 0, "{command}: {}", out.status);
        serde_json::from_slice(&out.data).unwrap_or_else(|e| panic!("{command}: {e}"))
    }
}
