//! Uploads in parts: rows beside the entry of their key, so that completing one is one operation.
//!
//! Completing marks the upload with a number, reads its parts, writes a manifest, and commits under that number. A part that arrives
//! in between takes the mark away, and then the completion reads again: no part that is referred to has become garbage.

use crate::amount::Amount;
use crate::claims::{Claim, Held};
use crate::data::{DataStore, Stored};
use crate::index::{Position, Verdict};
use crate::notify::What;
use crate::objects::{Objects, Terms};
use crate::rados::{Change, Look, Pool};
use crate::record::{
    Attributes, Checksum, Data, Entry, Manifest, Part, Piece, Place, Upload, escape, part_row, parts_prefix,
    upload_of, upload_row,
};
use crate::seal::Sealed;
use crate::version::Lock;
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

pub const PARTS_MAX: u32 = 10_000;
/// Of every part but the last.
pub const PART_MIN: u64 = 5 << 20;
const TRIES_MAX: usize = 8;

/// A part as the client that completes the upload names it.
#[derive(Debug, Clone)]
pub struct Named {
    pub number: u32,
    pub etag: String,
    pub checksum: Option<Checksum>,
}

/// What the parts make, as the front computes it: ETag and checksum.
pub struct Whole {
    pub etag: String,
    pub checksum: Option<Checksum>,
}

pub type Parts = BTreeMap<u32, Part>;

#[derive(Debug, Default)]
pub struct PartsPage {
    pub parts: Vec<(u32, Part)>,
    pub more: bool,
}

#[derive(Debug, Default)]
pub struct UploadsPage {
    /// Key, id.
    pub uploads: Vec<(String, String, Upload)>,
    pub more: bool,
}

impl<P: Pool> Objects<P> {
    pub async fn begin_upload(
        &self,
        bucket: &str,
        key: &str,
        attributes: Attributes,
        algorithm: Option<String>,
        (lock, sealed): (Lock, Option<Sealed>),
    ) -> Result<String> {
        let id = self.clock.tag().to_string();
        let row = upload_row(key, &id);
        let upload = Upload {
            begun: self.clock.now_ms(),
            attributes,
            algorithm,
            nonce: 0,
            completing: false,
            lock,
            sealed,
        };
        let begun = self
            .index
            .update(bucket, key, BTreeSet::from([row.clone()]), |_| {
                Ok(Verdict::Change(
                    Change::default().setting(&row, upload.to_bytes()),
                    (),
                ))
            });
        begun.await.map(|()| id)
    }

    pub async fn upload(&self, bucket: &str, key: &str, id: &str) -> Result<Upload> {
        let upload = self.index.get_one(bucket, key, upload_row(key, id)).await?;
        upload.ok_or(Error::NoSuchUpload)
    }

    /// Makes what was taken in a part, in place of one with the same number.
    pub async fn put_part(
        &self,
        (bucket, key, id): (&str, &str, &str),
        number: u32,
        stored: Stored,
        etag: String,
        checksum: Option<Checksum>,
    ) -> Result<Part> {
        let part = Part {
            size: stored.size,
            etag,
            modified: self.clock.now_ms(),
            data: stored.data,
            checksum,
        };
        let claim = stored.claim;
        match self
            .commit_part((bucket, key, id), number, &part, claim.clone())
            .await
        {
            Ok(()) => Ok(part),
            Err(e) => {
                self.data.abandon(claim).await;
                Err(e)
            }
        }
    }

    async fn commit_part(
        &self,
        (bucket, key, id): (&str, &str, &str),
        number: u32,
        part: &Part,
        mut claim: Option<Claim>,
    ) -> Result<()> {
        let (upload_at, at) = (upload_row(key, id), part_row(key, id, number));
        for _ in 0..TRIES_MAX {
            let mut rows = BTreeSet::from([upload_at.clone(), at.clone()]);
            rows.extend(claim.as_ref().map(Claim::row));
            let held = self.index.update(bucket, key, rows, |view| {
                let mut upload: Upload = view.get(&upload_at)?.ok_or(Error::NoSuchUpload)?;
                let mut change = Change::default().setting(&at, part.to_bytes());
                if let Some(claim) = &claim {
                    if let Held::Elsewhere = DataStore::<P>::held(claim, view)? {
                        return Ok(Verdict::Leave(Held::Elsewhere));
                    }
                    change.unset.insert(claim.row());
                }
                if upload.completing {
                    upload.completing = false;
                    upload.nonce = self.clock.random_u64();
                    change = change.setting(&upload_at, upload.to_bytes());
                }
                let old: Option<Part> = view.get(&at)?;
                change.counted = Amount::part(part.size);
                change.counted += Amount::part(old.as_ref().map_or(0, |o| o.size)).less();
                change
                    .set
                    .extend(old.and_then(|o| self.data.garbage(o.data, o.size)));
                Ok(Verdict::Change(change, Held::Yes))
            });
            match (held.await?, &mut claim) {
                (Held::Elsewhere, Some(claim)) => self.data.follow(bucket, key, claim).await?,
                _ => return Ok(()),
            }
        }
        Err(Error::Busy("the bucket's index is being split"))
    }

    /// Parts above `after`, in order.
    pub async fn parts(
        &self,
        (bucket, key, id): (&str, &str, &str),
        after: u32,
        max: usize,
    ) -> Result<PartsPage> {
        let prefix = parts_prefix(key, id).slice(1..);
        let mut page = PartsPage::default();
        if max == 0 {
            return Ok(page);
        }
        let mut at = Some(match after {
            0 => Position::from(prefix.clone()),
            n => Position::after(part_row(key, id, n).slice(1..)),
        });
        while let Some(from) = at.take() {
            let want = (max + 1 - page.parts.len()) as u64;
            let rows = self.index.rows(bucket, b'p', &prefix, &from, want).await?;
            for (rest, value) in rows.rows {
                if page.parts.len() == max {
                    page.more = true;
                    return Ok(page);
                }
                let number = std::str::from_utf8(&rest[prefix.len()..])
                    .ok()
                    .and_then(|n| n.parse().ok());
                let number = number.ok_or_else(|| Error::Damaged("a part without a number".into()))?;
                page.parts.push((number, Part::from_bytes(&value)?));
            }
            at = rows.next;
        }
        Ok(page)
    }

    async fn all_parts(&self, upload: (&str, &str, &str)) -> Result<Parts> {
        let page = self.parts(upload, 0, PARTS_MAX as usize).await?;
        Ok(page.parts.into_iter().collect())
    }

    /// Uploads under way whose keys begin with `prefix`, after an upload of a key.
    pub async fn uploads(
        &self,
        bucket: &str,
        prefix: &str,
        after: Option<(&str, &str)>,
        max: usize,
    ) -> Result<UploadsPage> {
        let prefix = escape(prefix);
        let mut page = UploadsPage::default();
        if max == 0 {
            return Ok(page);
        }
        let mut at = Some(match after {
            None => Position::start(),
            // After all of them: ids are hex.
            Some((key, "")) => Position::after(upload_row(key, "~").slice(1..)),
            Some((key, id)) => Position::after(upload_row(key, id).slice(1..)),
        });
        while let Some(from) = at.take() {
            let want = (max + 1 - page.uploads.len()) as u64;
            let rows = self.index.rows(bucket, b'u', &prefix, &from, want).await?;
            for (rest, value) in rows.rows {
                if page.uploads.len() == max {
                    page.more = true;
                    return Ok(page);
                }
                let row: Bytes = [b"u", &rest[..]].concat().into();
                let (key, id) =
                    upload_of(&row).ok_or_else(|| Error::Damaged("an upload without a key".into()))?;
                page.uploads.push((key, id, Upload::from_bytes(&value)?));
            }
            at = rows.next;
        }
        Ok(page)
    }

    /// Marks the upload: whoever changes its parts after this takes the mark away.
    async fn mark(&self, (bucket, key, id): (&str, &str, &str)) -> Result<Upload> {
        let row = upload_row(key, id);
        let marked = self
            .index
            .update(bucket, key, BTreeSet::from([row.clone()]), |view| {
                let mut upload: Upload = view.get(&row)?.ok_or(Error::NoSuchUpload)?;
                upload.completing = true;
                upload.nonce = self.clock.random_u64();
                Ok(Verdict::Change(
                    Change::default().setting(&row, upload.to_bytes()),
                    upload,
                ))
            });
        marked.await
    }

    /// Makes the named parts the object. `whole` computes what they make together, or refuses them. Who asks again, or at the same
    /// time as another, hears what the upload became.
    pub async fn complete(
        &self,
        upload: (&str, &str, &str),
        named: &[Named],
        terms: &Terms,
        whole: impl Fn(&Upload, &[(&Named, &Part)]) -> Result<Whole>,
    ) -> Result<Entry> {
        let (bucket, key, id) = upload;
        match self.try_complete(upload, named, terms, whole).await {
            Err(e @ (Error::NoSuchUpload | Error::InvalidPart)) => match self.entry(bucket, key).await {
                Ok(entry) if entry.upload == id => Ok(entry),
                _ => Err(e),
            },
            other => other,
        }
    }

    async fn try_complete(
        &self,
        upload: (&str, &str, &str),
        named: &[Named],
        terms: &Terms,
        whole: impl Fn(&Upload, &[(&Named, &Part)]) -> Result<Whole>,
    ) -> Result<Entry> {
        let (bucket, key, id) = upload;
        for _ in 0..TRIES_MAX {
            let marked = self.mark(upload).await?;
            let parts = self.all_parts(upload).await?;
            let chosen = choose(named, &parts)?;
            let whole = whole(&marked, &chosen)?;
            let pieces: Vec<Piece> = chosen.iter().filter_map(|(_, part)| piece(part)).collect();
            let place = place(&chosen)?;
            let (data, claim, digest) = self.manifest((bucket, key), &pieces, place).await?;
            let sealed = marked.sealed.clone().map(|sealed| sealed.with_manifest(digest));
            let entry = Entry {
                size: pieces.iter().map(|p| p.size).sum(),
                etag: whole.etag,
                modified: self.clock.now_ms(),
                data,
                attributes: marked.attributes.clone(),
                checksum: whole.checksum,
                parts: chosen.len() as u32,
                upload: id.to_string(),
                version: None,
                lock: terms.locked(marked.lock, self.clock.now_ms()),
                sealed,
            };
            match self
                .commit_upload(upload, &marked, &entry, &parts, (named, terms), claim.clone())
                .await
            {
                Ok(Some(entry)) => return Ok(entry),
                Ok(None) => self.data.abandon(claim).await,
                Err(e) => {
                    self.data.abandon(claim).await;
                    return Err(e);
                }
            }
        }
        Err(Error::Busy("parts of the upload go on changing"))
    }

    async fn manifest(
        &self,
        (bucket, key): (&str, &str),
        pieces: &[Piece],
        place: Place,
    ) -> Result<(Data, Option<Claim>, Bytes)> {
        match pieces {
            [] => Ok((Data::None, None, Bytes::new())),
            [piece] => Ok((Data::Stripes(piece.tag, place), None, Bytes::new())),
            pieces => {
                let claim = self.data.at(place).claim(bucket, key).await?;
                let manifest = Manifest {
                    pieces: pieces.to_vec(),
                };
                match self.data.write_manifest(&claim, &manifest).await {
                    Ok(digest) => Ok((Data::Manifest(claim.tag, place), Some(claim), digest)),
                    Err(e) => {
                        self.data.abandon(Some(claim)).await;
                        Err(e)
                    }
                }
            }
        }
    }

    /// None: parts have changed since.
    async fn commit_upload(
        &self,
        (bucket, key, id): (&str, &str, &str),
        marked: &Upload,
        entry: &Entry,
        parts: &Parts,
        (named, terms): (&[Named], &Terms),
        claim: Option<Claim>,
    ) -> Result<Option<Entry>> {
        let upload_at = upload_row(key, id);
        let used: BTreeSet<u32> = named.iter().map(|n| n.number).collect();
        let look = Look::keys([&upload_at]);
        let committed = self.change((bucket, key), look, claim, |view, history, change| {
            let now: Upload = view.get(&upload_at)?.ok_or(Error::NoSuchUpload)?;
            if now != *marked {
                return Ok(None);
            }
            terms.condition.check(history.current())?;
            let after = history.changed();
            let put = history.put(entry.clone(), terms.versioning)?;
            self.tell(key, after, What::Put(&put), change);
            change.unset.insert(upload_at.clone());
            change.counted = total(parts).less();
            for (number, part) in parts {
                change.unset.insert(part_row(key, id, *number));
                let unused = !used.contains(number);
                change
                    .set
                    .extend(unused.then(|| self.data.garbage(part.data, part.size)).flatten());
            }
            Ok(Some(put))
        });
        committed.await
    }

    pub async fn abort(&self, upload: (&str, &str, &str)) -> Result<()> {
        let (bucket, key, id) = upload;
        let row = upload_row(key, id);
        for _ in 0..TRIES_MAX {
            let marked = self.mark(upload).await?;
            let parts = self.all_parts(upload).await?;
            let aborted = self
                .index
                .update(bucket, key, BTreeSet::from([row.clone()]), |view| {
                    let now: Upload = view.get(&row)?.ok_or(Error::NoSuchUpload)?;
                    if now != marked {
                        return Ok(Verdict::Leave(false));
                    }
                    let mut change = Change::default().unsetting(&row);
                    change.counted = total(&parts).less();
                    for (number, part) in &parts {
                        change.unset.insert(part_row(key, id, *number));
                        change.set.extend(self.data.garbage(part.data, part.size));
                    }
                    Ok(Verdict::Change(change, true))
                });
            if aborted.await? {
                return Ok(());
            }
        }
        Err(Error::Busy("parts of the upload go on changing"))
    }
}

/// What the parts of an upload hold.
fn total(parts: &Parts) -> Amount {
    let mut total = Amount::default();
    parts.values().for_each(|p| total += Amount::part(p.size));
    total
}

fn piece(part: &Part) -> Option<Piece> {
    match part.data {
        Data::Stripes(tag, _) => Some(Piece::new(part.size, tag)),
        Data::None | Data::Manifest(..) => None,
    }
}

/// Where parts are: those of one upload are in one pool, that of its class.
fn place(parts: &[(&Named, &Part)]) -> Result<Place> {
    let with_data = parts.iter().filter(|(_, part)| part.data != Data::None);
    let places: BTreeSet<Place> = with_data.map(|(_, part)| part.data.place()).collect();
    match places.len() {
        0 | 1 => Ok(places.first().copied().unwrap_or_default()),
        _ => Err(Error::Damaged("parts of an upload in several pools".into())),
    }
}

/// The named parts, if they are there, in order, and large enough.
fn choose<'a>(named: &'a [Named], parts: &'a Parts) -> Result<Vec<(&'a Named, &'a Part)>> {
    if named.is_empty() {
        return Err(Error::Invalid("no parts are named".into()));
    }
    if !named.is_sorted_by(|a, b| a.number < b.number) {
        return Err(Error::PartOrder);
    }
    let mut chosen = Vec::with_capacity(named.len());
    for (i, name) in named.iter().enumerate() {
        let part = parts.get(&name.number).ok_or(Error::InvalidPart)?;
        if part.etag != name.etag || (name.checksum.is_some() && name.checksum != part.checksum) {
            return Err(Error::InvalidPart);
        }
        if part.size < PART_MIN && i + 1 < named.len() {
            return Err(Error::PartTooSmall);
        }
        chosen.push((name, part));
    }
    Ok(chosen)
}
