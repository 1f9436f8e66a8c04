//! Headers of images of format 1, `<name>.rbd` (docs/protocol/ceph/05-rbd.md, 1.4): read only, as the sources of migrations.

use crate::header::{Fixed, Header, Snap, UNPROTECTED};
use crate::{Error, Layout, Result};
use bytes::Bytes;
use client::IoCtx;
use denc::Reader;
use objclass::rbd::types::SnapshotNamespace;
use types::Errno;

/// What such a header begins with, and what it says while its image is migrated.
const TEXTS: [&[u8]; 2] = [
    b"<<< Rados Block Device Image >>>\n",
    b"<<< Migrating RBD Image      >>>\n",
];
const TEXT_LEN: usize = 40;
const PREFIX_LEN: usize = 24;
/// Signature and version, which clients do not look at either.
const SIGNED_LEN: usize = 12;

pub fn header_object(name: &str) -> String {
    format!("{name}.rbd")
}

pub async fn read(io: &IoCtx, oid: &str) -> Result<(Fixed, Header)> {
    let data = io.read(oid, 0, 0).await.map_err(|e| Error::from(e).about(oid))?;
    parse(data).ok_or_else(|| Error::refused(Errno::EIO, format!("{oid}: no header of format 1")))
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn parse(data: Bytes) -> Option<(Fixed, Header)> {
    let mut r = Reader::new(data);
    let title = r.bytes(TEXT_LEN).ok()?;
    if !TEXTS.iter().any(|t| title.starts_with(t)) {
        return None;
    }
    let prefix = text(&r.bytes(PREFIX_LEN).ok()?);
    r.bytes(SIGNED_LEN).ok()?;
    let order = r.bytes(4).ok()?[0];
    let (size, snap_seq) = (r.u64().ok()?, r.u64().ok()?);
    let (count, _) = (r.u32().ok()?, r.u32().ok()?);
    let names_len = r.u64().ok()?;
    let mut snaps = Vec::new();
    for _ in 0..count {
        snaps.push((r.u64().ok()?, r.u64().ok()?));
    }
    let names = r.bytes(usize::try_from(names_len).ok()?).ok()?;
    let mut names = names.split(|b| *b == 0);
    let mut snap = |(id, size)| {
        Some(Snap {
            id,
            name: text(names.next()?),
            namespace: SnapshotNamespace::User,
            size,
            flags: 0,
            protection: UNPROTECTED,
            overlap: 0,
            child_count: 0,
        })
    };
    let fixed = Fixed {
        prefix,
        data_pool: None,
        layout: Layout::new(order, 0, 0).ok()?,
        old: true,
    };
    let header = Header {
        size,
        features: 0,
        op_features: 0,
        flags: 0,
        snap_seq,
        snaps: snaps.into_iter().map(&mut snap).collect::<Option<_>>()?,
        parent: None,
        migration: None,
    };
    Some((fixed, header))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(title: &[u8]) -> Vec<u8> {
        let mut raw = title.to_vec();
        raw.resize(TEXT_LEN, 0);
        raw.extend_from_slice(b"rb.0.1.abc\0\0\0\0\0\0\0\0\0\0\0\0\0\0RBD\x00001.005\0\x16\0\0\0");
        for n in [9u64 << 20, 7] {
            raw.extend_from_slice(&n.to_le_bytes());
        }
        raw.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        for n in [7u64, 8 << 20, 3, 5 << 20] {
            raw.extend_from_slice(&n.to_le_bytes());
        }
        raw.extend_from_slice(b"tt\0ss\0");
        raw
    }

    #[test]
    fn a_header_says_what_it_says_also_while_it_migrates() {
        for title in TEXTS {
            let (fixed, header) = parse(header(title).into()).unwrap();
            assert_eq!(
                (fixed.prefix.as_str(), fixed.layout.order(), fixed.old),
                ("rb.0.1.abc", 22, true)
            );
            assert_eq!((header.size, header.snap_seq), (9 << 20, 7));
            let snaps: Vec<_> = header
                .snaps
                .iter()
                .map(|s| (s.id, s.size, s.name.as_str()))
                .collect();
            assert_eq!(snaps, [(7, 8 << 20, "tt"), (3, 5 << 20, "ss")]);
        }
        assert!(parse(header(b"something else").into()).is_none());
    }

    #[test]
    fn one_that_is_cut_off_is_none() {
        let whole = header(TEXTS[0]);
        for length in 0..whole.len() {
            assert!(
                parse(Bytes::copy_from_slice(&whole[..length])).is_none(),
                "{length}"
            );
        }
    }
}
