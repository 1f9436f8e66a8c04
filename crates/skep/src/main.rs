//! `skep`: the command line. Parses, calls `node`, prints; no logic of its own.

mod args;
mod backup;
mod bench;
mod client;
mod cluster;
mod config;
mod image;
mod manual;
mod mount;
mod old;
mod options;
mod preflight;
mod qos;
mod rbd_io;
mod remove;
#[cfg(feature = "s3")]
mod s3;
mod service;
mod store;
mod tell;
mod up;
mod upgrade;
mod why;

use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::debug_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    io::files::set_private_umask();
    let (args, warnings) = match config::parse() {
        Ok(parsed) => parsed,
        Err(e) => {
            eprintln!("skep: {e}");
            return ExitCode::FAILURE;
        }
    };
    let quiet = is_quiet(&args.command);
    init_log(args.verbose, if quiet { "warn" } else { "info" });
    warnings.iter().for_each(|w| tracing::warn!("{w}"));
    let done = match &args.command {
        args::Command::Up(up) => up::run(up),
        args::Command::Preflight(a) => preflight::run(a),
        args::Command::Upgrade(a) => upgrade::run(a),
        args::Command::Status(a) => client::status(a),
        args::Command::Doctor(a) => client::doctor(a),
        args::Command::Conf(a) => client::conf(a),
        args::Command::Down(a) => client::down(a),
        args::Command::Host(a) => remove::host(a),
        args::Command::Osd(a) => remove::osd(a),
        args::Command::Pool(a) => client::pool(a),
        args::Command::Cluster(a) => cluster::run(a),
        args::Command::Bench(a) => bench::run(a),
        args::Command::Image(a) => image::run(a),
        args::Command::Backup(a) => backup::run(a),
        args::Command::RbdIo(a) => rbd_io::run(a),
        args::Command::Tell(a) => tell::run(a),
        args::Command::Mount(a) => mount::run(a),
        args::Command::Qos(a) => qos::run(a),
        args::Command::Why(a) => why::run(a),
        #[cfg(feature = "s3")]
        args::Command::S3(a) => s3::run(a),
        args::Command::Completion(a) => manual::completion(a),
        args::Command::Man(a) => manual::pages(a),
        args::Command::Store(a) => return store::run(a),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("skep: {e}");
            ExitCode::FAILURE
        }
    }
}

/// A command that prints its result has nothing to tell beside it; a server has.
fn is_quiet(command: &args::Command) -> bool {
    #[cfg(feature = "s3")]
    if matches!(command, args::Command::S3(a) if !a.is_server()) {
        return true;
    }
    matches!(
        command,
        args::Command::Store(_)
            | args::Command::Cluster(_)
            | args::Command::Bench(_)
            | args::Command::Image(_)
            | args::Command::Backup(_)
            | args::Command::RbdIo(_)
            | args::Command::Preflight(_)
            | args::Command::Upgrade(_)
            | args::Command::Tell(_)
            | args::Command::Qos(_)
            | args::Command::Why(_)
            | args::Command::Completion(_)
            | args::Command::Man(_)
    )
}

/// Log lines go to stderr; `SKEP_LOG` takes tracing's filter syntax and wins over `-v`.
fn init_log(verbose: u8, level: &str) {
    let level = match verbose {
        0 => level,
        1 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SKEP_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    // Colours only for people: a log file or a pipe gets plain lines.
    let colours = std::io::stderr().is_terminal();
    // What clients named is in many a line: it shall not end one, nor reach the terminal with power over it.
    let fields = debug_fn(|to, field, value| io::log::write_field(to, field.name(), value)).delimited(" ");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .fmt_fields(fields)
        .with_target(false)
        .finish()
        .with(filter_fn(|of| is_shown(of.target())))
        .init();
}

/// Whether lines of a module are shown at all, whatever `SKEP_LOG` says. The library of S3 takes each mistake of a client's for an error, and logs what was asked with its signature;
/// at debug also what was signed, and there are keys of objects (SSE-C) in that.
fn is_shown(target: &str) -> bool {
    target.split("::").next() != Some("s3s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_s3_says_nothing() {
        for (target, shown) in [
            ("s3s", false),
            ("s3s::ops::signature", false),
            ("s3", true),
            ("s3sink", true),
        ] {
            assert_eq!(is_shown(target), shown, "{target}");
        }
    }
}
