//! Prefetches: a hint that changes no read.

use super::*;
use crate::store::ObjectReads;

pub fn run<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    let mut data = pattern(100_000, 1).to_vec();
    case.submit([write("a", 0, &data), write("b", 0, &data)]);
    case.age();
    let ranges = [
        (0, 100_000),
        (5000, 10),
        (90_000, 50_000),
        (100_000, 10),
        (u64::MAX, 1),
    ];
    let tickets: Vec<Option<Ticket>> = ranges
        .iter()
        .map(|(at, len)| case.store().prefetch(&oid("a"), *at, *len))
        .collect();
    assert_eq!(tickets[3..], [None, None], "there is nothing behind the end");
    let tickets: Vec<Ticket> = tickets.into_iter().flatten().collect();
    let mut differ = tickets.clone();
    differ.dedup();
    assert_eq!(differ, tickets, "a ticket for each");
    // What is read is what the object holds then, whatever was fetched.
    case.submit([write("a", 50, "changed")]);
    data[50..57].copy_from_slice(b"changed");
    assert!(
        case.store().read(&oid("a"), 0, 200_000).unwrap() == data,
        "while it is on its way"
    );
    let store = case.store.as_mut().unwrap();
    let mut ended = case.subject.fetched(store);
    ended.sort();
    assert_eq!(ended, tickets, "each is told of once");
    assert!(case.store().read(&oid("a"), 0, 200_000).unwrap() == data);
    assert!(case.store().read_pieces(&oid("a"), 0, 200_000).unwrap().concat() == data);
    case.submit([remove("a"), write("a", 0, "other")]);
    assert_eq!(case.store().read(&oid("a"), 0, 200_000).unwrap(), "other");
    // Released, ended or not.
    let another = case.store().prefetch(&oid("b"), 0, 9);
    tickets
        .into_iter()
        .chain(another)
        .for_each(|t| case.store().release(t));
    case.holds(|s| assert_eq!(s.read(&oid("a"), 0, 200_000).unwrap(), "other"));
}
