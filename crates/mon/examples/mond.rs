//! A monitor alone, for trying stock clients against it: `mond DIR PORT [none]`. It makes a cluster in DIR with
//! three OSDs that are up in the map and do not exist, and writes ceph.conf and the admin keyring there.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use auth::{KeyServerConfig, print_section};
use cluster::{CreateOptions, OsdBoot, OsdReport};
use io::{SystemClock, SystemRandom};
use metastore::{ClusterHandle, Embedded, create_cluster};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use types::pgstats::{PgStat, pg_state};
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, Uuid};

fn main() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(std::io::stderr)
        .init();
    let args: Vec<String> = std::env::args().collect();
    let dir = Path::new(&args[1]).to_path_buf();
    let port: u16 = args[2].parse().unwrap();
    let cephx = args.get(3).is_none_or(|a| a != "none");
    let ttl = args.get(4).and_then(|a| a.parse().ok());
    io::task::block_on(run(dir, port, cephx, ttl)).unwrap();
}

async fn run(dir: std::path::PathBuf, port: u16, cephx: bool, ttl: Option<u64>) {
    let (clock, random) = (SystemClock::shared(), SystemRandom::shared());
    let addr = EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 0);
    let store = Arc::new(Embedded::open(&dir.join("state.redb"), clock.clone()).unwrap());
    let cluster = match ClusterHandle::open(store.clone(), clock.clone()).await.unwrap() {
        Some(cluster) => cluster,
        None => {
            let options = CreateOptions::new(Uuid::from_random(random.bytes()), "a", addr);
            create_cluster(&*store, &options, &*clock, &*random)
                .await
                .unwrap();
            ClusterHandle::open(store, clock.clone()).await.unwrap().unwrap()
        }
    };
    for id in 0..3 {
        cluster.osd_boot(&boot(id, port)).await.unwrap();
    }
    let state = cluster.state();
    let admin = AuthName::new(EntityKind::Client, "admin");
    let keyring = dir.join("ceph.client.admin.keyring");
    std::fs::write(&keyring, print_section(&admin, state.auth.get(&admin).unwrap())).unwrap();
    let method = if cephx { "cephx" } else { "none" };
    let conf = format!(
        "[global]\nfsid = {}\nmon_host = v2:127.0.0.1:{port}\nauth_client_required = {method}\nkeyring = {}\n",
        state.fsid,
        keyring.display()
    );
    std::fs::write(dir.join("ceph.conf"), conf).unwrap();
    let mut tickets = KeyServerConfig::default();
    if let Some(ttl) = ttl {
        (tickets.auth_ttl, tickets.service_ttl) = (Duration::from_secs(ttl * 2), Duration::from_secs(ttl));
    }
    let config = mon::MonConfig {
        registry: Default::default(),
        name: "a".into(),
        mgr_name: "x".into(),
        addr,
        mgr_bind: ([127, 0, 0, 1], 0).into(),
        msgr1: None,
        cephx,
        tickets,
        hostname: io::files::hostname(),
        connections_max: net::CONNECTIONS_MAX,
        cluster: cluster.clone(),
        clock,
        random,
    };
    let (ready, when_ready) = oneshot::channel();
    let (stop, stopped) = watch::channel(false);
    io::task::spawn_local(async move {
        println!("{:?}", when_ready.await.unwrap());
        loop {
            for id in 0..3 {
                let report = report(&cluster, id);
                cluster.publish_stats(id, &report).await.unwrap();
            }
            io::task::sleep(Duration::from_secs(2)).await;
        }
    });
    io::task::spawn_local(async move {
        io::task::termination().await.unwrap();
        stop.send(true).unwrap();
    });
    mon::serve(config, ready, stopped).await.unwrap();
}

fn boot(id: i32, port: u16) -> OsdBoot {
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(
        ([127, 0, 0, 1], port + 10 + id as u16).into(),
        1,
    ));
    OsdBoot {
        id,
        uuid: Uuid([id as u8 + 1; 16]),
        client_addrs: addrs.clone(),
        cluster_addrs: addrs.clone(),
        hb_back_addrs: addrs.clone(),
        hb_front_addrs: addrs,
        size_bytes: 64 << 30,
        host: io::files::hostname(),
        device_class: "ssd".into(),
        features: types::release::feature::ALL_PACIFIC,
        metadata: BTreeMap::from([("hostname".to_string(), io::files::hostname())]),
    }
}

fn report(cluster: &ClusterHandle, id: i32) -> OsdReport {
    let map = cluster.osdmap();
    let mut report = OsdReport {
        stamp: cluster.now(),
        ..OsdReport::default()
    };
    report.stat.osd = id;
    report.stat.statfs.total = 64 << 30;
    report.stat.statfs.available = 60 << 30;
    for pg in map.pgs() {
        let sets = map.pg_to_up_acting(pg);
        if sets.acting_primary == id {
            let mut stat = PgStat::unknown(pg);
            stat.state = pg_state::ACTIVE | pg_state::CLEAN;
            stat.stats.sum.num_objects = 1;
            stat.stats.sum.num_bytes = 1000;
            stat.reported_epoch = map.epoch;
            (stat.up, stat.acting) = (sets.up, sets.acting);
            (stat.up_primary, stat.acting_primary) = (sets.up_primary, sets.acting_primary);
            report.pgs.insert(pg, stat);
            let queue = map.removed_snaps_queue.get(&pg.pool).cloned().unwrap_or_default();
            report.purged_snaps.insert(pg, queue);
        }
    }
    report
}
