//! Our client against our server over loopback: every method, mode and revision; budgets and bounds; and
//! peers that misbehave.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::*;
use denc::{Bytes, Encode};
use msgr::{ClientConfig, Message, ServerConfig};
use net::*;
use std::cell::RefCell;
use std::future::Future;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

fn local<F: Future>(f: F) -> F::Output {
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&rt, async {
        // Only what hangs is ended by it.
        tokio::time::timeout(Duration::from_secs(300), f)
            .await
            .expect("test ends in time")
    })
}

fn random() -> Arc<dyn Entropy> {
    entropy(io::SystemRandom::shared())
}

fn admin() -> AuthName {
    AuthName::new(EntityKind::Client, "admin")
}

fn key() -> CryptoKey {
    CryptoKey::new([9; 16], Utime::ZERO)
}

fn key_server(methods: Vec<AuthMethod>) -> Arc<KeyServer> {
    let config = KeyServerConfig {
        methods,
        ..KeyServerConfig::default()
    };
    let entropy = random();
    let now = Utime::from_unix(io::SystemClock::shared().wall());
    let mut secrets = ServiceSecrets::default();
    secrets.rotate(
        config.auth_ttl,
        config.service_ttl,
        &Context {
            now,
            entropy: &*entropy,
        },
    );
    let mut db = KeyDb::default();
    let entity = EntityAuth::new(key())
        .with_cap("mon", "allow *")
        .with_cap("osd", "allow *");
    db.entities.insert(admin(), entity);
    let server = KeyServer::new(config, db, secrets);
    server.grant_global_ids(4100, 5000);
    Arc::new(server)
}

/// A server and what it was told.
struct Server {
    addr: EntityAddr,
    kind: EntityKind,
    connections: Connections,
    events: mpsc::Receiver<NetEvent>,
}

impl Server {
    fn start(kind: EntityKind, auth: Arc<dyn Authenticator>, options: Options, msgr2: u64) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = EntityAddr::msgr2(listener.local_addr().unwrap(), 77);
        let name = EntityName::new(kind, 0);
        let mut config = ServerConfig::new(name, EntityAddrVec::one(addr), auth, random());
        config.msgr2_features = msgr2;
        let (tx, events) = mpsc::channel(64);
        let clock = io::SystemClock::shared();
        let connections = serve(listener, Arc::new(config), options, clock, tx).unwrap();
        Self {
            addr,
            kind,
            connections,
            events,
        }
    }

    fn none(options: Options) -> Self {
        Self::start(EntityKind::Osd, Arc::new(AllowNone), options, 1)
    }

    fn sock(&self) -> SocketAddr {
        self.addr.sock.unwrap()
    }

    async fn client<A: ClientAuth>(
        &self,
        auth: A,
        modes: &[ConMode],
    ) -> Result<ClientStream<A>, ClientError> {
        let mut config = ClientConfig::new(self.kind, self.addr, 5, random());
        config.modes = modes.to_vec();
        ClientStream::connect(self.sock(), config, auth, io::SystemClock::shared()).await
    }

    async fn none_client(&self) -> ClientStream<NoneClient> {
        let auth = NoneClient {
            name: admin(),
            global_id: 12,
        };
        self.client(auth, &[ConMode::Crc]).await.unwrap()
    }

    /// Answers every message with its own content until all connections are gone.
    fn echo(mut self) -> Rc<RefCell<Vec<String>>> {
        let log = Rc::new(RefCell::new(Vec::new()));
        let told = log.clone();
        tokio::task::spawn_local(async move {
            while let Some(e) = self.events.recv().await {
                match e {
                    NetEvent::Opened { peer, .. } => {
                        told.borrow_mut()
                            .push(format!("{} {} secure={}", peer.name, peer.auth_name, peer.secure));
                    }
                    NetEvent::Message { conn, msg, permit } => {
                        assert!(self.connections.send(
                            conn,
                            Message {
                                kind: msg.kind + 1,
                                ..msg
                            }
                        ));
                        drop(permit);
                    }
                    NetEvent::Closed { .. } => told.borrow_mut().push("closed".into()),
                    NetEvent::Drained => {}
                }
            }
        });
        log
    }
}

fn message(tid: u64, data: usize) -> Message {
    Message {
        kind: 42,
        version: 8,
        compat: 3,
        tid,
        front: Bytes::from_static(b"front"),
        data: Bytes::from(
            (0..data)
                .map(|i| (i * 7 + tid as usize) as u8)
                .collect::<Vec<_>>(),
        ),
        ..Message::default()
    }
}

async fn exchange<A: ClientAuth>(c: &mut ClientStream<A>) {
    for (tid, size) in [
        (1, 0),
        (2, 1),
        (3, 4096),
        (4, 16 << 10),
        (5, 100_000),
        (6, 5 << 20),
    ] {
        let m = message(tid, size);
        c.send(m.clone()).await.unwrap();
        c.keepalive().await.unwrap();
        let got = c.recv().await.unwrap();
        assert_eq!(got, Message { kind: 43, ..m });
    }
}

#[test]
fn method_none_in_both_revisions() {
    local(async {
        for revision in [0, 1] {
            let s = Server::start(EntityKind::Osd, Arc::new(AllowNone), Options::default(), revision);
            let mut c = s.none_client().await;
            let log = s.echo();
            exchange(&mut c).await;
            drop(c);
            while log.borrow().len() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(*log.borrow(), ["client.12 client.admin secure=false", "closed"]);
        }
    });
}

#[test]
fn cephx_at_the_monitor_and_then_at_an_osd() {
    local(async {
        for revision in [0, 1] {
            for modes in [
                vec![ConMode::Crc],
                vec![ConMode::Secure],
                vec![ConMode::Secure, ConMode::Crc],
            ] {
                let keys = key_server(vec![AuthMethod::Cephx]);
                let mon = Server::start(EntityKind::Mon, keys.clone(), Options::default(), revision);
                let mut c = mon
                    .client(CephxClient::new(admin(), key()), &modes)
                    .await
                    .unwrap();
                let log = mon.echo();
                exchange(&mut c).await;
                let secure = modes[0] == ConMode::Secure;
                assert_eq!(
                    *log.borrow(),
                    [format!("client.4100 client.admin secure={secure}")]
                );

                let secrets = keys.secrets_for(EntityKind::Osd).unwrap();
                let both = vec![ConMode::Crc, ConMode::Secure];
                let verifier = Arc::new(TicketVerifier::new(EntityKind::Osd, both, secrets));
                let osd = Server::start(EntityKind::Osd, verifier, Options::default(), revision);
                let mut c = osd.client(c.into_auth(), &modes).await.unwrap();
                let log = osd.echo();
                exchange(&mut c).await;
                assert_eq!(
                    *log.borrow(),
                    [format!("client.4100 client.admin secure={secure}")]
                );
            }
        }
    });
}

#[test]
fn renewal_travels_as_messages() {
    local(async {
        let keys = key_server(vec![AuthMethod::Cephx]);
        let mut mon = Server::start(EntityKind::Mon, keys.clone(), Options::default(), 1);
        let mut c = mon
            .client(CephxClient::new(admin(), key()), &[ConMode::Crc])
            .await
            .unwrap();
        let NetEvent::Opened { conn, peer } = mon.events.recv().await.unwrap() else {
            panic!()
        };
        let front = MAuth {
            protocol: 2,
            payload: Bytes::from_static(&[0, 9]),
            monmap_epoch: 0,
        }
        .to_bytes();
        c.send(Message {
            kind: MAUTH,
            version: 1,
            front,
            tid: 3,
            ..Message::default()
        })
        .await
        .unwrap();
        let NetEvent::Message { msg, .. } = mon.events.recv().await.unwrap() else {
            panic!()
        };
        let entropy = random();
        let cx = Context {
            now: Utime::ZERO,
            entropy: &*entropy,
        };
        let (reply, error) = msgr::answer_mauth(&keys, &peer, &msg, &cx);
        assert!(error.is_some(), "an unknown request is logged");
        mon.connections.send(conn, reply);
        let got = c.recv().await.unwrap();
        assert_eq!((got.kind, got.tid, got.priority), (MAUTH_REPLY, 3, 196));
    });
}

#[test]
fn wrong_credentials_are_told_and_never_open() {
    local(async {
        let keys = key_server(vec![AuthMethod::Cephx]);
        let mut s = Server::start(EntityKind::Mon, keys, Options::default(), 1);
        let wrong = CephxClient::new(admin(), CryptoKey::new([1; 16], Utime::ZERO));
        let e = s.client(wrong, &[ConMode::Crc]).await.err().unwrap();
        assert_eq!(
            e.to_string(),
            "authentication: server refused method 2: Permission denied"
        );
        let none = NoneClient {
            name: admin(),
            global_id: 0,
        };
        let e = s.client(none, &[ConMode::Crc]).await.err().unwrap();
        assert_eq!(
            e.to_string(),
            "authentication: server refused method 1: Operation not supported"
        );
        assert!(s.events.try_recv().is_err());
    });
}

#[test]
fn messages_in_flight_are_bounded() {
    local(async {
        let options = Options {
            messages_max: 10,
            message_bytes_max: 1 << 20,
            ..Options::default()
        };
        let mut s = Server::none(options);
        let mut c = s.none_client().await;
        assert!(matches!(s.events.recv().await, Some(NetEvent::Opened { .. })));
        for tid in 0..12 {
            c.send(message(tid, 10)).await.unwrap();
        }
        let mut held = Vec::new();
        let quiet = Duration::from_millis(200);
        while held.len() < 10 {
            held.push(s.events.recv().await.unwrap());
        }
        assert!(tokio::time::timeout(quiet, s.events.recv()).await.is_err());
        held.truncate(8);
        for _ in 0..2 {
            held.push(s.events.recv().await.unwrap());
        }
        assert!(tokio::time::timeout(quiet, s.events.recv()).await.is_err());
        held.clear();
        // By bytes: the second of two large ones waits for the first.
        let sender = tokio::task::spawn_local(async move {
            for tid in 0..2 {
                c.send(message(tid, 700 << 10)).await.unwrap();
            }
            c
        });
        let first = s.events.recv().await.unwrap();
        assert!(tokio::time::timeout(quiet, s.events.recv()).await.is_err());
        drop(first);
        assert!(matches!(s.events.recv().await, Some(NetEvent::Message { .. })));
        drop(sender.await.unwrap());
    });
}

#[test]
fn a_peer_that_does_not_read_is_cut() {
    local(async {
        let options = Options {
            output_max: 8 << 20,
            ..Options::default()
        };
        let mut s = Server::none(options);
        let c = s.none_client().await;
        let Some(NetEvent::Opened { conn, .. }) = s.events.recv().await else {
            panic!()
        };
        let big = message(1, 1 << 20);
        let mut sent = 0;
        while s.connections.send(conn, big.clone()) {
            sent += 1;
            assert!(sent < 100, "the queue is bounded");
            tokio::task::yield_now().await;
        }
        assert!(matches!(s.events.recv().await, Some(NetEvent::Closed { .. })));
        tokio::task::yield_now().await;
        assert!(s.connections.is_empty());
        drop(c);
    });
}

/// Whoever read a whole object was cut off, if anything else waited beside it.
#[test]
fn an_answer_as_large_as_the_bound_leaves_beside_others() {
    local(async {
        let options = Options {
            output_max: 8 << 20,
            ..Options::default()
        };
        let mut s = Server::none(options);
        let mut c = s.none_client().await;
        let Some(NetEvent::Opened { conn, .. }) = s.events.recv().await else {
            panic!()
        };
        for size in [100, 8 << 20] {
            assert!(s.connections.send(conn, message(1, size)));
        }
        for size in [100, 8 << 20] {
            assert_eq!(c.recv().await.unwrap().data.len(), size);
        }
    });
}

#[test]
fn reading_pauses_while_output_waits() {
    local(async {
        let options = Options {
            output_pause: 1 << 20,
            ..Options::default()
        };
        let mut s = Server::none(options);
        let mut c = s.none_client().await;
        let Some(NetEvent::Opened { conn, .. }) = s.events.recv().await else {
            panic!()
        };
        for _ in 0..16 {
            assert!(s.connections.send(conn, message(1, 1 << 20)));
        }
        c.send(message(7, 0)).await.unwrap();
        let quiet = Duration::from_millis(200);
        assert!(tokio::time::timeout(quiet, s.events.recv()).await.is_err());
        let reader = tokio::task::spawn_local(async move {
            for _ in 0..16 {
                assert_eq!(c.recv().await.unwrap().data.len(), 1 << 20);
            }
            c
        });
        assert!(matches!(s.events.recv().await, Some(NetEvent::Message { .. })));
        drop(reader.await.unwrap());
    });
}

#[test]
fn silence_and_noise_before_authentication() {
    local(async {
        let options = Options {
            handshake_timeout: Duration::from_millis(100),
            ..Options::default()
        };
        let mut s = Server::none(options);
        let addr = s.sock();
        let raw = move |bytes: &'static [u8]| {
            tokio::task::spawn_blocking(move || {
                let mut t = std::net::TcpStream::connect(addr).unwrap();
                t.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                t.write_all(bytes).unwrap();
                let mut got = Vec::new();
                // A reset counts as closed too.
                let _ = t.read_to_end(&mut got);
                got
            })
        };
        assert_eq!(raw(b"").await.unwrap().len(), 26, "a banner and then nothing");
        assert_eq!(raw(b"ceph v027").await.unwrap().len(), 26);
        assert_eq!(raw(b"GET / HTTP/1.1\r\n\r\n").await.unwrap().len(), 26);
        while !s.connections.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(s.events.try_recv().is_err(), "none of them opened");
        // Others get in as before; on a busy machine not within the first of those 100 ms.
        let none = || NoneClient {
            name: admin(),
            global_id: 12,
        };
        while s.client(none(), &[ConMode::Crc]).await.is_err() {}
        assert!(matches!(s.events.recv().await, Some(NetEvent::Opened { .. })));
    });
}

/// Silent connections closed the port, to clients and to other OSDs.
#[test]
fn silent_connections_keep_nobody_out() {
    local(async {
        let options = Options {
            handshake_timeout: Duration::from_secs(600),
            connections_max: 64,
            ..Options::default()
        };
        let mut s = Server::none(options);
        let (mut silent, addr) = (Vec::new(), s.sock());
        for _ in 0..100 {
            silent.push(tokio::net::TcpStream::connect(addr).await.unwrap());
        }
        let mut c = s.none_client().await;
        assert!(matches!(s.events.recv().await, Some(NetEvent::Opened { .. })));
        assert!(s.connections.len() <= 64);
        exchange_with(&mut s, &mut c).await;
        drop(silent);
    });
}

/// One key held all the places for as long as it liked.
#[test]
fn one_key_does_not_take_all_places_and_daemons_have_their_own() {
    local(async {
        let options = Options {
            connections_max: 64,
            ..Options::default()
        };
        let s = Server::none(options);
        let of = |kind, id: &str| NoneClient {
            name: AuthName::new(kind, id),
            global_id: 12,
        };
        let (mut held, mut refused) = (Vec::new(), 0);
        let (sock, addr, kind) = (s.sock(), s.addr, s.kind);
        let log = s.echo();
        for _ in 0..64 {
            let config = ClientConfig::new(kind, addr, 5, random());
            let auth = of(EntityKind::Client, "reader");
            match ClientStream::connect(sock, config, auth, io::SystemClock::shared()).await {
                Ok(c) => held.push(c),
                Err(_) => refused += 1,
            }
        }
        assert!(refused >= 64 - 48, "{refused} were refused");
        for (what, id) in [(EntityKind::Client, "admin"), (EntityKind::Osd, "3")] {
            let mut config = ClientConfig::new(kind, addr, 5, random());
            config.kind = what;
            let mut c = ClientStream::connect(sock, config, of(what, id), io::SystemClock::shared())
                .await
                .unwrap();
            exchange(&mut c).await;
        }
        assert!(!log.borrow().is_empty());
    });
}

/// The options that demand encryption were read by nobody.
#[test]
fn a_listener_offers_only_its_modes_and_daemons_have_others() {
    local(async {
        let keys = key_server(vec![AuthMethod::Cephx]);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = EntityAddr::msgr2(listener.local_addr().unwrap(), 77);
        let name = EntityName::new(EntityKind::Mon, 0);
        let switch = msgr::ModeSwitch::new(msgr::Modes::default());
        let mut config = ServerConfig::new(name, EntityAddrVec::one(addr), keys, random());
        config.modes = switch.clone();
        let (tx, events) = mpsc::channel(64);
        let clock = io::SystemClock::shared();
        let connections = serve(listener, Arc::new(config), Options::default(), clock, tx).unwrap();
        let s = Server {
            addr,
            kind: EntityKind::Mon,
            connections,
            events,
        };
        let try_with = |modes: Vec<ConMode>| {
            let s = &s;
            async move {
                s.client(CephxClient::new(admin(), key()), &modes)
                    .await
                    .map(|_| ())
            }
        };
        try_with(vec![ConMode::Crc]).await.unwrap();
        switch.set(msgr::Modes {
            clients: vec![ConMode::Secure],
            daemons: vec![ConMode::Crc],
        });
        let e = try_with(vec![ConMode::Crc]).await.unwrap_err();
        assert!(
            e.to_string()
                .contains("refused method 2: Operation not supported"),
            "{e}"
        );
        try_with(vec![ConMode::Crc, ConMode::Secure]).await.unwrap();
        // Whoever says to be a daemon, to get crc, has to prove it.
        let mut config = ClientConfig::new(s.kind, s.addr, 5, random());
        (config.kind, config.modes) = (EntityKind::Osd, vec![ConMode::Crc]);
        let auth = CephxClient::new(admin(), key());
        let lie = ClientStream::connect(s.sock(), config, auth, io::SystemClock::shared()).await;
        assert!(lie.is_err());
    });
}

async fn exchange_with<A: ClientAuth>(s: &mut Server, c: &mut ClientStream<A>) {
    let m = message(9, 3 << 20);
    let (sent, event) = tokio::join!(c.send(m.clone()), s.events.recv());
    sent.unwrap();
    let Some(NetEvent::Message { msg, .. }) = event else {
        panic!("{event:?}")
    };
    assert_eq!(msg, m);
}

/// A session by hand, so that a message can be left unfinished.
async fn raw_session(s: &Server) -> (tokio::net::TcpStream, msgr::ClientConnection<NoneClient>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let auth = NoneClient {
        name: AuthName::new(EntityKind::Client, "reader"),
        global_id: 13,
    };
    let mut proto = msgr::ClientConnection::new(ClientConfig::new(s.kind, s.addr, 6, random()), auth);
    let mut stream = tokio::net::TcpStream::connect(s.sock()).await.unwrap();
    let mut buf = [0; 4096];
    loop {
        let ready = proto.next(Utime::ZERO).unwrap();
        let out = proto.output().take();
        stream.write_all(&out).await.unwrap();
        if ready.is_some() {
            return (stream, proto);
        }
        let n = stream.read(&mut buf).await.unwrap();
        proto.feed(&buf[..n]);
    }
}

/// Each connection could have a message of 132 MiB received up to its last byte, and nobody counted that.
#[test]
fn unfinished_messages_have_one_bound_and_stalled_ones_give_way() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    const BOUND: usize = 16 << 20;
    const ONE: usize = 32 << 20;
    local(async {
        let options = Options {
            accounts: net::Accounts::alone(BOUND),
            stall: Duration::from_millis(300),
            ..Options::default()
        };
        let mut s = Server::none(options);
        // All are there before the first begins: with memory that others wait for it is ended soon.
        let mut sessions = Vec::new();
        for _ in 0..8 {
            sessions.push(raw_session(&s).await);
            assert!(matches!(s.events.recv().await, Some(NetEvent::Opened { .. })));
        }
        let mut attackers = Vec::new();
        for (mut stream, mut proto) in sessions {
            proto.send(message(1, ONE)).unwrap();
            let bytes = proto.output().take();
            attackers.push(tokio::task::spawn_local(async move {
                // All but the last byte; then it waits for its end.
                let sent = stream.write_all(&bytes[..bytes.len() - 1]).await;
                sent.is_err() || stream.read_u8().await.is_err()
            }));
        }
        let conns = s.connections.clone();
        while conns.message_bytes() < ONE {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut good = s.none_client().await;
        let log = s.echo();
        let most = Rc::new(RefCell::new(0));
        let (seen, watched) = (most.clone(), conns.clone());
        let watch = tokio::task::spawn_local(async move {
            loop {
                let now = watched.message_bytes();
                seen.replace_with(|most| now.max(*most));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        exchange(&mut good).await;
        watch.abort();
        assert!(
            *most.borrow() <= BOUND + ONE + (1 << 20),
            "{} bytes",
            most.borrow()
        );
        // They wait for each other's memory: the stalled ones go, and the last has it all.
        while attackers.iter().filter(|a| a.is_finished()).count() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for a in attackers.into_iter().filter(|a| a.is_finished()) {
            assert!(a.await.unwrap());
        }
        drop(log);
    });
}

#[test]
fn shutdown_closes_everything() {
    local(async {
        let mut s = Server::none(Options::default());
        let mut c = s.none_client().await;
        let Some(NetEvent::Opened { conn, .. }) = s.events.recv().await else {
            panic!()
        };
        assert_eq!(s.connections.peer(conn).unwrap().global_id, 12);
        s.connections.shutdown();
        assert!(matches!(s.events.recv().await, Some(NetEvent::Closed { .. })));
        assert!(matches!(
            c.recv().await,
            Err(ClientError::Closed | ClientError::Io(_))
        ));
        assert!(!s.connections.send(conn, message(1, 0)));
        tokio::task::yield_now().await;
        assert!(
            s.client(
                NoneClient {
                    name: admin(),
                    global_id: 1
                },
                &[ConMode::Crc]
            )
            .await
            .is_err()
        );
    });
}
