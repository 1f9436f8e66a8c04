//! What the shards of `in_sync` have after a failure, and how all come to have the same.
//!
//! Of those that are whole the lowest newest entry counts ([`undo::common`]): whatever was confirmed lies on all of them. Who has more
//! takes it back: members by the primary's word, the primary before it loads the PG anew. A primary that stays has what its members lack,
//! and sends that instead.
//!
//! Invariant: a store that is empty where the others are not says nothing of what was confirmed: its shard is *lost*, and is made anew.

use super::Shards;
use super::member::{Member, Phase};
use crate::backend::Lent;
use crate::backend::erasure::undo;
use crate::broken::{self, Rule};
use denc::Encode;
use messages::osd::peer::{PeerBody, PgInfo};
use types::{EVersion, Op, OsdId, SPgId, Transaction};

fn is_whole(info: &PgInfo) -> bool {
    info.exists && info.complete && info.dirty.is_empty()
}

impl Shards {
    pub(super) fn heard(&mut self, from: OsdId, info: PgInfo, ctx: &mut Lent<'_>) {
        let Some(m) = self.members.get_mut(&from) else {
            return;
        };
        tracing::debug!(
            "pg {}: osd.{from} has {:?} to {:?}, complete {}, exists {}",
            ctx.pg.id,
            info.tail,
            info.head,
            info.complete,
            info.exists
        );
        match m.phase {
            Phase::Asked { .. } => {
                m.phase = Phase::Heard(info);
                if self.peered && self.group.is_in_sync(from) {
                    self.resume(from, ctx);
                }
            }
            // It has done what it was told.
            Phase::Undoing { learns, .. } => {
                let learns = learns.filter(|to| info.exists && info.head == *to);
                m.phase = Phase::Heard(info);
                if let Some(since) = learns {
                    self.learn_by_log(from, since, ctx);
                }
            }
            _ => {}
        }
    }

    /// One of `in_sync` is here again: it gets what it lacks.
    fn resume(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let Some(m) = self.members.get_mut(&osd) else {
            return;
        };
        let Phase::Heard(info) = &m.phase else { return };
        if !is_whole(info) || !m.can_resume(info.head) {
            if !m.lost {
                tracing::error!(
                    "pg {}: osd.{osd} is in sync and does not have what it has confirmed: its shard counts as lost",
                    ctx.pg.id
                );
            }
            m.lost = true;
            return;
        }
        let head = info.head;
        for (seq, txn) in m.resume(head) {
            self.send_to(osd, PeerBody::Apply { seq, txn }, ctx);
        }
    }

    /// Why the PG does not peer: once, although it is looked at ten times a second.
    fn say_stuck(&mut self, why: String, ctx: &Lent<'_>) {
        if self.stuck != why {
            tracing::error!("pg {}: {why}", ctx.pg.id);
            self.stuck = why;
        }
    }

    /// The others of `in_sync`, each with what it has said; None: not all were heard.
    fn all_heard(&self) -> Option<Vec<(OsdId, PgInfo)>> {
        let others = self.group.in_sync.iter().filter(|o| **o != self.group.me);
        let heard = |osd: &OsdId| match self.members.get(osd).map(|m| &m.phase) {
            Some(Phase::Heard(info)) => Some((*osd, info.clone())),
            _ => None,
        };
        others.map(heard).collect()
    }

    /// Once all of `in_sync` have been heard: all are to have the same.
    pub(super) fn try_to_peer(&mut self, ctx: &mut Lent<'_>) {
        let group = &self.group;
        if self.peered || self.reloading || !group.is_primary() || !group.is_in_sync(group.me) {
            return;
        }
        let Some(heard) = self.all_heard() else { return };
        let mine = ctx.pg.log.head();
        let empty = ctx.pg.log.len() == 0 && ctx.pg.meta.stats.version == 0;
        // One that was being made anew has nothing to give, and is no sign of a new PG.
        let has_some = |(_, info): &(OsdId, PgInfo)| info.head != EVersion::default();
        let fresh = empty && !heard.iter().any(has_some);
        let unsure = !ctx.pg.meta.complete || self.born && empty;
        if unsure && !fresh {
            return self.is_lost_here(&heard, ctx);
        }
        if !self.is_complete_here(ctx) {
            return;
        }
        let mut whole = Vec::new();
        for (osd, info) in heard {
            match is_whole(&info) {
                true => whole.push((osd, info.head)),
                false if fresh => self.make_fresh(osd, info.exists, ctx),
                false => self.note_lost(osd, ctx),
            }
        }
        if !fresh && whole.len() + 1 < self.coding.layout.k() {
            let (left, needed) = (whole.len() + 1, self.coding.layout.k());
            return self.say_stuck(
                format!("{left} shards are left, of which {needed} are needed"),
                ctx,
            );
        }
        if self.take_back(mine, &whole, ctx) {
            return;
        }
        self.peered = true;
        tracing::debug!("pg {}: peered in interval {}", ctx.pg.id, self.group.interval);
        let last = ctx.pg.last_seq;
        for (osd, head) in whole {
            match self.members.get_mut(&osd) {
                Some(m) if m.can_resume(head) => self.resume(osd, ctx),
                Some(m) => m.become_full(last, mine),
                None => {}
            }
        }
        self.remember_asides(ctx.pg, ctx.store);
    }

    /// Before a transaction of a new PG goes on its way the shard here is one that tells what was confirmed.
    fn is_complete_here(&mut self, ctx: &mut Lent<'_>) -> bool {
        if std::mem::replace(&mut ctx.pg.meta.complete, true) {
            return true;
        }
        let mut txn = Transaction::new(ctx.pg.id);
        txn.ops.push(ctx.pg.meta_op());
        match ctx.store.submit(&txn) {
            Ok(seq) => ctx.pg.last_seq = seq,
            Err(e) => {
                self.say_stuck(format!("that it is new is not written down: {e}"), ctx);
                ctx.pg.meta.complete = false;
            }
        }
        ctx.pg.meta.complete
    }

    /// True if something has to be taken back first, by members or here.
    fn take_back(&mut self, mine: EVersion, whole: &[(OsdId, EVersion)], ctx: &mut Lent<'_>) -> bool {
        if broken::is(Rule::UndoneAtPeering) {
            return false;
        }
        // Those that this primary itself can send what they lack.
        let stays = |osd: &OsdId, head: EVersion| {
            head <= mine && self.members.get(osd).is_some_and(|m| m.can_resume(head))
        };
        let others = whole.iter().filter(|(osd, head)| !stays(osd, *head));
        let mut heads: Vec<EVersion> = others.map(|(_, head)| *head).collect();
        heads.push(mine);
        let Some(common) = undo::common(&heads) else {
            return false;
        };
        let mut waits = false;
        for (osd, head) in whole {
            if *head > common {
                tracing::info!("pg {}: osd.{osd} takes back what is behind {common:?}", ctx.pg.id);
                self.undo(*osd, PeerBody::Rewind { to: common }, None, ctx);
                waits = true;
            }
        }
        if mine > common {
            self.take_back_here(common, ctx);
            waits = true;
        }
        waits
    }

    fn take_back_here(&mut self, to: EVersion, ctx: &mut Lent<'_>) {
        let (id, range) = (ctx.pg.id, ctx.pg.range);
        let done = undo::undo(id, range, to, ctx.store).map_err(|e| e.to_string());
        let done = done.and_then(|txn| ctx.store.submit(&txn).map_err(|e| e.to_string()));
        match done {
            Ok(seq) => {
                tracing::info!("pg {id}: what is behind {to:?} is taken back");
                ctx.pg.last_seq = seq;
                self.reloading = true;
                ctx.front.reload();
            }
            Err(e) => self.say_stuck(format!("what not all have cannot be taken back: {e}"), ctx),
        }
    }

    /// What the PG remembers is what is in the store.
    pub(super) fn loaded_anew(&mut self, ctx: &mut Lent<'_>) {
        self.reloading = false;
        // What was kept for members speaks of what is no more.
        self.members.values_mut().for_each(Member::keep_nothing);
        self.review(ctx);
    }

    pub(super) fn undo(&mut self, osd: OsdId, body: PeerBody, learns: Option<EVersion>, ctx: &mut Lent<'_>) {
        if let Some(m) = self.members.get_mut(&osd) {
            m.phase = Phase::Undoing { at: ctx.now, learns };
            self.send_to(osd, body, ctx);
        }
    }

    /// Nobody has anything of it: the members make their collections.
    fn make_fresh(&mut self, osd: OsdId, exists: bool, ctx: &mut Lent<'_>) {
        let number = self.next_number();
        let (last, head) = (ctx.pg.last_seq, ctx.pg.log.head());
        let Some(m) = self.members.get_mut(&osd) else {
            return;
        };
        let mut txn = Transaction::new(SPgId {
            shard: m.place as i8,
            ..ctx.pg.id
        });
        if !exists {
            txn.ops.push(Op::CreateCollection);
        }
        let meta = crate::state::meta::PgMeta {
            complete: true,
            dirty: Vec::new(),
            ..ctx.pg.meta.clone()
        };
        txn.ops.push(Op::SetMeta {
            meta: meta.to_bytes(),
        });
        m.become_full_with(number, last, head);
        let txn = txn.into();
        self.send_to(osd, PeerBody::Apply { seq: number, txn }, ctx);
    }

    fn note_lost(&mut self, osd: OsdId, ctx: &mut Lent<'_>) {
        let Some(m) = self.members.get_mut(&osd) else {
            return;
        };
        if !std::mem::replace(&mut m.lost, true) {
            tracing::error!(
                "pg {}: osd.{osd} is in sync and does not have its shard: it is made anew",
                ctx.pg.id
            );
        }
    }

    /// This OSD's shard is gone, or was never made whole: who has his leads.
    fn is_lost_here(&mut self, heard: &[(OsdId, PgInfo)], ctx: &mut Lent<'_>) {
        let whole = heard.iter().filter(|(_, info)| is_whole(info));
        let Some((next, _)) = whole.max_by_key(|(_, info)| info.head) else {
            return self.say_stuck("nobody has a shard that is whole".into(), ctx);
        };
        if std::mem::replace(&mut ctx.pg.meta.complete, false) {
            tracing::error!("pg {}: the shard here is lost: osd.{next} is to lead", ctx.pg.id);
            let mut txn = Transaction::new(ctx.pg.id);
            txn.ops.push(ctx.pg.meta_op());
            match ctx.store.submit(&txn) {
                Ok(seq) => ctx.pg.last_seq = seq,
                Err(e) => return self.say_stuck(format!("that it is lost is not written down: {e}"), ctx),
            }
        }
        self.yield_to(*next, ctx);
    }

    /// Those that were heard and are to learn.
    pub(super) fn begin_learners(&mut self, ctx: &mut Lent<'_>) {
        if !self.peered || self.reloading {
            return;
        }
        let waits = |(osd, m): &(&OsdId, &Member)| {
            let learns = !self.group.is_in_sync(**osd) || m.lost;
            learns && matches!(m.phase, Phase::Heard(_)) && !self.counted.contains(osd)
        };
        let heard: Vec<OsdId> = self.members.iter().filter(waits).map(|(o, _)| *o).collect();
        for osd in heard {
            self.begin_learning(osd, ctx);
        }
        // Counted ones are not touched before the outcome is known, unless they go on where they were.
        let counted: Vec<OsdId> = self.counted.iter().copied().collect();
        for osd in counted {
            if let Some(m) = self.members.get(&osd)
                && let Phase::Heard(info) = &m.phase
                && is_whole(info)
                && m.can_resume(info.head)
            {
                self.resume(osd, ctx);
            }
        }
    }
}
