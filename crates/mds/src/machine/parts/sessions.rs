//! Sessions of clients, and their connections.

use super::request::RequestId;
use super::stock::Stock;
use super::tx::{ClientId, Conn, Tx};
use crate::access::Access;
use crate::row::{Key, SessionRow};
use messages::fs::Features;
use msgr::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::EntityAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Open,
    /// After a restart it has not come back yet.
    Away,
    /// It is being fenced: nothing of it is taken any more.
    Evicted,
}

#[derive(Debug)]
pub struct Session {
    pub state: State,
    pub conn: Option<Conn>,
    pub addr: EntityAddr,
    /// Where its packets come from.
    pub from: Option<std::net::IpAddr>,
    pub features: Features,
    pub access: Arc<Access>,
    pub uuid: Option<String>,
    /// How long it may be silent, by its own word.
    pub timeout: Option<Duration>,
    pub renewed: Duration,
    /// What it was told may not have come: its connection ended with what waited. It renews no more, or who waits for what was asked of
    /// it would wait for ever.
    pub lost: bool,
    pub pushed: u64,
    pub caps: BTreeSet<u64>,
    pub requests: BTreeMap<u64, RequestId>,
    /// Answered, and not durable.
    pub unsafes: usize,
    /// When that was said last, and nothing was heard since.
    pub quiet: Option<Duration>,
    /// It waits for its safe answers, as far as is known: a client of 16.2 in fsync says nothing of it.
    pub waits: bool,
    pub done: BTreeMap<u64, u64>,
    pub flushed: BTreeSet<u64>,
    /// As it is in the pool, or will be.
    pub row: Arc<SessionRow>,
    /// It was told that it may give numbers to files; which ones, and those of them that it has not heard of.
    pub delegates: bool,
    pub stock: Stock,
    pub fresh: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
pub struct Sessions {
    pub all: BTreeMap<ClientId, Session>,
    pub conns: BTreeMap<Conn, (ClientId, Arc<Peer>)>,
}

impl Session {
    pub fn new(row: &Arc<SessionRow>, state: State, now: Duration) -> Self {
        Self {
            state,
            conn: None,
            addr: row.addr,
            from: None,
            features: Features::of(row.features),
            access: Arc::new(Access::parse(&row.caps)),
            uuid: row.metadata.get("uuid").cloned(),
            timeout: row
                .metadata
                .get("timeout")
                .and_then(|t| t.parse().ok())
                .map(Duration::from_secs),
            renewed: now,
            lost: false,
            pushed: 0,
            caps: BTreeSet::new(),
            requests: BTreeMap::new(),
            unsafes: 0,
            quiet: None,
            waits: true,
            done: BTreeMap::new(),
            flushed: BTreeSet::new(),
            row: row.clone(),
            delegates: false,
            stock: Stock::of(&row.delegated),
            fresh: Vec::new(),
        }
    }

    /// Answers below this have arrived.
    pub fn forget_done(&mut self, client: ClientId, oldest: u64, tx: &mut Tx) {
        let rest = self.done.split_off(&oldest);
        for tid in std::mem::replace(&mut self.done, rest).into_keys() {
            tx.remove(Key::Done { client, tid });
        }
    }

    pub fn forget_flushed(&mut self, client: ClientId, oldest: u64, tx: &mut Tx) {
        let rest = self.flushed.split_off(&oldest);
        for tid in std::mem::replace(&mut self.flushed, rest) {
            tx.remove(Key::Flushed { client, tid });
        }
    }
}

impl Sessions {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get_mut(&mut self, client: ClientId) -> Option<&mut Session> {
        self.all.get_mut(&client)
    }

    pub fn get(&self, client: ClientId) -> Option<&Session> {
        self.all.get(&client)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &Session)> {
        self.all.iter().map(|(k, v)| (*k, v))
    }

    pub fn restore(&mut self, client: ClientId, row: Arc<SessionRow>) {
        self.all
            .insert(client, Session::new(&row, State::Away, Duration::ZERO));
    }

    pub fn restore_done(&mut self, client: ClientId, tid: u64, ino: u64) {
        if let Some(s) = self.all.get_mut(&client) {
            s.done.insert(tid, ino);
        }
    }

    pub fn restore_flushed(&mut self, client: ClientId, tid: u64) {
        if let Some(s) = self.all.get_mut(&client) {
            s.flushed.insert(tid);
        }
    }

    pub fn away(&self) -> Vec<ClientId> {
        self.iter()
            .filter(|(_, s)| s.state == State::Away)
            .map(|(k, _)| k)
            .collect()
    }

    /// A client's connection has ended, if it is still the one. What waited on it is lost; a client whose connections are lossy knows
    /// that, and asks again.
    pub fn lose(&mut self, client: ClientId, conn: Option<Conn>) {
        let lossless = conn
            .and_then(|c| self.conns.get(&c))
            .is_some_and(|(_, p)| p.lossless);
        let Some(s) = self.all.get_mut(&client).filter(|s| s.conn == conn) else {
            return;
        };
        s.conn = None;
        if lossless && s.state == State::Open && !s.lost {
            s.lost = true;
            tracing::warn!(
                "client.{client}: the session of its connection has ended, with what it was to be told"
            );
        }
    }

    pub fn client_of(&self, conn: Conn) -> Option<(ClientId, Arc<Peer>)> {
        self.conns.get(&conn).cloned()
    }
}
