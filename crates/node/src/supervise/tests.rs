//! Roles of the test's own under supervision: what they do in each run is written down.

use super::*;
use crate::kinds::KINDS;
use crate::role::Running;
use cluster::CreateOptions;
use io::{SystemClock, SystemRandom};
use metastore::{Embedded, Metastore, create_cluster};
use std::sync::atomic::{AtomicU32, Ordering};
use types::{EntityAddr, Uuid};

/// Only what hangs is ended by it.
const LONG: Duration = Duration::from_secs(120);

/// What one run of it does.
#[derive(Clone, Copy)]
enum Run {
    /// Serves until it is told to stop.
    Serve,
    /// Ends with an error before it serves.
    Refuse,
    /// Serves, and then one of its threads panics.
    Panic,
    /// Serves; a thread of it panics while another takes a while to end.
    PanicSlowly,
}

struct Fake {
    script: Vec<Run>,
    runs: Arc<AtomicU32>,
    /// Threads of it that run.
    alive: Arc<AtomicU32>,
}

impl Fake {
    fn new(script: &[Run]) -> Self {
        Self {
            script: script.to_vec(),
            runs: Arc::default(),
            alive: Arc::default(),
        }
    }
}

async fn play(
    run: Run,
    alive: Arc<AtomicU32>,
    ready: oneshot::Sender<()>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), String> {
    assert_eq!(
        alive.load(Ordering::SeqCst),
        0,
        "something of the last run is left"
    );
    if matches!(run, Run::Refuse) {
        return Err("no disk".into());
    }
    ready.send(()).unwrap();
    if matches!(run, Run::PanicSlowly) {
        alive.fetch_add(1, Ordering::SeqCst);
        io::thread::spawn("slow", move || {
            io::task::block_on(async { task::sleep(Duration::from_millis(300)).await }).unwrap();
            alive.fetch_sub(1, Ordering::SeqCst);
        })
        .unwrap();
    }
    if !matches!(run, Run::Serve) {
        io::thread::spawn("helper", || panic!("on purpose")).unwrap();
    }
    let _ = stop.wait_for(|s| *s).await;
    Ok(())
}

impl Role for Fake {
    fn name(&self) -> &str {
        "osd.7"
    }

    fn start(
        &self,
        group: &Group,
        ready: oneshot::Sender<()>,
        stop: watch::Receiver<bool>,
    ) -> std::io::Result<Running> {
        let n = self.runs.fetch_add(1, Ordering::SeqCst) as usize;
        let run = self.script[n.min(self.script.len() - 1)];
        let alive = self.alive.clone();
        task::spawn_group(group, "osd.7", move || play(run, alive, ready, stop))
    }
}

/// Looks after a role with this script while `body` runs, and stops it.
fn supervised<F: Future<Output = ()>>(
    script: &[Run],
    body: impl FnOnce(Board, ClusterHandle, Arc<AtomicU32>) -> F,
) {
    io::group::watch_panics();
    let role = Fake::new(script);
    let runs = role.runs.clone();
    task::block_on(async {
        let clock = SystemClock::shared();
        let store: Arc<dyn Metastore> = Arc::new(Embedded::in_memory(clock.clone()).unwrap());
        let addr = EntityAddr::msgr2(([127, 0, 0, 1], 3300).into(), 0);
        let options = CreateOptions::new(Uuid([1; 16]), "a", addr);
        create_cluster(&*store, &options, &*clock, &*SystemRandom::shared())
            .await
            .unwrap();
        let cluster = ClusterHandle::open(store, clock.clone()).await.unwrap().unwrap();
        let (stop, stopped) = watch::channel(false);
        let board = Board::default();
        let care = Care {
            cluster: cluster.clone(),
            clock,
            stopped,
            board: board.clone(),
            hostname: "host".into(),
            random: io::SystemRandom::shared(),
        };
        let role = run(Box::new(role), "osd", care);
        body(board, cluster, runs).await;
        // It may have ended by itself.
        let _ = stop.send(true);
        task::timeout(LONG, role.ended()).await.unwrap();
    })
    .unwrap();
}

async fn until(board: &Board, want: impl Fn(&Health) -> bool) -> Health {
    let mut news = board.0.subscribe();
    let found = news.wait_for(|all| all.get("osd.7").is_some_and(&want));
    let all = task::timeout(LONG, found).await.expect("in time");
    all.unwrap()["osd.7"].clone()
}

#[test]
fn one_that_panics_is_started_again_and_the_cluster_hears_of_it() {
    supervised(&[Run::Panic, Run::Serve], |board, cluster, _| async move {
        board.started("osd.7").await.unwrap();
        let health = until(&board, |h| h.restarts == 1 && h.phase == Phase::Serving).await;
        let why = health.last.unwrap();
        assert!(why.starts_with("thread helper panicked: on purpose ("), "{why}");
        let state = cluster.state();
        let line = state.log.entries.iter().any(|e| {
            e.level == LogLevel::Error
                && e.message
                    .contains("osd.7 failed and is started again: thread helper")
        });
        assert!(line, "{:?}", state.log.entries);
    });
}

#[test]
fn it_is_started_again_when_nothing_of_it_is_left() {
    supervised(&[Run::PanicSlowly, Run::Serve], |board, _, _| async move {
        let health = until(&board, |h| h.restarts == 1 && h.phase == Phase::Serving).await;
        assert!(health.last.unwrap().contains("on purpose"));
    });
}

#[test]
fn a_first_start_that_fails_is_not_tried_again() {
    supervised(&[Run::Refuse], |board, _, runs| async move {
        assert_eq!(board.started("osd.7").await, Err("no disk".into()));
        task::sleep(Duration::from_millis(50)).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn pauses_grow() {
    supervised(&[Run::Panic, Run::Refuse, Run::Serve], |board, _, _| async move {
        let clock = SystemClock::shared();
        let began = clock.monotonic();
        let health = until(&board, |h| h.restarts == 2 && h.phase == Phase::Serving).await;
        assert_eq!(health.failed_starts, 0, "it serves again");
        assert!(clock.monotonic() - began >= RESTART_AFTER * 3, "1 s and 2 s");
    });
}

#[test]
fn the_end_comes_when_nothing_is_left() {
    let health = |kind, phase, failed_starts| Health {
        kind,
        phase,
        restarts: 0,
        failed_starts,
        last: Some("no disk".into()),
    };
    use Phase::*;
    let check = |osds: &[(Phase, u32)], mon: (Phase, u32), want: Option<Result<&str, &str>>| {
        let mut all = BTreeMap::new();
        for (n, (phase, failed)) in osds.iter().enumerate() {
            all.insert(format!("osd.{n}"), health("osd", *phase, *failed));
        }
        all.insert("mon.a".to_string(), health("mon", mon.0, mon.1));
        let found = KINDS.iter().find_map(|k| verdict_of(k, &all));
        let found = found.map(|v| v.map_err(|e| e.to_string()));
        let want = want.map(|v| v.map_err(str::to_owned));
        assert_eq!(found, want, "{osds:?} {mon:?}");
    };
    let up = (Serving, 0);
    let gone = (Waiting, GIVE_UP);
    let lost = "nothing is left to serve: the OSDs of this machine cannot be started any more \
                (osd.0, after 6 attempts: no disk)";
    let lost_mon =
        "nothing is left to serve: the monitor cannot be started any more (mon.a, after 6 attempts: no disk)";
    let removed = "the OSDs of this machine were removed from the cluster";
    check(&[up, up], up, None);
    check(&[gone, up], up, None);
    check(&[gone, (Waiting, GIVE_UP - 1)], up, None);
    check(&[(Starting, GIVE_UP), gone], up, Some(Err(lost)));
    check(&[gone, (Stopped, 0)], up, Some(Err(lost)));
    check(&[(Stopped, 0), up], up, None);
    check(&[(Stopped, 0), (Stopped, 0)], up, Some(Ok(removed)));
    check(&[up], gone, Some(Err(lost_mon)));
    check(&[], up, None);
}
