//! A store transaction on its way to another OSD: a tag and the fields of each step; data of writes beside it.

use denc::{Bytes, Reader, Result, Writer};
use types::{ObjectId, Op, Transaction};

pub fn encode_txn(txn: &Transaction, w: &mut Writer, data: &mut Vec<Bytes>) {
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

fn encode_op(op: &Op, w: &mut Writer, data: &mut Vec<Bytes>) {
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
