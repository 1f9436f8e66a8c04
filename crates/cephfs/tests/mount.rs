//! Mounts of a file system: of a node in this process, through restarts; or of the cluster whose ceph.conf `CEPHFS_TEST_CONF` names, by
//! hand (`CEPHFS_TEST_KEYRING`, `CEPHFS_TEST_FS` beside it).

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use bytes::Bytes;
use cephfs::{By, Mount, Name, Options};
use client::{Client, Conf};
use io::task;
use messages::fs::{FileLock, SetAttr, lock, open_flag, setattr};
use node::{DataDir, Node, StartOptions};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::Errno;

/// Only what hangs is ended by it.
const LONG: Duration = Duration::from_secs(180);

fn conf(path: &Path, keyring: Option<PathBuf>) -> Conf {
    let mut conf = Conf::read(path, "client.admin", keyring.as_deref()).unwrap();
    conf.op_timeout = Some(LONG);
    conf.mon_timeout = Some(LONG);
    conf
}

async fn mount(client: &Client, fs: &str) -> Mount {
    let options = Options {
        timeout: LONG,
        ..Options::new(fs)
    };
    Mount::connect(client, options).await.unwrap()
}

fn errno<T: std::fmt::Debug>(done: cephfs::Result<T>) -> Errno {
    done.unwrap_err().errno()
}

fn pattern(n: usize) -> Bytes {
    (0..n).map(|i| (i * 7 % 251) as u8).collect::<Vec<u8>>().into()
}

/// What every call does, whoever serves.
async fn check_all(m: &Mount) {
    m.remove_tree("t", || {}).await.unwrap();
    m.mkdirs("t/a/b", 0o755).await.unwrap();
    m.mkdirs("t/a/b", 0o755).await.unwrap();
    assert_eq!(errno(m.mkdir("t/a", 0o755).await), Errno::EEXIST);
    check_data(m).await;
    check_names(m).await;
    check_attributes(m).await;
    check_listing(m).await;
    let mut removed = 0;
    m.remove_tree("t", || removed += 1).await.unwrap();
    assert!(removed > 1500);
    assert!(m.find("t").await.unwrap().is_none());
}

async fn check_data(m: &Mount) {
    let small = Bytes::from_static(b"hello");
    m.write_all("t/a/f", 0o640, small.clone()).await.unwrap();
    assert_eq!(m.read_all("t/a/f").await.unwrap(), small);
    let stat = m.stat("t/a/f").await.unwrap();
    assert_eq!((stat.size, stat.mode), (5, 0o100_640));
    // Beyond the first bound of sizes, over several objects, with a hole.
    let large = pattern(9 << 20);
    m.create("t/large", 0o644).await.unwrap();
    m.write("t/large", 3 << 20, large.clone()).await.unwrap();
    assert_eq!(m.stat("t/large").await.unwrap().size, 12 << 20);
    let all = m.read("t/large", 0, 1 << 30).await.unwrap();
    assert_eq!(all.len(), 12 << 20);
    assert!(all[..3 << 20].iter().all(|b| *b == 0) && all[3 << 20..] == large[..]);
    m.truncate("t/large", 5_000_000).await.unwrap();
    m.write("t/large", 6_000_000, small.clone()).await.unwrap();
    let all = m.read("t/large", 4_999_999, 2_000_000).await.unwrap();
    assert_eq!(all.len(), 1_000_006);
    assert_eq!(all[0], large[4_999_999 - (3 << 20)]);
    assert!(all[1..1_000_001].iter().all(|b| *b == 0) && all[1_000_001..] == small[..]);
    // Other calls while one holds the file.
    let both = tokio::join!(m.write("t/large", 0, pattern(100_000)), m.stat("t/large"));
    both.0.unwrap();
    both.1.unwrap();
    assert_eq!(m.read("t/large", 0, 100_000).await.unwrap(), pattern(100_000));
}

async fn check_names(m: &Mount) {
    m.rename("t/a/f", "t/a/b/g").await.unwrap();
    assert_eq!(errno(m.stat("t/a/f").await), Errno::ENOENT);
    let ino = m.stat("t/a/b/g").await.unwrap().ino;
    m.link("t/hard", ino).await.unwrap();
    assert_eq!(m.stat("t/hard").await.unwrap().nlink, 2);
    m.symlink("t/soft", "a/b/g").await.unwrap();
    assert_eq!(m.readlink("t/soft").await.unwrap(), "a/b/g");
    assert_eq!(errno(m.readlink("t/hard").await), Errno::EINVAL);
    assert_eq!(errno(m.rmdir("t/a").await), Errno::ENOTEMPTY);
    assert_eq!(errno(m.unlink("t/a").await), Errno::EISDIR);
    m.unlink("t/hard").await.unwrap();
    assert_eq!(m.stat("t/a/b/g").await.unwrap().nlink, 1);
}

async fn check_attributes(m: &Mount) {
    let set = SetAttr {
        uid: 7,
        gid: 8,
        mode: 0o700,
        mask: setattr::UID | setattr::GID | setattr::MODE,
        ..SetAttr::default()
    };
    m.setattr("t/a", &set).await.unwrap();
    let stat = m.stat("t/a").await.unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (7, 8, 0o040_700));
    m.setxattr("t/a", "user.k", "v").await.unwrap();
    assert_eq!(m.getxattr("t/a", "user.k").await.unwrap().unwrap(), "v");
    let again = m.set_xattr("t/a", "user.k", Bytes::new(), 1).await;
    assert_eq!(errno(again), Errno::EEXIST);
    m.removexattr("t/a", "user.k").await.unwrap();
    assert_eq!(m.getxattr("t/a", "user.k").await.unwrap(), None);
    m.setxattr("t/a", "ceph.quota.max_bytes", "1000000")
        .await
        .unwrap();
    assert_eq!(m.stat("t/a").await.unwrap().quota.max_bytes, 1_000_000);
    let layout = "stripe_unit=65536 stripe_count=2 object_size=131072";
    m.mkdir("t/striped", 0o755).await.unwrap();
    m.setxattr("t/striped", "ceph.dir.layout", layout).await.unwrap();
    m.write_all("t/striped/f", 0o644, pattern(700_000)).await.unwrap();
    assert_eq!(m.stat("t/striped/f").await.unwrap().layout.stripe_count, 2);
    assert_eq!(m.read_all("t/striped/f").await.unwrap(), pattern(700_000));
}

/// More names than one page has.
async fn check_listing(m: &Mount) {
    m.mkdir("t/many", 0o755).await.unwrap();
    for i in 0..1500 {
        m.create(format!("t/many/n{i}"), 0o644).await.unwrap();
    }
    let all = m.readdir("t/many", 2000).await.unwrap();
    let mut names: Vec<_> = all.iter().map(|e| e.name.clone()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 1500);
    assert!(m.readdir("t/many", 1000).await.is_err());
}

#[tokio::test]
async fn every_call_on_another_cluster() {
    let Ok(path) = std::env::var("CEPHFS_TEST_CONF") else {
        return;
    };
    let keyring = std::env::var("CEPHFS_TEST_KEYRING").ok().map(PathBuf::from);
    let fs = std::env::var("CEPHFS_TEST_FS").unwrap_or_default();
    let client = Client::connect(conf(Path::new(&path), keyring)).await.unwrap();
    let m = mount(&client, &fs).await;
    check_all(&m).await;
    m.close().await;
    assert_eq!(errno(m.stat("").await), Errno::ENOTCONN);
    client.shutdown().await;
}

/// Writes one file after the other until it is told to end; each is there afterwards.
async fn write_until(m: &Mount, ended: watch::Receiver<bool>) -> u32 {
    let mut n = 0;
    while !*ended.borrow() {
        let data = Bytes::from(format!("content of {n}"));
        m.write_all(format!("t/f{n}"), 0o644, data).await.unwrap();
        n += 1;
    }
    n
}

/// Runs `work` with a client of a node of its own, which has a file system.
async fn served(work: impl AsyncFnOnce(&Client)) {
    served_for(async |conf: &Conf| {
        let client = Client::connect(conf.clone()).await.unwrap();
        work(&client).await;
        client.shutdown().await;
    })
    .await;
}

async fn served_for(work: impl AsyncFnOnce(&Conf)) {
    let folder = tempfile::tempdir().unwrap();
    let dir = DataDir::create(folder.path()).unwrap();
    let (path, keyring) = (dir.conf_path(), dir.keyring_path());
    let (stop, stopped) = oneshot::channel();
    let (up, is_up) = mpsc::channel();
    let thread = task::spawn_role("node", move || async move {
        let options = StartOptions {
            osds: Some(1),
            mon_port: Some(0),
            osd_size: Some(1 << 30),
            osd_memory: Some(64 << 20),
            ..StartOptions::default()
        };
        let mut node = Node::start(&dir, options, &|_| {}).await.unwrap();
        up.send(()).unwrap();
        let served = node.serve(async {
            let _ = stopped.await;
            Ok("test")
        });
        served.await.unwrap();
        node.stop().await;
    });
    let thread = thread.unwrap();
    is_up.recv().unwrap();
    let conf = conf(&path, Some(keyring));
    let client = Client::connect(conf.clone()).await.unwrap();
    let make = r#"{"prefix": "fs volume create", "name": "fs"}"#;
    client.mon_command(make, "").await.unwrap();
    client.shutdown().await;
    work(&conf).await;
    stop.send(()).unwrap();
    thread.join().unwrap();
}

const ROOT: By = By { uid: 0, gid: 0 };

/// Two clients of one file that both have open: each sees what the other's call has done, and none holds the other up.
async fn check_open(m: &Mount, other: &Mount) {
    let dir = m.stat("").await.unwrap().ino;
    let name = Name::new(dir, "open");
    let flags = open_flag::RDWR | open_flag::EXCL;
    let (stat, f) = m
        .create_file(By { uid: 5, gid: 6 }, &name, 0o640, flags)
        .await
        .unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (5, 6, 0o100_640));
    let again = m.create_file(ROOT, &name, 0o640, flags).await.map(drop);
    assert_eq!(errno(again), Errno::EEXIST);
    f.write(0, pattern(100_000)).await.unwrap();
    // The server was not told yet; who looks has it ask.
    assert_eq!(m.getattr(stat.ino).await.unwrap().size, 100_000);
    assert_eq!(other.getattr(stat.ino).await.unwrap().size, 100_000);
    let (_, g) = other.open_ino(ROOT, stat.ino, open_flag::RDWR).await.unwrap();
    for n in 1..6u64 {
        g.write(n * 100_000, pattern(100_000)).await.unwrap();
        assert_eq!(f.read(n * 100_000, 200_000).await.unwrap(), pattern(100_000));
        f.write(0, pattern(n as usize)).await.unwrap();
        assert_eq!(g.read(0, n).await.unwrap(), pattern(n as usize));
    }
    // Cut under both, by one of them.
    let set = SetAttr {
        size: 10,
        mask: setattr::SIZE,
        ..SetAttr::default()
    };
    m.setattr_of(ROOT, stat.ino, &set).await.unwrap();
    assert_eq!(g.read(0, 100).await.unwrap(), pattern(10));
    g.write(20, pattern(5)).await.unwrap();
    let want = [&pattern(10)[..], &[0; 10], &pattern(5)].concat();
    assert_eq!(f.read(0, 100).await.unwrap(), want);
    // Without a name it goes on; when both have closed it is gone.
    other.remove_name(ROOT, &name).await.unwrap();
    f.write(25, pattern(5)).await.unwrap();
    f.sync().await.unwrap();
    assert_eq!(g.read(25, 100).await.unwrap(), pattern(5));
    assert_eq!(m.getattr(stat.ino).await.unwrap().nlink, 0);
    drop((f, g));
    let end = m.client().platform().clock.monotonic() + LONG;
    while m.getattr(stat.ino).await.is_ok() {
        assert!(m.client().platform().clock.monotonic() < end);
        task::sleep(Duration::from_millis(20)).await;
    }
}

/// Two mounts of two clients.
async fn with_two(work: impl AsyncFn(&Mount, &Mount)) {
    served_for(async |conf: &Conf| {
        let clients = (
            Client::connect(conf.clone()).await.unwrap(),
            Client::connect(conf.clone()).await.unwrap(),
        );
        let (m, other) = (mount(&clients.0, "fs").await, mount(&clients.1, "fs").await);
        let both = task::timeout(LONG, work(&m, &other));
        both.await.expect("nobody is held up");
        m.close().await;
        other.close().await;
        clients.0.shutdown().await;
        clients.1.shutdown().await;
    })
    .await;
}

#[tokio::test]
async fn two_clients_have_a_file_open() {
    with_two(async |m: &Mount, other: &Mount| check_open(m, other).await).await;
}

/// What was open with the server before is open with the next one.
#[tokio::test]
async fn files_stay_open_through_failovers() {
    served(async |client| {
        let m = mount(client, "fs").await;
        let dir = m.stat("").await.unwrap().ino;
        let (stat, f) = m
            .create_file(ROOT, &Name::new(dir, "f"), 0o644, open_flag::RDWR)
            .await
            .unwrap();
        for n in 0..3u64 {
            f.write(n * 5_000_000, pattern(5_000_000)).await.unwrap();
            let fail = r#"{"prefix": "mds fail", "role_or_gid": "fs:0"}"#;
            client.mon_command(fail, "").await.unwrap();
            f.write(n * 5_000_000 + 7, pattern(7)).await.unwrap();
            f.sync().await.unwrap();
        }
        assert_eq!(f.read(10_000_000, 7).await.unwrap(), pattern(7));
        drop(f);
        assert_eq!(m.getattr(stat.ino).await.unwrap().size, 15_000_000);
        m.unlink("f").await.unwrap();
        m.close().await;
    })
    .await;
}

#[tokio::test]
async fn every_call_on_a_node() {
    served(async |client| {
        let m = mount(client, "fs").await;
        check_all(&m).await;
        m.close().await;
        assert_eq!(errno(m.stat("").await), Errno::ENOTCONN);
        let none = Mount::connect(client, Options::new("other")).await;
        assert_eq!(errno(none), Errno::ENOENT);
    })
    .await;
}

/// The server fails again and again; requests are sent to the next one, and each takes effect once.
#[tokio::test]
async fn writes_go_on_through_failovers() {
    served(async |client| {
        let m = mount(client, "fs").await;
        m.mkdirs("t", 0o755).await.unwrap();
        let (end, ended) = watch::channel(false);
        let fail = async {
            for round in 0..3 {
                // Something is written by each of them.
                let name = format!("t/f{}", 5 * (round + 1));
                while m.find(&name).await.unwrap().is_none() {
                    task::sleep(Duration::from_millis(20)).await;
                }
                let fail = r#"{"prefix": "mds fail", "role_or_gid": "fs:0"}"#;
                client.mon_command(fail, "").await.unwrap();
            }
            m.stat("t").await.unwrap();
            end.send(true).unwrap();
        };
        let (n, ()) = tokio::join!(write_until(&m, ended), fail);
        assert!(n > 15);
        for i in 0..n {
            let data = m.read_all(format!("t/f{i}")).await.unwrap();
            assert_eq!(data, format!("content of {i}"));
        }
        assert_eq!(m.readdir("t", 100_000).await.unwrap().len() as u32, n);
        m.close().await;
    })
    .await;
}

/// Changes are answered before they are durable. The server fails meanwhile, again and again: each comes back, once.
#[tokio::test]
async fn changes_that_were_answered_come_back() {
    const ROUND: usize = 150;
    served(async |client| {
        let options = Options {
            early: true,
            timeout: LONG,
            ..Options::new("fs")
        };
        let m = Mount::connect(client, options).await.unwrap();
        let dir = m.stat("").await.unwrap().ino;
        let mut n = 0;
        for round in 1..4 {
            let change = async {
                while n < ROUND * round {
                    let (name, to) = (Name::new(dir, format!("f{n}")), Name::new(dir, format!("g{n}")));
                    let flags = open_flag::RDWR | open_flag::EXCL;
                    let (_, f) = m.create_file(ROOT, &name, 0o644, flags).await.unwrap();
                    f.write(0, pattern(n + 1)).await.unwrap();
                    m.rename_name(ROOT, &name, &to).await.unwrap();
                    if n % 50 == 0 {
                        f.sync().await.unwrap();
                    }
                    n += 1;
                }
            };
            let fail = r#"{"prefix": "mds fail", "role_or_gid": "fs:0"}"#;
            let ((), failed) = tokio::join!(change, client.mon_command(fail, ""));
            failed.unwrap();
        }
        m.sync().await.unwrap();
        m.close().await;
        let m = mount(client, "fs").await;
        assert_eq!(m.readdir("", 100_000).await.unwrap().len(), 3 * ROUND);
        for i in 0..3 * ROUND {
            assert_eq!(m.read_all(format!("g{i}")).await.unwrap(), pattern(i + 1));
        }
        m.close().await;
    })
    .await;
}

fn range(start: u64, length: u64, kind: u8) -> FileLock {
    FileLock {
        start,
        length,
        owner: 1,
        kind,
        ..FileLock::default()
    }
}

/// Who holds a range, who is refused, who waits and who has waited enough: also with the next server.
async fn check_locks(m: &Mount, other: &Mount) {
    let dir = m.stat("").await.unwrap().ino;
    let made = m
        .create_file(ROOT, &Name::new(dir, "l"), 0o644, open_flag::RDWR)
        .await;
    let (stat, f) = made.unwrap();
    let (_, g) = other.open_ino(ROOT, stat.ino, open_flag::RDWR).await.unwrap();
    f.lock(&range(0, 10, lock::EXCL)).await.unwrap();
    assert!(f.is_locked());
    let fail = r#"{"prefix": "mds fail", "role_or_gid": "fs:0"}"#;
    for _ in 0..2 {
        let wish = range(5, 1, lock::SHARED);
        assert_eq!(errno(g.lock(&wish).await), Errno::EAGAIN);
        let found = other.lock_in_the_way(stat.ino, &wish).await.unwrap().unwrap();
        assert_eq!((found.start, found.length, found.kind), (0, 10, lock::EXCL));
        g.lock(&range(10, 5, lock::EXCL)).await.unwrap();
        m.client().mon_command(fail, "").await.unwrap();
    }
    let wish = range(5, 1, lock::EXCL);
    let enough = task::sleep(Duration::from_millis(50));
    assert_eq!(errno(g.wait_for_lock(&wish, enough).await), Errno::EINTR);
    let free = range(0, 0, lock::UNLOCK);
    let waits = g.wait_for_lock(&wish, std::future::pending());
    let (got, given) = tokio::join!(waits, f.lock(&free));
    got.unwrap();
    given.unwrap();
    assert!(!f.is_locked());
    assert_eq!(errno(f.lock(&wish).await), Errno::EAGAIN);
    g.lock(&free).await.unwrap();
    f.lock(&range(0, 0, lock::EXCL)).await.unwrap();
    // Where there is something, and where there is nothing.
    let at = 9 << 20;
    assert_eq!(errno(f.seek(0, true).await), Errno::ENXIO);
    f.write(at, pattern(1 << 16)).await.unwrap();
    // By a handle that reads and writes it may be mapped.
    assert_eq!(
        (f.seek(0, true).await.unwrap(), f.seek(0, false).await.unwrap()),
        (0, at + (1 << 16))
    );
    drop(f);
    let (_, f) = m.open_ino(ROOT, stat.ino, 0).await.unwrap();
    assert_eq!(
        (f.seek(0, true).await.unwrap(), f.seek(0, false).await.unwrap()),
        (at, 0)
    );
    assert_eq!(f.seek(at + 1, true).await.unwrap(), at + 1);
    assert_eq!(f.seek(at, false).await.unwrap(), at + (1 << 16));
}

#[tokio::test]
async fn locks_hold_between_clients() {
    with_two(async |m: &Mount, other: &Mount| check_locks(m, other).await).await;
}

/// The next server waits longer for a client that does not come back than ours waits for an answer to anything else. What was said to it
/// is not said again.
#[tokio::test]
async fn locks_outlast_a_server_that_waits_for_others() {
    served_for(async |conf: &Conf| {
        let connect = async || Client::connect(conf.clone()).await.unwrap();
        let (one, two, gone) = (connect().await, connect().await, connect().await);
        let (m, other) = (mount(&one, "fs").await, mount(&two, "fs").await);
        let options = Options {
            session_timeout: Some(Duration::from_secs(25)),
            ..Options::new("fs")
        };
        let third = Mount::connect(&gone, options).await.unwrap();
        let dir = m.stat("").await.unwrap().ino;
        let made = m
            .create_file(ROOT, &Name::new(dir, "l"), 0o644, open_flag::RDWR)
            .await;
        let (stat, f) = made.unwrap();
        let (_, g) = other.open_ino(ROOT, stat.ino, open_flag::RDWR).await.unwrap();
        f.lock(&range(0, 10, lock::EXCL)).await.unwrap();
        third.stat("l").await.unwrap();
        // Without a word.
        gone.shutdown().await;
        let fail = r#"{"prefix": "mds fail", "role_or_gid": "fs:0"}"#;
        one.mon_command(fail, "").await.unwrap();
        assert_eq!(errno(g.lock(&range(5, 1, lock::SHARED)).await), Errno::EAGAIN);
        assert!(f.is_locked());
        f.lock(&range(0, 0, lock::UNLOCK)).await.unwrap();
        g.lock(&range(5, 1, lock::SHARED)).await.unwrap();
        drop((f, g));
        m.close().await;
        other.close().await;
        one.shutdown().await;
        two.shutdown().await;
    })
    .await;
}
