//! What a message will read of data, asked for before it is executed so that nobody waits for the disk: the
//! ranges that its operations read ([`crate::exec::plan`]), and the blocks of which its writes change a part (the store
//! completes them with what is there).
//!
//! This looks at the object as it is when the message comes. Messages before it, or its own operations, may
//! change that: then too much is fetched, or too little, and what is read is right all the same.
//!
//! Not here: object info, attributes, omap (the index has its own cache).

use crate::Pg;
use crate::api::{ClientOp, Context, Located};
use crate::exec::gathered::Form;
use crate::exec::ops::copy::{self, copies};
use crate::exec::plan::Shape;
use crate::front::checks::Class;
use crate::front::index::Index;
use crate::pool::PoolView;
use crate::state::intervals::Intervals;
use crate::state::object::ObjectState;
use crate::state::snapset::Resolved;
use crate::store::Ticket;
use messages::osd::{OsdOp, code};
use types::{HObject, NOSNAP, ObjectId};

/// The unit in which the store keeps data: it reads the rest of a block that is written in part. In an erasure-coded pool parity
/// is of whole stripes, so that these are completed.
const BLOCK: u64 = 4096;
/// Bytes and ranges asked for on behalf of one message; what it reads beyond that is read when it is executed.
/// Two whole objects of a virtual disk.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 8 << 20;
pub(crate) const MESSAGE_RANGES_MAX: usize = 64;

/// Ranges of one object, within its size and the bounds.
#[derive(Debug)]
struct Ranges {
    size: u64,
    block: u64,
    found: Intervals,
}

impl Ranges {
    fn new(size: u64, block: u64) -> Self {
        Self {
            size,
            block,
            found: Intervals::new(),
        }
    }

    fn read(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end || self.found.intervals().len() >= MESSAGE_RANGES_MAX {
            return;
        }
        let room = MESSAGE_BYTES_MAX.saturating_sub(self.found.total());
        self.found.insert(offset, end.min(offset.saturating_add(room)));
    }

    fn all(&mut self) {
        self.read(0, u64::MAX);
    }

    /// The first and the last block of what is overwritten, unless nothing of their content is left.
    fn complete(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        if len == 0 {
            return;
        }
        let (first, last) = (offset / self.block, (end - 1) / self.block);
        for block in [first, last] {
            let from = block * self.block;
            let to = from.saturating_add(self.block);
            if offset > from || end < to.min(self.size) {
                self.read(from, self.block);
            }
        }
    }

    /// From `size` on there will be nothing.
    fn cut(&mut self, size: u64) {
        if size < self.size {
            self.complete(size, u64::MAX);
        }
    }

    fn of_read(&mut self, op: &OsdOp, object: &Shape) {
        if let Some(read) = object.read_of(op).filter(|r| r.form != Form::Map) {
            self.read(read.offset, read.len);
        }
    }

    fn of_write(&mut self, op: &OsdOp, known_truncate_seq: u32) {
        match op.code {
            code::WRITE => {
                let a = op.extent();
                if a.truncate_seq > known_truncate_seq {
                    self.cut(a.truncate_size);
                }
                self.complete(a.offset, a.length);
            }
            code::WRITEFULL | code::TMAPPUT => self.complete(0, op.indata.len() as u64),
            code::APPEND => self.complete(self.size, op.indata.len() as u64),
            code::WRITESAME => self.complete(op.write_same().offset, op.write_same().length),
            code::ZERO => self.complete(op.extent().offset, op.extent().length),
            code::TRUNCATE => self.cut(op.extent().offset),
            code::TRIMTRUNC => self.cut(op.extent().truncate_size),
            _ => {}
        }
    }
}

/// What a write that covers a part of it completes.
fn block_of(pool: &PoolView) -> u64 {
    match pool.erasure && pool.stripe_width > 0 {
        true => u64::from(pool.stripe_width),
        false => BLOCK,
    }
}

impl Pg {
    /// Asks the store for what the message will read. Without a ticket there is nothing to wait for.
    pub(crate) fn prefetch(
        &mut self,
        c: &ClientOp,
        class: Class,
        head: &ObjectId,
        state: &ObjectState,
        ctx: &mut Context<'_>,
    ) -> Vec<Ticket> {
        let (clone, size) = match self.source(c, class, state) {
            Some(source) => source,
            None => return Vec::new(),
        };
        let object = Shape {
            exists: true,
            size,
            // A clone's is not at hand: too much is asked for.
            truncate_seq: clone.map_or(state.info.truncate_seq, |_| u32::MAX),
            erasure: self.state.pool.erasure,
        };
        let mut ranges = Ranges::new(size, block_of(&self.state.pool));
        let mut tickets = Vec::new();
        for op in &c.op.ops {
            ranges.of_read(op, &object);
            if class == Class::Write {
                ranges.of_write(op, state.info.truncate_seq);
                if copies(op) && tickets.len() < MESSAGE_RANGES_MAX {
                    self.fetch_local_source(op, ctx, &mut tickets);
                }
            }
        }
        match clone {
            None => self.ask_for(head, &ranges, ctx, &mut tickets),
            Some(id) => {
                let clone = self.state.object_id(head.object.with_snap(id));
                self.ask_for(&clone, &ranges, ctx, &mut tickets);
            }
        }
        tickets
    }

    /// As [`Pg::prefetch`] for a message that queues behind others: its object as it is now is a good guess.
    pub(crate) fn prefetch_behind(
        &mut self,
        c: &ClientOp,
        class: Class,
        head: &HObject,
        ctx: &mut Context<'_>,
    ) -> Vec<Ticket> {
        if self.state.pool.erasure {
            // What comes from other OSDs counts of one version only, which those before it may change: it is asked for when it is its turn.
            return Vec::new();
        }
        let head = self.state.object_id(head.clone());
        // If its state cannot be read, it is told when its turn comes.
        let Ok(state) = self.take(&head, ctx) else {
            return Vec::new();
        };
        let tickets = self.prefetch(c, class, &head, &state, ctx);
        self.put_back(head.object, state);
        tickets
    }

    /// The clone, or the head, from which a message reads, and its size.
    fn source(&self, c: &ClientOp, class: Class, state: &ObjectState) -> Option<(Option<u64>, u64)> {
        let of_head = state.exists.then_some((None, state.size));
        // Writes of an object that is not there yet may still have sources of their own.
        if class == Class::Write {
            return Some((None, of_head.map_or(0, |h| h.1)));
        }
        if c.op.snapid == NOSNAP {
            return of_head;
        }
        match self.resolve(&state.snapset, c) {
            Resolved::Head => of_head,
            Resolved::Absent => None,
            Resolved::Clone(id) => {
                let clone = state.snapset.clones.iter().find(|c| c.id == id)?;
                Some((Some(id), clone.size))
            }
        }
    }

    /// A copy inside the store shares whole blocks; only the last one is read if the object ends in it.
    /// Shards share nothing: their sources are fetched, also from here.
    fn fetch_local_source(&mut self, op: &OsdOp, ctx: &mut Context<'_>, out: &mut Vec<Ticket>) {
        if self.state.pool.erasure {
            return;
        }
        let Ok(source) = copy::source_of(op) else { return };
        let located = ctx.cluster.locate(&source.oloc, &source.oid, op.copy_from().snap);
        let Located::Local(object) = located else { return };
        if let Ok((oid, state)) = copy::resolve(&object, self.state.id.shard, &mut Index(ctx.store)) {
            let mut ranges = Ranges::new(state.size, BLOCK);
            let len = state.size % BLOCK;
            ranges.read(state.size - len, len);
            self.ask_for(&oid, &ranges, ctx, out);
        }
    }

    fn ask_for(&mut self, oid: &ObjectId, ranges: &Ranges, ctx: &mut Context<'_>, out: &mut Vec<Ticket>) {
        let found = ranges.found.intervals();
        if !found.is_empty() {
            self.lend(ctx, |b, lent| {
                out.extend(
                    found
                        .iter()
                        .filter_map(|(from, to)| b.prefetch(oid, *from, to - from, lent)),
                );
            });
        }
    }

    /// All data of an object that another OSD wants.
    pub(crate) fn prefetch_export(&mut self, object: &HObject, ctx: &mut Context<'_>) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        if let Ok((oid, state)) = copy::resolve(object, self.state.id.shard, &mut Index(ctx.store)) {
            let mut ranges = Ranges::new(state.size, BLOCK);
            ranges.all();
            self.ask_for(&oid, &ranges, ctx, &mut tickets);
        }
        tickets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(size: u64, f: impl Fn(&mut Ranges)) -> Vec<(u64, u64)> {
        let mut r = Ranges::new(size, BLOCK);
        f(&mut r);
        r.found.intervals().to_vec()
    }

    #[test]
    fn only_blocks_that_keep_something_are_completed() {
        let check = |size, offset, len, want: &[(u64, u64)]| {
            let got = ranges(size, |r| r.complete(offset, len));
            assert_eq!(got, want, "{offset}~{len} of {size}");
        };
        check(1 << 20, 4096, 8192, &[]);
        check(1 << 20, 4095, 8192, &[(0, 4096), (8192, 12288)]);
        check(1 << 20, 5000, 10, &[(4096, 8192)]);
        check(1 << 20, 4096, 10, &[(4096, 8192)]);
        check(1 << 20, 4097, 4095, &[(4096, 8192)]);
        check(5000, 4096, 904, &[]);
        check(5000, 4096, 903, &[(4096, 5000)]);
        check(5000, 4097, 9000, &[(4096, 5000)]);
        // A write behind the end: the old tail stays in the block.
        check(5000, 5000, 1, &[(4096, 5000)]);
        check(5000, 8192, 1, &[]);
        check(5000, 0, 0, &[]);
        check(5000, u64::MAX, 5, &[]);
        check(5000, 1, u64::MAX, &[(0, 4096)]);
    }

    #[test]
    fn stripes_are_completed_where_parity_is_of_them() {
        let coded = PoolView {
            erasure: true,
            stripe_width: 12288,
            ..PoolView::default()
        };
        assert_eq!(block_of(&PoolView::default()), BLOCK);
        let check = |size, offset, len, want: &[(u64, u64)]| {
            let mut r = Ranges::new(size, block_of(&coded));
            r.complete(offset, len);
            assert_eq!(r.found.intervals(), want, "{offset}~{len} of {size}");
        };
        check(1 << 20, 4096, 4096, &[(0, 12288)]);
        check(1 << 20, 0, 12288, &[]);
        check(1 << 20, 12000, 12600, &[(0, 12288), (24576, 36864)]);
        // All that there is of the last stripe is overwritten.
        check(13000, 12288, 712, &[]);
    }

    #[test]
    fn a_message_asks_for_bounded_ranges() {
        let got = ranges(1 << 30, |r| {
            r.all();
            r.read(1 << 29, 100);
        });
        assert_eq!(got, [(0, MESSAGE_BYTES_MAX)]);
        let many = ranges(1 << 30, |r| (0..1000).for_each(|n| r.read(n * 10_000, 1)));
        assert_eq!(many.len(), MESSAGE_RANGES_MAX);
    }
}
