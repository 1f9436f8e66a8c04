//! The service's side (OSD, MDS, manager): authorizers made from tickets, always with a challenge
//! (docs/protocol/ceph/01-messenger.md, 6.8); and [`AllowNone`], which believes what the client says.
//!
//! A ticket is opened with the service's rotating secrets: no question to the monitor. Where the service knows the
//! cluster's entities ([`TicketVerifier::set_entities`]), a ticket of a key that is gone is refused, and capabilities are
//! those of now; elsewhere they are those of the time when the ticket was made.

use crate::handshake::{AuthError, AuthMethod, Authenticator, ConMode, Context, Pending, Step};
use crate::key::same_u64;
use crate::server::AUTH_MODE_AUTHORIZER;
use crate::ticket::{SessionTicket, TicketBlob};
use crate::{ConnectionSecret, CryptoKey, Granted, Identity, KeyDb, PeerCaps, RotatingSecrets};
use denc::{Bytes, Decode, Reader, Writer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{AuthName, EntityKind, Utime};

pub struct TicketVerifier {
    service: EntityKind,
    modes: Vec<ConMode>,
    known: Mutex<Known>,
}

struct Known {
    secrets: RotatingSecrets,
    /// Whose tickets are good still, and what they may, with the epoch up to which that is known. None: it is not known
    /// here, and a ticket speaks for itself.
    entities: Option<(Arc<KeyDb>, u64)>,
}

/// The sealed half of an authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuthorizeBody {
    pub nonce: u64,
    pub has_challenge: bool,
    pub challenge_plus_one: u64,
}

impl AuthorizeBody {
    pub(crate) fn seal(&self, key: &CryptoKey) -> Vec<u8> {
        key.seal(|w| {
            w.u8(2);
            w.u64(self.nonce);
            w.bool(self.has_challenge);
            w.u64(self.challenge_plus_one);
        })
    }

    pub(crate) fn open(sealed: &[u8], key: &CryptoKey) -> Result<Self, AuthError> {
        Ok(key.open(sealed, |r| {
            r.u8()?;
            Ok(Self {
                nonce: r.u64()?,
                has_challenge: r.bool()?,
                challenge_plus_one: r.u64()?,
            })
        })?)
    }
}

/// The clear half of an authorizer, and its sealed half still sealed.
pub(crate) struct Authorizer {
    pub global_id: u64,
    pub service: u32,
    pub ticket: TicketBlob,
    pub sealed: Bytes,
}

impl Decode for Authorizer {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        if r.u8()? != AUTH_MODE_AUTHORIZER {
            return Err(r.invalid("not an authorizer"));
        }
        Ok(Self {
            global_id: r.u64()?,
            service: r.u32()?,
            ticket: r.get()?,
            sealed: r.blob()?,
        })
    }
}

impl Authorizer {
    pub(crate) fn write(&self) -> Bytes {
        let mut w = Writer::new();
        w.u8(AUTH_MODE_AUTHORIZER);
        w.u64(self.global_id);
        w.u32(self.service);
        w.put(&self.ticket);
        w.blob(&self.sealed);
        w.finish()
    }
}

/// The challenge as the service sends it: raw ciphertext, without an inner length.
pub(crate) fn seal_challenge(key: &CryptoKey, challenge: u64) -> Bytes {
    key.seal(|w| {
        w.u8(1);
        w.u64(challenge);
    })
    .into()
}

/// The service's proof of the session key, with the connection secret in secure mode.
pub(crate) fn seal_reply(key: &CryptoKey, nonce: u64, secret: Option<&ConnectionSecret>) -> Bytes {
    let sealed = key.seal(|w| {
        w.u8(if secret.is_some() { 2 } else { 1 });
        w.u64(nonce.wrapping_add(1));
        if let Some(s) = secret {
            w.blob(&s.0);
        }
    });
    let mut w = Writer::new();
    w.blob(&sealed);
    w.finish()
}

struct Challenged {
    ticket: SessionTicket,
    nonce: u64,
    challenge: u64,
    mode: ConMode,
}

impl TicketVerifier {
    pub fn new(service: EntityKind, modes: Vec<ConMode>, secrets: RotatingSecrets) -> Self {
        Self {
            service,
            modes,
            known: Mutex::new(Known {
                secrets,
                entities: None,
            }),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Only ever replaced as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on tickets are taken from entities that exist, made with the key that they have; their capabilities are
    /// those of now. `version` counts commits, as key epochs do: a ticket for a key that was made after it, of which the
    /// monitor knows already, speaks for itself.
    pub fn set_entities(&self, entities: Arc<KeyDb>, version: u64) {
        self.known().entities = Some((entities, version));
    }

    /// New secrets from the monitor; the old ones are forgotten.
    pub fn update(&self, secrets: RotatingSecrets) {
        self.known().secrets = secrets;
    }

    fn open_ticket(&self, a: &Authorizer, now: Utime) -> Result<SessionTicket, AuthError> {
        if a.service != self.service as u32 {
            return Err(AuthError::access(format!(
                "ticket for service {} shown to {}",
                a.service, self.service
            )));
        }
        let known = self.known();
        let secret = known
            .secrets
            .get(a.ticket.secret_id)
            .ok_or_else(|| AuthError::access(format!("ticket of unknown secret {}", a.ticket.secret_id)))?;
        let mut t = SessionTicket::open(&a.ticket, self.service, secret)?;
        if t.ticket.has_expired(now) {
            return Err(AuthError::access(format!(
                "ticket of {} expired at {}",
                t.ticket.name, t.ticket.expires
            )));
        }
        if t.ticket.global_id != a.global_id {
            return Err(AuthError::access(format!(
                "ticket of global id {} shown by {}",
                t.ticket.global_id, a.global_id
            )));
        }
        if let (Some((entities, version)), Some(epoch)) = (&known.entities, t.key_epoch)
            && epoch <= *version
        {
            let entity = entities.current(&t.ticket.name, epoch).ok_or_else(|| {
                AuthError::access(format!("ticket of a key that {} no longer has", t.ticket.name))
            })?;
            t.ticket.caps = entity.caps.get(self.service.as_str()).cloned();
        }
        Ok(t)
    }
}

impl Authenticator for TicketVerifier {
    fn methods(&self) -> &[AuthMethod] {
        &[AuthMethod::Cephx]
    }

    fn modes(&self) -> &[ConMode] {
        &self.modes
    }

    fn start(&self, _: AuthMethod, mode: ConMode, payload: &Bytes, cx: &Context) -> Result<Step, AuthError> {
        let a = Authorizer::from_bytes(payload)?;
        let ticket = self.open_ticket(&a, cx.now)?;
        let body = AuthorizeBody::open(&a.sealed, &ticket.session_key)?;
        let challenge = cx.challenge();
        Ok(Step::More {
            payload: seal_challenge(&ticket.session_key, challenge),
            pending: Pending::new(Challenged {
                ticket,
                nonce: body.nonce,
                challenge,
                mode,
            }),
        })
    }

    fn resume(&self, pending: Pending, payload: &Bytes, cx: &Context) -> Result<Step, AuthError> {
        let c: Challenged = pending.take()?;
        let a = Authorizer::from_bytes(payload)?;
        let key = c.ticket.session_key;
        let body = AuthorizeBody::open(&a.sealed, &key)?;
        let answered = body.has_challenge & same_u64(body.challenge_plus_one, c.challenge.wrapping_add(1));
        if !answered || !same_u64(body.nonce, c.nonce) || a.global_id != c.ticket.ticket.global_id {
            return Err(AuthError::access("wrong answer to the challenge"));
        }
        let secret = (c.mode == ConMode::Secure).then(|| ConnectionSecret(cx.bytes()));
        Ok(Step::Done(Box::new(Granted {
            payload: seal_reply(&key, body.nonce, secret.as_ref()),
            identity: Identity {
                caps: c.ticket.ticket.peer_caps(self.service),
                name: c.ticket.ticket.name,
                global_id: c.ticket.ticket.global_id,
                key_epoch: c.ticket.key_epoch,
                server_challenge: None,
            },
            session_key: Some(key),
            connection_secret: secret,
        })))
    }
}

/// Method none towards a service: name and id are taken as told, everything is allowed. Only ever
/// configured by an explicit option, on loopback.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowNone;

impl Authenticator for AllowNone {
    fn methods(&self) -> &[AuthMethod] {
        &[AuthMethod::None]
    }

    fn modes(&self) -> &[ConMode] {
        &[ConMode::Crc]
    }

    fn start(&self, _: AuthMethod, _: ConMode, payload: &Bytes, _: &Context) -> Result<Step, AuthError> {
        let mut r = Reader::new(payload.clone());
        let auth_mode = r.u8()?;
        if auth_mode != AUTH_MODE_AUTHORIZER {
            return Err(AuthError::access(format!(
                "auth mode {auth_mode} towards a service"
            )));
        }
        let name: AuthName = r.get()?;
        let global_id = r.u64()?;
        Ok(Step::Done(Box::new(Granted {
            payload: Bytes::new(),
            identity: Identity {
                name,
                global_id,
                caps: PeerCaps::AllowAll,
                key_epoch: None,
                server_challenge: None,
            },
            session_key: None,
            connection_secret: None,
        })))
    }

    fn resume(&self, _: Pending, _: &Bytes, _: &Context) -> Result<Step, AuthError> {
        Err(AuthError::Close("method none has one step".into()))
    }
}
