//! The short run: every seed as it is, and mutated a fixed number of times. A failure names target, seed and round.
//! `HOSTILE_ROUNDS=N` goes on to the N-th multiple of rounds, for a long run without cargo-fuzz.

use hostile::{Mutator, TARGETS, Target};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn run(name: &str) {
    let target: &Target = TARGETS
        .iter()
        .find(|t| t.name == name)
        .unwrap_or_else(|| panic!("no target {name}"));
    let seeds = (target.seeds)();
    assert!(seeds.len() > 10, "{name}: {} seeds", seeds.len());
    let times = std::env::var("HOSTILE_ROUNDS").map_or(1, |n| n.parse().unwrap_or(1));
    let (mut good, mut inputs, mut accepted) = (0, 0, 0);
    for (i, seed) in seeds.iter().enumerate() {
        good += usize::from((target.run)(seed));
        for round in 0..target.rounds * times {
            let input = Mutator::new(i as u64 * 1_000_000_007 + round).mutate(seed);
            let Ok(ok) = catch_unwind(AssertUnwindSafe(|| (target.run)(&input))) else {
                panic!("{name}: seed {i}, round {round}: {} bytes", input.len());
            };
            inputs += 1;
            accepted += usize::from(ok);
        }
    }
    println!(
        "{name}: {good} of {} seeds and {accepted} of {inputs} mutations accepted",
        seeds.len()
    );
    // Else this would test nothing but checksums.
    assert!(
        good >= target.good_min,
        "{name}: only {good} of {} seeds are accepted",
        seeds.len()
    );
    assert!(
        accepted * 50 > inputs,
        "{name}: only {accepted} of {inputs} mutations are accepted"
    );
}

#[test]
fn frames() {
    run("frames");
}

#[test]
fn legacy() {
    run("legacy");
}

#[test]
fn messages() {
    run("messages");
}

#[test]
fn maps() {
    run("maps");
}

#[test]
fn classes() {
    run("classes");
}

#[test]
fn objects() {
    run("objects");
}
