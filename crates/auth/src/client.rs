//! The client's side of the handshakes: for our own client, for tests and for fuzzing.
//!
//! [`CephxClient`] keeps what a client keeps over connections: its key, its global id and its tickets.
//! Renewal over an open session is not here yet; a caller reconnects to its monitor for fresh tickets.

use crate::key::same_u64;
use crate::server::{AUTH_MODE_AUTHORIZER, AUTH_MODE_MON, GET_AUTH_SESSION_KEY};
use crate::ticket::{GrantedTicket, TicketBlob};
use crate::verifier::{AuthorizeBody, Authorizer};
use crate::{AuthError, AuthMethod, ConMode, ConnectionSecret, Context, CryptoKey};
use denc::{Bytes, Reader, Writer};
use std::collections::BTreeMap;
use types::{AuthName, EntityKind};

/// What AUTH_DONE gave the client.
#[derive(Debug, Clone)]
pub struct ClientDone {
    pub session_key: Option<CryptoKey>,
    pub connection_secret: Option<ConnectionSecret>,
}

/// One handshake, from the client's view. `peer` is the kind of the server dialled.
pub trait ClientAuth {
    fn method(&self) -> AuthMethod;
    /// Payload of AUTH_REQUEST.
    fn request(&mut self, peer: EntityKind, cx: &Context) -> Result<Bytes, AuthError>;
    /// Payload of AUTH_REQUEST_MORE, answering AUTH_REPLY_MORE.
    fn more(&mut self, payload: &Bytes, cx: &Context) -> Result<Bytes, AuthError>;
    fn done(&mut self, global_id: u64, mode: ConMode, payload: &Bytes) -> Result<ClientDone, AuthError>;
}

fn none_payload(auth_mode: u8, name: &AuthName, global_id: u64) -> Bytes {
    let mut w = Writer::new();
    w.u8(auth_mode);
    w.put(name);
    w.u64(global_id);
    w.finish()
}

#[derive(Debug, Clone)]
pub struct NoneClient {
    pub name: AuthName,
    pub global_id: u64,
}

impl ClientAuth for NoneClient {
    fn method(&self) -> AuthMethod {
        AuthMethod::None
    }
    fn request(&mut self, peer: EntityKind, _: &Context) -> Result<Bytes, AuthError> {
        let auth_mode = match peer {
            EntityKind::Mon => AUTH_MODE_MON,
            _ => AUTH_MODE_AUTHORIZER,
        };
        Ok(none_payload(auth_mode, &self.name, self.global_id))
    }
    fn more(&mut self, _: &Bytes, _: &Context) -> Result<Bytes, AuthError> {
        Err(AuthError::access("method none has one step"))
    }
    fn done(&mut self, global_id: u64, _: ConMode, _: &Bytes) -> Result<ClientDone, AuthError> {
        self.global_id = global_id;
        Ok(ClientDone {
            session_key: None,
            connection_secret: None,
        })
    }
}

/// Services whose tickets a client asks for, as a mask.
const WANTED: u32 = EntityKind::Mon as u32
    | EntityKind::Osd as u32
    | EntityKind::Mgr as u32
    | EntityKind::Mds as u32
    | EntityKind::Auth as u32;

#[derive(Debug, Clone)]
pub struct CephxClient {
    pub name: AuthName,
    pub key: CryptoKey,
    /// 0 until a monitor gave one.
    pub global_id: u64,
    /// By service id, the AUTH ticket among them.
    pub tickets: BTreeMap<u32, GrantedTicket>,
    /// The server dialled, and the nonce of the authorizer under way.
    dialled: EntityKind,
    nonce: u64,
}

impl CephxClient {
    pub fn new(name: AuthName, key: CryptoKey) -> Self {
        Self {
            name,
            key,
            global_id: 0,
            tickets: BTreeMap::new(),
            dialled: EntityKind::Mon,
            nonce: 0,
        }
    }

    fn ticket(&self, service: EntityKind) -> Result<&GrantedTicket, AuthError> {
        self.tickets
            .get(&(service as u32))
            .ok_or_else(|| AuthError::access(format!("no ticket for {service}")))
    }

    fn authorizer(&self, body: AuthorizeBody) -> Result<Bytes, AuthError> {
        let t = self.ticket(self.dialled)?;
        let a = Authorizer {
            global_id: self.global_id,
            service: t.service,
            ticket: t.blob.clone(),
            sealed: body.seal(&t.session_key).into(),
        };
        Ok(a.write())
    }

    fn answer_monitor(&self, payload: &Bytes, cx: &Context) -> Result<Bytes, AuthError> {
        let mut r = Reader::new(payload.clone());
        r.u8()?;
        let server_challenge = r.u64()?;
        let client_challenge = cx.challenge();
        let old = match self.global_id {
            0 => TicketBlob::default(),
            _ => self.ticket(EntityKind::Auth)?.blob.clone(),
        };
        let mut w = Writer::new();
        w.u16(GET_AUTH_SESSION_KEY);
        w.u8(3);
        w.u64(client_challenge);
        w.u64(self.key.proof(server_challenge, client_challenge));
        w.put(&old);
        w.u32(WANTED);
        Ok(w.finish())
    }

    fn monitor_done(&mut self, payload: &Bytes) -> Result<ClientDone, AuthError> {
        let mut r = Reader::new(payload.clone());
        let (_, result) = (r.u16()?, r.i32()?);
        if result != 0 {
            return Err(AuthError::access(format!("monitor answered {result}")));
        }
        let old = self
            .tickets
            .get(&(EntityKind::Auth as u32))
            .map(|t| t.session_key.clone());
        let mut got = GrantedTicket::decode_reply(&mut r, &self.key, old.as_ref())?;
        let session_key = got
            .first()
            .ok_or_else(|| AuthError::access("no AUTH ticket"))?
            .session_key
            .clone();
        let mut sealed = Reader::new(r.blob()?);
        let secret = session_key.open(&sealed.blob()?, |r| r.blob())?;
        let extra = r.blob()?;
        if !extra.is_empty() {
            got.extend(GrantedTicket::decode_reply(
                &mut Reader::new(extra),
                &session_key,
                None,
            )?);
        }
        self.tickets.extend(got.into_iter().map(|t| (t.service, t)));
        Ok(ClientDone {
            session_key: Some(session_key),
            connection_secret: connection_secret(&secret)?,
        })
    }

    fn service_done(&mut self, mode: ConMode, payload: &Bytes) -> Result<ClientDone, AuthError> {
        let key = self.ticket(self.dialled)?.session_key.clone();
        let sealed = Reader::new(payload.clone()).blob()?;
        let (nonce, secret) = key.open(&sealed, |r| {
            r.u8()?;
            Ok((r.u64()?, if r.is_empty() { Bytes::new() } else { r.blob()? }))
        })?;
        if !same_u64(nonce, self.nonce.wrapping_add(1)) {
            return Err(AuthError::access("the service did not prove the session key"));
        }
        let connection_secret = connection_secret(&secret)?;
        if (mode == ConMode::Secure) != connection_secret.is_some() {
            return Err(AuthError::access("connection secret does not fit the mode"));
        }
        Ok(ClientDone {
            session_key: Some(key),
            connection_secret,
        })
    }
}

fn connection_secret(raw: &[u8]) -> Result<Option<ConnectionSecret>, AuthError> {
    if raw.is_empty() {
        return Ok(None);
    }
    let raw = raw
        .try_into()
        .map_err(|_| AuthError::access("connection secret is not 64 bytes"))?;
    Ok(Some(ConnectionSecret(raw)))
}

impl ClientAuth for CephxClient {
    fn method(&self) -> AuthMethod {
        AuthMethod::Cephx
    }

    fn request(&mut self, peer: EntityKind, cx: &Context) -> Result<Bytes, AuthError> {
        self.dialled = peer;
        if peer == EntityKind::Mon {
            return Ok(none_payload(AUTH_MODE_MON, &self.name, self.global_id));
        }
        self.nonce = cx.challenge();
        self.authorizer(AuthorizeBody {
            nonce: self.nonce,
            has_challenge: false,
            challenge_plus_one: 0,
        })
    }

    fn more(&mut self, payload: &Bytes, cx: &Context) -> Result<Bytes, AuthError> {
        if self.dialled == EntityKind::Mon {
            return self.answer_monitor(payload, cx);
        }
        let key = &self.ticket(self.dialled)?.session_key;
        let challenge = key.open(payload, |r| {
            r.u8()?;
            r.u64()
        })?;
        self.authorizer(AuthorizeBody {
            nonce: self.nonce,
            has_challenge: true,
            challenge_plus_one: challenge.wrapping_add(1),
        })
    }

    fn done(&mut self, global_id: u64, mode: ConMode, payload: &Bytes) -> Result<ClientDone, AuthError> {
        if self.dialled != EntityKind::Mon {
            return self.service_done(mode, payload);
        }
        let done = self.monitor_done(payload)?;
        self.global_id = global_id;
        Ok(done)
    }
}

/// MAuth payload that renews the given services (0x0200); for tests and our own client.
impl CephxClient {
    pub fn renewal(&self, services: u32, cx: &Context) -> Result<Bytes, AuthError> {
        let t = self.ticket(EntityKind::Auth)?;
        let body = AuthorizeBody {
            nonce: cx.challenge(),
            has_challenge: false,
            challenge_plus_one: 0,
        };
        let a = Authorizer {
            global_id: self.global_id,
            service: t.service,
            ticket: t.blob.clone(),
            sealed: body.seal(&t.session_key).into(),
        };
        let mut w = Writer::new();
        w.u16(crate::server::GET_PRINCIPAL_SESSION_KEY);
        w.raw(&a.write());
        w.u8(1);
        w.u32(services);
        Ok(w.finish())
    }

    /// Takes the tickets of an answer to [`Self::renewal`].
    pub fn renewed(&mut self, payload: &Bytes) -> Result<(), AuthError> {
        let key = self.ticket(EntityKind::Auth)?.session_key.clone();
        let mut r = Reader::new(payload.clone());
        let (_, result) = (r.u16()?, r.i32()?);
        if result != 0 {
            return Err(AuthError::access(format!("monitor answered {result}")));
        }
        let got = GrantedTicket::decode_reply(&mut r, &key, None)?;
        self.tickets.extend(got.into_iter().map(|t| (t.service, t)));
        Ok(())
    }
}
