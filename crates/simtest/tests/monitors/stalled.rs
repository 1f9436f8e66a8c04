//! One monitor while the cluster state cannot be changed: what it knows it goes on saying, and what cannot be done it says
//! after a while.

use super::{HEALTH, NOOUT, Tool};
use auth::NoneClient;
use io_sim::Sim;
use messages::mon::{Body, MMonSubscribe, SubscribeItem};
use msgr::ClientConfig;
use net::ClientStream;
use simtest::cluster::Cluster;
use simtest::places::mon_addr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use types::{AuthName, EntityKind, Errno};

async fn connect(sim: &Sim, cluster: &Cluster, id: u64) -> Tool<NoneClient> {
    let entropy = net::entropy(sim.random(&format!("tool.{id}")));
    let addr = mon_addr();
    let auth = NoneClient {
        name: AuthName::new(EntityKind::Client, "admin"),
        global_id: 9000 + id,
    };
    let config = ClientConfig::new(EntityKind::Mon, addr, id as u32, entropy);
    let clock = sim.clock(Duration::ZERO, 0);
    let sock = addr.sock.unwrap();
    let stream = ClientStream::connect(sock, config, auth, clock).await.unwrap();
    Tool::new(stream, cluster)
}

fn play<F: Future<Output = ()> + 'static>(scene: impl FnOnce(Sim, Rc<Cluster>) -> F + 'static) {
    super::play(async |_: &Sim, cluster: &Rc<Cluster>| cluster.start_mon(), scene);
}

#[test]
fn without_a_majority_reads_go_on_and_changes_end_with_an_error() {
    play(|sim, cluster| async move {
        let mut tool = connect(&sim, &cluster, 1).await;
        let (code, text) = tool.run(HEALTH).await.unwrap();
        assert!(code == 0 && !text.contains("CLUSTER_STATE"), "{text}");
        cluster.etcd.set_down(true);
        // A change waits; its session's next question waits behind it, another session's does not.
        tool.send(NOOUT).await.unwrap();
        tool.send(HEALTH).await.unwrap();
        sleep(Duration::from_secs(8)).await;
        let mut other = connect(&sim, &cluster, 2).await;
        let asked = sim.elapsed();
        let (code, text) = other.run(HEALTH).await.unwrap();
        assert!(sim.elapsed() - asked < Duration::from_secs(1));
        assert_eq!(code, 0);
        assert!(text.contains("HEALTH_ERR"), "{text}");
        assert!(text.contains("CLUSTER_STATE_STALLED"), "{text}");
        let (code, text) = other.run(r#"{"prefix":"osd dump"}"#).await.unwrap();
        assert!(code == 0 && text.contains("epoch"), "{text}");
        // Maps as well.
        let want = MMonSubscribe {
            what: [("osdmap".into(), SubscribeItem { start: 0, flags: 1 })].into(),
            hostname: String::new(),
        };
        other.stream.send(want.message(0)).await.unwrap();
        let map = timeout(Duration::from_secs(1), other.stream.recv()).await;
        assert_eq!(map.unwrap().unwrap().kind, messages::mon::MOsdMap::KIND);
        // The change ends with an error that says what is known.
        let (tid, code, text) = tool.answer().await.unwrap();
        assert_eq!((tid, code), (2, Errno::ETIMEDOUT.code()), "{text}");
        assert!(text.contains("may still be done"), "{text}");
        let (tid, code, text) = tool.answer().await.unwrap();
        assert_eq!((tid, code), (3, Errno::ETIMEDOUT.code()), "{text}");
        assert!(text.contains("nothing was changed"), "{text}");
        cluster.etcd.set_down(false);
        sleep(Duration::from_secs(3)).await;
        let (_, text) = tool.run(HEALTH).await.unwrap();
        assert!(!text.contains("CLUSTER_STATE"), "{text}");
        // What was under way was done.
        assert!(text.contains("noout"), "{text}");
        assert_eq!(
            tool.run(r#"{"prefix":"osd unset","key":"noout"}"#)
                .await
                .unwrap()
                .0,
            0
        );
        let (_, text) = tool.run(HEALTH).await.unwrap();
        assert!(!text.contains("noout"), "{text}");
    });
}

#[test]
fn more_changes_than_can_wait_are_refused() {
    play(|sim, cluster| async move {
        let mut tool = connect(&sim, &cluster, 1).await;
        cluster.etcd.set_down(true);
        sleep(Duration::from_secs(1)).await;
        let most = mon::shell::commits::WAITING_MAX as u64;
        // One is under way; one more than can wait is refused at once.
        for _ in 0..most + 2 {
            tool.send(NOOUT).await.unwrap();
        }
        let (tid, code, text) = tool.answer().await.unwrap();
        assert_eq!((tid, code), (most + 2, Errno::EBUSY.code()), "{text}");
        cluster.etcd.set_down(false);
        for tid in 1..=most + 1 {
            let (at, code, text) = tool.answer().await.unwrap();
            assert_eq!((at, code), (tid, 0), "{text}");
        }
    });
}
