//! The table of classes and their methods.

use crate::filter::Filter;
use crate::method::Method;
use crate::{
    cas, cmpomap, fifo, hello, journal, lock, log, numops, otp, queue, rbd, refcount, rgw, rgw_gc, timeindex,
    two_phase, user, version,
};
use std::collections::HashMap;
use std::sync::LazyLock;
use types::Errno;

pub struct Class {
    pub name: &'static str,
    pub methods: &'static [Method],
    pub filters: &'static [Filter],
}

/// Every class that this server has.
pub static CLASSES: &[Class] = &[
    Class {
        name: "2pc_queue",
        methods: two_phase::METHODS,
        filters: &[],
    },
    Class {
        name: "cas",
        methods: cas::METHODS,
        filters: &[],
    },
    Class {
        name: "cmpomap",
        methods: cmpomap::METHODS,
        filters: &[],
    },
    Class {
        name: "fifo",
        methods: fifo::METHODS,
        filters: &[],
    },
    Class {
        name: "hello",
        methods: hello::METHODS,
        filters: hello::FILTERS,
    },
    Class {
        name: "journal",
        methods: journal::METHODS,
        filters: &[],
    },
    Class {
        name: "lock",
        methods: lock::METHODS,
        filters: &[],
    },
    Class {
        name: "log",
        methods: log::METHODS,
        filters: &[],
    },
    Class {
        name: "numops",
        methods: numops::METHODS,
        filters: &[],
    },
    Class {
        name: "otp",
        methods: otp::METHODS,
        filters: &[],
    },
    Class {
        name: "queue",
        methods: queue::METHODS,
        filters: &[],
    },
    Class {
        name: "rbd",
        methods: rbd::METHODS,
        filters: &[],
    },
    Class {
        name: "refcount",
        methods: refcount::METHODS,
        filters: &[],
    },
    Class {
        name: "rgw",
        methods: rgw::METHODS,
        filters: &[],
    },
    Class {
        name: "rgw_gc",
        methods: rgw_gc::METHODS,
        filters: &[],
    },
    Class {
        name: "timeindex",
        methods: timeindex::METHODS,
        filters: &[],
    },
    Class {
        name: "user",
        methods: user::METHODS,
        filters: &[],
    },
    Class {
        name: "version",
        methods: version::METHODS,
        filters: &[],
    },
];

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
