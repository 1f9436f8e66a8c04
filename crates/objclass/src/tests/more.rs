//! What the recordings do not cover: the registry, locks of two clients, visibility of return values, and object
//! maps against a plain model.

use super::Objects;
use crate::memory::MemoryObject;
use crate::rbd::types::{Migration, ParentSpec};
use crate::registry::{CLASSES, LookupError, lookup};
use bytes::Bytes;
use denc::{Decode, Encode, Writer};
use proptest::prelude::*;
use types::{EntityName, Errno};

#[test]
fn lookup_by_name() {
    assert!(lookup(b"rbd", b"get_size").is_ok_and(|m| m.reads() && !m.writes()));
    assert!(lookup(b"rbd", b"create").is_ok_and(|m| m.reads() && m.writes()));
    assert!(lookup(b"hello", b"record_hello").is_ok_and(|m| !m.reads() && m.writes()));
    assert_eq!(lookup(b"rbd", b"nope").err(), Some(LookupError::Method));
    assert_eq!(lookup(b"nope", b"get_size").err(), Some(LookupError::Class));
    assert_eq!(LookupError::Class.errno(), Errno::EOPNOTSUPP);
    assert_eq!(LookupError::Method.errno(), Errno::EOPNOTSUPP);
}

#[test]
fn names_are_unique() {
    for class in CLASSES {
        for (i, method) in class.methods.iter().enumerate() {
            let again = class.methods[..i].iter().any(|m| m.name == method.name);
            assert!(!again, "{}.{} is in the table twice", class.name, method.name);
        }
    }
}

#[test]
fn every_method_is_documented() {
    let page = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/protocol/classes.md"
    ));
    for class in CLASSES {
        for method in class.methods {
            let flags = [(method.reads(), "r"), (method.writes(), "w")];
            let flags: String = flags.iter().filter(|f| f.0).map(|f| f.1).collect();
            let entry = format!("`{}` {flags}", method.name);
            assert!(page.contains(&entry), "{}: {entry} is missing", class.name);
        }
    }
}

#[test]
fn filters_by_name() {
    use crate::{Pass, parse_filter};
    let parse = |name: &[u8], attr: &[u8]| {
        let mut w = Writer::new();
        w.blob(attr);
        w.blob(b"value");
        parse_filter(name, &mut denc::Reader::new(w.finish()))
    };
    let pass = Pass::XattrIs {
        name: Bytes::from_static(b"a"),
        value: Bytes::from_static(b"value"),
    };
    assert_eq!(parse(b"plain", b"_a"), Ok(pass.clone()));
    assert_eq!(parse(b"hello.hello", b"_a"), Ok(pass));
    for name in [
        &b""[..],
        b"nosuch",
        b"hello",
        b"hello.nosuch",
        b"nosuch.hello",
        b".",
    ] {
        assert_eq!(parse(name, b"_a"), Err(Errno::EINVAL));
    }
    assert_eq!(parse(b"plain", b"a"), Err(Errno::EINVAL));
    let cut_off = parse_filter(b"plain", &mut denc::Reader::new(Bytes::from_static(b"\x05")));
    assert_eq!(cut_off, Err(Errno::EINVAL));
}

#[test]
fn return_values_stay_for_the_pg() {
    let call = |name: &[u8], input: &'static [u8]| {
        let method = lookup(b"hello", name).unwrap();
        method.call(&mut MemoryObject::new(true), Bytes::from_static(input))
    };
    let reply = call(b"write_return_data", b"");
    assert_eq!(
        (reply.rval, reply.out.as_ref()),
        (42, b"you might see this".as_ref())
    );
    assert!(call(b"write_too_much_return_data", b"").out.len() > 64);
    let reply = call(b"writes_dont_return_data", b"x");
    assert_eq!(reply.rval, Errno::EINVAL.code());
    assert!(!reply.out.is_empty());
}

fn struct_of(fields: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    w.envelope(1, 1, fields);
    w.finish()
}

fn lock_input(kind: u8, tag: &str) -> Bytes {
    struct_of(|w| {
        w.string("l");
        w.u8(kind);
        w.string("cookie");
        w.string(tag);
        w.string("");
        w.u64(0);
        w.u8(0);
    })
}

#[test]
fn locks_of_two_clients() {
    let mut objects = Objects::new(true);
    let mut as_client = |id: u64, method: &str, input: Bytes| {
        objects.caller = EntityName::client(id);
        objects.call("o", "lock", method, &input).0
    };
    let name_and_cookie = || struct_of(|w| (w.string("l"), w.string("cookie")).0);
    assert_eq!(as_client(1, "lock", lock_input(1, "")), 0);
    assert_eq!(as_client(2, "lock", lock_input(1, "")), Errno::EBUSY.code());
    assert_eq!(as_client(2, "lock", lock_input(2, "")), Errno::EBUSY.code());
    assert_eq!(as_client(2, "unlock", name_and_cookie()), Errno::ENOENT.code());
    let held_by_1 = struct_of(|w| {
        w.string("l");
        EntityName::client(1).encode(w);
        w.string("cookie");
    });
    assert_eq!(as_client(2, "break_lock", held_by_1), 0);
    assert_eq!(as_client(1, "unlock", name_and_cookie()), Errno::ENOENT.code());
    assert_eq!(as_client(1, "lock", lock_input(2, "t")), 0);
    assert_eq!(as_client(2, "lock", lock_input(2, "t")), 0);
    assert_eq!(as_client(2, "unlock", name_and_cookie()), 0);
    assert_eq!(as_client(1, "unlock", name_and_cookie()), 0);
}

/// What `object_map_load` must give for these states.
fn encoded(states: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.u32(14);
    w.envelope(1, 1, |w| w.u64(states.len() as u64));
    for four in states.chunks(4) {
        w.u8(four.iter().enumerate().map(|(i, s)| s << (6 - 2 * i)).sum());
    }
    w.u32(0);
    w.finish().to_vec()
}

#[derive(Debug, Clone)]
enum Step {
    Resize(u64, u8),
    Update(u64, u64, u8, Option<u8>),
    SnapAdd,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..40_000, 0u8..4).prop_map(|(n, s)| Step::Resize(n, s)),
        (0u64..40_000, 1u64..20_000, 0u8..4, proptest::option::of(0u8..4))
            .prop_map(|(from, len, s, f)| Step::Update(from, from + len, s, f)),
        (0u64..40_000, 1u64..5, 0u8..4, Just(None)).prop_map(|(from, len, s, f)| Step::Update(
            from,
            from + len,
            s,
            f
        )),
        Just(Step::SnapAdd),
    ]
}

/// The code that a map of one byte per entry gives, which it changes like the real one.
fn model(map: &mut Vec<u8>, step: &Step) -> i32 {
    match *step {
        Step::Resize(n, state) => {
            if map.iter().skip(n as usize).any(|s| *s != state) {
                return Errno::ESTALE.code();
            }
            map.resize(n as usize, state);
        }
        Step::Update(from, to, state, filter) => {
            if to > map.len() as u64 {
                return Errno::ERANGE.code();
            }
            for s in &mut map[from as usize..to as usize] {
                if filter.is_none_or(|f| *s == f || f == 1 && *s == 3) {
                    *s = state;
                }
            }
        }
        Step::SnapAdd => map.iter_mut().filter(|s| **s == 1).for_each(|s| *s = 3),
    }
    0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn object_maps_as_a_plain_model(steps in proptest::collection::vec(step(), 1..12)) {
        let mut objects = Objects::new(true);
        let mut map = Vec::new();
        let first = Step::Resize(33_000, 0);
        for step in [first].iter().chain(&steps) {
            let (method, input) = match *step {
                Step::Resize(n, state) => ("object_map_resize", (n, state).to_bytes()),
                Step::Update(from, to, state, filter) => {
                    ("object_map_update", ((from, to), (state, filter)).to_bytes())
                }
                Step::SnapAdd => ("object_map_snap_add", Bytes::new()),
            };
            prop_assert_eq!(objects.call("m", "rbd", method, &input).0, model(&mut map, step));
            // Loading checks every checksum.
            let (rc, out) = objects.call("m", "rbd", "object_map_load", b"");
            prop_assert_eq!(rc, 0);
            prop_assert!(out == encoded(&map));
        }
    }
}

#[test]
fn an_image_has_no_more_snapshots_than_can_be_asked_for() {
    use crate::rbd::SNAPSHOTS_MAX;
    let mut objects = Objects::new(true);
    let mut create = Writer::new();
    create.u64(1 << 20);
    create.u8(22);
    create.u64(1);
    create.blob(b"rbd_data.x");
    assert_eq!(objects.call("header", "rbd", "create", &create.finish()).0, 0);
    let add = |objects: &mut Objects, id: u64| {
        let mut input = Writer::new();
        input.blob(format!("s{id}").as_bytes());
        input.u64(id);
        objects.call("header", "rbd", "snapshot_add", &input.finish()).0
    };
    assert_eq!(add(&mut objects, 1), 0);
    // The first one's record again and again: adding them one by one takes seconds.
    let object = objects.get("header");
    let rows = &mut object.pending.as_mut().unwrap().omap;
    let record = rows[b"snapshot_0000000000000001".as_slice()].clone();
    for id in 2..SNAPSHOTS_MAX {
        rows.insert(Bytes::from(format!("snapshot_{id:016x}")), record.clone());
    }
    object.commit();
    assert_eq!(add(&mut objects, SNAPSHOTS_MAX), 0);
    assert_eq!(add(&mut objects, SNAPSHOTS_MAX + 1), Errno::EDQUOT.code());
}

/// As recorded from 16.2.15: with a snapshot 12 and the head removed, GT 12 fails and GT 13 does not.
#[test]
fn a_removed_object_that_snapshots_have_counts_for_its_snapshots() {
    let run = |seq: u64, how: u8, known: u64| {
        let mut object = MemoryObject::new(true);
        object.snapset_seq = known;
        let mut w = Writer::new();
        w.u64(seq);
        w.u8(how);
        let method = lookup(b"rbd", b"assert_snapc_seq").ok()?;
        Some(method.call(&mut object, w.finish()).rval)
    };
    let late = Errno::ERANGE.code();
    let all = [
        (0, 0, 12),
        (12, 0, 12),
        (13, 0, 12),
        (12, 1, 12),
        (13, 1, 12),
        (0, 0, 0),
        (0, 1, 0),
    ];
    let said = all.map(|(seq, how, known)| run(seq, how, known));
    assert_eq!(said, [late, late, 0, 0, late, 0, late].map(Some));
}

/// A target that was shrunk and grown read from its source again what had been cut off: only the record says how far the source is seen.
#[test]
fn a_target_that_is_shrunk_sees_less_of_its_source() {
    const MIB: u64 = 1 << 20;
    let overlap_after = |kind: u8, sizes: &[u64]| {
        let mut objects = Objects::new(true);
        let mut create = Writer::new();
        create.u64(32 * MIB);
        create.u8(22);
        create.u64(1);
        create.blob(b"rbd_data.x");
        assert_eq!(objects.call("header", "rbd", "create", &create.finish()).0, 0);
        let record = Migration {
            header_type: kind,
            pool: 1,
            pool_namespace: Bytes::new(),
            image_name: Bytes::from_static(b"i"),
            image_id: Bytes::from_static(b"1"),
            snap_seqs: Default::default(),
            overlap: 32 * MIB,
            flatten: false,
            mirroring: false,
            state: 2,
            state_description: Bytes::new(),
            mirror_image_mode: 0,
            source_spec: Bytes::new(),
        };
        let call =
            |objects: &mut Objects, method: &str, input: Bytes| objects.call("header", "rbd", method, &input);
        assert_eq!(call(&mut objects, "migration_set", record.to_bytes()).0, 0);
        for size in sizes {
            assert_eq!(call(&mut objects, "set_size", size.to_bytes()).0, 0);
        }
        let (code, out) = call(&mut objects, "migration_get", Bytes::new());
        assert_eq!(code, 0);
        Migration::from_bytes(&out).unwrap().overlap / MIB
    };
    let target = Migration::DESTINATION;
    assert_eq!(overlap_after(target, &[64 * MIB]), 32);
    assert_eq!(overlap_after(target, &[64 * MIB, 40 * MIB]), 32);
    assert_eq!(overlap_after(target, &[10 * MIB, 64 * MIB]), 10);
    assert_eq!(overlap_after(Migration::SOURCE, &[10 * MIB]), 32);
}

/// 16.2 refuses an overlap of 0 here, too, so that a clone that reads nothing stands against the abort of its parent's migration.
#[test]
fn a_clone_that_reads_nothing_can_change_its_parent() {
    let mut objects = Objects::new(true);
    let mut create = Writer::new();
    create.u64(1 << 22);
    create.u8(22);
    create.u64(1);
    create.blob(b"rbd_data.x");
    assert_eq!(objects.call("header", "rbd", "create", &create.finish()).0, 0);
    let mut attach = |image: &'static [u8], overlap: u64, again: bool| {
        let mut w = Writer::new();
        w.put(&ParentSpec {
            pool: 1,
            pool_namespace: Bytes::new(),
            image_id: Bytes::from_static(image),
            snap_id: 5,
        });
        w.u64(overlap);
        w.bool(again);
        objects.call("header", "rbd", "parent_attach", &w.finish()).0
    };
    let invalid = Errno::EINVAL.code();
    assert_eq!(attach(b"a", 0, false).abs(), invalid.abs());
    assert_eq!(
        attach(b"a", 0, true).abs(),
        invalid.abs(),
        "it has no parent so far"
    );
    assert_eq!(attach(b"a", 4096, false), 0);
    assert_eq!(attach(b"b", 0, false).abs(), invalid.abs());
    assert_eq!(attach(b"b", 0, true), 0);
    let (_, got) = objects.call("header", "rbd", "parent_get", &[]);
    assert_eq!(ParentSpec::from_bytes(&got).unwrap().image_id, b"b"[..]);
}
