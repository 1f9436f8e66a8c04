//! Received bytes to frames, in both revisions and both modes.
//!
//! Memory for a body is taken only after the preamble has passed its checksum and the limits (`intake`).

use crate::frame::{
    CONTROL_FRAME_MAX, HEADER_LEN, Limits, PREAMBLE_LEN, Preamble, SEGMENT_SEED, Tag, padded,
};
use crate::gcm::{Gcm, TAG_LEN};
use crate::intake::Intake;
use crate::{Error, Revision};
use bytes::{Bytes, BytesMut};
use types::checksum::crc32c;

/// All that is received before authentication is done, and kept until then for the signature. The recorded
/// clients of 16.2.15 say 252 bytes to a monitor and 542 to an OSD, with their ticket twice; long capabilities fill a frame.
pub const TRANSCRIPT_MAX: usize = 3 * CONTROL_FRAME_MAX;
/// Bytes of segment 0 that ride in the first block of a secure 2.1 frame.
pub(crate) const INLINE_LEN: usize = 48;
pub(crate) const EPILOGUE_SECURE: usize = 16;

/// A whole frame; absent segments are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub tag: Tag,
    pub segments: [Bytes; 4],
}

struct Body {
    preamble: Preamble,
    inline: Bytes,
}

pub(crate) struct FrameReader {
    intake: Intake,
    body: Option<Body>,
    pub revision: Revision,
    gcm: Option<Gcm>,
    /// Messages are accepted within these; `None` until the session is open.
    limits: Option<Limits>,
    /// Raw bytes consumed, for the signature, until authentication is done.
    record: Option<Vec<u8>>,
}

impl FrameReader {
    pub fn new() -> Self {
        Self {
            intake: Intake::default(),
            body: None,
            revision: Revision::V21,
            gcm: None,
            limits: None,
            record: Some(Vec::new()),
        }
    }

    pub fn set_secure(&mut self, gcm: Option<Gcm>) {
        self.gcm = gcm;
    }

    pub fn open_session(&mut self, limits: Limits) {
        self.limits = Some(limits);
        self.intake.open_session();
    }

    /// Ends the transcript and gives it.
    pub fn take_record(&mut self) -> Vec<u8> {
        self.record.take().unwrap_or_default()
    }

    fn note(record: &mut Option<Vec<u8>>, b: &[u8]) {
        if let Some(r) = record {
            r.extend_from_slice(b);
        }
    }

    /// A frame of this body may still become part of the transcript.
    fn check_record(&self, need: usize) -> Result<(), Error> {
        let len = self.record.as_ref().map_or(0, |r| r.len() + need);
        match len > TRANSCRIPT_MAX && self.limits.is_none() {
            true => Err(Error::TooLong {
                what: "handshake",
                len,
                max: TRANSCRIPT_MAX,
            }),
            false => Ok(()),
        }
    }

    /// Where received bytes belong, and how many at most: more than none, once [`Self::next_frame`] has
    /// said that it has no frame.
    pub fn target(&mut self) -> (&mut BytesMut, usize) {
        self.intake.target()
    }

    /// Appends received bytes by copying.
    pub fn feed(&mut self, b: &[u8]) {
        self.intake.feed(b);
    }

    /// The large frame that is being received: bytes it has, and is to have.
    pub fn large_body(&self) -> Option<(usize, usize)> {
        self.intake.large_body()
    }

    /// The first `n` raw bytes, once they are there (banner).
    pub fn take_raw(&mut self, n: usize) -> Option<BytesMut> {
        let b = self.intake.take(n)?;
        Self::note(&mut self.record, &b);
        Some(b)
    }

    pub fn peek_raw(&self) -> &[u8] {
        &self.intake.buf
    }

    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            if self.body.is_none() && !self.read_head()? {
                return Ok(None);
            }
            let Some(raw) = self.intake.take_body() else {
                return Ok(None);
            };
            Self::note(&mut self.record, &raw);
            let Some(body) = self.body.take() else {
                return Ok(None);
            };
            // A frame that its sender gave up is as if never sent.
            if let Some(frame) = self.parse(body, raw)? {
                return Ok(Some(frame));
            }
        }
    }

    /// Reads a preamble; false if it is not there yet.
    fn read_head(&mut self) -> Result<bool, Error> {
        let secure21 = self.gcm.is_some() && self.revision == Revision::V21;
        let len = match secure21 {
            true => PREAMBLE_LEN + INLINE_LEN + TAG_LEN,
            false => PREAMBLE_LEN,
        };
        if self.intake.buf.len() < len {
            return Ok(false);
        }
        let mut block = [0; PREAMBLE_LEN];
        let mut inline = Bytes::new();
        let mut kept = 0;
        match (&mut self.gcm, self.revision) {
            (None, _) => {
                let head = self.intake.buf.split_to(len);
                Self::note(&mut self.record, &head);
                block.copy_from_slice(&head);
            }
            (Some(gcm), Revision::V21) => {
                let mut head = self.intake.buf.split_to(len);
                gcm.open(&mut head)?;
                block.copy_from_slice(&head[..PREAMBLE_LEN]);
                inline = head.freeze().slice(PREAMBLE_LEN..PREAMBLE_LEN + INLINE_LEN);
            }
            (Some(gcm), Revision::V20) => {
                block.copy_from_slice(&self.intake.buf[..PREAMBLE_LEN]);
                gcm.peek(&mut block)?;
                kept = PREAMBLE_LEN;
            }
        }
        let preamble = Preamble::decode(&block)?;
        preamble.check(self.limits.as_ref())?;
        let need = kept + self.body_len(&preamble);
        self.check_record(need)?;
        // The kept head of a secure 2.0 frame among them.
        self.intake.begin(need);
        self.body = Some(Body { preamble, inline });
        Ok(true)
    }

    fn body_len(&self, p: &Preamble) -> usize {
        let raw: usize = p.lens.iter().sum();
        let padded_all: usize = p.lens.iter().map(|l| padded(*l)).sum();
        match (self.gcm.is_some(), self.revision) {
            (false, Revision::V21) => {
                let crc0 = if p.lens[0] > 0 { 4 } else { 0 };
                raw + crc0 + if p.count > 1 { 13 } else { 0 }
            }
            (false, Revision::V20) => raw + 17,
            (true, Revision::V20) => padded_all + EPILOGUE_SECURE + TAG_LEN,
            (true, Revision::V21) => {
                let first = padded(p.lens[0]);
                let second = match first > INLINE_LEN {
                    true => first - INLINE_LEN + TAG_LEN,
                    false => 0,
                };
                let third = match p.count > 1 {
                    true => padded_all - first + EPILOGUE_SECURE + TAG_LEN,
                    false => 0,
                };
                second + third
            }
        }
    }

    fn parse(&mut self, body: Body, raw: BytesMut) -> Result<Option<Frame>, Error> {
        let p = body.preamble;
        let segments = match (&mut self.gcm, self.revision) {
            (None, Revision::V21) => parse_crc21(&p, raw.freeze())?,
            (None, Revision::V20) => parse_crc20(&p, raw.freeze())?,
            (Some(g), Revision::V21) => parse_secure21(g, &p, body.inline, raw)?,
            (Some(g), Revision::V20) => parse_secure20(g, &p, raw)?,
        };
        Ok(segments.map(|segments| Frame { tag: p.tag, segments }))
    }
}

type Segments = Option<[Bytes; 4]>;

/// Consecutive segments from `at` on, `pad` telling their lengths on the wire.
fn cut(
    raw: &Bytes,
    p: &Preamble,
    from: usize,
    mut at: usize,
    pad: fn(usize) -> usize,
) -> ([Bytes; 4], usize) {
    let mut out: [Bytes; 4] = Default::default();
    for (i, seg) in out.iter_mut().enumerate().skip(from) {
        *seg = raw.slice(at..at + p.lens[i]);
        at += pad(p.lens[i]);
    }
    (out, at)
}

fn check_crc(i: usize, seg: &[u8], field: &[u8]) -> Result<(), Error> {
    if field != crc32c(SEGMENT_SEED, seg).to_le_bytes() {
        return Err(Error::SegmentCrc(i));
    }
    Ok(())
}

/// Revision 2.1: low nibble 0xe is complete, 0x1 given up.
fn completed(status: u8) -> Result<bool, Error> {
    match status & 0xf {
        0xe => Ok(true),
        0x1 => Ok(false),
        _ => Err(Error::LateStatus(status)),
    }
}

fn parse_crc21(p: &Preamble, raw: Bytes) -> Result<Segments, Error> {
    let n = p.lens[0];
    let first = raw.slice(..n);
    let mut at = n;
    if n > 0 {
        check_crc(0, &first, &raw[n..n + 4])?;
        at += 4;
    }
    let (mut segments, at) = cut(&raw, p, 1, at, |n| n);
    segments[0] = first;
    if p.count > 1 {
        let epilogue = &raw[at..at + 13];
        if !completed(epilogue[0])? {
            return Ok(None);
        }
        for i in 1..p.count {
            check_crc(i, &segments[i], &epilogue[4 * i - 3..4 * i + 1])?;
        }
    }
    Ok(Some(segments))
}

fn parse_crc20(p: &Preamble, raw: Bytes) -> Result<Segments, Error> {
    let (segments, at) = cut(&raw, p, 0, 0, |n| n);
    let epilogue = &raw[at..at + 17];
    if epilogue[0] & 1 != 0 {
        return Ok(None);
    }
    for (i, seg) in segments.iter().enumerate().take(p.count) {
        check_crc(i, seg, &epilogue[1 + 4 * i..5 + 4 * i])?;
    }
    Ok(Some(segments))
}

fn parse_secure21(gcm: &mut Gcm, p: &Preamble, inline: Bytes, mut raw: BytesMut) -> Result<Segments, Error> {
    let n = p.lens[0];
    let mut first = inline.slice(..n.min(INLINE_LEN));
    if padded(n) > INLINE_LEN {
        let mut rest = raw.split_to(padded(n) - INLINE_LEN + TAG_LEN);
        gcm.open(&mut rest)?;
        // Only control frames have a long segment 0, so this copies little.
        let mut whole = BytesMut::from(&inline[..]);
        whole.extend_from_slice(&rest[..rest.len() - TAG_LEN]);
        first = whole.freeze().slice(..n);
    }
    debug_assert!(p.tag != Tag::Message || n == HEADER_LEN);
    debug_assert!(n <= CONTROL_FRAME_MAX);
    if p.count == 1 {
        return Ok(Some([first, Bytes::new(), Bytes::new(), Bytes::new()]));
    }
    gcm.open(&mut raw)?;
    let raw = raw.freeze();
    let (mut segments, at) = cut(&raw, p, 1, 0, padded);
    segments[0] = first;
    Ok(completed(raw[at])?.then_some(segments))
}

fn parse_secure20(gcm: &mut Gcm, p: &Preamble, mut raw: BytesMut) -> Result<Segments, Error> {
    gcm.open(&mut raw)?;
    let raw = raw.freeze();
    let (segments, at) = cut(&raw, p, 0, PREAMBLE_LEN, padded);
    Ok((raw[at] & 1 == 0).then_some(segments))
}
