//! Who has logged in: in memory alone, bounded in number and time.
//!
//! A cookie has a name, by which the session is found, and a secret, which is compared in a time that says nothing of it. A form has
//! the session's token besides, which no other site can know.
//!
//! Bounds: [`SESSIONS_MAX`] sessions, [`PER_ENTITY`] of one entity (one more ends that entity's longest idle one), each for
//! [`IDLE_MAX`] without a request and [`LIFE_MAX`] in all. Nobody is shut out by others: where all places are taken, the longest
//! idle session of the entity that has most of them ends.

use io::Random;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use types::AuthName;

pub const SESSIONS_MAX: usize = 32;
pub const PER_ENTITY: usize = 8;
pub const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
pub const LIFE_MAX: Duration = Duration::from_secs(12 * 3600);
const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;

type Name = [u8; NAME_BYTES];

/// One session, and what belongs to it.
#[derive(Debug)]
pub struct Session<T> {
    pub entity: AuthName,
    pub csrf: String,
    pub of: T,
    secret: [u8; SECRET_BYTES],
    began: Duration,
}

impl<T> Session<T> {
    pub fn has_token(&self, given: &str) -> bool {
        self.csrf.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

#[derive(Debug)]
pub struct Sessions<T> {
    /// With the time of the last request.
    all: HashMap<Name, (Duration, Rc<Session<T>>)>,
}

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self { all: HashMap::new() }
    }
}

fn split(cookie: &str) -> Option<(Name, [u8; SECRET_BYTES])> {
    let (name, secret) = cookie.split_at_checked(2 * NAME_BYTES)?;
    let (mut n, mut s) = ([0; NAME_BYTES], [0; SECRET_BYTES]);
    hex::decode_to_slice(name, &mut n).ok()?;
    hex::decode_to_slice(secret, &mut s).ok()?;
    Some((n, s))
}

impl<T> Sessions<T> {
    /// The cookie of a new session.
    pub fn begin(&mut self, entity: AuthName, of: T, now: Duration, random: &dyn Random) -> String {
        self.end_old(now);
        if self.of(&entity) >= PER_ENTITY {
            self.end_idle(|_, s| s.entity == entity);
        }
        if self.all.len() >= SESSIONS_MAX {
            let most = self.all.values().map(|(_, s)| self.of(&s.entity)).max();
            self.end_idle(|all, s| Some(all.of(&s.entity)) == most);
        }
        let (name, secret): (Name, [u8; SECRET_BYTES]) = (random.bytes(), random.bytes());
        let session = Session {
            entity,
            csrf: hex::encode(random.bytes::<SECRET_BYTES>()),
            of,
            secret,
            began: now,
        };
        self.all.insert(name, (now, Rc::new(session)));
        hex::encode(name) + &hex::encode(secret)
    }

    /// Sessions of an entity.
    fn of(&self, entity: &AuthName) -> usize {
        self.all.values().filter(|(_, s)| s.entity == *entity).count()
    }

    /// Ends the longest idle one of those that `may` end.
    fn end_idle(&mut self, may: impl Fn(&Self, &Session<T>) -> bool) {
        let those = self.all.iter().filter(|(_, (_, s))| may(self, s));
        let idle = those.min_by_key(|(_, (used, _))| *used).map(|(n, _)| *n);
        idle.and_then(|n| self.all.remove(&n));
    }

    /// The session of a cookie. `awake`: a person asks, not a page by itself.
    pub fn find(&mut self, cookie: &str, now: Duration, awake: bool) -> Option<Rc<Session<T>>> {
        self.end_old(now);
        let (name, secret) = split(cookie)?;
        let (used, session) = self.all.get_mut(&name)?;
        if !bool::from(session.secret.ct_eq(&secret)) {
            return None;
        }
        if awake {
            *used = now;
        }
        Some(session.clone())
    }

    pub fn end(&mut self, cookie: &str) {
        if let Some((name, _)) = split(cookie) {
            self.all.remove(&name);
        }
    }

    /// That of the last request: whoever asked it may still ask.
    pub fn latest(&self) -> Option<Rc<Session<T>>> {
        let latest = self.all.values().max_by_key(|(used, _)| *used);
        latest.map(|(_, s)| s.clone())
    }

    /// Ends those that are no longer wanted.
    pub fn retain(&mut self, keep: impl Fn(&Session<T>) -> bool) {
        self.all.retain(|_, (_, s)| keep(s));
    }

    pub fn end_old(&mut self, now: Duration) {
        self.all.retain(|_, (used, s)| {
            now.saturating_sub(*used) < IDLE_MAX && now.saturating_sub(s.began) < LIFE_MAX
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::SystemRandom;
    use types::EntityKind;

    fn who(id: &str) -> AuthName {
        AuthName::new(EntityKind::Client, id)
    }

    const fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn begin(all: &mut Sessions<u32>, id: &str, now: Duration) -> String {
        all.begin(who(id), 7, now, &SystemRandom)
    }

    #[test]
    fn a_cookie_finds_its_session_and_no_other_does() {
        let mut all = Sessions::default();
        let cookie = begin(&mut all, "a", at(0));
        let other = begin(&mut all, "b", at(0));
        assert_eq!(all.find(&cookie, at(1), true).unwrap().entity, who("a"));
        let mixed = format!("{}{}", &cookie[..32], &other[32..]);
        for wrong in [
            "",
            "zz",
            &cookie[..32],
            &mixed,
            &"0".repeat(96),
            "é".repeat(48).as_str(),
        ] {
            assert!(all.find(wrong, at(1), true).is_none(), "{wrong}");
        }
        all.end(&cookie);
        assert!(all.find(&cookie, at(1), true).is_none());
        assert!(all.find(&other, at(1), true).is_some());
    }

    #[test]
    fn tokens_are_each_sessions_own() {
        let mut all = Sessions::default();
        let [a, b] = ["a", "a"].map(|id| begin(&mut all, id, at(0)));
        let (a, b) = (
            all.find(&a, at(0), true).unwrap(),
            all.find(&b, at(0), true).unwrap(),
        );
        assert!(a.has_token(&a.csrf) && !a.has_token(&b.csrf) && !a.has_token(""));
    }

    #[test]
    fn sessions_end_when_nobody_uses_them_and_after_their_life() {
        let mut all = Sessions::default();
        let idle = begin(&mut all, "a", at(0));
        let idle_max = IDLE_MAX.as_secs();
        // A page that stays open keeps nobody logged in.
        assert!(all.find(&idle, at(idle_max - 1), false).is_some());
        assert!(all.find(&idle, at(idle_max), false).is_none());
        let used = begin(&mut all, "a", at(0));
        let mut now = 0;
        while now + idle_max / 2 < LIFE_MAX.as_secs() {
            now += idle_max / 2;
            assert!(all.find(&used, at(now), true).is_some(), "{now}");
        }
        assert!(all.find(&used, LIFE_MAX, true).is_none());
    }

    #[test]
    fn sessions_are_bounded() {
        let mut all = Sessions::default();
        let first = begin(&mut all, "a", at(0));
        let second = begin(&mut all, "a", at(1));
        for n in 0..PER_ENTITY as u64 - 1 {
            begin(&mut all, "a", at(2 + n));
        }
        assert_eq!(all.all.len(), PER_ENTITY);
        assert!(
            all.find(&first, at(20), true).is_none(),
            "the longest idle one of that entity ends"
        );
        assert!(all.find(&second, at(20), true).is_some());
    }

    #[test]
    fn the_latest_is_that_of_the_last_request() {
        let mut all = Sessions::default();
        assert!(all.latest().is_none());
        let a = begin(&mut all, "a", at(0));
        begin(&mut all, "b", at(1));
        assert_eq!(all.latest().unwrap().entity, who("b"));
        all.find(&a, at(2), true);
        assert_eq!(all.latest().unwrap().entity, who("a"));
    }

    #[test]
    fn nobody_is_shut_out_by_others() {
        let mut all = Sessions::default();
        let admin = begin(&mut all, "admin", at(0));
        let oldest = begin(&mut all, "a", at(1));
        for n in 0..10 * SESSIONS_MAX {
            begin(&mut all, ["a", "b", "c", "d"][n % 4], at(2));
        }
        assert_eq!(all.all.len(), SESSIONS_MAX);
        let other = begin(&mut all, "other", at(3));
        assert_eq!(all.all.len(), SESSIONS_MAX);
        assert!(all.find(&oldest, at(4), true).is_none());
        for own in [admin, other] {
            assert!(all.find(&own, at(4), true).is_some());
        }
    }
}
