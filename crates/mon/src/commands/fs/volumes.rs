//! `fs volume`: a file system with its pools, in one word; `fs status`. The manager's module `volumes` has these words in Ceph.

use super::change::refuse_another;
use super::pools::{Use, refuse, refuse_coded, tag};
use super::sure;
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, later, spec};
use crate::commands::views::file_systems::{Standing, named, pool_name};
use crate::format;
use crate::policies::pools::{self, NewPool, PoolDefaults};
use crate::policies::usage;
use cluster::files::{self, Draft, NewFs};
use serde_json::{Value, json};
use types::fsmap::{Filesystem, MdsMap};
use types::osdmap::Incremental;
use types::{Errno, PoolId};

const R: (&str, &str) = ("mgr", "r");
const RW: (&str, &str) = ("mgr", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "fs status fs?:str", "what goes on in the file systems", status).by_manager("status"),
    spec(R, "fs volume ls", "volumes", ls).by_manager("volumes"),
    spec(
        RW,
        "fs volume create name:str([A-Za-z0-9-_.]) placement?:str",
        "make a file system with pools of its own",
        create,
    )
    .by_manager("volumes"),
    spec(
        RW,
        "fs volume rm vol_name:str yes-i-really-mean-it?:str",
        "remove a file system, its pools and all data",
        rm,
    )
    .by_manager("volumes"),
    later(
        RW,
        "fs volume rename vol_name:str new_vol_name:str yes_i_really_mean_it?:bool",
    )
    .by_manager("volumes"),
    spec(
        R,
        "fs volume info vol_name:str human_readable?:bool",
        "pools of a volume and their use",
        info,
    )
    .by_manager("volumes"),
];

fn pretty(v: &Value) -> Outcome {
    Outcome::ok(format!("{}\n", format::pretty(v).trim_end()))
}

fn ls(_: &Command, ctx: &Context<'_>) -> Outcome {
    let all = ctx.state.fsmap.filesystems.iter();
    let names: Vec<Value> = all.map(|fs| json!({"name": fs.mds_map.fs_name})).collect();
    pretty(&names.into())
}

fn create(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match try_create(cmd.text("name"), ctx) {
        Ok(done) => done,
        Err(refusal) => refusal,
    }
}

/// The pool of this name, made if there is none.
fn pool_for(ctx: &Context<'_>, name: &str, bulk: bool, inc: &mut Incremental) -> Result<PoolId, Outcome> {
    if let Some(id) = ctx.map().pool_by_name(name) {
        refuse(ctx, id)?;
        let as_what = if bulk { Use::Data } else { Use::Metadata };
        refuse_coded(ctx, id, as_what, false)?;
        if ctx.state.fsmap.users_of(id).next().is_some() {
            return Err(Outcome::error(
                Errno::EEXIST,
                format!("pool '{name}' is in use by another file system"),
            ));
        }
        return Ok(id);
    }
    let new = NewPool {
        name,
        bulk,
        ..NewPool::default()
    };
    match pools::create(ctx.state, &new, ctx.now, inc) {
        Ok((_, Some(id))) => Ok(id),
        Ok((done, None)) => Err(Outcome::error(Errno::EEXIST, done.text())),
        Err(e) => Err(Outcome::error(e.errno, e.text)),
    }
}

fn try_create(name: &str, ctx: &Context<'_>) -> Result<Outcome, Outcome> {
    if name.is_empty() {
        return Err(Outcome::invalid("a volume needs a name"));
    }
    if named(ctx, name).is_some() {
        return Ok(Outcome::status(""));
    }
    refuse_another(ctx)?;
    let mut draft = Draft::of(ctx.state, ctx.now);
    let inc = draft.changes.inc(ctx.state, ctx.now);
    let metadata_pool = pool_for(ctx, &format!("cephfs.{name}.meta"), false, inc)?;
    let data_pool = pool_for(ctx, &format!("cephfs.{name}.data"), true, inc)?;
    tag(ctx, metadata_pool, Use::Metadata, name, inc)?;
    tag(ctx, data_pool, Use::Data, name, inc)?;
    let new = NewFs {
        name,
        metadata_pool,
        data_pool,
        fscid: None,
        recover: false,
    };
    files::create(&mut draft, &new).map_err(Outcome::invalid)?;
    Ok(Outcome::status("").with(draft.done()))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match try_rm(cmd, ctx) {
        Ok(done) => done,
        Err(refusal) => refusal,
    }
}

fn try_rm(cmd: &Command, ctx: &Context<'_>) -> Result<Outcome, Outcome> {
    let name = cmd.text("vol_name");
    let confirmed = sure(cmd) || cmd.text("yes-i-really-mean-it") == "--yes-i-really-mean-it";
    if !confirmed {
        return Err(Outcome::error(
            Errno::EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in the filesystem '{name}'. If you are \
                 *ABSOLUTELY CERTAIN* that is what you want, re-issue the command followed by --yes-i-really-mean-it."
            ),
        ));
    }
    if !PoolDefaults::of(ctx.state).allow_delete {
        return Err(Outcome::error(
            Errno::EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before \
             volumes can be deleted",
        ));
    }
    let Some(fs) = named(ctx, name) else {
        return Err(Outcome::absent(format!("volume {name} doesn't exist")));
    };
    let mut draft = Draft::of(ctx.state, ctx.now);
    files::remove(&mut draft, fs.fscid);
    let m = &fs.mds_map;
    let inc = draft.changes.inc(ctx.state, ctx.now);
    for pool in std::iter::once(&m.metadata_pool).chain(&m.data_pools) {
        let others = |fs: &&Filesystem| fs.mds_map.fs_name != name;
        if ctx.state.fsmap.users_of(*pool).any(|fs| others(&fs)) || inc.old_pools.contains(pool) {
            continue;
        }
        pools::delete_unused(ctx.state, *pool, inc).map_err(|e| Outcome::error(e.errno, e.text))?;
    }
    let data: Vec<String> = m
        .data_pools
        .iter()
        .map(|p| format!("'{}'", pool_name(ctx, *p)))
        .collect();
    let said = format!(
        "metadata pool: {} data pool: [{}] removed",
        pool_name(ctx, m.metadata_pool),
        data.join(", ")
    );
    Ok(Outcome::ok(said).with(draft.done()))
}

/// Addresses of the monitors as clients are given them.
pub fn mon_addrs(ctx: &Context<'_>) -> Vec<String> {
    let all = ctx.state.monmap.by_rank();
    all.filter_map(|m| m.addrs.0.first()?.sock)
        .map(|s| s.to_string())
        .collect()
}

fn pool_json(ctx: &Context<'_>, pool: PoolId) -> Value {
    json!({
        "avail": usage::pool_max_avail(ctx.state, ctx.stats, pool),
        "name": pool_name(ctx, pool),
        "used": ctx.stats.pool_sum(pool).num_bytes.max(0),
    })
}

fn info(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("vol_name");
    let Some(fs) = named(ctx, name) else {
        return Outcome::absent(format!("FS '{name}' not found"));
    };
    let m = &fs.mds_map;
    let data: Vec<Value> = m.data_pools.iter().map(|p| pool_json(ctx, *p)).collect();
    pretty(&json!({
        "mon_addrs": mon_addrs(ctx),
        "pools": {"data": data, "metadata": [pool_json(ctx, m.metadata_pool)]},
    }))
}

fn status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let wanted = cmd.opt_text("fs");
    if let Some(name) = wanted
        && named(ctx, name).is_none()
    {
        return Outcome::status(format!("Invalid filesystem: {name}"));
    }
    let shown: Vec<&Filesystem> = ctx
        .state
        .fsmap
        .filesystems
        .iter()
        .filter(|fs| wanted.is_none_or(|name| fs.mds_map.fs_name == name))
        .collect();
    if shown.is_empty() {
        return cmd.either(|| json!({}), String::new);
    }
    cmd.either(|| status_json(ctx, &shown), || status_text(ctx, &shown))
}

/// Every rank, as its state's last word and who has it.
fn ranks(fs: &Filesystem) -> Vec<(i32, &'static str, &str)> {
    let m = &fs.mds_map;
    let state = |rank: &i32| {
        let info = m.up.get(rank).and_then(|gid| m.mds_info.get(gid));
        match info {
            Some(i) => (
                i.state.name().rsplit(':').next().unwrap_or_default(),
                i.name.as_str(),
            ),
            None => ("failed", ""),
        }
    };
    m.in_ranks
        .iter()
        .map(|rank| {
            let (state, name) = state(rank);
            (*rank, state, name)
        })
        .collect()
}

/// Who follows a rank: shown behind those who hold one.
fn followers(m: &MdsMap) -> impl Iterator<Item = [String; 3]> {
    m.followers().map(|f| {
        let state = f.state.name().rsplit(':').next().unwrap_or_default();
        [format!("{}-s", f.rank), state.to_string(), f.name.clone()]
    })
}

fn status_json(ctx: &Context<'_>, shown: &[&Filesystem]) -> Value {
    let mut mds = Vec::new();
    let mut all = Vec::new();
    for fs in shown {
        for (rank, state, name) in ranks(fs) {
            mds.push(match name {
                "" => json!({"rank": rank, "state": state}),
                _ => json!({"rank": rank, "state": state, "name": name}),
            });
        }
        let m = &fs.mds_map;
        mds.extend(
            followers(m).map(|[rank, state, name]| json!({"rank": rank, "state": state, "name": name})),
        );
        let of = |pool: &PoolId, kind: &str| {
            json!({
                "avail": usage::pool_max_avail(ctx.state, ctx.stats, *pool),
                "id": pool,
                "name": pool_name(ctx, *pool),
                "type": kind,
                "used": ctx.stats.pool_sum(*pool).num_bytes.max(0),
            })
        };
        all.push(of(&m.metadata_pool, "metadata"));
        all.extend(m.data_pools.iter().map(|p| of(p, "data")));
    }
    let standbys = ctx.state.fsmap.standby_daemons.values();
    mds.extend(standbys.map(|i| json!({"name": i.name, "state": "standby"})));
    json!({"mds_version": types::release::VERSION_TEXT, "mdsmap": mds, "pools": all})
}

fn status_text(ctx: &Context<'_>, shown: &[&Filesystem]) -> String {
    let mut out = String::new();
    for fs in shown {
        let name = &fs.mds_map.fs_name;
        out.push_str(&format!("{name}\n{}\n", "=".repeat(name.len())));
        let mut table = format::Table::new().right(&["RANK"]).left(&["STATE", "MDS"]);
        for (rank, state, who) in ranks(fs) {
            table.row([rank.to_string(), state.to_string(), who.to_string()]);
        }
        for row in followers(&fs.mds_map) {
            table.row(row);
        }
        if Standing::of(&fs.mds_map).ranks > 0 {
            out.push_str(&table.print());
        }
        let mut table = format::Table::new()
            .left(&["POOL", "TYPE"])
            .right(&["USED", "AVAIL"]);
        let m = &fs.mds_map;
        let kinds = std::iter::once((&m.metadata_pool, "metadata"));
        for (pool, kind) in kinds.chain(m.data_pools.iter().map(|p| (p, "data"))) {
            let used = ctx.stats.pool_sum(*pool).num_bytes.max(0) as u64;
            let avail = usage::pool_max_avail(ctx.state, ctx.stats, *pool);
            table.row([
                pool_name(ctx, *pool),
                kind.to_string(),
                format::units::bytes(used),
                format::units::bytes(avail),
            ]);
        }
        out.push_str(&table.print());
    }
    let standbys = &ctx.state.fsmap.standby_daemons;
    if !standbys.is_empty() {
        let mut table = format::Table::new().left(&["STANDBY MDS"]);
        for i in standbys.values() {
            table.row([&i.name]);
        }
        out.push_str(&table.print());
    }
    out.push_str(&format!("MDS version: {}\n", types::release::VERSION_TEXT));
    out
}
