//! Users of Keystone (OpenStack's identity service), version 3: whose a token is, and whose a key of EC2 that is not ours.
//!
//! A project is a user here, under its id; who of the project asks is a subuser of that, under the id of the user there. Keystone is asked as a user of its own, whose token is
//! renewed before it ends. What was heard is remembered for a short while, and no longer than the token that it is about holds; then it is asked again. Where nobody
//! answers what was heard before goes on, for [`AWAY_MAX`] at most, and all else is refused: never is anybody let in as somebody else. That this gateway has no room for a question is no such
//! case, else whoever floods it would have what was taken away from him: then it goes on for [`GRACE`] alone.
//!
//! Keys: Keystone keeps their secrets, which an administrator may read. A gateway does, so that signatures of any kind are checked as those of keys of its own are (chunks of a body and forms,
//! too, for which no other answer of Keystone's is enough). Who it is, and what he may do, Keystone says to a text that is signed with that secret.
//!
//! About one token or key one question is under way at a time (`flights`); who wants to know the same waits for its answer.
//!
//! Bounds: [`AT_ONCE`] questions at once about what is new and as many about what was heard before, so that neither keeps the other waiting; [`WAITING_MAX`] others wait for [`ROOM_WITHIN`]; [`FOLLOWING_MAX`] wait for others' answers, [`flights::OF_ONE_MAX`] for one of them, for [`FOLLOWED_WITHIN`] in all; an answer as `net::fetch` has it; `cache_entries` of good tokens and keys each, [`REFUSED_MAX`] of others.

mod cache;
mod flights;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

pub use settings::Settings;

use crate::Clock;
use crate::names::{NAME_MAX, check_name};
use aws_lc_rs::digest;
use cache::{Cache, Heard, Name, Term};
use flights::{Flights, Joined};
use hyper::Method;
use io::task;
use net::fetch::{Answer, Failed, Fetcher, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as Turn, Semaphore, SemaphorePermit};

const AT_ONCE: usize = 8;
const WAITING_MAX: usize = 256;
const ROOM_WITHIN: Duration = Duration::from_secs(10);
/// Who waits for the answer to another's question: of all together, and for how long.
const FOLLOWING_MAX: usize = 1024;
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);
/// Whoever asks may go before there is an answer; then another asks, so often at most.
const ASKERS_MAX: usize = 8;
/// Of tokens and public parts of keys; Keystone's own have some 200 bytes.
const TOKEN_MAX: usize = 2048;
const ACCESS_MAX: usize = 128;
const REFUSED_MAX: usize = 1024;
/// How long a refusal is remembered (milliseconds).
const REFUSED_FOR: u64 = 15_000;
/// How long after it was heard what is known goes on where nobody answers (milliseconds).
const AWAY_MAX: u64 = 60 * 60 * 1000;
/// And how long where there is no room to ask.
const GRACE: u64 = 60_000;
/// Nobody is asked for so long after nobody was there, or after so many questions in a row had no answer (milliseconds). Then one asks, and others wait for what comes of it, for so long at most.
const QUIET: u64 = 5000;
const FAILURES: u32 = 3;
const PROBE: u64 = 60_000;
/// And after the gateway itself was not let in: services of identity lock out who comes too often.
const QUIET_REFUSED: u64 = 10_000;
/// The gateway's own token is renewed so long before its end (milliseconds), but not twice within [`QUIET_REFUSED`].
const MARGIN: u64 = 60_000;

/// Whose a token or a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// The id of the project, which is a user here.
    pub project: String,
    /// For people.
    pub name: String,
    /// The id of the user, if it can be a subuser's name.
    pub user: Option<String>,
    /// Lets him into all accounts.
    pub admin: bool,
}

/// A key of EC2.
#[derive(Clone, PartialEq, Eq)]
pub struct Signing {
    pub secret: String,
    pub who: Who,
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key of {:?}", self.who)
    }
}

/// Why nobody is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Keystone does not know it, or it has ended.
    Unknown,
    /// It is good, and not for this; in a sentence.
    Unfit(String),
    /// Nobody can say; in a sentence.
    Away(String),
    /// There is no room to ask.
    Busy,
}

/// Who answers. A trait for tests alone.
#[async_trait::async_trait]
trait Peer: Send + Sync {
    async fn ask(&self, request: Request) -> Result<Answer, Failed>;
}

#[async_trait::async_trait]
impl Peer for Fetcher {
    /// As a task of its own: its sockets stay on this thread.
    async fn ask(&self, request: Request) -> Result<Answer, Failed> {
        let fetcher = self.clone();
        let asked = task::spawn_local(async move { Fetcher::ask(&fetcher, request).await });
        let stopping = |_| Err(Failed::Unanswered("the gateway is stopping".into()));
        asked.await.unwrap_or_else(stopping)
    }
}

/// Counts who waits, up to a bound.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn one_more(of: &'a AtomicUsize, most: usize) -> Option<Self> {
        let one = Self(of);
        (of.fetch_add(1, Ordering::Relaxed) < most).then_some(one)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The gateway's own token.
struct Own {
    text: String,
    /// When it was got, and until when it is used.
    got: u64,
    until: u64,
}

/// What is known of answers that did not come.
#[derive(Default)]
struct Quiet {
    /// In a row.
    failures: u32,
    /// Nobody is asked until then, and why.
    until: Option<(u64, String)>,
    /// Somebody asks whether it is over; nobody else until then.
    probe: u64,
}

/// What was heard, and what is asked.
struct Known<T> {
    cache: Mutex<Cache<T>>,
    flights: Flights<T>,
}

impl<T: Clone> Known<T> {
    fn new(entries: usize) -> Self {
        Self {
            cache: Mutex::new(Cache::new(entries)),
            flights: Flights::default(),
        }
    }
}

struct Inner {
    settings: Settings,
    peer: Box<dyn Peer>,
    clock: Clock,
    own: Turn<Option<Own>>,
    tokens: Known<Who>,
    keys: Known<Signing>,
    refused: Mutex<Cache<Refused>>,
    quiet: Mutex<Quiet>,
    /// What was said last of answers that say neither yes nor no.
    said: Mutex<String>,
    /// For questions about what is new, and about what was heard before.
    rooms: [Semaphore; 2],
    waiting: AtomicUsize,
    /// Others' answers.
    following: AtomicUsize,
}

/// Clones are the same.
#[derive(Clone)]
pub struct Keystone(Arc<Inner>);

impl fmt::Debug for Keystone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.settings.fmt(f)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of(kind: &[u8], text: &str) -> Name {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(kind);
    context.update(text.as_bytes());
    let mut name = Name::default();
    name.copy_from_slice(context.finish().as_ref());
    name
}

/// Ids of projects as Keystone makes them: so none is the name of a user who was made here for people.
pub fn is_project(id: &str) -> bool {
    id.len() == 32
        && id
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// What a line of a table can have of it.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().filter(|c| !c.is_control()).collect();
    while shown.len() > NAME_MAX {
        shown.pop();
    }
    shown
}

fn away(why: impl Into<String>) -> Refused {
    Refused::Away(why.into())
}

fn body<T: DeserializeOwned>(what: &str, answer: &Answer) -> Result<T, Refused> {
    // What the library says of it may quote a secret.
    serde_json::from_slice(&answer.body)
        .map_err(|_| away(format!("Keystone's answer to {what} cannot be read")))
}

impl Keystone {
    pub fn new(settings: Settings, clock: Clock) -> Self {
        let peer = Box::new(settings.fetcher.clone());
        if settings.fetcher.is_plain() {
            tracing::warn!(
                "s3: Keystone is asked in plain HTTP: what is sent to it, a password too, can be read on its way"
            );
        }
        Self::with(settings, peer, clock)
    }

    fn with(settings: Settings, peer: Box<dyn Peer>, clock: Clock) -> Self {
        let entries = settings.cache_entries;
        Self(Arc::new(Inner {
            settings,
            peer,
            clock,
            own: Turn::new(None),
            tokens: Known::new(entries),
            keys: Known::new(entries),
            refused: Mutex::new(Cache::new(REFUSED_MAX)),
            quiet: Mutex::default(),
            said: Mutex::default(),
            rooms: [AT_ONCE, AT_ONCE].map(Semaphore::new),
            waiting: AtomicUsize::new(0),
            following: AtomicUsize::new(0),
        }))
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Logs in, so that what is wrong is in the log at the start, and not only when somebody comes.
    pub async fn greet(&self) {
        if self.own(None).await.is_ok() {
            tracing::info!("s3: {self:?}: it lets the gateway in");
        }
    }

    /// Whose a token is.
    pub async fn token(&self, text: &str) -> Result<Who, Refused> {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"_-.=".contains(&b);
        let good = text.len() <= TOKEN_MAX && text.bytes().all(known);
        if text.is_empty() || !good {
            return Err(Refused::Unknown);
        }
        let name = name_of(b"token\0", text);
        self.heard(&self.0.tokens, name, self.ask_token(text)).await
    }

    /// A key by its public part, if keys are looked for there.
    pub async fn key(&self, access: &str) -> Result<Signing, Refused> {
        let good = access.len() <= ACCESS_MAX && access.bytes().all(|b| b.is_ascii_graphic());
        if access.is_empty() || !good || !self.0.settings.ec2 {
            return Err(Refused::Unknown);
        }
        let name = name_of(b"key\0", access);
        self.heard(&self.0.keys, name, self.ask_key(access)).await
    }

    fn now(&self) -> u64 {
        self.0.clock.monotonic().as_millis() as u64
    }

    fn is_quiet(&self) -> Option<String> {
        let (quiet, now) = (lock(&self.0.quiet), self.now());
        let (until, why) = quiet.until.as_ref()?;
        (now < *until).then(|| why.clone())
    }

    /// Whether a question may be asked: after a quiet one alone, which finds out whether it is over.
    fn may_ask(&self) -> Result<(), Refused> {
        let (mut quiet, now) = (lock(&self.0.quiet), self.now());
        match &quiet.until {
            Some((until, why)) if now < (*until).max(quiet.probe) => return Err(Refused::Away(why.clone())),
            Some(_) => quiet.probe = now + PROBE,
            None => {}
        }
        Ok(())
    }

    fn be_quiet(&self, why: &str, ms: u64) {
        let mut quiet = lock(&self.0.quiet);
        if quiet.until.as_ref().is_none_or(|(_, said)| said != why) {
            tracing::warn!("s3: Keystone: {why}");
        }
        quiet.until = Some((self.now() + ms, why.to_string()));
        quiet.probe = 0;
    }

    /// One of those that have to be several in a row before nobody is asked: what is asked for may be why.
    fn failed(&self, why: &str) {
        let (many, probed) = {
            let mut quiet = lock(&self.0.quiet);
            quiet.failures = quiet.failures.saturating_add(1);
            (quiet.failures >= FAILURES, quiet.until.is_some())
        };
        if many || probed {
            self.be_quiet(why, QUIET);
        }
    }

    /// What is known, or what is heard when asked: by this one, or by another who asks the same now.
    async fn heard<T: Clone>(
        &self,
        of: &Known<T>,
        name: Name,
        ask: impl Future<Output = Result<(T, u64), Refused>>,
    ) -> Result<T, Refused> {
        let until = self.0.clock.monotonic() + FOLLOWED_WITHIN;
        for _ in 0..ASKERS_MAX {
            let known = lock(&of.cache).get(&name, self.now());
            let old = match known {
                Heard::Fresh(what) => return Ok(what),
                Heard::Old(_) => true,
                Heard::Nothing => false,
            };
            if let Heard::Fresh(refused) = lock(&self.0.refused).get(&name, self.now()) {
                return Err(refused);
            }
            let follows = match of.flights.join(name) {
                Joined::Asks(asking) => {
                    let asked = self.asked(&of.cache, (&name, old), ask).await;
                    let outcome = asked.or_else(|refused| self.judged(&of.cache, name, refused));
                    asking.ends(&outcome);
                    return outcome;
                }
                Joined::Waits(follows) => follows,
                Joined::Full => break,
            };
            let Some(_one) = Waiting::one_more(&self.0.following, FOLLOWING_MAX) else {
                break;
            };
            let left = until.saturating_sub(self.0.clock.monotonic());
            match task::timeout(left, follows.heard()).await {
                Ok(Some(outcome)) => return outcome,
                // Who asked has gone: one of those who waited asks.
                Ok(None) => {}
                Err(_) => break,
            }
        }
        self.judged(&of.cache, name, Refused::Busy)
    }

    /// What is made of it that there was no good answer: what was known may go on.
    fn judged<T: Clone>(&self, of: &Mutex<Cache<T>>, name: Name, refused: Refused) -> Result<T, Refused> {
        // As if it were so much earlier, where the gateway itself is why nobody was asked.
        let then = match refused {
            Refused::Busy => self.now().saturating_sub(GRACE),
            _ => self.now(),
        };
        let seen = lock(of).get(&name, self.now());
        match (refused, seen) {
            // It was good, and has not ended.
            (Refused::Away(_), Heard::Fresh(what) | Heard::Old(what)) => Ok(what),
            (Refused::Busy, Heard::Fresh(what) | Heard::Old(what)) if lock(of).is_fresh(&name, then) => {
                Ok(what)
            }
            (refused @ (Refused::Away(_) | Refused::Busy), _) => Err(refused),
            (refused, _) => {
                lock(of).remove(&name);
                let (now, end) = (self.now(), self.now() + REFUSED_FOR);
                lock(&self.0.refused).put(name, refused.clone(), Term { fresh: end, end }, now);
                Err(refused)
            }
        }
    }

    /// A place to ask from.
    async fn room(&self, old: bool) -> Result<SemaphorePermit<'_>, Refused> {
        let room = &self.0.rooms[usize::from(old)];
        if let Ok(place) = room.try_acquire() {
            return Ok(place);
        }
        let waiting = Waiting::one_more(&self.0.waiting, WAITING_MAX).ok_or(Refused::Busy)?;
        let place = task::timeout(ROOM_WITHIN, room.acquire()).await;
        drop(waiting);
        place.ok().and_then(Result::ok).ok_or(Refused::Busy)
    }

    async fn asked<T: Clone>(
        &self,
        of: &Mutex<Cache<T>>,
        (name, old): (&Name, bool),
        ask: impl Future<Output = Result<(T, u64), Refused>>,
    ) -> Result<T, Refused> {
        if let Some(why) = self.is_quiet() {
            return Err(Refused::Away(why));
        }
        let _room = self.room(old).await?;
        // Others with the same may have been before.
        if let Heard::Fresh(what) = lock(of).get(name, self.now()) {
            return Ok(what);
        }
        self.may_ask()?;
        let (what, ends) = ask.await?;
        let now = self.now();
        // A later question may have been answered before.
        if let Heard::Fresh(refused) = lock(&self.0.refused).get(name, now) {
            return Err(refused);
        }
        let left = ends.saturating_sub(self.0.clock.now_ms());
        let term = Term {
            fresh: now + self.0.settings.cache_seconds * 1000,
            end: now + left.min(AWAY_MAX),
        };
        lock(of).put(*name, what.clone(), term, now);
        Ok(what)
    }

    async fn exchange(&self, request: Request) -> Result<Answer, Refused> {
        match self.0.peer.ask(request).await {
            Ok(answer) if matches!(answer.status, 429 | 502..=504) => {
                self.failed(&format!("it answers {}", answer.status));
                Ok(answer)
            }
            Ok(answer) => {
                let mut quiet = lock(&self.0.quiet);
                quiet.failures = 0;
                // One that was set meanwhile stays.
                if quiet
                    .until
                    .as_ref()
                    .is_some_and(|(until, _)| self.now() >= *until)
                {
                    *quiet = Quiet::default();
                }
                Ok(answer)
            }
            Err(Failed::Unreached(why)) => {
                self.be_quiet(&why, QUIET);
                Err(Refused::Away(why))
            }
            Err(Failed::Unanswered(why)) => {
                self.failed(&why);
                Err(Refused::Away(why))
            }
        }
    }

    /// The gateway's own token; another than `not`, which was refused.
    async fn own(&self, not: Option<&str>) -> Result<String, Refused> {
        let mut own = self.0.own.lock().await;
        // Who was before in the row may have had no answer.
        if let Some(why) = self.is_quiet() {
            return Err(Refused::Away(why));
        }
        let now = self.now();
        if let Some(own) = own.as_ref().filter(|own| now < own.until) {
            let refused = not.is_some_and(|not| not == own.text);
            if !refused {
                return Ok(own.text.clone());
            }
            if now < own.got + QUIET_REFUSED {
                return Err(away("Keystone does not take the gateway's own token"));
            }
        }
        *own = None;
        let answer = self.exchange(Request {
            method: Method::POST,
            path: wire::TOKENS.into(),
            headers: Vec::new(),
            body: wire::login(&self.0.settings.login).to_string(),
        });
        let answer = answer.await?;
        let text = answer.headers.get("x-subject-token");
        let text = text.and_then(|t| t.to_str().ok());
        let (201, Some(text)) = (answer.status, text) else {
            let why = format!(
                "it does not let the gateway in as {} (status {})",
                self.0.settings.login.user, answer.status
            );
            self.be_quiet(&why, QUIET_REFUSED);
            return Err(away(format!("Keystone: {why}")));
        };
        let said: wire::TokenBody = body("the gateway's log-in", &answer)?;
        let ends = wire::time(&said.token.expires_at).unwrap_or_default();
        let left = ends.saturating_sub(self.0.clock.now_ms());
        // At least for a while, should clocks not agree.
        let left = left.saturating_sub(MARGIN).max(left / 2).max(QUIET_REFUSED);
        let new = Own {
            text: text.to_string(),
            got: now,
            until: now + left,
        };
        *own = Some(new);
        Ok(text.to_string())
    }

    /// Asks with the gateway's own token, and with a new one if that is not taken.
    async fn ask(
        &self,
        (method, path): (Method, &str),
        subject: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, Refused> {
        let request = |own: &str| {
            let mut headers = vec![("x-auth-token", own.to_string())];
            headers.extend(subject.map(|s| ("x-subject-token", s.to_string())));
            Request {
                method: method.clone(),
                path: path.to_string(),
                headers,
                body: body.map(Value::to_string).unwrap_or_default(),
            }
        };
        let own = self.own(None).await?;
        let answer = self.exchange(request(&own)).await?;
        // To a text that is signed it may be the answer itself.
        if answer.status != 401 || body.is_some() {
            return Ok(answer);
        }
        let own = self.own(Some(&own)).await?;
        let answer = self.exchange(request(&own)).await?;
        match answer.status {
            401 => Err(away("Keystone does not take the gateway's own token")),
            _ => Ok(answer),
        }
    }

    async fn ask_token(&self, text: &str) -> Result<(Who, u64), Refused> {
        const WHAT: &str = "whose a token is";
        let answer = self.ask((Method::GET, wire::TOKENS), Some(text), None).await?;
        match answer.status {
            200 => self.judge(body::<wire::TokenBody>(WHAT, &answer)?.token),
            404 => Err(Refused::Unknown),
            403 => Err(self.lacks("look at others' tokens: it wants the role admin, or service")),
            _ => Err(self.odd(WHAT, &answer)),
        }
    }

    async fn ask_key(&self, access: &str) -> Result<(Signing, u64), Refused> {
        const WHAT: &str = "a key of EC2";
        let path = wire::credential(access);
        let found = self.ask((Method::GET, &path), None, None).await?;
        let kept = match found.status {
            200 => body::<wire::CredentialBody>(WHAT, &found)?.credential,
            404 => return Err(Refused::Unknown),
            403 => return Err(self.lacks("read others' keys: it wants the role admin")),
            _ => return Err(self.odd(WHAT, &found)),
        };
        let of = serde_json::from_str::<wire::Ec2>(&kept.blob).ok();
        let good = |of: &wire::Ec2| kept.kind == "ec2" && of.is_of(access);
        let of = of.filter(good).ok_or(Refused::Unknown)?;
        let mut nonce = [0; 16];
        self.0.clock.fill(&mut nonce);
        let signed = wire::s3_token(&of, self.0.clock.now_ms(), &nonce);
        let said = self.ask((Method::POST, wire::S3_TOKENS), None, Some(&signed));
        let said = said.await?;
        let (who, ends) = match said.status {
            200 => self.judge(body::<wire::TokenBody>(WHAT, &said)?.token)?,
            // Its user or project is not let in any more, or gone.
            401 | 404 => return Err(Refused::Unknown),
            403 => return Err(self.lacks("have signatures checked: it wants the role admin, or service")),
            _ => return Err(self.odd(WHAT, &said)),
        };
        if kept.project_id.is_some_and(|p| p != who.project) {
            return Err(Refused::Unknown);
        }
        Ok((
            Signing {
                secret: of.secret,
                who,
            },
            ends,
        ))
    }

    /// What the gateway's user may not do there.
    fn lacks(&self, what: &str) -> Refused {
        self.noted(format!("it does not let {} {what}", self.0.settings.login.user))
    }

    /// An answer that is none of those that are known.
    fn odd(&self, what: &str, answer: &Answer) -> Refused {
        self.noted(format!("it answered {} to {what}", answer.status))
    }

    /// In the log once, and not for each request.
    fn noted(&self, why: String) -> Refused {
        let mut said = lock(&self.0.said);
        if *said != why {
            tracing::warn!("s3: Keystone: {why}");
            said.clone_from(&why);
        }
        away(format!("Keystone: {why}"))
    }

    /// Who it is, and until when, if he is let in.
    fn judge(&self, token: wire::Token) -> Result<(Who, u64), Refused> {
        let ends = wire::time(&token.expires_at).unwrap_or_default();
        if ends <= self.0.clock.now_ms() {
            return Err(Refused::Unknown);
        }
        if token.is_limited() {
            let why = "the token is for some requests of other services alone (access rules)";
            return Err(Refused::Unfit(why.into()));
        }
        let Some(project) = token.project.filter(|p| is_project(&p.id)) else {
            let why = "the token is of no project";
            return Err(Refused::Unfit(why.into()));
        };
        let of = &self.0.settings;
        let mut roles = token.roles.iter().map(|r| r.name.as_str());
        // To the letter: a role that is called alike may be somebody's own.
        let admin = roles.clone().any(|r| of.admin_roles.iter().any(|n| n == r));
        if !admin && !roles.any(|r| of.roles.iter().any(|n| n.eq_ignore_ascii_case(r))) {
            let why = "none of the token's roles is one that this gateway lets in";
            return Err(Refused::Unfit(why.into()));
        }
        let name = Some(shown(&project.name)).filter(|n| !n.is_empty());
        let who = Who {
            name: name.unwrap_or_else(|| project.id.clone()),
            project: project.id,
            user: Some(token.user.id).filter(|id| check_name(id).is_ok()),
            admin,
        };
        Ok((who, ends))
    }
}
