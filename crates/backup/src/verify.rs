//! Is everything there, and is it what was written? Without a cluster, and without changing anything but a lock.
//!
//! By default: every manifest and tree is read, every blob that they name is in the index, every pack of the index has the length
//! that it must have. With `read_all` each pack is read, too: its SHA-256, its header, and every blob.

use crate::folder::Kind as FileKind;
use crate::forms::{Id, IndexBlob, IndexFile, IndexPack, Kind, Manifest, Tree};
use crate::lock::Lock;
use crate::manifest::Backup;
use crate::pack;
use crate::repository::Repository;
use crate::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// More names of backups are not listed with a finding.
const NAMED_MAX: usize = 10;

#[derive(Debug, Default)]
pub struct Report {
    pub backups: u64,
    pub packs: u64,
    /// Of the packs.
    pub bytes: u64,
    pub blobs: u64,
    /// A sentence each.
    pub findings: Vec<String>,
    /// Packs that no index names: cut-off backups leave them, `prune` takes them away.
    pub unneeded: u64,
}

/// Told bytes done and in all; says whether to go on.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

pub fn verify(repo: &Arc<Repository>, read_all: bool, progress: Progress<'_>) -> Result<Report> {
    let lock = Lock::to_read(repo)?;
    let repo = lock.repo();
    let (mut report, found) = inspect(repo, read_all, progress)?;
    tell(repo, found.bad, &mut report)?;
    Ok(report)
}

/// What a look at everything found.
#[derive(Default)]
pub(crate) struct Found {
    /// Blobs that backups need.
    pub needed: HashSet<Id>,
    /// Blobs of which something is lost or changed, with what is wrong; another copy may be good.
    pub bad: BTreeMap<Id, Vec<String>>,
    /// Copies that are not what was written, by pack and blob.
    pub bad_copies: HashSet<(Id, Id)>,
    /// Packs that are not as the index has them, whatever their blobs are.
    pub hit: HashSet<Id>,
}

impl Found {
    fn add(&mut self, pack: &Id, blob: Id, what: String) {
        self.bad.entry(blob).or_default().push(what);
        self.bad_copies.insert((*pack, blob));
    }
}

pub(crate) fn inspect(repo: &Repository, read_all: bool, progress: Progress<'_>) -> Result<(Report, Found)> {
    let mut report = Report::default();
    // Manifests before the index: what a manifest needs is in the index that is read then.
    let needed = needs(repo, &mut report)?;
    let packs = all_packs(repo, &mut report)?;
    let mut found = Found {
        needed,
        ..Found::default()
    };
    check_packs(repo, &packs, read_all, progress, &mut report, &mut found)?;
    let mut known: HashSet<Id> = HashSet::new();
    known.extend(packs.values().flatten().map(|b| b.id));
    for id in found.needed.iter().filter(|id| !known.contains(*id)) {
        let what = format!("blob {} is in no pack that the index names", id.short());
        found.bad.entry(*id).or_default().push(what);
    }
    report.unneeded = unneeded(repo, &packs)?;
    Ok((report, found))
}

/// What is bad, with the backups that need it; those of one pack are one finding.
fn tell(repo: &Repository, bad: BTreeMap<Id, Vec<String>>, report: &mut Report) -> Result<()> {
    if bad.is_empty() {
        return Ok(());
    }
    let mut who: BTreeMap<Id, BTreeSet<String>> = BTreeMap::new();
    for (id, tree, name) in manifests(repo, &mut Vec::new())? {
        // What cannot be walked was told already.
        let _ = walk(repo, tree, &mut |blob| {
            if bad.contains_key(&blob) {
                who.entry(blob)
                    .or_default()
                    .insert(format!("{name} ({})", id.short()));
            }
        });
    }
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (id, whats) in bad {
        for what in whats {
            let names = who.get(&id).into_iter().flatten().cloned();
            said.entry(what).or_default().extend(names);
        }
    }
    let findings = said
        .into_iter()
        .map(|(what, who)| format!("{what}; {}", needed_by(&who)));
    report.findings.extend(findings);
    Ok(())
}

fn needed_by(who: &BTreeSet<String>) -> String {
    if who.is_empty() {
        return "no backup needs it".into();
    }
    let names: Vec<&str> = who.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = match who.len() - names.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("these backups are not whole: {}{more}", names.join(", "))
}

fn unneeded(repo: &Repository, packs: &BTreeMap<Id, Vec<IndexBlob>>) -> Result<u64> {
    let files = repo.folder.list(FileKind::Data)?;
    let spare = files.iter().filter(|id| !packs.contains_key(id)).count();
    Ok((spare + repo.folder.leftovers()?.len()) as u64)
}

/// Every blob that a backup needs.
fn needs(repo: &Repository, report: &mut Report) -> Result<HashSet<Id>> {
    let mut needed = HashSet::new();
    let manifests = manifests(repo, &mut report.findings)?;
    report.backups = manifests.len() as u64;
    for (_, tree, name) in &manifests {
        if let Err(e) = walk(repo, *tree, &mut |blob| _ = needed.insert(blob)) {
            report.findings.push(format!("{name}: {e}"));
        }
    }
    Ok(needed)
}

/// Ids, trees and names of all that can be read.
fn manifests(repo: &Repository, findings: &mut Vec<String>) -> Result<Vec<(Id, Id, String)>> {
    let mut all = Vec::new();
    for id in repo.folder.list(FileKind::Snapshot)? {
        match repo.read_json::<Manifest>(FileKind::Snapshot, &id) {
            Ok(m) => {
                let ours = Backup::of(id, &m).map(|b| b.name());
                all.push((
                    id,
                    m.tree,
                    ours.unwrap_or_else(|| format!("restic's {}", id.short())),
                ));
            }
            Err(e @ Error::Damaged(_)) => findings.push(e.to_string()),
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// All blobs below a tree, itself among them.
pub(crate) fn walk(repo: &Repository, tree: Id, take: &mut dyn FnMut(Id)) -> Result<()> {
    let mut todo = vec![tree];
    let mut seen = HashSet::new();
    while let Some(id) = todo.pop() {
        if !seen.insert(id) {
            continue;
        }
        take(id);
        let tree: Tree = repo.load_json(&id)?;
        for node in tree.nodes {
            node.content.unwrap_or_default().into_iter().for_each(&mut *take);
            todo.extend(node.subtree);
        }
    }
    Ok(())
}

fn all_packs(repo: &Repository, report: &mut Report) -> Result<BTreeMap<Id, Vec<IndexBlob>>> {
    let mut packs = BTreeMap::new();
    for id in repo.folder.list(FileKind::Index)? {
        match repo.read_json::<IndexFile>(FileKind::Index, &id) {
            Ok(file) => {
                for IndexPack { id, blobs } in file.packs {
                    packs.insert(id, blobs);
                }
            }
            Err(e) => report.findings.push(e.to_string()),
        }
    }
    Ok(packs)
}

fn check_packs(
    repo: &Repository,
    packs: &BTreeMap<Id, Vec<IndexBlob>>,
    read_all: bool,
    progress: Progress<'_>,
    report: &mut Report,
    found: &mut Found,
) -> Result<()> {
    let total: u64 = packs.values().map(|b| pack::length(b)).sum();
    for (id, blobs) in packs {
        let name = repo.folder.name(FileKind::Data, id);
        let length = pack::length(blobs);
        report.packs += 1;
        report.blobs += blobs.len() as u64;
        report.bytes += length;
        let is = repo.folder.length(FileKind::Data, id)?;
        let wrong = match is {
            None => Some("missing".to_string()),
            Some(n) if n != length => Some(format!("it has {n} bytes in place of {length}")),
            Some(_) => None,
        };
        if let Some(what) = &wrong {
            found.hit.insert(*id);
            for blob in blobs {
                let bad = found.bad.entry(blob.id).or_default();
                bad.push(format!("{name}: {what}"));
            }
        }
        match is {
            None => found.bad_copies.extend(blobs.iter().map(|b| (*id, b.id))),
            Some(_) if read_all => read_pack(repo, id, blobs, wrong.is_some(), found)?,
            Some(_) => {}
        }
        if !progress(report.bytes, total) {
            return Err(Error::refused("interrupted"));
        }
    }
    Ok(())
}

/// Looks for blobs of a pack that are not what was written, and at its header unless it `is_hit` already.
fn read_pack(repo: &Repository, id: &Id, blobs: &[IndexBlob], is_hit: bool, found: &mut Found) -> Result<()> {
    let (bytes, name) = (
        repo.folder.read(FileKind::Data, id)?,
        repo.folder.name(FileKind::Data, id),
    );
    let mut is_good = true;
    for blob in blobs {
        let at = blob.offset as usize;
        let sealed = bytes.get(at..at + blob.length as usize).unwrap_or_default();
        if repo.unseal(&blob.id, sealed, blob.uncompressed_length)?.is_none() {
            let kind = match blob.kind {
                Kind::Data => "a piece of data",
                Kind::Tree => "a folder",
            };
            let what = format!("{name}: {kind} ({}) is not what was written", blob.id.short());
            found.add(id, blob.id, what);
            is_good = false;
        }
    }
    let listed = pack::read(&bytes, repo.key()).is_ok_and(|mut header| {
        let mut wanted = blobs.to_vec();
        header.sort_by_key(|b| b.offset);
        wanted.sort_by_key(|b| b.offset);
        header == wanted
    });
    if Id::of(&bytes) == *id && listed {
        return Ok(());
    }
    found.hit.insert(*id);
    if is_good && !is_hit {
        // Only the header is hit: the blobs are found by the index.
        for blob in blobs {
            let bad = found.bad.entry(blob.id).or_default();
            bad.push(format!("{name}: its header is not what was written"));
        }
    }
    Ok(())
}
