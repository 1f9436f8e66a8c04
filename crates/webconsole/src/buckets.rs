//! What pages ask of buckets and of who owns them. The object gateway's library is no part of the console, nor below it: whoever starts a console
//! lends it one ([`Buckets`]), which asks as the session's client and changes nothing.

use client::Client;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// An answer, or why there is none, in words.
pub type Looking<'a, T> = Pin<Box<dyn Future<Output = Result<Listed<T>, String>> + 'a>>;

pub trait Buckets: Send + Sync {
    /// The pool without which there are none.
    fn pool(&self) -> &'static str;

    /// Buckets behind `after`, in the order of names, at most `max`.
    fn buckets<'a>(&'a self, client: &'a Client, after: &'a str, max: u64) -> Looking<'a, Bucket>;

    /// Users, in the same way.
    fn users<'a>(&'a self, client: &'a Client, after: &'a str, max: u64) -> Looking<'a, User>;
}

impl fmt::Debug for dyn Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pool())
    }
}

/// Some of a list; one that cannot be read is there with the reason.
#[derive(Debug)]
pub struct Listed<T> {
    pub shown: Vec<(String, Result<T, String>)>,
    pub more: bool,
}

/// What may be there at most. None: as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    pub bytes: Option<u64>,
    pub objects: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Bucket {
    pub owner: String,
    /// Milliseconds since 1970.
    pub created: u64,
    pub deleting: bool,
    /// Objects and bytes. None: nobody has counted yet.
    pub held: Option<(u64, u64)>,
    pub quota: Quota,
    pub versioning: String,
    pub locked: bool,
    pub encrypted: bool,
    pub policy: bool,
    /// By what everybody is let in.
    pub public: Vec<String>,
    pub parts: u64,
    /// There are more.
    pub more_parts: bool,
}

#[derive(Debug, Clone, Default)]
pub struct User {
    pub display: String,
    pub created: u64,
    pub keys: u64,
    pub buckets: u64,
    /// Of all buckets together, and of each.
    pub quotas: [Quota; 2],
}
