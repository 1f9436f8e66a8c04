//! A PG on an OSD that does not lead it: the copy as the back end keeps it, and the reads that it may answer.

use crate::api::{Context, Output};
use crate::backend::group::Group;
use crate::backend::replicated::local::LocalCopy;
use crate::copy_reads::Reads;
use crate::store::{Seq, Ticket};
use messages::osd::peer::PeerBody;
use types::{Epoch, OsdId, SPgId};

#[derive(Debug)]
pub struct Replica {
    copy: LocalCopy,
    pub(crate) reads: Reads,
}

impl Replica {
    pub fn new(id: SPgId, group: Group) -> Self {
        Self {
            copy: LocalCopy::new(id, group),
            reads: Reads::default(),
        }
    }

    /// How many PGs the pool has, as far as this OSD knows.
    pub fn set_pg_num(&mut self, pg_num: u32) {
        self.copy.set_pg_num(pg_num);
    }

    pub fn id(&self) -> SPgId {
        self.copy.id()
    }

    pub fn group(&self) -> &Group {
        self.copy.group()
    }

    /// The configuration moved on; same or later interval.
    pub fn set_group(&mut self, group: Group) {
        self.copy.set_group(group, &mut self.reads);
    }

    pub fn is_waiting(&self) -> bool {
        self.copy.is_waiting()
    }

    /// The connection with `osd` has ended: its questions have no answers any more.
    pub fn disconnected(&mut self, osd: OsdId) {
        self.copy.disconnected(osd, &mut self.reads);
    }

    /// Everything up to `seq` is durable here.
    pub fn committed(&mut self, seq: Seq, out: &mut Vec<Output>) {
        self.copy.committed(seq, out);
    }

    /// A message of `from`, who takes itself for the primary of `interval`.
    pub fn peer(&mut self, from: OsdId, interval: Epoch, body: PeerBody, ctx: &mut Context<'_>) {
        match self.copy.peer(from, interval, body, &mut self.reads, ctx) {
            Some(PeerBody::Granted {
                token,
                pg_num,
                stable,
            }) => self.granted(token, pg_num, stable, ctx),
            Some(PeerBody::Stable { to }) => self.stable(to, ctx),
            _ => {}
        }
    }

    /// A read that [`crate::ObjectReads::prefetch`] started has ended, well or not.
    pub fn prefetched(&mut self, ticket: Ticket, ctx: &mut Context<'_>) {
        if !self.copy.prefetched(ticket, ctx) {
            self.read_prefetched(ticket, ctx);
        }
    }

    /// This OSD has no part in the PG any more, or another one.
    pub fn leave(mut self, ctx: &mut Context<'_>) {
        self.end_reads(ctx);
        self.copy.leave(ctx);
    }
}
