//! A method of a class: its flags, its body, and calling it.

use crate::context::{ObjectContext, Result};
use crate::input::Input;
use crate::object::Object;
use bytes::Bytes;

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
