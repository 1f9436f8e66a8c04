//! Objects of other OSDs that a message needs (COPY_FROM): asked for when the message has its turn, so that a
//! message that waits longer does not take an older source along.

use crate::Pg;
use crate::api::{ClientOp, Context, Located, ObjectCopy, Output};
use crate::exec::ops::copy::source_of;
use crate::front::parked::JobId;
use messages::osd::{OsdOp, code};
use std::collections::HashMap;
use types::Errno;

/// What another OSD gave.
pub(crate) type Fetched = Result<Box<ObjectCopy>, Errno>;

/// Fetched objects by the index of the operation that wants them.
pub(crate) type Copies = HashMap<usize, Fetched>;

/// Whether the operation makes its object a copy of another.
pub(crate) fn copies(op: &OsdOp) -> bool {
    matches!(op.code, code::COPY_FROM | code::COPY_FROM2)
}

/// Whether a message may need objects of other OSDs.
pub(crate) fn copies_objects(c: &ClientOp) -> bool {
    c.op.ops.iter().any(copies)
}

impl Pg {
    /// Asks for the sources that live elsewhere and are not in `copies` yet (where an object lives may have
    /// changed meanwhile); how many these are.
    pub(crate) fn fetch_sources(
        &mut self,
        job: JobId,
        c: &ClientOp,
        copies: &Copies,
        ctx: &mut Context<'_>,
    ) -> usize {
        let mut missing = 0;
        for (index, op) in c.op.ops.iter().enumerate() {
            if !self::copies(op) || copies.contains_key(&index) {
                continue;
            }
            let Ok(source) = source_of(op) else { continue };
            let located = ctx.cluster.locate(&source.oloc, &source.oid, op.copy_from().snap);
            // Members get the data itself: what a transaction shares with another PG's object they need not have.
            let object = match located {
                Located::Remote(object) => Some(object),
                Located::Local(object) if self.backend.is_shared() => Some(object),
                _ => None,
            };
            if let Some(object) = object {
                let id = self.front.parked.begin_fetch(job, index);
                ctx.out.push(Output::FetchObject { id, object });
                missing += 1;
            }
        }
        missing
    }
}
