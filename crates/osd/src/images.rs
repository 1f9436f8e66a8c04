//! What clients do to each image, by the names of the data objects (`cluster::images`).
//!
//! An operation counts when its answer is made, as read, as write, or as both.
//!
//! Bounds: [`IMAGES_MAX`] images. Where that many are known, operations of others are not counted until one of these has
//! been at rest for [`FORGOTTEN_AFTER`]; how many, the counter `image_ops_uncounted` says.

use bytes::Bytes;
use cluster::{IMAGES_MAX, ImageKey, ImageSum, image_of};
use messages::osd::{MOSDOp, flag};
use std::collections::BTreeMap;
use std::time::Duration;
use types::PoolId;

/// Longer than what asks for rates pauses between two questions.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// Pool, namespace, id. Where it rides with an operation it points into that operation's message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pool: PoolId,
    namespace: Bytes,
    id: Bytes,
}

impl Key {
    /// None: it is about no image's data.
    pub fn of(op: &MOSDOp) -> Option<Self> {
        let (pool, id) = image_of(&op.oid)?;
        Some(Self {
            pool: pool.unwrap_or(op.pgid.pg.pool),
            namespace: op.oloc.nspace.clone(),
            id: op.oid.slice_ref(id),
        })
    }

    /// Pool, namespace, id.
    pub fn parts(&self) -> (PoolId, &[u8], &[u8]) {
        (self.pool, &self.namespace, &self.id)
    }

    /// Keeps no message's buffer.
    fn own(&self) -> Self {
        Self {
            pool: self.pool,
            namespace: Bytes::copy_from_slice(&self.namespace),
            id: Bytes::copy_from_slice(&self.id),
        }
    }
}

#[derive(Debug, Default)]
struct Counted {
    sum: ImageSum,
    last: Duration,
}

#[derive(Debug, Default)]
pub struct Images(BTreeMap<Key, Counted>);

/// One operation that has its answer.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub flags: u32,
    pub in_bytes: u64,
    pub out_bytes: u64,
    pub took: Duration,
}

impl Images {
    /// False: there is no room for one more image.
    pub fn count(&mut self, key: &Key, done: Done, now: Duration) -> bool {
        let room = self.0.len() < IMAGES_MAX;
        let counted = match self.0.get_mut(key) {
            Some(counted) => counted,
            None if room => self.0.entry(key.own()).or_default(),
            None => return false,
        };
        counted.last = now;
        let (sum, ns) = (&mut counted.sum, done.took.as_nanos() as u64);
        if done.flags & flag::WRITE != 0 {
            sum.write_ops += 1;
            sum.write_bytes += done.in_bytes;
            sum.write_latency_ns += ns;
        }
        if done.flags & flag::READ != 0 {
            sum.read_ops += 1;
            sum.read_bytes += done.out_bytes;
            sum.read_latency_ns += ns;
        }
        true
    }

    /// Gives up images that have been at rest for long. About once a second.
    pub fn forget(&mut self, now: Duration) {
        self.0.retain(|_, c| now.saturating_sub(c.last) < FORGOTTEN_AFTER);
    }

    pub fn sums(&self) -> BTreeMap<ImageKey, ImageSum> {
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        let key = |k: &Key| ImageKey {
            pool: k.pool,
            namespace: text(&k.namespace),
            id: text(&k.id),
        };
        self.0.iter().map(|(k, c)| (key(k), c.sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: String) -> Key {
        Key {
            pool: 1,
            namespace: Bytes::new(),
            id: id.into(),
        }
    }

    const WRITE: Done = Done {
        flags: flag::WRITE,
        in_bytes: 4096,
        out_bytes: 3,
        took: Duration::from_micros(5),
    };

    #[test]
    fn an_operation_counts_as_what_it_does() {
        let mut images = Images::default();
        let both = Done {
            flags: flag::WRITE | flag::READ,
            ..WRITE
        };
        assert!(images.count(&key("a".into()), WRITE, Duration::ZERO));
        assert!(images.count(&key("a".into()), both, Duration::ZERO));
        let sums: Vec<ImageSum> = images.sums().into_values().collect();
        let want = ImageSum {
            write_ops: 2,
            read_ops: 1,
            write_bytes: 8192,
            read_bytes: 3,
            write_latency_ns: 10_000,
            read_latency_ns: 5000,
        };
        assert_eq!(sums, [want]);
    }

    #[test]
    fn there_is_room_for_so_many_and_again_when_some_have_rested() {
        let mut images = Images::default();
        let at = Duration::from_secs;
        for i in 0..IMAGES_MAX {
            assert!(images.count(&key(i.to_string()), WRITE, at(1)));
        }
        assert!(!images.count(&key("new".into()), WRITE, at(2)));
        assert!(images.count(&key("7".into()), WRITE, at(200)));
        images.forget(at(302));
        assert_eq!(images.sums().len(), 1);
        assert!(images.count(&key("new".into()), WRITE, at(302)));
    }
}
