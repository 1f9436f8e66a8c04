//! What is written down, and how rows are called. All records begin with an envelope, so that fields can be added.
//!
//! Rows of a shard of a bucket's index, by their first byte; `K` is an object's key, escaped (below), `T` a tag in hex:
//!
//! ```text
//! !state        State: the shard's range, and what is being done to it
//! e K           Entry: the object as it is read; none where the newest version is a delete marker
//! h K           Head: there are other versions of K, and which of them is `null`
//! v K 00 01 O   Older: another version, an object or a delete marker; O is its Order (hex), newest first
//! u K 00 01 U   Upload U, under way
//! p K 00 01 U N Part N of it (five digits)
//! i T           Intent: data under this tag is being written, and nobody refers to it yet
//! g T           Garbage: data under this tag that nobody refers to any more
//! n G N         Event, of a change of a key (`notify`): it is told, then goes
//! d ROW         ROW was changed while the shard is being copied
//! t NAME        (since): the shard NAME was made to take the upper half, and is not used
//! ```
//!
//! Escaped: a byte 00 is 00 FF, so that 00 01 ends a key; order is kept.

pub use crate::place::{Data, Manifest, Piece, Place, STRIPE, Tag};

use crate::seal::Sealed;
use crate::version::{Lock, Order, Version};
use bytes::{BufMut, Bytes, BytesMut};
use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// What a client said of an object besides its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Content-Type and the like, by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// `x-amz-meta-`.
    pub meta: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub public_read: bool,
    /// The storage class; empty: STANDARD. Data are in its pool, if there are any.
    pub class: String,
}

/// Among the headers: when the object ends by itself, in seconds since 1970, as Swift has it. The bucket's settings say that it may have such objects.
pub const DELETE_AT: &str = "x-delete-at";
/// And where browsers are sent that ask a website for it.
pub const REDIRECT: &str = "x-amz-website-redirect-location";

impl Attributes {
    /// Whether its time is over (milliseconds since 1970).
    pub fn has_ended(&self, now: u64) -> bool {
        let at = self.headers.get(DELETE_AT).and_then(|t| t.parse::<u64>().ok());
        at.is_some_and(|at| at.saturating_mul(1000) <= now)
    }
}

/// The version that knows of storage classes.
pub const WITH_CLASS: u8 = 2;

impl Encode for Attributes {
    fn encode(&self, w: &mut Writer) {
        let version = if self.class.is_empty() { 1 } else { WITH_CLASS };
        w.envelope(version, version, |w| {
            w.put(&self.headers);
            w.put(&self.meta);
            w.put(&self.tags);
            w.put(&self.public_read);
            if version >= WITH_CLASS {
                w.put(&self.class);
            }
        });
    }
}

impl Decode for Attributes {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_CLASS, |version, r| {
            Ok(Self {
                headers: r.get()?,
                meta: r.get()?,
                tags: r.get()?,
                public_read: r.get()?,
                class: if version < WITH_CLASS {
                    String::new()
                } else {
                    r.get()?
                },
            })
        })
    }
}

/// A checksum that the client chose: algorithm as S3 names it (`CRC64NVME`), value in base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    pub algorithm: String,
    pub value: String,
}

denc::envelope_denc!(Checksum, 1, 1, { algorithm, value });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// Milliseconds since 1970.
    pub modified: u64,
    pub data: Data,
    pub attributes: Attributes,
    pub checksum: Option<Checksum>,
    /// Of an object made of parts; else 0.
    pub parts: u32,
    /// The upload that made it of parts; else empty.
    pub upload: String,
    /// None: `null`, of a bucket without versioning.
    pub version: Option<Version>,
    pub lock: Lock,
    /// None: its data are as they are read.
    pub sealed: Option<Sealed>,
}

/// The version that knows of versions and locks; an entry without is as it was before.
const WITH_VERSION: u8 = 2;
/// The version that knows of encrypted data: who does not would hand them out as they lie there.
pub const SEALED: u8 = 3;

impl Encode for Entry {
    fn encode(&self, w: &mut Writer) {
        let plain = self.version.is_none() && self.lock == Lock::default();
        let version = match (&self.sealed, plain) {
            (Some(_), _) => SEALED,
            (None, false) => WITH_VERSION,
            (None, true) => 1,
        };
        w.envelope(version, version, |w| {
            w.put(&self.size);
            w.put(&self.etag);
            w.put(&self.modified);
            w.put(&self.data);
            w.put(&self.attributes);
            w.put(&self.checksum);
            w.put(&self.parts);
            w.put(&self.upload);
            if version >= WITH_VERSION {
                w.put(&self.version);
                w.put(&self.lock);
            }
            if let Some(sealed) = &self.sealed {
                w.put(sealed);
            }
        });
    }
}

impl Decode for Entry {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(SEALED, |version, r| {
            let mut entry = Self {
                size: r.get()?,
                etag: r.get()?,
                modified: r.get()?,
                data: r.get()?,
                attributes: r.get()?,
                checksum: r.get()?,
                parts: r.get()?,
                upload: r.get()?,
                version: None,
                lock: Lock::default(),
                sealed: None,
            };
            if version >= WITH_VERSION {
                entry.version = r.get()?;
                entry.lock = r.get()?;
            }
            if version >= SEALED {
                entry.sealed = Some(r.get()?);
            }
            Ok(entry)
        })
    }
}

impl Entry {
    /// One that was put before there was versioning has the place of its time.
    pub fn version(&self) -> Version {
        self.version.unwrap_or(Version {
            order: Order::new(Order::at(self.modified), 0),
            null: true,
        })
    }
}

/// A version that is not what a reader of the key gets: one that another has followed, or a delete marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Older {
    /// Since when it is not the current one (milliseconds since 1970); 0: it is, a delete marker.
    pub since: u64,
    pub marker: bool,
    /// Of a marker: its time and version alone.
    pub entry: Entry,
}

denc::envelope_denc!(Older, 1, 1, { since, marker, entry });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub begun: u64,
    pub attributes: Attributes,
    /// The checksum that parts shall have.
    pub algorithm: Option<String>,
    /// Changes when parts may have changed after somebody began to complete it.
    pub nonce: u64,
    pub completing: bool,
    /// Of the object to be.
    pub lock: Lock,
    pub sealed: Option<Sealed>,
}

const WITH_LOCK: u8 = 2;

impl Encode for Upload {
    fn encode(&self, w: &mut Writer) {
        let version = match (&self.sealed, self.lock == Lock::default()) {
            (Some(_), _) => SEALED,
            (None, false) => WITH_LOCK,
            (None, true) => 1,
        };
        w.envelope(version, version, |w| {
            w.put(&self.begun);
            w.put(&self.attributes);
            w.put(&self.algorithm);
            w.put(&self.nonce);
            w.put(&self.completing);
            if version >= WITH_LOCK {
                w.put(&self.lock);
            }
            if let Some(sealed) = &self.sealed {
                w.put(sealed);
            }
        });
    }
}

impl Decode for Upload {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(SEALED, |version, r| {
            Ok(Self {
                begun: r.get()?,
                attributes: r.get()?,
                algorithm: r.get()?,
                nonce: r.get()?,
                completing: r.get()?,
                lock: if version < WITH_LOCK {
                    Lock::default()
                } else {
                    r.get()?
                },
                sealed: if version < SEALED { None } else { Some(r.get()?) },
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub size: u64,
    pub etag: String,
    pub modified: u64,
    pub data: Data,
    pub checksum: Option<Checksum>,
}

denc::envelope_denc!(Part, 1, 1, { size, etag, modified, data, checksum });

/// Data is being written; after `until` (milliseconds since 1970) its writer is dead or has to give up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    pub until: u64,
    /// Where to.
    pub place: Place,
}

pub const WITH_PLACE: u8 = 2;

impl Encode for Intent {
    /// Who does not know of places would collect elsewhere.
    fn encode(&self, w: &mut Writer) {
        let elsewhere = self.place != Place::STANDARD;
        let version = if elsewhere { WITH_PLACE } else { 1 };
        w.envelope(version, version, |w| {
            w.put(&self.until);
            if elsewhere {
                w.put(&self.place);
            }
        });
    }
}

impl Decode for Intent {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_PLACE, |version, r| {
            Ok(Self {
                until: r.get()?,
                place: if version < WITH_PLACE {
                    Place::STANDARD
                } else {
                    r.get()?
                },
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbage {
    pub since: u64,
    pub data: Data,
    /// Of stripes; None: nobody knows how many were written.
    pub size: Option<u64>,
}

denc::envelope_denc!(Garbage, 1, 1, { since, data, size });

/// What is being done to a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Open,
    /// Its bucket is being deleted, by the deletion with this number.
    Closed {
        deletion: u64,
    },
    /// It is the upper half of another, and not yet in use. Only the copier with this number writes to it.
    Filling {
        copier: u64,
    },
    /// Rows from `mid` on are being copied to `target`; writers go on, and note what they change.
    Copying(Split),
    /// The same, at its end: writers of rows from `mid` on wait.
    Frozen(Split),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// An object's key, escaped.
    pub mid: Bytes,
    pub target: String,
    pub copier: u64,
    pub since: u64,
}

impl Split {
    /// Whether a row is one of the upper part, which the target gets.
    pub fn moves(&self, row: &Bytes) -> bool {
        is_keyed(row) && row[1..] >= self.mid[..]
    }
}

denc::envelope_denc!(Split, 1, 1, { mid, target, copier, since });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Grows with each change of the rest.
    pub version: u64,
    /// The first escaped key that belongs to `next`; None: it has all to the end.
    pub end: Option<Bytes>,
    pub next: Option<String>,
    pub phase: Phase,
    /// There may be rows of versions: who does not know of those, and would leave them behind in a split, cannot read this.
    pub versions: bool,
}

pub const WITH_VERSIONS: u8 = 2;

impl Encode for State {
    fn encode(&self, w: &mut Writer) {
        let version = if self.versions { WITH_VERSIONS } else { 1 };
        w.envelope(version, version, |w| {
            w.put(&self.version);
            w.put(&self.end);
            w.put(&self.next);
            w.put(&self.phase);
        });
    }
}

impl Decode for State {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_VERSIONS, |version, r| {
            Ok(Self {
                version: r.get()?,
                end: r.get()?,
                next: r.get()?,
                phase: r.get()?,
                versions: version >= WITH_VERSIONS,
            })
        })
    }
}

impl Encode for Phase {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Open => w.u8(0),
            Self::Closed { deletion } => {
                w.u8(1);
                w.u64(*deletion);
            }
            Self::Filling { copier } => {
                w.u8(2);
                w.u64(*copier);
            }
            Self::Copying(split) => {
                w.u8(3);
                w.put(split);
            }
            Self::Frozen(split) => {
                w.u8(4);
                w.put(split);
            }
        }
    }
}

impl Decode for Phase {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        match r.u8()? {
            0 => Ok(Self::Open),
            1 => Ok(Self::Closed { deletion: r.u64()? }),
            2 => Ok(Self::Filling { copier: r.u64()? }),
            3 => Ok(Self::Copying(r.get()?)),
            4 => Ok(Self::Frozen(r.get()?)),
            _ => Err(r.invalid("phase of a shard")),
        }
    }
}

/// The row of a shard's state.
pub const STATE: &[u8] = b"!state";

pub fn state_row() -> Bytes {
    Bytes::from_static(STATE)
}

pub fn escape(key: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(key.len() + 2);
    for byte in key.bytes() {
        out.put_u8(byte);
        if byte == 0 {
            out.put_u8(0xFF);
        }
    }
    out.freeze()
}

/// What [`escape`] made, up to where it ends.
pub fn unescape(escaped: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == 0 {
            match bytes.next() {
                Some(0xFF) => {}
                _ => break,
            }
        }
        out.push(byte);
    }
    String::from_utf8(out).ok()
}

/// The same, into a text that is used again; false: it is none.
pub fn unescape_into(escaped: &[u8], out: &mut String) -> bool {
    out.clear();
    let text = match escaped.contains(&0) {
        true => unescape(escaped),
        false => {
            let plain = std::str::from_utf8(escaped);
            return plain.map(|text| out.push_str(text)).is_ok();
        }
    };
    let there = text.is_some();
    out.push_str(&text.unwrap_or_default());
    there
}

fn row(class: u8, parts: &[&[u8]]) -> Bytes {
    let mut out = BytesMut::with_capacity(1 + parts.iter().map(|p| p.len()).sum::<usize>());
    out.put_u8(class);
    parts.iter().for_each(|p| out.put_slice(p));
    out.freeze()
}

/// The end of a key within a row.
const END: &[u8] = &[0, 1];

pub fn entry_row(key: &str) -> Bytes {
    row(b'e', &[&escape(key)])
}

pub fn head_row(key: &str) -> Bytes {
    row(b'h', &[&escape(key)])
}

/// What the rows of all other versions of a key begin with.
pub fn older_prefix(key: &str) -> Bytes {
    row(b'v', &[&escape(key), END])
}

pub fn older_row(key: &str, order: Order) -> Bytes {
    row(b'v', &[&escape(key), END, order.to_string().as_bytes()])
}

/// Key, escaped, and order of the rest of a row of versions after its class.
pub fn older_of(rest: &Bytes) -> Option<(Bytes, Order)> {
    let end = rest.len().checked_sub(Order::TEXT)?;
    let order = std::str::from_utf8(&rest[end..]).ok().and_then(Order::parse)?;
    let key = rest[..end].strip_suffix(END)?.len();
    Some((rest.slice(..key), order))
}

pub fn upload_row(key: &str, upload: &str) -> Bytes {
    row(b'u', &[&escape(key), END, upload.as_bytes()])
}

/// What all parts' rows of an upload begin with.
pub fn parts_prefix(key: &str, upload: &str) -> Bytes {
    row(b'p', &[&escape(key), END, upload.as_bytes(), b" "])
}

pub fn part_row(key: &str, upload: &str, number: u32) -> Bytes {
    let number = format!("{number:05}");
    row(b'p', &[&parts_prefix(key, upload)[1..], number.as_bytes()])
}

pub fn intent_row(tag: Tag) -> Bytes {
    row(b'i', &[tag.to_string().as_bytes()])
}

pub fn garbage_row(tag: Tag) -> Bytes {
    row(b'g', &[tag.to_string().as_bytes()])
}

pub fn dirty_row(changed: &[u8]) -> Bytes {
    row(b'd', &[changed])
}

pub fn spare_row(shard: &str) -> Bytes {
    row(b't', &[shard.as_bytes()])
}

/// The escaped key that a row of [`KEYED`] belongs to.
pub fn key_of(row: &Bytes) -> Bytes {
    let end = row.windows(END.len()).position(|w| w == END);
    row.slice(1..end.unwrap_or(row.len()))
}

/// The tag of a row of intents or garbage.
pub fn tag_of(row: &[u8]) -> Option<Tag> {
    let bytes = hex::decode(row.get(1..)?).ok()?;
    Some(Tag(bytes.try_into().ok()?))
}

/// Upload and key of a row of uploads.
pub fn upload_of(row: &[u8]) -> Option<(String, String)> {
    let key = unescape(row.get(1..)?)?;
    let upload = row.get(1 + escape(&key).len() + END.len()..)?;
    Some((key, String::from_utf8(upload.to_vec()).ok()?))
}

/// Classes of rows that belong to keys, and move when a shard is split.
pub const KEYED: [u8; 5] = *b"epuhv";

pub fn is_keyed(row: &[u8]) -> bool {
    row.first().is_some_and(|c| KEYED.contains(c))
}

/// Of versions: a shard that has some says so in its state.
pub fn is_of_versions(row: &[u8]) -> bool {
    matches!(row.first(), Some(b'h' | b'v'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_ordered_as_their_keys(a in "[\\x00-\\x02a/é]{0,6}", b in "[\\x00-\\x02a/é]{0,6}") {
            prop_assert_eq!(entry_row(&a).cmp(&entry_row(&b)), a.as_bytes().cmp(b.as_bytes()));
            // What belongs to a key is on the same side of another key as the key itself.
            let border = row(b'p', &[&escape(&b)]);
            prop_assert_eq!(part_row(&a, "u", 7) < border, a.as_bytes() < b.as_bytes());
            prop_assert_eq!(unescape(&escape(&a)), Some(a.clone()));
            let mut again = b.clone();
            prop_assert!(unescape_into(&escape(&a), &mut again) && again == a);
            prop_assert_eq!(key_of(&part_row(&a, "u", 7)), escape(&a));
            prop_assert_eq!(key_of(&entry_row(&a)), escape(&a));
            let order = Order::new(1, 2);
            let older = older_row(&a, order);
            prop_assert_eq!(older_of(&older.slice(1..)), Some((escape(&a), order)));
            prop_assert_eq!(older < row(b'v', &[&escape(&b)]), a.as_bytes() < b.as_bytes());
            prop_assert_eq!(key_of(&older), escape(&a));
            prop_assert_eq!(upload_of(&upload_row(&a, "id")), Some((a, "id".to_string())));
        }
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        let tag = Tag([7; 16]);
        let split = Split {
            mid: Bytes::from_static(b"m"),
            target: "t".into(),
            copier: 3,
            since: 4,
        };
        for phase in [
            Phase::Open,
            Phase::Closed { deletion: 2 },
            Phase::Filling { copier: 9 },
            Phase::Copying(split.clone()),
            Phase::Frozen(split),
        ] {
            let mut state = State {
                version: 1,
                end: Some(Bytes::from_static(b"z")),
                next: None,
                phase,
                versions: false,
            };
            assert_eq!(state.to_bytes()[..2], [1, 1]);
            assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state.clone()));
            state.versions = true;
            assert_eq!(state.to_bytes()[..2], [2, 2]);
            assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state));
        }
        for place in [Place::STANDARD, Place(7)] {
            for data in [Data::None, Data::Stripes(tag, place), Data::Manifest(tag, place)] {
                let garbage = Garbage {
                    since: 5,
                    data,
                    size: Some(6),
                };
                assert_eq!(Garbage::from_bytes(&garbage.to_bytes()), Ok(garbage));
            }
            let intent = Intent { until: 8, place };
            let bytes = intent.to_bytes();
            // What is of before is as it was; what is not is refused by who does not know of it.
            let version = if place == Place::STANDARD { 1 } else { 2 };
            assert_eq!(bytes[..2], [version, version]);
            assert_eq!(Intent::from_bytes(&bytes), Ok(intent));
            let kind = Data::Stripes(tag, place).to_bytes()[0];
            assert_eq!(kind, if place == Place::STANDARD { 1 } else { 3 });
        }
        let there = Piece::new(9, tag);
        let moved = Piece {
            first: 3,
            origin: Tag([1; 16]),
            ..there.clone()
        };
        for (piece, version) in [(there, 1), (moved, 2)] {
            assert_eq!(piece.to_bytes()[..2], [version, version]);
            assert_eq!(Piece::from_bytes(&piece.to_bytes()), Ok(piece));
        }
        for class in ["", "COLD"] {
            let attributes = Attributes {
                class: class.into(),
                public_read: true,
                ..Attributes::default()
            };
            let bytes = attributes.to_bytes();
            assert_eq!(bytes[0], if class.is_empty() { 1 } else { 2 });
            assert_eq!(Attributes::from_bytes(&bytes), Ok(attributes));
        }
        assert_eq!(tag_of(&garbage_row(tag)), Some(tag));
        let mut text = String::new();
        assert!(!unescape_into(b"a\xff", &mut text) && !unescape_into(b"\0\xff\xff", &mut text));
        assert!(Garbage::from_bytes(&Bytes::from_static(b"\x01\x01\x01\0\0\0\x07")).is_err());
    }
}
