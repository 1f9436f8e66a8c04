//! The monitor's side: proof of the long-lived key, global ids, tickets and their renewal
//! (spec chapter 01, sections 6.2 to 6.7).
//!
//! Invariants: a global id is given once (the owner persists a high-water mark and grants ranges); a
//! claimed one must lie below that mark and, with a readable old ticket, be the ticket's; an entity
//! without capabilities for the monitor does not get in. Unknown entities get a challenge like known
//! ones and fail in the second step, so names cannot be probed.
//!
//! Does not persist: the owner stores [`KeyDb`], [`ServiceSecrets`] and the high-water mark, each before
//! the server uses it.

use crate::handshake::{AuthError, AuthMethod, Authenticator, ConMode, Context, Pending, Step};
use crate::ticket::{AuthTicket, GrantedTicket, SessionTicket, TicketBlob};
use crate::{
    ConnectionSecret, CryptoKey, Granted, Identity, KeyDb, MAuth, MAuthReply, PeerCaps, RotatingSecrets,
    ServiceSecrets,
};
use denc::{Bytes, Decode, Reader, Writer};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use types::{AuthName, EntityKind, Errno, Utime};

/// First byte of the payload of AUTH_REQUEST.
pub(crate) const AUTH_MODE_AUTHORIZER: u8 = 1;
pub(crate) const AUTH_MODE_MON: u8 = 10;

pub(crate) const GET_AUTH_SESSION_KEY: u16 = 0x0100;
pub(crate) const GET_PRINCIPAL_SESSION_KEY: u16 = 0x0200;
pub(crate) const GET_ROTATING_KEY: u16 = 0x0400;

/// Services whose tickets a client may ask for besides the monitor's own.
const OTHER_SERVICES: [EntityKind; 4] = [EntityKind::Mon, EntityKind::Mds, EntityKind::Osd, EntityKind::Mgr];

#[derive(Debug, Clone)]
pub struct KeyServerConfig {
    pub methods: Vec<AuthMethod>,
    pub modes: Vec<ConMode>,
    /// Lifetime of the ticket that renews the others.
    pub auth_ttl: Duration,
    /// Lifetime of all other tickets, and of a rotating secret.
    pub service_ttl: Duration,
}

impl Default for KeyServerConfig {
    fn default() -> Self {
        Self {
            methods: vec![AuthMethod::Cephx],
            modes: vec![ConMode::Secure, ConMode::Crc],
            auth_ttl: Duration::from_secs(259_200),
            service_ttl: Duration::from_secs(3600),
        }
    }
}

struct State {
    db: KeyDb,
    secrets: ServiceSecrets,
    /// Ids that may be given: `next..end`; everything below `next` may be in use.
    next_global_id: u64,
    end_global_id: u64,
}

pub struct KeyServer {
    config: KeyServerConfig,
    state: Mutex<State>,
}

/// Between AUTH_REPLY_MORE and AUTH_REQUEST_MORE.
struct Challenged {
    name: AuthName,
    claimed_id: u64,
    challenge: u64,
    mode: ConMode,
}

/// The request for an AUTH ticket (0x0100), behind its type.
struct SessionRequest {
    client_challenge: u64,
    proof: u64,
    old_ticket: TicketBlob,
    other_keys: u32,
}

impl Decode for SessionRequest {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        let version = r.u8()?;
        Ok(Self {
            client_challenge: r.u64()?,
            proof: r.u64()?,
            old_ticket: if version >= 2 {
                r.get()?
            } else {
                TicketBlob::default()
            },
            other_keys: if version >= 3 { r.u32()? } else { 0 },
        })
    }
}

/// What became of the old AUTH ticket in a request.
enum OldTicket {
    Absent,
    /// Sealed with a secret that we no longer have.
    Unreadable,
    Opened(Box<SessionTicket>),
}

impl KeyServer {
    /// `secrets` must have been rotated to now and persisted.
    pub fn new(config: KeyServerConfig, db: KeyDb, secrets: ServiceSecrets) -> Self {
        let state = State {
            db,
            secrets,
            next_global_id: 0,
            end_global_id: 0,
        };
        Self {
            config,
            state: Mutex::new(state),
        }
    }

    pub fn config(&self) -> &KeyServerConfig {
        &self.config
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section is a plain read or a whole replacement: poison cannot mean half a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over entities that the owner has persisted.
    pub fn set_db(&self, db: KeyDb) {
        self.state().db = db;
    }

    pub fn with_db<T>(&self, f: impl FnOnce(&KeyDb) -> T) -> T {
        f(&self.state().db)
    }

    /// Takes over secrets that the owner has persisted.
    pub fn set_secrets(&self, secrets: ServiceSecrets) {
        self.state().secrets = secrets;
    }

    /// The set after a rotation to now, if one is due: persist it, then call [`Self::set_secrets`].
    pub fn rotated(&self, cx: &Context) -> Option<ServiceSecrets> {
        let mut secrets = self.state().secrets.clone();
        secrets
            .rotate(self.config.auth_ttl, self.config.service_ttl, cx)
            .then_some(secrets)
    }

    /// The secrets that a service needs to open tickets.
    pub fn secrets_for(&self, service: EntityKind) -> Option<RotatingSecrets> {
        self.state().secrets.get(service).cloned()
    }

    /// Allows the ids `from..end`; the caller has persisted `end` as used up. 0 is never given.
    pub fn grant_global_ids(&self, from: u64, end: u64) {
        let mut s = self.state();
        s.next_global_id = from.max(1).max(s.next_global_id);
        s.end_global_id = end.max(s.end_global_id);
    }

    pub fn remaining_global_ids(&self) -> u64 {
        let s = self.state();
        s.end_global_id.saturating_sub(s.next_global_id)
    }

    fn new_global_id(s: &mut State) -> Result<u64, AuthError> {
        if s.next_global_id >= s.end_global_id {
            return Err(AuthError::Close("no global id left to give".into()));
        }
        let id = s.next_global_id;
        s.next_global_id += 1;
        Ok(id)
    }

    fn start_none(&self, name: AuthName, claimed: u64) -> Result<Step, AuthError> {
        let global_id = match claimed {
            0 => Self::new_global_id(&mut self.state())?,
            id => id,
        };
        Ok(Step::Done(Box::new(Granted {
            payload: Bytes::new(),
            identity: Identity {
                name,
                global_id,
                caps: PeerCaps::AllowAll,
                server_challenge: None,
            },
            session_key: None,
            connection_secret: None,
        })))
    }

    /// Checks the proof of a 0x0100 request; gives the entity's key and capabilities.
    fn check_proof(
        s: &State,
        name: &AuthName,
        challenge: u64,
        req: &SessionRequest,
    ) -> Result<(CryptoKey, PeerCaps), AuthError> {
        let entity =
            s.db.get(name)
                .ok_or_else(|| AuthError::access(format!("unknown entity {name}")))?;
        if entity.key.proof(challenge, req.client_challenge) != req.proof {
            return Err(AuthError::access(format!("wrong key for {name}")));
        }
        if !entity.caps.contains_key("mon") {
            return Err(AuthError::access(format!("{name} has no capabilities for mon")));
        }
        Ok((entity.key.clone(), PeerCaps::Texts(entity.caps.clone())))
    }

    fn open_old(s: &State, name: &AuthName, old: &TicketBlob) -> OldTicket {
        if old.blob.is_empty() {
            return OldTicket::Absent;
        }
        let secret = s.secrets.get(EntityKind::Auth).and_then(|r| r.get(old.secret_id));
        match secret.map(|k| SessionTicket::open(&old.blob, k)) {
            Some(Ok(t)) if t.ticket.name == *name => OldTicket::Opened(Box::new(t)),
            _ => OldTicket::Unreadable,
        }
    }

    /// The id that this client shall have, and whether its other tickets must be replaced too.
    fn settle_global_id(s: &mut State, claimed: u64, old: &OldTicket) -> Result<(u64, bool), AuthError> {
        match (claimed, old) {
            (0, OldTicket::Absent) => Ok((Self::new_global_id(s)?, false)),
            (0, _) => Err(AuthError::denied(
                Errno::EINVAL,
                "old ticket without the global id it is for",
            )),
            (id, OldTicket::Opened(t)) if t.ticket.global_id == id => Ok((id, false)),
            (id, OldTicket::Opened(_)) => Err(AuthError::access(format!(
                "global id {id} claimed with another's ticket"
            ))),
            (id, OldTicket::Absent) => Err(AuthError::access(format!(
                "global id {id} claimed without ticket"
            ))),
            // Our secrets were lost. Refusing would strand the client for good; the key was proven.
            (id, OldTicket::Unreadable) if id < s.next_global_id => Ok((id, true)),
            (id, OldTicket::Unreadable) => Err(AuthError::access(format!("global id {id} was never given"))),
        }
    }

    fn make_ticket(
        &self,
        s: &State,
        service: EntityKind,
        name: &AuthName,
        global_id: u64,
        cx: &Context,
    ) -> Result<GrantedTicket, AuthError> {
        let ttl = match service {
            EntityKind::Auth => self.config.auth_ttl,
            _ => self.config.service_ttl,
        };
        let (secret_id, secret) = s
            .secrets
            .get(service)
            .and_then(RotatingSecrets::current)
            .ok_or_else(|| AuthError::Close(format!("no secret for service {service}")))?;
        // The monitor looks capabilities up itself; a service without a text grants nothing.
        let caps = match service {
            EntityKind::Auth | EntityKind::Mon => None,
            _ => s.db.get(name).and_then(|e| e.caps.get(service.as_str()).cloned()),
        };
        let session_key = cx.key();
        let sealed = SessionTicket {
            ticket: AuthTicket {
                name: name.clone(),
                global_id,
                created: cx.now,
                expires: Utime::from_unix(cx.now.to_duration() + ttl),
                allow_all: false,
                caps,
            },
            session_key: session_key.clone(),
        };
        Ok(GrantedTicket {
            service: service as u32,
            session_key,
            validity: GrantedTicket::lifetime(ttl),
            blob: sealed.seal(secret_id, &secret.key),
        })
    }

    fn make_tickets(
        &self,
        s: &State,
        mask: u32,
        name: &AuthName,
        global_id: u64,
        cx: &Context,
    ) -> Result<Vec<GrantedTicket>, AuthError> {
        OTHER_SERVICES
            .into_iter()
            .filter(|k| mask & *k as u32 != 0)
            .map(|k| self.make_ticket(s, k, name, global_id, cx))
            .collect()
    }

    fn finish(&self, c: Challenged, payload: &Bytes, cx: &Context) -> Result<Step, AuthError> {
        let mut r = Reader::new(payload.clone());
        let kind = r.u16()?;
        if kind != GET_AUTH_SESSION_KEY {
            return Err(AuthError::denied(
                Errno::EINVAL,
                format!("cephx request {kind:#x} in the handshake"),
            ));
        }
        let req: SessionRequest = r.get()?;
        if c.mode == ConMode::Secure && req.other_keys == 0 {
            return Err(AuthError::denied(
                Errno::EINVAL,
                "secure mode without a place for its secret",
            ));
        }
        let mut s = self.state();
        let (key, caps) = Self::check_proof(&s, &c.name, c.challenge, &req)?;
        let old = Self::open_old(&s, &c.name, &req.old_ticket);
        let (global_id, replace_all) = Self::settle_global_id(&mut s, c.claimed_id, &old)?;
        let auth = self.make_ticket(&s, EntityKind::Auth, &c.name, global_id, cx)?;
        let session_key = auth.session_key.clone();
        let secret = (c.mode == ConMode::Secure).then(|| ConnectionSecret(cx.bytes()));

        let mask = if replace_all { u32::MAX } else { req.other_keys };
        let others = self.make_tickets(&s, mask, &c.name, global_id, cx)?;
        let reply = SessionReply {
            wrap: match &old {
                OldTicket::Opened(t) => Some(t.session_key.clone()),
                _ => None,
            },
            auth,
            other_keys: req.other_keys,
            secret: secret.clone(),
            others,
        };
        Ok(Step::Done(Box::new(Granted {
            payload: reply.encode(&key),
            identity: Identity {
                name: c.name,
                global_id,
                caps,
                server_challenge: Some(c.challenge),
            },
            session_key: Some(session_key),
            connection_secret: secret,
        })))
    }

    /// Answers MAuth (message type 17) of a peer with an open session: the front of MAuthReply.
    pub fn answer_mauth(
        &self,
        peer: &Identity,
        front: &Bytes,
        cx: &Context,
    ) -> (MAuthReply, Option<AuthError>) {
        let answer = MAuth::from_bytes(front)
            .map_err(AuthError::from)
            .and_then(|m| self.renew(peer, &m, cx));
        let mut reply = MAuthReply {
            protocol: AuthMethod::Cephx as u32,
            result: 0,
            global_id: peer.global_id,
            payload: Bytes::new(),
            message: String::new(),
        };
        match answer {
            Ok(payload) => {
                reply.payload = payload;
                (reply, None)
            }
            Err(e) => {
                reply.result = e.errno().code();
                (reply, Some(e))
            }
        }
    }

    fn renew(&self, peer: &Identity, m: &MAuth, cx: &Context) -> Result<Bytes, AuthError> {
        if m.protocol != AuthMethod::Cephx as u32 {
            return Err(AuthError::denied(
                Errno::EOPNOTSUPP,
                format!("renewal with protocol {}", m.protocol),
            ));
        }
        let challenge = peer
            .server_challenge
            .ok_or_else(|| AuthError::access("renewal on a session without cephx"))?;
        let mut r = Reader::new(m.payload.clone());
        match r.u16()? {
            GET_AUTH_SESSION_KEY => self.renew_auth(peer, challenge, &r.get()?, cx),
            GET_PRINCIPAL_SESSION_KEY => self.renew_services(peer, &mut r, cx),
            GET_ROTATING_KEY => self.rotating_for(peer),
            other => Err(AuthError::denied(
                Errno::EINVAL,
                format!("cephx request {other:#x}"),
            )),
        }
    }

    fn renew_auth(
        &self,
        peer: &Identity,
        challenge: u64,
        req: &SessionRequest,
        cx: &Context,
    ) -> Result<Bytes, AuthError> {
        let s = self.state();
        let (key, _) = Self::check_proof(&s, &peer.name, challenge, req)?;
        let wrap = match Self::open_old(&s, &peer.name, &req.old_ticket) {
            OldTicket::Opened(t) if t.ticket.global_id != peer.global_id => {
                return Err(AuthError::access("renewal with a ticket of another global id"));
            }
            OldTicket::Opened(t) => Some(t.session_key.clone()),
            _ => None,
        };
        let reply = SessionReply {
            auth: self.make_ticket(&s, EntityKind::Auth, &peer.name, peer.global_id, cx)?,
            wrap,
            other_keys: req.other_keys,
            secret: None,
            others: self.make_tickets(&s, req.other_keys, &peer.name, peer.global_id, cx)?,
        };
        Ok(reply.encode_renewal(&key))
    }

    fn renew_services(&self, peer: &Identity, r: &mut Reader, cx: &Context) -> Result<Bytes, AuthError> {
        r.u8()?;
        let (global_id, service): (u64, u32) = (r.u64()?, r.u32()?);
        let ticket: TicketBlob = r.get()?;
        let proof = r.blob()?;
        r.u8()?;
        let mask = r.u32()?;
        let s = self.state();
        let OldTicket::Opened(t) = Self::open_old(&s, &peer.name, &ticket) else {
            return Err(AuthError::access("renewal with an unreadable ticket"));
        };
        // Decrypting it proves possession of the session key.
        t.session_key.open(&proof, |r| {
            r.u8()?;
            r.u64()
        })?;
        let ids_fit = global_id == peer.global_id && t.ticket.global_id == global_id;
        if !ids_fit || service != EntityKind::Auth as u32 {
            return Err(AuthError::access(
                "renewal with a ticket for another id or service",
            ));
        }
        if s.db.get(&peer.name).is_none() {
            return Err(AuthError::access(format!("{} no longer exists", peer.name)));
        }
        let tickets = self.make_tickets(&s, mask, &peer.name, peer.global_id, cx)?;
        let mut w = Writer::new();
        w.u16(GET_PRINCIPAL_SESSION_KEY);
        w.i32(0);
        GrantedTicket::encode_reply(&mut w, &t.session_key, None, &tickets);
        Ok(w.finish())
    }

    /// The secrets of the daemon's own service, sealed with the daemon's key.
    fn rotating_for(&self, peer: &Identity) -> Result<Bytes, AuthError> {
        let s = self.state();
        let entity =
            s.db.get(&peer.name)
                .ok_or_else(|| AuthError::access(format!("{} no longer exists", peer.name)))?;
        let secrets = match peer.name.kind {
            EntityKind::Osd | EntityKind::Mds | EntityKind::Mgr => s.secrets.get(peer.name.kind),
            _ => None,
        };
        let secrets = secrets
            .ok_or_else(|| AuthError::access(format!("rotating secrets asked for by {}", peer.name)))?;
        let mut w = Writer::new();
        w.u16(GET_ROTATING_KEY);
        w.i32(0);
        w.blob(&entity.key.seal(|w| w.put(secrets)));
        Ok(w.finish())
    }
}

impl Authenticator for KeyServer {
    fn methods(&self) -> &[AuthMethod] {
        &self.config.methods
    }

    fn modes(&self) -> &[ConMode] {
        &self.config.modes
    }

    fn start(
        &self,
        method: AuthMethod,
        mode: ConMode,
        payload: &Bytes,
        cx: &Context,
    ) -> Result<Step, AuthError> {
        let mut r = Reader::new(payload.clone());
        let auth_mode = r.u8()?;
        if auth_mode != AUTH_MODE_MON {
            return Err(AuthError::denied(
                Errno::EOPNOTSUPP,
                format!("auth mode {auth_mode} towards a monitor"),
            ));
        }
        let name: AuthName = r.get()?;
        let claimed_id = r.u64()?;
        if method == AuthMethod::None {
            return self.start_none(name, claimed_id);
        }
        let challenge = cx.challenge();
        let mut w = Writer::new();
        w.u8(1);
        w.u64(challenge);
        Ok(Step::More {
            payload: w.finish(),
            pending: Pending::new(Challenged {
                name,
                claimed_id,
                challenge,
                mode,
            }),
        })
    }

    fn resume(&self, pending: Pending, payload: &Bytes, cx: &Context) -> Result<Step, AuthError> {
        self.finish(pending.take()?, payload, cx)
    }
}

/// The answer to a 0x0100 request.
pub(crate) struct SessionReply {
    pub auth: GrantedTicket,
    /// The client's old AUTH session key, when it reclaims its id.
    pub wrap: Option<CryptoKey>,
    pub other_keys: u32,
    pub secret: Option<ConnectionSecret>,
    pub others: Vec<GrantedTicket>,
}

impl SessionReply {
    fn head(&self, key: &CryptoKey) -> Writer {
        let mut w = Writer::new();
        w.u16(GET_AUTH_SESSION_KEY);
        w.i32(0);
        let auth = std::slice::from_ref(&self.auth);
        GrantedTicket::encode_reply(&mut w, key, self.wrap.as_ref(), auth);
        w
    }

    fn extra(&self, w: &mut Writer) {
        w.sized(|w| {
            if !self.others.is_empty() {
                GrantedTicket::encode_reply(w, &self.auth.session_key, None, &self.others);
            }
        });
    }

    /// Payload of AUTH_DONE.
    pub(crate) fn encode(&self, key: &CryptoKey) -> Bytes {
        let mut w = self.head(key);
        if self.other_keys != 0 {
            let sealed = self.auth.session_key.seal(|w| match &self.secret {
                Some(s) => w.blob(&s.0),
                None => w.u32(0),
            });
            w.sized(|w| w.blob(&sealed));
            self.extra(&mut w);
        }
        w.finish()
    }

    /// Payload of MAuthReply: no connection secret.
    pub(crate) fn encode_renewal(&self, key: &CryptoKey) -> Bytes {
        let mut w = self.head(key);
        if self.other_keys != 0 {
            w.u32(0);
            self.extra(&mut w);
        }
        w.finish()
    }
}
