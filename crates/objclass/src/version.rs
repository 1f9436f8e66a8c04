//! Class `version`: a version number and tag beside an object, changed under conditions
//! (docs/protocol/ceph/05-rbd.md, section 8).

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done, out};
use bytes::Bytes;
use denc::{Decode, envelope_denc};
use types::Errno;

pub const METHODS: &[Method] = &[
    Method::rw("set", set),
    Method::rw("inc", inc),
    Method::rw("inc_conds", inc),
    Method::r("read", read),
    Method::r("check_conds", check_conds),
];

const XATTR: &[u8] = b"ceph.objclass.version";
const TAG_LEN: usize = 24;
const TAG_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ObjectVersion {
    number: u64,
    tag: Bytes,
}
envelope_denc!(ObjectVersion, 1, 1, { number, tag });

/// What `set` takes and `read` gives.
struct Wrapped {
    version: ObjectVersion,
}
envelope_denc!(Wrapped, 1, 1, { version });

struct Condition {
    version: ObjectVersion,
    kind: u32,
}
envelope_denc!(Condition, 1, 1, { version, kind });

impl Condition {
    fn holds(&self, have: &ObjectVersion) -> Result<bool> {
        let given = &self.version;
        Ok(match self.kind {
            1 => have == given,
            2 => have.number > given.number,
            3 => have.number >= given.number,
            4 => have.number < given.number,
            5 => have.number <= given.number,
            6 => have.tag == given.tag,
            7 => have.tag != given.tag,
            _ => return Err(Errno::EINVAL),
        })
    }
}

/// ECANCELED unless all hold.
fn check(conditions: &[Condition], have: &ObjectVersion) -> Result<()> {
    for condition in conditions {
        if !condition.holds(have)? {
            return Err(Errno::ECANCELED);
        }
    }
    Ok(())
}

fn conditions(input: &mut Input) -> Result<Vec<Condition>> {
    let (_, conditions) = input.envelope(<(ObjectVersion, Vec<Condition>)>::decode)?;
    Ok(conditions)
}

fn set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let version = input.envelope(ObjectVersion::decode)?;
    object.set_xattr(XATTR, &version)?;
    done()
}

fn inc(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let conditions = conditions(input)?;
    let mut version = match object.xattr::<ObjectVersion>(XATTR)? {
        Some(version) => version,
        None => first_version(object),
    };
    check(&conditions, &version)?;
    version.number = version.number.wrapping_add(1);
    object.set_xattr(XATTR, &version)?;
    done()
}

fn first_version(object: &mut Object<'_>) -> ObjectVersion {
    let random: [u8; TAG_LEN] = object.random();
    let tag: Vec<u8> = random.iter().map(|b| TAG_ALPHABET[usize::from(b % 64)]).collect();
    ObjectVersion {
        number: 1,
        tag: tag.into(),
    }
}

fn read(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let version = object.xattr(XATTR)?.unwrap_or_default();
    out(&Wrapped { version })
}

fn check_conds(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let conditions = conditions(input)?;
    let version = object.xattr(XATTR)?.unwrap_or_default();
    check(&conditions, &version)?;
    done()
}
