//! Class `refcount`: tagged references to an object, which goes with the last of them
//! (docs/protocol/ceph/05-rbd.md, section 8).
//!
//! The empty tag is the *wildcard*: the one reference that an object without the attribute has by implication;
//! a put of a tag that is not there takes it
//! instead, if it says that references may be implied. A *retired* tag was put once and is not put again.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done, out};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer, envelope_denc};
use std::collections::{BTreeMap, BTreeSet};
use types::Errno;

pub const METHODS: &[Method] = &[
    Method::rw("get", get),
    Method::rw("put", put),
    Method::rw("set", set),
    Method::r("read", read),
];

const XATTR: &[u8] = b"refcount";
const WILDCARD: Bytes = Bytes::new();

#[derive(Debug, Default)]
struct References {
    tags: BTreeMap<Bytes, bool>,
    retired: BTreeSet<Bytes>,
}

impl Encode for References {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.tags);
            w.put(&self.retired);
        });
    }
}

impl Decode for References {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(2, |version, r| {
            let tags = r.get()?;
            let retired = if version >= 2 { r.get()? } else { BTreeSet::new() };
            Ok(Self { tags, retired })
        })
    }
}

struct Tags {
    tags: Vec<Bytes>,
}
envelope_denc!(Tags, 1, 1, { tags });

fn load(object: &mut Object<'_>, implicit: bool) -> Result<References> {
    object.must_exist()?;
    if let Some(references) = object.xattr(XATTR)? {
        return Ok(references);
    }
    let mut references = References::default();
    if implicit {
        references.tags.insert(WILDCARD, true);
    }
    Ok(references)
}

fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (tag, implicit) = input.envelope(<(Bytes, bool)>::decode)?;
    let mut references = load(object, implicit)?;
    references.tags.insert(tag, true);
    object.set_xattr(XATTR, &references)?;
    done()
}

fn put(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (tag, implicit) = input.envelope(<(Bytes, bool)>::decode)?;
    let mut references = load(object, implicit)?;
    if references.tags.is_empty() {
        return Err(Errno::EINVAL);
    }
    if references.retired.contains(&tag) {
        return done();
    }
    let found =
        references.tags.remove(&tag).is_some() || implicit && references.tags.remove(&WILDCARD).is_some();
    if !found {
        return done();
    }
    references.retired.insert(tag);
    if references.tags.is_empty() {
        object.remove()?;
    } else {
        object.set_xattr(XATTR, &references)?;
    }
    done()
}

fn set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let tags: Vec<Bytes> = input.envelope(Vec::decode)?;
    if tags.is_empty() {
        object.must_exist()?;
        object.remove()?;
        return done();
    }
    let references = References {
        tags: tags.into_iter().map(|t| (t, true)).collect(),
        retired: BTreeSet::new(),
    };
    object.set_xattr(XATTR, &references)?;
    done()
}

fn read(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let implicit = input.envelope(bool::decode)?;
    let tags = load(object, implicit)?.tags.into_keys().collect();
    out(&Tags { tags })
}
