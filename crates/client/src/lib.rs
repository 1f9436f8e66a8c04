//! Our RADOS client: the state machine, without a driver yet.
pub mod core;
mod error;
pub use core::list::Cursor;
pub use core::op::{Cmp, Operation, Outcome, Step};
pub use core::snap::SnapContext;
pub use core::watch::WatchEvent;
pub use error::Error;
pub type Result<T> = std::result::Result<T, Error>;
