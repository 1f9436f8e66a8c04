//! Records of the largest size that clients may make, and everything that has to carry them: what a log replays, what a member
//! that was away is given, a copy for a new member, a scrub's pieces. A bound on that way that is too small for one of them would keep
//! its PG from ever becoming active or clean: on virtual time, in the simulation.

#![allow(clippy::unwrap_used)]

use simtest::check;
use simtest::client::Rados;
use simtest::cluster::Cluster;
use simtest::largest::{OBJECT, attrs, row};
use simtest::model::{Ask, Object, Told, value};
use simtest::places::{POOL, client_host};
use simtest::wishes;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use types::osdmap::WEIGHT_IN;

/// One more than there are copies.
const OSDS: usize = 4;
const SIZE: u8 = 3;
const TICK: Duration = Duration::from_millis(20);
const CLEAN_MAX: Duration = Duration::from_secs(60);

type Question = (Ask, oneshot::Sender<Told>);

/// The cluster, its client, and what the object has to be.
struct Play {
    cluster: Rc<Cluster>,
    client: mpsc::UnboundedSender<Question>,
    object: Option<Object>,
    asked: u64,
}

impl Play {
    async fn begin(sim: io_sim::Sim) -> Self {
        let cluster = Rc::new(Cluster::create(&sim).await.unwrap());
        for _ in 0..OSDS {
            let node = cluster.add_osd(Duration::ZERO, 0).unwrap();
            cluster.start_osd(&node);
        }
        cluster.start_mon();
        while !(0..OSDS as i32).all(|n| cluster.view.osdmap().is_up(n)) {
            sleep(TICK).await;
        }
        cluster.add_pool(SIZE, 2, 1).await.unwrap();
        let (client, mut asks) = mpsc::unbounded_channel::<Question>();
        let its = cluster.clone();
        let process = sim.start(client_host(0), async move {
            let mut rados = Rados::connect(0, POOL, client_host(0), &its.sim).await;
            while let Some((ask, answer)) = asks.recv().await {
                let told = rados.run(OBJECT, &ask, None).await.unwrap().told;
                answer.send(told).unwrap();
            }
        });
        // For as long as the simulation.
        std::mem::forget(process);
        let play = Self {
            cluster,
            client,
            object: None,
            asked: 0,
        };
        play.becomes_clean("new").await;
        play
    }

    fn next(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    async fn ask(&mut self, ask: Ask, when: &str) {
        let (object, want) = ask.apply(&self.object);
        let (answer, told) = oneshot::channel();
        let what = ask.to_string();
        self.client.send((ask, answer)).unwrap();
        let told = told.await.unwrap();
        // Hundreds of megabytes are not for an assertion's text.
        assert!(told == want, "{when}: {what}: {told}, and not: {want}");
        self.object = object;
    }

    async fn becomes_clean(&self, when: &str) {
        let why = check::becomes_clean(&self.cluster, CLEAN_MAX).await;
        assert_eq!(why, None, "{when}");
    }

    fn kill(&self, osd: usize, power: bool) {
        self.cluster.kill_osd(&self.cluster.osd(osd), power, self.asked);
    }

    fn start(&self, osd: usize) {
        self.cluster.start_osd(&self.cluster.osd(osd));
    }

    /// All hosts lose their power: what is in the logs is replayed, and the PG peers anew.
    async fn restart_all(&mut self, when: &str) {
        (0..OSDS).for_each(|n| self.kill(n, true));
        sleep(Duration::from_secs(1)).await;
        (0..OSDS).for_each(|n| self.start(n));
        self.becomes_clean(when).await;
        self.ask(Ask::Read, when).await;
    }

    /// A member is away while the object gets all this.
    async fn while_one_is_away(&mut self, asks: Vec<Ask>, when: &str) {
        let member = self.member();
        self.kill(member, false);
        for ask in asks {
            self.ask(ask, when).await;
        }
        self.start(member);
        self.becomes_clean(when).await;
    }

    /// A member of the PG's, not its primary.
    fn member(&self) -> usize {
        let state = self.cluster.view.state();
        let (_, config) = state.pgs.iter().next().unwrap();
        let other = config.in_sync.iter().find(|o| **o != config.primary);
        *other.unwrap() as usize
    }

    /// A copy goes to who had none, and another comes back.
    async fn moves(&mut self, when: &str) {
        let member = self.member() as i32;
        for weight in [0, WEIGHT_IN] {
            self.cluster.set_weight(member, weight).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            self.becomes_clean(when).await;
        }
    }

    async fn end(mut self) {
        self.ask(Ask::Read, "in the end").await;
        let nothing = Vec::<String>::new();
        assert_eq!(wishes::last(&self.cluster).await, nothing);
        assert_eq!(self.cluster.watchdog.wrongs(), nothing);
        assert_eq!(*self.cluster.wrongs.borrow(), nothing);
        let nodes = self.cluster.osds.borrow().clone();
        nodes.iter().for_each(|n| self.cluster.kill_osd(n, false, 0));
        assert_eq!(check::copies_equal(&self.cluster, &Default::default()), nothing);
    }
}

/// All that can happen to an object that gets records of one sort.
fn play(make: fn(u64) -> Ask) {
    let run = move |sim: io_sim::Sim| async move {
        let mut p = Play::begin(sim).await;
        let n = p.next();
        p.ask(make(n), "written").await;
        p.restart_all("restarted behind the write").await;
        let (large, small) = (make(p.next()), value(0, p.next(), 300));
        let small = Ask::Write { at: 77, data: small };
        p.while_one_is_away(vec![large.clone(), small.clone()], "caught up by the log")
            .await;
        p.while_one_is_away(vec![small], "of which little was missed")
            .await;
        p.while_one_is_away(vec![Ask::Delete, large], "written anew meanwhile")
            .await;
        p.moves("placed elsewhere").await;
        p.restart_all("restarted in the end").await;
        p.end().await;
    };
    // A thread of its own: std draws the keys of its maps once for each.
    std::thread::scope(|s| s.spawn(|| io_sim::run(1, None, run).unwrap()).join().unwrap());
}

#[test]
fn all_attributes_that_an_object_may_have() {
    play(|n| Ask::SetAttrs(attrs(0, n)));
}

#[test]
fn the_largest_row_of_an_omap() {
    play(|n| row(0, n));
}

/// Catching up brings all of them together.
#[test]
fn all_of_them_in_one_object() {
    let run = |sim: io_sim::Sim| async move {
        let mut p = Play::begin(sim).await;
        let (a, b) = (p.next(), p.next());
        let all = vec![Ask::SetAttrs(attrs(0, a)), row(0, b)];
        p.while_one_is_away(all.clone(), "all of them").await;
        p.restart_all("restarted").await;
        p.while_one_is_away(all, "all of them again").await;
        p.moves("placed elsewhere").await;
        p.end().await;
    };
    std::thread::scope(|s| s.spawn(|| io_sim::run(1, None, run).unwrap()).join().unwrap());
}
