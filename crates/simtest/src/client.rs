//! A RADOS client as librados behaves: sends an operation to the primary that its map names, and sends it again when that
//! changes, when the connection breaks, when it is told to, or when nothing comes for long. A read may ask for a copy: it goes
//! to any OSD that the map names for the PG, and if that one refuses, under a new number to the primary.
//!
//! Invariants: one operation at a time; a write keeps its number over all sends, so that it takes effect at most once. Only
//! where it is told EAGAIN, that it was not done, it goes on under a new one.
//!
//! Not here: what is asked (`workload`), what the answers mean together (`linear`).

use crate::acks::FIRST_CLIENT;
use crate::model::{Ask, Object, Told};
use auth::{Entropy, NoneClient};
use bytes::Bytes;
use denc::{Decode, Encode};
use io::Clock;
use io_sim::Trace;
use messages::osd::{CopyFromArg, MOSDOp, MOSDOpReply, OsdOp, code, flag, kind};
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
    AuthName, EVersion, EntityAddr, EntityKind, EntityName, Errno, NOSNAP, ObjectLocator, OsdId, OsdReqId,
    PgId, PoolId, SPgId, Utime,
};

/// Without an answer for this long the connection is given up.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Before the next try after a connection broke.
const RETRY: Duration = Duration::from_millis(100);
/// Numbers are kept as text in the omap.
const COUNTER: (&str, &str) = ("numops", "add");
/// All of an object: the workload's objects are smaller.
const READ_MAX: u64 = 128 << 20;
const GUARD: &[u8] = b"guard";
/// String comparison for equality (docs/protocol/ceph/04-osd.md, 9.3).
const CMP_EQ: u8 = 1;
const CMP_STRING: u8 = 1;

type Maps = watch::Receiver<Arc<OsdMap>>;

pub struct Rados {
    pub id: u64,
    pub pool: PoolId,
    pub trace: Trace,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    maps: Maps,
    conns: BTreeMap<OsdId, Conn>,
    tid: u64,
    /// Reads that another OSD than the primary answered.
    pub from_copies: u64,
    /// A write that is not answered so soon loses its connection, once, and is sent again.
    pub hasty: Option<Duration>,
}

/// What came of an operation.
#[derive(Debug)]
pub struct Answer {
    pub told: Told,
    /// As the answer named it.
    pub version: Option<u64>,
    /// Who gave it, to which try of which number.
    pub osd: OsdId,
    pub attempt: i32,
    pub tid: u64,
    /// Of a write: its place in the log.
    pub place: EVersion,
    /// PGs of the pool, as it was asked.
    pub pg_num: u32,
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
    let addr = map.osd(osd).filter(|_| map.is_up(osd))?.client_addrs.first();
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

impl Rados {
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
            from_copies: 0,
            hasty: None,
        }
    }

    /// Asks until it is told. An error that no operation here may end with is the error. `copy`: a read goes there first
    /// ([`target`]).
    pub async fn run(&mut self, oid: &str, ask: &Ask, copy: Option<u64>) -> Result<Answer, i32> {
        let mut hasty = self.hasty.filter(|_| !ask.is_read());
        let mut copy = copy.filter(|_| ask.is_read());
        self.tid += 1;
        let mut attempt = 0;
        loop {
            let map = self.maps.borrow_and_update().clone();
            let Some((hash, target)) = target(&map, self.pool, oid, copy) else {
                // The sender lives as long as the handle, which the process holds.
                let _ = self.maps.changed().await;
                continue;
            };
            let mut request = self.request(oid, hash, &target, map.epoch, ask, attempt);
            if let Some(n) = copy {
                request.flags |= match n >> 8 & 1 {
                    0 => flag::BALANCE_READS,
                    _ => flag::LOCALIZE_READS,
                };
            }
            self.trace.note(format_args!(
                "client.{} #{} try {attempt} {oid} {} to osd.{} {} {ask}{}",
                self.id,
                self.tid,
                target.pg,
                target.osd,
                target.addr,
                if copy.is_some() { " of any copy" } else { "" }
            ));
            attempt += 1;
            let maps = self.maps.clone();
            let pool = self.pool;
            tokio::select! {
                biased;
                done = self.exchange(&target, &request) => match done {
                    Ok(reply) if reply.result == Errno::EAGAIN.code() && copy.is_some() => {
                        (copy, attempt) = (None, 0);
                        self.tid += 1;
                    }
                    // A full disk: a user frees something, or somebody else has room by then.
                    Ok(reply) if reply.result == Errno::ENOSPC.code() && !ask.is_read() => {
                        attempt = 0;
                        self.tid += 1;
                        sleep(RETRY).await;
                    }
                    // It was not done, and the answer may be remembered: librados gives it a new number, too.
                    Ok(reply) if reply.result == Errno::EAGAIN.code() => {
                        attempt = 0;
                        self.tid += 1;
                        sleep(RETRY).await;
                    }
                    Ok(reply) => {
                        if target.osd != target.primary {
                            self.from_copies += 1;
                        }
                        let told = told(ask, &reply)?;
                        let version = matches!(told, Told::Done | Told::Saw(Some(_))).then_some(reply.user_version);
                        let (osd, attempt, tid) = (target.osd, reply.retry_attempt, reply.tid);
                        let (pg_num, place) = (target.pg_num, reply.replay_version);
                        return Ok(Answer { told, version, osd, attempt, tid, pg_num, place });
                    }
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
            global_id: FIRST_CLIENT + self.id,
        };
        let config = ClientConfig::new(EntityKind::Osd, addr, self.id as u32 + 1, self.entropy.clone());
        let sock = addr.sock.ok_or(ClientError::Closed)?;
        let open = ClientStream::connect(sock, config, auth, self.clock.clone());
        let stream = tokio::time::timeout(CONNECT_MAX, open)
            .await
            .map_err(|_| ClientError::Closed)??;
        Ok(Conn { addr, stream })
    }

    fn request(&self, oid: &str, hash: u32, to: &Target, epoch: u32, ask: &Ask, attempt: i32) -> MOSDOp {
        let way = match ask.is_read() {
            true => flag::READ,
            false => flag::WRITE | flag::ONDISK,
        };
        let retry = if attempt > 0 { flag::RETRY } else { 0 };
        MOSDOp {
            tid: self.tid,
            pgid: SPgId::replicated(to.pg),
            hash,
            epoch,
            flags: way | retry,
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
            ops: operations(ask, self.pool),
            snapid: NOSNAP,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: attempt,
            features: 0,
        }
    }
}

fn operations(ask: &Ask, pool: PoolId) -> Vec<OsdOp> {
    let full = |data: &Bytes| OsdOp::ranged(code::WRITEFULL, 0, data.len() as u64).with_data(data.clone());
    let set_guard = |v: &[u8]| OsdOp::on_xattr(code::SETXATTR, GUARD, v, 0, 0);
    match ask {
        Ask::Read => {
            let page = (Bytes::new(), u64::from(u32::MAX), Bytes::new());
            let mut arg = page.0.to_bytes().to_vec();
            arg.extend_from_slice(&page.1.to_bytes());
            arg.extend_from_slice(&page.2.to_bytes());
            vec![
                OsdOp::ranged(code::READ, 0, READ_MAX),
                OsdOp::new(code::OMAPGETVALS).with_data(arg),
                OsdOp::new(code::GETXATTRS),
            ]
        }
        Ask::WriteFull(d) => vec![full(d), set_guard(&d[..d.len().min(16)])],
        Ask::Write { at, data } => {
            vec![OsdOp::ranged(code::WRITE, *at, data.len() as u64).with_data(data.clone())]
        }
        Ask::Append(d) => vec![OsdOp::ranged(code::APPEND, 0, d.len() as u64).with_data(d.clone())],
        Ask::OmapSet(k, v) => {
            let map = BTreeMap::from([(Bytes::from(k.clone()), v.clone())]);
            vec![OsdOp::new(code::OMAPSETVALS).with_data(map.to_bytes())]
        }
        Ask::SetAttrs(attrs) => attrs
            .iter()
            .map(|(n, v)| OsdOp::on_xattr(code::SETXATTR, n.as_bytes(), v, 0, 0))
            .collect(),
        Ask::Delete => vec![OsdOp::new(code::DELETE)],
        Ask::Add(key, n) => {
            let mut input = key.to_bytes().to_vec();
            input.extend_from_slice(&n.to_string().to_bytes());
            vec![OsdOp::on_class(COUNTER.0, COUNTER.1, &input)]
        }
        Ask::CopyFrom { from, .. } => {
            let oloc = ObjectLocator {
                pool,
                key: Bytes::new(),
                nspace: Bytes::new(),
                hash: -1,
            };
            let mut source = from.to_bytes().to_vec();
            source.extend_from_slice(&oloc.to_bytes());
            let arg = CopyFromArg {
                snap: NOSNAP,
                version: 0,
                flags: 0,
            };
            vec![OsdOp::new(code::COPY_FROM).with_copy_from(arg).with_data(source)]
        }
        Ask::Guarded { expect, then } => vec![
            OsdOp::on_xattr(code::CMPXATTR, GUARD, expect, CMP_EQ, CMP_STRING),
            full(then),
            set_guard(then),
        ],
    }
}

fn told(ask: &Ask, reply: &MOSDOpReply) -> Result<Told, i32> {
    let code = reply.result;
    let is = |e: Errno| code == e.code();
    match ask {
        Ask::Read if is(Errno::ENOENT) => Ok(Told::Saw(None)),
        Ask::Read if code >= 0 => seen(reply).map(|o| Told::Saw(Some(o))),
        Ask::Delete | Ask::CopyFrom { .. } if is(Errno::ENOENT) => Ok(Told::NoObject),
        Ask::Guarded { .. } if is(Errno::ECANCELED) || is(Errno::ENOENT) || is(Errno::ENODATA) => {
            Ok(Told::Refused)
        }
        _ if code >= 0 => Ok(Told::Done),
        _ => Err(code),
    }
}

fn seen(reply: &MOSDOpReply) -> Result<Object, i32> {
    let [data, omap, attrs] = &reply.ops[..] else {
        return Err(Errno::EINVAL.code());
    };
    let map = |raw| BTreeMap::<Bytes, Bytes>::from_bytes(raw).map_err(|_| Errno::EINVAL.code());
    let mut attrs = map(&attrs.outdata)?;
    let named = |rows: BTreeMap<Bytes, Bytes>| {
        let text = |k: Bytes| String::from_utf8_lossy(&k).into_owned();
        rows.into_iter().map(|(k, v)| (text(k), v)).collect()
    };
    Ok(Object {
        data: data.outdata.clone(),
        omap: named(map(&omap.outdata)?),
        guard: attrs.remove(GUARD),
        attrs: named(attrs),
    })
}
