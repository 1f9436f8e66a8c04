//! The operations, by what they work on. Each is a method of [`crate::execute::Exec`].

mod call;
mod checksum;
pub(crate) mod copy;
mod data_read;
mod data_write;
mod omap;
mod snap;
pub(crate) mod watch;
mod xattr;
mod xxhash;
