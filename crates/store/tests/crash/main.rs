//! Power cuts: after any of them, in any legal state of the unflushed blocks, the store opens, holds
//! exactly the transactions up to some number that is not below what it called durable, passes the
//! check, and goes on.
//!
//! `SKEP_CRASH_CUTS` sets how many cuts there are (default 40,000; the sequences make somewhat more), shared by the
//! sequences, which verify more or fewer survivors at each call, and the random runs.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

#[cfg(debug_assertions)]
mod broken;
#[path = "../common/mod.rs"]
mod common;
mod run;
mod sequences;
mod stale;

use common::*;
use io::disk::sim::SimDisk;
use run::Run;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn cuts_wanted() -> u64 {
    std::env::var("SKEP_CRASH_CUTS")
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(40_000)
}

/// Runs `work` for all numbers below `end`, on all cores; returns the sum of what it returns.
fn on_all_cores(end: u64, work: impl Fn(u64) -> u64 + Sync) -> u64 {
    let (next, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= end {
                        break;
                    }
                    sum.fetch_add(work(n), Ordering::Relaxed);
                }
            });
        }
    });
    sum.into_inner()
}

fn random_step(run: &mut Run, g: &mut Generator) {
    run.step(|r| match g.dice.below(10) {
        0..=3 => r.queue(g.transaction()),
        4..=6 => drop(r.store.pump_log()),
        7 => r.store.kick(),
        _ => drop((r.store.pump_helper(), r.store.pump_helper())),
    });
    if g.dice.below(60) == 0 {
        let now = Duration::from_secs(g.dice.below(2) * 1000);
        run.step(|r| r.store.tick(now));
    }
}

fn random_run(seed: u64, disk: SimDisk) -> u64 {
    let run = Run::on(disk, &Model::default(), format!("seed {seed}"));
    let mut run = run.compressed(compression(seed));
    run.disk.sample(seed, 150);
    let mut g = Generator::new(seed);
    run.queue(Generator::first());
    for _ in 0..400 {
        random_step(&mut run, &mut g);
    }
    compare(&run.store, run.model(), &run.label);
    let acked = run.store.durable();
    run.verify(acked);
    let Run {
        disk,
        store,
        history,
        label,
        cuts,
        ..
    } = run;
    store.close().unwrap();
    check(&disk, &label);
    let store = open(&disk);
    compare(&store, history.last().unwrap(), &label);
    cuts
}

#[test]
fn random_runs_survive_cuts() {
    let wanted = cuts_wanted() / 4;
    let (mut cuts, mut seed) = (0, 0);
    while cuts < wanted {
        cuts += on_all_cores(8, |n| random_run(seed + n, fresh_of(seed + n)));
        seed += 8;
    }
    println!("random runs: {seed} of 400 steps, {cuts} cuts");
    assert!(cuts >= wanted);
}

/// A cut, then a new life on what survived, and so on: each life's acknowledged work is there.
#[test]
fn many_lives() {
    on_all_cores(20, |seed| {
        let mut disk = fresh_of(seed);
        let mut model = Model::default();
        let mut g = Generator::new(seed);
        for life in 0..8 {
            let run = Run::on(disk, &model, format!("seed {seed} life {life}"));
            let mut run = run.compressed(compression(seed * 8 + life));
            compare(&run.store, &model, &run.label);
            if model.collections.is_empty() {
                run.queue(Generator::first());
            }
            for _ in 0..60 {
                random_step(&mut run, &mut g);
            }
            let acked = run.store.durable();
            let next = run.disk.survivor(seed * 100 + life);
            let store = open(&next);
            let k = store.queued();
            assert!(k >= acked && (k as usize) < run.history.len());
            model = run.history[k as usize].clone();
            drop(store);
            check(&next, &run.label);
            disk = next;
        }
        0
    });
}

#[test]
fn the_alphabet_has_every_kind_of_operation() {
    let kinds: BTreeSet<_> = sequences::alphabet()
        .iter()
        .map(|(_, op)| sequences::kind(op))
        .collect();
    assert_eq!(kinds.len(), sequences::KINDS);
}

/// Lengths of sequences, how many schedules each runs under, and the survivors kept at their calls where 100,000 cuts are wanted.
const SEQUENCES: [(u32, u64, sequences::Shares); 3] = [
    (1, sequences::SCHEDULES, [1000, 1000, 2000]),
    (2, sequences::SCHEDULES, [30, 30, 80]),
    (3, 1, [4, 4, 12]),
];

/// [`SEQUENCES`] with the survivors for as many cuts as are wanted.
fn sequences_wanted() -> [(u32, u64, sequences::Shares); 3] {
    let wanted = cuts_wanted();
    SEQUENCES.map(|(len, schedules, shares)| (len, schedules, shares.map(|s| (s * wanted).div_ceil(100_000))))
}

#[test]
fn all_sequences_survive_cuts() {
    let mut all = 0;
    for (len, schedules, shares) in sequences_wanted() {
        let n = sequences::count(len) * schedules;
        let cuts = on_all_cores(n, |i| {
            let (number, schedule) = match schedules {
                1 => (i, sequences::schedule_of(i)),
                _ => (i / schedules, i % schedules),
            };
            sequences::sequence(len, number, schedule, shares, |_| {})
        });
        println!("all {n} runs of {len} operations: {cuts} cuts");
        all += cuts;
    }
    assert!(all >= cuts_wanted(), "only {all} cuts");
}
