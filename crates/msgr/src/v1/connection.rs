//! A connection that was accepted: from the banner to an open session.
//!
//! States and what each takes: greeting (banner and address); connect, with the authorizer behind it (again after a refusal
//! or a challenge); the client's sequence number; towards a monitor then MAuth; then messages, keepalives, acknowledgements.

use super::wire::{Answer, BANNER, CONNECT_LEN, Connect, FLAG_LOSSY, FOOTER_LEN, Footer, Header, Reply, Tag};
use crate::frame::CONTROL_FRAME_MAX;
use crate::intake::Intake;
use crate::reader::TRANSCRIPT_MAX;
use crate::server::{ATTEMPTS_MAX, context};
use crate::{Error, Event, Limits, Message, Output, Peer, ServerConfig, features};
use auth::{
    AuthError, AuthMethod, ConMode, CryptoKey, Granted, Identity, MAUTH, MAUTH_REPLY, MAuth, MAuthReply,
    Pending, Step,
};
use bytes::{Bytes, BytesMut};
use denc::{Decode, Encode, Reader, Writer};
use std::net::SocketAddr;
use std::sync::Arc;
use types::{
    AddrKind, AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Errno, LEGACY_LEN, Utime,
};

/// What clients say that they speak, and servers; to a manager they say 0.
const PROTOCOL_MON: u32 = 15;
const PROTOCOL_OSD: u32 = 24;
const PROTOCOL_OTHERS: u32 = 0;
/// As real monitors send their answers.
const PRIORITY_HIGH: u16 = 196;
/// First byte of what is shown to a monitor: no authorizer, but a name.
const TO_MONITOR: u8 = 10;

enum State {
    Greeting,
    Connect,
    /// The authorizer is still to come.
    Authorizer(Connect),
    /// The client's sequence number is.
    Seq,
    /// At a monitor: MAuth is.
    Auth,
    Open,
}

pub struct ServerConnection {
    config: Arc<ServerConfig>,
    intake: Intake,
    out: Output,
    state: State,
    sock: SocketAddr,
    global_seq: u64,
    attempts: u32,
    /// Bytes taken before the client has proved who it is.
    heard: usize,
    client: EntityAddr,
    features: u64,
    pending: Option<(Pending, AuthMethod)>,
    /// With the challenge, at a monitor.
    told_id: u64,
    granted: Option<(Identity, AuthMethod)>,
    /// Of a monitor's client, by its last MAuth.
    monmap_epoch: Option<u32>,
    /// Signs messages.
    key: Option<CryptoKey>,
    /// Of the message that is being received.
    header: Option<Header>,
    in_seq: u64,
    out_seq: u64,
}

impl ServerConnection {
    /// A connection just accepted from `peer`; our banner, our address and the peer's are in the output already.
    pub fn new(config: Arc<ServerConfig>, peer: SocketAddr, global_seq: u64) -> Self {
        let mut out = Output::default();
        out.put(BANNER);
        out.put(&config.addrs.legacy_or_first().legacy_bytes());
        out.put(&EntityAddr::legacy(peer, 0).legacy_bytes());
        Self {
            config,
            intake: Intake::default(),
            out,
            state: State::Greeting,
            sock: peer,
            global_seq,
            attempts: 0,
            heard: 0,
            client: EntityAddr::BLANK,
            features: 0,
            pending: None,
            told_id: 0,
            granted: None,
            monmap_epoch: None,
            key: None,
            header: None,
            in_seq: 0,
            out_seq: 0,
        }
    }

    pub fn read_target(&mut self) -> (&mut BytesMut, usize) {
        self.intake.target()
    }

    pub fn feed(&mut self, b: &[u8]) {
        self.intake.feed(b);
    }

    pub fn large_body(&self) -> Option<(usize, usize)> {
        self.intake.large_body()
    }

    pub fn output(&mut self) -> &mut Output {
        &mut self.out
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub fn send(&mut self, m: Message) -> Result<(), Error> {
        if !self.is_open() {
            return Err(Error::NotReady);
        }
        self.put_message(m)
    }

    /// The next event from the bytes received so far. After an error the connection is of no use.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, now: Utime) -> Result<Option<Event>, Error> {
        loop {
            let step = match self.state {
                State::Greeting => self.greeting()?,
                State::Connect => self.connect()?,
                State::Authorizer(c) => self.authorizer(c, now)?,
                State::Seq => self.seq()?,
                State::Auth => self.auth(now)?,
                State::Open => {
                    let message = self.message()?;
                    return Ok(message.map(Event::Message));
                }
            };
            match step {
                Some(Some(event)) => return Ok(Some(event)),
                Some(None) => {}
                None => return Ok(None),
            }
        }
    }

    /// The first `n` bytes, once they are there; what is heard before the client has proved itself is bounded.
    fn take(&mut self, n: usize) -> Result<Option<Bytes>, Error> {
        let len = self.heard + n;
        if len > TRANSCRIPT_MAX {
            return Err(Error::TooLong {
                what: "handshake",
                len,
                max: TRANSCRIPT_MAX,
            });
        }
        let taken = self.intake.take(n);
        if taken.is_some() {
            self.heard = len;
        }
        Ok(taken.map(BytesMut::freeze))
    }

    fn attempt(&mut self) -> Result<(), Error> {
        self.attempts += 1;
        match self.attempts > ATTEMPTS_MAX {
            true => Err(Error::TooManyAttempts(ATTEMPTS_MAX)),
            false => Ok(()),
        }
    }

    fn is_mon(&self) -> bool {
        self.config.name.kind == EntityKind::Mon as u8
    }

    fn protocol(&self) -> u32 {
        let is = |kind| self.config.name.kind == kind as u8;
        match () {
            () if is(EntityKind::Mon) => PROTOCOL_MON,
            () if is(EntityKind::Osd) => PROTOCOL_OSD,
            () => PROTOCOL_OTHERS,
        }
    }

    /// What a client must know. All that have modern addresses exchange sequence numbers, too; a challenge cannot be asked of one without CEPHX_V2, and nothing be signed without MSG_AUTH.
    fn required(&self) -> u64 {
        let cephx = match self.config.auth.methods().contains(&AuthMethod::Cephx) {
            true => features::CEPHX_V2 | features::MSG_AUTH,
            false => 0,
        };
        self.config.required | features::RECONNECT_SEQ | cephx
    }

    fn greeting(&mut self) -> Result<Option<Option<Event>>, Error> {
        let have = &self.intake.buf;
        let n = have.len().min(BANNER.len());
        if have[..n] != BANNER[..n] {
            return Err(Error::NotV1);
        }
        let Some(b) = self.take(BANNER.len() + LEGACY_LEN)? else {
            return Ok(None);
        };
        let malformed = |e| Error::V1(format!("address of the client: {e}"));
        let claimed = EntityAddr::decode(&mut Reader::new(b.slice(BANNER.len()..))).map_err(malformed)?;
        // As over v2: its ip is its word, since it may know better than we do. One that does not know takes what we see.
        let sock = match claimed.sock.filter(|s| !s.ip().is_unspecified()) {
            Some(sock) => sock,
            None => SocketAddr::new(self.sock.ip(), 0),
        };
        self.client = EntityAddr {
            // So is it named where it is fenced, and where it holds locks, whichever way it comes.
            kind: AddrKind::Any,
            nonce: claimed.nonce,
            sock: Some(sock),
        };
        self.check_modes()?;
        self.state = State::Connect;
        Ok(Some(None))
    }

    /// Where clients have to encrypt, none may come by v1.
    fn check_modes(&self) -> Result<(), Error> {
        let client = EntityKind::Client as u8;
        let allowed = self.config.modes.allowed(client, self.config.auth.modes());
        match allowed.contains(&ConMode::Crc) {
            true => Ok(()),
            false => Err(Error::V1("clients have to encrypt, and v1 cannot".into())),
        }
    }

    fn connect(&mut self) -> Result<Option<Option<Event>>, Error> {
        let Some(b) = self.take(CONNECT_LEN)? else {
            return Ok(None);
        };
        let c = Connect::from_bytes(&b).map_err(|e| Error::V1(format!("connect: {e}")))?;
        let len = c.authorizer_len as usize;
        if len > CONTROL_FRAME_MAX {
            return Err(Error::TooLong {
                what: "authorizer",
                len,
                max: CONTROL_FRAME_MAX,
            });
        }
        self.state = State::Authorizer(c);
        Ok(Some(None))
    }

    fn authorizer(&mut self, c: Connect, now: Utime) -> Result<Option<Option<Event>>, Error> {
        let Some(shown) = self.take(c.authorizer_len as usize)? else {
            return Ok(None);
        };
        self.state = State::Connect;
        self.attempt()?;
        if c.host_type != EntityKind::Client as u32 {
            return Err(Error::V1(format!(
                "v1 is for clients, and not for type {}",
                c.host_type
            )));
        }
        if c.protocol != self.protocol() {
            self.reply(&c, Answer::BadProtocol, &[]);
        } else if self.required() & !c.features != 0 {
            self.reply(&c, Answer::Features, &[]);
        } else if c.connect_seq != 0 {
            // There is no session that it could go on with.
            self.reply(&c, Answer::ResetSession, &[]);
        } else if self.is_mon() {
            self.accept(&c, &[]);
        } else {
            return self.check_authorizer(&c, &shown, now).map(Some);
        }
        Ok(Some(None))
    }

    fn check_authorizer(&mut self, c: &Connect, shown: &Bytes, now: Utime) -> Result<Option<Event>, Error> {
        let config = self.config.clone();
        let cx = context(&config, now);
        let step = match (self.pending.take(), self.method(&[c.method])) {
            (Some((pending, method)), Some(m)) if method == m => {
                config.auth.resume(pending, shown, &cx).map(|step| (step, m))
            }
            (_, None) => Err(not_allowed(&[c.method])),
            (_, Some(m)) => config.auth.start_v1(m, shown, &cx).map(|(_, step)| (step, m)),
        };
        match step {
            Err(AuthError::Close(reason)) => Err(Error::Auth(reason)),
            Err(AuthError::Elsewhere(reason)) => Err(Error::Elsewhere(reason)),
            Err(e) => {
                self.reply(c, Answer::BadAuthorizer, &[]);
                Ok(Some(Event::Denied(e.to_string())))
            }
            Ok((Step::More { payload, pending }, method)) => {
                self.pending = Some((pending, method));
                self.reply(c, Answer::ChallengeAuthorizer, &payload);
                Ok(None)
            }
            Ok((Step::Done(granted), method)) => {
                let Granted {
                    payload,
                    identity,
                    session_key,
                    ..
                } = *granted;
                self.granted = Some((identity, method));
                self.accept(c, &payload);
                self.key = session_key;
                Ok(None)
            }
        }
    }

    /// The first of the client's methods that is known here.
    fn method(&self, wanted: &[u32]) -> Option<AuthMethod> {
        let mut known = wanted.iter().filter_map(|m| AuthMethod::from_u32(*m));
        known.find(|m| self.config.auth.methods().contains(m))
    }

    fn reply(&mut self, c: &Connect, answer: Answer, authorizer: &[u8]) {
        let done = answer == Answer::Seq;
        let reply = Reply {
            answer,
            features: (c.features & self.config.supported) | self.required(),
            global_seq: if done { self.global_seq as u32 } else { 0 },
            connect_seq: if done { c.connect_seq.wrapping_add(1) } else { 0 },
            protocol: self.protocol(),
            authorizer,
            flags: if done { FLAG_LOSSY } else { 0 },
        };
        self.out.put(&reply.encode());
    }

    fn accept(&mut self, c: &Connect, authorizer: &[u8]) {
        self.features = c.features & self.config.supported;
        self.reply(c, Answer::Seq, authorizer);
        // Nothing was received in this session.
        self.out.put(&0u64.to_le_bytes());
        self.state = State::Seq;
    }

    fn seq(&mut self) -> Result<Option<Option<Event>>, Error> {
        if self.take(8)?.is_none() {
            return Ok(None);
        }
        self.attempts = 0;
        match self.granted.take() {
            Some((identity, method)) => Ok(Some(Some(self.open(identity, method)))),
            None => {
                self.state = State::Auth;
                Ok(Some(None))
            }
        }
    }

    fn auth(&mut self, now: Utime) -> Result<Option<Option<Event>>, Error> {
        let Some(m) = self.message()? else {
            return Ok(None);
        };
        if m.kind != MAUTH {
            return Err(Error::V1(format!("message {} before authentication", m.kind)));
        }
        self.attempt()?;
        let request = MAuth::from_bytes(&m.front).map_err(|e| Error::V1(format!("MAuth: {e}")))?;
        self.monmap_epoch = Some(request.monmap_epoch);
        let (method, step) = self.auth_step(&request, now);
        let mut reply = MAuthReply {
            protocol: method,
            result: 0,
            global_id: self.told_id,
            payload: Bytes::new(),
            message: String::new(),
        };
        let event = match step {
            Err(AuthError::Close(reason)) => return Err(Error::Auth(reason)),
            Err(AuthError::Elsewhere(reason)) => return Err(Error::Elsewhere(reason)),
            Err(e) => {
                reply.result = e.errno().code();
                Some(Event::Denied(e.to_string()))
            }
            Ok((Step::More { payload, pending }, method)) => {
                self.pending = Some((pending, method));
                reply.payload = payload;
                None
            }
            Ok((Step::Done(granted), method)) => {
                reply.global_id = granted.identity.global_id;
                reply.payload = granted.payload;
                Some(self.open(granted.identity, method))
            }
        };
        self.put_message(Message {
            kind: MAUTH_REPLY,
            version: 1,
            compat: 1,
            priority: PRIORITY_HIGH,
            tid: m.tid,
            front: reply.to_bytes(),
            ..Message::default()
        })?;
        Ok(Some(event))
    }

    /// One round at a monitor; gives the method's number for the reply, too.
    fn auth_step(&mut self, request: &MAuth, now: Utime) -> (u32, Result<(Step, AuthMethod), AuthError>) {
        let config = self.config.clone();
        let cx = context(&config, now);
        if let Some((pending, method)) = self.pending.take()
            && request.protocol == method as u32
        {
            let step = config.auth.resume(pending, &request.payload, &cx);
            return (request.protocol, step.map(|step| (step, method)));
        }
        let first = match First::from_bytes(&request.payload) {
            Ok(first) if request.protocol == 0 => first,
            Ok(_) => return (request.protocol, Err(not_allowed(&[request.protocol]))),
            Err(e) => return (request.protocol, Err(e.into())),
        };
        let Some(method) = self.method(&first.methods) else {
            return (0, Err(not_allowed(&first.methods)));
        };
        let step = config.auth.start_v1(method, &first.as_v2(), &cx);
        let step = step.map(|(id, step)| {
            self.told_id = id;
            (step, method)
        });
        (method as u32, step)
    }

    fn open(&mut self, identity: Identity, method: AuthMethod) -> Event {
        self.state = State::Open;
        self.intake.open_session();
        Event::Ready(Arc::new(Peer {
            name: EntityName::client(identity.global_id),
            auth_name: identity.name,
            global_id: identity.global_id,
            caps: identity.caps,
            key_epoch: identity.key_epoch,
            addrs: EntityAddrVec::one(self.client),
            sock: self.sock,
            features: self.features,
            method,
            secure: false,
            server_challenge: identity.server_challenge,
            lifeline: false,
            lossless: false,
            monmap_epoch: self.monmap_epoch,
        }))
    }

    fn put_message(&mut self, m: Message) -> Result<(), Error> {
        self.out_seq += 1;
        let head = Header::encode(&m, self.out_seq, self.config.name);
        let mut footer = Footer::of([&m.front, &m.middle, &m.data]);
        if let Some(key) = &self.key {
            footer.sign(key, &Header::decode(&head)?);
        }
        self.out.put(&[Tag::Message as u8]);
        self.out.put(&head);
        for part in [m.front, m.middle, m.data] {
            self.out.put_bytes(part);
        }
        self.out.put(&footer.encode());
        Ok(())
    }

    /// What messages may be: before a client has proved who it is no more than over v2.
    fn limits(&self) -> Limits {
        match self.is_open() {
            true => self.config.limits,
            false => Limits {
                front_max: CONTROL_FRAME_MAX,
                middle_max: 0,
                data_max: 0,
            },
        }
    }

    /// The next message; all else that may be said is dealt with here.
    fn message(&mut self) -> Result<Option<Message>, Error> {
        loop {
            if self.header.is_none() && !self.read_head()? {
                return Ok(None);
            }
            let Some(body) = self.intake.take_body() else {
                return Ok(None);
            };
            let Some(header) = self.header.take() else {
                return Ok(None);
            };
            if let Some(m) = self.parse(header, body.freeze())? {
                return Ok(Some(m));
            }
        }
    }

    /// Up to the head of a message; false if none is there yet.
    fn read_head(&mut self) -> Result<bool, Error> {
        while let Some(first) = self.intake.buf.first().copied() {
            let tag = Tag::from_u8(first).ok_or(Error::UnknownTag(first))?;
            let len = 1 + tag.len();
            let taken = match self.is_open() {
                true => self.intake.take(len).map(BytesMut::freeze),
                false => self.take(len)?,
            };
            let Some(b) = taken else { break };
            match tag {
                Tag::Message => {
                    let header = Header::decode(&b[1..])?;
                    header.check(&self.limits())?;
                    if !self.is_open() {
                        self.heard += header.body_len();
                    }
                    self.intake.begin(header.body_len());
                    self.header = Some(header);
                    return Ok(true);
                }
                Tag::Keepalive2 => {
                    self.out.put(&[Tag::Keepalive2Ack as u8]);
                    self.out.put(&b[1..]);
                }
                Tag::Close => return Err(Error::Closed),
                // A lossy session resends nothing, so acknowledgements mean nothing.
                Tag::Ack | Tag::Keepalive | Tag::Keepalive2Ack => {}
            }
        }
        Ok(false)
    }

    /// None: it is to be passed over.
    fn parse(&mut self, h: Header, body: Bytes) -> Result<Option<Message>, Error> {
        let [front, middle, _] = h.lens.map(|l| l as usize);
        let end = body.len() - FOOTER_LEN;
        let mut footer = [0; FOOTER_LEN];
        footer.copy_from_slice(&body[end..]);
        let footer = Footer::decode(&footer);
        if footer.is_aborted() {
            return Ok(None);
        }
        let parts = [
            body.slice(..front),
            body.slice(front..front + middle),
            body.slice(front + middle..end),
        ];
        if let Some(i) = footer.wrong_part([&parts[0], &parts[1], &parts[2]]) {
            return Err(Error::SegmentCrc(i + 1));
        }
        if let Some(key) = &self.key
            && !footer.is_signed_by(key, &h)
        {
            return Err(Error::MessageSignature);
        }
        // What was seen already is dropped; gaps are legal.
        if h.seq <= self.in_seq {
            return Ok(None);
        }
        self.in_seq = h.seq;
        let [front, middle, data] = parts;
        let message = Message {
            kind: h.kind,
            version: h.version,
            compat: h.compat,
            priority: h.priority,
            tid: h.tid,
            data_off: h.data_off,
            front,
            middle,
            data,
        };
        Ok(Some(message.owned()))
    }
}

fn not_allowed(methods: &[u32]) -> AuthError {
    AuthError::denied(Errno::EOPNOTSUPP, format!("method {methods:?} is not allowed"))
}

/// What a client says to a monitor in its first MAuth.
struct First {
    methods: Vec<u32>,
    name: AuthName,
    global_id: u64,
}

impl Decode for First {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.u8()?;
        Ok(Self {
            methods: r.get()?,
            name: r.get()?,
            global_id: r.u64()?,
        })
    }
}

impl First {
    /// The same as the first payload of an authentication over v2.
    fn as_v2(&self) -> Bytes {
        let mut w = Writer::new();
        w.u8(TO_MONITOR);
        w.put(&self.name);
        w.u64(self.global_id);
        w.finish()
    }
}
