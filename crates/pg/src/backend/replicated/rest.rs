//! A PG that is to be merged comes to rest: nothing is executed, and everything is durable on all members.
//!
//! Once it has said so the merge may be made at any moment, and its primary may hear of it late. So it goes on only when its
//! configuration is another one; if none comes it proposes what is, after which no earlier merge can come true.

use super::Replicated;
use crate::api::Output;
use crate::backend::{Backend, Lent};
use crate::broken::{self, Rule};
use std::time::Duration;

/// One that does not come to rest goes on; one whose merge is not made in time rules it out.
const REST_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Rest {
    since: Duration,
    /// When it was said that it is at rest.
    said: Option<Duration>,
}

impl Replicated {
    pub(super) fn is_resting(&self) -> bool {
        self.rest.is_some() && !broken::is(Rule::MergesAtRest)
    }

    pub(super) fn begin_to_rest(&mut self, ctx: &mut Lent<'_>) {
        if self.rest.is_some() || !self.may_rest() {
            return;
        }
        self.rest = Some(Rest {
            since: ctx.now,
            said: None,
        });
        self.look_at = Some(ctx.now);
        self.rest_on(ctx);
    }

    /// All that should have it have it, and nothing is about to change that.
    fn may_rest(&self) -> bool {
        let g = &self.group;
        g.is_primary()
            && self.may_execute()
            && g.is_whole()
            && Backend::all_full(self)
            && self.proposal.is_none()
            && self.handing.is_none()
            && !self.handed
            && self.counted.is_empty()
    }

    pub(super) fn rest_on(&mut self, ctx: &mut Lent<'_>) {
        let Some(Rest { since, said }) = self.rest else {
            return;
        };
        if let Some(said) = said {
            if ctx.now >= said + REST_MAX {
                let same = self.group.in_sync.clone();
                self.send_proposal(same, ctx);
            }
            return;
        }
        let quiet = Backend::all_full(self)
            && self.group.is_whole()
            && self.counted.is_empty()
            && !ctx.front.answers_wait(self.confirmed)
            && ctx.front.is_idle()
            && self.committed() >= ctx.pg.last_seq;
        if quiet {
            self.rest = Some(Rest {
                since,
                said: Some(ctx.now),
            });
            ctx.out.push(Output::AtRest {
                group: self.group.clone(),
                head: ctx.pg.log.head(),
            });
        } else if ctx.now >= since + REST_MAX {
            self.rest = None;
        }
    }
}
