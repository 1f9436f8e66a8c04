//! What clients ask: few objects, many at once, every value its own, so that a checker can tell who saw what.

use crate::acks::{Ack, Acks};
use crate::client::{Answer, Rados};
use crate::largest::{self, Share};
use crate::linear::Entry;
use crate::model::{Ask, Object, Told, value};
use crate::plan::Plan;
use crate::rot::Rot;
use bytes::Bytes;
use io_sim::Dice;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;
use types::Errno;

/// Everything that clients asked and were told, by object. Times are places in one order: who was told before another
/// asked comes first in every linearization.
#[derive(Debug, Default)]
pub struct History {
    pub objects: RefCell<BTreeMap<String, Vec<Entry>>>,
    clock: Cell<u64>,
    /// Errors that no operation here may end with.
    pub errors: RefCell<Vec<String>>,
    pub answered: Cell<u64>,
    /// Reads of these that another OSD than the primary answered.
    pub by_copies: Cell<u64>,
    /// Operations that ended with EIO because of bits that had flipped where nobody else was in sync.
    pub excused: Cell<u64>,
    /// Writes of these.
    pub acks: Acks,
    /// Clients that have stopped.
    pub ended: RefCell<BTreeSet<u64>>,
}

impl History {
    fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// What a client was called to do last.
    pub fn asked_last(&self, client: u64) -> Option<String> {
        let objects = self.objects.borrow();
        let calls = objects
            .iter()
            .flat_map(|(oid, entries)| entries.iter().map(move |e| (e.called, e.client, oid)));
        let last = calls.filter(|(_, by, _)| *by == client).max();
        last.map(|(_, _, oid)| oid.clone())
    }

    fn call(&self, oid: &str, client: u64, ask: &Ask) -> usize {
        let called = self.tick();
        let mut objects = self.objects.borrow_mut();
        let entries = objects.entry(oid.to_owned()).or_default();
        entries.push(Entry {
            client,
            ask: ask.clone(),
            called,
            told: None,
            version: None,
        });
        entries.len() - 1
    }

    fn tell(&self, oid: &str, place: usize, told: Told, version: Option<u64>) {
        let at = self.tick();
        self.answered.set(self.answered.get() + 1);
        if let Some(e) = self
            .objects
            .borrow_mut()
            .get_mut(oid)
            .and_then(|o| o.get_mut(place))
        {
            (e.told, e.version) = (Some((at, told)), version);
        }
    }
}

/// Of an object that is written once, at most.
const COLD_BYTES: u64 = 20_000;

fn draw(dice: &mut Dice, client: u64, n: u64, plan: &Plan, guards: &[Bytes]) -> Ask {
    let most = if dice.below(20) < plan.large {
        plan.value_bytes
    } else {
        plan.value_bytes.min(600)
    };
    let fresh = |dice: &mut Dice| value(client, n, 1 + dice.below(most) as usize);
    match dice.below(20) {
        0..=6 => Ask::Read,
        7..=9 => Ask::WriteFull(fresh(dice)),
        10..=12 => Ask::Write {
            at: dice.below(1000),
            data: fresh(dice),
        },
        13 | 14 => Ask::Append(value(client, n, 1 + dice.below(40) as usize)),
        15 | 16 => rows(plan, format!("k{}", dice.below(4)), value(client, n, 1)),
        17 => Ask::Delete,
        _ => {
            let expect = match guards.len() {
                0 => Bytes::from_static(b"?"),
                n => guards[n - 1 - dice.below(n.min(2) as u64) as usize].clone(),
            };
            Ask::Guarded {
                expect,
                then: value(client, n, 1),
            }
        }
    }
}

/// A key; where the pool has none, an attribute.
fn rows(plan: &Plan, key: String, value: Bytes) -> Ask {
    match plan.coded {
        None => Ask::OmapSet(key, value),
        Some(_) => Ask::SetAttrs(BTreeMap::from([(key, value)])),
    }
}

fn cold_name(at: usize) -> String {
    format!("cold{at}")
}

/// The object, or what it was to be a copy of.
fn may_be_rotten(rot: &Rot, oid: &str, ask: &Ask) -> bool {
    let source = |ask: &Ask| matches!(ask, Ask::CopyFrom { from, .. } if rot.excuses_object(from));
    rot.excuses_object(oid) || source(ask)
}

/// How soon a hasty client wants its answers: in the time in which they are on their way.
const HASTY_US: u64 = 12_000;

/// What a client knows of the object that it alone writes, and others do not; copies are made of it.
struct Own {
    oid: String,
    /// None: it cannot know.
    known: Option<Option<Object>>,
}

impl Own {
    /// What the thrasher's clients do beside all else.
    fn draw(&self, dice: &mut Dice, client: u64, n: u64, oid: &str, plan: &Plan) -> Option<(String, Ask)> {
        let content = self.known.as_ref()?;
        let of_own = |ask| Some((self.oid.clone(), ask));
        match dice.below(12) {
            0 => of_own(Ask::WriteFull(value(client, n, 1 + dice.below(9000) as usize))),
            1 => of_own(Ask::Append(value(client, n, 1 + dice.below(100) as usize))),
            2 => of_own(rows(plan, "k".into(), value(client, n, 1))),
            3 | 4 => {
                let (from, content) = (self.oid.clone(), content.clone());
                Some((oid.to_owned(), Ask::CopyFrom { from, content }))
            }
            5 | 6 if plan.coded.is_none() => {
                let key = format!("n{}", dice.below(2));
                Some((oid.to_owned(), Ask::Add(key, 1 + dice.below(1000))))
            }
            _ => None,
        }
    }
}

/// One client's life: asks, one operation at a time, until it is told to stop.
pub async fn work(
    mut rados: Rados,
    plan: Plan,
    (mut dice, mut copies, mut cold, mut thrash, mut large): (Dice, Dice, Dice, Dice, Dice),
    (history, rot): (Rc<History>, Rc<Rot>),
    stop: Rc<Cell<bool>>,
) {
    let mut guards: BTreeMap<String, Vec<Bytes>> = BTreeMap::new();
    let mut own = Own {
        oid: format!("own{}", rados.id),
        known: Some(None),
    };
    let mut largest = Share::of(plan.largest, rados.id);
    let mut n = 0;
    // Each client has its share of them to write.
    let mut unwritten = (rados.id as usize..plan.cold).step_by(plan.clients);
    while !stop.get() {
        sleep(Duration::from_micros(dice.below(plan.gap.as_micros() as u64 + 1))).await;
        n += 1;
        let mut oid = format!("obj{}", dice.below(plan.objects as u64));
        let seen = guards.entry(oid.clone()).or_default();
        let mut ask = draw(&mut dice, rados.id, n, &plan, seen);
        if let Some(at) = unwritten.next() {
            let len = 1 + cold.below(COLD_BYTES);
            (oid, ask) = (cold_name(at), Ask::WriteFull(value(rados.id, n, len as usize)));
        } else if plan.cold > 0 && cold.below(3) == 0 {
            (oid, ask) = (cold_name(cold.below(plan.cold as u64) as usize), Ask::Read);
        }
        if plan.thrash {
            if let Some(other) = own.draw(&mut thrash, rados.id, n, &oid, &plan) {
                (oid, ask) = other;
            }
            rados.hasty = (thrash.below(5) == 0).then(|| Duration::from_micros(thrash.below(HASTY_US)));
        }
        if let Some(other) = largest.draw(&mut large, rados.id, n) {
            (oid, ask) = (largest::OBJECT.into(), other);
        }
        let place = history.call(&oid, rados.id, &ask);
        let newest = history.acks.newest_of(&oid);
        let copy = (copies.below(100) < plan.any_copy).then(|| copies.below(1 << 20));
        let before = rados.from_copies;
        let told = rados.run(&oid, &ask, copy).await;
        history
            .by_copies
            .set(history.by_copies.get() + rados.from_copies - before);
        if oid == own.oid && !ask.is_read() {
            let before = own.known.take();
            own.known = before.filter(|_| told.is_ok()).map(|o| ask.apply(&o).0);
        }
        match told {
            Ok(Answer {
                told,
                version,
                served,
            }) => {
                let version_in_log = served.entry;
                rados
                    .sim
                    .trace
                    .note(format_args!("client.{} {oid} {ask}: {told}", rados.id));
                if let Told::Saw(Some(o)) = &told {
                    guards.entry(oid.clone()).or_default().extend(o.guard.clone());
                }
                let is_done = !ask.is_read() && told == Told::Done;
                history.tell(&oid, place, told, version);
                if is_done {
                    if version_in_log <= newest {
                        let line = format!(
                            "client.{} {oid} {ask}: is {version_in_log:?} in the log, and {newest:?} was told before it was asked",
                            rados.id
                        );
                        history.errors.borrow_mut().push(line);
                    }
                    history.acks.told_version(&oid, version_in_log);
                }
                if is_done {
                    let (client, oid) = (rados.id, oid);
                    history.acks.note(Ack {
                        client,
                        global_id: rados.global_id(),
                        oid,
                        served,
                    });
                }
            }
            // What was rotten was not read, and may have been written or not.
            Err(code) if code == Errno::EIO.code() && may_be_rotten(&rot, &oid, &ask) => {
                let line = format_args!("client.{} {oid} {ask}: cannot be read, excused", rados.id);
                rados.sim.trace.note(line);
                history.excused.set(history.excused.get() + 1);
            }
            Err(code) if code == Errno::EIO.code() => {
                let line = format!(
                    "client.{} {oid} {ask}: EIO, and a copy in sync is whole (bits flipped on {:?})",
                    rados.id,
                    rot.osd()
                );
                rados.sim.trace.note(format_args!("{line}"));
                history.errors.borrow_mut().push(line);
            }
            Err(code) => {
                let line = format!("client.{} {oid} {ask}: error {code}", rados.id);
                rados.sim.trace.note(format_args!("{line}"));
                history.errors.borrow_mut().push(line);
            }
        }
    }
}
