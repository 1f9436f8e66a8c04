//! Brings what an OSD shows of itself up to date.

use crate::osd::Osd;
use std::time::Duration;

impl Osd {
    /// Brings up to date what is not counted as it happens.
    pub fn measure(&mut self) {
        let (m, store) = (&self.meters, &self.store.engine);
        let primaries = self.pgs().count() as u64;
        m.osd.op_wip.set(self.ops.len() as u64);
        m.osd.numpg.set(self.slots.len() as u64);
        m.osd.numpg_primary.set(primaries);
        m.osd.numpg_replica.set(self.slots.len() as u64 - primaries);
        m.osd.heartbeat_to_peers.set(self.links.open().count() as u64);
        let slowest = self.links.slowest().map_or(Duration::ZERO, |(_, trip)| trip);
        m.osd.heartbeat_slowest_us.set(slowest.as_micros() as u64);
        m.osd.sessions.set(self.sessions.len() as u64);
        let fs = store.statfs();
        let (total, available) = crate::report::space(&fs, self.disk_share);
        m.osd.stat_bytes.set(total);
        m.osd.stat_bytes_avail.set(available);
        m.osd.stat_bytes_used.set(total.saturating_sub(available));
        m.object_store.bluestore_allocated.set(fs.used);
        m.object_store.bluestore_stored.set(fs.stored);
        m.object_store.bluestore_compressed.set(fs.compressed);
        m.object_store
            .bluestore_compressed_allocated
            .set(fs.compressed_allocated);
        m.object_store
            .bluestore_compressed_original
            .set(fs.compressed_original);
        let (samples, sum) = self.disk_time.sampled();
        m.object_store.commit_lat.set(samples, sum);
        let c = store.counters();
        m.object_store.bluestore_txc.set(c.transactions);
        m.store.transactions.set(c.transactions);
        m.store.flushes.set(c.flushes);
        m.store.log_bytes.set(c.log_bytes);
        m.store.direct_bytes.set(c.direct_bytes);
        m.store.checkpoints.set(c.checkpoints);
        m.store.stalls.set(c.stalls);
        m.store.index_bytes.set(fs.index_bytes);
        m.store.omap_bytes.set(fs.omap_bytes);
        m.store_memory.set(store.memory_bytes());
        m.notifies.set(self.notify_bytes.bytes() as u64);
        self.measure_pgs();
        self.meters.accountant.measure();
    }

    /// What logs and object caches take now.
    fn measure_pgs(&self) {
        let (mut logs, mut entries, mut caches, mut objects) = (0, 0, 0, 0);
        for (_, pg) in self.pgs() {
            let (log, cache) = pg.memory();
            (logs, caches) = (logs + log, caches + cache);
            entries += pg.log_len() as u64;
            objects += pg.cached_objects() as u64;
        }
        self.meters.logs.set(logs);
        self.meters.logs.items.set(entries);
        self.meters.objects.set(caches);
        self.meters.objects.items.set(objects);
    }
}
