//! Whole pieces of work on a repository, with what goes wrong between and within them.

#![allow(clippy::disallowed_methods)]

use crate::folder::Kind as FileKind;
use crate::forms::{Id, Kind};
use crate::lock::Lock;
use crate::manifest::{About, Backup, Contents, FORM};
use crate::prune::Of;
use crate::verify::verify;
use crate::{Environment, Password, Repository, Result, prune};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const AT: Duration = Duration::from_secs(1_795_692_245);
const PIECE: usize = 4096;

struct Kit {
    dir: tempfile::TempDir,
    repo: Arc<Repository>,
}

impl Kit {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("r");
        let repo = Repository::create(&root, &password(), Environment::system()).unwrap();
        let repo = Arc::new(repo);
        Self { dir, repo }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("r")
    }

    /// As another process has it, which has read nothing yet.
    fn again(&self) -> Arc<Repository> {
        Arc::new(self.repo.fresh())
    }

    fn pack_of(&self, plain: &[u8]) -> PathBuf {
        let place = self.again().place_of(&Id::of(plain)).unwrap().unwrap();
        self.root()
            .join(self.repo.folder.name(FileKind::Data, &place.pack))
    }

    /// Besides locks.
    fn all_files(&self) -> Vec<Id> {
        let kinds = [FileKind::Snapshot, FileKind::Index, FileKind::Data];
        let files = kinds.map(|kind| self.repo.folder.list(kind).unwrap());
        files.concat()
    }

    fn findings(&self) -> Vec<String> {
        let report = verify(&self.again(), true, &mut |_, _| true);
        report.unwrap().findings
    }
}

fn password() -> Password {
    Password::new("x").unwrap()
}

/// A piece that no other is like.
fn piece(n: u64) -> Vec<u8> {
    let mut state = n + 1;
    let byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(byte).take(PIECE).collect()
}

fn about(image: &str, pieces: usize) -> About {
    About {
        form: FORM,
        cluster: "c1".into(),
        pool: "rbd".into(),
        namespace: String::new(),
        image: image.into(),
        id: format!("id-{image}"),
        size: (pieces * PIECE) as u64,
        features: 0,
        order: 22,
        stripe_unit: 1 << 22,
        stripe_count: 1,
        data_pool: None,
        metadata: Default::default(),
        parent: None,
        snapshot: "s".into(),
        snapshot_id: 1,
        older_snapshots: false,
        piece: PIECE as u64,
    }
}

/// As a run does it under its lock: how many bytes of pieces were new.
fn store(lock: &Lock, image: &str, at: Duration, pieces: &[u64]) -> Result<(Backup, u64)> {
    let repo = lock.repo();
    repo.prepare()?;
    let (mut ids, mut new) = (Vec::new(), 0);
    for n in pieces {
        let (id, stored) = repo.save(Kind::Data, &piece(*n))?;
        ids.push(id);
        new += stored;
    }
    let about = about(image, pieces.len());
    let contents = Contents { about, pieces: ids };
    Ok((repo.finish(lock, at, contents, None, new)?, new))
}

fn back_up(repo: &Arc<Repository>, image: &str, pieces: &[u64]) -> Result<(Backup, u64)> {
    store(&Lock::take(repo, false)?, image, AT, pieces)
}

fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at as usize] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Puts a file where the folder is, so that nothing can be written into it, until the guard goes.
struct Blocked(PathBuf, PathBuf);

impl Blocked {
    fn new(path: &Path) -> Self {
        let aside = path.with_extension("aside");
        std::fs::rename(path, &aside).unwrap();
        std::fs::write(path, "").unwrap();
        Self(path.into(), aside)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
        std::fs::rename(&self.1, &self.0).unwrap();
    }
}

/// What could not be stored for one image is stored for the next one that has the same.
#[test]
fn what_could_not_be_stored_is_not_there() {
    let kit = Kit::new();
    for (image, folder) in [("a", "data"), ("b", "index")] {
        let lock = Lock::take(&kit.repo, false).unwrap();
        lock.repo().prepare().unwrap();
        let n = image.len() as u64 + folder.len() as u64;
        let (id, stored) = lock.repo().save(Kind::Data, &piece(n)).unwrap();
        assert!(stored > 0);
        let blocked = Blocked::new(&kit.root().join(folder));
        lock.repo().flush().unwrap_err();
        drop(blocked);
        // This piece of work is over, also when there is room again.
        let about = about(image, 1);
        let said = [
            lock.repo().save(Kind::Data, &piece(n)).unwrap_err(),
            lock.repo().flush().unwrap_err(),
            lock.repo().refuse_unnamed(&[id].into()).unwrap_err(),
            lock.repo()
                .finish(
                    &lock,
                    AT,
                    Contents {
                        about,
                        pieces: vec![id],
                    },
                    None,
                    0,
                )
                .unwrap_err(),
        ];
        said.iter()
            .for_each(|e| assert!(e.to_string().contains("could not be stored"), "{e}"));
        drop(lock);
        let (_, new) = back_up(&kit.repo, image, &[n]).unwrap();
        assert!(new > PIECE as u64, "{folder}: it was stored again");
    }
    assert_eq!(kit.findings(), [""; 0]);
    assert_eq!(kit.repo.backups().unwrap().len(), 2);
}

/// Between two images of a round another process takes the blobs away.
#[test]
fn what_was_pruned_meanwhile_is_stored_again() {
    let kit = Kit::new();
    let (first, _) = back_up(&kit.repo, "a", &[1, 2]).unwrap();
    let other = kit.again();
    prune::remove(&other, &[&first]).unwrap();
    prune::prune(&other, None, Of::default()).unwrap();
    let (_, new) = back_up(&kit.repo, "b", &[2, 3]).unwrap();
    assert!(new > 2 * PIECE as u64, "{new}");
    assert_eq!(kit.findings(), [""; 0]);
}

/// No manifest names what no index file on the disk names.
#[test]
fn a_manifest_names_only_what_index_files_name() {
    let kit = Kit::new();
    back_up(&kit.repo, "a", &[1]).unwrap();
    let lock = Lock::take(&kit.repo, false).unwrap();
    lock.repo().prepare().unwrap();
    let (about_b, none) = (about("b", 1), Id::of(b"none"));
    let made = lock.repo().finish(
        &lock,
        AT,
        Contents {
            about: about_b,
            pieces: vec![none],
        },
        None,
        0,
    );
    assert!(made.unwrap_err().to_string().contains("no index names blob"));
    for id in kit.repo.folder.list(FileKind::Index).unwrap() {
        kit.repo.folder.remove(FileKind::Index, &id).unwrap();
    }
    let said = store(&lock, "b", AT, &[1]).unwrap_err().to_string();
    assert!(said.contains("went while the backup was made"), "{said}");
    assert_eq!(kit.repo.backups().unwrap().len(), 1);
}

/// Somebody takes the lock away while all is read: nothing of what was to be removed is.
#[test]
fn who_lost_his_lock_removes_nothing() {
    let kit = Kit::new();
    back_up(&kit.repo, "a", &[1, 2]).unwrap();
    let pack = kit.pack_of(&piece(1));
    flip(&pack, 100);
    let before = kit.all_files();
    let lose = |_, _| {
        let locks = kit.repo.folder.list(FileKind::Lock).unwrap();
        locks
            .iter()
            .for_each(|id| kit.repo.folder.remove(FileKind::Lock, id).unwrap());
        true
    };
    let said = prune::repair(&kit.repo, &mut { lose }).unwrap_err().to_string();
    assert!(said.contains("was lost"), "{said}");
    assert_eq!(kit.all_files(), before);
    let lock = Lock::take(&kit.repo, false).unwrap();
    lose(0, 0);
    let said = store(&lock, "b", AT, &[7]).unwrap_err().to_string();
    assert!(said.contains("was lost"), "{said}");
    assert_eq!(kit.repo.backups().unwrap().len(), 1);
}

/// An index file is lost: the packs that it named are healthy, and all that is left of the backup.
#[test]
fn packs_of_a_lost_index_are_not_pruned_and_found_again() {
    let kit = Kit::new();
    let lock = Lock::take(&kit.repo, false).unwrap();
    lock.repo().prepare().unwrap();
    lock.repo().save(Kind::Data, &piece(1)).unwrap();
    lock.repo().flush().unwrap();
    let lost = kit.repo.folder.list(FileKind::Index).unwrap();
    store(&lock, "a", AT, &[1, 2]).unwrap();
    drop(lock);
    for id in &lost {
        kit.repo.folder.remove(FileKind::Index, id).unwrap();
    }
    let before = kit.all_files();
    let said = prune::prune(&kit.repo, None, Of::default())
        .unwrap_err()
        .to_string();
    assert!(said.contains("no index names 1 of the blobs"), "{said}");
    assert_eq!(kit.all_files(), before);
    let repaired = prune::repair(&kit.repo, &mut |_, _| true).unwrap();
    assert_eq!((repaired.found, repaired.lost), (1, 0));
    assert_eq!(kit.findings(), [""; 0]);
    prune::prune(&kit.repo, None, Of::default()).unwrap();
    assert_eq!(kit.findings(), [""; 0]);
}

/// An index file that cannot be read is one that is lost.
#[test]
fn an_index_that_cannot_be_read_is_made_anew() {
    let kit = Kit::new();
    back_up(&kit.repo, "a", &[1, 2]).unwrap();
    for id in kit.repo.folder.list(FileKind::Index).unwrap() {
        let path = kit.root().join(kit.repo.folder.name(FileKind::Index, &id));
        flip(&path, 20);
    }
    assert!(back_up(&kit.repo, "b", &[1]).is_err());
    assert!(prune::prune(&kit.repo, None, Of::default()).is_err());
    prune::repair(&kit.repo, &mut |_, _| true).unwrap();
    assert_eq!(kit.findings(), [""; 0]);
    back_up(&kit.repo, "b", &[1]).unwrap();
}

/// Two hosts stored the same at once; one copy rots.
#[test]
fn the_good_one_of_two_copies_stays() {
    for rots in [0, 1] {
        let kit = Kit::new();
        let (one, two) = (kit.again(), kit.again());
        let locks = [&one, &two].map(|repo| Lock::take(repo, false).unwrap());
        for lock in &locks {
            lock.repo().prepare().unwrap();
            for n in [1, 2] {
                lock.repo().save(Kind::Data, &piece(n)).unwrap();
            }
        }
        locks.iter().for_each(|lock| lock.repo().flush().unwrap());
        store(&locks[0], "a", AT, &[1, 2]).unwrap();
        drop(locks);
        let packs = kit.repo.folder.list(FileKind::Data).unwrap();
        let data: Vec<PathBuf> = packs
            .iter()
            .map(|id| kit.root().join(kit.repo.folder.name(FileKind::Data, id)))
            .filter(|path| std::fs::metadata(path).unwrap().len() > 2 * PIECE as u64)
            .collect();
        assert_eq!(data.len(), 2);
        flip(&data[rots], 100);
        assert_eq!(kit.findings().len(), 1);
        assert_eq!(kit.again().load(&Id::of(&piece(1))).unwrap(), piece(1));
        assert_eq!(kit.again().load(&Id::of(&piece(2))).unwrap(), piece(2));
        let repaired = prune::repair(&kit.repo, &mut |_, _| true).unwrap();
        assert_eq!(repaired.lost, 0);
        assert_eq!(kit.findings(), [""; 0]);
    }
}

/// What of a pack can still be read stays, whatever else is wrong with it.
#[test]
fn what_can_be_read_of_a_hit_pack_stays() {
    type Hit = fn(&Path);
    let header: Hit = |path| flip(path, std::fs::metadata(path).unwrap().len() - 10);
    let cut: Hit = |path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 3]).unwrap();
    };
    let longer: Hit = |path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, [bytes, vec![0; 9]].concat()).unwrap();
    };
    let first: Hit = |path| flip(path, 100);
    let gone: Hit = |path| std::fs::remove_file(path).unwrap();
    for (hit, lost) in [(header, 0), (cut, 0), (longer, 0), (first, 1), (gone, 3)] {
        let kit = Kit::new();
        back_up(&kit.repo, "a", &[1, 2]).unwrap();
        hit(&kit.pack_of(&piece(1)));
        assert_ne!(kit.findings(), [""; 0]);
        let repaired = prune::repair(&kit.repo, &mut |_, _| true).unwrap();
        assert_eq!(repaired.lost, lost);
        assert_eq!(kit.findings().is_empty(), lost == 0, "{:?}", kit.findings());
        if lost > 0 {
            // The next backup stores it again; the manifest of the older one has what is in other packs.
            back_up(&kit.repo, "a", &[1, 2]).unwrap();
            assert_eq!(kit.findings(), [""; 0]);
        }
    }
}

/// Two clusters have an image of the same name, and back it up to one repository by policies of the same name.
#[test]
fn each_cluster_keeps_its_own() {
    let kit = Kit::new();
    let lock = Lock::take(&kit.repo, false).unwrap();
    lock.repo().prepare().unwrap();
    let mut ids = Vec::new();
    for (hours, cluster, id) in [
        (0, "c1", "i"),
        (1, "c1", "i"),
        (2, "c2", "i"),
        (3, "c2", "i"),
        (4, "c1", "j"),
    ] {
        let about = About {
            cluster: cluster.into(),
            id: id.into(),
            ..about("a", 0)
        };
        let at = AT + Duration::from_secs(hours * 3600);
        let contents = Contents {
            about,
            pieces: vec![],
        };
        ids.push(lock.repo().finish(&lock, at, contents, Some("p"), 0).unwrap().id);
    }
    drop(lock);
    let (all, keep) = (kit.repo.backups().unwrap(), "1h:1h".parse().unwrap());
    let now = AT.as_secs() + 1_000_000;
    let unkept = |policy, cluster| -> Vec<Id> {
        let gone = prune::unkept(&all, &keep, Of { policy, cluster }, now);
        gone.iter().map(|b| b.id).collect()
    };
    assert_eq!(unkept(None, None), [ids[0], ids[2]]);
    assert_eq!(unkept(Some("p"), Some("c2")), [ids[2]]);
    assert_eq!(unkept(Some("q"), None), []);
}

/// rclone and others copy no empty folders.
#[test]
fn a_copy_without_its_empty_folders_works() {
    let kit = Kit::new();
    back_up(&kit.repo, "a", &[1]).unwrap();
    for dir in std::fs::read_dir(kit.root().join("data")).unwrap() {
        // Only one that is empty goes.
        let _ = std::fs::remove_dir(dir.unwrap().path());
    }
    std::fs::remove_dir(kit.root().join("locks")).unwrap();
    let missing = |dir: &str| !kit.root().join(dir).exists();
    assert!(missing("locks") && (0..256).any(|n| missing(&format!("data/{n:02x}"))));
    for n in 0..20 {
        back_up(&kit.repo, "b", &[100 + n]).unwrap();
    }
    assert_eq!(kit.findings(), [""; 0]);
    // What a mount leaves behind that went is not filled.
    std::fs::remove_dir_all(kit.root()).unwrap();
    std::fs::create_dir(kit.root()).unwrap();
    assert!(back_up(&kit.repo, "b", &[1]).is_err());
    assert_eq!(std::fs::read_dir(kit.root()).unwrap().count(), 0);
}
