//! The placement groups that this OSD has a part in: as a primary or as a member, whichever the configuration says.
//!
//! Invariants: a slot's role and configuration are those of the newest cluster state that the loop has seen; a PG that
//! this OSD begins to lead is loaded from the store. PGs are visited in the order of their ids.
//!
//! A slot is that of a shard: of a PG of copies an OSD has one, under the shard -1; of a PG of shards it may have several, of
//! which one at most leads. What concerns a PG as a whole goes to the slot that leads it ([`Osd::leading`]).

use crate::activity::Activity;
use crate::health::PgHealth;
use crate::osd::Osd;
use crate::slot::{Role, Slot};
use messages::osd::peer::PeerBody;
use net::ConnId;
use pg::broken::{self, Rule};
use pg::{Context, Group, Input, Kin, Output, Pg, Replica};
use std::collections::BTreeMap;
use types::pgstats::pg_state;
use types::{Epoch, Errno, OsdId, PgId, SPgId, Utime};

/// Room for outputs of one step that is kept for the next.
const OUT_KEPT: usize = 256;

impl Osd {
    /// Brings the slots in step with the newest state: roles, configurations, pools. True if a PG that this OSD led
    /// has another configuration now.
    pub fn settle_slots(&mut self) -> bool {
        let moved = self.slots.iter().any(|(pg, slot)| {
            matches!(slot.role, Role::Primary(_)) && self.placement.group(*pg) != Some(&slot.group)
        });
        for pg in self.slots.keys().copied().collect::<Vec<_>>() {
            if self.placement.group(pg).is_none() {
                self.forget(pg);
            }
        }
        for (pg, group) in self.placement.groups().clone() {
            self.settle_slot(pg, group);
        }
        self.share_memory();
        self.heed_qos(true);
        moved
    }

    /// Takes down which PGs are clean in the epoch of now. Whether a member has everything only its primary knows; another
    /// OSD goes by the configuration.
    pub fn note_clean(&mut self) {
        let epoch = self.placement.epoch();
        let map = self.placement.state.osdmap.clone();
        for slot in self.slots.values_mut() {
            let clean = match &slot.role {
                Role::Primary(pg) => PgHealth::of(pg, &map).state & pg_state::CLEAN != 0,
                Role::Replica(_) => slot.group.is_whole(),
            };
            if clean {
                slot.last_clean = epoch;
            }
        }
    }

    fn settle_slot(&mut self, pg: SPgId, group: Group) {
        let pg_num = self.placement.pool(pg.pg.pool).map_or(1, |p| p.pg_num);
        let leads = self.placement.leads(pg);
        let merged_in = self.placement.merged_in(pg.pg);
        let Some(slot) = self.slots.get_mut(&pg) else {
            return self.take_on(pg, group);
        };
        // Another PG came into it: it begins anew with what is on the disk then.
        let merged = slot.merged_in != merged_in;
        let same = slot.group == group;
        match &mut slot.role {
            Role::Primary(_) if leads && !merged => {
                slot.group = group.clone();
                if let Some(view) = self.placement.pool(pg.pg.pool).cloned()
                    && self.led(pg).is_some_and(|p| p.pool().epoch != view.epoch)
                {
                    self.drive(pg, Input::MapChanged(view));
                }
                if !same {
                    self.drive(pg, Input::Group(Box::new(group)));
                }
            }
            Role::Replica(replica) if !leads && !merged => {
                slot.group = group.clone();
                replica.set_pg_num(pg_num);
                // A primary of a newer interval may have been here before the news of it.
                if group.interval >= replica.group().interval {
                    replica.set_group(group);
                }
            }
            _ => {
                let last_clean = slot.last_clean;
                self.forget(pg);
                self.take_on(pg, group);
                if let Some(slot) = self.slots.get_mut(&pg) {
                    slot.last_clean = last_clean;
                }
            }
        }
    }

    /// Begins to be what the configuration says.
    fn take_on(&mut self, pg: SPgId, group: Group) {
        if !self.bring_to_life(pg) {
            return;
        }
        let role = match self.placement.leads(pg) {
            true => self.load(pg).map(|pg| Role::Primary(Box::new(pg))),
            false => Some(self.replica(pg, group.clone())),
        };
        let Some(role) = role else { return };
        let primary = matches!(role, Role::Primary(_));
        let kin = match &role {
            Role::Primary(p) => self.kin_of(p),
            Role::Replica(_) => None,
        };
        let peers: Vec<OsdId> = self.links.open().collect();
        let slot = Slot {
            role,
            group: group.clone(),
            led_after: self.placement.led_after(pg.pg),
            merged_in: self.placement.merged_in(pg.pg),
            recovered: (0, 0),
            last_clean: 0,
            kin,
            timer: None,
            activity: Activity::default(),
        };
        self.slots.insert(pg, slot);
        if primary {
            self.drive(pg, Input::Group(Box::new(group)));
            for peer in peers {
                self.drive(pg, Input::PeerUp(peer));
            }
        }
    }

    /// Merges are carried out here before anybody looks at the copy.
    fn bring_to_life(&mut self, pg: SPgId) -> bool {
        let Some(view) = self.placement.pool(pg.pg.pool).cloned() else {
            return true;
        };
        match pg::bring_to_life(pg, &view, self.id, &mut self.store) {
            Ok(()) => true,
            Err(e) => {
                tracing::error!("a merge cannot be carried out here: {e}");
                false
            }
        }
    }

    fn replica(&self, pg: SPgId, group: Group) -> Role {
        let mut replica = Replica::new(pg, group);
        if let Some(pool) = self.placement.pool(pg.pg.pool) {
            replica.set_pg_num(pool.pg_num);
        }
        Role::Replica(Box::new(replica))
    }

    /// The PG that one was split off from with the newest map, if this OSD leads both, and its full members.
    fn kin_of(&self, born: &Pg) -> Option<(SPgId, Kin)> {
        let epoch = self.placement.epoch();
        if born.born_in() != Some(epoch) {
            return None;
        }
        let old = pg::ancestors(born.id()).find_map(|a| {
            let old = self.led(a)?;
            (old.split_in() == Some(epoch)).then_some(old)
        })?;
        Some((old.id(), old.kin()))
    }

    /// A member's answer to a PG that this OSD leads.
    pub fn on_pg_answer(&mut self, pg: SPgId, (from, shard): (OsdId, i8), interval: Epoch, body: PeerBody) {
        if let PeerBody::Info(info) = &body
            && !info.exists
            && let Some((old, kin)) = self.slots.get(&pg).and_then(|s| s.kin.as_ref())
            && kin.has(from)
            && self.led(*old).is_some_and(|old| old.has_kept(kin))
        {
            self.drive(pg, Input::SplitSibling(from));
        }
        let said = Input::Peer {
            from,
            shard,
            interval,
            body,
        };
        self.drive(pg, said);
    }

    /// Loads a PG that this OSD is to lead and that could not be loaded before; its slot, if there is one then.
    pub fn retry_load(&mut self, pg: PgId) -> Option<SPgId> {
        let slot = self.placement.lead(pg)?;
        if let Some(group) = self.placement.group(slot).cloned()
            && !self.slots.contains_key(&slot)
        {
            self.take_on(slot, group);
        }
        self.slots.contains_key(&slot).then_some(slot)
    }

    fn load(&mut self, pg: SPgId) -> Option<Pg> {
        let view = self.placement.pool(pg.pg.pool).cloned()?;
        if view.erasure && view.coding.is_none() {
            tracing::error!(
                "pg {pg}: no code is known for pool '{}': its shards cannot be read",
                view.name
            );
            return None;
        }
        let now = self.clock.monotonic();
        match Pg::load(pg, view, &mut self.store, now) {
            Ok(mut loaded) => {
                loaded.share_pull_turns(self.pull_turns.clone());
                loaded.share_notify_bytes(self.notify_bytes.clone());
                Some(loaded)
            }
            Err(e) => {
                tracing::error!("{e}");
                None
            }
        }
    }

    fn forget(&mut self, pg: SPgId) {
        self.uncommitted.remove(&pg);
        self.wishes.remove(&pg);
        let Some(slot) = self.slots.remove(&pg) else {
            return;
        };
        if let Some(at) = slot.timer {
            self.timers.remove(&(at, pg));
        }
        let random = self.random.clone();
        self.store.lend(pg);
        let ctx = &mut Context {
            store: &mut self.store,
            cluster: &self.placement,
            now: self.clock.monotonic(),
            wall: Utime::from_unix(self.clock.wall()),
            random: &mut || random.u64(),
            out: &mut self.out,
        };
        let led = match slot.role {
            Role::Primary(primary) => {
                primary.leave(ctx);
                true
            }
            Role::Replica(r) => {
                r.leave(ctx);
                false
            }
        };
        self.carry_out(pg, led);
    }

    /// The OSD ends: what its PGs hold of the store goes back.
    pub fn forget_all(&mut self) {
        for pg in self.slots.keys().copied().collect::<Vec<_>>() {
            self.forget(pg);
        }
    }

    /// One input to one PG that this OSD leads, and all that comes of it.
    pub fn drive(&mut self, pg: SPgId, input: Input) {
        if self.led(pg).is_none() {
            return;
        }
        self.turn(pg, |role, ctx| {
            if let Role::Primary(p) = role {
                p.apply(input, ctx);
            }
        });
    }

    /// One step of a slot, and all that comes of it.
    pub fn turn(&mut self, pg: SPgId, step: impl FnOnce(&mut Role, &mut Context<'_>)) {
        let durable = self.store.engine.durable();
        self.turn_at(pg, durable, step);
    }

    /// The same, after which no answer leaves that waits for more than `at`.
    pub fn turn_at(&mut self, pg: SPgId, at: u64, step: impl FnOnce(&mut Role, &mut Context<'_>)) {
        self.turns.about().step(pg.pg);
        let serving = match self.slots.get(&pg).map(|s| &s.role) {
            Some(Role::Replica(r)) => r.has_reads() && self.may_answer_for(pg),
            _ => false,
        };
        let Some(slot) = self.slots.get_mut(&pg) else {
            return;
        };
        if let Role::Replica(r) = &mut slot.role {
            r.set_serving(serving);
        }
        self.store.lend(pg);
        let random = &self.random;
        let mut random = || random.u64();
        let ctx = &mut Context {
            store: &mut self.store,
            cluster: &self.placement,
            now: self.clock.monotonic(),
            wall: Utime::from_unix(self.clock.wall()),
            random: &mut random,
            out: &mut self.out,
        };
        step(&mut slot.role, ctx);
        // What it waits for may have become durable before it began to wait; and a hand-over waits without an answer
        // that does.
        slot.role.committed(at, ctx);
        if slot.role.is_waiting() {
            self.uncommitted.insert(pg);
        }
        let (primary, want) = match &slot.role {
            Role::Primary(p) => (true, p.next_timer()),
            Role::Replica(_) => (false, None),
        };
        // The timer queue stays in step with what the PG wants.
        if want != slot.timer {
            if let Some(at) = std::mem::replace(&mut slot.timer, want) {
                self.timers.remove(&(at, pg));
            }
            self.timers.extend(want.map(|at| (at, pg)));
        }
        self.carry_out(pg, primary);
    }

    pub fn on_timer(&mut self) {
        let now = self.clock.monotonic();
        while let Some((at, pg)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.remove(&(at, pg));
            if let Some(slot) = self.slots.get_mut(&pg) {
                slot.timer = None;
            }
            self.drive(pg, Input::Tick);
        }
        self.links.step();
        self.recover();
        self.scrub();
        self.bench_step();
        self.qos_step();
        self.begin_merges();
    }

    fn copied(&mut self, pg: SPgId, bytes: u64) {
        self.recovery.copied(bytes);
        self.meters.osd.push.inc();
        self.meters.osd.push_out_bytes.add(bytes);
        self.meters.osd.recovery_bytes.add(bytes);
        if let Some(slot) = self.slots.get_mut(&pg) {
            slot.recovered.1 += bytes as i64;
        }
    }

    fn carry_out(&mut self, pg: SPgId, primary: bool) {
        let mut out = std::mem::take(&mut self.out);
        for output in out.drain(..) {
            match output {
                // A read's answer may have become stale since it was asked for.
                Output::Reply { .. } | Output::Send { .. }
                    if primary && !self.serving() && !broken::is(Rule::AnswersHeld) =>
                {
                    self.hold(pg, output)
                }
                // To grant is to say that nobody else leads.
                Output::Peer {
                    body: PeerBody::Granted { .. },
                    ..
                } if !self.serving() => {}
                Output::Reply { conn, reply, permit } if !primary => {
                    self.answered(&permit, &reply);
                    self.copy_answered(conn, &reply);
                }
                Output::Reply { conn, reply, permit } => {
                    self.answered(&permit, &reply);
                    self.conns.send(ConnId(conn), reply.to_message());
                }
                Output::Send { conn, event } => drop(self.conns.send(ConnId(conn), event.to_message())),
                Output::Dropped { conn, tid, why } => {
                    tracing::debug!("conn {conn}: operation {tid} dropped: {why}");
                }
                Output::Close { conn, why } => self.close(ConnId(conn), why),
                Output::Peer {
                    to,
                    shard,
                    interval,
                    body,
                } => self.send_peer(pg, primary, (to, shard), interval, body),
                Output::Propose(wish) => self.wish(pg, wish),
                Output::AtRest { group, head } => self.came_to_rest(pg, group, head),
                Output::Copied { bytes } => self.copied(pg, bytes),
                Output::Scrubbed { bytes } => {
                    self.scrubs.scrubbed(bytes);
                    self.meters.osd.scrub_bytes.add(bytes);
                }
                Output::ScrubEnded(result) => self.scrub_ended(pg, result),
                Output::FetchObject { id, object } => self.fetch(pg, id, object),
                // A read like another: somebody else may lead by now.
                Output::Exported { token, .. } if !self.serving() => self.exported(token, Err(Errno::EAGAIN)),
                Output::Exported { token, result } => self.exported(token, result),
            }
        }
        self.keep_room(out);
    }

    /// Kept for the next step, unless this one was unusually long.
    fn keep_room(&mut self, out: Vec<Output>) {
        if self.out.is_empty() && out.capacity() <= OUT_KEPT {
            self.out = out;
        }
    }

    /// Answers that may not leave while the lease is not sure: kept for when it is again, as long as the interval lasts.
    fn hold(&mut self, pg: SPgId, output: Output) {
        let interval = self.placement.group(pg).map_or(0, |g| g.interval);
        self.held.push((pg, interval, output));
    }

    /// The lease is good: what was held leaves, unless another interval began.
    pub fn release_held(&mut self) {
        let mut by_pg: BTreeMap<SPgId, Vec<Output>> = BTreeMap::new();
        for (pg, interval, output) in std::mem::take(&mut self.held) {
            let group = self.placement.group(pg);
            if self.placement.leads(pg) && group.is_some_and(|g| g.interval == interval) {
                by_pg.entry(pg).or_default().push(output);
            }
        }
        for (pg, outputs) in by_pg {
            self.out = outputs;
            self.carry_out(pg, true);
        }
    }

    /// Errors for a PG that cannot be had.
    pub fn cannot_load(&self, op: &pg::ClientOp, epoch: u32) {
        let reply = messages::osd::MOSDOpReply::to(&op.op, epoch, Errno::EIO.code());
        self.conns.send(ConnId(op.conn), reply.to_message());
    }

    /// The PGs that this OSD leads, for reports and commands.
    pub fn pgs(&self) -> impl Iterator<Item = (SPgId, &Pg)> {
        self.slots.iter().filter_map(|(id, slot)| match &slot.role {
            Role::Primary(pg) => Some((*id, &**pg)),
            Role::Replica(_) => None,
        })
    }

    /// The PG of a slot that leads it.
    pub fn led(&self, slot: SPgId) -> Option<&Pg> {
        match &self.slots.get(&slot)?.role {
            Role::Primary(pg) => Some(pg),
            Role::Replica(_) => None,
        }
    }

    fn slots_of(&self, pg: PgId) -> impl Iterator<Item = (SPgId, &Role)> {
        let slot = |shard| SPgId { pg, shard };
        let slots = self.slots.range(slot(i8::MIN)..=slot(i8::MAX));
        slots.map(|(id, s)| (*id, &s.role))
    }

    /// The slot from which this OSD leads a PG.
    pub fn leading(&self, pg: PgId) -> Option<SPgId> {
        let mut slots = self.slots_of(pg);
        slots
            .find(|(_, role)| matches!(role, Role::Primary(_)))
            .map(|(id, _)| id)
    }

    /// A slot of a PG in which this OSD has a part and does not lead.
    pub fn following(&self, pg: PgId) -> Option<SPgId> {
        let mut slots = self.slots_of(pg);
        slots
            .find(|(_, role)| matches!(role, Role::Replica(_)))
            .map(|(id, _)| id)
    }

    /// A PG that this OSD leads.
    pub fn primary(&self, pg: PgId) -> Option<&Pg> {
        self.led(self.leading(pg)?)
    }
}
