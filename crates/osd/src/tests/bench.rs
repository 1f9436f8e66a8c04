//! `tell osd.N bench` over a real store: in steps, and nothing of it stays.

use super::*;
use crate::asker::Asker;
use crate::bench::{Asked, POOL};
use crate::command::table::Told;
use net::ConnId;

const ASKER: Asker = Asker {
    conn: ConnId(1),
    tid: 1,
    form: forms::Form::Plain,
    prefix: "bench",
};

fn asked(bytes: u64, block: u64) -> Asked {
    Asked {
        bytes,
        block,
        object: 0,
        objects: 0,
    }
}

fn of_bench(osd: &Osd) -> bool {
    osd.store.engine.collections().iter().any(|c| c.pg.pool == POOL)
}

/// Steps until it is over, as the loop does; how many there were.
fn run(osd: &mut Osd) -> u32 {
    let mut steps = 0;
    while osd.bench_runs() {
        if osd.bench_timer().is_none() {
            let queued = osd.store.engine.queued();
            osd.store.engine.wait(queued).unwrap();
            assert!(osd.bench_timer().is_some(), "all is durable, and still it waits");
        }
        osd.bench_step();
        steps += 1;
        assert!(steps < 10_000, "it ends");
    }
    steps
}

#[test]
fn a_bench_goes_in_steps_and_leaves_nothing() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        let before = osd.store.engine.counters().transactions;
        for asked in [
            asked(4 << 20, 64 << 10),
            asked(10_000, 4096),
            asked(24 << 20, 12 << 20),
            Asked {
                object: 1 << 20,
                objects: 3,
                ..asked(1 << 20, 4096)
            },
        ] {
            assert!(matches!(osd.bench(asked.clone(), ASKER), Ok(Told::Later)));
            assert!(of_bench(&osd));
            // Another has to wait for it; and the state that moves on does not take what it writes away.
            assert_eq!(osd.bench(asked.clone(), ASKER).err().unwrap().0, Errno::EBUSY);
            osd.bench_step();
            osd.scan_for_leftovers();
            osd.on_tick();
            let steps = run(&mut osd);
            assert!(u64::from(steps) >= asked.bytes >> 22, "{asked:?}: {steps} steps");
            assert!(!of_bench(&osd), "{asked:?}");
        }
        let written = osd.store.engine.counters().transactions - before;
        assert!(written >= 64 + 3 + 6 + 256, "{written} transactions");
        close(osd);
    });
}

/// A kill in the middle of one: what it wrote is removed as what a deleted pool has left.
#[test]
fn what_a_kill_leaves_of_a_bench_is_removed() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        osd.bench(asked(1 << 20, 4096), ASKER).unwrap();
        osd.bench_step();
        osd.bench = None;
        close(osd);
        let mut osd = rig.osd().await;
        assert!(of_bench(&osd));
        let refused = osd.bench(asked(4096, 4096), ASKER).err().unwrap();
        assert_eq!(refused.0, Errno::EBUSY);
        osd.scan_for_leftovers();
        for _ in 0..100 {
            osd.on_tick();
        }
        assert!(!of_bench(&osd));
        osd.bench(asked(4096, 4096), ASKER).unwrap();
        run(&mut osd);
        close(osd);
    });
}

#[test]
fn nobody_fills_the_disk_with_it() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        let free = osd.store.engine.statfs().available;
        osd.told_options
            .insert("osd_bench_large_size_max_throughput".into(), free.to_string());
        let refused = osd.bench(asked(free, 4 << 20), ASKER).err().unwrap();
        assert_eq!(refused.0, Errno::ENOSPC);
        assert!(!osd.bench_runs() && !of_bench(&osd));
        close(osd);
    });
}
