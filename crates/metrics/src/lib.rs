//! What a role counts and measures about itself, under Ceph's names.
//!
//! Vocabulary: a *table* is a struct of cells made by [`table!`], each with its [`Spec`]; a *logger* is the name under which
//! a table appears in `perf dump` (`osd`, `bluestore`); a [`Registry`] holds the tables of one role, and whoever reports
//! walks over it ([`Registry::visit`]).
//!
//! Invariants: an update is a plain load and store, without lock, allocation or atomic read-modify-write: a cell has one
//! writing thread, the role's own; anybody may read at any time. A cell holds what was measured; what nobody measures has
//! no cell. Readers may see a sum without its count for a moment.
//!
//! Not here: who asks (`osd`, `mon`, `node`), what a value means for health.

mod add;
mod cell;
mod histogram;
pub mod json;
mod registry;
mod spec;
mod table;

pub use cell::{Average, Counter, Gauge, TimeAverage};
pub use histogram::{Axis, BUCKETS, Histogram};
pub use registry::{Registry, Table};
pub use spec::{Cell, Kind, Spec, Unit, Value, spec};
