//! What one object is, and what an operation does to it: the sequential truth that histories are held against.

use bytes::Bytes;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// An object's content; `None` elsewhere means that there is no such object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    pub data: Bytes,
    pub omap: BTreeMap<String, Bytes>,
    /// The attribute that guarded writes compare.
    pub guard: Option<Bytes>,
    /// All others.
    pub attrs: BTreeMap<String, Bytes>,
}

/// What a client asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Read,
    WriteFull(Bytes),
    Write {
        at: u64,
        data: Bytes,
    },
    Append(Bytes),
    OmapSet(String, Bytes),
    /// Several attributes in one message.
    SetAttrs(BTreeMap<String, Bytes>),
    Delete,
    /// `numops.add`: the number kept as text under this key becomes so much more.
    Add(String, u64),
    /// COPY_FROM of an object that nobody else writes, and what that was then.
    CopyFrom {
        from: String,
        content: Option<Object>,
    },
    /// If the guard is `expect`: set it to `then` and the data as well.
    Guarded {
        expect: Bytes,
        then: Bytes,
    },
}

/// What it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// A read's view.
    Saw(Option<Object>),
    Done,
    NoObject,
    /// The guard was another.
    Refused,
}

impl Ask {
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read)
    }

    /// What an object becomes, and what who asked is told. Reads leave it as it is.
    pub fn apply(&self, object: &Option<Object>) -> (Option<Object>, Told) {
        let mut next = object.clone().unwrap_or_default();
        match self {
            Self::Read => return (object.clone(), Told::Saw(object.clone())),
            Self::Delete if object.is_none() => return (None, Told::NoObject),
            Self::Delete => return (None, Told::Done),
            Self::CopyFrom { content: None, .. } => return (object.clone(), Told::NoObject),
            Self::CopyFrom { content, .. } => return (content.clone(), Told::Done),
            Self::Add(key, n) => {
                let text = next
                    .omap
                    .get(key)
                    .map(|v| String::from_utf8_lossy(v).into_owned());
                let before: u64 = text.and_then(|t| t.parse().ok()).unwrap_or(0);
                next.omap.insert(key.clone(), (before + n).to_string().into());
            }
            Self::Guarded { expect, .. } if next.guard.as_ref() != Some(expect) => {
                return (object.clone(), Told::Refused);
            }
            Self::Guarded { then, .. } => {
                next.guard = Some(then.clone());
                next.data = then.clone();
            }
            Self::WriteFull(data) => {
                next.data = data.clone();
                next.guard = Some(data.slice(..data.len().min(16)));
            }
            Self::Write { at, data } => {
                let (at, end) = (*at as usize, *at as usize + data.len());
                let mut all = next.data.to_vec();
                all.resize(all.len().max(end), 0);
                all[at..end].copy_from_slice(data);
                next.data = all.into();
            }
            Self::Append(data) => next.data = [&next.data[..], data].concat().into(),
            Self::SetAttrs(attrs) => next.attrs.extend(attrs.clone()),
            Self::OmapSet(key, value) => {
                next.omap.insert(key.clone(), value.clone());
            }
        }
        (Some(next), Told::Done)
    }
}

impl std::fmt::Display for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::WriteFull(d) => write!(f, "writefull {} {}", tag(d), d.len()),
            Self::Write { at, data } => write!(f, "write {} {at}~{}", tag(data), data.len()),
            Self::Append(d) => write!(f, "append {} {}", tag(d), d.len()),
            Self::OmapSet(k, v) => write!(f, "omap {k}={} {}", tag(v), v.len()),
            Self::SetAttrs(all) => {
                let (bytes, first) = (bytes_of(all), all.values().next());
                let tag = first.map_or("nothing".into(), |v| tag(v));
                write!(f, "attributes {tag}, {} of {bytes} bytes", all.len())
            }
            Self::Delete => f.write_str("delete"),
            Self::Add(k, n) => write!(f, "add {k} {n}"),
            Self::CopyFrom { from, content } => {
                let told = Told::Saw(content.clone());
                write!(f, "copy of {from}, where it {told}")
            }
            Self::Guarded { expect, then } => write!(f, "guarded {} -> {}", tag(expect), tag(then)),
        }
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Saw(None) => f.write_str("saw nothing"),
            Self::Saw(Some(o)) => {
                write!(f, "saw {} bytes of", o.data.len())?;
                tags(&o.data)
                    .iter()
                    .try_for_each(|t| write!(f, " {}", String::from_utf8_lossy(t)))?;
                o.omap
                    .iter()
                    .try_for_each(|(k, v)| write!(f, " {k}={}", tag(v)))?;
                if o.attrs.is_empty() {
                    return Ok(());
                }
                let tags: BTreeSet<_> = o.attrs.values().map(|v| tag(v)).collect();
                write!(
                    f,
                    ", {} attributes of {} bytes of",
                    o.attrs.len(),
                    bytes_of(&o.attrs)
                )?;
                tags.iter().try_for_each(|t| write!(f, " {t}"))
            }
            Self::Done => f.write_str("done"),
            Self::NoObject => f.write_str("no object"),
            Self::Refused => f.write_str("refused"),
        }
    }
}

/// Names and values together.
fn bytes_of(attrs: &BTreeMap<String, Bytes>) -> usize {
    attrs.iter().map(|(n, v)| n.len() + v.len()).sum()
}

/// Values begin with a tag of their own, in brackets.
fn tag(data: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(tag_bytes(data))
}

fn tag_bytes(data: &[u8]) -> &[u8] {
    let end = data
        .iter()
        .position(|b| *b == b']')
        .map_or(data.len().min(12), |i| i + 1);
    &data[..end]
}

/// The tags in some data, each once, in the order of their first places. Every read is noted, so this has to be fast: a value
/// is its tag again and again, and repetitions are passed over whole.
fn tags(mut data: &[u8]) -> Vec<&[u8]> {
    let mut seen: Vec<&[u8]> = Vec::new();
    while let Some(start) = data.iter().position(|b| *b == b'[') {
        data = &data[start..];
        let tag = tag_bytes(data);
        if !seen.contains(&tag) {
            seen.push(tag);
        }
        // Behind its bracket: a tag that was torn may hold another one's beginning.
        let next = tag[1..]
            .iter()
            .position(|b| *b == b'[')
            .map_or(tag.len(), |i| i + 1);
        data = &data[next..];
        while next == tag.len() && data.starts_with(tag) {
            data = &data[next..];
        }
    }
    seen
}

/// A value that is like no other: its tag, again and again.
pub fn value(client: u64, n: u64, len: usize) -> Bytes {
    let tag = format!("[{client}.{n}]");
    let len = len.max(tag.len());
    let mut bytes = tag.repeat(len.div_ceil(tag.len())).into_bytes();
    bytes.truncate(len);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_told_by_its_tags() {
        let told = |data: &[u8]| {
            Told::Saw(Some(Object {
                data: Bytes::copy_from_slice(data),
                ..Object::default()
            }))
            .to_string()
        };
        assert_eq!(told(b""), "saw 0 bytes of");
        assert_eq!(told(&value(1, 2, 18)), "saw 18 bytes of [1.2] [1.");
        assert_eq!(told(b"[1.2][1.2][3.4][1.2]"), "saw 20 bytes of [1.2] [3.4]");
        assert_eq!(
            told(b".2][1.[3.4][3.4]x[5.6]"),
            "saw 22 bytes of [1.[3.4] [3.4] [5.6]"
        );
    }
}
