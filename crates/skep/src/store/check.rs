//! `skep store check`: what `Store::check_with` found, for people or as JSON, with a bar on a terminal.

use super::args::Check;
use super::outcome::{Fail, Outcome, Verdict};
use super::text::{bytes, count};
use crate::args::Format;
use ::store::{Options, Report, Store};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Problems that are printed for people; JSON has all that the report keeps.
const SHOWN_MAX: usize = 100;

pub fn run(args: &Check) -> Outcome {
    let start = Instant::now();
    let options = Options {
        osd_id: Options::ANY_OSD,
        keys: super::keys::of(args.keys.as_deref())?,
        ..Options::default()
    };
    let bar = bar();
    let report = Store::check_with(&args.dir, &options, &mut |p| {
        bar.set_length(p.bytes_total.max(p.bytes));
        bar.set_position(p.bytes);
        bar.set_message(format!("{} of {} objects", p.objects, p.objects_total));
    });
    bar.finish_and_clear();
    let report = report?;
    let out = &mut std::io::stdout().lock();
    match args.format {
        Format::Plain => plain(out, &args.dir, &report, start.elapsed()),
        Format::Json => json(out, &args.dir, &report, start.elapsed()),
    }
    .map_err(Fail::output)?;
    Ok(if report.is_clean() {
        Verdict::Good
    } else {
        Verdict::Damage
    })
}

/// Draws itself on a terminal only.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0).with_message("verifying the index");
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {percent:>3}% {bytes}/{total_bytes} {msg} (eta {eta})")
    {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

fn plain(out: &mut impl Write, dir: &Path, r: &Report, took: Duration) -> std::io::Result<()> {
    for p in r.problems.iter().take(SHOWN_MAX) {
        writeln!(out, "{p}")?;
    }
    if let Some(id) = r.identity {
        let path = dir.display();
        writeln!(
            out,
            "{path}: osd.{} of cluster {}, format {}",
            id.osd_id, id.fsid, id.format
        )?;
    }
    writeln!(
        out,
        "checked {}, {} of data in {}, {}, {} with {}, {} from the log, in {:.1} s",
        count(r.objects, "object"),
        bytes(r.bytes),
        count(r.blocks, "block"),
        count(r.omap_keys, "omap key"),
        count(r.collections, "PG"),
        match r.log_entries {
            1 => "1 log entry".to_owned(),
            n => format!("{n} log entries"),
        },
        count(r.replayed, "transaction"),
        took.as_secs_f64()
    )?;
    match (r.problem_count, r.incomplete) {
        (0, _) => writeln!(out, "clean"),
        (n, incomplete) => {
            let shown = match n as usize > SHOWN_MAX {
                true => format!(", the first {SHOWN_MAX} of them shown"),
                false => String::new(),
            };
            let rest = match incomplete {
                true => "; not everything could be looked at",
                false => "",
            };
            writeln!(out, "DAMAGED: {}{shown}{rest}", count(n, "problem"))
        }
    }
}

fn json(out: &mut impl Write, dir: &Path, r: &Report, took: Duration) -> std::io::Result<()> {
    let id = r.identity;
    let text = json!({
        "path": dir.display().to_string(),
        "osd": id.map(|i| i.osd_id),
        "fsid": id.map(|i| i.fsid.to_string()),
        "osd_uuid": id.map(|i| i.osd_uuid.to_string()),
        "format": id.map(|i| i.format),
        "clean": r.is_clean(),
        "complete": !r.incomplete,
        "objects": r.objects,
        "bytes": r.bytes,
        "blocks": r.blocks,
        "omap_keys": r.omap_keys,
        "pgs": r.collections,
        "log_entries": r.log_entries,
        "replayed": r.replayed,
        "seconds": took.as_secs_f64(),
        "problem_count": r.problem_count,
        "problems": r.problems,
    });
    writeln!(out, "{text:#}")
}
