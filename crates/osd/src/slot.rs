//! A placement group's place in this OSD: as whose part it is here, and when it wants to be woken.

use crate::activity::Activity;
use pg::{Context, Group, Input, Kin, Pg, Replica, Ticket};
use std::time::Duration;
use types::{Epoch, SPgId};

#[derive(Debug)]
pub enum Role {
    Primary(Box<Pg>),
    Replica(Box<Replica>),
}

/// One placement group, and when it wants to be woken.
#[derive(Debug)]
pub struct Slot {
    pub role: Role,
    /// What it was last told.
    pub group: Group,
    /// See [`crate::placement::Placement::led_after`].
    pub led_after: Epoch,
    /// See [`crate::placement::Placement::merged_in`].
    pub merged_in: Epoch,
    /// Objects and bytes copied to members since this OSD leads the PG.
    pub recovered: (i64, i64),
    /// The newest epoch in which it was clean, seen by this OSD since its start, in whichever role. 0: none.
    pub last_clean: Epoch,
    /// It was split off now: from which, and who had everything of that.
    pub kin: Option<(SPgId, Kin)>,
    pub timer: Option<Duration>,
    /// How much it is written to.
    pub activity: Activity,
}

impl Role {
    pub fn is_waiting(&self) -> bool {
        match self {
            Self::Primary(pg) => pg.is_waiting(),
            Self::Replica(r) => r.is_waiting(),
        }
    }

    /// A read of the disk has ended.
    pub fn prefetched(&mut self, ticket: Ticket, ctx: &mut Context<'_>) {
        match self {
            Self::Primary(pg) => pg.apply(Input::Prefetched(ticket), ctx),
            Self::Replica(r) => r.prefetched(ticket, ctx),
        }
    }

    /// A PG that was never scrubbed counts as scrubbed now.
    pub fn begin_scrub_periods(&mut self, ctx: &mut Context<'_>) {
        if let Self::Primary(pg) = self {
            pg.begin_scrub_periods(ctx);
        }
    }

    pub fn committed(&mut self, durable: u64, ctx: &mut Context<'_>) {
        match self {
            Self::Primary(pg) => pg.apply(Input::Committed(durable), ctx),
            Self::Replica(r) => r.committed(durable, ctx.out),
        }
    }
}
