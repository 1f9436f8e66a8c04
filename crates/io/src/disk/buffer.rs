//! Memory that direct I/O can use: aligned to 4096 bytes, in whole multiples of it.
//!
//! Single blocks, of which caches and write-back hold thousands, are *pages* of a pool of the process: cut from
//! slabs, used again at once, never given back to the allocator, which among blocks of unlike ages grows the heap
//! to many times what is in use. Bound: as many pages as were ever in use at once, and [`HOT_PAGES_MAX`] idle ones
//! that still have memory; that of more is the host's again until they are used.

#![allow(unsafe_code)] // allocation with an alignment

use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What direct I/O is aligned to, in memory and on the disk: no device that hosts use asks for more.
pub const ALIGN: usize = 4096;

/// Long reads' buffers are used again: a new one is zeroed first.
const SPARE_BYTES: usize = 1 << 20;
/// Kept for all files of the process.
const SPARES_MAX: usize = 16;
static SPARES: Mutex<Vec<AlignedBuf>> = Mutex::new(Vec::new());

/// Idle pages of the process that keep their memory.
const HOT_PAGES_MAX: usize = 16384;
/// Idle pages whose memory [`cool_pages`] gives back at a time, and those it leaves.
const COOL_PAGES: usize = 1024;
const WARM_PAGES: usize = 256;
/// Pages that one slab is cut into.
const SLAB_PAGES: usize = 64;

/// One idle page.
struct Idle(NonNull<u8>);

// SAFETY: an idle page belongs to the pool alone; the pointer is not tied to a thread.
unsafe impl Send for Idle {}

struct Pages {
    hot: Vec<Idle>,
    /// Their memory was given back to the host; they read as anything.
    cold: Vec<Idle>,
}

static PAGES: Mutex<Pages> = Mutex::new(Pages {
    hot: Vec::new(),
    cold: Vec::new(),
});

fn pages() -> MutexGuard<'static, Pages> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    fn take(&mut self) -> NonNull<u8> {
        if let Some(Idle(page)) = self.hot.pop().or_else(|| self.cold.pop()) {
            return page;
        }
        let slab = std::mem::ManuallyDrop::new(AlignedBuf::new(SLAB_PAGES * ALIGN));
        for i in (1..SLAB_PAGES).rev() {
            // SAFETY: within the slab, which is never freed.
            self.hot.push(Idle(unsafe { slab.ptr.add(i * ALIGN) }));
        }
        slab.ptr
    }

    fn put(&mut self, page: NonNull<u8>) {
        if self.hot.len() < HOT_PAGES_MAX {
            self.hot.push(Idle(page));
            return;
        }
        self.cool(page);
    }

    fn cool_some(&mut self) {
        for _ in 0..self.hot.len().saturating_sub(WARM_PAGES).min(COOL_PAGES) {
            if let Some(Idle(page)) = self.hot.pop() {
                self.cool(page);
            }
        }
    }

    fn cool(&mut self, page: NonNull<u8>) {
        // SAFETY: a whole page of private memory that nobody refers to; it reads as zeros or as before.
        unsafe { libc::madvise(page.as_ptr().cast(), ALIGN, libc::MADV_DONTNEED) };
        self.cold.push(Idle(page));
    }
}

/// Gives the memory of some idle pages back to the host: for who has nothing else to do.
pub fn cool_pages() {
    pages().cool_some();
}

/// A copy of one block in a page of its own.
pub fn page_of(block: &[u8]) -> Bytes {
    let mut page = AlignedBuf::page();
    let len = block.len().min(ALIGN);
    page[..len].copy_from_slice(&block[..len]);
    page[len..].fill(0);
    Bytes::from_owner(page)
}

fn spares() -> MutexGuard<'static, Vec<AlignedBuf>> {
    SPARES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Goes back to the spares.
struct Spare(Option<AlignedBuf>);

impl AsRef<[u8]> for Spare {
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let mut spares = spares();
        if spares.len() < SPARES_MAX {
            spares.extend(self.0.take());
        }
    }
}

/// A zeroed buffer of `len` bytes, rounded up to whole [`ALIGN`]s.
#[derive(Debug)]
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// One of the pool.
    is_page: bool,
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
            is_page: false,
        }
    }

    /// One block, with old bytes in it.
    fn page() -> Self {
        Self {
            ptr: pages().take(),
            len: ALIGN,
            is_page: true,
        }
    }

    fn layout(len: usize) -> Layout {
        let size = len.max(1).next_multiple_of(ALIGN);
        // Sizes come from bounded requests; one that no memory could hold ends in `handle_alloc_error`.
        Layout::from_size_align(size, ALIGN).unwrap_or(Layout::new::<[u8; ALIGN]>())
    }

    /// A buffer for a read, which fills all of it or fails: one that was used before has old bytes in it.
    pub fn for_read(len: usize) -> Self {
        match len {
            ALIGN => Self::page(),
            SPARE_BYTES => spares().pop().unwrap_or_else(|| Self::new(len)),
            _ => Self::new(len),
        }
    }

    /// All of it as shared bytes; it is used again when the last of them is gone.
    pub fn into_read(self) -> Bytes {
        match self.len {
            SPARE_BYTES => Bytes::from_owner(Spare(Some(self))),
            _ => Bytes::from_owner(self),
        }
    }

    /// The first `len` bytes as shared bytes, without a copy.
    pub fn into_bytes(self, len: usize) -> Bytes {
        Bytes::from_owner(self).slice(..len)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.is_page {
            return pages().put(self.ptr);
        }
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
        let (len, max) = (SPARE_BYTES, SPARES_MAX);
        let take = |n| (0..n).map(|_| AlignedBuf::for_read(len)).collect::<Vec<_>>();
        let mut all = take(2 * max);
        all[0][len - 1] = 7;
        let shared: Vec<Bytes> = all.into_iter().map(AlignedBuf::into_read).collect();
        assert!(shared[0].len() == len && shared[0][len - 1] == 7);
        let places: Vec<_> = shared.iter().map(|b| b.as_ptr()).collect();
        drop(shared);
        assert_eq!(spares().len(), max);
        assert!(
            take(max)
                .iter()
                .all(|b| places.contains(&b.as_ptr()) && is_aligned(b))
        );
        // Others are not kept.
        let between = AlignedBuf::for_read(2 * ALIGN).into_read();
        assert_eq!((between.len(), spares().len()), (2 * ALIGN, 0));
    }

    /// On a pool of its own: other tests of this process use the shared one.
    #[test]
    fn idle_pages_are_bounded_and_serve_again() {
        let mut pool = Pages {
            hot: Vec::new(),
            cold: Vec::new(),
        };
        let count = HOT_PAGES_MAX + 3 * SLAB_PAGES;
        let take = |pool: &mut Pages| (0..count).map(|_| pool.take()).collect::<Vec<_>>();
        let many = take(&mut pool);
        let mut places: Vec<usize> = many.iter().map(|p| p.as_ptr() as usize).collect();
        assert!(places.iter().all(|p| p % ALIGN == 0));
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count);
        many.into_iter().for_each(|p| pool.put(p));
        assert_eq!((pool.hot.len(), pool.cold.len()), (HOT_PAGES_MAX, 3 * SLAB_PAGES));
        // Cold ones serve before new ones are made.
        let again = take(&mut pool);
        assert!(
            again
                .iter()
                .all(|p| places.binary_search(&(p.as_ptr() as usize)).is_ok())
        );
        again.into_iter().for_each(|p| pool.put(p));
        pool.cool_some();
        assert_eq!(pool.hot.len(), HOT_PAGES_MAX - COOL_PAGES);
        (0..HOT_PAGES_MAX / COOL_PAGES).for_each(|_| pool.cool_some());
        assert_eq!(
            (pool.hot.len(), pool.hot.len() + pool.cold.len()),
            (WARM_PAGES, count)
        );
    }

    #[test]
    fn pages_hold_copies() {
        let block = |n: usize| [n as u8; ALIGN];
        let many: Vec<Bytes> = (0..300).map(|i| page_of(&block(i))).collect();
        assert!(
            many.iter()
                .enumerate()
                .all(|(i, b)| is_aligned(b) && b[..] == block(i))
        );
        drop(many);
        let short = page_of(&[1, 2]);
        assert!(
            short[..2] == [1, 2] && short[2..] == [0; ALIGN - 2],
            "no old bytes"
        );
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
