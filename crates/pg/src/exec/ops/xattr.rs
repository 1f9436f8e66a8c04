//! Client xattrs (docs/protocol/ceph/04-osd.md, 9.3).

use crate::exec::result::{Done, Fail, OpResult, done};
use crate::exec::run::Exec;
use crate::exec::work::XattrSizes;
use crate::state::object_info::{user_attr, user_name};
use bytes::Bytes;
use denc::{Reader, Writer};
use messages::osd::OsdOp;
use std::cmp::Ordering;
use types::{Errno, ObjectId, Op};

pub const XATTR_NAME_MAX: usize = 100;
/// The value of one; what `osd_max_attr_size` says. Linux' file systems take 64 KiB, and recorded clients a little more.
pub const XATTR_VALUE_MAX: usize = 128 << 10;
/// Of one object.
pub const XATTRS_MAX: usize = 1024;
/// Names and values of one object's together.
pub const XATTRS_BYTES_MAX: u64 = 1 << 20;

const MODE_STRING: u8 = 1;
const MODE_U64: u8 = 2;

/// Name and value of the in-data.
fn name_and_value(op: &OsdOp) -> Result<(Bytes, Bytes), Fail> {
    let a = op.xattr();
    let (n, v) = (a.name_len as usize, a.value_len as usize);
    if n == 0 || n.checked_add(v).is_none_or(|all| all > op.indata.len()) {
        return Err(Errno::EINVAL.into());
    }
    Ok((op.indata.slice(..n), op.indata.slice(n..n + v)))
}

/// `left OP right` by the number of the operator; `None` if there is no such.
fn holds(cmp_op: u8, order: Ordering) -> Option<bool> {
    Some(match cmp_op {
        1 => order.is_eq(),
        2 => order.is_ne(),
        3 => order.is_gt(),
        4 => order.is_ge(),
        5 => order.is_lt(),
        6 => order.is_le(),
        _ => return None,
    })
}

/// Whether an object may have these. Names count as clients know them, without the byte that marks them in the store.
pub(crate) fn xattrs_fit(sizes: &XattrSizes) -> bool {
    let bytes: u64 = sizes.iter().map(|(n, v)| n.len() as u64 - 1 + v).sum();
    sizes.len() <= XATTRS_MAX && bytes <= XATTRS_BYTES_MAX
}

impl Exec<'_> {
    pub fn user_xattr(&mut self, name: &[u8]) -> Result<Option<Bytes>, Fail> {
        if !self.req.old.exists {
            return Ok(None);
        }
        let value = self.known.attr(self.req.source, &user_attr(name))?;
        self.cost
            .charge(value.as_ref().map_or(0, |v| v.len() as u64), 1)?;
        Ok(value)
    }

    /// Ascending by name.
    pub fn user_xattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Fail> {
        if !self.req.old.exists {
            return Ok(Vec::new());
        }
        let sizes = self.known.attr_sizes(self.req.source)?;
        self.cost
            .charge(sizes.iter().map(|(_, n)| n).sum(), sizes.len() as u64)?;
        let all = self.known.attrs(self.req.source)?;
        Ok(all
            .into_iter()
            .filter_map(|(n, v)| Some((user_name(&n)?, v)))
            .collect())
    }

    /// The sizes as this message leaves them.
    fn xattr_sizes(&mut self) -> Result<&mut XattrSizes, Fail> {
        let sizes = match self.work.xattrs.take() {
            Some(sizes) => sizes,
            None if !self.req.old.exists => XattrSizes::new(),
            None => self.user_sizes(self.req.head)?,
        };
        Ok(self.work.xattrs.insert(sizes))
    }

    /// Those of an object as it is in the store.
    pub fn user_sizes(&mut self, oid: &ObjectId) -> Result<XattrSizes, Fail> {
        let all = self.known.attr_sizes(oid)?;
        Ok(all.into_iter().filter(|(n, _)| user_name(n).is_some()).collect())
    }

    pub fn get_xattr(&mut self, op: &OsdOp) -> OpResult {
        self.must_have_existed()?;
        let (name, _) = name_and_value(op)?;
        Ok(self.user_xattr(&name)?.ok_or(Errno::ENODATA)?.into())
    }

    pub fn get_xattrs(&mut self) -> OpResult {
        self.must_have_existed()?;
        let all = self.user_xattrs()?;
        let mut w = Writer::new();
        w.put(&all);
        Ok(w.finish().into())
    }

    /// True if *operand OP stored*: the other way round than OMAP_CMP.
    pub fn compare_xattr(&mut self, op: &OsdOp) -> OpResult {
        let a = op.xattr();
        let (name, operand) = name_and_value(op)?;
        let stored = self.user_xattr(&name)?.unwrap_or_default();
        let order = match a.cmp_mode {
            MODE_STRING => operand.cmp(&stored),
            MODE_U64 => {
                let operand = Reader::new(operand).u64()?;
                let text = std::str::from_utf8(&stored).unwrap_or("?");
                let stored: u64 = if text.is_empty() {
                    0
                } else {
                    text.parse().map_err(|_| Errno::EINVAL)?
                };
                operand.cmp(&stored)
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        match holds(a.cmp_op, order) {
            None => Err(Errno::EINVAL.into()),
            Some(false) => Err(Errno::ECANCELED.into()),
            Some(true) => Ok(Done {
                rval: 1,
                out: Bytes::new(),
            }),
        }
    }

    pub fn set_xattr_op(&mut self, op: &OsdOp) -> OpResult {
        let (name, value) = name_and_value(op)?;
        self.set_xattr(&name, value)?;
        done()
    }

    pub fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Fail> {
        if name.len() > XATTR_NAME_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let name = user_attr(name);
        let sizes = self.xattr_sizes()?;
        let before = sizes.insert(name.clone(), value.len() as u64);
        // What older builds let grow above a limit may shrink, if not at once to below it.
        let grows = before.is_none_or(|n| n < value.len() as u64);
        if grows && !xattrs_fit(sizes) {
            match before {
                Some(n) => sizes.insert(name, n),
                None => sizes.remove(&name),
            };
            return Err(Errno::E2BIG.into());
        }
        self.ensure_exists();
        self.work.txn.push(Op::SetAttrs {
            oid: self.req.head.clone(),
            attrs: vec![(name, value)],
        });
        Ok(())
    }

    pub fn remove_xattr_op(&mut self, op: &OsdOp) -> OpResult {
        self.must_exist()?;
        let (name, _) = name_and_value(op)?;
        self.remove_xattr(&name)?;
        done()
    }

    pub fn remove_xattr(&mut self, name: &[u8]) -> Result<(), Fail> {
        self.must_exist()?;
        let name = user_attr(name);
        self.xattr_sizes()?.remove(&name);
        self.work.txn.push(Op::RemoveAttr {
            oid: self.req.head.clone(),
            name,
        });
        self.changed();
        Ok(())
    }
}
