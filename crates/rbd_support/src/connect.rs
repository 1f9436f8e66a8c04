//! The worker's connection to its own cluster, by the name and the key of its manager.

use crate::config::Config;
use auth::CryptoKey;
use client::{Client, Conf, Platform};
use cluster::{Change, Changes, ClusterState, new_entity};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::{AuthName, EntityKind, Errno};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(10);
/// What the manager of a new cluster may, too.
const CAPS: [(&str, &str); 3] = [
    ("mds", "allow *"),
    ("mon", "allow profile mgr"),
    ("osd", "allow *"),
];

/// That a connection is of no use any more, for whoever works with it to say.
#[derive(Debug, Clone, Default)]
pub struct Broken(Rc<Cell<bool>>);

impl Broken {
    pub fn set(&self) {
        self.0.set(true);
    }

    pub fn heard(&self, errno: Errno) {
        if is_broken(errno) {
            self.set();
        }
    }
}

/// Errors of a client that was fenced, or has ended: another one has better luck.
pub fn is_broken(errno: Errno) -> bool {
    [Errno::EBLOCKLISTED, Errno::ENOTCONN].contains(&errno)
}

pub struct Connection {
    config: Config,
    client: Option<Client>,
    /// With which the client came.
    key: Option<CryptoKey>,
    broken: Broken,
    /// When the last attempt failed, and why.
    failed: Option<(Duration, String)>,
}

impl Connection {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            client: None,
            key: None,
            broken: Broken::default(),
            failed: None,
        }
    }

    /// Connects if that was not done; the error is a sentence.
    pub async fn get(&mut self) -> Result<Client, String> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let now = self.config.clock.monotonic();
        if let Some((at, why)) = &self.failed
            && now.saturating_sub(*at) < PAUSE
        {
            return Err(why.clone());
        }
        match self.connect().await {
            Ok((client, key)) => {
                (self.failed, self.key) = (None, key);
                self.client = Some(client.clone());
                Ok(client)
            }
            Err(why) => {
                let why = format!("the manager's work waits: it cannot connect: {why}");
                tracing::warn!("{why}");
                self.failed = Some((now, why.clone()));
                Err(why)
            }
        }
    }

    fn name(&self) -> AuthName {
        AuthName::new(EntityKind::Mgr, self.config.mgr_name.clone())
    }

    /// With the key that it took for that.
    async fn connect(&self) -> Result<(Client, Option<CryptoKey>), String> {
        let name = self.name();
        let key = match self.config.cephx {
            true => Some(self.key(&name).await?),
            false => None,
        };
        let state = self.config.cluster.state();
        let mons = state.monmap.by_rank().map(|m| m.addrs.first()).collect();
        let conf = Conf {
            connect_timeout: CONNECT_TIMEOUT,
            ..Conf::new(name, mons, key.clone())
        };
        let platform = Platform {
            clock: self.config.clock.clone(),
            random: self.config.random.clone(),
        };
        let client = Client::connect_with(conf, platform).await;
        let client = client.map_err(|e| e.to_string())?;
        Ok((client, key))
    }

    /// The manager's; makes one where there is none.
    async fn key(&self, name: &AuthName) -> Result<CryptoKey, String> {
        let cluster = &self.config.cluster;
        if let Some(entity) = cluster.state().auth.get(name) {
            return Ok(entity.key.clone());
        }
        let cx = auth::Context {
            now: cluster.now(),
            entropy: &*self.config.entropy,
        };
        let fresh = new_entity(&cx, &CAPS);
        let decide = |state: &ClusterState| match state.auth.get(name) {
            Some(entity) => (Changes::none(), entity.key.clone()),
            None => {
                let put = Change::AuthPut {
                    name: name.clone(),
                    entity: fresh.clone(),
                };
                (Changes::one(put), fresh.key.clone())
            }
        };
        let done = cluster.commit(decide).await.map_err(|e| e.to_string())?;
        Ok(done.reply)
    }

    pub fn broken(&self) -> Broken {
        self.broken.clone()
    }

    /// Of no use any more: fenced, ended, or something is stuck on it; or it has a key that opens nothing new.
    pub fn is_broken(&self) -> bool {
        let Some(client) = &self.client else {
            return false;
        };
        let state = self.config.cluster.state();
        let ours = client.nonce();
        let replaced = |key: &CryptoKey| !state.auth.opens(&self.name(), key);
        self.broken.0.get()
            || state.osdmap.blocklist.keys().any(|a| a.nonce == ours)
            || self.key.as_ref().is_some_and(replaced)
    }

    pub async fn end(&mut self) {
        self.broken.0.set(false);
        if let Some(client) = self.client.take() {
            client.shutdown().await;
        }
    }
}
