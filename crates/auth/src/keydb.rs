//! The entities that the cluster knows: their keys and capability texts. The monitor persists this.

use crate::CryptoKey;
use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use types::{AuthName, Utime};

/// When the keys of an entity end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    pub at: Utime,
    /// The cluster has seen that time come, and has ended what was open: by another epoch.
    pub ended: bool,
}

impl Encode for Expiry {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.at);
        w.bool(self.ended);
    }
}
impl Decode for Expiry {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self {
            at: r.get()?,
            ended: r.bool()?,
        })
    }
}

/// Key and capabilities of one entity; `caps` is keyed by service (`mon`, `osd`, `mds`, `mgr`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityAuth {
    pub key: CryptoKey,
    pub caps: BTreeMap<String, String>,
    /// Another one for each key that this name has had, and for each time that it was made anew: it never comes twice.
    /// The cluster state gives it when it commits the key. 0: made before there were epochs.
    pub epoch: u64,
    /// Valid beside `key`, in whose place it is to come. Sessions of both have one epoch.
    pub pending: Option<CryptoKey>,
    /// Of the entity, whichever key it has.
    pub expiry: Option<Expiry>,
}

/// A row without pending key and expiry is written as versions before them did. One that has any is read by those, too,
/// which pass over what they do not know, and drop it where they write the row anew.
impl Encode for EntityAuth {
    fn encode(&self, w: &mut Writer) {
        let more = self.pending.is_some() || self.expiry.is_some();
        w.envelope(if more { 3 } else { 2 }, 1, |w| {
            w.put(&self.key);
            w.put(&self.caps);
            w.u64(self.epoch);
            if more {
                w.put(&self.pending);
                w.put(&self.expiry);
            }
        });
    }
}
impl Decode for EntityAuth {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(3, |version, r| {
            Ok(Self {
                key: r.get()?,
                caps: r.get()?,
                epoch: if version >= 2 { r.u64()? } else { 0 },
                pending: if version >= 3 { r.get()? } else { None },
                expiry: if version >= 3 { r.get()? } else { None },
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
            pending: None,
            expiry: None,
        }
    }

    /// When it expired, if it has by `now`.
    pub fn expired(&self, now: Utime) -> Option<Utime> {
        self.expiry.map(|e| e.at).filter(|at| *at <= now)
    }

    /// With its time come, and what was open under its keys ended by that; or with time to come again, where a clock ran
    /// ahead. None: so it is.
    pub fn settled(&self, now: Utime) -> Option<Self> {
        let expiry = self.expiry?;
        let ended = expiry.at <= now;
        (ended != expiry.ended).then(|| Self {
            expiry: Some(Expiry { ended, ..expiry }),
            ..self.clone()
        })
    }

    /// Whether it is the key, or the pending one.
    pub fn has(&self, key: &CryptoKey) -> bool {
        let same = |k: &CryptoKey| k.secret() == key.secret();
        same(&self.key) || self.pending.as_ref().is_some_and(same)
    }

    /// Whether sessions and tickets of this one go on when `next` comes in its place: it has a key that was valid, and
    /// has not just expired.
    pub fn goes_on_as(&self, next: &Self) -> bool {
        let ended = |e: &Self| e.expiry.is_some_and(|x| x.ended);
        self.has(&next.key) && (ended(self) || !ended(next))
    }

    /// What a keyring says, in this one's place. Keyrings know of no expiry, which stays. A pending key stays beside the
    /// key that it was made for, if none is given.
    pub fn replaced_by(&self, given: Self) -> Self {
        let same = self.key.secret() == given.key.secret();
        Self {
            pending: given.pending.or_else(|| self.pending.clone().filter(|_| same)),
            expiry: self.expiry,
            ..given
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

    /// Whether who has this key may begin as that entity, as far as the key goes.
    pub fn opens(&self, name: &AuthName, key: &CryptoKey) -> bool {
        self.get(name).is_some_and(|e| e.has(key))
    }

    /// The entity whose key of this epoch somebody proved to have; None: it is gone, or has another key.
    pub fn current(&self, name: &AuthName, key_epoch: u64) -> Option<&EntityAuth> {
        self.get(name).filter(|e| e.epoch == key_epoch)
    }
}
