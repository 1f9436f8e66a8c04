//! Pieces on their way: several at once, so many that memory stays bounded, until all are through, one fails, or a signal comes.

use super::digest::{Digest, Hash, PIECE, length};
use super::source::Source;
use ::rbd::Image;
use bytes::Bytes;
use indicatif::ProgressBar;
use node::Error;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Pieces of one disk under way.
const DEPTH: usize = 8;

pub fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

/// How one disk's copy is followed and stopped.
#[derive(Clone)]
pub struct Flow {
    pub bar: ProgressBar,
    pub stop: Arc<AtomicBool>,
}

impl Flow {
    pub fn check(&self) -> Result<(), Error> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(failed("interrupted")),
            false => Ok(()),
        }
    }

    pub fn phase(&self, what: &str, size: u64) {
        self.bar.reset();
        self.bar.set_length(size);
        self.bar.set_message(what.to_string());
    }

    fn passed(&self, piece: u64) {
        // Pieces end in any order.
        let at = (piece + 1) * PIECE;
        if at > self.bar.position() {
            self.bar.set_position(at);
        }
    }
}

/// A piece that came: its bytes (zeros at the end may be missing), and its hash unless all are zeros.
struct Piece {
    number: u64,
    data: Bytes,
    hash: Option<Hash>,
}

impl Piece {
    fn of(number: u64, data: Bytes, size: u64) -> Self {
        let hash = Hash::of_piece(&data, length(size, number));
        Self { number, data, hash }
    }
}

/// Takes all that `next` gives, which is asked until it says None. Each piece that has data goes through `take`; the digest is that
/// of all.
async fn pass<N, NF, T, TF>(flow: &Flow, size: u64, next: N, take: T) -> Result<Digest, Error>
where
    N: Fn() -> NF + 'static,
    NF: Future<Output = Result<Option<Piece>, Error>> + 'static,
    T: Fn(u64, Bytes) -> TF + 'static,
    TF: Future<Output = Result<(), Error>> + 'static,
{
    let digest = Rc::new(RefCell::new(Digest::new(size)));
    let over = Rc::new(Cell::new(false));
    let both = Rc::new((next, take));
    let tasks: Vec<_> = (0..DEPTH)
        .map(|_| {
            let (flow, digest, over, both) = (flow.clone(), digest.clone(), over.clone(), both.clone());
            io::task::spawn_local(async move {
                let work = async {
                    while !over.get() {
                        flow.check()?;
                        let Some(piece) = (both.0)().await? else {
                            return Ok(());
                        };
                        if piece.hash.is_some() {
                            digest.borrow_mut().note(piece.number, piece.hash);
                            (both.1)(piece.number, piece.data).await?;
                        }
                        flow.passed(piece.number);
                    }
                    Ok(())
                };
                let done = work.await;
                // The others begin nothing more.
                over.set(over.get() || done.is_err());
                done
            })
        })
        .collect();
    let mut told = Ok(());
    for task in tasks {
        // All have to end: nothing may be under way when what they work on goes.
        let done = task.await.map_err(failed).and_then(|d| d);
        told = told.and(done);
    }
    told?;
    Ok(digest.replace(Digest::new(size)))
}

/// Reads a file, from where it is, to its end.
pub async fn of_file<T, TF>(flow: &Flow, source: Source, take: T) -> Result<Digest, Error>
where
    T: Fn(u64, Bytes) -> TF + 'static,
    TF: Future<Output = Result<(), Error>> + 'static,
{
    let size = source.size();
    let source = Arc::new(Mutex::new(source));
    let (reader, watch) = (source.clone(), flow.clone());
    let next = move || {
        let (source, flow) = (reader.clone(), watch.clone());
        async move {
            let read = move || {
                let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                // It has waited for those before it, and the file may be slow.
                flow.check()?;
                let read = source.next();
                drop(source);
                let read = read.map_err(|e| failed(format!("reading the file: {e}")))?;
                Ok(read.map(|(number, data)| Piece::of(number, data.into(), size)))
            };
            io::task::aside("image-file", read).await.map_err(failed)?
        }
    };
    let done = pass(flow, size, next, take).await;
    let source = Arc::into_inner(source).ok_or_else(|| failed("the file is still being read"));
    let source = source.map(|s| s.into_inner().unwrap_or_else(PoisonError::into_inner));
    let digest = done?;
    source?.end()?;
    Ok(digest)
}

/// Reads an image from its beginning to `size`.
pub async fn of_image<T, TF>(flow: &Flow, image: &Image, size: u64, take: T) -> Result<Digest, Error>
where
    T: Fn(u64, Bytes) -> TF + 'static,
    TF: Future<Output = Result<(), Error>> + 'static,
{
    let (image, first) = (image.clone(), Rc::new(Cell::new(0)));
    let next = move || {
        let (image, number) = (image.clone(), first.get());
        first.set(number + 1);
        async move {
            let length = length(size, number);
            if length == 0 {
                return Ok(None);
            }
            let data = image.read_short(number * PIECE, length).await;
            let data = data.map_err(|e| failed(format!("reading the image: {e}")))?;
            if data.is_empty() {
                return Ok(Some(Piece::of(number, data, size)));
            }
            let hashed = io::task::aside("image-hash", move || Piece::of(number, data, size)).await;
            hashed.map(Some).map_err(failed)
        }
    };
    pass(flow, size, next, take).await
}

/// Nothing is done with the pieces.
pub async fn only_look(_: u64, _: Bytes) -> Result<(), Error> {
    Ok(())
}

/// An error where the two differ.
pub fn compare(want: &Digest, have: &Digest, what: &str) -> Result<(), Error> {
    match want.difference(have) {
        None => Ok(()),
        Some(at) => Err(failed(format!(
            "VERIFY FAILED: what {what} holds within the {PIECE} bytes at {at} is not what was written"
        ))),
    }
}
