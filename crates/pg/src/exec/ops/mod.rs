//! The operations, by what they work on. Each is a method of [`crate::exec::run::Exec`].

pub(crate) mod call;
mod checksum;
pub(crate) mod copy;
mod data_read;
pub(crate) mod data_write;
pub(crate) mod omap;
pub(crate) mod snap;
mod tmap;
pub(crate) mod watch;
pub(crate) mod xattr;
mod xxhash;
