//! What both ends of a connection share: frames in and out, the transcripts that signatures cover, the
//! sequence numbers of a lossy session, keepalive.

use crate::frame::{Limits, Tag};
use crate::gcm::Gcm;
use crate::output::Output;
use crate::reader::{Frame, FrameReader};
use crate::writer::FrameWriter;
use crate::{Error, Message, Revision, features};
use auth::CryptoKey;
use bytes::{Bytes, BytesMut};
use denc::{Decode, Reader};

const BANNER: &[u8; 8] = b"ceph v2\n";
/// Banner and length of what follows.
const BANNER_HEAD: usize = 10;
/// The two feature words.
const BANNER_PAYLOAD: usize = 16;
/// A later release may say more; we skip it.
const BANNER_PAYLOAD_MAX: usize = 256;

/// Signature of a side without session key.
pub(crate) const NO_SIGNATURE: [u8; 32] = [0; 32];

pub(crate) struct Link {
    pub reader: FrameReader,
    writer: FrameWriter,
    pub out: Output,
    /// Raw bytes sent, for the peer's signature, until authentication is done.
    sent: Option<Vec<u8>>,
    msgr2_features: u64,
    in_seq: u64,
    out_seq: u64,
}

impl Link {
    /// A link that has said its banner.
    pub fn new(msgr2_features: u64) -> Self {
        let mut link = Self {
            reader: FrameReader::new(),
            writer: FrameWriter::new(),
            out: Output::default(),
            sent: Some(Vec::new()),
            msgr2_features,
            in_seq: 0,
            out_seq: 0,
        };
        let mut banner = BANNER.to_vec();
        banner.extend_from_slice(&(BANNER_PAYLOAD as u16).to_le_bytes());
        banner.extend_from_slice(&msgr2_features.to_le_bytes());
        banner.extend_from_slice(&0u64.to_le_bytes());
        link.put_raw(&banner);
        link
    }

    fn put_raw(&mut self, b: &[u8]) {
        self.out.put(b);
        if let Some(s) = &mut self.sent {
            s.extend_from_slice(b);
        }
    }

    /// Takes the peer's banner once it is whole, and settles the revision; false if there is more to come.
    pub fn read_banner(&mut self) -> Result<bool, Error> {
        let have = self.reader.peek_raw();
        let n = have.len().min(BANNER.len());
        // A v1 peer says 9 bytes and waits: it must be refused on what is there.
        if have[..n] != BANNER[..n] {
            return Err(Error::NotV2);
        }
        if have.len() < BANNER_HEAD {
            return Ok(false);
        }
        let len = u16::from_le_bytes([have[8], have[9]]) as usize;
        if !(BANNER_PAYLOAD..=BANNER_PAYLOAD_MAX).contains(&len) {
            return Err(Error::BannerLength(len));
        }
        let Some(banner) = self.reader.take_raw(BANNER_HEAD + len) else {
            return Ok(false);
        };
        let word = |at: usize| {
            let mut b = [0; 8];
            b.copy_from_slice(&banner[at..at + 8]);
            u64::from_le_bytes(b)
        };
        let (supported, required) = (word(10), word(18));
        let missing = required & !self.msgr2_features;
        if missing != 0 {
            return Err(Error::MessengerFeatures(missing));
        }
        let revision = match supported & self.msgr2_features & features::MSGR2_REVISION_1 {
            0 => Revision::V20,
            _ => Revision::V21,
        };
        self.reader.revision = revision;
        self.writer.revision = revision;
        Ok(true)
    }

    pub fn send_control(&mut self, tag: Tag, payload: &[u8]) -> Result<(), Error> {
        if self.sent.is_none() {
            return self.writer.frame(&mut self.out, tag, payload, Default::default());
        }
        let mut one = Output::default();
        self.writer.frame(&mut one, tag, payload, Default::default())?;
        self.put_raw(&one.take());
        Ok(())
    }

    /// Ends both transcripts: gives our signature, and what the peer's must be.
    pub fn sign(&mut self, key: Option<&CryptoKey>) -> ([u8; 32], [u8; 32]) {
        let received = self.reader.take_record();
        let sent = self.sent.take().unwrap_or_default();
        match key {
            Some(k) => (k.sign(&received), k.sign(&sent)),
            None => (NO_SIGNATURE, NO_SIGNATURE),
        }
    }

    /// From the next frame on, both ways.
    pub fn set_secure(&mut self, receive: Gcm, send: Gcm) {
        self.reader.set_secure(Some(receive));
        self.writer.set_secure(Some(send));
    }

    pub fn revision(&self) -> Revision {
        self.reader.revision
    }

    pub fn open_session(&mut self, limits: Limits) {
        self.reader.open_session(limits);
    }

    pub fn send_message(&mut self, m: Message) -> Result<(), Error> {
        self.out_seq += 1;
        self.put_message(m, self.out_seq, self.in_seq)
    }

    /// A message under a number that its session gave it.
    pub fn put_message(&mut self, m: Message, seq: u64, ack: u64) -> Result<(), Error> {
        let header = m.header(seq, ack);
        let rest = [m.front, m.middle, m.data];
        self.writer.frame(&mut self.out, Tag::Message, &header, rest)
    }

    /// A frame of an open session; gives its message, if it is one to be handed on.
    pub fn session_frame(&mut self, frame: Frame) -> Result<Option<Message>, Error> {
        match frame.tag {
            Tag::Message => {
                let (seq, message) = Message::from_segments(frame.segments);
                // What was seen already is dropped; gaps are legal.
                if seq <= self.in_seq {
                    return Ok(None);
                }
                self.in_seq = seq;
                Ok(Some(message))
            }
            Tag::Keepalive2 => {
                let stamp = frame.segments[0].clone();
                decode::<types::Utime>(Tag::Keepalive2, &stamp)?;
                self.send_control(Tag::Keepalive2Ack, &stamp[..8])?;
                Ok(None)
            }
            // A lossy session resends nothing, so acknowledgements mean nothing.
            Tag::Keepalive2Ack | Tag::Ack => Ok(None),
            tag => Err(Error::Unexpected {
                tag,
                state: "the session is open",
            }),
        }
    }

    /// Where received bytes belong, and how many at most.
    pub fn read_target(&mut self) -> (&mut BytesMut, usize) {
        self.reader.target()
    }

    /// Appends received bytes by copying.
    pub fn feed(&mut self, b: &[u8]) {
        self.reader.feed(b)
    }
}

/// Decodes a control frame's payload; what follows it is ignored.
pub(crate) fn decode<T: Decode>(tag: Tag, payload: &Bytes) -> Result<T, Error> {
    T::decode(&mut Reader::new(payload.clone())).map_err(|source| Error::Malformed { tag, source })
}
