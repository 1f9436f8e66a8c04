//! The clients of a run: each is the product's own (`client::Client`, its driver over the simulated network), asked one operation at
//! a time. So what the seeds check is checked of it, too: that it finds OSDs by maps, sends again what has to be, and nothing twice.
//!
//! Some of a run are of another kind (`raw`): blind for longer than the product's client ever is.
//!
//! A hasty client loses its connection to the primary while an answer is on its way.
//!
//! Not here: what is asked (`workload`), what the answers mean together (`linear`).

use crate::model::{Ask, Object, Told};
use crate::places::{mon_addr, osd_host};
use crate::raw::Raw;
use bytes::Bytes;
use client::{Client, Cmp, Conf, CopySource, IoCtx, Operation, Outcome, Platform, Served};
use denc::{Decode, Encode};
use io_sim::Sim;
use messages::osd::flag;
use metastore::ClusterHandle;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::sleep;
use types::{AuthName, EntityKind, Errno, NOSNAP, PoolId};

/// Before what found a full disk is asked for again: a user frees something, or somebody else has room by then.
pub const RETRY: Duration = Duration::from_millis(100);
/// Before a monitor is looked for anew.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// Numbers are kept as text in the omap.
const COUNTER: (&str, &str) = ("numops", "add");
/// Rows of an object's omap: the workload's objects have fewer.
const ROWS_MAX: u64 = u32::MAX as u64;
const GUARD: &[u8] = b"guard";

pub struct Rados {
    pub id: u64,
    pub sim: Sim,
    pool: PoolId,
    kind: Kind,
    /// Reads that another OSD than the primary answered.
    pub from_copies: u64,
    /// A write that is not answered so soon loses its connection, once, and is sent again.
    pub hasty: Option<Duration>,
}

enum Kind {
    Own {
        host: IpAddr,
        client: Client,
        pool: IoCtx,
    },
    Raw(Box<Raw>),
}

/// What came of an operation.
#[derive(Debug)]
pub struct Answer {
    pub told: Told,
    /// As the answer named it.
    pub version: Option<u64>,
    pub served: Served,
}

impl Rados {
    /// On the host whose process this is; waits for a monitor.
    pub async fn connect(id: u64, pool: PoolId, host: IpAddr, sim: &Sim) -> Self {
        let platform = Platform {
            clock: sim.clock(Duration::ZERO, 0),
            random: sim.random(&format!("client.{id}")),
        };
        let admin = AuthName::new(EntityKind::Client, "admin");
        let conf = Conf::new(admin, vec![mon_addr()], None);
        let client = loop {
            match Client::connect_with(conf.clone(), platform.clone()).await {
                Ok(client) => break client,
                Err(e) => sim.trace.note(format_args!("client.{id} has no monitor: {e}")),
            }
            sleep(CONNECT_AGAIN).await;
        };
        let kind = Kind::Own {
            host,
            pool: client.pool_by_id(pool),
            client,
        };
        Self::of(id, pool, sim, kind)
    }

    /// One that follows the cluster state by itself.
    pub fn raw(id: u64, pool: PoolId, cluster: &ClusterHandle, sim: &Sim) -> Self {
        let (clock, random) = (sim.clock(Duration::ZERO, 0), sim.random(&format!("client.{id}")));
        let raw = Raw::new(id, pool, cluster, clock, random, sim.trace.clone());
        Self::of(id, pool, sim, Kind::Raw(Box::new(raw)))
    }

    fn of(id: u64, pool: PoolId, sim: &Sim, kind: Kind) -> Self {
        Self {
            id,
            sim: sim.clone(),
            pool,
            kind,
            from_copies: 0,
            hasty: None,
        }
    }

    /// As PG logs name it.
    pub fn global_id(&self) -> u64 {
        match &self.kind {
            Kind::Own { client, .. } => client.global_id(),
            Kind::Raw(raw) => raw.global_id(),
        }
    }

    /// Asks until it is told. An error that no operation here may end with is the error. `copy`: a read may go to any copy, one
    /// drawn at random or a near one.
    pub async fn run(&mut self, oid: &str, ask: &Ask, copy: Option<u64>) -> Result<Answer, i32> {
        let copy = copy.filter(|_| ask.is_read());
        let operation = operation(ask, self.pool);
        let mut hasty = self.hasty.filter(|_| !ask.is_read());
        loop {
            let note = format_args!(
                "client.{} asks {oid} {ask}{}",
                self.id,
                if copy.is_some() { " of any copy" } else { "" }
            );
            self.sim.trace.note(note);
            let done = self.operate(oid, &operation, copy, hasty.take()).await?;
            if done.result == Errno::ENOSPC.code() && !ask.is_read() {
                sleep(RETRY).await;
                continue;
            }
            let served = done.served;
            self.sim.trace.note(format_args!(
                "client.{} #{} try {} {oid}: {} by osd.{}",
                self.id, served.tid, served.attempt, done.result, served.osd
            ));
            self.from_copies += u64::from(served.from_copy);
            let told = told(ask, &done)?;
            let version = matches!(told, Told::Done | Told::Saw(Some(_))).then_some(done.version);
            return Ok(Answer {
                told,
                version,
                served,
            });
        }
    }

    async fn operate(
        &mut self,
        oid: &str,
        operation: &Operation,
        copy: Option<u64>,
        hasty: Option<Duration>,
    ) -> Result<Outcome, i32> {
        let (host, client, pool) = match &mut self.kind {
            Kind::Raw(raw) => return Ok(raw.operate(oid, operation, copy, hasty).await),
            Kind::Own { host, client, pool } => (*host, client, pool),
        };
        let way = match copy {
            None => 0,
            Some(n) if n & 1 == 0 => flag::BALANCE_READS,
            Some(_) => flag::LOCALIZE_READS,
        };
        let asked = pool.operate(oid, operation.clone().flags(way));
        tokio::pin!(asked);
        if let Some(soon) = hasty {
            tokio::select! {
                biased;
                done = &mut asked => return done.map_err(|e| e.errno().code()),
                () = sleep(soon) => lose_connection(self.id, &self.sim, host, client, self.pool, oid),
            }
        }
        asked.await.map_err(|e| e.errno().code())
    }
}

/// To the object's primary, as the client knows it.
fn lose_connection(id: u64, sim: &Sim, host: IpAddr, client: &Client, pool: PoolId, oid: &str) {
    let Ok(map) = client.map() else { return };
    if let Some((_, pg)) = map.object_to_pg(pool, b"", b"", oid.as_bytes()) {
        let primary = osd_host(map.pg_to_up_acting(pg).acting_primary);
        sim.trace
            .note(format_args!("client.{id} loses its connection to {primary}"));
        sim.net.cut(host, primary);
    }
}

fn operation(ask: &Ask, pool: PoolId) -> Operation {
    let op = Operation::new();
    match ask {
        Ask::Read => op.read(0, 0).omap_values(b"", b"", ROWS_MAX).get_xattrs(),
        Ask::WriteFull(d) => op.write_full(d.clone()).set_xattr(GUARD, &d[..d.len().min(16)]),
        Ask::Write { at, data } => op.write(*at, data.clone()),
        Ask::Append(d) => op.append(d.clone()),
        Ask::OmapSet(k, v) => op.set_omap(&BTreeMap::from([(Bytes::from(k.clone()), v.clone())])),
        Ask::SetAttrs(attrs) => attrs.iter().fold(op, |op, (n, v)| op.set_xattr(n.as_bytes(), v)),
        Ask::Delete => op.remove(),
        Ask::Add(key, n) => {
            let mut input = key.to_bytes().to_vec();
            input.extend_from_slice(&n.to_string().to_bytes());
            op.call(COUNTER.0, COUNTER.1, &input, true)
        }
        Ask::CopyFrom { from, .. } => {
            let source = CopySource {
                pool,
                nspace: Bytes::new(),
                key: Bytes::new(),
                oid: from.clone().into(),
                snap: NOSNAP,
            };
            op.copy_from(&source, 0)
        }
        Ask::Guarded { expect, then } => op
            .cmp_xattr(GUARD, Cmp::Eq, expect)
            .write_full(then.clone())
            .set_xattr(GUARD, then),
    }
}

fn told(ask: &Ask, done: &Outcome) -> Result<Told, i32> {
    let code = done.result;
    let is = |e: Errno| code == e.code();
    match ask {
        Ask::Read if is(Errno::ENOENT) => Ok(Told::Saw(None)),
        Ask::Read if code >= 0 => seen(done).map(|o| Told::Saw(Some(o))),
        Ask::Delete | Ask::CopyFrom { .. } if is(Errno::ENOENT) => Ok(Told::NoObject),
        Ask::Guarded { .. } if is(Errno::ECANCELED) || is(Errno::ENOENT) || is(Errno::ENODATA) => {
            Ok(Told::Refused)
        }
        _ if code >= 0 => Ok(Told::Done),
        _ => Err(code),
    }
}

fn seen(done: &Outcome) -> Result<Object, i32> {
    let [data, omap, attrs] = &done.steps[..] else {
        return Err(Errno::EINVAL.code());
    };
    let map = |raw| BTreeMap::<Bytes, Bytes>::from_bytes(raw).map_err(|_| Errno::EINVAL.code());
    let mut attrs = map(&attrs.data)?;
    let rows = omap.omap_values().map_err(|e| e.errno().code())?;
    if rows.more {
        return Err(Errno::E2BIG.code());
    }
    let text = |k: Bytes| String::from_utf8_lossy(&k).into_owned();
    Ok(Object {
        data: data.data.clone(),
        omap: rows.items.into_iter().map(|(k, v)| (text(k), v)).collect(),
        guard: attrs.remove(GUARD),
        attrs: attrs.into_iter().map(|(k, v)| (text(k), v)).collect(),
    })
}
