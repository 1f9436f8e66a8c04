//! Cache tiers: no pool is one here. What takes one away says so; what would make one refuses.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids;
use crate::commands::spec::{DEPRECATED, Spec, absent, spec};

const RW: (&str, &str) = ("osd", "rw");
const WHY: &str = "not here: there are no cache tiers";

pub const TABLE: &[Spec] = &[
    absent(
        RW,
        "osd tier add pool:pool tierpool:pool force_nonempty?:choice(--force-nonempty)",
        WHY,
    ),
    absent(
        RW,
        "osd tier add-cache pool:pool tierpool:pool size:int(0..)",
        WHY,
    ),
    spec(RW, "osd tier rm pool:pool tierpool:pool", "no pool is a tier", rm),
    spec(
        RW,
        "osd tier remove pool:pool tierpool:pool",
        "no pool is a tier",
        rm,
    )
    .flagged(DEPRECATED),
    spec(
        RW,
        "osd tier cache-mode pool:pool mode:choice(none|writeback|readproxy|readonly) yes_i_really_mean_it?:bool",
        "no pool is a tier",
        cache_mode,
    ),
    spec(
        RW,
        "osd tier set-overlay pool:pool overlaypool:pool",
        "no pool is a tier",
        set_overlay,
    ),
    spec(
        RW,
        "osd tier rm-overlay pool:pool",
        "no pool has an overlay",
        rm_overlay,
    ),
    spec(
        RW,
        "osd tier remove-overlay pool:pool",
        "no pool has an overlay",
        rm_overlay,
    )
    .flagged(DEPRECATED),
];

/// The pools of those arguments, if all exist.
fn pools<'a>(cmd: &'a Command, ctx: &Context<'_>, args: &[&str]) -> Result<Vec<&'a str>, Outcome> {
    let one = |arg: &&str| {
        let name = cmd.text(arg);
        let known = ctx.map().pool_by_name(name).map(|_| name);
        known.ok_or_else(|| ids::unknown_pool(name))
    };
    args.iter().map(one).collect()
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match pools(cmd, ctx, &["pool", "tierpool"]).as_deref() {
        Ok([pool, tier]) => Outcome::status(format!(
            "pool '{tier}' is now (or already was) not a tier of '{pool}'"
        )),
        Ok(_) => Outcome::default(),
        Err(refusal) => Outcome::absent(refusal.status.clone()),
    }
}

fn cache_mode(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match pools(cmd, ctx, &["pool"]) {
        Ok(_) => Outcome::invalid(format!("pool '{}' is not a tier", cmd.text("pool"))),
        Err(refusal) => refusal,
    }
}

fn set_overlay(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match pools(cmd, ctx, &["pool", "overlaypool"]) {
        Ok(_) => Outcome::invalid(format!(
            "tier pool '{}' is not a tier of '{}'",
            cmd.text("overlaypool"),
            cmd.text("pool")
        )),
        Err(refusal) => refusal,
    }
}

fn rm_overlay(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match pools(cmd, ctx, &["pool"]) {
        Ok(_) => Outcome::status(format!(
            "there is now (or already was) no overlay for '{}'",
            cmd.text("pool")
        )),
        Err(refusal) => refusal,
    }
}
