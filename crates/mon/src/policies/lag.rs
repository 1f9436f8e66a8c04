//! Whether clients are well served here: a monitor that has lost the cluster state while another one follows it sends its
//! clients there.
//!
//! Vocabulary: a monitor *follows* while the cluster state answers it, and is *behind* since it did last. Its *stance* is
//! what it does with clients: *serving* them; *hesitating*, when it is behind and cannot know whether others are; or *away*,
//! when another one follows.
//!
//! Who is away ends every client's session and lets in none but monitors. Who hesitates ends the sessions of before once
//! and answers new connections late: a client that tries several monitors at once gets to one that follows, if it reaches
//! one, and here if it does not. When all that there are say that they are behind too, everything stays as it is: they know
//! what was known last, and none knows more.
//!
//! Invariant: one monitor alone always serves. Does not ask (`others`), nor close anything (`serve`).

use auth::{AuthError, AuthMethod, Authenticator, ConMode, KeyServer, Pending, Step};
use bytes::Bytes;
use denc::Reader;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::{AuthName, EntityKind};

/// Behind for so long: the others are asked. Longer than an election of etcd's leader takes.
pub const BEHIND_AFTER: Duration = Duration::from_secs(6);
/// Who was answered by the cluster state within this time follows it. Well below [`BEHIND_AFTER`]: when all lose it at the
/// same time, nobody takes another for one that follows.
pub const FOLLOWS_WITHIN: Duration = Duration::from_secs(3);
/// Time between two rounds of questions.
pub const ASK_EVERY: Duration = Duration::from_secs(3);
/// What one that hesitates waits before it answers a new connection. Less than the 3 s after which clients give up on those
/// whom they try (`mon_client_hunt_interval`).
pub const HESITATION: Duration = Duration::from_secs(1);

/// What another monitor says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Follows,
    Behind,
    /// Nothing: it is not there, or cannot be reached from here.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stance {
    #[default]
    Serving,
    Hesitating,
    /// These follow.
    Away(Vec<String>),
}

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub stance: Stance,
    /// End the sessions of all clients.
    pub dismiss: bool,
}

/// The words of the others, by name.
pub type Words = BTreeMap<String, Word>;

fn judge(words: &Words) -> Stance {
    let of = |word: Word| words.iter().filter(move |(_, w)| **w == word);
    let follow: Vec<String> = of(Word::Follows).map(|(name, _)| name.clone()).collect();
    if !follow.is_empty() {
        return Stance::Away(follow);
    }
    match of(Word::Silent).count() {
        0 => Stance::Serving,
        _ => Stance::Hesitating,
    }
}

#[derive(Debug)]
pub struct LagWatch {
    /// When the cluster state answered last.
    contact: Duration,
    asked: Option<Duration>,
    stance: Stance,
    /// The sessions of before this outage were ended.
    dismissed: bool,
}

impl LagWatch {
    pub fn new(now: Duration) -> Self {
        Self {
            contact: now,
            asked: None,
            stance: Stance::Serving,
            dismissed: false,
        }
    }

    pub fn stance(&self) -> &Stance {
        &self.stance
    }

    pub fn behind(&self, now: Duration) -> Duration {
        now.saturating_sub(self.contact)
    }

    /// The cluster state has answered.
    pub fn followed(&mut self, now: Duration) -> Option<Turn> {
        self.contact = now;
        self.dismissed = false;
        self.asked = None;
        self.turn(Stance::Serving)
    }

    /// Whether the others are to be asked now; remembers that they are.
    pub fn asks(&mut self, now: Duration) -> bool {
        let due = self.asked.is_none_or(|at| now >= at + ASK_EVERY);
        let asks = self.behind(now) >= BEHIND_AFTER && due;
        if asks {
            self.asked = Some(now);
        }
        asks
    }

    /// What the others said to that.
    pub fn heard(&mut self, now: Duration, words: &Words) -> Option<Turn> {
        match self.behind(now) >= BEHIND_AFTER {
            true => self.turn(judge(words)),
            // It has come back meanwhile.
            false => None,
        }
    }

    fn turn(&mut self, stance: Stance) -> Option<Turn> {
        if stance == self.stance {
            return None;
        }
        let dismiss = match &stance {
            Stance::Serving => false,
            Stance::Hesitating => !self.dismissed,
            Stance::Away(_) => true,
        };
        self.dismissed |= dismiss;
        self.stance = stance.clone();
        Some(Turn { stance, dismiss })
    }
}

/// Who may log in: the key server, which can be closed to all but monitors, who ask each other how
/// they are. A closed one ends the connection without a word, so that its client tries another monitor at once.
pub struct Admission {
    keys: Arc<KeyServer>,
    shut: AtomicBool,
}

impl Admission {
    pub fn new(keys: Arc<KeyServer>) -> Self {
        Self {
            keys,
            shut: AtomicBool::new(false),
        }
    }

    pub fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::Relaxed);
    }

    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed)
    }
}

/// Whom the first payload of a handshake claims to be from (proven later, if at all). None: it cannot be read.
fn claimed(payload: &Bytes) -> Option<AuthName> {
    let mut r = Reader::new(payload.clone());
    r.u8().ok()?;
    r.get().ok()
}

impl Admission {
    fn admit(&self, payload: &Bytes) -> Result<(), AuthError> {
        let is_mon = |name: AuthName| name.kind == EntityKind::Mon;
        match self.is_shut() && !claimed(payload).is_some_and(is_mon) {
            true => Err(AuthError::Elsewhere(
                "another monitor follows the cluster state".into(),
            )),
            false => Ok(()),
        }
    }
}

impl Authenticator for Admission {
    fn methods(&self) -> &[AuthMethod] {
        self.keys.methods()
    }

    fn modes(&self) -> &[ConMode] {
        self.keys.modes()
    }

    fn start(
        &self,
        method: AuthMethod,
        mode: ConMode,
        payload: &Bytes,
        cx: &auth::Context,
    ) -> Result<Step, AuthError> {
        self.admit(payload)?;
        self.keys.start(method, mode, payload, cx)
    }

    fn start_v1(
        &self,
        method: AuthMethod,
        payload: &Bytes,
        cx: &auth::Context,
    ) -> Result<(u64, Step), AuthError> {
        self.admit(payload)?;
        self.keys.start_v1(method, payload, cx)
    }

    fn resume(&self, pending: Pending, payload: &Bytes, cx: &auth::Context) -> Result<Step, AuthError> {
        self.keys.resume(pending, payload, cx)
    }
}

/// Where the answer says for how many milliseconds the monitor has been behind.
const BEHIND: &str = "skep_behind_ms";

/// What an answer to PING says of that, as JSON fields.
pub fn said(behind: Duration) -> (&'static str, serde_json::Value) {
    (BEHIND, (behind.as_millis() as u64).into())
}

pub fn word_of(text: &str) -> Word {
    let said: Option<u64> = serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .and_then(|v| v[BEHIND].as_u64());
    match said {
        Some(ms) if Duration::from_millis(ms) <= FOLLOWS_WITHIN => Word::Follows,
        // One that does not say it is none of ours.
        _ => Word::Behind,
    }
}

#[cfg(test)]
mod tests {
    use super::Word::*;
    use super::*;

    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn words(list: &[Word]) -> Words {
        list.iter()
            .enumerate()
            .map(|(i, w)| (format!("m{i}"), *w))
            .collect()
    }

    fn away(names: &[&str]) -> Stance {
        Stance::Away(names.iter().map(|n| n.to_string()).collect())
    }

    /// What a monitor that serves does once it is behind and has heard this.
    fn check(list: &[Word], want: Option<(Stance, bool)>) {
        let mut s = LagWatch::new(at(0));
        let turn = s.heard(at(6), &words(list));
        assert_eq!(turn.map(|t| (t.stance, t.dismiss)), want, "{list:?}");
    }

    #[test]
    fn clients_are_sent_away_only_to_one_that_follows() {
        check(&[], None);
        check(&[Behind], None);
        check(&[Behind, Behind], None);
        check(&[Silent], Some((Stance::Hesitating, true)));
        check(&[Behind, Silent], Some((Stance::Hesitating, true)));
        check(&[Follows, Behind, Silent], Some((away(&["m0"]), true)));
        check(&[Silent, Follows], Some((away(&["m1"]), true)));
    }

    #[test]
    fn an_outage_from_its_beginning_to_its_end() {
        let mut s = LagWatch::new(at(100));
        assert!(!s.asks(at(105)));
        assert!(s.asks(at(106)) && !s.asks(at(108)) && s.asks(at(109)));
        // Nobody can be asked: those who are here try once whether they get to another one, and may come back.
        let turn = s.heard(at(109), &words(&[Silent])).unwrap();
        assert_eq!((turn.stance, turn.dismiss), (Stance::Hesitating, true));
        assert_eq!(s.heard(at(112), &words(&[Silent])), None, "nothing new");
        assert_eq!(
            s.heard(at(115), &words(&[Behind])).unwrap().stance,
            Stance::Serving
        );
        let again = s.heard(at(118), &words(&[Silent])).unwrap();
        assert!(!again.dismiss, "once in an outage");
        assert_eq!(
            s.heard(at(121), &words(&[Follows])).unwrap().stance,
            away(&["m0"])
        );
        assert_eq!(s.followed(at(122)).unwrap().stance, Stance::Serving);
        assert_eq!(s.behind(at(123)), at(1));
        assert_eq!(
            s.heard(at(123), &words(&[Follows])),
            None,
            "an answer that came too late"
        );
        // The next outage is one of its own.
        assert!(s.asks(at(128)) && s.heard(at(128), &words(&[Silent])).unwrap().dismiss);
    }

    #[test]
    fn closed_to_clients_it_lets_monitors_in() {
        let random = io::SystemRandom;
        let entropy = |buf: &mut [u8]| io::Random::fill(&random, buf);
        let cx = auth::Context {
            now: types::Utime::ZERO,
            entropy: &entropy,
        };
        let keys = KeyServer::new(Default::default(), auth::KeyDb::default(), Default::default());
        let admission = Admission::new(Arc::new(keys));
        let knock = |kind: EntityKind| {
            let mut w = denc::Writer::new();
            w.u8(10);
            w.put(&AuthName::new(kind, "x"));
            w.u64(0);
            admission.start(AuthMethod::Cephx, ConMode::Crc, &w.finish(), &cx)
        };
        assert!(knock(EntityKind::Client).is_ok());
        admission.shut(true);
        assert!(matches!(knock(EntityKind::Client), Err(AuthError::Elsewhere(_))));
        assert!(knock(EntityKind::Mon).is_ok());
        let garbage = admission.start(
            AuthMethod::Cephx,
            ConMode::Crc,
            &Bytes::from_static(&[10, 1]),
            &cx,
        );
        assert!(matches!(garbage, Err(AuthError::Elsewhere(_))));
        admission.shut(false);
        assert!(knock(EntityKind::Client).is_ok());
    }
}
