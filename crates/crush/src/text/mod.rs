//! The text form of a CRUSH map, as `crushtool` writes and reads it (docs/protocol/ceph/03-placement.md, section 9).
//!
//! Weights have three decimals there, so a map that goes through text may map differently: the text is for
//! people, never for storage.

mod compile;
mod decompile;
mod tokens;

pub use compile::compile;

/// What is wrong with a text, and in which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct CompileError {
    pub line: usize,
    pub message: String,
}

/// Name and legacy value of each tunable, in the order of the text.
pub(crate) const TUNABLES: [(&str, u32); 8] = [
    ("choose_local_tries", 2),
    ("choose_local_fallback_tries", 5),
    ("choose_total_tries", 19),
    ("chooseleaf_descend_once", 0),
    ("chooseleaf_vary_r", 0),
    ("chooseleaf_stable", 0),
    ("straw_calc_version", 0),
    ("allowed_bucket_algs", 22),
];
