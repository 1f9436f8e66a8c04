//! Class `cmpomap`: omap values compared with given ones, and set or removed where the comparison holds
//! (docs/protocol/classes.md).

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done};
use bytes::Bytes;
use denc::Reader;
use std::cmp::Ordering;
use types::Errno;

pub const METHODS: &[Method] = &[
    Method::r("cmp_vals", cmp_vals),
    Method::rw("cmp_set_vals", cmp_set_vals),
    Method::rw("cmp_rm_keys", cmp_rm_keys),
];

const MODE_STRING: u8 = 1;
const MODE_U64: u8 = 2;

/// *given OP stored*, by the numbers that CMPXATTR has for modes and operators, too.
struct Comparison {
    mode: u8,
    op: u8,
    values: Vec<(Bytes, Bytes)>,
}

impl Comparison {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        let (mode, op) = r.get()?;
        let mut values: Vec<(Bytes, Bytes)> = r.get()?;
        // Of a key that comes twice the first one counts.
        values.sort_by(|a, b| a.0.cmp(&b.0));
        values.dedup_by(|later, first| later.0 == first.0);
        Ok(Self { mode, op, values })
    }

    /// EINVAL where what is given cannot be compared, EIO where what is stored cannot.
    fn holds(&self, given: &Bytes, stored: &Bytes) -> Result<bool> {
        let order = match self.mode {
            MODE_STRING => given.cmp(stored),
            MODE_U64 => {
                let given = number(given).ok_or(Errno::EINVAL)?;
                let stored = if stored.is_empty() {
                    Some(0)
                } else {
                    number(stored)
                };
                given.cmp(&stored.ok_or(Errno::EIO)?)
            }
            _ => return Err(Errno::EINVAL),
        };
        Ok(match self.op {
            1 => order.is_eq(),
            2 => order.is_ne(),
            3 => order == Ordering::Greater,
            4 => order.is_ge(),
            5 => order == Ordering::Less,
            6 => order.is_le(),
            _ => return Err(Errno::EINVAL),
        })
    }

    /// The rows for which it holds. A key that is missing is passed over where no default stands for its value; so is
    /// one whose value cannot be compared.
    fn matching(&self, object: &mut Object<'_>, default: Option<&Bytes>) -> Result<Vec<(Bytes, Bytes)>> {
        let mut rows = Vec::new();
        for (key, given) in &self.values {
            let stored = object.raw(key)?;
            let Some(stored) = stored.as_ref().or(default) else {
                continue;
            };
            match self.holds(given, stored) {
                Ok(true) => rows.push((key.clone(), given.clone())),
                Ok(false) | Err(Errno::EIO) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(rows)
    }
}

/// What follows the number is ignored.
fn number(bytes: &Bytes) -> Option<u64> {
    Reader::new(bytes.clone()).u64().ok()
}

fn with_default(r: &mut Reader) -> denc::Result<(Comparison, Option<Bytes>)> {
    Ok((Comparison::decode(r)?, r.get()?))
}

fn cmp_vals(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (comparison, default) = input.envelope(with_default)?;
    for (key, given) in &comparison.values {
        let stored = object.raw(key)?;
        let stored = stored.as_ref().or(default.as_ref()).ok_or(Errno::ECANCELED)?;
        if !comparison.holds(given, stored)? {
            return Err(Errno::ECANCELED);
        }
    }
    done()
}

fn cmp_set_vals(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (comparison, default) = input.envelope(with_default)?;
    let rows = comparison.matching(object, default.as_ref())?;
    if !rows.is_empty() {
        object.set_rows(rows)?;
    }
    done()
}

fn cmp_rm_keys(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let comparison = input.envelope(Comparison::decode)?;
    let rows = comparison.matching(object, None)?;
    if !rows.is_empty() {
        object.unset_keys(rows.into_iter().map(|(key, _)| key).collect())?;
    }
    done()
}
