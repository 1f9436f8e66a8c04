//! Erasure code: k data units and m parity units, of which any k give all the others.
//!
//! Vocabulary: a *unit* is a run of bytes of one shard, a *stripe* the units of all k + m shards at one place. Shards 0 to k - 1
//! hold data, the m behind them parity. A *row* says how one shard's unit is made of the k data units: bytes are elements of
//! GF(2^8) ([`field`]), a unit is the sum of the data units, each times one coefficient. The rows of a [`Code`] are a value
//! ([`Matrix`]): Reed-Solomon is one way to make them, local codes may be another.
//!
//! Pure functions over bytes. What is computed does not depend on the processor ([`kernel`]). Not here: where shards lie, who
//! writes them, what is done about a bad one.

mod code;
mod field;
mod kernel;
mod layout;
mod matrix;
mod sum;

pub use code::{Code, Recipe, Unfit};
pub use kernel::Kernel;
pub use layout::{Layout, Piece};
pub use matrix::Matrix;
pub use sum::Sum;

/// Data shards of a code.
pub const K_MAX: usize = 32;
/// Parity shards of a code.
pub const M_MAX: usize = 16;
