//! Where a PG's data and log entries go, and where they are read: copies on other OSDs ([`replicated`]).

pub(crate) mod replicated;
