//! The monitor while the cluster state cannot be changed: what it knows it goes on saying, and what cannot be done it says
//! after a while. In the simulation, where the state goes away at will.

#![allow(clippy::unwrap_used)]

use auth::NoneClient;
use bytes::Bytes;
use io_sim::Sim;
use messages::mon::{Body, MMonCommand, MMonCommandAck, MMonSubscribe, PaxosHeader, SubscribeItem};
use msgr::ClientConfig;
use net::ClientStream;
use simtest::cluster::{Cluster, client_host, mon_addr};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use types::{AuthName, EntityKind, Errno};

/// A client of the monitor, as the `ceph` tool is one.
struct Tool {
    stream: ClientStream<NoneClient>,
    fsid: types::Uuid,
    tid: u64,
}

impl Tool {
    async fn connect(sim: &Sim, cluster: &Cluster, id: u64) -> Self {
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
        Self {
            stream,
            fsid: cluster.view.state().fsid,
            tid: 0,
        }
    }

    async fn send(&mut self, cmd: &str) {
        self.tid += 1;
        let m = MMonCommand {
            fsid: self.fsid,
            cmd: vec![cmd.into()],
            input: Bytes::new(),
            paxos: PaxosHeader { version: 0 },
        };
        self.stream.send(m.message(self.tid)).await.unwrap();
    }

    /// The next answer: its number, code, and text.
    async fn answer(&mut self) -> (u64, i32, String) {
        loop {
            let m = self.stream.recv().await.unwrap();
            if m.kind != MMonCommandAck::KIND {
                continue;
            }
            let ack = MMonCommandAck::from_message(&m).unwrap();
            let text = format!("{} {}", ack.status, String::from_utf8_lossy(&ack.output));
            return (m.tid, ack.code, text);
        }
    }

    async fn run(&mut self, cmd: &str) -> (i32, String) {
        self.send(cmd).await;
        let (tid, code, text) = self.answer().await;
        assert_eq!(tid, self.tid);
        (code, text)
    }
}

const HEALTH: &str = r#"{"prefix":"health","detail":"detail"}"#;
const NOOUT: &str = r#"{"prefix":"osd set","key":"noout"}"#;

/// One seed's simulation in which `scene` plays on a client's host.
fn play<F: Future<Output = ()> + 'static>(scene: impl FnOnce(Sim, Rc<Cluster>) -> F + 'static) {
    let done = io_sim::run(1, None, |sim: Sim| async move {
        let cluster = Rc::new(Cluster::create(&sim).await.unwrap());
        cluster.start_mon();
        sleep(Duration::from_secs(2)).await;
        let (end, ended) = tokio::sync::oneshot::channel();
        let (inner, of) = (sim.clone(), cluster.clone());
        let _client = sim.start(client_host(0), async move {
            scene(inner, of).await;
            let _ = end.send(());
        });
        timeout(Duration::from_secs(300), ended)
            .await
            .is_ok_and(|e| e.is_ok())
    });
    assert!(done.unwrap(), "the scene did not come to its end");
}

#[test]
fn without_a_majority_reads_go_on_and_changes_end_with_an_error() {
    play(|sim, cluster| async move {
        let mut tool = Tool::connect(&sim, &cluster, 1).await;
        let (code, text) = tool.run(HEALTH).await;
        assert!(code == 0 && !text.contains("CLUSTER_STATE"), "{text}");
        cluster.etcd.set_down(true);
        // A change waits; its session's next question waits behind it, another session's does not.
        tool.send(NOOUT).await;
        tool.send(HEALTH).await;
        sleep(Duration::from_secs(8)).await;
        let mut other = Tool::connect(&sim, &cluster, 2).await;
        let asked = sim.elapsed();
        let (code, text) = other.run(HEALTH).await;
        assert!(sim.elapsed() - asked < Duration::from_secs(1));
        assert_eq!(code, 0);
        assert!(text.contains("HEALTH_ERR"), "{text}");
        assert!(text.contains("CLUSTER_STATE_STALLED"), "{text}");
        let (code, text) = other.run(r#"{"prefix":"osd dump"}"#).await;
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
        let (tid, code, text) = tool.answer().await;
        assert_eq!((tid, code), (2, Errno::ETIMEDOUT.code()), "{text}");
        assert!(text.contains("may still be done"), "{text}");
        let (tid, code, text) = tool.answer().await;
        assert_eq!((tid, code), (3, Errno::ETIMEDOUT.code()), "{text}");
        assert!(text.contains("nothing was changed"), "{text}");
        cluster.etcd.set_down(false);
        sleep(Duration::from_secs(3)).await;
        let (_, text) = tool.run(HEALTH).await;
        assert!(!text.contains("CLUSTER_STATE"), "{text}");
        // What was under way was done.
        assert!(text.contains("noout"), "{text}");
        assert_eq!(tool.run(r#"{"prefix":"osd unset","key":"noout"}"#).await.0, 0);
        let (_, text) = tool.run(HEALTH).await;
        assert!(!text.contains("noout"), "{text}");
    });
}

#[test]
fn more_changes_than_can_wait_are_refused() {
    play(|sim, cluster| async move {
        let mut tool = Tool::connect(&sim, &cluster, 1).await;
        cluster.etcd.set_down(true);
        sleep(Duration::from_secs(1)).await;
        let most = mon::commits::WAITING_MAX as u64;
        // One is under way; one more than can wait is refused at once.
        for _ in 0..most + 2 {
            tool.send(NOOUT).await;
        }
        let (tid, code, text) = tool.answer().await;
        assert_eq!((tid, code), (most + 2, Errno::EBUSY.code()), "{text}");
        cluster.etcd.set_down(false);
        for tid in 1..=most + 1 {
            let (at, code, text) = tool.answer().await;
            assert_eq!((at, code), (tid, 0), "{text}");
        }
    });
}
