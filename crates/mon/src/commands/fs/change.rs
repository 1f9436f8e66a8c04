//! File systems are made, removed, failed; their pools change.

use super::pools::{Use, refuse, refuse_coded, refuse_used, tag};
use super::{boolean, edit, pool_named, sure, the_fs};
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::file_systems::named;
use cluster::files::{self, Draft, NewFs};
use std::collections::{BTreeMap, BTreeSet};
use types::fsmap::{Filesystem, mds_flag};
use types::{Errno, PoolId};

const MULTIPLE_OFF: &str = "Creation of multiple filesystems is disabled.  To enable this experimental feature, use 'ceph fs flag set enable_multiple true'";

/// Whether another file system may be made.
pub fn refuse_another(ctx: &Context<'_>) -> Result<(), Outcome> {
    let map = &ctx.state.fsmap;
    match map.filesystems.is_empty() || map.enable_multiple {
        true => Ok(()),
        false => Err(Outcome::invalid(MULTIPLE_OFF)),
    }
}

pub fn new(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match try_new(cmd, ctx) {
        Ok(done) => done,
        Err(refusal) => refusal,
    }
}

fn try_new(cmd: &Command, ctx: &Context<'_>) -> Result<Outcome, Outcome> {
    let name = cmd.text("fs_name");
    let (metadata, data) = (
        pool_named(ctx, cmd.text("metadata"))?,
        pool_named(ctx, cmd.text("data"))?,
    );
    if let Some(there) = named(ctx, name) {
        return already(there, metadata, data);
    }
    refuse_another(ctx)?;
    if !cmd.flag("allow_dangerous_metadata_overlay") {
        let in_use = |pool| ctx.state.fsmap.users_of(pool).next().is_some();
        if in_use(metadata) || in_use(data) {
            return Err(Outcome::error(Errno::EEXIST, overlay(name)));
        }
    }
    let fscid = cmd.int("fscid");
    let force = cmd.flag("force");
    if fscid.is_some() && !force {
        return Err(Outcome::invalid(
            "expects --force with --fscid: a number that was another's lets its clients believe that this one is theirs",
        ));
    }
    let fscid = fscid.map(|id| i32::try_from(id).unwrap_or(i32::MAX));
    if let Some(id) = fscid.filter(|id| ctx.state.fsmap.by_id(*id).is_some()) {
        return Err(Outcome::invalid(format!(
            "filesystem already exists with id '{id}'"
        )));
    }
    for (pool, as_what) in [(metadata, Use::Metadata), (data, Use::Data)] {
        refuse(ctx, pool)?;
        refuse_coded(ctx, pool, as_what, force)?;
    }
    let recover = cmd.flag("recover");
    if !force && !recover {
        refuse_used(ctx, metadata)?;
    }
    let mut draft = Draft::of(ctx.state, ctx.now);
    let inc = draft.changes.inc(ctx.state, ctx.now);
    tag(ctx, metadata, Use::Metadata, name, inc)?;
    tag(ctx, data, Use::Data, name, inc)?;
    let new = NewFs {
        name,
        metadata_pool: metadata,
        data_pool: data,
        fscid,
        recover,
    };
    files::create(&mut draft, &new).map_err(Outcome::invalid)?;
    let said = format!("new fs with metadata pool {metadata} and data pool {data}");
    Ok(Outcome::status(said).with(draft.done()))
}

/// The first try may have got through, and its answer was lost.
fn already(there: &Filesystem, metadata: PoolId, data: PoolId) -> Result<Outcome, Outcome> {
    let m = &there.mds_map;
    let same = m.metadata_pool == metadata && m.data_pools == [data];
    match same {
        true => Ok(Outcome::status(format!(
            "filesystem '{}' already exists",
            m.fs_name
        ))),
        false => Err(Outcome::invalid(format!(
            "filesystem already exists with name '{}'",
            m.fs_name
        ))),
    }
}

fn overlay(name: &str) -> String {
    format!(
        "Filesystem '{name}' is already using one of the specified RADOS pools. This should ONLY be done in emergencies \
         and after careful reading of the documentation. Pass --allow-dangerous-metadata-overlay to permit this."
    )
}

pub fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("fs_name");
    let Some(fs) = named(ctx, name) else {
        // Clients repeat their requests.
        return Outcome::status(format!("filesystem '{name}' does not exist"));
    };
    if !fs.mds_map.up.is_empty() {
        return Outcome::invalid(
            "all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs fail`.",
        );
    }
    if !sure(cmd) {
        return Outcome::error(
            Errno::EPERM,
            "this is a DESTRUCTIVE operation and will make data in your filesystem permanently inaccessible.  Add \
             --yes-i-really-mean-it if you are sure you wish to continue.",
        );
    }
    let mut draft = Draft::of(ctx.state, ctx.now);
    files::remove(&mut draft, fs.fscid);
    Outcome::status("").with(draft.done())
}

pub fn reset(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    edit(cmd, ctx, |draft, fscid| {
        if !sure(cmd) {
            return Err(Outcome::error(
                Errno::EPERM,
                "this is a potentially destructive operation, only for use by experts in disaster recovery.  Add \
                 --yes-i-really-mean-it if you are sure you wish to continue.",
            ));
        }
        let Some(fs) = draft.map.by_id_mut(fscid) else {
            return Ok(String::new());
        };
        if !fs.mds_map.up.is_empty() {
            return Err(Outcome::invalid(
                "all MDS daemons must be inactive before resetting filesystem: use `ceph fs fail` to make this so",
            ));
        }
        let m = &mut fs.mds_map;
        m.in_ranks = BTreeSet::from([0]);
        m.failed = BTreeSet::from([0]);
        m.damaged = BTreeSet::new();
        m.stopped = BTreeSet::new();
        m.inc = BTreeMap::new();
        m.flags &= !mds_flag::NOT_JOINABLE;
        Ok(String::new())
    })
}

/// Takes all ranks of a file system away.
pub fn fail_all(draft: &mut Draft<'_>, fscid: i32, why: &str) {
    let holders: Vec<u64> = draft
        .map
        .by_id(fscid)
        .map(|fs| fs.mds_map.up.values().copied().collect())
        .unwrap_or_default();
    for gid in holders {
        draft.drop_daemon(gid, why);
    }
}

pub fn fail(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    edit(cmd, ctx, |draft, fscid| {
        if let Some(fs) = draft.map.by_id_mut(fscid) {
            fs.mds_map.flags |= mds_flag::NOT_JOINABLE;
        }
        fail_all(draft, fscid, &format!("marked failed by {}", ctx.who));
        Ok(format!(
            "{} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed.",
            cmd.text("fs_name")
        ))
    })
}

pub fn set_default(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    edit(cmd, ctx, |draft, fscid| {
        draft.map.legacy_client_fscid = fscid;
        Ok(String::new())
    })
}

pub fn flag_set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let val = cmd.text("val");
    let Ok(on) = boolean(val) else {
        return Outcome::invalid(format!(
            "value must be false|no|0 or true|yes|1Invalid boolean value '{val}'"
        ));
    };
    let mut draft = Draft::of(ctx.state, ctx.now);
    draft.map.enable_multiple = on;
    draft.map.ever_enabled_multiple |= on;
    Outcome::status("").with(draft.done())
}

pub fn add_data_pool(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if let Err(refusal) = the_fs(cmd, ctx) {
        return refusal;
    }
    let pool = match pool_named(ctx, cmd.text("pool")) {
        Ok(pool) => pool,
        Err(refusal) => return refusal,
    };
    edit(cmd, ctx, |draft, fscid| {
        let fs = cmd.text("fs_name");
        refuse(ctx, pool)?;
        refuse_coded(ctx, pool, Use::Data, true)?;
        let Some(of) = draft.map.by_id_mut(fscid) else {
            return Ok(String::new());
        };
        if of.mds_map.data_pools.contains(&pool) {
            return Ok(format!("data pool {pool} is already on fs {fs}"));
        }
        of.mds_map.data_pools.push(pool);
        tag(ctx, pool, Use::Data, fs, draft.changes.inc(ctx.state, ctx.now))?;
        Ok(format!("added data pool {pool} to fsmap"))
    })
}

pub fn rm_data_pool(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if let Err(refusal) = the_fs(cmd, ctx) {
        return refusal;
    }
    let pool = match pool_named(ctx, cmd.text("pool")) {
        Ok(pool) => pool,
        Err(refusal) => return refusal,
    };
    edit(cmd, ctx, |draft, fscid| {
        let Some(fs) = draft.map.by_id_mut(fscid) else {
            return Ok(String::new());
        };
        let pools = &mut fs.mds_map.data_pools;
        if pools.first() == Some(&pool) {
            return Err(Outcome::invalid("cannot remove default data pool"));
        }
        if !pools.contains(&pool) {
            return Ok(String::new());
        }
        pools.retain(|p| *p != pool);
        Ok(format!("removed data pool {pool} from fsmap"))
    })
}
