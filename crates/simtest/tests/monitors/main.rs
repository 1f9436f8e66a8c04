//! Monitors that the cluster state does not answer, in the simulation, where it goes away at will: all of them ([`stalled`]), or
//! some of three ([`cut_off`]).

#![allow(clippy::unwrap_used)]

mod cut_off;
mod stalled;

use auth::ClientAuth;
use bytes::Bytes;
use io_sim::Sim;
use messages::mon::{Body, MMonCommand, MMonCommandAck, PaxosHeader};
use net::ClientStream;
use simtest::cluster::Cluster;
use simtest::places::client_host;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

const HEALTH: &str = r#"{"prefix":"health","detail":"detail"}"#;
const NOOUT: &str = r#"{"prefix":"osd set","key":"noout"}"#;

/// A client with a session of one monitor, as the `ceph` tool is one.
struct Tool<A> {
    stream: ClientStream<A>,
    fsid: types::Uuid,
    tid: u64,
}

/// None: the monitor ended the session.
impl<A: ClientAuth> Tool<A> {
    fn new(stream: ClientStream<A>, cluster: &Cluster) -> Self {
        Self {
            stream,
            fsid: cluster.view.state().fsid,
            tid: 0,
        }
    }

    async fn send(&mut self, cmd: &str) -> Option<()> {
        self.tid += 1;
        let m = MMonCommand {
            fsid: self.fsid,
            cmd: vec![cmd.into()],
            input: Bytes::new(),
            paxos: PaxosHeader { version: 0 },
        };
        self.stream.send(m.message(self.tid)).await.ok()
    }

    /// The next answer: its number, code, and text.
    async fn answer(&mut self) -> Option<(u64, i32, String)> {
        loop {
            let m = self.stream.recv().await.ok()?;
            if m.kind == MMonCommandAck::KIND {
                let ack = MMonCommandAck::from_message(&m).unwrap();
                let text = format!("{} {}", ack.status, String::from_utf8_lossy(&ack.output));
                return Some((m.tid, ack.code, text));
            }
        }
    }

    async fn run(&mut self, cmd: &str) -> Option<(i32, String)> {
        self.send(cmd).await?;
        let (tid, code, text) = self.answer().await?;
        assert_eq!(tid, self.tid);
        Some((code, text))
    }
}

/// One seed's simulation in which `start` starts the monitors and `scene` plays on a client's host.
fn play<F: Future<Output = ()> + 'static>(
    start: impl AsyncFnOnce(&Sim, &Rc<Cluster>) + 'static,
    scene: impl FnOnce(Sim, Rc<Cluster>) -> F + 'static,
) {
    let done = io_sim::run(1, None, |sim: Sim| async move {
        let cluster = Rc::new(Cluster::create(&sim).await.unwrap());
        start(&sim, &cluster).await;
        sleep(Duration::from_secs(2)).await;
        let (end, ended) = oneshot::channel();
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
