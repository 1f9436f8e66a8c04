//! What a peer did wrong. Every one of these closes the connection, with one log line.

use crate::frame::Tag;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("not a messenger v2 banner")]
    NotV2,
    #[error("not a messenger v1 banner")]
    NotV1,
    /// Over messenger v1.
    #[error("{0}")]
    V1(String),
    #[error("the peer said that it closes")]
    Closed,
    #[error("signature of a message is wrong or missing")]
    MessageSignature,
    #[error("banner of {0} bytes")]
    BannerLength(usize),
    #[error("peer requires messenger features {0:#x} that we lack")]
    MessengerFeatures(u64),
    #[error("preamble checksum is wrong")]
    PreambleCrc,
    #[error("checksum of segment {0} is wrong")]
    SegmentCrc(usize),
    #[error("frame of unknown tag {0}")]
    UnknownTag(u8),
    #[error("compressed frame without negotiation")]
    Compressed,
    #[error("frame with {0} segments")]
    SegmentCount(u8),
    #[error("last counted segment is empty")]
    EmptyTail,
    #[error("{what} of {len} bytes, limit {max}")]
    TooLong {
        what: &'static str,
        len: usize,
        max: usize,
    },
    #[error("late status {0:#x}")]
    LateStatus(u8),
    #[error("message header of {0} bytes")]
    HeaderLength(usize),
    #[error("{tag:?} while {state}")]
    Unexpected { tag: Tag, state: &'static str },
    #[error("malformed {tag:?}: {source}")]
    Malformed {
        tag: Tag,
        #[source]
        source: denc::Error,
    },
    #[error("frame cannot be decrypted")]
    Decrypt,
    #[error("nonces are used up")]
    NoncesUsedUp,
    #[error("authentication: {0}")]
    Auth(String),
    /// Not the peer's fault: this server sends everybody to another one.
    #[error("sent elsewhere: {0}")]
    Elsewhere(String),
    #[error("{0} attempts without success")]
    TooManyAttempts(u32),
    #[error("peer's signature of the handshake is wrong")]
    Signature,
    #[error("{0}")]
    Ident(String),
    #[error("send before the session is open")]
    NotReady,
    /// Another connection carries its session now, or there is none any more.
    #[error("its session has left it")]
    Displaced,
    #[error("{0} lossless sessions are held, and no more are kept")]
    TooManySessions(usize),
}
