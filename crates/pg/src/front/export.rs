//! An object of this PG for another one, on this OSD or elsewhere (COPY_FROM).

use crate::Pg;
use crate::api::{Context, Output};
use crate::backend::Lack;
use crate::front::execute::Stop;
use crate::front::parked::{Job, Order, ROUNDS_MAX, Task};
use types::{Errno, HObject};

impl Pg {
    pub(crate) fn export(&mut self, token: u64, object: HObject, ctx: &mut Context<'_>) {
        let mut tickets = self.prefetch_export(&object, ctx);
        let head = object.head();
        let mut rounds = 0;
        if tickets.is_empty() {
            let Some(lacks) = self.export_now(token, &object, rounds, ctx) else {
                // What it met may have to be repaired.
                return self.pump(&head, ctx);
            };
            tickets = self.bring(lacks, ctx);
            rounds = 1;
        }
        let mut job = Job::new(Task::Export { token, object }, head, Order::Free, tickets);
        job.rounds = rounds;
        self.park(job, ctx);
    }

    /// What has to be brought first: it waits for nobody, and the object may have been written meanwhile.
    pub(crate) fn export_now(
        &mut self,
        token: u64,
        object: &HObject,
        rounds: u32,
        ctx: &mut Context<'_>,
    ) -> Option<Vec<Lack>> {
        let result = if !self.is_active() {
            // What is here may be older, or newer, than what stands.
            Err(Stop::Refused(Errno::EAGAIN))
        } else if self.state.meta.removed.contains(object.snap) {
            Err(Stop::Refused(Errno::ENOENT))
        } else {
            self.exported(object, ctx)
        };
        let result = match result {
            Ok(copy) => Ok(copy),
            Err(Stop::Lacks(lacks)) if rounds < ROUNDS_MAX => return Some(lacks),
            // It is written all the time: the asker's client asks again.
            Err(Stop::Lacks(_)) => Err(Errno::EAGAIN),
            // So it does here, and may find it repaired.
            Err(Stop::Refused(Errno::EIO)) if self.damaged(&object.head(), ctx) => Err(Errno::EAGAIN),
            Err(Stop::Refused(e)) => Err(e),
        };
        let seq = self.last_write(&object.head());
        self.front
            .commits
            .release(seq, Output::Exported { token, result }, ctx.out);
        None
    }
}
