//! Where a repository lies: a directory in restic's layout. Calls block.
//!
//! A file has the name of its SHA-256 and appears whole and durable, or not at all; what a cut leaves has a name with a dot in
//! front, which [`Folder::leftovers`] finds.

use crate::forms::Id;
use crate::{Error, Result};
use io::files;
use std::path::{Path, PathBuf};

/// No file of a repository is larger, packs and indexes of huge images among them.
const FILE_MAX: u64 = 4 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Key,
    Lock,
    Snapshot,
    Index,
    Data,
}

impl Kind {
    fn dir(self) -> &'static str {
        match self {
            Self::Key => "keys",
            Self::Lock => "locks",
            Self::Snapshot => "snapshots",
            Self::Index => "index",
            Self::Data => "data",
        }
    }
}

const KINDS: [Kind; 5] = [Kind::Key, Kind::Lock, Kind::Snapshot, Kind::Index, Kind::Data];

#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
}

/// A repository's place as people write it.
pub fn parse_place(text: &str) -> std::result::Result<PathBuf, String> {
    if text.starts_with("s3:") {
        return Err(
            "a repository in S3 is not built yet; name a directory, which may be a mounted bucket or NFS"
                .into(),
        );
    }
    match text {
        "" => Err("name a directory".into()),
        text => Ok(PathBuf::from(text)),
    }
}

impl Folder {
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn config(&self) -> PathBuf {
        self.root.join("config")
    }

    /// The folder of files whose name begins with these two digits, or of all.
    fn dir(&self, kind: Kind, name: &str) -> PathBuf {
        let dir = self.root.join(kind.dir());
        match kind {
            Kind::Data => dir.join(name.get(..2).unwrap_or("00")),
            _ => dir,
        }
    }

    fn path(&self, kind: Kind, id: &Id) -> PathBuf {
        let name = id.to_string();
        self.dir(kind, &name).join(name)
    }

    /// For people: below the root.
    pub fn name(&self, kind: Kind, id: &Id) -> String {
        let path = self.path(kind, id);
        let below = path.strip_prefix(&self.root).unwrap_or(&path);
        below.display().to_string()
    }

    /// The folders of a new one; refused where something else lies already.
    pub fn create(&self) -> Result<()> {
        let there = files::list_dir(&self.root).map_err(|e| Error::io(&self.root, e))?;
        let known = |name: &String| KINDS.iter().any(|k| k.dir() == name);
        if let Some(other) = there.iter().find(|n| !known(n)) {
            return Err(Error::refused(format!(
                "{} is not empty (it has '{other}'): name a new or an empty directory",
                self.root.display()
            )));
        }
        let make = |path: &Path| files::make_dir(path).map_err(|e| Error::io(path, e));
        for kind in KINDS {
            make(&self.root.join(kind.dir()))?;
        }
        for first in 0..=255u8 {
            make(&self.root.join("data").join(format!("{first:02x}")))?;
        }
        for path in [self.root.join("data"), self.root.clone()] {
            files::sync_dir(&path).map_err(|e| Error::io(&path, e))?;
        }
        if let Some(above) = self.root.parent().filter(|p| !p.as_os_str().is_empty()) {
            files::sync_dir(above).map_err(|e| Error::io(above, e))?;
        }
        Ok(())
    }

    pub fn read_config(&self) -> Result<Option<Vec<u8>>> {
        let path = self.config();
        files::read_bytes(&path, FILE_MAX).map_err(|e| Error::io(&path, e))
    }

    pub fn write_config(&self, bytes: &[u8]) -> Result<()> {
        let path = self.config();
        files::replace(&path, bytes, files::PRIVATE_FILE).map_err(|e| Error::io(&path, e))
    }

    /// Ids of the files of a kind, ascending.
    pub fn list(&self, kind: Kind) -> Result<Vec<Id>> {
        let mut ids = Vec::new();
        self.each(kind, |_, name| ids.extend(Id::parse(name)))?;
        ids.sort();
        Ok(ids)
    }

    fn each(&self, kind: Kind, mut take: impl FnMut(&Path, &str)) -> Result<()> {
        let dir = self.root.join(kind.dir());
        let names = |dir: &Path| files::list_dir(dir).map_err(|e| Error::io(dir, e));
        for name in names(&dir)? {
            match kind {
                Kind::Data if name.len() == 2 => {
                    let below = dir.join(&name);
                    for name in names(&below)? {
                        take(&below, &name);
                    }
                }
                Kind::Data => {}
                _ => take(&dir, &name),
            }
        }
        Ok(())
    }

    /// What writes that were cut short left.
    pub fn leftovers(&self) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for kind in KINDS {
            self.each(kind, |dir, name| {
                if name.starts_with('.') && name.ends_with(".new") {
                    paths.push(dir.join(name));
                }
            })?;
        }
        Ok(paths)
    }

    pub fn remove_leftover(&self, path: &Path) -> Result<()> {
        files::remove(path).map_err(|e| Error::io(path, e))
    }

    pub fn read(&self, kind: Kind, id: &Id) -> Result<Vec<u8>> {
        let path = self.path(kind, id);
        let read = files::read_bytes(&path, FILE_MAX).map_err(|e| Error::io(&path, e))?;
        read.ok_or_else(|| Error::damaged(format!("{} is missing", self.name(kind, id))))
    }

    /// A stretch of a pack.
    pub fn read_range(&self, pack: &Id, offset: u64, length: usize) -> Result<Vec<u8>> {
        let path = self.path(Kind::Data, pack);
        files::read_range(&path, offset, length).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof => {
                Error::damaged(format!("{} is missing or cut short", self.name(Kind::Data, pack)))
            }
            _ => Error::io(&path, e),
        })
    }

    pub fn length(&self, kind: Kind, id: &Id) -> Result<Option<u64>> {
        let path = self.path(kind, id);
        files::length(&path).map_err(|e| Error::io(&path, e))
    }

    /// Durable when it returns; its name.
    pub fn write(&self, kind: Kind, bytes: &[u8]) -> Result<Id> {
        let id = Id::of(bytes);
        let path = self.path(kind, &id);
        let write = || files::replace(&path, bytes, files::PRIVATE_FILE);
        let written = match write() {
            // Copies leave empty folders out.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && self.config_is_there() => {
                self.make_dir(kind, &id.to_string()).and_then(|()| write())
            }
            other => other,
        };
        written.map_err(|e| Error::io(&path, e))?;
        Ok(id)
    }

    /// Else this is no repository, but what is below a mount that went.
    fn config_is_there(&self) -> bool {
        files::length(&self.config()).is_ok_and(|n| n.is_some())
    }

    fn make_dir(&self, kind: Kind, name: &str) -> std::io::Result<()> {
        let dir = self.dir(kind, name);
        files::make_dir(&dir)?;
        for above in dir.ancestors().skip(1).take_while(|d| d.starts_with(&self.root)) {
            files::sync_dir(above)?;
        }
        Ok(())
    }

    pub fn remove(&self, kind: Kind, id: &Id) -> Result<()> {
        let path = self.path(kind, id);
        files::remove(&path).map_err(|e| Error::io(&path, e))
    }

    /// What was removed stays so after power loss.
    pub fn sync(&self, kind: Kind) -> Result<()> {
        let dir = self.root.join(kind.dir());
        files::sync_dir(&dir).map_err(|e| Error::io(&dir, e))
    }
}
