//! A member of `in_sync` that is behind: one transaction takes it from the prefix of the log that it has to where the
//! primary is, so that its log never says more, or less, than its objects hold. It may become primary at any time.
//!
//! What it lacks are writes that nobody was answered for yet, hence few: about as many as clients have in flight.
//! Where they come to more than one transaction may hold, the member is caught up object by object instead, as a
//! learner is; only if the primary dies in the middle of that may an unanswered write show itself there.

use super::Replicated;
use super::copy::{copy_steps, weight};
use super::member::Phase;
use super::member::resync::Resync;
use crate::backend::Lent;
use crate::broken::{self, Rule};
use crate::state::log::LogEntry;
use crate::state::versions::Versions;
use crate::store::IoError;
use denc::Encode;
use messages::osd::peer::{PeerBody, PgInfo};
use std::collections::BTreeSet;
use types::{EVersion, HObject, Op, OsdId, Transaction};

/// The most that goes into the one transaction: a store takes records of a quarter of its log, 16 MiB.
const RESYNC_BYTES_MAX: u64 = 12 << 20;
/// Versions of one object.
const UNIT_MAX: u32 = 1024;

impl Replicated {
    pub(super) fn begin_resync(&mut self, osd: OsdId, since: EVersion, ctx: &mut Lent<'_>) {
        if let Some(m) = self.members.get_mut(&osd) {
            m.phase = Phase::Resync(Resync::new(since));
            self.resync_step(osd, ctx);
        }
    }

    pub(super) fn go_on_resyncing(&mut self, ctx: &mut Lent<'_>) {
        let ids: Vec<OsdId> = self
            .members
            .iter()
            .filter(|(_, m)| matches!(&m.phase, Phase::Resync(r) if r.asked.is_empty()))
            .map(|(osd, _)| *osd)
            .collect();
        ids.into_iter().for_each(|osd| self.resync_step(osd, ctx));
    }

    /// An answer to a question about one object; false if it was not a resync's.
    pub(super) fn resync_listed(&mut self, from: OsdId, token: u64, items: &Versions) -> bool {
        let Some(Phase::Resync(r)) = self.members.get_mut(&from).map(|m| &mut m.phase) else {
            return false;
        };
        let Some(head) = r.asked.remove(&token) else {
            return false;
        };
        r.listings.insert(head, items.clone());
        true
    }

    /// Asks for what is not known yet; when all is, sends the one transaction.
    fn resync_step(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let entries = match ctx.pg.log_since(None, ctx.store) {
            Ok(entries) => entries,
            Err(e) => return tracing::error!("pg {}: {e}", ctx.pg.id),
        };
        let Some(Phase::Resync(r)) = self.members.get(&osd).map(|m| &m.phase) else {
            return;
        };
        let since = r.since;
        if !ctx.pg.log.goes_on_from(since) {
            // Its place was trimmed away while it was gone.
            return self.resync_object_by_object(osd, since, ctx);
        }
        let range = ctx.pg.range;
        let changed: BTreeSet<HObject> = entries
            .iter()
            .filter(|e| e.version > since && range.contains(e.object.hash))
            .map(|e| e.object.clone())
            .collect();
        let known = |h: &HObject| r.listings.contains_key(h) || r.asked.values().any(|a| a == h);
        let missing: Vec<HObject> = changed.iter().filter(|h| !known(h)).cloned().collect();
        if missing.is_empty() && r.asked.is_empty() {
            return self.resync_send(osd, &changed, &entries, ctx);
        }
        for head in missing {
            let token = self.next_number();
            let body = PeerBody::Scan {
                token,
                from: head.with_snap(0),
                to: head.clone(),
                max: UNIT_MAX,
            };
            self.send_to(osd, body, ctx);
            if let Some(Phase::Resync(r)) = self.members.get_mut(&osd).map(|m| &mut m.phase) {
                r.asked.insert(token, head);
            }
        }
    }

    fn resync_send(
        &mut self,
        osd: OsdId,
        changed: &BTreeSet<HObject>,
        entries: &[LogEntry],
        ctx: &mut Lent<'_>,
    ) {
        match self.resync_txn(osd, changed, entries, ctx) {
            Ok(Some(txn)) => {
                let number = self.next_number();
                self.send_to(
                    osd,
                    PeerBody::Apply {
                        seq: number,
                        txn: txn.into(),
                    },
                    ctx,
                );
                if let Some(m) = self.members.get_mut(&osd) {
                    m.become_full_with(number);
                }
            }
            Ok(None) => {
                let since = match self.members.get(&osd).map(|m| &m.phase) {
                    Some(Phase::Resync(r)) => r.since,
                    _ => return,
                };
                self.resync_object_by_object(osd, since, ctx);
            }
            Err(e) => {
                tracing::error!("pg {}: {e}", ctx.pg.id);
                self.fail(osd, "cannot be given what cannot be read here", ctx);
                self.give_up_the_lead(osd, ctx);
            }
        }
    }

    /// What `osd` lacks cannot be read here, nobody else has it, and the PG cannot go on without `osd`: it leads, for it has everything
    /// that anybody was answered for. The copy here counts as incomplete from now on: all its objects are compared, those that
    /// cannot be read are written anew, and writes that only it has are undone.
    fn give_up_the_lead(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let group = &self.group;
        let others: Vec<OsdId> = group.in_sync.iter().copied().filter(|o| *o != group.me).collect();
        let needed = group.in_sync.len() <= group.min_size as usize;
        if !self.peered || !needed || others.iter().any(|o| self.is_full(*o)) {
            return;
        }
        ctx.pg.meta.complete = false;
        let mut txn = Transaction::new(ctx.pg.id);
        txn.ops.push(ctx.pg.meta_op());
        match ctx.store.submit(&txn) {
            Ok(seq) => ctx.pg.last_seq = seq,
            Err(_) => {
                ctx.pg.meta.complete = true;
                return;
            }
        }
        tracing::warn!(
            "pg {}: osd.{osd} is to lead: the copy here is not whole",
            ctx.pg.id
        );
        // Peering anew finds that theirs is better.
        self.peered = false;
        for osd in others {
            self.lose(osd, ctx);
            if self.connected.contains(&osd) {
                self.ask(osd, ctx);
            }
        }
    }

    fn resync_object_by_object(&mut self, osd: OsdId, since: EVersion, ctx: &mut Lent<'_>) {
        tracing::warn!("pg {}: osd.{osd} lacks too much for one transaction", ctx.pg.id);
        let info = PgInfo {
            exists: true,
            complete: true,
            head: since,
            tail: since,
            dirty: Vec::new(),
        };
        self.begin_catching_up(osd, info, ctx);
    }

    /// What the member needs of one object; whole where what it has cannot be read there.
    pub(super) fn copy_steps_for(
        &self,
        osd: OsdId,
        head: &HObject,
        theirs: &Versions,
        entries: &[LogEntry],
        ctx: &mut Lent<'_>,
    ) -> Result<Vec<Op>, IoError> {
        if !self.members.get(&osd).is_some_and(|m| m.damaged) {
            return copy_steps(head, theirs, entries, ctx.pg, ctx.store);
        }
        let unknown = |(o, _): &(HObject, EVersion)| (o.clone(), EVersion::default());
        let theirs: Versions = theirs.iter().map(unknown).collect();
        copy_steps(head, &theirs, &[], ctx.pg, ctx.store)
    }

    /// All that the member lacks. `None`: too much.
    fn resync_txn(
        &self,
        osd: OsdId,
        changed: &BTreeSet<HObject>,
        entries: &[LogEntry],
        ctx: &mut Lent<'_>,
    ) -> Result<Option<Transaction>, IoError> {
        let Some(Phase::Resync(r)) = self.members.get(&osd).map(|m| &m.phase) else {
            return Ok(None);
        };
        let mut txn = Transaction::new(ctx.pg.id);
        let mut bytes = 0;
        let short = usize::from(broken::is(Rule::ResyncWhole));
        for head in changed.iter().skip(short) {
            let theirs = &r.listings[head];
            let ops = self.copy_steps_for(osd, head, theirs, entries, ctx)?;
            bytes += ops.iter().map(weight).sum::<u64>();
            if bytes > RESYNC_BYTES_MAX {
                return Ok(None);
            }
            txn.ops.extend(ops);
        }
        // Not those of PGs that were split off: it does not get their objects with them, and one that makes such a PG out
        // of this log would take them for there.
        let ours = |e: &&LogEntry| e.version > r.since && ctx.pg.range.contains(e.object.hash);
        for e in entries.iter().filter(ours) {
            txn.ops.push(Op::LogAppend {
                version: e.version,
                entry: e.to_bytes(),
            });
        }
        txn.ops.push(ctx.pg.meta_op());
        Ok(Some(txn))
    }
}
