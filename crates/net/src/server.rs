//! Accepting connections and sweeping out idle ones.

use crate::budget::Budget;
use crate::connection::{Connection, SILENT};
use crate::connections::{ConnId, Connections, LOOK, NetEvent, Options};
use crate::doors::{Door, Doors, Open};
use crate::outputs::Output;
use auth::Entropy;
use io::socket::Stream;
use msgr::{Gone, ServerConfig};
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

/// Serves what comes in by `doors` with tasks on the calling thread (it must be inside a `LocalSet`), until
/// [`Connections::shutdown`]. Events arrive in order per connection; when the channel is full, reading
/// stops. The addresses of `config` are those of the doors.
pub fn serve(
    doors: impl Into<Doors>,
    config: Arc<ServerConfig>,
    options: Options,
    clock: Arc<dyn io::Clock>,
    events: mpsc::Sender<NetEvent>,
) -> std::io::Result<Connections> {
    let doors = doors.into().start()?;
    let connections = Connections::new(options);
    let server = Server {
        config,
        clock,
        events,
        connections: connections.clone(),
    };
    tokio::task::spawn_local(server.run(doors));
    Ok(connections)
}

struct Server {
    config: Arc<ServerConfig>,
    clock: Arc<dyn io::Clock>,
    events: mpsc::Sender<NetEvent>,
    connections: Connections,
}

impl Server {
    async fn run(self, doors: Open) {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.connections.shared.stopped.get() {
            tokio::select! {
                biased;
                () = self.connections.shared.stop.notified() => {}
                _ = sweep.tick() => self.sweep(),
                _ = look.tick() => self.connections.shared.look(self.clock.monotonic()),
                () = self.connections.shared.session_news() => self.tell_ends().await,
                accepted = doors.accept() => self.accepted(accepted).await,
            }
        }
        if let Some(lossless) = &self.connections.shared.lossless {
            lossless.sessions.borrow_mut().end_all();
            self.tell_ends().await;
        }
    }

    /// The owner hears of sessions that have ended.
    async fn tell_ends(&self) {
        let Some(lossless) = &self.connections.shared.lossless else {
            return;
        };
        let gone = lossless.sessions.borrow_mut().take_gone();
        for Gone { id, peer, over } in gone {
            if let Some(why) = over {
                tracing::warn!(conn = id, "{}: its session ended: {why}", peer.name);
            }
            lossless.put(id, NetEvent::Closed { conn: ConnId(id) });
            // Without an owner nobody is left to be told.
            drop(lossless.deliver(id, &self.events).await);
        }
    }

    async fn accepted(&self, accepted: std::io::Result<(Stream, SocketAddr, Door)>) {
        match accepted {
            Ok((stream, peer, door)) => self.open(stream, peer, door),
            Err(e) => {
                tracing::warn!("accept failed: {e}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }

    fn open(&self, stream: Stream, peer: SocketAddr, door: Door) {
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
        let sessions = shared.lossless.as_ref().map(|l| l.sessions.clone());
        let proto = door.protocol(self.config.clone(), peer, id.0, sessions);
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
        if let Some(lossless) = &shared.lossless {
            lossless.sessions.borrow_mut().sweep(limit);
            shared.settle_sessions();
        }
        let all: Vec<_> = shared.conns.borrow().values().cloned().collect();
        for c in all {
            c.idle_sweeps.set(c.idle_sweeps.get() + 1);
            if c.idle_sweeps.get() > limit {
                c.cut("idle");
            }
        }
    }
}
