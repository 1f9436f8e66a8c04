//! Client xattrs (spec chapter 04, 9.3).

use crate::execute::{Done, Exec, Fail, OpResult, done};
use crate::object_info::{user_attr, user_name};
use bytes::Bytes;
use denc::{Reader, Writer};
use messages::osd::OsdOp;
use std::cmp::Ordering;
use types::{Errno, Op};

const XATTR_NAME_MAX: usize = 100;

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

impl Exec<'_, '_> {
    pub fn user_xattr(&mut self, name: &[u8]) -> Result<Option<Bytes>, Fail> {
        if !self.old.exists {
            return Ok(None);
        }
        Ok(self.ctx.store.attr(self.source, &user_attr(name))?)
    }

    /// Ascending by name.
    pub fn user_xattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Fail> {
        if !self.old.exists {
            return Ok(Vec::new());
        }
        let all = self.ctx.store.attrs(self.source)?;
        Ok(all
            .into_iter()
            .filter_map(|(n, v)| Some((user_name(&n)?, v)))
            .collect())
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
        self.ensure_exists();
        self.work.txn.push(Op::SetAttrs {
            oid: self.head.clone(),
            attrs: vec![(user_attr(name), value)],
        });
        Ok(())
    }

    pub fn remove_xattr(&mut self, op: &OsdOp) -> OpResult {
        self.must_exist()?;
        let (name, _) = name_and_value(op)?;
        self.work.txn.push(Op::RemoveAttr {
            oid: self.head.clone(),
            name: user_attr(&name),
        });
        self.changed();
        done()
    }
}
