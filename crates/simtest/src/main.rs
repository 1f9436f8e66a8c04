//! `simtest seed N [--trace] [--plan] [--broken RULE]` runs one seed in this process, with `--plan` it says first what it is to be; `simtest run FIRST COUNT` runs many, each in
//! a process of its own, one beside the other on each processor; with `--broken RULE` until one of them notices, with
//! `--until TEXT` until one says that. `simtest mutants [WORD [SEEDS]]` does so for every rule, or those of which the module or
//! the name has the word in it. `simtest cost [JOB]` counts what operations cost (under callgrind, instructions too: see
//! docs/internals/performance.md); `simtest hosts N` what a cluster of N OSDs asks of its state (docs/internals/growth.md). In seeds from 1,000,000 on the autoscaler and the balancer work, in those from 2,000,000 on the pool has shards in place of copies. Exit code 1: a checker found something wrong; 101: a panic.

#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // a program: prints, starts processes, ends itself

use simtest::cost::{self, meter};
use simtest::{hosts, run, sabotage};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, ExitCode, exit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// `simtest cost` counts by it.
#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// A seed that runs longer than this in real time is stuck: the simulation goes round in circles.
const STUCK: Duration = Duration::from_secs(120);
/// glibc's allocator gives nothing back to the kernel while a seed runs, and asks it for much at once: page faults are a tenth of
/// what a seed costs.
const MALLOC: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "268435456"),
    ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
    ("MALLOC_TOP_PAD_", "16777216"),
];
/// Of what a seed says is wrong.
const COMPLAINT_CHARS: usize = 110;
/// Seeds that a broken rule is run against.
const MUTANT_SEEDS: u64 = 300;
/// A seed among many does not hash its trace: to format it is a twelfth of what a seed costs.
const COUNTED: &str = "--counted";
/// And says its plan before it begins: one that is stuck says nothing afterwards.
const PLANNED: &str = "--plan";
/// Seeds from here on are runs in which the cluster evens itself out.
const EVENING: u64 = 1_000_000;
/// And from here on those of a pool of shards.
const SHARDS: u64 = 2_000_000;
/// Failing seeds after which a run stops.
const FAILURES_MAX: usize = 20;

const USAGE: &str = "usage: simtest seed N [--trace] [--plan] [--broken RULE] | simtest run FIRST COUNT [--broken RULE [--until TEXT]] | simtest mutants [WORD [SEEDS]] | simtest cost [JOB] | simtest hosts N";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut flag = |name: &str| {
        let at = args.iter().position(|a| a == name);
        at.map(|i| args.remove(i)).is_some()
    };
    let wanted = Wanted {
        trace: flag("--trace"),
        counted: flag(COUNTED),
        planned: flag(PLANNED),
    };
    let mut until = None;
    if let Some(i) = args.iter().position(|a| a == "--until") {
        args.remove(i);
        until = (i < args.len()).then(|| args.remove(i));
    }
    let mut broken = None;
    if let Some(i) = args.iter().position(|a| a == "--broken") {
        args.remove(i);
        broken = (i < args.len()).then(|| args.remove(i));
        if broken.as_deref().and_then(sabotage::find).is_none() {
            let known: Vec<String> = sabotage::all().into_iter().map(|s| s.name).collect();
            eprintln!("--broken is one of {}", known.join(", "));
            return ExitCode::from(2);
        }
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |s: &str| s.parse::<u64>().ok();
    match &words[..] {
        ["seed", n] => number(n).map_or_else(usage, |n| one(n, wanted, broken.as_deref())),
        ["run", first, count] => match (number(first), number(count)) {
            (Some(first), Some(count)) => many(first, count, broken.as_deref(), until.as_deref()),
            _ => usage(),
        },
        ["cost"] => count_cost(None),
        ["cost", job] if cost::JOBS.iter().any(|j| j.name == *job) => count_cost(Some(job)),
        ["hosts", n] => match n.parse() {
            Ok(n) if (1..=hosts::OSDS_MAX).contains(&n) => count_hosts(n),
            _ => usage(),
        },
        ["mutants"] => mutants("", MUTANT_SEEDS),
        ["mutants", word] => mutants(word, MUTANT_SEEDS),
        ["mutants", word, count] => number(count).map_or_else(usage, |count| mutants(word, count)),
        _ => usage(),
    }
}

/// Breaks each rule whose module or name has this word in it, until a seed notices: a table of which one, and what it said.
fn mutants(word: &str, count: u64) -> ExitCode {
    let mut scores: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let hit = |s: &sabotage::Sabotage| s.module.contains(word) || s.name.contains(word);
    for s in sabotage::all().into_iter().filter(hit) {
        let found = hunt(0, count, Some(&s.name), None, 1);
        let score = scores.entry(s.module).or_default();
        score.1 += 1;
        let said = match found.stories.iter().min_by_key(|(seed, _)| *seed) {
            Some((seed, story)) => {
                score.0 += 1;
                format!("{seed} | {}", first_complaint(story))
            }
            None => format!("- | not within {count}"),
        };
        println!("| {} | {} | {} | {said} |", s.module, s.name, s.says);
        let _ = std::io::stdout().flush();
    }
    for (module, (noticed, of)) in scores {
        println!("{module}: {noticed} of {of}");
    }
    ExitCode::SUCCESS
}

/// What a seed found wrong, in short.
fn first_complaint(story: &str) -> String {
    let line = story
        .lines()
        .find(|l| l.contains("WRONG") || l.contains("PANIC") || l.contains("stuck"));
    let line = line.unwrap_or("no word").trim().trim_start_matches("WRONG ");
    line.chars().take(COMPLAINT_CHARS).collect()
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// What one seed says of itself.
#[derive(Clone, Copy)]
struct Wanted {
    trace: bool,
    counted: bool,
    planned: bool,
}

fn kind_of(seed: u64) -> run::Kind {
    match seed {
        SHARDS.. => run::Kind::Shards,
        EVENING.. => run::Kind::Evening,
        _ => run::Kind::Copies,
    }
}

fn one(seed: u64, wanted: Wanted, broken: Option<&str>) -> ExitCode {
    let Wanted { trace, counted, .. } = wanted;
    if let Some(s) = broken.and_then(sabotage::find) {
        (s.begin)();
    }
    // A task's panic would be its own affair; here it is the finding.
    std::panic::set_hook(Box::new(move |info| {
        println!(
            "seed {seed}: PANIC {info}\n{}",
            std::backtrace::Backtrace::force_capture()
        );
        exit(101);
    }));
    let level = match trace {
        true => tracing_subscriber::filter::LevelFilter::DEBUG,
        false => tracing_subscriber::filter::LevelFilter::OFF,
    };
    if trace {
        // The time of the run stands on the trace's own lines.
        tracing_subscriber::fmt()
            .without_time()
            .with_ansi(false)
            .with_max_level(level)
            .init();
    }
    let sink: Option<fn(&str)> = if trace {
        Some(|line| println!("{line}"))
    } else {
        None
    };
    let main = |sim: io_sim::Sim| {
        if counted {
            sim.trace.count_only();
        }
        let plan = run::plan(&sim, kind_of(seed));
        if wanted.planned {
            println!("seed {seed} is to be {plan}");
        }
        run::seed(sim, plan)
    };
    let outcome = match io_sim::run(seed, sink, main) {
        Ok(outcome) => outcome,
        Err(e) => {
            println!("seed {seed}: the simulation does not start: {e}");
            return ExitCode::from(2);
        }
    };
    println!("seed {seed}: {outcome}");
    ExitCode::from(u8::from(!outcome.wrongs.is_empty()))
}

/// Prints what each window counted: `NAME ops N virtual_s S allocations N ...`.
fn count_cost(job: Option<&str>) -> ExitCode {
    let windows = io_sim::run(1, None, |sim| cost::run(sim, job));
    let windows = match windows.map_err(|e| e.to_string()).and_then(|w| w) {
        Ok(windows) => windows,
        Err(e) => {
            eprintln!("simtest cost: {e}");
            return ExitCode::FAILURE;
        }
    };
    for w in windows {
        let counts = meter::NAMES.iter().zip(w.counts);
        let counts: Vec<String> = counts.map(|(name, n)| format!("{name} {n}")).collect();
        println!(
            "{} ops {} virtual_s {} {}",
            w.name,
            w.ops,
            w.virtual_s,
            counts.join(" ")
        );
    }
    ExitCode::SUCCESS
}

fn count_hosts(osds: usize) -> ExitCode {
    let windows = io_sim::run(1, None, |sim| hosts::run(sim, osds));
    let windows = match windows.map_err(|e| e.to_string()).and_then(|w| w) {
        Ok(windows) => windows,
        Err(e) => {
            eprintln!("simtest hosts: {e}");
            return ExitCode::FAILURE;
        }
    };
    for w in windows {
        let c = w.counts;
        println!(
            "{} virtual_s {:.2} transactions {} bytes {} renewals {} leases {} reads {} delivered {}",
            w.name, w.virtual_s, c.transactions, c.bytes, c.renewals, c.leases, c.reads, c.delivered
        );
    }
    ExitCode::SUCCESS
}

/// What many seeds said.
struct Found {
    ran: u64,
    /// Those that failed, each with what it said.
    stories: Vec<(u64, String)>,
    sums: BTreeMap<String, u64>,
}

/// Runs seeds until `enough` of them have failed.
fn hunt(first: u64, count: u64, broken: Option<&str>, until: Option<&str>, enough: usize) -> Found {
    let next = AtomicU64::new(first);
    let failures: Mutex<Vec<(u64, String)>> = Mutex::default();
    let sums: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let failed = || failures.lock().unwrap_or_else(PoisonError::into_inner);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|s| {
        for _ in 0..workers {
            s.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed().len() >= enough {
                        return;
                    }
                    match child(seed, broken) {
                        Ok(story) => add_up(
                            last_words(&story, seed),
                            &mut sums.lock().unwrap_or_else(PoisonError::into_inner),
                        ),
                        Err(story) if until.is_none_or(|text| story.contains(text)) => {
                            failed().push((seed, story));
                        }
                        Err(_) => {}
                    }
                }
            });
        }
    });
    Found {
        ran: (next.load(Ordering::Relaxed) - first).min(count),
        stories: failures.into_inner().unwrap_or_else(PoisonError::into_inner),
        sums: sums.into_inner().unwrap_or_else(PoisonError::into_inner),
    }
}

fn many(first: u64, count: u64, broken: Option<&str>, until: Option<&str>) -> ExitCode {
    let enough = if broken.is_some() { 1 } else { FAILURES_MAX };
    let start = Instant::now();
    let found = hunt(first, count, broken, until, enough);
    found.stories.iter().for_each(|(_, story)| println!("{story}"));
    let failed: Vec<String> = found.stories.iter().map(|(seed, _)| seed.to_string()).collect();
    println!(
        "{} seeds from {first}, {} failed: {}; {:.0} s",
        found.ran,
        failed.len(),
        failed.join(" "),
        start.elapsed().as_secs_f64()
    );
    let sums: Vec<String> = found.sums.iter().map(|(what, n)| format!("{n} {what}")).collect();
    println!("those that passed: {}", sums.join(", "));
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// The line in which a seed says what it came to.
fn last_words(story: &str, seed: u64) -> &str {
    let begins = format!("seed {seed}: ");
    story.lines().find(|l| l.starts_with(&begins)).unwrap_or_default()
}

/// Adds up what a seed says of itself: numbers, each with its name behind it.
fn add_up(story: &str, sums: &mut BTreeMap<String, u64>) {
    for part in story.split(", ") {
        if let Some((n, what)) = part.trim().split_once(' ')
            && let Ok(n) = n.parse::<u64>()
        {
            *sums.entry(what.to_owned()).or_default() += n;
        }
    }
}

/// Runs one seed in a process of its own; its output, as an error if it failed.
fn child(seed: u64, broken: Option<&str>) -> Result<String, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = Command::new(exe)
        .args(["seed", &seed.to_string(), COUNTED, PLANNED])
        .args(broken.map(|b| ["--broken", b]).into_iter().flatten())
        .envs(MALLOC)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let mut output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(out) = output.as_mut() {
            // What is readable is enough.
            let _ = std::io::Read::read_to_string(out, &mut text);
        }
        text
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break Some(status);
        }
        if start.elapsed() > STUCK {
            // It may just have ended.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = reader.join().unwrap_or_default();
    match status {
        Some(s) if s.success() => Ok(text),
        Some(_) => Err(text),
        None => Err(format!("seed {seed}: stuck, ended after {STUCK:?}\n{text}")),
    }
}
