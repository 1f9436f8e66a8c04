//! Objects' bytes: stripes of 4 MiB in the data pool, under a tag that is never used again.
//!
//! Invariants: before the first byte is written a row of the bucket's index (an [`Intent`]) says so, durably; the operation that
//! makes an entry refer to the data takes that row away. So data that nobody refers to is always named by a row, and whoever
//! collects it takes the row first: a writer that was given up finds that it cannot commit any more.
//!
//! Data are in the pool of their storage class, which their entry has with their tag; so have intents and garbage.
//!
//! What is to be encrypted is sealed stripe by stripe (`seal`), and opened chunk by chunk: sizes are those of what is read, everywhere but in the data pool.
//!
//! Bounds: an upload holds at most two stripes (three, if it is sealed), all together [`ROOM`] bytes; a download three
//! times [`CHUNK`], all together [`SEND_ROOM`]. Who finds no room waits [`ROOM_WITHIN`].

use crate::claims::Claim;
use crate::classes::Classes;
use crate::index::{Ahead, Index};
use crate::meters::{RgwPerf, Waiting};
use crate::rados::Pool;
use crate::record::{Data, Entry, Garbage, Manifest, Piece, Place, STRIPE, Tag, garbage_row};
use crate::seal::{self, DataKey, Key, Sealed};
use crate::spares::Spares;
use crate::{Clock, Error, Result};
use bytes::{Bytes, BytesMut};
use denc::{Decode, Encode};
use futures_core::Stream;
use io::task::{self, TaskHandle};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory of all uploads together.
pub const ROOM: u64 = 256 << 20;
/// And of all downloads that are larger than a chunk; each has three chunks of it.
pub const SEND_ROOM: u64 = 256 << 20;
const SEND_CHUNKS: u32 = 3;
/// What it is given out in.
const ROOM_UNIT: u64 = 64 << 10;
/// Who finds no room within this is told so.
const ROOM_WITHIN: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 30_000 });
/// What a download reads at once.
pub const CHUNK: u64 = 1 << 20;
/// Chunks of a stripe that are sealed each.
const CHUNKS: u64 = STRIPE / seal::CHUNK;
/// Stripes that are not there in a row, after which there are no more: more than a writer has under way.
const MISSES_MAX: u32 = 8;
/// A stripe that is copied between pools is given up after so long: a full pool lets writes wait.
const COPIED_WITHIN: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 60_000 });

/// Who counts what passes by.
pub trait Digests: Send {
    fn update(&mut self, data: &[u8]);
}

pub struct Stored {
    pub size: u64,
    pub data: Data,
    /// None where there is no data.
    pub claim: Option<Claim>,
    /// What its commit has to see, if that was looked at.
    pub ahead: Option<Ahead>,
    /// What its data are sealed with.
    key: Option<Key>,
    data_key: Option<DataKey>,
    _room: OwnedSemaphorePermit,
}

pub struct DataStore<P> {
    classes: Classes<P>,
    /// Where what is taken in goes to.
    pub(crate) place: Place,
    pub(crate) index: Index<P>,
    pub(crate) clock: Clock,
    room: Arc<Semaphore>,
    send_room: Arc<Semaphore>,
    /// Where those are counted who wait for room.
    perf: Arc<RgwPerf>,
    /// None: claims are made when they are needed.
    pub(crate) spares: Option<Spares>,
}

impl<P: Clone> Clone for DataStore<P> {
    fn clone(&self) -> Self {
        Self {
            classes: self.classes.clone(),
            place: self.place,
            index: self.index.clone(),
            clock: self.clock.clone(),
            room: self.room.clone(),
            send_room: self.send_room.clone(),
            perf: self.perf.clone(),
            spares: self.spares.clone(),
        }
    }
}

pub type Chunk = std::result::Result<Bytes, String>;
/// A body that is read once.
pub type Body<'a> = &'a mut (dyn Stream<Item = Chunk> + Send + Unpin);

fn stripe_name(tag: Tag, n: u64) -> String {
    format!("{tag}.{n}")
}

fn manifest_name(tag: Tag) -> String {
    format!("{tag}.m")
}

/// The next bytes; None: the body has ended. How long clients are waited for is `pace`'s.
async fn next(body: &mut Body<'_>) -> Result<Option<Bytes>> {
    let chunk = poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await;
    chunk.transpose().map_err(Error::Body)
}

impl<P: Pool> DataStore<P> {
    pub fn new(classes: Classes<P>, index: Index<P>, clock: Clock) -> Self {
        Self {
            classes,
            place: Place::STANDARD,
            index,
            clock,
            room: Arc::new(Semaphore::new((ROOM / ROOM_UNIT) as usize)),
            send_room: Arc::new(Semaphore::new((SEND_ROOM / CHUNK) as usize)),
            perf: Arc::default(),
            spares: None,
        }
    }

    /// The same, with claims made before they are needed: [`Self::release`] has to be called from time to time, and at the end.
    pub fn sparing(mut self) -> Self {
        self.spares = Some(Spares::default());
        self
    }

    pub fn classes(&self) -> &Classes<P> {
        &self.classes
    }

    /// The same, for what is to be in the pool of this place.
    pub fn at(&self, place: Place) -> Self {
        Self {
            place,
            ..self.clone()
        }
    }

    async fn pool(&self, place: Place) -> Result<P> {
        self.classes.pool(place).await
    }

    /// The same, which counts there.
    pub fn counted(mut self, perf: &Arc<RgwPerf>) -> Self {
        self.perf = perf.clone();
        self
    }

    async fn room_of(&self, room: &Arc<Semaphore>, units: u32) -> Result<OwnedSemaphorePermit> {
        let waiting = Waiting::new(&self.perf);
        let found = task::timeout(ROOM_WITHIN, room.clone().acquire_many_owned(units)).await;
        drop(waiting);
        match found {
            Ok(room) => room.map_err(|_| Error::Busy("the gateway is stopping")),
            Err(_) => Err(Error::Busy(
                "the gateway has all the transfers that it has memory for",
            )),
        }
    }

    /// Takes the whole body in, and seals it, if there is a key. `length`: what was announced, for the memory that it takes, and which it must have; more than `max`
    /// is refused. After an error nothing is left but what will be collected.
    pub async fn take(
        &self,
        to: (&str, &str),
        (mut body, key): (Body<'_>, Option<Key>),
        length: Option<u64>,
        max: u64,
        digests: &mut dyn Digests,
    ) -> Result<Stored> {
        if length.is_some_and(|n| n > max) {
            return Err(Error::TooLarge("the object is larger than is allowed"));
        }
        let stripes = if key.is_some() { 3 } else { 2 };
        let units = (length.unwrap_or(max).min(STRIPE) * stripes)
            .div_ceil(ROOM_UNIT)
            .max(1);
        let room = self.room_of(&self.room, units as u32).await?;
        let mut stored = Stored {
            size: 0,
            data: Data::None,
            claim: None,
            ahead: None,
            key,
            data_key: None,
            _room: room,
        };
        let mut writing: Option<TaskHandle<Result<()>>> = None;
        // Room was taken for what was announced, and not for more.
        let most = length.unwrap_or(max);
        let taken = self.fill(to, &mut body, most, digests, &mut stored, &mut writing);
        let taken = match (taken.await, writing.take()) {
            (Ok(()), Some(last)) => {
                let (done, ahead) = tokio::join!(joined(last), self.look_ahead(to, &stored));
                stored.ahead = ahead;
                done
            }
            // A write that is under way would otherwise come after its data were collected.
            (Err(e), Some(last)) => joined(last).await.and(Err(e)),
            (done, None) => done,
        };
        // Chunks may be cut off at a border, and look complete.
        let size = stored.size;
        let taken = match (taken, length) {
            (Ok(()), Some(n)) if n != size => {
                Err(Error::Body(format!("{size} bytes came, and {n} were announced")))
            }
            (Err(Error::TooLarge(_)), Some(n)) => Err(Error::Body(format!(
                "more than the {n} bytes came that were announced"
            ))),
            (taken, _) => taken,
        };
        match taken {
            Ok(()) => Ok(stored),
            Err(e) => {
                self.abandon(stored.claim).await;
                Err(e)
            }
        }
    }

    /// Reads the body to its end; the last stripe is left to be waited for.
    async fn fill(
        &self,
        to: (&str, &str),
        body: &mut Body<'_>,
        max: u64,
        digests: &mut dyn Digests,
        stored: &mut Stored,
        writing: &mut Option<TaskHandle<Result<()>>>,
    ) -> Result<()> {
        let mut buffer = BytesMut::new();
        loop {
            let chunk = next(body).await?;
            let ended = chunk.is_none();
            let mut chunk = chunk.unwrap_or_default();
            // A stripe may take longer than a claim holds.
            if let Some(claim) = &mut stored.claim {
                self.renew(to.0, to.1, claim).await?;
            }
            if chunk.len() as u64 > max - stored.size {
                return Err(Error::TooLarge("the object is larger than is allowed"));
            }
            digests.update(&chunk);
            while !chunk.is_empty() || (ended && !buffer.is_empty()) {
                let n = chunk.len().min(STRIPE as usize - buffer.len());
                buffer.extend_from_slice(&chunk.split_to(n));
                stored.size += n as u64;
                if buffer.len() as u64 == STRIPE || ended {
                    let data = buffer.split().freeze();
                    self.write_stripe(to, stored, data, writing).await?;
                }
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Begins to write a stripe, after the one before is durable.
    async fn write_stripe(
        &self,
        (bucket, key): (&str, &str),
        stored: &mut Stored,
        data: Bytes,
        writing: &mut Option<TaskHandle<Result<()>>>,
    ) -> Result<()> {
        if let Some(last) = writing.take() {
            joined(last).await?;
        }
        match &mut stored.claim {
            None => {
                let claim = self.claim(bucket, key).await?;
                let key = stored.key.as_ref().map(|key| key.data(claim.tag));
                stored.claim = Some(claim);
                stored.data_key = key.transpose()?;
            }
            Some(claim) => self.renew(bucket, key, claim).await?,
        }
        let Some(claim) = &stored.claim else { return Ok(()) };
        stored.data = Data::Stripes(claim.tag, claim.place);
        let place = claim.place;
        let n = (stored.size - 1) / STRIPE;
        let name = stripe_name(claim.tag, n);
        let data = match &stored.data_key {
            Some(key) => key.seal(&data, n * CHUNKS)?,
            None => data,
        };
        let pool = self.pool(place).await?;
        *writing = Some(task::spawn_local(async move { pool.write(&name, data).await }));
        Ok(())
    }

    /// The row that has data collected once readers are through; None where there is none.
    pub fn garbage(&self, data: Data, size: u64) -> Option<(Bytes, Bytes)> {
        self.garbage_later(data, size, 0)
    }

    /// The same, so many milliseconds later.
    pub fn garbage_later(&self, data: Data, size: u64, later: u64) -> Option<(Bytes, Bytes)> {
        let (Data::Stripes(tag, _) | Data::Manifest(tag, _)) = data else {
            return None;
        };
        let garbage = Garbage {
            since: self.clock.now_ms() + later,
            data,
            size: Some(size),
        };
        Some((garbage_row(tag), garbage.to_bytes()))
    }

    /// The digest of what was written.
    pub async fn write_manifest(&self, claim: &Claim, manifest: &Manifest) -> Result<Bytes> {
        let manifest = manifest.to_bytes();
        let digest = seal::digest_of(&manifest);
        let pool = self.pool(claim.place).await?;
        pool.write(&manifest_name(claim.tag), manifest).await?;
        Ok(digest)
    }

    async fn manifest(&self, tag: Tag, place: Place) -> Result<Manifest> {
        Ok(Manifest::from_bytes(&self.raw_manifest(tag, place).await?)?)
    }

    async fn raw_manifest(&self, tag: Tag, place: Place) -> Result<Bytes> {
        let (name, pool) = (manifest_name(tag), self.pool(place).await?);
        let mut whole = BytesMut::new();
        loop {
            let part = pool.read(&name, whole.len() as u64, STRIPE).await?;
            let ended = (part.len() as u64) < STRIPE;
            whole.extend_from_slice(&part);
            if ended {
                return Ok(whole.freeze());
            }
        }
    }

    /// The pieces that data of this size is made of.
    pub async fn pieces(&self, data: Data, size: u64) -> Result<Vec<Piece>> {
        match data {
            Data::None => Ok(Vec::new()),
            Data::Stripes(tag, _) => Ok(vec![Piece::new(size, tag)]),
            Data::Manifest(tag, place) => Ok(self.manifest(tag, place).await?.pieces),
        }
    }

    /// Those of an object; an error if they are not those that its entry means.
    pub async fn pieces_of(&self, entry: &Entry) -> Result<Vec<Piece>> {
        let (Data::Manifest(tag, place), Some(sealed)) = (entry.data, &entry.sealed) else {
            return self.pieces(entry.data, entry.size).await;
        };
        let manifest = self.raw_manifest(tag, place).await?;
        match seal::digest_of(&manifest) == sealed.manifest {
            true => Ok(Manifest::from_bytes(&manifest)?.pieces),
            false => Err(Error::Damaged(format!("{} was changed", manifest_name(tag)))),
        }
    }

    /// Whether a stripe of a piece is there up to its end.
    pub async fn probe(&self, piece: &Piece, place: Place, stripe: u64, sealed: bool) -> Result<()> {
        let end = stored_len(piece, stripe, sealed);
        let name = stripe_name(piece.tag, piece.first + stripe);
        let pool = self.pool(place).await?;
        match pool.read(&name, end.saturating_sub(1), 1).await {
            Ok(byte) if byte.len() == 1 => Ok(()),
            Ok(_) => Err(Error::Damaged(format!("{name} is too short"))),
            Err(e) if e.is_not_found() => Err(Error::Damaged(format!("{name} is not there"))),
            Err(e) => Err(e),
        }
    }

    /// Bytes of an object from `from` up to `to`, chunk by chunk; of one that is sealed with its key.
    pub async fn reader(&self, entry: &Entry, (from, to): (u64, u64), key: Option<Key>) -> Result<Reader<P>> {
        if entry.sealed.is_some() != key.is_some() {
            return Err(Error::Damaged(
                "encrypted data without their key, or a key without such".into(),
            ));
        }
        let room = match to - from > CHUNK {
            true => Some(self.room_of(&self.send_room, SEND_CHUNKS).await?),
            false => None,
        };
        Ok(Reader {
            _room: room,
            pool: self.pool(entry.data.place()).await?,
            pieces: self.pieces_of(entry).await?,
            key,
            data_key: None,
            piece: 0,
            begins: 0,
            at: from,
            to,
        })
    }

    /// Removes what a row of garbage names. Can be begun again at any point.
    pub async fn remove(&self, garbage: &Garbage) -> Result<()> {
        match (garbage.data, garbage.size) {
            (Data::None, _) => Ok(()),
            (Data::Stripes(tag, place), Some(size)) => {
                let pool = self.pool(place).await?;
                remove_piece(&pool, &Piece::new(size, tag)).await
            }
            (Data::Stripes(tag, place), None) => {
                let pool = self.pool(place).await?;
                let (mut n, mut misses) = (0, 0);
                while misses < MISSES_MAX {
                    misses = match pool.remove(&stripe_name(tag, n)).await? {
                        true => 0,
                        false => misses + 1,
                    };
                    n += 1;
                }
                // Of a manifest that was not committed: what it lists is somebody else's, or under this tag.
                pool.remove(&manifest_name(tag)).await.map(drop)
            }
            (Data::Manifest(tag, place), _) => {
                let manifest = match self.manifest(tag, place).await {
                    Err(e) if e.is_not_found() => return Ok(()),
                    other => other?,
                };
                let pool = self.pool(place).await?;
                for piece in &manifest.pieces {
                    remove_piece(&pool, piece).await?;
                }
                pool.remove(&manifest_name(tag)).await.map(drop)
            }
        }
    }

    /// Copies what an entry refers to, as it lies there, under a fresh tag to this store's place. It is not opened: what is sealed stays so, under the tag
    /// that it was sealed with. After an error nothing is left but what will be collected.
    pub async fn duplicate(&self, to: (&str, &str), entry: &Entry) -> Result<Copied> {
        let pieces = self.pieces_of(entry).await?;
        if pieces.is_empty() {
            return Ok(Copied {
                data: Data::None,
                sealed: entry.sealed.clone(),
                claim: None,
            });
        }
        let _room = self.room_of(&self.room, (STRIPE * 2 / ROOM_UNIT) as u32).await?;
        let mut claim = self.claim(to.0, to.1).await?;
        match self.copy_pieces(to, entry, pieces, &mut claim).await {
            Ok((data, sealed)) => Ok(Copied {
                data,
                sealed,
                claim: Some(claim),
            }),
            Err(e) => {
                self.abandon(Some(claim)).await;
                Err(e)
            }
        }
    }

    async fn copy_pieces(
        &self,
        (bucket, key): (&str, &str),
        entry: &Entry,
        pieces: Vec<Piece>,
        claim: &mut Claim,
    ) -> Result<(Data, Option<Sealed>)> {
        let (from, to) = (
            self.pool(entry.data.place()).await?,
            self.pool(claim.place).await?,
        );
        let (mut moved, mut at) = (Vec::with_capacity(pieces.len()), 0);
        for piece in pieces {
            let first = at;
            for stripe in 0..piece.stripes() {
                let n = stored_len(&piece, stripe, entry.sealed.is_some());
                let name = stripe_name(piece.tag, piece.first + stripe);
                let data = in_time(&name, from.read(&name, 0, n)).await?;
                if data.len() as u64 != n {
                    return Err(Error::Damaged(format!("{name} is too short")));
                }
                self.renew(bucket, key, claim).await?;
                in_time(&name, to.write(&stripe_name(claim.tag, at), data)).await?;
                at += 1;
            }
            moved.push(Piece {
                tag: claim.tag,
                first,
                ..piece
            });
        }
        self.renew(bucket, key, claim).await?;
        // One that is sealed needs a place for the tag that it was sealed with.
        if let (Data::Stripes(..), None) = (entry.data, &entry.sealed) {
            return Ok((Data::Stripes(claim.tag, claim.place), None));
        }
        let manifest = Manifest { pieces: moved };
        let digest = in_time(&manifest_name(claim.tag), self.write_manifest(claim, &manifest)).await?;
        let sealed = entry.sealed.clone().map(|s| s.with_manifest(digest));
        Ok((Data::Manifest(claim.tag, claim.place), sealed))
    }
}

/// What was copied to another place, and nobody refers to yet.
pub struct Copied {
    pub data: Data,
    pub sealed: Option<Sealed>,
    pub claim: Option<Claim>,
}

/// One step of a copy.
async fn in_time<T>(name: &str, step: impl Future<Output = Result<T>>) -> Result<T> {
    let done = task::timeout(COPIED_WITHIN, step).await;
    done.unwrap_or_else(|_| {
        tracing::warn!("s3: copying {name} to another storage class takes too long: is a pool full?");
        Err(Error::Rados(client::Error::TimedOut))
    })
}

async fn remove_piece<P: Pool>(pool: &P, piece: &Piece) -> Result<()> {
    for n in 0..piece.stripes() {
        pool.remove(&stripe_name(piece.tag, piece.first + n)).await?;
    }
    Ok(())
}

/// Bytes of a stripe as it lies in its pool.
fn stored_len(piece: &Piece, stripe: u64, sealed: bool) -> u64 {
    let size = piece.stripe_size(stripe);
    if sealed { seal::sealed_len(size) } else { size }
}

async fn joined(task: TaskHandle<Result<()>>) -> Result<()> {
    let done = task.await;
    done.map_err(|_| Error::Busy("the gateway is stopping"))?
}

/// Reads a range of an object in order.
pub struct Reader<P> {
    _room: Option<OwnedSemaphorePermit>,
    pool: P,
    pieces: Vec<Piece>,
    /// Of the object, if it is sealed, and of the piece that was read last.
    key: Option<Key>,
    data_key: Option<(Tag, DataKey)>,
    piece: usize,
    /// Where the piece begins within the object.
    begins: u64,
    at: u64,
    to: u64,
}

impl<P: Pool> Reader<P> {
    async fn read(&self, name: &str, offset: u64, n: u64) -> Result<Bytes> {
        let data = self.pool.read(name, offset, n).await?;
        match data.len() as u64 == n {
            true => Ok(data),
            false => Err(Error::Damaged(format!("{name} is too short"))),
        }
    }

    /// Bytes of a stripe of a piece that is sealed.
    async fn opened(
        &mut self,
        piece: Piece,
        key: &Key,
        stripe: u64,
        (offset, n): (u64, u64),
    ) -> Result<Bytes> {
        let all = piece.stripe_size(stripe);
        let first = offset / seal::CHUNK;
        let begins = first * seal::CHUNK;
        let ends = (offset + n).next_multiple_of(seal::CHUNK).min(all);
        let name = stripe_name(piece.tag, piece.first + stripe);
        let sealed = self
            .read(&name, seal::sealed_len(begins), seal::sealed_len(ends - begins))
            .await?;
        let data_key = match self.data_key.take() {
            Some((tag, data_key)) if tag == piece.origin => data_key,
            _ => key.data(piece.origin)?,
        };
        let opened = data_key.open(&sealed, stripe * CHUNKS + first);
        self.data_key = Some((piece.origin, data_key));
        let opened = opened.map_err(|e| Error::Damaged(format!("{name}: {e}")))?;
        let from = (offset - begins) as usize;
        Ok(opened.slice(from..from + n as usize))
    }

    /// None: that was all.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(piece) = self.pieces.get(self.piece).filter(|_| self.at < self.to) {
            let ends = self.begins + piece.size;
            if self.at >= ends {
                self.begins = ends;
                self.piece += 1;
                continue;
            }
            let within = self.at - self.begins;
            let (stripe, offset) = (within / STRIPE, within % STRIPE);
            // Up to where a chunk that is sealed begins.
            let most = (STRIPE - offset).min(CHUNK - offset % seal::CHUNK);
            let n = (self.to.min(ends) - self.at).min(most);
            let data = match self.key.clone() {
                Some(key) => self.opened(piece.clone(), &key, stripe, (offset, n)).await?,
                None => {
                    let name = stripe_name(piece.tag, piece.first + stripe);
                    self.read(&name, offset, n).await?
                }
            };
            self.at += n;
            return Ok(Some(data));
        }
        match self.at < self.to {
            true => Err(Error::Damaged(
                "an object with fewer bytes than it should have".into(),
            )),
            false => Ok(None),
        }
    }
}
