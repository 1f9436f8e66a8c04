//! Bodies in chunks (`aws-chunked`), made of smaller ones. The library keeps a chunk until it has all of it, however large it is,
//! and clients that know the length send all of an object as one.
//!
//! ```text
//! SIZE [;chunk-signature=...] CR LF  bytes  CR LF  ...  0 ... CR LF  trailers
//! ```
//!
//! A chunk without a signature is passed on as it comes, as a chunk for each frame. One that is signed has to stay whole, and
//! has at most [`SIGNED_MAX`] bytes. All together have no more than was announced.

use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Clients make signed chunks of 64 KiB to 1 MiB.
pub const SIGNED_MAX: u64 = 4 << 20;
const LINE_MAX: usize = 1024;
const BORDER: &[u8] = b"\r\n";

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What comes next. `whole`: as it is, since it was signed.
#[derive(Debug, Clone, Copy)]
enum At {
    Line,
    Data { left: u64, whole: bool },
    Border { done: usize, whole: bool },
    End,
}

struct Cutter {
    at: At,
    /// Of what was announced.
    left: u64,
    line: Vec<u8>,
    out: VecDeque<Bytes>,
}

impl Cutter {
    fn feed(&mut self, mut data: Bytes) -> Result<(), Error> {
        while !data.is_empty() {
            self.at = match self.at {
                At::Line => self.line(&mut data)?,
                At::Data { left, whole } => {
                    let n = left.min(data.len() as u64);
                    let piece = data.split_to(n as usize);
                    match whole {
                        true => self.out.push_back(piece),
                        false => {
                            let size = Bytes::from(format!("{n:x}\r\n"));
                            self.out.extend([size, piece, Bytes::from_static(BORDER)]);
                        }
                    }
                    match left - n {
                        0 => At::Border { done: 0, whole },
                        left => At::Data { left, whole },
                    }
                }
                At::Border { done, whole } => {
                    let byte = data.split_to(1);
                    if byte[..] != BORDER[done..=done] {
                        return Err("a chunk of the body does not end where it should".into());
                    }
                    if whole {
                        self.out.push_back(byte);
                    }
                    match done {
                        0 => At::Border { done: 1, whole },
                        _ => At::Line,
                    }
                }
                At::End => {
                    self.out.push_back(data);
                    return Ok(());
                }
            };
        }
        Ok(())
    }

    /// The line before a chunk, or a piece of it.
    fn line(&mut self, data: &mut Bytes) -> Result<At, Error> {
        let end = data.iter().position(|b| *b == b'\n').map(|at| at + 1);
        self.line
            .extend_from_slice(&data.split_to(end.unwrap_or(data.len())));
        if self.line.len() > LINE_MAX {
            return Err("the line before a chunk of the body is too long".into());
        }
        if end.is_none() {
            return Ok(At::Line);
        }
        let line = std::mem::take(&mut self.line);
        let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let (size, rest) = line.split_at(digits);
        let size = std::str::from_utf8(size)
            .ok()
            .and_then(|s| u64::from_str_radix(s, 16).ok());
        let size = size.ok_or("a chunk of the body without a size")?;
        let left = self.left.checked_sub(size);
        self.left = left.ok_or("the chunks of the body have more bytes than were announced")?;
        let whole = rest != BORDER;
        if whole && size > SIGNED_MAX {
            return Err("a signed chunk of a body has at most 4 MiB".into());
        }
        if whole || size == 0 {
            self.out.push_back(line.into());
        }
        Ok(match size {
            0 => At::End,
            left => At::Data { left, whole },
        })
    }
}

pub struct Chunks<B> {
    body: B,
    cutter: Cutter,
}

impl<B> Chunks<B> {
    /// `length`: what was announced of the bytes in its chunks.
    pub fn new(body: B, length: Option<u64>) -> Self {
        Self {
            body,
            cutter: Cutter {
                at: At::Line,
                left: length.unwrap_or(u64::MAX),
                line: Vec::new(),
                out: VecDeque::new(),
            },
        }
    }
}

impl<B> Body for Chunks<B>
where
    B: Body<Data = Bytes, Error = Error> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.cutter.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                Some(Ok(frame)) => {
                    // Trailers of HTTP are none of S3's.
                    if let Ok(data) = frame.into_data()
                        && let Err(e) = this.cutter.feed(data)
                    {
                        return Poll::Ready(Some(Err(e)));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What becomes of it when it comes in pieces of so many bytes.
    fn cut(text: &[u8], n: usize) -> Result<Vec<u8>, String> {
        let mut cutter = Chunks::new((), None).cutter;
        for piece in text.chunks(n) {
            cutter
                .feed(Bytes::copy_from_slice(piece))
                .map_err(|e| e.to_string())?;
        }
        Ok(cutter.out.iter().flatten().copied().collect())
    }

    #[test]
    fn chunks_are_cut_as_they_come() {
        let text = b"a\r\n0123456789\r\n3\r\nabc\r\n0\r\nx-a:b\r\n\r\n";
        assert_eq!(cut(text, 1000).unwrap(), text);
        let small = cut(text, 6).unwrap();
        let want = "3\r\n012\r\n6\r\n345678\r\n1\r\n9\r\n3\r\nabc\r\n0\r\nx-a:b\r\n\r\n";
        assert_eq!(String::from_utf8(small).unwrap(), want);
        let signed = b"3;chunk-signature=00\r\nabc\r\n0;chunk-signature=11\r\n\r\n";
        for n in 1..60 {
            assert_eq!(cut(signed, n).unwrap(), signed, "{n}");
        }
        for bad in [
            &b"3\r\nabcd\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"11111111111111111\r\n",
            b"400001;chunk-signature=0\r\n",
            &[b'1'; 2000],
        ] {
            assert!(cut(bad, 7).is_err(), "{}", bad.escape_ascii());
        }
        assert!(cut(b"400000;chunk-signature=0\r\n", 7).is_ok());
    }

    #[test]
    fn chunks_have_no_more_than_was_announced() {
        let text = b"3\r\nabc\r\n4;chunk-signature=00\r\nabcd\r\n0\r\n\r\n";
        let fed = |length| {
            let mut cutter = Chunks::new((), length).cutter;
            cutter.feed(Bytes::copy_from_slice(text)).is_ok()
        };
        assert!(fed(None) && fed(Some(7)) && fed(Some(8)));
        assert!(!fed(Some(6)) && !fed(Some(0)));
    }

    proptest! {
        #[test]
        fn nothing_is_lost(sizes in proptest::collection::vec(1usize..300, 0..6), n in 1usize..200) {
            let mut text = Vec::new();
            let mut bytes = Vec::new();
            for size in sizes {
                let chunk: Vec<u8> = (0..size).map(|i| (i * 7 + size) as u8).collect();
                text.extend([format!("{size:X}\r\n").as_bytes(), &chunk, BORDER].concat());
                bytes.extend(chunk);
            }
            text.extend(b"0\r\n\r\n");
            // Read back as the chunks that they are.
            let (all, mut got) = (cut(&text, n).unwrap(), Vec::new());
            let mut rest = &all[..];
            loop {
                let end = rest.iter().position(|b| *b == b'\n').unwrap();
                let size = std::str::from_utf8(&rest[..end - 1]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                rest = &rest[end + 1..];
                if size == 0 {
                    break;
                }
                prop_assert!(size <= n);
                got.extend_from_slice(&rest[..size]);
                prop_assert_eq!(&rest[size..size + 2], BORDER);
                rest = &rest[size + 2..];
            }
            prop_assert_eq!(rest, BORDER);
            prop_assert_eq!(got, bytes);
        }
    }
}
