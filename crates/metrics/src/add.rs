//! How a cell with one writing thread grows.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One writer, so no read-modify-write is needed: this compiles to a plain add in memory.
pub(crate) fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}
