//! Shards of the PG on other OSDs, as its primary keeps them (docs/internals/erasure.md).

mod contract;

use crate::api::{Output, Word};
use crate::backend::Lent;
use crate::backend::erasure::cut::Coding;
use crate::backend::group::Group;
use crate::store::Seq;
use messages::osd::peer::PeerBody;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::OsdId;

/// What the primary knows of the shards.
#[derive(Debug)]
pub(crate) struct Shards {
    pub(super) coding: Arc<Coding>,
    group: Group,
    /// Connections, whether the OSD is a member now or not.
    connected: BTreeSet<OsdId>,
    /// The newest transaction that answers may show: it never goes back.
    confirmed: Seq,
    /// Who has spoken of transactions in this call.
    word: Option<Word>,
    /// Number of the last question or transaction.
    last_number: u64,
}

impl Shards {
    /// Before the shell has said who else there is nothing is executed.
    pub fn alone(coding: Arc<Coding>) -> Self {
        Self {
            coding,
            group: Group::default(),
            connected: BTreeSet::new(),
            confirmed: 0,
            word: None,
            last_number: 0,
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// To the shard that this OSD has, or learns.
    pub(super) fn send_to(&self, to: OsdId, body: PeerBody, ctx: &mut Lent<'_>) {
        ctx.out.push(Output::Peer {
            to,
            shard: self.group.shard_of(to),
            interval: self.group.interval,
            body,
        });
    }
}
