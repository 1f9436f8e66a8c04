//! A cluster in a temporary file: made, changed, opened again.

use super::*;
use crate::Embedded;
use cluster::{CreateOptions, HealthMute, MonReport, OsdBoot, OsdReport, format};
use denc::{Decode, Encode};
use io::{Clock, SystemRandom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::osdmap::{Incremental, OsdMap};
use types::pgstats::PgStat;
use types::pool::PgPool;
use types::{EntityAddr, EntityAddrVec, OsdId, PgId, Utime, Uuid};

mod crowd;
mod runs;

struct TestClock(AtomicU64);
impl Clock for TestClock {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.monotonic()
    }
}

struct Rig {
    dir: tempfile::TempDir,
    clock: Arc<TestClock>,
}

fn addrs(port: u16) -> EntityAddrVec {
    EntityAddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1))
}

impl Rig {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(TestClock(AtomicU64::new(0))),
        }
    }
    fn store(&self) -> Arc<dyn Metastore> {
        Arc::new(Embedded::open(&self.dir.path().join("state"), self.clock.clone()).unwrap())
    }
    async fn create(&self) -> ClusterHandle {
        let options = CreateOptions {
            osds: vec![0, 1, 2],
            ..CreateOptions::new(Uuid([7; 16]), "a", addrs(3300).first())
        };
        let store = self.store();
        create_cluster(&*store, &options, &*self.clock, &SystemRandom)
            .await
            .unwrap();
        ClusterHandle::open(store, self.clock.clone())
            .await
            .unwrap()
            .unwrap()
    }
    async fn reopen(&self) -> ClusterHandle {
        ClusterHandle::open(self.store(), self.clock.clone())
            .await
            .unwrap()
            .unwrap()
    }
}

fn boot_of(id: OsdId) -> OsdBoot {
    OsdBoot {
        id,
        uuid: Uuid([id as u8 + 1; 16]),
        client_addrs: addrs(6800 + id as u16),
        cluster_addrs: addrs(6800 + id as u16),
        hb_back_addrs: addrs(6800 + id as u16),
        hb_front_addrs: addrs(6800 + id as u16),
        size_bytes: 64 << 30,
        host: "vm.example.org".into(),
        device_class: "ssd".into(),
        features: types::release::feature::ALL_PACIFIC,
        metadata: [("hostname".to_string(), "vm".to_string())].into(),
    }
}

fn block_on<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(f)
}

async fn change_map(c: &ClusterHandle, f: impl Fn(&OsdMap, &mut Incremental)) -> Arc<ClusterState> {
    let done = c
        .commit(|state| {
            let mut changes = Changes::none();
            f(&state.osdmap, changes.inc(state, Utime::ZERO));
            (changes, ())
        })
        .await
        .unwrap();
    done.state
}

fn add_pool(inc: &mut Incremental, id: i64, pg_num: u32) {
    let pool = PgPool {
        size: 1,
        min_size: 1,
        pg_num,
        pgp_num: pg_num,
        pg_num_target: pg_num,
        pgp_num_target: pg_num,
        pg_num_pending: pg_num,
        ..PgPool::default()
    };
    inc.new_pool_max = Some(id as i32);
    inc.new_pools.insert(id, pool);
    inc.new_pool_names.insert(id, format!("pool{id}"));
}

/// Everything that a snapshot says, for comparing.
fn print(s: &ClusterState) -> String {
    let map = s.osdmap.encode_for(u64::MAX);
    format!(
        "{} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {} {:?} {:?} {:?} {:?} {:?}",
        s.version,
        s.fsid,
        s.monmap,
        s.mgrmap,
        map,
        s.config,
        s.config_keys,
        s.auth,
        s.rotating,
        s.mutes,
        s.osd_metadata,
        s.asked_down,
        s.global_id_limit,
        s.log,
        s.history,
        s.scrubs,
        s.audit,
        s.snap_owners,
    )
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let rig = Rig::new();
    let before = block_on(async {
        let c = rig.create().await;
        for id in 0..3 {
            c.osd_boot(&boot_of(id)).await.unwrap();
        }
        change_map(&c, |_, inc| add_pool(inc, 1, 8)).await;
        let pgs: Vec<PgId> = (0..8).map(|seed| PgId::new(1, seed)).collect();
        c.commit(|s| (s.wish_scrubs(&pgs, true, false).unwrap(), ()))
            .await
            .unwrap();
        let number = c.state().scrubs[&pgs[0]].number;
        c.scrub_done(pgs[3], number).await.unwrap();
        // Another one was asked for meanwhile: it stays.
        c.scrub_done(pgs[4], number + 7).await.unwrap();
        assert_eq!(c.state().scrubs.len(), 7);
        c.commit(|s| {
            let mut ch = Changes::none();
            let set = |who: &str, v: &str| Change::ConfigSet {
                who: who.into(),
                name: "n".into(),
                value: v.into(),
            };
            ch.push(set("client/host:a", "1"));
            ch.push(set("global", "2"));
            ch.push(Change::ConfigKeySet {
                key: "a/b//c".into(),
                value: "bytes".into(),
            });
            ch.push(Change::Mute(HealthMute {
                code: "OSD_DOWN".into(),
                until: None,
                sticky: true,
                summary: "x".into(),
                count: 2,
            }));
            ch.push(Change::MgrMap(Box::new((*s.mgrmap).clone())));
            (ch, ())
        })
        .await
        .unwrap();
        assert_eq!(c.reserve_global_ids(10).await.unwrap(), 4100..4110);
        print(&c.state())
    });
    let after = block_on(async { print(&rig.reopen().await.state()) });
    assert_eq!(before, after);
}

#[test]
fn a_cluster_is_made_once() {
    let rig = Rig::new();
    block_on(async {
        assert!(
            ClusterHandle::open(rig.store(), rig.clock.clone())
                .await
                .unwrap()
                .is_none()
        );
        let c = rig.create().await;
        let names: Vec<_> = c.state().auth.entities.keys().map(ToString::to_string).collect();
        assert_eq!(
            names,
            ["mon.", "osd.0", "osd.1", "osd.2", "client.admin", "mgr.x"]
        );
    });
    block_on(async {
        let options = CreateOptions::new(Uuid([8; 16]), "a", addrs(3300).first());
        let made = create_cluster(&*rig.store(), &options, &*rig.clock, &SystemRandom).await;
        assert!(matches!(made, Err(crate::Error::Open(_))));
    });
}

#[test]
fn osds_come_up_and_go_down() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        let mut maps = c.subscribe_osdmap();
        let epoch = c.osd_boot(&boot_of(1)).await.unwrap();
        assert!(maps.has_changed().unwrap());
        let map = maps.borrow_and_update().clone();
        assert_eq!((map.epoch, map.max_osd(), map.num_osds()), (epoch, 2, 1));
        assert!(map.is_up(1) && map.is_in(1) && !map.exists(0));
        assert_eq!(map.osd(1).unwrap().info.up_from, epoch);
        assert_eq!(map.crush.item_name(1), Some("osd.1"));
        assert!(
            map.crush.item_id("vm").is_some(),
            "the host is a bucket by its short name"
        );
        assert_eq!(
            c.osd_boot(&boot_of(1)).await.unwrap(),
            epoch,
            "saying it again changes nothing"
        );
        let stranger = OsdBoot {
            uuid: Uuid([9; 16]),
            ..boot_of(1)
        };
        assert!(
            c.osd_boot(&stranger).await.is_err(),
            "another directory cannot take an id over"
        );
        assert_eq!(c.osd_down(1).await.unwrap(), epoch + 1);
        assert_eq!(
            c.osd_down(1).await.unwrap(),
            epoch + 1,
            "down twice must not bring it up"
        );
        assert!(c.osdmap().is_down(1));
        let back = OsdBoot {
            client_addrs: addrs(7000),
            ..boot_of(1)
        };
        c.osd_boot(&back).await.unwrap();
        assert_eq!(c.osdmap().osd(1).unwrap().client_addrs, addrs(7000));
    });
}

/// Two writers that do not know of each other: both changes are kept, none is lost.
#[test]
fn writers_of_other_processes_are_met_by_compare_and_swap() {
    let rig = Rig::new();
    block_on(async {
        let a = rig.create().await;
        let store = a.store_for_tests();
        let b = ClusterHandle::open(store, rig.clock.clone())
            .await
            .unwrap()
            .unwrap();
        for n in 0..20 {
            let (writer, key) = if n % 3 == 0 { (&a, "a") } else { (&b, "b") };
            let done = writer
                .commit(|s| {
                    let old = s.config_keys.get("n").map_or(0, |v| v[0]);
                    let value = vec![old + 1].into();
                    (
                        Changes::one(Change::ConfigKeySet {
                            key: "n".into(),
                            value,
                        }),
                        old,
                    )
                })
                .await
                .unwrap();
            assert_eq!(done.reply, n, "writer {key} saw the other's last change");
        }
        let follower = b.clone();
        // What was committed before the follower begins is not lost on it (it once was).
        change_map(&a, |_, inc| inc.new_flags = Some(0x80)).await;
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async move {
                tokio::task::spawn_local(async move { follower.follow().await });
                let mut seen = b.subscribe_state();
                seen.wait_for(|s| s.osdmap.flags == 0x80).await.unwrap();
                change_map(&a, |_, inc| inc.new_flags = Some(0)).await;
                while seen.borrow_and_update().osdmap.flags != 0 {
                    seen.changed().await.unwrap();
                }
            })
            .await;
    });
}

#[test]
fn reports_live_as_long_as_their_osd() {
    let rig = Rig::new();
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let c = rig.create().await;
        let follower = c.clone();
        tokio::task::spawn_local(async move { follower.follow().await });
        let mut report = OsdReport::default();
        let mut pg = PgStat::unknown(PgId::new(1, 0));
        pg.stats.sum.num_objects = 5;
        report.pgs.insert(pg.pgid, pg);
        c.publish_stats(0, &report).await.unwrap();
        let mut stats = c.subscribe_stats();
        stats.wait_for(|s| s.osds.len() == 1).await.unwrap();
        assert_eq!(c.stats().pool_sum(1).num_objects, 5);
        rig.clock.0.fetch_add(20, Ordering::Relaxed);
        c.publish_stats(0, &report).await.unwrap();
        rig.clock.0.fetch_add(20, Ordering::Relaxed);
        c.maintain().await.unwrap();
        tokio::task::yield_now().await;
        assert_eq!(c.stats().osds.len(), 1, "a renewed report stays");
        rig.clock.0.fetch_add(20, Ordering::Relaxed);
        c.maintain().await.unwrap();
        stats.wait_for(|s| s.osds.is_empty()).await.unwrap();
    }));
}

/// Thousands of placement groups on one OSD must not silence it.
#[test]
fn a_report_that_is_too_large_is_cut() {
    let rig = Rig::new();
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let c = rig.create().await;
        let follower = c.clone();
        tokio::task::spawn_local(async move { follower.follow().await });
        let mut report = OsdReport::default();
        for seed in 0..6000 {
            let pg = PgStat::unknown(PgId::new(1, seed));
            report.pgs.insert(pg.pgid, pg);
        }
        assert!(report.to_bytes().len() > crate::kv::VALUE_BYTES_MAX);
        c.publish_stats(0, &report).await.unwrap();
        let mut stats = c.subscribe_stats();
        stats.wait_for(|s| s.osds.len() == 1).await.unwrap();
        assert!((1000..6000).contains(&c.stats().osds[&0].pgs.len()));
    }));
}

/// A second process on the same store, which follows: a handle, and the task that keeps it up.
async fn follower(store: Arc<dyn Metastore>, rig: &Rig) -> ClusterHandle {
    let other = ClusterHandle::open(store, rig.clock.clone())
        .await
        .unwrap()
        .unwrap();
    let follow = other.clone();
    tokio::spawn(async move { follow.follow().await });
    other
}

async fn reaches(c: &ClusterHandle, revision: u64) -> Arc<ClusterState> {
    let mut state = c.subscribe_state();
    let found = state.wait_for(|s| s.revision >= revision).await.unwrap().clone();
    assert_eq!(found.revision, revision);
    found
}

/// What another process commits is taken in from its changes alone, and gives the very state (`cluster` has the test for each
/// kind of change).
#[test]
fn a_follower_comes_to_the_same_state() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        let store = c.store_for_tests();
        let other = follower(store.clone(), &rig).await;
        let check = async |what: &str| {
            let want = c.state();
            let found = reaches(&other, want.revision).await;
            assert_eq!(print(&found), print(&want), "{what}");
            let fresh = ClusterHandle::open(store.clone(), rig.clock.clone()).await;
            assert_eq!(print(&fresh.unwrap().unwrap().state()), print(&want), "{what}");
        };
        for id in 0..3 {
            c.osd_boot(&boot_of(id)).await.unwrap();
        }
        check("boots").await;
        change_map(&c, |_, inc| add_pool(inc, 1, 600)).await;
        change_map(&c, |_, inc| add_pool(inc, 2, 8)).await;
        c.osd_down(1).await.unwrap();
        check("pools").await;
        change_map(&c, |_, inc| {
            let _ = inc.old_pools.insert(1);
        })
        .await;
        check("a pool gone").await;
        // Both write at once: neither loses a commit.
        let before = c.state().version;
        for i in 0..20 {
            let bump = |c: ClusterHandle| async move {
                c.commit(move |_| (Changes::one(Change::GlobalIdLimit(2 << 20 | i)), ()))
                    .await
                    .map(|_| ())
            };
            let (a, b) = tokio::join!(bump(c.clone()), bump(other.clone()));
            a.and(b).unwrap();
        }
        let last = other.state().revision.max(c.state().revision);
        assert_eq!(reaches(&other, last).await.version, before + 40);
    });
}

/// An OSD that may still serve by its own clock is not taken out by a commit that asks for its lease to be over.
#[test]
fn a_lease_fences_commits() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        let other = follower(c.store_for_tests(), &rig).await;
        let times = crate::LeaseTimes {
            ttl: Duration::from_secs(4),
            margin: Duration::from_secs(1),
        };
        let lease = c.osd_lease(0, 7, times).await.unwrap();
        let mut leased = other.subscribe_leased();
        leased.wait_for(|l| l.contains(&0)).await.unwrap();
        let out = async || {
            c.commit(|_| {
                let changes = Changes {
                    unleased: vec![0, 1],
                    ..Changes::one(Change::GlobalIdLimit(1 << 20))
                };
                (changes, ())
            })
            .await
        };
        assert!(matches!(out().await, Err(crate::Error::LeaseHeld(0))));
        rig.clock.0.fetch_add(3, Ordering::Relaxed);
        assert!(!lease.is_valid(rig.clock.monotonic()), "the owner has stopped");
        c.maintain().await.unwrap();
        assert!(matches!(out().await, Err(crate::Error::LeaseHeld(0))));
        rig.clock.0.fetch_add(1, Ordering::Relaxed);
        c.maintain().await.unwrap();
        leased.wait_for(|l| !l.contains(&0)).await.unwrap();
        assert!(out().await.unwrap().changed);
        lease.touch();
        assert!(lease.has_ended() && !lease.is_valid(Duration::ZERO));
        // A new run takes the place of one whose lease still lives, whose end then takes nothing away.
        let first = c.osd_lease(0, 8, times).await.unwrap();
        let second = c.osd_lease(0, 9, times).await.unwrap();
        c.end_lease(&first).await.unwrap();
        assert!(matches!(out().await, Err(crate::Error::LeaseHeld(0))));
        c.end_lease(&second).await.unwrap();
        assert!(out().await.unwrap().changed);
    });
}

/// Silence is not death: an OSD whose reports are missing but whose lease lives may be serving, and to mark it down
/// would let another serve beside it. The monitor once did.
#[test]
fn who_is_silent_but_leased_stays_up() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        c.osd_boot(&boot_of(0)).await.unwrap();
        let times = crate::LeaseTimes {
            ttl: Duration::from_secs(4),
            margin: Duration::from_secs(1),
        };
        let lease = c.osd_lease(0, 7, times).await.unwrap();
        // Also where this handle has not heard of the lease: the commit itself asks.
        c.mark_silent_down(&[0]).await.unwrap();
        assert!(c.osdmap().is_up(0));
        c.end_lease(&lease).await.unwrap();
        c.mark_silent_down(&[0]).await.unwrap();
        assert!(!c.osdmap().is_up(0));
    });
}

/// A monitor's sign of life is written once, renewed, and gone with its lease or its clean end.
#[test]
fn monitors_give_signs_of_life() {
    let rig = Rig::new();
    let local = tokio::task::LocalSet::new();
    block_on(local.run_until(async {
        let c = rig.create().await;
        let follower = c.clone();
        tokio::task::spawn_local(async move { follower.follow().await });
        let mut stats = c.subscribe_stats();
        let report = |name: &str| MonReport {
            name: name.into(),
            mgr_gid: 7,
            ..MonReport::default()
        };
        for name in ["a", "b"] {
            c.publish_mon(&report(name)).await.unwrap();
        }
        stats.wait_for(|s| s.mons.len() == 2).await.unwrap();
        assert_eq!(c.stats().mons["b"], report("b"));
        // "a" renews, "b" does not.
        for _ in 0..monitors::MON_TTL.as_secs() + 1 {
            rig.clock.0.fetch_add(1, Ordering::Relaxed);
            c.publish_mon(&report("a")).await.unwrap();
            c.maintain().await.unwrap();
        }
        stats.wait_for(|s| !s.mons.contains_key("b")).await.unwrap();
        assert!(c.stats().mons.contains_key("a"));
        c.publish_mon(&report("b")).await.unwrap();
        stats.wait_for(|s| s.mons.len() == 2).await.unwrap();
        c.mon_gone("b").await.unwrap();
        stats.wait_for(|s| s.mons.len() == 1).await.unwrap();
    }));
}

/// A commit that settles many pools at once writes a row for each: such a change was refused above about 100 pools, for
/// etcd counts operations, and an OSD of theirs could not even be marked down.
#[test]
fn two_hundred_pools_are_settled_in_one_commit() {
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        for id in 0..3 {
            c.osd_boot(&boot_of(id)).await.unwrap();
        }
        for id in 1..=200 {
            let copies = |p: &mut PgPool| (p.size, p.min_size) = (3, 1);
            change_map(&c, |_, inc| {
                add_pool(inc, id, 4);
                inc.new_pools.values_mut().for_each(copies);
            })
            .await;
        }
        let rows = |state: &ClusterState| state.pgs.iter().count();
        assert_eq!(rows(&c.state()), 800);
        let led = c.state().pgs.iter().filter(|(_, g)| g.primary == 1).count();
        assert!(led > 0);
        // All of it in one epoch (rule 5), and the same after opening it again.
        let before = c.osdmap().epoch;
        c.osd_down(1).await.unwrap();
        assert_eq!(c.osdmap().epoch, before + 1);
        let check = |state: &ClusterState| {
            assert_eq!(rows(state), 800);
            for (pg, g) in state.pgs.iter() {
                assert!(!g.in_sync.contains(&1) && g.primary != 1, "{pg}: {g:?}");
            }
        };
        check(&c.state());
        let (before, written) = (print(&c.state()), c.state().pgs.clone());
        drop(c);
        let again = rig.reopen().await;
        check(&again.state());
        assert_eq!(print(&again.state()), before);
        assert_eq!(again.state().pgs, written);
    });
}

/// A cluster state from before the format was written is read, and gets it with its next commit; one that a newer program
/// has written is refused, at start and while another program runs.
#[test]
fn the_format_is_looked_at() {
    use crate::kv::{Txn, TxnOp};
    let rig = Rig::new();
    block_on(async {
        let c = rig.create().await;
        let store = c.store_for_tests();
        assert_eq!(c.state().format, Some(format::Format::CURRENT));
        let write = async |ops: Vec<TxnOp>| {
            let txn = Txn {
                compares: vec![],
                ops,
            };
            store.txn(txn).await.unwrap();
        };
        let open = async || ClusterHandle::open(store.clone(), rig.clock.clone()).await;
        write(vec![TxnOp::delete(keys::FORMAT)]).await;
        let old = open().await.unwrap().unwrap();
        assert_eq!(old.state().format, None);
        old.commit(|_| (Changes::one(Change::GlobalIdLimit(1 << 20)), ()))
            .await
            .unwrap();
        let again = open().await.unwrap().unwrap();
        assert_eq!(again.state().format, Some(format::Format::CURRENT));
        let running = again.clone();
        let newer = format::Format {
            version: format::VERSION + 1,
            features: 0,
        };
        let raise = async {
            tokio::task::yield_now().await;
            let version = store.get(keys::VERSION).await.unwrap().unwrap();
            let format = TxnOp::put(keys::FORMAT, newer.to_bytes());
            // As a newer program's commit does it.
            write(vec![format, TxnOp::put(keys::VERSION, version.value)]).await;
        };
        let (ended, ()) = tokio::join!(running.follow(), raise);
        let said = [ended.err(), open().await.err()];
        for e in said {
            let text = e.expect("refused").to_string();
            assert!(text.contains("newer Skep"), "{text}");
        }
    });
}
