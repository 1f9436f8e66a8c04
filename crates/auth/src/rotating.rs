//! Rotating secrets: what tickets for a service are sealed with.
//!
//! Per service three secrets with rising ids: previous, current, next. Tickets are made with the current
//! one; any of the three opens a ticket. When the current one expires, a new next one is made and the
//! oldest is dropped, so a ticket opens for at least its own lifetime. The monitor persists all of them:
//! a restart with fresh secrets would strand clients for up to 45 minutes (docs/protocol/ceph/01-messenger.md, 6.9).

use crate::{Context, CryptoKey};
use denc::{Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{EntityKind, Utime};

/// Services that tickets are made for; `Auth` is the ticket that renews the others.
pub const TICKET_SERVICES: [EntityKind; 5] = [
    EntityKind::Auth,
    EntityKind::Mon,
    EntityKind::Mds,
    EntityKind::Osd,
    EntityKind::Mgr,
];

const LIVE_SECRETS: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotatingSecret {
    pub key: CryptoKey,
    pub expires: Utime,
}

impl Encode for RotatingSecret {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.key);
        w.put(&self.expires);
    }
}
impl Decode for RotatingSecret {
    const MIN_SIZE: usize = 37;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.u8()?;
        Ok(Self {
            key: r.get()?,
            expires: r.get()?,
        })
    }
}

/// The live secrets of one service by id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotatingSecrets {
    pub secrets: BTreeMap<u64, RotatingSecret>,
    pub max_id: u64,
}

impl Encode for RotatingSecrets {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.secrets);
        w.u64(self.max_id);
    }
}
impl Decode for RotatingSecrets {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.u8()?;
        Ok(Self {
            secrets: r.get()?,
            max_id: r.u64()?,
        })
    }
}

fn after(t: Utime, d: Duration) -> Utime {
    Utime::from_unix(t.to_duration() + d)
}

impl RotatingSecrets {
    /// The secret that tickets are made with: the middle one of three.
    pub fn current(&self) -> Option<(u64, &RotatingSecret)> {
        self.secrets
            .iter()
            .nth(1)
            .or(self.secrets.iter().next())
            .map(|(i, s)| (*i, s))
    }

    pub fn get(&self, id: u64) -> Option<&CryptoKey> {
        self.secrets.get(&id).map(|s| &s.key)
    }

    /// Brings the set up to `now`; true if it changed and must be persisted.
    pub fn rotate(&mut self, ttl: Duration, cx: &Context) -> bool {
        let mut changed = false;
        // A long downtime makes all of them stale: one pass replaces at most the whole set.
        for _ in 0..LIVE_SECRETS {
            let stale = self.current().is_none_or(|(_, s)| s.expires <= cx.now);
            if self.secrets.len() >= LIVE_SECRETS && !stale {
                break;
            }
            self.add(ttl, cx);
            changed = true;
        }
        changed
    }

    fn add(&mut self, ttl: Duration, cx: &Context) {
        let last = self.secrets.values().next_back().map_or(cx.now, |s| s.expires);
        let expires = match self.secrets.is_empty() {
            true => cx.now,
            false => after(last.max(cx.now), ttl),
        };
        self.max_id += 1;
        self.secrets.insert(
            self.max_id,
            RotatingSecret {
                key: cx.key(),
                expires,
            },
        );
        while self.secrets.len() > LIVE_SECRETS {
            self.secrets.pop_first();
        }
    }
}

/// The secrets of every service: what the monitor persists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceSecrets {
    pub by_service: BTreeMap<u32, RotatingSecrets>,
}
denc::envelope_denc!(ServiceSecrets, 1, 1, { by_service });

impl ServiceSecrets {
    pub fn get(&self, service: EntityKind) -> Option<&RotatingSecrets> {
        self.by_service.get(&(service as u32))
    }

    /// Makes what is missing and replaces what has expired; true if anything changed (then persist it
    /// before tickets are made with it).
    pub fn rotate(&mut self, auth_ttl: Duration, service_ttl: Duration, cx: &Context) -> bool {
        let mut changed = false;
        for service in TICKET_SERVICES {
            let ttl = match service {
                EntityKind::Auth => auth_ttl,
                _ => service_ttl,
            };
            changed |= self.by_service.entry(service as u32).or_default().rotate(ttl, cx);
        }
        changed
    }
}
