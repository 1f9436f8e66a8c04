//! Messages that wait for an object of another OSD (COPY_FROM), and the operations on the same object that
//! wait behind them so that nothing overtakes.
//!
//! Bound: the shell's permits; a connection has a limited number of operations in a PG.

use crate::Pg;
use crate::api::{ClientOp, Context, Located, ObjectCopy, Output};
use crate::checks::Class;
use crate::ops::copy::source_of;
use messages::osd::code;
use std::collections::{HashMap, VecDeque};
use types::{Errno, HObject};

/// Fetched objects by the index of the operation that wants them.
pub(crate) type Copies = HashMap<usize, Result<Box<ObjectCopy>, Errno>>;

#[derive(Debug)]
struct Waiting {
    message: Box<ClientOp>,
    missing: HashMap<u64, usize>,
    copies: Copies,
    behind: VecDeque<Box<ClientOp>>,
}

#[derive(Debug, Default)]
pub(crate) struct Fetches {
    objects: HashMap<HObject, Waiting>,
    by_id: HashMap<u64, HObject>,
    next_id: u64,
}

impl Fetches {
    /// Drops what waits for objects of another PG: their clients send again.
    pub fn retain(&mut self, keep: impl Fn(&HObject) -> bool) {
        self.objects.retain(|o, _| keep(o));
        self.by_id.retain(|_, o| keep(o));
    }

    /// Queues the message if its object waits for a fetch; gives it back if not.
    pub fn queue_behind(&mut self, head: &HObject, c: Box<ClientOp>) -> Option<Box<ClientOp>> {
        match self.objects.get_mut(head) {
            Some(w) => {
                w.behind.push_back(c);
                None
            }
            None => Some(c),
        }
    }
}

impl Pg {
    /// Asks for the sources that live elsewhere; gives the message back if there are none.
    pub(crate) fn fetch_sources(
        &mut self,
        head: &HObject,
        c: Box<ClientOp>,
        ctx: &mut Context<'_>,
    ) -> Option<Box<ClientOp>> {
        let mut missing = HashMap::new();
        for (index, op) in c.op.ops.iter().enumerate() {
            if !matches!(op.code, code::COPY_FROM | code::COPY_FROM2) {
                continue;
            }
            let Ok(source) = source_of(op) else { continue };
            let located = ctx.cluster.locate(&source.oloc, &source.oid, op.copy_from().snap);
            if let Located::Remote(object) = located {
                self.fetches.next_id += 1;
                let id = self.fetches.next_id;
                missing.insert(id, index);
                self.fetches.by_id.insert(id, head.clone());
                ctx.out.push(Output::FetchObject { id, object });
            }
        }
        if missing.is_empty() {
            return Some(c);
        }
        self.fetches.objects.insert(
            head.clone(),
            Waiting {
                message: c,
                missing,
                copies: Copies::new(),
                behind: VecDeque::new(),
            },
        );
        None
    }

    pub(crate) fn fetched(&mut self, id: u64, result: Result<Box<ObjectCopy>, Errno>, ctx: &mut Context<'_>) {
        let Some(head) = self.fetches.by_id.remove(&id) else {
            return;
        };
        let Some(waiting) = self.fetches.objects.get_mut(&head) else {
            return;
        };
        if let Some(index) = waiting.missing.remove(&id) {
            waiting.copies.insert(index, result);
        }
        if !waiting.missing.is_empty() {
            return;
        }
        let Some(waiting) = self.fetches.objects.remove(&head) else {
            return;
        };
        self.execute(waiting.message, Class::Write, head, waiting.copies, ctx);
        // One of them may start a fetch of its own; those behind it queue up again, in order.
        for c in waiting.behind {
            self.client_op(c, ctx);
        }
    }
}
