//! Takes backups away that the rules do not keep, and what nobody needs any more. Alone on the repository.
//!
//! Order: manifests go first; then packs that are half unneeded are written anew; then one index names all that stays, and the old
//! ones go; then packs that it does not name. A cut at any point leaves every backup whole that is not gone.

use crate::folder::Kind as FileKind;
use crate::forms::{Id, IndexBlob, IndexFile, IndexPack};
use crate::keep::Keep;
use crate::lock::Lock;
use crate::manifest::Backup;
use crate::repository::Repository;
use crate::verify::{Progress, inspect, walk};
use crate::{Error, Result, pack};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Packs of an index file: about 8 MB of JSON, as restic has them.
const PACKS_PER_INDEX: usize = 2048;

#[derive(Debug, Default)]
pub struct Pruned {
    /// Backups that went, by name.
    pub forgotten: Vec<String>,
    pub kept: u64,
    /// Bytes that the repository has less.
    pub freed: u64,
}

/// Of which backups: all, or those of one policy, of one cluster.
#[derive(Debug, Default, Clone, Copy)]
pub struct Of<'a> {
    pub policy: Option<&'a str>,
    pub cluster: Option<&'a str>,
}

impl Of<'_> {
    fn has(&self, backup: &Backup) -> bool {
        let fits = |wanted: Option<&str>, tag| wanted.is_none() || backup.tag(tag) == wanted;
        fits(self.policy, "policy") && fits(self.cluster, "cluster")
    }
}

/// Which backups the rules take away: those of each image (by cluster, id and name), made for the same policy, on their own.
pub fn unkept<'a>(backups: &'a [Backup], keep: &Keep, of: Of<'_>, now: u64) -> Vec<&'a Backup> {
    let mut groups: BTreeMap<[Option<&str>; 4], Vec<&Backup>> = BTreeMap::new();
    for backup in backups.iter().filter(|b| of.has(b)) {
        let tags = ["cluster", "image-id", "policy"].map(|tag| backup.tag(tag));
        let key = [Some(backup.image.as_str()), tags[0], tags[1], tags[2]];
        groups.entry(key).or_default().push(backup);
    }
    let mut out = Vec::new();
    for group in groups.into_values() {
        let times: Vec<u64> = group.iter().map(|b| b.time()).collect();
        let stays = keep.keeps(&times, now);
        out.extend(group.into_iter().zip(stays).filter(|(_, s)| !s).map(|(b, _)| b));
    }
    out
}

/// `keep`: None takes no backup away, only what none needs.
pub fn prune(repo: &Arc<Repository>, keep: Option<&Keep>, of: Of<'_>) -> Result<Pruned> {
    let lock = Lock::take(repo, true)?;
    let repo = lock.repo();
    let mut done = Pruned::default();
    let before = bytes(repo)?;
    let backups = repo.backups()?;
    let gone = keep
        .map(|k| unkept(&backups, k, of, repo.env.now()))
        .unwrap_or_default();
    // What stays is read before anything goes: a repository that is damaged is not made smaller.
    let leaving: BTreeSet<Id> = gone.iter().map(|b| b.id).collect();
    let needed = needed(repo, &leaving)?;
    refuse_lost(repo, &needed)?;
    lock.check()?;
    for backup in &gone {
        repo.folder.remove(FileKind::Snapshot, &backup.id)?;
        done.forgotten.push(backup.name());
    }
    repo.folder.sync(FileKind::Snapshot)?;
    let (copies, packs) = (HashSet::new(), HashSet::new());
    let bad = Bad {
        copies: &copies,
        packs: &packs,
    };
    sweep(&lock, &needed, &bad)?;
    done.kept = (backups.len() - gone.len()) as u64;
    done.freed = before.saturating_sub(bytes(repo)?);
    Ok(done)
}

/// What no index file names may lie in packs that would go now, if an index file is lost.
fn refuse_lost(repo: &Repository, needed: &HashSet<Id>) -> Result<()> {
    let index = repo.read_index()?;
    let packs = index.iter().flat_map(|(_, file)| &file.packs);
    let named: HashSet<Id> = packs.flat_map(|p| p.blobs.iter().map(|b| b.id)).collect();
    match needed.iter().filter(|id| !named.contains(*id)).count() {
        0 => Ok(()),
        lost => Err(Error::damaged(format!(
            "no index names {lost} of the blobs that backups need; nothing is taken away. `skep backup repair` finds those that packs still have"
        ))),
    }
}

/// What [`repair`] found and did, in blobs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Lost or changed, with no good copy: they are out of the index.
    pub lost: u64,
    /// That packs have, though no index named them: they are in the index again.
    pub found: u64,
    /// Packs that were hit, and of which what can be read stays.
    pub packs: u64,
}

/// Takes out of the repository what is lost or changed, so that the next backup of an image that has it still stores it again. What
/// packs still have, and index files named that are lost, is named again.
pub fn repair(repo: &Arc<Repository>, progress: Progress<'_>) -> Result<Repaired> {
    let lock = Lock::take(repo, true)?;
    let repo = lock.repo();
    let found_again = adopt(&lock)?;
    let (_, found) = inspect(repo, true, progress)?;
    let (mut good, mut copies) = (HashSet::new(), HashSet::new());
    for pack in repo.read_index()?.iter().flat_map(|(_, file)| &file.packs) {
        for blob in &pack.blobs {
            copies.insert(blob.id);
            if !found.bad_copies.contains(&(pack.id, blob.id)) {
                good.insert(blob.id);
            }
        }
    }
    let lost = copies
        .union(&found.needed)
        .filter(|id| !good.contains(*id))
        .count() as u64;
    // What nobody needs stays, too: below a folder that is lost nobody knows what it is.
    let bad = Bad {
        copies: &found.bad_copies,
        packs: &found.hit,
    };
    let packs: HashSet<Id> = bad
        .copies
        .iter()
        .map(|c| c.0)
        .chain(bad.packs.iter().copied())
        .collect();
    if !packs.is_empty() {
        sweep(&lock, &copies, &bad)?;
    }
    Ok(Repaired {
        lost,
        found: found_again,
        packs: packs.len() as u64,
    })
}

/// Names packs that no index file names that can be read, and takes away those that cannot.
fn adopt(lock: &Lock) -> Result<u64> {
    let repo = lock.repo();
    let (mut named, mut broken) = (HashSet::new(), Vec::new());
    for id in repo.folder.list(FileKind::Index)? {
        match repo.read_json::<IndexFile>(FileKind::Index, &id) {
            Ok(file) => named.extend(file.packs.iter().map(|p| p.id)),
            Err(Error::Damaged(_)) => broken.push(id),
            Err(e) => return Err(e),
        }
    }
    let (mut packs, mut blobs) = (Vec::new(), 0);
    for id in repo.folder.list(FileKind::Data)? {
        if named.contains(&id) {
            continue;
        }
        // One that is hit itself is not to be told from one that a cut-off write left.
        if let Ok(header) = pack::read(&repo.folder.read(FileKind::Data, &id)?, repo.key()) {
            blobs += header.len() as u64;
            packs.push(IndexPack { id, blobs: header });
        }
    }
    lock.check()?;
    for some in packs.chunks(PACKS_PER_INDEX) {
        repo.write_index_file(some.to_vec())?;
    }
    for id in &broken {
        repo.folder.remove(FileKind::Index, id)?;
    }
    repo.folder.sync(FileKind::Index)?;
    Ok(blobs)
}

/// What is not taken over, or not left where it is.
struct Bad<'a> {
    /// By pack and blob.
    copies: &'a HashSet<(Id, Id)>,
    packs: &'a HashSet<Id>,
}

/// Takes single backups away; their data go with the next [`prune`].
pub fn remove(repo: &Arc<Repository>, backups: &[&Backup]) -> Result<()> {
    let lock = Lock::take(repo, true)?;
    let repo = lock.repo();
    lock.check()?;
    for backup in backups {
        repo.folder.remove(FileKind::Snapshot, &backup.id)?;
    }
    repo.folder.sync(FileKind::Snapshot)
}

fn bytes(repo: &Repository) -> Result<u64> {
    let lengths = |kind: FileKind| -> Result<u64> {
        let mut sum = 0;
        for id in repo.folder.list(kind)? {
            sum += repo.folder.length(kind, &id)?.unwrap_or(0);
        }
        Ok(sum)
    };
    Ok(lengths(FileKind::Data)? + lengths(FileKind::Index)?)
}

fn needed(repo: &Repository, leaving: &BTreeSet<Id>) -> Result<HashSet<Id>> {
    let mut needed = HashSet::new();
    for (id, manifest) in repo.manifests()? {
        if leaving.contains(&id) {
            continue;
        }
        let read = walk(repo, manifest.tree, &mut |blob| _ = needed.insert(blob));
        read.map_err(|e| {
            Error::refused(format!(
                "nothing is taken away, since backup {} cannot be read: {e}",
                id.short()
            ))
        })?;
    }
    Ok(needed)
}

fn sweep(lock: &Lock, needed: &HashSet<Id>, bad: &Bad<'_>) -> Result<()> {
    let repo = lock.repo();
    lock.check()?;
    let old = repo.read_index()?;
    let mut packs: BTreeMap<Id, Vec<IndexBlob>> = BTreeMap::new();
    for pack in old.iter().flat_map(|(_, file)| &file.packs) {
        packs.entry(pack.id).or_insert_with(|| pack.blobs.clone());
    }
    let all = packs.len();
    let stays = rewrite(lock, packs, needed, bad)?;
    // Packs that were written anew are named by index files of their own.
    repo.flush()?;
    let before: BTreeSet<Id> = old.iter().map(|(id, _)| *id).collect();
    if stays.len() < all || old.len() > 1 {
        let mut written = HashSet::new();
        for some in stays.chunks(PACKS_PER_INDEX) {
            written.insert(repo.write_index_file(some.to_vec())?);
        }
        lock.check()?;
        for id in before.iter().filter(|id| !written.contains(*id)) {
            repo.folder.remove(FileKind::Index, id)?;
        }
        repo.folder.sync(FileKind::Index)?;
    }
    remove_unnamed(lock)
}

/// Copies what is needed of packs that are half unneeded, or have something bad; the others, which stay.
fn rewrite(
    lock: &Lock,
    packs: BTreeMap<Id, Vec<IndexBlob>>,
    needed: &HashSet<Id>,
    bad: &Bad<'_>,
) -> Result<Vec<IndexPack>> {
    let (mut stays, mut taken) = (Vec::new(), HashSet::new());
    for (id, blobs) in packs {
        let is_bad = |b: &IndexBlob| bad.copies.contains(&(id, b.id));
        // A blob that is there twice is needed once.
        let mut is_useful = |b: &&IndexBlob| needed.contains(&b.id) && !is_bad(b) && taken.insert(b.id);
        let useful: Vec<&IndexBlob> = blobs.iter().filter(|b| is_useful(b)).collect();
        let bytes: u64 = useful.iter().map(|b| u64::from(b.length)).sum();
        let is_whole = !bad.packs.contains(&id) && !blobs.iter().any(is_bad);
        if is_whole && (useful.len() == blobs.len() || bytes * 2 >= pack::length(&blobs)) {
            stays.push(IndexPack { id, blobs });
            continue;
        }
        for blob in useful {
            copy(lock.repo(), &id, blob)?;
        }
        lock.check()?;
    }
    Ok(stays)
}

fn copy(repo: &Repository, pack: &Id, blob: &IndexBlob) -> Result<()> {
    let sealed = repo
        .folder
        .read_range(pack, u64::from(blob.offset), blob.length as usize)?;
    // What is copied has to be right: its old place goes.
    if repo
        .unseal(&blob.id, &sealed, blob.uncompressed_length)?
        .is_none()
    {
        let (name, id) = (repo.folder.name(FileKind::Data, pack), blob.id.short());
        return Err(Error::damaged(format!(
            "{name}: blob {id} is not what was written"
        )));
    }
    repo.push(blob.id, blob.kind, &sealed, blob.uncompressed_length)
}

/// Packs that no index names, and what cut-off writes left.
fn remove_unnamed(lock: &Lock) -> Result<()> {
    let repo = lock.repo();
    let index = repo.read_index()?;
    let named: HashSet<Id> = index
        .iter()
        .flat_map(|(_, file)| file.packs.iter().map(|p| p.id))
        .collect();
    for id in repo.folder.list(FileKind::Data)? {
        if !named.contains(&id) {
            lock.check()?;
            repo.folder.remove(FileKind::Data, &id)?;
        }
    }
    for path in repo.folder.leftovers()? {
        repo.folder.remove_leftover(&path)?;
    }
    Ok(())
}
