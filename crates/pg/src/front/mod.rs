//! The front: what a client may ask, and in which order. Admission, duplicates, the order of each object's messages,
//! what waits, watches and notifies, locks, answers.

pub(crate) mod ahead;
pub(crate) mod checks;
pub(crate) mod commit;
pub(crate) mod fetch;
pub(crate) mod list;
pub(crate) mod locks;
pub(crate) mod notifies;
pub(crate) mod parked;
pub(crate) mod reply;
pub(crate) mod watch;
pub(crate) mod write;
