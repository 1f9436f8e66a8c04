//! `skep store`: one OSD's store by itself: verify it, read from it, measure the engine.
//!
//! Exit codes, for all three: 0 good, 1 damage was met, 2 not possible at all. Output that nobody reads any more
//! (`| head`) ends the command quietly.

pub mod args;
pub mod bench;
mod check;
mod dump;
mod export;
mod keys;
mod outcome;
mod text;

use ::store::Error;
use outcome::{Fail, Verdict};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(args: &args::Store) -> ExitCode {
    let (dir, outcome) = match &args.command {
        args::Command::Check(a) => (&a.dir, check::run(a)),
        args::Command::Dump(a) => (&a.dir, dump::run(a)),
        args::Command::Bench(a) => (&a.dir, bench::run(a)),
    };
    match outcome {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Damage) => ExitCode::from(1),
        Err(Fail::Io(_, e)) if e.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("skep: {}", explain(dir, &e));
            ExitCode::from(e.code())
        }
    }
}

/// One sentence, with what helps to go on.
fn explain(dir: &Path, e: &Fail) -> String {
    match e {
        Fail::Store(e @ Error::Locked { .. }) => match holder(dir) {
            Some(pid) => format!("{e}: pid {pid}"),
            None => e.to_string(),
        },
        Fail::Store(e @ Error::NotAStore { .. }) => match osds_in(dir).as_slice() {
            [] => e.to_string(),
            names => format!("{e}; it has {}: name one of them", names.join(", ")),
        },
        Fail::Store(e @ Error::LogDamaged { .. }) => {
            format!("{e}; dump --without-log shows what the last checkpoint has")
        }
        Fail::Store(e) => e.to_string(),
        Fail::Io(what, e) => format!("cannot {what}: {e}"),
        Fail::Usage(text) => text.clone(),
    }
}

/// The process that serves the OSD in `dir`, where it can be found out.
fn holder(dir: &Path) -> Option<u32> {
    io::files::locked_by(&dir.join("block")).or_else(|| {
        let lock = dir.parent()?.join("lock");
        match io::files::LockFile::holder(&lock) {
            Ok(io::files::Holder::Process(pid)) => Some(pid),
            _ => None,
        }
    })
}

/// Stores of OSDs below a directory that is not one itself.
fn osds_in(dir: &Path) -> Vec<String> {
    let names = io::files::list_dir(dir).unwrap_or_default();
    let is_store = |n: &String| n.starts_with("osd.") && dir.join(n).join("block").is_file();
    let osds: Vec<PathBuf> = names
        .iter()
        .filter(|n| is_store(n))
        .map(|n| dir.join(n))
        .collect();
    osds.iter().map(|p| p.display().to_string()).collect()
}
