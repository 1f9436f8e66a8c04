//! `fs`, `mds`: file systems, their pools and settings, their metadata servers.

mod change;
pub mod daemons;
mod pools;
mod set;
pub mod subvolumes;
pub mod volumes;

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::file_systems::{self as show, CLIENT_FEATURES, named, pool_name};
use cluster::files::Draft;
use serde_json::{Value, json};
use types::Errno;
use types::fsmap::Filesystem;

const R: (&str, &str) = ("mds", "r");
const RW: (&str, &str) = ("mds", "rw");
const FS: (&str, &str) = ("fs", "r");
const FS_RW: (&str, &str) = ("fs", "rw");

pub const TABLE: &[Spec] = &[
    spec(FS, "fs ls", "file systems and their pools", ls),
    spec(R, "fs dump epoch?:int(0..)", "the map of the file systems", dump),
    spec(FS, "fs get fs_name:str", "all about one file system", get),
    spec(R, "fs feature ls", "features of file system clients", feature_ls),
    spec(
        FS_RW,
        "fs new fs_name:str([A-Za-z0-9-_.]) metadata:str data:str force?:bool allow_dangerous_metadata_overlay?:bool fscid?:int(0..) recover?:bool",
        "make a file system of two pools",
        change::new,
    ),
    spec(
        FS_RW,
        "fs rm fs_name:str yes_i_really_mean_it?:bool",
        "remove a file system; its pools stay",
        change::rm,
    ),
    spec(
        FS_RW,
        "fs reset fs_name:str yes_i_really_mean_it?:bool",
        "forget all ranks of a file system but the first",
        change::reset,
    ),
    spec(
        FS_RW,
        "fs fail fs_name:str",
        "take all ranks away, and let nobody join",
        change::fail,
    ),
    spec(
        FS_RW,
        "fs set-default fs_name:str",
        "the file system of clients that name none",
        change::set_default,
    ),
    spec(
        FS_RW,
        "fs set_default fs_name:str",
        "the file system of clients that name none",
        change::set_default,
    )
    .flagged(crate::commands::spec::DEPRECATED),
    spec(
        FS_RW,
        "fs flag set flag_name:choice(enable_multiple) val:str yes_i_really_mean_it?:bool",
        "whether there may be several file systems",
        change::flag_set,
    ),
    spec(
        RW,
        "fs add_data_pool fs_name:str pool:str",
        "let files be stored in another pool, too",
        change::add_data_pool,
    ),
    spec(
        RW,
        "fs rm_data_pool fs_name:str pool:str",
        "let no new files be stored in a pool",
        change::rm_data_pool,
    ),
    spec(
        RW,
        "fs set fs_name:str var:choice(max_mds|max_file_size|allow_new_snaps|inline_data|cluster_down|allow_dirfrags|balancer|standby_count_wanted|session_timeout|session_autoclose|allow_standby_replay|down|joinable|min_compat_client) val:str yes_i_really_mean_it?:bool yes_i_really_really_mean_it?:bool",
        "change a setting of a file system",
        set::set,
    ),
    spec(
        RW,
        "fs required_client_features fs_name:str subop:choice(add|rm) val:str",
        "let in only clients with a feature",
        set::required_client_features,
    ),
    spec(
        R,
        "fs compat show fs_name:str",
        "features that metadata servers of a file system need",
        compat_show,
    ),
    spec(
        FS_RW,
        "fs compat fs_name:str subop:choice(rm_compat|rm_incompat|add_compat|add_incompat) feature:int feature_str?:str",
        "change those features",
        set::compat,
    ),
];

pub fn sure(cmd: &Command) -> bool {
    cmd.flag("yes_i_really_mean_it")
}

/// The file system that a command names as `fs_name`, or that it is not there.
fn the_fs<'a>(cmd: &Command, ctx: &Context<'a>) -> Result<&'a Filesystem, Outcome> {
    let name = cmd.text("fs_name");
    named(ctx, name).ok_or_else(|| Outcome::absent(format!("Filesystem not found: '{name}'")))
}

/// Changes one file system, and says something.
fn edit(
    cmd: &Command,
    ctx: &Context<'_>,
    f: impl FnOnce(&mut Draft<'_>, i32) -> Result<String, Outcome>,
) -> Outcome {
    let fscid = match the_fs(cmd, ctx) {
        Ok(fs) => fs.fscid,
        Err(refusal) => return refusal,
    };
    let mut draft = Draft::of(ctx.state, ctx.now);
    match f(&mut draft, fscid) {
        Ok(said) => Outcome::status(said).with(draft.done()),
        Err(refusal) => refusal,
    }
}

/// `true`, `yes`, `1`, and the contrary.
fn boolean(text: &str) -> Result<bool, Outcome> {
    match text {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(Outcome::invalid("value must be false|no|0 or true|yes|1")),
    }
}

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let all = &ctx.state.fsmap.filesystems;
    let one = |fs: &Filesystem| {
        let m = &fs.mds_map;
        let names: Vec<String> = m.data_pools.iter().map(|p| pool_name(ctx, *p)).collect();
        json!({
            "name": m.fs_name,
            "metadata_pool": pool_name(ctx, m.metadata_pool),
            "metadata_pool_id": m.metadata_pool,
            "data_pool_ids": m.data_pools,
            "data_pools": names,
        })
    };
    let line = |fs: &Filesystem| {
        let m = &fs.mds_map;
        let pools: String = m.data_pools.iter().map(|p| pool_name(ctx, *p) + " ").collect();
        let metadata = pool_name(ctx, m.metadata_pool);
        format!(
            "name: {}, metadata pool: {metadata}, data pools: [{pools}]",
            m.fs_name
        )
    };
    let plain = || match all.is_empty() {
        true => "No filesystems enabled\n".into(),
        false => lines(all.iter().map(line)),
    };
    cmd.either(|| all.iter().map(one).collect::<Vec<Value>>().into(), plain)
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = &*ctx.state.fsmap;
    if let Some(e) = cmd.int("epoch").filter(|e| *e != 0 && *e != i64::from(map.epoch)) {
        return Outcome::absent(format!("there is no map for epoch {e}"));
    }
    cmd.either(|| show::fsmap_json(map), || show::fsmap_text(map))
        .saying(format!("dumped fsmap epoch {}", map.epoch))
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("fs_name");
    match named(ctx, name) {
        Some(fs) => cmd.either(|| show::fs_json(fs), || show::fs_text(fs)),
        None => Outcome::absent(format!("filesystem '{name}' not found")),
    }
}

fn feature_ls(cmd: &Command, _: &Context<'_>) -> Outcome {
    let all = || CLIENT_FEATURES.iter().enumerate();
    cmd.either(
        || all().map(|(i, n)| json!({"index": i, "name": n})).collect(),
        || lines(all().map(|(i, n)| format!("{i} {n}"))),
    )
}

fn compat_show(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("fs_name");
    let Some(fs) = named(ctx, name) else {
        return Outcome::absent(format!("filesystem '{name}' not found"));
    };
    let set = &fs.mds_map.compat;
    cmd.either(
        || show::compat_json(set),
        || format!("{}\n", show::compat_text(set)),
    )
}

/// The pool that a command names, or that it is not there.
fn pool_named(ctx: &Context<'_>, name: &str) -> Result<types::PoolId, Outcome> {
    let number = || name.parse().ok().filter(|id| ctx.map().pool(*id).is_some());
    ctx.map()
        .pool_by_name(name)
        .or_else(number)
        .ok_or_else(|| Outcome::error(Errno::ENOENT, format!("pool '{name}' does not exist")))
}
