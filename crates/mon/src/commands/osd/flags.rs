//! Flags of the OSD map, of single OSDs, of CRUSH nodes and of device classes.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids::parse_osd_id;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use crate::commands::views::map_flags::names;
use cluster::Changes;
use types::OsdId;
use types::osdmap::{Incremental, map_flag, osd_state};

const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd set key:choice(full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit) yes_i_really_mean_it?:bool",
        "set a flag of the OSD map",
        set,
    ),
    spec(
        RW,
        "osd unset key:choice(full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim)",
        "clear a flag of the OSD map",
        unset,
    ),
    spec(RW, "osd pause", "stop all reads and writes", pause),
    spec(RW, "osd unpause", "let reads and writes go on", unpause),
    spec(
        RW,
        "osd set-group flags:str who*:str",
        "set flags of OSDs, CRUSH nodes or device classes",
        set_group,
    ),
    spec(
        RW,
        "osd unset-group flags:str who*:str",
        "clear flags of OSDs, CRUSH nodes or device classes",
        unset_group,
    ),
    spec(
        RW,
        "osd add-noup ids*:str",
        "keep OSDs from being marked up",
        add_noup,
    )
    .flagged(DEPRECATED),
    spec(
        RW,
        "osd add-nodown ids*:str",
        "keep OSDs from being marked down",
        add_nodown,
    )
    .flagged(DEPRECATED),
    spec(
        RW,
        "osd add-noin ids*:str",
        "keep OSDs from being marked in",
        add_noin,
    )
    .flagged(DEPRECATED),
    spec(
        RW,
        "osd add-noout ids*:str",
        "keep OSDs from being marked out",
        add_noout,
    )
    .flagged(DEPRECATED),
    spec(RW, "osd rm-noup ids*:str", "let OSDs be marked up again", rm_noup).flagged(DEPRECATED),
    spec(
        RW,
        "osd rm-nodown ids*:str",
        "let OSDs be marked down again",
        rm_nodown,
    )
    .flagged(DEPRECATED),
    spec(RW, "osd rm-noin ids*:str", "let OSDs be marked in again", rm_noin).flagged(DEPRECATED),
    spec(
        RW,
        "osd rm-noout ids*:str",
        "let OSDs be marked out again",
        rm_noout,
    )
    .flagged(DEPRECATED),
];

/// The flags that operators set, in the order in which text lists them.
const SETTABLE: [(&str, u32); 13] = [
    ("pause", map_flag::PAUSERD | map_flag::PAUSEWR),
    ("noup", map_flag::NOUP),
    ("nodown", map_flag::NODOWN),
    ("noout", map_flag::NOOUT),
    ("noin", map_flag::NOIN),
    ("nobackfill", map_flag::NOBACKFILL),
    ("norebalance", map_flag::NOREBALANCE),
    ("norecover", map_flag::NORECOVER),
    ("noscrub", map_flag::NOSCRUB),
    ("nodeep-scrub", map_flag::NODEEP_SCRUB),
    ("notieragent", map_flag::NOTIERAGENT),
    ("nosnaptrim", map_flag::NOSNAPTRIM),
    ("pglog_hardlimit", map_flag::PGLOG_HARDLIMIT),
];

fn change(ctx: &Context<'_>, key: &str, on: bool) -> Outcome {
    let Some((_, bits)) = SETTABLE.iter().find(|(n, _)| *n == key) else {
        return Outcome::invalid(format!("unrecognized flag '{key}'"));
    };
    let text = format!("{} is {}", names(*bits), if on { "set" } else { "unset" });
    let map = ctx.map();
    let wanted = if on { map.flags | bits } else { map.flags & !bits };
    if wanted == map.flags {
        return Outcome::status(text);
    }
    let mut inc = ctx.inc();
    inc.new_flags = Some(wanted);
    Outcome::status(text).with(Changes::map(inc))
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    change(ctx, cmd.text("key"), true)
}
fn unset(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if cmd.text("key") == "pglog_hardlimit" {
        return Outcome::invalid("unrecognized flag 'pglog_hardlimit'");
    }
    change(ctx, cmd.text("key"), false)
}
fn pause(_: &Command, ctx: &Context<'_>) -> Outcome {
    change(ctx, "pause", true)
}
fn unpause(_: &Command, ctx: &Context<'_>) -> Outcome {
    change(ctx, "pause", false)
}

/// What a flag can be set on.
enum Who {
    Osd(OsdId),
    Node(i32),
    Class(i32),
}

/// Nobody where an OSD does not exist, which is said and passed over.
fn find_who(ctx: &Context<'_>, name: &str, said: &mut String) -> Result<Vec<Who>, String> {
    let map = ctx.map();
    if matches!(name, "any" | "all" | "*") {
        return Ok(map.osd_ids().map(Who::Osd).collect());
    }
    if let Ok(id) = parse_osd_id(name) {
        if !map.exists(id) {
            said.push_str(&format!("osd.{id} does not exist. "));
            return Ok(vec![]);
        }
        return Ok(vec![Who::Osd(id)]);
    }
    if let Some(class) = map.crush.class_id(name) {
        return Ok(vec![Who::Class(class)]);
    }
    match map.crush.item_id(name) {
        Some(node) => Ok(vec![Who::Node(node)]),
        None => Err(format!(
            "unable to parse osd id or crush node or device class: \"{name}\". "
        )),
    }
}

fn apply(ctx: &Context<'_>, inc: &mut Incremental, who: &Who, bits: u32, on: bool) {
    let map = ctx.map();
    let new = |old: u32| if on { old | bits } else { old & !bits };
    match who {
        Who::Osd(id) => {
            let old = map.osd(*id).map_or(0, |o| o.state);
            // State changes travel as a mask to flip.
            let flip = old ^ new(old);
            if flip != 0 {
                inc.new_state.insert(*id, flip);
            }
        }
        Who::Node(id) => {
            let old = map.crush_node_flags.get(id).copied().unwrap_or(0);
            if new(old) != old {
                inc.new_crush_node_flags.insert(*id, new(old));
            }
        }
        Who::Class(id) => {
            let old = map.device_class_flags.get(id).copied().unwrap_or(0);
            if new(old) != old {
                inc.new_device_class_flags.insert(*id, new(old));
            }
        }
    }
}

fn group(ctx: &Context<'_>, flags: &str, who: &[&str], on: bool) -> Outcome {
    let mut bits = 0;
    for flag in flags.split(',').map(str::trim) {
        bits |= match flag {
            "noup" => osd_state::NOUP,
            "nodown" => osd_state::NODOWN,
            "noin" => osd_state::NOIN,
            "noout" => osd_state::NOOUT,
            _ => {
                let why = format!("unrecognized flag '{flag}', must be one of {{noup,nodown,noin,noout}}");
                return Outcome::invalid(why);
            }
        };
    }
    if who.is_empty() {
        return Outcome::invalid("must specify at least one or more targets to set/unset");
    }
    let (mut inc, mut said) = (ctx.inc(), String::new());
    for name in who {
        match find_who(ctx, name, &mut said) {
            Ok(found) => found.iter().for_each(|w| apply(ctx, &mut inc, w, bits, on)),
            Err(why) => return Outcome::invalid(why),
        }
    }
    let touched = !(inc.new_state.is_empty()
        && inc.new_crush_node_flags.is_empty()
        && inc.new_device_class_flags.is_empty());
    let changes = if touched {
        Changes::map(inc)
    } else {
        Changes::none()
    };
    Outcome::status(said).with(changes)
}

fn set_group(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    group(ctx, cmd.text("flags"), &cmd.list("who"), true)
}
fn unset_group(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    group(ctx, cmd.text("flags"), &cmd.list("who"), false)
}

macro_rules! single_flag {
    ($($name:ident = $flag:literal, $on:literal;)*) => {
        $(fn $name(cmd: &Command, ctx: &Context<'_>) -> Outcome {
            group(ctx, $flag, &cmd.list("ids"), $on)
        })*
    };
}
single_flag! {
    add_noup = "noup", true;
    add_nodown = "nodown", true;
    add_noin = "noin", true;
    add_noout = "noout", true;
    rm_noup = "noup", false;
    rm_nodown = "nodown", false;
    rm_noin = "noin", false;
    rm_noout = "noout", false;
}
