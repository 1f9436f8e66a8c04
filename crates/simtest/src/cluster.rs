//! The cluster under test: real OSDs, a real monitor, each a process on a host of its own, over simulated disks, sockets
//! and cluster state.
//!
//! Not here: when what fails (`plan`, `chaos`), and whether it was right (`check`).

use crate::coded::Coded;
use crate::cost::{doors, meter};
use crate::disk::{LOG_BYTES, Pacing, SimDriver};
use crate::etcd::SimEtcd;
use crate::operator::{self, Operator};
use crate::places::{PGS_MAX, POOL, mon_addr, mon_host, operator_host, osd_host};
use crate::rot::Rot;
use crate::scrubs::Scrubs;
use crate::watchdog::Watchdog;
use auth::{AllowNone, KeyServerConfig};
use cluster::{Changes, ClusterState, CreateOptions};
use io::Clock;
use io::disk::Disk;
use io::disk::sim::{SimDisk, Survival};
use io_sim::{Process, Sim};
use metastore::{ClusterHandle, create_cluster};
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use types::pool::{PgPool, PoolOption};
use types::{OsdId, PgId, Utime, Uuid};

const FSID: Uuid = Uuid([7; 16]);
const OSD_PORT: u16 = 6800;
/// What a store leaves to its host.
const HOST_RESERVE_BYTES: u64 = 1 << 20;
/// What a process supervisor waits before it starts again what ended by itself.
const RESTART: Duration = Duration::from_millis(700);

pub struct OsdNode {
    pub id: OsdId,
    pub host: IpAddr,
    pub disk: RefCell<SimDisk>,
    pub pacing: Pacing,
    pub clock: Arc<dyn Clock>,
    uuid: Uuid,
    process: RefCell<Option<Process>>,
    stop: RefCell<Option<watch::Sender<bool>>>,
    lives: Cell<u32>,
    /// It may end by itself: a fault that has to end it was injected.
    pub may_end: Cell<bool>,
    /// Nobody starts it any more.
    pub gone: Cell<bool>,
}

pub struct Cluster {
    pub sim: Sim,
    pub etcd: SimEtcd,
    /// The simulation's own view.
    pub view: ClusterHandle,
    /// Who changes things as a process with a network between, where there is one; else `view` does.
    operator: RefCell<Option<ClusterHandle>>,
    pub osds: RefCell<Vec<Rc<OsdNode>>>,
    mon: RefCell<Option<Process>>,
    /// Faults that are in effect.
    pub faults: Cell<usize>,
    /// A disk was lost, and its copies are not made up for yet: another failure would be one too many.
    pub fragile: Cell<bool>,
    pub watchdog: Rc<Watchdog>,
    pub rot: Rc<Rot>,
    pub scrubs: Rc<Scrubs>,
    /// Reads of disks take time; else they are done at once.
    pub slow_reads: Cell<bool>,
    /// Of each store that is made.
    pub log_bytes: Cell<u64>,
    /// What OSDs do is counted (`cost`).
    pub metered: Cell<bool>,
    /// Of all OSDs, where they are as in one process.
    pub lanes: RefCell<Option<net::Lanes>>,
    pub operators: Operator,
    /// What can be a command to the monitor is one.
    pub by_commands: Cell<bool>,
    /// The pool has another size than it was made with.
    pub resized: Cell<bool>,
    /// The pool's code; None: it has copies.
    pub coded: Cell<Option<Coded>>,
    /// What must not have happened.
    pub wrongs: Rc<RefCell<Vec<String>>>,
}

impl OsdNode {
    pub fn hostname(&self) -> String {
        format!("host{}", self.id)
    }
}

fn options(node: &OsdNode) -> store::Options {
    store::Options {
        osd_id: node.id,
        fsid: FSID,
        osd_uuid: node.uuid,
        // As in life: what one transaction may hold is a part of it.
        log_bytes: LOG_BYTES,
        grow_bytes: 1 << 20,
        overlay_bytes: 2 << 20,
        waiting_bytes: 4 << 20,
        block_cache_bytes: 1 << 20,
        index_cache_bytes: 1 << 20,
        record_cache_bytes: 1 << 20,
        host_reserve_bytes: HOST_RESERVE_BYTES,
        threads: false,
        ..store::Options::default()
    }
}

/// Opens the cluster state as a process of `host`, and follows it.
pub async fn open_state(
    etcd: &SimEtcd,
    host: IpAddr,
    clock: &Arc<dyn Clock>,
) -> Result<ClusterHandle, String> {
    let store = etcd.client(host, clock.clone());
    let opened = ClusterHandle::open(store, clock.clone()).await;
    let handle = opened.map_err(|e| e.to_string())?.ok_or("no cluster")?;
    let follower = handle.clone();
    tokio::task::spawn_local(async move {
        // It ends with the process.
        let _ = follower.follow().await;
    });
    Ok(handle)
}

impl Cluster {
    /// A new cluster without OSDs.
    pub async fn create(sim: &Sim) -> Result<Self, String> {
        let etcd = SimEtcd::start(sim).map_err(|e| e.to_string())?;
        let clock = sim.clock(Duration::ZERO, 0);
        let mon = mon_addr();
        let new = CreateOptions::new(FSID, "a", mon);
        let direct = etcd.direct();
        create_cluster(&*direct, &new, &*clock, &*sim.random("create"))
            .await
            .map_err(|e| e.to_string())?;
        let opened = ClusterHandle::open(direct, clock).await;
        let view = opened.map_err(|e| e.to_string())?.ok_or("no cluster")?;
        let follower = view.clone();
        tokio::task::spawn_local(async move {
            // As long as the simulation.
            let _ = follower.follow().await;
        });
        let rot = Rot::watch(&view, &sim.trace);
        Ok(Self {
            sim: sim.clone(),
            etcd,
            scrubs: Scrubs::listen(sim, &rot),
            rot,
            slow_reads: Cell::new(false),
            log_bytes: Cell::new(LOG_BYTES),
            metered: Cell::new(false),
            lanes: RefCell::default(),
            operators: Operator::default(),
            by_commands: Cell::new(false),
            resized: Cell::new(false),
            coded: Cell::new(None),
            view,
            operator: RefCell::default(),
            osds: RefCell::default(),
            mon: RefCell::default(),
            faults: Cell::new(0),
            fragile: Cell::new(false),
            watchdog: Watchdog::start(sim),
            wrongs: Rc::default(),
        })
    }

    pub fn osd(&self, n: usize) -> Rc<OsdNode> {
        let osds = self.osds.borrow();
        osds[n % osds.len()].clone()
    }

    /// A new disk with a new store on it, in a new host.
    pub fn add_osd(&self, skew: Duration, drift_ppm: i32) -> Result<Rc<OsdNode>, String> {
        let id = self.osds.borrow().len() as OsdId;
        let purpose = format!("osd.{id}");
        let node = Rc::new(OsdNode {
            id,
            host: osd_host(id),
            disk: RefCell::new(crate::disk::new()),
            pacing: Pacing::new(
                self.sim.dice(&format!("{purpose} disk")),
                self.sim.dice(&format!("{purpose} disk's reads")),
            ),
            clock: self.sim.clock(skew, drift_ppm),
            uuid: Uuid(self.sim.random(&purpose).bytes()),
            process: RefCell::default(),
            stop: RefCell::default(),
            lives: Cell::new(0),
            may_end: Cell::new(false),
            gone: Cell::new(false),
        });
        self.watchdog.know(id, drift_ppm);
        let disk = Arc::new(node.disk.borrow().clone());
        let made = store::Options {
            log_bytes: self.log_bytes.get(),
            ..options(&node)
        };
        Store::mkfs_on(disk, &made).map_err(|e| e.to_string())?;
        self.osds.borrow_mut().push(node.clone());
        Ok(node)
    }

    /// Starts its process, unless it runs. Where it ends by itself without a reason that the simulation knows, that is a
    /// wrong; it is started again after a while in any case.
    pub fn start_osd(self: &Rc<Self>, node: &Rc<OsdNode>) {
        if node.gone.get() || node.process.borrow().as_ref().is_some_and(Process::is_alive) {
            return;
        }
        self.sim.net.power_on(node.host);
        node.lives.set(node.lives.get() + 1);
        let life = node.lives.get();
        self.sim
            .trace
            .note(format_args!("osd.{} starts, life {life}", node.id));
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        let (cluster, own) = (self.clone(), node.clone());
        let main = async move {
            let out = cluster.osd_main(&own, life, stopped).await;
            let _ = end.send(out);
        };
        *node.stop.borrow_mut() = Some(stop);
        let process = match self.metered.get() {
            false => self.sim.start(node.host, main),
            true => self.sim.start(node.host, meter::server(main)),
        };
        *node.process.borrow_mut() = Some(process);
        let (cluster, node) = (self.clone(), node.clone());
        tokio::task::spawn_local(async move {
            // Killed: who killed it starts it again.
            let Ok(out) = ended.await else { return };
            if let Some(p) = node.process.borrow_mut().take() {
                p.kill();
            }
            cluster.forget(&node);
            cluster
                .sim
                .trace
                .note(format_args!("osd.{} ended: {out:?}", node.id));
            if let Err(why) = out
                && !node.may_end.replace(false)
            {
                let line = format!("osd.{} ended by itself: {why}", node.id);
                cluster.wrongs.borrow_mut().push(line);
            }
            let stopping = node.stop.borrow().as_ref().is_none_or(|s| *s.borrow());
            if !stopping {
                // At once: another fault's end may start it before.
                node.disk.borrow().heal();
                sleep(RESTART).await;
                cluster.start_osd(&node);
            }
        });
    }

    async fn osd_main(&self, node: &OsdNode, life: u32, stop: watch::Receiver<bool>) -> Result<(), String> {
        let cluster = open_state(&self.etcd, node.host, &node.clock).await?;
        let random = self.sim.random(&format!("osd.{} life {life}", node.id));
        let disk: Arc<dyn Disk> = Arc::new(node.disk.borrow().clone());
        let options = store::Options {
            driver: Some(SimDriver::new(node.pacing.clone(), self.slow_reads.get())),
            disk: Some(match self.metered.get() {
                false => disk,
                true => doors::disk(disk),
            }),
            ..options(node)
        };
        let config = osd::Config {
            id: node.id,
            dir: "/".into(),
            store: options,
            memory: osd::Memory::of(0),
            registry: Default::default(),
            bind: SocketAddr::new(node.host, OSD_PORT),
            msgr1: None,
            auth: Arc::new(AllowNone),
            cluster,
            traces: None,
            peers: osd::Peers::over(self.lanes.borrow().clone().unwrap_or_default()),
            clock: node.clock.clone(),
            random: random.clone(),
            entropy: net::entropy(random),
            hostname: node.hostname(),
            nonce: life,
            disk_share: 1,
            spare: false,
            connections_max: net::CONNECTIONS_MAX,
            lease: osd::Config::LEASE,
            hung_disk: osd::Config::HUNG_DISK,
            device_class: String::new(),
            disk: String::new(),
        };
        let (ready, _up) = oneshot::channel();
        osd::serve(config, ready, stop).await.map_err(|e| e.to_string())
    }

    /// SIGKILL. Without `power` what it had written stays; with it, what was not flushed may be lost, and nobody is told.
    pub fn kill_osd(&self, node: &OsdNode, power: bool, seed: u64) {
        let Some(process) = node.process.borrow_mut().take() else {
            return;
        };
        if power {
            self.sim.net.power_off(node.host);
        }
        process.kill();
        self.forget(node);
        let left = match power {
            true => node.disk.borrow().survivor(seed),
            false => node.disk.borrow().survivor_of(Survival::Everything),
        };
        *node.disk.borrow_mut() = left;
    }

    /// What it said of itself holds no more.
    fn forget(&self, node: &OsdNode) {
        self.watchdog.forget(node.id);
        self.scrubs.forget(node.id);
    }

    pub fn with_process(&self, node: &OsdNode, work: impl FnOnce(&Process)) {
        if let Some(p) = node.process.borrow().as_ref() {
            work(p);
        }
    }

    /// As an operator stops it; done when its process has ended.
    pub async fn stop_osd(&self, node: &OsdNode) {
        if let Some(stop) = node.stop.borrow().as_ref() {
            stop.send_replace(true);
        }
        while node.process.borrow().as_ref().is_some_and(Process::is_alive) {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// What its disk holds, looked at while it does not run.
    pub fn open_store(&self, node: &OsdNode) -> Result<Store, String> {
        self.open_store_on(node, node.disk.borrow().clone())
    }

    pub fn open_store_on(&self, node: &OsdNode, disk: SimDisk) -> Result<Store, String> {
        Store::open_on(Arc::new(disk), &options(node), Arc::new(|| ())).map_err(|e| e.to_string())
    }

    /// Starts it, unless it runs.
    pub fn start_mon(self: &Rc<Self>) {
        if self.mon.borrow().is_some() {
            return;
        }
        let cluster = self.clone();
        let main = async move {
            let clock = cluster.sim.clock(Duration::ZERO, 0);
            let opened = open_state(&cluster.etcd, mon_host(), &clock).await;
            let Ok(handle) = opened else { return };
            let config = mon::MonConfig {
                registry: Default::default(),
                name: "a".into(),
                mgr_name: "x".into(),
                addr: mon_addr(),
                mgr_bind: SocketAddr::new(mon_host(), 0),
                msgr1: None,
                cephx: false,
                tickets: KeyServerConfig::default(),
                hostname: "mon".into(),
                connections_max: net::CONNECTIONS_MAX,
                cluster: handle,
                clock,
                random: cluster.sim.random("mon"),
            };
            let (ready, _at) = oneshot::channel();
            let (_keep, stop) = watch::channel(false);
            if let Err(e) = mon::serve(config, ready, stop).await {
                cluster
                    .wrongs
                    .borrow_mut()
                    .push(format!("the monitor ended by itself: {e}"));
            }
        };
        *self.mon.borrow_mut() = Some(self.sim.start(mon_host(), main));
    }

    pub fn kill_mon(&self) {
        if let Some(p) = self.mon.borrow_mut().take() {
            p.kill();
        }
    }

    /// A process that hears of no change of the cluster, or does again: an OSD follows the cluster state itself, a client asks
    /// the monitor.
    pub fn blind(&self, host: IpAddr, blind: bool) {
        self.etcd.cut(host, blind);
        if self.osds.borrow().iter().all(|n| n.host != host) {
            self.sim.net.block(host, mon_host(), blind);
            self.sim.net.block(mon_host(), host, blind);
        }
    }

    /// Changes the cluster state as an operator would.
    pub async fn change(&self, decide: impl FnMut(&ClusterState) -> Changes) -> Result<(), String> {
        let mut decide = decide;
        let hand = self.operator.borrow().clone();
        let hand = hand.as_ref().unwrap_or(&self.view);
        let done = hand.commit(|state| (decide(state), ())).await;
        done.map(|_| ()).map_err(|e| e.to_string())
    }

    /// From now on the cluster state's faults meet the operator, too.
    pub async fn appoint_operator(&self) -> Result<(), String> {
        let clock = self.sim.clock(Duration::ZERO, 0);
        let handle = open_state(&self.etcd, operator_host(), &clock).await?;
        *self.operator.borrow_mut() = Some(handle);
        Ok(())
    }

    /// Twice as many PGs; with `place` also in their own places.
    pub async fn split(&self, place: bool) -> Result<(), String> {
        self.change(|state| {
            let mut changes = Changes::none();
            let (map, epoch) = (state.osdmap.clone(), state.osdmap.epoch + 1);
            let Some(pool) = changes.inc(state, Utime::ZERO).pool_mut(&map, POOL) else {
                return Changes::none();
            };
            let (places, pgs) = (pool.pgp_num.min(pool.pg_num_target), pool.pg_num * 2);
            if pgs > PGS_MAX {
                return Changes::none();
            }
            pool.set_pg_num(pgs, epoch);
            if !place {
                pool.set_pgp_num(places);
            }
            changes
        })
        .await
    }

    /// Half as many PGs shall be left, as `osd pool set` does it: of those that there are, where it grows.
    pub async fn merge(&self) -> Result<(), String> {
        self.change(|state| {
            let mut changes = Changes::none();
            let map = state.osdmap.clone();
            let inc = changes.inc(state, Utime::ZERO);
            if let Some(pool) = inc.pool_mut(&map, POOL) {
                let wanted = pool.pg_num.min(pool.pg_num_target) / 2;
                pool.shrink_to(wanted);
                cluster::share_places(&map, POOL, wanted.max(1), inc);
            }
            changes
        })
        .await
    }

    /// Everything in the pool that is long enough is compressed from now on.
    pub async fn compress_pool(&self, algorithm: &str) -> Result<(), String> {
        let settings = [
            ("compression_mode", "force"),
            ("compression_algorithm", algorithm),
        ];
        self.change(|state| {
            let map = state.osdmap.clone();
            let mut changes = Changes::none();
            let inc = changes.inc(state, Utime::ZERO);
            if let Some(pool) = inc.pool_mut(&map, POOL) {
                for (name, value) in settings {
                    pool.opts.set(name, PoolOption::Str(value.into()));
                }
            }
            changes
        })
        .await
    }

    pub async fn add_pool(&self, size: u8, min_size: u8, pg_num: u32) -> Result<(), String> {
        let pool = PgPool {
            size,
            min_size,
            pg_num,
            pgp_num: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            pg_num_pending: pg_num,
            ..PgPool::default()
        };
        let coded = self.coded.get();
        let mut wrong = None;
        let done = self
            .change(|state| {
                let (mut changes, map) = (Changes::none(), state.osdmap.clone());
                let inc = changes.inc(state, Utime::ZERO);
                let mut pool = pool.clone();
                wrong = coded.and_then(|c| c.shape(&map, inc, &mut pool).err());
                inc.new_pool_max = Some(POOL as i32);
                inc.new_pools.insert(POOL, pool);
                inc.new_pool_names.insert(POOL, "pool".into());
                changes
            })
            .await;
        done.and_then(|()| wrong.map_or(Ok(()), Err))
    }

    /// Lets the autoscaler and the balancer work on the pool, quickly and in large steps; or no more.
    pub async fn even_out(&self, on: bool) -> Result<(), String> {
        let options = [
            ("mgr/balancer/active", on.to_string()),
            ("mgr/balancer/sleep_interval", "1".into()),
            // Disks are nearly empty.
            ("mgr/balancer/min_disk_ratio", "0".into()),
            ("mgr/pg_autoscaler/noautoscale", (!on).to_string()),
            ("mgr/pg_autoscaler/sleep_interval", "1".into()),
            ("target_max_misplaced_ratio", "0.5".into()),
        ];
        self.change(|state| {
            let set = |(name, value): &(&str, String)| cluster::Change::ConfigSet {
                who: "mgr".into(),
                name: (*name).into(),
                value: value.clone(),
            };
            let mut changes = Changes::none();
            changes.list.extend(options.iter().map(set));
            changes.push(cluster::Change::ConfigKeySet {
                key: mon::policies::autoscale::asked_key(POOL),
                value: "1".into(),
            });
            let map = state.osdmap.clone();
            if let Some(pool) = changes.inc(state, Utime::ZERO).pool_mut(&map, POOL) {
                pool.pg_autoscale_mode = types::pool::AUTOSCALE_ON;
                pool.opts.set("pg_num_min", PoolOption::Int(1));
                pool.opts.set("target_size_ratio", PoolOption::Double(1.0));
            }
            changes
        })
        .await
    }

    /// So many PGs for each OSD.
    pub async fn aim(&self, per_osd: u64) -> Result<(), String> {
        self.change(|_| {
            Changes::one(cluster::Change::ConfigSet {
                who: "global".into(),
                name: "mon_target_pg_per_osd".into(),
                value: per_osd.to_string(),
            })
        })
        .await
    }

    /// How many copies the pool wants.
    pub async fn resize(&self, size: u8) -> Result<(), String> {
        self.change(|state| {
            let mut changes = Changes::none();
            let map = state.osdmap.clone();
            if let Some(pool) = changes.inc(state, Utime::ZERO).pool_mut(&map, POOL) {
                pool.size = size;
            }
            changes
        })
        .await
    }

    /// As `ceph osd down`: one that may serve is asked, and comes back by itself.
    pub async fn mark_down(&self, osd: OsdId) -> Result<(), String> {
        self.change(
            |state| match state.osdmap.osd(osd).filter(|_| state.osdmap.is_up(osd)) {
                Some(o) => {
                    let up_from = Some(o.info.up_from);
                    Changes::one(cluster::Change::AskDown { id: osd, up_from })
                }
                None => Changes::none(),
            },
        )
        .await
    }

    /// Puts a PG's copy elsewhere, as a balancer does it; nothing: where CRUSH wants it.
    pub async fn upmap(&self, pg: PgId, item: Option<(OsdId, OsdId)>) -> Result<(), String> {
        self.change(|state| {
            let mut changes = Changes::none();
            let inc = changes.inc(state, Utime::ZERO);
            match item {
                Some(item) => drop(inc.new_pg_upmap_items.insert(pg, vec![item])),
                None => drop(inc.old_pg_upmap_items.insert(pg)),
            }
            changes
        })
        .await
    }

    /// Moves a host below a rack of its own (`ceph osd crush move`), or back below the root.
    pub async fn move_host(&self, host: &str, to_rack: bool) -> Result<(), String> {
        let rack = format!("rack-{host}");
        let mut wrong = None;
        let done = self
            .change(|state| {
                let mut changes = Changes::none();
                let map = state.osdmap.clone();
                // A change whose outcome nobody knew is decided on again.
                if map.crush.item_id(&rack).is_some() == to_rack {
                    return Changes::none();
                }
                let crush = changes.inc(state, Utime::ZERO).crush_mut(&map);
                let edited = match to_rack {
                    true => crush
                        .add_bucket(&rack, "rack")
                        .and_then(|_| crush.move_item(&rack, &[("root", "default")]))
                        .and_then(|()| crush.move_item(host, &[("rack", rack.as_str())])),
                    false => crush
                        .move_item(host, &[("root", "default")])
                        .and_then(|()| crush.remove_item(&rack)),
                };
                wrong = edited.err().map(|e| e.to_string());
                match wrong {
                    None => changes,
                    Some(_) => Changes::none(),
                }
            })
            .await;
        done.and_then(|()| wrong.map_or(Ok(()), Err))
    }

    pub async fn set_weight(&self, id: OsdId, weight: u32) -> Result<(), String> {
        if self.by_commands.get() {
            return operator::weigh(self, id, weight).await;
        }
        self.change(|state| {
            let mut changes = Changes::none();
            if state.osdmap.exists(id) {
                changes.inc(state, Utime::ZERO).new_weight.insert(id, weight);
            }
            changes
        })
        .await
    }
}
