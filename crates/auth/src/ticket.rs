//! Tickets: the blob that a service opens, and the reply in which the monitor hands tickets out.
//!
//! A client keeps the blob and shows it again, and no client looks into it, so its form is ours: format byte,
//! service, id of the secret and the owner's name in clear, a nonce, and the rest encrypted; all of it is authenticated
//! (AES-GCM). A blob of another form, as earlier versions made them with CBC, is refused: its owner asks the monitor for
//! a new one. Layout: docs/protocol/auth.md.

use crate::key::GUARD_NONCE_LEN;
use crate::{Context, CryptError, CryptoKey, PeerCaps};
use denc::{Bytes, Decode, Encode, Reader, Writer};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{AuthName, EntityKind, Utime};

/// The form of the blob inside [`TicketBlob`]; 1 is not used, so that nothing older looks like it.
const FORMAT: u8 = 2;
/// How far the clocks of the machine that made a ticket and of the one that opens it may be apart.
pub const CLOCK_LEEWAY: Duration = Duration::from_secs(300);

/// On disk and on the wire for "no key epoch"; counters do not come that far.
const NO_EPOCH: u64 = u64::MAX;

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
    /// True if it is no longer good at `now`, even by the clock of whoever made it.
    pub fn has_expired(&self, now: Utime) -> bool {
        now.to_duration() > self.expires.to_duration().saturating_add(CLOCK_LEEWAY)
    }

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
    /// Of the owner's key when the ticket was made ([`crate::EntityAuth::epoch`]). None: a daemon made it with the secret
    /// of its own service, and no entity's key stands behind it.
    pub key_epoch: Option<u64>,
}

/// What stands in front of the encrypted part and is authenticated with it.
fn clear_part(service: EntityKind, secret_id: u64, name: &AuthName) -> Writer {
    let mut w = Writer::new();
    w.u8(FORMAT);
    w.u32(service as u32);
    w.u64(secret_id);
    w.put(name);
    w
}

impl SessionTicket {
    /// For `service`, whose secret with this id it is.
    pub fn seal(
        &self,
        service: EntityKind,
        secret_id: u64,
        secret: &CryptoKey,
        cx: &Context<'_>,
    ) -> TicketBlob {
        let mut w = clear_part(service, secret_id, &self.ticket.name);
        let mut plain = Writer::new();
        plain.put(&self.ticket);
        plain.put(&self.session_key);
        plain.u64(self.key_epoch.unwrap_or(NO_EPOCH));
        let nonce: [u8; GUARD_NONCE_LEN] = cx.bytes();
        let sealed = secret.guard(nonce, w.as_slice(), plain.as_slice());
        w.raw(&nonce);
        w.raw(&sealed);
        TicketBlob {
            secret_id,
            blob: w.finish(),
        }
    }

    /// The ticket in a blob that [`Self::seal`] made for this service with this secret. Who shows it learns nothing of why
    /// it was refused; the errors are for the log.
    pub fn open(shown: &TicketBlob, service: EntityKind, secret: &CryptoKey) -> Result<Self, CryptError> {
        let foreign = |_| CryptError::NotATicket;
        let mut r = Reader::new(shown.blob.clone());
        if r.u8().map_err(foreign)? != FORMAT {
            return Err(CryptError::NotATicket);
        }
        let (of, id) = (r.u32().map_err(foreign)?, r.u64().map_err(foreign)?);
        let name: AuthName = r.get().map_err(foreign)?;
        if of != service as u32 || id != shown.secret_id {
            return Err(CryptError::NotATicket);
        }
        let nonce = r.array().map_err(foreign)?;
        let sealed = r.rest();
        let clear = clear_part(service, id, &name);
        let malformed = |_| CryptError::Malformed;
        let mut r = Reader::new(secret.unguard(nonce, clear.as_slice(), &sealed)?);
        let ticket = Self {
            ticket: r.get().map_err(malformed)?,
            session_key: r.get().map_err(malformed)?,
            key_epoch: Some(r.u64().map_err(malformed)?).filter(|e| *e != NO_EPOCH),
        };
        match ticket.ticket.name == name && r.is_empty() {
            true => Ok(ticket),
            false => Err(CryptError::Malformed),
        }
    }
}

/// The global id in an AUTH ticket as versions up to 0.1.0 made it, if it is `name`'s and not expired. It is good for
/// nothing else: CBC alone lets its owner change what follows the id. Not the id itself, since whoever changes that
/// garbles the block before it, where the name (or the magic) stands.
pub(crate) fn id_of_old_form(blob: &[u8], secret: &CryptoKey, name: &AuthName, now: Utime) -> Option<u64> {
    let ticket: AuthTicket = secret
        .open(blob, |r| {
            r.u8()?;
            r.get()
        })
        .ok()?;
    (ticket.name == *name && !ticket.has_expired(now)).then_some(ticket.global_id)
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
