//! What clients do to RBD images, as OSDs count it by the names of data objects, and the rates that follow.
//!
//! An image's data objects are named `rbd_data.<id>.<number>`, or `rbd_data.<pool>.<id>.<number>` in a pool of their own for
//! data; those of its journal begin with `journal_data`. What an OSD counts begins at zero when it first sees an image,
//! and again when it has seen nothing of it for a while: whoever adds up over longer does so by differences.
//!
//! Bound: [`IMAGES_MAX`] images in one OSD's report.

use crate::stats::{ClusterStats, MIN_RATE_SECONDS, OsdReport};
use std::collections::BTreeMap;
use types::PoolId;

/// Images that one OSD counts at a time; of others it says nothing until one of these has been at rest for a while.
pub const IMAGES_MAX: usize = 1000;

/// Which image: that of the pool where its header is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ImageKey {
    pub pool: PoolId,
    pub namespace: String,
    pub id: String,
}
denc::plain_denc!(ImageKey { pool, namespace, id });

/// Operations, bytes, and the sum of the times that they took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageSum {
    pub write_ops: u64,
    pub read_ops: u64,
    pub write_bytes: u64,
    pub read_bytes: u64,
    pub write_latency_ns: u64,
    pub read_latency_ns: u64,
}
denc::plain_denc!(ImageSum {
    write_ops,
    read_ops,
    write_bytes,
    read_bytes,
    write_latency_ns,
    read_latency_ns
});

impl ImageSum {
    fn map2(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            write_ops: f(self.write_ops, other.write_ops),
            read_ops: f(self.read_ops, other.read_ops),
            write_bytes: f(self.write_bytes, other.write_bytes),
            read_bytes: f(self.read_bytes, other.read_bytes),
            write_latency_ns: f(self.write_latency_ns, other.write_latency_ns),
            read_latency_ns: f(self.read_latency_ns, other.read_latency_ns),
        }
    }

    /// What was gained since `earlier`; all of it, where counting began anew.
    fn since(self, earlier: Self) -> Self {
        let anew = self.write_ops < earlier.write_ops || self.read_ops < earlier.read_ops;
        match anew {
            true => self,
            false => self.map2(earlier, u64::saturating_sub),
        }
    }

    pub fn plus(self, other: Self) -> Self {
        self.map2(other, u64::saturating_add)
    }
}

/// Per second; latencies are the mean of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ImageRate {
    pub write_ops: f64,
    pub read_ops: f64,
    pub write_bytes: f64,
    pub read_bytes: f64,
    /// Sums of the times per second: the mean is that by the operations.
    write_ns: f64,
    read_ns: f64,
}

impl ImageRate {
    pub fn is_idle(&self) -> bool {
        self.write_ops == 0.0 && self.read_ops == 0.0
    }

    pub fn write_latency_ns(&self) -> f64 {
        mean(self.write_ns, self.write_ops)
    }

    pub fn read_latency_ns(&self) -> f64 {
        mean(self.read_ns, self.read_ops)
    }

    fn add(&mut self, sum: ImageSum, seconds: f64) {
        let rows: [(&mut f64, u64); 6] = [
            (&mut self.write_ops, sum.write_ops),
            (&mut self.read_ops, sum.read_ops),
            (&mut self.write_bytes, sum.write_bytes),
            (&mut self.read_bytes, sum.read_bytes),
            (&mut self.write_ns, sum.write_latency_ns),
            (&mut self.read_ns, sum.read_latency_ns),
        ];
        for (rate, n) in rows {
            *rate += n as f64 / seconds;
        }
    }
}

fn mean(sum: f64, ops: f64) -> f64 {
    if ops > 0.0 { sum / ops } else { 0.0 }
}

/// The image that an object belongs to, by its name: the pool, if it names one, and the image's id.
pub fn image_of(oid: &[u8]) -> Option<(Option<PoolId>, &[u8])> {
    let rest = oid
        .strip_prefix(b"rbd_data.")
        .or_else(|| oid.strip_prefix(b"journal_data."))?;
    let mut parts = rest.split(|b| *b == b'.');
    let (first, second) = (parts.next()?, parts.next()?);
    match parts.next() {
        None => (!first.is_empty()).then_some((None, first)),
        Some(_) => {
            let pool = std::str::from_utf8(first).ok()?.parse().ok()?;
            (!second.is_empty()).then_some((Some(pool), second))
        }
    }
}

impl ClusterStats {
    /// What clients do to images per second, between the last two reports of each OSD. Images at rest are among it for as
    /// long as OSDs remember them.
    pub fn image_rates(&self) -> BTreeMap<ImageKey, ImageRate> {
        let mut out: BTreeMap<ImageKey, ImageRate> = BTreeMap::new();
        for (id, now) in &self.osds {
            let Some(before) = self.previous.get(id) else {
                continue;
            };
            let Some(seconds) = apart(before, now) else {
                continue;
            };
            for (key, sum) in &now.images {
                let earlier = before.images.get(key).copied().unwrap_or_default();
                let rate = out.entry(key.clone()).or_default();
                rate.add(sum.since(earlier), seconds);
            }
        }
        out
    }

    /// The sums of all OSDs.
    pub fn image_sums(&self) -> BTreeMap<ImageKey, ImageSum> {
        let mut out: BTreeMap<ImageKey, ImageSum> = BTreeMap::new();
        for (key, sum) in self.osds.values().flat_map(|r| &r.images) {
            let all = out.entry(key.clone()).or_default();
            *all = all.plus(*sum);
        }
        out
    }
}

fn apart(before: &OsdReport, now: &OsdReport) -> Option<f64> {
    let (from, to) = (before.stamp.to_duration(), now.stamp.to_duration());
    let seconds = to.saturating_sub(from).as_secs_f64();
    (seconds >= MIN_RATE_SECONDS).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Utime;

    #[test]
    fn an_object_tells_its_image() {
        let check = |oid: &str, want: Option<(Option<i64>, &str)>| {
            let found = image_of(oid.as_bytes());
            let want = want.map(|(pool, id)| (pool, id.as_bytes()));
            assert_eq!(found, want, "{oid}");
        };
        check("rbd_data.10ab.0000000000000001", Some((None, "10ab")));
        check("rbd_data.7.10ab.0000000000000001", Some((Some(7), "10ab")));
        check("journal_data.2.10ab.0", Some((Some(2), "10ab")));
        check("rbd_header.10ab", None);
        check("rbd_data.", None);
        check("rbd_data.10ab", None);
        check("rbd_data..1", None);
        check("rbd_data.x.10ab.1", None);
    }

    #[test]
    fn rates_are_the_difference_of_two_reports() {
        let key = |id: &str| ImageKey {
            pool: 2,
            namespace: String::new(),
            id: id.into(),
        };
        let report = |sec: u32, images: &[(&str, u64, u64)]| OsdReport {
            stamp: Utime { sec, nsec: 0 },
            images: images
                .iter()
                .map(|(id, ops, ns)| {
                    let sum = ImageSum {
                        write_ops: *ops,
                        write_bytes: ops * 4096,
                        write_latency_ns: *ns,
                        ..ImageSum::default()
                    };
                    (key(id), sum)
                })
                .collect(),
            ..OsdReport::default()
        };
        let mut stats = ClusterStats::default();
        stats.note(0, report(10, &[("a", 100, 1000)]));
        assert!(stats.image_rates().is_empty(), "one report is no rate");
        stats.note(0, report(14, &[("a", 140, 5000), ("b", 8, 80)]));
        let rates = stats.image_rates();
        let a = rates[&key("a")];
        assert_eq!(
            (a.write_ops, a.write_bytes, a.write_latency_ns()),
            (10.0, 40_960.0, 100.0)
        );
        // It was not there before: all that it did was since then.
        assert_eq!(rates[&key("b")].write_ops, 2.0);
        stats.note(1, report(10, &[("a", 0, 0)]));
        stats.note(1, report(12, &[("a", 6, 0)]));
        assert_eq!(stats.image_rates()[&key("a")].write_ops, 13.0);
        assert_eq!(stats.image_sums()[&key("a")].write_ops, 146);
        // An OSD began anew.
        stats.note(1, report(14, &[("a", 4, 0)]));
        assert_eq!(stats.image_rates()[&key("a")].write_ops, 12.0);
        stats.note(1, report(16, &[("a", 4, 0)]));
        stats.note(0, report(18, &[("a", 140, 5000)]));
        assert!(stats.image_rates()[&key("a")].is_idle());
    }
}
