//! CRUSH: which devices hold input `x`, computed from a weighted tree and a rule
//! (docs/protocol/ceph/03-placement.md, sections 5, 9).
//!
//! Vocabulary: a *device* is an OSD id (>= 0); a *bucket* is an inner node (id < 0, kept in *slot* `-1 - id`);
//! an *item* is either; a *rule* is a small program of steps; *choose_args* replace weights (by position) and ids
//! for one pool; a *shadow tree* is a copy of a tree with the devices of one device class only.
//! Weights are 16.16 fixed point: 0x10000 is 1.0.
//!
//! Invariants: the same map and input give the same output as every Ceph client; odd corners (a logarithm that
//! is not monotone, signed weights) are part of the protocol. Decoding takes memory in proportion to the bytes
//! decoded; running a rule takes at most [`CHOICE_BUDGET`] choices even on a hostile map (a tree with a cycle).
//!
//! Not here: PG numbers, up and acting sets (`types::osdmap`), MSR rules (Ceph 19 and later).

mod classes;
mod codec;
mod edit;
mod hash;
mod ln;
mod map;
mod mapper;
mod straw;
mod text;
mod validate;
mod weight_sets;

pub use classes::SHADOW_SEPARATOR;
pub use edit::{EditError, FailureDomain, Location, valid_name};
pub use hash::{hash1, hash2, hash3, hash4, hash5, string_rjenkins};
pub use ln::straw2_ln;
pub use map::{
    Alg, Bucket, BucketBody, ChooseArg, ChooseArgs, CrushMap, DEFAULT_CHOOSE_ARGS, DEFAULT_TYPES, ITEM_NONE,
    Rule, RuleKind, Step, Tunables, WEIGHT_ONE, bucket_id, bucket_slot, step_op, weight_from_f64,
    weight_to_f64,
};
pub use mapper::CHOICE_BUDGET;
pub use text::{CompileError, compile};
pub use validate::Invalid;
