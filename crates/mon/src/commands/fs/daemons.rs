//! `mds`: metadata servers, and what the cluster makes of them.

use super::sure;
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{DEPRECATED, HIDDEN, Spec, spec};
use crate::commands::views::daemons::{mds_facts, value_of};
use crate::commands::views::file_systems as show;
use crate::commands::views::show::count_values;
use cluster::files::{self, Draft};
use serde_json::{Value, json};
use types::Errno;
use types::fsmap::{Filesystem, MdsInfo, MdsState};

const R: (&str, &str) = ("mds", "r");
const RW: (&str, &str) = ("mds", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "mds stat", "metadata servers in one line", stat).flagged(HIDDEN),
    spec(
        R,
        "mds metadata who?:str",
        "facts about metadata servers",
        metadata,
    ),
    spec(
        R,
        "mds count-metadata property:str",
        "how many metadata servers have which value of a fact",
        count_metadata,
    ),
    spec(
        R,
        "mds versions",
        "how many metadata servers run which version",
        versions,
    ),
    spec(
        R,
        "mds compat show",
        "compatibility of the metadata servers",
        compat_show,
    )
    .flagged(DEPRECATED),
    spec(
        R,
        "mds ok-to-stop ids*:str",
        "whether metadata servers can be stopped",
        ok_to_stop,
    ),
    spec(
        RW,
        "mds fail role_or_gid:str",
        "take a metadata server's rank away; a standby gets it",
        fail,
    ),
    spec(
        RW,
        "mds repaired role:str",
        "let a damaged rank be taken again",
        repaired,
    ),
    spec(
        RW,
        "mds rmfailed role:str yes_i_really_mean_it?:bool",
        "forget a failed rank",
        rmfailed,
    )
    .flagged(HIDDEN),
];

fn stat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = &*ctx.state.fsmap;
    let json = || {
        json!({
            "fsmap": show::fsmap_json(map),
            "mdsmap_first_committed": 1,
            "mdsmap_last_committed": map.epoch,
        })
    };
    let plain = || match show::stat_line(map) {
        line if line.is_empty() => line,
        line => format!("{line}\n"),
    };
    cmd.either(json, plain)
}

fn metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = &*ctx.state.fsmap;
    let Some(who) = cmd.opt_text("who") else {
        let one = |i: &MdsInfo| {
            let mut m = serde_json::Map::from_iter([("name".to_string(), Value::from(i.name.as_str()))]);
            m.extend(mds_facts(ctx, i));
            Value::Object(m)
        };
        return cmd.json(&map.daemons().map(one).collect());
    };
    match named(ctx, who) {
        Some(i) => cmd.json(&Value::Object(mds_facts(ctx, i))),
        None => {
            let mut none = Outcome::invalid(format!("MDS named '{who}' does not exist, or is not up"));
            none.data = "{}\n".into();
            none
        }
    }
}

fn count_metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let property = cmd.text("property");
    let all = ctx.state.fsmap.daemons();
    cmd.json(&count_values(all.map(|i| value_of(&mds_facts(ctx, i), property))))
}

fn versions(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let all = ctx.state.fsmap.daemons();
    cmd.json(&count_values(
        all.map(|i| value_of(&mds_facts(ctx, i), "ceph_version")),
    ))
}

fn compat_show(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let set = &ctx.state.fsmap.default_compat;
    cmd.either(
        || show::compat_json(set),
        || format!("{}\n", show::compat_text(set)),
    )
}

/// By rank (`NAME:0`, or `0` of the default file system), by gid, or by name.
fn named<'a>(ctx: &'a Context<'_>, who: &str) -> Option<&'a MdsInfo> {
    let map = &*ctx.state.fsmap;
    if let Some((fs, rank)) = role(ctx, who)
        && let Some(info) = fs
            .mds_map
            .up
            .get(&rank)
            .and_then(|gid| fs.mds_map.mds_info.get(gid))
    {
        return Some(info);
    }
    let by_gid = || who.parse().ok().and_then(|gid| map.info(gid));
    map.daemons().find(|i| i.name == who).or_else(by_gid)
}

/// A file system, by name or number, and a rank of it that there is.
fn role<'a>(ctx: &'a Context<'_>, text: &str) -> Option<(&'a Filesystem, i32)> {
    let map = &*ctx.state.fsmap;
    let (fs, rank) = match text.split_once(':') {
        Some((name, rank)) => {
            let by_id = || name.parse().ok().and_then(|id| map.by_id(id));
            (map.by_name(name).or_else(by_id)?, rank)
        }
        None => (map.default_fs()?, text),
    };
    let rank = rank.parse().ok()?;
    fs.mds_map.in_ranks.contains(&rank).then_some((fs, rank))
}

/// Why `text` is no role.
fn no_role(ctx: &Context<'_>, text: &str) -> &'static str {
    let map = &*ctx.state.fsmap;
    match text.split_once(':') {
        Some((name, _)) if map.by_name(name).is_none() => "Invalid filesystem",
        None if map.default_fs().is_none() => "No filesystem selected",
        _ => "Rank not found",
    }
}

fn ok_to_stop(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = &*ctx.state.fsmap;
    let standing = |fs: &Filesystem| show::Standing::of(&fs.mds_map);
    if map.filesystems.iter().any(|fs| standing(fs).degraded) {
        return Outcome::error(Errno::EBUSY, "one or more filesystems is currently degraded");
    }
    let ids = cmd.list("ids");
    let stopped = |i: &&MdsInfo| ids.contains(&i.name.as_str());
    let listed = |all: Vec<u64>| all.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let ranks = map.filesystems.iter().flat_map(|fs| fs.mds_map.mds_info.values());
    // Who is followed by a daemon that stays needs no other.
    let followed = |i: &&MdsInfo| {
        let of_rank = map
            .filesystems
            .iter()
            .filter(|fs| fs.mds_map.up.get(&i.rank) == Some(&i.gid));
        let mut followers = of_rank.filter_map(|fs| fs.mds_map.follower(i.rank));
        followers.any(|f| !stopped(&f))
    };
    let (active, followers): (Vec<&MdsInfo>, Vec<&MdsInfo>) = ranks
        .filter(stopped)
        .partition(|i| i.state != MdsState::StandbyReplay);
    let active: Vec<u64> = active
        .into_iter()
        .filter(|i| !followed(i))
        .map(|i| i.gid)
        .collect();
    let waiting = map.standby_daemons.values();
    let mut standby: Vec<u64> = waiting.filter(stopped).map(|i| i.gid).collect();
    let left = map.standby_daemons.len() - standby.len();
    standby.extend(followers.into_iter().map(|f| f.gid));
    if active.len() > left {
        return Outcome::error(
            Errno::EBUSY,
            format!(
                "insufficent standby MDS daemons to stop active gids {} and/or standby gids {}",
                listed(active),
                listed(standby)
            ),
        );
    }
    Outcome::status(format!("should be safe to stop [{}]", ids.join(",")))
}

fn fail(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let who = cmd.text("role_or_gid");
    let Some(info) = named(ctx, who) else {
        // Not an error, as with the real one: it may have failed by itself.
        return Outcome::status(format!(
            "MDS named '{who}' does not exist, is not up or you lack the permission to see."
        ));
    };
    let why = format!("marked failed by {}", ctx.who);
    let changes = files::fail(ctx.state, &[info.gid], &why, ctx.now);
    Outcome::status(format!("failed mds gid {}", info.gid)).with(changes)
}

fn repaired(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("role");
    let Some((fs, rank)) = role(ctx, text) else {
        return Outcome::absent(no_role(ctx, text));
    };
    let mut draft = Draft::of(ctx.state, ctx.now);
    let Some(m) = draft.map.by_id_mut(fs.fscid).map(|fs| &mut fs.mds_map) else {
        return Outcome::status("");
    };
    if !m.damaged.remove(&rank) {
        return Outcome::status("nothing to do: rank is not damaged");
    }
    m.failed.insert(rank);
    Outcome::status(format!("repaired: restoring rank {}:{rank}", fs.fscid)).with(draft.done())
}

fn rmfailed(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if !sure(cmd) {
        return Outcome::error(
            Errno::EPERM,
            "WARNING: this can make your filesystem inaccessible! Add --yes-i-really-mean-it if you are sure you wish \
             to continue.",
        );
    }
    let text = cmd.text("role");
    let Some((fs, rank)) = role(ctx, text) else {
        return Outcome::invalid(format!("{}invalid role '{text}'", no_role(ctx, text)));
    };
    let (fscid, failed) = (fs.fscid, fs.mds_map.failed.contains(&rank));
    let said = format!("removed failed mds.{fscid}:{rank}");
    if !failed {
        return Outcome::status(said);
    }
    // A new rank 0 would be made over the one that there is: its metadata would be gone.
    Outcome::error(
        Errno::EPERM,
        format!(
            "rank {rank} holds all of filesystem {}: it is not forgotten",
            fs.mds_map.fs_name
        ),
    )
}
