//! Tests of the classes as clients see them: through the registry, with the PG's part played by [`Objects`].

mod classes;
mod hostile;
mod more;
mod replay;
mod rgw;

use crate::memory::MemoryObject;
use crate::registry::lookup;
use bytes::Bytes;
use std::collections::HashMap;
use types::{EntityAddr, EntityName, Errno, Utime};

/// A pool of objects and the rules of a CALL alone in its message.
pub struct Objects {
    objects: HashMap<String, MemoryObject>,
    reads_committed: bool,
    pub now: Utime,
    pub caller: EntityName,
    pub addr: EntityAddr,
}

impl Objects {
    pub fn new(reads_committed: bool) -> Self {
        let model = MemoryObject::new(reads_committed);
        Self {
            objects: HashMap::new(),
            reads_committed,
            now: model.now,
            caller: model.caller.name,
            addr: model.caller.addr,
        }
    }

    pub fn get(&mut self, oid: &str) -> &mut MemoryObject {
        let made = || MemoryObject::new(self.reads_committed);
        let object = self.objects.entry(oid.to_string()).or_insert_with(made);
        object.now = self.now;
        object.caller.name = self.caller;
        object.caller.addr = self.addr;
        object
    }

    /// Code and data as a client gets them from `rados_exec`.
    pub fn call(&mut self, oid: &str, class: &str, method: &str, input: &[u8]) -> (i32, Bytes) {
        let method = match lookup(class.as_bytes(), method.as_bytes()) {
            Ok(method) => method,
            Err(e) => return (e.errno().code(), Bytes::new()),
        };
        let object = self.get(oid);
        if !method.writes() && object.committed.is_none() {
            return (Errno::ENOENT.code(), Bytes::new());
        }
        let before = object.committed.clone();
        let reply = method.call(object, Bytes::copy_from_slice(input));
        if reply.rval < 0 {
            object.roll_back();
            return (reply.rval, Bytes::new());
        }
        if !method.writes() {
            assert_eq!(object.pending, before, "a method that only reads has written");
            return (reply.rval, reply.out);
        }
        object.commit();
        (0, Bytes::new())
    }
}
