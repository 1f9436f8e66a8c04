//! The classes of radosgw where the recordings do not go: many rows, and calls of two clients between one another.

use super::Objects;
use crate::context::ObjectContext;
use bytes::Bytes;
use denc::{Reader, Writer};

/// A pool with rows in the omap of its object `o`.
fn with_rows(rows: impl IntoIterator<Item = (Bytes, Bytes)>) -> Objects {
    let mut objects = Objects::new(true);
    let object = objects.get("o");
    object.omap_set(rows.into_iter().collect()).unwrap();
    object.commit();
    objects
}

fn call(objects: &mut Objects, method: &str, input: Writer) -> (i32, Bytes) {
    objects.call("o", "rgw", method, &input.finish())
}

fn structure(version: u8, body: impl FnOnce(&mut Writer)) -> Writer {
    let mut w = Writer::new();
    w.envelope(version, 1, body);
    w
}

/// An object's row in an index, named by its key.
fn entry(name: &str) -> (Bytes, Bytes) {
    use crate::rgw::types::{DirEntry, ObjKey};
    let key = ObjKey {
        name: name.to_string().into(),
        instance: Bytes::new(),
    };
    let entry = DirEntry {
        exists: true,
        ..DirEntry::new(key)
    };
    (name.to_string().into(), denc::Encode::to_bytes(&entry))
}

fn list(prefix: &[u8], delimiter: &[u8]) -> Writer {
    structure(6, |w| {
        w.u32(1000);
        w.blob(prefix);
        w.envelope(1, 1, |w| {
            w.blob(b"");
            w.blob(b"");
        });
        w.bool(false);
        w.blob(delimiter);
    })
}

fn many_then_two() -> Objects {
    let many = (0..41_000).map(|i| entry(&format!("a{i:05}")));
    with_rows(many.chain([entry("z/1"), entry("z/2")]))
}

#[test]
fn a_listing_looks_only_at_rows_of_its_prefix() {
    let mut objects = many_then_two();
    let (code, out) = call(&mut objects, "bucket_list", list(b"z/", b""));
    assert_eq!(code, 0);
    let found = |name: &[u8]| out.windows(name.len()).any(|part| part == name);
    assert!(found(b"z/1") && found(b"z/2"));
    assert_eq!(objects.get("o").rows_given, 2);
}

#[test]
fn rows_of_one_object_are_all_that_is_looked_at() {
    let mut objects = many_then_two();
    let input = structure(1, |w| {
        w.u32(1000);
        w.blob(b"z/1");
        w.blob(b"");
    });
    let (code, out) = call(&mut objects, "bi_list", input);
    assert_eq!(code, 0);
    let rows = Reader::new(out).envelope(1, |_, r| r.u32()).unwrap();
    assert_eq!((rows, objects.get("o").rows_given), (1, 1));
}
