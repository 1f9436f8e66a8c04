//! The server dies at each of its effects in turn. What it answered is there afterwards; what it did not answer is there whole or not at
//! all; and it goes on.

use super::super::*;
use super::world::World;
use messages::fs::{Args, op};
use std::collections::BTreeSet;

/// A change, and what is to be seen of it: names of the root with what they may stand for.
struct Script {
    steps: Vec<(u32, &'static str, &'static str)>,
}

fn script() -> Script {
    Script {
        steps: vec![
            (op::MKDIR, "a", ""),
            (op::CREATE, "f", ""),
            (op::CREATE, "g", ""),
            (op::RENAME, "h", "f"),
            (op::UNLINK, "g", ""),
            (op::MKDIR, "b", ""),
            (op::RENAME, "b", "a"),
            (op::CREATE, "i", ""),
            (op::RENAME, "h", "i"),
            (op::RMDIR, "b", ""),
        ],
    }
}

/// Names after the first `n` steps.
fn after(n: usize) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    for (what, a, b) in script().steps.into_iter().take(n) {
        match what {
            op::MKDIR | op::CREATE => drop(names.insert(a)),
            op::UNLINK | op::RMDIR => drop(names.remove(a)),
            _ => {
                names.remove(b);
                names.insert(a);
            }
        }
    }
    names
}

/// The script, until `dies` effects are done. How many steps were answered.
fn run(w: &mut World, dies: usize) -> Option<usize> {
    let mut answered = 0;
    for (what, a, b) in script().steps {
        let args = match what {
            op::CREATE => Args::words(&[0o1101, 0o644, 0, 0, 0, u32::MAX]),
            _ => Args::words(&[0o755]),
        };
        let old = if b.is_empty() { (0, "") } else { (1, b) };
        let tid = w.ask(1, what, (1, a), old, args);
        while w.reply(1, tid).is_none() {
            if w.done >= dies {
                return Some(answered);
            }
            assert!(w.step(), "{a}: nothing goes on");
        }
        assert_eq!(w.reply(1, tid).unwrap().result, 0, "{a} {b}");
        answered += 1;
        if answered % 3 == 0 {
            w.m.wb.drain = true;
            w.apply(Event::Tick);
        }
    }
    None
}

#[test]
fn what_was_answered_is_there_after_a_death_at_any_effect() {
    let mut dies = 0;
    loop {
        let mut w = World::new(Options::default());
        w.settle();
        w.open(1);
        w.settle();
        w.done = 0;
        let outcome = run(&mut w, dies);
        let answered = outcome.unwrap_or(script().steps.len());
        w.restart();
        w.settle();
        assert_eq!(w.m.state(), MdsState::Active, "death after {dies}");
        let seen: BTreeSet<String> = w.list(1, 1).into_iter().collect();
        let is = |n: usize| seen.iter().map(String::as_str).collect::<BTreeSet<_>>() == after(n);
        assert!(
            is(answered) || is(answered + 1),
            "death after {dies}: {answered} answered, {seen:?}"
        );
        // It goes on, and dies once more.
        w.mkdir(1, 1, "z");
        w.restart();
        w.settle();
        assert!(w.lookup(1, 1, "z").is_some());
        if outcome.is_none() {
            break;
        }
        dies += 1;
    }
    assert!(dies > 25, "only {dies} effects");
}

#[test]
fn the_journal_stays_short() {
    let mut w = World::new(Options::default());
    w.settle();
    w.open(1);
    w.settle();
    let d = w.mkdir(1, 1, "d");
    let long = "x".repeat(200);
    for i in 0..9000 {
        w.ask(
            1,
            op::MKNOD,
            (d, &format!("{long}{i}")),
            (0, ""),
            Args::words(&[0o644]),
        );
        if i % 50 == 0 {
            w.settle();
        }
    }
    w.settle();
    assert!(w.pool.segments.len() <= 8, "{}", w.pool.segments.len());
    assert!(w.pool.head.is_some());
    w.restart();
    w.settle();
    assert_eq!(w.m.cached(d).unwrap().files, 9000);
}
