//! A client as the real ones are, against the accepting side, with the connection cut at every byte and at random: every message
//! arrives once, in order, both ways.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::frame::{Limits, Tag};
use crate::link::{Link, decode};
use crate::payload::{AuthRequest, ClientIdent, Hello, ServerIdent};
use crate::{Event, Revision, ServerConfig, ServerConnection, features};
use auth::{AllowNone, ClientAuth, Context, Entropy, NoneClient};
use bytes::Bytes;
use denc::Encode;
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use types::{AuthName, EntityAddr, EntityKind, EntityName, Utime};

const SERVER: &str = "127.0.0.1:6800";

fn entropy() -> Arc<dyn Entropy> {
    Arc::new(|b: &mut [u8]| b.fill(3))
}

fn server_addr() -> EntityAddr {
    EntityAddr::msgr2(SERVER.parse().unwrap(), 9)
}

fn message(n: u64) -> Message {
    Message {
        kind: 24,
        tid: n,
        front: Bytes::from(vec![n as u8; (n % 40) as usize]),
        ..Message::default()
    }
}

/// One TCP connection: what each side has said and the other has not heard.
struct Wire {
    link: Link,
    server: ServerConnection,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    greeted: bool,
    open: bool,
}

/// The client, and the server's owner, with what they heard.
struct World {
    sessions: Rc<RefCell<Sessions>>,
    config: Arc<ServerConfig>,
    conns: u64,
    wire: Option<Wire>,
    name: &'static str,
    global_id: u64,
    cookie: u64,
    server_cookie: u64,
    global_seq: u64,
    connect_seq: u64,
    in_seq: u64,
    out_seq: u64,
    unacked: VecDeque<(u64, Message)>,
    resets: usize,
    /// The session, as the owner was told of it.
    session: Option<u64>,
    client_said: u64,
    server_said: u64,
    server_heard: Vec<u64>,
    client_heard: Vec<u64>,
}

impl World {
    fn new() -> Self {
        let config = ServerConfig::new(
            EntityName::new(EntityKind::Mds, 0),
            EntityAddrVec::one(server_addr()),
            Arc::new(AllowNone),
            entropy(),
        );
        Self {
            sessions: Rc::default(),
            config: Arc::new(config),
            conns: 0,
            wire: None,
            name: "admin",
            global_id: 12,
            cookie: 77,
            server_cookie: 0,
            global_seq: 0,
            connect_seq: 0,
            in_seq: 0,
            out_seq: 0,
            unacked: VecDeque::new(),
            resets: 0,
            session: None,
            client_said: 0,
            server_said: 0,
            server_heard: Vec::new(),
            client_heard: Vec::new(),
        }
    }

    fn connect(&mut self) {
        self.conns += 1;
        self.global_seq += 1;
        if self.server_cookie != 0 {
            self.connect_seq += 1;
        }
        let server =
            ServerConnection::new(self.config.clone(), "127.0.0.1:5000".parse().unwrap(), self.conns);
        self.wire = Some(Wire {
            link: Link::new(features::MSGR2_REVISION_1),
            server: server.lossless(self.sessions.clone()),
            to_server: Vec::new(),
            to_client: Vec::new(),
            greeted: false,
            open: false,
        });
        self.flush();
    }

    fn cut(&mut self) {
        if let Some(wire) = self.wire.take()
            && let Some(id) = wire.server.session()
        {
            self.sessions.borrow_mut().left(id, self.conns);
        }
    }

    fn flush(&mut self) {
        if let Some(w) = &mut self.wire {
            w.to_server.extend_from_slice(&w.link.out.take());
            w.to_client.extend_from_slice(&w.server.output().take());
        }
    }

    fn client_says(&mut self) {
        self.client_said += 1;
        self.out_seq += 1;
        let m = message(self.client_said);
        self.unacked.push_back((self.out_seq, m.clone()));
        if let Some(w) = self.wire.as_mut().filter(|w| w.open) {
            w.link.put_message(m, self.out_seq, self.in_seq).unwrap();
        }
        self.flush();
    }

    fn server_says(&mut self) {
        let Some(id) = self.session else { return };
        self.server_said += 1;
        let m = message(self.server_said);
        let held = self.sessions.borrow().holder(id) == Some(self.conns);
        match &mut self.wire {
            Some(w) if held => w.server.send(m).unwrap(),
            _ => drop(self.sessions.borrow_mut().push(id, &m).unwrap()),
        }
        self.flush();
    }

    /// Moves so many bytes of what the client has said; gives how many there were.
    fn feed_server(&mut self, most: usize) -> usize {
        let Some(w) = &mut self.wire else { return 0 };
        let n = most.min(w.to_server.len());
        let bytes: Vec<u8> = w.to_server.drain(..n).collect();
        w.server.feed(&bytes);
        while let Some(event) = w.server.next(Utime::ZERO).unwrap() {
            match event {
                Event::Ready(_) => self.session = w.server.session(),
                Event::Resumed(_) => assert_eq!(self.session, w.server.session()),
                Event::Message(m) => self.server_heard.push(m.tid),
                Event::Denied(why) => panic!("{why}"),
            }
        }
        self.flush();
        n
    }

    fn feed_client(&mut self, most: usize) -> usize {
        let Some(w) = &mut self.wire else { return 0 };
        let n = most.min(w.to_client.len());
        let bytes: Vec<u8> = w.to_client.drain(..n).collect();
        w.link.feed(&bytes);
        if !w.greeted {
            if !w.link.read_banner().unwrap() {
                return n;
            }
            assert_eq!(w.link.revision(), Revision::V21);
            w.greeted = true;
            let hello = Hello {
                entity_type: EntityKind::Client as u8,
                peer_addr: server_addr(),
            };
            w.link.send_control(Tag::Hello, &hello.to_bytes()).unwrap();
        }
        while let Some(frame) = self
            .wire
            .as_mut()
            .and_then(|w| w.link.reader.next_frame().unwrap())
        {
            self.client_hears(frame.tag, frame.segments);
        }
        self.flush();
        n
    }

    fn client_hears(&mut self, tag: Tag, segments: [Bytes; 4]) {
        let payload = &segments[0];
        let u64_of = || decode::<u64>(tag, payload).unwrap();
        let entropy = entropy();
        let w = self.wire.as_mut().unwrap();
        match tag {
            Tag::Hello => {
                let cx = Context {
                    now: Utime::ZERO,
                    entropy: &*entropy,
                };
                let name = AuthName::new(EntityKind::Client, self.name);
                let global_id = self.global_id;
                let payload = NoneClient { name, global_id }
                    .request(EntityKind::Mds, &cx)
                    .unwrap();
                let request = AuthRequest {
                    method: 1,
                    modes: vec![1],
                    payload,
                };
                w.link
                    .send_control(Tag::AuthRequest, &request.to_bytes())
                    .unwrap();
            }
            Tag::AuthDone => {
                let (ours, _) = w.link.sign(None);
                w.link.send_control(Tag::AuthSignature, &ours).unwrap();
            }
            Tag::AuthSignature if self.server_cookie == 0 => self.say_ident(),
            Tag::AuthSignature => self.say_reconnect(),
            Tag::SessionReset => {
                // As a client does: what it had said is lost, and its messenger begins anew.
                self.resets += 1;
                self.unacked.clear();
                (self.server_cookie, self.connect_seq, self.in_seq, self.out_seq) = (0, 0, 0, 0);
                self.cookie += 1;
                self.say_ident();
            }
            Tag::SessionRetry => {
                self.connect_seq = u64_of() + 1;
                self.say_reconnect();
            }
            Tag::SessionRetryGlobal => {
                self.global_seq = self.global_seq.max(u64_of()) + 1;
                self.say_reconnect();
            }
            Tag::ServerIdent => {
                let ident: ServerIdent = decode(tag, payload).unwrap();
                assert_eq!(ident.flags, 0);
                assert_ne!(ident.cookie, 0);
                self.server_cookie = ident.cookie;
                self.begin(0);
            }
            Tag::SessionReconnectOk => self.begin(u64_of()),
            Tag::Message => {
                let ack = Message::acknowledged(payload);
                let (seq, m) = Message::from_segments(segments.clone());
                assert!(seq > self.in_seq, "a session repeats no number on one connection");
                self.in_seq = seq;
                self.client_heard.push(m.tid);
                self.client_acked(ack);
            }
            Tag::Ack => self.client_acked(u64_of()),
            other => panic!("{other:?}"),
        }
    }

    fn client_acked(&mut self, seq: u64) {
        while self.unacked.pop_front_if(|(n, _)| *n <= seq).is_some() {}
    }

    /// The session is open: what the server does not have is said again.
    fn begin(&mut self, acked: u64) {
        self.client_acked(acked);
        let w = self.wire.as_mut().unwrap();
        w.open = true;
        w.link.open_session(Limits::default());
        for (seq, m) in &self.unacked {
            w.link.put_message(m.clone(), *seq, self.in_seq).unwrap();
        }
    }

    fn addrs(&self) -> EntityAddrVec {
        EntityAddrVec::one(EntityAddr::msgr2("127.0.0.1:0".parse().unwrap(), 5))
    }

    fn say_ident(&mut self) {
        let ident = ClientIdent {
            addrs: self.addrs(),
            target: server_addr(),
            gid: self.global_id as i64,
            global_seq: self.global_seq,
            supported: features::SUPPORTED,
            required: 0,
            flags: 0,
            cookie: self.cookie,
        };
        let w = self.wire.as_mut().unwrap();
        w.link.send_control(Tag::ClientIdent, &ident.to_bytes()).unwrap();
    }

    fn say_reconnect(&mut self) {
        let r = Reconnect {
            addrs: self.addrs(),
            client_cookie: self.cookie,
            server_cookie: self.server_cookie,
            global_seq: self.global_seq,
            connect_seq: self.connect_seq,
            message_seq: self.in_seq,
        };
        let w = self.wire.as_mut().unwrap();
        w.link.send_control(Tag::SessionReconnect, &r.to_bytes()).unwrap();
    }

    /// Until nobody has anything to say.
    fn settle(&mut self) {
        if self.wire.is_none() {
            self.connect();
        }
        while self.feed_server(usize::MAX) + self.feed_client(usize::MAX) > 0 {}
    }

    fn check(&self) {
        assert_eq!(self.server_heard, (1..=self.client_said).collect::<Vec<_>>());
        assert_eq!(self.client_heard, (1..=self.server_said).collect::<Vec<_>>());
        assert_eq!(self.resets, 0);
        assert!(self.unacked.is_empty(), "all was acknowledged");
    }
}

/// Says this and that over connections of which the first is cut after so many bytes; false: it was not cut.
fn cut_after(mut bytes: usize) -> bool {
    let mut w = World::new();
    let mut cut = false;
    w.connect();
    for step in 0..40 {
        if step >= 8 {
            w.client_says();
            w.server_says();
        }
        for turn in [World::feed_server, World::feed_client] {
            let most = if cut { usize::MAX } else { bytes };
            bytes = bytes.saturating_sub(turn(&mut w, most));
            if bytes == 0 && !cut {
                cut = true;
                w.cut();
                w.connect();
            }
        }
    }
    w.settle();
    w.check();
    cut
}

#[test]
fn a_connection_cut_at_any_byte_loses_and_doubles_nothing() {
    let mut bytes = 1;
    while cut_after(bytes) {
        bytes += 1;
    }
    assert!(bytes > 3000, "{bytes}: there was little to be cut");
}

#[derive(Debug, Clone)]
enum Step {
    Client,
    Server,
    ToServer(usize),
    ToClient(usize),
    Cut,
    /// The client connects again; the server has not noticed yet that the connection before is dead.
    Connect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Client),
        3 => Just(Step::Server),
        8 => (1usize..600).prop_map(Step::ToServer),
        8 => (1usize..600).prop_map(Step::ToClient),
        1 => Just(Step::Cut),
        1 => Just(Step::Connect),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn cuts_at_random_lose_and_double_nothing(steps in steps()) {
        let mut w = World::new();
        for step in steps {
            match step {
                Step::Client => w.client_says(),
                Step::Server => w.server_says(),
                Step::ToServer(n) => drop(w.feed_server(n)),
                Step::ToClient(n) => drop(w.feed_client(n)),
                Step::Cut => w.cut(),
                Step::Connect => w.connect(),
            }
        }
        w.settle();
        w.check();
    }
}

fn gone(w: &World) -> Vec<u64> {
    let gone = w.sessions.borrow_mut().take_gone();
    gone.iter().map(|g| g.id).collect()
}

fn with_session() -> World {
    let mut w = World::new();
    w.settle();
    w.client_says();
    w.server_says();
    w.settle();
    w.check();
    w
}

#[test]
fn who_is_another_takes_no_session_over() {
    let mut w = with_session();
    w.global_id = 13;
    w.connect();
    w.settle();
    assert_eq!((w.resets, w.sessions.borrow().len()), (1, 2));
    assert!(w.sessions.borrow_mut().take_displaced().is_empty());
}

#[test]
fn who_has_another_name_takes_no_session_over() {
    let mut w = with_session();
    let before = w.session.unwrap();
    w.name = "other";
    w.cut();
    w.connect();
    w.settle();
    assert_eq!((w.resets, w.sessions.borrow().len()), (1, 1));
    assert_ne!(w.session, Some(before));
    // Nor by what only says who it is.
    let before = w.session.unwrap();
    (w.name, w.server_cookie) = ("admin", 0);
    w.cut();
    w.connect();
    w.settle();
    assert_ne!(w.session, Some(before));
}

#[test]
fn a_cookie_that_is_wrong_takes_no_session_over() {
    for (client, server) in [(1, 0), (0, 1)] {
        let mut w = with_session();
        let before = w.session.unwrap();
        w.cut();
        w.sessions.borrow_mut().push(before, &message(1)).unwrap();
        (w.cookie, w.server_cookie) = (w.cookie + client, w.server_cookie ^ server);
        w.connect();
        w.settle();
        assert_eq!(w.resets, 1);
        assert_ne!(w.session, Some(before));
        assert_eq!(
            w.client_heard.len() as u64,
            w.server_said,
            "nothing of the other's is heard"
        );
    }
}

fn client(global_id: u64, nonce: u32) -> Arc<Peer> {
    let addr = EntityAddr::msgr2("127.0.0.1:0".parse().unwrap(), nonce);
    Arc::new(Peer {
        name: EntityName::client(global_id),
        auth_name: AuthName::new(EntityKind::Client, "admin"),
        global_id,
        caps: auth::PeerCaps::AllowAll,
        key_epoch: None,
        addrs: EntityAddrVec::one(addr),
        sock: "127.0.0.1:5000".parse().unwrap(),
        features: features::SUPPORTED,
        method: auth::AuthMethod::None,
        secure: false,
        server_challenge: None,
        lifeline: false,
        lossless: true,
        monmap_epoch: None,
    })
}

#[test]
fn what_all_leave_together_is_bounded_and_the_largest_goes() {
    let mut sessions = Sessions::default();
    for id in 1..=6 {
        sessions.open(&client(id, 1), 7, 8, 1, id);
    }
    let large = Message {
        data: Bytes::from(vec![0; 1 << 20]),
        ..Message::default()
    };
    let push = |sessions: &mut Sessions, id, n| (0..n).all(|_| sessions.push(id, &large).is_some());
    assert!(push(&mut sessions, 3, 27));
    for id in [1, 2, 4, 5] {
        assert!(push(&mut sessions, id, 25));
    }
    assert!(!sessions.has_gone());
    assert!(
        push(&mut sessions, 6, 3),
        "who says more than there is room for is not the one that goes"
    );
    let gone: Vec<_> = sessions.take_gone().iter().map(|g| (g.id, g.over)).collect();
    assert_eq!(gone, [(3, Some(TOTAL))]);
    assert_eq!(sessions.take_displaced(), [3]);
    assert!(sessions.unacked_bytes() <= TOTAL_BYTES_MAX);
    for id in [1, 2, 4, 5, 6] {
        sessions.acked(id, u64::MAX);
    }
    assert_eq!(sessions.unacked_bytes(), 0);
}

#[test]
fn a_newcomer_takes_the_place_of_nobody_who_is_there() {
    let mut sessions = Sessions::default();
    let open = |sessions: &mut Sessions, global_id, nonce, conn| {
        let opened = sessions.open(&client(global_id, nonce), 7, 8, 1, conn).1;
        let gone: Vec<u64> = sessions.take_gone().iter().map(|g| g.id).collect();
        (matches!(opened, Opened::New), gone)
    };
    let max = SESSIONS_MAX as u64;
    for n in 1..=max {
        assert_eq!(open(&mut sessions, n, 1, n), (true, vec![]));
    }
    assert_eq!(open(&mut sessions, max + 1, 1, max + 1), (false, vec![]));
    assert_eq!(sessions.len(), SESSIONS_MAX);
    // Its own goes, though it is held; what is away stays.
    sessions.left(9, 9);
    assert_eq!(open(&mut sessions, 5, 2, max + 2), (true, vec![5]));
    // The longest away.
    sessions.sweep(10);
    sessions.left(7, 7);
    assert_eq!(open(&mut sessions, max + 3, 1, max + 3), (true, vec![9]));
    assert_eq!(open(&mut sessions, max + 4, 1, max + 4), (true, vec![7]));
    assert_eq!(open(&mut sessions, max + 5, 1, max + 5), (false, vec![]));
}

#[test]
fn a_client_that_begins_anew_ends_its_session_of_before() {
    let mut w = with_session();
    let before = w.session.unwrap();
    w.cookie = 78;
    w.server_cookie = 0;
    w.connect();
    w.settle();
    assert_ne!(w.session, Some(before));
    assert_eq!(gone(&w), [before]);
    assert_eq!(w.sessions.borrow_mut().take_displaced(), [1]);
}

#[test]
fn a_session_that_was_ended_is_reset() {
    let mut w = with_session();
    w.cut();
    let id = w.session.unwrap();
    w.sessions.borrow_mut().end(id);
    w.settle();
    assert_eq!(w.resets, 1);
    assert!(!w.sessions.borrow().contains(id));
    assert_eq!(w.sessions.borrow().len(), 1);
}

#[test]
fn older_numbers_of_connections_are_raised() {
    let mut w = with_session();
    for _ in 0..3 {
        w.cut();
        w.connect();
        w.settle();
    }
    // A client that lost count, of either kind.
    for (global_seq, connect_seq) in [(0, 9), (9, 0)] {
        w.cut();
        (w.global_seq, w.connect_seq) = (global_seq, connect_seq);
        w.client_says();
        w.server_says();
        w.connect();
        w.settle();
        w.check();
    }
}

#[test]
fn a_stale_connection_is_closed() {
    let mut w = with_session();
    (w.server_cookie, w.global_seq) = (0, 0);
    w.sessions.borrow_mut().hold(1, 1, 5);
    w.connect();
    w.feed_client(usize::MAX);
    let mut wire = w.wire.take().unwrap();
    let mut refused = None;
    for _ in 0..8 {
        wire.server.feed(&std::mem::take(&mut wire.to_server));
        match wire.server.next(Utime::ZERO) {
            Ok(_) => {}
            Err(e) => refused = Some(e),
        }
        wire.to_client.extend_from_slice(&wire.server.output().take());
        w.wire = Some(wire);
        w.feed_client(usize::MAX);
        wire = w.wire.take().unwrap();
    }
    assert_eq!(refused, Some(Error::Displaced));
}

#[test]
fn what_a_client_leaves_is_bounded() {
    let mut w = with_session();
    w.cut();
    let id = w.session.unwrap();
    let large = Message {
        data: Bytes::from(vec![0; 1 << 20]),
        ..Message::default()
    };
    let kept = (0..40)
        .take_while(|_| w.sessions.borrow_mut().push(id, &large).is_some())
        .count();
    assert_eq!(kept, 31);
    let sessions = w.sessions.borrow_mut();
    assert_eq!((sessions.unacked_bytes(), sessions.len()), (0, 0));
    drop(sessions);
    assert_eq!(gone(&w), [id]);
}

#[test]
fn a_session_that_nobody_holds_ends_after_a_while() {
    let mut w = with_session();
    let id = w.session.unwrap();
    let sweep = |w: &World| {
        w.sessions.borrow_mut().sweep(2);
        w.sessions.borrow().contains(id)
    };
    assert!(sweep(&w) && sweep(&w) && sweep(&w));
    w.cut();
    assert!(sweep(&w) && sweep(&w) && !sweep(&w));
}
