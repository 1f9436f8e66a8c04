//! A PG on a member that is not its primary: it queues transactions as they come and says when they are durable.
//!
//! Invariants: nothing of an interval below the newest that it knows is accepted. Every answer leaves only when all
//! that was queued before the question is durable, so that what the primary learns here outlives a crash.
//! Answers leave in the order of the questions. After a transaction that was refused none is taken before the primary
//! has asked anew: one that fits would else stand in the log behind one that is missing.
//!
//! Bound: one answer per message of the primary, whose number the connection's budget bounds; [`INFO_DIRTY_MAX`].

use super::answer::Works;
use crate::api::{Context, Output};
use crate::backend::ReadsHere;
use crate::backend::erasure::undo;
use crate::backend::erasure::units::{Answer, Question, UnitReads};
use crate::backend::group::Group;
use crate::backend::steps::{clear_log, objects_of};
use crate::broken::{self, Rule};
use crate::state::log::LogEntry;
use crate::state::meta::PgMeta;
use crate::state::range::HashRange;
use crate::state::versions::list_versions;
use crate::store::{IoError, ObjectStore, Seq};
use denc::{Decode, Encode};
use messages::osd::peer::{PeerBody, PgInfo};
use std::collections::VecDeque;
use types::{EVersion, Epoch, Errno, HObject, ObjectId, Op, OsdId, SPgId, Transaction};

/// More dirty objects than this are not listed: the member counts as incomplete and is filled anew.
const INFO_DIRTY_MAX: usize = 4096;
/// Log entries that outlive a rewind: what one transaction takes.
const REWIND_KEPT: usize = 1200;
/// Objects in one listing.
const SCAN_MAX: u32 = 1024;

#[derive(Debug)]
pub(crate) struct LocalCopy {
    id: SPgId,
    group: Group,
    /// Answers that wait until the store has made so much durable.
    waiting: VecDeque<(Seq, OsdId, Epoch, PeerBody)>,
    durable: Seq,
    /// What the primary's scrub asked.
    pub(crate) works: Works,
    /// What the primary of shards reads here.
    pub(crate) units: UnitReads,
    /// Why a transaction since the last [`PeerBody::Query`] was refused.
    refused: Option<Errno>,
    /// The objects of this PG, as far as this OSD knows of splits; None: all.
    range: Option<HashRange>,
    /// What earlier primaries have let go is let go here, too, as of this interval.
    swept: Epoch,
}

impl LocalCopy {
    pub fn new(id: SPgId, group: Group) -> Self {
        Self {
            id,
            group,
            waiting: VecDeque::new(),
            durable: 0,
            works: Works::default(),
            units: UnitReads::default(),
            refused: None,
            range: None,
            swept: 0,
        }
    }

    /// How many PGs the pool has, as far as this OSD knows.
    pub fn set_pg_num(&mut self, pg_num: u32) {
        self.range = Some(HashRange::of(self.id.pg.seed, pg_num));
    }

    pub fn id(&self) -> SPgId {
        self.id
    }

    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The configuration moved on; same or later interval.
    pub fn set_group(&mut self, group: Group, reads: &mut dyn ReadsHere) {
        if group.interval != self.group.interval || !group.is_in_sync(group.me) {
            reads.forget();
        }
        self.group = group;
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// This OSD has no part in the PG any more, or another one. Who waits for an answer is told that none comes: a primary
    /// that sees this OSD go and come back in one step has kept the connection, and would wait for ever.
    pub fn leave(mut self, ctx: &mut Context<'_>) {
        let known = self.group.interval;
        let mut asked: Vec<(OsdId, Epoch)> = self.waiting.drain(..).map(|(_, to, at, _)| (to, at)).collect();
        asked.extend(self.works.askers().chain(self.units.askers()));
        asked.sort_unstable();
        asked.dedup();
        for (to, interval) in asked {
            if !broken::is(Rule::LeavingIsTold) {
                let body = PeerBody::Stale { known };
                ctx.out.push(Output::Peer {
                    to,
                    shard: self.id.shard,
                    interval,
                    body,
                });
            }
        }
        self.works.leave(ctx.store);
        self.units.leave(ctx.store);
    }

    /// The connection with `osd` has ended: its questions have no answers any more.
    pub fn disconnected(&mut self, osd: OsdId, reads: &mut dyn ReadsHere) {
        self.waiting.retain(|(_, to, ..)| *to != osd);
        if osd == self.group.primary && !broken::is(Rule::Grant) {
            reads.forget();
        }
        self.works.disconnected(osd);
        self.units.disconnected(osd);
    }

    /// Everything up to `seq` is durable here.
    pub fn committed(&mut self, seq: Seq, out: &mut Vec<Output>) {
        self.durable = self.durable.max(seq);
        while let Some((at, ..)) = self.waiting.front() {
            if *at > self.durable {
                break;
            }
            if let Some((_, to, interval, body)) = self.waiting.pop_front() {
                out.push(Output::Peer {
                    to,
                    shard: self.id.shard,
                    interval,
                    body,
                });
            }
        }
    }

    /// A message of `from`, who takes itself for the primary of `interval`.
    /// What it says for reads of this copy is given back.
    pub fn peer(
        &mut self,
        from: OsdId,
        interval: Epoch,
        body: PeerBody,
        reads: &mut dyn ReadsHere,
        ctx: &mut Context<'_>,
    ) -> Option<PeerBody> {
        // Late answers to a primary that is none any more need no answer; two of these would else talk for ever.
        if is_answer(&body) {
            return None;
        }
        let known = self.group.interval;
        let stale = interval < known || (interval == known && from != self.group.primary);
        if stale && !broken::is(Rule::Fence) {
            let body = PeerBody::Stale { known };
            ctx.out.push(Output::Peer {
                to: from,
                shard: self.id.shard,
                interval,
                body,
            });
            return None;
        }
        if interval > known {
            // Our view of the cluster is behind. What the new primary says is true all the same; the old one is
            // refused from now on.
            self.group.interval = interval;
            self.group.primary = from;
            reads.forget();
        }
        let body = match body {
            PeerBody::Granted { .. } | PeerBody::Stable { .. } => return Some(body),
            PeerBody::Scrub(body) => {
                self.scrub_asked(from, interval, body, ctx);
                return None;
            }
            body @ PeerBody::ReadUnits { .. } => return self.units_asked(from, interval, body, ctx),
            body => body,
        };
        let answer = self.handle(body, reads, ctx);
        if let Some(body @ PeerBody::Info(_)) = &answer
            && broken::is(Rule::InfoDurable)
        {
            let body = body.clone();
            ctx.out.push(Output::Peer {
                to: from,
                shard: self.id.shard,
                interval,
                body,
            });
            return None;
        }
        if let Some(body) = answer {
            self.answer_when_durable(from, interval, body, ctx.store);
        }
        None
    }

    /// Nothing of it is for reads of this copy.
    fn units_asked(
        &mut self,
        asker: OsdId,
        interval: Epoch,
        body: PeerBody,
        ctx: &mut Context<'_>,
    ) -> Option<PeerBody> {
        let PeerBody::ReadUnits {
            token,
            object,
            offset,
            len,
        } = body
        else {
            return Some(body);
        };
        let question = Question {
            asker,
            interval,
            token,
            object,
            offset,
            len,
        };
        let answer = self.units.ask(self.id, question, ctx.store);
        self.give_units(answer, ctx);
        None
    }

    /// At once: what the primary makes of units waits for durability by itself.
    pub(crate) fn give_units(&self, answer: Option<Answer>, ctx: &mut Context<'_>) {
        if let Some((to, interval, body)) = answer {
            ctx.out.push(Output::Peer {
                to,
                shard: self.id.shard,
                interval,
                body,
            });
        }
    }

    /// The answer leaves when all that is queued now is durable.
    pub(crate) fn answer_when_durable(
        &mut self,
        to: OsdId,
        interval: Epoch,
        body: PeerBody,
        store: &mut dyn ObjectStore,
    ) {
        self.waiting.push_back((store.submitted(), to, interval, body));
    }

    fn handle(
        &mut self,
        body: PeerBody,
        reads: &mut dyn ReadsHere,
        ctx: &mut Context<'_>,
    ) -> Option<PeerBody> {
        match &body {
            PeerBody::Apply { txn, .. } => reads.coming(txn, ctx.now),
            // Who is asked what it has may be about to be changed, and has no grant until it asks again.
            PeerBody::Query | PeerBody::Rewind { .. } | PeerBody::Reset | PeerBody::Learn { .. } => {
                reads.forget()
            }
            _ => {}
        }
        let store = &mut *ctx.store;
        // A shard takes back what not all have, and is then what it was: nothing is lost by that.
        let undoes = match &body {
            PeerBody::Rewind { .. } => self.id.shard < 0,
            body => matches!(body, PeerBody::Reset | PeerBody::Learn { .. }),
        };
        // Where the log of one from outside the set leads, the others have to give up what theirs has more.
        if undoes && self.may_be_needed_whole(store) && !broken::is(Rule::LongestLeads) {
            tracing::warn!("pg {}: in sync, and not undone", self.id);
            return Some(PeerBody::Stale {
                known: self.group.interval,
            });
        }
        let answer = match body {
            PeerBody::Query => {
                self.refused = None;
                self.clear_scratch(store).and_then(|()| self.info(store))
            }
            PeerBody::Rewind { to } => self.rewind(to, store).and_then(|()| self.info(store)),
            PeerBody::Reset => self.reset(store).and_then(|()| self.info(store)),
            PeerBody::Learn { to } => self.learn(to, store).and_then(|()| self.info(store)),
            PeerBody::Scan { token, from, to, max } => self.scan(token, from, to, max, store),
            PeerBody::Apply { seq, txn } => return Some(self.apply(seq, &txn, reads, store)),
            PeerBody::Info(_)
            | PeerBody::Listing { .. }
            | PeerBody::Applied { .. }
            | PeerBody::Stale { .. }
            | PeerBody::Ask { .. }
            | PeerBody::Granted { .. }
            | PeerBody::Stable { .. }
            | PeerBody::ReadUnits { .. }
            | PeerBody::Units { .. }
            | PeerBody::Scrub(_) => return None,
        };
        match answer {
            Ok(answer) => Some(answer),
            Err(e) => {
                tracing::error!("pg {}: {e}", self.id);
                // Sequence number 0 is no transaction's: the primary takes the member for failed.
                Some(PeerBody::Applied {
                    seq: 0,
                    result: Errno::EIO.code(),
                })
            }
        }
    }

    /// A whole copy of a member of `in_sync` may be the one that is left: it changes in whole steps only.
    fn may_be_needed_whole(&self, store: &mut dyn ObjectStore) -> bool {
        self.group.is_in_sync(self.group.me)
            && matches!(store.meta(self.id), Ok(Some(_)))
            && self.meta(store).is_ok_and(|m| m.complete && m.dirty.is_empty())
    }

    fn apply(
        &mut self,
        seq: u64,
        txn: &Transaction,
        reads: &mut dyn ReadsHere,
        store: &mut dyn ObjectStore,
    ) -> PeerBody {
        let result = match self.refused {
            Some(e) => Err(e),
            None => self.check(txn).and_then(|()| store.submit(txn)),
        };
        if result.is_ok() && self.id.shard >= 0 && self.swept < self.group.interval {
            self.sweep(txn, store);
        }
        if let Err(e) = result
            && !broken::is(Rule::RefusedStays)
            && self.refused.replace(e).is_none()
        {
            tracing::warn!("pg {}: a transaction of the primary was refused: {e}", self.id);
            reads.forget();
        }
        PeerBody::Applied {
            seq,
            result: result.err().map_or(0, |e| e.code()),
        }
    }

    /// A primary lets go by their names what it has set aside itself. What an earlier one let go with a transaction that never came here it
    /// does not know of; but it is older than what is let go now, and entries are let go in their order: all have it.
    fn sweep(&mut self, txn: &Transaction, store: &mut dyn ObjectStore) {
        let (Some(before), Some(range)) = (undo::lets_go(txn), self.range) else {
            return;
        };
        self.swept = self.group.interval;
        loop {
            let done = match undo::sweep(self.id, range, before, store) {
                Ok(Some(txn)) => self.submit(txn, store),
                Ok(None) => return,
                Err(e) => Err(e),
            };
            if let Err(e) = done {
                return tracing::warn!("pg {}: what was set aside is not let go: {e}", self.id);
            }
        }
    }

    /// A transaction names this PG and objects of its pool.
    fn check(&self, txn: &Transaction) -> Result<(), Errno> {
        let ours = |oid: &ObjectId| oid.object.pool == self.id.pg.pool && !oid.object.max;
        let fits = txn.collection == self.id && txn.ops.iter().flat_map(objects_of).all(ours);
        if fits { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn submit(&mut self, txn: Transaction, store: &mut dyn ObjectStore) -> Result<(), IoError> {
        let submitted = store.submit(&txn);
        submitted.map_err(|e| IoError(format!("pg {}: the store refused a change: {e}", self.id)))?;
        Ok(())
    }

    fn meta(&self, store: &mut dyn ObjectStore) -> Result<PgMeta, IoError> {
        match store.meta(self.id)? {
            None => Ok(PgMeta::default()),
            Some(bytes) => {
                let bad = |e| IoError(format!("pg {}: metadata does not decode: {e}", self.id));
                PgMeta::from_bytes(&bytes).map_err(bad)
            }
        }
    }

    /// Whatever was being made here for an earlier question is not gone on with.
    fn clear_scratch(&mut self, store: &mut dyn ObjectStore) -> Result<(), IoError> {
        match self.range {
            Some(range) => super::clear_scratch(self.id, range, store),
            None => Ok(()),
        }
    }

    fn info(&mut self, store: &mut dyn ObjectStore) -> Result<PeerBody, IoError> {
        if !store.has_collection(self.id)? {
            return Ok(PeerBody::Info(PgInfo::default()));
        }
        let had_meta = store.meta(self.id)?.is_some();
        let meta = self.meta(store)?;
        let log = store.log_entries(self.id)?;
        let is_whole = had_meta && meta.complete;
        if log.is_empty() && !is_whole && self.id.shard >= 0 {
            // Of one that was removed in part, or has lost its log: it tells nothing any more.
            self.clear_asides(store)?;
        }
        let version = |e: Option<&(EVersion, bytes::Bytes)>| e.map_or(EVersion::default(), |(v, _)| *v);
        let fits = meta.dirty.len() <= INFO_DIRTY_MAX;
        // Entries of PGs that were split off say nothing of this one, and not every copy has them.
        let bad = |e| IoError(format!("a log entry does not decode: {e}"));
        let mut head = EVersion::default();
        for (version, raw) in log.iter().rev() {
            let ours = match self.range {
                Some(range) => range.contains(LogEntry::from_bytes(raw).map_err(bad)?.object.hash),
                None => true,
            };
            if ours {
                head = *version;
                break;
            }
        }
        Ok(PeerBody::Info(PgInfo {
            exists: true,
            complete: is_whole && fits,
            head,
            tail: version(log.first()),
            dirty: if fits { meta.dirty } else { Vec::new() },
        }))
    }

    /// The entries behind `to` go, their objects are remembered as dirty, all in one transaction. Those of a shard are what they
    /// were.
    fn rewind(&mut self, to: EVersion, store: &mut dyn ObjectStore) -> Result<(), IoError> {
        if self.id.shard >= 0 {
            let range = self.range_of_shard()?;
            let txn = undo::undo(self.id, range, to, store)?;
            return self.submit(txn, store);
        }
        let bad = |e| IoError(format!("a log entry does not decode: {e}"));
        let mut meta = self.meta(store)?;
        let mut txn = Transaction::new(self.id);
        txn.ops.extend(clear_log());
        let entries = store.log_entries(self.id)?;
        let kept = entries.partition_point(|(version, _)| *version <= to);
        for (version, entry) in &entries[..kept.saturating_sub(REWIND_KEPT)] {
            // What it counts for goes into the sums before it goes.
            if version.version > meta.stats.version {
                let entry = LogEntry::from_bytes(entry).map_err(bad)?;
                meta.stats.add(&entry.delta);
                meta.stats.version = version.version;
                meta.stats.user_version = entry.last_user_version;
            }
        }
        for (at, (version, entry)) in entries.into_iter().enumerate() {
            if at < kept {
                if at >= kept.saturating_sub(REWIND_KEPT) {
                    txn.ops.push(Op::LogAppend { version, entry });
                }
                continue;
            }
            let object = LogEntry::from_bytes(&entry).map_err(bad)?.object;
            if !meta.dirty.contains(&object) && !broken::is(Rule::RewoundIsDirty) {
                meta.dirty.push(object);
            }
        }
        if meta.dirty.len() > INFO_DIRTY_MAX {
            return self.reset(store);
        }
        txn.ops.push(Op::SetMeta {
            meta: meta.to_bytes(),
        });
        self.submit(txn, store)
    }

    /// A shard that is to be brought up from `to`: it can take nothing back until it is.
    fn learn(&mut self, to: EVersion, store: &mut dyn ObjectStore) -> Result<(), IoError> {
        let range = self.range_of_shard()?;
        let mut txn = undo::undo(self.id, range, to, store)?;
        txn.ops
            .extend(undo::let_go(self.id, range, to, usize::MAX, store)?);
        let meta = PgMeta {
            complete: false,
            dirty: Vec::new(),
            pg_num: 0,
            ..self.meta(store)?
        };
        txn.ops.push(Op::SetMeta {
            meta: meta.to_bytes(),
        });
        self.submit(txn, store)
    }

    fn range_of_shard(&self) -> Result<HashRange, IoError> {
        let unknown = || IoError(format!("pg {}: its range is not known", self.id));
        match self.id.shard {
            ..0 => Err(IoError(format!("pg {}: a copy has nothing set aside", self.id))),
            _ => self.range.ok_or_else(unknown),
        }
    }

    /// What was set aside for a log that is gone must not be taken for what a later one has set aside.
    fn clear_asides(&mut self, store: &mut dyn ObjectStore) -> Result<(), IoError> {
        let range = self.range_of_shard()?;
        while let Some(txn) = undo::clear(self.id, range, store)? {
            self.submit(txn, store)?;
        }
        Ok(())
    }

    fn reset(&mut self, store: &mut dyn ObjectStore) -> Result<(), IoError> {
        if self.id.shard >= 0 {
            self.clear_asides(store)?;
        }
        let mut txn = Transaction::new(self.id);
        if store.has_collection(self.id)? {
            txn.ops.extend(clear_log());
        } else {
            txn.ops.push(Op::CreateCollection);
        }
        let meta = PgMeta {
            complete: false,
            dirty: Vec::new(),
            ..self.meta(store)?
        };
        txn.ops.push(Op::SetMeta {
            meta: meta.to_bytes(),
        });
        self.submit(txn, store)
    }

    fn scan(
        &mut self,
        token: u64,
        from: HObject,
        to: HObject,
        max: u32,
        store: &mut dyn ObjectStore,
    ) -> Result<PeerBody, IoError> {
        let start = ObjectId {
            shard: self.id.shard,
            object: from,
        };
        let max = max.min(SCAN_MAX) as usize;
        let listed = list_versions(&start, &to, max, store)?;
        let next = listed.1;
        Ok(PeerBody::Listing {
            token,
            items: listed.0,
            next,
        })
    }
}

/// What a member says to its primary.
fn is_answer(body: &PeerBody) -> bool {
    matches!(
        body,
        PeerBody::Info(_)
            | PeerBody::Listing { .. }
            | PeerBody::Applied { .. }
            | PeerBody::Stale { .. }
            | PeerBody::Ask { .. }
            | PeerBody::Units { .. }
    ) || matches!(body, PeerBody::Scrub(body) if body.is_for_primary())
}
