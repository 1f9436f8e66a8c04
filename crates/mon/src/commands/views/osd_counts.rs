//! How many OSDs there are, up and in, as `status` and `osd stat` say it.

use crate::commands::context::Context;
use crate::commands::views::map_flags;
use crate::commands::views::pg_stats::Figures;
use crate::format::units;
use serde_json::{Value, json};
use types::Utime;
use types::osdmap::map_flag;

/// For JSON.
pub fn osd_numbers(ctx: &Context<'_>, figures: &Figures) -> Value {
    let map = ctx.map();
    json!({
        "epoch": map.epoch,
        "num_osds": map.num_osds(),
        "num_up_osds": map.num_up_osds(),
        "osd_up_since": map.last_up_change.sec,
        "num_in_osds": map.num_in_osds(),
        "osd_in_since": map.last_in_change.sec,
        "num_remapped_pgs": figures.remapped(),
    })
}

/// `3 osds: 3 up (since 74s), 3 in (since 82s)`
pub fn osd_counts(ctx: &Context<'_>) -> String {
    let map = ctx.map();
    let since = |t: Utime| {
        if t.is_zero() {
            String::new()
        } else {
            format!(" (since {})", units::age(t, ctx.now))
        }
    };
    format!(
        "{} osds: {} up{}, {} in{}",
        map.num_osds(),
        map.num_up_osds(),
        since(map.last_up_change),
        map.num_in_osds(),
        since(map.last_in_change)
    )
}

/// The flags that an operator may have set.
pub fn shown_flags(ctx: &Context<'_>) -> String {
    map_flags::names(ctx.map().flags & !map_flag::ALWAYS)
}
