//! Locks (class `lock`) that somebody was refused, or whose holder lost its watch: what a report names, so that people see who
//! holds an RBD image.
//!
//! Vocabulary: a client is *refused* when it asked for a lock that others hold; a lock's holder is *lost* when its watch on
//! the object has ended without its doing (it went silent, or is blocked) while it held the lock.
//!
//! Invariants: an object without either costs nothing; nothing is looked up that the operation at hand does not touch. An
//! entry goes with the next successful change of the object's locks, and with the object.
//!
//! Bounds: [`LOCKS_MAX`] objects, of each the [`HOLDERS_MAX`] first holders with the first [`COOKIE_BYTES_MAX`] of their cookies; a refusal
//! counts for [`REFUSED_KEPT`]. At the
//! bound the entry that was touched longest ago goes.
//!
//! For people only: a restart, or another primary, forgets all of it.

use bytes::Bytes;
use objclass::LockHolder;
use std::collections::HashMap;
use std::time::Duration;
use types::{EntityName, HObject};

const LOCKS_MAX: usize = 64;
const HOLDERS_MAX: usize = 4;
/// Of a cookie.
const COOKIE_BYTES_MAX: usize = 256;
/// Clients that wait for a lock ask for it again much more often.
const REFUSED_KEPT: Duration = Duration::from_secs(120);

/// The lock that RBD's exclusive-lock feature, and `rbd lock`, use.
pub(crate) const RBD_LOCK: &[u8] = b"rbd_lock";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub by: EntityName,
    pub first: Duration,
    pub last: Duration,
    pub times: u32,
}

#[derive(Debug)]
struct Entry {
    lock: Vec<u8>,
    holders: Vec<LockHolder>,
    refused: Option<Refusal>,
    /// Since when a holder is lost.
    lost: Option<Duration>,
    touched: Duration,
}

/// A holder of a lock, as a report names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockSeen {
    pub object: HObject,
    pub lock: Vec<u8>,
    pub holder: LockHolder,
    /// Whether it watches the object, and if so, whether it is connected.
    pub watches: Option<bool>,
    pub lost: Option<Duration>,
    pub refused: Option<Refusal>,
}

#[derive(Debug, Default)]
pub(crate) struct Locks(HashMap<HObject, Entry>);

impl Locks {
    fn entry(
        &mut self,
        object: &HObject,
        lock: &[u8],
        mut holders: Vec<LockHolder>,
        now: Duration,
    ) -> &mut Entry {
        if !self.0.contains_key(object)
            && self.0.len() >= LOCKS_MAX
            && let Some(oldest) = self
                .0
                .iter()
                .min_by_key(|(_, e)| e.touched)
                .map(|(o, _)| o.clone())
        {
            self.0.remove(&oldest);
        }
        holders.truncate(HOLDERS_MAX);
        for h in &mut holders {
            // A copy: the rest of the attribute need not be kept.
            h.cookie = Bytes::copy_from_slice(&h.cookie[..h.cookie.len().min(COOKIE_BYTES_MAX)]);
        }
        let entry = self.0.entry(object.clone()).or_insert_with(|| Entry {
            lock: lock.to_vec(),
            holders: Vec::new(),
            refused: None,
            lost: None,
            touched: now,
        });
        if entry.lock != lock || entry.holders != holders {
            // Another lock, or another holder: what was before does not count.
            (entry.lock, entry.holders) = (lock.to_vec(), holders);
            (entry.refused, entry.lost) = (None, None);
        }
        entry.touched = now;
        entry
    }

    /// `by` was refused a lock that `holders` have.
    pub fn refused(
        &mut self,
        object: &HObject,
        lock: &[u8],
        holders: Vec<LockHolder>,
        by: EntityName,
        now: Duration,
    ) {
        let entry = self.entry(object, lock, holders, now);
        let refusal = entry.refused.get_or_insert(Refusal {
            by,
            first: now,
            last: now,
            times: 0,
        });
        (refusal.by, refusal.last) = (by, now);
        refusal.times = refusal.times.saturating_add(1);
    }

    /// One of the holders has lost its watch.
    pub fn lost(&mut self, object: &HObject, lock: &[u8], holders: Vec<LockHolder>, now: Duration) {
        self.entry(object, lock, holders, now).lost.get_or_insert(now);
    }

    /// The object's locks changed, or it is gone.
    pub fn forget(&mut self, object: &HObject) {
        if !self.0.is_empty() {
            self.0.remove(object);
        }
    }

    pub fn retain(&mut self, keep: impl Fn(&HObject) -> bool) {
        self.0.retain(|o, _| keep(o));
    }

    /// What there is to tell, at most `max`; `watches` as in [`LockSeen`], by the client's number.
    pub fn seen(
        &self,
        now: Duration,
        max: usize,
        watches: impl Fn(&HObject, i64) -> Option<bool>,
    ) -> Vec<LockSeen> {
        let mut out = Vec::new();
        for (object, entry) in &self.0 {
            let fresh = |r: &&Refusal| now <= r.last + REFUSED_KEPT;
            let refused = entry.refused.as_ref().filter(fresh);
            for holder in &entry.holders {
                let watches = watches(object, holder.entity.num);
                // One that watches again has come back.
                let lost = entry.lost.filter(|_| watches.is_none());
                if out.len() < max && (lost.is_some() || refused.is_some()) {
                    out.push(LockSeen {
                        object: object.clone(),
                        lock: entry.lock.clone(),
                        holder: holder.clone(),
                        watches,
                        lost,
                        refused: refused.cloned(),
                    });
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{EntityAddr, EntityKind};

    fn object(n: usize) -> HObject {
        let none = Bytes::new();
        HObject::new(1, 7, none.clone(), none, format!("o{n}").into(), types::NOSNAP)
    }

    fn holder(client: i64) -> LockHolder {
        LockHolder {
            entity: EntityName::new(EntityKind::Client, client),
            cookie: Bytes::from_static(b"auto 1"),
            addr: EntityAddr::BLANK,
        }
    }

    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn refusals_are_counted_while_they_are_fresh() {
        let (mut l, o, by) = (Locks::default(), object(1), EntityName::client(9));
        l.refused(&o, RBD_LOCK, vec![holder(1)], by, at(10));
        l.refused(&o, RBD_LOCK, vec![holder(1)], by, at(20));
        let seen = l.seen(at(21), 9, |_, _| Some(true));
        let r = seen[0].refused.clone().unwrap();
        assert_eq!(
            (r.first, r.last, r.times, seen[0].watches),
            (at(10), at(20), 2, Some(true))
        );
        assert!(l.seen(at(141), 9, |_, _| Some(true)).is_empty());
        // Another holder: it begins anew.
        l.refused(&o, RBD_LOCK, vec![holder(2)], by, at(30));
        assert_eq!(
            l.seen(at(30), 9, |_, _| None)[0].refused.as_ref().unwrap().times,
            1
        );
        l.forget(&o);
        assert!(l.seen(at(30), 9, |_, _| None).is_empty());
    }

    #[test]
    fn a_lost_holder_stays_until_it_watches_again() {
        let (mut l, o) = (Locks::default(), object(1));
        l.lost(&o, RBD_LOCK, vec![holder(1)], at(10));
        l.lost(&o, RBD_LOCK, vec![holder(1)], at(50));
        assert_eq!(l.seen(at(9000), 9, |_, _| None)[0].lost, Some(at(10)));
        assert!(l.seen(at(9000), 9, |_, n| (n == 1).then_some(true)).is_empty());
    }

    #[test]
    fn there_are_bounds() {
        let mut l = Locks::default();
        for n in 0..1000 {
            let many = (0..100).map(holder).collect();
            l.refused(&object(n), RBD_LOCK, many, EntityName::client(9), at(n as u64));
        }
        assert_eq!(l.0.len(), LOCKS_MAX);
        assert!(l.0.contains_key(&object(999)) && !l.0.contains_key(&object(0)));
        assert_eq!(
            l.seen(at(1000), usize::MAX, |_, _| None).len(),
            LOCKS_MAX * HOLDERS_MAX
        );
        assert_eq!(l.seen(at(1000), 5, |_, _| None).len(), 5);
    }
}
