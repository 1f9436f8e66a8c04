//! How a pool's objects are cut into shards.

use erasure::{Code, Layout};

/// Code and layout of a pool.
#[derive(Debug, Clone)]
pub struct Coding {
    pub(crate) code: Code,
    pub(crate) layout: Layout,
}

impl Coding {
    /// Reed-Solomon's code of `k` + `m`, with units of so many bytes.
    pub fn new(k: usize, m: usize, unit: u64) -> Result<Self, erasure::Unfit> {
        Ok(Self {
            code: Code::reed_solomon(k, m)?,
            layout: Layout::new(k, m, unit)?,
        })
    }
}
