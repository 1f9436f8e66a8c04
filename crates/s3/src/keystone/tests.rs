//! What is heard of a Keystone that is played here, and for how long it goes on.

use super::*;
use crate::fake::{Hand, Seeded};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use hyper::HeaderMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// 2026-11-26T16:00:00Z.
const BEGIN: u64 = 1_795_708_800_000;
const PROJECT: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";
const USER: &str = "00000000000000000000000000000001";
const ACCESS: &str = "an-access-key";
const SECRET: &str = "a-secret";

/// What it does, and what it was asked.
#[derive(Default)]
struct Played {
    /// Nobody answers.
    away: AtomicBool,
    /// Questions about tokens that begin so are cut off.
    cuts: AtomicBool,
    /// The gateway's tokens that were given out are good for nothing.
    forgets: AtomicBool,
    asked: AtomicUsize,
    logins: AtomicUsize,
    checks: AtomicUsize,
    reads: AtomicUsize,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    roles: Mutex<Vec<&'static str>>,
    project: Mutex<Value>,
    /// The user is not let in any more.
    barred: AtomicBool,
    /// What the key's record says of it.
    kind: Mutex<&'static str>,
    kept_project: Mutex<&'static str>,
    expires: Mutex<String>,
}

impl Played {
    fn shared() -> Arc<Self> {
        Arc::new(Self {
            roles: Mutex::new(vec!["reader", "Member"]),
            project: Mutex::new(serde_json::json!({"id": PROJECT, "name": "demo"})),
            kind: Mutex::new("ec2"),
            kept_project: Mutex::new(PROJECT),
            expires: Mutex::new("2026-11-26T17:00:00.000000Z".into()),
            ..Self::default()
        })
    }

    fn token(&self) -> Value {
        let roles = lock(&self.roles);
        let roles: Vec<Value> = roles
            .iter()
            .map(|r| serde_json::json!({"id": "x", "name": r}))
            .collect();
        serde_json::json!({"token": {
            "methods": ["password"], "user": {"id": USER, "name": "u"}, "project": *lock(&self.project),
            "roles": roles, "expires_at": *lock(&self.expires),
        }})
    }

    fn answer(&self, request: &Request) -> (u16, Value) {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(n, _)| *n == name);
            found.map_or("", |(_, v)| v.as_str())
        };
        let count = |n: &AtomicUsize| n.fetch_add(1, Ordering::Relaxed);
        if request.method == Method::POST && request.path == wire::TOKENS {
            let n = count(&self.logins) + 1;
            self.forgets.store(false, Ordering::Relaxed);
            let said: Value = serde_json::from_str(&request.body).unwrap();
            let password = &said["auth"]["identity"]["password"]["user"]["password"];
            assert_eq!(said["auth"]["scope"]["project"]["name"], "service");
            return match *password == "word" {
                true => (
                    201,
                    serde_json::json!({"own": format!("own-{n}"), "token": self.token()["token"]}),
                ),
                false => (401, Value::Null),
            };
        }
        let own = format!("own-{}", self.logins.load(Ordering::Relaxed));
        if header("x-auth-token") != own || self.forgets.load(Ordering::Relaxed) {
            return (401, Value::Null);
        }
        if request.path == wire::TOKENS {
            count(&self.checks);
            return match header("x-subject-token").starts_with("good") {
                true => (200, self.token()),
                false => (404, Value::Null),
            };
        }
        if request.path == wire::S3_TOKENS {
            count(&self.checks);
            let said: Value = serde_json::from_str(&request.body).unwrap();
            let of = &said["credentials"];
            let text = URL_SAFE.decode(of["token"].as_str().unwrap()).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with("AWS4-HMAC-SHA256\n20261126T"), "{text}");
            assert_eq!(of["access"], ACCESS);
            assert_eq!(of["signature"].as_str().unwrap().len(), 64);
            return match self.barred.load(Ordering::Relaxed) {
                false => (200, self.token()),
                true => (401, Value::Null),
            };
        }
        count(&self.reads);
        match request.path == wire::credential(ACCESS) {
            true => {
                let blob = serde_json::json!({"access": ACCESS, "secret": SECRET}).to_string();
                let (kind, project) = (*lock(&self.kind), *lock(&self.kept_project));
                let of = serde_json::json!({"type": kind, "blob": blob, "project_id": project});
                (200, serde_json::json!({"credential": of}))
            }
            false => (404, Value::Null),
        }
    }
}

#[async_trait::async_trait]
impl Peer for Arc<Played> {
    async fn ask(&self, request: Request) -> Result<Answer, Failed> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let now = self.at_once.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(now, Ordering::Relaxed);
        for _ in 0..20 {
            task::yield_now().await;
        }
        self.at_once.fetch_sub(1, Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Err(Failed::Unreached("nobody answers".into()));
        }
        let cut = request.headers.iter().any(|(_, v)| v.starts_with("cut"));
        if cut && self.cuts.load(Ordering::Relaxed) {
            return Err(Failed::Unanswered("it was cut off".into()));
        }
        let (status, said) = self.answer(&request);
        let mut headers = HeaderMap::new();
        if let Some(own) = said["own"].as_str() {
            headers.insert("x-subject-token", own.parse().unwrap());
        }
        Ok(Answer {
            status,
            headers,
            body: Bytes::from(said.to_string()),
        })
    }
}

struct Stage {
    played: Arc<Played>,
    hand: Arc<Hand>,
    keystone: Keystone,
}

impl Stage {
    fn new(more: &str) -> Self {
        let text = format!("url = http://id:5000\nuser = skep\npassword = word\nproject = service\n{more}");
        let settings = Settings::parse(&text, |_| Err("no files here".into())).unwrap();
        let (played, hand) = (Played::shared(), Arc::new(Hand::default()));
        *hand.0.lock().unwrap() = Duration::from_millis(BEGIN);
        let clock = Clock::new(hand.clone(), Seeded::shared(1));
        let keystone = Keystone::with(settings, Box::new(played.clone()), clock);
        Self {
            played,
            hand,
            keystone,
        }
    }

    fn later(&self, ms: u64) {
        *self.hand.0.lock().unwrap() += Duration::from_millis(ms);
    }

    fn counts(&self) -> (usize, usize, usize) {
        let of = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        (
            of(&self.played.logins),
            of(&self.played.checks),
            of(&self.played.reads),
        )
    }
}

fn run(of: impl Future<Output = ()>) {
    task::block_on(of).unwrap();
}

fn who() -> Who {
    Who {
        project: PROJECT.into(),
        name: "demo".into(),
        user: Some(USER.into()),
        admin: false,
    }
}

#[test]
fn tokens_are_asked_about_once_in_a_while() {
    run(async {
        let stage = Stage::new("");
        let keystone = &stage.keystone;
        assert_eq!(keystone.token("good").await, Ok(who()));
        assert_eq!(keystone.token("good").await, Ok(who()));
        assert_eq!(stage.counts(), (1, 1, 0));
        assert_eq!(keystone.token("bad").await, Err(Refused::Unknown));
        assert_eq!(keystone.token("bad").await, Err(Refused::Unknown));
        assert_eq!(stage.counts(), (1, 2, 0), "a refusal is remembered, too");
        stage.later(REFUSED_FOR);
        assert_eq!(keystone.token("bad").await, Err(Refused::Unknown));
        assert_eq!(keystone.token("good").await, Ok(who()));
        assert_eq!(stage.counts(), (1, 3, 0));
        stage.later(300_000);
        assert_eq!(keystone.token("good").await, Ok(who()));
        assert_eq!(stage.counts(), (1, 4, 0), "the log-in holds still");
        // What cannot be a token is not asked about.
        for bad in ["", "a b", "a\n", "\u{e9}", "a/b", &"x".repeat(TOKEN_MAX + 1)] {
            assert_eq!(keystone.token(bad).await, Err(Refused::Unknown));
        }
        assert_eq!(stage.counts(), (1, 4, 0));
    });
}

#[test]
fn no_token_holds_beyond_its_end() {
    run(async {
        let stage = Stage::new("cache_seconds = 3600");
        *lock(&stage.played.expires) = "2026-11-26T16:01:40.000000Z".into();
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
        stage.later(99_999);
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
        assert_eq!(stage.counts().1, 1);
        stage.later(1);
        // Also where nobody can be asked.
        stage.played.away.store(true, Ordering::Relaxed);
        assert!(matches!(
            stage.keystone.token("good").await,
            Err(Refused::Away(_))
        ));
        stage.played.away.store(false, Ordering::Relaxed);
        stage.later(QUIET);
        assert_eq!(stage.keystone.token("good").await, Err(Refused::Unknown));
    });
}

#[test]
fn the_own_token_is_renewed_before_its_end_and_when_it_is_refused() {
    run(async {
        let stage = Stage::new("cache_seconds = 0");
        let ask = || stage.keystone.token("good");
        assert_eq!(ask().await, Ok(who()));
        stage.later(59 * 60_000 - 1);
        assert_eq!(ask().await, Ok(who()));
        assert_eq!(stage.counts().0, 1);
        stage.later(1);
        *lock(&stage.played.expires) = "2026-11-26T18:00:00.000000Z".into();
        assert_eq!(ask().await, Ok(who()));
        assert_eq!(stage.counts().0, 2);
        stage.later(QUIET_REFUSED);
        stage.played.forgets.store(true, Ordering::Relaxed);
        assert_eq!(ask().await, Ok(who()));
        assert_eq!(stage.counts().0, 3);
        // One that is refused at once does not make it log in again and again.
        stage.played.forgets.store(true, Ordering::Relaxed);
        for n in 0..5 {
            let refused = stage.keystone.token(&format!("good-{n}")).await;
            assert!(matches!(refused, Err(Refused::Away(_))));
        }
        assert_eq!(stage.counts().0, 3);
    });
}

#[test]
fn a_wrong_password_is_not_tried_again_and_again() {
    run(async {
        let stage = Stage::new("user_domain = x");
        let text = "url = http://id\nuser = skep\npassword = wrong\nproject = service";
        let settings = Settings::parse(text, |_| Err(String::new())).unwrap();
        let clock = Clock::new(stage.hand.clone(), Seeded::shared(1));
        let keystone = Keystone::with(settings, Box::new(stage.played.clone()), clock);
        for n in 0..10 {
            let refused = keystone.token(&format!("good{n}")).await;
            assert!(matches!(refused, Err(Refused::Away(_))), "{refused:?}");
        }
        assert_eq!(stage.counts(), (1, 0, 0));
        stage.later(QUIET_REFUSED);
        assert!(keystone.token("good").await.is_err());
        assert_eq!(stage.counts(), (2, 0, 0));
    });
}

#[test]
fn what_is_known_goes_on_where_nobody_answers() {
    run(async {
        let stage = Stage::new("ec2 = true");
        *lock(&stage.played.expires) = "2026-11-27T16:00:00.000000Z".into();
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
        let key = stage.keystone.key(ACCESS).await.unwrap();
        stage.played.away.store(true, Ordering::Relaxed);
        stage.later(301_000);
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
        assert_eq!(stage.keystone.key(ACCESS).await, Ok(key));
        for other in ["good2", "bad"] {
            let refused = stage.keystone.token(other).await;
            assert!(matches!(refused, Err(Refused::Away(_))), "{refused:?}");
        }
        assert!(matches!(stage.keystone.key("other").await, Err(Refused::Away(_))));
        // It was away, and is asked again after a while.
        stage.played.away.store(false, Ordering::Relaxed);
        assert!(stage.keystone.token("good2").await.is_err());
        stage.later(QUIET);
        assert_eq!(stage.keystone.token("good2").await, Ok(who()));
        stage.played.away.store(true, Ordering::Relaxed);
        stage.later(AWAY_MAX);
        let refused = stage.keystone.token("good").await;
        assert!(
            matches!(refused, Err(Refused::Away(_))),
            "not for longer than an hour"
        );
    });
}

#[test]
fn who_is_let_in() {
    run(async {
        let stage = Stage::new("cache_seconds = 0\naccepted_roles = Member\nadmin_roles = reseller");
        let of = async |roles: &[&'static str], project: Value| {
            *lock(&stage.played.roles) = roles.to_vec();
            *lock(&stage.played.project) = project;
            stage.later(REFUSED_FOR);
            stage.keystone.token("good").await
        };
        let demo = serde_json::json!({"id": PROJECT, "name": "demo\n2"});
        let member = of(&["member"], demo.clone()).await.unwrap();
        assert_eq!((member.name.as_str(), member.admin), ("demo2", false));
        assert!(of(&["x", "reseller"], demo.clone()).await.unwrap().admin);
        for roles in [&["reader"][..], &[], &["memb", "members"], &["Reseller"]] {
            assert!(matches!(of(roles, demo.clone()).await, Err(Refused::Unfit(_))));
        }
        // Neither a domain's nor one whose name is that of a user who was made here.
        for project in [
            Value::Null,
            serde_json::json!({"id": "default", "name": "x"}),
            serde_json::json!({"id": "alice", "name": "x"}),
            serde_json::json!({"id": PROJECT.to_uppercase(), "name": "x"}),
        ] {
            let refused = of(&["member"], project).await;
            assert!(matches!(refused, Err(Refused::Unfit(_))), "{refused:?}");
        }
    });
}

#[test]
fn keys_are_whose_keystone_says() {
    run(async {
        let stage = Stage::new("ec2 = true");
        let key = stage.keystone.key(ACCESS).await.unwrap();
        assert_eq!((key.secret.as_str(), key.who), (SECRET, who()));
        assert!(stage.keystone.key(ACCESS).await.is_ok());
        assert_eq!(stage.counts(), (1, 1, 1));
        assert_eq!(stage.keystone.key("other").await, Err(Refused::Unknown));
        assert_eq!(stage.keystone.key("other").await, Err(Refused::Unknown));
        assert_eq!(stage.counts(), (1, 1, 2));
        for bad in ["", "a b", &"x".repeat(ACCESS_MAX + 1)] {
            assert_eq!(stage.keystone.key(bad).await, Err(Refused::Unknown));
        }
        // A user who is barred is out when it is asked again.
        stage.played.barred.store(true, Ordering::Relaxed);
        stage.later(300_000);
        assert_eq!(stage.keystone.key(ACCESS).await, Err(Refused::Unknown));
        stage.played.away.store(true, Ordering::Relaxed);
        stage.later(REFUSED_FOR);
        assert!(
            matches!(stage.keystone.key(ACCESS).await, Err(Refused::Away(_))),
            "and it is not let in again by what was known before"
        );
    });
}

#[test]
fn keys_that_are_something_else_are_none() {
    run(async {
        let stage = Stage::new("ec2 = true\ncache_seconds = 0");
        *lock(&stage.played.kind) = "totp";
        assert_eq!(stage.keystone.key(ACCESS).await, Err(Refused::Unknown));
        *lock(&stage.played.kind) = "ec2";
        *lock(&stage.played.kept_project) = OTHER;
        stage.later(REFUSED_FOR);
        assert_eq!(stage.keystone.key(ACCESS).await, Err(Refused::Unknown));
        let off = Stage::new("");
        assert_eq!(off.keystone.key(ACCESS).await, Err(Refused::Unknown));
        assert_eq!(off.counts(), (0, 0, 0));
    });
}

#[test]
fn what_is_limited_to_some_requests_is_refused() {
    let token = |rules: Value| {
        let said = serde_json::json!({
            "expires_at": "", "user": {"id": "u"}, "application_credential": {"id": "x", "access_rules": rules},
        });
        serde_json::from_value::<wire::Token>(said).unwrap().is_limited()
    };
    assert!(token(serde_json::json!([{"path": "/v3", "method": "GET"}])));
    assert!(!token(Value::Null) && !token(serde_json::json!([])));
}

#[test]
fn one_question_that_fails_silences_no_other() {
    run(async {
        let stage = Stage::new("");
        stage.played.cuts.store(true, Ordering::Relaxed);
        for n in 0..10 {
            let cut = stage.keystone.token(&format!("cut{n}")).await;
            assert!(matches!(cut, Err(Refused::Away(_))));
            assert_eq!(stage.keystone.token(&format!("good{n}")).await, Ok(who()));
        }
        // Several in a row do, for a while.
        for n in 0..FAILURES {
            stage.keystone.token(&format!("cut{n}")).await.unwrap_err();
        }
        assert!(matches!(
            stage.keystone.token("good").await,
            Err(Refused::Away(_))
        ));
        stage.later(QUIET);
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
    });
}

#[test]
fn a_flood_lets_nobody_in_for_longer() {
    run(async {
        let stage = Stage::new("");
        *lock(&stage.played.expires) = "2026-11-27T16:00:00.000000Z".into();
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
        // All places are taken.
        let taken = stage
            .keystone
            .0
            .rooms
            .iter()
            .map(|r| r.try_acquire_many(AT_ONCE as u32).unwrap());
        let taken: Vec<_> = taken.collect();
        stage.keystone.0.waiting.store(WAITING_MAX, Ordering::Relaxed);
        assert_eq!(stage.keystone.token("new").await, Err(Refused::Busy));
        stage.later(300_000 + GRACE - 1);
        assert_eq!(stage.keystone.token("good").await, Ok(who()), "for a moment");
        stage.later(1);
        assert_eq!(stage.keystone.token("good").await, Err(Refused::Busy));
        assert_eq!(stage.keystone.0.waiting.load(Ordering::Relaxed), WAITING_MAX);
        drop(taken);
        stage.keystone.0.waiting.store(0, Ordering::Relaxed);
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
    });
}

#[test]
fn after_a_quiet_one_asks_for_all() {
    run(async {
        let stage = Stage::new("");
        stage.played.away.store(true, Ordering::Relaxed);
        stage.keystone.token("good").await.unwrap_err();
        stage.later(QUIET);
        stage.played.away.store(false, Ordering::Relaxed);
        stage.keystone.may_ask().unwrap();
        let refused = stage.keystone.token("good").await;
        assert!(matches!(refused, Err(Refused::Away(_))), "another asks");
        // And if that one never comes back.
        stage.later(PROBE);
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
        assert_eq!(stage.keystone.token("good2").await, Ok(who()));
    });
}

#[test]
fn many_ask_few_at_once() {
    run(async {
        let stage = Stage::new("");
        let asking: Vec<_> = (0..200)
            .map(|n| {
                let keystone = stage.keystone.clone();
                task::spawn_local(async move { keystone.token(&format!("good-{}", n % 100)).await })
            })
            .collect();
        for asked in asking {
            assert_eq!(asked.await.unwrap(), Ok(who()));
        }
        let most = stage.played.most_at_once.load(Ordering::Relaxed);
        assert!(most <= AT_ONCE, "{most}");
        assert_eq!(stage.counts().0, 1, "one log-in");
    });
}

#[test]
fn who_wants_to_know_the_same_waits_for_one_answer() {
    run(async {
        let stage = Stage::new("cache_seconds = 0\nec2 = true");
        let ask = |what: &'static str| {
            let asking = (0..50).map(|_| {
                let keystone = stage.keystone.clone();
                task::spawn_local(async move {
                    match what {
                        ACCESS => keystone.key(what).await.map(|key| key.who),
                        token => keystone.token(token).await,
                    }
                })
            });
            asking.collect::<Vec<_>>()
        };
        for (what, want, counts) in [
            ("good", Ok(who()), (1, 1, 0)),
            // A refusal is one for all who asked.
            ("bad", Err(Refused::Unknown), (1, 2, 0)),
            (ACCESS, Ok(who()), (1, 3, 1)),
        ] {
            for asked in ask(what) {
                assert_eq!(asked.await.unwrap(), want, "{what}");
            }
            assert_eq!(stage.counts(), counts, "{what}");
        }
        // Nothing is remembered of it here: the next one asks anew.
        assert_eq!(stage.keystone.token("good").await, Ok(who()));
        assert_eq!(stage.counts(), (1, 4, 1));
        assert_eq!(stage.keystone.0.following.load(Ordering::Relaxed), 0);
        // One answer that does not come is none for all of them, asked for once.
        let asked = || stage.played.asked.load(Ordering::Relaxed);
        let before = asked();
        stage.played.away.store(true, Ordering::Relaxed);
        for asked in ask("good2") {
            assert!(matches!(asked.await.unwrap(), Err(Refused::Away(_))));
        }
        assert_eq!(asked() - before, 1);
    });
}

#[test]
fn who_waits_for_others_answers_has_a_bound_too() {
    run(async {
        let stage = Stage::new("");
        let Joined::Asks(asking) = stage.keystone.0.tokens.flights.join(name_of(b"token\0", "good")) else {
            panic!("nobody asks")
        };
        stage.keystone.0.following.store(FOLLOWING_MAX, Ordering::Relaxed);
        assert_eq!(stage.keystone.token("good").await, Err(Refused::Busy));
        assert_eq!(stage.keystone.0.following.load(Ordering::Relaxed), FOLLOWING_MAX);
        // Who asked goes: another asks in its place.
        stage.keystone.0.following.store(0, Ordering::Relaxed);
        let keystone = stage.keystone.clone();
        let waits = task::spawn_local(async move { keystone.token("good").await });
        for _ in 0..20 {
            task::yield_now().await;
        }
        assert_eq!(stage.counts(), (0, 0, 0));
        drop(asking);
        assert_eq!(waits.await.unwrap(), Ok(who()));
        assert_eq!(stage.counts(), (1, 1, 0));
    });
}
