//! Pools whose numbers of placement groups do not fit what they hold, where somebody wants to be told; and promises of
//! room that there is not.

use crate::commands::checks::check::{Check, warn};
use crate::commands::context::Context;
use crate::format::units;
use crate::policies::autoscale::{self, Sizing};
use crate::policies::survey::Survey;
use types::pool::AUTOSCALE_WARN;

pub fn sizes(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let pools = ctx.map().pools.values();
    let asked = |p: &types::pool::PgPool| {
        p.pg_autoscale_mode == AUTOSCALE_WARN || p.opts.get("target_size_bytes").is_some()
    };
    // Nobody pays for it where nobody asked.
    if !pools.into_iter().any(asked) {
        return;
    }
    let survey = Survey::of(ctx.map(), ctx.stats);
    let sizes = autoscale::sizes(ctx.state, ctx.stats, &survey);
    let off = !autoscale::is_off(ctx.state);
    let wrong = |few: bool| {
        let is = |s: &&Sizing| {
            let warned = s.pool.mode == AUTOSCALE_WARN && s.would_adjust && !s.mixed && off;
            warned && (s.wanted > s.pool.pg_num) == few
        };
        let line = |s: &Sizing| {
            format!(
                "Pool {} has {} placement groups, should have {}",
                s.pool.name, s.pool.pg_num, s.wanted
            )
        };
        sizes.iter().filter(is).map(line).collect::<Vec<_>>()
    };
    for (code, word, lines) in [
        ("POOL_TOO_FEW_PGS", "few", wrong(true)),
        ("POOL_TOO_MANY_PGS", "many", wrong(false)),
    ] {
        if !lines.is_empty() {
            let text = format!("{} pools have too {word} placement groups", lines.len());
            found.push(warn(code, text, lines.len() as u64, lines));
        }
    }
    overcommitted(&sizes, found);
}

fn overcommitted(sizes: &[Sizing], found: &mut Vec<Check>) {
    let quoted = |names: &[String]| {
        let names: Vec<String> = names.iter().map(|n| format!("'{n}'")).collect();
        format!("[{}]", names.join(", "))
    };
    let lines: Vec<String> = autoscale::overcommitted(sizes)
        .iter()
        .map(|o| {
            format!(
                "Pools {} overcommit available storage by {:.3}x due to target_size_bytes {} on pools {}",
                quoted(&o.pools),
                o.by,
                units::bytes(o.promised as u64),
                quoted(&o.to)
            )
        })
        .collect();
    if !lines.is_empty() {
        let text = format!(
            "{} subtrees have overcommitted pool target_size_bytes",
            lines.len()
        );
        found.push(warn(
            "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED",
            text,
            lines.len() as u64,
            lines,
        ));
    }
}
