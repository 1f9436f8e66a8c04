//! The monitor's side: proof of the long-lived key, global ids, tickets and their renewal
//! (docs/protocol/ceph/01-messenger.md, 6.2 to 6.7).
//!
//! Invariants: a global id is given once (the owner persists a high-water mark and grants ranges), and to one entity;
//! who claims one gets it for a readable, unexpired AUTH ticket of the same entity and id (of the old form, too, which is
//! good for nothing else), and a fresh one otherwise; an
//! entity without capabilities for the monitor, or whose time is over, does not get in; no ticket outlives its entity's
//! time. Unknown entities get a challenge like known ones and
//! fail in the second step after the same work, so names cannot be probed. A pending key is as good as the key.
//!
//! Does not persist: the owner stores [`KeyDb`], [`ServiceSecrets`] and the high-water mark, each before
//! the server uses it.

use crate::handshake::{AuthError, AuthMethod, Authenticator, ConMode, Context, Pending, Step};
use crate::key::same_u64;
use crate::owners::Owners;
use crate::ticket::{AuthTicket, GrantedTicket, SessionTicket, TicketBlob, id_of_old_form};
use crate::{
    ConnectionSecret, CryptoKey, EntityAuth, Granted, Identity, KeyDb, MAuth, MAuthReply, PeerCaps,
    RotatingSecrets, SECRET_LEN, ServiceSecrets,
};
use denc::{Bytes, Decode, Reader, Writer};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    db: Arc<KeyDb>,
    secrets: ServiceSecrets,
    owners: Owners,
    /// `auth_allow_insecure_global_id_reclaim`.
    insecure_reclaim: bool,
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
    /// Over messenger v1: the id that the client has been told with the challenge.
    told: Option<u64>,
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
    /// Expired, another's, of an older form, made with another key of the entity, or sealed with a secret that we no
    /// longer have.
    Unusable,
    /// Of the form of versions up to 0.1.0: it says whose this id is, and nothing more.
    OldForm(u64),
    Opened(Box<SessionTicket>),
}

impl KeyServer {
    /// `secrets` must have been rotated to now and persisted.
    pub fn new(config: KeyServerConfig, db: impl Into<Arc<KeyDb>>, secrets: ServiceSecrets) -> Self {
        let state = State {
            db: db.into(),
            secrets,
            owners: Owners::default(),
            insecure_reclaim: false,
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
    pub fn set_db(&self, db: impl Into<Arc<KeyDb>>) {
        self.state().db = db.into();
    }

    /// Whether an entity that proved its key gets the id that it claims without a usable ticket
    /// (`auth_allow_insecure_global_id_reclaim`). Even then no id that another is known to have been given.
    pub fn allow_insecure_reclaim(&self, allow: bool) {
        self.state().insecure_reclaim = allow;
    }

    /// A session of this id began: it is remembered as long as it lasts.
    pub fn session_opened(&self, global_id: u64, name: &AuthName) {
        self.state().owners.opened(global_id, name);
    }

    pub fn session_closed(&self, global_id: u64) {
        self.state().owners.closed(global_id);
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
                key_epoch: None,
                server_challenge: None,
            },
            session_key: None,
            connection_secret: None,
        })))
    }

    /// Checks the proof of a 0x0100 request; gives the entity, and which of its keys it was made with.
    fn check_proof<'a>(
        s: &'a State,
        name: &AuthName,
        challenge: u64,
        req: &SessionRequest,
        now: Utime,
    ) -> Result<(&'a EntityAuth, &'a CryptoKey), AuthError> {
        // Two proofs for every name: time shall tell neither whether it is known nor how many keys it has.
        let nobody = CryptoKey::new([0; SECRET_LEN], Utime::ZERO);
        let proves = |key: Option<&CryptoKey>| {
            let proof = key.unwrap_or(&nobody).proof(challenge, req.client_challenge);
            same_u64(proof, req.proof) & key.is_some()
        };
        let entity = s.db.get(name);
        let pending = entity.and_then(|e| e.pending.as_ref());
        let (by_key, by_pending) = (proves(entity.map(|e| &e.key)), proves(pending));
        let entity = entity.ok_or_else(|| AuthError::access(format!("unknown entity {name}")))?;
        let key = match pending {
            _ if by_key => &entity.key,
            Some(pending) if by_pending => pending,
            _ => return Err(AuthError::access(format!("wrong key for {name}"))),
        };
        if !entity.caps.contains_key("mon") {
            return Err(AuthError::access(format!("{name} has no capabilities for mon")));
        }
        check_expiry(name, entity, now)?;
        Ok((entity, key))
    }

    /// The old AUTH ticket in a request of `name`.
    fn open_old(s: &State, name: &AuthName, old: &TicketBlob, now: Utime) -> OldTicket {
        if old.blob.is_empty() {
            return OldTicket::Absent;
        }
        let secret = s.secrets.get(EntityKind::Auth).and_then(|r| r.get(old.secret_id));
        let opened = secret.and_then(|k| SessionTicket::open(old, EntityKind::Auth, k).ok());
        let key_epoch = s.db.get(name).map(|e| e.epoch);
        let usable = |t: &SessionTicket| {
            t.ticket.name == *name && !t.ticket.has_expired(now) && t.key_epoch == key_epoch
        };
        if let Some(t) = opened.filter(usable) {
            return OldTicket::Opened(Box::new(t));
        }
        // Only for a key from before there were epochs: another one is not what that ticket was made for.
        let secret = secret.filter(|_| key_epoch == Some(0));
        match secret.and_then(|k| id_of_old_form(&old.blob, k, name, now)) {
            Some(id) => OldTicket::OldForm(id),
            None => OldTicket::Unusable,
        }
    }

    /// The id that this client shall have, and whether its other tickets must be replaced too. Whoever proved its key but
    /// not that the id is its own gets a fresh id: refusing would strand a client whose ticket expired while it slept.
    fn settle_global_id(
        s: &mut State,
        name: &AuthName,
        claimed: u64,
        old: &OldTicket,
    ) -> Result<(u64, bool), AuthError> {
        let settled = match (claimed, old) {
            (0, OldTicket::Absent) => (Self::new_global_id(s)?, false),
            (0, _) => {
                return Err(AuthError::denied(
                    Errno::EINVAL,
                    "old ticket without the global id it is for",
                ));
            }
            (id, OldTicket::Opened(t)) if t.ticket.global_id == id => (id, false),
            (id, OldTicket::Opened(_)) => {
                return Err(AuthError::access(format!(
                    "global id {id} claimed with another's ticket"
                )));
            }
            // A client that goes on through an upgrade: with another id its operations under way, sent again, would not
            // be known again.
            (id, OldTicket::OldForm(its)) if *its == id => (id, true),
            (id, OldTicket::Absent | OldTicket::Unusable | OldTicket::OldForm(_)) => {
                let known = s.owners.of(id);
                let free = id < s.next_global_id && known.is_none_or(|owner| owner == name);
                match s.insecure_reclaim && free {
                    true => (id, true),
                    false => (Self::new_global_id(s)?, true),
                }
            }
        };
        s.owners.given(settled.0, name);
        Ok(settled)
    }

    /// The same over messenger v1, where the client knows its id since the challenge: another one now would have it begin
    /// anew, and in vain. So who cannot show that it is its own is refused, as a real monitor does.
    fn settle_told(
        s: &mut State,
        name: &AuthName,
        claimed: u64,
        told: u64,
        old: &OldTicket,
    ) -> Result<(u64, bool), AuthError> {
        if claimed == 0 && matches!(old, OldTicket::Absent) {
            s.owners.given(told, name);
            return Ok((told, false));
        }
        match Self::settle_global_id(s, name, claimed, old)? {
            (id, all) if id == told => Ok((id, all)),
            _ => Err(AuthError::access(format!(
                "global id {claimed} claimed without a usable ticket"
            ))),
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
        let entity = s.db.get(name);
        let ttl = match service {
            EntityKind::Auth => self.config.auth_ttl,
            _ => self.config.service_ttl,
        };
        let left = entity.and_then(|e| e.expiry).map(|e| e.at.to_duration());
        let ttl = left.map_or(ttl, |at| ttl.min(at.saturating_sub(cx.now.to_duration())));
        let (secret_id, secret) = s
            .secrets
            .get(service)
            .and_then(RotatingSecrets::current)
            .ok_or_else(|| AuthError::Close(format!("no secret for service {service}")))?;
        // The monitor looks capabilities up itself; a service without a text grants nothing.
        let caps = match service {
            EntityKind::Auth | EntityKind::Mon => None,
            _ => entity.and_then(|e| e.caps.get(service.as_str()).cloned()),
        };
        let session_key = cx.key();
        let key_epoch = entity.map_or(0, |e| e.epoch);
        let sealed = SessionTicket {
            key_epoch: Some(key_epoch),
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
            blob: sealed.seal(service, secret_id, &secret.key, cx),
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
        let (entity, key) = Self::check_proof(&s, &c.name, c.challenge, &req, cx.now)?;
        let (key, key_epoch) = (key.clone(), entity.epoch);
        let caps = PeerCaps::Texts(entity.caps.clone());
        let old = Self::open_old(&s, &c.name, &req.old_ticket, cx.now);
        let (global_id, replace_all) = match c.told {
            None => Self::settle_global_id(&mut s, &c.name, c.claimed_id, &old)?,
            Some(told) => Self::settle_told(&mut s, &c.name, c.claimed_id, told, &old)?,
        };
        if has_service(c.name.kind) {
            s.owners.proved(global_id, &c.name, &key);
        }
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
            payload: match c.told {
                None => reply.encode(&key),
                Some(_) => reply.encode_renewal(&key),
            },
            identity: Identity {
                name: c.name,
                global_id,
                caps,
                key_epoch: Some(key_epoch),
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
        self.check_session(peer, cx.now)?;
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

    /// The key behind an open session is its entity's still, and has not expired.
    fn check_session(&self, peer: &Identity, now: Utime) -> Result<(), AuthError> {
        let s = self.state();
        let entity =
            s.db.current(&peer.name, peer.key_epoch.unwrap_or_default())
                .ok_or_else(|| AuthError::access(format!("{} has no such key any more", peer.name)))?;
        check_expiry(&peer.name, entity, now)
    }

    fn renew_auth(
        &self,
        peer: &Identity,
        challenge: u64,
        req: &SessionRequest,
        cx: &Context,
    ) -> Result<Bytes, AuthError> {
        let s = self.state();
        let (_, key) = Self::check_proof(&s, &peer.name, challenge, req, cx.now)?;
        let wrap = match Self::open_old(&s, &peer.name, &req.old_ticket, cx.now) {
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
        Ok(reply.encode_renewal(key))
    }

    fn renew_services(&self, peer: &Identity, r: &mut Reader, cx: &Context) -> Result<Bytes, AuthError> {
        r.u8()?;
        let (global_id, service): (u64, u32) = (r.u64()?, r.u32()?);
        let ticket: TicketBlob = r.get()?;
        let proof = r.blob()?;
        r.u8()?;
        let mask = r.u32()?;
        let s = self.state();
        let OldTicket::Opened(t) = Self::open_old(&s, &peer.name, &ticket, cx.now) else {
            return Err(AuthError::access("renewal with a ticket that is of no use"));
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
        let tickets = self.make_tickets(&s, mask, &peer.name, peer.global_id, cx)?;
        let mut w = Writer::new();
        w.u16(GET_PRINCIPAL_SESSION_KEY);
        w.i32(0);
        GrantedTicket::encode_reply(&mut w, &t.session_key, None, &tickets);
        Ok(w.finish())
    }

    /// The secrets of the daemon's own service, sealed with the key that the daemon came with: it knows no other, whichever
    /// became the entity's since.
    fn rotating_for(&self, peer: &Identity) -> Result<Bytes, AuthError> {
        let s = self.state();
        let entity =
            s.db.get(&peer.name)
                .ok_or_else(|| AuthError::access(format!("{} no longer exists", peer.name)))?;
        let kind = Some(peer.name.kind).filter(|k| has_service(*k));
        let secrets = kind
            .and_then(|k| s.secrets.get(k))
            .ok_or_else(|| AuthError::access(format!("rotating secrets asked for by {}", peer.name)))?;
        let mut w = Writer::new();
        w.u16(GET_ROTATING_KEY);
        w.i32(0);
        let proved = s.owners.key_of(peer.global_id, &peer.name);
        let key = proved.unwrap_or(&entity.key);
        w.blob(&key.seal(|w| w.put(secrets)));
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
        let (name, claimed_id) = who(payload)?;
        match method {
            AuthMethod::None => self.start_none(name, claimed_id),
            AuthMethod::Cephx => Ok(challenge(name, claimed_id, mode, None, cx)),
        }
    }

    fn resume(&self, pending: Pending, payload: &Bytes, cx: &Context) -> Result<Step, AuthError> {
        self.finish(pending.take()?, payload, cx)
    }

    fn start_v1(&self, method: AuthMethod, payload: &Bytes, cx: &Context) -> Result<(u64, Step), AuthError> {
        let (name, claimed_id) = who(payload)?;
        let id = match claimed_id {
            0 => Self::new_global_id(&mut self.state())?,
            id => id,
        };
        let step = match method {
            AuthMethod::None => self.start_none(name, id)?,
            AuthMethod::Cephx => challenge(name, claimed_id, ConMode::Crc, Some(id), cx),
        };
        Ok((id, step))
    }
}

/// Whether entities of this kind are daemons that open tickets, for which they ask for rotating secrets.
fn has_service(kind: EntityKind) -> bool {
    matches!(kind, EntityKind::Osd | EntityKind::Mds | EntityKind::Mgr)
}

fn check_expiry(name: &AuthName, entity: &EntityAuth, now: Utime) -> Result<(), AuthError> {
    match entity.expired(now) {
        Some(at) => Err(AuthError::access(format!("the key of {name} expired at {at}"))),
        None => Ok(()),
    }
}

/// Who a client says that it is, and the id that it says it has.
fn who(payload: &Bytes) -> Result<(AuthName, u64), AuthError> {
    let mut r = Reader::new(payload.clone());
    let auth_mode = r.u8()?;
    if auth_mode != AUTH_MODE_MON {
        return Err(AuthError::denied(
            Errno::EOPNOTSUPP,
            format!("auth mode {auth_mode} towards a monitor"),
        ));
    }
    Ok((r.get()?, r.u64()?))
}

fn challenge(name: AuthName, claimed_id: u64, mode: ConMode, told: Option<u64>, cx: &Context) -> Step {
    let challenge = cx.challenge();
    let mut w = Writer::new();
    w.u8(1);
    w.u64(challenge);
    Step::More {
        payload: w.finish(),
        pending: Pending::new(Challenged {
            name,
            claimed_id,
            challenge,
            mode,
            told,
        }),
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

    /// Payload of MAuthReply, over either messenger: no connection secret.
    pub(crate) fn encode_renewal(&self, key: &CryptoKey) -> Bytes {
        let mut w = self.head(key);
        if self.other_keys != 0 {
            w.u32(0);
            self.extra(&mut w);
        }
        w.finish()
    }
}
