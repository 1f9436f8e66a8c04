//! A backup of one image: a snapshot, what changed since the snapshot of the last backup, a manifest.
//!
//! Snapshots are named `skep-backup.REPOSITORY.TIME`; one stays, that of the newest backup, for the next one to compare with.
//! Without it the next backup reads the whole image, and stores what is new all the same.
//!
//! Bounds: [`DEPTH`] pieces are read and stored at once.

use crate::forms::{Id, Kind};
use crate::lease::{Lease, RENEW_EVERY};
use crate::lock::Lock;
use crate::manifest::{About, Backup, Contents, FORM};
use crate::repository::Repository;
use crate::{Error, Result, time};
use bytes::Bytes;
use client::{Client, IoCtx};
use io::task::{aside, spawn_local};
use rbd::header::{Header, Snap};
use rbd::{Image, ImageOptions, Way, directory};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DEPTH: usize = 8;
/// Bytes of a piece, as restic's are in the mean; of images beyond [`LARGE`] more, so that lists of pieces stay small.
const PIECE: u64 = 1 << 20;
const PIECE_LARGE: u64 = 4 << 20;
const LARGE: u64 = 2 << 40;
/// Longer values of metadata are left out.
const METADATA_VALUE_MAX: usize = 64 << 10;

/// An image by its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub pool: String,
    pub namespace: String,
    pub image: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{}/{}", self.pool, self.image),
            n => write!(f, "{}/{n}/{}", self.pool, self.image),
        }
    }
}

/// How far work is, and whether it shall end early.
#[derive(Clone)]
pub struct Watch {
    pub stop: Arc<AtomicBool>,
    /// Told bytes done and bytes in all.
    pub progress: Rc<dyn Fn(u64, u64)>,
}

impl Watch {
    pub(crate) fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::refused("interrupted")),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
pub struct Done {
    pub backup: Backup,
    /// Bytes read from the cluster.
    pub read: u64,
    /// Bytes that the repository grew by.
    pub stored: u64,
    /// None: all was read.
    pub way: Option<Way>,
    /// What did not go well, though the backup did.
    pub warning: Option<String>,
}

pub async fn pool(client: &Client, pool: &str, namespace: &str) -> Result<IoCtx> {
    let found = client.pool(pool).await;
    let mut io = found.map_err(|e| Error::refused(format!("pool '{pool}': {e}")))?;
    io.set_namespace(namespace.to_string());
    Ok(io)
}

/// Runs blocking work of the repository.
pub(crate) async fn beside<T: Send + 'static>(
    repo: &Arc<Repository>,
    work: impl FnOnce(&Repository) -> Result<T> + Send + 'static,
) -> Result<T> {
    let repo = repo.clone();
    let done = aside("backup", move || work(&repo)).await;
    done.map_err(|e| Error::refused(format!("a thread: {e}")))?
}

/// Makes a backup of the image as it is now.
pub async fn run(
    repo: &Arc<Repository>,
    client: &Client,
    place: &Place,
    policy: Option<&str>,
    watch: &Watch,
) -> Result<Done> {
    let lock = Lock::take(repo, false)?;
    let io = pool(client, &place.pool, &place.namespace).await?;
    let id = directory::id_of(&io, &place.image).await?;
    let lease = Lease::take(&io, &rbd::names::header(&id)).await?;
    let held = Held {
        lock: Arc::new(lock),
        lease,
        lost: Rc::default(),
        watch: watch.clone(),
    };
    let renewing = spawn_local(renew(held.clone()));
    let done = under_lease(&held, &io, place, &id, policy).await;
    renewing.abort();
    held.lease.give_back().await;
    done
}

/// What a backup relies on while it is made.
#[derive(Clone)]
struct Held {
    lock: Arc<Lock>,
    lease: Lease,
    /// Why the lease cannot be relied on any more.
    lost: Rc<RefCell<Option<String>>>,
    watch: Watch,
}

impl Held {
    fn check(&self) -> Result<()> {
        self.watch.check()?;
        match &*self.lost.borrow() {
            Some(why) => Err(Error::refused(why.clone())),
            None => Ok(()),
        }
    }
}

/// A second backup beside this one would remove its snapshot: once is enough to end it.
async fn renew(held: Held) {
    loop {
        io::task::sleep(RENEW_EVERY).await;
        if let Err(e) = held.lease.renew().await {
            *held.lost.borrow_mut() = Some(e.to_string());
            return;
        }
    }
}

async fn under_lease(held: &Held, io: &IoCtx, place: &Place, id: &str, policy: Option<&str>) -> Result<Done> {
    let options = ImageOptions {
        encrypted: true,
        ..ImageOptions::default()
    };
    let image = Image::open_id(io, id, &options).await?;
    let done = snapshot_and_store(held, io, &image, place, policy).await;
    let closed = image.close().await;
    let done = done?;
    closed?;
    Ok(done)
}

fn prefix(repo: &Repository) -> String {
    format!("skep-backup.{}.", repo.id().get(..8).unwrap_or_default())
}

async fn snapshot_and_store(
    held: &Held,
    io: &IoCtx,
    image: &Image,
    place: &Place,
    policy: Option<&str>,
) -> Result<Done> {
    let repo = held.lock.repo();
    let prefix = prefix(repo);
    let at = repo.env.clock.wall();
    let random = repo.env.random.u32();
    let name = format!("{prefix}{}.{random:08x}", time::compact(at.as_secs()));
    let before = base(repo, io, image, &prefix).await?;
    let snap = image.create_snap(&name).await?;
    let stored = async {
        let options = ImageOptions {
            read_only: true,
            snap: Some(name.clone()),
            encrypted: true,
        };
        let source = Image::open_id(io, image.id(), &options).await?;
        let about = about(io, image, &source, place, &prefix, &name, snap).await?;
        let stored = store(held, &source, about, before).await?;
        held.check()?;
        held.lease.renew().await?;
        refuse_gone(io, image.id(), snap).await?;
        finish(held, at, policy, stored).await
    };
    match stored.await {
        Ok(mut done) => {
            done.warning = remove_older(held, image, &prefix, snap)
                .await
                .err()
                .map(|e| e.to_string());
            Ok(done)
        }
        Err(e) => {
            // Nothing refers to it.
            let _ = image.remove_snap(&name).await;
            Err(e)
        }
    }
}

/// The newest backup of the image whose snapshot is still there.
async fn base(
    repo: &Arc<Repository>,
    io: &IoCtx,
    image: &Image,
    prefix: &str,
) -> Result<Option<(Backup, Contents)>> {
    let header = image.header().await?;
    let cluster = io.client().fsid()?.to_string();
    let id = image.id().to_string();
    let ours: BTreeSet<u64> = header
        .snaps
        .iter()
        .filter(|s| s.name.starts_with(prefix))
        .map(|s| s.id)
        .collect();
    beside(repo, move |repo| {
        let all = repo.backups()?;
        repo.prepare()?;
        let of_image = |b: &&Backup| b.tag("cluster") == Some(&cluster) && b.tag("image-id") == Some(&id);
        let there = |b: &&Backup| b.number("snapshot-id").is_some_and(|s| ours.contains(&s));
        let newest = all.iter().rev().filter(of_image).find(there);
        // One that cannot be read, or of which pieces are lost, is no reason to make none: the new one is whole.
        let contents = |b: &Backup| repo.contents(b).ok().filter(|c| repo.has_all(&c.pieces));
        Ok(newest.and_then(|b| Some((b.clone(), contents(b)?))))
    })
    .await
}

async fn about(
    io: &IoCtx,
    image: &Image,
    source: &Image,
    place: &Place,
    prefix: &str,
    snapshot: &str,
    snap: u64,
) -> Result<About> {
    let text = |b: &Bytes| String::from_utf8(b.to_vec()).ok();
    let short =
        |(k, v): (Bytes, Bytes)| Some((text(&k)?, text(&v).filter(|v| v.len() <= METADATA_VALUE_MAX)?));
    let metadata: BTreeMap<String, String> = image.metadata().await?.into_iter().filter_map(short).collect();
    let header = source.header().await?;
    let (layout, size) = (source.layout(), source.size().await?);
    let map = io.client().map()?;
    let now = image.header().await?;
    // Ours go with this backup.
    let is_older = |s: &Snap| s.id < snap && !s.name.starts_with(prefix);
    let data_pool = source
        .data_pool()
        .and_then(|p| map.pool_name(p).map(str::to_string));
    Ok(About {
        form: FORM,
        cluster: io.client().fsid()?.to_string(),
        pool: place.pool.clone(),
        namespace: place.namespace.clone(),
        image: place.image.clone(),
        id: image.id().to_string(),
        size,
        features: header.features,
        order: layout.order(),
        stripe_unit: layout.unit(),
        stripe_count: layout.count(),
        data_pool,
        metadata,
        parent: parent(&header, snap, |pool| map.pool_name(pool).map(str::to_string)),
        snapshot: snapshot.into(),
        snapshot_id: snap,
        older_snapshots: now.snaps.iter().any(is_older),
        piece: if size > LARGE { PIECE_LARGE } else { PIECE },
    })
}

fn parent(header: &Header, snap: u64, pool: impl Fn(i64) -> Option<String>) -> Option<String> {
    let spec = header
        .parent
        .as_ref()
        .filter(|_| header.overlap_at(snap) > 0)
        .map(|p| &p.spec)?;
    let id = String::from_utf8_lossy(&spec.image_id);
    let pool = pool(spec.pool).unwrap_or_else(|| spec.pool.to_string());
    Some(format!(
        "pool {pool}, image id {id}, snapshot id {}",
        spec.snap_id
    ))
}

/// Of a snapshot that is gone the OSDs say zeros, or what was written later: what was read last may be that.
async fn refuse_gone(io: &IoCtx, id: &str, snap: u64) -> Result<()> {
    let options = ImageOptions {
        read_only: true,
        encrypted: true,
        ..ImageOptions::default()
    };
    let now = Image::open_id(io, id, &options).await?;
    let header = now.header().await;
    now.close().await?;
    match header?.snap(snap).is_some_and(Snap::is_users) {
        true => Ok(()),
        false => Err(Error::refused(
            "its snapshot was removed while it was read, so this is no backup; make it again",
        )),
    }
}

/// Younger ones are of a backup that began later, which may run.
async fn remove_older(held: &Held, image: &Image, prefix: &str, snap: u64) -> Result<()> {
    held.lease.renew().await?;
    let snaps = image.snaps().await?;
    let ours = snaps
        .iter()
        .filter(|s| s.is_users() && s.name.starts_with(prefix) && s.id < snap);
    for snap in ours {
        let removed = image.remove_snap(&snap.name).await;
        removed.map_err(|e| Error::refused(format!("snapshot '{}' stays: {e}", snap.name)))?;
    }
    Ok(())
}

/// What has to be read, and what is known of the rest.
struct Plan {
    todo: Vec<u64>,
    pieces: Vec<Id>,
    way: Option<Way>,
}

/// What is stored of an image, but not named by a manifest yet.
struct Stored {
    contents: Contents,
    way: Option<Way>,
    read: u64,
    new: u64,
}

async fn store(
    held: &Held,
    source: &Image,
    mut about: About,
    before: Option<(Backup, Contents)>,
) -> Result<Stored> {
    let repo = held.lock.repo();
    if let Some((_, contents)) = &before {
        about.piece = contents.about.piece;
    }
    let plan = plan(repo, source, &about, before).await?;
    let way = plan.way;
    let pass = Rc::new(Pass {
        held: held.clone(),
        source: source.clone(),
        size: about.size,
        piece: about.piece,
        todo: plan.todo,
        next: Cell::new(0),
        pieces: RefCell::new(plan.pieces),
        read: Cell::new(0),
        stored: Cell::new(0),
    });
    pass.run().await?;
    let pieces = pass.pieces.take();
    Ok(Stored {
        contents: Contents { about, pieces },
        way,
        read: pass.read.get(),
        new: pass.stored.get(),
    })
}

async fn finish(held: &Held, at: Duration, policy: Option<&str>, stored: Stored) -> Result<Done> {
    let (lock, policy) = (held.lock.clone(), policy.map(str::to_string));
    let (contents, new) = (stored.contents, stored.new);
    let backup = beside(held.lock.repo(), move |repo| {
        repo.finish(&lock, at, contents, policy.as_deref(), new)
    });
    Ok(Done {
        backup: backup.await?,
        read: stored.read,
        stored: new,
        way: stored.way,
        warning: None,
    })
}

async fn plan(
    repo: &Arc<Repository>,
    source: &Image,
    about: &About,
    before: Option<(Backup, Contents)>,
) -> Result<Plan> {
    let (size, piece) = (about.size, about.piece);
    let count = size.div_ceil(piece);
    let zeros = vec![0; piece.min(size) as usize];
    let zero = Id::of(&zeros);
    let covered = |objects: &BTreeSet<u64>| pieces_of(source, objects, size, piece);
    if let Some((_, contents)) = before
        && contents.about.size > 0
        && let Some(changed) = source
            .changed_since(contents.about.snapshot_id, contents.about.older_snapshots)
            .await?
    {
        let was = contents.about.size;
        // A piece that the end of the smaller one cuts is another.
        let whole = if was == size { count } else { was.min(size) / piece };
        let mut todo = covered(&changed.objects);
        todo.retain(|p| *p < whole);
        todo.extend(whole..count);
        let mut pieces = contents.pieces;
        pieces.resize(count as usize, zero);
        return Ok(Plan {
            todo: todo.into_iter().collect(),
            pieces,
            way: Some(changed.way),
        });
    }
    let mut todo: BTreeSet<u64> = match source.existing().await? {
        Some(objects) => covered(&objects),
        None => (0..count).collect(),
    };
    if size % piece != 0 {
        todo.insert(count - 1);
    }
    if todo.len() as u64 != count {
        beside(repo, move |repo| repo.save(Kind::Data, &zeros)).await?;
    }
    Ok(Plan {
        todo: todo.into_iter().collect(),
        pieces: vec![zero; count as usize],
        way: None,
    })
}

/// The pieces that any of the objects has a part of.
fn pieces_of(source: &Image, objects: &BTreeSet<u64>, size: u64, piece: u64) -> BTreeSet<u64> {
    let layout = source.layout();
    let mut out = BTreeSet::new();
    for object in objects {
        for (at, n) in layout.ranges(*object, 0, layout.object_size()) {
            let end = (at + n).min(size);
            if at < end {
                out.extend(at / piece..end.div_ceil(piece));
            }
        }
    }
    out
}

struct Pass {
    held: Held,
    source: Image,
    size: u64,
    piece: u64,
    todo: Vec<u64>,
    next: Cell<usize>,
    pieces: RefCell<Vec<Id>>,
    read: Cell<u64>,
    stored: Cell<u64>,
}

impl Pass {
    async fn run(self: &Rc<Self>) -> Result<()> {
        let tasks: Vec<_> = (0..DEPTH)
            .map(|_| {
                let pass = self.clone();
                spawn_local(async move {
                    let done = pass.work().await;
                    if done.is_err() {
                        // The others begin nothing more.
                        pass.next.set(pass.todo.len());
                    }
                    done
                })
            })
            .collect();
        let mut told = Ok(());
        for task in tasks {
            let done = task.await.map_err(|e| Error::refused(format!("a task: {e}")));
            told = told.and(done.and_then(|d| d));
        }
        told
    }

    async fn work(&self) -> Result<()> {
        while let Some(number) = self.todo.get(self.next.get()).copied() {
            self.held.check()?;
            self.next.set(self.next.get() + 1);
            let at = number * self.piece;
            let length = self.piece.min(self.size - at);
            let data = self.source.read_short(at, length).await?;
            let saved = beside(self.held.lock.repo(), move |repo| {
                let mut data = Vec::from(data);
                data.resize(length as usize, 0);
                repo.save(Kind::Data, &data)
            });
            let (id, stored) = saved.await?;
            if let Some(slot) = self.pieces.borrow_mut().get_mut(number as usize) {
                *slot = id;
            }
            self.read.set(self.read.get() + length);
            self.stored.set(self.stored.get() + stored);
            (self.held.watch.progress)(self.read.get(), self.todo.len() as u64 * self.piece);
        }
        Ok(())
    }
}

/// The images that a pattern (`POOL`, `POOL/GLOB`, `POOL/NAMESPACE/GLOB`) names now, by name.
pub async fn matching(client: &Client, pattern: &str) -> Result<Vec<Place>> {
    let parts: Vec<&str> = pattern.split('/').collect();
    let (name, namespace, glob) = match parts[..] {
        [pool] => (pool, "", "*"),
        [pool, glob] => (pool, "", glob),
        [pool, namespace, glob] => (pool, namespace, glob),
        _ => {
            return Err(Error::refused(format!(
                "'{pattern}' is no POOL[/NAMESPACE][/GLOB]"
            )));
        }
    };
    let io = pool(client, name, namespace).await?;
    let all = directory::list(&io).await?;
    let fits = all.into_keys().filter(|image| glob_fits(glob, image));
    let place = |image| Place {
        pool: name.into(),
        namespace: namespace.into(),
        image,
    };
    Ok(fits.map(place).collect())
}

/// `*` is any text, `?` any character.
pub fn glob_fits(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match star {
                // The last star takes one more.
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    g = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (glob, text, fits) in [
            ("*", "", true),
            ("vm*", "vm1", true),
            ("vm*", "avm", false),
            ("*-disk?", "a-b-disk1", true),
            ("*-disk?", "a-disk", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYcZ", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(glob_fits(glob, text), fits, "{glob} {text}");
        }
    }
}
