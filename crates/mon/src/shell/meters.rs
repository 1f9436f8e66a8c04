//! What a monitor counts and measures about itself and the cluster, under Ceph's names (16.2.15), and the memory of its
//! connections.
//!
//! Bounds: [`MEMORY`] for both of its ports.

use account::Accountant;
use cluster::{ClusterState, ClusterStats};
use metrics::{Counter, Gauge, Registry, spec};
use std::sync::Arc;
use types::pgstats::pg_state;

const MIB: u64 = 1 << 20;
/// Requests and replies of the monitor's port, and of the manager's. A map goes to thousands of clients at once.
const MON_BYTES: [u64; 2] = [48 * MIB, 64 * MIB];
const MGR_BYTES: [u64; 2] = [48 * MIB, 64 * MIB];
/// All that messages and answers may take, one of each more aside.
pub const MEMORY: u64 = MON_BYTES[0] + MON_BYTES[1] + MGR_BYTES[0] + MGR_BYTES[1];

metrics::table! {
    /// The logger `mon`.
    pub struct MonPerf {
        num_sessions: Gauge = spec("Open sessions").nick("sess").priority(5);
        session_add: Counter = spec("Created sessions").nick("sadd").priority(8);
        session_rm: Counter = spec("Removed sessions").nick("srm").priority(8);
    }
}

metrics::table! {
    /// The logger `cluster`.
    pub struct ClusterPerf {
        num_mon: Gauge = spec("Monitors");
        num_mon_quorum: Gauge = spec("Monitors in quorum");
        num_osd: Gauge = spec("OSDs");
        num_osd_up: Gauge = spec("OSDs that are up");
        num_osd_in: Gauge = spec("OSD in state \"in\" (they are in cluster)");
        osd_epoch: Gauge = spec("Current epoch of OSD map");
        osd_bytes: Gauge = spec("Total capacity of cluster").bytes();
        osd_bytes_used: Gauge = spec("Used space").bytes();
        osd_bytes_avail: Gauge = spec("Available space").bytes();
        num_pool: Gauge = spec("Pools");
        num_pg: Gauge = spec("Placement groups");
        num_pg_active_clean: Gauge = spec("Placement groups in active+clean state");
        num_pg_active: Gauge = spec("Placement groups in active state");
        num_object: Gauge = spec("Objects");
        num_object_degraded: Gauge = spec("Degraded (missing replicas) objects");
        num_object_misplaced: Gauge = spec("Misplaced (wrong location in the cluster) objects");
        num_bytes: Gauge = spec("Size of all objects").bytes();
    }
}

pub struct Meters {
    pub mon: Arc<MonPerf>,
    cluster: Arc<ClusterPerf>,
    accountant: Accountant,
    /// Of the monitor's port and the manager's.
    pub net: [net::Accounts; 2],
}

impl Meters {
    pub fn new(registry: &Registry) -> Self {
        let mut accountant = Accountant::new(MEMORY, registry);
        let mut port = |names: [&'static str; 4], bytes: [u64; 2], worker: &str| {
            net::Accounts::new(
                accountant.open(names[0], bytes[0], registry),
                accountant.open(names[1], bytes[1], registry),
                // OSDs do not dial a monitor as peers.
                accountant.open_within(names[2], 0, registry),
                accountant.open_within(names[3], bytes[0] + bytes[1], registry),
                registry.make(worker),
            )
        };
        let mon = port(
            [
                "mon_client_bytes",
                "mon_reply_bytes",
                "mon_peer_bytes",
                "mon_connection",
            ],
            MON_BYTES,
            "AsyncMessenger::Worker-0",
        );
        let mgr = port(
            [
                "mgr_client_bytes",
                "mgr_reply_bytes",
                "mgr_peer_bytes",
                "mgr_connection",
            ],
            MGR_BYTES,
            "AsyncMessenger::Worker-1",
        );
        Self {
            mon: registry.make("mon"),
            cluster: registry.make("cluster"),
            net: [mon, mgr],
            accountant,
        }
    }

    /// Once a second.
    pub fn measure(&self, state: &ClusterState, stats: &ClusterStats) {
        let (c, map) = (&self.cluster, &state.osdmap);
        let count = |n: usize| n as u64;
        c.num_mon.set(count(state.monmap.ranks.len()));
        c.num_mon_quorum.set(count(stats.mons.len()));
        c.num_osd.set(count(map.osd_ids().count()));
        c.num_osd_up
            .set(count(map.osd_ids().filter(|o| map.is_up(*o)).count()));
        c.num_osd_in
            .set(count(map.osd_ids().filter(|o| map.is_in(*o)).count()));
        c.osd_epoch.set(u64::from(map.epoch));
        c.num_pool.set(count(map.pools.len()));
        c.num_pg
            .set(map.pools.values().map(|p| u64::from(p.pg_num)).sum());
        let (mut total, mut available) = (0, 0);
        for report in stats.osds.values() {
            total += report.stat.statfs.total;
            available += report.stat.statfs.available;
        }
        c.osd_bytes.set(total.max(0) as u64);
        c.osd_bytes_avail.set(available.max(0) as u64);
        c.osd_bytes_used.set((total - available).max(0) as u64);
        self.measure_pgs(stats);
        self.accountant.measure();
    }

    fn measure_pgs(&self, stats: &ClusterStats) {
        let (mut active, mut clean) = (0, 0);
        let (mut objects, mut degraded, mut misplaced, mut bytes) = (0, 0, 0, 0);
        for (_, _, pg) in stats.pgs() {
            let is_active = pg.state & pg_state::ACTIVE != 0;
            active += u64::from(is_active);
            clean += u64::from(is_active && pg.state & pg_state::CLEAN != 0);
            let sum = &pg.stats.sum;
            objects += sum.num_objects;
            degraded += sum.num_objects_degraded;
            misplaced += sum.num_objects_misplaced;
            bytes += sum.num_bytes;
        }
        let c = &self.cluster;
        c.num_pg_active.set(active);
        c.num_pg_active_clean.set(clean);
        c.num_object.set(objects.max(0) as u64);
        c.num_object_degraded.set(degraded.max(0) as u64);
        c.num_object_misplaced.set(misplaced.max(0) as u64);
        c.num_bytes.set(bytes.max(0) as u64);
    }
}
