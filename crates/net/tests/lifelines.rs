//! Lifelines over real sockets: who keeps them, what their ends look like from the other side.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::{AllowNone, NoneClient};
use io::SystemClock;
use msgr::{ClientConfig, Message};
use net::{
    ClientError, Connections, DialEvent, DialOptions, Dialled, Lifelines, Listener, NetEvent, Options,
    ServerConfig, Session, dial, serve,
};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// Only what hangs is ended by it.
const LONG: Duration = Duration::from_secs(120);

struct Keeper {
    addr: EntityAddr,
    lifelines: Lifelines,
    conns: Connections,
    events: mpsc::Receiver<NetEvent>,
}

fn keeper(keeps: bool) -> Keeper {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = EntityAddr::msgr2(listener.local_addr().unwrap(), 77);
    let lifelines = Lifelines::default();
    let entropy = net::entropy(io::SystemRandom::shared());
    let config = ServerConfig {
        lifelines: keeps,
        ..ServerConfig::new(
            EntityName::osd(1),
            EntityAddrVec::one(addr),
            Arc::new(AllowNone),
            entropy,
        )
    };
    let options = Options {
        lifelines: lifelines.intake(),
        ..Options::default()
    };
    let (tx, events) = mpsc::channel(16);
    let conns = serve(listener, Arc::new(config), options, SystemClock::shared(), tx).unwrap();
    Keeper {
        addr,
        lifelines,
        conns,
        events,
    }
}

struct Watcher {
    dialled: Option<Dialled<NoneClient>>,
    events: mpsc::Receiver<((), DialEvent)>,
}

impl Watcher {
    fn dial(to: EntityAddr, as_osd: i64, lifeline: bool) -> Self {
        Self::dial_by(to.sock.unwrap(), to, as_osd, lifeline)
    }

    fn dial_by(by: SocketAddr, to: EntityAddr, as_osd: i64, lifeline: bool) -> Self {
        let (tx, events) = mpsc::channel(16);
        let config = ClientConfig {
            kind: EntityKind::Osd,
            gid: as_osd,
            ..ClientConfig::new(EntityKind::Osd, to, 5, net::entropy(io::SystemRandom::shared()))
        };
        let auth = NoneClient {
            name: AuthName::new(EntityKind::Osd, as_osd.to_string()),
            global_id: as_osd as u64,
        };
        let options = DialOptions {
            handshake_timeout: LONG,
            output_max: 1 << 16,
            lifeline,
            keep_alive: lifeline.then_some(Duration::from_secs(5)),
            meter: net::Meter::default(),
            lanes: None,
        };
        let dialled = dial(by, config, auth, options, SystemClock::shared(), (), tx);
        let dialled = Some(dialled);
        Self { dialled, events }
    }

    async fn event(&mut self) -> DialEvent {
        timeout(LONG, self.events.recv())
            .await
            .expect("an event")
            .unwrap()
            .1
    }

    async fn ready(&mut self) -> Session {
        match self.event().await {
            DialEvent::Ready(session) => session,
            other => panic!("not ready: {other:?}"),
        }
    }

    async fn end(&mut self) -> ClientError {
        match self.event().await {
            DialEvent::Ended(why) => why,
            other => panic!("not the end: {other:?}"),
        }
    }
}

fn is_reset(why: &ClientError) -> bool {
    matches!(why, ClientError::Io(e) if e.kind() == ErrorKind::ConnectionReset)
}

const KEPT: Session = Session {
    lifelines: true,
    direct: true,
};

#[test]
fn a_lifeline_ends_with_its_keeper_and_with_nothing_else() {
    io::task::block_on(async {
        let mut keeper = keeper(true);
        let mut link = Watcher::dial(keeper.addr, 3, false);
        assert_eq!(link.ready().await, KEPT);
        let mut watcher = Watcher::dial(keeper.addr, 3, true);
        assert_eq!(watcher.ready().await, KEPT);
        assert_eq!(keeper.lifelines.len(), 1);
        // It is no connection of the server's, and nothing can be said on it.
        assert!(matches!(
            keeper.events.recv().await,
            Some(NetEvent::Opened { .. })
        ));
        while keeper.conns.len() > 1 {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(keeper.events.try_recv().is_err());
        assert!(!watcher.dialled.as_ref().unwrap().send(Message::default()));
        // The server goes, its connections end.
        keeper.conns.shutdown();
        assert!(matches!(link.end().await, ClientError::Closed));
        assert!(watcher.events.try_recv().is_err());
        drop(keeper.lifelines);
        assert!(matches!(watcher.end().await, ClientError::Closed));
    })
    .unwrap();
}

#[test]
fn a_newer_lifeline_resets_the_older_one_of_the_same_watcher() {
    io::task::block_on(async {
        let keeper = keeper(true);
        let mut old = Watcher::dial(keeper.addr, 3, true);
        old.ready().await;
        let mut other = Watcher::dial(keeper.addr, 4, true);
        other.ready().await;
        let mut new = Watcher::dial(keeper.addr, 3, true);
        new.ready().await;
        assert!(is_reset(&old.end().await));
        assert_eq!(keeper.lifelines.len(), 2);
        drop(keeper.lifelines);
        assert!(matches!(new.end().await, ClientError::Closed));
        assert!(matches!(other.end().await, ClientError::Closed));
    })
    .unwrap();
}

#[test]
fn who_keeps_none_says_so_and_refuses() {
    io::task::block_on(async {
        let keeper = keeper(false);
        let mut link = Watcher::dial(keeper.addr, 3, false);
        assert!(!link.ready().await.lifelines);
        let mut watcher = Watcher::dial(keeper.addr, 3, true);
        watcher.end().await;
        assert!(keeper.lifelines.is_empty());
    })
    .unwrap();
}

/// A proxy ends the watcher's connection whenever it likes.
#[test]
fn a_connection_through_a_proxy_is_known_for_one() {
    io::task::block_on(async {
        let keeper = keeper(true);
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let by = proxy.local_addr().unwrap();
        let to = keeper.addr.sock.unwrap();
        io::task::spawn_local(async move {
            let (mut near, _) = proxy.accept().await.unwrap();
            let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        let mut watcher = Watcher::dial_by(by, keeper.addr, 3, true);
        let seen = watcher.ready().await;
        assert!(seen.lifelines && !seen.direct);
    })
    .unwrap();
}
