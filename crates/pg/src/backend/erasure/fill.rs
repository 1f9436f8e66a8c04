//! The steps that make a shard's object anew, out of what others gave.
//!
//! Invariant: the attributes, with the object info among them, come last: one transaction may be too small for a large object, and
//! what was made in part has no version.
//!
//! A clone that is made like this shares nothing with its neighbours, as it would where it was made.

use super::cut::{Coding, on_shard};
use bytes::Bytes;
use types::{ObjectId, Op};

/// Data in one step.
const STEP_BYTES: usize = 1 << 20;

/// `units`: all of this shard, from the first stripe on; `size`: the whole object's.
pub(crate) fn fill(
    oid: &ObjectId,
    shard: usize,
    coding: &Coding,
    size: u64,
    units: Vec<u8>,
    attrs: Vec<(Bytes, Bytes)>,
) -> Vec<Op> {
    let oid = || on_shard(oid, shard);
    // Whatever is there is none of it.
    let mut ops = vec![
        Op::Touch { oid: oid() },
        Op::Remove { oid: oid() },
        Op::Touch { oid: oid() },
    ];
    let mut units = Bytes::from(units);
    units.truncate(coding.layout.shard_size(shard, size) as usize);
    let mut offset = 0;
    while !units.is_empty() {
        let data = units.split_to(units.len().min(STEP_BYTES));
        let len = data.len() as u64;
        // A hole stays one.
        if data.iter().any(|b| *b != 0) {
            ops.push(Op::Write {
                oid: oid(),
                offset,
                data,
            });
        }
        offset += len;
    }
    ops.push(Op::Truncate { oid: oid(), size });
    ops.push(Op::SetAttrs { oid: oid(), attrs });
    ops
}
