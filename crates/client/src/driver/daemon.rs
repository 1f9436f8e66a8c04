//! Connections to daemons that the machine knows nothing of: metadata servers. Who asks for one speaks its protocol; dialling,
//! tickets and our identity are the client's.
//!
//! Bounds: [`LINKS_MAX`] of them; [`READ_MAX`] messages that were read and not taken, then reading stops; output as of other
//! connections. What is sent before [`DaemonEvent::Ready`] is lost.

use super::link::{self, Handshake};
use super::{Client, Command, Platform};
use crate::conf::Conf;
use crate::core::mon::Credentials;
use crate::{Error, Result};
use auth::Entropy;
use msgr::Message;
use net::{ClientError, DialEvent, Dialled, dial};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use types::{EntityAddr, EntityKind};

const LINKS_MAX: usize = 64;
const READ_MAX: usize = 64;

type Heard = (u64, DialEvent);

/// What the thread is to do.
pub(super) enum Order {
    Dial {
        id: u64,
        peer: EntityKind,
        addr: EntityAddr,
        heard: mpsc::Sender<Heard>,
    },
    Send(u64, Box<Message>),
    HangUp(u64),
    TicketsRefused,
}

/// What the thread lends.
pub(super) struct Env<'a> {
    pub conf: &'a Conf,
    pub platform: &'a Platform,
    pub entropy: &'a Arc<dyn Entropy>,
    pub nonce: u32,
    pub credentials: &'a Credentials,
}

#[derive(Default)]
pub(super) struct Daemons(BTreeMap<u64, Dialled<Handshake>>);

impl Daemons {
    /// True: the tickets are worth nothing.
    pub fn carry_out(&mut self, order: Order, env: &Env<'_>) -> bool {
        match order {
            Order::Dial {
                id,
                peer,
                addr,
                heard,
            } => {
                let Some(sock) = addr.sock.filter(|_| self.0.len() < LINKS_MAX) else {
                    // Whoever listens hears that nobody speaks.
                    return false;
                };
                let global_id = env.credentials.global_id();
                let mut config =
                    link::config(env.conf, peer, addr, env.nonce, global_id, env.entropy.clone());
                config.gid = global_id as i64;
                let (handshake, _) = Handshake::new(env.credentials.clone());
                let (options, clock) = (link::options(env.conf), env.platform.clock.clone());
                self.0
                    .insert(id, dial(sock, config, handshake, options, clock, id, heard));
            }
            Order::Send(id, message) => {
                // Where it cannot be queued the connection ends, and says so.
                if let Some(link) = self.0.get(&id) {
                    link.send(*message);
                }
            }
            Order::HangUp(id) => drop(self.0.remove(&id)),
            Order::TicketsRefused => return true,
        }
        false
    }
}

#[derive(Debug)]
pub enum DaemonEvent {
    /// From now on messages can be sent.
    Ready,
    Message(Message),
    /// The last one: why there is no connection, or none any more.
    Ended(String),
}

/// A connection to a daemon. It ends when this is dropped.
pub struct DaemonLink {
    id: u64,
    client: Client,
    heard: mpsc::Receiver<Heard>,
}

impl std::fmt::Debug for DaemonLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "link {}", self.id)
    }
}

impl Client {
    /// Dials a daemon; whether that succeeds is its first event.
    pub fn dial_daemon(&self, peer: EntityKind, addr: EntityAddr) -> Result<DaemonLink> {
        let id = self.inner.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, heard) = mpsc::channel(READ_MAX);
        let order = Order::Dial {
            id,
            peer,
            addr,
            heard: sender,
        };
        self.order(order)?;
        let client = self.clone();
        Ok(DaemonLink { id, client, heard })
    }

    fn order(&self, order: Order) -> Result<()> {
        let told = self.inner.commands.send(Command::Daemon(order));
        told.map_err(|_| Error::Closed)
    }
}

impl DaemonLink {
    /// Who sends bounds what is under way.
    pub fn send(&self, message: Message) {
        // After the thread's end there is no connection, which is heard.
        let _ = self.client.order(Order::Send(self.id, Box::new(message)));
    }

    pub async fn event(&mut self) -> DaemonEvent {
        match self.heard.recv().await {
            Some((_, DialEvent::Ready(_))) => DaemonEvent::Ready,
            Some((_, DialEvent::Message(m))) => DaemonEvent::Message(m),
            Some((_, DialEvent::Ended(why))) => {
                if matches!(&why, ClientError::Protocol(msgr::Error::Auth(_))) {
                    let _ = self.client.order(Order::TicketsRefused);
                }
                DaemonEvent::Ended(why.to_string())
            }
            None => DaemonEvent::Ended("there is no connection".into()),
        }
    }
}

impl Drop for DaemonLink {
    fn drop(&mut self) {
        let _ = self.client.order(Order::HangUp(self.id));
    }
}
