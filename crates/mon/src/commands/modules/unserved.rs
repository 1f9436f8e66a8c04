//! Modules of Ceph's manager that this one does not have, in a sentence each; and `iostat`, in a line.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use cluster::IoRates;
use types::Errno;

const R: (&str, &str) = ("mgr", "r");
const RW: (&str, &str) = ("mgr", "rw");
/// The `ceph` program asks again each second.
const POLL: u32 = 16;

pub const TABLE: &[Spec] = &[
    spec(
        R,
        "iostat width?:int(1..) print_header?:bool",
        "what clients do, second by second",
        iostat,
    )
    .flagged(POLL)
    .by_manager("iostat"),
    spec(
        R,
        "insights",
        "not built in skep: health, crash ls and log last tell it",
        insights,
    )
    .by_manager("insights"),
    spec(
        RW,
        "insights prune-health hours:int(0..)",
        "not built in skep: no history of health is kept",
        insights,
    )
    .by_manager("insights"),
];

fn insights(_: &Command, _: &Context<'_>) -> Outcome {
    let why = "skep has no module 'insights': 'ceph health detail', 'ceph crash ls' and 'ceph log last' tell what it would";
    Outcome::error(Errno::EOPNOTSUPP, why)
}

fn iostat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    const COLUMNS: [&str; 6] = ["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"];
    let width = (cmd.int("width").unwrap_or(80).clamp(1, 1000) / 6 - 1).max(12) as usize;
    let inner = width - 2;
    let line = |cells: [String; 6]| -> String {
        let cells = cells.map(|c| format!(" {c:>inner$} |"));
        format!("|{}\n", cells.concat())
    };
    let rule = format!("+{}\n", format!("{}+", "-".repeat(width)).repeat(6));
    let r: IoRates = ctx.stats.io_rates(None);
    let bytes = |n: u64| format!("{}/s", crate::format::units::bytes(n));
    let figures = [
        bytes(r.read_bytes),
        bytes(r.write_bytes),
        bytes(r.read_bytes + r.write_bytes),
        r.read_ops.to_string(),
        r.write_ops.to_string(),
        (r.read_ops + r.write_ops).to_string(),
    ];
    let header = match cmd.flag("print_header") {
        true => format!("{rule}{}{rule}", line(COLUMNS.map(str::to_string))),
        false => String::new(),
    };
    Outcome::ok(header + &line(figures))
}
