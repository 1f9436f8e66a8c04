//! Proof against stock peers before there is a monitor.
//!
//! `handshake serve PORT none|cephx crc|secure|both`: a monitor that opens sessions and answers nothing;
//! it prints who came and what they said, so that `ceph -m v2:127.0.0.1:PORT ...` shows how far a stock
//! client gets. With cephx the key of client.admin is printed first.
//! `handshake dial MON/NONCE NAME KEY|none crc|secure [OSD/NONCE]...`: sessions to real daemons.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use auth::*;
use msgr::{ClientConfig, ServerConfig};
use net::*;
use std::sync::Arc;
use tokio::sync::mpsc;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

fn modes(text: &str) -> Vec<ConMode> {
    match text {
        "crc" => vec![ConMode::Crc],
        "secure" => vec![ConMode::Secure],
        _ => vec![ConMode::Secure, ConMode::Crc],
    }
}

async fn serve_forever(port: u16, method: &str, mode: &str) {
    let entropy = entropy(io::SystemRandom::shared());
    let clock = io::SystemClock::shared();
    let now = Utime::from_unix(clock.wall());
    let cx = Context {
        now,
        entropy: &*entropy,
    };
    let methods = match method {
        "none" => vec![AuthMethod::None],
        _ => vec![AuthMethod::Cephx],
    };
    let config = KeyServerConfig {
        methods,
        modes: modes(mode),
        ..KeyServerConfig::default()
    };
    let mut secrets = ServiceSecrets::default();
    secrets.rotate(config.auth_ttl, config.service_ttl, &cx);
    let mut db = KeyDb::default();
    let admin = EntityAuth::new(cx.key())
        .with_cap("mon", "allow *")
        .with_cap("osd", "allow *");
    db.entities
        .insert(AuthName::new(EntityKind::Client, "admin"), admin);
    print!("{}", print_keyring(&db));
    let keys = KeyServer::new(config, db, secrets);
    keys.grant_global_ids(4100, 14_100);

    let listener = Listener::bind(([127, 0, 0, 1], port).into()).unwrap();
    let addr = EntityAddr::msgr2(listener.local_addr().unwrap(), 0);
    let name = EntityName::new(EntityKind::Mon, 0);
    let config = ServerConfig::new(name, EntityAddrVec::one(addr), Arc::new(keys), entropy.clone());
    let (tx, mut rx) = mpsc::channel(64);
    let _connections = serve(listener, Arc::new(config), Options::default(), clock, tx).unwrap();
    while let Some(e) = rx.recv().await {
        match e {
            NetEvent::Opened { conn, peer } => println!(
                "{conn} opened: {} {} {:?} secure={} features={:#x} {}",
                peer.name, peer.auth_name, peer.method, peer.secure, peer.features, peer.addrs
            ),
            NetEvent::Message { conn, msg, .. } => {
                println!(
                    "{conn} message type {} version {} front {}",
                    msg.kind,
                    msg.version,
                    msg.front.len()
                );
            }
            NetEvent::Drained => {}
            NetEvent::Closed { conn } => println!("{conn} closed"),
        }
    }
}

async fn dial<A: ClientAuth>(addr: EntityAddr, kind: EntityKind, auth: A, mode: &str) -> A {
    let entropy = entropy(io::SystemRandom::shared());
    let mut config = ClientConfig::new(kind, addr, 4711, entropy);
    config.modes = modes(mode);
    let mut c = ClientStream::connect(addr.sock.unwrap(), config, auth, io::SystemClock::shared())
        .await
        .unwrap();
    let ident = c.ident.clone().unwrap();
    println!(
        "session with {} {kind}.{} features {:#x}",
        ident.addrs, ident.gid, ident.supported
    );
    if kind == EntityKind::Mon {
        let m = msgr::Message {
            kind: 5,
            version: 1,
            priority: 127,
            ..msgr::Message::default()
        };
        c.send(m).await.unwrap();
        c.keepalive().await.unwrap();
        let m = c.recv().await.unwrap();
        println!("answer: type {} with a front of {} bytes", m.kind, m.front.len());
    }
    c.into_auth()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let set = tokio::task::LocalSet::new();
    match args[..] {
        ["serve", port, method, mode] => {
            set.block_on(&rt, serve_forever(port.parse().unwrap(), method, mode));
        }
        ["dial", mon, name, key, mode, ref osds @ ..] => set.block_on(&rt, async {
            let at = |s: &str| {
                let (sock, nonce) = s.split_once('/').unwrap();
                EntityAddr::msgr2(sock.parse().unwrap(), nonce.parse().unwrap())
            };
            let name: AuthName = name.parse().unwrap();
            if key == "none" {
                dial(at(mon), EntityKind::Mon, NoneClient { name, global_id: 0 }, mode).await;
                return;
            }
            let auth = CephxClient::new(name, CryptoKey::from_text(key).unwrap());
            let mut auth = dial(at(mon), EntityKind::Mon, auth, mode).await;
            for osd in osds {
                auth = dial(at(osd), EntityKind::Osd, auth, mode).await;
            }
        }),
        _ => eprintln!(
            "usage: handshake serve PORT none|cephx crc|secure|both\n       handshake dial MON/NONCE NAME KEY|none crc|secure [OSD/NONCE]..."
        ),
    }
}
