//! Who may do what: every operation, every class method and the commands of `tell`, at several places, under capabilities of every
//! documented kind, tricky ones and none. What is right is said by a table of this test, which knows nothing of the parser.
//! And who is taken for another OSD.

use super::*;
use crate::sessions::Sessions;
use auth::{AuthMethod, PeerCaps};
use messages::osd::{CopyFromArg, OpClass, OpCode};
use msgr::Peer;
use net::ConnId;
use pg::memory::MemoryStore;
use pg::{ClusterView, Context, Input, Located, Output, Pg, PoolView};

/// What a grant gives, and where; written down by hand for each text.
#[derive(Clone, Copy, Default)]
struct Grant {
    pool: Option<&'static str>,
    /// With `*` behind it: a prefix.
    namespace: Option<&'static str>,
    prefix: &'static str,
    /// Only in pools that have this.
    tag: Option<(&'static str, &'static str, &'static str)>,
    read: bool,
    write: bool,
    class_read: bool,
    class_write: bool,
    class: Option<(&'static str, &'static str)>,
}

const NOTHING: Grant = Grant {
    pool: None,
    namespace: None,
    prefix: "",
    tag: None,
    read: false,
    write: false,
    class_read: false,
    class_write: false,
    class: None,
};
const R: Grant = Grant {
    read: true,
    ..NOTHING
};
const W: Grant = Grant {
    write: true,
    ..NOTHING
};
const RW: Grant = Grant { write: true, ..R };
const X: Grant = Grant {
    class_read: true,
    class_write: true,
    ..NOTHING
};
const RWX: Grant = Grant {
    read: true,
    write: true,
    ..X
};
const CLASS_READ: Grant = Grant {
    class_read: true,
    ..NOTHING
};
const CLASS_WRITE: Grant = Grant {
    class_write: true,
    ..NOTHING
};

impl Grant {
    const fn pool(self, pool: &'static str) -> Self {
        Self {
            pool: Some(pool),
            ..self
        }
    }
    const fn namespace(self, ns: &'static str) -> Self {
        Self {
            namespace: Some(ns),
            ..self
        }
    }
    const fn prefix(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }
    const fn tag(self, app: &'static str, key: &'static str, value: &'static str) -> Self {
        Self {
            tag: Some((app, key, value)),
            ..self
        }
    }
    const fn class(class: &'static str, method: &'static str) -> Self {
        Self {
            class: Some((class, method)),
            ..NOTHING
        }
    }

    fn is_at(&self, place: &Place) -> bool {
        let namespace = match self.namespace {
            None => true,
            Some(ns) if ns.ends_with('*') => place.namespace.starts_with(&ns[..ns.len() - 1]),
            Some(ns) => ns == place.namespace,
        };
        // The one pool with applications: cephfs with data=fs1, and rbd without a key.
        let tag = match self.tag {
            None => true,
            Some(_) if place.pool != "pool" => false,
            Some((app, "*", "*")) => app == "cephfs" || app == "rbd",
            Some((app, key, value)) => {
                app == "cephfs" && (key == "*" || key == "data") && (value == "*" || value == "fs1")
            }
        };
        namespace && tag && self.pool.is_none_or(|p| p == place.pool) && place.object.starts_with(self.prefix)
    }
}

/// In the default namespace of each pool whatever the profile is limited to: what 16.2's documentation calls the directory.
const METADATA_LIST: Grant = Grant::class("rbd", "metadata_list")
    .namespace("")
    .prefix("rbd_info");
const PROFILE_RBD: [Grant; 3] = [
    R.prefix("rbd_info"),
    CLASS_READ.prefix("rbd_children"),
    CLASS_READ.prefix("rbd_mirroring"),
];
const RBD_READ: Grant = Grant {
    class_read: true,
    ..R
};

fn table() -> Vec<(Option<&'static str>, Vec<Grant>)> {
    let rbd = |info: Grant, rest: Grant| {
        let mut all = PROFILE_RBD.to_vec();
        all.extend([info, rest]);
        all
    };
    let read_only = |info: Grant, place: fn(Grant) -> Grant| {
        let header = |method| place(Grant::class("rbd", method)).prefix("rbd_header.");
        vec![
            info,
            place(RBD_READ),
            header("child_attach"),
            header("child_detach"),
        ]
    };
    let some = |(text, grants)| (Some(text), grants);
    let mut all = vec![(None, vec![])];
    all.extend(
        [
            ("", vec![]),
            ("   ", vec![]),
            ("garbage", vec![]),
            ("allow", vec![]),
            ("Allow rw", vec![]),
            ("allow rw rubbish", vec![]),
            ("allow rwx pool=", vec![]),
            ("allow rwx, allow", vec![]),
            ("allow rw pool=pool allow rwx", vec![]),
            ("allow *", vec![RWX]),
            ("allow r", vec![R]),
            ("allow w", vec![W]),
            ("allow rw", vec![RW]),
            (" allow rw", vec![RW]),
            ("allow x", vec![X]),
            ("allow rwx", vec![RWX]),
            ("allow class-read", vec![CLASS_READ]),
            ("allow class-write", vec![CLASS_WRITE]),
            ("allow r class-read", vec![RBD_READ]),
            // No single grant gives both.
            ("allow r, allow w", vec![R, W]),
            ("allow r; allow w", vec![R, W]),
            ("allow rw pool=pool", vec![RW.pool("pool")]),
            ("allow rw pool=\"pool\"", vec![RW.pool("pool")]),
            ("allow rw pool='pool'", vec![RW.pool("pool")]),
            ("allow rw pool=other", vec![RW.pool("other")]),
            ("allow rw pool=poo", vec![RW.pool("poo")]),
            (
                "allow r pool=pool, allow w pool=other",
                vec![R.pool("pool"), W.pool("other")],
            ),
            ("allow rwx namespace=x", vec![RWX.namespace("x")]),
            ("allow rwx namespace=x*", vec![RWX.namespace("x*")]),
            ("allow rwx namespace=\"\"", vec![RWX.namespace("")]),
            (
                "allow rw pool=pool namespace=x object_prefix plain",
                vec![RW.pool("pool").namespace("x").prefix("plain")],
            ),
            (
                "allow rwx object_prefix rbd_header.",
                vec![RWX.prefix("rbd_header.")],
            ),
            (
                "allow rw tag cephfs data=fs1",
                vec![RW.tag("cephfs", "data", "fs1")],
            ),
            ("allow rw tag cephfs data=*", vec![RW.tag("cephfs", "data", "*")]),
            ("allow rw tag cephfs *=fs1", vec![RW.tag("cephfs", "*", "fs1")]),
            (
                "allow rw tag cephfs data=fs2",
                vec![RW.tag("cephfs", "data", "fs2")],
            ),
            ("allow r tag rbd *=*", vec![R.tag("rbd", "*", "*")]),
            ("allow rw tag rgw *=*", vec![RW.tag("rgw", "*", "*")]),
            (
                "allow rwx namespace=x tag cephfs data=fs1",
                vec![RWX.namespace("x").tag("cephfs", "data", "fs1")],
            ),
            (
                "allow class rbd metadata_list",
                vec![Grant::class("rbd", "metadata_list")],
            ),
            ("allow class rbd", vec![Grant::class("rbd", "")]),
            ("allow class lock lock", vec![Grant::class("lock", "lock")]),
            ("allow class rb", vec![Grant::class("rb", "")]),
            // Clients of this test send from 1.2.3.4, and say that they are 9.9.9.9.
            ("allow rw network 1.2.3.0/24", vec![RW]),
            ("allow rw network 9.9.9.0/24", vec![]),
            ("allow * network 9.9.9.9", vec![]),
            ("allow rw network nonsense", vec![]),
            ("profile rbd", rbd(METADATA_LIST, RWX)),
            (
                "profile rbd pool=pool",
                rbd(METADATA_LIST.pool("pool"), RWX.pool("pool")),
            ),
            (
                "profile rbd pool=pool namespace=x",
                rbd(METADATA_LIST.pool("pool"), RWX.pool("pool").namespace("x")),
            ),
            (
                "profile rbd pool=other, profile rbd-read-only pool=pool",
                [
                    rbd(METADATA_LIST.pool("other"), RWX.pool("other")),
                    read_only(METADATA_LIST.pool("pool"), |g| g.pool("pool")),
                ]
                .concat(),
            ),
            ("profile rbd-read-only", read_only(METADATA_LIST, |g| g)),
            (
                "profile rbd-read-only pool=pool namespace=x",
                read_only(METADATA_LIST.pool("pool"), |g| g.pool("pool").namespace("x")),
            ),
            ("profile read-only", vec![R]),
            ("profile read-write namespace=x", vec![RW.namespace("x")]),
            ("profile nonsense", vec![]),
            ("profile rbd network 9.9.9.0/24", vec![]),
        ]
        .map(some),
    );
    all
}

#[derive(Clone, Copy)]
struct Place {
    pool: &'static str,
    namespace: &'static str,
    object: &'static str,
}

const fn place(pool: &'static str, namespace: &'static str, object: &'static str) -> Place {
    Place {
        pool,
        namespace,
        object,
    }
}

const PLACES: [Place; 9] = [
    place("pool", "", "plain"),
    place("pool", "", "rbd_info"),
    place("pool", "", "rbd_header.1"),
    place("pool", "", "rbd_children"),
    place("pool", "x", "plain"),
    place("pool", "x1", "plain"),
    place("pool", "y", "rbd_header.1"),
    place("other", "", "plain"),
    place("other", "x", "rbd_mirroring"),
];

/// What COPY_FROM names here.
const SOURCE: Place = place("other", "x", "plain.source");

#[derive(Clone, Copy)]
enum Need {
    /// Nobody gets it: a nonsense.
    Never,
    Data {
        read: bool,
        write: bool,
    },
    Call {
        class: &'static str,
        method: &'static str,
        read: bool,
        write: bool,
    },
}

const READS: Need = Need::Data {
    read: true,
    write: false,
};
const WRITES: Need = Need::Data {
    read: false,
    write: true,
};
const BOTH: Need = Need::Data {
    read: true,
    write: true,
};

fn gives(grants: &[Grant], place: &Place, need: Need) -> bool {
    grants.iter().filter(|g| g.is_at(place)).any(|g| match need {
        Need::Never => false,
        Need::Data { read, write } => (g.read || !read) && (g.write || !write),
        Need::Call {
            class,
            method,
            read,
            write,
        } => {
            let named = g
                .class
                .is_some_and(|(c, m)| c == class && (m.is_empty() || m == method));
            named || ((g.class_read || !read) && (g.class_write || !write) && (g.class_read || g.class_write))
        }
    })
}

/// Every operation that there is, with what it needs, by hand.
fn operations() -> Vec<(OsdOp, Need)> {
    use messages::osd::code::*;
    let reads = [
        READ,
        STAT,
        MAPEXT,
        MASKTRUNC,
        SPARSE_READ,
        NOTIFY,
        NOTIFY_ACK,
        ASSERT_VER,
        LIST_WATCHERS,
        LIST_SNAPS,
        SYNC_READ,
        TMAPGET,
        OMAPGETKEYS,
        OMAPGETVALS,
        OMAPGETHEADER,
        OMAPGETVALSBYKEYS,
        OMAP_CMP,
        ISDIRTY,
        COPY_GET,
        CHECKSUM,
        CMPEXT,
        GETXATTR,
        GETXATTRS,
        CMPXATTR,
        PGLS,
        PGLS_FILTER,
        PG_HITSET_LS,
        PG_HITSET_GET,
        PGNLS,
        PGNLS_FILTER,
        SCRUBLS,
    ];
    let writes = [
        WRITE,
        WRITEFULL,
        TRUNCATE,
        ZERO,
        DELETE,
        APPEND,
        STARTSYNC,
        SETTRUNC,
        TRIMTRUNC,
        TMAPPUT,
        CREATE,
        ROLLBACK,
        OMAPSETVALS,
        OMAPSETHEADER,
        OMAPCLEAR,
        OMAPRMKEYS,
        COPY_FROM,
        UNDIRTY,
        SETALLOCHINT,
        CACHE_PIN,
        CACHE_UNPIN,
        WRITESAME,
        SET_REDIRECT,
        TIER_PROMOTE,
        UNSET_MANIFEST,
        OMAPRMKEYRANGE,
        COPY_FROM2,
        CACHE_FLUSH,
        CACHE_EVICT,
        CACHE_TRY_FLUSH,
        SET_CHUNK,
        TIER_FLUSH,
        TIER_EVICT,
        SETXATTR,
        SETXATTRS,
        RESETXATTRS,
        RMXATTR,
    ];
    let both = [TMAPUP, TMAP2OMAP, WATCH];
    let mut all: Vec<(OsdOp, Need)> = Vec::new();
    all.extend(reads.map(|c| (OsdOp::new(c), READS)));
    all.extend(writes.map(|c| (OsdOp::new(c), WRITES)));
    all.extend(both.map(|c| (OsdOp::new(c), BOTH)));
    let known: std::collections::BTreeSet<OpCode> = all.iter().map(|(op, _)| op.code).chain([CALL]).collect();
    let missing: Vec<&OpCode> = OpCode::ALL.iter().filter(|c| !known.contains(c)).collect();
    assert!(
        missing.is_empty(),
        "this table does not say who may do {missing:?}"
    );
    for (op, _) in all
        .iter_mut()
        .filter(|(op, _)| matches!(op.code, COPY_FROM | COPY_FROM2))
    {
        let mut w = denc::Writer::new();
        w.string(SOURCE.object);
        w.put(&ObjectLocator {
            pool: 2,
            key: Bytes::new(),
            nspace: SOURCE.namespace.into(),
            hash: -1,
        });
        *op = op.clone().with_data(w.finish()).with_copy_from(CopyFromArg {
            snap: NOSNAP,
            version: 0,
            flags: 0,
        });
    }
    // A ping of a watch changes nothing.
    let ping = messages::osd::WatchArg {
        op: 7,
        ..Default::default()
    };
    all.push((OsdOp::new(WATCH).with_watch(ping), READS));
    // Numbers that nobody knows, of every kind.
    all.push((OsdOp::new(OpCode(0)), Need::Never));
    all.push((OsdOp::new(OpCode(0x12ff)), READS));
    all.push((OsdOp::new(OpCode(0x22ff)), WRITES));
    all.push((OsdOp::new(OpCode(0x32ff)), BOTH));
    all.push((OsdOp::new(OpCode(0x15ff)), READS));
    all.push((OsdOp::new(OpCode(0x82ff)), WRITES));
    all.push((OsdOp::new(OpCode(0x0201)), READS));
    for class in objclass::CLASSES {
        for method in class.methods {
            let need = Need::Call {
                class: class.name,
                method: method.name,
                read: method.reads(),
                write: method.writes(),
            };
            all.push((call(class.name, method.name), need));
        }
    }
    all.push((call("rbd", "no_such_method"), Need::Never));
    all.push((call("no_such_class", "lock"), Need::Never));
    all
}

fn call(class: &str, method: &str) -> OsdOp {
    OsdOp::on_class(class, method, b"")
}

/// Two pools; every object of the second is elsewhere.
struct View(PoolView, PoolView);

impl View {
    fn new() -> Self {
        let data = BTreeMap::from([("data".to_string(), "fs1".to_string())]);
        let pool = |id, name: &str| PoolView {
            epoch: 5,
            id,
            name: name.into(),
            pg_num: 1,
            ..PoolView::default()
        };
        let mut tagged = pool(1, "pool");
        tagged.applications = BTreeMap::from([("cephfs".into(), data), ("rbd".into(), BTreeMap::new())]);
        Self(tagged, pool(2, "other"))
    }
}

impl ClusterView for View {
    fn pool(&self, id: PoolId) -> Option<&PoolView> {
        [&self.0, &self.1].into_iter().find(|p| p.id == id)
    }
    fn locate(&self, oloc: &ObjectLocator, oid: &Bytes, snap: u64) -> Located {
        let nspace = oloc.nspace.clone();
        Located::Remote(HObject::new(
            oloc.pool,
            0,
            nspace,
            Bytes::new(),
            oid.clone(),
            snap,
        ))
    }
}

/// A PG with the objects of one place, and one client with its session.
struct Bench {
    view: View,
    pool: PoolId,
    store: MemoryStore,
    pg: Pg,
    client: Arc<Client>,
    tid: u64,
}

fn peer(auth_name: AuthName, name: EntityName, caps: PeerCaps) -> Peer {
    Peer {
        name,
        auth_name,
        global_id: 4200,
        caps,
        key_epoch: None,
        addrs: EntityAddrVec::one(EntityAddr::msgr2("9.9.9.9:0".parse().unwrap(), 77)),
        sock: "1.2.3.4:5555".parse().unwrap(),
        features: msgr::features::SUPPORTED,
        method: AuthMethod::Cephx,
        secure: false,
        server_challenge: None,
        lifeline: false,
        lossless: false,
        monmap_epoch: None,
    }
}

fn client_with(text: Option<&str>) -> Peer {
    let texts = text.map(|t| ("osd".to_string(), t.to_string()));
    let caps = PeerCaps::Texts(texts.into_iter().collect());
    peer(
        AuthName::new(EntityKind::Client, "x"),
        EntityName::client(4200),
        caps,
    )
}

impl Bench {
    fn new(text: Option<&str>, place: &Place) -> Self {
        let mut sessions = Sessions::default();
        sessions.opened(ConnId(1), &client_with(text));
        let may_tell = text.is_some_and(|t| t.trim() == "allow *");
        assert_eq!(sessions.may_command(ConnId(1)), may_tell, "tell, by {text:?}");
        assert_eq!(sessions.osd(ConnId(1)), None);
        let client = sessions.client(ConnId(1)).unwrap();
        let view = View::new();
        let pool = match place.pool {
            "pool" => view.0.clone(),
            _ => view.1.clone(),
        };
        let mut store = MemoryStore::default();
        let id = SPgId::replicated(PgId::new(pool.id, 0));
        let pool_id = pool.id;
        let pg = Pg::load(id, Arc::new(pool), &mut store, Duration::ZERO).unwrap();
        Self {
            view,
            pool: pool_id,
            store,
            pg,
            client,
            tid: 0,
        }
    }

    fn apply(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        let ctx = &mut Context {
            store: &mut self.store,
            cluster: &self.view,
            now: Duration::from_secs(1),
            wall: Utime::ZERO,
            random: &mut || 4,
            out: &mut out,
        };
        self.pg.apply(input, ctx);
        let durable = self.store.seq;
        self.pg.apply(
            Input::Committed(durable),
            &mut Context {
                store: &mut self.store,
                cluster: &self.view,
                now: Duration::from_secs(1),
                wall: Utime::ZERO,
                random: &mut || 4,
                out: &mut out,
            },
        );
        out
    }

    /// The answer; and whether another object was asked for.
    fn run(&mut self, place: &Place, op: OsdOp) -> (MOSDOpReply, bool) {
        self.tid += 1;
        let of_pg = op.code.is_pg();
        let m = MOSDOp {
            tid: self.tid,
            pgid: self.pg.id(),
            hash: 0,
            epoch: 5,
            flags: 0,
            reqid: OsdReqId {
                name: EntityName { kind: 0, num: 0 },
                tid: 0,
                inc: 0,
            },
            trace: [0; 3],
            client_inc: 0,
            mtime: Utime::ZERO,
            oloc: ObjectLocator {
                pool: self.pool,
                key: Bytes::new(),
                nspace: place.namespace.into(),
                hash: -1,
            },
            oid: if of_pg { Bytes::new() } else { place.object.into() },
            ops: vec![op],
            snapid: NOSNAP,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        };
        let mut out = self.apply(Input::ClientOp(Box::new(ClientOp {
            conn: 1,
            client: self.client.clone(),
            op: m,
            permit: Permit::default(),
        })));
        let asked = out.iter().find_map(|o| match o {
            Output::FetchObject { id, .. } => Some(*id),
            _ => None,
        });
        if let Some(id) = asked {
            let result = Err(Errno::ENOENT);
            out = self.apply(Input::Fetched { id, result });
        }
        let mut replies = out.into_iter().filter_map(|o| match o {
            Output::Reply { reply, .. } => Some(reply),
            _ => None,
        });
        (replies.next().expect("an answer"), asked.is_some())
    }
}

#[test]
fn nobody_does_more_than_the_capabilities_say() {
    let operations = operations();
    let (mut given, mut refused) = (0, 0);
    for (text, grants) in table() {
        for at in &PLACES {
            let mut bench = Bench::new(text, at);
            for (op, need) in &operations {
                let asked_at = match op.code {
                    // It tells of all namespaces.
                    code::SCRUBLS => place(at.pool, "\u{1}", ""),
                    c if c.is_pg() => place(at.pool, at.namespace, ""),
                    _ => *at,
                };
                let copies = matches!(op.code, code::COPY_FROM | code::COPY_FROM2);
                let want = gives(&grants, &asked_at, *need) && (!copies || gives(&grants, &SOURCE, READS));
                let (reply, fetched) = bench.run(at, op.clone());
                let said = || {
                    let what = String::from_utf8_lossy(&op.indata).into_owned();
                    format!(
                        "{text:?}: {:?} {what} at {}/{}/{}",
                        op.code, at.pool, at.namespace, at.object
                    )
                };
                // What was executed says so in its own return value.
                let ran = reply.result != Errno::EPERM.code() || reply.ops.iter().any(|o| o.rval != 0);
                if matches!(need, Need::Never) {
                    assert!(
                        reply.result == -22 || reply.result == -95,
                        "{}: {}",
                        said(),
                        reply.result
                    );
                    continue;
                }
                assert_eq!(ran, want, "{}: {}", said(), reply.result);
                assert_eq!(fetched, want && copies, "{}", said());
                if !OpCode::ALL.contains(&op.code) {
                    assert!(reply.result < 0, "{}: an operation that nobody knows", said());
                }
                *match want {
                    true => &mut given,
                    false => &mut refused,
                } += 1;
            }
        }
    }
    assert!(given > 10_000 && refused > 10_000, "{given} {refused}");
}

/// The classes that the numbers say are those that the table above goes by.
#[test]
fn numbers_that_nobody_knows_count_as_what_their_bits_say() {
    let check = |c: u16, want| assert_eq!(OpCode(c).class(), want, "{c:#x}");
    check(0x12ff, OpClass::Read);
    check(0x22ff, OpClass::Write);
    check(0x32ff, OpClass::ReadWrite);
    check(0x82ff, OpClass::Cache);
    check(0x0201, OpClass::None);
}

#[test]
fn only_the_holder_of_an_osds_key_speaks_for_it() {
    let cases = [
        (EntityKind::Osd, "3", EntityName::osd(3), Some(3)),
        (EntityKind::Osd, "0", EntityName::osd(0), Some(0)),
        // The number that it calls itself is another's.
        (EntityKind::Osd, "3", EntityName::osd(4), None),
        (EntityKind::Osd, "3", EntityName::client(4200), None),
        (EntityKind::Client, "3", EntityName::osd(3), None),
        (EntityKind::Client, "admin", EntityName::client(4200), None),
        (EntityKind::Mgr, "3", EntityName::osd(3), None),
        // Entities of their own, with keys of their own.
        (EntityKind::Osd, "03", EntityName::osd(3), None),
        (EntityKind::Osd, "+3", EntityName::osd(3), None),
        (EntityKind::Osd, " 3", EntityName::osd(3), None),
        (EntityKind::Osd, "-1", EntityName::osd(-1), None),
        (EntityKind::Osd, "3x", EntityName::osd(3), None),
        (EntityKind::Osd, "", EntityName::osd(0), None),
    ];
    for (kind, id, name, want) in cases {
        let mut sessions = Sessions::default();
        let p = peer(AuthName::new(kind, id), name, PeerCaps::AllowAll);
        sessions.opened(ConnId(1), &p);
        assert_eq!(sessions.osd(ConnId(1)), want, "{} as {name}", p.auth_name);
    }
}

/// What one OSD says to another, from somebody who is none: whatever it may do else.
#[test]
fn a_client_that_speaks_as_an_osd_is_cut_off() {
    use messages::osd::peer::PeerMsg;
    let object = HObject::new(POOL, 0, Bytes::new(), Bytes::new(), "o".into(), NOSNAP);
    let said = [
        PeerMsg::Ping { stamp: 1, epoch: 1 },
        PeerMsg::Fetch { id: 1, object },
    ];
    for m in said {
        local(async {
            let rig = Rig::new().await;
            let l = start_osd(&rig, 0, "osd").await;
            let mut client = connect(l.at).await;
            client.send(m.to_message()).await.unwrap();
            assert!(client.recv().await.is_err(), "{m:?}");
            l.stop.send(true).unwrap();
            l.ended.await.unwrap().unwrap();
        });
    }
}
