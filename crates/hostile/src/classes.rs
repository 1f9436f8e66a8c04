//! Calls of class methods, one after the other on one object, so that later ones meet what earlier ones left.
//!
//! Input: a list of calls {u16 number of the method in the order of the table, u16 length, input}.

use crate::take::{take, take_bytes};
use bytes::Bytes;
use objclass::memory::{MemoryObject, OBJECT_SIZE_MAX};
use objclass::{CLASSES, Method};

/// Calls of one input: keeps an input's cost in bounds.
const CALLS_MAX: usize = 64;
/// An object larger than this is taken back, for the same reason.
const KEEP_MAX: u64 = 1 << 20;

/// The methods of all classes in the order of the table.
pub fn methods() -> impl Iterator<Item = (&'static str, &'static Method)> {
    CLASSES.iter().flat_map(|c| c.methods.iter().map(|m| (c.name, m)))
}

pub fn classes(mut data: &[u8]) -> bool {
    let mut succeeded = false;
    let all: Vec<_> = methods().collect();
    let mut object = MemoryObject::new(data.len().is_multiple_of(2));
    for _ in 0..CALLS_MAX {
        if data.is_empty() {
            break;
        }
        let (_, method) = all[take::<2>(&mut data) % all.len()];
        let len = take::<2>(&mut data);
        let input = Bytes::copy_from_slice(take_bytes(&mut data, len));
        if object.committed.is_none() && !method.writes() {
            continue;
        }
        let reply = method.call(&mut object, input);
        succeeded |= reply.rval >= 0;
        let size = object.pending.as_ref().map_or(0, |s| s.data.len() as u64);
        assert!(size <= OBJECT_SIZE_MAX);
        if !method.writes() {
            assert_eq!(object.pending, object.committed, "{} wrote", method.name);
        }
        if reply.rval < 0 || size > KEEP_MAX {
            object.roll_back();
        } else {
            object.commit();
        }
    }
    succeeded
}
