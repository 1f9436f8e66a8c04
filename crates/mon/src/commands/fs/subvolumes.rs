//! `fs subvolumegroup`, `fs subvolume`, `fs clone`: directories that are handed out like volumes. They need the metadata server to make
//! directories for us, which it does not yet: all of them refuse.

use crate::commands::spec::{Spec, later};

const R: (&str, &str) = ("mgr", "r");
const RW: (&str, &str) = ("mgr", "rw");
const MODULE: &str = "volumes";

pub const TABLE: &[Spec] = &[
    later(R, "fs subvolumegroup ls vol_name:str").by_manager(MODULE),
    later(RW, "fs subvolumegroup create vol_name:str group_name:str([A-Za-z0-9-_.]) size?:int pool_layout?:str uid?:int gid?:int mode?:str").by_manager(MODULE),
    later(RW, "fs subvolumegroup rm vol_name:str group_name:str force?:bool").by_manager(MODULE),
    later(R, "fs subvolumegroup getpath vol_name:str group_name:str").by_manager(MODULE),
    later(R, "fs subvolumegroup info vol_name:str group_name:str").by_manager(MODULE),
    later(RW, "fs subvolumegroup resize vol_name:str group_name:str new_size:str no_shrink?:bool").by_manager(MODULE),
    later(R, "fs subvolume ls vol_name:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume create vol_name:str sub_name:str([A-Za-z0-9-_.]) size?:int group_name?:str pool_layout?:str uid?:int gid?:int mode?:str namespace_isolated?:bool").by_manager(MODULE),
    later(RW, "fs subvolume rm vol_name:str sub_name:str group_name?:str force?:bool retain_snapshots?:bool").by_manager(MODULE),
    later(RW, "fs subvolume getpath vol_name:str sub_name:str group_name?:str").by_manager(MODULE),
    later(R, "fs subvolume info vol_name:str sub_name:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume resize vol_name:str sub_name:str new_size:str group_name?:str no_shrink?:bool").by_manager(MODULE),
    later(RW, "fs subvolume metadata set vol_name:str sub_name:str key_name:str value:str group_name?:str").by_manager(MODULE),
    later(R, "fs subvolume metadata get vol_name:str sub_name:str key_name:str group_name?:str").by_manager(MODULE),
    later(R, "fs subvolume metadata ls vol_name:str sub_name:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume metadata rm vol_name:str sub_name:str key_name:str group_name?:str force?:bool").by_manager(MODULE),
    later(RW, "fs subvolume authorize vol_name:str sub_name:str auth_id:str group_name?:str access_level?:str tenant_id?:str allow_existing_id?:bool").by_manager(MODULE),
    later(RW, "fs subvolume deauthorize vol_name:str sub_name:str auth_id:str group_name?:str").by_manager(MODULE),
    later(R, "fs subvolume authorized_list vol_name:str sub_name:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume evict vol_name:str sub_name:str auth_id:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume snapshot create vol_name:str sub_name:str snap_name:str([A-Za-z0-9-_.]) group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume snapshot rm vol_name:str sub_name:str snap_name:str group_name?:str force?:bool").by_manager(MODULE),
    later(R, "fs subvolume snapshot ls vol_name:str sub_name:str group_name?:str").by_manager(MODULE),
    later(R, "fs subvolume snapshot info vol_name:str sub_name:str snap_name:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume snapshot protect vol_name:str sub_name:str snap_name:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume snapshot unprotect vol_name:str sub_name:str snap_name:str group_name?:str").by_manager(MODULE),
    later(RW, "fs subvolume snapshot clone vol_name:str sub_name:str snap_name:str target_sub_name:str pool_layout?:str group_name?:str target_group_name?:str").by_manager(MODULE),
    later(R, "fs clone status vol_name:str clone_name:str group_name?:str").by_manager(MODULE),
    later(R, "fs clone cancel vol_name:str clone_name:str group_name?:str").by_manager(MODULE),
];
