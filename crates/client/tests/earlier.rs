//! Whole directories that earlier versions left, OSDs' stores and the cluster state: a later version serves them.
//!
//! `formats/*.tgz` are such directories; formats/README.md says how they were made and what they hold.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use bytes::Bytes;
use client::{Client, Conf, IoCtx};
use io::task;
use node::{DataDir, Node, StartOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Only what hangs is ended by it.
const LONG: Duration = Duration::from_secs(120);
const OBJECTS: u32 = 24;
/// Entries of all PGs' logs.
const LOGGED: u64 = 52;

fn unpacked(archive: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(archives.join(archive))
        .arg("-C")
        .arg(dir.path())
        .status();
    assert!(tar.unwrap().success(), "{archive}");
    dir
}

/// Runs `work` with a client of the node that serves `dir`.
async fn served(dir: &Path, work: impl AsyncFnOnce(&Client)) {
    let options = StartOptions {
        osd_memory: Some(64 << 20),
        ..StartOptions::default()
    };
    let dir = DataDir::existing(dir).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let mut node = Node::start(&dir, options, &|_| {}).await.unwrap();
    let mut conf = Conf::read(&dir.conf_path(), "client.admin", None).unwrap();
    conf.op_timeout = Some(LONG);
    conf.mon_timeout = Some(LONG);
    let works = async {
        let client = Client::connect(conf).await.unwrap();
        work(&client).await;
        client.shutdown().await;
        stop.send(()).unwrap();
    };
    let serves = node.serve(async {
        let _ = stopped.await;
        Ok("test")
    });
    let (told, ()) = tokio::join!(serves, works);
    told.unwrap();
    node.stop().await;
}

fn name(n: u32) -> String {
    format!("object{n:02}")
}

async fn check(io: &IoCtx) {
    for n in 0..OBJECTS {
        let data = io.read(name(n), 0, 0).await.unwrap();
        match n {
            1 => assert_eq!(data, "after"),
            _ => assert_eq!(data, vec![n as u8; 1000 * n as usize]),
        }
        assert_eq!(io.get_xattr(name(n), b"n").await.unwrap(), n.to_string());
    }
    assert_eq!(io.omap("rows").await.unwrap().len(), 2);
    let set = io.list_snaps(name(1)).await.unwrap();
    assert_eq!(set.clones.len(), 2, "the head and one clone");
    let mut old = io.clone();
    old.set_read_snap(Some(set.clones[0].snaps[0]));
    assert_eq!(old.read(name(1), 0, 0).await.unwrap(), vec![1; 1000]);
    let all = io.list().collect().await.unwrap();
    let names: BTreeSet<Bytes> = all.into_iter().map(|e| e.oid).collect();
    assert_eq!(names.len() as u32, OBJECTS + 1);
}

/// True when all PGs are clean on three OSDs and have so many log entries together.
async fn has_logs(client: &Client, entries: u64) -> bool {
    let dump = r#"{"prefix": "pg dump", "dumpcontents": ["pgs"], "format": "json"}"#;
    let out = client.mon_command(dump, Bytes::new()).await.unwrap().output;
    let dump: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let pgs = dump["pg_stats"].as_array().or(dump.as_array()).unwrap();
    let log: u64 = pgs.iter().filter_map(|pg| pg["log_size"].as_u64()).sum();
    let clean = |pg: &serde_json::Value| {
        pg["state"] == "active+clean" && pg["acting"].as_array().is_some_and(|a| a.len() == 3)
    };
    pgs.len() == 8 && pgs.iter().all(clean) && log == entries
}

async fn wait_for_logs(client: &Client, entries: u64) {
    let reported = async {
        while !has_logs(client, entries).await {
            task::sleep(Duration::from_millis(200)).await;
        }
    };
    assert!(task::timeout(LONG, reported).await.is_ok(), "{entries} entries");
}

#[test]
fn a_directory_of_an_earlier_version_is_served() {
    for archive in ["1-2026-11-23.tgz"] {
        let dir = unpacked(archive);
        // Twice: what the first start has rewritten is read again.
        for round in 0..2 {
            let work = served(dir.path(), async |client| {
                wait_for_logs(client, LOGGED + 2 * round).await;
                let io = client.pool("p").await.unwrap();
                check(&io).await;
                let after = format!("after{round}");
                io.write_full(&after, "new").await.unwrap();
                assert_eq!(io.read(&after, 0, 0).await.unwrap(), "new");
                io.remove(&after).await.unwrap();
            });
            task::block_on(work).unwrap();
        }
    }
}
