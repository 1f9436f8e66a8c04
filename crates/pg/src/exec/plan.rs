//! What a message will read of its object's data, as far as its operations and the object's state tell. What class
//! methods want beyond that shows when they run ([`super::Missing`]).

use crate::exec::cost::{Cost, charge_clone};
use crate::exec::gathered::{Form, Read};
use crate::exec::known::Known;
use crate::exec::ops::call::reads_data;
use crate::exec::request::Request;
use crate::pool::PoolView;
use crate::state::object::ObjectState;
use messages::osd::{ExtentArg, OsdOp, code};
use types::Errno;

/// What is gathered for a class method at a time; an object of this size or less is gathered whole. Object maps of
/// images up to 4 TiB are no larger.
pub(crate) const WINDOW: u64 = 256 << 10;
/// After so many rounds of execution what is missing is taken for all of the object.
const PRECISE_ROUNDS: usize = 3;

#[derive(Debug)]
pub(crate) struct Plan {
    /// Data of the request's source.
    pub reads: Vec<Read>,
    /// What is left of the message's allowance.
    pub cost: Cost,
}

/// Refused where the message costs more than one may: nothing is read then.
pub(crate) fn plan(r: &Request<'_>, known: &mut dyn Known) -> Result<Plan, Errno> {
    let mut cost = Cost::of(r.message, r.old)?;
    if let Some(context) = r.context {
        charge_clone(r.head, r.old, context, &mut cost, known)?;
    }
    let object = Shape::of(r.old, r.pool);
    let mut reads = Vec::new();
    let mut called = false;
    for op in &r.message.ops {
        let call = op.code == code::CALL;
        if call && called {
            // All calls read from the same.
            continue;
        }
        if let Some(read) = object.read_of(op) {
            called |= call;
            if !call || read.len <= WINDOW {
                reads.push(read);
            }
        }
    }
    Ok(Plan { reads, cost })
}

/// As much of an object as tells what its operations read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub exists: bool,
    pub size: u64,
    pub truncate_seq: u32,
    /// An erasure-coded pool: all of an object counts as allocated.
    pub erasure: bool,
}

impl Shape {
    pub fn of(o: &ObjectState, pool: &PoolView) -> Self {
        Self {
            exists: o.exists,
            size: o.size,
            truncate_seq: o.info.truncate_seq,
            erasure: pool.erasure,
        }
    }

    /// Where a range begins, and where it must end: at the size, or at the truncate size of a client that knows of a
    /// truncation which this object has not seen.
    fn readable(&self, a: &ExtentArg) -> (u64, u64) {
        let mut size = self.size;
        if a.truncate_seq > self.truncate_seq
            && a.offset.saturating_add(a.length) > a.truncate_size
            && size > a.truncate_size
        {
            size = a.truncate_size;
        }
        (a.offset.min(size), size)
    }

    /// What an operation reads. None: nothing, or that is not known before it runs.
    pub fn read_of(&self, op: &OsdOp) -> Option<Read> {
        if !self.exists {
            return None;
        }
        let (form, offset, len) = match op.code {
            code::SYNC_READ | code::MAPEXT | code::TMAPGET | code::TMAPUP | code::TMAP2OMAP
                if self.erasure =>
            {
                return None;
            }
            code::READ | code::SYNC_READ => {
                let a = op.extent();
                let (offset, end) = self.readable(&a);
                let left = end - offset;
                let len = if a.length == 0 { left } else { a.length.min(left) };
                (Form::Bytes, offset, len)
            }
            code::SPARSE_READ | code::MAPEXT => {
                let a = op.extent();
                let (offset, end) = self.readable(&a);
                let form = match op.code {
                    code::MAPEXT => Form::Map,
                    _ if self.erasure => Form::Bytes,
                    _ => Form::Extents,
                };
                (form, offset, a.length.min(end - offset))
            }
            code::CMPEXT => {
                let a = op.extent();
                let offset = a.offset.min(self.size);
                let len = a.length.min(op.indata.len() as u64);
                (Form::Bytes, offset, len.min(self.size - offset))
            }
            code::CHECKSUM => {
                let a = op.checksum();
                let whole = a.offset == 0 && a.length == 0;
                let len = if whole { self.size } else { a.length };
                (Form::Bytes, a.offset, len.min(self.size.saturating_sub(a.offset)))
            }
            code::TMAPGET | code::TMAPUP | code::TMAP2OMAP => (Form::Bytes, 0, self.size),
            code::CALL if reads_data(op) => (Form::Bytes, 0, self.size),
            _ => return None,
        };
        (len > 0).then_some(Read { form, offset, len })
    }
}

/// What to gather where an execution missed `read`, in its so-manieth round: generously, since each costs another
/// execution.
pub(crate) fn widened(read: Read, round: usize, size: u64) -> Read {
    if read.form != Form::Bytes {
        return read;
    }
    if round >= PRECISE_ROUNDS || size <= WINDOW {
        return Read::bytes(0, size.max(read.end()));
    }
    let first = read.offset / WINDOW * WINDOW;
    let end = read.end().next_multiple_of(WINDOW).min(size.max(read.end()));
    Read::bytes(first, end - first)
}
