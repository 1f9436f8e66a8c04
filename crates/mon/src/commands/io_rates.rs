//! Client I/O per second, as `status`, `pg stat` and `osd pool stats` show it. Nothing is shown at rest.

use super::Context;
use crate::format::units;
use metastore::cluster::IoRates;
use serde_json::{Map, Value};
use types::PoolId;

pub fn of(ctx: &Context<'_>, pool: Option<PoolId>) -> Option<IoRates> {
    Some(ctx.stats.io_rates(pool)).filter(|r| *r != IoRates::default())
}

/// Keys for JSON; those that are zero are left out, as Ceph does.
pub fn add_json(rates: Option<IoRates>, to: &mut Map<String, Value>) {
    let r = rates.unwrap_or_default();
    let rows = [
        ("read_bytes_sec", r.read_bytes),
        ("write_bytes_sec", r.write_bytes),
        ("read_op_per_sec", r.read_ops),
        ("write_op_per_sec", r.write_ops),
    ];
    if rates.is_some() {
        to.extend(rows.map(|(k, n)| (k.to_string(), n.into())));
    }
}

fn bytes_text(r: &IoRates) -> String {
    let mut out = String::new();
    for (n, what) in [(r.read_bytes, "rd"), (r.write_bytes, "wr")] {
        if n > 0 {
            out.push_str(&format!("{}/s {what}, ", units::bytes(n)));
        }
    }
    out
}

/// `476 KiB/s rd, 4.4 KiB/s wr, 85 op/s rd, 3 op/s wr`
pub fn text(r: &IoRates) -> String {
    format!(
        "{}{} op/s rd, {} op/s wr",
        bytes_text(r),
        units::si(r.read_ops),
        units::si(r.write_ops)
    )
}

/// The short form of `pg stat`.
pub fn short_text(r: &IoRates) -> String {
    format!("{}{} op/s", bytes_text(r), units::si(r.read_ops + r.write_ops))
}
