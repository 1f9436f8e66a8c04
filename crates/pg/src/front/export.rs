//! An object of this PG for another one, on this OSD or elsewhere (COPY_FROM).

use crate::Pg;
use crate::api::{Context, Output};
use crate::front::parked::{Job, Order, Task};
use types::{Errno, HObject};

impl Pg {
    pub(crate) fn export(&mut self, token: u64, object: HObject, ctx: &mut Context<'_>) {
        let tickets = self.prefetch_export(&object, ctx);
        let head = object.head();
        if tickets.is_empty() {
            self.export_now(token, &object, ctx);
            // What it met may have to be repaired.
            return self.pump(&head, ctx);
        }
        self.park(
            Job::new(Task::Export { token, object }, head, Order::Free, tickets),
            ctx,
        );
    }

    pub(crate) fn export_now(&mut self, token: u64, object: &HObject, ctx: &mut Context<'_>) {
        let result = if !self.is_active() {
            // What is here may be older, or newer, than what stands.
            Err(Errno::EAGAIN)
        } else if self.state.meta.removed.contains(object.snap) {
            Err(Errno::ENOENT)
        } else {
            self.exported(object, ctx)
        };
        let result = match result {
            // The asker's client asks again, and may find it repaired.
            Err(Errno::EIO) if self.damaged(&object.head(), ctx) => Err(Errno::EAGAIN),
            result => result,
        };
        let seq = self.last_write(&object.head());
        self.front
            .commits
            .release(seq, Output::Exported { token, result }, ctx.out);
    }
}
