//! Frames to bytes, in both revisions and both modes. The mirror of `reader`.

use crate::frame::{PREAMBLE_LEN, Preamble, SEGMENT_SEED, Tag, padded};
use crate::gcm::Gcm;
use crate::output::Output;
use crate::reader::{EPILOGUE_SECURE, INLINE_LEN};
use crate::{Error, Revision};
use bytes::{Bytes, BytesMut};
use types::checksum::crc32c;

/// Epilogue status of a complete 2.1 frame.
const COMPLETE: u8 = 0x0e;

pub(crate) struct FrameWriter {
    pub revision: Revision,
    gcm: Option<Gcm>,
}

fn crc(b: &[u8]) -> [u8; 4] {
    crc32c(SEGMENT_SEED, b).to_le_bytes()
}

impl FrameWriter {
    pub fn new() -> Self {
        Self {
            revision: Revision::V21,
            gcm: None,
        }
    }

    pub fn set_secure(&mut self, gcm: Option<Gcm>) {
        self.gcm = gcm;
    }

    /// Appends one frame. `head` is segment 0; `rest` the others, kept as they are in crc mode.
    pub fn frame(&mut self, out: &mut Output, tag: Tag, head: &[u8], rest: [Bytes; 3]) -> Result<(), Error> {
        let p = Preamble::new(tag, [head.len(), rest[0].len(), rest[1].len(), rest[2].len()]);
        match (&mut self.gcm, self.revision) {
            (None, Revision::V21) => crc21(out, &p, head, rest),
            (None, Revision::V20) => crc20(out, &p, head, rest),
            (Some(g), Revision::V21) => return secure21(g, out, &p, head, rest),
            (Some(g), Revision::V20) => return secure20(g, out, &p, head, rest),
        }
        Ok(())
    }
}

fn crc21(out: &mut Output, p: &Preamble, head: &[u8], rest: [Bytes; 3]) {
    out.put(&p.encode());
    if !head.is_empty() {
        out.put(head);
        out.put(&crc(head));
    }
    if p.count == 1 {
        return;
    }
    let mut epilogue = [0; 13];
    epilogue[0] = COMPLETE;
    for (i, seg) in rest.into_iter().enumerate().take(p.count - 1) {
        epilogue[1 + 4 * i..5 + 4 * i].copy_from_slice(&crc(&seg));
        out.put_bytes(seg);
    }
    out.put(&epilogue);
}

fn crc20(out: &mut Output, p: &Preamble, head: &[u8], rest: [Bytes; 3]) {
    let mut epilogue = [0; 17];
    out.put(&p.encode());
    out.put(head);
    epilogue[1..5].copy_from_slice(&crc(head));
    for (i, seg) in rest.into_iter().enumerate().take(p.count - 1) {
        epilogue[5 + 4 * i..9 + 4 * i].copy_from_slice(&crc(&seg));
        out.put_bytes(seg);
    }
    out.put(&epilogue);
}

/// Appends `b` and zeros up to the cipher's block.
fn put_padded(buf: &mut BytesMut, b: &[u8]) {
    buf.extend_from_slice(b);
    buf.resize(buf.len() + padded(b.len()) - b.len(), 0);
}

/// Encrypts what `buf` holds from `at` on and appends the tag.
fn seal_from(gcm: &mut Gcm, buf: &mut BytesMut, at: usize) -> Result<(), Error> {
    let tag = gcm.seal(&mut buf[at..])?;
    buf.extend_from_slice(&tag);
    Ok(())
}

fn secure21(
    gcm: &mut Gcm,
    out: &mut Output,
    p: &Preamble,
    head: &[u8],
    rest: [Bytes; 3],
) -> Result<(), Error> {
    let total: usize = p.lens.iter().map(|l| padded(*l)).sum();
    let mut buf = BytesMut::with_capacity(PREAMBLE_LEN + INLINE_LEN + total + EPILOGUE_SECURE + 48);
    buf.extend_from_slice(&p.encode());
    let inline = head.len().min(INLINE_LEN);
    buf.extend_from_slice(&head[..inline]);
    buf.resize(PREAMBLE_LEN + INLINE_LEN, 0);
    seal_from(gcm, &mut buf, 0)?;
    if padded(head.len()) > INLINE_LEN {
        let at = buf.len();
        put_padded(&mut buf, &head[INLINE_LEN..]);
        seal_from(gcm, &mut buf, at)?;
    }
    if p.count > 1 {
        let at = buf.len();
        for seg in &rest {
            put_padded(&mut buf, seg);
        }
        put_padded(&mut buf, &[COMPLETE]);
        seal_from(gcm, &mut buf, at)?;
    }
    out.put_bytes(buf.freeze());
    Ok(())
}

fn secure20(
    gcm: &mut Gcm,
    out: &mut Output,
    p: &Preamble,
    head: &[u8],
    rest: [Bytes; 3],
) -> Result<(), Error> {
    let mut buf = BytesMut::from(&p.encode()[..]);
    put_padded(&mut buf, head);
    for seg in &rest {
        put_padded(&mut buf, seg);
    }
    put_padded(&mut buf, &[0]);
    seal_from(gcm, &mut buf, 0)?;
    out.put_bytes(buf.freeze());
    Ok(())
}
