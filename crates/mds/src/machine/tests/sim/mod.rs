//! The metadata server in a simulation: the machine, clients that keep their word, servers that die and are followed by others, a
//! network that is late and parts them, pools that take their time. One seed draws all of it; time is virtual.
//!
//! `SKEP_MDS_SEEDS=N` runs so many seeds of each sort (40 else), from `SKEP_MDS_FIRST` on; `SKEP_MDS_SEED=N` runs that one alone,
//! and tells what happened where it fails: `SKEP_MDS_SEED=7 cargo test -p mds seeds_pass -- --nocapture`.
//!
//! Checked (`check`, `run`): what was answered as durable is there, and what was answered early is, where its client lives; all
//! that clients were told, or knew by their capabilities, fits one order of what was done; no two hold what stands against each
//! other; everybody gets an answer in the end; links and sums are those of what is there.
//!
//! Not here: several requests of one client under way at once, locks that are waited for, snapshots, extended attributes, real
//! messengers and pools (`tests/files`, `crates/simtest`).

mod check;
mod client;
mod history;
mod model;
mod run;
mod store;

use crate::machine::Caching;
use crate::machine::parts::early::Broken;
use run::Sim;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is drawn for a run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub clients: u64,
    pub span_us: u64,
    pub caching: Caching,
    pub early: bool,
    pub cache_bytes: usize,
    /// Files are made under numbers of their clients.
    pub async_names: bool,
}

impl Plan {
    fn of(seed: u64, caching: Caching) -> Self {
        Self {
            clients: 2 + seed % 2,
            span_us: (25 + seed % 4 * 10) * run::SECOND,
            caching,
            early: seed % 8 != 7,
            // Rows leave it, and listings give no capabilities.
            cache_bytes: if seed % 5 == 4 { 20_000 } else { 256 << 20 },
            async_names: seed % 3 == 1,
        }
    }
}

/// What is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    Rule(Broken),
    /// A server that has lost its rank goes on writing.
    Unfenced,
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {value}")),
    )
}

/// One seed to its end. A machine that ends by an assertion has found something, too.
fn judge(seed: u64, caching: Caching, wrong: Option<Wrong>, traced: bool) -> Result<(), String> {
    let mut sim = Sim::new(seed, Plan::of(seed, caching), wrong);
    sim.trace = traced.then(Vec::new);
    let outcome = catch_unwind(AssertUnwindSafe(|| check::whole(&mut sim)));
    let outcome = outcome.unwrap_or_else(|_| Err("it panicked".into()));
    let trace = sim.trace.take().unwrap_or_default().join("\n");
    outcome.map_err(|e| format!("{trace}\nseed {seed}: {e}"))
}

fn seeds_pass_with(caching: Caching) {
    if let Some(seed) = number("SKEP_MDS_SEED") {
        return judge(seed, caching, None, true).unwrap_or_else(|e| panic!("{e}"));
    }
    let first = number("SKEP_MDS_FIRST").unwrap_or(0);
    let seeds = first..first + number("SKEP_MDS_SEEDS").unwrap_or(40);
    let wrong: Vec<String> = seeds
        .filter_map(|s| judge(s, caching, None, false).err())
        .collect();
    assert!(wrong.is_empty(), "{} seeds: {}", wrong.len(), wrong[0]);
}

#[test]
fn seeds_pass() {
    seeds_pass_with(Caching::Shared);
}

#[test]
fn seeds_pass_where_nothing_is_cached() {
    seeds_pass_with(Caching::Nothing);
}

#[test]
fn seeds_pass_where_who_is_alone_buffers() {
    seeds_pass_with(Caching::Exclusive);
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    let run = |seed: u64| {
        let mut sim = Sim::new(seed, Plan::of(seed, Caching::Shared), None);
        let outcome = check::whole(&mut sim);
        format!("{outcome:?} {:?}", sim.history)
    };
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(0), run(1));
}

/// Within so many seeds each.
const NOTICED_WITHIN: u64 = 1000;

/// A seed that fails by itself shows nothing, and neither does one whose history is not decided.
fn is_noticed(wrong: Wrong) {
    let notices = |seed: u64| {
        let said = judge(seed, Caching::Shared, Some(wrong), false).err()?;
        let shows = !said.contains(history::NOT_DECIDED) && judge(seed, Caching::Shared, None, false).is_ok();
        shows.then_some((seed, said))
    };
    let Some((seed, said)) = (0..NOTICED_WITHIN).find_map(notices) else {
        panic!("{wrong:?} is not noticed");
    };
    tracing::info!("{wrong:?}, seed {seed}: {}", said.trim());
}

#[test]
fn an_answer_as_durable_before_it_is_is_noticed() {
    is_noticed(Wrong::Rule(Broken::SafeAtOnce));
}

#[test]
fn what_others_see_too_early_is_noticed() {
    is_noticed(Wrong::Rule(Broken::SeenByOthers));
}

#[test]
fn what_is_carried_out_twice_is_noticed() {
    is_noticed(Wrong::Rule(Broken::Twice));
}

#[test]
fn replays_that_are_not_heard_are_noticed() {
    is_noticed(Wrong::Rule(Broken::Deaf));
}

#[test]
fn a_change_without_asking_back_is_noticed() {
    is_noticed(Wrong::Rule(Broken::Rash));
}

#[test]
fn a_capability_given_too_early_is_noticed() {
    is_noticed(Wrong::Rule(Broken::Generous));
}

#[test]
fn writers_that_are_forgotten_are_noticed() {
    is_noticed(Wrong::Rule(Broken::Forgetful));
}

#[test]
fn a_name_changed_behind_a_lease_is_noticed() {
    is_noticed(Wrong::Rule(Broken::Trusted));
}

#[test]
fn leases_forgotten_over_a_restart_are_noticed() {
    is_noticed(Wrong::Rule(Broken::Oblivious));
}

#[test]
fn a_number_given_to_two_is_noticed() {
    is_noticed(Wrong::Rule(Broken::Reused));
}

#[test]
fn a_server_without_its_rank_that_writes_is_noticed() {
    is_noticed(Wrong::Unfenced);
}
