//! Class `cas`: chunks of deduplicated data, named by their content, that know which objects refer to them
//! (docs/protocol/classes.md, "cas"). An object may refer to a chunk more than once. With the last reference goes the chunk.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use types::{Errno, HObject};

pub const METHODS: &[Method] = &[
    Method::rw("chunk_create_or_get_ref", create_or_get),
    Method::rw("chunk_get_ref", get),
    Method::rw("chunk_put_ref", put),
];

const XATTR: &[u8] = b"chunk_refs";
/// References that are kept one by one: the only kind here. Ceph tells many of them apart by less and less.
const BY_OBJECT: u8 = 1;
/// Bytes of them all, below what an attribute may have.
const REFS_BYTES_MAX: usize = 120 << 10;
/// Flag of `chunk_create_or_get_ref`: what is there has to be the same data.
const VERIFY: u64 = 1;

#[derive(Debug, Default)]
struct References {
    sources: Vec<HObject>,
}

impl Encode for References {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(BY_OBJECT);
            w.envelope(1, 1, |w| w.put(&self.sources));
        });
    }
}

impl Decode for References {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(1, |_, r| {
            let kind = r.u8()?;
            if kind != BY_OBJECT {
                return Err(r.invalid("a kind of references to a chunk"));
            }
            let sources = r.envelope(1, |_, r| r.get())?;
            Ok(Self { sources })
        })
    }
}

/// The references, or none where the object has had none.
fn load(object: &mut Object<'_>) -> Result<References> {
    Ok(object.xattr(XATTR)?.unwrap_or_default())
}

/// Adds one. E2BIG: the attribute has no room for more.
fn add(object: &mut Object<'_>, mut references: References, source: HObject) -> Result<Bytes> {
    let at = references.sources.partition_point(|s| *s <= source);
    references.sources.insert(at, source);
    let bytes = references.to_bytes();
    if bytes.len() > REFS_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    object.set_xattr_raw(XATTR, bytes)?;
    done()
}

fn create_or_get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (source, flags, data): (HObject, u64, Bytes) =
        input.envelope(|r| Ok((r.get()?, r.u64()?, r.get()?)))?;
    if !object.exists()? {
        object.write_full(data)?;
        return add(object, References::default(), source);
    }
    if flags & VERIFY != 0 && object.read_all()? != data {
        return Err(Errno::ENOMSG);
    }
    let references = load(object)?;
    add(object, references, source)
}

fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let source: HObject = input.envelope(HObject::decode)?;
    object.must_exist()?;
    let references = load(object)?;
    add(object, references, source)
}

/// ENOLINK: that object does not refer to this chunk.
fn put(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let source: HObject = input.envelope(HObject::decode)?;
    object.must_exist()?;
    let mut references = load(object)?;
    let at = references.sources.iter().position(|s| *s == source);
    references.sources.remove(at.ok_or(Errno::ENOLINK)?);
    if references.sources.is_empty() {
        object.remove()?;
    } else {
        object.set_xattr(XATTR, &references)?;
    }
    done()
}
