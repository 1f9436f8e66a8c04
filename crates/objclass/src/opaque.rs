//! A versioned struct that is kept and passed on as it came, and a number that takes no more bytes than it needs.

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};

/// An envelope, whole; what is in it is not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opaque(pub Bytes);

/// Version, compat, length.
const HEAD: usize = 6;

impl Encode for Opaque {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}

impl Decode for Opaque {
    const MIN_SIZE: usize = HEAD;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        let (versions, len) = (r.array::<2>()?, r.u32()?);
        let body = r.bytes(len as usize)?;
        Ok(Self(
            [&versions, &len.to_le_bytes()[..], &body[..]].concat().into(),
        ))
    }
}

/// A number below 128 in one byte; else 0x80 and the number of bytes that follow: 1, 2, 4 or 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packed(pub u64);

impl Encode for Packed {
    fn encode(&self, w: &mut Writer) {
        match self.0 {
            n @ 0..0x80 => w.u8(n as u8),
            n @ 0x80..0x100 => {
                w.u8(0x81);
                w.u8(n as u8);
            }
            n @ 0x100..0x1_0000 => {
                w.u8(0x82);
                w.u16(n as u16);
            }
            n @ 0x1_0000..=0x100_0000 => {
                w.u8(0x84);
                w.u32(n as u32);
            }
            n => {
                w.u8(0x88);
                w.u64(n);
            }
        }
    }
}

impl Decode for Packed {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self(match r.u8()? {
            n @ 0..=0x7f => n.into(),
            0x81 => r.u8()?.into(),
            0x82 => r.u16()?.into(),
            0x84 => r.u32()?.into(),
            0x88 => r.u64()?,
            _ => return Err(r.invalid("length of a packed number")),
        }))
    }
}
