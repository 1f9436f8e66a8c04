//! An open repository: blobs in and out, files of JSON. Calls block, from any thread.
//!
//! Bounds: a pack of each kind is in memory while it is filled ([`crate::pack::TARGET`] and a blob); of the index all is.

use crate::folder::{Folder, Kind as FileKind};
use crate::forms::{Config, Id, IndexFile, IndexPack, Kind, json};
use crate::index::{Index, Place};
use crate::key::{self, Password};
use crate::pack::Pack;
use crate::seal::Key;
use crate::{Error, Result};
use io::{Clock, Random};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

const VERSION: u32 = 2;
/// Irreducible over GF(2), which restic asks for; we cut at fixed places, and so does nobody find out by it what we store.
const POLYNOMIAL: &str = "3da3358b4dc173";
/// The first byte of a compressed file.
const COMPRESSED: u8 = 2;
const LEVEL: i32 = 3;
/// After so many packs the index is written, so that what a cut-off backup has stored serves the next one.
const PACKS_UNINDEXED_MAX: usize = if cfg!(test) { 3 } else { 32 };
/// A blob is no larger, nor a file of JSON.
const PLAIN_MAX: u64 = 2 << 30;

/// Where time and randomness come from.
#[derive(Clone)]
pub struct Environment {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

impl Environment {
    pub fn system() -> Self {
        Self {
            clock: io::SystemClock::shared(),
            random: io::SystemRandom::shared(),
        }
    }

    /// Seconds since 1970.
    pub fn now(&self) -> u64 {
        self.clock.wall().as_secs()
    }
}

pub struct Repository {
    pub(crate) folder: Folder,
    pub(crate) env: Environment,
    key: Arc<Key>,
    id: String,
    compress: bool,
    locks: bool,
    index: Mutex<Index>,
    filling: Mutex<Filling>,
    /// Why something that was to be stored is lost: then nothing more is, and no backup is named.
    broken: OnceLock<String>,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "repository {}", self.folder.root().display())
    }
}

#[derive(Default)]
struct Filling {
    data: Pack,
    trees: Pack,
    /// Written packs that no index file names yet.
    unindexed: Vec<IndexPack>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Repository {
    /// Makes one in a directory that is new or empty.
    pub fn create(root: &Path, password: &Password, env: Environment) -> Result<Self> {
        let folder = Folder::new(root);
        if folder.read_config()?.is_some() {
            let what = format!("there is a repository already: {}", root.display());
            return Err(Error::refused(what));
        }
        folder.create()?;
        let key = Key::random(&*env.random);
        let file = key::write(&key, password, env.now(), &*env.random)?;
        folder.write(FileKind::Key, &file)?;
        let config = Config {
            version: VERSION,
            id: hex::encode(env.random.bytes::<32>()),
            chunker_polynomial: POLYNOMIAL.into(),
        };
        // Last: without it there is no repository.
        folder.write_config(&key.seal(&json(&config)?, &*env.random)?)?;
        Self::open(root, password, env)
    }

    pub fn open(root: &Path, password: &Password, env: Environment) -> Result<Self> {
        let folder = Folder::new(root);
        let sealed = folder.read_config()?.ok_or_else(|| {
            let root = root.display();
            Error::refused(format!(
                "there is no repository in {root}; `skep backup init {root}` makes one"
            ))
        })?;
        let key = Self::unlock(&folder, password)?;
        let plain = key.open(&sealed)?;
        let plain = plain.ok_or_else(|| Error::damaged("config is not what was written"))?;
        let config: Config =
            serde_json::from_slice(&plain).map_err(|e| Error::damaged(format!("config: {e}")))?;
        if config.version != VERSION {
            let what = format!(
                "it has restic's format {}; only {VERSION} is served",
                config.version
            );
            return Err(Error::refused(what));
        }
        Ok(Self {
            folder,
            env,
            key: Arc::new(key),
            id: config.id,
            compress: true,
            locks: true,
            index: Mutex::default(),
            filling: Mutex::default(),
            broken: OnceLock::new(),
        })
    }

    /// The same repository, of which nothing is known yet: what was read before a lock was taken may be gone under it, and
    /// what an earlier piece of work failed to store is not there.
    pub(crate) fn fresh(&self) -> Self {
        Self {
            folder: self.folder.clone(),
            env: self.env.clone(),
            key: self.key.clone(),
            id: self.id.clone(),
            compress: self.compress,
            locks: self.locks,
            index: Mutex::default(),
            filling: Mutex::default(),
            broken: OnceLock::new(),
        }
    }

    fn unlock(folder: &Folder, password: &Password) -> Result<Key> {
        let mut trouble = None;
        for id in folder.list(FileKind::Key)? {
            match key::read(&folder.read(FileKind::Key, &id)?, password) {
                Ok(Some(key)) => return Ok(key),
                Ok(None) => {}
                Err(e) => trouble = Some(e),
            }
        }
        let root = folder.root().display();
        Err(trouble.unwrap_or_else(|| {
            Error::refused(format!("the key file does not open the repository in {root}"))
        }))
    }

    /// Whether blobs are compressed from now on; whoever reads them need not know.
    pub fn set_compress(&mut self, compress: bool) {
        self.compress = compress;
    }

    /// Whether who reads takes a lock, for which it has to be written to.
    pub fn set_lock(&mut self, locks: bool) {
        self.locks = locks;
    }

    pub(crate) fn locks(&self) -> bool {
        self.locks
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn root(&self) -> &Path {
        self.folder.root()
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    // Files of JSON

    pub(crate) fn write_json(&self, kind: FileKind, value: &impl serde::Serialize) -> Result<Id> {
        let mut plain = vec![COMPRESSED];
        plain.extend(zstd::bulk::compress(&json(value)?, LEVEL).map_err(compressing)?);
        let sealed = self.key.seal(&plain, &*self.env.random)?;
        self.folder.write(kind, &sealed)
    }

    pub(crate) fn read_json<T: DeserializeOwned>(&self, kind: FileKind, id: &Id) -> Result<T> {
        let bad = |why: &str| Error::damaged(format!("{}: {why}", self.folder.name(kind, id)));
        let sealed = self.folder.read(kind, id)?;
        let plain = self
            .key
            .open(&sealed)?
            .ok_or_else(|| bad("not what was written"))?;
        let text = match plain.split_first() {
            Some((&COMPRESSED, packed)) => unpack(packed).ok_or_else(|| bad("it cannot be decompressed"))?,
            _ => plain,
        };
        serde_json::from_slice(&text).map_err(|e| bad(&e.to_string()))
    }

    // The index

    /// Everything that the index files say.
    pub(crate) fn read_index(&self) -> Result<Vec<(Id, IndexFile)>> {
        let files = self.folder.list(FileKind::Index)?;
        let read = |id: Id| Ok((id, self.read_json(FileKind::Index, &id)?));
        files.into_iter().map(read).collect()
    }

    /// Takes in the index files that are new since the last time.
    fn refresh_index(&self) -> Result<()> {
        for id in self.folder.list(FileKind::Index)? {
            if locked(&self.index).files.contains(&id) {
                continue;
            }
            let file: IndexFile = self.read_json(FileKind::Index, &id)?;
            let mut index = locked(&self.index);
            index.add_all(&file.packs);
            index.files.insert(id);
        }
        Ok(())
    }

    /// Has to be called before blobs are stored, so that what is there is found.
    pub fn prepare(&self) -> Result<()> {
        self.refresh_index()
    }

    pub(crate) fn place_of(&self, id: &Id) -> Result<Option<Place>> {
        if let Some(place) = locked(&self.index).get(id) {
            return Ok(Some(place));
        }
        self.refresh_index()?;
        Ok(locked(&self.index).get(id))
    }

    /// Whether the index, as it was read last, names all of these.
    pub(crate) fn has_all(&self, ids: &[Id]) -> bool {
        let index = locked(&self.index);
        ids.iter().all(|id| index.get(id).is_some())
    }

    /// Refuses unless index files that are there now name all of these: only then may a manifest.
    pub(crate) fn refuse_unnamed(&self, ids: &HashSet<Id>) -> Result<()> {
        self.refuse_broken()?;
        if !locked(&self.filling).unindexed.is_empty() {
            return Err(Error::refused("packs were stored that no index names yet"));
        }
        let there: HashSet<Id> = self.folder.list(FileKind::Index)?.into_iter().collect();
        let index = locked(&self.index);
        if let Some(gone) = index.files.iter().find(|id| !there.contains(*id)) {
            return Err(Error::refused(format!(
                "{} went while the backup was made, and what it names may be gone, too; make the backup again",
                self.folder.name(FileKind::Index, gone)
            )));
        }
        match ids.iter().find(|id| index.get(id).is_none()) {
            Some(lost) => Err(Error::damaged(format!("no index names blob {lost}"))),
            None => Ok(()),
        }
    }

    fn refuse_broken(&self) -> Result<()> {
        match self.broken.get() {
            Some(why) => Err(Error::refused(format!("something could not be stored: {why}"))),
            None => Ok(()),
        }
    }

    /// Of what was claimed, or taken out of its queue, nobody stores it again.
    fn breaks<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|e| _ = self.broken.set(e.to_string()))
    }

    // Blobs

    /// Stores a blob unless it is there; its name, and the bytes that it takes, 0 if it was there. Durable after
    /// [`Repository::flush`].
    pub fn save(&self, kind: Kind, plain: &[u8]) -> Result<(Id, u64)> {
        self.refuse_broken()?;
        let id = Id::of(plain);
        if !locked(&self.index).claim(id) {
            return Ok((id, 0));
        }
        Ok((id, self.breaks(self.store(id, kind, plain))?))
    }

    fn store(&self, id: Id, kind: Kind, plain: &[u8]) -> Result<u64> {
        let packed = match self.compress {
            true => Some(zstd::bulk::compress(plain, LEVEL).map_err(compressing)?),
            false => None,
        };
        let packed = packed.filter(|p| p.len() < plain.len());
        let sealed = self
            .key
            .seal(packed.as_deref().unwrap_or(plain), &*self.env.random)?;
        let uncompressed = packed.is_some().then_some(plain.len() as u32);
        self.push(id, kind, &sealed, uncompressed)?;
        Ok(sealed.len() as u64)
    }

    /// A blob as it is sealed already.
    pub(crate) fn push(&self, id: Id, kind: Kind, sealed: &[u8], uncompressed: Option<u32>) -> Result<()> {
        let full = {
            let mut filling = locked(&self.filling);
            let pack = match kind {
                Kind::Data => &mut filling.data,
                Kind::Tree => &mut filling.trees,
            };
            pack.push(id, kind, sealed, uncompressed);
            pack.is_full().then(|| std::mem::take(pack))
        };
        match full {
            Some(pack) => self.breaks(self.write_pack(pack)),
            None => Ok(()),
        }
    }

    fn write_pack(&self, pack: Pack) -> Result<()> {
        let (bytes, blobs) = pack.finish(&self.key, &*self.env.random)?;
        let id = self.folder.write(FileKind::Data, &bytes)?;
        locked(&self.index).add(id, &blobs);
        let unindexed = {
            let mut filling = locked(&self.filling);
            filling.unindexed.push(IndexPack { id, blobs });
            let many = filling.unindexed.len() >= PACKS_UNINDEXED_MAX;
            many.then(|| std::mem::take(&mut filling.unindexed))
        };
        match unindexed {
            Some(packs) => self.write_index(packs),
            None => Ok(()),
        }
    }

    fn write_index(&self, packs: Vec<IndexPack>) -> Result<()> {
        match packs.is_empty() {
            true => Ok(()),
            false => self.write_index_file(packs).map(drop),
        }
    }

    pub(crate) fn write_index_file(&self, packs: Vec<IndexPack>) -> Result<Id> {
        let file = IndexFile {
            supersedes: Vec::new(),
            packs,
        };
        let id = self.write_json(FileKind::Index, &file)?;
        locked(&self.index).files.insert(id);
        Ok(id)
    }

    /// All that was stored is durable, and named by the index.
    pub fn flush(&self) -> Result<()> {
        self.refuse_broken()?;
        self.breaks(self.write_all())
    }

    fn write_all(&self) -> Result<()> {
        let (data, trees) = {
            let mut filling = locked(&self.filling);
            (
                std::mem::take(&mut filling.data),
                std::mem::take(&mut filling.trees),
            )
        };
        for pack in [data, trees] {
            if !pack.is_empty() {
                self.write_pack(pack)?;
            }
        }
        let rest = std::mem::take(&mut locked(&self.filling).unindexed);
        self.write_index(rest)
    }

    /// From another copy if there is one, and the first cannot be read.
    pub fn load(&self, id: &Id) -> Result<Vec<u8>> {
        let place = self.place_of(id)?;
        let place = place.ok_or_else(|| Error::damaged(format!("no index names blob {id}")))?;
        let first = self.load_from(id, &place);
        match first {
            Err(Error::Damaged(_)) => {
                let others = locked(&self.index).copies(id);
                let mut others = others.iter().map(|place| self.load_from(id, place));
                others.find(Result::is_ok).unwrap_or(first)
            }
            told => told,
        }
    }

    fn load_from(&self, id: &Id, place: &Place) -> Result<Vec<u8>> {
        let sealed = self
            .folder
            .read_range(&place.pack, u64::from(place.offset), place.length as usize)?;
        let plain = self.unseal(id, &sealed, place.uncompressed_length)?;
        plain.ok_or_else(|| {
            let pack = self.folder.name(FileKind::Data, &place.pack);
            Error::damaged(format!("{pack}: blob {} is not what was written", id.short()))
        })
    }

    /// None: it is not what the name says.
    pub(crate) fn unseal(
        &self,
        id: &Id,
        sealed: &[u8],
        uncompressed: Option<u32>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(mut plain) = self.key.open(sealed)? else {
            return Ok(None);
        };
        if let Some(length) = uncompressed {
            if u64::from(length) > PLAIN_MAX {
                return Ok(None);
            }
            match zstd::bulk::decompress(&plain, length as usize) {
                Ok(p) => plain = p,
                Err(_) => return Ok(None),
            }
        }
        Ok((Id::of(&plain) == *id).then_some(plain))
    }

    pub(crate) fn load_json<T: DeserializeOwned>(&self, id: &Id) -> Result<T> {
        let plain = self.load(id)?;
        serde_json::from_slice(&plain).map_err(|e| Error::damaged(format!("blob {}: {e}", id.short())))
    }
}

fn compressing(e: std::io::Error) -> Error {
    Error::refused(format!("compressing: {e}"))
}

fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed).ok()?;
    decoder.take(PLAIN_MAX).read_to_end(&mut plain).ok()?;
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(text: &str) -> Password {
        Password::new(text).unwrap()
    }

    #[test]
    fn what_was_saved_is_loaded_by_another_process() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        let repo = Repository::create(&root, &password("one"), Environment::system()).unwrap();
        let (text, noise) = (
            vec![7; 100_000],
            io::SystemRandom::shared().bytes::<5000>().to_vec(),
        );
        let (a, stored) = repo.save(Kind::Data, &text).unwrap();
        assert!(stored > 0 && stored < 10_000, "{stored}");
        assert_eq!(repo.save(Kind::Data, &text).unwrap(), (a, 0), "once is enough");
        let (b, _) = repo.save(Kind::Tree, &noise).unwrap();
        repo.flush().unwrap();
        let again = Repository::open(&root, &password("one"), Environment::system()).unwrap();
        assert_eq!(
            (again.load(&a).unwrap(), again.load(&b).unwrap()),
            (text.clone(), noise)
        );
        assert_eq!(again.id(), repo.id());
        again.prepare().unwrap();
        assert_eq!(again.save(Kind::Data, &text).unwrap(), (a, 0));
        assert!(again.load(&Id::of(b"none")).is_err());
    }

    #[test]
    fn refusals_are_sentences() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        let env = Environment::system;
        let said = |done: Result<Repository>| done.unwrap_err().to_string();
        assert!(said(Repository::open(&root, &password("x"), env())).contains("there is no repository"));
        Repository::create(&root, &password("x"), env()).unwrap();
        assert!(said(Repository::create(&root, &password("x"), env())).contains("already"));
        assert!(said(Repository::open(&root, &password("y"), env())).contains("does not open"));
        assert!(said(Repository::create(dir.path(), &password("x"), env())).contains("not empty"));
    }

    /// Packs of a backup that was cut off are found again by the index that it wrote on its way.
    #[test]
    fn the_index_is_written_on_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let mut repo =
            Repository::create(&dir.path().join("r"), &password("x"), Environment::system()).unwrap();
        repo.set_compress(false);
        let many = PACKS_UNINDEXED_MAX + 1;
        for n in 0..many {
            let mut blob = vec![0; crate::pack::TARGET];
            blob[..8].copy_from_slice(&(n as u64).to_le_bytes());
            repo.save(Kind::Data, &blob).unwrap();
        }
        let indexes = repo.read_index().unwrap();
        let packs: usize = indexes.iter().map(|(_, i)| i.packs.len()).sum();
        assert_eq!((indexes.len(), packs), (1, PACKS_UNINDEXED_MAX));
    }
}
