//! The suite of all stores, and what is etcd's own: endpoints, outages, repeated transactions, compaction. Against real
//! etcd processes, which these tests start, kill and stop.

mod server;

use super::*;
use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use io::SystemClock;
use metastore::conformance;
use server::Servers;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

fn block_on<T>(f: impl Future<Output = T>) -> T {
    io::task::block_on(f).unwrap()
}

async fn open(options: Options) -> Etcd {
    Etcd::open(options, SystemClock::shared()).await.unwrap()
}

async fn open_error(options: Options) -> String {
    match Etcd::open(options, SystemClock::shared()).await {
        Ok(_) => panic!("opened"),
        Err(e) => e.to_string(),
    }
}

async fn conforms(store: &Etcd) {
    let time = conformance::Time {
        clock: &*store.inner.conn.clock().clone(),
        advance: &|d| Box::pin(io::task::sleep(d)),
        ttl: Duration::from_secs(3),
    };
    conformance::run(store, &time).await;
}

/// What the log says, of all tests of this program.
fn log() -> String {
    static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    #[derive(Clone)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, b: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(b);
            Ok(b.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = LOG.get_or_init(|| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink(lines.clone());
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || sink.clone())
            .init();
        lines
    });
    String::from_utf8_lossy(&lines.lock().unwrap()).into_owned()
}

async fn log_says(what: &str) {
    for _ in 0..600 {
        if log().contains(what) {
            return;
        }
        io::task::sleep(Duration::from_millis(100)).await;
    }
    panic!("not in the log: {what}\n{}", log());
}

async fn put(store: &Etcd, key: &str, value: &str) -> Revision {
    let txn = Txn {
        compares: vec![],
        ops: vec![TxnOp::put(key, value.to_string())],
    };
    match store.txn(txn).await.unwrap() {
        TxnOutcome::Committed(r) => r,
        TxnOutcome::Conflict => unreachable!("nothing was compared"),
    }
}

/// One more in `key`, by compare-and-swap; true if it was this one that did it.
async fn increment(store: &Etcd, key: &str) -> Result<bool> {
    let old = store.get(key).await?;
    let number = old.as_ref().map_or(0, |kv| {
        std::str::from_utf8(&kv.value).unwrap().parse::<u64>().unwrap()
    });
    let compare = Compare::Revision {
        key: key.into(),
        revision: old.map_or(0, |kv| kv.revision),
    };
    let txn = Txn {
        compares: vec![compare],
        ops: vec![TxnOp::put(key, (number + 1).to_string())],
    };
    Ok(matches!(store.txn(txn).await?, TxnOutcome::Committed(_)))
}

#[test]
fn it_conforms() {
    let servers = Servers::start(1);
    block_on(async { conforms(&open(servers.options()).await).await });
}

#[test]
fn it_conforms_with_certificates_and_a_password() {
    let servers = Servers::start_secure();
    block_on(async {
        let mut options = servers.options();
        drop(open(options.clone()).await);
        let plain = ConnectOptions::new().with_tls(options.tls.as_ref().unwrap().client());
        let mut admin = Client::connect(&options.endpoints, Some(plain)).await.unwrap();
        let all = Permission::new(PermissionType::Readwrite, "skep/").with_prefix();
        admin.role_add("skep").await.unwrap();
        admin.role_grant_permission("skep", all).await.unwrap();
        for (name, role) in [("root", "root"), ("bee", "skep")] {
            if role == "root" {
                admin.role_add("root").await.unwrap();
            }
            admin.user_add(name, "honey", None).await.unwrap();
            admin.user_grant_role(name, role).await.unwrap();
        }
        admin.auth_enable().await.unwrap();

        let word = Arc::new(Mutex::new("wasp".to_string()));
        let said = word.clone();
        options.user = Some(("bee".into(), Arc::new(move || Ok(said.lock().unwrap().clone()))));
        assert!(
            open_error(options.clone())
                .await
                .contains("invalid user ID or password")
        );
        *word.lock().unwrap() = "honey".into();
        let other = Options {
            prefix: "other".into(),
            ..options.clone()
        };
        assert!(open_error(other).await.contains("denies"));
        let store = open(options.clone()).await;
        conforms(&store).await;

        // The password changes under way: who does not know it yet waits, and goes on when it does.
        let put = || async {
            let (compares, ops) = (Vec::new(), vec![TxnOp::put("word", "x")]);
            store.txn(Txn { compares, ops }).await
        };
        put().await.unwrap();
        let tls = ConnectOptions::new().with_tls(options.tls.as_ref().unwrap().client());
        let root = tls.with_user("root", "honey");
        let mut admin = Client::connect(&options.endpoints, Some(root)).await.unwrap();
        admin.user_change_password("bee", "nectar").await.unwrap();
        let mut waits = std::pin::pin!(put());
        let early = io::task::timeout(Duration::from_secs(3), &mut waits).await;
        assert!(early.is_err(), "{early:?}");
        *word.lock().unwrap() = "nectar".into();
        assert!(matches!(waits.await.unwrap(), TxnOutcome::Committed(_)));
    });
}

/// Who is not what it says, on one side or the other, is told so: waiting would not help.
#[test]
fn certificates_that_do_not_fit_are_refused() {
    let (servers, others) = (Servers::start_secure(), Servers::start_secure());
    block_on(async {
        let mut options = servers.options();
        let wrong = others.options().tls.unwrap();
        options.tls = Some(wrong);
        let why = open_error(options.clone()).await;
        assert!(why.contains("no trusted connection"), "{why}");
        options.tls.as_mut().unwrap().authority = b"no certificate".to_vec();
        let why = open_error(options).await;
        assert!(why.to_lowercase().contains("certificate"), "{why}");
    });
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let check = |endpoints: &[&str], edit: &dyn Fn(&mut Options), why: &str| {
        let mut options = Options::new(endpoints.iter().map(|e| e.to_string()).collect());
        edit(&mut options);
        let found = block_on(open_error(options));
        assert!(found.contains(why), "{found}");
    };
    check(&[], &|_| {}, "no endpoint");
    check(&["127.0.0.1:2379"], &|_| {}, "write http://");
    check(&["https://a:1"], &|_| {}, "certificate of its authority");
    check(&["http://a:1"], &|o| o.prefix = "a/b".into(), "first part");
    let tls = Tls {
        authority: vec![],
        identity: None,
    };
    check(&["http://a:1"], &|o| o.tls = Some(tls.clone()), "not encrypted");
}

/// etcd is killed again and again while two processes count: every increment that was reported happened once, none that was
/// not, and a watch saw each value.
#[test]
fn nothing_is_lost_or_repeated_when_etcd_dies() {
    const ROUNDS: usize = 6;
    let mut servers = Servers::start(1);
    let options = servers.options();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    let watched = block_on(open(options.clone()));
    for name in ["a", "b"] {
        let (options, stop) = (options.clone(), stop.clone());
        let thread = io::task::spawn_role(name, || async move {
            let store = open(options).await;
            let mut done = 0u64;
            while !stop.load(Ordering::Relaxed) {
                done += u64::from(increment(&store, "count").await.unwrap());
            }
            done
        });
        writers.push(thread.unwrap());
    }
    block_on(async {
        let mut watch = watched.watch(Range::prefix("count"), 0).unwrap();
        let mut last = 0;
        let mut see = async |until: u64| {
            while last < until {
                for e in watch.next().await.unwrap() {
                    let n: u64 = std::str::from_utf8(&e.value.unwrap()).unwrap().parse().unwrap();
                    assert_eq!(n, last + 1, "the watch skips or repeats");
                    last = n;
                }
            }
            last
        };
        let mut until = 0;
        for _ in 0..ROUNDS {
            until = see(until + 50).await;
            servers.kill(0);
            io::task::sleep(Duration::from_millis(100)).await;
            servers.up(0);
        }
        until = see(until + 50).await;
        stop.store(true, Ordering::Relaxed);
        let mut total = 0;
        for thread in writers {
            while !thread.is_finished() {
                io::task::sleep(Duration::from_millis(10)).await;
            }
            total += thread.join().unwrap();
        }
        let value = watched.get("count").await.unwrap().unwrap().value;
        assert_eq!(value, total.to_string());
        assert!(see(total).await == total && total >= until);
    });
}

/// Of three members one is killed, then one hangs: the store goes on. Of three two are gone: it waits and says for what, and
/// goes on where it was when they come back.
#[test]
fn a_minority_is_not_missed_and_a_majority_is_waited_for() {
    log();
    let mut servers = Servers::start(3);
    block_on(async {
        let store = open(servers.options()).await;
        let lease = store
            .lease_hold(LeaseTimes {
                ttl: Duration::from_secs(600),
                margin: Duration::from_secs(1),
            })
            .await
            .unwrap();
        let mut watch = store.watch(Range::prefix("n"), 0).unwrap();
        for i in 0..3 {
            servers.kill(i);
            for _ in 0..3 {
                assert!(increment(&store, "n").await.unwrap());
            }
            servers.up(i);
        }
        for i in 0..3 {
            // The one that came back last may still be looking for the others.
            assert!(increment(&store, "n").await.unwrap());
            servers.signal(i, "STOP");
            assert!(increment(&store, "n").await.unwrap());
            servers.signal(i, "CONT");
        }
        assert_eq!(store.get("n").await.unwrap().unwrap().value, "15");
        servers.kill(0);
        servers.kill(1);
        let (waiting, before) = (store.clone(), lease.last_renewal());
        let waits = io::task::spawn_local(async move { increment(&waiting, "n").await });
        lease.touch();
        log_says("waiting for etcd (http://127.0.0.1:").await;
        assert!(!waits.is_finished());
        assert_eq!(lease.last_renewal(), before, "nobody confirmed it");
        assert!(!lease.has_ended());
        servers.up(0);
        assert!(waits.await.unwrap().unwrap());
        log_says("etcd answers again after").await;
        for _ in 0..3000 {
            lease.touch();
            io::task::sleep(Duration::from_millis(20)).await;
            if lease.last_renewal() > before {
                break;
            }
        }
        assert!(lease.last_renewal() > before);
        let mut seen = Vec::new();
        while seen.len() < 16 {
            seen.extend(watch.next().await.unwrap().into_iter().map(|e| e.value.unwrap()));
        }
        assert_eq!(seen, (1..=16).map(|n| n.to_string()).collect::<Vec<_>>());
    });
}

#[test]
fn a_store_that_is_closed_does_not_wait() {
    let mut servers = Servers::start(1);
    block_on(async {
        let store = open(servers.options()).await;
        assert!(increment(&store, "n").await.unwrap());
        servers.kill(0);
        let other = store.clone();
        let waits = io::task::spawn_local(async move { other.get("n").await });
        store.close();
        assert!(matches!(waits.await.unwrap(), Err(Error::Closed)));
        assert!(matches!(increment(&store, "n").await, Err(Error::Closed)));
    });
}

/// What is older than is kept is compacted away; who missed it is told.
#[test]
fn old_changes_go_and_who_missed_them_is_told() {
    let servers = Servers::start(1);
    block_on(async {
        let options = Options {
            keep_changes: Duration::from_millis(400),
            ..servers.options()
        };
        let store = open(options).await;
        let first = put(&store, "k", "0").await;
        let mut early = store.watch(Range::prefix("k"), first).unwrap();
        for i in 1..1000 {
            let revision = put(&store, "k", &i.to_string()).await;
            store.maintain().await.unwrap();
            io::task::sleep(Duration::from_millis(10)).await;
            let mut late = store.watch(Range::prefix("k"), first).unwrap();
            if let Err(e) = late.next().await {
                assert!(matches!(e, Error::Compacted(r) if r == first), "{e}");
                // A watch that kept up is not harmed, and the newest value is there.
                let mut seen = first;
                while seen < revision {
                    seen = early.next().await.unwrap().last().unwrap().revision;
                }
                assert_eq!(store.get("k").await.unwrap().unwrap().value, i.to_string());
                return;
            }
        }
        panic!("nothing was ever compacted");
    });
}

/// An etcd that forgot what it had acknowledged is not believed.
#[test]
fn a_revision_that_goes_back_ends_it() {
    let mut servers = Servers::start(1);
    block_on(async {
        let store = open(servers.options()).await;
        for _ in 0..5 {
            assert!(increment(&store, "n").await.unwrap());
        }
        servers.kill(0);
        servers.wipe(0);
        servers.up(0);
        let e = store.get("n").await.unwrap_err().to_string();
        assert!(e.contains("went back from"), "{e}");
        let e = increment(&store, "n").await.unwrap_err().to_string();
        assert!(e.contains("went back from"), "and it stays so: {e}");
    });
}

#[test]
fn endpoints_of_two_clusters_are_not_mixed() {
    let (mut one, two) = (Servers::start(1), Servers::start(1));
    block_on(async {
        let mut options = one.options();
        options.endpoints.extend(two.options().endpoints);
        // Up, so that it is the one that is asked first.
        drop(open(one.options()).await);
        let store = open(options).await;
        one.kill(0);
        let e = store.get("n").await.unwrap_err().to_string();
        assert!(e.contains("different etcd clusters"), "{e}");
    });
}

/// More rows than a page, each large: one range sees all of them at one revision.
#[test]
fn a_range_of_many_pages() {
    let servers = Servers::start(1);
    block_on(async {
        let store = open(servers.options()).await;
        let n = 3 * calls::PAGE_KEYS as usize + 7;
        for i in 0..n {
            put(&store, &format!("r/{i:04}"), &"x".repeat(20_000)).await;
        }
        put(&store, "s", "outside").await;
        let (rows, at) = store.range(Range::prefix("r/")).await.unwrap();
        assert_eq!(rows.len(), n);
        assert!(rows.windows(2).all(|w| w[0].key < w[1].key));
        assert_eq!(at, store.range(Range::prefix("")).await.unwrap().1);
        assert_eq!(store.range(Range::prefix("")).await.unwrap().0.len(), n + 1);
        // A watch that begins long ago gets all of it, too.
        let mut watch = store.watch(Range::prefix("r/"), 0).unwrap();
        let mut seen = 0;
        while seen < n {
            seen += watch.next().await.unwrap().len();
        }
    });
}
