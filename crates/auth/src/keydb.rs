//! The entities that the cluster knows: their keys and capability texts. The monitor persists this.

use crate::CryptoKey;
use std::collections::BTreeMap;
use types::AuthName;

/// Key and capabilities of one entity; `caps` is keyed by service (`mon`, `osd`, `mds`, `mgr`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityAuth {
    pub key: CryptoKey,
    pub caps: BTreeMap<String, String>,
}
denc::envelope_denc!(EntityAuth, 1, 1, { key, caps });

impl EntityAuth {
    pub fn new(key: CryptoKey) -> Self {
        Self {
            key,
            caps: BTreeMap::new(),
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
}
