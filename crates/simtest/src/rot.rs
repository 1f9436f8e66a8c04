//! What bits that flip may cost: the rule, and to which placement groups it applies.
//!
//! The rule: bits flip on one disk of a run. As long as anybody else is in sync, every object has a copy that is whole: no
//! client is told EIO, and in the end all copies can be read and are equal. A placement group is *exposed* if from the
//! first flip on there was a moment at which that disk's OSD was its whole in-sync set; of shards, one of no more than there are of data. Of an exposed one an
//! operation may end with EIO; and in the end it may be unclean, since what nobody can read cannot be copied. One that is
//! clean in the end has no such excuse: whoever came into the set has all of it.
//!
//! Not here: who flips bits (`chaos`).

use crate::places::{PGS_MAX, POOL};
use cluster::{ClusterState, PgConfig};
use io_sim::Trace;
use metastore::ClusterHandle;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use types::pool::PgPool;
use types::{OsdId, PgId};

/// Objects by the ends of their hashes, which are enough to tell in which PG they are or ever were.
#[derive(Debug, Default)]
struct Exposed(BTreeSet<u32>);

impl Exposed {
    fn of(pool: &PgPool, pg: PgId) -> impl Iterator<Item = u32> {
        (0..PGS_MAX).filter(move |end| pool.raw_to_pg(*end) == pg.seed)
    }

    /// False: they were known to be.
    fn add(&mut self, pool: &PgPool, pg: PgId) -> bool {
        let known = self.0.len();
        self.0.extend(Self::of(pool, pg));
        self.0.len() > known
    }

    /// It has objects that were in such a PG.
    fn holds(&self, pool: &PgPool, pg: PgId) -> bool {
        Self::of(pool, pg).any(|end| self.0.contains(&end))
    }
}

pub struct Rot {
    trace: Trace,
    view: ClusterHandle,
    osd: Cell<Option<OsdId>>,
    bits: Cell<u64>,
    exposed: RefCell<Exposed>,
}

impl Rot {
    /// Follows the cluster state from now on.
    pub fn watch(view: &ClusterHandle, trace: &Trace) -> Rc<Self> {
        let rot = Rc::new(Self {
            trace: trace.clone(),
            view: view.clone(),
            osd: Cell::new(None),
            bits: Cell::new(0),
            exposed: RefCell::default(),
        });
        let (heeding, mut states) = (rot.clone(), view.subscribe_state());
        tokio::task::spawn_local(async move {
            while states.changed().await.is_ok() {
                let state = states.borrow_and_update().clone();
                heeding.heed(&state);
            }
        });
        rot
    }

    /// Bits of this OSD's disk flip now.
    pub fn flipped(&self, osd: OsdId, bits: u64) {
        debug_assert!(self.osd.get().is_none_or(|o| o == osd), "one disk rots in a run");
        self.osd.set(Some(osd));
        self.bits.set(self.bits.get() + bits);
        self.heed(&self.view.state());
    }

    /// Whose disk rots.
    pub fn osd(&self) -> Option<OsdId> {
        self.osd.get()
    }

    pub fn bits(&self) -> u64 {
        self.bits.get()
    }

    fn heed(&self, state: &ClusterState) {
        let (Some(osd), Some(pool)) = (self.osd.get(), state.osdmap.pool(POOL)) else {
            return;
        };
        for pg in state.osdmap.pgs().filter(|pg| pg.pool == POOL) {
            let enough = usize::from(state.osdmap.enough(pool));
            let needed = |c: &PgConfig| c.in_sync.contains(&osd) && c.in_sync.len() <= enough;
            let alone = state.pgs.get(pg).is_some_and(needed);
            if alone && self.exposed.borrow_mut().add(pool, pg) {
                self.trace.note(format_args!(
                    "{pg} is exposed: in sync on osd.{osd} and too few others"
                ));
            }
        }
    }

    pub fn excuses(&self, pg: PgId) -> bool {
        let map = self.view.osdmap();
        map.pool(POOL)
            .is_some_and(|pool| self.exposed.borrow().holds(pool, pg))
    }

    pub fn excuses_object(&self, oid: &str) -> bool {
        let map = self.view.osdmap();
        let pg = map.object_to_pg(POOL, b"", b"", oid.as_bytes());
        pg.is_some_and(|(_, pg)| self.excuses(pg))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_off_an_exposed_group_or_takes_it_in_is_exposed_and_nothing_else() {
        let of = |pg_num| PgPool {
            pg_num,
            ..PgPool::default()
        };
        let mut exposed = Exposed::default();
        assert!(exposed.add(&of(4), PgId::new(POOL, 1)));
        assert!(!exposed.add(&of(8), PgId::new(POOL, 5)));
        let held = |pg_num| -> Vec<u32> {
            let pg = |seed: &u32| PgId::new(POOL, *seed);
            let holds = |seed: &u32| exposed.holds(&of(pg_num), pg(seed));
            (0..pg_num).filter(holds).collect()
        };
        assert_eq!(held(16), [1, 5, 9, 13]);
        assert_eq!(held(6), [1, 5]);
        assert_eq!(held(2), [1]);
        assert_eq!(held(1), [0]);
    }
}
