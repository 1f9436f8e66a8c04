//! Listing a bucket: by prefix, with common prefixes, with versions or without.

use super::header::load_header;
use super::index::scan_entries;
use super::keys;
use super::types::{COMMON_PREFIX, DirEntry, Header, ObjKey, PLACEHOLDER};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, list_max, out, stored};
use bytes::Bytes;
use denc::{Encode, Writer};
use types::Errno;

/// Entries that one call gives, and rows that it looks at: then it says where it stopped, and the client goes on there.
const LISTED_MAX: usize = 1000;
const SCANNED_MAX: usize = 8000;
/// Of a delimiter: it is looked for in each name. No object of S3 has a longer name.
const DELIMITER_BYTES_MAX: usize = 1024;
/// Common prefixes that one call goes past, as 16.2 does.
const SKIPS_MAX: usize = 8;

struct Listed {
    header: Header,
    /// In the order of their keys.
    rows: Vec<(Bytes, DirEntry)>,
    truncated: bool,
    marker: ObjKey,
}

impl Encode for Listed {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 2, |w| {
            w.envelope(2, 2, |w| {
                w.put(&self.header);
                w.put(&self.rows);
            });
            w.bool(self.truncated);
            w.put(&self.marker);
        });
    }
}

struct Question {
    start: ObjKey,
    max: usize,
    prefix: Bytes,
    versions: bool,
    delimiter: Bytes,
}

impl Question {
    fn decode(input: &mut Input) -> Result<Self> {
        input.versioned(6, |version, r| {
            if version < 4 {
                return Err(r.invalid("listing of before 16.2"));
            }
            let (max, prefix, start) = (r.u32()?, r.blob()?, r.get()?);
            Ok(Self {
                start,
                max: list_max(max.into()).min(LISTED_MAX),
                prefix,
                versions: if version >= 5 { r.bool()? } else { false },
                delimiter: if version >= 6 { r.blob()? } else { Bytes::new() },
            })
        })
    }

    /// The common prefix that a name falls under, if it does.
    fn common_prefix(&self, name: &Bytes) -> Option<Bytes> {
        if self.delimiter.is_empty() {
            return None;
        }
        let rest = &name[self.prefix.len()..];
        let at = find(rest, &self.delimiter)?;
        Some(name.slice(..self.prefix.len() + at + self.delimiter.len()))
    }

    /// The key behind which the listing begins.
    fn first(&self, object: &mut Object<'_>) -> Result<Bytes> {
        if self.start.instance.is_empty() {
            return Ok(self.start.name.clone());
        }
        let entry: Option<DirEntry> = object.get(&keys::instance(&self.start))?;
        Ok(match entry {
            Some(entry) => keys::listed(&entry),
            None => keys::listed(&DirEntry::new(self.start.clone())),
        })
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}

/// A key behind all that begin with this one, itself included: names are UTF-8, in which this byte is not.
fn behind(prefix: &[u8]) -> Bytes {
    [prefix, &[0xff]].concat().into()
}

/// Why the rows were left.
enum Left {
    /// They are all seen.
    Ended,
    /// Those that begin with this are one common prefix, which is listed.
    Skips(Bytes),
    /// There are more.
    Full,
}

struct Walk<'q> {
    question: &'q Question,
    rows: Vec<(Bytes, DirEntry)>,
    scanned: usize,
    /// Of what is listed.
    last: ObjKey,
    /// Where the scan gave up, if it did not at an entry that is listed.
    gave_up_at: Option<ObjKey>,
}

impl Walk<'_> {
    fn is_full(&self) -> bool {
        self.rows.len() == self.question.max || self.scanned >= SCANNED_MAX
    }

    /// Rows from behind a key up to a reason to leave them.
    fn go(&mut self, object: &mut Object<'_>, after: &[u8]) -> Result<Left> {
        let mut left = Left::Ended;
        let prefix = &self.question.prefix;
        scan_entries(object, prefix, after, |key, value| {
            let entry: DirEntry = stored(value)?;
            if entry.has(PLACEHOLDER) || !(self.question.versions || entry.is_visible()) {
                self.scanned += 1;
                if self.scanned < SCANNED_MAX {
                    return Ok(Scan::Next);
                }
                self.gave_up_at = Some(entry.key);
                left = Left::Full;
                return Ok(Scan::Stop);
            }
            if self.is_full() {
                left = Left::Full;
                return Ok(Scan::Stop);
            }
            self.scanned += 1;
            if entry.key.name.starts_with(prefix)
                && let Some(common) = self.question.common_prefix(&entry.key.name)
            {
                self.rows.push((common.clone(), common_entry(&common)));
                self.last = ObjKey {
                    name: behind(&common),
                    instance: Bytes::new(),
                };
                left = Left::Skips(common);
                return Ok(Scan::Stop);
            }
            self.last = entry.key.clone();
            self.rows.push((key.clone(), entry));
            Ok(Scan::Next)
        })?;
        Ok(left)
    }
}

fn common_entry(prefix: &Bytes) -> DirEntry {
    DirEntry {
        flags: COMMON_PREFIX,
        ..DirEntry::new(ObjKey {
            name: prefix.clone(),
            instance: Bytes::new(),
        })
    }
}

pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let question = Question::decode(input)?;
    if question.delimiter.len() > DELIMITER_BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    let header = load_header(object)?;
    let mut walk = Walk {
        question: &question,
        rows: Vec::new(),
        scanned: 0,
        last: ObjKey::default(),
        gave_up_at: None,
    };
    let mut truncated = false;
    if question.max > 0 {
        let first = question.first(object)?;
        // A marker that is a common prefix stands for all of it.
        let common = match first.starts_with(&question.prefix) {
            true => question.common_prefix(&first),
            false => None,
        };
        let mut after = match common {
            Some(common) if common == first => behind(&common),
            _ => first,
        };
        let mut skips = 0;
        truncated = loop {
            match walk.go(object, &after)? {
                Left::Ended => break false,
                Left::Full => break true,
                Left::Skips(_) if skips + 1 == SKIPS_MAX => break true,
                Left::Skips(common) => after = behind(&common),
            }
            skips += 1;
        };
    }
    // A full listing is said to go on if there is any row behind it, an entry or not.
    let truncated = truncated
        || match walk.rows.last() {
            Some((key, _)) if walk.rows.len() == question.max => !object.page(b"", key, 1)?.rows.is_empty(),
            _ => false,
        };
    out(&Listed {
        header,
        rows: walk.rows,
        truncated,
        marker: match truncated {
            true => walk.gave_up_at.unwrap_or(walk.last),
            false => ObjKey::default(),
        },
    })
}
