//! The execution: what the operations of one message mean for one object.
//!
//! A message is *planned* first ([`plan`]): what data its operations read. The caller *gathers* that, from wherever it is,
//! and then the message is *executed* ([`execute`]) on what was gathered. Where an operation turns out to need more
//! ([`Missing`]: class methods decide as they go) the caller gathers that, too, and the message is executed again from
//! the start: an execution changes nothing but the [`Outcome`] that it returns.
//!
//! Reads show the object as it was before the message; existence, size and STAT follow the message's own
//! operations (docs/protocol/ceph/04-osd.md, 8.1). Writes gather as steps of one transaction beside the object's
//! new state; nothing of it counts until the PG has submitted the transaction ([`finish`] completes it with versions,
//! clones and the log entry).
//!
//! Not here: the store and its data (the back end's), which message has its turn, what waits, replies (the front's).

pub(crate) mod cost;
pub(crate) mod finish;
pub(crate) mod gathered;
pub(crate) mod known;
pub(crate) mod limits;
pub(crate) mod notifies;
pub(crate) mod ops;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod result;
mod run;
pub(crate) mod snap_context;
pub(crate) mod work;

pub(crate) use request::{Missing, Outcome, Request, Results};
pub(crate) use result::{Fail, Ran};
pub(crate) use run::execute;

#[cfg(test)]
mod tests;
