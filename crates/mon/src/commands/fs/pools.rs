//! Pools of file systems: what says that they are, and what stands against it.

use crate::commands::command::Outcome;
use crate::commands::context::Context;
use crate::policies::pool_change::pool_mut;
use types::osdmap::Incremental;
use types::pool::{PgPool, PoolOption, pool_flag};
use types::{Errno, PoolId};

/// The name of the application of pools that file systems use.
pub const APPLICATION: &str = "cephfs";

/// What a pool is to a file system, as its application says it; clients' capabilities name it (`tag cephfs data=NAME`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Metadata,
    Data,
}

impl Use {
    fn key(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Data => "data",
        }
    }
}

fn mark(pool: &mut PgPool, as_what: Use, fs: &str) {
    let app = pool.application_metadata.entry(APPLICATION.into()).or_default();
    app.insert(as_what.key().into(), fs.into());
    if as_what == Use::Metadata {
        // As the real one wants them: these objects come before others, and are many for their bytes.
        pool.opts.set("recovery_priority", PoolOption::Int(5));
        pool.opts.set("pg_num_min", PoolOption::Int(16));
        pool.opts.set("pg_autoscale_bias", PoolOption::Double(4.0));
    }
}

/// A pool becomes one of `fs`.
pub fn tag(
    ctx: &Context<'_>,
    id: PoolId,
    as_what: Use,
    fs: &str,
    inc: &mut Incremental,
) -> Result<(), Outcome> {
    let pool = pool_mut(ctx.map(), inc, id).map_err(|e| Outcome::error(e.errno, e.text))?;
    mark(pool, as_what, fs);
    Ok(())
}

/// Why a pool of shards cannot be one. Metadata is written in place and has keys; a first data pool without copies is for who asks for
/// it.
pub fn refuse_coded(ctx: &Context<'_>, id: PoolId, as_what: Use, force: bool) -> Result<(), Outcome> {
    let Some(pool) = ctx.map().pool(id).filter(|p| p.is_erasure()) else {
        return Ok(());
    };
    let overwrites = pool.has(pool_flag::EC_OVERWRITES);
    let why = match as_what {
        Use::Metadata => {
            "is an erasure-coded pool. Use of erasure-coded pools for CephFS metadata is not permitted"
        }
        Use::Data if !overwrites => "is an erasure-coded pool, with no overwrite support",
        Use::Data if !force => {
            "is an erasure-coded pool. Use of an EC pool for the default data pool is discouraged; see the online CephFS \
             documentation for more information. Use --force to override."
        }
        Use::Data => return Ok(()),
    };
    let name = ctx.map().pool_name(id).unwrap_or_default();
    Err(Outcome::invalid(format!("pool '{name}' (id '{id}') {why}")))
}

/// Why a pool cannot be one of a file system.
pub fn refuse(ctx: &Context<'_>, id: PoolId) -> Result<(), Outcome> {
    let Some(pool) = ctx.map().pool(id) else {
        return Err(Outcome::absent(format!("pool '{id}' does not exist")));
    };
    let apps = &pool.application_metadata;
    if apps.is_empty() || apps.contains_key(APPLICATION) {
        return Ok(());
    }
    let name = ctx.map().pool_name(id).unwrap_or_default();
    Err(Outcome::invalid(format!(
        " pool '{name}' (id '{id}') has a non-CephFS application enabled."
    )))
}

/// Objects of something else would be taken for the file system's own.
pub fn refuse_used(ctx: &Context<'_>, id: PoolId) -> Result<(), Outcome> {
    if ctx.stats.pool_sum(id).num_objects <= 0 {
        return Ok(());
    }
    let name = ctx.map().pool_name(id).unwrap_or_default();
    Err(Outcome::error(
        Errno::EINVAL,
        format!("pool '{name}' already contains some objects. Use an empty pool instead."),
    ))
}
