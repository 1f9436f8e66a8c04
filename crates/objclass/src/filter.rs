//! Filters of object listings (op PGNLS_FILTER): a client names one, and is told only of the objects that pass it
//! (docs/protocol/ceph/04-osd.md, 13.5). `plain` is the server's own; the others belong to classes, as `class.filter`.

use crate::context::Result;
use crate::registry::CLASSES;
use bytes::Bytes;
use denc::Reader;
use types::Errno;

/// What the client's input makes of a filter: which objects pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass {
    /// Those whose user attribute has this value. No object without the attribute does.
    XattrIs { name: Bytes, value: Bytes },
}

impl Pass {
    /// `str name, str value`; the name with the `_` that Ceph's stores put in front of users' attributes.
    pub(crate) fn by_xattr(r: &mut Reader) -> Result<Self> {
        let mut text = || r.blob().map_err(|_| Errno::EINVAL);
        let (name, value) = (text()?, text()?);
        match name.strip_prefix(b"_") {
            Some(rest) => Ok(Self::XattrIs {
                name: name.slice_ref(rest),
                value,
            }),
            None => Err(Errno::EINVAL),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Filter {
    pub name: &'static str,
    pub parse: fn(&mut Reader) -> Result<Pass>,
}

/// Reads the input of a filter by its name; EINVAL if there is no such.
pub fn parse_filter(name: &[u8], r: &mut Reader) -> Result<Pass> {
    if name == b"plain" {
        return Pass::by_xattr(r);
    }
    let dot = name.iter().position(|b| *b == b'.').ok_or(Errno::EINVAL)?;
    let (class, filter) = (&name[..dot], &name[dot + 1..]);
    let class = CLASSES.iter().find(|c| c.name.as_bytes() == class);
    let filters = class.map_or(&[][..], |c| c.filters);
    let filter = filters.iter().find(|f| f.name.as_bytes() == filter);
    (filter.ok_or(Errno::EINVAL)?.parse)(r)
}
