//! A store on a block device (a loop device; needs root and losetup, else the test says that it was skipped).

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

mod common;

use common::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use store::{Error, Options, Store};

const SIZE: u64 = 48 << 20;

struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let out = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        let name = String::from_utf8(out.stdout).ok()?;
        out.status.success().then(|| Self(name.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_device_is_used_whole_and_never_taken_from_another() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let Some(device) = Loop::over(&image) else {
        eprintln!("skipped: no loop device can be made here");
        return;
    };
    let osd = dir.path().join("osd");
    let options = Options {
        device: Some(device.0.clone()),
        log_bytes: 2 << 20,
        max_bytes: None,
        threads: true,
        ..options()
    };
    // Somebody's data: refused, and untouched.
    let theirs = vec![9u8; 4096];
    std::fs::write(&device.0, &theirs).unwrap();
    let refused = Store::mkfs(&osd, &options).unwrap_err();
    assert!(matches!(&refused, Error::NotAStore { .. }), "{refused}");
    assert!(refused.to_string().contains("device is not empty"), "{refused}");
    assert_eq!(std::fs::read(&device.0).unwrap()[..4096], theirs);
    assert!(!osd.join("block").exists());
    std::fs::write(&device.0, vec![0u8; 4096]).unwrap();

    Store::mkfs(&osd, &options).unwrap();
    assert_eq!(store::device_of(&osd), Some(device.0.clone()));
    assert!(matches!(
        Store::mkfs(&osd, &options),
        Err(Error::AlreadyAStore { .. })
    ));
    let (mut model, mut g) = (Model::default(), Generator::new(7));
    for life in 0..3 {
        let mut store = Store::open(&osd, &options, nobody()).unwrap();
        assert_eq!(store.statfs().total + (2 << 20) + (64 << 10), SIZE);
        compare(&store, &model, &format!("life {life}"));
        if life == 0 {
            store.queue(Generator::first()).unwrap();
            model = model.after(&Generator::first()).unwrap();
        }
        for _ in 0..300 {
            let t = g.transaction();
            match (store.queue(t.clone()), model.after(&t)) {
                (Ok(_), Some(m)) => model = m,
                (Err(e), None) => assert!(e.is_refusal(), "{e}"),
                (r, m) => panic!("{r:?}, the model says {}", m.is_some()),
            }
        }
        match life {
            // As a crash would leave it.
            0 => {
                store.wait(store.queued()).unwrap();
                drop(store);
            }
            _ => store.close().unwrap(),
        }
        assert!(Store::check(&osd, &options).unwrap().is_clean());
    }
    assert_eq!(std::fs::metadata(&image).unwrap().len(), SIZE);
}
