//! An OSD over a real store: what waits for the disk, and what stays behind when a PG or the OSD goes.

#![allow(clippy::unwrap_used)]

use crate::caps::ClientCaps;
use crate::event::StateReply;
use crate::links::{LinkParts, Links};
use crate::membership::{Membership, MembershipParts};
use crate::osd::{Osd, Parts};
use crate::store_view::StoreView;
use crate::{Config, Peers, serve};
use auth::{AllowNone, Authenticator, NoneClient};
use bytes::Bytes;
use cluster::{Changes, CreateOptions, OsdBoot};
use io::{SystemClock, SystemRandom};
use messages::osd::{MOSDOp, MOSDOpReply, OsdOp, code, kind};
use metastore::{ClusterHandle, Embedded, LeaseTimes, Metastore, create_cluster};
use msgr::{ClientConfig, ServerConfig};
use net::{ClientStream, Listener};
use pg::{Client, ClientOp, Permit};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tokio::sync::{mpsc, oneshot, watch};
use types::pool::PgPool;
use types::*;

mod bench;
mod copies;
mod fences;
mod membership;
mod options;
mod reports;
mod revocation;
mod rights;
mod shards;
mod traces;

const POOL: i64 = 1;
const OBJECTS: usize = 8;
const SIZE: usize = 300_000;

/// A cluster of one OSD and one pool in a temporary directory.
struct Rig {
    dir: tempfile::TempDir,
    cluster: ClusterHandle,
}

fn addr(port: u16) -> EntityAddr {
    EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1)
}

fn options() -> store::Options {
    store::Options {
        log_bytes: 16 << 20,
        grow_bytes: 8 << 20,
        host_reserve_bytes: 0,
        ..store::Options::default()
    }
}

/// What an object holds first: every byte tells its place.
fn content(object: usize) -> Vec<u8> {
    (0..SIZE)
        .map(|i| (i / 4096 * 31 + i * 7 + object) as u8)
        .collect()
}

fn name(object: usize) -> String {
    format!("object-{object}")
}

impl Rig {
    async fn new() -> Self {
        let rig = Self::bare(vec![0]).await;
        rig.mkfs("osd", 8);
        rig.add_pool(1, 1).await;
        rig
    }

    fn mkfs(&self, dir: &str, uuid: u8) {
        let made = store::Options {
            osd_uuid: Uuid([uuid; 16]),
            fsid: Uuid([7; 16]),
            ..options()
        };
        Store::mkfs(&self.dir.path().join(dir), &made).unwrap();
    }

    /// A cluster state without pools.
    async fn bare(osds: Vec<i32>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::shared();
        let kv = Embedded::open(&dir.path().join("state"), clock.clone()).unwrap();
        let kv: Arc<dyn Metastore> = Arc::new(kv);
        let new = CreateOptions {
            osds,
            ..CreateOptions::new(Uuid([7; 16]), "a", addr(3300))
        };
        create_cluster(&*kv, &new, &*clock, &SystemRandom).await.unwrap();
        let cluster = ClusterHandle::open(kv, clock).await.unwrap().unwrap();
        Self { dir, cluster }
    }

    async fn add_pool(&self, size: u8, min_size: u8) {
        let pg_num = 2;
        self.add_pool_of(PgPool {
            size,
            min_size,
            pg_num,
            pgp_num: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            pg_num_pending: pg_num,
            ..PgPool::default()
        })
        .await;
    }

    async fn add_pool_of(&self, pool: PgPool) {
        let add = |state: &cluster::ClusterState| {
            let mut changes = Changes::none();
            let inc = changes.inc(state, Utime::ZERO);
            inc.new_pool_max = Some(POOL as i32);
            inc.new_pools.insert(POOL, pool.clone());
            inc.new_pool_names.insert(POOL, "pool".into());
            (changes, ())
        };
        self.cluster.commit(add).await.unwrap();
    }

    async fn boot(&self) {
        self.cluster.osd_boot(&self.boot_of(0)).await.unwrap();
    }

    fn boot_of(&self, id: i32) -> OsdBoot {
        let at = EntityAddrVec::one(addr(6800));
        OsdBoot {
            id,
            uuid: Uuid([8; 16]),
            client_addrs: at.clone(),
            cluster_addrs: at.clone(),
            hb_back_addrs: at.clone(),
            hb_front_addrs: at,
            size_bytes: 1 << 30,
            host: "vm".into(),
            device_class: String::new(),
            features: msgr::features::SUPPORTED,
            metadata: BTreeMap::new(),
        }
    }

    /// An OSD without its event loop, as it is when its store is open: without a lease, and nobody has heard of it.
    fn opened(&self) -> Osd {
        let clock = SystemClock::shared();
        let store = Store::open(&self.dir.path().join("osd"), &options(), Arc::new(|| ())).unwrap();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let auth: Arc<dyn Authenticator> = Arc::new(AllowNone);
        let entropy = net::entropy(SystemRandom::shared());
        let at = EntityAddrVec::one(addr(6800));
        let config = Arc::new(ServerConfig::new(EntityName::osd(0), at, auth, entropy));
        let conns = net::serve(
            listener,
            config,
            net::Options::default(),
            clock.clone(),
            mpsc::channel(1).0,
        );
        Osd::new(Parts {
            id: 0,
            store: StoreView::new(store),
            cluster: self.cluster.clone(),
            conns: conns.unwrap(),
            peers: Peers::default(),
            clock: clock.clone(),
            random: SystemRandom::shared(),
            disk_share: 1,
            spare: None,
            meters: crate::meters::Meters::new(Default::default(), &crate::Memory::of(0)),
            fetched: mpsc::unbounded_channel().0,
            state_replies: mpsc::unbounded_channel().0,
            links: Links::new(LinkParts {
                me: 0,
                cluster: self.cluster.clone(),
                without_auth: true,
                clock: clock.clone(),
                entropy: net::entropy(SystemRandom::shared()),
                nonce: 1,
                output_max: crate::links::OUTPUT_MAX,
                meter: net::Meter::default(),
                lanes: net::Lanes::default(),
                events: mpsc::channel(1).0,
            }),
            membership: Membership::new(MembershipParts {
                clock,
                pulse: Arc::default(),
                boot: self.boot_of(0),
                run: 1,
                times: Config::LEASE,
                hung_after: Config::HUNG_DISK,
                ready: None,
            }),
        })
    }

    async fn lease(&self, osd: &mut Osd, ttl: Duration) {
        let times = LeaseTimes {
            ttl,
            margin: Duration::ZERO,
        };
        let lease = self.cluster.osd_lease(0, 1, times).await;
        osd.on_state_reply(StateReply::Leased(lease)).unwrap();
    }

    /// One that serves; its caches are empty.
    async fn osd(&self) -> Osd {
        let mut osd = self.opened();
        // The rig has booted it ([`Self::boot`]): said first, or it would bury itself as its own earlier run.
        let epoch = self.cluster.osdmap().epoch;
        osd.on_state_reply(StateReply::Booted(Ok(epoch))).unwrap();
        // Long enough for a test that no loop renews it.
        self.lease(&mut osd, Duration::from_secs(600)).await;
        osd.settle_slots();
        osd
    }

    fn request(&self, tid: u64, object: usize, op: OsdOp) -> MOSDOp {
        let map = self.cluster.osdmap();
        let oid = name(object);
        let (hash, pg) = map.object_to_pg(POOL, b"", b"", oid.as_bytes()).unwrap();
        MOSDOp {
            tid,
            pgid: SPgId::replicated(pg),
            hash,
            epoch: map.epoch,
            flags: 0,
            reqid: OsdReqId {
                name: EntityName { kind: 0, num: 0 },
                tid: 0,
                inc: 0,
            },
            trace: [0; 3],
            client_inc: 0,
            mtime: Utime { sec: 5, nsec: 0 },
            oloc: ObjectLocator {
                pool: POOL,
                key: Bytes::new(),
                nspace: Bytes::new(),
                hash: -1,
            },
            oid: oid.into(),
            ops: vec![op],
            snapid: NOSNAP,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        }
    }

    fn client(&self) -> Client {
        Client {
            name: EntityName::client(9),
            global_id: 9,
            instance: 9,
            addr: addr(9),
            from: None,
            features: 0,
            caps: Arc::new(ClientCaps::All),
            fence: pg::Fence::default(),
        }
    }

    fn give(&self, osd: &mut Osd, tid: u64, object: usize, op: OsdOp) {
        osd.route(ClientOp {
            conn: 1,
            client: Arc::new(self.client()),
            op: self.request(tid, object, op),
            permit: Permit::default(),
        });
        osd.store.engine.kick();
    }
}

fn read(offset: usize, len: usize) -> OsdOp {
    OsdOp::ranged(code::READ, offset as u64, len as u64)
}

fn write(offset: usize, data: Vec<u8>) -> OsdOp {
    OsdOp::ranged(code::WRITE, offset as u64, data.len() as u64).with_data(data)
}

fn local<T>(f: impl Future<Output = T>) -> T {
    // Only what hangs is ended by it.
    let bounded = async { io::task::timeout(Duration::from_secs(300), f).await };
    io::task::block_on(bounded)
        .unwrap()
        .expect("the test ends in time")
}

fn close(mut osd: Osd) {
    let queued = osd.store.engine.queued();
    osd.store.engine.wait(queued).unwrap();
    osd.on_store();
    osd.forget_all();
    assert_eq!(osd.store.held(), 0);
    osd.conns.shutdown();
    osd.store.engine.close().unwrap();
}

#[test]
fn no_prefetch_outlives_its_message_or_its_pg() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        for o in 0..OBJECTS {
            rig.give(&mut osd, o as u64 + 1, o, write(0, content(o)));
        }
        assert_eq!(osd.store.held(), 0, "nothing to read yet");
        close(osd);

        let mut osd = rig.osd().await;
        let reads = |osd: &Osd| osd.pgs().map(|(_, pg)| pg.stats().reads).sum::<u64>();
        for o in 0..OBJECTS {
            let tid = 100 + 2 * o as u64;
            rig.give(&mut osd, tid, o, read(4096 * o, 10_000));
            rig.give(&mut osd, tid + 1, o, write(5000, vec![1; 10]));
        }
        assert_eq!(osd.store.held(), 2 * OBJECTS, "all wait for the disk");
        assert_eq!(reads(&osd), 0);
        while osd.store.held() > 0 {
            osd.store.engine.wait_reads().unwrap();
            osd.on_store();
        }
        assert_eq!(reads(&osd), OBJECTS as u64);
        let written: u64 = osd.pgs().map(|(_, pg)| pg.stats().writes).sum();
        assert_eq!(written, 2 * OBJECTS as u64);
        close(osd);

        // The pool goes while reads are under way.
        let mut osd = rig.osd().await;
        (0..OBJECTS).for_each(|o| rig.give(&mut osd, 200 + o as u64, o, read(0, 100_000)));
        assert_eq!(osd.store.held(), OBJECTS);
        let remove = |state: &cluster::ClusterState| {
            let mut changes = Changes::none();
            changes.inc(state, Utime::ZERO).old_pools.insert(POOL);
            (changes, ())
        };
        rig.cluster.commit(remove).await.unwrap();
        osd.on_cluster();
        assert_eq!((osd.pgs().count(), osd.store.held()), (0, 0));
        // What the disk still brings is nobody's.
        osd.store.engine.wait_reads().unwrap();
        osd.on_store();
        close(osd);
    });
}

/// Makes `osd` the primary of a PG; the epoch since when it is.
async fn lead(rig: &Rig, pg: PgId, osd: i32) -> Epoch {
    let state = rig.cluster.state();
    let expect = state.pgs.get(pg).unwrap().clone();
    let mut in_sync = expect.in_sync.clone();
    in_sync.sort_by_key(|o| *o != osd);
    let wish = cluster::PgProposal {
        pg,
        expect,
        in_sync,
        primary: osd,
        acting: None,
    };
    rig.cluster.propose(&[wish]).await.unwrap();
    assert!(rig.cluster.state().pgs.serves(pg, osd), "osd.{osd} leads");
    rig.cluster.osdmap().epoch
}

/// A client that sent two operations, of which the first came while another OSD led the PG and was dropped, sends both again:
/// the second may not be executed before that.
#[test]
fn what_was_sent_before_another_led_does_not_overtake_what_was_dropped_then() {
    local(async {
        let rig = Rig::bare(vec![0, 1]).await;
        rig.mkfs("osd", 8);
        rig.boot().await;
        let second = OsdBoot {
            uuid: Uuid([9; 16]),
            ..rig.boot_of(1)
        };
        rig.cluster.osd_boot(&second).await.unwrap();
        rig.add_pool(2, 1).await;
        let mut osd = rig.osd().await;
        let pg = rig.request(1, 0, read(0, 1)).pgid.pg;
        lead(&rig, pg, 1).await;
        let sent = lead(&rig, pg, 0).await;
        osd.on_cluster();
        // True if the OSD keeps it, to be executed as soon as the PG is active.
        let kept = |osd: &mut Osd, epoch: Epoch| {
            let alive = std::rc::Rc::new(());
            let mut op = rig.request(1, 0, read(0, 1));
            op.epoch = epoch;
            osd.route(ClientOp {
                conn: 1,
                client: Arc::new(rig.client()),
                op,
                permit: Permit::new(alive.clone()),
            });
            std::rc::Rc::strong_count(&alive) == 2
        };
        assert!(kept(&mut osd, sent));
        let elsewhere = lead(&rig, pg, 1).await;
        osd.on_cluster();
        assert!(!kept(&mut osd, sent));
        let back = lead(&rig, pg, 0).await;
        osd.on_cluster();
        assert!(!kept(&mut osd, sent), "sent before osd.1 led");
        assert!(!kept(&mut osd, elsewhere));
        assert!(kept(&mut osd, back));
        // Other epochs change nothing in that.
        let another = |state: &cluster::ClusterState| {
            let mut changes = Changes::none();
            changes.inc(state, Utime::ZERO);
            (changes, ())
        };
        rig.cluster.commit(another).await.unwrap();
        osd.on_cluster();
        assert!(!kept(&mut osd, sent));
        assert!(kept(&mut osd, back));
        close(osd);
    });
}

// --- the whole OSD, by the wire -------------------------------------------------------------------------------

struct Running {
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Result<(), crate::Error>>,
    client: ClientStream<NoneClient>,
}

/// One OSD's loop, and where it listens.
struct Loop {
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Result<(), crate::Error>>,
    at: EntityAddr,
}

async fn start_osd(rig: &Rig, id: i32, dir: &str) -> Loop {
    let config = Config {
        id,
        dir: rig.dir.path().join(dir),
        store: options(),
        bind: "127.0.0.1:0".parse().unwrap(),
        msgr1: None,
        auth: Arc::new(AllowNone),
        cluster: rig.cluster.clone(),
        peers: Peers::default(),
        traces: None,
        clock: SystemClock::shared(),
        random: SystemRandom::shared(),
        entropy: net::entropy(SystemRandom::shared()),
        hostname: "vm".into(),
        nonce: SystemRandom::shared().u32(),
        disk_share: 1,
        spare: false,
        memory: crate::Memory::of(0),
        registry: Default::default(),
        lease: Config::LEASE,
        hung_disk: Config::HUNG_DISK,
        connections_max: net::CONNECTIONS_MAX,
        device_class: String::new(),
        disk: String::new(),
    };
    let (ready, up) = oneshot::channel();
    let (stop, stopping) = watch::channel(false);
    let (end, ended) = oneshot::channel();
    io::task::spawn_local(async move {
        let _ = end.send(serve(config, ready, stopping).await);
    });
    let at = up.await.unwrap();
    Loop { stop, ended, at }
}

async fn connect(at: EntityAddr) -> ClientStream<NoneClient> {
    let auth = NoneClient {
        name: AuthName::new(EntityKind::Client, "admin"),
        global_id: 12,
    };
    let config = ClientConfig::new(EntityKind::Osd, at, 5, net::entropy(SystemRandom::shared()));
    let client = ClientStream::connect(at.sock.unwrap(), config, auth, SystemClock::shared()).await;
    client.unwrap()
}

async fn start(rig: &Rig) -> Running {
    let Loop { stop, ended, at } = start_osd(rig, 0, "osd").await;
    let client = connect(at).await;
    Running { stop, ended, client }
}

async fn stop(running: Running) {
    running.stop.send(true).unwrap();
    running.ended.await.unwrap().unwrap();
}

async fn reply(client: &mut ClientStream<NoneClient>) -> MOSDOpReply {
    loop {
        let m = client.recv().await.unwrap();
        if m.kind == kind::OSD_OPREPLY {
            return MOSDOpReply::from_message(&m).unwrap();
        }
    }
}

#[test]
fn cold_reads_and_writes_by_the_wire_and_a_stop_among_them() {
    local(async {
        let rig = Rig::new().await;
        let mut held: Vec<Vec<u8>> = (0..OBJECTS).map(content).collect();
        let mut running = start(&rig).await;
        for (o, data) in held.iter().enumerate() {
            let m = rig.request(o as u64 + 1, o, write(0, data.clone()));
            running.client.send(m.to_message()).await.unwrap();
            assert_eq!(reply(&mut running.client).await.result, 0);
        }
        stop(running).await;

        let mut running = start(&rig).await;
        let mut want: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut place = 77usize;
        for tid in 1000..1120u64 {
            place = place * 1_103_515_245 % (1 << 31) + 12_345;
            let (o, at, len) = (
                place % OBJECTS,
                place / 8 % (SIZE - 20_000),
                1 + place / 64 % 20_000,
            );
            let op = if tid % 5 == 0 {
                held[o][at..at + len].fill(tid as u8);
                want.insert(tid, Vec::new());
                write(at, vec![tid as u8; len])
            } else {
                want.insert(tid, held[o][at..at + len].to_vec());
                read(at, len)
            };
            let m = rig.request(tid, o, op);
            running.client.send(m.to_message()).await.unwrap();
        }
        while !want.is_empty() {
            let r = reply(&mut running.client).await;
            let data = want.remove(&r.tid).expect("one answer to each");
            assert_eq!((r.result, &r.ops[0].outdata[..]), (0, &data[..]), "{}", r.tid);
        }
        stop(running).await;

        let mut running = start(&rig).await;
        for (o, tid) in (2000..2030).enumerate() {
            let m = rig.request(tid, o % OBJECTS, read(0, SIZE));
            running.client.send(m.to_message()).await.unwrap();
        }
        stop(running).await;
    });
}

/// Clients drop an answer whose `retry_attempt` is not that of their last send: an answer that echoed 0 where the number could
/// not be read left a client that had sent again waiting for ever.
#[test]
fn an_operation_that_does_not_decode_is_refused_whichever_send_it_was() {
    local(async {
        let rig = Rig::new().await;
        let mut running = start(&rig).await;
        let mut broken = rig.request(7, 0, read(0, 1)).to_message();
        broken.front.truncate(9);
        running.client.send(broken).await.unwrap();
        let refused = reply(&mut running.client).await;
        assert_eq!(
            (refused.tid, refused.result, refused.retry_attempt),
            (7, Errno::EINVAL.code(), -1)
        );
        // The connection stays.
        let m = rig.request(8, 0, write(0, content(0)));
        running.client.send(m.to_message()).await.unwrap();
        assert_eq!(reply(&mut running.client).await.result, 0);
        stop(running).await;
    });
}
