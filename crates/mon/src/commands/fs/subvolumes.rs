//! `fs subvolumegroup`, `fs subvolume`, `fs clone`: directories that are handed out like volumes. Somebody beside the monitor carries them out on
//! the file system itself (crate `volumes`); here are their signatures, and how what came of it is said.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, later, spec};
use crate::format;
use cluster::volumes::Said;
use types::Errno;

const R: (&str, &str) = ("mgr", "r");
const RW: (&str, &str) = ("mgr", "rw");
const MODULE: &str = "volumes";

const fn row(need: (&'static str, &'static str), sig: &'static str, help: &'static str) -> Spec {
    spec(need, sig, help, answered)
        .by_manager(MODULE)
        .carried_out_beside()
}

pub const TABLE: &[Spec] = &[
    row(R, "fs subvolumegroup ls vol_name:str", "groups of subvolumes"),
    row(RW, "fs subvolumegroup create vol_name:str group_name:str([A-Za-z0-9-_.]) size?:int pool_layout?:str uid?:int gid?:int mode?:str", "make a group of subvolumes"),
    row(RW, "fs subvolumegroup rm vol_name:str group_name:str force?:bool", "remove an empty group"),
    row(R, "fs subvolumegroup getpath vol_name:str group_name:str", "where a group lies"),
    row(R, "fs subvolumegroup info vol_name:str group_name:str", "all about a group"),
    row(RW, "fs subvolumegroup resize vol_name:str group_name:str new_size:str no_shrink?:bool", "change a group's quota"),
    row(R, "fs subvolumegroup exist vol_name:str", "whether there are groups"),
    later(RW, "fs subvolumegroup pin vol_name:str group_name:str pin_type:choice(export|distributed|random) pin_setting:str").by_manager(MODULE),
    row(R, "fs subvolumegroup snapshot ls vol_name:str group_name:str", "snapshots of a group"),
    row(RW, "fs subvolumegroup snapshot create vol_name:str group_name:str snap_name:str", "make a snapshot of a group"),
    row(RW, "fs subvolumegroup snapshot rm vol_name:str group_name:str snap_name:str force?:bool", "remove a snapshot of a group"),
    row(R, "fs subvolume ls vol_name:str group_name?:str", "subvolumes of a group"),
    row(R, "fs subvolume exist vol_name:str group_name?:str", "whether there are subvolumes"),
    row(RW, "fs subvolume create vol_name:str sub_name:str([A-Za-z0-9-_.]) size?:int group_name?:str pool_layout?:str uid?:int gid?:int mode?:str namespace_isolated?:bool", "make a subvolume; of one that is there change what is said"),
    row(RW, "fs subvolume rm vol_name:str sub_name:str group_name?:str force?:bool retain_snapshots?:bool", "remove a subvolume; its data are purged in the background"),
    row(RW, "fs subvolume getpath vol_name:str sub_name:str group_name?:str", "what clients mount"),
    row(R, "fs subvolume info vol_name:str sub_name:str group_name?:str", "all about a subvolume"),
    row(RW, "fs subvolume resize vol_name:str sub_name:str new_size:str group_name?:str no_shrink?:bool", "change a subvolume's quota"),
    later(RW, "fs subvolume pin vol_name:str sub_name:str pin_type:choice(export|distributed|random) pin_setting:str group_name?:str").by_manager(MODULE),
    row(RW, "fs subvolume metadata set vol_name:str sub_name:str key_name:str value:str group_name?:str", "keep a value of one's own with a subvolume"),
    row(R, "fs subvolume metadata get vol_name:str sub_name:str key_name:str group_name?:str", "such a value"),
    row(R, "fs subvolume metadata ls vol_name:str sub_name:str group_name?:str", "all such values"),
    row(RW, "fs subvolume metadata rm vol_name:str sub_name:str key_name:str group_name?:str force?:bool", "forget such a value"),
    row(RW, "fs subvolume authorize vol_name:str sub_name:str auth_id:str group_name?:str access_level?:str tenant_id?:str allow_existing_id?:bool", "let a client mount a subvolume, and make its key").showing_secrets(),
    row(RW, "fs subvolume deauthorize vol_name:str sub_name:str auth_id:str group_name?:str", "take that back"),
    row(R, "fs subvolume authorized_list vol_name:str sub_name:str group_name?:str", "who may mount a subvolume"),
    row(RW, "fs subvolume evict vol_name:str sub_name:str auth_id:str group_name?:str", "end a client's sessions on a subvolume"),
    row(RW, "fs subvolume snapshot create vol_name:str sub_name:str snap_name:str([A-Za-z0-9-_.]) group_name?:str", "make a snapshot of a subvolume"),
    row(RW, "fs subvolume snapshot rm vol_name:str sub_name:str snap_name:str group_name?:str force?:bool", "remove a snapshot of a subvolume"),
    row(R, "fs subvolume snapshot ls vol_name:str sub_name:str group_name?:str", "snapshots of a subvolume"),
    row(R, "fs subvolume snapshot info vol_name:str sub_name:str snap_name:str group_name?:str", "all about a snapshot"),
    row(RW, "fs subvolume snapshot metadata set vol_name:str sub_name:str snap_name:str key_name:str value:str group_name?:str", "keep a value of one's own with a snapshot"),
    row(R, "fs subvolume snapshot metadata get vol_name:str sub_name:str snap_name:str key_name:str group_name?:str", "such a value"),
    row(R, "fs subvolume snapshot metadata ls vol_name:str sub_name:str snap_name:str group_name?:str", "all such values"),
    row(RW, "fs subvolume snapshot metadata rm vol_name:str sub_name:str snap_name:str key_name:str group_name?:str force?:bool", "forget such a value"),
    row(RW, "fs subvolume snapshot protect vol_name:str sub_name:str snap_name:str group_name?:str", "of old, without effect: snapshots that are copied are protected"),
    row(RW, "fs subvolume snapshot unprotect vol_name:str sub_name:str snap_name:str group_name?:str", "of old, without effect"),
    row(RW, "fs subvolume snapshot clone vol_name:str sub_name:str snap_name:str target_sub_name:str pool_layout?:str group_name?:str target_group_name?:str", "make a new subvolume with what a snapshot has; it is copied in the background"),
    row(R, "fs clone status vol_name:str clone_name:str group_name?:str", "how far a clone is"),
    row(R, "fs clone cancel vol_name:str clone_name:str group_name?:str", "stop copying a clone"),
];

/// As Python modules print it: JSON whatever was asked for.
fn answered(cmd: &Command, _: &Context<'_>) -> Outcome {
    match cmd.done.as_deref() {
        None => Outcome::error(Errno::EOPNOTSUPP, "nobody works on subvolumes in this process"),
        Some(Err((errno, why))) => Outcome::error(*errno, why.clone()),
        Some(Ok(Said::Nothing)) => Outcome::default(),
        Some(Ok(Said::Text(text))) => Outcome::ok(format!("{text}\n")),
        Some(Ok(Said::Json(v))) => Outcome::ok(format!("{}\n", format::pretty(v).trim_end())),
    }
}
