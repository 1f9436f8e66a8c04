//! I/O per second, of clients and of healing, as `status`, `pg stat` and `osd pool stats` show it. Nothing is shown at
//! rest.

use crate::commands::context::Context;
use crate::format::units;
use cluster::{IoRates, RecoveryRates};
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

pub fn recovery(ctx: &Context<'_>, pool: Option<PoolId>) -> Option<RecoveryRates> {
    Some(ctx.stats.recovery_rates(pool)).filter(|r| *r != RecoveryRates::default())
}

pub fn add_recovery_json(rates: Option<RecoveryRates>, to: &mut Map<String, Value>) {
    let Some(r) = rates else { return };
    let rows = [
        ("recovering_objects_per_sec", r.objects),
        ("recovering_bytes_per_sec", r.bytes),
        ("recovering_keys_per_sec", r.keys),
        ("num_objects_recovered", r.objects_done),
        ("num_bytes_recovered", r.bytes_done),
        ("num_keys_recovered", r.keys_done),
    ];
    to.extend(rows.map(|(k, n)| (k.to_string(), n.into())));
}

/// `659 KiB/s, 2 objects/s`
pub fn recovery_text(r: &RecoveryRates) -> String {
    let mut out = format!("{}/s", units::bytes(r.bytes));
    if r.keys > 0 {
        out.push_str(&format!(", {} keys/s", units::si(r.keys)));
    }
    out.push_str(&format!(", {} objects/s", units::si(r.objects)));
    out
}
