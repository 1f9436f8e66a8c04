//! How soon an OSD is known to be gone, and that nothing but its end is taken for that: two OSDs on two hosts, in the
//! simulation, on virtual time.

#![allow(clippy::unwrap_used)]

use io_sim::Process;
use simtest::cluster::{Cluster, OsdNode};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::sleep;

const OSDS: usize = 2;
const VICTIM: usize = 1;
/// Far less than what a lease has left, far more than a few messages take.
const SOON: Duration = Duration::from_millis(200);
/// An OSD that is gone holds its lease for so long at least: it is renewed twice a second.
const LEASED: Duration = Duration::from_millis(1200);

/// What happens to the victim, and to the network between both.
type Fault = fn(&Cluster, &OsdNode);

/// Brings both up with a clean pool, lets `fault` happen, and says when the victim was marked down within ten seconds, and
/// whether it held its lease then.
fn play(fault: Fault) -> Option<(Duration, bool)> {
    let run = |sim: io_sim::Sim| async move {
        let cluster = Rc::new(Cluster::create(&sim).await.unwrap());
        for _ in 0..OSDS {
            let node = cluster.add_osd(Duration::ZERO, 0).unwrap();
            cluster.start_osd(&node);
        }
        let up = |c: &Cluster, n: usize| c.view.osdmap().is_up(n as i32);
        while !(0..OSDS).all(|n| up(&cluster, n)) {
            sleep(Duration::from_millis(20)).await;
        }
        cluster.add_pool(2, 1, 8).await.unwrap();
        sleep(Duration::from_secs(5)).await;
        let victim = cluster.osd(VICTIM);
        let began = sim.elapsed();
        fault(&cluster, &victim);
        let mut down = None;
        while down.is_none() && sim.elapsed() - began < Duration::from_secs(10) {
            sleep(Duration::from_millis(5)).await;
            if !up(&cluster, VICTIM) {
                let leased = cluster.view.leased().contains(&victim.id);
                down = Some((sim.elapsed() - began, leased));
            }
        }
        assert_eq!(cluster.watchdog.wrongs(), Vec::<String>::new());
        down
    };
    // A thread of its own: std draws the keys of its maps once for each.
    std::thread::scope(|s| s.spawn(|| io_sim::run(1, None, run).unwrap()).join().unwrap())
}

#[test]
fn a_killed_process_is_known_to_be_gone_while_its_lease_lives() {
    let (after, leased) = play(|c, victim| c.kill_osd(victim, false, 0)).expect("marked down");
    assert!(after < SOON && leased, "after {after:?}, leased: {leased}");
}

#[test]
fn of_a_host_without_power_the_lease_decides() {
    let (after, leased) = play(|c, victim| c.kill_osd(victim, true, 0)).expect("marked down");
    assert!(after > LEASED && !leased, "after {after:?}, leased: {leased}");
}

#[test]
fn of_a_paused_process_the_lease_decides() {
    let paused: Fault = |c, victim| c.with_process(victim, Process::pause);
    let (after, leased) = play(paused).expect("marked down");
    assert!(after > LEASED && !leased, "after {after:?}, leased: {leased}");
}

#[test]
fn connections_that_break_kill_nobody() {
    let cut: Fault = |c, victim| {
        let other = c.osd(0).host;
        c.sim.net.cut(other, victim.host);
        c.sim.net.cut(victim.host, other);
    };
    assert_eq!(play(cut), None);
}

/// Each calls the other silent: one of them steps down by itself, after a second.
#[test]
fn a_firewall_that_resets_marks_nobody_down_who_holds_a_lease() {
    for at_once in [false, true] {
        let wall: Fault = match at_once {
            true => |c, victim| {
                let other = c.osd(0).host;
                c.sim.net.reject(other, victim.host, true);
                c.sim.net.cut(other, victim.host);
                c.sim.net.cut(victim.host, other);
            },
            false => |c, victim| c.sim.net.reject(c.osd(0).host, victim.host, true),
        };
        if let Some((after, _)) = play(wall) {
            assert!(after > Duration::from_secs(1), "{after:?}");
        }
    }
}

/// The kill's FIN meets the firewall: a reset is no proof.
#[test]
fn behind_a_firewall_the_lease_decides() {
    let killed: Fault = |c, victim| {
        c.sim.net.reject(c.osd(0).host, victim.host, true);
        c.kill_osd(victim, false, 0);
    };
    let (after, leased) = play(killed).expect("marked down");
    assert!(after > LEASED && !leased, "after {after:?}, leased: {leased}");
}
