//! Zeros in a file, written: space that is flushed cheaply later.

use io::disk::{DiskFile, write_slices};

/// One write of zeros. Small, because the page cache keeps what one call wrote in as large a piece, and a
/// later write of one block into a large piece walks all of it (ext4, seen in profiles). Aligned, so that
/// direct I/O takes it as it is.
#[repr(align(4096))]
struct Zeros([u8; 64 << 10]);
static ZEROS: Zeros = Zeros([0; 64 << 10]);

/// Writes zeros to `[from, to)`.
pub fn write_zeros(file: &dyn DiskFile, from: u64, to: u64) -> std::io::Result<()> {
    let step = ZEROS.0.len() as u64;
    let starts = (from..to).step_by(ZEROS.0.len());
    write_slices(
        file,
        starts.map(|at| (at, &ZEROS.0[..step.min(to - at) as usize])),
    )
}
