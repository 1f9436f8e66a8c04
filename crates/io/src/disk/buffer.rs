//! Memory that direct I/O can use: aligned to 4096 bytes, in whole multiples of it.

#![allow(unsafe_code)] // allocation with an alignment

use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What direct I/O is aligned to, in memory and on the disk: no device that hosts use asks for more.
pub const ALIGN: usize = 4096;

/// Buffers of these sizes, a block's and a long read's, are used again: given back and asked for anew, among blocks
/// that live longer, they grow the heap to many times what is in use; and a new one is zeroed first.
const SPARE_BYTES: [usize; 2] = [ALIGN, 1 << 20];
/// Kept of each for all files of the process.
const SPARES_MAX: [usize; 2] = [256, 16];
static SPARES: [Mutex<Vec<AlignedBuf>>; 2] = [const { Mutex::new(Vec::new()) }; 2];

fn class_of(len: usize) -> Option<usize> {
    SPARE_BYTES.iter().position(|n| *n == len)
}

fn spares(class: usize) -> MutexGuard<'static, Vec<AlignedBuf>> {
    SPARES[class].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Goes back to the spares.
struct Spare(usize, Option<AlignedBuf>);

impl AsRef<[u8]> for Spare {
    fn as_ref(&self) -> &[u8] {
        self.1.as_deref().unwrap_or_default()
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let mut spares = spares(self.0);
        if spares.len() < SPARES_MAX[self.0] {
            spares.extend(self.1.take());
        }
    }
}

/// A zeroed buffer of `len` bytes, rounded up to whole [`ALIGN`]s.
#[derive(Debug)]
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer is owned memory like a `Box<[u8]>`; the pointer is never shared.
unsafe impl Send for AlignedBuf {}
// SAFETY: `&AlignedBuf` gives only `&[u8]`.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    pub fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        Self {
            ptr,
            len: layout.size(),
        }
    }

    fn layout(len: usize) -> Layout {
        let size = len.max(1).next_multiple_of(ALIGN);
        // Sizes come from bounded requests; one that no memory could hold ends in `handle_alloc_error`.
        Layout::from_size_align(size, ALIGN).unwrap_or(Layout::new::<[u8; ALIGN]>())
    }

    /// A buffer for a read, which fills all of it or fails: one that was used before has old bytes in it.
    pub fn for_read(len: usize) -> Self {
        let spare = class_of(len).and_then(|class| spares(class).pop());
        spare.unwrap_or_else(|| Self::new(len))
    }

    /// All of it as shared bytes; it is used again when the last of them is gone.
    pub fn into_read(self) -> Bytes {
        match class_of(self.len) {
            Some(class) => Bytes::from_owner(Spare(class, Some(self))),
            None => {
                let len = self.len;
                self.into_bytes(len)
            }
        }
    }

    /// The first `len` bytes as shared bytes, without a copy.
    pub fn into_bytes(self, len: usize) -> Bytes {
        Bytes::from_owner(self).slice(..len)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout (`len` is its size).
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised (zeroed) bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Bytes that grow, in memory that direct I/O takes as it is.
#[derive(Debug, Default)]
pub struct AlignedVec {
    buf: Option<AlignedBuf>,
    len: usize,
}

impl AlignedVec {
    pub fn capacity(&self) -> usize {
        self.buf.as_ref().map_or(0, |b| b.len())
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Longer: with zeros.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len);
        if let Some(buf) = self.buf.as_mut().filter(|_| len > self.len) {
            buf[self.len..len].fill(0);
        }
        self.len = len;
    }

    pub fn extend_from_slice(&mut self, data: &[u8]) {
        let end = self.len + data.len();
        self.reserve(end);
        if let Some(buf) = &mut self.buf {
            buf[self.len..end].copy_from_slice(data);
        }
        self.len = end;
    }

    fn reserve(&mut self, len: usize) {
        if len <= self.capacity() {
            return;
        }
        let mut larger = AlignedBuf::new(len.max(2 * self.capacity()));
        larger[..self.len].copy_from_slice(self);
        self.buf = Some(larger);
    }
}

impl Deref for AlignedVec {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |b| &b[..self.len])
    }
}

impl DerefMut for AlignedVec {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.buf.as_mut().map_or(&mut [], |b| &mut b[..len])
    }
}

/// True if direct I/O takes this memory as it is.
pub fn is_aligned(data: &[u8]) -> bool {
    data.as_ptr() as usize % ALIGN == 0 && data.len() % ALIGN == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_grow_and_stay_aligned() {
        let mut v = AlignedVec::default();
        assert!(v.is_empty());
        v.resize(64);
        for i in 0..3000u32 {
            v.extend_from_slice(&i.to_le_bytes());
        }
        v.resize(16384);
        assert!(is_aligned(&v) && v[..64] == [0; 64] && v[12064..] == [0; 4320]);
        assert_eq!(v[64 + 4 * 2999..][..4], 2999u32.to_le_bytes());
        v.clear();
        v.resize(8);
        assert_eq!((v.len(), &v[..]), (8, &[0; 8][..]), "no old bytes");
    }

    #[test]
    fn read_buffers_are_used_again_within_a_bound() {
        // Other tests of this process use the small ones.
        let (class, len, max) = (1, SPARE_BYTES[1], SPARES_MAX[1]);
        let take = |n| (0..n).map(|_| AlignedBuf::for_read(len)).collect::<Vec<_>>();
        let mut all = take(2 * max);
        all[0][len - 1] = 7;
        let shared: Vec<Bytes> = all.into_iter().map(AlignedBuf::into_read).collect();
        assert!(shared[0].len() == len && shared[0][len - 1] == 7);
        let places: Vec<_> = shared.iter().map(|b| b.as_ptr()).collect();
        drop(shared);
        assert_eq!(spares(class).len(), max);
        assert!(
            take(max)
                .iter()
                .all(|b| places.contains(&b.as_ptr()) && is_aligned(b))
        );
        // Others are not kept.
        let between = AlignedBuf::for_read(2 * ALIGN).into_read();
        assert_eq!((between.len(), spares(class).len()), (2 * ALIGN, 0));
    }

    #[test]
    fn buffers_are_aligned_and_zeroed() {
        for len in [0, 1, 4096, 4097, 1 << 20] {
            let mut b = AlignedBuf::new(len);
            assert!(
                is_aligned(&b) && b.len() >= len && b.iter().all(|x| *x == 0),
                "{len}"
            );
            b[0] = 7;
            assert_eq!(b.into_bytes(1), Bytes::from_static(&[7]));
        }
    }
}
