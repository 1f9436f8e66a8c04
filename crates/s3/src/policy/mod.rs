//! Policies of buckets: who may do what, in AWS's language. A text is parsed as a whole or refused with a sentence: nothing of it is
//! ever passed over.
//!
//! Three kinds: of buckets; of what a role may do, which have resources of all buckets and no principals; and of who may take a role,
//! which have principals and one action.
//!
//! An explicit Deny goes before everything. What no statement says is left to owner and ACLs.

mod actions;
mod condition;
mod json;
mod keys;
mod parse;
mod pattern;
mod statement;
#[cfg(test)]
mod tests;

pub use actions::Action;
pub use condition::seconds;
pub use keys::Key;
pub use pattern::VALUE_MAX;
pub use statement::{Policy, Request, Verdict, role_arn, role_of, session_arn, session_principal, user_arn};
