//! The entities that the cluster knows: their keys and capability texts. The monitor persists this.

use crate::CryptoKey;
use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use types::AuthName;

/// Key and capabilities of one entity; `caps` is keyed by service (`mon`, `osd`, `mds`, `mgr`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityAuth {
    pub key: CryptoKey,
    pub caps: BTreeMap<String, String>,
    /// Another one for each key that this name has had, and for each time that it was made anew: it never comes twice.
    /// The cluster state gives it when it commits the key. 0: made before there were epochs.
    pub epoch: u64,
}

impl Encode for EntityAuth {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.key);
            w.put(&self.caps);
            w.u64(self.epoch);
        });
    }
}
impl Decode for EntityAuth {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(2, |version, r| {
            Ok(Self {
                key: r.get()?,
                caps: r.get()?,
                epoch: if version >= 2 { r.u64()? } else { 0 },
            })
        })
    }
}

impl EntityAuth {
    pub fn new(key: CryptoKey) -> Self {
        Self {
            key,
            caps: BTreeMap::new(),
            epoch: 0,
        }
    }

    pub fn with_cap(mut self, service: &str, text: &str) -> Self {
        self.caps.insert(service.to_string(), text.to_string());
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyDb {
    pub entities: BTreeMap<AuthName, EntityAuth>,
}
denc::envelope_denc!(KeyDb, 1, 1, { entities });

impl KeyDb {
    pub fn get(&self, name: &AuthName) -> Option<&EntityAuth> {
        self.entities.get(name)
    }

    /// The entity whose key of this epoch somebody proved to have; None: it is gone, or has another key.
    pub fn current(&self, name: &AuthName, key_epoch: u64) -> Option<&EntityAuth> {
        self.get(name).filter(|e| e.epoch == key_epoch)
    }
}
