//! An operator with the `ceph` tool: commands that go to the real monitor over the network, each a process of its own as
//! there, asked again until one was answered with success.
//!
//! What is checked: what was answered with success was so at a moment between question and answer; nothing is refused but
//! because the cluster state could not be changed in time, or because the PG has no primary just now.
//!
//! Not here: when (`chaos`); commands that are not the same when they are done twice.

use crate::cluster::Cluster;
use crate::places::{mon_addr, operator_host};
use crate::plan::Asked;
use auth::NoneClient;
use bytes::Bytes;
use cluster::ClusterState;
use io_sim::Sim;
use messages::mon::{Body, MMonCommand, MMonCommandAck, PaxosHeader};
use msgr::ClientConfig;
use net::{ClientError, ClientStream};
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use types::osdmap::{WEIGHT_IN, WEIGHT_OUT};
use types::{AuthName, EntityKind, Errno, OsdId, PgId, Uuid};

/// Longer than a monitor takes to say that it does not know.
const ATTEMPT_MAX: Duration = Duration::from_secs(40);
/// Before the next try.
const RETRY: Duration = Duration::from_millis(500);
/// All faults are over long before that.
const GIVE_UP: Duration = Duration::from_secs(150);
/// What a monitor's answer may say instead of success.
const NOT_NOW: [Errno; 3] = [Errno::ETIMEDOUT, Errno::EBUSY, Errno::EAGAIN];

/// Commands so far: each process has a name of its own.
#[derive(Debug, Default)]
pub struct Operator {
    commands: Cell<u64>,
    /// Answers that did not say what became of the command.
    pub doubts: Cell<u64>,
}

#[derive(Debug)]
struct Answer {
    code: i32,
    text: String,
}

/// `ceph osd out`, `in` and `reweight`.
pub async fn weigh(cluster: &Cluster, id: OsdId, weight: u32) -> Result<(), String> {
    if weight == WEIGHT_OUT {
        let cmd = format!(r#"{{"prefix":"osd out","ids":["{id}"]}}"#);
        return command(cluster, &cmd, |s| s.osdmap.weight(id) == WEIGHT_OUT).await;
    }
    if weight == WEIGHT_IN {
        // As Ceph does it, this leaves whoever is in at all as it is.
        let cmd = format!(r#"{{"prefix":"osd in","ids":["{id}"]}}"#);
        command(cluster, &cmd, |s| s.osdmap.weight(id) > WEIGHT_OUT).await?;
    }
    let share = f64::from(weight) / f64::from(WEIGHT_IN);
    let cmd = format!(r#"{{"prefix":"osd reweight","id":{id},"weight":{share:.17}}}"#);
    command(cluster, &cmd, |s| s.osdmap.weight(id) == weight).await
}

/// `ceph pg scrub` and its like; None: of the whole pool.
pub async fn scrub(cluster: &Cluster, pg: Option<PgId>, asked: Asked) -> Result<(), String> {
    let word = match (asked.deep, asked.repair) {
        (_, true) => "repair",
        (true, _) => "deep-scrub",
        _ => "scrub",
    };
    let cmd = match pg {
        Some(pg) => format!(r#"{{"prefix":"pg {word}","pgid":"{pg}"}}"#),
        None => format!(r#"{{"prefix":"osd pool {word}","who":["pool"]}}"#),
    };
    let wished = |s: &ClusterState| {
        let mut its = s.scrubs.iter().filter(|(p, _)| pg.is_none_or(|pg| pg == **p));
        its.any(|(_, w)| (w.deep, w.repair) == (asked.deep, asked.repair))
    };
    command(cluster, &cmd, wished).await
}

/// Asks until the answer is success. `happened`: what holds then.
async fn command(
    cluster: &Cluster,
    cmd: &str,
    happened: impl Fn(&ClusterState) -> bool,
) -> Result<(), String> {
    let began = cluster.sim.elapsed();
    let mut states = cluster.view.subscribe_state();
    while cluster.sim.elapsed() < began + GIVE_UP {
        let mut seen = happened(&states.borrow_and_update());
        let asked = timeout(ATTEMPT_MAX, one_process(cluster, cmd));
        tokio::pin!(asked);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut asked => break answer,
                Ok(()) = states.changed() => seen |= happened(&states.borrow_and_update()),
            }
        };
        seen |= happened(&states.borrow_and_update());
        let operator = &cluster.operators;
        match answer {
            Ok(Some(a)) if a.code == 0 && seen => return Ok(()),
            Ok(Some(a)) if a.code == 0 => {
                return Err(format!("{cmd}: answered with success and not done: {}", a.text));
            }
            Ok(Some(a)) if NOT_NOW.iter().any(|e| e.code() == a.code) => {
                operator.doubts.set(operator.doubts.get() + 1);
            }
            Ok(Some(a)) => return Err(format!("{cmd}: refused with {}: {}", a.code, a.text)),
            // No connection, or no answer on it.
            Ok(None) | Err(_) => operator.doubts.set(operator.doubts.get() + 1),
        }
        sleep(RETRY).await;
    }
    Err(format!("{cmd}: no answer for {GIVE_UP:?}"))
}

/// One call of the tool; None: its connection failed.
async fn one_process(cluster: &Cluster, cmd: &str) -> Option<Answer> {
    let number = cluster.operators.commands.get() + 1;
    cluster.operators.commands.set(number);
    let (sim, fsid, cmd) = (cluster.sim.clone(), cluster.view.state().fsid, cmd.to_owned());
    sim.trace.note(format_args!("operator #{number}: {cmd}"));
    let (end, ended) = oneshot::channel();
    let inner = sim.clone();
    let process = sim.start(operator_host(), async move {
        // Nobody hears it if it took too long.
        let _ = end.send(ask(&inner, number, fsid, cmd).await);
    });
    let killed = KilledAtEnd(process);
    let answer = ended.await.ok().and_then(Result::ok);
    drop(killed);
    sim.trace.note(format_args!("operator #{number}: {answer:?}"));
    answer
}

/// A call that nobody waits for any more ends.
struct KilledAtEnd(io_sim::Process);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        self.0.kill();
    }
}

async fn ask(sim: &Sim, number: u64, fsid: Uuid, cmd: String) -> Result<Answer, ClientError> {
    let entropy = net::entropy(sim.random(&format!("operator.{number}")));
    let addr = mon_addr();
    let auth = NoneClient {
        name: AuthName::new(EntityKind::Client, "admin"),
        global_id: 100_000 + number,
    };
    let config = ClientConfig::new(EntityKind::Mon, addr, number as u32, entropy);
    let clock = sim.clock(Duration::ZERO, 0);
    let sock = addr.sock.ok_or(ClientError::Closed)?;
    let mut stream = ClientStream::connect(sock, config, auth, clock).await?;
    let m = MMonCommand {
        fsid,
        cmd: vec![cmd],
        input: Bytes::new(),
        paxos: PaxosHeader { version: 0 },
    };
    stream.send(m.message(1)).await?;
    loop {
        let m = stream.recv().await?;
        if m.kind == MMonCommandAck::KIND
            && let Ok(ack) = MMonCommandAck::from_message(&m)
        {
            let (code, text) = (ack.code, ack.status);
            return Ok(Answer { code, text });
        }
    }
}
