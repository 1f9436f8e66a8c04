//! A PG that was just split off, and members of the PG that it came from: what they hold of its objects needs no comparing.
//!
//! Vocabulary: a *sibling* is an OSD whose objects are those of the new PG here, though it has nothing else of it yet: it was a
//! full member of the old PG when its primary saw the map change, and has taken all that was sent to it until then.
//!
//! How that is known: the old PG is led by the OSD that begins to lead the new one, so both speak to the member on one
//! connection, in order. The member's answer to the new PG's first question comes behind its answers to all that the old
//! PG had sent before. Has none of its members fallen away since ([`crate::backend::Backend::has_kept`]), none of that was refused or lost. What
//! is missing is the log: it goes there as it was taken over here, in the order of the connection.
//!
//! Invariants: a sibling is believed only while the new PG has written nothing; a connection that ends makes it a stranger,
//! who is compared object by object. Not here: taking the log over from the old PG (`split`).

use super::Replicated;
use crate::backend::Lent;
use crate::backend::reports::Kin;
use crate::state::pg::PgState;
use std::time::Duration;
use types::{EVersion, Epoch, OsdId};

impl Replicated {
    pub(crate) fn note_split(&mut self, pg: &PgState) {
        self.birth.split = Some(pg.pool.epoch);
    }

    pub(super) fn note_birth(&mut self, pg: &PgState) {
        self.birth.at = Some((pg.pool.epoch, pg.log.head()));
    }

    /// The members that have everything, for a PG that is split off now.
    pub(super) fn kin_now(&self, pg: &PgState) -> Kin {
        let full = self.members.iter().filter(|(_, m)| m.is_full());
        Kin {
            full: full.map(|(osd, _)| *osd).collect(),
            mark: self.mark(pg),
        }
    }

    /// None of them has fallen away since.
    pub(super) fn has_kept_since(&self, kin: &Kin, pg: &PgState) -> bool {
        kin.mark == self.mark(pg)
    }

    fn mark(&self, pg: &PgState) -> (Duration, u64) {
        (pg.loaded_at, self.birth.falls)
    }

    /// The shell knows that the member, which has just answered, holds the objects that are here.
    pub(super) fn remember_sibling(&mut self, osd: OsdId, pg: &PgState) {
        let untouched = |at: (Epoch, EVersion)| at.1 == pg.log.head();
        if self.birth.at.is_some_and(untouched) {
            self.birth.siblings.insert(osd);
        }
    }

    /// Gives a sibling the log and the metadata, with which it is full. False: it is none.
    pub(super) fn give_sibling_its_log(&mut self, osd: OsdId, ctx: &mut Lent<'_>) -> bool {
        let Some((_, head)) = self.birth.at else {
            return false;
        };
        if !self.birth.siblings.remove(&osd) || head != ctx.pg.log.head() {
            return false;
        }
        let mut ops = match self.log_steps(None, None, ctx) {
            Ok(ops) => ops,
            Err(e) => {
                tracing::error!("pg {}: {e}", ctx.pg.id);
                return false;
            }
        };
        // It has no collection that would have to go first.
        ops.remove(0);
        tracing::debug!(
            "pg {}: osd.{osd} is given the log it was split off with",
            ctx.pg.id
        );
        let Some(last) = self.send_steps(osd, ops, ctx) else {
            return false;
        };
        if let Some(m) = self.members.get_mut(&osd) {
            m.become_full_with(last);
        }
        true
    }
}
