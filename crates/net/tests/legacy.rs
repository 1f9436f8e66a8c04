//! A listener for messenger v1 beside the one for v2: one server, one count of connections, the same events.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::{AllowNone, NoneClient};
use denc::Writer;
use msgr::{ClientConfig, ServerConfig, features};
use net::{ClientStream, Connections, Doors, Msgr1, NetEvent, Options, entropy, serve};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName};

fn admin() -> AuthName {
    AuthName::new(EntityKind::Client, "admin")
}

struct Server {
    addrs: EntityAddrVec,
    connections: Connections,
    events: mpsc::Receiver<NetEvent>,
}

impl Server {
    fn start(options: Options) -> Self {
        let at = "127.0.0.1:0".parse().unwrap();
        let (doors, addrs) = Doors::bind(at, Some(Msgr1::on(0)), 77).unwrap();
        let random = entropy(io::SystemRandom::shared());
        let config = ServerConfig::new(EntityName::osd(3), addrs.clone(), Arc::new(AllowNone), random);
        let (tx, events) = mpsc::channel(64);
        let clock = io::SystemClock::shared();
        let connections = serve(doors, Arc::new(config), options, clock, tx).unwrap();
        Self {
            addrs,
            connections,
            events,
        }
    }

    fn legacy(&self) -> SocketAddr {
        self.addrs.0[1].sock.unwrap()
    }

    async fn event(&mut self) -> NetEvent {
        let event = tokio::time::timeout(Duration::from_secs(60), self.events.recv());
        event.await.unwrap().unwrap()
    }
}

fn local(f: impl Future<Output = ()>) {
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&rt, f)
}

/// Opens a session; gives the connection, and what the server said of itself.
fn open(at: SocketAddr) -> (TcpStream, Vec<u8>) {
    let mut s = TcpStream::connect(at).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut greeting = vec![0; 9 + 136 + 136];
    s.read_exact(&mut greeting).unwrap();
    let mut shown = Writer::new();
    shown.u8(1);
    shown.put(&admin());
    shown.u64(12);
    let mut w = Writer::new();
    w.raw(b"ceph v027");
    let nowhere = "0.0.0.0:0".parse().unwrap();
    w.raw(&EntityAddr::legacy(nowhere, 5).legacy_bytes());
    w.u64(features::SUPPORTED);
    for n in [8, 1, 0, 24, 1, shown.as_slice().len() as u32] {
        w.u32(n);
    }
    w.u8(1);
    w.raw(shown.as_slice());
    w.u64(0);
    s.write_all(w.as_slice()).unwrap();
    let mut reply = [0; 26 + 8];
    s.read_exact(&mut reply).unwrap();
    assert_eq!((reply[0], reply[25]), (13, 1));
    (s, greeting)
}

#[test]
fn clients_of_both_messengers_are_served_together() {
    local(async {
        let mut server = Server::start(Options::default());
        let at = server.legacy();
        let old = tokio::task::spawn_blocking(move || open(at));
        let NetEvent::Opened { conn, peer } = server.event().await else {
            panic!()
        };
        assert_eq!(
            (peer.name, peer.auth_name.clone()),
            (EntityName::client(12), admin())
        );
        let (mut old, greeting) = old.await.unwrap();
        assert_eq!(greeting[9..145], server.addrs.0[1].legacy_bytes());

        let auth = NoneClient {
            name: admin(),
            global_id: 13,
        };
        let config = ClientConfig::new(
            EntityKind::Osd,
            server.addrs.first(),
            5,
            entropy(io::SystemRandom::shared()),
        );
        let clock = io::SystemClock::shared();
        let new = ClientStream::connect(server.addrs.first().sock.unwrap(), config, auth, clock);
        let _new = new.await.unwrap();
        assert!(matches!(server.event().await, NetEvent::Opened { conn: other, .. } if other > conn));
        assert_eq!(server.connections.len(), 2);

        let message = net::Message {
            kind: 43,
            front: vec![7; 3].into(),
            ..Default::default()
        };
        assert!(server.connections.send(conn, message));
        let said = tokio::task::spawn_blocking(move || {
            let mut b = [0; 1 + 53 + 3 + 21];
            old.read_exact(&mut b).unwrap();
            b
        });
        let said = said.await.unwrap();
        assert_eq!((said[0], &said[54..57]), (7, &[7, 7, 7][..]));
        assert!(matches!(server.event().await, NetEvent::Closed { conn: gone } if gone == conn));
    });
}

#[test]
fn a_handshake_over_v1_has_its_time_too() {
    local(async {
        let options = Options {
            handshake_timeout: Duration::from_millis(50),
            ..Options::default()
        };
        let server = Server::start(options);
        let at = server.legacy();
        let silent = tokio::task::spawn_blocking(move || {
            let mut s = TcpStream::connect(at).unwrap();
            s.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut all = Vec::new();
            s.read_to_end(&mut all).map(|_| all.len())
        });
        assert_eq!(silent.await.unwrap().unwrap(), 281);
        drop(server);
    });
}
