//! A member's word that its copy of an object is damaged: the object is looked at, and repaired.

use crate::Pg;
use crate::api::{Context, ScrubOrder};
use types::{HObject, OsdId};

impl Pg {
    /// A member could not read something of this unit. Flags that forbid scrubs do not count, as they do not for read
    /// repair: nothing is walked over, and a client has met the damage.
    pub(super) fn damage_reported(&mut self, from: OsdId, head: HObject, ctx: &mut Context<'_>) {
        let ours = head.is_head() && head.pool == self.state.pool.id && self.state.range.contains(head.hash);
        if !ours || !self.can_scrub() {
            return;
        }
        tracing::error!(
            "pg {}: {head}: the copy on osd.{from} is damaged: it is repaired",
            self.state.id
        );
        let order = ScrubOrder {
            deep: true,
            repair: true,
        };
        self.check_alone(head, order, ctx);
    }
}
