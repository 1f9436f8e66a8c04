//! A transaction of the PG on its way: to the store here, and to each member its shard's; and what was set aside for it is let go
//! when all have it.
//!
//! Bounds: [`LET_GO_MAX`] in one transaction; what is set aside follows from what is not confirmed.

use super::member::Member;
use super::{ASIDES_MAX, Shards};
use crate::api::Output;
use crate::backend::Lent;
use crate::backend::erasure::cut::on_shard;
use crate::backend::erasure::undo;
use crate::broken::{self, Rule};
use crate::state::pg::PgState;
use crate::store::{IoError, ObjectStore, Seq};
use messages::osd::SharedTxn;
use messages::osd::peer::PeerBody;
use std::collections::BTreeMap;
use types::{Errno, HObject, ObjectId, Op, OsdId, SPgId, Transaction};

/// Objects let go by one transaction.
const LET_GO_MAX: usize = 64;

/// What was set aside for one transaction, as it is named on every shard.
#[derive(Debug)]
pub(super) struct Aside {
    seq: Seq,
    objects: Vec<HObject>,
}

/// A transaction without what speaks of the log.
fn strip(txn: &Transaction) -> Transaction {
    let of_object = |op: &&Op| !matches!(op, Op::LogAppend { .. } | Op::LogTrim { .. } | Op::SetMeta { .. });
    Transaction {
        collection: txn.collection,
        ops: txn.ops.iter().filter(of_object).cloned().collect(),
    }
}

impl Shards {
    /// `cut`: the transaction of each shard, in their order.
    pub(super) fn submit_cut(
        &mut self,
        mut cut: Vec<Transaction>,
        head: Option<&HObject>,
        lent: &mut Lent<'_>,
    ) -> Result<Seq, Errno> {
        // Before anything is set aside: a learner takes nothing back.
        let bare: Vec<Option<Transaction>> = (0..cut.len())
            .map(|n| self.is_learned(n).then(|| strip(&cut[n])))
            .collect();
        let own = self.own;
        let objects = set_aside_all(&mut cut, own, lent.store).map_err(|e| {
            tracing::error!("pg {}: {e}", lent.pg.id);
            Errno::EIO
        })?;
        let (gone, go) = self.to_let_go();
        for (n, txn) in cut.iter_mut().enumerate() {
            txn.ops.extend(let_go_steps(n, &go));
        }
        let Some(txn) = cut.get(own) else {
            return Err(Errno::EIO);
        };
        let seq = lent.store.submit(txn)?;
        (lent.pg.last_seq, self.newest) = (seq, seq);
        self.drop_asides(gone);
        if !objects.is_empty() {
            self.push_aside(seq, objects);
        }
        // Not only when it is looked at next: until then a burst goes on its way.
        self.crowded |= self.set_aside > ASIDES_MAX;
        self.send_shards(cut, bare, head, seq, lent);
        Ok(seq)
    }

    /// Somebody is being taught this shard.
    fn is_learned(&self, place: usize) -> bool {
        self.members.values().any(|m| m.place == place && m.is_learning())
    }

    fn send_shards(
        &mut self,
        cut: Vec<Transaction>,
        bare: Vec<Option<Transaction>>,
        head: Option<&HObject>,
        seq: Seq,
        lent: &mut Lent<'_>,
    ) {
        let shared = |txn: Transaction| SharedTxn::from(txn);
        let cut: Vec<SharedTxn> = cut.into_iter().map(shared).collect();
        let interval = self.group.interval;
        let mut number = self.last_number;
        for (osd, m) in &mut self.members {
            let keeps = self.group.is_in_sync(*osd) && !m.lost || self.counted.contains(osd);
            let Some(txn) = cut.get(m.place) else { continue };
            let txn = if m.is_full() || keeps {
                number += 1;
                m.sent(number, seq - 1, txn.clone());
                // One that is away, or was just asked, gets it when it has said what it has.
                if !m.is_full() {
                    continue;
                }
                txn.clone()
            } else if head.is_some_and(|h| m.takes_objects(h)) {
                match bare.get(m.place).and_then(Option::as_ref) {
                    Some(bare) if !bare.ops.is_empty() => {
                        number += 1;
                        bare.clone().into()
                    }
                    _ => continue,
                }
            } else {
                continue;
            };
            lent.out.push(Output::Peer {
                to: *osd,
                shard: m.place as i8,
                interval,
                body: PeerBody::Apply { seq: number, txn },
            });
        }
        self.last_number = number;
    }

    // --- what was set aside

    /// What was left aside before the PG was loaded: all of `in_sync` have that.
    pub(super) fn remember_asides(&mut self, pg: &PgState, store: &mut dyn ObjectStore) {
        self.drop_asides(self.asides.len());
        let found = undo::let_go(pg.id, pg.range, pg.log.head(), usize::MAX, store);
        let found = match found {
            Ok(found) => found,
            Err(e) => return tracing::error!("{e}"),
        };
        let objects: Vec<HObject> = found
            .into_iter()
            .filter_map(|op| match op {
                Op::Remove { oid } => Some(oid.object),
                _ => None,
            })
            .collect();
        for objects in objects.chunks(LET_GO_MAX) {
            self.push_aside(pg.last_seq, objects.to_vec());
        }
    }

    fn push_aside(&mut self, seq: Seq, objects: Vec<HObject>) {
        self.set_aside += objects.len();
        self.asides.push_back(Aside { seq, objects });
    }

    fn drop_asides(&mut self, count: usize) {
        let gone = self.asides.drain(..count);
        self.set_aside -= gone.map(|a| a.objects.len()).sum::<usize>();
    }

    /// So many of the oldest, and their objects.
    fn to_let_go(&self) -> (usize, Vec<HObject>) {
        let mut go = Vec::new();
        let mut count = 0;
        for aside in &self.asides {
            let fits = count == 0 || go.len() + aside.objects.len() <= LET_GO_MAX;
            if !fits || aside.seq > self.confirmed {
                break;
            }
            count += 1;
            go.extend(aside.objects.iter().cloned());
        }
        (count, go)
    }

    pub(super) fn has_asides(&self) -> bool {
        !self.asides.is_empty()
    }

    /// Where nothing is written that could take it along.
    pub(super) fn let_go_idle(&mut self, lent: &mut Lent<'_>) {
        let (gone, go) = self.to_let_go();
        if gone == 0 || self.idle_since.replace(lent.pg.last_seq) != Some(lent.pg.last_seq) {
            return;
        }
        let cut: Vec<Transaction> = (0..self.coding.layout.shards())
            .map(|n| Transaction {
                collection: SPgId {
                    shard: n as i8,
                    ..lent.pg.id
                },
                ops: let_go_steps(n, &go),
            })
            .collect();
        let Some(txn) = cut.get(self.own) else { return };
        match lent.store.submit(txn) {
            Ok(seq) => {
                (lent.pg.last_seq, self.newest) = (seq, seq);
                self.drop_asides(gone);
                self.send_shards(cut, Vec::new(), None, seq, lent);
            }
            Err(e) => tracing::warn!("pg {}: what was set aside is not let go: {e}", lent.pg.id),
        }
    }

    // --- what is confirmed

    /// The newest transaction that all of whom it takes have made durable.
    pub(super) fn committed(&self) -> Seq {
        let counted = |osd: &OsdId| self.counted.contains(osd);
        // One that is wanted no more may join all the same, and hears of nothing.
        if self.counted.iter().any(|osd| !self.members.contains_key(osd)) {
            return self.confirmed;
        }
        let required = |osd: &OsdId, m: &Member| {
            // The variant takes k shards for enough.
            let last = m.place + 1 == self.coding.layout.shards();
            let spared = last && broken::is(Rule::EveryShard);
            (self.group.is_in_sync(*osd) || counted(osd)) && !spared
        };
        self.members
            .iter()
            .filter(|(osd, m)| required(osd, m))
            .map(|(_, m)| m.confirmed())
            .fold(self.durable, Seq::min)
    }

    pub(super) fn release_committed(&mut self) {
        // Before it has peered nobody's word counts: what one has another may have to take back.
        if self.peered {
            self.confirmed = self.confirmed.max(self.committed());
        }
    }
}

/// Sets aside on each shard what its transaction changes; the names, which are the same on all.
fn set_aside_all(
    cut: &mut [Transaction],
    own: usize,
    store: &mut dyn ObjectStore,
) -> Result<Vec<HObject>, IoError> {
    let mut known: BTreeMap<HObject, bool> = BTreeMap::new();
    let mut objects: Vec<HObject> = Vec::new();
    for txn in cut {
        let before = txn.ops.len();
        undo::set_aside(txn, &mut |oid: &ObjectId| {
            if let Some(known) = known.get(&oid.object) {
                return Ok(*known);
            }
            let there = store.stat(&on_shard(oid, own))?.is_some();
            known.insert(oid.object.clone(), there);
            Ok(there)
        })?;
        let added = txn.ops.len() - before;
        for op in &txn.ops[..added] {
            let (Op::Clone { dst: oid, .. } | Op::Touch { oid }) = op else {
                continue;
            };
            if !objects.contains(&oid.object) {
                objects.push(oid.object.clone());
            }
        }
    }
    Ok(objects)
}

/// One that is not there is no error.
fn let_go_steps(place: usize, objects: &[HObject]) -> Vec<Op> {
    let shard = undo::aside_of(place as i8);
    let steps = |object: &HObject| {
        let object = object.clone();
        let oid = ObjectId { shard, object };
        [Op::Touch { oid: oid.clone() }, Op::Remove { oid }]
    };
    objects.iter().flat_map(steps).collect()
}
