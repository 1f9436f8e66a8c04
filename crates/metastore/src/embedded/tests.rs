//! The contract over a file and in memory, and what becomes of it when the disk fails.

use super::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
struct TestClock(AtomicU64);
impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
    fn wall(&self) -> Duration {
        self.monotonic()
    }
}

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(f)
}

fn check_contract(store: &Embedded, clock: &Arc<TestClock>) {
    let advance = |d: Duration| -> BoxFuture<'static, ()> {
        clock.0.fetch_add(d.as_millis() as u64, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    };
    let time = crate::conformance::Time {
        clock: &**clock,
        advance: &advance,
        ttl: Duration::from_secs(10),
    };
    block_on(crate::conformance::run(store, &time));
}

#[test]
fn conforms() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(TestClock::default()));
    let store = Embedded::open(&dir.path().join("state"), clock.clone()).unwrap();
    check_contract(&store, &clock);
}

#[test]
fn conforms_in_memory() {
    let clock = Arc::new(TestClock::default());
    check_contract(&Embedded::in_memory(clock.clone()).unwrap(), &clock);
}

#[test]
fn a_copy_is_read_and_the_file_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    assert!(read_copy(&path).unwrap().is_none(), "no file is made");
    assert!(!path.exists());
    let store = Embedded::open(&path, Arc::new(TestClock::default())).unwrap();
    let ops = vec![TxnOp::put("a", "1"), TxnOp::put("b", "2")];
    let txn = Txn {
        compares: vec![],
        ops,
    };
    block_on(store.txn(txn)).unwrap();
    let (there, _) = block_on(store.range(Range::prefix(""))).unwrap();
    drop(store);
    let before = std::fs::read(&path).unwrap();
    let (format, rows) = read_copy(&path).unwrap().unwrap();
    assert_eq!((format, rows.len()), (FORMAT, 2));
    assert_eq!(rows, there);
    assert!(std::fs::read(&path).unwrap() == before, "not a byte is changed");
    // What a newer program wrote is refused, by both ways.
    let db = rows::builder().open(&path).unwrap();
    let txn = db.begin_write().unwrap();
    let meta: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("meta");
    txn.open_table(meta)
        .unwrap()
        .insert("format", FORMAT + 1)
        .unwrap();
    txn.commit().unwrap();
    drop(db);
    let newer = [
        read_copy(&path).map(drop).unwrap_err(),
        Embedded::open(&path, Arc::new(TestClock::default()))
            .map(drop)
            .unwrap_err(),
    ];
    for e in newer {
        assert!(
            e.to_string().contains(&format!("has format {}", FORMAT + 1)),
            "{e}"
        );
    }
}

#[test]
fn survives_reopening_without_leased_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let clock = Arc::new(TestClock::default());
    let revision = block_on(async {
        let store = Embedded::open(&path, clock.clone()).unwrap();
        let lease = store.lease_grant(Duration::from_secs(9)).await.unwrap();
        let ops = vec![
            TxnOp::put("a", "1"),
            TxnOp::Put {
                key: "b".into(),
                value: "2".into(),
                lease: Some(lease),
            },
        ];
        store
            .txn(Txn {
                compares: vec![],
                ops,
            })
            .await
            .unwrap();
        let second = Embedded::open(&path, clock.clone());
        assert!(matches!(second, Err(Error::Open(why)) if why.contains("in use")));
        store.get("a").await.unwrap().unwrap().revision
    });
    block_on(async {
        let store = Embedded::open(&path, clock).unwrap();
        assert_eq!(store.get("a").await.unwrap().unwrap().revision, revision);
        assert!(store.get("b").await.unwrap().is_none());
        let old = store.watch(Range::prefix(""), revision - 1);
        assert!(
            matches!(old, Err(Error::Compacted(_))),
            "the past is gone, and said so"
        );
    });
}

#[test]
fn a_creation_that_was_cut_short_is_begun_anew() {
    for (own, half) in [
        (None, Some(vec![0; 1 << 20])),
        (Some(vec![]), None),
        (Some(vec![]), Some(vec![])),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("state"), dir.path().join("state.new"));
        for (path, contents) in [(&path, own), (&new, half)] {
            if let Some(contents) = contents {
                io::files::replace(path, contents, 0o600).unwrap();
            }
        }
        let clock = Arc::new(TestClock::default());
        check_contract(&Embedded::open(&path, clock.clone()).unwrap(), &clock);
        assert!(!new.exists());
    }
}

/// What has other contents is somebody's file, or a cluster whose disk failed: never made anew.
#[test]
fn a_file_that_is_no_state_is_refused_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    io::files::replace(&path, [0; 8192], 0o600).unwrap();
    let opened = Embedded::open(&path, Arc::new(TestClock::default()));
    assert!(matches!(opened, Err(Error::Open(_))));
    assert_eq!(std::fs::read(&path).unwrap(), vec![0; 8192]);
}

#[test]
fn a_watcher_that_lags_too_far_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(&dir.path().join("state"), Arc::new(TestClock::default())).unwrap();
    block_on(async {
        let lease = store.lease_grant(Duration::from_secs(9)).await.unwrap();
        let mut watch = store.watch(Range::prefix(""), 0).unwrap();
        for _ in 0..=EVENTS_MAX {
            let op = TxnOp::Put {
                key: "k".into(),
                value: "v".into(),
                lease: Some(lease),
            };
            store
                .txn(Txn {
                    compares: vec![],
                    ops: vec![op],
                })
                .await
                .unwrap();
        }
        assert!(matches!(watch.next().await, Err(Error::Compacted(0))));
    });
}

/// A file in memory whose disk can fail.
#[derive(Debug, Clone, Default)]
struct Faulty(Arc<Disk>);

#[derive(Debug, Default)]
struct Disk {
    bytes: Mutex<Vec<u8>>,
    /// Calls that change something, made so far.
    calls: AtomicU64,
    /// The one that fails, counted from 1.
    fails_at: AtomicU64,
    /// From which one on all fail, reading and opening too; 0: none.
    gone_from: AtomicU64,
    /// Only pages that were written before can be.
    full: AtomicBool,
    written: Mutex<BTreeSet<u64>>,
}

impl Faulty {
    fn call(&self) -> std::io::Result<()> {
        let n = self.0.calls.fetch_add(1, Ordering::Relaxed) + 1;
        match n == self.0.fails_at.load(Ordering::Relaxed) {
            true => Err(std::io::ErrorKind::StorageFull.into()),
            false => self.there(),
        }
    }

    fn there(&self) -> std::io::Result<()> {
        let from = self.0.gone_from.load(Ordering::Relaxed);
        match from > 0 && self.0.calls.load(Ordering::Relaxed) >= from {
            true => Err(std::io::ErrorKind::NotFound.into()),
            false => Ok(()),
        }
    }

    fn store(&self, clock: Arc<TestClock>) -> Embedded {
        let file = self.clone();
        let again = move || {
            file.there()
                .map_err(|e| redb::DatabaseError::from(redb::StorageError::Io(e)))?;
            rows::builder().create_with_backend(file.clone())
        };
        let db = again().unwrap();
        let rows = Rows::over(db, "faulty", Box::new(again)).unwrap();
        Embedded::over(rows, "faulty".into(), clock, false, Duration::from_millis(1))
    }
}

impl redb::StorageBackend for Faulty {
    fn len(&self) -> std::io::Result<u64> {
        self.there()?;
        Ok(self.0.bytes.lock().unwrap().len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.there()?;
        out.copy_from_slice(&self.0.bytes.lock().unwrap()[offset as usize..][..out.len()]);
        Ok(())
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.call()?;
        self.0.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.call()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.call()?;
        let mut written = self.0.written.lock().unwrap();
        for page in offset / 4096..(offset + data.len() as u64).div_ceil(4096) {
            if self.0.full.load(Ordering::Relaxed) && !written.contains(&page) {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            written.insert(page);
        }
        self.0.bytes.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn puts(key: &str, value: &str, before: Revision) -> Txn {
    Txn {
        compares: vec![Compare::Revision {
            key: key.into(),
            revision: before,
        }],
        ops: vec![TxnOp::put(key, value.to_string())],
    }
}

/// Every call that a commit makes fails once: the commit waits and happens, once, and its watcher hears of it.
#[test]
fn a_commit_waits_for_its_disk_whatever_fails() {
    let mut failures = 0;
    for k in 1.. {
        let file = Faulty::default();
        let store = file.store(Arc::default());
        block_on(async {
            let TxnOutcome::Committed(first) = store.txn(puts("a", "1", 0)).await.unwrap() else {
                panic!("nobody else is there");
            };
            let mut watch = store.watch(Range::prefix(""), first).unwrap();
            let before = file.0.calls.load(Ordering::Relaxed);
            file.0.fails_at.store(before + k, Ordering::Relaxed);
            let done = store.txn(puts("a", &"2".repeat(9000), first)).await.unwrap();
            let failed = file.0.calls.load(Ordering::Relaxed) >= before + k;
            file.0.fails_at.store(0, Ordering::Relaxed);
            failures += u64::from(failed);
            assert!(
                matches!(done, TxnOutcome::Committed(r) if r > first),
                "{k}: {done:?}"
            );
            let there = store.get("a").await.unwrap().unwrap();
            assert_eq!(there.value.len(), 9000);
            assert_eq!(done, TxnOutcome::Committed(there.revision));
            let events = watch.next().await.unwrap();
            assert_eq!((events.len(), events[0].revision), (1, there.revision));
            assert!(store.trouble().is_none());
        });
        drop(store);
        let again = file.store(Arc::default());
        assert_eq!(block_on(again.get("a")).unwrap().unwrap().value.len(), 9000);
        if file.0.fails_at.load(Ordering::Relaxed) == 0 && failures < k {
            break;
        }
    }
    assert!(failures > 4, "a commit writes, and flushes twice: {failures}");
}

/// The disk goes in the middle of a commit, and comes back: nobody knows, then the file says it, whichever it is.
#[test]
fn what_became_of_a_commit_is_read_from_the_file() {
    let mut seen = [0, 0];
    for k in 1..40 {
        let file = Faulty::default();
        let store = file.store(Arc::default());
        block_on(async {
            let lease = store.lease_grant(Duration::from_secs(9)).await.unwrap();
            let TxnOutcome::Committed(first) = store.txn(puts("a", "1", 0)).await.unwrap() else {
                panic!("nobody else is there");
            };
            let mut watch = store.watch(Range::prefix(""), first).unwrap();
            let mut txn = puts("a", "2", first);
            txn.ops.push(TxnOp::Put {
                key: "b".into(),
                value: "leased".into(),
                lease: Some(lease),
            });
            let calls = file.0.calls.load(Ordering::Relaxed);
            file.0.gone_from.store(calls + k, Ordering::Relaxed);
            match store.txn(txn).await {
                Ok(_) => return,
                Err(Error::Unknown(_)) => {}
                e => panic!("{e:?}"),
            }
            // What needs no disk goes on, and gets no number that the commit may have.
            let other = store.lease_grant(Duration::from_secs(9)).await.unwrap();
            store.lease_renew(lease).await.unwrap();
            store.lease_revoke(other).await.unwrap();
            file.0.gone_from.store(0, Ordering::Relaxed);
            let (rows, _) = store.range(Range::prefix("")).await.unwrap();
            let happened = rows[0].value == "2";
            seen[usize::from(happened)] += 1;
            assert_eq!(
                rows.len(),
                1 + usize::from(happened),
                "all of it, or nothing: {rows:?}"
            );
            let next = store.txn(puts("a", "3", rows[0].revision)).await.unwrap();
            match (watch.next().await, happened) {
                (Err(Error::Compacted(_)), true) => {}
                (Ok(events), false) => assert_eq!(TxnOutcome::Committed(events[0].revision), next),
                other => panic!("{k}: {other:?}"),
            }
        });
    }
    assert!(
        seen[0] > 0 && seen[1] > 0,
        "it was found undone {} times and done {} times",
        seen[0],
        seen[1]
    );
}

/// A disk without room: changes wait and say why; what needs none of it goes on; closing ends the waiting.
#[test]
fn a_full_disk_is_waited_for() {
    let file = Faulty::default();
    let store = file.store(Arc::default());
    block_on(async {
        let lease = store.lease_grant(Duration::from_secs(9)).await.unwrap();
        let TxnOutcome::Committed(first) = store.txn(puts("a", "1", 0)).await.unwrap() else {
            panic!("nobody else is there");
        };
        file.0.full.store(true, Ordering::Relaxed);
        let mut waits = Box::pin(store.txn(puts("a", &"2".repeat(300_000), first)));
        // However late the disk's thread gets a processor.
        while store.trouble().is_none() {
            let early = io::task::timeout(Duration::from_millis(5), &mut waits).await;
            assert!(early.is_err(), "{early:?}");
        }
        assert_eq!(store.get("a").await.unwrap().unwrap().value, "1");
        store.lease_renew(lease).await.unwrap();
        let leased = TxnOp::Put {
            key: "b".into(),
            value: "1".into(),
            lease: Some(lease),
        };
        let leased = Txn {
            compares: vec![],
            ops: vec![leased],
        };
        assert!(matches!(store.txn(leased).await, Ok(TxnOutcome::Committed(_))));
        file.0.full.store(false, Ordering::Relaxed);
        assert!(matches!(waits.await, Ok(TxnOutcome::Committed(r)) if r > first));
        assert!(store.trouble().is_none());
        assert_eq!(store.get("a").await.unwrap().unwrap().value.len(), 300_000);
        file.0.full.store(true, Ordering::Relaxed);
        let waits = store.txn(puts("c", &"1".repeat(900_000), 0));
        store.close();
        assert!(matches!(waits.await, Err(Error::Closed)));
        let leases = store.lease_renew(lease).await;
        assert!(leases.is_ok(), "{leases:?}");
        file.0.full.store(false, Ordering::Relaxed);
    });
    drop(store);
    let again = file.store(Arc::default());
    assert!(block_on(again.get("c")).unwrap().is_none());
    assert_eq!(block_on(again.get("a")).unwrap().unwrap().value.len(), 300_000);
}
