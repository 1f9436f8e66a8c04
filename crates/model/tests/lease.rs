//! The lease: whoever believes in it is not marked down; and what goes wrong when a rule is left out.

use model::lease::{Action, Rules};
use model::search::{Verdict, search};

const STATES_MAX: usize = 1_000_000;

#[test]
fn who_believes_is_not_marked_down() {
    let report = search(&Rules::default(), STATES_MAX);
    println!(
        "lease: {} states, {} transitions",
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
fn counting_from_the_answer() {
    let trace = caught(Rules {
        from_answer: true,
        ..Rules::default()
    });
    assert!(trace.contains(&Action::Answer));
}

#[test]
fn renewing_what_has_ended() {
    let trace = caught(Rules {
        renew_ended: true,
        ..Rules::default()
    });
    assert!(!trace.contains(&Action::Boot));
}

#[test]
fn marking_down_before_the_end() {
    caught(Rules {
        down_before_end: true,
        ..Rules::default()
    });
}

#[test]
fn marking_down_what_has_booted_meanwhile() {
    let trace = caught(Rules {
        down_unfenced: true,
        ..Rules::default()
    });
    assert!(trace.contains(&Action::Boot));
}
