//! How command output looks: Ceph's JSON dialect, its text tables, its units; names inside proposed commands.
//!
//! Pure text functions; nothing here knows a command or the cluster. What is absent: XML (refused by the
//! caller), YAML.

pub mod json;
pub mod shell;
pub mod table;
pub mod units;

pub use json::{compact, pretty, spaced};
pub use table::{Align, Table};
