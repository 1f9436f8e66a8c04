//! A store that is encrypted where it lies: made, opened, looked at with its key and without.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

#[path = "common/mod.rs"]
mod common;

use bytes::Bytes;
use common::{coll, keys, nobody, oid, options};
use io::key_file::KeyFile;
use std::fs;
use std::path::Path;
use store::{Error, Options, Store, View};
use types::{Op, Transaction};

const TEXT: &[u8] = b"a text that nobody else has";

fn threaded(keys: Option<KeyFile>) -> Options {
    Options {
        threads: true,
        keys,
        ..options()
    }
}

/// With data in the log, in the object's record, beside it, and written past the log.
fn fill(dir: &Path, keys: Option<KeyFile>) {
    let options = threaded(keys);
    Store::mkfs(dir, &options).unwrap();
    let mut store = Store::open(dir, &options, nobody()).unwrap();
    let ops = vec![Op::CreateCollection];
    store
        .queue(Transaction {
            collection: coll(0),
            ops,
        })
        .unwrap();
    for (n, len) in [(1, TEXT.len()), (2, 9000), (3, 64 << 10)] {
        let data: Bytes = TEXT.iter().copied().cycle().take(len).collect();
        let ops = vec![
            Op::Write {
                oid: oid(n),
                offset: 0,
                data: data.clone(),
            },
            Op::SetAttrs {
                oid: oid(n),
                attrs: vec![(Bytes::from_static(b"_x"), data.slice(..TEXT.len()))],
            },
        ];
        store
            .queue(Transaction {
                collection: coll(0),
                ops,
            })
            .unwrap();
    }
    store.close().unwrap();
}

fn has_text(dir: &Path, file: &str) -> bool {
    let bytes = fs::read(dir.join(file)).unwrap();
    bytes.windows(TEXT.len()).any(|w| w == TEXT)
}

fn said(e: Error) -> String {
    assert!(!matches!(e, Error::NotAStore { .. }), "{e}");
    e.to_string()
}

#[test]
fn what_is_written_is_read_with_the_key_alone() {
    let (plain, sealed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(plain.path(), None);
    fill(sealed.path(), Some(keys()));
    for file in ["block", "index"] {
        assert!(has_text(plain.path(), file), "the test would not find it: {file}");
        assert!(!has_text(sealed.path(), file), "{file}");
    }
    let report = Store::check(sealed.path(), &threaded(Some(keys()))).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let view = View::open(sealed.path(), &threaded(Some(keys()))).unwrap();
    let got = view.read(&oid(3), 0, 64 << 10).unwrap();
    assert!(got.chunks(TEXT.len()).all(|c| c == &TEXT[..c.len()]));
    drop(view);
    // A plain one is opened beside keys.
    drop(Store::open(plain.path(), &threaded(Some(keys())), nobody()).unwrap());
    for keys in [
        None,
        Some(KeyFile::parse("other AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=").unwrap()),
    ] {
        let options = threaded(keys);
        let why = said(
            Store::open(sealed.path(), &options, nobody())
                .map(drop)
                .unwrap_err(),
        );
        assert!(why.contains("encrypted under the key 'test'"), "{why}");
        said(View::open(sealed.path(), &options).map(drop).unwrap_err());
        said(Store::mkfs(sealed.path(), &options).unwrap_err());
        assert!(Store::check(sealed.path(), &options).is_err());
    }
    let again = Store::mkfs(sealed.path(), &threaded(Some(keys()))).unwrap_err();
    assert!(matches!(again, Error::AlreadyAStore { .. }), "{again}");
    // Without its seal it is gone for good.
    fs::remove_file(sealed.path().join("seal")).unwrap();
    assert!(Store::open(sealed.path(), &threaded(Some(keys())), nobody()).is_err());
}

/// The disk's own index went with an mkfs that found its device away.
#[test]
fn a_store_whose_device_is_away_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), None);
    let (block, away) = (dir.path().join("block"), dir.path().join("away"));
    fs::rename(&block, &away).unwrap();
    std::os::unix::fs::symlink(dir.path().join("missing"), &block).unwrap();
    for keys in [None, Some(keys())] {
        said_plainly(Store::mkfs(dir.path(), &threaded(keys)).unwrap_err());
    }
    assert!(dir.path().join("index").exists() && !dir.path().join("seal").exists());
    fs::remove_file(&block).unwrap();
    fs::rename(&away, &block).unwrap();
    assert!(Store::check(dir.path(), &threaded(None)).unwrap().is_clean());
}

fn said_plainly(e: Error) {
    assert!(
        e.to_string().contains("block") || e.to_string().contains("data file"),
        "{e}"
    );
}

#[test]
fn a_seal_under_another_key_is_mended_when_the_store_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), Some(keys()));
    let old = fs::read(dir.path().join("seal")).unwrap();
    let text =
        "new AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\ntest MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let both = KeyFile::parse(text).unwrap();
    // Who only looks changes nothing, and nor does who is refused.
    assert!(
        Store::check(dir.path(), &threaded(Some(both.clone())))
            .unwrap()
            .is_clean()
    );
    assert!(Store::mkfs(dir.path(), &threaded(Some(both.clone()))).is_err());
    assert_eq!(fs::read(dir.path().join("seal")).unwrap(), old);
    // Half of a change that was cut: the second copy alone is under the new key.
    drop(Store::open(dir.path(), &threaded(Some(both.clone())), nobody()).unwrap());
    let new = fs::read(dir.path().join("seal")).unwrap();
    assert_ne!(new, old);
    fs::write(dir.path().join("seal"), [&old[..4096], &new[4096..]].concat()).unwrap();
    let alone = KeyFile::parse(text.lines().next().unwrap()).unwrap();
    for _ in 0..2 {
        drop(Store::open(dir.path(), &threaded(Some(alone.clone())), nobody()).unwrap());
        let now = fs::read(dir.path().join("seal")).unwrap();
        assert!(now[..4096].windows(3).any(|w| w == b"new") && now[4096..].windows(3).any(|w| w == b"new"));
    }
}
