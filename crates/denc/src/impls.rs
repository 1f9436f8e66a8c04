//! Encodings of the primitive types and containers (docs/protocol/ceph/01-messenger.md, section 1).

use crate::{Bytes, Decode, Encode, Reader, Result, Writer};
use std::collections::{BTreeMap, BTreeSet};

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            fn encode(&self, w: &mut Writer) { w.raw(&self.to_le_bytes()); }
        }
        impl Decode for $t {
            const MIN_SIZE: usize = size_of::<$t>();
            fn decode(r: &mut Reader) -> Result<Self> { Ok(<$t>::from_le_bytes(r.array()?)) }
        }
    )*};
}
number!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

impl Encode for bool {
    fn encode(&self, w: &mut Writer) {
        w.bool(*self);
    }
}
impl Decode for bool {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.bool()
    }
}

impl Encode for str {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}
impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}
impl Decode for String {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.string()
    }
}

/// A buffer list or byte string: length-prefixed.
impl Encode for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
}
impl Decode for Bytes {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.blob()
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.len() as u32);
        for v in self {
            v.encode(w);
        }
    }
}
impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        self.as_slice().encode(w);
    }
}
impl<T: Decode> Decode for Vec<T> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        let n = r.count(T::MIN_SIZE)?;
        (0..n).map(|_| T::decode(r)).collect()
    }
}

/// A fixed array: elements without a count.
impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, w: &mut Writer) {
        for v in self {
            v.encode(w);
        }
    }
}

impl<T: Encode> Encode for BTreeSet<T> {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.len() as u32);
        for v in self {
            v.encode(w);
        }
    }
}
impl<T: Decode + Ord> Decode for BTreeSet<T> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        let n = r.count(T::MIN_SIZE)?;
        (0..n).map(|_| T::decode(r)).collect()
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.len() as u32);
        for (k, v) in self {
            k.encode(w);
            v.encode(w);
        }
    }
}
impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self> {
        let n = r.count(K::MIN_SIZE + V::MIN_SIZE)?;
        (0..n).map(|_| Ok((K::decode(r)?, V::decode(r)?))).collect()
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
    }
}
impl<A: Decode, B: Decode> Decode for (A, B) {
    const MIN_SIZE: usize = A::MIN_SIZE + B::MIN_SIZE;
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.is_some());
        if let Some(v) = self {
            v.encode(w);
        }
    }
}
impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(if r.bool()? { Some(T::decode(r)?) } else { None })
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, w: &mut Writer) {
        (**self).encode(w);
    }
}
impl<T: Encode> Encode for Box<T> {
    fn encode(&self, w: &mut Writer) {
        (**self).encode(w);
    }
}
impl<T: Decode> Decode for Box<T> {
    const MIN_SIZE: usize = T::MIN_SIZE;
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(Box::new(T::decode(r)?))
    }
}
