//! Backtraces: written later, once, and not forgotten.

use super::*;
use crate::backtrace::{self, Step};
use crate::row::ROOT;

fn steps(w: &World, path: &[(u64, &'static str, u64)]) -> Vec<Step> {
    let one = |(dir, name, ino): &(u64, &'static str, u64)| Step {
        dir: *dir,
        name: bytes::Bytes::from_static(name.as_bytes()),
        version: w.m.cached(*ino).unwrap().version,
    };
    path.iter().map(one).collect()
}

#[test]
fn a_name_is_written_at_the_object_some_seconds_later() {
    let mut w = world();
    let d = w.mkdir(1, ROOT, "d");
    let f = w.make(1, d, "f");
    let gone = w.make(1, d, "gone");
    w.call(1, op::UNLINK, (d, "gone"), (0, ""), Args::default());
    w.tick(1);
    assert!(w.pool.traces.is_empty());
    w.tick(10);
    let trace = w.pool.traces[&f].clone();
    let path = steps(&w, &[(d, "f", f), (ROOT, "d", d)]);
    assert_eq!(trace.parent, backtrace::parent(f, &path, 2));
    assert_eq!((trace.pool, trace.object.as_str()), (2, "10000000001.00000000"));
    assert_eq!(w.pool.traces[&d].pool, 1);
    assert!(!w.pool.traces.contains_key(&gone));
    w.pool.traces.clear();
    w.call(1, op::RENAME, (ROOT, "g"), (d, "f"), Args::default());
    w.tick(10);
    let path = steps(&w, &[(ROOT, "g", f)]);
    assert_eq!(w.pool.traces[&f].parent, backtrace::parent(f, &path, 2));
    assert_eq!(w.pool.traces.len(), 1);
}

#[test]
fn one_that_is_due_survives_a_restart() {
    let mut w = world();
    let f = w.make(1, ROOT, "f");
    w.restart();
    w.settle();
    w.tick(10);
    assert!(w.pool.traces.contains_key(&f));
    w.tick(1);
    w.pool.traces.clear();
    w.restart();
    w.settle();
    w.tick(10);
    assert!(w.pool.traces.is_empty(), "it is written once");
}

#[test]
fn a_file_does_not_go_while_its_object_is_written() {
    let mut w = world();
    let f = w.make(1, ROOT, "f");
    w.clock += 10;
    w.apply(Event::Tick);
    while !matches!(w.effects.front(), Some(Effect::Trace(_))) {
        assert!(w.step());
    }
    let under_way = w.effects.pop_front().unwrap();
    w.call(2, op::UNLINK, (ROOT, "f"), (0, ""), Args::default());
    let all: Vec<u64> = w.clients[&1].caps.keys().copied().collect();
    for ino in all {
        w.m.drop_cap(1, ino);
        w.m.drop_cap(2, ino);
    }
    w.tick(1);
    assert!(w.pool.jobs.is_empty());
    w.effects.push_back(under_way);
    w.settle();
    w.tick(1);
    assert_eq!(w.pool.jobs.last().map(|j| j.ino), Some(f));
}

/// A placement group that does not serve stopped the whole file system, also what would have given room back.
#[test]
fn only_what_makes_one_due_waits_when_too_many_are() {
    let mut w = world();
    let d = w.mkdir(1, ROOT, "d");
    let f = w.make(1, d, "f");
    w.make(1, d, "g");
    let now = w.m.now.monotonic;
    (2..1 << 17).for_each(|n| w.m.traces.mark((1 << 50) + n, now));
    assert!(w.m.traces.is_full());
    let unlinked = w.call(1, op::UNLINK, (d, "f"), (0, ""), Args::default());
    assert_eq!(unlinked.result, 0);
    let mode = SetAttr {
        mask: setattr::MODE,
        mode: 0o600,
        ..SetAttr::default()
    };
    let set = w.call(1, op::SETATTR, (d, ""), (0, ""), Args::of_setattr(&mode));
    assert_eq!((set.result, w.m.cached(f).unwrap().nlink), (0, 0));
    let made = w.ask(1, op::MKDIR, (d, "sub"), (0, ""), Args::words(&[0o755]));
    let moved = w.ask(1, op::RENAME, (d, "h"), (d, "g"), Args::default());
    w.settle();
    assert!(w.reply(1, made).is_none() && w.reply(1, moved).is_none());
    // Those of real ones are written first.
    w.tick(10);
    w.tick(1);
    for tid in [made, moved] {
        assert_eq!(w.reply(1, tid).unwrap().result, 0);
    }
}
