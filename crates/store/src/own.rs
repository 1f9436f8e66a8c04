//! Own copies: what the store keeps must not hold on to a network buffer.

use bytes::Bytes;
use types::ObjectId;

pub fn detach(b: &Bytes) -> Bytes {
    Bytes::copy_from_slice(b)
}

pub fn detach_oid(oid: &ObjectId) -> ObjectId {
    let mut oid = oid.clone();
    let o = &mut oid.object;
    for b in [&mut o.nspace, &mut o.key, &mut o.oid] {
        *b = detach(b);
    }
    oid
}
