//! Commands about file systems, of which there are none yet.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::spec::{DEPRECATED, HIDDEN, Spec, later, spec};
use crate::format;
use serde_json::{Map, Value, json};

const R: (&str, &str) = ("mds", "r");
const FS: (&str, &str) = ("fs", "r");
const FS_RW: (&str, &str) = ("fs", "rw");
const MGR: (&str, &str) = ("mgr", "r");
const MGR_RW: (&str, &str) = ("mgr", "rw");

pub const TABLE: &[Spec] = &[
    spec(FS, "fs ls", "file systems and their pools", ls),
    spec(R, "fs dump epoch?:int(0..)", "the map of the file systems", dump),
    spec(FS, "fs get fs_name:str", "all about one file system", get),
    spec(R, "fs feature ls", "features of file system clients", feature_ls),
    spec(
        MGR,
        "fs status fs?:str",
        "what goes on in the file systems",
        status,
    )
    .by_manager("status"),
    spec(MGR, "fs volume ls", "volumes", volume_ls).by_manager("volumes"),
    spec(R, "mds stat", "metadata servers in one line", mds_stat).flagged(HIDDEN),
    spec(
        R,
        "mds metadata who?:str",
        "facts about metadata servers",
        mds_metadata,
    ),
    spec(
        R,
        "mds count-metadata property:str",
        "how many metadata servers have which value of a fact",
        none,
    ),
    spec(
        R,
        "mds versions",
        "how many metadata servers run which version",
        none,
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
    later(
        FS_RW,
        "fs new fs_name:str([A-Za-z0-9-_.]) metadata:str data:str force?:bool allow_dangerous_metadata_overlay?:bool fscid?:int(0..) recover?:bool",
    ),
    later(FS_RW, "fs rm fs_name:str yes_i_really_mean_it?:bool"),
    later(FS_RW, "fs fail fs_name:str"),
    later(
        ("mds", "rw"),
        "fs set fs_name:str var:str val:str yes_i_really_mean_it?:bool",
    ),
    later(
        FS_RW,
        "fs flag set flag_name:choice(enable_multiple) val:str yes_i_really_mean_it?:bool",
    ),
    later(MGR_RW, "fs volume create name:str([A-Za-z0-9-_.]) placement?:str").by_manager("volumes"),
    later(MGR_RW, "fs volume rm vol_name:str yes-i-really-mean-it?:str").by_manager("volumes"),
    later(MGR, "fs volume info vol_name:str human_readable?:bool").by_manager("volumes"),
    later(MGR, "fs subvolumegroup ls vol_name:str").by_manager("volumes"),
    later(
        MGR_RW,
        "fs subvolumegroup create vol_name:str group_name:str([A-Za-z0-9-_.])",
    )
    .by_manager("volumes"),
    later(MGR, "fs subvolume ls vol_name:str group_name?:str").by_manager("volumes"),
    later(
        MGR_RW,
        "fs subvolume create vol_name:str sub_name:str([A-Za-z0-9-_.]) size?:int group_name?:str",
    )
    .by_manager("volumes"),
];

/// Incompatible features of a Ceph 16 file system, by number.
const INCOMPAT: [(u32, &str); 9] = [
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
];
const CLIENT_FEATURES: [&str; 19] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
];

fn compat_json() -> Value {
    let features = INCOMPAT
        .iter()
        .map(|(n, name)| (format!("feature_{n}"), Value::from(*name)));
    let incompat: Map<String, Value> = features.collect();
    json!({"compat": {}, "ro_compat": {}, "incompat": incompat})
}

fn compat_text() -> String {
    let all: Vec<String> = INCOMPAT.iter().map(|(n, name)| format!("{n}={name}")).collect();
    format!("compat={{}},rocompat={{}},incompat={{{}}}", all.join(","))
}

fn epoch(ctx: &Context<'_>) -> u32 {
    ctx.state.fsmap.epoch.max(1)
}

fn fsmap_json(ctx: &Context<'_>) -> Value {
    json!({
        "epoch": epoch(ctx),
        "default_fscid": -1,
        "compat": compat_json(),
        "feature_flags": {"enable_multiple": true, "ever_enabled_multiple": true},
        "standbys": [],
        "filesystems": [],
    })
}

fn ls(cmd: &Command, _: &Context<'_>) -> Outcome {
    cmd.either(|| json!([]), || "No filesystems enabled\n".into())
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let now = epoch(ctx);
    if let Some(e) = cmd.int("epoch").filter(|e| *e != 0 && *e != i64::from(now)) {
        return Outcome::absent(format!("there is no map for epoch {e}"));
    }
    let plain = || {
        format!(
            "e{now}\nenable_multiple, ever_enabled_multiple: 1,1\ndefault compat: {}\nlegacy client fscid: -1\n \nNo filesystems configured\n",
            compat_text()
        )
    };
    cmd.either(|| fsmap_json(ctx), plain)
        .saying(format!("dumped fsmap epoch {now}"))
}

fn get(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::absent(format!("filesystem '{}' not found", cmd.text("fs_name")))
}

fn feature_ls(cmd: &Command, _: &Context<'_>) -> Outcome {
    let all = || CLIENT_FEATURES.iter().enumerate();
    cmd.either(
        || all().map(|(i, n)| json!({"index": i, "name": n})).collect(),
        || lines(all().map(|(i, n)| format!("{i} {n}"))),
    )
}

fn status(cmd: &Command, _: &Context<'_>) -> Outcome {
    match cmd.opt_text("fs") {
        Some(name) => Outcome::invalid(format!("Filesystem not found: '{name}'")),
        None => cmd.either(|| json!({}), String::new),
    }
}

fn volume_ls(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::ok(format::pretty(&json!([])).trim_end().to_string())
}

fn mds_stat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let json = || json!({"fsmap": fsmap_json(ctx), "mdsmap_first_committed": 1, "mdsmap_last_committed": epoch(ctx)});
    cmd.either(json, String::new)
}

fn mds_metadata(cmd: &Command, _: &Context<'_>) -> Outcome {
    match cmd.opt_text("who") {
        None => cmd.json(&json!([])),
        Some(who) => Outcome::absent(format!("MDS named '{who}' does not exist, or is not up")),
    }
}

fn none(cmd: &Command, _: &Context<'_>) -> Outcome {
    cmd.json(&json!({}))
}

fn compat_show(cmd: &Command, _: &Context<'_>) -> Outcome {
    cmd.either(compat_json, || format!("{}\n", compat_text()))
}

fn ok_to_stop(cmd: &Command, _: &Context<'_>) -> Outcome {
    Outcome::status(format!("should be safe to stop [{}]", cmd.list("ids").join(",")))
}
