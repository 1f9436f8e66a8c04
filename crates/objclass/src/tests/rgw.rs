//! The classes of radosgw where the recordings do not go: many rows, and calls of two clients between one another.

use super::Objects;
use crate::context::ObjectContext;
use crate::rgw::keys;
use crate::rgw::types::{CURRENT, DirEntry, Header, LogicalHead, ObjKey, VERSIONED};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};

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
    let key = ObjKey {
        name: name.to_string().into(),
        instance: Bytes::new(),
    };
    let entry = DirEntry {
        exists: true,
        ..DirEntry::new(key)
    };
    (name.to_string().into(), entry.to_bytes())
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

/// A record of use, in the two rows that it has.
fn used(user: &str, bucket: &str, epoch: u64) -> [(Bytes, Bytes); 2] {
    let value = structure(3, |w| {
        w.blob(user.as_bytes());
        w.blob(bucket.as_bytes());
        w.u64(epoch);
        (0..4).for_each(|_| w.u64(1));
        w.u32(0);
        w.blob(b"");
    });
    let value = value.finish();
    [
        (format!("{epoch:011}_{user}_{bucket}").into(), value.clone()),
        (format!("{user}_{epoch:011}_{bucket}").into(), value),
    ]
}

/// 8,500 steps with a bucket of the user, and the last with the one that is asked for.
fn much_used() -> Objects {
    with_rows((0..8500).flat_map(|epoch| used("user", if epoch == 8499 { "asked" } else { "other" }, epoch)))
}

/// Records of an answer, whether there are more, and where to go on.
fn read_usage(objects: &mut Objects, user: &str, bucket: &str, marker: &Bytes) -> (u32, bool, Bytes) {
    let input = structure(2, |w| {
        w.u64(0);
        w.u64(1 << 40);
        w.blob(user.as_bytes());
        w.blob(marker);
        w.u32(1000);
        w.blob(bucket.as_bytes());
    });
    let (code, out) = call(objects, "user_usage_log_read", input);
    assert_eq!(code, 0);
    let listed = Reader::new(out).envelope(1, |_, r| {
        let records = r.u32()?;
        for _ in 0..records {
            r.envelope(1, |_, _| Ok(()))?;
            r.envelope(3, |_, _| Ok(()))?;
        }
        Ok((records, r.bool()?, r.blob()?))
    });
    listed.unwrap()
}

#[test]
fn a_reader_of_usage_goes_on_behind_what_it_passed_over() {
    for user in ["user", ""] {
        let mut objects = much_used();
        let (records, truncated, next) = read_usage(&mut objects, user, "asked", &Bytes::new());
        assert!(records == 0 && truncated && !next.is_empty(), "{next:?}");
        let (records, truncated, _) = read_usage(&mut objects, user, "asked", &next);
        assert_eq!((records, truncated), (1, false));
    }
}

#[test]
fn records_behind_many_others_are_trimmed() {
    let mut objects = much_used();
    let input = || {
        structure(3, |w| {
            w.u64(0);
            w.u64(1 << 40);
            w.blob(b"user");
            w.blob(b"asked");
        })
    };
    assert_eq!(call(&mut objects, "user_usage_log_trim", input()).0, 0);
    assert_eq!(objects.get("o").committed.as_ref().unwrap().omap.len(), 2 * 8499);
    assert_eq!(
        call(&mut objects, "user_usage_log_trim", input()).0,
        types::Errno::ENODATA.code()
    );
}

#[test]
fn rows_of_a_user_whose_name_begins_so_are_counted_or_not_looked_at() {
    let of = |user: &str| (0..9000).flat_map(|e| used(user, "b", e)).collect::<Vec<_>>();
    let mut objects = with_rows(of("user_zz"));
    assert_eq!(read_usage(&mut objects, "user", "", &Bytes::new()).0, 0);
    assert!(
        objects.get("o").rows_given < 10,
        "{}",
        objects.get("o").rows_given
    );
    let mut objects = with_rows(of("user_0"));
    let (records, truncated, next) = read_usage(&mut objects, "user", "", &Bytes::new());
    assert!(records == 0 && truncated, "{next:?}");
    assert!(objects.get("o").rows_given < 8500);
    // A user whose name begins with a digit hides no steps.
    let mut objects = with_rows(
        of("0123")
            .into_iter()
            .take(4)
            .chain(used("user", "b", 1_795_290_000)),
    );
    assert_eq!(read_usage(&mut objects, "", "", &Bytes::new()).0, 2);
}

#[test]
fn a_usage_log_is_cleared_without_a_look_at_its_rows() {
    let mut objects = much_used();
    assert_eq!(call(&mut objects, "usage_log_clear", Writer::new()).0, 0);
    let object = objects.get("o");
    assert!(object.committed.as_ref().unwrap().omap.is_empty());
    assert_eq!(object.rows_given, 0);
    let mut none = Objects::new(true);
    assert_eq!(call(&mut none, "usage_log_clear", Writer::new()).0, 0);
    assert_eq!(none.get("o").committed, None);
}

#[test]
fn a_delimiter_is_no_longer_than_a_name() {
    let mut objects = many_then_two();
    assert_eq!(call(&mut objects, "bucket_list", list(b"a", &[b'x'; 1024])).0, 0);
    let code = call(&mut objects, "bucket_list", list(b"a", &[b'x'; 1025])).0;
    assert_eq!(code, types::Errno::EINVAL.code());
}

/// An entry of the queue of what is to be removed.
fn doomed(after_s: u32, tag: &str) -> Writer {
    structure(1, |w| {
        w.u32(after_s);
        w.envelope(1, 1, |w| {
            w.blob(tag.as_bytes());
            w.envelope(1, 1, |w| w.u32(0));
            w.u64(0);
        });
    })
}

fn queue_call(objects: &mut Objects, method: &str, input: Writer) -> Bytes {
    let (code, out) = objects.call("o", "rgw_gc", method, &input.finish());
    assert_eq!(code, 0, "{method}");
    out
}

fn queue_of(entries: &[(u32, &str)]) -> Objects {
    let mut objects = Objects::new(true);
    let init = structure(1, |w| {
        w.u64(1 << 16);
        w.u64(8);
    });
    queue_call(&mut objects, "rgw_gc_queue_init", init);
    for (after_s, tag) in entries {
        queue_call(&mut objects, "rgw_gc_queue_enqueue", doomed(*after_s, tag));
    }
    objects
}

/// The tags listed, and whether there are more.
fn listed(objects: &mut Objects, due_alone: bool) -> (Vec<String>, bool) {
    let input = structure(2, |w| {
        w.blob(b"");
        w.u32(100);
        w.bool(due_alone);
    });
    let out = queue_call(objects, "rgw_gc_queue_list_entries", input);
    let listed = Reader::new(out).envelope(2, |_, r| {
        let entries = r.u32()?;
        let mut tags = Vec::new();
        for _ in 0..entries {
            tags.push(r.envelope(1, |_, r| r.string())?);
        }
        r.blob()?;
        Ok((tags, r.bool()?))
    });
    listed.unwrap()
}

fn remove(objects: &mut Objects, number: u64) {
    queue_call(
        objects,
        "rgw_gc_queue_remove_entries",
        structure(1, |w| w.u64(number)),
    );
}

#[test]
fn what_is_removed_by_number_is_what_was_listed() {
    let mut objects = queue_of(&[(0, "a"), (1000, "c"), (0, "d")]);
    let (tags, truncated) = listed(&mut objects, true);
    assert!(!truncated);
    remove(&mut objects, tags.len() as u64);
    let left: Vec<_> = listed(&mut objects, false).0;
    assert!(left.iter().all(|tag| !tags.contains(tag)), "{tags:?} {left:?}");
    assert_eq!(left, ["c", "d"]);
    objects.now.sec += 1000;
    assert_eq!(listed(&mut objects, true).0, ["c", "d"]);
}

#[test]
fn what_is_deferred_after_it_was_listed_still_counts_when_it_is_removed() {
    let mut objects = queue_of(&[(0, "a"), (0, "b"), (0, "d")]);
    let input = doomed(500, "a");
    queue_call(&mut objects, "rgw_gc_queue_update_entry", input);
    // As who listed a and b before does.
    remove(&mut objects, 2);
    assert_eq!(listed(&mut objects, false).0, ["d", "a"]);
}

fn version(instance: &'static str, epoch: u64, size: u64) -> DirEntry {
    let mut entry = DirEntry {
        exists: true,
        flags: VERSIONED,
        epoch,
        ..DirEntry::new(ObjKey {
            name: Bytes::from_static(b"o"),
            instance: instance.into(),
        })
    };
    entry.meta.size = size;
    entry
}

#[test]
fn the_version_that_becomes_current_keeps_what_was_written_of_it() {
    let listed = version("old", 2, 1);
    // As a completion, which changes the instance's row alone, leaves it.
    let changed = version("old", 2, 5);
    let mut current = version("new", 3, 9);
    current.flags |= CURRENT;
    let head = LogicalHead {
        key: current.key.clone(),
        epoch: 3,
        tag: Bytes::from_static(b"tag"),
        exists: true,
        ..LogicalHead::default()
    };
    let mut objects = with_rows([
        (keys::listed(&listed), listed.to_bytes()),
        (keys::instance(&changed.key), changed.to_bytes()),
        (keys::listed(&current), current.to_bytes()),
        (keys::instance(&current.key), current.to_bytes()),
        (keys::head(b"o"), head.to_bytes()),
    ]);
    let input = structure(2, |w| {
        w.put(&current.key);
        w.blob(b"op");
        w.u64(0);
        w.bool(false);
        w.u16(0);
        w.blob(b"tag");
    });
    assert_eq!(call(&mut objects, "bucket_unlink_instance", input).0, 0);
    let omap = &objects.get("o").committed.as_ref().unwrap().omap;
    for at in [keys::instance(&changed.key), keys::listed(&changed)] {
        let entry = DirEntry::from_bytes(&omap[&at]).unwrap();
        assert_eq!((entry.meta.size, entry.has(CURRENT)), (5, true), "{at:?}");
    }
    let head = LogicalHead::from_bytes(&omap[&keys::head(b"o")]).unwrap();
    assert_eq!(head.key, changed.key);
}

#[test]
fn a_part_that_is_named_twice_is_uncounted_once() {
    let mut objects = with_rows([entry("part"), entry("other")]);
    let part = DirEntry::from_bytes(&entry("part").1).unwrap();
    let mut header = Header::default();
    header.count(&part.meta);
    header.count(&part.meta);
    objects.get("o").set_omap_header(header.to_bytes()).unwrap();
    objects.get("o").commit();
    let input = structure(7, |w| {
        w.u8(2);
        w.u64(0);
        w.put(&part.meta);
        w.blob(b"");
        w.blob(b"");
        w.put(&vec![part.key.clone(), part.key.clone()]);
        w.put(&part.ver);
        w.bool(false);
        w.put(&ObjKey {
            name: Bytes::from_static(b"whole"),
            instance: Bytes::new(),
        });
    });
    assert_eq!(call(&mut objects, "bucket_complete_op", input).0, 0);
    let state = objects.get("o").committed.as_ref().unwrap();
    assert_eq!(state.omap.keys().collect::<Vec<_>>(), ["other"]);
    let header = Header::from_bytes(&state.omap_header).unwrap();
    assert_eq!(header.stats[&part.meta.category].count, 1);
}

#[test]
fn a_queue_for_very_many_deferred_tags_takes_some() {
    let mut objects = Objects::new(true);
    let init = structure(1, |w| {
        w.u64(1 << 16);
        w.u64(1 << 32);
    });
    queue_call(&mut objects, "rgw_gc_queue_init", init);
    queue_call(&mut objects, "rgw_gc_queue_update_entry", doomed(5, "a"));
    assert_eq!(listed(&mut objects, false).0, ["a"]);
}

/// A message may announce one tag twice: the row by its first time was left behind, and freed what was deferred.
#[test]
fn a_tag_that_a_message_sets_twice_has_one_time() {
    let mut objects = Objects::new(true);
    let method = crate::lookup(b"rgw", b"gc_set_entry").unwrap();
    let object = objects.get("o");
    for after_s in [5, 500] {
        let reply = method.call(object, doomed(after_s, "a").finish());
        assert_eq!(reply.rval, 0);
    }
    object.commit();
    let omap = &object.committed.as_ref().unwrap().omap;
    let by_time = omap.keys().filter(|k| k.starts_with(b"1_"));
    assert_eq!((by_time.count(), omap.len()), (1, 2));
}
