//! Reading for an execution, where every member has all of an object: from the own store.

use crate::exec::gathered::{Extent, Form, Gathered, Read, Value, merged};
use crate::store::{IoError, ObjectStore};
use types::ObjectId;

/// Reads data of one object. What cannot be read is told with the read that wanted it: it may be that no operation comes
/// to need it.
pub(super) fn gather(oid: &ObjectId, reads: &[Read], store: &mut dyn ObjectStore, into: &mut Gathered) {
    for read in reads {
        into.add(*read, one(oid, read, store));
    }
}

fn one(oid: &ObjectId, read: &Read, store: &mut dyn ObjectStore) -> Result<Value, IoError> {
    if read.form == Form::Bytes {
        return store.read(oid, read.offset, read.len).map(Value::Bytes);
    }
    let found = merged(store.extents(oid, read.offset, read.len)?, read.offset, read.len);
    let extents = found.into_iter().map(|(offset, len)| {
        let pieces = match read.form {
            Form::Map => Vec::new(),
            _ => store.read_pieces(oid, offset, len)?,
        };
        Ok(Extent { offset, len, pieces })
    });
    extents.collect::<Result<_, _>>().map(Value::Extents)
}
