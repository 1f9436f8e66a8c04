//! A backup becomes an image again: made, filled, read back. What goes wrong takes the half-made image along.
//!
//! Bounds: [`DEPTH`] pieces are under way at once.

use crate::forms::Id;
use crate::lock::Lock;
use crate::manifest::{Backup, Contents};
use crate::repository::Repository;
use crate::run::{Place, Watch, beside, pool};
use crate::{Error, Result};
use bytes::Bytes;
use client::{Client, IoCtx};
use io::task::spawn_local;
use rbd::directory::{self, NewImage};
use rbd::{Image, ImageOptions, Layout, features};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use types::Errno;

const DEPTH: usize = 8;
/// What a new image gets of the features that the image had; layout and data pool bring theirs.
const FEATURES: u64 = features::LAYERING
    | features::EXCLUSIVE_LOCK
    | features::OBJECT_MAP
    | features::FAST_DIFF
    | features::DEEP_FLATTEN;

#[derive(Debug)]
pub struct Restored {
    pub size: u64,
    /// Bytes of pieces that are not all zeros.
    pub data: u64,
}

/// Makes the image `to`, which must not exist, of the backup, and compares what was written with it.
pub async fn restore(
    repo: &Arc<Repository>,
    client: &Client,
    backup: &Backup,
    to: &Place,
    watch: &Watch,
) -> Result<Restored> {
    let lock = Lock::to_read(repo)?;
    let repo = lock.repo();
    let io = pool(client, &to.pool, &to.namespace).await?;
    let wanted = backup.clone();
    let contents = beside(repo, move |repo| repo.contents(&wanted)).await?;
    make(&io, &to.image, &contents).await?;
    let done = fill_and_compare(repo, &io, &to.image, Rc::new(contents), watch).await;
    if done.is_err()
        && let Err(e) = rbd::image::remove(&io, &to.image, &|_, _| {}).await
    {
        let why = done.err().map_or_else(String::new, |e| e.to_string());
        return Err(Error::refused(format!("{why}; what was made of {to} stays: {e}")));
    }
    done
}

async fn make(io: &IoCtx, name: &str, contents: &Contents) -> Result<()> {
    let about = &contents.about;
    let pool = about.data_pool.as_deref();
    let data_pool = match pool {
        None => None,
        // One that is gone is no reason not to restore.
        Some(name) => io.client().map()?.pool_by_name(name),
    };
    let new = NewImage {
        size: about.size,
        layout: Layout::new(about.order, about.stripe_unit, about.stripe_count)?,
        features: about.features & FEATURES,
        data_pool,
    };
    match directory::create(io, name, &new).await {
        Err(e) if e.errno() == Errno::EEXIST => Err(Error::refused(format!(
            "image '{name}' exists, and is left alone: restore to another name, and rename it when you have looked at it"
        ))),
        other => Ok(other.map(drop)?),
    }
}

async fn fill_and_compare(
    repo: &Arc<Repository>,
    io: &IoCtx,
    name: &str,
    contents: Rc<Contents>,
    watch: &Watch,
) -> Result<Restored> {
    let options = |read_only| ImageOptions {
        read_only,
        encrypted: true,
        ..ImageOptions::default()
    };
    let image = Image::open(io, name, &options(false)).await?;
    let filled = fill(repo, &image, &contents, watch).await;
    let closed = image.close().await;
    let data = filled?;
    closed?;
    let again = Image::open(io, name, &options(true)).await?;
    let differ = compare(&again, contents.clone(), watch).await?;
    again.close().await?;
    match differ {
        None => Ok(Restored {
            size: contents.about.size,
            data,
        }),
        Some(at) => Err(Error::refused(format!(
            "VERIFY FAILED: what was read back at {at} is not what was written"
        ))),
    }
}

async fn fill(repo: &Arc<Repository>, image: &Image, contents: &Rc<Contents>, watch: &Watch) -> Result<u64> {
    let about = &contents.about;
    let texts = about
        .metadata
        .iter()
        .map(|(k, v)| (Bytes::from(k.clone()), Bytes::from(v.clone())));
    let metadata: BTreeMap<Bytes, Bytes> = texts.collect();
    if !metadata.is_empty() {
        image.set_metadata(metadata).await?;
    }
    let (size, piece) = (about.size, about.piece);
    let zero = Id::of(&vec![0; piece.min(size) as usize]);
    let data = Rc::new(Cell::new(0));
    let (repo, image, sum) = (repo.clone(), image.clone(), data.clone());
    each_piece(contents.clone(), watch, move |number, id| {
        let (repo, image, sum) = (repo.clone(), image.clone(), sum.clone());
        async move {
            let length = piece.min(size - number * piece);
            if id == zero {
                return Ok(true);
            }
            let bytes = beside(&repo, move |repo| repo.load(&id)).await?;
            if bytes.len() as u64 != length {
                return Err(Error::damaged(format!("blob {} has another length", id.short())));
            }
            if bytes.iter().any(|b| *b != 0) {
                image.write(number * piece, bytes).await?;
                sum.set(sum.get() + length);
            }
            Ok(true)
        }
    })
    .await?;
    Ok(data.get())
}

/// Reads all of an image, or of its snapshot that is open; the place of the first piece that differs.
pub async fn compare(image: &Image, contents: Rc<Contents>, watch: &Watch) -> Result<Option<u64>> {
    let (size, piece) = (contents.about.size, contents.about.piece);
    if image.size().await? != size {
        return Ok(Some(size));
    }
    let zero = Id::of(&vec![0; piece.min(size) as usize]);
    let image = image.clone();
    let bad = each_piece(contents, watch, move |number, id| {
        let image = image.clone();
        async move {
            let at = number * piece;
            let length = piece.min(size - at) as usize;
            let data = image.read_short(at, length as u64).await?;
            if data.is_empty() && id == zero {
                return Ok(true);
            }
            let hashed = io::task::aside("backup", move || {
                let mut data = Vec::from(data);
                data.resize(length, 0);
                Id::of(&data)
            });
            let hashed = hashed
                .await
                .map_err(|e| Error::refused(format!("a thread: {e}")))?;
            Ok(hashed == id)
        }
    });
    Ok(bad.await?.map(|number| number * piece))
}

/// Runs `work` on all pieces, several at once; the first of those for which it says false.
pub(crate) async fn each_piece<F>(
    contents: Rc<Contents>,
    watch: &Watch,
    work: impl Fn(u64, Id) -> F + 'static,
) -> Result<Option<u64>>
where
    F: Future<Output = Result<bool>> + 'static,
{
    let (next, bad) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None::<u64>)));
    let work = Rc::new(work);
    let count = contents.pieces.len();
    let total = contents.about.size;
    let tasks: Vec<_> = (0..DEPTH)
        .map(|_| {
            let (next, bad, work) = (next.clone(), bad.clone(), work.clone());
            let (contents, watch) = (contents.clone(), watch.clone());
            spawn_local(async move {
                while let Some(id) = contents.pieces.get(next.get()).copied() {
                    watch.check()?;
                    let number = next.get() as u64;
                    next.set(next.get() + 1);
                    let done = work(number, id).await.inspect_err(|_| next.set(count))?;
                    if !done && bad.get().is_none_or(|b| number < b) {
                        bad.set(Some(number));
                    }
                    (watch.progress)(number * contents.about.piece, total);
                }
                Ok(())
            })
        })
        .collect();
    let mut told = Ok(());
    for task in tasks {
        let done = task.await.map_err(|e| Error::refused(format!("a task: {e}")));
        told = told.and(done.and_then(|d| d));
    }
    told?;
    Ok(bad.get())
}
