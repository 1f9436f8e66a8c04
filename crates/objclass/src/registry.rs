//! The table of classes and methods, and calling one.

use crate::context::{ObjectContext, Result};
use crate::input::Input;
use crate::object::Object;
use crate::{hello, journal, lock, numops, rbd, refcount, version};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::LazyLock;
use types::Errno;

pub struct Class {
    pub name: &'static str,
    pub methods: &'static [Method],
}

/// Every class that this server has.
pub static CLASSES: &[Class] = &[
    Class {
        name: "hello",
        methods: hello::METHODS,
    },
    Class {
        name: "journal",
        methods: journal::METHODS,
    },
    Class {
        name: "lock",
        methods: lock::METHODS,
    },
    Class {
        name: "numops",
        methods: numops::METHODS,
    },
    Class {
        name: "rbd",
        methods: rbd::METHODS,
    },
    Class {
        name: "refcount",
        methods: refcount::METHODS,
    },
    Class {
        name: "version",
        methods: version::METHODS,
    },
];

const READ: u8 = 1;
const WRITE: u8 = 2;

type Body = fn(&mut Object<'_>, &mut Input) -> Result<Bytes>;

#[derive(Clone, Copy)]
pub struct Method {
    pub name: &'static str,
    flags: u8,
    body: Body,
}

/// What a call gave. `rval` below 0 is the errno that fails the op; above 0 a method's own return value,
/// which the client sees only under RETURNVEC or from a read. `out` may be filled in either case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub rval: i32,
    pub out: Bytes,
}

impl Method {
    pub(crate) const fn r(name: &'static str, body: Body) -> Self {
        Self {
            name,
            flags: READ,
            body,
        }
    }
    pub(crate) const fn w(name: &'static str, body: Body) -> Self {
        Self {
            name,
            flags: WRITE,
            body,
        }
    }
    pub(crate) const fn rw(name: &'static str, body: Body) -> Self {
        Self {
            name,
            flags: READ | WRITE,
            body,
        }
    }

    pub fn reads(&self) -> bool {
        self.flags & READ != 0
    }

    /// A message that calls such a method is a write, and the method may run on a missing object. A method
    /// that does not write gives ENOENT on a missing object without being called (the PG checks).
    pub fn writes(&self) -> bool {
        self.flags & WRITE != 0
    }

    pub fn call(&self, context: &mut dyn ObjectContext, input: Bytes) -> Reply {
        let mut object = Object::new(context, self.reads(), self.writes());
        let result = (self.body)(&mut object, &mut Input::new(input));
        match result {
            Ok(out) => Reply {
                rval: object.rval(),
                out,
            },
            Err(e) => Reply {
                rval: e.code(),
                out: object.take_failure_out(),
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    #[error("no such object class")]
    Class,
    #[error("no such method in the object class")]
    Method,
}

impl LookupError {
    /// Both are EOPNOTSUPP: clients probe for methods and fall back on it. (16.2 says EPERM for a class that
    /// it is configured not to load; later releases' tests expect this one:
    /// docs/protocol/ceph/04-osd.md, erratum 7.)
    pub fn errno(self) -> Errno {
        Errno::EOPNOTSUPP
    }
}

type MethodsByName = HashMap<&'static [u8], &'static Method>;

static INDEX: LazyLock<HashMap<&'static [u8], MethodsByName>> = LazyLock::new(|| {
    let methods = |c: &'static Class| c.methods.iter().map(|m| (m.name.as_bytes(), m)).collect();
    CLASSES.iter().map(|c| (c.name.as_bytes(), methods(c))).collect()
});

/// Finds a method by the names of a CALL op. Needs no object: its error comes before the object's.
pub fn lookup(class: &[u8], method: &[u8]) -> std::result::Result<&'static Method, LookupError> {
    let class = INDEX.get(class).ok_or(LookupError::Class)?;
    class.get(method).copied().ok_or(LookupError::Method)
}
