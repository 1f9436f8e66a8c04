//! A client that follows the cluster state itself and takes no maps from OSDs: cut off from the cluster state it goes on asking
//! where the PGs were, for as long as that lasts. The product's own client (`client`) hears of a newer map with its first operation
//! elsewhere, and so hardly ever reads where an OSD has been replaced without knowing it.
//!
//! Sends an operation to the OSD that its map names, and again when that changes, when the connection breaks or nothing comes.
//! One operation at a time; a write keeps its number over all sends, unless it is told EAGAIN.

use auth::{Entropy, NoneClient};
use bytes::Bytes;
use client::{Operation, Outcome, Served, Step};
use io::Clock;
use io_sim::Trace;
use messages::osd::{MOSDOp, MOSDOpReply, flag, kind};
use metastore::ClusterHandle;
use msgr::ClientConfig;
use net::{ClientError, ClientStream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use types::osdmap::OsdMap;
use types::{
    AuthName, EntityAddr, EntityKind, EntityName, Errno, NOSNAP, ObjectLocator, OsdId, OsdReqId, PgId,
    PoolId, SPgId, Utime,
};

/// Without an answer for this long the connection is given up.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Global ids of these clients: theirs and this, above all that a monitor gives out in a run.
const FIRST_ID: u64 = 1_000_000;

type Maps = watch::Receiver<Arc<OsdMap>>;

pub struct Raw {
    id: u64,
    pool: PoolId,
    trace: Trace,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    maps: Maps,
    conns: BTreeMap<OsdId, Conn>,
    tid: u64,
}

struct Conn {
    addr: EntityAddr,
    stream: ClientStream<NoneClient>,
}

/// Where an operation goes now.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    pg: PgId,
    /// What was for a PG that split is sent again, even where the object stays in it.
    pg_num: u32,
    up: Vec<OsdId>,
    acting: Vec<OsdId>,
    primary: OsdId,
    /// Who is asked: the primary, or a copy.
    osd: OsdId,
    addr: EntityAddr,
}

/// `copy`: which of those that hold the PG, counted round; None: its primary.
fn target(map: &OsdMap, pool: PoolId, oid: &str, copy: Option<u64>) -> Option<(u32, Target)> {
    let (hash, pg) = map.object_to_pg(pool, b"", b"", oid.as_bytes())?;
    let sets = map.pg_to_up_acting(pg);
    let primary = sets.acting_primary;
    let all: Vec<OsdId> = sets.acting.iter().copied().filter(|o| map.is_up(*o)).collect();
    let osd = match copy {
        Some(n) if !all.is_empty() => all[n as usize % all.len()],
        _ => primary,
    };
    let addr = map
        .osd(osd)
        .filter(|_| map.is_up(osd))?
        .client_addrs
        .msgr2_or_first();
    let (up, acting) = (sets.up, sets.acting);
    Some((
        hash,
        Target {
            pg,
            pg_num: map.pool(pool).map_or(0, |p| p.pg_num),
            up,
            acting,
            primary,
            osd,
            addr,
        },
    ))
}

/// Completes when the operation has to be sent again.
async fn moved(mut maps: Maps, pool: PoolId, oid: &str, copy: Option<u64>, from: &Target) {
    loop {
        if maps.changed().await.is_err() {
            return std::future::pending().await;
        }
        let now = target(&maps.borrow_and_update(), pool, oid, copy).map(|t| t.1);
        if now.as_ref() != Some(from) {
            return;
        }
    }
}

impl Raw {
    pub fn new(
        id: u64,
        pool: PoolId,
        cluster: &ClusterHandle,
        clock: Arc<dyn Clock>,
        random: Arc<dyn io::Random>,
        trace: Trace,
    ) -> Self {
        Self {
            id,
            pool,
            trace,
            clock,
            entropy: net::entropy(random),
            maps: cluster.subscribe_osdmap(),
            conns: BTreeMap::new(),
            tid: 0,
        }
    }

    pub fn global_id(&self) -> u64 {
        FIRST_ID + self.id
    }

    /// Asks until it is answered. `copy`: which of those that hold the PG is asked first, counted round. `hasty`: without an
    /// answer by then it loses its connection, once.
    pub async fn operate(
        &mut self,
        oid: &str,
        operation: &Operation,
        mut copy: Option<u64>,
        mut hasty: Option<Duration>,
    ) -> Outcome {
        self.tid += 1;
        let mut attempt = 0;
        loop {
            let map = self.maps.borrow_and_update().clone();
            let Some((hash, target)) = target(&map, self.pool, oid, copy) else {
                // The sender lives as long as the handle, which the process holds.
                let _ = self.maps.changed().await;
                continue;
            };
            let request = self.request(oid, hash, &target, map.epoch, operation, copy, attempt);
            self.trace.note(format_args!(
                "client.{} #{} try {attempt} {oid} {} to osd.{} {}",
                self.id, self.tid, target.pg, target.osd, target.addr
            ));
            attempt += 1;
            let maps = self.maps.clone();
            let pool = self.pool;
            tokio::select! {
                biased;
                done = self.exchange(&target, &request) => match done {
                    // It was not done: a copy refused, or the answer may be remembered. Another number, as librados does it.
                    Ok(reply) if reply.result == Errno::EAGAIN.code() => {
                        attempt = 0;
                        self.tid += 1;
                        if copy.take().is_none() {
                            sleep(RETRY).await;
                        }
                    }
                    Ok(reply) => return outcome(reply, &target),
                    Err(e) => {
                        self.trace.note(format_args!("client.{} #{}: {e}", self.id, self.tid));
                        self.conns.remove(&target.osd);
                        sleep(RETRY).await;
                    }
                },
                () = moved(maps, pool, oid, copy, &target) => {}
                () = sleep(hasty.take().unwrap_or(ANSWER_MAX)) => drop(self.conns.remove(&target.osd)),
            }
        }
    }

    async fn exchange(&mut self, to: &Target, request: &MOSDOp) -> Result<MOSDOpReply, ClientError> {
        if self.conns.get(&to.osd).is_none_or(|c| c.addr != to.addr) {
            let conn = self.connect(to.addr).await?;
            self.conns.insert(to.osd, conn);
        }
        let Some(conn) = self.conns.get_mut(&to.osd) else {
            return Err(ClientError::Closed);
        };
        conn.stream.send(request.to_message()).await?;
        loop {
            let m = conn.stream.recv().await?;
            if m.kind != kind::OSD_OPREPLY {
                continue;
            }
            let Ok(reply) = MOSDOpReply::from_message(&m) else {
                return Err(ClientError::Closed);
            };
            // Answers to earlier sends are dropped, as librados does it.
            if reply.tid == request.tid && reply.retry_attempt == request.retry_attempt {
                return Ok(reply);
            }
        }
    }

    async fn connect(&self, addr: EntityAddr) -> Result<Conn, ClientError> {
        let auth = NoneClient {
            name: AuthName::new(EntityKind::Client, "admin"),
            global_id: self.global_id(),
        };
        let config = ClientConfig::new(EntityKind::Osd, addr, self.id as u32 + 1, self.entropy.clone());
        let sock = addr.sock.ok_or(ClientError::Closed)?;
        let open = ClientStream::connect(sock, config, auth, self.clock.clone());
        let stream = tokio::time::timeout(CONNECT_MAX, open)
            .await
            .map_err(|_| ClientError::Closed)??;
        Ok(Conn { addr, stream })
    }

    #[allow(clippy::too_many_arguments)]
    fn request(
        &self,
        oid: &str,
        hash: u32,
        to: &Target,
        epoch: u32,
        operation: &Operation,
        copy: Option<u64>,
        attempt: i32,
    ) -> MOSDOp {
        let way = match operation.writes() {
            false => flag::READ,
            true => flag::WRITE | flag::ONDISK,
        };
        let any = match copy {
            None => 0,
            Some(n) if n & 1 == 0 => flag::BALANCE_READS,
            Some(_) => flag::LOCALIZE_READS,
        };
        let retry = if attempt > 0 { flag::RETRY } else { 0 };
        MOSDOp {
            tid: self.tid,
            pgid: SPgId::replicated(to.pg),
            hash,
            epoch,
            flags: way | any | retry,
            reqid: OsdReqId {
                name: EntityName { kind: 0, num: 0 },
                tid: 0,
                inc: 0,
            },
            trace: [0; 3],
            client_inc: 0,
            mtime: Utime::from_unix(self.clock.wall()),
            oloc: ObjectLocator {
                pool: self.pool,
                key: Bytes::new(),
                nspace: Bytes::new(),
                hash: -1,
            },
            oid: oid.to_owned().into(),
            ops: operation.steps().to_vec(),
            snapid: NOSNAP,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: attempt,
            features: 0,
        }
    }
}

fn outcome(reply: MOSDOpReply, target: &Target) -> Outcome {
    let steps = reply.ops.into_iter().map(|op| Step {
        value: op.rval,
        data: op.outdata,
    });
    Outcome {
        result: reply.result,
        version: reply.user_version,
        steps: steps.collect(),
        served: Served {
            tid: reply.tid,
            attempt: reply.retry_attempt,
            osd: target.osd,
            from_copy: target.osd != target.primary,
            pg_num: target.pg_num,
            entry: reply.replay_version,
        },
    }
}
