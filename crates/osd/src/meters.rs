//! What an OSD counts and measures about itself, under Ceph's names where Ceph has the thing (16.2.15), and where it shows them.
//!
//! Counters of operations are updated as they happen; gauges, and what the store counts, are brought up to date once a second
//! and before somebody reads them (`measure`).

use crate::memory::Memory;
use account::{Account, Accountant};
use messages::osd::flag;
use metrics::{Counter, Gauge, Histogram, Registry, TimeAverage, spec};
use std::sync::Arc;
use std::time::Duration;

metrics::table! {
    /// The logger `osd`. Latencies are counted from when the loop takes a message to when its answer is queued.
    pub struct OsdPerf {
        op_wip: Gauge = spec("Replication operations currently being processed (primary)").priority(5);
        op: Counter = spec("Client operations").nick("ops").priority(10);
        op_in_bytes: Counter = spec("Client operations total write size").nick("wr").priority(8).bytes();
        op_out_bytes: Counter = spec("Client operations total read size").nick("rd").priority(8).bytes();
        op_latency: TimeAverage = spec("Latency of client operations (including queue time)").nick("l").priority(9);
        op_r: Counter = spec("Client read operations").priority(5);
        op_r_out_bytes: Counter = spec("Client data read").priority(5).bytes();
        op_r_latency: TimeAverage = spec("Latency of read operation (including queue time)").priority(5);
        op_w: Counter = spec("Client write operations").priority(5);
        op_w_in_bytes: Counter = spec("Client data written").priority(5);
        op_w_latency: TimeAverage = spec("Latency of write operation (including queue time)").priority(5);
        op_rw: Counter = spec("Client read-modify-write operations").priority(5);
        op_rw_in_bytes: Counter = spec("Client read-modify-write operations write in").priority(5).bytes();
        op_rw_out_bytes: Counter = spec("Client read-modify-write operations read out ").priority(5).bytes();
        op_rw_latency: TimeAverage = spec("Latency of read-modify-write operation (including queue time)").priority(5);
        op_r_latency_out_bytes_histogram: Histogram =
            spec("Histogram of operation latency (including queue time) + data read").priority(5);
        op_w_latency_in_bytes_histogram: Histogram =
            spec("Histogram of operation latency (including queue time) + data written").priority(5);
        op_rw_latency_in_bytes_histogram: Histogram =
            spec("Histogram of rw operation latency (including queue time) + data written").priority(5);
        op_rw_latency_out_bytes_histogram: Histogram =
            spec("Histogram of rw operation latency (including queue time) + data read").priority(5);
        subop: Counter = spec("Suboperations");
        subop_in_bytes: Counter = spec("Suboperations total size").bytes();
        subop_w: Counter = spec("Replicated writes");
        subop_w_in_bytes: Counter = spec("Replicated written data size").bytes();
        push: Counter = spec("Push messages sent");
        push_out_bytes: Counter = spec("Pushed size").bytes();
        recovery_ops: Counter = spec("Started recovery operations").nick("rop").priority(8);
        recovery_bytes: Counter = spec("recovery bytes").nick("rbt").priority(8);
        numpg: Gauge = spec("Placement groups").nick("pgs").priority(5);
        numpg_primary: Gauge = spec("Placement groups for which this osd is primary");
        numpg_replica: Gauge = spec("Placement groups for which this osd is replica");
        heartbeat_to_peers: Gauge = spec("Heartbeat (ping) peers we send to");
        heartbeat_slowest_us: Gauge = spec("Longest smoothed round trip of heartbeats, in microseconds");
        messages_delayed_for_map: Counter = spec("Operations waiting for OSD map");
        stat_bytes: Gauge = spec("OSD size").nick("size").priority(5).bytes();
        stat_bytes_used: Gauge = spec("Used space").nick("used").priority(5).bytes();
        stat_bytes_avail: Gauge = spec("Available space").bytes();
        copyfrom: Counter = spec("Rados \"copy-from\" operations");
        sessions: Gauge = spec("Open sessions");
        replica_read: Counter = spec("Reads sent here although another OSD leads the PG");
        replica_read_served: Counter = spec("Of these, answered here");
        replica_read_out_bytes: Counter = spec("Data read from copies").bytes();
        replica_read_redirected: Counter = spec("Of these, sent on to the primary");
        scrubs: Counter = spec("Scrubs that ended");
        image_ops_uncounted: Counter = spec("Operations of images beyond those that are counted one by one");
        qos_backoffs: Counter = spec("Times that a client was told to hold back an object, since a limit was reached");
        scrub_bytes: Counter = spec("Bytes compared by scrubs").bytes();
        traces: Counter = spec("Operations told to the collector of traces");
        traces_dropped: Counter = spec("Operations that were to be told, and found no room");
    }
}

metrics::table! {
    /// The logger `bluestore`, for boards that look there: what means the same of this store.
    pub struct ObjectStorePerf {
        commit_lat: TimeAverage =
            spec("Average commit latency, of a few samples a second").nick("c_l").priority(10);
        bluestore_allocated: Gauge = spec("Sum for allocated bytes");
        bluestore_stored: Gauge = spec("Sum for stored bytes");
        bluestore_compressed: Gauge = spec("Sum for stored compressed bytes").nick("c").priority(5);
        bluestore_compressed_allocated: Gauge = spec("Sum for bytes allocated for compressed data").nick("c_a").priority(5);
        bluestore_compressed_original: Gauge = spec("Sum for original bytes that were compressed").nick("c_o").priority(5);
        bluestore_txc: Counter = spec("Transactions committed");
    }
}

metrics::table! {
    /// The logger `store`: what is this store's own.
    pub struct StorePerf {
        transactions: Counter = spec("Transactions queued");
        flushes: Counter = spec("Batches made durable");
        log_bytes: Counter = spec("Bytes written to the log").bytes();
        direct_bytes: Counter = spec("Bytes written past the log").bytes();
        checkpoints: Counter = spec("Checkpoints that ended");
        stalls: Counter = spec("Times that the owner waited for room");
        index_bytes: Gauge = spec("Size of the index").bytes();
        omap_bytes: Gauge = spec("Bytes of omap").bytes();
    }
}

/// The tables and accounts of one run of an OSD.
pub struct Meters {
    pub registry: Registry,
    pub osd: Arc<OsdPerf>,
    pub object_store: Arc<ObjectStorePerf>,
    pub store: Arc<StorePerf>,
    pub accountant: Accountant,
    /// What connections are charged to.
    pub net: net::Accounts,
    pub notifies: Arc<Account>,
    pub logs: Arc<Account>,
    pub objects: Arc<Account>,
    pub store_memory: Arc<Account>,
}

impl Meters {
    pub fn new(registry: Registry, memory: &Memory) -> Self {
        let mut accountant = Accountant::new(memory.budget, &registry);
        let mut open = |name, bytes| accountant.open(name, bytes, &registry);
        let store_memory = open("store", memory.store);
        let requests = open("osd_client_bytes", memory.messages);
        let replies = open("osd_reply_bytes", memory.replies);
        let peers = open("osd_peer_bytes", memory.peers);
        let notifies = open("osd_notify", memory.notifies);
        let logs = open("osd_pglog", memory.pg_logs);
        let objects = open("osd_object", memory.objects);
        // Its bytes come off those of requests and replies.
        let connections =
            accountant.open_within("msgr_connection", memory.messages + memory.replies, &registry);
        let perf = registry.make("AsyncMessenger::Worker-0");
        Self {
            osd: registry.make("osd"),
            object_store: registry.make("bluestore"),
            store: registry.make("store"),
            registry,
            accountant,
            net: net::Accounts::new(requests, replies, peers, connections, perf),
            notifies,
            logs,
            objects,
            store_memory,
        }
    }
}

impl OsdPerf {
    /// An operation with these flags, which brought so much data, has its answer of so much.
    pub fn answered(&self, flags: u32, in_bytes: u32, out: u64, took: Duration) {
        let (into, us) = (u64::from(in_bytes), took.as_micros() as u64);
        self.op.inc();
        self.op_latency.took(took);
        self.op_out_bytes.add(out);
        let (reads, writes) = (flags & flag::READ != 0, flags & flag::WRITE != 0);
        if writes {
            self.op_in_bytes.add(into);
        }
        match (reads, writes) {
            (true, true) => {
                self.op_rw.inc();
                self.op_rw_in_bytes.add(into);
                self.op_rw_out_bytes.add(out);
                self.op_rw_latency.took(took);
                self.op_rw_latency_in_bytes_histogram.add(us, into);
                self.op_rw_latency_out_bytes_histogram.add(us, out);
            }
            (_, true) => {
                self.op_w.inc();
                self.op_w_in_bytes.add(into);
                self.op_w_latency.took(took);
                self.op_w_latency_in_bytes_histogram.add(us, into);
            }
            _ => {
                self.op_r.inc();
                self.op_r_out_bytes.add(out);
                self.op_r_latency.took(took);
                self.op_r_latency_out_bytes_histogram.add(us, out);
            }
        }
    }
}
