//! Models of the replication contract (docs/internals/replication.md), searched exhaustively within bounds.
//!
//! - [`search`]: breadth-first search over every reachable state; shortest counterexamples; dead ends.
//! - [`lease`]: one lease against two clocks: whoever believes in it, holds it.
//! - [`replication`]: three OSDs, one PG, one object: the in-sync set, hand-over, catching up. It takes from
//!   `lease` only what that model shows.
//! - [`reads`]: a member of `in_sync` that answers reads by grants of its primary, against clocks.
//!
//! Each rule that the contract stands on can be broken by a field of a model's rules; tests show that the search
//! then finds the counterexample, so a search that finds none says something.
//!
//! Not here: the product's code (crate `simtest` runs that), bytes, sizes, speeds. What is modelled and what is
//! not, with the numbers of states: docs/internals/replication-model.md.

pub mod lease;
pub mod reads;
pub mod replication;
pub mod search;
