//! Long random sequences against the reference model, with checkpoints, pauses and clean restarts between,
//! shrunk when they fail.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod common;

use common::*;
use io::disk::sim::Dice;
use proptest::prelude::*;
use store::Error;

fn run(steps: &[u64]) {
    let disk = fresh();
    let mut store = open(&disk);
    let mut model = Model::default();
    let mut g = Generator::new(0);
    store.queue(Generator::first()).unwrap();
    model = model.after(&Generator::first()).unwrap();
    for (i, seed) in steps.iter().enumerate() {
        g.dice = Dice::new(*seed);
        match seed % 16 {
            0 => drop(store.pump()),
            1 => drop((store.pump_log(), store.pump_helper())),
            2 => drop((0..20).map(|_| store.pump()).collect::<Vec<_>>()),
            3 if seed % 64 == 3 => store.checkpoint().unwrap(),
            3 if seed % 64 == 19 => {
                store.close().unwrap();
                check(&disk, "after a clean end");
                store = open(&disk);
            }
            3 => store.kick(),
            _ => {
                let t = g.transaction();
                match (store.queue(t.clone()), model.after(&t)) {
                    (Ok(_), Some(m)) => model = m,
                    (Err(e), None) => assert!(e.is_refusal(), "step {i}: {e}"),
                    (Err(Error::NoSpace { .. } | Error::TooBig { .. }), Some(_)) => {}
                    (r, m) => panic!("step {i}: {r:?}, the model says {}", m.is_some()),
                }
            }
        }
        if i % 8 == 0 {
            compare(&store, &model, &format!("step {i}"));
        }
    }
    compare(&store, &model, "at the end");
    drop(store);
    // Dropped, not closed: what was not durable may be gone, the rest must be sound.
    check(&disk, "after a drop");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn behaves_as_the_model(steps in prop::collection::vec(any::<u64>(), 1..250)) {
        run(&steps);
    }
}
