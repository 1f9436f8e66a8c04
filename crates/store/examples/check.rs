//! Verifies a store that nobody has open: `cargo run --release -p store --example check -- DIR OSD_ID`.
//! Exit code 0: clean. 1: problems, one a line. 2: it cannot be opened.

#![allow(clippy::disallowed_macros)]

use std::path::Path;
use std::process::ExitCode;
use store::{Options, Store};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let (Some(dir), Some(osd_id)) = (args.get(1), args.get(2).and_then(|s| s.parse().ok())) else {
        eprintln!("usage: check DIR OSD_ID");
        return ExitCode::from(2);
    };
    let options = Options {
        osd_id,
        ..Options::default()
    };
    match Store::check(Path::new(dir), &options) {
        Ok(r) => {
            println!(
                "{} objects, {} blocks, {} omap keys, {} collections with {} log entries; {} transactions from the log; {} problems",
                r.objects, r.blocks, r.omap_keys, r.collections, r.log_entries, r.replayed, r.problem_count
            );
            r.problems.iter().for_each(|p| println!("{p}"));
            ExitCode::from(u8::from(!r.is_clean()))
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
