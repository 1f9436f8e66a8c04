//! Ceph's encoding rules: a bounded reader, a writer, and versioned envelopes.
//!
//! Vocabulary: a *reader* walks received bytes and never reads past its bound; a *writer* appends to a
//! growing buffer and carries the connection's feature bits, which some encodings depend on; an
//! *envelope* is `u8 version, u8 compat, u32 length, body` (docs/protocol/ceph/01-messenger.md, 1.1).
//!
//! Invariants: every decoder consumes bounded memory (a count is checked against the bytes that remain
//! before anything is allocated for it), and every error names the offset at which it was found.
//! All integers are little-endian.
//!
//! Not here: what the bytes mean. Types live in `types`, message bodies in `messages`.

mod impls;
mod reader;
mod writer;

pub use bytes::{Bytes, BytesMut};
pub use reader::{Envelope, Error, Reader, Result};
pub use writer::Writer;

/// Writes itself in wire form. Encodings that depend on the peer look at [`Writer::features`].
pub trait Encode {
    fn encode(&self, w: &mut Writer);

    /// The encoding as a buffer of its own, for all features.
    fn to_bytes(&self) -> Bytes {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.finish()
    }
}

/// Reads itself from wire form; every byte is untrusted.
pub trait Decode: Sized {
    fn decode(r: &mut Reader) -> Result<Self>;

    /// The fewest bytes one value can take: the bound for element counts. 1 is always safe.
    const MIN_SIZE: usize = 1;

    /// Decodes from `bytes`; what follows the value is ignored, as Ceph's decoders do.
    fn from_bytes(bytes: &Bytes) -> Result<Self> {
        Self::decode(&mut Reader::new(bytes.clone()))
    }
}

/// `Encode` and `Decode` for a struct whose fields follow each other without an envelope.
#[macro_export]
macro_rules! plain_denc {
    ($t:ty { $($f:ident),* $(,)? }) => {
        impl $crate::Encode for $t {
            fn encode(&self, w: &mut $crate::Writer) { $( $crate::Encode::encode(&self.$f, w); )* }
        }
        impl $crate::Decode for $t {
            fn decode(r: &mut $crate::Reader) -> $crate::Result<Self> {
                $( let $f = $crate::Decode::decode(r)?; )*
                Ok(Self { $($f),* })
            }
        }
    };
}

/// `Encode` and `Decode` for a struct in one envelope: `envelope_denc!(T, version, compat { a, b })`.
/// All fields must exist since `compat`; a struct whose fields came later is written by hand.
#[macro_export]
macro_rules! envelope_denc {
    ($t:ty, $v:expr, $c:expr, { $($f:ident),* $(,)? }) => {
        impl $crate::Encode for $t {
            fn encode(&self, w: &mut $crate::Writer) {
                w.envelope($v, $c, |w| { let _ = &w; $( $crate::Encode::encode(&self.$f, w); )* });
            }
        }
        impl $crate::Decode for $t {
            fn decode(r: &mut $crate::Reader) -> $crate::Result<Self> {
                r.envelope($v, |_v, r| { let _ = &r; $( let $f = $crate::Decode::decode(r)?; )* Ok(Self { $($f),* }) })
            }
        }
    };
}
