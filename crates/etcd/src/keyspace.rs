//! From our keys to etcd's and back.

use etcd_client::KeyValue;
use metastore::kv::{Error, Kv, LeaseId, Range, Result, Revision};
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct Keyspace {
    prefix: Arc<str>,
    /// Bytes before our own key.
    state_len: usize,
}

impl Keyspace {
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            state_len: prefix.len() + "/state/".len(),
        }
    }
    pub fn key(&self, key: &str) -> Vec<u8> {
        format!("{}/state/{key}", self.prefix).into_bytes()
    }
    pub fn session(&self, lease: i64) -> Vec<u8> {
        format!("{}/session/{lease:016x}", self.prefix).into_bytes()
    }
    /// First key and the one behind the last.
    pub fn range(&self, range: &Range) -> (Vec<u8>, Vec<u8>) {
        let end = match &range.end {
            Some(end) => self.key(end),
            // '0' follows '/'.
            None => format!("{}/state0", self.prefix).into_bytes(),
        };
        (self.key(&range.start), end)
    }
    pub fn own(&self, key: &[u8]) -> Result<String> {
        let own = key.get(self.state_len..).unwrap_or_default();
        String::from_utf8(own.to_vec())
            .map_err(|_| Error::Storage(format!("etcd holds the key {}, not text", key.escape_ascii())))
    }
    pub fn kv(&self, kv: KeyValue) -> Result<Kv> {
        let key = self.own(kv.key())?;
        let (revision, lease) = (kv.mod_revision() as Revision, kv.lease());
        Ok(Kv {
            key,
            value: kv.into_key_value().1.into(),
            revision,
            lease: (lease != 0).then_some(lease as LeaseId),
        })
    }
}
