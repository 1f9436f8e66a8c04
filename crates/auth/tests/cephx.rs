//! The handshake against our own client: tickets work at services, ids are reclaimed, lost secrets heal,
//! and every forged step is refused.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::*;
use denc::{Bytes, Decode, Encode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::{AuthName, EntityKind, Errno, Utime};

struct Counter(AtomicU64);

impl Entropy for Counter {
    fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let v = self
                .0
                .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
                .to_le_bytes();
            chunk.copy_from_slice(&v[..chunk.len()]);
        }
    }
}

const NOW: Utime = Utime {
    sec: 1_800_000_000,
    nsec: 0,
};

struct World {
    entropy: Counter,
    server: KeyServer,
}

fn admin() -> AuthName {
    AuthName::new(EntityKind::Client, "admin")
}

impl World {
    fn new(seed: u64) -> Self {
        let entropy = Counter(AtomicU64::new(seed));
        let cx = Context {
            now: NOW,
            entropy: &entropy,
        };
        let config = KeyServerConfig::default();
        let mut secrets = ServiceSecrets::default();
        assert!(secrets.rotate(config.auth_ttl, config.service_ttl, &cx));
        let mut db = KeyDb::default();
        let entity = EntityAuth::new(Self::key())
            .with_cap("mon", "allow *")
            .with_cap("osd", "profile rbd");
        db.entities.insert(admin(), entity);
        let silent = EntityAuth::new(Self::key()).with_cap("osd", "allow *");
        db.entities
            .insert(AuthName::new(EntityKind::Client, "nomon"), silent);
        let server = KeyServer::new(config, db, secrets);
        server.grant_global_ids(4100, 4200);
        Self { entropy, server }
    }

    fn key() -> CryptoKey {
        CryptoKey::new([0x42; 16], NOW)
    }

    fn cx(&self) -> Context<'_> {
        Context {
            now: NOW,
            entropy: &self.entropy,
        }
    }

    fn client(&self) -> CephxClient {
        CephxClient::new(admin(), Self::key())
    }

    fn osd(&self) -> TicketVerifier {
        let modes = vec![ConMode::Crc, ConMode::Secure];
        TicketVerifier::new(
            EntityKind::Osd,
            modes,
            self.server.secrets_for(EntityKind::Osd).unwrap(),
        )
    }

    /// A whole handshake; both sides must agree on the keys.
    fn handshake(
        &self,
        client: &mut CephxClient,
        to: EntityKind,
        server: &dyn Authenticator,
        mode: ConMode,
    ) -> Result<Identity, AuthError> {
        let cx = self.cx();
        let request = client.request(to, &cx)?;
        let Step::More { payload, pending } = server.start(AuthMethod::Cephx, mode, &request, &cx)? else {
            panic!("cephx always has a challenge")
        };
        let answer = client.more(&payload, &cx)?;
        let Step::Done(g) = server.resume(pending, &answer, &cx)? else {
            panic!("cephx has two steps")
        };
        let done = client.done(g.identity.global_id, mode, &g.payload)?;
        let secrets = |k: &Option<CryptoKey>| k.as_ref().map(|k| *k.secret());
        assert_eq!(secrets(&done.session_key), secrets(&g.session_key));
        assert_eq!(done.connection_secret, g.connection_secret);
        assert_eq!(done.connection_secret.is_some(), mode == ConMode::Secure);
        Ok(g.identity)
    }

    fn login(&self, client: &mut CephxClient) -> Result<Identity, AuthError> {
        self.handshake(client, EntityKind::Mon, &self.server, ConMode::Secure)
    }
}

#[test]
fn monitor_then_osd_in_both_modes() {
    let w = World::new(1);
    let mut c = w.client();
    let id = w.login(&mut c).unwrap();
    assert_eq!((id.global_id, &id.name), (4100, &admin()));
    assert_eq!(id.caps.text("mon"), Some("allow *"));
    let osd = w.osd();
    for mode in [ConMode::Crc, ConMode::Secure] {
        let id = w.handshake(&mut c, EntityKind::Osd, &osd, mode).unwrap();
        assert_eq!((id.global_id, id.caps.text("osd")), (4100, Some("profile rbd")));
        assert_eq!(id.caps.text("mon"), None);
    }
}

#[test]
fn ids_are_given_once_and_reclaimed_with_the_ticket() {
    let w = World::new(2);
    let (mut a, mut b) = (w.client(), w.client());
    assert_eq!(w.login(&mut a).unwrap().global_id, 4100);
    assert_eq!(w.login(&mut b).unwrap().global_id, 4101);
    assert_eq!(w.login(&mut a).unwrap().global_id, 4100, "reclaimed");
    assert_eq!(w.server.remaining_global_ids(), 98);
    // Another's id with one's own ticket.
    let mut thief = a.clone();
    thief.global_id = 4101;
    assert_eq!(w.login(&mut thief).unwrap_err().errno(), Errno::EACCES);
    // An id without a ticket.
    let mut bare = w.client();
    bare.global_id = 4100;
    assert!(w.login(&mut bare).is_err());
    // A ticket without an id.
    let mut odd = a.clone();
    odd.global_id = 0;
    let cx = w.cx();
    let request = odd.request(EntityKind::Mon, &cx).unwrap();
    odd.global_id = 4100;
    let step = w
        .server
        .start(AuthMethod::Cephx, ConMode::Crc, &request, &cx)
        .unwrap();
    let Step::More { payload, pending } = step else {
        panic!()
    };
    let answer = odd.more(&payload, &cx).unwrap();
    let err = w.server.resume(pending, &answer, &cx).unwrap_err();
    assert_eq!(err.errno(), Errno::EINVAL);
}

#[test]
fn ids_run_out() {
    let w = World::new(3);
    for _ in 0..100 {
        w.login(&mut w.client()).unwrap();
    }
    assert!(matches!(w.login(&mut w.client()), Err(AuthError::Close(_))));
    w.server.grant_global_ids(4200, 4201);
    assert_eq!(w.login(&mut w.client()).unwrap().global_id, 4200);
}

#[test]
fn wrong_key_unknown_name_and_missing_caps_look_alike() {
    let w = World::new(4);
    let check = |name: &str, key: [u8; 16]| {
        let mut c = CephxClient::new(AuthName::new(EntityKind::Client, name), CryptoKey::new(key, NOW));
        assert_eq!(w.login(&mut c).unwrap_err().errno(), Errno::EACCES, "{name}");
    };
    check("admin", [0x43; 16]);
    check("nobody", [0x42; 16]);
    check("nomon", [0x42; 16]);
}

#[test]
fn secrets_that_survive_keep_tickets_and_lost_ones_heal() {
    let w = World::new(5);
    let mut c = w.client();
    w.login(&mut c).unwrap();
    // (a) The monitor restarts with what it persisted.
    let saved = w.server.rotated(&w.cx());
    assert!(saved.is_none(), "nothing was due");
    let osd = w.osd();
    w.handshake(&mut c, EntityKind::Osd, &osd, ConMode::Crc).unwrap();
    // (b) It restarts with fresh ones: the OSD refuses the old ticket, the monitor takes the id and gives
    // tickets for everything.
    let fresh = World::new(600);
    fresh.server.grant_global_ids(4200, 4300);
    let osd = fresh.osd();
    assert!(
        fresh
            .handshake(&mut c, EntityKind::Osd, &osd, ConMode::Crc)
            .is_err()
    );
    assert_eq!(fresh.login(&mut c).unwrap().global_id, 4100);
    assert_eq!(c.tickets.keys().copied().collect::<Vec<_>>(), [1, 2, 4, 16, 32]);
    fresh
        .handshake(&mut c, EntityKind::Osd, &osd, ConMode::Crc)
        .unwrap();
    // An id that was never given is not taken on such a ticket.
    let other = World::new(700);
    c.global_id = 5000;
    assert!(other.login(&mut c).is_err());
}

#[test]
fn renewal_over_an_open_session() {
    let w = World::new(6);
    let mut c = w.client();
    let id = w.login(&mut c).unwrap();
    let old = c.tickets[&4].clone();
    let ask = |payload: Bytes, id: &Identity| {
        let front = MAuth {
            protocol: 2,
            payload,
            monmap_epoch: 0,
        }
        .to_bytes();
        w.server.answer_mauth(id, &front, &w.cx())
    };
    let (reply, err) = ask(c.renewal(21, &w.cx()).unwrap(), &id);
    assert_eq!((reply.result, reply.global_id, err), (0, 4100, None));
    c.renewed(&reply.payload).unwrap();
    assert_ne!(c.tickets[&4], old);
    w.handshake(&mut c, EntityKind::Osd, &w.osd(), ConMode::Crc)
        .unwrap();

    let failing = |payload: Bytes, id: &Identity, errno: Errno| {
        let (reply, err) = ask(payload, id);
        assert_eq!((reply.result, err.is_some()), (errno.code(), true));
    };
    let other = Identity {
        global_id: 4101,
        ..id.clone()
    };
    failing(c.renewal(21, &w.cx()).unwrap(), &other, Errno::EACCES);
    failing(Bytes::from_static(&[0, 9]), &id, Errno::EINVAL);
    failing(Bytes::new(), &id, Errno::EACCES);
    failing(Bytes::from_static(&[0, 4]), &id, Errno::EACCES);
    let none = Identity {
        server_challenge: None,
        ..id.clone()
    };
    failing(c.renewal(21, &w.cx()).unwrap(), &none, Errno::EACCES);
    w.server.set_db(KeyDb::default());
    failing(c.renewal(21, &w.cx()).unwrap(), &id, Errno::EACCES);
}

#[test]
fn authorizers_that_are_not_right() {
    let w = World::new(7);
    let mut c = w.client();
    w.login(&mut c).unwrap();
    let osd = w.osd();
    let cx = w.cx();
    let start = |payload: &Bytes| osd.start(AuthMethod::Cephx, ConMode::Crc, payload, &cx);
    let request = c.request(EntityKind::Osd, &cx).unwrap();
    assert!(start(&request).is_ok());
    for n in 0..request.len() {
        assert!(start(&request.slice(..n)).is_err(), "cut at {n}");
        // The last byte of the auth mode, id, service, secret id, blob: all matter.
        let mut flipped = request.to_vec();
        flipped[n] ^= 0x10;
        if let Ok(Step::Done(_)) = start(&flipped.into()) {
            panic!("no shortcut round the challenge");
        }
    }
    // A ticket for another service.
    let mgr = c.request(EntityKind::Mgr, &cx).unwrap();
    assert!(start(&mgr).is_err());
    // The challenge left unanswered, or answered wrongly.
    let request = c.request(EntityKind::Osd, &cx).unwrap();
    let Step::More { pending, .. } = start(&request).unwrap() else {
        panic!()
    };
    assert!(osd.resume(pending, &request, &cx).is_err());
    let Step::More { payload, .. } = start(&request).unwrap() else {
        panic!()
    };
    let stale = c.more(&payload, &cx).unwrap();
    let Step::More { pending, .. } = start(&request).unwrap() else {
        panic!()
    };
    assert!(
        osd.resume(pending, &stale, &cx).is_err(),
        "answer to an older challenge"
    );
}

#[test]
fn secrets_rotate_and_tickets_outlive_one_rotation() {
    let entropy = Counter(AtomicU64::new(8));
    let ttl = Duration::from_secs(100);
    let at = |sec: u32| Context {
        now: Utime {
            sec: NOW.sec + sec,
            nsec: 0,
        },
        entropy: &entropy,
    };
    let mut s = RotatingSecrets::default();
    assert!(s.rotate(ttl, &at(0)));
    assert_eq!((s.current().unwrap().0, s.secrets.len(), s.max_id), (2, 3, 3));
    assert!(!s.rotate(ttl, &at(99)));
    let current = s.current().unwrap().0;
    assert!(s.rotate(ttl, &at(100)));
    assert_eq!(s.current().unwrap().0, 3);
    assert!(s.get(current).is_some(), "a ticket made at 99 opens until 199");
    assert!(!s.rotate(ttl, &at(199)));
    // After a long sleep everything is new, and ids go on rising.
    assert!(s.rotate(ttl, &at(100_000)));
    assert!(!s.rotate(ttl, &at(100_050)));
    assert_eq!((s.secrets.len(), s.max_id), (3, 6));
    assert_eq!(RotatingSecrets::from_bytes(&s.to_bytes()).unwrap(), s);
}

#[test]
fn database_and_keyring_round_trips() {
    let w = World::new(9);
    let db = w.server.with_db(Clone::clone);
    assert_eq!(KeyDb::from_bytes(&db.to_bytes()).unwrap(), db);
    let text = print_keyring(&db);
    assert_eq!(parse_keyring(&text).unwrap(), db);
    let key = World::key().to_text();
    let want =
        format!("[client.admin]\n\tkey = {key}\n\tcaps mon = \"allow *\"\n\tcaps osd = \"profile rbd\"\n");
    assert_eq!(print_section(&admin(), db.get(&admin()).unwrap()), want);
    let loose = format!("# a comment\n[client.x]\nkey={key}\ncaps_mon = allow r\n\n");
    let loose = parse_keyring(&loose).unwrap();
    let x = loose.get(&AuthName::new(EntityKind::Client, "x")).unwrap();
    assert_eq!(x.caps["mon"], "allow r");
    let check = |text: &str, want: &str| assert_eq!(parse_keyring(text).unwrap_err().to_string(), want);
    check("[client.x]\n", "keyring line 1: client.x has no key");
    check("[x]\n", "keyring line 1: '[x]' names no entity");
    check("key = a", "keyring line 1: value before the first section");
    check(
        "[client.x]\nkey = a",
        "keyring line 2: key: not a key in base64 form",
    );
    check("[client.x]\nfoo", "keyring line 2: 'foo' is not name = value");
}
