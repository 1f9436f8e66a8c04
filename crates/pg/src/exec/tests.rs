//! Executions of one object that lies in a few vectors: no store, no PG.

#![allow(clippy::unwrap_used)]

use super::finish::{LogHead, Written, finish};
use super::gathered::{Extent, Form, Gathered, Read, Value};
use super::known::{Known, Watches};
use super::notifies::{NotifyBytes, NotifyCharge};
use super::plan::{WINDOW, plan, widened};
use super::request::{CopySource, ObjectCopy};
use super::snap_context::SnapContext;
use super::work::Note;
use super::{Missing, Outcome, Request, execute};
use crate::client::{Allow, Capabilities, Client, ConnId, Fence, Need};
use crate::pool::PoolView;
use crate::state::log::EntryKind;
use crate::state::object::ObjectState;
use crate::state::object_info::WatchKey;
use crate::stored::{IoError, ObjectStat, OmapPage};
use bytes::Bytes;
use messages::osd::{MOSDOp, OsdOp, WatchArg, code, op_flag};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use types::*;

#[derive(Debug)]
struct All;
impl Capabilities for All {
    fn allows(&self, _: &Need<'_>, _: Allow<'_>) -> bool {
        true
    }
}

/// Attributes of one object; it has no rows.
#[derive(Debug, Default)]
struct Index(BTreeMap<Bytes, Bytes>);
impl Known for Index {
    fn object(&mut self, _: &ObjectId) -> Result<ObjectState, IoError> {
        Ok(ObjectState::default())
    }
    fn stat(&mut self, _: &ObjectId) -> Result<Option<ObjectStat>, IoError> {
        Ok(None)
    }
    fn attr(&mut self, _: &ObjectId, name: &[u8]) -> Result<Option<Bytes>, IoError> {
        Ok(self.0.get(name).cloned())
    }
    fn attr_sizes(&mut self, _: &ObjectId) -> Result<Vec<(Bytes, u64)>, IoError> {
        Ok(self.0.iter().map(|(n, v)| (n.clone(), v.len() as u64)).collect())
    }
    fn attrs(&mut self, _: &ObjectId) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        Ok(self.0.clone().into_iter().collect())
    }
    fn omap_header(&mut self, _: &ObjectId) -> Result<Bytes, IoError> {
        Ok(Bytes::new())
    }
    fn omap_get(&mut self, _: &ObjectId, _: &[Bytes]) -> Result<Vec<(Bytes, Bytes)>, IoError> {
        Ok(Vec::new())
    }
    fn omap_range(&mut self, _: &ObjectId, _: Bound<&[u8]>, _: usize, _: usize) -> Result<OmapPage, IoError> {
        Ok(OmapPage::default())
    }
    fn omap_each(
        &mut self,
        _: &ObjectId,
        _: Bound<&[u8]>,
        _: usize,
        _: usize,
        _: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<bool, IoError> {
        Ok(false)
    }
}

/// One watch, of client 4100 under cookie 11 on connection 1; room for notifications.
#[derive(Debug, Default)]
struct Table(NotifyBytes);
impl Watches for Table {
    fn check(&self, _: &HObject, key: WatchKey, conn: ConnId) -> Result<(), Errno> {
        match (key, conn) {
            ((4100, 11), 1) => Ok(()),
            ((4100, 11), _) => Err(Errno::ETIMEDOUT),
            _ => Err(Errno::ENOTCONN),
        }
    }
    fn can_notify(&self, _: &HObject) -> bool {
        true
    }
    fn room_for_notify(&self, client: u64, payload: usize) -> Result<NotifyCharge, Errno> {
        self.0.take(client, payload)
    }
    fn room_for_reply(
        &self,
        _: &HObject,
        _: u64,
        _: WatchKey,
        _: usize,
    ) -> Result<Option<NotifyCharge>, Errno> {
        Ok(None)
    }
}

/// An object and its surroundings.
struct Rig {
    data: Vec<u8>,
    state: ObjectState,
    index: Index,
    table: Table,
    pool: PoolView,
    client: Client,
    sources: HashMap<usize, CopySource>,
    context: SnapContext,
    head: ObjectId,
}

const LOG: LogHead = LogHead {
    epoch: 5,
    version: 40,
    user_version: 30,
};

impl Rig {
    fn with(data: &[u8]) -> Self {
        let none = Bytes::new();
        let object = HObject::new(7, 1, none.clone(), none, "o".into(), NOSNAP);
        Self {
            data: data.to_vec(),
            state: ObjectState {
                physical: true,
                exists: true,
                size: data.len() as u64,
                ..ObjectState::default()
            },
            index: Index::default(),
            table: Table::default(),
            pool: PoolView::default(),
            client: Client {
                name: EntityName::client(4100),
                global_id: 4100,
                instance: 9,
                addr: EntityAddr::BLANK,
                from: None,
                features: 0,
                caps: Arc::new(All),
                fence: Fence::default(),
            },
            sources: HashMap::new(),
            context: SnapContext::default(),
            head: ObjectId { shard: -1, object },
        }
    }

    fn missing() -> Self {
        let mut rig = Self::with(b"");
        rig.state = ObjectState::default();
        rig
    }

    fn request<'a>(&'a self, message: &'a MOSDOp) -> Request<'a> {
        Request {
            message,
            client: &self.client,
            conn: 1,
            pool: &self.pool,
            head: &self.head,
            source: &self.head,
            old: &self.state,
            context: Some(&self.context),
            sources: &self.sources,
            watches: &self.table,
            notify_id: 100,
            wall: Utime { sec: 1000, nsec: 0 },
        }
    }

    fn gather(&self, read: Read, into: &mut Gathered) {
        let (from, to) = (read.offset as usize, (read.end() as usize).min(self.data.len()));
        let bytes = Bytes::copy_from_slice(&self.data[from..to]);
        let value = match read.form {
            Form::Bytes => Value::Bytes(bytes),
            // Everything is allocated, in two pieces.
            form => Value::Extents(vec![Extent {
                offset: read.offset,
                len: bytes.len() as u64,
                pieces: match form {
                    Form::Map => Vec::new(),
                    _ => vec![bytes.slice(..bytes.len() / 2), bytes.slice(bytes.len() / 2..)],
                },
            }]),
        };
        into.add(read, Ok(value));
    }

    fn once(&mut self, message: &MOSDOp, gathered: &Gathered) -> Result<Outcome, Missing> {
        let mut index = std::mem::take(&mut self.index);
        let request = self.request(message);
        let cost = plan(&request, &mut index).unwrap().cost;
        let result = execute(&request, cost, gathered, &mut index, &mut || 4);
        self.index = index;
        result
    }

    fn reads(&self, ops: Vec<OsdOp>) -> Vec<Read> {
        let message = message(ops);
        plan(&self.request(&message), &mut Index::default())
            .unwrap()
            .reads
    }

    /// As the PG does it; with the number of executions.
    fn run(&mut self, ops: Vec<OsdOp>) -> (Outcome, usize) {
        let mut gathered = Gathered::default();
        for read in self.reads(ops.clone()) {
            self.gather(read, &mut gathered);
        }
        let message = message(ops);
        for round in 0..8 {
            match self.once(&message, &gathered) {
                Ok(outcome) => return (outcome, round + 1),
                Err(Missing(read)) => self.gather(widened(read, round, self.state.size), &mut gathered),
            }
        }
        panic!("it never has enough");
    }

    fn results(&mut self, ops: Vec<OsdOp>) -> Vec<(i32, Bytes)> {
        self.run(ops).0.results.ran.results
    }

    fn finish(&mut self, ops: Vec<OsdOp>) -> Written {
        let (mut outcome, _) = self.run(ops.clone());
        let message = message(ops);
        finish(
            &self.request(&message),
            outcome.work,
            &mut outcome.results.ran,
            LOG,
        )
    }
}

fn message(ops: Vec<OsdOp>) -> MOSDOp {
    let none = Bytes::new();
    MOSDOp {
        tid: 1,
        pgid: SPgId::replicated(PgId::new(7, 0)),
        hash: 1,
        epoch: 5,
        flags: 0,
        reqid: OsdReqId {
            name: EntityName { kind: 0, num: 0 },
            tid: 0,
            inc: 0,
        },
        trace: [0; 3],
        client_inc: 0,
        mtime: Utime { sec: 50, nsec: 6 },
        oloc: ObjectLocator {
            pool: 7,
            key: none.clone(),
            nspace: none,
            hash: -1,
        },
        oid: "o".into(),
        ops,
        snapid: NOSNAP,
        snap_seq: 0,
        snaps: Vec::new(),
        retry_attempt: 0,
        features: 0,
    }
}

fn ranged(c: messages::osd::OpCode, offset: u64, len: u64) -> OsdOp {
    OsdOp::ranged(c, offset, len)
}

fn write(offset: u64, data: &'static [u8]) -> OsdOp {
    ranged(code::WRITE, offset, data.len() as u64).with_data(data)
}

fn resize_map(entries: u64) -> OsdOp {
    let input = [entries.to_le_bytes().as_slice(), &[0]].concat();
    OsdOp::on_class("rbd", "object_map_resize", &input)
}

fn update_map(entry: u64) -> OsdOp {
    let mut input = [entry.to_le_bytes(), (entry + 1).to_le_bytes()].concat();
    input.extend([1, 0]);
    OsdOp::on_class("rbd", "object_map_update", &input)
}

/// An object that holds an object map.
fn map_of(entries: u64) -> Rig {
    let (outcome, rounds) = Rig::missing().run(vec![resize_map(entries)]);
    assert_eq!((outcome.results.ran.result, rounds), (0, 1));
    let written: Vec<Bytes> = outcome
        .work
        .txn
        .into_iter()
        .filter_map(|op| match op {
            Op::Write { data, .. } => Some(data),
            _ => None,
        })
        .collect();
    Rig::with(&written.concat())
}

fn notify(payload: &[u8]) -> OsdOp {
    let mut w = denc::Writer::new();
    w.u32(0);
    w.u32(10);
    w.blob(payload);
    OsdOp::new(code::NOTIFY).with_data(w.finish())
}

#[test]
fn a_plan_reads_what_its_operations_tell() {
    let rig = Rig::with(&[1; 10_000]);
    let check = |op: OsdOp, want: Option<(Form, u64, u64)>| {
        let want = want.map(|(form, offset, len)| Read { form, offset, len });
        let name = format!("{:?}", op.code);
        assert_eq!(rig.reads(vec![op]), Vec::from_iter(want), "{name}");
    };
    check(ranged(code::READ, 0, 0), Some((Form::Bytes, 0, 10_000)));
    check(
        ranged(code::READ, 9_000, 5_000),
        Some((Form::Bytes, 9_000, 1_000)),
    );
    check(ranged(code::READ, 10_000, 1), None);
    check(
        ranged(code::SPARSE_READ, 4_096, 8_192),
        Some((Form::Extents, 4_096, 5_904)),
    );
    check(ranged(code::SPARSE_READ, 0, 0), None);
    check(ranged(code::MAPEXT, 0, 9_999), Some((Form::Map, 0, 9_999)));
    let compared = ranged(code::CMPEXT, 9_999, 3).with_data("abc");
    check(compared, Some((Form::Bytes, 9_999, 1)));
    check(OsdOp::new(code::TMAPGET), Some((Form::Bytes, 0, 10_000)));
    check(OsdOp::new(code::TMAPUP), Some((Form::Bytes, 0, 10_000)));
    check(OsdOp::new(code::TMAP2OMAP), Some((Form::Bytes, 0, 10_000)));
    check(update_map(0), Some((Form::Bytes, 0, 10_000)));
    check(OsdOp::on_class("lock", "get_info", b""), None);
    check(write(100, b"abc"), None);
    check(OsdOp::new(code::STAT), None);
    // Calls share one read.
    let many = vec![
        update_map(0),
        ranged(code::READ, 1, 2),
        update_map(1),
        update_map(2),
    ];
    assert_eq!(rig.reads(many), [Read::bytes(0, 10_000), Read::bytes(1, 2)]);
    assert!(Rig::missing().reads(vec![ranged(code::READ, 0, 9)]).is_empty());
    let mut coded = Rig::with(&[1; 100]);
    coded.pool.erasure = true;
    assert_eq!(
        coded.reads(vec![ranged(code::SPARSE_READ, 0, 50)]),
        [Read::bytes(0, 50)]
    );
    assert!(coded.reads(vec![ranged(code::MAPEXT, 0, 50)]).is_empty());
}

#[test]
fn writes_gather_nothing() {
    let rig = Rig::with(&[1; 100]);
    let reads = rig.reads(vec![write(0, b"abc"), OsdOp::new(code::DELETE)]);
    assert_eq!(reads.capacity(), 0);
}

#[test]
fn reads_answer_with_what_was_gathered() {
    let mut rig = Rig::with(b"0123456789");
    let ops = vec![
        ranged(code::READ, 2, 3),
        ranged(code::SPARSE_READ, 4, 100),
        ranged(code::MAPEXT, 0, 100),
        ranged(code::READ, 20, 3),
    ];
    let got = rig.results(ops);
    assert_eq!(got[0], (0, Bytes::from_static(b"234")));
    let map = |offset: u64, len: u64| {
        let mut b = 1u32.to_le_bytes().to_vec();
        b.extend(offset.to_le_bytes());
        b.extend(len.to_le_bytes());
        b
    };
    let sparse = [map(4, 6), 6u32.to_le_bytes().to_vec(), b"456789".to_vec()].concat();
    assert_eq!(got[1], (0, sparse.into()));
    assert_eq!(got[2], (0, map(0, 10).into()));
    assert_eq!(got[3], (0, Bytes::new()));
}

#[test]
fn what_cannot_be_read_fails_the_operation_that_wanted_it() {
    let mut rig = Rig::with(&[7; 100]);
    let bad = ranged(code::READ, 0, 10).with_flags(op_flag::FAILOK);
    let ops = vec![bad, ranged(code::READ, 50, 1)];
    let mut gathered = Gathered::default();
    gathered.add(Read::bytes(0, 10), Err(IoError("a bad block".into())));
    rig.gather(Read::bytes(50, 1), &mut gathered);
    let outcome = rig.once(&message(ops), &gathered).unwrap();
    let eio = (Errno::EIO.code(), Bytes::new());
    assert_eq!(outcome.results.ran.results, [eio, (0, Bytes::from_static(&[7]))]);
    assert_eq!(outcome.results.read_bytes, 1);
}

#[test]
fn a_method_asks_for_what_the_plan_did_not_have() {
    // A map of more than one window: where in it the method reads shows when it runs.
    let mut rig = map_of(8 * WINDOW);
    assert!(rig.state.size > 2 * WINDOW);
    let op = || update_map(6 * WINDOW);
    assert!(rig.reads(vec![op()]).is_empty());
    let (outcome, rounds) = rig.run(vec![op()]);
    assert!(outcome.results.ran.result == 0 && rounds > 1, "{rounds} rounds");
    // It does the same that it does with all there from the start.
    let mut whole = Gathered::default();
    rig.gather(Read::bytes(0, rig.state.size), &mut whole);
    let at_once = rig.once(&message(vec![op()]), &whole).unwrap();
    assert_eq!(format!("{:?}", at_once.work), format!("{:?}", outcome.work));
    assert!(!at_once.work.txn.is_empty());
    let (_, rounds) = map_of(1000).run(vec![update_map(3)]);
    assert_eq!(rounds, 1, "a small one is planned");
}

#[test]
fn many_calls_end_with_all_of_the_object() {
    let mut rig = map_of(64 * WINDOW);
    let calls = (0..16).map(|n| update_map(n * 4 * WINDOW)).collect();
    let (outcome, rounds) = rig.run(calls);
    assert_eq!(outcome.results.ran.result, 0);
    assert!(rounds <= 5, "{rounds} rounds");
}

#[test]
fn an_execution_that_lacks_something_leaves_nothing() {
    let mut rig = map_of(8 * WINDOW);
    // Room for one such notification.
    rig.table = Table(NotifyBytes::new(3 << 10));
    let ping = OsdOp::new(code::WATCH).with_watch(WatchArg {
        cookie: 11,
        op: 7,
        ..WatchArg::default()
    });
    let ops = vec![write(0, b"x"), notify(&[0; 800]), update_map(3)];
    let message = message(ops.clone());
    for _ in 0..3 {
        let missing = rig.once(&message, &Gathered::default()).err().unwrap();
        assert_eq!(missing.0.offset, 0);
        drop(rig.table.0.take(4100, 800).expect("the room is given back"));
    }
    let before = format!("{:?}{:?}", rig.state, rig.index);
    let (outcome, _) = rig.run(ops);
    assert_eq!(before, format!("{:?}{:?}", rig.state, rig.index));
    assert_eq!((outcome.results.ran.result, outcome.results.notify_id), (0, 101));
    assert_eq!(outcome.results.effects.len(), 1);
    assert!(rig.table.0.take(4100, 800).is_err(), "now it is taken");
    drop(outcome);
    assert!(rig.table.0.take(4100, 800).is_ok());
    // A ping of a watch that the object does not have.
    assert_eq!(rig.results(vec![ping])[0].0, Errno::ENOTCONN.code());
}

#[test]
fn a_ping_holds_although_the_message_fails() {
    let mut rig = Rig::with(b"x");
    let watch = |op| {
        OsdOp::new(code::WATCH).with_watch(WatchArg {
            cookie: 11,
            op,
            ..WatchArg::default()
        })
    };
    rig.state = rig.run(vec![watch(3)]).0.work.new;
    let (outcome, _) = rig.run(vec![watch(7), OsdOp::new(code::CREATE).with_flags(op_flag::EXCL)]);
    assert_eq!(outcome.results.ran.result, Errno::EEXIST.code());
    let notes = outcome.results.notes;
    assert!(matches!(notes[..], [Note::Ping((4100, 11))]), "{notes:?}");
}

#[test]
fn a_fetched_copy_becomes_the_object() {
    let mut rig = Rig::with(b"old");
    let mut w = denc::Writer::new();
    w.blob(b"source");
    w.put(&message(Vec::new()).oloc);
    let op = OsdOp::new(code::COPY_FROM).with_data(w.finish());
    let other = HObject {
        oid: "source".into(),
        ..rig.head.object.clone()
    };
    let copy = ObjectCopy {
        user_version: 77,
        mtime: Utime { sec: 9, nsec: 0 },
        data: "new data".into(),
        attrs: vec![("a".into(), "b".into())],
        omap_header: Bytes::new(),
        omap: vec![("k".into(), "v".into())],
    };
    rig.sources
        .insert(0, CopySource::Fetched(other.clone(), Err(Errno::EIO)));
    let got = rig.results(vec![op.clone()]);
    assert!(got[0].0 < 0, "{got:?}");
    rig.sources
        .insert(0, CopySource::Fetched(other, Ok(Box::new(copy))));
    let done = rig.run(vec![op]).0;
    assert_eq!(done.results.ran.result, 0, "{done:?}");
    assert_eq!((done.work.new.size, done.work.user_version), (8, Some(77)));
}

#[test]
fn a_write_is_finished_with_its_versions() {
    let mut rig = Rig::with(&[0; 8192]);
    let Written::Done(f) = rig.finish(vec![write(10, b"abc")]) else {
        panic!("it succeeds")
    };
    assert_eq!(
        (f.entry.kind, f.entry.version),
        (EntryKind::Modify, EVersion::new(5, 41))
    );
    assert_eq!((f.entry.user_version, f.entry.last_user_version), (41, 41));
    assert_eq!(f.entry.ranges.unwrap().intervals(), [(10, 13)]);
    assert!(
        matches!(f.ops[..], [Op::Write { .. }, Op::SetAttrs { .. }]),
        "{:?}",
        f.ops
    );
    assert_eq!(f.new.info.version, f.entry.version);
    // A snapshot that the head has not seen: the clone comes first, and takes a version.
    rig.context = SnapContext {
        seq: 3,
        snaps: vec![3],
    };
    let Written::Done(f) = rig.finish(vec![write(10, b"abc")]) else {
        panic!("it succeeds")
    };
    assert_eq!((f.entry.clone, f.entry.version.version), (3, 42));
    assert!(matches!(f.ops[0], Op::Clone { .. }), "{:?}", f.ops);
    assert_eq!(f.new.snapset.clones[0].overlap.total(), 8192 - 3);
    // With a clone a deletion leaves a whiteout.
    let Written::Done(f) = rig.finish(vec![OsdOp::new(code::DELETE)]) else {
        panic!("it succeeds")
    };
    assert!(!f.new.exists && f.new.info.whiteout && f.entry.kind == EntryKind::Delete);
}

#[test]
fn a_failure_is_remembered_and_changes_nothing() {
    let mut rig = Rig::with(b"x");
    let excl = OsdOp::new(code::CREATE).with_flags(op_flag::EXCL);
    let Written::Failed(entry) = rig.finish(vec![write(0, b"y"), excl]) else {
        panic!("it fails")
    };
    assert_eq!(
        (entry.kind, entry.result),
        (EntryKind::Error, Errno::EEXIST.code())
    );
    assert_eq!((entry.version.version, entry.last_user_version), (41, 30));
}
