//! The real store passes the suite of what a PG's store must do: with changes in memory, behind checkpoints, and after restarts.

use super::*;
use ::store::{Algorithm, Compression, Options};
use pg::conformance::store::{self, Subject};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ageing {
    /// All stays in memory.
    Never,
    Checkpoint,
    Restart,
}

/// Stores in folders of their own.
struct OnDisk {
    dir: TempDir,
    made: usize,
    options: Options,
    ageing: Ageing,
    /// Of what pools 0 to 99 store.
    packed: Option<Compression>,
}

impl OnDisk {
    fn path(&self) -> PathBuf {
        self.dir.path().join(self.made.to_string())
    }

    fn open(&self) -> StoreView {
        let engine = Store::open(&self.path(), &self.options, Arc::new(|| ())).unwrap();
        let mut view = StoreView::new(engine);
        view.compression = Policies::forced(self.packed, 0..100);
        view
    }
}

impl Subject for OnDisk {
    type Store = StoreView;

    fn make(&mut self) -> StoreView {
        let _ = std::fs::remove_dir_all(self.path());
        self.made += 1;
        Store::mkfs(&self.path(), &self.options).unwrap();
        self.open()
    }

    fn age(&mut self, mut store: StoreView) -> StoreView {
        match self.ageing {
            Ageing::Never => store,
            Ageing::Checkpoint => {
                store.engine.checkpoint().unwrap();
                store
            }
            Ageing::Restart => {
                let last = store.submitted();
                store.engine.wait(last).unwrap();
                store.engine.close().unwrap();
                self.open()
            }
        }
    }

    fn fetched(&mut self, store: &mut StoreView) -> Vec<Ticket> {
        store.engine.kick();
        let mut ended: Vec<Ticket> = Vec::new();
        // A wait ends with any progress, not with all.
        for _ in 0..10_000 {
            if ended.len() >= store.prefetches.len() {
                break;
            }
            store.engine.wait_reads().unwrap();
            ended.extend(store.prefetched().into_iter().map(|(t, _)| t));
        }
        ended
    }
}

fn conforms(ageing: Ageing, change: impl FnOnce(&mut Options)) {
    conforms_compressed(ageing, None, change);
}

fn conforms_compressed(ageing: Ageing, packed: Option<Compression>, change: impl FnOnce(&mut Options)) {
    let mut options = Options {
        log_bytes: 16 << 20,
        grow_bytes: 8 << 20,
        host_reserve_bytes: 0,
        ..Options::default()
    };
    change(&mut options);
    let dir = tempfile::tempdir().unwrap();
    store::run(&mut OnDisk {
        dir,
        made: 0,
        options,
        ageing,
        packed,
    });
}

/// What is compressed reads as what is not.
#[test]
fn with_data_compressed() {
    for (algorithm, ageing) in [
        (Algorithm::Lz4, Ageing::Never),
        (Algorithm::Zstd, Ageing::Checkpoint),
        (Algorithm::Snappy, Ageing::Restart),
        (Algorithm::Zlib, Ageing::Checkpoint),
    ] {
        let packed = Compression {
            algorithm,
            min_blob: 8 << 10,
            max_blob: 32 << 10,
            required_ratio: 0.875,
        };
        conforms_compressed(ageing, Some(packed), |o| o.direct_bytes = 8 << 10);
    }
}

#[test]
fn changes_in_memory() {
    conforms(Ageing::Never, |_| ());
}

#[test]
fn behind_checkpoints() {
    conforms(Ageing::Checkpoint, |_| ());
}

#[test]
fn after_restarts() {
    conforms(Ageing::Restart, |_| ());
}

/// Whatever can be full is, and is read from the disk again.
#[test]
fn with_next_to_no_memory() {
    conforms(Ageing::Never, |o| {
        o.overlay_bytes = 24 << 10;
        o.waiting_bytes = 16 << 10;
        o.record_cache_bytes = 1;
        o.block_cache_bytes = 0;
        o.index_cache_bytes = 1;
    });
}
