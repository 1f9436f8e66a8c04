//! What one message may cost, so that none holds the OSD's loop for long or fills its memory, however short it is.
//!
//! Vocabulary: *bytes* are what a message reads, or makes for its answer and for watchers; *steps* are work that no byte
//! shows: rows of omap, attributes, watchers told, blocks that clones share. What the message itself brings (in-data) is
//! bounded where it comes in, and its operations by [`OPS_MAX`] and [`READ_CALLS_MAX`].
//!
//! Invariants: what the arguments and the object's record tell is charged before anything is done ([`known_before`]); what only
//! a look at the object tells (a page of omap, attributes, what class methods read) is charged as it is read, a bounded
//! piece at a time. A message that has passed a limit ends with E2BIG, FAILOK or not, and changes nothing.
//!
//! Limits and codes as clients see them: docs/protocol/osd.md.

use crate::exec::known::Known;
use crate::exec::limits::OBJECT_SIZE_MAX;
use crate::exec::result::Fail;
use crate::exec::snap_context::SnapContext;
use crate::state::object::ObjectState;
use messages::osd::{MOSDOp, OpCode, OsdOp, code};
use types::{Errno, ObjectId};

/// Operations of one message. A virtual disk's client joins the 4 KiB pieces of a 4 MiB object in one: 1024.
pub(crate) const OPS_MAX: usize = 2048;
/// Calls of class methods in one message of nothing else that only reads. Who opens an image asks four or five things of each of its snapshots in one.
pub(crate) const READ_CALLS_MAX: usize = 16 << 10;
const _: () = assert!(5 * objclass::rbd::SNAPSHOTS_MAX <= READ_CALLS_MAX as u64);
/// Operations on a PG in one message: clients send one.
pub(crate) const PG_OPS_MAX: usize = 16;
/// COPY_FROMs of one message: each source comes in whole, and a second one would undo the first.
pub(crate) const COPIES_MAX: usize = 1;
/// Bytes of one message: a whole object of the largest size, and something beside it.
pub(crate) const BYTES_MAX: u64 = OBJECT_SIZE_MAX + (4 << 20);
/// Steps of one message: all blocks of the largest object, or as many rows, and its operations.
pub(crate) const STEPS_MAX: u64 = 40 << 10;
/// Rows that a clone, or a rollback, copies: each costs a fraction of one that is written.
pub(crate) const CLONED_ROWS_MAX: u64 = 128 << 10;
/// Bytes of an omap that is copied: they have to fit into one transaction's memory.
pub(crate) const CLONED_ROW_BYTES_MAX: u64 = 64 << 20;
/// Data that one message writes, what WRITESAME repeats included (osd_max_write_size).
pub const WRITTEN_MAX: u64 = 90 << 20;
/// Snapshots in one context.
pub(crate) const SNAPS_MAX: usize = 16 << 10;

/// Blocks in which the store counts what clones share.
pub(super) const BLOCK: u64 = 4096;

/// What is left of a message's bytes and steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    bytes: u64,
    steps: u64,
    /// A limit was passed: the message is refused, whatever an operation makes of it.
    pub exceeded: bool,
}

impl Cost {
    /// With what [`known_before`] knows taken off already.
    pub fn of(m: &MOSDOp, old: &ObjectState) -> Result<Self, Errno> {
        let mut cost = Self {
            bytes: BYTES_MAX,
            steps: STEPS_MAX,
            exceeded: false,
        };
        let mut written = 0u64;
        for op in &m.ops {
            let (bytes, steps) = known_before(op, old);
            cost.charge(bytes, steps)?;
            if is_write_of_data(op.code) {
                written += match op.code {
                    code::WRITESAME => repeated(op),
                    _ => op.indata.len() as u64,
                };
            }
        }
        if written > WRITTEN_MAX {
            return Err(Errno::EMSGSIZE);
        }
        Ok(cost)
    }

    /// Takes off what is about to be done; E2BIG if it is more than what is left.
    pub fn charge(&mut self, bytes: u64, steps: u64) -> Result<(), Errno> {
        let left = (self.bytes.checked_sub(bytes), self.steps.checked_sub(steps));
        let (Some(bytes), Some(steps), false) = (left.0, left.1, self.exceeded) else {
            self.exceeded = true;
            return Err(Errno::E2BIG);
        };
        (self.bytes, self.steps) = (bytes, steps);
        Ok(())
    }

    pub fn steps_left(&self) -> usize {
        self.steps as usize
    }

    pub fn bytes_left(&self) -> usize {
        self.bytes as usize
    }
}

/// How many rows a copy of the object within the store copies: E2BIG where that is too many for one go.
pub(crate) fn rows_to_clone(oid: &ObjectId, state: &ObjectState, known: &mut dyn Known) -> Result<u64, Fail> {
    if !state.info.omap {
        return Ok(0);
    }
    let stat = known.stat(oid)?;
    let (rows, bytes) = stat.map_or((0, 0), |s| (s.omap_keys, s.omap_bytes));
    match rows > CLONED_ROWS_MAX || bytes > CLONED_ROW_BYTES_MAX {
        true => Err(Errno::E2BIG.into()),
        false => Ok(rows),
    }
}

/// The clone that a context demands of a write, before anything is done: the blocks that it begins to share, and its rows,
/// which the store copies.
pub(crate) fn charge_clone(
    head: &ObjectId,
    old: &ObjectState,
    context: &SnapContext,
    cost: &mut Cost,
    known: &mut dyn Known,
) -> Result<(), Errno> {
    let newest = context.snaps.first();
    if !old.exists || newest.is_none_or(|newest| *newest <= old.snapset.seq) {
        return Ok(());
    }
    cost.charge(0, shared_blocks(old.size))?;
    rows_to_clone(head, old, known)
        .map(drop)
        .map_err(|f| Errno(-f.rval))
}

/// Operations whose in-data, or what they make of it, becomes the object's data.
pub(crate) fn is_write_of_data(c: OpCode) -> bool {
    matches!(c, code::WRITE | code::WRITEFULL | code::APPEND | code::WRITESAME)
}

/// Blocks of so many bytes that a clone begins to share, one by one.
pub(crate) fn shared_blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK)
}

/// Whether an operation gives what was not charged when it was read: little, or no more than what was.
pub(crate) fn gives_more(op: &OsdOp) -> bool {
    matches!(op.code, code::CALL | code::LIST_SNAPS | code::OMAPGETHEADER)
}

/// Bytes and steps of an operation on an object as it was before the message, as far as its arguments tell.
fn known_before(op: &OsdOp, old: &ObjectState) -> (u64, u64) {
    let size = if old.exists { old.size } else { 0 };
    let within = |offset: u64, len: u64| len.min(size.saturating_sub(offset));
    let extents = |len: u64| len / BLOCK * 16;
    match op.code {
        code::READ | code::SYNC_READ => {
            let a = op.extent();
            let len = if a.length == 0 { u64::MAX } else { a.length };
            (within(a.offset, len), 0)
        }
        code::TMAPGET | code::TMAPUP | code::TMAP2OMAP => (size, 0),
        code::SPARSE_READ => {
            let len = within(op.extent().offset, op.extent().length);
            (len + extents(len), 0)
        }
        code::MAPEXT => (extents(within(op.extent().offset, op.extent().length)), 0),
        code::CMPEXT => (within(op.extent().offset, op.indata.len() as u64), 0),
        code::CHECKSUM => {
            let a = op.checksum();
            let len = match (a.offset, a.length) {
                (0, 0) => size,
                (offset, len) => within(offset, len),
            };
            let sums = if a.chunk_size == 0 {
                1
            } else {
                len.div_ceil(u64::from(a.chunk_size))
            };
            (len + 8 * sums, 0)
        }
        code::LIST_WATCHERS => (64 * old.info.watchers.len() as u64, 0),
        code::OMAPSETVALS | code::OMAPRMKEYS | code::OMAPGETVALSBYKEYS | code::OMAP_CMP => (0, rows_in(op)),
        _ => (0, 0),
    }
}

/// What a WRITESAME writes; nothing where it does not fit an object and fails by itself.
fn repeated(op: &OsdOp) -> u64 {
    let a = op.write_same();
    match a.offset.checked_add(a.length) {
        Some(end) if end <= OBJECT_SIZE_MAX => a.length,
        _ => 0,
    }
}

/// Rows or keys in in-data that begins with their number. One that does not fit the bytes is not decoded anyway.
fn rows_in(op: &OsdOp) -> u64 {
    match op.indata.first_chunk() {
        Some(n) => u64::from(u32::from_le_bytes(*n)).min(op.indata.len() as u64 / 4),
        None => 0,
    }
}
