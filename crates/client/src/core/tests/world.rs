//! A cluster of the test's own making around one machine: maps, monitors and OSDs as messages.

use crate::core::mon::Credentials;
use crate::core::watch::WatchEvent;
use crate::core::*;
use crate::{Error, Operation};
use auth::NoneClient;
use bytes::Bytes;
use denc::Encode;
use messages::mon::{Body, MMonMap, MOsdMap};
use messages::osd::{MOSDOp, MOSDOpReply, kind};
use std::collections::BTreeMap;
use types::osdmap::{OsdSlot, osd_state};
use types::{AuthName, EntityAddrVec, MonInfo, MonMap, NOSNAP, OsdId, PgId, PgPool, PoolId, Uuid};

pub const POOL: PoolId = 1;
pub const PGS: u32 = 4;

pub struct World {
    pub core: Core,
    pub now: Duration,
    pub map: OsdMap,
    pub mon: Option<ConnId>,
    /// By OSD: its open connection.
    pub osds: BTreeMap<OsdId, ConnId>,
    pub dials: Vec<(ConnId, EntityKind, EntityAddr)>,
    pub hung_up: Vec<ConnId>,
    pub sent: Vec<(ConnId, Message)>,
    pub done: BTreeMap<u64, crate::Result<Answer>>,
    pub events: Vec<(WatchId, WatchEvent)>,
    pub stopped: bool,
    last: u64,
}

pub fn addr(port: u16, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(([10, 0, 0, 1], port).into(), nonce)
}

pub fn fsid() -> Uuid {
    Uuid::from_random([7; 16])
}

fn first_map() -> OsdMap {
    let mut map = OsdMap::empty(fsid());
    map.epoch = 10;
    for osd in 0..3u16 {
        map.osds.push(OsdSlot {
            state: osd_state::EXISTS | osd_state::UP,
            client_addrs: EntityAddrVec::one(addr(6800 + osd, 1)),
            ..OsdSlot::default()
        });
        map.osd_weight.push(0x1_0000);
    }
    let pool = PgPool {
        pg_num: PGS,
        pgp_num: PGS,
        ..PgPool::default()
    };
    map.pools.insert(POOL, pool);
    map.pool_names.insert(POOL, "p".into());
    map.pool_max = 1;
    lead(&mut map, &[0, 1, 2]);
    map
}

/// All PGs are on these OSDs, the first one leads.
pub fn lead(map: &mut OsdMap, osds: &[OsdId]) {
    for seed in 0..PGS {
        map.pg_temp.insert(PgId::new(POOL, seed), osds.to_vec());
    }
}

impl World {
    /// Connected, with a map in which osd.0 leads all PGs.
    pub fn new(limits: Limits) -> Self {
        let mut w = Self::unconnected(limits, 1);
        w.turn(Event::Timer);
        let conn = w.dials[0].0;
        w.open(conn);
        w.mon = Some(conn);
        w.mon_map();
        w.send_map();
        w.sent.clear();
        w
    }

    pub fn unconnected(limits: Limits, mons: u16) -> Self {
        let none = Credentials::None(NoneClient {
            name: AuthName::new(EntityKind::Client, "admin"),
            global_id: 0,
        });
        let mons = (0..mons).map(|n| addr(3300 + n, 0)).collect();
        let entropy: Arc<dyn auth::Entropy> = Arc::new(|b: &mut [u8]| b.fill(0));
        Self {
            core: Core::new(mons, none, limits, entropy),
            now: Duration::from_secs(1000),
            map: first_map(),
            mon: None,
            osds: BTreeMap::new(),
            dials: Vec::new(),
            hung_up: Vec::new(),
            sent: Vec::new(),
            done: BTreeMap::new(),
            events: Vec::new(),
            stopped: false,
            last: 0,
        }
    }

    pub fn turn(&mut self, event: Event) {
        let now = Now {
            mono: self.now,
            wall: Utime { sec: 5, nsec: 0 },
        };
        self.core.apply(event, now);
        while let Some(effect) = self.core.effect() {
            match effect {
                Effect::Dial { conn, peer, addr, .. } => self.dials.push((conn, peer, addr)),
                Effect::Send { conn, message } => self.sent.push((conn, message)),
                Effect::HangUp { conn } => {
                    self.hung_up.push(conn);
                    self.osds.retain(|_, c| *c != conn);
                }
                Effect::Done { id, told } => {
                    assert!(self.done.insert(id.0, told).is_none(), "{id:?} was told twice");
                }
                Effect::Watch { watch, event } => self.events.push((watch, event)),
                Effect::Map(_) | Effect::Denied(_) => {}
                Effect::Stopped => self.stopped = true,
            }
        }
    }

    /// Lets time pass, timer by timer.
    pub fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(at) = self.core.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.turn(Event::Timer);
        }
        self.now = end;
    }

    pub fn open(&mut self, conn: ConnId) {
        let credentials = Credentials::None(NoneClient {
            name: AuthName::new(EntityKind::Client, "admin"),
            global_id: 4242,
        });
        self.turn(Event::Opened { conn, credentials });
    }

    /// The newest dial, which was to this OSD, opens.
    pub fn open_osd(&mut self, osd: OsdId) -> ConnId {
        let (conn, peer, to) = *self.dials.last().unwrap();
        assert_eq!(
            (peer, to.sock.unwrap().port()),
            (EntityKind::Osd, 6800 + osd as u16)
        );
        self.osds.insert(osd, conn);
        self.open(conn);
        conn
    }

    pub fn lose(&mut self, osd: OsdId) {
        let conn = self.osds.remove(&osd).unwrap();
        let why = "reset".into();
        self.turn(Event::Ended {
            conn,
            refused: false,
            why,
        });
    }

    pub fn mon_says(&mut self, message: Message) {
        let conn = self.mon.unwrap();
        self.turn(Event::Message { conn, message });
    }

    pub fn osd_says(&mut self, osd: OsdId, message: Message) {
        let conn = self.osds[&osd];
        self.turn(Event::Message { conn, message });
    }

    pub fn mon_map(&mut self) {
        let addrs = |n: u16| EntityAddrVec::one(addr(3300 + n, 0));
        let mons = [("a".to_string(), addrs(0)), ("b".to_string(), addrs(1))];
        let map = MonMap::new(fsid(), Utime::ZERO, mons);
        assert_eq!(
            map.by_rank()
                .map(|m: &MonInfo| m.name.as_str())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
        self.mon_says(MMonMap { map: map.to_bytes() }.message(0));
    }

    pub fn maps(&self) -> MOsdMap {
        MOsdMap {
            fsid: fsid(),
            fulls: BTreeMap::from([(self.map.epoch, self.map.to_bytes())]),
            newest: self.map.epoch,
            oldest: 1,
            ..MOsdMap::default()
        }
    }

    fn send_map(&mut self) {
        let maps = self.maps();
        self.mon_says(maps.message(0));
    }

    /// The next epoch, changed by `f`, comes.
    pub fn change(&mut self, f: impl FnOnce(&mut OsdMap)) {
        self.map.epoch += 1;
        f(&mut self.map);
        self.send_map();
    }

    pub fn request(oid: &'static str, operation: Operation) -> Request {
        Request {
            place: Place {
                pool: POOL,
                nspace: Bytes::new(),
                key: Bytes::new(),
                oid: oid.into(),
                of_pg: None,
            },
            operation,
            snap: NOSNAP,
            context: Default::default(),
            timeout: None,
        }
    }

    pub fn next_id(&mut self) -> OpId {
        self.last += 1;
        OpId(self.last)
    }

    pub fn submit(&mut self, request: Request) -> OpId {
        let id = self.next_id();
        self.turn(Event::Submit { id, request });
        id
    }

    pub fn write(&mut self, oid: &'static str, data: &'static str) -> OpId {
        self.submit(Self::request(oid, Operation::new().append(data)))
    }

    pub fn read(&mut self, oid: &'static str) -> OpId {
        self.submit(Self::request(oid, Operation::new().read(0, 10)))
    }

    /// Operations sent since the last look, with the connections.
    pub fn ops(&mut self) -> Vec<(ConnId, MOSDOp)> {
        let sent = std::mem::take(&mut self.sent);
        let ops = sent.into_iter().filter(|(_, m)| m.kind == kind::OSD_OP);
        ops.map(|(c, m)| (c, MOSDOp::from_message(&m).unwrap())).collect()
    }

    /// As [`Self::ops`]: tid and attempt of each.
    pub fn sends(&mut self) -> Vec<(u64, i32)> {
        self.ops()
            .iter()
            .map(|(_, op)| (op.tid, op.retry_attempt))
            .collect()
    }

    pub fn answer(&mut self, osd: OsdId, op: &MOSDOp, result: i32) {
        let reply = MOSDOpReply::to(op, self.map.epoch, result);
        self.osd_says(osd, reply.to_message());
    }

    pub fn is_ok(&self, id: OpId) -> bool {
        matches!(self.done.get(&id.0), Some(Ok(_)))
    }

    pub fn error(&self, id: OpId) -> Option<Error> {
        self.done.get(&id.0).and_then(|t| t.clone().err())
    }
}
