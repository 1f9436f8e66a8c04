//! The crash tests can fail: disks that lie, and a store with one rule broken, are each caught by the very
//! runs that the default tests make, in their order.

use crate::*;
use io::disk::sim::Lie;
use std::panic::{AssertUnwindSafe, catch_unwind};
use store::broken::{self, Rule};

/// One run of a test.
type Job = Box<dyn Fn()>;

const DATA: u64 = (64 << 10) + (256 << 10);

/// Runs until one fails; returns how, and after how many runs.
fn first_failure(runs: impl Iterator<Item = Job>) -> Option<(String, usize)> {
    for (i, run) in runs.enumerate() {
        if let Err(e) = catch_unwind(AssertUnwindSafe(run)) {
            let text = e.downcast_ref::<String>().cloned();
            let text = text.or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            return Some((text.unwrap_or_default(), i + 1));
        }
    }
    None
}

/// What the default tests run, from the shortest on.
fn default_runs(lie: Option<Lie>) -> impl Iterator<Item = Job> {
    let prepare = move |d: &SimDisk| {
        if let Some(lie) = lie {
            d.lie(lie);
        }
    };
    let sequences = sequences_wanted()
        .into_iter()
        .flat_map(move |(len, schedules, shares)| {
            (0..sequences::count(len) * schedules).map(move |i| {
                let (number, schedule) = match schedules {
                    1 => (i, sequences::schedule_of(i)),
                    _ => (i / schedules, i % schedules),
                };
                Box::new(move || _ = sequences::sequence(len, number, schedule, shares, prepare)) as Job
            })
        });
    let stale = stale::LENGTHS.map(move |len| {
        let run: Job = Box::new(move || _ = stale::two_lives(len, prepare));
        run
    });
    let random = (0..100).map(move |seed| {
        Box::new(move || {
            let disk = with_queues(fresh(), seed);
            prepare(&disk);
            random_run(seed, disk);
        }) as Job
    });
    // One by one of each sort, so that none has to wait for the end of another.
    let mut sorts: Vec<Box<dyn Iterator<Item = Job>>> =
        vec![Box::new(sequences), Box::new(stale.into_iter()), Box::new(random)];
    std::iter::from_fn(move || {
        sorts.rotate_left(1);
        sorts.iter_mut().find_map(Iterator::next)
    })
}

fn is_caught(what: &str, rule: Option<Rule>, lie: Option<Lie>) {
    broken::set(rule);
    let found = first_failure(default_runs(lie));
    broken::set(None);
    let Some((how, runs)) = found else {
        panic!("{what}: nothing noticed")
    };
    let how: String = how.chars().take(160).collect();
    println!("{what}: caught in run {runs}: {how}");
    // By what a cut left, not by an assertion inside the store that happens to stand in the way.
    let signs = ["cut ", "sequence", "life", "LogDamaged", "Corrupt"];
    let by_a_cut = signs.iter().any(|s| how.contains(s));
    assert!(by_a_cut, "{what}: {how}");
}

#[test]
fn a_disk_that_ignores_flushes_of_data_and_log() {
    is_caught(
        "flushes of the data file ignored",
        None,
        Some(|f| f.file == "block"),
    );
}

#[test]
fn a_disk_that_ignores_flushes_of_the_index() {
    is_caught("flushes of the index ignored", None, Some(|f| f.file == "index"));
}

#[test]
fn a_disk_that_lets_the_index_overtake_the_data() {
    let lie: Lie = |f| f.file == "block" && f.lowest >= DATA;
    is_caught("flushes of written-back data ignored", None, Some(lie));
}

#[test]
fn a_disk_that_ignores_the_flush_of_the_marker_at_open() {
    is_caught(
        "first flush of a life ignored",
        None,
        Some(|f| f.file == "block" && f.number == 0),
    );
}

#[test]
fn a_life_that_does_not_begin_with_a_marker() {
    is_caught("no marker at open", Some(Rule::MarkerAtOpen), None);
}

#[test]
fn a_batch_with_direct_extents_made_durable_by_its_own_write() {
    is_caught("direct extents not flushed", Some(Rule::AloneIsLight), None);
}

#[test]
fn freed_blocks_taken_before_the_checkpoint() {
    is_caught("freed blocks taken at once", Some(Rule::FreedBlocksWait), None);
}

#[test]
fn a_last_batch_taken_without_its_direct_extents() {
    is_caught("direct extents not verified", Some(Rule::LastDirectsWhole), None);
}

/// Rules that the default runs see broken at once. Of the others docs/internals/simulation.md tells who notices.
const SEEN: &[Rule] = &[
    Rule::LastCounts,
    Rule::TornIsNone,
    Rule::TakenWhole,
    Rule::ReplayTakes,
    Rule::SeqGoesOn,
    Rule::PartsCount,
    Rule::LastPartFrees,
    Rule::EveryFlush,
];
/// Runs for each of them.
const RUNS: usize = 50;

#[test]
fn a_log_read_or_flushed_in_part_is_caught() {
    for rule in SEEN {
        broken::set(Some(*rule));
        let found = first_failure(default_runs(None).take(RUNS));
        broken::set(None);
        let Some((_, runs)) = found else {
            panic!("{}: nothing noticed", rule.name())
        };
        println!("{}: caught in run {runs}", rule.name());
    }
}

#[test]
fn nothing_broken_is_nothing_caught() {
    let found = first_failure(default_runs(None).take(12));
    assert_eq!(found, None);
}
