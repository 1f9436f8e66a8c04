//! A cluster for the tests of commands: three OSDs on one host, made through the real creation, then changed by
//! commands like any other.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::commands::context::{MonInfo, Target};
use crate::policies::progress::Progress;
use ::cluster::{Changes, ClusterState, ClusterStats, CreateOptions, OsdBoot, OsdReport};
use io::{Clock, SystemRandom};
use metastore::{ClusterHandle, Embedded, create_cluster};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::pgstats::{OsdStat, PgStat, StoreStatfs, pg_state};
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, Utime, Uuid};

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
    pub mon: MonInfo,
    pub progress: Progress,
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
            ("ceph_version".into(), types::release::VERSION_TEXT.into()),
        ]),
    }
}

async fn make(osds: i32) -> ClusterState {
    let dir = tempfile::tempdir().unwrap();
    let clock: Arc<dyn Clock> = Arc::new(Still);
    let store = Arc::new(Embedded::open(&dir.path().join("state"), clock.clone()).unwrap());
    let mut options = CreateOptions {
        osds: (0..osds).collect(),
        ..CreateOptions::new(Uuid([9; 16]), "a", addrs(3300, 0).first())
    };
    // Pools have one copy where a test names no number.
    let one_copy = ("global".into(), "osd_pool_default_size".into(), "1".into());
    options.config.push(one_copy);
    let no_warning = (
        "mon".into(),
        "mon_warn_on_pool_no_redundancy".into(),
        "false".into(),
    );
    options.config.push(no_warning);
    let delete = ("mon".into(), "mon_allow_pool_delete".into(), "true".into());
    options.config.push(delete);
    create_cluster(&*store, &options, &*clock, &SystemRandom)
        .await
        .unwrap();
    let handle = ClusterHandle::open(store, clock).await.unwrap().unwrap();
    for id in 0..osds {
        handle.osd_boot(&boot(id)).await.unwrap();
    }
    (*handle.state()).clone()
}

impl Cluster {
    pub fn new() -> Self {
        Self::with_osds(3)
    }

    pub fn with_osds(osds: i32) -> Self {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut state = rt.block_on(make(osds));
        let now = Utime {
            sec: START as u32 + 60,
            nsec: 0,
        };
        let mgr = types::mgrmap::MgrMap::active(1, "x", 4100, addrs(6900, 1), now);
        let changes = Changes::one(::cluster::Change::MgrMap(Box::new(mgr)));
        state = state.apply(changes, now).unwrap().0;
        let mon = MonInfo {
            images: Arc::default(),
            name: "a".into(),
            rank: 0,
            mgr_name: "x".into(),
            hostname: "vm".into(),
            cephx: true,
            started: Utime {
                sec: START as u32,
                nsec: 0,
            },
            stalled: None,
            trouble: None,
            behind: std::time::Duration::ZERO,
            stance: Default::default(),
            metadata: BTreeMap::new(),
            registry: Default::default(),
        };
        let mut made = Self {
            state,
            stats: ClusterStats::default(),
            mon,
            progress: Progress::default(),
            now,
        };
        made.report();
        made
    }

    /// Every OSD reports its disk and all PGs that it leads as active and clean.
    pub fn report(&mut self) {
        let map = self.state.osdmap.clone();
        self.stats.version += 1;
        self.stats.osds.clear();
        let up: Vec<i32> = map.osd_ids().filter(|id| map.is_up(*id)).collect();
        for id in up {
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
                    let sets = map.pg_to_up_acting(pg);
                    (stat.up, stat.acting) = (sets.up, sets.acting);
                    stat.reported_epoch = map.epoch;
                    stat.state = pg_state::ACTIVE | pg_state::CLEAN;
                    stat.stats.sum.num_objects = 2;
                    stat.stats.sum.num_bytes = 1000;
                    report.pgs.insert(pg, stat);
                }
            }
            self.stats.osds.insert(id, Arc::new(report));
        }
    }

    /// Every OSD says that it serves pools of shards.
    pub fn serve_shards(&mut self) {
        let ids: Vec<i32> = self.state.osdmap.osd_ids().collect();
        for id in ids {
            self.serves_shards(id, true);
        }
    }

    /// One OSD says whether it does.
    pub fn serves_shards(&mut self, id: i32, does: bool) {
        let mut metadata = self.state.osd_metadata[&id].clone();
        metadata.insert(::cluster::facts::SERVES_SHARDS.into(), u8::from(does).to_string());
        let changes = Changes::one(::cluster::Change::OsdMetadata { id, metadata });
        self.state = self.state.apply(changes, self.now).unwrap().0;
    }

    /// An OSD comes up (again), with the facts that it has.
    pub fn boot(&mut self, id: i32) {
        let mut boot = boot(id);
        if let Some(known) = self.state.osd_metadata.get(&id) {
            boot.metadata.clone_from(known);
        }
        let changes = ::cluster::boot::decide(&self.state, &boot, self.now).0;
        self.state = self.state.apply(changes, self.now).unwrap().0;
        self.report();
    }

    fn edit(&mut self, id: i32, change: impl FnOnce(&mut OsdReport)) {
        let mut report = (**self.stats.osds.get(&id).unwrap()).clone();
        change(&mut report);
        self.stats.osds.insert(id, Arc::new(report));
    }

    /// Lets an OSD report a part of its space as used.
    pub fn fill(&mut self, id: i32, ratio: f64) {
        self.edit(id, |r| {
            let s = &mut r.stat.statfs;
            s.available = (s.total as f64 * (1.0 - ratio)) as i64;
        });
    }

    /// Lets the primaries of a pool report so many bytes in all.
    pub fn pool_bytes(&mut self, pool: i64, bytes: i64) {
        let pgs = self.state.osdmap.pgs().filter(|pg| pg.pool == pool).count() as i64;
        self.each_pg(|s| {
            if s.pgid.pool == pool {
                s.stats.sum.num_bytes = bytes / pgs;
            }
        });
    }

    /// Changes what is reported of every PG.
    pub fn each_pg(&mut self, change: impl Fn(&mut PgStat)) {
        let ids: Vec<i32> = self.stats.osds.keys().copied().collect();
        for id in ids {
            self.edit(id, |r| r.pgs.values_mut().for_each(&change));
        }
    }

    /// Changes what one OSD reports of itself.
    pub fn each_osd(&mut self, id: i32, change: impl FnOnce(&mut OsdStat)) {
        self.edit(id, |r| change(&mut r.stat));
    }

    /// Changes one OSD's report.
    pub fn report_of(&mut self, id: i32, change: impl FnOnce(&mut OsdReport)) {
        self.edit(id, change);
    }

    /// A further monitor in the map.
    pub fn add_monitor(&mut self, name: &str, port: u16) {
        let mut map = (*self.state.monmap).clone();
        let fresh = types::monmap::MonMap::new(map.fsid, self.now, [(name.to_string(), addrs(port, 0))]);
        map.mon_info.extend(fresh.mon_info);
        map.ranks.push(name.into());
        let changes = Changes::one(::cluster::Change::MonMap(Box::new(map)));
        self.state = self.state.apply(changes, self.now).unwrap().0;
    }

    /// It gives its sign of life.
    pub fn monitor_lives(&mut self, name: &str) {
        let report = ::cluster::MonReport {
            name: name.into(),
            mgr_name: format!("mgr-{name}"),
            metadata: BTreeMap::from([
                ("hostname".to_string(), format!("host-{name}")),
                (
                    ::cluster::facts::STATE_FEATURES.to_string(),
                    ::cluster::facts::state_features(),
                ),
            ]),
            ..::cluster::MonReport::default()
        };
        self.stats.mons.insert(name.into(), report);
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
            progress: &self.progress,
            sessions: &[],
            who: &who,
            addr: EntityAddr::BLANK,
        };
        let out = run(&cmd, &ctx);
        assert!(out.code <= 0, "{text}: code {}", out.code);
        if out.code == 0 && !out.changes.is_empty() {
            self.state = self.state.apply((*out.changes).clone(), self.now).unwrap().0;
            self.report();
        }
        out
    }

    /// What the monitor does by itself; the texts that it logs.
    pub fn upkeep(&mut self) -> Vec<String> {
        let changes = crate::policies::upkeep::due(&self.state, &self.stats, &[], self.now);
        let logged = changes.list.iter().filter_map(|c| match c {
            ::cluster::Change::Log(entry) => Some(entry.message.clone()),
            _ => None,
        });
        let logged = logged.collect();
        self.state = self.state.apply(changes, self.now).unwrap().0;
        logged
    }

    /// Lets an OSD report what its host can spare.
    pub fn spare(&mut self, id: i32, spare: ::cluster::SpareSpace) {
        self.edit(id, |r| r.spare = Some(spare));
    }

    /// These OSDs hold their leases.
    pub fn leased(&mut self, osds: &[i32]) {
        self.stats.leased = Arc::new(osds.iter().copied().collect());
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
