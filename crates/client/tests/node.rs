//! The client against a node of this project, in the test's own process: all kinds of operations, with and without
//! authentication, in crc and secure mode, and over a restart of the server.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use client::core::list::XattrIs;
use client::core::op::{Checksum, CopySource};
use client::{Client, Cmp, Conf, Cursor, Error, IoCtx, Operation, SnapContext, Target, WatchEvent};
use io::task;
use node::{AuthMode, DataDir, Node, StartOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use types::{Errno, NOSNAP, PgId};

/// Only what hangs is ended by it.
const LONG: Duration = Duration::from_secs(120);

struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    conf: PathBuf,
    keyring: PathBuf,
}

fn start(dir: &Path, auth: AuthMode) -> Server {
    let dir = DataDir::create(dir).unwrap();
    let (conf, keyring) = (dir.conf_path(), dir.keyring_path());
    let (stop, stopped) = oneshot::channel();
    let (up, is_up) = mpsc::channel();
    let thread = task::spawn_role("node", move || async move {
        let options = StartOptions {
            osds: Some(3),
            mon_port: Some(0),
            auth: Some(auth),
            osd_size: Some(1 << 30),
            osd_memory: Some(64 << 20),
            ..StartOptions::default()
        };
        let mut node = Node::start(&dir, options, &|_| {}).await.unwrap();
        up.send(()).unwrap();
        let told = node.serve(async {
            let _ = stopped.await;
            Ok("test")
        });
        told.await.unwrap();
        node.stop().await;
    });
    let thread = thread.unwrap();
    is_up.recv().unwrap();
    Server {
        stop,
        thread,
        conf,
        keyring,
    }
}

impl Server {
    fn conf(&self) -> Conf {
        let mut conf = Conf::read(&self.conf, "client.admin", Some(&self.keyring)).unwrap();
        conf.connect_timeout = LONG;
        conf.op_timeout = Some(LONG);
        conf.mon_timeout = Some(LONG);
        conf
    }

    fn end(self) {
        drop(self.stop);
        self.thread.join().unwrap();
    }
}

async fn pool(client: &Client, name: &str) -> IoCtx {
    let cmd = format!(r#"{{"prefix": "osd pool create", "pool": "{name}", "pg_num": 8}}"#);
    client.mon_command(&cmd, Bytes::new()).await.unwrap();
    client.pool(name).await.unwrap()
}

fn b(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

fn errno<T: std::fmt::Debug>(r: client::Result<T>) -> Errno {
    r.unwrap_err().errno()
}

#[test]
fn every_kind_of_operation() {
    let tmp = tempfile::tempdir().unwrap();
    let server = start(tmp.path(), AuthMode::None);
    let conf = server.conf();
    task::block_on(everything(conf)).unwrap();
    server.end();
}

/// The same against a cluster of another make: its ceph.conf and keyring are in `SKEP_TEST_CONF` and `SKEP_TEST_KEYRING`.
#[test]
#[ignore = "needs a running cluster"]
fn every_kind_of_operation_on_a_cluster_that_runs() {
    let conf = std::env::var("SKEP_TEST_CONF").unwrap();
    let keyring = std::env::var("SKEP_TEST_KEYRING").ok().map(PathBuf::from);
    let conf = Conf::read(Path::new(&conf), "client.admin", keyring.as_deref()).unwrap();
    task::block_on(everything(conf)).unwrap();
}

async fn everything(conf: Conf) {
    let client = Client::connect(conf).await.unwrap();
    let io = pool(&client, "p").await;
    data(&io).await;
    attributes(&io).await;
    omap(&io).await;
    compound(&io).await;
    places(&io).await;
    listing(&io).await;
    watching(&client, &io).await;
    snapshots(&client).await;
    monitors(&client).await;
    daemons(&client, &io).await;
    cancelled(&io).await;
    assert_eq!(errno(client.pool("no such").await), Errno::ENOENT);
    client.shutdown().await;
    assert_eq!(io.stat("a").await, Err(Error::Closed));
}

async fn data(io: &IoCtx) {
    assert_eq!(errno(io.read("a", 0, 0).await), Errno::ENOENT);
    io.write_full("a", "hello").await.unwrap();
    io.append("a", " world").await.unwrap();
    io.write("a", 0, "J").await.unwrap();
    assert_eq!(io.read("a", 0, 0).await.unwrap(), "Jello world");
    assert_eq!(io.read("a", 6, 100).await.unwrap(), "world");
    let (size, mtime) = io.stat("a").await.unwrap();
    assert!(size == 11 && mtime.sec > 0);
    io.truncate("a", 5).await.unwrap();
    assert_eq!(io.read("a", 0, 0).await.unwrap(), "Jello");
    let op = Operation::new()
        .checksum(Checksum::Crc32c(u32::MAX), 0, 0, 0)
        .sparse_read(1, 2);
    let done = io.operate("a", op).await.unwrap().done().unwrap();
    assert_eq!(done.steps[0].checksums(false).unwrap().len(), 1);
    let (extents, bytes) = done.steps[1].sparse().unwrap();
    assert_eq!((extents, bytes), (BTreeMap::from([(1, 2)]), b("el")));
    let big = vec![7u8; 20 << 20];
    io.write_full("big", big.clone()).await.unwrap();
    assert_eq!(io.read("big", 0, 0).await.unwrap().len(), big.len());
    let op = Operation::new().write_same(0, 8, "ab").zero(2, 2);
    io.operate("same", op).await.unwrap().done().unwrap();
    assert_eq!(io.read("same", 0, 0).await.unwrap(), &b"ab\0\0abab"[..]);
    io.remove("big").await.unwrap();
    assert_eq!(errno(io.remove("big").await), Errno::ENOENT);
}

async fn attributes(io: &IoCtx) {
    io.set_xattr("x", b"one", b"1").await.unwrap();
    io.set_xattr("x", b"two", b"22").await.unwrap();
    assert_eq!(io.get_xattr("x", b"two").await.unwrap(), "22");
    assert_eq!(io.get_xattrs("x").await.unwrap().len(), 2);
    io.remove_xattr("x", b"one").await.unwrap();
    assert_eq!(errno(io.get_xattr("x", b"one").await), Errno::ENODATA);
}

async fn omap(io: &IoCtx) {
    let values: BTreeMap<Bytes, Bytes> = (0..2500)
        .map(|n| (b(&format!("k{n:05}")), b(&n.to_string())))
        .collect();
    io.omap_set("o", &values).await.unwrap();
    assert_eq!(io.omap("o").await.unwrap(), values);
    let page = io.omap_keys("o", b"k02490", 5).await.unwrap();
    assert_eq!((page.items.len(), page.more), (5, true));
    let keys = BTreeSet::from([b("k00001"), b("none")]);
    assert_eq!(io.omap_get("o", &keys).await.unwrap().len(), 1);
    io.omap_remove("o", &keys).await.unwrap();
    let range = Operation::new().remove_omap_range(b"k00010", b"k02490");
    io.operate("o", range).await.unwrap().done().unwrap();
    assert_eq!(io.omap("o").await.unwrap().len(), 10 - 1 + 10);
    io.omap_set_header("o", "head").await.unwrap();
    assert_eq!(io.omap_header("o").await.unwrap(), "head");
    let equal = |v| BTreeMap::from([(b("k00000"), (b(v), Cmp::Eq))]);
    let good = Operation::new().cmp_omap(&equal("0"));
    assert!(io.operate("o", good).await.unwrap().done().is_ok());
    let bad = Operation::new().cmp_omap(&equal("1"));
    assert_eq!(
        errno(io.operate("o", bad).await.unwrap().done()),
        Errno::ECANCELED
    );
    io.omap_clear("o").await.unwrap();
    assert!(io.omap("o").await.unwrap().is_empty());
}

async fn compound(io: &IoCtx) {
    let op = Operation::new()
        .create(true)
        .set_xattr(b"v", b"7")
        .append("data")
        .alloc_hint(8, 8, 1);
    io.operate("c", op.clone()).await.unwrap().done().unwrap();
    assert_eq!(errno(io.operate("c", op).await.unwrap().done()), Errno::EEXIST);
    // Nothing of an operation that fails is kept.
    let op = Operation::new().append("more").cmp_xattr(b"v", Cmp::Eq, b"8");
    assert_eq!(errno(io.operate("c", op).await.unwrap().done()), Errno::ECANCELED);
    assert_eq!(io.read("c", 0, 0).await.unwrap(), "data");
    let differ = io
        .operate("c", Operation::new().cmp_extent(0, "daXa"))
        .await
        .unwrap();
    assert_eq!(differ.mismatch(), Some(2));
    let version = io.operate("c", Operation::new().stat()).await.unwrap().version;
    let op = Operation::new().assert_version(version).append("!");
    io.operate("c", op.clone()).await.unwrap().done().unwrap();
    assert_eq!(errno(io.operate("c", op).await.unwrap().done()), Errno::ERANGE);
    let op = Operation::new().cmp_xattr_u64(b"v", Cmp::Gt, 6).stat();
    assert_eq!(errno(io.operate("c", op).await.unwrap().done()), Errno::ECANCELED);
    let source = CopySource {
        pool: io.pool_id(),
        nspace: Bytes::new(),
        key: Bytes::new(),
        oid: b("c"),
        snap: NOSNAP,
    };
    let op = Operation::new().copy_from(&source, 0);
    io.operate("d", op).await.unwrap().done().unwrap();
    assert_eq!(io.read("d", 0, 0).await.unwrap(), "data!");
    assert_eq!(
        io.exec("c", "hello", "say_hello", b"you").await.unwrap(),
        "Hello, you!"
    );
    io.exec_write("h", "hello", "record_hello", b"test")
        .await
        .unwrap();
    assert_eq!(io.read("h", 0, 0).await.unwrap(), "Hello, test!");
    assert_eq!(
        errno(io.exec("c", "hello", "no such", b"").await),
        Errno::EOPNOTSUPP
    );
}

async fn places(io: &IoCtx) {
    let mut other = io.clone();
    other.set_namespace("ns");
    other.write_full("a", "in ns").await.unwrap();
    assert_eq!(io.read("a", 0, 0).await.unwrap(), "Jello");
    assert_eq!(other.read("a", 0, 0).await.unwrap(), "in ns");
    let mut located = io.clone();
    located.set_locator("elsewhere");
    assert_eq!(errno(located.stat("a").await), Errno::ENOENT);
    located.write_full("a", "there").await.unwrap();
    assert_eq!(located.read("a", 0, 0).await.unwrap(), "there");
}

async fn listing(io: &IoCtx) {
    let mut spaced = io.clone();
    spaced.set_namespace("many");
    let names: BTreeSet<Bytes> = (0..300).map(|n| b(&format!("obj{n}"))).collect();
    for name in &names {
        spaced.write_full(name, "x").await.unwrap();
    }
    spaced.set_xattr("obj7", b"colour", b"red").await.unwrap();
    let mut list = spaced.list();
    let mut seen = Vec::new();
    while !list.is_done() {
        seen.extend(list.page(7).await.unwrap());
    }
    assert_eq!(seen.len(), names.len());
    assert_eq!(seen.into_iter().map(|e| e.oid).collect::<BTreeSet<_>>(), names);
    let mut sliced = 0;
    for n in 0..5 {
        let (from, end) = Cursor::slice(io.pool_id(), n, 5).unwrap();
        sliced += spaced.list().between(from, end).collect().await.unwrap().len();
    }
    assert_eq!(sliced, names.len());
    let all = io.list().all_namespaces().collect().await.unwrap();
    assert!(all.len() > names.len() && all.iter().any(|e| e.nspace == "ns"));
    assert!(all.iter().any(|e| e.key == "elsewhere"));
    let red = XattrIs {
        name: b("colour"),
        value: b("red"),
    };
    let red = spaced.list().with_xattr(red).collect().await.unwrap();
    assert_eq!(red.iter().map(|e| &e.oid[..]).collect::<Vec<_>>(), [b"obj7"]);
}

async fn watching(client: &Client, io: &IoCtx) {
    assert_eq!(errno(io.watch("no such", None).await), Errno::ENOENT);
    let mut watch = io.watch("a", Some(LONG)).await.unwrap();
    let watchers = io.watchers("a").await.unwrap();
    assert_eq!(
        (watchers[0].client as u64, watchers[0].timeout_s),
        (client.global_id(), LONG.as_secs() as u32)
    );
    let notify = io.notify("a", "wake", LONG);
    let (told, ()) = tokio::join!(notify, async {
        let WatchEvent::Notify {
            notify_id, payload, ..
        } = watch.next().await
        else {
            panic!("lost");
        };
        assert_eq!(payload, "wake");
        watch.ack(notify_id, "awake").await.unwrap();
    });
    let told = told.unwrap();
    assert_eq!((told.replies[0].2.clone(), told.missed.len()), (b("awake"), 0));
    // Nobody answers in time.
    let told = io.notify("a", "x", Duration::from_secs(1)).await.unwrap();
    assert_eq!((told.replies.len(), told.missed.len()), (0, 1));
    assert!(watch.confirmed().await.unwrap() < LONG);
    watch.unwatch().await.unwrap();
    assert!(io.watchers("a").await.unwrap().is_empty());
    io.write_full("gone", "").await.unwrap();
    let mut watch = io.watch("gone", None).await.unwrap();
    io.remove("gone").await.unwrap();
    assert!(matches!(watch.next().await, WatchEvent::Lost(_)));
}

async fn snapshots(client: &Client) {
    let mut io = pool(client, "snaps").await;
    io.write_full("a", "one").await.unwrap();
    let first = io.create_selfmanaged_snap().await.unwrap();
    io.set_snap_context(SnapContext::new(first, vec![first]).unwrap());
    io.write_full("a", "two").await.unwrap();
    let mut old = io.clone();
    old.set_read_snap(Some(first));
    assert_eq!(old.read("a", 0, 0).await.unwrap(), "one");
    assert_eq!(errno(old.write_full("a", "x").await), Errno::EROFS);
    let set = io.list_snaps("a").await.unwrap();
    assert_eq!((set.clones.len(), set.clones[0].snaps.clone()), (2, vec![first]));
    io.rollback("a", first).await.unwrap();
    assert_eq!(io.read("a", 0, 0).await.unwrap(), "one");
    io.remove_selfmanaged_snap(first).await.unwrap();
    assert_eq!(errno(old.read("a", 0, 0).await), Errno::ENOENT);
    let io = pool(client, "poolsnaps").await;
    io.write_full("a", "one").await.unwrap();
    io.create_snap("s").await.unwrap();
    assert_eq!(errno(io.create_snap("s").await), Errno::EEXIST);
    io.write_full("a", "two").await.unwrap();
    let mut old = io.clone();
    old.set_read_snap(io.snap_by_name("s").unwrap());
    assert_eq!(old.read("a", 0, 0).await.unwrap(), "one");
    io.remove_snap("s").await.unwrap();
}

async fn monitors(client: &Client) {
    let status = client
        .mon_command(r#"{"prefix": "status", "format": "json"}"#, "")
        .await
        .unwrap();
    assert!(status.output.starts_with(b"\n{") || status.output.starts_with(b"{"));
    assert_eq!(
        errno(client.mon_command(r#"{"prefix": "no such"}"#, "").await),
        Errno::EINVAL
    );
    let (newest, oldest) = client.version("osdmap").await.unwrap();
    assert!(newest >= oldest && newest >= u64::from(client.map().unwrap().epoch));
    assert!(client.statfs(None).await.unwrap().kb_total > 0);
    assert!(client.pool_stats(vec!["p".into()]).await.is_ok());
    client.create_pool("made").await.unwrap();
    assert!(client.pool("made").await.is_ok());
}

const VERSION: &str = r#"{"prefix": "version"}"#;

async fn daemons(client: &Client, io: &IoCtx) {
    let told = client.command(Target::Osd(0), VERSION, "").await.unwrap();
    let version: serde_json::Value = serde_json::from_slice(&told.output).unwrap();
    assert!(version["version"].is_string());
    for (to, cmd, want) in [
        (Target::Osd(0), "asdf", Errno::EINVAL),
        (Target::Osd(0), r#"{"prefix": "no such"}"#, Errno::EINVAL),
        (Target::Osd(99), VERSION, Errno::ENOENT),
        (Target::Pg(PgId::new(9999, 0)), VERSION, Errno::ENOENT),
    ] {
        assert_eq!(errno(client.command(to, cmd, "").await), want, "{to} {cmd}");
    }
    for seed in 0..8 {
        let pg = PgId::new(io.pool_id(), seed);
        let query = format!(r#"{{"prefix": "pg", "cmd": "query", "pgid": "{pg}"}}"#);
        let told = client.command(Target::Pg(pg), &query, "").await.unwrap();
        let state: serde_json::Value = serde_json::from_slice(&told.output).unwrap();
        assert_eq!(state["info"]["pgid"], pg.to_string());
    }
    let own = client.command(Target::Mgr, VERSION, "").await.unwrap();
    assert!(!own.output.is_empty());
    let stat = r#"{"prefix": "pg stat"}"#;
    let told = client.command(Target::MgrModules, stat, "").await.unwrap();
    assert!(told.output.windows(3).any(|w| w == b"pgs"));
    assert_eq!(
        errno(client.command(Target::MgrModules, "asdf", "").await),
        Errno::EINVAL
    );
}

/// A dropped future gives its room back.
async fn cancelled(io: &IoCtx) {
    for _ in 0..3000 {
        let read = io.read("a", 0, 0);
        let _ = task::timeout(Duration::ZERO, read).await;
    }
    assert_eq!(io.read("a", 0, 0).await.unwrap(), "Jello");
}

#[test]
fn with_keys_and_secure_connections() {
    let tmp = tempfile::tempdir().unwrap();
    let server = start(tmp.path(), AuthMode::Cephx);
    let conf = server.conf();
    let mut secure = conf.clone();
    secure.osd_modes = vec![auth::ConMode::Secure];
    secure.mon_modes = vec![auth::ConMode::Secure];
    let mut wrong = conf.clone();
    wrong.key = Some(auth::CryptoKey::new([1; 16], types::Utime::ZERO));
    let done = task::block_on(async {
        let plain = Client::connect(conf).await.unwrap();
        let io = pool(&plain, "p").await;
        io.write_full("a", vec![3; 100_000]).await.unwrap();
        let secure = Client::connect(secure).await.unwrap();
        let theirs = secure.pool("p").await.unwrap();
        assert_eq!(theirs.read("a", 0, 0).await.unwrap(), vec![3; 100_000]);
        assert_ne!(plain.global_id(), secure.global_id());
        for (client, to) in [
            (&plain, Target::Mgr),
            (&secure, Target::Mgr),
            (&secure, Target::Osd(1)),
        ] {
            client.command(to, VERSION, "").await.unwrap();
        }
        assert!(matches!(Client::connect(wrong).await, Err(Error::Auth(_))));
        plain.shutdown().await;
        secure.shutdown().await;
    });
    done.unwrap();
    server.end();
}

/// Appends go on while the server stops and starts: each takes effect once, and in order.
#[test]
fn a_restart_of_the_server_loses_and_doubles_nothing() {
    const APPENDS: u32 = 400;
    let tmp = tempfile::tempdir().unwrap();
    let server = start(tmp.path(), AuthMode::Cephx);
    let conf = server.conf();
    let (half, is_half) = mpsc::channel();
    let writer = task::spawn_role("writer", move || async move {
        let client = Client::connect(conf).await.unwrap();
        let io = pool(&client, "p").await;
        io.write_full("log", "").await.unwrap();
        let mut watch = io.watch("log", None).await.unwrap();
        client.command(Target::Osd(0), VERSION, "").await.unwrap();
        let mut waiting = std::collections::VecDeque::new();
        for n in 0..APPENDS {
            let io = io.clone();
            let append = async move { io.append("log", n.to_le_bytes().to_vec()).await };
            waiting.push_back(task::spawn_local(append));
            if waiting.len() == 16 {
                waiting.pop_front().unwrap().await.unwrap().unwrap();
            }
            if n == APPENDS / 2 {
                half.send(()).unwrap();
            }
        }
        for append in waiting {
            append.await.unwrap().unwrap();
        }
        let all = io.read("log", 0, 0).await.unwrap();
        let numbers: Vec<u32> = all
            .chunks(4)
            .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
            .collect();
        assert_eq!(numbers, (0..APPENDS).collect::<Vec<_>>());
        // The watch lived through it, too.
        let (told, ()) = tokio::join!(io.notify("log", "x", LONG), async {
            let WatchEvent::Notify { notify_id, .. } = watch.next().await else {
                panic!("lost");
            };
            watch.ack(notify_id, "").await.unwrap();
        });
        assert_eq!(told.unwrap().replies.len(), 1);
        for osd in 0..3 {
            client.command(Target::Osd(osd), VERSION, "").await.unwrap();
        }
        client.shutdown().await;
    })
    .unwrap();
    is_half.recv().unwrap();
    server.end();
    let server = start(tmp.path(), AuthMode::Cephx);
    writer.join().unwrap();
    server.end();
}
