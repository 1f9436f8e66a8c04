//! Seeds of the simulated cluster, each a process of its own.
//!
//! `SKEP_SIM_SEEDS=N` runs so many (100 else; for an eighth of them a tenth as many in which the cluster evens itself out, a quarter with shards in place of copies), from
//! `SKEP_SIM_FIRST` on (0 else); `SKEP_SIM_SEED=N` runs that one alone, with its trace: `SKEP_SIM_SEED=7 cargo test -p simtest --test seeds seeds_pass -- --nocapture`.

#![allow(clippy::unwrap_used, clippy::disallowed_macros)] // prints what each run found

use simtest::sabotage;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// One test at a time: each uses all processors.
static TURN: Mutex<()> = Mutex::new(());

/// Seeds that found something once, and what. They stay.
const ONCE_WRONG: &[(u64, &str)] = &[
    (
        823,
        "an OSD that was started again served its old interval before its boot was committed",
    ),
    (1341, "the same, with one PG and one object"),
    (
        0,
        "a PG that was split off without a log waited for ever for a member that had none either",
    ),
    (
        24,
        "two OSDs handed a PG to and fro: one remembered more writes to objects that had been split off",
    ),
    (
        1694,
        "a primary without a whole copy filled a learner from it while it waited for those that had one",
    ),
    (
        119,
        "a primary whose hand-over had no outcome proposed one that was not in sync to lead, for ever",
    ),
];

fn simtest(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simtest"))
        .args(args)
        .output()
        .unwrap()
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {value}")),
    )
}

/// What a run of all seeds may cost, in ordinary ones.
fn seeds() -> u64 {
    number("SKEP_SIM_SEEDS").unwrap_or(100)
}

/// A seed in which the cluster evens itself out costs as much as so many others.
const EVENING_COSTS: u64 = 10;
/// Those are numbered from here on.
const EVENING: u64 = 1_000_000;

/// An eighth of the time is theirs.
fn evening_seeds() -> u64 {
    seeds() / 8 / EVENING_COSTS
}

#[test]
fn seeds_pass_while_the_cluster_evens_itself_out() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if number("SKEP_SIM_SEED").is_some() {
        return;
    }
    let first = EVENING + number("SKEP_SIM_FIRST").unwrap_or(0);
    let count = evening_seeds().to_string();
    let out = simtest(&["run", &first.to_string(), &count]);
    println!("{}", text(&out));
    assert!(out.status.success(), "run one of them again by SKEP_SIM_SEED");
}

/// Those of a pool of shards are numbered from here on.
const SHARDS: u64 = 2_000_000;

/// A quarter of the time is theirs.
fn shard_seeds() -> u64 {
    seeds() / 4
}

#[test]
fn seeds_pass_with_shards_in_place_of_copies() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if number("SKEP_SIM_SEED").is_some() {
        return;
    }
    let first = SHARDS + number("SKEP_SIM_FIRST").unwrap_or(0);
    let out = simtest(&["run", &first.to_string(), &shard_seeds().to_string()]);
    println!("{}", text(&out));
    assert!(out.status.success(), "run one of them again by SKEP_SIM_SEED");
}

#[test]
fn seeds_pass() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let out = match number("SKEP_SIM_SEED") {
        Some(seed) => simtest(&["seed", &seed.to_string(), "--trace"]),
        None => {
            let first = number("SKEP_SIM_FIRST").unwrap_or(0).to_string();
            let count = seeds() - EVENING_COSTS * evening_seeds() - shard_seeds();
            simtest(&["run", &first, &count.to_string()])
        }
    };
    println!("{}", text(&out));
    assert!(out.status.success(), "run one of them again by SKEP_SIM_SEED");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in ["1", "2", "3", "17"] {
        let (a, b) = (simtest(&["seed", seed]), simtest(&["seed", seed]));
        assert!(text(&a).contains("hash "), "{}", text(&a));
        assert_eq!(text(&a), text(&b), "seed {seed}");
        // As many seeds are run: the same without its hash.
        let counted = text(&simtest(&["seed", seed, "--counted"]));
        let rest = |told: &str| told.split_once(',').map(|(_, rest)| rest.to_owned());
        assert_eq!(rest(&text(&a)), rest(&counted), "seed {seed}");
    }
}

#[test]
fn seeds_that_were_wrong_once() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (seed, story) in ONCE_WRONG {
        let out = simtest(&["seed", &seed.to_string()]);
        assert!(out.status.success(), "{story}\n{}", text(&out));
    }
}

/// What is told of the first seed that notices a broken rule. The one that noticed last comes alone: most often no other is needed.
fn notices(name: &str, first: u64, seeds: u64, seen_as: &str) -> Option<String> {
    [(first, 1), (first + 1, seeds - 1)]
        .into_iter()
        .find_map(|(from, count)| {
            let (from, count) = (from.to_string(), count.to_string());
            let out = simtest(&["run", &from, &count, "--broken", name, "--until", seen_as]);
            Some(text(&out)).filter(|told| told.contains(seen_as))
        })
}

#[test]
fn a_sample_of_broken_rules_is_noticed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let next = AtomicUsize::new(0);
    let in_turn = || {
        while let Some((name, first, seeds, seen_as)) =
            sabotage::SAMPLE.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let told = notices(name, *first, *seeds, seen_as);
            let told = told.unwrap_or_else(|| panic!("{name} goes unnoticed"));
            let lines: Vec<&str> = told.lines().take(3).collect();
            println!("{name}: {}", lines.join("\n  "));
        }
    };
    // One rule on each processor.
    std::thread::scope(|s| {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers: Vec<_> = (0..workers).map(|_| s.spawn(in_turn)).collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
}
