//! The connecting side: for our own client, tests and fuzzing.

use crate::frame::{Limits, Tag};
use crate::gcm::Gcm;
use crate::link::{Link, decode};
use crate::payload::{
    AuthBadMethod, AuthDone, AuthRequest, ClientIdent, Hello, ServerIdent, blob, con_modes,
};
use crate::{Error, Message, Output, features};
use auth::{ClientAuth, ConMode, Context, Entropy};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::{Bytes, BytesMut};
use denc::Encode;
use std::net::SocketAddr;
use std::sync::Arc;
use types::{AddrKind, EntityAddr, EntityAddrVec, EntityKind, Errno, Utime};

pub struct ClientConfig {
    /// What we are: a daemon says its number as `gid`.
    pub kind: EntityKind,
    /// Type of the server dialled, and its address as a map gives it.
    pub peer_kind: EntityKind,
    pub target: EntityAddr,
    /// Modes in order of preference.
    pub modes: Vec<ConMode>,
    pub entropy: Arc<dyn Entropy>,
    /// Part of our identity: random per process.
    pub nonce: u32,
    /// Global id, or -1 while there is none.
    pub gid: i64,
    pub global_seq: u64,
    pub supported: u64,
    pub required: u64,
    pub flags: u64,
    pub cookie: u64,
    pub limits: Limits,
    pub msgr2_features: u64,
}

impl ClientConfig {
    pub fn new(peer_kind: EntityKind, target: EntityAddr, nonce: u32, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            kind: EntityKind::Client,
            peer_kind,
            target,
            modes: vec![ConMode::Crc, ConMode::Secure],
            entropy,
            nonce,
            gid: -1,
            global_seq: 1,
            supported: features::SUPPORTED,
            required: features::REQUIRED | features::OSDREPLYMUX,
            flags: 1,
            cookie: 0,
            limits: Limits::default(),
            msgr2_features: features::MSGR2_REVISION_1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Banner,
    Hello,
    Auth,
    Signature([u8; 32]),
    Ident,
    Open,
}

/// What the client hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    Ready(ServerIdent),
    Message(Message),
}

pub struct ClientConnection<A> {
    config: ClientConfig,
    auth: A,
    link: Link,
    state: State,
    my_sock: Option<SocketAddr>,
}

impl<A: ClientAuth> ClientConnection<A> {
    pub fn new(config: ClientConfig, auth: A) -> Self {
        Self {
            link: Link::new(config.msgr2_features),
            config,
            auth,
            state: State::Banner,
            my_sock: None,
        }
    }

    pub fn read_target(&mut self) -> (&mut BytesMut, usize) {
        self.link.read_target()
    }

    pub fn feed(&mut self, b: &[u8]) {
        self.link.feed(b)
    }

    pub fn output(&mut self) -> &mut Output {
        &mut self.link.out
    }

    /// Where this connection comes from in the eyes of the server, from its HELLO on.
    pub fn my_sock(&self) -> Option<SocketAddr> {
        self.my_sock
    }

    /// The credentials, with what the handshake added to them (tickets, global id).
    pub fn into_auth(self) -> A {
        self.auth
    }

    pub fn send(&mut self, m: Message) -> Result<(), Error> {
        if self.state != State::Open {
            return Err(Error::NotReady);
        }
        self.link.send_message(m)
    }

    /// KEEPALIVE2 with the given stamp; the answer is not reported.
    pub fn keepalive(&mut self, stamp: Utime) -> Result<(), Error> {
        self.link.send_control(Tag::Keepalive2, &stamp.to_bytes())
    }

    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: Utime) -> Result<Option<ClientEvent>, Error> {
        if self.state == State::Banner {
            if !self.link.read_banner()? {
                return Ok(None);
            }
            let hello = Hello {
                entity_type: self.config.kind as u8,
                peer_addr: self.config.target,
            };
            self.link.send_control(Tag::Hello, &hello.to_bytes())?;
            self.state = State::Hello;
        }
        while let Some(frame) = self.link.reader.next_frame()? {
            let event = match self.state {
                State::Open => self.link.session_frame(frame)?.map(ClientEvent::Message),
                _ => self.handshake_frame(frame.tag, &frame.segments[0], now)?,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    fn handshake_frame(
        &mut self,
        tag: Tag,
        payload: &Bytes,
        now: Utime,
    ) -> Result<Option<ClientEvent>, Error> {
        let entropy = self.config.entropy.clone();
        let cx = Context {
            now,
            entropy: &*entropy,
        };
        match (self.state, tag) {
            (State::Hello, Tag::Hello) => self.hello(&decode(tag, payload)?, &cx)?,
            (State::Auth, Tag::AuthReplyMore) => {
                let answer = self.auth.more(&decode(tag, payload)?, &cx);
                let answer = answer.map_err(|e| Error::Auth(e.to_string()))?;
                self.link.send_control(Tag::AuthRequestMore, &blob(&answer))?;
            }
            (State::Auth, Tag::AuthBadMethod) => {
                let bad: AuthBadMethod = decode(tag, payload)?;
                return Err(Error::Auth(format!(
                    "server refused method {}: {}",
                    bad.method,
                    Errno(-bad.result)
                )));
            }
            (State::Auth, Tag::AuthDone) => self.auth_done(&decode(tag, payload)?)?,
            (State::Signature(expected), Tag::AuthSignature) => {
                if verify_slices_are_equal(payload, &expected).is_err() {
                    return Err(Error::Signature);
                }
                self.send_ident()?;
                self.state = State::Ident;
            }
            (State::Ident, Tag::ServerIdent) => return self.server_ident(decode(tag, payload)?).map(Some),
            (State::Ident, Tag::IdentMissingFeatures) => {
                let missing: u64 = decode(tag, payload)?;
                return Err(Error::Ident(format!("server requires features {missing:#x}")));
            }
            (_, tag) => {
                return Err(Error::Unexpected {
                    tag,
                    state: "connecting",
                });
            }
        }
        Ok(None)
    }

    fn hello(&mut self, hello: &Hello, cx: &Context) -> Result<(), Error> {
        if hello.entity_type != self.config.peer_kind as u8 {
            return Err(Error::Ident(format!("server is of type {}", hello.entity_type)));
        }
        self.my_sock = hello.peer_addr.sock;
        let payload = self
            .auth
            .request(self.config.peer_kind, cx)
            .map_err(|e| Error::Auth(e.to_string()))?;
        let request = AuthRequest {
            method: self.auth.method() as u32,
            modes: con_modes(&self.config.modes),
            payload,
        };
        self.link.send_control(Tag::AuthRequest, &request.to_bytes())?;
        self.state = State::Auth;
        Ok(())
    }

    fn auth_done(&mut self, done: &AuthDone) -> Result<(), Error> {
        let mode = ConMode::from_u32(done.mode)
            .filter(|m| self.config.modes.contains(m))
            .ok_or_else(|| Error::Auth(format!("server chose mode {}", done.mode)))?;
        let got = self
            .auth
            .done(done.global_id, mode, &done.payload)
            .map_err(|e| Error::Auth(e.to_string()))?;
        let (ours, expected) = self.link.sign(got.session_key.as_ref());
        if mode == ConMode::Secure {
            let secret = got
                .connection_secret
                .ok_or_else(|| Error::Auth("secure mode without a connection secret".into()))?;
            let revision = self.link.revision();
            self.link.set_secure(
                Gcm::server_to_client(&secret, revision),
                Gcm::client_to_server(&secret, revision),
            );
        }
        self.link.send_control(Tag::AuthSignature, &ours)?;
        self.state = State::Signature(expected);
        Ok(())
    }

    /// Our address: the ip that the server sees, no port, our nonce.
    fn send_ident(&mut self) -> Result<(), Error> {
        let sock = self.my_sock.map(|s| SocketAddr::new(s.ip(), 0));
        let ident = ClientIdent {
            addrs: EntityAddrVec::one(EntityAddr {
                kind: AddrKind::Any,
                nonce: self.config.nonce,
                sock,
            }),
            target: self.config.target,
            gid: self.config.gid,
            global_seq: self.config.global_seq,
            supported: self.config.supported,
            required: self.config.required,
            flags: self.config.flags,
            cookie: self.config.cookie,
        };
        self.link.send_control(Tag::ClientIdent, &ident.to_bytes())
    }

    fn server_ident(&mut self, ident: ServerIdent) -> Result<ClientEvent, Error> {
        if !ident.addrs.0.contains(&self.config.target) {
            return Err(Error::Ident(format!("server is {}", ident.addrs)));
        }
        self.link.open_session(self.config.limits);
        self.state = State::Open;
        Ok(ClientEvent::Ready(ident))
    }
}
