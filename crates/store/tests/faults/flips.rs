//! Single flipped bits: in every data block, all over the log, and all over the index.
//!
//! What must hold: what is read is what was written, or an error. A bad data block is named by object and
//! offset and harms no other; a damaged log or index is refused or the damage is an error when met.

use crate::common::*;
use io::disk::sim::{Dice, SimDisk, Survival};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use store::{Error, Store};

const BLOCK: u64 = 4096;
const LOG: u64 = 64 << 10;
const DATA: u64 = LOG + (256 << 10);

/// A store full of things; the second half only in its log when `log` says so.
fn filled(seed: u64, log: bool) -> (SimDisk, Vec<Model>) {
    let disk = fresh();
    let mut store = open(&disk);
    let mut g = Generator::new(seed);
    let mut history = vec![Model::default()];
    let mut queue = |store: &mut Store, t: types::Transaction| {
        if let Some(m) = history.last().unwrap().after(&t)
            && let Ok(seq) = store.queue(t)
        {
            history.push(m);
            store.wait(seq).unwrap();
        }
    };
    queue(&mut store, Generator::first());
    for _ in 0..60 {
        queue(&mut store, g.transaction());
    }
    store.checkpoint().unwrap();
    if log {
        for _ in 0..6 {
            queue(&mut store, g.transaction());
        }
        return (disk.survivor_of(Survival::Nothing), history);
    }
    drop(store);
    (disk, history)
}

/// Objects and offsets of blocks that cannot be read; all others must be as the model says.
fn bad_blocks(store: &Store, model: &Model, what: &str) -> BTreeSet<(String, u64)> {
    let mut bad = BTreeSet::new();
    for (oid, o) in &model.objects {
        let name = oid.object.to_string();
        for (i, wanted) in o.data.chunks(BLOCK as usize).enumerate() {
            let at = i as u64 * BLOCK;
            match store.read(oid, at, BLOCK) {
                Ok(data) => assert_eq!(data, wanted, "{what}: {name} at {at}"),
                Err(Error::Corrupt { object, offset }) => {
                    assert_eq!((&object, offset), (&name, at), "{what}");
                    bad.insert((object, offset));
                }
                Err(e) => panic!("{what}: {e}"),
            }
        }
    }
    bad
}

#[test]
fn a_bit_in_any_data_block_is_found_and_named() {
    let (disk, history) = filled(13, false);
    let model = history.last().unwrap();
    let blocks = (disk.content("block").len() as u64 - DATA) / BLOCK;
    let (mut dice, mut found) = (Dice::new(1), BTreeSet::new());
    let mut used = 0;
    for b in 0..blocks {
        let s = disk.copy();
        let at = DATA + b * BLOCK + dice.below(BLOCK);
        s.flip("block", at, dice.below(8) as u8);
        let what = format!("bit flipped at {at}");
        let bad = bad_blocks(&open(&s.copy()), model, &what);
        let report = Store::check_on(Arc::new(s), &options()).unwrap();
        assert_eq!(report.problem_count, bad.len() as u64, "{what}: {report:?}");
        used += u64::from(!bad.is_empty());
        found.extend(bad);
    }
    let mut data = 0;
    let store = open(&disk.copy());
    for oid in model.objects.keys() {
        data += store.stat(oid).unwrap().allocated / BLOCK;
    }
    println!("{used} of {blocks} blocks in use, {data} of objects");
    assert_eq!(found.len() as u64, data, "each block of each object was bad once");
    assert!(used > 20 && used < data, "some are shared");
}

#[test]
fn a_bit_in_the_log_is_refused_or_ends_it() {
    let (disk, history) = filled(6, true);
    let last = history.len() as u64 - 1;
    let used = |at: u64| {
        disk.content("block")[at as usize..(at + 512) as usize]
            .iter()
            .any(|b| *b != 0)
    };
    let sectors: Vec<u64> = (LOG..DATA).step_by(512).filter(|at| used(*at)).collect();
    let (mut refused, mut cut, mut dice) = (0, 0, Dice::new(2));
    for at in sectors {
        for _ in 0..10 {
            let s = disk.copy();
            let at = at + dice.below(512);
            s.flip("block", at, dice.below(8) as u8);
            match Store::open_on(Arc::new(s), &options(), nobody()) {
                Ok(store) => {
                    let k = store.queued();
                    // Damage of the very last batch cannot be told from one that a cut left unfinished.
                    assert!(k + 1 >= last, "bit flipped at {at}: {k} of {last}");
                    cut += u64::from(k < last);
                    compare(&store, &history[k as usize], "log flipped");
                }
                Err(Error::LogDamaged { .. }) => refused += 1,
                Err(e) => panic!("bit flipped at {at}: {e}"),
            }
        }
    }
    println!("log: {refused} refused, {cut} ended before the last batch");
    assert!(refused > 10 && cut > 0);
}

/// Everything that can be read is read; true if all of it is as the model says, false for an error.
fn all_right_or_error(store: &Store, model: &Model, what: &str) -> bool {
    let r = catch_unwind(AssertUnwindSafe(|| compare(store, model, what)));
    let Err(panic) = r else { return true };
    let text = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(text.contains("called `Result::unwrap()`"), "wrong data: {text}");
    false
}

/// As `filled`, with so much omap that opening the store does not read all of the index.
fn wide() -> (SimDisk, Model) {
    let disk = fresh();
    let mut store = open(&disk);
    let mut model = Model::default();
    let mut queue = |t: types::Transaction| {
        model = model.after(&t).unwrap();
        store.queue(t).unwrap();
    };
    queue(Generator::first());
    for n in 0..200u64 {
        let oid = oid(n % 5);
        let row = |k: u64| (format!("key{:06}", n * 10 + k).into(), vec![n as u8; 150].into());
        let mut t = types::Transaction::new(coll(0));
        t.ops.push(types::Op::Touch { oid: oid.clone() });
        t.ops.push(types::Op::OmapSet {
            oid,
            entries: (0..10).map(row).collect(),
        });
        queue(t);
    }
    store.close().unwrap();
    (disk, model)
}

/// Flips bits of every page that holds anything; counts what came of it.
fn flip_the_index(disk: &SimDisk, model: &Model, bits: u64) -> (u64, u64, u64) {
    let content = disk.content("index");
    let mut dice = Dice::new(3);
    let (mut refused, mut errors, mut harmless) = (0, 0, 0);
    for (i, page) in content.chunks(BLOCK as usize).enumerate() {
        for _ in 0..if page.iter().all(|b| *b == 0) { 0 } else { bits } {
            let s = disk.copy();
            let at = i as u64 * BLOCK + dice.below(BLOCK);
            s.flip("index", at, dice.below(8) as u8);
            let what = format!("bit flipped at {at}");
            match Store::open_on(Arc::new(s), &options(), nobody()) {
                Ok(store) if all_right_or_error(&store, model, &what) => harmless += 1,
                Ok(_) => errors += 1,
                Err(Error::Index { .. }) => refused += 1,
                Err(e) => panic!("{what}: {e}"),
            }
        }
    }
    (refused, errors, harmless)
}

#[test]
fn a_bit_in_the_index_is_never_wrong_data() {
    let (disk, history) = filled(7, false);
    let (refused, errors, harmless) = flip_the_index(&disk, history.last().unwrap(), 20);
    println!("small index: {refused} refused, {errors} errors, {harmless} without effect, none wrong");
    assert!(refused > 50);
    let (disk, model) = wide();
    let (refused, errors, harmless) = flip_the_index(&disk, &model, 3);
    println!("wide index: {refused} refused, {errors} errors, {harmless} without effect, none wrong");
    assert!(refused + errors > 200);
    // While it is served (with debug assertions the library walks all of its pages at open): what it has in its
    // cache is whole, what it has to read is an error.
    let (mut errors, mut harmless, mut dice) = (0, 0, Dice::new(4));
    let pages = disk.content("index").len() as u64 / BLOCK;
    for page in 1..pages {
        let s = disk.copy();
        let store = open(&s);
        s.flip("index", page * BLOCK + dice.below(BLOCK), 3);
        match all_right_or_error(&store, &model, "served") {
            true => harmless += 1,
            false => errors += 1,
        }
    }
    println!("served: {errors} errors, {harmless} without effect, none wrong");
    assert!(errors > 20);
}
