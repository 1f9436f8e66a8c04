//! Accepting connections and sweeping out idle ones.

use crate::budget::Budget;
use crate::connection::{Connection, SILENT};
use crate::connections::{ConnId, Connections, LOOK, NetEvent, Options};
use crate::outputs::Output;
use auth::Entropy;
use io::socket::{Acceptor, Listener, Stream};
use msgr::{Accepted, ServerConfig, ServerConnection, v1};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often idle connections are looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// Pause after accept failed (no file descriptors left, say).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The system's randomness as the protocol crates take it.
pub fn entropy(random: Arc<dyn io::Random>) -> Arc<dyn Entropy> {
    Arc::new(move |buf: &mut [u8]| random.fill(buf))
}

/// Serves `listener` with tasks on the calling thread (it must be inside a `LocalSet`), until
/// [`Connections::shutdown`]. Events arrive in order per connection; when the channel is full, reading
/// stops.
pub fn serve(
    listener: Listener,
    config: Arc<ServerConfig>,
    options: Options,
    clock: Arc<dyn io::Clock>,
    events: mpsc::Sender<NetEvent>,
) -> std::io::Result<Connections> {
    serve_both(listener, None, config, options, clock, events)
}

/// As [`serve`]; `legacy` is where clients come by messenger v1, at the v1 address of the `config`. Both have their
/// connections, and all bounds, together.
pub fn serve_both(
    listener: Listener,
    legacy: Option<Listener>,
    config: Arc<ServerConfig>,
    options: Options,
    clock: Arc<dyn io::Clock>,
    events: mpsc::Sender<NetEvent>,
) -> std::io::Result<Connections> {
    let acceptor = listener.start()?;
    let legacy = legacy.map(Listener::start).transpose()?;
    let connections = Connections::new(options);
    let server = Server {
        config,
        clock,
        events,
        connections: connections.clone(),
    };
    tokio::task::spawn_local(server.run(acceptor, legacy));
    Ok(connections)
}

/// Where there is no such listener: never.
async fn accept(acceptor: &Option<Acceptor>) -> std::io::Result<(Stream, SocketAddr)> {
    match acceptor {
        Some(acceptor) => acceptor.accept().await,
        None => std::future::pending().await,
    }
}

struct Server {
    config: Arc<ServerConfig>,
    clock: Arc<dyn io::Clock>,
    events: mpsc::Sender<NetEvent>,
    connections: Connections,
}

impl Server {
    async fn run(self, acceptor: Acceptor, legacy: Option<Acceptor>) {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.connections.shared.stopped.get() {
            tokio::select! {
                biased;
                () = self.connections.shared.stop.notified() => {}
                _ = sweep.tick() => self.sweep(),
                _ = look.tick() => self.connections.shared.look(self.clock.monotonic()),
                accepted = acceptor.accept() => self.accepted(accepted, false).await,
                accepted = accept(&legacy) => self.accepted(accepted, true).await,
            }
        }
    }

    async fn accepted(&self, accepted: std::io::Result<(Stream, SocketAddr)>, legacy: bool) {
        match accepted {
            Ok((stream, peer)) => self.open(stream, peer, legacy),
            Err(e) => {
                tracing::warn!("accept failed: {e}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }

    fn open(&self, stream: Stream, peer: SocketAddr, legacy: bool) {
        let shared = &self.connections.shared;
        let options = &shared.options;
        let id = ConnId(shared.next_id.replace(shared.next_id.get() + 1));
        let gone = shared.places.borrow_mut().arrived(id, peer.ip());
        if let Some(gone) = gone {
            shared.cut(gone, SILENT);
        }
        let budget = Budget::new(
            id.0,
            options.messages_max,
            options.message_bytes_max,
            shared.total.clone(),
        );
        let config = self.config.clone();
        let proto = match legacy {
            true => Accepted::V1(Box::new(v1::ServerConnection::new(config, peer, id.0))),
            false => Accepted::V2(Box::new(ServerConnection::new(config, peer, id.0))),
        };
        let output = Output::new(shared.outputs.clone());
        let conn = Connection::new(id, peer, proto, budget, output, shared.guesses.clone());
        shared.conns.borrow_mut().insert(id, conn.clone());
        options.accounts.opened();
        let (shared, clock, events) = (shared.clone(), self.clock.clone(), self.events.clone());
        tokio::task::spawn_local(async move {
            let hesitation = shared.hesitation.get();
            if !hesitation.is_zero() {
                tokio::time::sleep(hesitation).await;
            }
            conn.run(stream, shared.clone(), clock, events).await;
            shared.conns.borrow_mut().remove(&id);
            shared.options.accounts.closed();
            shared.places.borrow_mut().left(id);
        });
    }

    fn sweep(&self) {
        let shared = &self.connections.shared;
        shared.options.lifelines.sweep();
        let limit = (shared.options.idle_timeout.as_secs() / SWEEP.as_secs()) as u32;
        let all: Vec<_> = shared.conns.borrow().values().cloned().collect();
        for c in all {
            c.idle_sweeps.set(c.idle_sweeps.get() + 1);
            if c.idle_sweeps.get() > limit {
                c.cut("idle");
            }
        }
    }
}
