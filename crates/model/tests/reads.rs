//! Grants for reads of members: whoever believes in one has every acknowledged write; and what goes wrong when a rule is left
//! out.

use model::reads::{Action, Rules};
use model::search::{Verdict, search};

const STATES_MAX: usize = 5_000_000;

#[test]
fn who_may_read_has_every_acknowledged_write() {
    let report = search(&Rules::default(), STATES_MAX);
    println!(
        "reads: {} states, {} transitions",
        report.states, report.transitions
    );
    assert!(matches!(report.verdict, Verdict::Holds), "{report:#?}");
}

/// The broken rule is caught; gives the way to it.
fn caught(rules: Rules) -> Vec<Action> {
    let report = search(&rules, STATES_MAX);
    let Verdict::Broken { trace, .. } = report.verdict else {
        panic!("not caught: {rules:?}")
    };
    println!("{rules:?}: {} states, {trace:?}", report.states);
    trace
}

#[test]
fn no_margin_for_a_slow_clock() {
    let trace = caught(Rules {
        margin: 0,
        ..Rules::default()
    });
    assert!(trace.contains(&Action::Tick { lost: true }));
}

#[test]
fn counted_from_the_answer() {
    caught(Rules {
        from_answer: true,
        ..Rules::default()
    });
}

#[test]
fn removed_while_a_grant_runs() {
    caught(Rules {
        remove_at_once: true,
        ..Rules::default()
    });
}

#[test]
fn removed_unheard_by_a_new_primary() {
    let trace = caught(Rules {
        remove_unheard: true,
        ..Rules::default()
    });
    assert!(trace.contains(&Action::Lead));
}

#[test]
fn granted_while_its_removal_is_proposed() {
    caught(Rules {
        grant_while_proposed: true,
        ..Rules::default()
    });
}

#[test]
fn granted_by_a_primary_whose_lease_has_ended() {
    let trace = caught(Rules {
        grant_without_lease: true,
        ..Rules::default()
    });
    assert!(trace.contains(&Action::Move));
}

#[test]
fn kept_over_a_question_of_a_later_interval() {
    caught(Rules {
        keep_over_query: true,
        ..Rules::default()
    });
}
