//! What a bucket's owner has set of it, besides its ACL: one row beside the bucket's record, which has its number, so that a request
//! to a bucket with settings reads them once and then only looks whether they are the same.
//!
//! A gateway of before refuses buckets with settings that it does not know, rather than serve them without: the records' versions
//! say so.

use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buckets whose settings are remembered.
const CACHED_MAX: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CorsRule {
    pub id: String,
    pub origins: Vec<String>,
    pub methods: Vec<String>,
    pub headers: Vec<String>,
    pub expose: Vec<String>,
    pub max_age: Option<u32>,
}

denc::envelope_denc!(CorsRule, 1, 1, { id, origins, methods, headers, expose, max_age });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub cors: Vec<CorsRule>,
}

const KNOWN: u8 = 1;

impl Encode for Settings {
    /// Under the first version that has all that is set.
    fn encode(&self, w: &mut Writer) {
        w.envelope(KNOWN, KNOWN, |w| w.put(&self.cors));
    }
}

impl Decode for Settings {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(KNOWN, |_, r| Ok(Self { cors: r.get()? }))
    }
}

/// Settings as they were read, by the id of their bucket and their number.
#[derive(Clone, Default)]
pub struct Cache(Arc<Mutex<BTreeMap<String, Cached>>>);

type Cached = (u64, Arc<Settings>);

impl Cache {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Cached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, id: &str, number: u64) -> Option<Arc<Settings>> {
        let all = self.all();
        let (of, settings) = all.get(id)?;
        (*of == number).then(|| settings.clone())
    }

    pub fn put(&self, id: &str, number: u64, settings: Arc<Settings>) {
        let mut all = self.all();
        if all.len() >= CACHED_MAX && !all.contains_key(id) {
            all.clear();
        }
        all.insert(id.to_string(), (number, settings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_of_that_number_and_bounded() {
        let cache = Cache::default();
        cache.put("a", 1, Arc::default());
        assert!(cache.get("a", 1).is_some() && cache.get("a", 2).is_none());
        for n in 0..3 * CACHED_MAX {
            cache.put(&n.to_string(), 1, Arc::default());
            assert!(cache.all().len() <= CACHED_MAX);
        }
    }
}
