//! The accepting side: from the first byte of the banner to an open session, a lossy one or one of [`Sessions`].
//!
//! States and what each accepts (docs/protocol/ceph/01-messenger.md, 3.7): banner; HELLO; AUTH_REQUEST (again after a
//! refusal); AUTH_REQUEST_MORE; AUTH_SIGNATURE; CLIENT_IDENT or SESSION_RECONNECT (answered with a full
//! reset where there is nothing to be resumed); then messages, keepalives, acknowledgements. Anything
//! else closes the connection without an answer, as a real server does.

use crate::frame::{Limits, Tag};
use crate::gcm::Gcm;
use crate::link::{Link, decode};
use crate::modes::ModeSwitch;
use crate::payload::{
    AuthBadMethod, AuthDone, AuthRequest, ClientIdent, FLAG_LIFELINE, FLAG_LOSSY, Hello, Reconnect,
    ServerIdent, blob, con_modes, method_numbers,
};
use crate::reader::Frame;
use crate::sessions::{Opened, Resumed, SESSIONS_MAX};
use crate::{Error, Message, Output, Peer, Sessions, features};
use auth::{
    AuthError, AuthMethod, Authenticator, ConMode, Context, Entropy, Granted, Identity, Pending, Step,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::{Bytes, BytesMut};
use denc::Encode;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use types::{EntityAddr, EntityAddrVec, EntityKind, EntityName, Errno, Utime};

/// Authentication requests, and idents, that one connection may try.
pub(crate) const ATTEMPTS_MAX: u32 = 8;

/// What all connections of one entity share.
pub struct ServerConfig {
    /// Type and number of this entity: rank, OSD id, or global id.
    pub name: EntityName,
    /// Exactly as in the maps, nonce included, v2 first.
    pub addrs: EntityAddrVec,
    pub auth: Arc<dyn Authenticator>,
    pub entropy: Arc<dyn Entropy>,
    pub limits: Limits,
    /// Announced in SERVER_IDENT; normally [`features::SUPPORTED`].
    pub supported: u64,
    /// Required of clients; normally [`features::REQUIRED`].
    pub required: u64,
    /// Announced in the banner; 0 makes frames of revision 2.0.
    pub msgr2_features: u64,
    /// Modes offered, out of those that the authentication knows.
    pub modes: Arc<ModeSwitch>,
    /// Other OSDs may ask for lifelines, which the shell keeps then.
    pub lifelines: bool,
}

impl ServerConfig {
    pub fn new(
        name: EntityName,
        addrs: EntityAddrVec,
        auth: Arc<dyn Authenticator>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            name,
            addrs,
            auth,
            entropy,
            limits: Limits::default(),
            supported: features::SUPPORTED,
            required: features::REQUIRED,
            msgr2_features: features::MSGR2_REVISION_1,
            modes: Arc::default(),
            lifelines: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Credentials were refused and the peer told so; it may try again. For the log.
    Denied(String),
    /// The session is open; messages follow.
    Ready(Arc<Peer>),
    /// A session of before goes on over this connection: its owner need not know.
    Resumed(Arc<Peer>),
    Message(Message),
}

enum State {
    Banner,
    Hello,
    Auth,
    AuthMore(Pending, AuthMethod, ConMode),
    Signature([u8; 32]),
    Ident,
    Open,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Banner => "waiting for a banner",
            State::Hello => "waiting for HELLO",
            State::Auth => "waiting for AUTH_REQUEST",
            State::AuthMore(..) => "waiting for AUTH_REQUEST_MORE",
            State::Signature(_) => "waiting for AUTH_SIGNATURE",
            State::Ident => "waiting for CLIENT_IDENT",
            State::Open => "the session is open",
        }
    }
}

pub struct ServerConnection {
    config: Arc<ServerConfig>,
    link: Link,
    state: State,
    peer_sock: SocketAddr,
    /// Our count of connections, told in SERVER_IDENT.
    global_seq: u64,
    peer_kind: u8,
    attempts: u32,
    granted: Option<(Identity, AuthMethod, ConMode)>,
    /// Where sessions are lossless: all of them, and the one that this connection carries.
    sessions: Option<Rc<RefCell<Sessions>>>,
    session: Option<u64>,
}

impl ServerConnection {
    /// A connection just accepted from `peer`; its banner is in the output already.
    pub fn new(config: Arc<ServerConfig>, peer: SocketAddr, global_seq: u64) -> Self {
        Self {
            link: Link::new(config.msgr2_features),
            config,
            state: State::Banner,
            peer_sock: peer,
            global_seq,
            peer_kind: 0,
            attempts: 0,
            granted: None,
            sessions: None,
            session: None,
        }
    }

    /// Its session is one of these, if the client wants one that outlives connections. `global_seq` names the connection there.
    pub fn lossless(self, sessions: Rc<RefCell<Sessions>>) -> Self {
        Self {
            sessions: Some(sessions),
            ..self
        }
    }

    /// The lossless session that it carries.
    pub fn session(&self) -> Option<u64> {
        self.session
    }

    /// Where received bytes belong, and how many at most. After reading, call [`Self::next`] until `None`.
    pub fn read_target(&mut self) -> (&mut BytesMut, usize) {
        self.link.read_target()
    }

    /// Appends received bytes by copying: for tests. A shell reads into [`Self::read_target`].
    pub fn feed(&mut self, b: &[u8]) {
        self.link.feed(b)
    }

    /// The frame that is being received, when it is large: bytes it has, and is to have.
    pub fn large_body(&self) -> Option<(usize, usize)> {
        self.link.reader.large_body()
    }

    pub fn output(&mut self) -> &mut Output {
        &mut self.link.out
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// Queues a message; only on an open session.
    pub fn send(&mut self, m: Message) -> Result<(), Error> {
        if !self.is_open() {
            return Err(Error::NotReady);
        }
        if let (Some(sessions), Some(id)) = (&self.sessions, self.session) {
            let mut sessions = sessions.borrow_mut();
            sessions.check(id, self.global_seq)?;
            let (seq, ack) = sessions.push(id, &m).ok_or(Error::Displaced)?;
            return self.link.put_message(m, seq, ack);
        }
        self.link.send_message(m)
    }

    /// The next event from the bytes received so far. After an error the connection is of no use.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: Utime) -> Result<Option<Event>, Error> {
        if matches!(self.state, State::Banner) {
            if !self.link.read_banner()? {
                return Ok(None);
            }
            self.send_hello()?;
            self.state = State::Hello;
        }
        while let Some(frame) = self.link.reader.next_frame()? {
            let event = match self.state {
                State::Open => self.session_frame(frame)?.map(Event::Message),
                _ => self.handshake_frame(frame.tag, &frame.segments[0], now)?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        self.acknowledge()?;
        Ok(None)
    }

    fn session_frame(&mut self, frame: Frame) -> Result<Option<Message>, Error> {
        let (Some(sessions), Some(id)) = (&self.sessions, self.session) else {
            return self.link.session_frame(frame);
        };
        let mut sessions = sessions.borrow_mut();
        match frame.tag {
            Tag::Message => {
                let ack = Message::acknowledged(&frame.segments[0]);
                let (seq, message) = Message::from_segments(frame.segments);
                let new = sessions.received(id, self.global_seq, seq, ack)?;
                Ok(new.then_some(message))
            }
            Tag::Ack => {
                sessions.check(id, self.global_seq)?;
                sessions.acked(id, decode(Tag::Ack, &frame.segments[0])?);
                Ok(None)
            }
            _ => self.link.session_frame(frame),
        }
    }

    /// Tells the client what has come of it, where no message has told it since.
    fn acknowledge(&mut self) -> Result<(), Error> {
        let (Some(sessions), Some(id)) = (&self.sessions, self.session) else {
            return Ok(());
        };
        let due = sessions.borrow_mut().due(id, self.global_seq);
        match due {
            Some(seq) => self.link.send_control(Tag::Ack, &seq.to_le_bytes()),
            None => Ok(()),
        }
    }

    fn send_hello(&mut self) -> Result<(), Error> {
        let hello = Hello {
            entity_type: self.config.name.kind,
            peer_addr: EntityAddr::msgr2(self.peer_sock, 0),
        };
        self.link.send_control(Tag::Hello, &hello.to_bytes())
    }

    fn handshake_frame(&mut self, tag: Tag, payload: &Bytes, now: Utime) -> Result<Option<Event>, Error> {
        let state = std::mem::replace(&mut self.state, State::Hello);
        match (state, tag) {
            (State::Hello, Tag::Hello) => {
                self.peer_kind = decode::<Hello>(tag, payload)?.entity_type;
                self.state = State::Auth;
                Ok(None)
            }
            (State::Auth, Tag::AuthRequest) => self.auth_request(&decode(tag, payload)?, now),
            (State::AuthMore(pending, method, mode), Tag::AuthRequestMore) => {
                let payload: Bytes = decode(tag, payload)?;
                let config = self.config.clone();
                let step = config.auth.resume(pending, &payload, &context(&config, now));
                self.auth_step(step, method, mode)
            }
            (State::Signature(expected), Tag::AuthSignature) => {
                if verify_slices_are_equal(payload, &expected).is_err() {
                    return Err(Error::Signature);
                }
                self.attempts = 0;
                self.state = State::Ident;
                Ok(None)
            }
            (State::Ident, Tag::ClientIdent) => self.client_ident(decode(tag, payload)?),
            (State::Ident, Tag::SessionReconnect) => {
                self.attempt()?;
                self.reconnect(&decode(tag, payload)?)
            }
            (state, tag) => Err(Error::Unexpected {
                tag,
                state: state.name(),
            }),
        }
    }

    fn attempt(&mut self) -> Result<(), Error> {
        self.attempts += 1;
        if self.attempts > ATTEMPTS_MAX {
            return Err(Error::TooManyAttempts(ATTEMPTS_MAX));
        }
        Ok(())
    }

    fn auth_request(&mut self, req: &AuthRequest, now: Utime) -> Result<Option<Event>, Error> {
        self.attempt()?;
        let config = self.config.clone();
        let method = AuthMethod::from_u32(req.method).filter(|m| config.auth.methods().contains(m));
        let modes = self.modes();
        let allowed = |m: &AuthMethod, mode: &ConMode| match m {
            // Without a key there is nothing to be secure with.
            AuthMethod::None => *mode == ConMode::Crc && modes.contains(mode),
            AuthMethod::Cephx => modes.contains(mode),
        };
        let chosen = method.and_then(|m| {
            let mut modes = req.modes.iter().filter_map(|v| ConMode::from_u32(*v));
            modes.find(|mode| allowed(&m, mode)).map(|mode| (m, mode))
        });
        let Some((method, mode)) = chosen else {
            let reason = format!("method {} with modes {:?} is not allowed", req.method, req.modes);
            return self.refuse(req.method, AuthError::denied(Errno::EOPNOTSUPP, reason));
        };
        let cx = context(&config, now);
        let step = config.auth.start(method, mode, &req.payload, &cx);
        self.auth_step(step, method, mode)
    }

    fn auth_step(
        &mut self,
        step: Result<Step, AuthError>,
        method: AuthMethod,
        mode: ConMode,
    ) -> Result<Option<Event>, Error> {
        match step {
            Err(AuthError::Close(reason)) => Err(Error::Auth(reason)),
            Err(AuthError::Elsewhere(reason)) => Err(Error::Elsewhere(reason)),
            Err(e) => self.refuse(method as u32, e),
            Ok(Step::More { payload, pending }) => {
                self.link.send_control(Tag::AuthReplyMore, &blob(&payload))?;
                self.state = State::AuthMore(pending, method, mode);
                Ok(None)
            }
            Ok(Step::Done(granted)) => self.auth_done(*granted, method, mode),
        }
    }

    fn modes(&self) -> Vec<ConMode> {
        self.config
            .modes
            .allowed(self.peer_kind, self.config.auth.modes())
    }

    /// The connection stays open: the client may try another method.
    fn refuse(&mut self, method: u32, e: AuthError) -> Result<Option<Event>, Error> {
        let reply = AuthBadMethod {
            method,
            result: e.errno().code(),
            methods: method_numbers(self.config.auth.methods()),
            modes: con_modes(&self.modes()),
        };
        self.link.send_control(Tag::AuthBadMethod, &reply.to_bytes())?;
        self.state = State::Auth;
        Ok(Some(Event::Denied(e.to_string())))
    }

    fn auth_done(&mut self, g: Granted, method: AuthMethod, mode: ConMode) -> Result<Option<Event>, Error> {
        let done = AuthDone {
            global_id: g.identity.global_id,
            mode: mode as u32,
            payload: g.payload,
        };
        self.link.send_control(Tag::AuthDone, &done.to_bytes())?;
        let (ours, expected) = self.link.sign(g.session_key.as_ref());
        if mode == ConMode::Secure {
            let Some(secret) = &g.connection_secret else {
                return Err(Error::Auth("secure mode without a connection secret".into()));
            };
            let revision = self.link.revision();
            self.link.set_secure(
                Gcm::client_to_server(secret, revision),
                Gcm::server_to_client(secret, revision),
            );
        }
        self.link.send_control(Tag::AuthSignature, &ours)?;
        self.granted = Some((g.identity, method, mode));
        self.state = State::Signature(expected);
        Ok(None)
    }

    fn client_ident(&mut self, ident: ClientIdent) -> Result<Option<Event>, Error> {
        self.attempt()?;
        if ident.addrs.first().sock.is_none() {
            return Err(Error::Ident("client without an address".into()));
        }
        if !self.config.addrs.0.contains(&ident.target) {
            return Err(Error::Ident(format!(
                "client wants {}, which is not us",
                ident.target
            )));
        }
        let missing = self.config.required & !ident.supported;
        if missing != 0 {
            self.link
                .send_control(Tag::IdentMissingFeatures, &missing.to_le_bytes())?;
            self.state = State::Ident;
            return Ok(None);
        }
        let Some((identity, method, mode)) = self.granted.take() else {
            return Err(Error::Ident("ident without authentication".into()));
        };
        let name = self.peer_name(&identity, ident.gid)?;
        let keeps = self.config.lifelines && name.kind == EntityKind::Osd as u8;
        let lifeline = ident.flags & FLAG_LIFELINE != 0;
        if lifeline && !keeps {
            return Err(Error::Ident(format!(
                "{name} asks for a lifeline, and gets none here"
            )));
        }
        let peer = Arc::new(Peer {
            name,
            auth_name: identity.name,
            global_id: identity.global_id,
            caps: identity.caps,
            key_epoch: identity.key_epoch,
            addrs: ident.addrs.clone(),
            sock: self.peer_sock,
            features: ident.supported & self.config.supported,
            method,
            secure: mode == ConMode::Secure,
            server_challenge: identity.server_challenge,
            lifeline,
            lossless: self.sessions.is_some() && ident.flags & FLAG_LOSSY == 0 && ident.cookie != 0,
            monmap_epoch: None,
        });
        self.open(&ident, peer, keeps).map(Some)
    }

    /// SERVER_IDENT: who we are, and which session it is. `keeps`: lifelines.
    fn open(&mut self, ident: &ClientIdent, peer: Arc<Peer>, keeps: bool) -> Result<Event, Error> {
        let sessions = self.sessions.clone().filter(|_| peer.lossless);
        let (flags, cookie) = match &sessions {
            Some(_) => (0, self.cookie()),
            None => (FLAG_LOSSY | if keeps { FLAG_LIFELINE } else { 0 }, 0),
        };
        let mut resumed = false;
        if let Some(sessions) = &sessions {
            let mut sessions = sessions.borrow_mut();
            let (id, opened) = sessions.open(&peer, ident.cookie, cookie, ident.global_seq, self.global_seq);
            resumed = match opened {
                Opened::New => false,
                Opened::Again => true,
                Opened::Stale => return Err(Error::Displaced),
                Opened::Full => return Err(Error::TooManySessions(SESSIONS_MAX)),
            };
            self.session = Some(id);
        }
        let reply = ServerIdent {
            addrs: self.config.addrs.clone(),
            gid: self.config.name.num,
            global_seq: self.global_seq,
            supported: self.config.supported,
            required: self.config.required,
            flags,
            cookie,
        };
        self.link.send_control(Tag::ServerIdent, &reply.to_bytes())?;
        self.begin_session()?;
        Ok(match resumed {
            true => Event::Resumed(peer),
            false => Event::Ready(peer),
        })
    }

    /// Never 0, which stands for none.
    fn cookie(&self) -> u64 {
        let mut b = [0; 8];
        self.config.entropy.fill(&mut b);
        u64::from_le_bytes(b).max(1)
    }

    /// Messages follow: first those that an earlier connection did not get through.
    fn begin_session(&mut self) -> Result<(), Error> {
        self.link.open_session(self.config.limits);
        self.state = State::Open;
        if let (Some(sessions), Some(id)) = (&self.sessions, self.session) {
            for (seq, ack, m) in sessions.borrow().unacked(id) {
                self.link.put_message(m, seq, ack)?;
            }
        }
        Ok(())
    }

    fn reconnect(&mut self, r: &Reconnect) -> Result<Option<Event>, Error> {
        self.state = State::Ident;
        let (Some(sessions), Some((identity, ..))) = (self.sessions.clone(), &self.granted) else {
            self.link.send_control(Tag::SessionReset, &[1])?;
            return Ok(None);
        };
        let (answer, found) =
            sessions
                .borrow_mut()
                .resume(&identity.name, identity.global_id, r, self.global_seq);
        let (tag, payload) = match answer {
            Resumed::Reset => (Tag::SessionReset, vec![1]),
            Resumed::RetryGlobal(seq) => (Tag::SessionRetryGlobal, seq.to_le_bytes().to_vec()),
            Resumed::Retry(seq) => (Tag::SessionRetry, seq.to_le_bytes().to_vec()),
            Resumed::Ok(seq) => (Tag::SessionReconnectOk, seq.to_le_bytes().to_vec()),
        };
        self.link.send_control(tag, &payload)?;
        let Some((id, peer)) = found else { return Ok(None) };
        let Some((identity, method, mode)) = self.granted.take() else {
            return Err(Error::Ident("reconnect without authentication".into()));
        };
        self.session = Some(id);
        self.begin_session()?;
        Ok(Some(Event::Resumed(Arc::new(Peer {
            auth_name: identity.name,
            caps: identity.caps,
            key_epoch: identity.key_epoch,
            server_challenge: identity.server_challenge,
            sock: self.peer_sock,
            method,
            secure: mode == ConMode::Secure,
            ..Peer::clone(&peer)
        }))))
    }

    /// A client's number is the one authenticated; a daemon may say its own, if it proved to be of that kind.
    fn peer_name(&self, identity: &Identity, gid: i64) -> Result<EntityName, Error> {
        if self.peer_kind == EntityKind::Client as u8 {
            return Ok(EntityName::client(identity.global_id));
        }
        if self.peer_kind != identity.name.kind as u8 {
            let claimed = self.peer_kind;
            return Err(Error::Ident(format!(
                "{} says it is of type {claimed}",
                identity.name
            )));
        }
        Ok(EntityName {
            kind: self.peer_kind,
            num: gid,
        })
    }
}

pub(crate) fn context(config: &ServerConfig, now: Utime) -> Context<'_> {
    Context {
        now,
        entropy: &*config.entropy,
    }
}
