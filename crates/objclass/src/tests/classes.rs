//! What the recordings of the classes beyond RBD's do not cover: pages, several calls in one message, inputs cut off.

use super::Objects;
use super::replay::inputs;
use crate::memory::MemoryObject;
use crate::registry::{CLASSES, lookup};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use types::{Errno, Utime};

/// The classes whose inputs are all one envelope each.
const IN_ENVELOPES: &[&str] = &["cmpomap", "log", "timeindex"];

fn envelope(version: u8, fields: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new();
    w.envelope(version, 1, fields);
    w.finish()
}

fn at(sec: u32) -> Utime {
    Utime { sec, nsec: 0 }
}

#[test]
fn an_input_cut_off_anywhere_is_einval() {
    let classes = CLASSES.iter().filter(|c| IN_ENVELOPES.contains(&c.name));
    for (class, method) in classes.flat_map(|c| c.methods.iter().map(|m| (c.name, m))) {
        let mut tried = 0;
        for input in inputs(class, method.name).into_iter().filter(|i| i.len() < 200) {
            let mut object = MemoryObject::new(true);
            crate::ObjectContext::create(&mut object, true).unwrap();
            object.commit();
            for len in 0..input.len() {
                let reply = method.call(&mut object, Bytes::copy_from_slice(&input[..len]));
                assert_eq!(reply.rval, Errno::EINVAL.code(), "{class}.{} {len}", method.name);
                tried += 1;
            }
        }
        assert!(tried > 0, "{class}.{} was not recorded", method.name);
    }
}

fn log_entry(w: &mut Writer, sec: u32, name: &str) {
    w.envelope(2, 1, |w| {
        w.string("section");
        w.string(name);
        w.put(&at(sec));
        w.string("data");
        w.string("");
    });
}

/// `count` entries from `sec` on, one each second.
fn log_input(sec: u32, count: u32) -> Bytes {
    envelope(2, |w| {
        w.u32(count);
        (0..count).for_each(|i| log_entry(w, sec + i, "n"));
        w.bool(true);
    })
}

fn index_input(sec: u32, count: u32) -> Bytes {
    envelope(1, |w| {
        w.u32(count);
        for i in 0..count {
            w.envelope(1, 1, |w| {
                w.put(&at(sec + i));
                w.string("ext");
                w.string("value");
            });
        }
    })
}

fn listing(from: u32, marker: &Bytes, to: u32, max: i32) -> Bytes {
    envelope(1, |w| {
        w.put(&at(from));
        w.put(marker);
        w.put(&at(to));
        w.i32(max);
    })
}

fn trim_to(sec: u32) -> Bytes {
    envelope(2, |w| {
        w.put(&(Utime::ZERO, at(sec)));
        w.string("");
        w.string("");
    })
}

/// Number of entries, marker, and whether more follow.
fn listed(out: Bytes) -> (u32, Bytes, bool) {
    let skip_entry = |r: &mut Reader| r.envelope(9, |_, _| Ok(()));
    Reader::new(out)
        .envelope(1, |_, r| {
            let n = r.u32()?;
            (0..n).try_for_each(|_| skip_entry(r))?;
            Ok((n, Bytes::decode(r)?, r.bool()?))
        })
        .unwrap()
}

#[test]
fn long_logs_and_indexes_are_listed_and_trimmed_in_pages() {
    for (class, first, second) in [
        ("log", log_input(100, 1400), log_input(1500, 1100)),
        ("timeindex", index_input(100, 1400), index_input(1500, 1100)),
    ] {
        let mut objects = Objects::new(true);
        assert_eq!(objects.call("o", class, "add", &first).0, 0);
        assert_eq!(objects.call("o", class, "add", &second).0, 0);
        let mut marker = Bytes::new();
        for (expected, more) in [(1000, true), (1000, true), (500, false)] {
            let (rc, out) = objects.call("o", class, "list", &listing(1, &marker, 9999, 5000));
            assert_eq!(rc, 0);
            let page = listed(out);
            assert_eq!((page.0, page.2), (expected, more), "{class}");
            marker = page.1;
        }
        // Up to 2099 seconds are 2000 entries.
        for left in [1500, 500] {
            assert_eq!(objects.call("o", class, "trim", &trim_to(2099)).0, 0);
            let rows = objects.get("o").committed.as_ref().unwrap().omap.len();
            assert_eq!(rows, left, "{class}");
        }
        assert_eq!(
            objects.call("o", class, "trim", &trim_to(2099)).0,
            Errno::ENODATA.code()
        );
    }
}

#[test]
fn entries_of_one_message_and_of_one_time_all_stay() {
    let add = lookup(b"log", b"add").unwrap();
    let mut object = MemoryObject::new(true);
    for message in 1..4 {
        // Three calls in one message, which cannot see what the others have written.
        for _ in 0..3 {
            assert_eq!(add.call(&mut object, log_input(7, 2)).rval, 0);
        }
        object.commit();
        assert_eq!(object.committed.as_ref().unwrap().omap.len(), 6 * message);
    }
}

#[test]
fn who_reads_a_monotonic_log_behind_a_marker_misses_nothing() {
    let mut objects = Objects::new(true);
    assert_eq!(objects.call("o", "log", "add", &log_input(100, 1)).0, 0);
    let page = listed(
        objects
            .call("o", "log", "list", &listing(0, &Bytes::new(), 0, 9))
            .1,
    );
    assert_eq!(page.0, 1);
    assert_eq!(objects.call("o", "log", "add", &log_input(50, 3)).0, 0);
    let later = listed(objects.call("o", "log", "list", &listing(0, &page.1, 0, 9)).1);
    assert_eq!(later.0, 3);
}

#[test]
fn a_damaged_log_header_is_eio() {
    let mut objects = Objects::new(true);
    assert_eq!(objects.call("o", "log", "add", &log_input(100, 1)).0, 0);
    let object = objects.get("o");
    object.pending.as_mut().unwrap().omap_header = Bytes::from_static(b"\x01\x01\xff");
    object.commit();
    let info = envelope(1, |_| ());
    assert_eq!(objects.call("o", "log", "info", &info).0, Errno::EIO.code());
    assert_eq!(
        objects.call("o", "log", "add", &log_input(100, 1)).0,
        Errno::EIO.code()
    );
}

#[test]
fn a_key_that_is_no_time_is_not_listed() {
    let mut objects = Objects::new(true);
    assert_eq!(objects.call("o", "timeindex", "add", &index_input(100, 2)).0, 0);
    let object = objects.get("o");
    let rows = &mut object.pending.as_mut().unwrap().omap;
    for key in [
        "1_",
        "1_0000000101",
        "1_0000000101.junk",
        "1_x.5_y",
        "1_99999999999.5_y",
    ] {
        rows.insert(Bytes::from(key), Bytes::from_static(b"v"));
    }
    object.commit();
    let page = listed(
        objects
            .call("o", "timeindex", "list", &listing(1, &Bytes::new(), 0, 100))
            .1,
    );
    assert_eq!((page.0, page.2), (2, false));
}

#[test]
fn values_are_compared_and_set_in_one_step() {
    let compared = |mode: u8, op: u8, key: &str, given: Bytes, default: Option<Bytes>| {
        envelope(1, |w| {
            w.u8(mode);
            w.u8(op);
            w.put(&vec![(Bytes::copy_from_slice(key.as_bytes()), given)]);
            default.encode(w);
        })
    };
    let number = |n: u64| n.to_bytes();
    let mut objects = Objects::new(true);
    let mut set = |op: u8, n: u64, default: Option<Bytes>| {
        assert_eq!(
            objects
                .call(
                    "o",
                    "cmpomap",
                    "cmp_set_vals",
                    &compared(2, op, "k", number(n), default)
                )
                .0,
            0
        );
        let state = objects.get("o").committed.clone();
        state.and_then(|s| s.omap.get(b"k".as_slice()).cloned())
    };
    assert_eq!(set(3, 5, None), None, "there is no such key");
    assert_eq!(
        set(3, 5, Some(Bytes::new())),
        Some(number(5)),
        "greater than nothing"
    );
    assert_eq!(set(3, 4, None), Some(number(5)), "not greater");
    assert_eq!(set(3, 256, None), Some(number(256)), "a number, not text");
    let holds = |op: u8| compared(2, op, "k", number(256), None);
    assert_eq!(objects.call("o", "cmpomap", "cmp_vals", &holds(1)).0, 0);
    assert_eq!(
        objects.call("o", "cmpomap", "cmp_vals", &holds(2)).0,
        Errno::ECANCELED.code()
    );
}
