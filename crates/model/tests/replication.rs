//! The contract holds in every reachable state within these bounds, and the search reaches what it is for.
//!
//! `--ignored` runs larger bounds (minutes, gigabytes); `--nocapture` shows the numbers of states.

use model::replication::{Action, Budget, Replication, Rules, State};
use model::search::{Model, Verdict, search};

const STATES_MAX: usize = 100_000_000;

/// Three OSDs in sync, a pool of size 3 with min_size 2.
fn pool() -> Replication {
    Replication {
        rules: Rules::default(),
        min_size: 2,
        writes: 1,
        places: vec![vec![0, 1, 2]],
        in_sync: vec![0, 1, 2],
        budget: Budget::default(),
    }
}

/// A pool of size 2 whose place changes: the old primary leaves, a new OSD comes.
fn moving() -> Replication {
    Replication {
        places: vec![vec![0, 1], vec![2, 1]],
        in_sync: vec![0, 1],
        ..pool()
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

fn holds(name: &str, model: Replication) {
    let report = search(&model, STATES_MAX);
    println!(
        "{name}: {} states, {} transitions, depth {}",
        report.states, report.transitions, report.depth
    );
    assert!(
        matches!(report.verdict, Verdict::Holds),
        "{name}: {:#?}",
        report.verdict
    );
}

#[test]
fn a_crash_and_two_writes() {
    holds(
        "crash, 2 writes",
        Replication {
            writes: 2,
            budget: faults(1, 0, 0),
            ..pool()
        },
    );
}

#[test]
fn two_crashes() {
    holds(
        "2 crashes",
        Replication {
            budget: faults(2, 0, 0),
            ..pool()
        },
    );
}

#[test]
fn a_lease_ends() {
    holds(
        "lease, 2 writes",
        Replication {
            writes: 2,
            budget: faults(0, 0, 1),
            ..pool()
        },
    );
}

#[test]
fn a_crash_and_a_lease_that_ends() {
    holds(
        "crash, lease",
        Replication {
            budget: faults(1, 0, 1),
            ..pool()
        },
    );
}

#[test]
fn cuts() {
    holds(
        "2 cuts, 2 writes",
        Replication {
            writes: 2,
            budget: faults(0, 2, 0),
            ..pool()
        },
    );
    holds(
        "crash, cut",
        Replication {
            budget: faults(1, 1, 0),
            ..pool()
        },
    );
}

#[test]
fn min_size_one() {
    holds(
        "min_size 1, crash, 2 writes",
        Replication {
            writes: 2,
            min_size: 1,
            budget: faults(1, 0, 0),
            ..pool()
        },
    );
}

#[test]
fn a_disk_is_lost() {
    let budget = Budget {
        losses: 1,
        ..faults(1, 0, 0)
    };
    holds("disk lost, crash", Replication { budget, ..pool() });
}

#[test]
fn the_place_changes() {
    let budget = Budget {
        moves: 1,
        ..Budget::default()
    };
    holds(
        "move, 2 writes",
        Replication {
            writes: 2,
            budget,
            ..moving()
        },
    );
    let budget = Budget {
        moves: 1,
        ..faults(1, 0, 0)
    };
    holds("move, crash", Replication { budget, ..moving() });
}

/// A primary that begins at once with its own log would do as well, if members are undone in whole steps.
#[test]
fn trusting_its_own_log() {
    let rules = Rules {
        trust_own_log: true,
        ..Rules::default()
    };
    let budget = faults(1, 0, 0);
    holds(
        "own log, crash, 2 writes",
        Replication {
            rules,
            writes: 2,
            budget,
            ..pool()
        },
    );
}

#[test]
#[ignore = "takes minutes and gigabytes: run it by name after a change of the protocol or its model"]
fn bigger_bounds() {
    holds(
        "crash, cut, lease",
        Replication {
            budget: faults(1, 1, 1),
            ..pool()
        },
    );
    holds(
        "crash, cut, 2 writes",
        Replication {
            writes: 2,
            budget: faults(1, 1, 0),
            ..pool()
        },
    );
    let budget = Budget {
        moves: 1,
        ..faults(1, 1, 0)
    };
    holds(
        "move, crash, cut, 2 writes",
        Replication {
            writes: 2,
            budget,
            ..moving()
        },
    );
    holds(
        "min_size 1, 2 crashes",
        Replication {
            min_size: 1,
            budget: faults(2, 0, 0),
            ..pool()
        },
    );
}

/// The model with one more claim: that something never happens.
struct Never(Replication, fn(&State) -> bool);

impl Model for Never {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        self.0.initial()
    }
    fn next(&self, s: &State, out: &mut Vec<(Action, State)>) {
        self.0.next(s, out);
    }
    fn check(&self, s: &State) -> Result<(), &'static str> {
        self.0.check(s)?;
        match (self.1)(s) {
            true => Err("it happens"),
            false => Ok(()),
        }
    }
    fn goal(&self, s: &State) -> bool {
        self.0.goal(s)
    }
    fn is_fault(&self, action: Action) -> bool {
        self.0.is_fault(action)
    }
}

/// A search that finds nothing wrong must have been where things can go wrong.
fn happens(model: Replication, what: fn(&State) -> bool) -> Vec<Action> {
    match search(&Never(model, what), STATES_MAX).verdict {
        Verdict::Broken {
            property: "it happens",
            trace,
            ..
        } => trace,
        other => panic!("{other:#?}"),
    }
}

#[test]
fn an_unanswered_write_is_undone() {
    // Two histories of the same write: that of an old primary is not that which was acknowledged.
    happens(
        Replication {
            budget: faults(1, 0, 0),
            ..pool()
        },
        |s| {
            s.exposed.len() == 1
                && s.nodes.iter().any(|n| {
                    n.durable_log.same_version_other_write(&s.exposed)
                        || (!n.durable_log.is_empty() && !s.exposed.is_prefix_of(&n.durable_log))
                })
        },
    );
}

#[test]
fn an_osd_that_left_comes_back_into_the_set_and_has_its_place_again() {
    let trace = happens(
        Replication {
            budget: faults(1, 0, 0),
            ..pool()
        },
        |s| s.budget.crashes == 0 && s.config.in_sync == 7 && s.config.interval == 3 && s.config.primary == 0,
    );
    assert!(trace.iter().any(|a| matches!(a, Action::Crash { osd: 0, .. })));
    assert!(
        trace
            .iter()
            .any(|a| matches!(a, Action::Propose { flight, .. } if flight.primary == 0))
    );
}

#[test]
fn an_old_primary_answers_late() {
    // Its lease is over and another has its place when it hears that its write is durable everywhere: that is allowed.
    happens(
        Replication {
            budget: faults(0, 0, 1),
            ..pool()
        },
        |s| {
            s.config.interval == 2
                && s.nodes[0].acked == 1
                && s.nodes[1].acked == 0
                && s.nodes[0].view.config.interval == 1
                && s.exposed.len() == 1
                && s.nodes[1].serves(1)
        },
    );
}
