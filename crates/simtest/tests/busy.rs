//! An OSD whose loop works for long, or hangs, while its process and its host live: three OSDs on three hosts, in the simulation, on
//! virtual time. Busy is not dead, and stuck is.

#![allow(clippy::unwrap_used)]

use simtest::cluster::Cluster;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;
use std::time::Duration;
use tokio::time::sleep;

const OSDS: usize = 3;
const VICTIM: i32 = 1;
const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(10);

/// What was seen of a cluster of which one OSD's loop was slow.
struct Seen {
    /// The victim was marked down, so long after its loop became slow.
    down: Option<Duration>,
    /// It left the configuration of a PG meanwhile.
    dropped: bool,
    /// Up and clean again, so long after its loop was fast again.
    healed: Option<Duration>,
}

/// The victim's turns take so much longer, for so long.
fn play(drag: Duration, time: Duration) -> Seen {
    let run = move |sim: io_sim::Sim| async move {
        let cluster = Rc::new(Cluster::create(&sim).await.unwrap());
        for _ in 0..OSDS {
            let node = cluster.add_osd(Duration::ZERO, 0).unwrap();
            cluster.start_osd(&node);
        }
        let up = |c: &Cluster, n: i32| c.view.osdmap().is_up(n);
        while !(0..OSDS as i32).all(|n| up(&cluster, n)) {
            sleep(TICK).await;
        }
        cluster.add_pool(3, 2, 8).await.unwrap();
        sleep(SECOND * 5).await;
        let whole = |c: &Cluster| c.view.state().pgs.iter().all(|(_, p)| p.in_sync.len() == OSDS);
        assert!(whole(&cluster));
        osd::probe::slow_down(VICTIM, Some(drag));
        let began = sim.elapsed();
        let (mut down, mut dropped) = (None, false);
        while sim.elapsed() < began + time {
            sleep(TICK).await;
            if !up(&cluster, VICTIM) && down.is_none() {
                down = Some(sim.elapsed() - began);
            }
            dropped |= !whole(&cluster);
        }
        osd::probe::slow_down(VICTIM, None);
        let ended = sim.elapsed();
        let mut healed = None;
        while healed.is_none() && sim.elapsed() < ended + SECOND * 60 {
            sleep(TICK).await;
            if up(&cluster, VICTIM) && whole(&cluster) {
                healed = Some(sim.elapsed() - ended);
            }
        }
        assert_eq!(cluster.watchdog.wrongs(), Vec::<String>::new());
        assert_eq!(*cluster.wrongs.borrow(), Vec::<String>::new());
        Seen {
            down,
            dropped,
            healed,
        }
    };
    // A thread of its own: std draws the keys of its maps once for each.
    std::thread::scope(|s| s.spawn(|| io_sim::run(1, None, run).unwrap()).join().unwrap())
}

/// Longer than the silence that ends a link, and than what a lease has left at its renewal.
#[test]
fn turns_that_take_long_mark_nobody_down_and_drop_no_copy() {
    for drag in [SECOND / 2, SECOND, SECOND * 2] {
        let seen = play(drag, SECOND * 60);
        assert_eq!(seen.down, None, "turns of {drag:?}");
        assert!(!seen.dropped, "turns of {drag:?}");
        assert!(seen.healed.is_some());
    }
}

#[test]
fn a_loop_that_hangs_is_known_within_five_seconds() {
    let seen = play(SECOND * 20, SECOND * 10);
    let down = seen.down.expect("marked down");
    assert!(down > SECOND * 3 && down < SECOND * 5, "{down:?}");
    // The turn that hangs ends ten seconds later.
    let healed = seen.healed.expect("it comes back");
    assert!(healed < SECOND * 20, "{healed:?}");
}

thread_local! {
    /// What this thread has logged, while it keeps that.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Where the log of every simulation in this process goes: to the thread that runs it.
struct Logged;

impl std::io::Write for Logged {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|kept| kept.iter_mut().for_each(|k| k.extend_from_slice(text)));
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One subscriber for the whole process. Of one for a thread alone tracing forgets lines: where it is the only one, a line
/// that another thread reaches first is taken for one that nobody wants, for good.
fn keep_logs() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let log = tracing_subscriber::fmt().with_ansi(false);
        log.with_writer(|| Logged).init();
    });
}

/// The log's lines about long turns.
fn long_turns(drag: Duration) -> Vec<String> {
    keep_logs();
    let run = move |sim: io_sim::Sim| async move {
        let cluster = Rc::new(Cluster::create(&sim).await.unwrap());
        osd::probe::slow_down(VICTIM, Some(drag));
        for _ in 0..OSDS {
            let node = cluster.add_osd(Duration::ZERO, 0).unwrap();
            cluster.start_osd(&node);
        }
        sleep(SECOND * 10).await;
        osd::probe::slow_down(VICTIM, None);
    };
    let run = move || {
        LOGGED.set(Some(Vec::new()));
        io_sim::run(1, None, run).unwrap();
        LOGGED.take().unwrap()
    };
    let text = std::thread::scope(|s| s.spawn(run).join().unwrap());
    let text = String::from_utf8(text).unwrap();
    let of_turns = text.lines().filter(|l| l.contains("a turn of the loop took"));
    of_turns.map(str::to_string).collect()
}

#[test]
fn a_long_turn_is_logged_with_what_it_did_once_a_second() {
    let lines = long_turns(SECOND / 4);
    // Some 40 turns in 10 s.
    assert!((5..=11).contains(&lines.len()), "{lines:#?}");
    assert!(
        lines
            .iter()
            .all(|l| l.contains("WARN") && l.contains("osd.1: a turn of the loop took 250 ms: ")),
        "{lines:#?}"
    );
    assert!(
        lines
            .iter()
            .skip(1)
            .all(|l| l.contains("long turns before it are not in the log")),
        "{lines:#?}"
    );
    assert_eq!(long_turns(SECOND / 20), Vec::<String>::new());
}

/// An operator's word, or a lease that ended, says nothing of the OSD: however often it was marked down, it is back at once.
/// It stayed away for 1 s, 2 s ... 60 s, and its copies with it.
#[test]
fn who_was_marked_down_without_fault_is_back_at_once() {
    let run = |sim: io_sim::Sim| async move {
        let cluster = Rc::new(Cluster::create(&sim).await.unwrap());
        for _ in 0..OSDS {
            let node = cluster.add_osd(Duration::ZERO, 0).unwrap();
            cluster.start_osd(&node);
        }
        let from = |c: &Cluster| c.view.osdmap().osd(VICTIM).map(|o| o.info.up_from);
        let up = |c: &Cluster| c.view.osdmap().is_up(VICTIM);
        while !up(&cluster) {
            sleep(TICK).await;
        }
        sleep(SECOND * 10).await;
        for _ in 0..8 {
            let (began, before) = (sim.elapsed(), from(&cluster));
            let ask = |_: &cluster::ClusterState| {
                cluster::Changes::one(cluster::Change::AskDown {
                    id: VICTIM,
                    up_from: before,
                })
            };
            cluster.change(ask).await.unwrap();
            while !up(&cluster) || from(&cluster) == before {
                sleep(TICK).await;
            }
            let away = sim.elapsed() - began;
            assert!(away < SECOND * 3, "{away:?}");
        }
    };
    std::thread::scope(|s| s.spawn(|| io_sim::run(1, None, run).unwrap()).join().unwrap())
}
