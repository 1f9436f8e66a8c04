//! What a message costs: `echo SIZE COUNT DEPTH crc|secure`. Client and server on two threads of one
//! process over loopback, DEPTH messages with SIZE bytes of data in flight, each answered with an empty
//! one. Prints messages per second and the server thread's CPU time per message.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use auth::*;
use bytes::Bytes;
use msgr::{ClientConfig, ServerConfig};
use net::*;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

fn local<F: Future>(f: F) -> F::Output {
    let rt = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&rt, f)
}

fn thread_cpu_us() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<u64>().unwrap() / 1000
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [size, count, depth] = [0, 1, 2].map(|i| args[i].parse::<usize>().unwrap());
    let mode = if args[3] == "secure" {
        ConMode::Secure
    } else {
        ConMode::Crc
    };
    let entropy = entropy(io::SystemRandom::shared());
    let now = Utime::from_unix(io::SystemClock::shared().wall());
    let cx = Context {
        now,
        entropy: &*entropy,
    };
    let config = KeyServerConfig::default();
    let mut secrets = ServiceSecrets::default();
    secrets.rotate(config.auth_ttl, config.service_ttl, &cx);
    let key = cx.key();
    let name = AuthName::new(EntityKind::Client, "admin");
    let mut db = KeyDb::default();
    db.entities.insert(
        name.clone(),
        EntityAuth::new(key.clone()).with_cap("mon", "allow *"),
    );
    let keys = KeyServer::new(config, db, secrets);
    keys.grant_global_ids(4100, 4200);
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = EntityAddr::msgr2(listener.local_addr().unwrap(), 0);
    let mon = EntityName::new(EntityKind::Mon, 0);
    let config = ServerConfig::new(mon, EntityAddrVec::one(addr), Arc::new(keys), entropy.clone());
    let server = std::thread::spawn(move || {
        local(async move {
            let (tx, mut rx) = mpsc::channel(256);
            let clock = io::SystemClock::shared();
            let conns = serve(listener, Arc::new(config), Options::default(), clock, tx).unwrap();
            let mut start = 0;
            while let Some(e) = rx.recv().await {
                match e {
                    NetEvent::Opened { .. } => start = thread_cpu_us(),
                    NetEvent::Message { conn, msg, permit } => {
                        conns.send(
                            conn,
                            Message {
                                data: Bytes::new(),
                                ..msg
                            },
                        );
                        drop(permit);
                    }
                    NetEvent::Drained => {}
                    NetEvent::Closed { .. } => return thread_cpu_us() - start,
                }
            }
            0
        })
    });
    local(async move {
        let mut config = ClientConfig::new(EntityKind::Mon, addr, 1, entropy);
        config.modes = vec![mode];
        let auth = CephxClient::new(name, key);
        let clock = io::SystemClock::shared();
        let mut c = ClientStream::connect(addr.sock.unwrap(), config, auth, clock)
            .await
            .unwrap();
        let m = Message {
            kind: 42,
            front: vec![1; 250].into(),
            data: vec![2; size].into(),
            ..Message::default()
        };
        let start = Instant::now();
        for i in 0..count + depth {
            if i < count {
                c.send(m.clone()).await.unwrap();
            }
            if i >= depth {
                c.recv().await.unwrap();
            }
        }
        let s = start.elapsed().as_secs_f64();
        println!(
            "{:.0} messages/s, {:.0} MB/s",
            count as f64 / s,
            (count * size) as f64 / s / 1e6
        );
    });
    let cpu = server.join().unwrap();
    println!("server: {:.2} us CPU per message", cpu as f64 / count as f64);
}
