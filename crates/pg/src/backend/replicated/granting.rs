//! What the primary says to members that answer reads, or want to: whether they may ([`super::grants`]), and what is stable.

use super::Replicated;
use crate::api::Output;
use crate::backend::Lent;
use crate::state::pg::PgState;
use messages::osd::peer::PeerBody;
use types::{EVersion, OsdId};

impl Replicated {
    /// All of `in_sync` have everything up to here.
    fn stable(&self, pg: &PgState) -> EVersion {
        pg.log.newest_up_to(self.confirmed)
    }

    /// A member wants to answer reads.
    pub(super) fn asked_for_grant(&mut self, osd: OsdId, token: u64, ctx: &mut Lent<'_>) {
        let r = &mut *self;
        let full = r.members.get(&osd).is_some_and(|m| m.is_full() && m.synced);
        let may = r.may_execute() && r.group.is_in_sync(osd) && full && r.grants.give(osd, ctx.now);
        let stable = self.stable(ctx.pg);
        let pg_num = if may { ctx.pg.pool.pg_num } else { 0 };
        let body = PeerBody::Granted {
            token,
            pg_num,
            stable,
        };
        self.send_to(osd, body, ctx);
    }

    /// More is stable than those know who answer reads.
    pub(super) fn tell_stable(&mut self, pg: &PgState, out: &mut Vec<Output>) {
        if !self.grants.are_given() {
            return;
        }
        let to = self.stable(pg);
        let interval = self.group.interval;
        out.extend(self.grants.tell(to).map(|osd| Output::Peer {
            to: osd,
            shard: -1,
            interval,
            body: PeerBody::Stable { to },
        }));
    }
}
