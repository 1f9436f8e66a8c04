//! Each rule of the contract, left out: the search finds what it prevents. The traces are the shortest there are;
//! `--nocapture` prints them.

use model::replication::properties::*;
use model::replication::*;
use model::search::{Verdict, search};

const STATES_MAX: usize = 5_000_000;

fn pool(rules: Rules, budget: Budget) -> Replication {
    Replication {
        rules,
        min_size: 2,
        writes: 1,
        places: vec![vec![0, 1, 2]],
        in_sync: vec![0, 1, 2],
        budget,
    }
}

fn faults(crashes: u8, cuts: u8, expiries: u8) -> Budget {
    Budget {
        crashes,
        cuts,
        expiries,
        ..Budget::default()
    }
}

/// With the rules whole the same bounds are searched in tests/replication.rs, or here when asked.
#[track_caller]
fn caught(model: Replication, expected: &[&str]) -> Vec<Action> {
    let report = search(&model, STATES_MAX);
    let Verdict::Broken {
        property,
        trace,
        state,
    } = report.verdict
    else {
        panic!("not caught in {} states", report.states)
    };
    println!("after {} states: {property}", report.states);
    for action in &trace {
        println!("    {action:?}");
    }
    assert!(expected.contains(&property), "{property}: {state:#?}");
    trace
}

#[test]
fn acknowledged_before_a_member_is_durable() {
    let rules = Rules {
        ack_before_durable: true,
        ..Rules::default()
    };
    let two = Replication {
        places: vec![vec![0, 1]],
        in_sync: vec![0, 1],
        ..pool(rules, faults(2, 0, 0))
    };
    caught(two, &[READS_ARE_NEW, PRIMARY_HAS_ALL]);
}

#[test]
fn marked_down_before_the_lease_ends() {
    let rules = Rules {
        down_before_lease_end: true,
        ..Rules::default()
    };
    caught(pool(rules, faults(0, 0, 0)), &[ONE_SERVES]);
}

#[test]
fn a_primary_from_outside_in_sync() {
    let rules = Rules {
        primary_outside_in_sync: true,
        ..Rules::default()
    };
    caught(
        pool(rules, faults(1, 0, 1)),
        &[IN_SYNC_HAVE_ALL, IN_SYNC_ARE_WHOLE, PRIMARY_HAS_ALL],
    );
}

#[test]
fn shrunk_below_min_size() {
    let rules = Rules {
        shrink_below_min_size: true,
        ..Rules::default()
    };
    caught(pool(rules, faults(2, 0, 0)), &[MIN_SIZE_COPIES]);
}

#[test]
fn a_learner_added_before_it_is_full() {
    let rules = Rules {
        add_before_full: true,
        ..Rules::default()
    };
    caught(
        pool(rules, faults(1, 0, 0)),
        &[IN_SYNC_HAVE_ALL, IN_SYNC_ARE_WHOLE],
    );
}

/// Finding F8: the entries that it lacked are there, a write that was acknowledged meanwhile is still on its way.
#[test]
fn a_learner_added_without_what_was_acknowledged_meanwhile() {
    let rules = Rules {
        add_when_caught_up_once: true,
        ..Rules::default()
    };
    caught(pool(rules, faults(1, 0, 0)), &[IN_SYNC_HAVE_ALL]);
}

#[test]
fn counted_from_the_commit_on() {
    let rules = Rules {
        count_after_commit: true,
        ..Rules::default()
    };
    let trace = caught(pool(rules, faults(1, 0, 0)), &[IN_SYNC_HAVE_ALL]);
    assert!(trace.iter().any(|a| matches!(a, Action::Commit { .. })));
}

/// Findings F1 and F6: the object is ahead of the log, or undone, when the member becomes primary.
#[test]
fn a_member_of_in_sync_caught_up_in_place() {
    let rules = Rules {
        rewind_in_sync: true,
        ..Rules::default()
    };
    caught(pool(rules, faults(1, 1, 1)), &[READS_ARE_THE_LOG]);
}

/// Finding F2.
#[test]
fn an_interval_kept_by_a_boot() {
    let rules = Rules {
        keep_interval_at_boot: true,
        ..Rules::default()
    };
    let one = Replication {
        min_size: 1,
        writes: 2,
        places: vec![vec![0, 1]],
        in_sync: vec![0],
        ..pool(rules, faults(1, 0, 0))
    };
    caught(one, &[EQUAL_VERSIONS]);
}

/// Finding F3: the proposal of a process that ended, found again by its value.
#[test]
fn a_proposal_that_outlives_its_process() {
    let rules = Rules {
        keep_interval_at_boot: true,
        ..Rules::default()
    };
    let one = Replication {
        min_size: 1,
        places: vec![vec![0, 1]],
        in_sync: vec![0],
        ..pool(rules, faults(1, 0, 0))
    };
    let trace = caught(one, &[IN_SYNC_HAVE_ALL]);
    assert!(trace.contains(&Action::CommitOrphan));
}

/// Finding F7.
#[test]
fn the_old_primary_reads_while_it_hands_over() {
    let rules = Rules {
        read_during_hand_over: true,
        ..Rules::default()
    };
    let moving = Replication {
        places: vec![vec![0, 1], vec![2, 1]],
        in_sync: vec![0, 1],
        ..pool(
            rules,
            Budget {
                moves: 1,
                ..Budget::default()
            },
        )
    };
    caught(moving, &[ONE_SERVES]);
}

/// Finding F5.
#[test]
fn info_of_what_is_not_durable() {
    let rules = Rules {
        info_before_durable: true,
        ..Rules::default()
    };
    caught(pool(rules, faults(0, 1, 0)), &[IN_SYNC_HAVE_ALL]);
}

/// Finding F9, which the search found: two Queries' answers reach one connection.
#[test]
fn answers_on_any_connection() {
    let rules = Rules {
        answer_on_any_connection: true,
        ..Rules::default()
    };
    caught(
        pool(rules, faults(1, 1, 0)),
        &[IN_SYNC_HAVE_ALL, IN_SYNC_ARE_WHOLE],
    );
}

/// Finding F10, which the search found: the PG waits for an OSD that is lost, while one that has everything is up.
#[test]
fn a_primary_that_is_down_committed() {
    let rules = Rules {
        commit_a_primary_that_is_down: true,
        ..Rules::default()
    };
    let budget = Budget {
        losses: 1,
        ..faults(1, 0, 0)
    };
    let report = search(&pool(rules, budget), STATES_MAX);
    let Verdict::DeadEnd { trace, state } = report.verdict else {
        panic!("not caught in {} states: {:#?}", report.states, report.verdict)
    };
    println!("after {} states: a dead end", report.states);
    for action in &trace {
        println!("    {action:?}");
    }
    assert!(
        trace.iter().any(|a| matches!(a, Action::LoseDisk { .. })),
        "{state:#?}"
    );
}
