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
        self.at(Duration::ZERO)
    }

    /// So long after the tickets were made.
    fn at(&self, age: Duration) -> Context<'_> {
        Context {
            now: Utime::from_unix(NOW.to_duration() + age),
            entropy: &self.entropy,
        }
    }

    /// What an OSD says to this client at once.
    fn shown(
        &self,
        client: &mut CephxClient,
        osd: &TicketVerifier,
        age: Duration,
    ) -> Result<Step, AuthError> {
        let cx = self.at(age);
        let request = client.request(EntityKind::Osd, &cx)?;
        osd.start(AuthMethod::Cephx, ConMode::Crc, &request, &cx)
    }

    /// Puts another entity into the database, with this epoch of its key.
    fn put(&self, name: &str, epoch: u64) -> CephxClient {
        let name = AuthName::new(EntityKind::Client, name);
        let mut db = self.server.with_db(Clone::clone);
        let mut entity = EntityAuth::new(Self::key())
            .with_cap("mon", "allow r")
            .with_cap("osd", "allow r");
        entity.epoch = epoch;
        db.entities.insert(name.clone(), entity);
        self.server.set_db(db);
        CephxClient::new(name, Self::key())
    }

    fn edit(&self, name: &AuthName, change: impl FnOnce(&mut EntityAuth)) {
        let mut db = self.server.with_db(Clone::clone);
        change(db.entities.get_mut(name).unwrap());
        self.server.set_db(db);
    }

    /// What the monitor makes of a proof that comes so late.
    fn login_at(&self, client: &mut CephxClient, age: Duration) -> Result<Step, AuthError> {
        let cx = self.at(age);
        let request = client.request(EntityKind::Mon, &cx)?;
        let step = self
            .server
            .start(AuthMethod::Cephx, ConMode::Crc, &request, &cx)?;
        let Step::More { payload, pending } = step else {
            panic!("cephx always has a challenge")
        };
        let answer = client.more(&payload, &cx)?;
        self.server.resume(pending, &answer, &cx)
    }

    /// The result of a renewal over an open session.
    fn renew_at(&self, client: &CephxClient, id: &Identity, age: Duration) -> i32 {
        let cx = self.at(age);
        let front = MAuth {
            protocol: 2,
            payload: client.renewal(21, &cx).unwrap(),
            monmap_epoch: 0,
        };
        self.server.answer_mauth(id, &front.to_bytes(), &cx).0.result
    }

    fn entities(&self) -> std::sync::Arc<KeyDb> {
        std::sync::Arc::new(self.server.with_db(Clone::clone))
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
    // Another's id with one's own ticket: of the same key, and still not its own.
    let mut thief = a.clone();
    thief.global_id = 4101;
    assert_eq!(w.login(&mut thief).unwrap_err().errno(), Errno::EACCES);
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
    // (b) It restarts with fresh ones: the OSD refuses the old ticket, the monitor gives a fresh id and
    // tickets for everything.
    let fresh = World::new(600);
    fresh.server.grant_global_ids(4200, 4300);
    let osd = fresh.osd();
    assert!(
        fresh
            .handshake(&mut c, EntityKind::Osd, &osd, ConMode::Crc)
            .is_err()
    );
    let id = fresh.login(&mut c).unwrap().global_id;
    assert!(
        (4200..4300).contains(&id),
        "a fresh id, not the claimed one: {id}"
    );
    assert_eq!(c.tickets.keys().copied().collect::<Vec<_>>(), [1, 2, 4, 16, 32]);
    fresh
        .handshake(&mut c, EntityKind::Osd, &osd, ConMode::Crc)
        .unwrap();
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

/// A client flipped one bit of its own ticket, and was allowed everything: the ticket was CBC without authentication.
#[test]
fn no_bit_of_a_ticket_can_be_changed() {
    let w = World::new(10);
    let mut c = w.client();
    w.login(&mut c).unwrap();
    let osd = w.osd();
    let good = c.tickets[&4].blob.clone();
    for at in 0..good.blob.len() {
        for bit in 0..8 {
            let mut blob = good.blob.to_vec();
            blob[at] ^= 1 << bit;
            c.tickets.get_mut(&4).unwrap().blob.blob = blob.into();
            let e = w.shown(&mut c, &osd, Duration::ZERO).unwrap_err();
            assert_eq!(e.errno(), Errno::EACCES, "bit {bit} of byte {at}");
        }
    }
    for len in 0..good.blob.len() {
        c.tickets.get_mut(&4).unwrap().blob.blob = good.blob.slice(..len);
        assert!(w.shown(&mut c, &osd, Duration::ZERO).is_err(), "cut at {len}");
    }
    // The other id that the OSD has a secret for.
    let other = TicketBlob {
        secret_id: good.secret_id + 1,
        blob: good.blob.clone(),
    };
    c.tickets.get_mut(&4).unwrap().blob = other;
    assert!(w.shown(&mut c, &osd, Duration::ZERO).is_err());
    c.tickets.get_mut(&4).unwrap().blob = good;
    assert!(w.shown(&mut c, &osd, Duration::ZERO).is_ok());
}

/// As versions up to 0.1.0 made it: what the service's secret seals with CBC is no ticket any more.
#[test]
fn tickets_of_the_old_form_are_refused() {
    let w = World::new(11);
    let mut c = w.client();
    w.login(&mut c).unwrap();
    let old = |service: EntityKind, caps: &str| {
        let secrets = w.server.secrets_for(service).unwrap();
        let (secret_id, secret) = secrets.current().unwrap();
        let ticket = AuthTicket {
            name: admin(),
            global_id: 4100,
            created: NOW,
            expires: Utime {
                sec: NOW.sec + 3600,
                nsec: 0,
            },
            allow_all: true,
            caps: Some(caps.to_string()),
        };
        let blob = secret.key.seal(|w| {
            w.u8(1);
            w.put(&ticket);
            w.put(&World::key());
        });
        TicketBlob {
            secret_id,
            blob: blob.into(),
        }
    };
    let osd = w.osd();
    for n in 0..300 {
        let t = c.tickets.get_mut(&4).unwrap();
        t.blob = old(EntityKind::Osd, &"x".repeat(n));
        t.session_key = World::key();
        let e = w.shown(&mut c, &osd, Duration::ZERO).unwrap_err();
        assert_eq!(e.errno(), Errno::EACCES);
    }
    // It still says whose an id is: who goes on through an upgrade keeps its id, or what it sends again is done twice.
    let mut other = w.client();
    assert_eq!(w.login(&mut other).unwrap().global_id, 4101);
    let before = old(EntityKind::Auth, "");
    let claim = |id: u64, blob: TicketBlob| {
        let mut c = c.clone();
        c.global_id = id;
        c.tickets.get_mut(&32).unwrap().blob = blob;
        w.login(&mut c).map(|id| (id.global_id, c))
    };
    let (id, mut upgraded) = claim(4100, before.clone()).unwrap();
    assert_eq!(id, 4100);
    assert!(
        w.shown(&mut upgraded, &osd, Duration::ZERO).is_ok(),
        "with the new tickets it goes on"
    );
    w.server.grant_global_ids(0, 10_000);
    for bit in 0..before.blob.len() * 8 {
        let mut blob = before.blob.to_vec();
        blob[bit / 8] ^= 1 << (bit % 8);
        let blob = TicketBlob {
            blob: blob.into(),
            ..before.clone()
        };
        assert_ne!(
            claim(4101, blob).unwrap().0,
            4101,
            "bit {bit} made the ticket another's"
        );
    }
    // It renews nothing.
    let mut asking = c.clone();
    asking.tickets.get_mut(&32).unwrap().blob = before.clone();
    asking.tickets.get_mut(&32).unwrap().session_key = World::key();
    let payload = asking.renewal(4, &w.cx()).unwrap();
    let front = MAuth {
        protocol: 2,
        payload,
        monmap_epoch: 0,
    }
    .to_bytes();
    let id = w.login(&mut w.client()).unwrap();
    let same = Identity {
        global_id: 4100,
        ..id
    };
    assert_eq!(
        w.server.answer_mauth(&same, &front, &w.cx()).0.result,
        Errno::EACCES.code()
    );
    // Nor is it of use for a key that was made since.
    let mut db = w.server.with_db(Clone::clone);
    db.entities.get_mut(&admin()).unwrap().epoch = 5;
    w.server.set_db(db);
    assert_ne!(claim(4100, before).unwrap().0, 4100);
}

#[test]
fn expired_tickets_are_refused_everywhere() {
    let w = World::new(12);
    let config = KeyServerConfig::default();
    let mut c = w.client();
    let id = w.login(&mut c).unwrap();
    let osd = w.osd();
    let late = |ttl: Duration| ttl + CLOCK_LEEWAY + Duration::from_secs(1);
    assert!(
        w.shown(&mut c, &osd, config.service_ttl).is_ok(),
        "clocks may differ a little"
    );
    let e = w.shown(&mut c, &osd, late(config.service_ttl)).unwrap_err();
    assert_eq!(e.errno(), Errno::EACCES);
    // The AUTH ticket at the monitor: neither new tickets nor the id.
    let renew = |age: Duration| {
        let payload = c.renewal(4, &w.at(age)).unwrap();
        let front = MAuth {
            protocol: 2,
            payload,
            monmap_epoch: 0,
        }
        .to_bytes();
        w.server.answer_mauth(&id, &front, &w.at(age)).0.result
    };
    assert_eq!(renew(config.auth_ttl), 0);
    assert_eq!(renew(late(config.auth_ttl)), Errno::EACCES.code());
    let age = late(config.auth_ttl);
    let mut asking = c.clone();
    let request = asking.request(EntityKind::Mon, &w.cx()).unwrap();
    let step = w
        .server
        .start(AuthMethod::Cephx, ConMode::Crc, &request, &w.cx())
        .unwrap();
    let Step::More { payload, pending } = step else {
        panic!()
    };
    let answer = asking.more(&payload, &w.cx()).unwrap();
    let Step::Done(g) = w.server.resume(pending, &answer, &w.at(age)).unwrap() else {
        panic!()
    };
    assert_ne!(g.identity.global_id, 4100);
}

/// As CVE-2021-20288: whoever had any key got any id with a garbage ticket, and the victim's next write was taken for a
/// repetition and never done.
#[test]
fn nobody_gets_an_id_that_was_given_to_another() {
    let w = World::new(13);
    let mut victim = w.client();
    assert_eq!(w.login(&mut victim).unwrap().global_id, 4100);
    let mut thief = w.put("thief", 0);
    assert_eq!(w.login(&mut thief).unwrap().global_id, 4101);
    let claims = |mut c: CephxClient, blob: TicketBlob| {
        c.global_id = 4100;
        c.tickets.get_mut(&32).unwrap().blob = blob;
        w.login(&mut c).map(|id| id.global_id)
    };
    let own = thief.tickets[&32].blob.clone();
    let garbage = TicketBlob {
        secret_id: own.secret_id,
        blob: Bytes::from_static(b"garbage"),
    };
    let attempts = || {
        [
            ("garbage", garbage.clone()),
            ("no ticket", TicketBlob::default()),
            ("the victim's ticket", victim.tickets[&32].blob.clone()),
            ("a ticket for another service", thief.tickets[&4].blob.clone()),
        ]
    };
    for (what, blob) in attempts() {
        let got = claims(thief.clone(), blob).unwrap();
        assert!(got > 4101, "{what}: {got}");
    }
    assert_eq!(claims(thief.clone(), own).unwrap_err().errno(), Errno::EACCES);
    // The option lets an entity have its own id back, and nobody another's.
    w.server.allow_insecure_reclaim(true);
    for (what, blob) in attempts() {
        assert!(claims(thief.clone(), blob).unwrap() > 4101, "{what}");
    }
    assert_eq!(claims(victim.clone(), garbage.clone()).unwrap(), 4100);
    w.server.allow_insecure_reclaim(false);
    assert_ne!(claims(victim.clone(), garbage).unwrap(), 4100);
    assert_eq!(w.login(&mut victim).unwrap().global_id, 4100, "with its ticket");
}

/// A removed client went on with the tickets that it had, for an hour at OSDs.
#[test]
fn a_ticket_dies_with_the_key_that_it_was_made_for() {
    let w = World::new(14);
    let mut c = w.put("x", 7);
    w.login(&mut c).unwrap();
    let osd = w.osd();
    osd.set_entities(w.entities(), 7);
    assert!(w.shown(&mut c, &osd, Duration::ZERO).is_ok());
    // Made anew, with the same key even.
    w.put("x", 8);
    osd.set_entities(w.entities(), 8);
    assert_eq!(
        w.shown(&mut c, &osd, Duration::ZERO).unwrap_err().errno(),
        Errno::EACCES
    );
    let got = w.login(&mut c).unwrap();
    assert_eq!(
        (got.global_id, got.key_epoch),
        (4101, Some(8)),
        "nor does it keep its id"
    );
    assert!(w.shown(&mut c, &osd, Duration::ZERO).is_ok());
    // Gone.
    osd.set_entities(std::sync::Arc::new(KeyDb::default()), 9);
    assert!(w.shown(&mut c, &osd, Duration::ZERO).is_err());
    // An OSD that has not heard of the key yet believes the monitor's ticket.
    osd.set_entities(std::sync::Arc::new(KeyDb::default()), 7);
    assert!(w.shown(&mut c, &osd, Duration::ZERO).is_ok());
}

#[test]
fn capabilities_of_new_sessions_are_those_of_now() {
    let w = World::new(15);
    let mut c = w.client();
    w.login(&mut c).unwrap();
    let osd = w.osd();
    let mut db = w.server.with_db(Clone::clone);
    db.entities
        .get_mut(&admin())
        .unwrap()
        .caps
        .insert("osd".to_string(), "allow r".to_string());
    osd.set_entities(std::sync::Arc::new(db), 1);
    let id = w.handshake(&mut c, EntityKind::Osd, &osd, ConMode::Crc).unwrap();
    assert_eq!(id.caps.text("osd"), Some("allow r"));
}

#[test]
fn entities_of_earlier_versions_are_read() {
    let entity = EntityAuth::new(World::key()).with_cap("mon", "allow r");
    let mut w = denc::Writer::new();
    w.envelope(1, 1, |w| {
        w.put(&entity.key);
        w.put(&entity.caps);
    });
    assert_eq!(EntityAuth::from_bytes(&w.finish()).unwrap(), entity);
    let with_epoch = EntityAuth { epoch: 9, ..entity };
    assert_eq!(
        EntityAuth::from_bytes(&with_epoch.to_bytes()).unwrap(),
        with_epoch
    );
    assert_eq!(with_epoch.to_bytes()[..2], [2, 1], "nothing new, no new form");
    let more = EntityAuth {
        pending: Some(CryptoKey::new([0x43; 16], NOW)),
        expiry: Some(Expiry { at: NOW, ended: true }),
        ..with_epoch
    };
    assert_eq!(EntityAuth::from_bytes(&more.to_bytes()).unwrap(), more);
    assert_eq!(more.to_bytes()[..2], [3, 1], "earlier versions may read it");
    let only_end = EntityAuth {
        pending: None,
        ..more
    };
    assert_eq!(EntityAuth::from_bytes(&only_end.to_bytes()).unwrap(), only_end);
}

#[test]
fn a_key_and_a_pending_one_are_both_valid() {
    let w = World::new(30);
    let new = CryptoKey::new([0x43; 16], NOW);
    let mut old = w.put("two", 7);
    let name = old.name.clone();
    let with = |key: &CryptoKey| CephxClient::new(name.clone(), key.clone());
    assert!(w.login(&mut with(&new)).is_err(), "not made yet");
    let nobody = CryptoKey::new([0; 16], NOW);
    assert!(
        w.login(&mut with(&nobody)).is_err(),
        "where there is no pending key, none is one"
    );
    w.edit(&name, |e| e.pending = Some(new.clone()));
    assert!(w.login(&mut with(&nobody)).is_err());
    // Both, with sessions of one epoch, for which an OSD needs to know nothing of it.
    let was = w.login(&mut old).unwrap();
    let mut fresh = with(&new);
    let is = w.login(&mut fresh).unwrap();
    assert_eq!((was.key_epoch, is.key_epoch), (Some(7), Some(7)));
    let osd = w.osd();
    osd.set_entities(w.entities(), 9);
    for c in [&mut old, &mut fresh] {
        w.handshake(c, EntityKind::Osd, &osd, ConMode::Secure).unwrap();
    }
    assert_eq!(w.renew_at(&old, &was, Duration::ZERO), 0);
    assert_eq!(w.renew_at(&fresh, &is, Duration::ZERO), 0);
    // A client that was given the new keyring and reconnects stays who it was.
    let mut moved = old.clone();
    moved.key = new.clone();
    assert_eq!(w.login(&mut moved).unwrap().global_id, was.global_id);
    // Committed: what is open goes on with its tickets, but nobody comes in with the old key.
    w.edit(&name, |e| {
        e.key = new.clone();
        e.pending = None;
    });
    osd.set_entities(w.entities(), 10);
    assert_eq!(w.login(&mut old.clone()).unwrap_err().errno(), Errno::EACCES);
    assert_eq!(w.renew_at(&old, &was, Duration::ZERO), 0);
    w.handshake(&mut old, EntityKind::Osd, &osd, ConMode::Crc)
        .unwrap();
    w.login(&mut moved).unwrap();
    // Dropped instead: the same the other way round.
    w.edit(&name, |e| {
        e.key = World::key();
        e.pending = Some(new.clone());
    });
    w.login(&mut old).unwrap();
    w.edit(&name, |e| e.pending = None);
    assert!(w.login(&mut with(&new)).is_err());
    w.login(&mut old).unwrap();
}

#[test]
fn nothing_is_given_beyond_an_entitys_end() {
    let w = World::new(31);
    let mut c = w.put("guest", 7);
    let name = c.name.clone();
    let sec = Duration::from_secs;
    let at = w.at(sec(90)).now;
    w.edit(&name, |e| e.expiry = Some(Expiry { at, ended: false }));
    let id = w.login(&mut c).unwrap();
    for (service, t) in &c.tickets {
        assert_eq!(t.validity, Utime { sec: 90, nsec: 0 }, "service {service}");
    }
    let secrets = w.server.secrets_for(EntityKind::Osd).unwrap();
    let shown = &c.tickets[&4].blob;
    let opened = SessionTicket::open(shown, EntityKind::Osd, secrets.get(shown.secret_id).unwrap()).unwrap();
    assert_eq!(opened.ticket.expires, at, "and the OSD knows it, too");
    assert_eq!(w.renew_at(&c, &id, sec(89)), 0);
    assert!(matches!(w.login_at(&mut c.clone(), sec(89)), Ok(Step::Done(_))));
    // Its time comes: neither by the session that it has nor by a new one.
    assert_eq!(w.renew_at(&c, &id, sec(90)), Errno::EACCES.code());
    let refused = w.login_at(&mut c.clone(), sec(90)).unwrap_err();
    assert_eq!(refused.errno(), Errno::EACCES);
    assert!(
        refused.to_string().contains("the key of client.guest expired at"),
        "{refused}"
    );
    // Who has no key of its learns nothing of that.
    let mut stranger = CephxClient::new(name.clone(), CryptoKey::new([9; 16], NOW));
    let refused = w.login_at(&mut stranger, sec(90)).unwrap_err();
    assert!(refused.to_string().contains("wrong key"), "{refused}");
    // A pending key lives no longer.
    let new = CryptoKey::new([0x43; 16], NOW);
    w.edit(&name, |e| e.pending = Some(new.clone()));
    assert!(
        w.login_at(&mut CephxClient::new(name.clone(), new), sec(90))
            .is_err()
    );
    // Another end, and it is back. One that lies far away shortens nothing.
    let at = w.at(sec(1 << 30)).now;
    w.edit(&name, |e| e.expiry = Some(Expiry { at, ended: false }));
    w.login(&mut c).unwrap();
    assert_eq!(c.tickets[&4].validity, Utime { sec: 3600, nsec: 0 });
}

/// Rotating secrets are sealed with the key that the daemon has, which may not be the one that counts as its key.
#[test]
fn a_daemon_reads_its_secrets_with_the_key_that_it_came_with() {
    let w = World::new(32);
    let name = AuthName::new(EntityKind::Osd, "0");
    let (old, new) = (World::key(), CryptoKey::new([0x43; 16], NOW));
    let mut db = w.server.with_db(Clone::clone);
    let mut entity = EntityAuth::new(old.clone()).with_cap("mon", "allow profile osd");
    entity.pending = Some(new.clone());
    db.entities.insert(name.clone(), entity);
    w.server.set_db(db);
    let reads = |id: &Identity, key: &CryptoKey, when: &str| {
        let front = MAuth {
            protocol: 2,
            payload: Bytes::from_static(&[0, 4]),
            monmap_epoch: 0,
        };
        let (reply, err) = w.server.answer_mauth(id, &front.to_bytes(), &w.cx());
        assert_eq!(err, None, "{when}");
        let mut r = denc::Reader::new(reply.payload);
        assert_eq!((r.u16().unwrap(), r.i32().unwrap()), (0x0400, 0), "{when}");
        let secrets = key.open(&r.blob().unwrap(), RotatingSecrets::decode).unwrap();
        assert_eq!(Some(secrets), w.server.secrets_for(EntityKind::Osd), "{when}");
    };
    let login = |key: &CryptoKey| {
        let id = w.login(&mut CephxClient::new(name.clone(), key.clone())).unwrap();
        w.server.session_opened(id.global_id, &name);
        id
    };
    let (with_old, with_new) = (login(&old), login(&new));
    let both = |when: &str| {
        reads(&with_old, &old, when);
        reads(&with_new, &new, when);
    };
    both("beside each other");
    w.edit(&name, |e| {
        e.key = new.clone();
        e.pending = None;
    });
    both("committed");
    w.edit(&name, |e| e.key = old.clone());
    both("dropped");
    // It connected again, and the end of what it had before is heard of late.
    w.server.session_opened(with_new.global_id, &name);
    w.server.session_closed(with_new.global_id);
    both("connected again");
}

#[test]
fn what_goes_on_when_an_entity_is_replaced() {
    let key = |n: u8| CryptoKey::new([n; 16], NOW);
    let mut have = EntityAuth::new(key(1));
    have.pending = Some(key(2));
    let open = Expiry {
        at: NOW,
        ended: false,
    };
    let goes_on = |next: u8, expiry: Option<Expiry>| {
        let expiring = EntityAuth {
            expiry,
            ..EntityAuth::new(key(next))
        };
        have.goes_on_as(&expiring)
    };
    assert!(goes_on(1, None) && goes_on(2, None) && !goes_on(3, None));
    assert!(goes_on(1, Some(open)), "an end that is to come");
    assert!(!goes_on(1, Some(Expiry { ended: true, ..open })), "one that came");
    // Once only, and not before.
    have.expiry = Some(open);
    let before = Utime {
        sec: NOW.sec - 1,
        nsec: 999_999_999,
    };
    assert_eq!(have.settled(before), None);
    let ended = have.settled(NOW).unwrap();
    assert!(!have.goes_on_as(&ended) && ended.settled(NOW).is_none());
    // A clock that ran ahead and was put back: it will come again.
    assert_eq!(ended.settled(before).as_ref(), Some(&have));
    let longer = EntityAuth {
        expiry: None,
        ..ended.clone()
    };
    assert!(ended.goes_on_as(&longer), "what began since");
    // A keyring knows nothing of either.
    let same = have.replaced_by(EntityAuth::new(key(1)).with_cap("mon", "allow r"));
    assert_eq!((same.pending.clone(), same.expiry), (Some(key(2)), Some(open)));
    assert_eq!(same.caps["mon"], "allow r");
    assert!(have.has(&key(1)) && have.has(&key(2)) && !have.has(&key(3)));
    let given = EntityAuth {
        pending: Some(key(3)),
        ..EntityAuth::new(key(1))
    };
    assert_eq!(
        have.replaced_by(given).pending,
        Some(key(3)),
        "unless it says one"
    );
    let other = have.replaced_by(EntityAuth::new(key(2)));
    assert_eq!((other.pending, other.expiry), (None, Some(open)));
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
    let second = CryptoKey::new([0x43; 16], NOW);
    let two = format!("[client.x]\nkey = {key}\npending key = {}\n", second.to_text());
    let two = parse_keyring(&two).unwrap();
    let x = two.get(&AuthName::new(EntityKind::Client, "x")).unwrap();
    assert_eq!((&x.key, x.pending.as_ref()), (&World::key(), Some(&second)));
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

/// Over messenger v1, where the client hears its id with the challenge, and keeps it.
#[test]
fn over_v1_the_id_comes_with_the_challenge() {
    let w = World::new(90);
    let cx = w.cx();
    let login = |client: &mut CephxClient| {
        let request = client.request(EntityKind::Mon, &cx)?;
        let (told, step) = w.server.start_v1(AuthMethod::Cephx, &request, &cx)?;
        let Step::More { payload, pending } = step else {
            panic!("cephx always has a challenge")
        };
        let answer = client.more(&payload, &cx)?;
        let Step::Done(g) = w.server.resume(pending, &answer, &cx)? else {
            panic!("cephx has two steps")
        };
        Ok::<_, AuthError>((told, g))
    };
    let mut client = w.client();
    let (told, g) = login(&mut client).unwrap();
    assert_eq!((told, g.identity.global_id), (4100, 4100));
    assert!(g.connection_secret.is_none() && g.identity.server_challenge.is_some());
    // As over v2, but for the connection secret, of which not even an empty one is there.
    let over_v2 = {
        let mut other = w.client();
        let request = other.request(EntityKind::Mon, &cx).unwrap();
        let step = w.server.start(AuthMethod::Cephx, ConMode::Crc, &request, &cx);
        let Ok(Step::More { payload, pending }) = step else {
            panic!()
        };
        let answer = other.more(&payload, &cx).unwrap();
        let Ok(Step::Done(g)) = w.server.resume(pending, &answer, &cx) else {
            panic!()
        };
        g.payload.len()
    };
    assert_eq!(over_v2 - g.payload.len(), 20);
    // With its ticket it has the id again; a claim without one is refused, as no other id can be told any more.
    let mut known = w.client();
    w.login(&mut known).unwrap();
    let id = known.global_id;
    assert_eq!(login(&mut known).unwrap().0, id);
    let mut bare = w.client();
    bare.global_id = id;
    assert_eq!(login(&mut bare).unwrap_err().errno(), Errno::EACCES);
    // Method none has one step.
    let config = KeyServerConfig {
        methods: vec![AuthMethod::None],
        ..KeyServerConfig::default()
    };
    let open = KeyServer::new(config, KeyDb::default(), ServiceSecrets::default());
    open.grant_global_ids(7, 9);
    let request = NoneClient {
        name: admin(),
        global_id: 0,
    }
    .request(EntityKind::Mon, &cx)
    .unwrap();
    let Ok((7, Step::Done(g))) = open.start_v1(AuthMethod::None, &request, &cx) else {
        panic!()
    };
    assert_eq!(g.identity.global_id, 7);
}
