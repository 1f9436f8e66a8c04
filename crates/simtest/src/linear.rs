//! Whether a history of one object is linearizable: every operation took effect at one moment between its call and its
//! answer, in an order that gives all the answers.
//!
//! Wing and Gong's search with Lowe's memory: try every operation that may come next, and never come twice to the same
//! set of operations done with the same object. Objects are independent of each other, so each is checked alone. An
//! operation without an answer took effect at any time after its call, or never.
//!
//! Bound: [`STEPS_MAX`] states, then the verdict is "unknown", which counts as failed.

use crate::model::{Ask, Object, Told};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// States looked at before giving up.
const STEPS_MAX: usize = 2_000_000;

/// One operation of a history. Times are of the simulation; equal ones overlap.
#[derive(Debug, Clone)]
pub struct Entry {
    pub client: u64,
    pub ask: Ask,
    pub called: u64,
    /// When, and what.
    pub told: Option<(u64, Told)>,
    /// The version that the answer named: a write's own, or of what a read saw.
    pub version: Option<u64>,
}

impl Entry {
    /// The object's version after this, where it was `before`; the error: no such answer is possible. `None` stands for one
    /// that nobody was told yet.
    fn version_after(&self, before: Option<u64>) -> Result<Option<u64>, ()> {
        match (&self.told, self.version, before) {
            (Some((_, Told::Saw(Some(_)))), Some(told), Some(before)) if told != before => Err(()),
            (Some((_, Told::Saw(Some(_)))), told, before) => Ok(told.or(before)),
            (Some((_, Told::Done)), told, _) => Ok(told),
            (Some(_), ..) => Ok(before),
            (None, ..) => Ok(if self.ask.is_read() { before } else { None }),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    Not,
    /// The search was given up.
    Unknown,
}

/// Where the search stands: operations done, and the object then.
struct Frame {
    object: Option<Object>,
    version: Option<u64>,
    /// The operation that led here.
    taken: usize,
    /// Candidates that were not tried.
    next: Vec<usize>,
}

struct Search<'a> {
    history: &'a [Entry],
    done: Vec<bool>,
    seen: HashSet<(Vec<u64>, u64)>,
}

impl Search<'_> {
    /// Operations that may come next: called before the earliest answer of those that are left.
    fn candidates(&self) -> Vec<usize> {
        let left = || (0..self.history.len()).filter(|i| !self.done[*i]);
        let answered = left().filter_map(|i| self.history[i].told.as_ref().map(|t| t.0));
        let Some(earliest) = answered.min() else {
            return Vec::new();
        };
        let mut out: Vec<usize> = left().filter(|i| self.history[*i].called <= earliest).collect();
        // The last is tried first: those with an answer, the earliest of them.
        out.sort_by_key(|i| std::cmp::Reverse(self.history[*i].told.as_ref().map_or(u64::MAX, |t| t.0)));
        out
    }

    fn is_over(&self) -> bool {
        self.history
            .iter()
            .zip(&self.done)
            .all(|(e, done)| *done || e.told.is_none())
    }

    fn is_new(&mut self, object: &Option<Object>, version: Option<u64>) -> bool {
        let mut bits = vec![0u64; self.done.len().div_ceil(64)];
        for (i, _) in self.done.iter().enumerate().filter(|(_, d)| **d) {
            bits[i / 64] |= 1 << (i % 64);
        }
        let mut h = DefaultHasher::new();
        if let Some(o) = object {
            (&o.data, &o.guard).hash(&mut h);
            o.omap.iter().chain(&o.attrs).for_each(|e| e.hash(&mut h));
            (1u8, version).hash(&mut h);
        }
        self.seen.insert((bits, h.finish()))
    }
}

pub fn check(history: &[Entry]) -> Verdict {
    let mut s = Search {
        history,
        done: vec![false; history.len()],
        seen: HashSet::new(),
    };
    let first = s.candidates();
    let mut stack = vec![Frame {
        object: None,
        version: None,
        taken: usize::MAX,
        next: first,
    }];
    while let Some(frame) = stack.last_mut() {
        if s.is_over() {
            return Verdict::Linearizable;
        }
        let Some(i) = frame.next.pop() else {
            let taken = frame.taken;
            stack.pop();
            if let Some(done) = s.done.get_mut(taken) {
                *done = false;
            }
            continue;
        };
        let entry = &history[i];
        let (object, told) = entry.ask.apply(&frame.object);
        if entry.told.as_ref().is_some_and(|(_, t)| *t != told) {
            continue;
        }
        let Ok(version) = entry.version_after(frame.version) else {
            continue;
        };
        s.done[i] = true;
        if !s.is_new(&object, version) {
            s.done[i] = false;
            continue;
        }
        if s.seen.len() > STEPS_MAX {
            return Verdict::Unknown;
        }
        let next = s.candidates();
        stack.push(Frame {
            object,
            version,
            taken: i,
            next,
        });
    }
    match history.iter().all(|e| e.told.is_none()) {
        true => Verdict::Linearizable,
        false => Verdict::Not,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn entry(called: u64, ask: Ask, told: Option<(u64, Told)>) -> Entry {
        Entry {
            client: 0,
            ask,
            called,
            told,
            version: None,
        }
    }
    fn write(called: u64, v: &'static str, end: Option<u64>) -> Entry {
        entry(called, Ask::WriteFull(v.into()), end.map(|e| (e, Told::Done)))
    }
    fn append(called: u64, v: &'static str, end: Option<u64>) -> Entry {
        entry(called, Ask::Append(v.into()), end.map(|e| (e, Told::Done)))
    }
    fn read(called: u64, v: &'static str, end: u64) -> Entry {
        let object = (!v.is_empty()).then(|| Object {
            data: v.into(),
            guard: Some(Bytes::from_static(v.as_bytes()).slice(..v.len().min(16))),
            ..Object::default()
        });
        entry(called, Ask::Read, Some((end, Told::Saw(object))))
    }
    fn read_data(called: u64, v: &'static str, end: u64) -> Entry {
        let object = Object {
            data: v.into(),
            ..Object::default()
        };
        entry(called, Ask::Read, Some((end, Told::Saw(Some(object)))))
    }

    #[test]
    fn what_happened_in_order_is() {
        let h = [
            write(1, "a", Some(2)),
            read(3, "a", 4),
            write(5, "b", Some(6)),
            read(7, "b", 8),
        ];
        assert_eq!(check(&h), Verdict::Linearizable);
        assert_eq!(check(&[]), Verdict::Linearizable);
        assert_eq!(check(&[read(1, "", 2)]), Verdict::Linearizable);
    }

    #[test]
    fn a_stale_read_is_not() {
        let h = [write(1, "a", Some(2)), write(3, "b", Some(4)), read(5, "a", 6)];
        assert_eq!(check(&h), Verdict::Not);
        let lost = [write(1, "a", Some(2)), read(3, "", 4)];
        assert_eq!(check(&lost), Verdict::Not);
    }

    #[test]
    fn concurrent_reads_may_see_either_and_never_turn_back() {
        let during = |first, second| {
            [
                write(1, "a", Some(2)),
                write(3, "b", Some(20)),
                read(4, first, 5),
                read(6, second, 7),
            ]
        };
        for (first, second, want) in [
            ("a", "a", Verdict::Linearizable),
            ("a", "b", Verdict::Linearizable),
            ("b", "b", Verdict::Linearizable),
            ("b", "a", Verdict::Not),
        ] {
            assert_eq!(check(&during(first, second)), want, "{first} {second}");
        }
    }

    #[test]
    fn without_an_answer_it_may_be_late_or_never() {
        let h = |see| {
            [
                write(1, "a", Some(2)),
                write(3, "b", None),
                read(4, "a", 5),
                read(60, see, 70),
            ]
        };
        assert_eq!(check(&h("a")), Verdict::Linearizable);
        assert_eq!(check(&h("b")), Verdict::Linearizable);
        assert_eq!(check(&h("c")), Verdict::Not);
        // Once seen it stays.
        let back = [
            write(1, "a", Some(2)),
            write(3, "b", None),
            read(4, "b", 5),
            read(6, "a", 7),
        ];
        assert_eq!(check(&back), Verdict::Not);
    }

    #[test]
    fn a_read_names_the_version_that_its_write_was_told() {
        let versions = |write_v: Option<u64>, read_v| {
            let mut h = [write(1, "a", Some(2)), read(3, "a", 4), read(5, "a", 6)];
            h[0].version = write_v;
            (h[1].version, h[2].version) = read_v;
            check(&h)
        };
        assert_eq!(versions(Some(7), (Some(7), Some(7))), Verdict::Linearizable);
        assert_eq!(versions(Some(7), (Some(8), Some(8))), Verdict::Not);
        assert_eq!(versions(None, (Some(8), Some(8))), Verdict::Linearizable);
        assert_eq!(versions(None, (Some(8), Some(9))), Verdict::Not);
    }

    #[test]
    fn a_counter_counts_once() {
        let add = |called, n, end: Option<u64>| {
            entry(called, Ask::Add("n".into(), n), end.map(|e| (e, Told::Done)))
        };
        let sum = |text: &'static str| {
            let object = Object {
                omap: [("n".to_owned(), Bytes::from(text))].into(),
                ..Object::default()
            };
            entry(20, Ask::Read, Some((21, Told::Saw(Some(object)))))
        };
        for (text, want) in [
            ("3", Verdict::Linearizable),
            ("8", Verdict::Linearizable),
            ("6", Verdict::Not),
            ("13", Verdict::Not),
        ] {
            assert_eq!(
                check(&[add(1, 3, Some(2)), add(3, 5, None), sum(text)]),
                want,
                "{text}"
            );
        }
    }

    #[test]
    fn an_append_happens_once() {
        let h = |see| {
            [
                append(1, "x", Some(9)),
                append(2, "y", None),
                read_data(10, see, 11),
            ]
        };
        for (see, want) in [
            ("x", Verdict::Linearizable),
            ("xy", Verdict::Linearizable),
            ("yx", Verdict::Linearizable),
            ("xx", Verdict::Not),
            ("y", Verdict::Not),
        ] {
            assert_eq!(check(&h(see)), want, "{see}");
        }
    }

    #[test]
    fn many_at_once_are_checked_in_time() {
        // 12 writers at once, again and again: without memory this would take for ever.
        let mut h = Vec::new();
        let names: Vec<&'static str> = vec!["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        for round in 0..6u64 {
            let at = round * 100;
            h.extend(names.iter().map(|n| write(at + 1, n, Some(at + 50))));
            h.push(read(at + 60, names[round as usize], at + 61));
        }
        assert_eq!(check(&h), Verdict::Linearizable);
        h.push(read(1000, "z", 1001));
        assert_ne!(check(&h), Verdict::Linearizable);
    }
}
