//! Connections within one process: messages go through memory, all else is as over sockets.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::{AllowNone, NoneClient};
use io::SystemClock;
use msgr::{ClientConfig, Message};
use net::{
    Accounts, ClientError, ConnId, Connections, DialEvent, DialOptions, Dialled, Lanes, Listener, Meter,
    NetEvent, Options, ServerConfig, dial, serve,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName};

/// Only what hangs is ended by it.
const LONG: Duration = Duration::from_secs(120);
const OUTPUT_MAX: usize = 8 << 20;

struct Server {
    addr: EntityAddr,
    conns: Connections,
    accounts: Accounts,
    events: mpsc::Receiver<NetEvent>,
}

fn server(lanes: &Lanes, known_as: u32) -> Server {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = EntityAddr::msgr2(listener.local_addr().unwrap(), 77);
    let entropy = net::entropy(io::SystemRandom::shared());
    let own = EntityAddrVec::one(addr);
    let config = ServerConfig::new(EntityName::osd(1), own, Arc::new(AllowNone), entropy);
    let known = EntityAddr::msgr2(listener.local_addr().unwrap(), known_as);
    let options = Options {
        lanes: Some((lanes.clone(), known)),
        ..Options::default()
    };
    let accounts = options.accounts.clone();
    let (tx, events) = mpsc::channel(16);
    let conns = serve(listener, Arc::new(config), options, SystemClock::shared(), tx).unwrap();
    Server {
        addr,
        conns,
        accounts,
        events,
    }
}

struct Client {
    dialled: Dialled<NoneClient>,
    meter: Meter,
    events: mpsc::Receiver<((), DialEvent)>,
}

fn client(lanes: &Lanes, to: EntityAddr, kind: EntityKind) -> Client {
    let (tx, events) = mpsc::channel(16);
    let config = ClientConfig {
        kind,
        gid: 3,
        ..ClientConfig::new(EntityKind::Osd, to, 5, net::entropy(io::SystemRandom::shared()))
    };
    let auth = NoneClient {
        name: AuthName::new(kind, "3"),
        global_id: 3,
    };
    let meter = Meter::default();
    let options = DialOptions {
        handshake_timeout: LONG,
        output_max: OUTPUT_MAX,
        lifeline: false,
        keep_alive: None,
        meter: meter.clone(),
        lanes: Some(lanes.clone()),
    };
    let clock = SystemClock::shared();
    let dialled = dial(to.sock.unwrap(), config, auth, options, clock, (), tx);
    Client {
        dialled,
        meter,
        events,
    }
}

impl Server {
    async fn event(&mut self) -> NetEvent {
        timeout(LONG, self.events.recv())
            .await
            .expect("an event")
            .unwrap()
    }

    async fn opened(&mut self) -> ConnId {
        match self.event().await {
            NetEvent::Opened { conn, .. } => conn,
            other => panic!("not opened: {other:?}"),
        }
    }

    async fn message(&mut self) -> Message {
        match self.event().await {
            NetEvent::Message { msg, .. } => msg,
            other => panic!("no message: {other:?}"),
        }
    }
}

impl Client {
    async fn event(&mut self) -> DialEvent {
        timeout(LONG, self.events.recv())
            .await
            .expect("an event")
            .unwrap()
            .1
    }

    async fn ready(&mut self) {
        let event = self.event().await;
        assert!(matches!(event, DialEvent::Ready(_)), "{event:?}");
    }

    async fn message(&mut self) -> Message {
        match self.event().await {
            DialEvent::Message(m) => m,
            other => panic!("no message: {other:?}"),
        }
    }
}

fn message(tid: u64, bytes: usize) -> Message {
    Message {
        kind: 42,
        tid,
        front: vec![1; 30].into(),
        data: vec![tid as u8; bytes].into(),
        ..Message::default()
    }
}

/// Says whether messages went through memory: the socket carries their frames otherwise, which are larger.
async fn exchange(server: &mut Server, client: &mut Client) -> bool {
    client.ready().await;
    let conn = server.opened().await;
    let (sent, received) = (
        client.meter.perf.msgr_send_bytes.get(),
        client.meter.perf.msgr_recv_bytes.get(),
    );
    let mut bytes = 0;
    for tid in 1..=100 {
        let m = message(tid, 4096);
        bytes += m.size() as u64;
        assert!(client.dialled.send(m.clone()));
        if tid % 10 == 0 {
            for before in tid - 9..=tid {
                assert_eq!(server.message().await, message(before, 4096));
                assert!(server.conns.send(conn, message(before, 10)));
            }
            for before in tid - 9..=tid {
                assert_eq!(client.message().await, message(before, 10));
            }
        }
    }
    let perf = &client.meter.perf;
    let (sent, received) = (
        perf.msgr_send_bytes.get() - sent,
        perf.msgr_recv_bytes.get() - received,
    );
    assert!(sent >= bytes && received > 0);
    sent == bytes
}

#[test]
fn osds_of_one_process_talk_through_memory() {
    io::task::block_on(async {
        let lanes = Lanes::default();
        let mut server = server(&lanes, 77);
        let mut client = client(&lanes, server.addr, EntityKind::Osd);
        assert!(exchange(&mut server, &mut client).await);
        // What was said before the end is heard before it, on both sides.
        let conn = ConnId(1);
        server.conns.send(conn, message(7, 10));
        assert_eq!(client.message().await.tid, 7);
        client.dialled.send(message(8, 10));
        drop(client.dialled);
        assert_eq!(server.message().await.tid, 8);
        assert!(matches!(server.event().await, NetEvent::Closed { .. }));
        assert!(!server.conns.send(conn, message(9, 10)));
    })
    .unwrap();
}

#[test]
fn the_end_of_the_server_ends_it() {
    io::task::block_on(async {
        let lanes = Lanes::default();
        let mut server = server(&lanes, 77);
        let mut client = client(&lanes, server.addr, EntityKind::Osd);
        client.ready().await;
        server.opened().await;
        server.conns.shutdown();
        let end = client.event().await;
        assert!(matches!(end, DialEvent::Ended(ClientError::Closed)), "{end:?}");
        assert!(!client.dialled.send(message(1, 10)));
    })
    .unwrap();
}

/// What waits for a peer that is gone is waited for by nobody.
#[test]
fn a_peer_that_ends_and_took_nothing_is_told_of() {
    io::task::block_on(async {
        let lanes = Lanes::default();
        let mut server = server(&lanes, 77);
        let mut client = client(&lanes, server.addr, EntityKind::Osd);
        client.ready().await;
        let conn = server.opened().await;
        for tid in 0..60 {
            assert!(server.conns.send(conn, message(tid, 1 << 20)));
        }
        client.dialled.send(message(7, 10));
        // Its owner takes no more than one; more than a connection's messages are taken beside stays.
        client.message().await;
        assert!(server.conns.queued_bytes(conn) > Options::default().output_pause);
        drop(client);
        assert_eq!(server.message().await.tid, 7);
        assert!(matches!(server.event().await, NetEvent::Closed { .. }));
        assert_eq!(server.accounts.peers.bytes(), 0);
    })
    .unwrap();
}

#[test]
fn all_others_talk_over_their_sockets() {
    io::task::block_on(async {
        let (lanes, others) = (Lanes::default(), Lanes::default());
        for (lanes_of_client, known_as, kind) in [
            // Another process; another OSD that had this address once; no OSD.
            (&others, 77, EntityKind::Osd),
            (&lanes, 78, EntityKind::Osd),
            (&lanes, 77, EntityKind::Client),
        ] {
            let mut server = server(&lanes, known_as);
            let mut client = client(lanes_of_client, server.addr, kind);
            assert!(!exchange(&mut server, &mut client).await, "{known_as} {kind:?}");
        }
    })
    .unwrap();
}

#[test]
fn what_waits_is_charged_and_bounded() {
    io::task::block_on(async {
        let lanes = Lanes::default();
        let mut server = server(&lanes, 77);
        let mut client = client(&lanes, server.addr, EntityKind::Osd);
        client.ready().await;
        let conn = server.opened().await;
        // Nobody takes them before the next wait.
        for tid in 1..=4 {
            assert!(client.dialled.send(message(tid, 1 << 20)));
            assert!(server.conns.send(conn, message(tid, 1 << 20)));
        }
        let waiting = client.dialled.queued_bytes() as u64;
        assert!(waiting > 4 << 20);
        assert_eq!(client.meter.output.bytes(), waiting);
        assert_eq!(server.accounts.peers.bytes(), waiting);
        for tid in 1..=4 {
            assert_eq!(server.message().await.tid, tid);
            assert_eq!(client.message().await.tid, tid);
        }
        // Both hear that it was taken, without another message.
        timeout(LONG, async {
            while client.meter.output.bytes() > 0 || server.accounts.peers.bytes() > 0 {
                io::task::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .expect("nothing is charged any more");
        // More than may wait ends it.
        let kept = (0..9).take_while(|tid| client.dialled.send(message(*tid, 1 << 20)));
        assert_eq!(kept.count(), 7);
        assert!(!client.dialled.send(message(9, 1)));
    })
    .unwrap();
}
