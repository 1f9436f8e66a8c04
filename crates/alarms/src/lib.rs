//! Alarms that leave the cluster: health checks, as e-mails and as webhooks in Alertmanager's format.
//!
//! One worker runs beside each monitor; that of the active manager works ([`run`]). How things stand it asks the monitor; what a receiver was told lies in
//! the cluster state, so that the next active manager neither says it twice nor forgets an end.
//!
//! Invariants: a check that is raised (and not muted) is told within [`TICK`] and the settings' interval, or a health check says why it could not be. An end
//! is told to whoever was told the beginning. Nothing is queued: what is told is how things stand then.
//!
//! Bounds: one message to a receiver at a time; [`news::ALERTS_MAX`] checks in it, with [`news::DETAILS_MAX`] lines each.

mod alertmanager;
mod mail;
mod news;

use cluster::alarms::{self, Book, Receiver, Settings};
use cluster::{Change, Changes, ClusterState};
use io::clock::Clock;
use io::task;
use metastore::ClusterHandle;
use net::post::{self, Url};
use news::{Checks, News};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub const TICK: Duration = Duration::from_secs(5);
/// After a failure; doubled with each that follows, up to the longest.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// For a note in the cluster state; where that is away alarms go on, and the note is made later.
const NOTED_WITHIN: Duration = Duration::from_secs(5);

/// The monitor of this process: a command that only reads, and what it answers if it went well.
pub type Ask = Box<dyn Fn(Value) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>>>>>;

pub struct Config {
    pub ask: Ask,
    pub cluster: ClusterHandle,
    pub clock: Arc<dyn Clock>,
    /// Of the manager beside which it works: it works where that one is active.
    pub mgr_name: String,
}

#[derive(Default)]
struct Failing {
    until: Duration,
    pause: Duration,
}

struct Worker {
    config: Config,
    failing: BTreeMap<Receiver, Failing>,
    /// Which wish (by the time that it was made) was fulfilled.
    asked: BTreeMap<Receiver, u64>,
    /// What was told and could not be noted.
    unnoted: BTreeMap<Receiver, Book>,
}

/// Works for as long as the process runs.
pub async fn run(config: Config) {
    let mut worker = Worker {
        config,
        failing: BTreeMap::new(),
        asked: BTreeMap::new(),
        unnoted: BTreeMap::new(),
    };
    loop {
        task::sleep(TICK).await;
        worker.turn().await;
    }
}

impl Worker {
    async fn turn(&mut self) {
        let state = self.config.cluster.state();
        let map = &state.mgrmap;
        if !map.available || map.active_name != self.config.mgr_name {
            self.failing.clear();
            self.asked.clear();
            self.unnoted.clear();
            return;
        }
        let settings = Settings::of(&state);
        if !Receiver::ALL.into_iter().any(|r| settings.has(r)) {
            return;
        }
        let command = json!({"prefix": "health", "detail": "detail", "format": "json"});
        let Some(said) = (self.config.ask)(command).await else {
            return;
        };
        let Ok(health) = serde_json::from_slice::<Value>(&said) else {
            return;
        };
        let checks = news::checks(&health);
        for receiver in Receiver::ALL {
            self.tell(receiver, &settings, &state, &checks).await;
        }
    }

    async fn tell(&mut self, receiver: Receiver, settings: &Settings, state: &ClusterState, checks: &Checks) {
        if !settings.has(receiver) {
            return;
        }
        let clock = &self.config.clock;
        let now = clock.wall().as_secs();
        let book = match self.unnoted.get(&receiver) {
            Some(told) => told.clone(),
            None => alarms::book(state, receiver).unwrap_or_default(),
        };
        let asked = alarms::asked(state).unwrap_or(0);
        // Not if it was told since then, by whichever manager was active.
        let wish = asked > *self.asked.get(&receiver).unwrap_or(&book.at);
        let news = News::of(&book, checks, now);
        let again =
            settings.repeat > 0 && !book.rows.is_empty() && now >= book.at.saturating_add(settings.repeat);
        // A clock that went back does not silence it.
        let early = now >= book.at && now < book.at.saturating_add(settings.interval);
        let wanted = wish || !early && (again || !news.is_empty() || book.error.is_some());
        let pausing = self
            .failing
            .get(&receiver)
            .is_some_and(|f| clock.monotonic() < f.until);
        if !wanted || pausing {
            if self.unnoted.contains_key(&receiver) {
                self.keep(receiver, book).await;
            }
            return;
        }
        match send(receiver, settings, &state.monmap.fsid.to_string(), &news, checks).await {
            Ok(()) => {
                self.failing.remove(&receiver);
                let told = Book {
                    rows: news.book(),
                    at: now,
                    error: None,
                };
                self.asked.insert(receiver, asked);
                self.keep(receiver, told).await;
            }
            Err(e) => {
                let failing = self.failing.entry(receiver).or_default();
                failing.pause = (failing.pause * 2).clamp(PAUSE, PAUSE_MAX);
                failing.until = self.config.clock.monotonic() + failing.pause;
                if book.error.as_ref() != Some(&e) {
                    tracing::warn!("alarms: {}: {e}", receiver.name());
                    let told = Book {
                        error: Some(e),
                        ..book
                    };
                    self.keep(receiver, told).await;
                }
            }
        }
    }

    async fn keep(&mut self, receiver: Receiver, book: Book) {
        let (key, value) = (receiver.key(), book.json().to_string());
        let decide = |_: &ClusterState| {
            let (key, value) = (key.clone(), value.clone().into());
            (Changes::one(Change::ConfigKeySet { key, value }), ())
        };
        let done = task::timeout(NOTED_WITHIN, self.config.cluster.commit(decide)).await;
        match done {
            Ok(Ok(_)) => drop(self.unnoted.remove(&receiver)),
            _ => drop(self.unnoted.insert(receiver, book)),
        }
    }
}

async fn send(
    receiver: Receiver,
    settings: &Settings,
    fsid: &str,
    news: &News,
    checks: &Checks,
) -> Result<(), String> {
    match (receiver, &settings.mail, &settings.webhook) {
        (Receiver::Mail, Some(to), _) => mail::send(to, fsid, news, checks).await,
        (Receiver::Webhook, _, Some(url)) => {
            let url = Url::parse(url).map_err(|e| format!("mgr/alerts/webhook_url: {e}"))?;
            let body = alertmanager::body(fsid, news).to_string();
            post::post(&url, "application/json", body).await
        }
        _ => Ok(()),
    }
}
