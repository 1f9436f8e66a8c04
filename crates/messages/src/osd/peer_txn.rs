//! A store transaction on its way to other OSDs: a tag and the fields of each step; data of writes beside it.

use super::peer::Parts;
use denc::{Bytes, Reader, Result, Writer};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use types::{ObjectId, Op, Transaction};

/// A transaction that goes to several members: one value, encoded once, with the first message that carries it.
#[derive(Debug, Clone)]
pub struct SharedTxn(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    txn: Transaction,
    /// The steps, and the data beside them.
    encoded: OnceLock<(Bytes, Bytes)>,
}

impl SharedTxn {
    fn encoded(&self) -> &(Bytes, Bytes) {
        self.0.encoded.get_or_init(|| {
            let txn = &self.0.txn;
            let mut w = Writer::with_capacity(32 + txn.ops.iter().map(room).sum::<usize>());
            let mut data = Parts::default();
            encode_txn(txn, &mut w, &mut data);
            (w.finish(), data.join())
        })
    }

    /// Bytes of its steps on the wire.
    pub(super) fn wire_len(&self) -> usize {
        self.encoded().0.len()
    }

    pub(super) fn encode(&self, w: &mut Writer, data: &mut Parts) {
        let (steps, bytes) = self.encoded();
        w.raw(steps);
        data.push(bytes.clone());
    }

    pub(super) fn decode(r: &mut Reader, data: &mut Reader) -> Result<Self> {
        Ok(decode_txn(r, data)?.into())
    }
}

impl From<Transaction> for SharedTxn {
    fn from(txn: Transaction) -> Self {
        Self(Arc::new(Shared {
            txn,
            encoded: OnceLock::new(),
        }))
    }
}

impl Deref for SharedTxn {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.0.txn
    }
}

impl PartialEq for SharedTxn {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl Eq for SharedTxn {}

/// What a step takes on the wire, roughly: enough for one allocation.
fn room(op: &Op) -> usize {
    let name = |oid: &ObjectId| 72 + oid.object.oid.len() + oid.object.key.len() + oid.object.nspace.len();
    match op {
        Op::Write { oid, .. } => name(oid),
        Op::SetAttrs { oid, attrs } => {
            name(oid) + attrs.iter().map(|(n, v)| 8 + n.len() + v.len()).sum::<usize>()
        }
        Op::LogAppend { entry, .. } => 24 + entry.len(),
        Op::SetMeta { meta } => 8 + meta.len(),
        _ => 128,
    }
}

pub fn encode_txn(txn: &Transaction, w: &mut Writer, data: &mut Parts) {
    w.put(&txn.collection);
    w.u32(txn.ops.len() as u32);
    txn.ops.iter().for_each(|op| encode_op(op, w, data));
}

pub fn decode_txn(r: &mut Reader, data: &mut Reader) -> Result<Transaction> {
    let collection = r.get()?;
    let n = r.count(1)?;
    let mut ops = Vec::with_capacity(n);
    for _ in 0..n {
        ops.push(decode_op(r, data)?);
    }
    Ok(Transaction { collection, ops })
}

fn put_oid(w: &mut Writer, tag: u8, oid: &ObjectId) {
    w.u8(tag);
    w.u8(oid.shard as u8);
    w.put(&oid.object);
}

fn get_oid(r: &mut Reader) -> Result<ObjectId> {
    Ok(ObjectId {
        shard: r.u8()? as i8,
        object: r.get()?,
    })
}

fn put_second(w: &mut Writer, oid: &ObjectId) {
    w.u8(oid.shard as u8);
    w.put(&oid.object);
}

fn encode_op(op: &Op, w: &mut Writer, data: &mut Parts) {
    match op {
        Op::Touch { oid } => put_oid(w, 1, oid),
        Op::Write {
            oid,
            offset,
            data: bytes,
        } => {
            put_oid(w, 2, oid);
            w.u64(*offset);
            w.u32(bytes.len() as u32);
            data.push(bytes.clone());
        }
        Op::Zero { oid, offset, len } => {
            put_oid(w, 3, oid);
            w.u64(*offset);
            w.u64(*len);
        }
        Op::Truncate { oid, size } => {
            put_oid(w, 4, oid);
            w.u64(*size);
        }
        Op::Remove { oid } => put_oid(w, 5, oid),
        Op::Clone { src, dst } => {
            put_oid(w, 6, src);
            put_second(w, dst);
        }
        Op::CloneRange {
            src,
            dst,
            src_offset,
            len,
            dst_offset,
        } => {
            put_oid(w, 7, src);
            put_second(w, dst);
            w.u64(*src_offset);
            w.u64(*len);
            w.u64(*dst_offset);
        }
        Op::Rename { src, dst } => {
            put_oid(w, 8, src);
            put_second(w, dst);
        }
        _ => encode_rows(op, w),
    }
}

fn encode_rows(op: &Op, w: &mut Writer) {
    match op {
        Op::SetAttrs { oid, attrs } => {
            put_oid(w, 9, oid);
            w.put(attrs);
        }
        Op::RemoveAttr { oid, name } => {
            put_oid(w, 10, oid);
            w.put(name);
        }
        Op::RemoveAttrs { oid } => put_oid(w, 11, oid),
        Op::OmapSet { oid, entries } => {
            put_oid(w, 12, oid);
            w.put(entries);
        }
        Op::OmapRemove { oid, keys } => {
            put_oid(w, 13, oid);
            w.put(keys);
        }
        Op::OmapRemoveRange { oid, first, last } => {
            put_oid(w, 14, oid);
            w.put(first);
            w.put(last);
        }
        Op::OmapClear { oid } => put_oid(w, 15, oid),
        Op::OmapSetHeader { oid, header } => {
            put_oid(w, 16, oid);
            w.put(header);
        }
        Op::CreateCollection => w.u8(17),
        Op::RemoveCollection => w.u8(18),
        Op::SetMeta { meta } => {
            w.u8(19);
            w.put(meta);
        }
        Op::LogAppend { version, entry } => {
            w.u8(20);
            w.put(version);
            w.put(entry);
        }
        Op::LogTrim { to } => {
            w.u8(21);
            w.put(to);
        }
        // The others are `encode_op`'s.
        Op::Touch { .. }
        | Op::Write { .. }
        | Op::Zero { .. }
        | Op::Truncate { .. }
        | Op::Remove { .. }
        | Op::Clone { .. }
        | Op::CloneRange { .. }
        | Op::Rename { .. } => {}
    }
}

fn decode_op(r: &mut Reader, data: &mut Reader) -> Result<Op> {
    let tag = r.u8()?;
    if tag >= 17 {
        return decode_collection(tag, r);
    }
    let oid = get_oid(r)?;
    Ok(match tag {
        1 => Op::Touch { oid },
        2 => {
            let (offset, len) = (r.u64()?, r.u32()?);
            Op::Write {
                oid,
                offset,
                data: data.bytes(len as usize)?,
            }
        }
        3 => Op::Zero {
            oid,
            offset: r.u64()?,
            len: r.u64()?,
        },
        4 => Op::Truncate { oid, size: r.u64()? },
        5 => Op::Remove { oid },
        6 => Op::Clone {
            src: oid,
            dst: get_oid(r)?,
        },
        7 => Op::CloneRange {
            src: oid,
            dst: get_oid(r)?,
            src_offset: r.u64()?,
            len: r.u64()?,
            dst_offset: r.u64()?,
        },
        8 => Op::Rename {
            src: oid,
            dst: get_oid(r)?,
        },
        9 => Op::SetAttrs { oid, attrs: r.get()? },
        10 => Op::RemoveAttr { oid, name: r.get()? },
        11 => Op::RemoveAttrs { oid },
        12 => Op::OmapSet {
            oid,
            entries: r.get()?,
        },
        13 => Op::OmapRemove { oid, keys: r.get()? },
        14 => Op::OmapRemoveRange {
            oid,
            first: r.get()?,
            last: r.get()?,
        },
        15 => Op::OmapClear { oid },
        16 => Op::OmapSetHeader {
            oid,
            header: r.get()?,
        },
        _ => return Err(r.invalid("unknown step of a transaction")),
    })
}

fn decode_collection(tag: u8, r: &mut Reader) -> Result<Op> {
    Ok(match tag {
        17 => Op::CreateCollection,
        18 => Op::RemoveCollection,
        19 => Op::SetMeta { meta: r.get()? },
        20 => Op::LogAppend {
            version: r.get()?,
            entry: r.get()?,
        },
        21 => Op::LogTrim { to: r.get()? },
        _ => return Err(r.invalid("unknown step of a transaction")),
    })
}
