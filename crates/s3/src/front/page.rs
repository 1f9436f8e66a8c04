//! A page of a listing of objects as the XML that is sent, written from the index's rows as they come: such a page has a
//! thousand objects, and none of them is made into the library's types (docs/decisions/0074-listings-from-rows.md).
//!
//! Invariants: byte for byte what the library's serializer writes of the same answer, which is tested for random keys; it ends at the same
//! bounds (`LIST_MAX` objects). The library still answers, with an empty page: signatures, policies and counts are its and ours as for every
//! other operation. Where the library is called (`service`) the document takes the place of the answer's body.

use super::texts::{Names, url_encoded};
use super::times::iso_text;
use crate::objects::Sink;
use crate::summary::Summary;
use crate::{Result, STANDARD};
use bytes::Bytes;
use s3s::S3Response;

/// In front of the objects, for what is only known at the end. What does not fit costs a copy.
const GAP: usize = 4096;
/// What an object takes, about.
const OBJECT_BYTES: usize = 384;

const BEGIN: &str = concat!(
    r#"<?xml version="1.0" encoding="UTF-8"?>"#,
    r#"<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">"#
);
const END: &[u8] = b"</ListBucketResult>";

/// An element with its text; None: it is not there.
pub type Element = (&'static str, Option<String>);

/// The answer's body, in place of what the library makes of an empty answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document(pub Bytes);

impl Document {
    /// What the library is told.
    pub fn answer<T: Default>(self) -> S3Response<T> {
        let mut answer = S3Response::new(T::default());
        answer.extensions.insert(self);
        answer
    }
}

/// Objects and prefixes of a page.
pub struct Page {
    names: Names,
    /// What is the same of all objects: from the end of the time, with the owner where he is shown, to where the size is.
    between: Vec<u8>,
    /// A gap, then objects.
    objects: Vec<u8>,
    /// They come after all objects.
    prefixes: Vec<u8>,
}

impl Page {
    pub fn new(names: Names, owner: Option<&str>) -> Self {
        let mut between = b"</LastModified>".to_vec();
        if let Some(id) = owner {
            between.extend_from_slice(b"<Owner>");
            element(&mut between, "DisplayName", id);
            element(&mut between, "ID", id);
            between.extend_from_slice(b"</Owner>");
        }
        between.extend_from_slice(b"<Size>");
        Self {
            names,
            between,
            objects: vec![0; GAP],
            prefixes: Vec::new(),
        }
    }

    /// With what stands before the objects and after the prefixes, in this order.
    pub fn finish(mut self, before: &[Element], after: &[Element]) -> Document {
        let mut head = BEGIN.as_bytes().to_vec();
        elements(&mut head, before);
        self.objects.extend_from_slice(&self.prefixes);
        elements(&mut self.objects, after);
        self.objects.extend_from_slice(END);
        // There was room for objects that one prefix stands for: it is not kept until all has been sent.
        if self.objects.capacity() > 2 * self.objects.len() {
            self.objects.shrink_to_fit();
        }
        Document(match GAP.checked_sub(head.len()) {
            Some(from) => {
                self.objects[from..GAP].copy_from_slice(&head);
                Bytes::from(self.objects).slice(from..)
            }
            None => [head.as_slice(), &self.objects[GAP..]].concat().into(),
        })
    }
}

impl Sink for Page {
    fn coming(&mut self, rows: usize) {
        self.objects.reserve(rows * OBJECT_BYTES);
    }

    /// Elements are in the order of the library.
    fn object(&mut self, key: &str, entry: &Bytes) -> Result<()> {
        let entry = Summary::of(entry)?;
        let out = &mut self.objects;
        out.extend_from_slice(b"<Contents>");
        if let Some(algorithm) = entry.algorithm {
            element(out, "ChecksumAlgorithm", algorithm);
        }
        // Of an ETag the library escapes nothing.
        out.extend_from_slice(b"<ETag>\"");
        out.extend_from_slice(entry.etag.as_bytes());
        out.extend_from_slice(b"\"</ETag><Key>");
        name(out, self.names, key);
        out.extend_from_slice(b"</Key><LastModified>");
        out.extend_from_slice(&iso_text(entry.modified));
        out.extend_from_slice(&self.between);
        // As a signed number, as S3 has it.
        number(out, entry.size as i64);
        out.extend_from_slice(b"</Size><StorageClass>");
        let class = Some(entry.class).filter(|class| !class.is_empty());
        text(out, class.unwrap_or(STANDARD));
        out.extend_from_slice(b"</StorageClass></Contents>");
        Ok(())
    }

    fn prefix(&mut self, prefix: &str) {
        let out = &mut self.prefixes;
        out.extend_from_slice(b"<CommonPrefixes><Prefix>");
        name(out, self.names, prefix);
        out.extend_from_slice(b"</Prefix></CommonPrefixes>");
    }
}

fn elements(out: &mut Vec<u8>, of: &[Element]) {
    for (name, content) in of {
        if let Some(content) = content {
            element(out, name, content);
        }
    }
}

fn element(out: &mut Vec<u8>, name: &str, content: &str) {
    out.push(b'<');
    out.extend_from_slice(name.as_bytes());
    out.push(b'>');
    text(out, content);
    out.extend_from_slice(b"</");
    out.extend_from_slice(name.as_bytes());
    out.push(b'>');
}

/// A key, as names are written here.
fn name(out: &mut Vec<u8>, names: Names, key: &str) {
    match names.is_url() {
        // It has nothing then that XML escapes.
        true => url_encoded(key, out),
        false => text(out, key),
    }
}

/// Escaped as the library does it: it leaves control characters as they are.
fn text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escaped = match byte {
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'&' => "&amp;",
            b'\'' => "&apos;",
            b'"' => "&quot;",
            _ => continue,
        };
        out.extend_from_slice(&bytes[done..at]);
        out.extend_from_slice(escaped.as_bytes());
        done = at + 1;
    }
    out.extend_from_slice(&bytes[done..]);
}

fn number(out: &mut Vec<u8>, n: i64) {
    if n < 0 {
        out.push(b'-');
    }
    // 2 to the 64 has twenty digits.
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), n.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(of: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        of(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_and_texts() {
        for n in [0, 7, 10, 1_234_567_890, i64::MAX, i64::MIN, -1] {
            assert_eq!(written(|out| number(out, n)), n.to_string());
        }
        assert_eq!(
            written(|out| element(out, "A", "<\u{1}&amp;>'\"\té")),
            "<A>&lt;\u{1}&amp;amp;&gt;&apos;&quot;\té</A>"
        );
        assert_eq!(
            written(|out| elements(out, &[("A", None), ("B", Some(String::new()))])),
            "<B></B>"
        );
    }

    #[test]
    fn what_stands_before_the_objects_may_be_longer_than_its_gap() {
        for n in [0, 1, GAP - BEGIN.len() - 7, GAP - BEGIN.len() - 6, GAP, 2 * GAP] {
            let long = "x".repeat(n);
            let mut page = Page::new(Names::url(), None);
            page.prefix("a b/");
            let Document(text) = page.finish(&[("B", Some(long.clone()))], &[("C", None)]);
            let want = format!(
                "{BEGIN}<B>{long}</B><CommonPrefixes><Prefix>a%20b/</Prefix></CommonPrefixes></ListBucketResult>"
            );
            assert_eq!(text, want.as_bytes());
        }
    }
}
