//! Clients' operations that are not answered yet: for `dump_ops_in_flight`, the slow ones of a report, `skep doctor`. And
//! those of the past that were slow ([`history`]).
//!
//! An operation is in the list from its decoding until its permit is dropped, whatever became of it. What it waits for
//! is not written down anywhere: it is read off the state of its PG when somebody asks.
//!
//! Bounds: an entry for each operation in flight, of which `net` has a budget; a report lists [`types::pgstats::SLOW_OPS_MAX`].

pub mod history;
pub mod shown;
pub mod stages;
pub mod traces;

use bytes::Bytes;
use history::{Done, History, Steps};
use messages::osd::{OpCode, code};
use pg::Client;
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::PgId;

/// What is kept of an operation; its text is made when somebody asks.
pub struct LiveOp {
    pub since: Duration,
    pub client: Arc<Client>,
    pub tid: u64,
    pub pg: PgId,
    pub oid: Bytes,
    pub first: Option<OpCode>,
    pub count: usize,
    pub is_write: bool,
    pub reached_pg: Option<Duration>,
}

type ReadOf = (u64, PgId, Bytes);

impl LiveOp {
    fn read_of(&self) -> Option<ReadOf> {
        let is_read = !self.is_write && self.first != Some(code::NOTIFY);
        is_read.then(|| (self.client.instance, self.pg, self.oid.clone()))
    }
}

#[derive(Default)]
struct Inner {
    next: u64,
    live: BTreeMap<u64, LiveOp>,
    /// How many reads there are, by client, PG and object; None: nobody wants to know.
    reads: Option<BTreeMap<ReadOf, u32>>,
    past: History,
}

/// The list; its clones are the same list.
#[derive(Clone, Default)]
pub struct Ops(Rc<RefCell<Inner>>);

/// Keeps one operation in the list.
pub struct InList {
    ops: Ops,
    id: u64,
}

impl InList {
    /// It is handed to its PG.
    pub fn reached_pg(&self, now: Duration) {
        if let Some(op) = self.ops.0.borrow_mut().live.get_mut(&self.id) {
            op.reached_pg = Some(now);
        }
    }

    /// What is kept of it.
    pub fn look<T>(&self, f: impl FnOnce(&LiveOp) -> T) -> Option<T> {
        self.ops.0.borrow().live.get(&self.id).map(f)
    }

    /// Its answer goes out.
    pub fn answered(&self, since: Duration, executed: Option<Duration>, now: Duration) {
        let inner = &mut *self.ops.0.borrow_mut();
        if inner.past.wants(now.saturating_sub(since))
            && let Some(op) = inner.live.get(&self.id)
        {
            inner.past.add(Done {
                text: text(op),
                who: op.client.name,
                addr: op.client.addr,
                tid: op.tid,
                is_write: op.is_write,
                since,
                steps: Steps {
                    reached_pg: op.reached_pg,
                    executed,
                    answered: now,
                },
            });
        }
    }
}

impl Drop for InList {
    fn drop(&mut self) {
        let inner = &mut *self.ops.0.borrow_mut();
        let op = inner.live.remove(&self.id);
        let Some(reads) = &mut inner.reads else { return };
        let read = op.and_then(|op| op.read_of());
        if let Some(Entry::Occupied(mut count)) = read.map(|of| reads.entry(of)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Ops {
    pub fn len(&self) -> usize {
        self.0.borrow().live.len()
    }

    pub fn past(&self) -> RefMut<'_, History> {
        RefMut::map(self.0.borrow_mut(), |inner| &mut inner.past)
    }

    pub fn begin(&self, op: LiveOp) -> InList {
        let mut inner = self.0.borrow_mut();
        inner.next += 1;
        let id = inner.next;
        if let Some(reads) = &mut inner.reads
            && let Some(of) = op.read_of()
        {
            *reads.entry(of).or_default() += 1;
        }
        inner.live.insert(id, op);
        InList {
            ops: self.clone(),
            id,
        }
    }

    /// Begins to count reads, those that are there among them, or ends it.
    pub fn count_reads(&self, wanted: bool) {
        let inner = &mut *self.0.borrow_mut();
        if wanted && inner.reads.is_none() {
            let mut reads = BTreeMap::new();
            for of in inner.live.values().filter_map(LiveOp::read_of) {
                *reads.entry(of).or_default() += 1;
            }
            inner.reads = Some(reads);
        } else if !wanted {
            inner.reads = None;
        }
    }

    /// Whether a client (`pg::Client::instance`) waits for the answer to a read of an object, in the PG that it named. Not
    /// for a notify: that waits for what clients send. False where they are not counted.
    pub fn has_read(&self, client: u64, pg: PgId, oid: &Bytes) -> bool {
        let inner = self.0.borrow();
        let reads = inner.reads.as_ref();
        reads.is_some_and(|reads| reads.contains_key(&(client, pg, oid.clone())))
    }

    /// Older than `age` at `now`, the oldest first, and how many there are.
    fn older<T>(
        &self,
        now: Duration,
        age: Duration,
        max: usize,
        f: impl Fn(&LiveOp) -> T,
    ) -> (Vec<T>, usize) {
        let inner = self.0.borrow();
        // They came in the order of their numbers.
        let old = inner
            .live
            .values()
            .take_while(|op| now.saturating_sub(op.since) >= age);
        let all: Vec<&LiveOp> = old.collect();
        (all.iter().take(max).map(|op| f(op)).collect(), all.len())
    }
}

/// `osd_op(client.4123:17 1.3 rbd_header.1 [notify +2])`
fn text(op: &LiveOp) -> String {
    let first = op.first.and_then(OpCode::name).unwrap_or("?");
    let more = match op.count {
        0 | 1 => String::new(),
        n => format!(" +{}", n - 1),
    };
    let name = String::from_utf8_lossy(&op.oid);
    format!(
        "osd_op({}:{} {} {name} [{first}{more}])",
        op.client.name, op.tid, op.pg
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{EntityAddr, EntityName};

    #[derive(Debug)]
    struct All;
    impl pg::Capabilities for All {
        fn allows(&self, _: &pg::Need<'_>, _: pg::Allow<'_>) -> bool {
            true
        }
    }

    fn op(tid: u64, since: u64) -> LiveOp {
        LiveOp {
            since: Duration::from_secs(since),
            client: Arc::new(Client {
                name: EntityName::new(types::EntityKind::Client, 4123),
                global_id: 4123,
                instance: 4123,
                addr: EntityAddr::BLANK,
                from: None,
                features: 0,
                caps: Arc::new(All),
                fence: pg::Fence::default(),
            }),
            tid,
            pg: PgId::new(1, 3),
            oid: Bytes::from_static(b"rbd_header.1"),
            first: None,
            count: 3,
            is_write: true,
            reached_pg: None,
        }
    }

    #[test]
    fn an_operation_is_listed_until_its_permit_goes() {
        let ops = Ops::default();
        let first = ops.begin(op(1, 10));
        let second = ops.begin(op(2, 19));
        let older = |age: u64| {
            let (tids, n) = ops.older(Duration::from_secs(20), Duration::from_secs(age), 1, |op| op.tid);
            (tids, n)
        };
        assert_eq!(older(5), (vec![1], 1));
        // The list is cut, the number is not.
        assert_eq!(older(0), (vec![1], 2));
        drop(first);
        assert_eq!(older(0), (vec![2], 1));
        drop(second);
        assert_eq!(older(0), (vec![], 0));
    }

    #[test]
    fn what_was_slow_is_told_after_its_answer() {
        let ops = Ops::default();
        let listed = ops.begin(op(7, 10));
        let at = Duration::from_secs;
        listed.reached_pg(at(11));
        listed.answered(at(10), Some(at(12)), at(20));
        drop(listed);
        let past = ops.past();
        let [one] = past.slow()[..] else { panic!() };
        assert_eq!((one.tid, one.took()), (7, at(10)));
        assert_eq!(
            (one.steps.reached_pg, one.steps.executed),
            (Some(at(11)), Some(at(12)))
        );
        assert_eq!(past.recent().len(), 1);
    }

    #[test]
    fn its_text() {
        assert_eq!(text(&op(17, 0)), "osd_op(client.4123:17 1.3 rbd_header.1 [? +2])");
    }
}
