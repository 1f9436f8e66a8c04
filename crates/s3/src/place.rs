//! Where data are: what entries, parts and garbage have of it, and manifests. Who refers to data has all of it, so that nobody looks in the wrong pool.

use denc::{Decode, Encode, Reader, Writer};
use std::fmt;

/// Bytes of an object in the data pool, but for the last one.
pub const STRIPE: u64 = 4 << 20;

/// Names data for all time: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tag(pub [u8; 16]);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for Tag {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}

impl Decode for Tag {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self(r.array()?))
    }
    const MIN_SIZE: usize = 16;
}

/// In which pool data are: the number of a storage class (`classes`); 0: in that of STANDARD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

impl Place {
    pub const STANDARD: Self = Self(0);
}

impl Encode for Place {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.0);
    }
}

impl Decode for Place {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self(r.u32()?))
    }
    const MIN_SIZE: usize = 4;
}

/// Where an object's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// It has none.
    None,
    /// `TAG.0`, `TAG.1` and so on.
    Stripes(Tag, Place),
    /// `TAG.m` lists pieces, which are in the same pool.
    Manifest(Tag, Place),
}

impl Data {
    pub fn place(&self) -> Place {
        match self {
            Self::None => Place::STANDARD,
            Self::Stripes(_, place) | Self::Manifest(_, place) => *place,
        }
    }
}

impl Encode for Data {
    /// Who does not know of places would look for them in the wrong pool: the kinds of data elsewhere are others.
    fn encode(&self, w: &mut Writer) {
        let (kind, tag, place) = match self {
            Self::None => return w.u8(0),
            Self::Stripes(tag, place) => (1, tag, *place),
            Self::Manifest(tag, place) => (2, tag, *place),
        };
        let elsewhere = place != Place::STANDARD;
        w.u8(if elsewhere { kind + ELSEWHERE } else { kind });
        w.put(tag);
        if elsewhere {
            w.put(&place);
        }
    }
}

/// What the kinds of data are more that are not in the pool of STANDARD.
const ELSEWHERE: u8 = 2;
/// The last of the kinds of data.
pub const KINDS: u8 = 2 + ELSEWHERE;

impl Decode for Data {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        match r.u8()? {
            0 => Ok(Self::None),
            1 => Ok(Self::Stripes(r.get()?, Place::STANDARD)),
            2 => Ok(Self::Manifest(r.get()?, Place::STANDARD)),
            3 => Ok(Self::Stripes(r.get()?, r.get()?)),
            4 => Ok(Self::Manifest(r.get()?, r.get()?)),
            _ => Err(r.invalid("kind of data")),
        }
    }
}

/// One piece of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub size: u64,
    pub tag: Tag,
    /// The number of its first stripe under that tag: not 0 where several pieces were moved to one tag.
    pub first: u64,
    /// The tag that it was sealed under, if it was, before it was moved; else that tag.
    pub origin: Tag,
}

pub const WITH_ORIGIN: u8 = 2;

impl Encode for Piece {
    /// Who does not know of pieces that were moved would read others' bytes.
    fn encode(&self, w: &mut Writer) {
        let moved = self.first != 0 || self.origin != self.tag;
        let version = if moved { WITH_ORIGIN } else { 1 };
        w.envelope(version, version, |w| {
            w.put(&self.size);
            w.put(&self.tag);
            if moved {
                w.put(&self.first);
                w.put(&self.origin);
            }
        });
    }
}

impl Decode for Piece {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_ORIGIN, |version, r| {
            let piece = Self::new(r.get()?, r.get()?);
            Ok(match version < WITH_ORIGIN {
                true => piece,
                false => Self {
                    first: r.get()?,
                    origin: r.get()?,
                    ..piece
                },
            })
        })
    }
}

impl Piece {
    /// One that is where it was written.
    pub fn new(size: u64, tag: Tag) -> Self {
        Self {
            size,
            tag,
            first: 0,
            origin: tag,
        }
    }

    /// How many stripes it has.
    pub fn stripes(&self) -> u64 {
        self.size.div_ceil(STRIPE)
    }

    /// Bytes of one of them, as they are read.
    pub fn stripe_size(&self, stripe: u64) -> u64 {
        (self.size - stripe * STRIPE).min(STRIPE)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    pub pieces: Vec<Piece>,
}

denc::envelope_denc!(Manifest, 1, 1, { pieces });
