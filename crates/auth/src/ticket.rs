//! Tickets: the blob that a service opens, and the reply in which the monitor hands tickets out.
//! Spec chapter 01, section 6.3.

use crate::{CryptError, CryptoKey, PeerCaps};
use denc::{Bytes, Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AuthName, EntityKind, Utime};

/// Opaque to the client: it stores the blob and shows it again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TicketBlob {
    pub secret_id: u64,
    pub blob: Bytes,
}

impl Encode for TicketBlob {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.secret_id);
        w.blob(&self.blob);
    }
}
impl Decode for TicketBlob {
    const MIN_SIZE: usize = 13;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.u8()?;
        Ok(Self {
            secret_id: r.u64()?,
            blob: r.blob()?,
        })
    }
}

/// What a ticket says about its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthTicket {
    pub name: AuthName,
    pub global_id: u64,
    pub created: Utime,
    pub expires: Utime,
    pub allow_all: bool,
    /// Capability text for the service that the ticket is for.
    pub caps: Option<String>,
}

impl Encode for AuthTicket {
    fn encode(&self, w: &mut Writer) {
        w.u8(2);
        w.put(&self.name);
        w.u64(self.global_id);
        w.u64(u64::MAX);
        w.put(&self.created);
        w.put(&self.expires);
        w.u8(1);
        w.bool(self.allow_all);
        match &self.caps {
            Some(text) => w.sized(|w| w.string(text)),
            None => w.u32(0),
        }
        w.u32(0);
    }
}
impl Decode for AuthTicket {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        let version = r.u8()?;
        let name = r.get()?;
        let global_id = r.u64()?;
        if version >= 2 {
            r.u64()?;
        }
        let created = r.get()?;
        let expires = r.get()?;
        r.u8()?;
        let allow_all = r.bool()?;
        let caps = r.blob()?;
        let caps = match caps.is_empty() {
            true => None,
            false => Some(String::from_bytes(&caps)?),
        };
        r.u32()?;
        Ok(Self {
            name,
            global_id,
            created,
            expires,
            allow_all,
            caps,
        })
    }
}

impl AuthTicket {
    pub fn peer_caps(&self, service: EntityKind) -> PeerCaps {
        if self.allow_all {
            return PeerCaps::AllowAll;
        }
        let caps = self
            .caps
            .iter()
            .map(|t| (service.as_str().to_string(), t.clone()));
        PeerCaps::Texts(BTreeMap::from_iter(caps))
    }
}

/// A ticket with its session key, as a rotating secret seals it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTicket {
    pub ticket: AuthTicket,
    pub session_key: CryptoKey,
}

impl SessionTicket {
    pub fn seal(&self, secret_id: u64, secret: &CryptoKey) -> TicketBlob {
        let blob = secret.seal(|w| {
            w.u8(1);
            w.put(&self.ticket);
            w.put(&self.session_key);
        });
        TicketBlob {
            secret_id,
            blob: blob.into(),
        }
    }

    pub fn open(blob: &[u8], secret: &CryptoKey) -> Result<Self, CryptError> {
        secret.open(blob, |r| {
            r.u8()?;
            Ok(Self {
                ticket: r.get()?,
                session_key: r.get()?,
            })
        })
    }
}

/// One ticket of a ticket reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedTicket {
    pub service: u32,
    pub session_key: CryptoKey,
    pub validity: Utime,
    pub blob: TicketBlob,
}

/// The most tickets that a reply may hold: one per service, with room.
const TICKETS_MAX: usize = 16;

impl GrantedTicket {
    pub fn lifetime(ttl: Duration) -> Utime {
        Utime::from_unix(ttl)
    }

    /// A ticket reply: session keys sealed for `principal`; the blobs too, with `wrap`, where given (the
    /// old session key of a client that reclaims its id).
    pub fn encode_reply(w: &mut Writer, principal: &CryptoKey, wrap: Option<&CryptoKey>, tickets: &[Self]) {
        w.u8(1);
        w.u32(tickets.len() as u32);
        for t in tickets {
            w.u32(t.service);
            w.u8(1);
            w.blob(&principal.seal(|w| {
                w.u8(1);
                w.put(&t.session_key);
                w.put(&t.validity);
            }));
            let blob = t.blob.to_bytes();
            match wrap {
                None => {
                    w.u8(0);
                    w.blob(&blob);
                }
                Some(old) => {
                    w.u8(1);
                    w.blob(&old.seal(|w| w.blob(&blob)));
                }
            }
        }
    }

    pub fn decode_reply(
        r: &mut Reader,
        principal: &CryptoKey,
        wrap: Option<&CryptoKey>,
    ) -> Result<Vec<Self>, CryptError> {
        let bad = |_| CryptError::Malformed;
        r.u8().map_err(bad)?;
        let n = r.count(10).map_err(bad)?;
        if n > TICKETS_MAX {
            return Err(CryptError::Malformed);
        }
        let mut out = Vec::with_capacity(n);
        for _ in 0..n {
            let service = r.u32().map_err(bad)?;
            r.u8().map_err(bad)?;
            let sealed = r.blob().map_err(bad)?;
            let (session_key, validity) = principal.open(&sealed, |r| {
                r.u8()?;
                Ok((r.get()?, r.get()?))
            })?;
            let wrapped = r.bool().map_err(bad)?;
            let mut blob = r.blob().map_err(bad)?;
            if wrapped {
                blob = wrap.ok_or(CryptError::WrongKey)?.open(&blob, |r| r.blob())?;
            }
            out.push(Self {
                service,
                session_key,
                validity,
                blob: TicketBlob::from_bytes(&blob).map_err(bad)?,
            });
        }
        Ok(out)
    }
}
