//! How command output looks: Ceph's JSON dialect, its text tables, its units of plain output; names inside proposed commands.
//!
//! Pure text functions; nothing here knows a command or the cluster. What is absent: YAML.

pub mod shell;
pub mod table;
pub mod units;

pub use forms::json::{self, compact, pretty, spaced};
pub use table::{Align, Table};
