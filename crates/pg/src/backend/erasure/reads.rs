//! Reads of objects that lie in shards: which units are on their way here, and what has come.
//!
//! Vocabulary: a *read* is what some shards have of a range of stripes of one object, at one version, for whoever holds its ticket. Its
//! units are *collected* from the shards that can be read now ([`super::collect`]): the own one through the store, the others by
//! questions that leave as [`Ask`]s. A read *ends* with its units, as one that *failed* (too few shards have them, or ever will), or as
//! one that is *outdated* (the object has another version now: whoever wants it asks anew).
//!
//! Invariants:
//! - What is given is of the version that was asked for, and so are all units of which it is made.
//! - An OSD whose connection is lost is asked again when it is back: a read fails only where what is left of the shards that are in sync
//!   is too few, whether they are here now or not.
//! - A store's ticket is released once, with the read's own.
//!
//! Bounds: [`READS_MAX`] reads and [`BYTES_MAX`] of units under way or held; more wait for their turn in the order in which they came. If
//! nothing is under way one goes beyond that: who holds some might else wait for ever for those that he still lacks. [`BAD_MAX`].
//!
//! Not here: who is in sync, connections, messages (the back end), what a message needs (the front).

use super::collect::Collect;
use super::cut::{Coding, on_shard};
use super::kept::Kept;
use super::old::Changes;
use crate::backend::OWN_TICKET;
use crate::backend::digest::version_now;
use crate::exec::gathered::{Form, Gathered, Read, Value};
use crate::store::{IoError, ObjectStore, Ticket};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use types::{EVersion, HObject, ObjectId, OsdId};

const READS_MAX: usize = 64;
const BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 16 << 20 };
/// Objects with units that somebody could not read, until they are looked at.
const BAD_MAX: usize = 64;

/// A question for another OSD: `offset~len` of its shard's object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub to: OsdId,
    pub shard: usize,
    pub token: u64,
    pub object: HObject,
    pub offset: u64,
    pub len: u64,
}

/// What a read is for.
#[derive(Debug, Clone)]
pub(crate) struct What {
    pub oid: ObjectId,
    pub version: EVersion,
    pub stripes: Range<u64>,
    pub wanted: Vec<usize>,
    /// These are not asked: they are to be made anew.
    pub without: Vec<usize>,
}

#[derive(Debug)]
enum State {
    Waiting(Collect),
    Going(Collect),
    /// Units of the wanted shards, in their order.
    Here(Vec<Vec<u8>>),
    Failed,
    Outdated,
}

#[derive(Debug)]
struct One {
    what: What,
    state: State,
    /// Bytes that count while it goes on or is held.
    bytes: u64,
    /// Who was asked and has not answered.
    open: BTreeMap<usize, OsdId>,
    /// The store's, ended or not.
    own: Option<Ticket>,
}

impl One {
    fn counts(&self) -> bool {
        matches!(self.state, State::Going(_) | State::Here(_))
    }
}

/// What there is of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Held {
    Here(Bytes),
    Failed,
    /// Nobody has asked for it, or it has not come.
    Lacks,
}

#[derive(Debug)]
pub(crate) struct Reads {
    coding: Arc<Coding>,
    own: usize,
    /// Who has which shard, of those that are in sync; who answers fastest first.
    sources: Vec<(usize, OsdId)>,
    away: BTreeSet<OsdId>,
    last: Ticket,
    all: BTreeMap<Ticket, One>,
    waiting: VecDeque<Ticket>,
    /// Reads of the own shard: the store's ticket, and ours.
    reading: BTreeMap<Ticket, Ticket>,
    asks: Vec<Ask>,
    ended: Vec<Ticket>,
    bad: Vec<(HObject, usize)>,
    kept: Kept,
}

impl Reads {
    /// `own`: this OSD's shard.
    pub fn new(coding: Arc<Coding>, own: usize) -> Self {
        Self {
            coding,
            own,
            sources: Vec::new(),
            away: BTreeSet::new(),
            last: OWN_TICKET,
            all: BTreeMap::new(),
            waiting: VecDeque::new(),
            reading: BTreeMap::new(),
            asks: Vec::new(),
            ended: Vec::new(),
            bad: Vec::new(),
            kept: Kept::default(),
        }
    }

    // --- who can be asked

    /// Who has which shard now, of those that are in sync, this OSD among them; who is to be asked first comes first.
    pub fn set_sources(&mut self, sources: Vec<(usize, OsdId)>, store: &mut dyn ObjectStore) {
        if self.sources == sources {
            return;
        }
        self.sources = sources;
        let sources = &self.sources;
        for one in self.all.values_mut() {
            let gone: Vec<usize> = one
                .open
                .extract_if(.., |s, o| !sources.contains(&(*s, *o)))
                .map(|(s, _)| s)
                .collect();
            if let State::Going(collect) = &mut one.state {
                gone.into_iter().for_each(|shard| collect.forget(shard));
            }
        }
        self.advance_all(store);
    }

    /// Its connection is lost, and with it its answers.
    pub fn lost(&mut self, osd: OsdId, store: &mut dyn ObjectStore) {
        self.away.insert(osd);
        for one in self.all.values_mut() {
            let gone: Vec<usize> = one
                .open
                .extract_if(.., |_, o| *o == osd)
                .map(|(s, _)| s)
                .collect();
            if let State::Going(collect) = &mut one.state {
                gone.into_iter().for_each(|shard| collect.forget(shard));
            }
        }
        self.asks.retain(|a| a.to != osd);
        self.advance_all(store);
    }

    /// It can be asked (again).
    pub fn back(&mut self, osd: OsdId, store: &mut dyn ObjectStore) {
        if self.away.remove(&osd) {
            self.advance_all(store);
        }
    }

    /// Nothing that was asked for, or has come, counts any more.
    pub fn interval_changed(&mut self) {
        self.asks.clear();
        self.waiting.clear();
        self.kept.clear();
        for (ticket, one) in &mut self.all {
            one.open.clear();
            if matches!(one.state, State::Waiting(_) | State::Going(_)) {
                self.ended.push(*ticket);
            }
            one.state = State::Outdated;
        }
    }

    /// Lets go of everything.
    pub fn leave(&mut self, store: &mut dyn ObjectStore) {
        for one in std::mem::take(&mut self.all).into_values() {
            one.own.into_iter().for_each(|t| store.release(t));
        }
        self.waiting.clear();
        self.reading.clear();
        self.asks.clear();
        self.ended.clear();
    }

    // --- reads

    /// A range of an object that has this version. None: it is empty.
    pub fn begin(
        &mut self,
        oid: &ObjectId,
        version: EVersion,
        offset: u64,
        len: u64,
        store: &mut dyn ObjectStore,
    ) -> Option<Ticket> {
        if len == 0 {
            return None;
        }
        let layout = self.coding.layout;
        // A range of a whole stripe lies on all.
        let first = layout.pieces(offset, len.min(layout.stripe()));
        let wanted: BTreeSet<usize> = first.map(|p| p.shard).collect();
        let what = What {
            oid: oid.clone(),
            version,
            stripes: layout.stripes(offset, len),
            wanted: wanted.into_iter().collect(),
            without: Vec::new(),
        };
        Some(self.begin_units(what, store))
    }

    /// Units as they are on some shards.
    pub fn begin_units(&mut self, what: What, store: &mut dyn ObjectStore) -> Ticket {
        let older = |one: &&mut One| one.what.oid == what.oid && one.what.version != what.version;
        for one in self.all.values_mut().filter(older) {
            // It is never given again; the ticket is its holder's.
            if let State::Here(_) = one.state {
                one.state = State::Outdated;
            }
        }
        let mut collect = Collect::new(what.version, what.stripes.clone(), what.wanted.clone());
        what.without.iter().for_each(|shard| collect.leave_out(*shard));
        let units = self.coding.layout.k().max(what.wanted.len()) as u64;
        let bytes = collect.extent(&self.coding).1.saturating_mul(units);
        self.last += 1;
        let ticket = self.last;
        let one = One {
            what,
            state: State::Waiting(collect),
            bytes,
            open: BTreeMap::new(),
            own: None,
        };
        self.all.insert(ticket, one);
        self.waiting.push_back(ticket);
        self.start_waiting(store);
        ticket
    }

    /// Once for each ticket, ended or not.
    pub fn release(&mut self, ticket: Ticket, store: &mut dyn ObjectStore) {
        let Some(one) = self.all.remove(&ticket) else {
            return;
        };
        if let Some(own) = one.own {
            self.reading.remove(&own);
            store.release(own);
        }
        self.waiting.retain(|t| *t != ticket);
        self.ended.retain(|t| *t != ticket);
        self.start_waiting(store);
    }

    /// An answer to an [`Ask`]; None: it cannot be read there. False: nobody waits for it.
    pub fn said(
        &mut self,
        from: OsdId,
        token: u64,
        version: EVersion,
        data: Option<Bytes>,
        store: &mut dyn ObjectStore,
    ) -> bool {
        let Some(one) = self.all.get_mut(&token) else {
            return false;
        };
        let Some(shard) = one.open.iter().find(|(_, o)| **o == from).map(|(s, _)| *s) else {
            return false;
        };
        one.open.remove(&shard);
        self.came(token, shard, version, data, store);
        self.advance(token, store);
        self.start_waiting(store);
        true
    }

    /// A read of the store's has ended. False: it is none of these.
    pub fn own_read_ended(&mut self, ticket: Ticket, store: &mut dyn ObjectStore) -> bool {
        let Some(ours) = self.reading.remove(&ticket) else {
            return false;
        };
        self.read_own(ours, store);
        self.advance(ours, store);
        self.start_waiting(store);
        true
    }

    /// What is to be asked of others now.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// Tickets of reads that have ended since this was asked last, well or not.
    pub fn take_ended(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.ended)
    }

    /// Objects, each with a shard that could not be read.
    pub fn take_bad(&mut self) -> Vec<(HObject, usize)> {
        std::mem::take(&mut self.bad)
    }

    /// The units of the wanted shards. None: it has not ended, or not well.
    pub fn take_units(&mut self, ticket: Ticket) -> Option<Vec<Vec<u8>>> {
        let one = self.all.get_mut(&ticket)?;
        match std::mem::replace(&mut one.state, State::Outdated) {
            State::Here(units) => Some(units),
            other => {
                one.state = other;
                None
            }
        }
    }

    // --- what has come

    /// A range of an object that has this version now; it ends before the object does.
    pub fn value(&self, oid: &ObjectId, version: EVersion, offset: u64, len: u64) -> Held {
        if len == 0 {
            return Held::Here(Bytes::new());
        }
        let layout = self.coding.layout;
        let stripes = layout.stripes(offset, len);
        if let Some(kept) = self.kept.get(oid, version, &stripes) {
            let skip = (offset - layout.extent(&stripes).0) as usize;
            return Held::Here(Bytes::from(kept).slice(skip..skip + len as usize));
        }
        let mut failed = false;
        for one in self.all.values() {
            let w = &one.what;
            let covers = w.stripes.start <= stripes.start && stripes.end <= w.stripes.end;
            if !covers || w.version != version || w.oid != *oid {
                continue;
            }
            match &one.state {
                State::Here(units) => {
                    if let Some(bytes) = self.cut_out(w, units, offset, len) {
                        return Held::Here(bytes);
                    }
                }
                State::Failed => failed = true,
                State::Waiting(_) | State::Going(_) | State::Outdated => {}
            }
        }
        match failed {
            true => Held::Failed,
            false => Held::Lacks,
        }
    }

    fn cut_out(&self, what: &What, units: &[Vec<u8>], offset: u64, len: u64) -> Option<Bytes> {
        let layout = self.coding.layout;
        let start = layout.extent_on_shard(&what.stripes).0;
        let mut out = BytesMut::with_capacity(len as usize);
        for p in layout.pieces(offset, len) {
            let at = what.wanted.iter().position(|s| *s == p.shard)?;
            let from = (p.at - start) as usize;
            out.extend_from_slice(units.get(at)?.get(from..from + p.len as usize)?);
        }
        Some(out.freeze())
    }

    /// Data of one object for an execution, as [`crate::backend::Backend::gather`].
    pub fn gather(&self, oid: &ObjectId, reads: &[Read], store: &mut dyn ObjectStore, into: &mut Gathered) {
        let size = store.stat(oid).map(|s| s.map_or(0, |s| s.size));
        let version = version_now(oid, store);
        for read in reads {
            let value = match (&size, read.form) {
                (Err(e), _) => Err(e.clone()),
                // All of a shard counts as allocated; the plan asks for nothing else.
                (_, Form::Extents | Form::Map) => Err(IoError("shards tell no extents".into())),
                (Ok(size), Form::Bytes) => {
                    let (offset, end) = (read.offset.min(*size), read.end().min(*size));
                    match self.value(oid, version, offset, end - offset) {
                        Held::Here(bytes) => Ok(Value::Bytes(bytes)),
                        Held::Failed => Err(too_few(oid)),
                        Held::Lacks => {
                            into.lack(*read);
                            continue;
                        }
                    }
                }
            };
            into.add(*read, value);
        }
    }

    /// Begins what a gathering of this would lack, as [`crate::backend::Backend::prefetch`].
    pub fn prefetch(
        &mut self,
        oid: &ObjectId,
        offset: u64,
        len: u64,
        store: &mut dyn ObjectStore,
    ) -> Option<Ticket> {
        // What cannot be told is told when it is gathered.
        let size = store.stat(oid).ok().flatten()?.size;
        let end = offset.saturating_add(len).min(size);
        let version = version_now(oid, store);
        let (offset, len) = (offset.min(end), end.saturating_sub(offset));
        if self
            .kept
            .get(oid, version, &self.coding.layout.stripes(offset, len))
            .is_some()
        {
            return None;
        }
        self.begin(oid, version, offset, len, store)
    }

    /// A transaction was submitted here, and goes to all that count: what it has written need not be collected.
    pub fn keep(&mut self, changes: Changes, store: &mut dyn ObjectStore) {
        let stripe = self.coding.layout.stripe();
        for (oid, before, written) in changes.0 {
            let version = version_now(&oid, store);
            self.kept.keep(&oid, (before, version), &written, stripe);
        }
    }

    // --- going on

    fn load(&self) -> (usize, u64, bool) {
        let counted = self.all.values().filter(|one| one.counts());
        counted.fold((0, 0, false), |(n, bytes, going), one| {
            let goes = matches!(one.state, State::Going(_));
            (n + 1, bytes + one.bytes, going || goes)
        })
    }

    fn start_waiting(&mut self, store: &mut dyn ObjectStore) {
        while let Some(ticket) = self.waiting.front().copied() {
            let next = self.all.get(&ticket).map_or(0, |one| one.bytes);
            let (count, bytes, going) = self.load();
            if going && (count >= READS_MAX || bytes + next > BYTES_MAX) {
                return;
            }
            self.waiting.pop_front();
            let Some(one) = self.all.get_mut(&ticket) else {
                continue;
            };
            one.state = match std::mem::replace(&mut one.state, State::Outdated) {
                State::Waiting(collect) => State::Going(collect),
                other => other,
            };
            self.advance(ticket, store);
        }
    }

    fn advance_all(&mut self, store: &mut dyn ObjectStore) {
        let tickets: Vec<Ticket> = self.all.keys().copied().collect();
        tickets.into_iter().for_each(|t| self.advance(t, store));
        self.start_waiting(store);
    }

    /// Asks whoever is to be asked now, or ends it.
    fn advance(&mut self, ticket: Ticket, store: &mut dyn ObjectStore) {
        loop {
            let can: Vec<(usize, OsdId)> = self
                .sources
                .iter()
                .filter(|(shard, osd)| *shard == self.own || !self.away.contains(osd))
                .copied()
                .collect();
            let Some(one) = self.all.get_mut(&ticket) else {
                return;
            };
            let State::Going(collect) = &mut one.state else {
                return;
            };
            if let Some(units) = collect.units(&self.coding) {
                return self.end(ticket, State::Here(units));
            }
            let shards: Vec<usize> = can.iter().map(|(s, _)| *s).collect();
            let new = match collect.ask(&self.coding, &shards) {
                Ok(new) => new,
                Err(few) => {
                    let all: Vec<usize> = self.sources.iter().map(|(s, _)| *s).collect();
                    // Those that are away may come back.
                    if !collect.may_come(&self.coding, &all) {
                        tracing::error!("{}: {few}", one.what.oid.object);
                        self.end(ticket, State::Failed);
                    }
                    return;
                }
            };
            let extent = collect.extent(&self.coding);
            let mut at_once = false;
            for shard in new {
                match can.iter().find(|(s, _)| *s == shard) {
                    Some(_) if shard == self.own => at_once = self.ask_own(ticket, extent, store),
                    Some((_, osd)) => self.ask(ticket, shard, *osd, extent),
                    None => {}
                }
            }
            if !at_once {
                return;
            }
        }
    }

    fn ask(&mut self, ticket: Ticket, shard: usize, osd: OsdId, (offset, len): (u64, u64)) {
        if let Some(one) = self.all.get_mut(&ticket) {
            one.open.insert(shard, osd);
            self.asks.push(Ask {
                to: osd,
                shard,
                token: ticket,
                object: one.what.oid.object.clone(),
                offset,
                len,
            });
        }
    }

    /// True if the disk need not be waited for.
    fn ask_own(&mut self, ticket: Ticket, (offset, len): (u64, u64), store: &mut dyn ObjectStore) -> bool {
        let own = self.own;
        let Some(one) = self.all.get_mut(&ticket) else {
            return false;
        };
        match store.prefetch(&on_shard(&one.what.oid, own), offset, len) {
            Some(t) => {
                one.own = Some(t);
                self.reading.insert(t, ticket);
                false
            }
            None => {
                self.read_own(ticket, store);
                true
            }
        }
    }

    fn read_own(&mut self, ticket: Ticket, store: &mut dyn ObjectStore) {
        let Some(one) = self.all.get(&ticket) else { return };
        let State::Going(collect) = &one.state else { return };
        let (offset, len) = collect.extent(&self.coding);
        let oid = on_shard(&one.what.oid, self.own);
        let version = version_now(&oid, store);
        let data = store.read(&oid, offset, len);
        if let Err(e) = &data {
            tracing::error!("{}: units cannot be read here: {e}", oid.object);
        }
        self.came(ticket, self.own, version, data.ok(), store);
    }

    fn came(
        &mut self,
        ticket: Ticket,
        shard: usize,
        version: EVersion,
        data: Option<Bytes>,
        store: &mut dyn ObjectStore,
    ) {
        let own = self.own;
        let Some(one) = self.all.get_mut(&ticket) else {
            return;
        };
        let State::Going(collect) = &mut one.state else {
            return;
        };
        if data.is_none() && self.bad.len() < BAD_MAX {
            let bad = (one.what.oid.object.clone(), shard);
            if !self.bad.contains(&bad) {
                self.bad.push(bad);
            }
        }
        if data.is_some() && version != one.what.version && !one.what.without.contains(&own) {
            // Has the object changed, or has that shard another one?
            if version_now(&on_shard(&one.what.oid, own), store) != one.what.version {
                return self.end(ticket, State::Outdated);
            }
        }
        collect.came(&self.coding, shard, version, data);
    }

    fn end(&mut self, ticket: Ticket, state: State) {
        if let Some(one) = self.all.get_mut(&ticket) {
            one.state = state;
            one.open.clear();
            self.ended.push(ticket);
        }
    }

    /// Nothing is under way, held, or to be told.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.all.is_empty() && self.waiting.is_empty() && self.reading.is_empty() && self.ended.is_empty()
    }

    #[cfg(test)]
    pub fn going(&self) -> (usize, u64) {
        let (count, bytes, _) = self.load();
        (count, bytes)
    }
}

pub(super) fn too_few(oid: &ObjectId) -> IoError {
    IoError(format!("{}: too few shards can be read", oid.object))
}
