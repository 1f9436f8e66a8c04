//! The simulation itself: that it is deterministic, and that its network and processes do what they say.

#![allow(clippy::unwrap_used)]

use bytes::BufMut;
use io::socket::{Listener, Stream};
use io_sim::{Process, Sim, Weather, run};
use std::cell::RefCell;
use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

fn host(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}

fn port(n: u8) -> SocketAddr {
    (host(n), 7).into()
}

async fn read(s: &Stream) -> std::io::Result<Vec<u8>> {
    loop {
        s.readable().await?;
        let mut buf = Vec::new();
        match s.try_read(&mut (&mut buf).limit(64)) {
            Ok(_) => return Ok(buf),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
}

async fn write(s: &Stream, mut data: &[u8]) -> std::io::Result<()> {
    while !data.is_empty() {
        s.writable().await?;
        match s.try_write(&[IoSlice::new(data)]) {
            Ok(n) => data = &data[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Gives back what it gets.
async fn echo(at: SocketAddr) {
    let acceptor = Listener::bind(at).unwrap().start().unwrap();
    loop {
        let (s, _) = acceptor.accept().await.unwrap();
        tokio::task::spawn_local(async move {
            while let Ok(data) = read(&s).await {
                if data.is_empty() || write(&s, &data).await.is_err() {
                    return;
                }
            }
        });
    }
}

type Log = Rc<RefCell<Vec<String>>>;

/// Sends numbers and notes what comes back.
async fn count(to: SocketAddr, log: Log) {
    let end = async {
        let s = Stream::connect(to).await?;
        let mut got = String::new();
        for n in 0..50 {
            write(&s, format!("{n},").as_bytes()).await?;
            while got.matches(',').count() <= n {
                let data = read(&s).await?;
                if data.is_empty() {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                got.push_str(std::str::from_utf8(&data).unwrap());
            }
            log.borrow_mut().push(format!("{n}"));
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(got, (0..50).map(|n| format!("{n},")).collect::<String>());
        Ok::<(), std::io::Error>(())
    };
    let end = end.await.map_err(|e| e.kind());
    log.borrow_mut().push(format!("{end:?}"));
}

async fn stormy(sim: Sim) -> (u64, u64, Vec<String>) {
    sim.net.set_weather(Weather {
        latency_us: (100, 9000),
        stall_ppm: 50_000,
        stall_us_max: 200_000,
        cut_ppm: 2_000,
    });
    let log = Log::default();
    let _server = sim.start(host(1), echo(port(1)));
    let clients: Vec<Process> = (2..6)
        .map(|n| sim.start(host(n), count(port(1), log.clone())))
        .collect();
    while clients.iter().any(Process::is_alive) {
        sleep(Duration::from_millis(10)).await;
    }
    let lines = log.borrow().clone();
    (sim.trace.hash().unwrap(), sim.trace.events(), lines)
}

/// In a thread of its own, as std draws the keys of `HashMap` once a thread.
fn in_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| s.spawn(f).join().unwrap())
}

#[test]
fn the_same_seed_is_the_same_run() {
    let runs = |seed| in_thread(move || run(seed, None, stormy).unwrap());
    let first = runs(5);
    assert!(first.1 > 100, "something happened");
    assert_eq!(first, runs(5));
    let others: Vec<_> = (6..20).map(runs).collect();
    assert!(others.iter().all(|o| o.0 != first.0));
    let broken = others.iter().flat_map(|o| &o.2).filter(|l| l.contains("Err"));
    let whole = others.iter().flat_map(|o| &o.2).filter(|l| l.contains("Ok"));
    assert!(
        broken.count() > 0 && whole.count() > 0,
        "cuts, and streams without one"
    );
}

#[test]
fn hash_maps_are_walked_as_the_seed_says() {
    let walk = |seed| {
        in_thread(move || {
            run(seed, None, |_| async {
                let map: std::collections::HashMap<u32, ()> = (0..100).map(|n| (n, ())).collect();
                map.into_keys().collect::<Vec<_>>()
            })
            .unwrap()
        })
    };
    assert_eq!(walk(1), walk(1));
    assert_ne!(walk(1), walk(2));
}

#[test]
fn nobody_listens_and_a_killed_server_is_noticed() {
    run(1, None, |sim| async move {
        let log = Log::default();
        let early = sim.start(host(2), count(port(1), log.clone()));
        sleep(Duration::from_millis(50)).await;
        assert!(!early.is_alive());
        assert_eq!(log.take(), ["Err(ConnectionRefused)"]);

        let server = sim.start(host(1), echo(port(1)));
        let client = sim.start(host(2), count(port(1), log.clone()));
        sleep(Duration::from_millis(50)).await;
        server.kill();
        sleep(Duration::from_millis(50)).await;
        assert!(!client.is_alive());
        let last = log.take().pop().unwrap();
        assert!(last.starts_with("Err"), "{last}");
        assert_eq!(sim.net.connections(), 0);
        // Its port is free again.
        let _again = sim.start(host(1), echo(port(1)));
        let client = sim.start(host(2), count(port(1), log.clone()));
        sleep(Duration::from_secs(5)).await;
        assert!(!client.is_alive());
        assert_eq!(log.take().pop().unwrap(), "Ok(())");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(sim.net.connections(), 0);
    })
    .unwrap();
}

/// Takes connections: from each of the first `read` bytes, and then nothing any more.
async fn hold(at: SocketAddr, read_max: usize) {
    let acceptor = Listener::bind(at).unwrap().start().unwrap();
    let mut held = Vec::new();
    loop {
        let (s, _) = acceptor.accept().await.unwrap();
        let mut got = 0;
        while got < read_max {
            got += read(&s).await.unwrap().len();
        }
        held.push(s);
    }
}

/// Connects, says two bytes, and notes how the stream ends.
async fn wait_for_end(to: SocketAddr, log: Log) {
    let end = async {
        let s = Stream::connect(to).await?;
        write(&s, b"ab").await?;
        let end = read(&s).await?;
        assert!(end.is_empty());
        // It stays what it was.
        sleep(Duration::from_secs(1)).await;
        read(&s).await
    };
    let end = end.await.map_err(|e| e.kind());
    log.borrow_mut().push(format!("{end:?}"));
}

/// A process that is gone ends its streams as Linux does: with a FIN where it had read all, else with a reset; a host
/// without power says nothing.
#[test]
fn the_end_of_a_process_is_told_from_a_reset() {
    for (read_max, power, said) in [
        (2, false, vec!["Ok([])"]),
        (0, false, vec!["Err(ConnectionReset)"]),
        (2, true, vec![]),
    ] {
        run(7, None, |sim| async move {
            let log = Log::default();
            let server = sim.start(host(1), hold(port(1), read_max));
            let _client = sim.start(host(2), wait_for_end(port(1), log.clone()));
            sleep(Duration::from_secs(1)).await;
            assert!(log.borrow().is_empty());
            server.pause();
            sleep(Duration::from_secs(60)).await;
            assert!(log.borrow().is_empty(), "who is paused ends nothing");
            if power {
                sim.net.power_off(host(1));
            }
            server.kill();
            sleep(Duration::from_secs(60)).await;
            assert_eq!(*log.borrow(), said);
        })
        .unwrap();
    }
}

#[test]
fn a_firewall_that_rejects_resets_what_speaks_and_refuses_what_is_new() {
    run(8, None, |sim| async move {
        let (silent, loud, late) = (Log::default(), Log::default(), Log::default());
        let _server = sim.start(host(1), hold(port(1), 2));
        let other: SocketAddr = (host(1), 8).into();
        let _echo = sim.start(host(1), echo(other));
        let _silent = sim.start(host(2), wait_for_end(port(1), silent.clone()));
        let _loud = sim.start(host(2), count(other, loud.clone()));
        sleep(Duration::from_millis(100)).await;
        sim.net.reject(host(2), host(1), true);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(loud.take().pop().unwrap(), "Err(ConnectionReset)");
        let _late = sim.start(host(2), count(other, late.clone()));
        sleep(Duration::from_millis(100)).await;
        assert_eq!(late.take(), ["Err(ConnectionRefused)"]);
        sim.net.reject(host(1), host(2), false);
        let _again = sim.start(host(2), count(other, late.clone()));
        sleep(Duration::from_secs(2)).await;
        assert_eq!(late.take().pop().unwrap(), "Ok(())");
        assert!(silent.borrow().is_empty(), "it went on all the time");
        // A cut is no end either.
        sim.net.cut(host(1), host(2));
        sleep(Duration::from_millis(100)).await;
        assert_eq!(silent.take(), ["Err(ConnectionReset)"]);
    })
    .unwrap();
}

#[test]
fn a_stream_that_aborts_on_its_close_is_reset() {
    run(9, None, |sim| async move {
        let log = Log::default();
        let _server = sim.start(host(1), async {
            let acceptor = Listener::bind(port(1)).unwrap().start().unwrap();
            let (s, _) = acceptor.accept().await.unwrap();
            assert_eq!(read(&s).await.unwrap(), b"ab");
            s.abort_on_close().unwrap();
        });
        let _client = sim.start(host(2), wait_for_end(port(1), log.clone()));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(*log.borrow(), ["Err(ConnectionReset)"]);
    })
    .unwrap();
}

#[test]
fn a_link_that_is_blocked_one_way_holds_and_loses_nothing() {
    for (from, to) in [(1, 2), (2, 1)] {
        run(3, None, |sim| async move {
            let log = Log::default();
            let _server = sim.start(host(1), echo(port(1)));
            let client = sim.start(host(2), count(port(1), log.clone()));
            sleep(Duration::from_millis(40)).await;
            sim.net.block(host(from), host(to), true);
            sleep(Duration::from_millis(20)).await;
            let before = log.borrow().len();
            assert!(before > 2);
            sleep(Duration::from_secs(20)).await;
            assert_eq!(log.borrow().len(), before, "nothing passes");
            sim.net.block(host(from), host(to), false);
            sleep(Duration::from_secs(10)).await;
            assert!(!client.is_alive());
            assert_eq!(log.borrow().last().unwrap(), "Ok(())");
        })
        .unwrap();
    }
}

#[test]
fn a_host_without_power_says_nothing_and_resets_when_it_is_back() {
    run(4, None, |sim| async move {
        let log = Log::default();
        let server = sim.start(host(1), echo(port(1)));
        let client = sim.start(host(2), count(port(1), log.clone()));
        sleep(Duration::from_millis(40)).await;
        sim.net.power_off(host(1));
        server.kill();
        sleep(Duration::from_secs(20)).await;
        assert!(client.is_alive(), "it was told nothing");
        // Its next request is on its way since; the host answers that it knows of no such connection.
        sim.net.power_on(host(1));
        sleep(Duration::from_secs(10)).await;
        assert!(!client.is_alive());
        assert_eq!(log.borrow().last().unwrap(), "Err(ConnectionReset)");
    })
    .unwrap();
}

#[test]
fn a_paused_process_does_nothing_and_its_timers_go_on() {
    run(5, None, |sim| async move {
        let ticks = Rc::new(RefCell::new(Vec::new()));
        let noted = ticks.clone();
        let start = Instant::now();
        let p = sim.start(host(1), async move {
            for _ in 0..10 {
                sleep(Duration::from_millis(100)).await;
                noted.borrow_mut().push(start.elapsed().as_millis());
            }
        });
        sleep(Duration::from_millis(250)).await;
        p.pause();
        sleep(Duration::from_millis(750)).await;
        assert_eq!(*ticks.borrow(), [100, 200]);
        p.resume();
        sleep(Duration::from_millis(120)).await;
        assert_eq!(*ticks.borrow(), [100, 200, 1000, 1100]);
        p.kill();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(ticks.borrow().len(), 4);
        assert_eq!(Rc::strong_count(&ticks), 1, "what it had is dropped");
    })
    .unwrap();
}

#[test]
fn clocks_are_skewed_and_drift() {
    run(6, None, |sim| async move {
        let (true_, fast) = (
            sim.clock(Duration::ZERO, 0),
            sim.clock(Duration::from_secs(30), 1000),
        );
        let before = (true_.monotonic(), fast.monotonic());
        sleep(Duration::from_secs(100)).await;
        assert_eq!(true_.monotonic() - before.0, Duration::from_secs(100));
        assert_eq!(fast.monotonic() - before.1, Duration::from_millis(100_100));
        let ahead = fast.wall() - true_.wall();
        assert_eq!(ahead, Duration::from_millis(30_100));
    })
    .unwrap();
}

#[test]
fn nothing_waits_in_real_time() {
    let waited = run(7, None, |_| timeout_of_a_day()).unwrap();
    assert_eq!(waited, Duration::from_secs(86_400));
}

async fn timeout_of_a_day() -> Duration {
    let start = Instant::now();
    let day = Duration::from_secs(86_400);
    let out = timeout(day, std::future::pending::<()>()).await;
    assert!(out.is_err());
    start.elapsed()
}
