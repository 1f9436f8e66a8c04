//! A browser's form (`multipart/form-data`), read as it comes: fields, then the file, which is the last thing that is looked at.
//!
//! Bounds: fields have [`FIELDS_BYTES`] together and are [`FIELDS_MAX`]; what is said of each [`HEAD_BYTES`]; what follows the file [`AFTER_MAX`]. Of the file nothing is held but what came last.

use super::errors::{coded, invalid};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use hyper::body::Body;
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

const FIELDS_BYTES: usize = 64 << 10;
const FIELDS_MAX: usize = 100;
const HEAD_BYTES: usize = 4 << 10;
/// What follows the file's delimiter, and is not looked at.
pub const AFTER_MAX: u64 = 64 << 10;
/// As RFC 2046 has it.
const BOUNDARY_MAX: usize = 70;

/// What is in front of the file. Names are in lower case.
#[derive(Debug, Default)]
pub struct Fields {
    pub of: BTreeMap<String, String>,
    /// As the browser calls it, without folders.
    pub file_name: String,
}

pub struct Form<B> {
    body: B,
    buffer: BytesMut,
    /// What ends each part.
    delimiter: Vec<u8>,
    ended: bool,
    /// Bytes of the body.
    came: u64,
}

fn malformed(why: &str) -> S3Error {
    coded(S3ErrorCode::MalformedPOSTRequest, format!("the form: {why}"))
}

fn position(of: &[u8], pattern: &[u8]) -> Option<usize> {
    let first = *pattern.first()?;
    let mut from = 0;
    while let Some(at) = of[from..].iter().position(|b| *b == first) {
        from += at;
        if of[from..].starts_with(pattern) {
            return Some(from);
        }
        from += 1;
    }
    None
}

/// A parameter of a header: `name="value"`, or without quotes.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    let mut chars = header.chars().peekable();
    // What the header is.
    while chars.next().is_some_and(|c| c != ';') {}
    while chars.peek().is_some() {
        let mut name = String::new();
        for c in chars.by_ref() {
            match c {
                '=' => break,
                ';' => name.clear(),
                c => name.push(c),
            }
        }
        let mut value = String::new();
        if chars.next_if_eq(&'"').is_some() {
            while let Some(c) = chars.next() {
                match c {
                    '"' => break,
                    // Browsers write a quote so, and nothing else: paths have backslashes.
                    '\\' if chars.peek() == Some(&'"') => value.extend(chars.next()),
                    c => value.push(c),
                }
            }
            while chars.next().is_some_and(|c| c != ';') {}
        } else {
            value.extend(std::iter::from_fn(|| chars.next_if(|c| *c != ';')));
            chars.next();
        }
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value.trim().to_string());
        }
    }
    None
}

/// What the parts of a body of this Content-Type are divided by.
pub fn boundary(content_type: &str) -> S3Result<String> {
    let boundary = parameter(content_type, "boundary").unwrap_or_default();
    match boundary.len() {
        1..=BOUNDARY_MAX if boundary.bytes().all(|b| (b' '..=b'~').contains(&b)) => Ok(boundary),
        _ => Err(malformed("a boundary of 1 to 70 characters is wanted")),
    }
}

impl<B> Form<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    pub fn new(body: B, boundary: &str) -> Self {
        Self {
            body,
            // As if a part had ended before the first.
            buffer: BytesMut::from(&b"\r\n"[..]),
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            ended: false,
            came: 0,
        }
    }

    /// More of the body; false: there is no more.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, String>> {
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(false)),
                Some(Err(e)) => return Poll::Ready(Err(e.to_string())),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref().filter(|d| !d.is_empty()) {
                        self.came += data.len() as u64;
                        self.buffer.extend_from_slice(data);
                        return Poll::Ready(Ok(true));
                    }
                }
            }
        }
    }

    /// The least and the most bytes that the file has, of a body of `length`; known once there are the fields.
    pub fn bounds(&self, length: u64) -> (u64, u64) {
        let taken = self.came - (self.buffer.len() as u64).min(self.came);
        let most = length.saturating_sub(taken + self.delimiter.len() as u64);
        (most.saturating_sub(AFTER_MAX), most)
    }

    async fn more(&mut self) -> S3Result<()> {
        match poll_fn(|cx| self.poll_more(cx)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(malformed("it ends before its file")),
            Err(e) => Err(coded(S3ErrorCode::IncompleteBody, e)),
        }
    }

    /// What comes before `pattern`, of at most `max` bytes, which both are taken out.
    async fn until(&mut self, pattern: &[u8], max: usize, why: &str) -> S3Result<Bytes> {
        // What was looked through is not looked through again with each frame.
        let mut from = 0;
        loop {
            let to = self.buffer.len().min(max + pattern.len());
            if let Some(at) = position(&self.buffer[from..to], pattern).map(|at| from + at) {
                let found = self.buffer.split_to(at).freeze();
                drop(self.buffer.split_to(pattern.len()));
                return Ok(found);
            }
            if self.buffer.len() >= max + pattern.len() {
                return Err(malformed(why));
            }
            from = (to + 1).saturating_sub(pattern.len());
            self.more().await?;
        }
    }

    /// The fields, up to where the file begins: what is read then is the file.
    pub async fn fields(&mut self) -> S3Result<Fields> {
        let delimiter = self.delimiter.clone();
        let mut fields = Fields::default();
        let mut room = FIELDS_BYTES;
        self.until(&delimiter, 0, "it does not begin with its boundary")
            .await?;
        for _ in 0..=FIELDS_MAX {
            self.until(b"\r\n", 0, "it ends, or goes on wrongly, before its file")
                .await?;
            let head = self
                .until(b"\r\n\r\n", HEAD_BYTES, "a part's head is too long")
                .await?;
            let head = std::str::from_utf8(&head).map_err(|_| malformed("a part's head is no text"))?;
            const DISPOSITION: &str = "content-disposition:";
            let said = head.split("\r\n").find(|line| {
                let name = line.get(..DISPOSITION.len());
                name.is_some_and(|n| n.eq_ignore_ascii_case(DISPOSITION))
            });
            let said = said.ok_or_else(|| malformed("a part without Content-Disposition"))?;
            let name = parameter(said, "name").unwrap_or_default().to_ascii_lowercase();
            if name == "file" {
                let path = parameter(said, "filename").unwrap_or_default();
                fields.file_name = path.rsplit(['/', '\\']).next().unwrap_or_default().to_string();
                return Ok(fields);
            }
            let value = self.until(&delimiter, room, "its fields are too large").await?;
            room = room.saturating_sub(name.len() + value.len());
            let value = String::from_utf8(value.to_vec()).map_err(|_| malformed("a field is no text"))?;
            if name.is_empty() || fields.of.insert(name, value).is_some() {
                return Err(malformed("a field without a name, or one that is there twice"));
            }
        }
        Err(invalid("the form has more than 100 fields"))
    }
}

impl<B> Stream for Form<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    type Item = std::io::Result<Bytes>;

    /// The file's bytes. One that its delimiter does not follow has not come whole.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            if let Some(at) = position(&this.buffer, &this.delimiter) {
                this.ended = true;
                let last = this.buffer.split_to(at).freeze();
                return Poll::Ready(Some(last).filter(|l| !l.is_empty()).map(Ok));
            }
            let safe = (this.buffer.len() + 1).saturating_sub(this.delimiter.len());
            if safe > 0 {
                return Poll::Ready(Some(Ok(this.buffer.split_to(safe).freeze())));
            }
            match ready!(this.poll_more(cx)) {
                Ok(true) => {}
                Ok(false) => {
                    this.ended = true;
                    let why = "the form ends within its file";
                    return Poll::Ready(Some(Err(std::io::Error::other(why))));
                }
                Err(e) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(std::io::Error::other(e))));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::Frame;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// Comes in pieces of so many bytes.
    struct Pieces(Bytes, usize);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let n = self.1.min(self.0.len());
            let piece = self.0.split_to(n);
            Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
        }
    }

    type Read = (BTreeMap<String, String>, String, Result<Vec<u8>, String>);

    fn read(body: &[u8], pieces: usize) -> S3Result<Read> {
        io::task::block_on(async {
            let mut form = Form::new(Pieces(Bytes::copy_from_slice(body), pieces), "XyZ");
            let fields = form.fields().await?;
            let (least, most) = form.bounds(body.len() as u64);
            let mut file = Vec::new();
            let whole = loop {
                match poll_fn(|cx| Pin::new(&mut form).poll_next(cx)).await {
                    None => break Ok(file),
                    Some(Ok(chunk)) => file.extend_from_slice(&chunk),
                    Some(Err(e)) => break Err(e.to_string()),
                }
            };
            if let Ok(file) = &whole {
                assert!(file.len() as u64 <= most, "{} of {most}", file.len());
                assert!(body.len() as u64 > AFTER_MAX || least == 0);
            }
            Ok((fields.of, fields.file_name, whole))
        })
        .unwrap()
    }

    fn form(file: &[u8]) -> Vec<u8> {
        let before = "--XyZ\r\nContent-Disposition: form-data; name=\"Key\"\r\n\r\na b\r\n--XyZ\r\ncontent-disposition: form-data; name=acl\r\nContent-Type: text/plain\r\n\r\n\r\n--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\d\\e \\\"f.txt\"\r\nContent-Type: x/y\r\n\r\n";
        [before.as_bytes(), file, b"\r\n--XyZ--\r\n"].concat()
    }

    proptest! {
        #[test]
        fn forms_are_read_however_they_come(file in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'X'), any::<u8>()], 0..80), pieces in 1usize..90) {
            prop_assume!(position(&file, b"\r\n--XyZ").is_none());
            let (fields, name, whole) = read(&form(&file), pieces).unwrap();
            prop_assert_eq!(fields, BTreeMap::from([("key".into(), "a b".into()), ("acl".into(), String::new())]));
            prop_assert_eq!((name.as_str(), whole), ("e \"f.txt", Ok(file)));
        }

        #[test]
        fn a_form_that_is_cut_off_has_no_file(cut in 0usize..400) {
            let all = form(b"the file");
            let end = position(&all, b"\r\n--XyZ--").unwrap() + 7;
            let at = cut % end;
            match read(&all[..at], 7) {
                Err(_) => {}
                Ok((_, _, whole)) => prop_assert!(whole.is_err(), "{at}"),
            }
        }

        #[test]
        fn anything_ends(junk in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..300, pieces in 1usize..50) {
            let mut all = form(b"the file");
            let at = at % all.len();
            all.splice(at..at, junk);
            let _ = read(&all, pieces);
        }
    }

    #[test]
    fn a_file_has_bounds_before_it_comes() {
        let file = vec![b'\r'; 100_000];
        let body = form(&file);
        for pieces in [1, 1000, body.len()] {
            io::task::block_on(async {
                let mut form = Form::new(Pieces(body.clone().into(), pieces), "XyZ");
                form.fields().await.unwrap();
                // Two dashes and an end of line follow the delimiter.
                let most = file.len() as u64 + 4;
                assert_eq!(form.bounds(body.len() as u64), (most - AFTER_MAX, most));
                assert_eq!(form.bounds(0), (0, 0));
            })
            .unwrap();
        }
    }

    #[test]
    fn what_is_too_large_or_wrong_is_refused() {
        let part = |name: &str, value: &str| {
            format!("--XyZ\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let file = "--XyZ\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nf\r\n--XyZ--";
        let many: String = (0..101).map(|n| part(&n.to_string(), "")).collect();
        for (bad, why) in [
            (format!("junk{file}"), "boundary"),
            (part("a", &"x".repeat(FIELDS_BYTES + 1)) + file, "too large"),
            (
                part("a", &"x".repeat(40_000)) + &part("b", &"x".repeat(30_000)) + file,
                "too large",
            ),
            (part("a", "1") + &part("A", "2") + file, "twice"),
            (part("", "1") + file, "name"),
            (many + file, "100"),
            (
                format!("--XyZ\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES)),
                "too long",
            ),
            (
                "--XyZ\r\nX: y\r\n\r\nv\r\n".to_string() + file,
                "Content-Disposition",
            ),
            (part("a", "1") + "--XyZ--\r\n", "before its file"),
            (part("a", "1"), "before its file"),
        ] {
            let said = read(bad.as_bytes(), 1000).unwrap_err();
            assert!(said.message().unwrap_or_default().contains(why), "{said:?} {why}");
        }
        assert!(boundary("multipart/form-data; boundary=\"a b\"").is_ok_and(|b| b == "a b"));
        assert!(boundary("multipart/form-data; Boundary=x; charset=y").is_ok_and(|b| b == "x"));
        for bad in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            &format!("m; boundary={}", "x".repeat(71)),
        ] {
            assert!(boundary(bad).is_err(), "{bad}");
        }
    }
}
