//! Class `fifo`: a queue over many objects (docs/protocol/classes.md, "fifo"). Here is the object that describes one, in whose data
//! that description is: radosgw makes some when it starts. The objects of its entries, which only a radosgw of several zones makes,
//! are not here.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done, out, stored};
use bytes::Bytes;
use denc::{Decode, Encode, envelope_denc};
use types::Errno;

pub const METHODS: &[Method] = &[
    Method::rw("create_meta", create_meta),
    Method::r("get_meta", get_meta),
];

/// Bytes at the beginning of an object of entries, and beside each entry.
const PART_HEADER: u32 = 512;
const ENTRY_OVERHEAD: u32 = 58;
/// A description is never larger.
const META_MAX: u64 = 1 << 20;
const INSTANCE_LEN: usize = 16;
const SUFFIX_LEN: usize = 11;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AB";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    instance: Bytes,
    number: u64,
}
envelope_denc!(Version, 1, 1, { instance, number });

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parameters {
    part_max: u64,
    entry_max: u64,
    /// A part of this size takes no more.
    full_at: u64,
}
envelope_denc!(Parameters, 1, 1, { part_max, entry_max, full_at });

/// What the parts are numbered by, and what goes on with them: as it came, behind what is looked at here.
#[derive(Debug, Clone)]
struct Rest(Bytes);

impl Encode for Rest {
    fn encode(&self, w: &mut denc::Writer) {
        w.raw(&self.0);
    }
}

impl Decode for Rest {
    const MIN_SIZE: usize = 0;
    fn decode(r: &mut denc::Reader) -> denc::Result<Self> {
        Ok(Self(r.rest()))
    }
}

impl Rest {
    /// No parts: the tail is 0, the head and the last one pushed to -1, the first one to push to 0; no tags and no journal.
    fn none() -> Self {
        let numbers = [0i64, -1, 0, -1].map(i64::to_le_bytes);
        Self([&numbers.concat()[..], &[0; 12]].concat().into())
    }
}

struct Meta {
    id: Bytes,
    version: Version,
    prefix: Bytes,
    parameters: Parameters,
    rest: Rest,
}
envelope_denc!(Meta, 1, 1, { id, version, prefix, parameters, rest });

struct Given {
    id: Bytes,
    version: Option<Version>,
    prefix: Option<Bytes>,
    part_max: u64,
    entry_max: u64,
    exclusive: bool,
}

fn text<const N: usize>(object: &mut Object<'_>) -> Bytes {
    let random: [u8; N] = object.random();
    let text: Vec<u8> = random.iter().map(|b| ALPHABET[usize::from(b % 64)]).collect();
    text.into()
}

/// Makes a queue. One that is there already is taken if it is the same by id, version and prefix, unless it must not be.
fn create_meta(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let given = input.envelope(|r| {
        let (id, version) = (r.blob()?, r.get()?);
        // Name and namespace of a pool, of nobody.
        r.blob()?;
        r.blob()?;
        Ok(Given {
            id,
            version,
            prefix: r.get()?,
            part_max: r.u64()?,
            entry_max: r.u64()?,
            exclusive: r.bool()?,
        })
    })?;
    if given.id.is_empty() || given.part_max == 0 || given.entry_max == 0 || given.part_max < given.entry_max
    {
        return Err(Errno::EINVAL);
    }
    if object.exists()? {
        let meta = load(object).map_err(|e| if e == Errno::ENODATA { Errno::EIO } else { e })?;
        let is_it = meta.id == given.id
            && given.version.is_none_or(|v| v == meta.version)
            && given.prefix.is_none_or(|p| p == meta.prefix);
        return match is_it && !given.exclusive {
            true => done(),
            false => Err(Errno::EEXIST),
        };
    }
    let version = match given.version {
        Some(version) => version,
        None => Version {
            instance: text::<INSTANCE_LEN>(object),
            number: 1,
        },
    };
    let prefix = match given.prefix {
        Some(prefix) => prefix,
        None => [&given.id[..], b".", &text::<SUFFIX_LEN>(object)].concat().into(),
    };
    let taken = given.entry_max.saturating_add(ENTRY_OVERHEAD.into());
    let meta = Meta {
        id: given.id,
        version,
        prefix,
        parameters: Parameters {
            part_max: given.part_max,
            entry_max: given.entry_max,
            full_at: given.part_max.wrapping_sub(taken),
        },
        rest: Rest::none(),
    };
    object.write_full(meta.to_bytes())?;
    done()
}

/// ENODATA: there is nothing in the object. EIO: it is no queue.
fn load(object: &mut Object<'_>) -> Result<Meta> {
    match object.must_exist()?.size {
        0 => Err(Errno::ENODATA),
        size if size > META_MAX => Err(Errno::EIO),
        _ => stored(&object.read_all()?),
    }
}

struct Described {
    meta: Meta,
    part_header: u32,
    entry_overhead: u32,
}
envelope_denc!(Described, 1, 1, { meta, part_header, entry_overhead });

/// The description. ECANCELED: it is not of the version that was asked for.
fn get_meta(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let version: Option<Version> = input.envelope(Option::decode)?;
    let meta = load(object)?;
    if version.is_some_and(|v| v != meta.version) {
        return Err(Errno::ECANCELED);
    }
    out(&Described {
        meta,
        part_header: PART_HEADER,
        entry_overhead: ENTRY_OVERHEAD,
    })
}
