//! A file's content in memory: sparse pages, shared between copies until one of them changes.
//!
//! Invariants: a page that is all zeros is not kept; nothing is kept behind the length. A copy costs one
//! count for each page, so that a test can afford a survivor at every call.
//!
//! Not here: what is durable and what is pending.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

const PAGE: usize = 4096;
const ZEROS: [u8; PAGE] = [0; PAGE];

/// Page numbers are small and nobody's choice: one multiplication spreads them.
#[derive(Debug, Default, Clone)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        let x = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 29);
    }
}

/// Sparse content: pages that are not kept read as zeros.
#[derive(Debug, Clone, Default)]
pub struct Image {
    pages: HashMap<u64, Arc<[u8; PAGE]>, BuildHasherDefault<PageHasher>>,
    pub len: u64,
}

impl Image {
    pub fn write(&mut self, mut at: u64, mut data: &[u8]) {
        self.len = self.len.max(at + data.len() as u64);
        while !data.is_empty() {
            let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = data.len().min(PAGE - skip);
            self.write_page(page, skip, &data[..n]);
            (at, data) = (at + n as u64, &data[n..]);
        }
    }

    fn write_page(&mut self, page: u64, skip: usize, data: &[u8]) {
        let zeros = data == &ZEROS[..data.len()];
        if zeros && data.len() == PAGE {
            self.pages.remove(&page);
        } else if let Some(p) = self.pages.get_mut(&page) {
            Arc::make_mut(p)[skip..skip + data.len()].copy_from_slice(data);
        } else if !zeros {
            let mut p = ZEROS;
            p[skip..skip + data.len()].copy_from_slice(data);
            self.pages.insert(page, Arc::new(p));
        }
    }

    pub fn read(&self, mut at: u64, mut out: &mut [u8]) {
        while !out.is_empty() {
            let (page, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = out.len().min(PAGE - skip);
            match self.pages.get(&page) {
                Some(p) => out[..n].copy_from_slice(&p[skip..skip + n]),
                None => out[..n].fill(0),
            }
            at += n as u64;
            out = &mut out[n..];
        }
    }

    /// The first byte from `at` on in a page that is kept, or the length.
    pub fn next_data(&self, at: u64) -> u64 {
        let pages = at / PAGE as u64..self.len.div_ceil(PAGE as u64);
        let kept = pages.into_iter().find(|p| self.pages.contains_key(p));
        kept.map_or(self.len.max(at), |p| at.max(p * PAGE as u64))
    }

    pub fn zero(&mut self, mut at: u64, len: u64) {
        let end = (at + len).min(self.len);
        while at < end {
            let skip = at % PAGE as u64;
            let n = (PAGE as u64 - skip).min(end - at);
            self.write_page(at / PAGE as u64, skip as usize, &ZEROS[..n as usize]);
            at += n;
        }
    }

    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            let old = self.len;
            self.zero(len, old - len);
        }
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_and_zeros_elsewhere() {
        let mut a = Image::default();
        a.write(5000, &[7; 6000]);
        assert_eq!((a.len, a.pages.len()), (11_000, 2));
        let b = a.clone();
        a.write(8192, &[0; 4096]);
        a.zero(5000, 100);
        assert_eq!(a.pages.len(), 1);
        let mut out = [1; 3];
        a.read(5099, &mut out);
        assert_eq!(out, [0, 7, 7]);
        b.read(8190, &mut out);
        assert_eq!(out, [7; 3]);
        assert_eq!(
            [0, 5000, 8191, 8192].map(|at| a.next_data(at)),
            [4096, 5000, 8191, 12_288]
        );
        assert_eq!([8192, 20_000].map(|at| b.next_data(at)), [8192, 20_000]);
        a.set_len(5100);
        a.set_len(20_000);
        a.read(5099, &mut out);
        assert_eq!((out, a.len), ([0; 3], 20_000));
    }
}
