//! One placement group.

use crate::{Context, Input, Output, PgStats, PoolView, store::ObjectStore};
use messages::osd::MOSDOpReply;
use std::sync::Arc;
use std::time::Duration;
use types::{Errno, SPgId};

/// Why a PG could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("pg {pg}: {source}")]
    Read { pg: SPgId, source: crate::IoError },
    #[error("pg {pg}: {what} does not decode: {source}")]
    Decode {
        pg: SPgId,
        what: &'static str,
        source: denc::Error,
    },
    #[error("pg {pg}: the collection cannot be created: {errno}")]
    Create { pg: SPgId, errno: Errno },
}

#[derive(Debug)]
pub struct Pg {
    id: SPgId,
    pool: Arc<PoolView>,
}

impl Pg {
    /// Loads the PG from the store, or creates its collection if it is new.
    pub fn load(
        id: SPgId,
        pool: Arc<PoolView>,
        _store: &mut dyn ObjectStore,
        _now: Duration,
    ) -> Result<Self, LoadError> {
        Ok(Self { id, pool })
    }

    pub fn id(&self) -> SPgId {
        self.id
    }

    /// One input; outputs are appended to `ctx.out`.
    pub fn apply(&mut self, input: Input, ctx: &mut Context<'_>) {
        match input {
            Input::ClientOp(c) => ctx.out.push(Output::Reply {
                conn: c.conn,
                reply: MOSDOpReply::to(&c.op, self.pool.epoch, Errno::EOPNOTSUPP.code()),
                permit: c.permit,
            }),
            Input::MapChanged(pool) => self.pool = pool,
            _ => {}
        }
    }

    /// When the PG next wants an [`Input::Tick`].
    pub fn next_timer(&self) -> Option<Duration> {
        None
    }

    /// True while answers wait for durability: only such a PG needs [`Input::Committed`].
    pub fn is_waiting(&self) -> bool {
        false
    }

    pub fn stats(&self) -> PgStats {
        PgStats::default()
    }
}
