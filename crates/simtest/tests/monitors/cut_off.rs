//! Three monitors, of which some are cut off from the cluster state: clients are sent to one that follows it, and served by
//! those who are there where none does. With cephx, so that the monitors prove to each other that they are monitors.

use super::{HEALTH, NOOUT, Tool};
use auth::{CephxClient, KeyServerConfig};
use io_sim::Sim;
use messages::mon::{Body, MMonSubscribe, MOsdMap, SubscribeItem};
use msgr::ClientConfig;
use net::ClientStream;
use simtest::cluster::{Cluster, open_state};
use simtest::places::mon_host;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use types::{AuthName, EntityAddr, EntityKind};

const PORT: u16 = 3300;

fn host(n: usize) -> IpAddr {
    match n {
        0 => mon_host(),
        n => [10, 0, 0, 10 + n as u8].into(),
    }
}

fn addr(n: usize) -> EntityAddr {
    EntityAddr::msgr2(SocketAddr::new(host(n), PORT), 0)
}

fn start_mon(sim: &Sim, cluster: &Rc<Cluster>, n: usize) {
    let process = sim.clone();
    let (sim, cluster) = (sim.clone(), cluster.clone());
    let main = async move {
        let clock = sim.clock(Duration::ZERO, 0);
        let handle = open_state(&cluster.etcd, host(n), &clock).await.unwrap();
        let name = ["a", "b", "c"][n].to_string();
        let config = mon::MonConfig {
            registry: Default::default(),
            mgr_name: name.clone(),
            addr: addr(n),
            mgr_bind: SocketAddr::new(host(n), 0),
            msgr1: None,
            cephx: true,
            tickets: KeyServerConfig::default(),
            hostname: format!("host-{name}"),
            connections_max: net::CONNECTIONS_MAX,
            cluster: handle,
            clock,
            random: sim.random(&name),
            name,
        };
        let (ready, _at) = oneshot::channel();
        let (_keep, stop) = watch::channel(false);
        mon::serve(config, ready, stop).await.unwrap();
    };
    // It lives as long as the simulation.
    std::mem::forget(process.start(host(n), main));
}

type Client = Tool<CephxClient>;

/// None: the monitor lets it not in.
async fn connect(sim: &Sim, cluster: &Cluster, to: usize) -> Option<Client> {
    let state = cluster.view.state();
    let me = AuthName::new(EntityKind::Client, "admin");
    let auth = CephxClient::new(me.clone(), state.auth.get(&me).unwrap().key.clone());
    let random = sim.random(&format!("tool {:?}", sim.elapsed()));
    let config = ClientConfig::new(EntityKind::Mon, addr(to), 7, net::entropy(random));
    let clock = sim.clock(Duration::ZERO, 0);
    let stream = ClientStream::connect(addr(to).sock.unwrap(), config, auth, clock);
    let stream = timeout(Duration::from_secs(5), stream).await.ok()?.ok()?;
    Some(Tool::new(stream, cluster))
}

async fn is_open(tool: &mut Client) -> bool {
    tool.run(HEALTH).await.is_some()
}

/// With three monitors.
fn play<F: Future<Output = ()> + 'static>(scene: impl FnOnce(Sim, Rc<Cluster>) -> F + 'static) {
    let three = async |sim: &Sim, cluster: &Rc<Cluster>| {
        for n in 0..3 {
            start_mon(sim, cluster, n);
            seconds(1).await;
        }
    };
    super::play(three, scene);
}

async fn seconds(n: u64) {
    sleep(Duration::from_secs(n)).await;
}

#[test]
fn one_that_alone_is_cut_off_sends_its_clients_away_and_takes_them_again() {
    play(|sim, cluster| async move {
        let mut tool = connect(&sim, &cluster, 0).await.unwrap();
        assert!(is_open(&mut tool).await);
        cluster.etcd.cut(host(0), true);
        seconds(4).await;
        assert!(is_open(&mut tool).await, "elections of etcd take so long");
        seconds(6).await;
        assert!(!is_open(&mut tool).await);
        assert!(connect(&sim, &cluster, 0).await.is_none());
        // Elsewhere all goes on, and says who is missing.
        let mut other = connect(&sim, &cluster, 1).await.unwrap();
        assert_eq!(other.run(NOOUT).await.unwrap().0, 0);
        let (_, text) = other.run(HEALTH).await.unwrap();
        assert!(text.contains("1/3 mons down"), "{text}");
        assert!(!text.contains("CLUSTER_STATE"), "{text}");
        seconds(60).await;
        assert!(connect(&sim, &cluster, 0).await.is_none());
        assert!(is_open(&mut other).await, "its session has been left alone");
        cluster.etcd.cut(host(0), false);
        seconds(4).await;
        let mut tool = connect(&sim, &cluster, 0).await.unwrap();
        let (_, text) = tool.run(HEALTH).await.unwrap();
        assert!(text.contains("noout") && !text.contains("mons down"), "{text}");
    });
}

#[test]
fn where_none_follows_all_serve_what_was_known_last() {
    play(|sim, cluster| async move {
        let mut tools = Vec::new();
        for n in 0..3 {
            tools.push(connect(&sim, &cluster, n).await.unwrap());
        }
        cluster.etcd.set_down(true);
        // Long enough for a monitor that gave each asker a new identity to run out of them, and much asking.
        for _ in 0..12 {
            seconds(5).await;
            for tool in &mut tools {
                assert!(is_open(tool).await, "no session is ended");
            }
        }
        let asked = sim.elapsed();
        let mut late = connect(&sim, &cluster, 1).await.unwrap();
        assert!(
            sim.elapsed() - asked < Duration::from_secs(1),
            "and new ones are not kept waiting"
        );
        let (_, text) = late.run(HEALTH).await.unwrap();
        assert!(text.contains("CLUSTER_STATE_STALLED"), "{text}");
        cluster.etcd.set_down(false);
        seconds(3).await;
        assert_eq!(late.run(NOOUT).await.unwrap().0, 0);
    });
}

#[test]
fn one_that_can_ask_nobody_serves_after_a_pause() {
    play(|sim, cluster| async move {
        let mut tool = connect(&sim, &cluster, 0).await.unwrap();
        cluster.etcd.cut(host(0), true);
        for n in 1..3 {
            sim.net.block(host(0), host(n), true);
            sim.net.block(host(n), host(0), true);
        }
        seconds(11).await;
        assert!(!is_open(&mut tool).await, "it shall look for another one");
        let asked = sim.elapsed();
        let mut again = connect(&sim, &cluster, 0).await.unwrap();
        let took = sim.elapsed() - asked;
        assert!(
            took >= mon::lag::HESITATION,
            "others answer before it does: {took:?}"
        );
        assert!(took < Duration::from_secs(3), "before clients give up: {took:?}");
        seconds(60).await;
        assert!(
            is_open(&mut again).await,
            "it is sent away once, not again and again"
        );
        // The others can be asked again: one of them follows.
        sim.net.heal_links();
        seconds(8).await;
        assert!(!is_open(&mut again).await);
        assert!(connect(&sim, &cluster, 0).await.is_none());
    });
}

#[test]
fn a_client_that_comes_back_elsewhere_hears_what_it_missed() {
    play(|sim, cluster| async move {
        let want = |from: u64| MMonSubscribe {
            what: [(
                "osdmap".into(),
                SubscribeItem {
                    start: from,
                    flags: 0,
                },
            )]
            .into(),
            hostname: String::new(),
        };
        let mut tool = connect(&sim, &cluster, 2).await.unwrap();
        let epoch = u64::from(cluster.view.osdmap().epoch);
        tool.stream.send(want(epoch + 1).message(0)).await.unwrap();
        cluster.etcd.cut(host(2), true);
        let mut other = connect(&sim, &cluster, 0).await.unwrap();
        assert_eq!(other.run(NOOUT).await.unwrap().0, 0);
        // Its monitor cannot tell it, and ends the session.
        let ended = timeout(Duration::from_secs(15), tool.stream.recv())
            .await
            .unwrap();
        assert!(ended.is_err(), "{ended:?}");
        let mut tool = connect(&sim, &cluster, 1).await.unwrap();
        tool.stream.send(want(epoch + 1).message(0)).await.unwrap();
        let m = timeout(Duration::from_secs(2), tool.stream.recv())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(m.kind, MOsdMap::KIND);
    });
}
