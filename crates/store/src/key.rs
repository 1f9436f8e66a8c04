//! Index keys: byte strings whose order is the order of what they name.
//!
//! An object's key: pool (8 bytes, big-endian, sign flipped), shard (1, sign flipped), reversed hash
//! (4, big-endian), namespace, effective key (both ended by 00 00, a zero byte inside as 00 FF), then
//! how the name compares to the effective key (1: below, 2: equal, 3: above) with the name itself unless
//! equal, then the snapshot (8, big-endian). An object with a locator key equal to its name has none
//! (`HObject::new`), so 2 means "no locator key".

use crate::codec::{Bad, Decoded};
use bytes::Bytes;
use std::cmp::Ordering;
use types::{EVersion, HObject, ObjectId, SPgId};

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    for b in text {
        out.push(*b);
        if *b == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn get_text(key: &mut &[u8]) -> Decoded<Bytes> {
    let mut out = Vec::new();
    loop {
        match *key {
            [0, 0, rest @ ..] => {
                *key = rest;
                return Ok(out.into());
            }
            [0, 0xff, rest @ ..] => {
                out.push(0);
                *key = rest;
            }
            [b, rest @ ..] if *b != 0 => {
                out.push(*b);
                *key = rest;
            }
            _ => return Err(Bad("object key")),
        }
    }
}

fn get_array<const N: usize>(key: &mut &[u8]) -> Decoded<[u8; N]> {
    let (head, rest) = key.split_at_checked(N).ok_or(Bad("object key"))?;
    *key = rest;
    head.try_into().map_err(|_| Bad("object key"))
}

pub fn object(oid: &ObjectId) -> Vec<u8> {
    let o = &oid.object;
    let mut out = Vec::with_capacity(40 + o.nspace.len() + o.key.len() + o.oid.len());
    out.extend_from_slice(&((o.pool as u64) ^ (1 << 63)).to_be_bytes());
    out.push(oid.shard as u8 ^ 0x80);
    out.extend_from_slice(&o.reversed_hash().to_be_bytes());
    put_text(&mut out, &o.nspace);
    put_text(&mut out, o.effective_key());
    if o.key.is_empty() {
        out.push(2);
    } else {
        // A key equal to the name counts as none; both forms must not be one key.
        out.push(if o.oid.cmp(&o.key) == Ordering::Less { 1 } else { 3 });
        put_text(&mut out, &o.oid);
    }
    out.extend_from_slice(&o.snap.to_be_bytes());
    out
}

pub fn parse_object(mut key: &[u8]) -> Decoded<ObjectId> {
    let key = &mut key;
    let pool = (u64::from_be_bytes(get_array(key)?) ^ (1 << 63)) as i64;
    let [shard] = get_array(key)?;
    let hash = u32::from_be_bytes(get_array(key)?).reverse_bits();
    let nspace = get_text(key)?;
    let text = get_text(key)?;
    let [relation] = get_array(key)?;
    let (key_text, oid) = match relation {
        2 => (Bytes::new(), text),
        1 | 3 => (text, get_text(key)?),
        _ => return Err(Bad("object key")),
    };
    let snap = u64::from_be_bytes(get_array(key)?);
    Ok(ObjectId {
        shard: (shard ^ 0x80) as i8,
        object: HObject {
            key: key_text,
            oid,
            snap,
            hash,
            max: false,
            nspace,
            pool,
        },
    })
}

/// The rows of values that are not in a record: an attribute's, and the omap's header.
pub fn attr_value(name: &[u8]) -> Bytes {
    [b"a", name].concat().into()
}
pub const HEADER_VALUE: &[u8] = b"h";

/// An omap row: the object's number, then the key as it is.
pub fn omap(nid: u64, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + key.len());
    out.extend_from_slice(&nid.to_be_bytes());
    out.extend_from_slice(key);
    out
}

/// A log block: the collection's number, then the version of its first entry.
pub fn log(cid: u64, first: EVersion) -> [u8; 20] {
    let mut out = [0; 20];
    out[..8].copy_from_slice(&cid.to_be_bytes());
    out[8..12].copy_from_slice(&first.epoch.to_be_bytes());
    out[12..].copy_from_slice(&first.version.to_be_bytes());
    out
}

pub fn collection(c: &SPgId) -> [u8; 13] {
    let mut out = [0; 13];
    out[..8].copy_from_slice(&((c.pg.pool as u64) ^ (1 << 63)).to_be_bytes());
    out[8..12].copy_from_slice(&c.pg.seed.to_be_bytes());
    out[12] = c.shard as u8 ^ 0x80;
    out
}

pub fn parse_collection(mut key: &[u8]) -> Decoded<SPgId> {
    let key = &mut key;
    let pool = (u64::from_be_bytes(get_array(key)?) ^ (1 << 63)) as i64;
    let seed = u32::from_be_bytes(get_array(key)?);
    let [shard] = get_array(key)?;
    Ok(SPgId {
        pg: types::PgId::new(pool, seed),
        shard: (shard ^ 0x80) as i8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', b'b', 0xff]), 0..4)
            .prop_map(Bytes::from)
    }

    prop_compose! {
        fn oid()(
            shard in -1i8..2,
            pool in prop::sample::select(vec![i64::MIN, -2, 0, 1, 7]),
            hash in prop::sample::select(vec![0u32, 1, 0x8000_0000, u32::MAX]),
            snap in prop::sample::select(vec![0u64, 3, types::NOSNAP]),
            nspace in text(), key in text(), oid in text(),
        ) -> ObjectId {
            ObjectId { shard, object: HObject::new(pool, hash, nspace, key, oid, snap) }
        }
    }

    proptest! {
        #[test]
        fn keys_sort_as_objects_do(a in oid(), b in oid()) {
            prop_assert_eq!(object(&a).cmp(&object(&b)), a.cmp(&b));
            prop_assert_eq!(parse_object(&object(&a)), Ok(a.clone()));
            let mut out = Vec::new();
            crate::codec::put_oid(&mut out, &a);
            prop_assert_eq!(crate::codec::Input::new(out.into()).oid(), Ok(a));
        }
    }
}
