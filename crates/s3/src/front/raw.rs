//! The text of a body beside what the library makes of it. Reading XML it passes over what it does not expect (CDATA, text between
//! elements) and takes `1,000` for 1: what removes objects must not come to mean others than were written.

use super::errors::coded;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use quick_xml::Reader;
use quick_xml::events::Event;
use s3s::{S3ErrorCode, S3Request, S3Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// As much as the library takes of XML, and as is kept of it. A list of 10,000 parts with their checksums fits.
pub const XML_BYTES: usize = 4 << 20;

/// What has come of a body.
#[derive(Debug, Clone, Default)]
pub struct Raw(Arc<Mutex<Vec<u8>>>);

impl Raw {
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A body whose text is kept while it is read.
pub struct Kept<B> {
    body: B,
    raw: Raw,
}

impl<B> Kept<B> {
    pub fn new(body: B, raw: Raw) -> Self {
        Self { body, raw }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Kept<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let mut raw = self.raw.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = XML_BYTES.saturating_sub(raw.len());
            raw.extend_from_slice(&data[..data.len().min(room)]);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Default)]
struct Element {
    name: Vec<u8>,
    text: String,
    has_children: bool,
}

/// What an element holds that is none of others. All others hold elements alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaf {
    Text,
    /// In digits alone.
    Number,
}

/// Refuses a request whose text the library would not take as it was written.
pub fn check_request<T>(req: &S3Request<T>, leaves: &[(&str, Leaf)]) -> S3Result<()> {
    let raw = req.extensions.get::<Raw>().map(Raw::take).unwrap_or_default();
    check(&raw, leaves).map_err(|why| coded(S3ErrorCode::MalformedXML, why))
}

/// An error in a sentence where the library would pass over something.
pub(super) fn check(xml: &[u8], leaves: &[(&str, Leaf)]) -> Result<(), String> {
    let mut reader = Reader::from_reader(xml);
    // The document, which has no text of its own either.
    let mut open = vec![Element::default()];
    loop {
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Start(start) => {
                if let Some(above) = open.last_mut() {
                    above.has_children = true;
                }
                open.push(Element {
                    name: start.local_name().as_ref().to_vec(),
                    ..Element::default()
                });
            }
            Event::Empty(_) => {
                if let Some(above) = open.last_mut() {
                    above.has_children = true;
                }
            }
            Event::Text(text) => {
                let text = text.decode().map_err(|e| e.to_string())?;
                if let Some(element) = open.last_mut() {
                    element.text.push_str(&text);
                }
            }
            // Which character it is makes no difference: it is none of white space, nor a digit, that somebody would write so.
            Event::GeneralRef(_) => {
                if let Some(element) = open.last_mut() {
                    element.text.push('&');
                }
            }
            Event::CData(_) => return Err("CDATA is not read here: escape the text instead".into()),
            Event::End(_) => {
                let element = open.pop().unwrap_or_default();
                judge(&element, leaves)?;
            }
            Event::Eof => {
                return match open.pop() {
                    Some(document) if open.is_empty() && document.has_children => judge(&document, leaves),
                    _ => Err("the document is empty, or ends too early".into()),
                };
            }
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
}

/// An error in a sentence where an element has a name that is none of these.
pub(super) fn check_names(xml: &[u8], names: &[&str]) -> Result<(), String> {
    let mut reader = Reader::from_reader(xml);
    loop {
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Start(start) | Event::Empty(start) => {
                let name = start.local_name();
                if !names.iter().any(|n| n.as_bytes() == name.as_ref()) {
                    let name = String::from_utf8_lossy(name.as_ref());
                    return Err(format!("'{name}' is not known here"));
                }
            }
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

fn judge(element: &Element, leaves: &[(&str, Leaf)]) -> Result<(), String> {
    let name = String::from_utf8_lossy(&element.name);
    let leaf = leaves.iter().find(|(leaf, _)| *leaf == name).map(|l| l.1);
    let digits = element.text.strip_prefix('-').unwrap_or(&element.text);
    let digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match leaf {
        Some(_) if element.has_children => Err(format!("elements in '{name}', which is a text")),
        Some(Leaf::Number) if !digits => Err(format!("'{name}' is a number, in digits alone")),
        None if !element.text.trim().is_empty() => {
            Err(format!("text in '{name}', which holds elements alone"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_passed_over_is_refused() {
        let check = |xml: &str| check(xml.as_bytes(), &[("b", Leaf::Text), ("Days", Leaf::Number)]);
        for good in [
            "<?xml version=\"1.0\"?>\n<a>\n <b>x y</b><!-- c --> <Days>10</Days><c/> <d></d></a>\n",
            "<a xmlns=\"http://x/\"><b>&lt;&#65;</b></a>",
            "<a><b>x<!-- c -->y</b><Days>-1</Days></a>",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "<a><b><![CDATA[logs/]]></b></a>",
            "<a>logs/</a><b/>x",
            "<a>logs/<b/></a>",
            "<a>logs/</a>",
            "<a><c>logs/</c></a>",
            "<a><b>x<c/></b></a>",
            "<a><b><c/></b></a>",
            "<a><b/>logs/</a>",
            "<a><b>1</b>&lt;</a>",
            "<a><Days>1,000</Days></a>",
            "<a><Days>1e3</Days></a>",
            "<a><Days>--1</Days></a>",
            "<a><Days>-</Days></a>",
            "<a><Days> 1</Days></a>",
            "<a><Days></Days></a>",
            "<a><Days><b>1</b></Days></a>",
            "<a><x:Days xmlns:x=\"y\">1 day</x:Days></a>",
            "4\r\n<a/>\r\n0\r\n\r\n",
            "<a><b></a>",
            "<a>",
            "",
            "text",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        /// Whatever is sent is judged: nothing panics, nor goes on without end.
        #[test]
        fn anything_is_judged(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), cut in 0usize..300) {
            let good = b"<A><Rule><SSEAlgorithm>AES256</SSEAlgorithm><BucketKeyEnabled>false</BucketKeyEnabled></Rule></A>";
            let leaves = [("SSEAlgorithm", Leaf::Text), ("BucketKeyEnabled", Leaf::Text)];
            let at = cut % good.len();
            for text in [&bytes[..], &good[..at], &[&good[..at], &bytes, &good[at..]].concat()] {
                let _ = check(text, &leaves);
            }
        }
    }
}
