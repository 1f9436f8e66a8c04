//! Authentication payloads, tickets, keyrings and capability texts from peers that mean harm: refused, never
//! a panic, never a way in.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use auth::*;
use denc::{Bytes, Decode};
use proptest::prelude::*;
use types::{AuthName, EntityKind, Utime};

const NOW: Utime = Utime {
    sec: 1_800_000_000,
    nsec: 0,
};

fn fill(b: &mut [u8]) {
    b.fill(7);
}

fn cx() -> Context<'static> {
    Context {
        now: NOW,
        entropy: &fill,
    }
}

fn server() -> KeyServer {
    let config = KeyServerConfig::default();
    let mut secrets = ServiceSecrets::default();
    secrets.rotate(config.auth_ttl, config.service_ttl, &cx());
    let mut db = KeyDb::default();
    let mut entity = EntityAuth::new(CryptoKey::new([1; 16], NOW)).with_cap("mon", "allow *");
    entity.pending = Some(CryptoKey::new([3; 16], NOW));
    db.entities
        .insert(AuthName::new(EntityKind::Client, "admin"), entity);
    let s = KeyServer::new(config, db, secrets);
    s.grant_global_ids(4100, 4200);
    s
}

/// AUTH_REQUEST of client.admin, as every handshake begins.
fn request() -> Bytes {
    let key = CryptoKey::new([2; 16], NOW);
    let mut c = CephxClient::new(AuthName::new(EntityKind::Client, "admin"), key);
    c.request(EntityKind::Mon, &cx()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn payloads(head in prop::sample::select(vec![vec![], vec![0, 1, 3], vec![0, 2], vec![0, 4], vec![1]]),
                body in prop::collection::vec(any::<u8>(), 0..300)) {
        let payload: Bytes = [head, body].concat().into();
        let s = server();
        for mode in [ConMode::Crc, ConMode::Secure] {
            let first = s.start(AuthMethod::Cephx, mode, &payload, &cx());
            prop_assert!(!matches!(first, Ok(Step::Done(_))));
            let Ok(Step::More { pending, .. }) = s.start(AuthMethod::Cephx, mode, &request(), &cx()) else {
                panic!("a challenge follows")
            };
            prop_assert!(s.resume(pending, &payload, &cx()).is_err());
            let verifier = TicketVerifier::new(EntityKind::Osd, vec![mode], s.secrets_for(EntityKind::Osd).unwrap());
            prop_assert!(verifier.start(AuthMethod::Cephx, mode, &payload, &cx()).is_err());
        }
        let id = Identity {
            name: AuthName::new(EntityKind::Client, "admin"),
            global_id: 4100,
            caps: PeerCaps::AllowAll,
            key_epoch: Some(0),
            server_challenge: Some(5),
        };
        let (reply, error) = s.answer_mauth(&id, &payload, &cx());
        prop_assert!(reply.result < 0 && error.is_some());
    }

    #[test]
    fn decoders(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let bytes: Bytes = bytes.into();
        let key = CryptoKey::new([1; 16], NOW);
        let _ = KeyDb::from_bytes(&bytes);
        let _ = ServiceSecrets::from_bytes(&bytes);
        let _ = AuthTicket::from_bytes(&bytes);
        let _ = MAuthReply::from_bytes(&bytes);
        let _ = GrantedTicket::decode_reply(&mut denc::Reader::new(bytes.clone()), &key, Some(&key));
        let shown = TicketBlob { secret_id: 1, blob: bytes };
        prop_assert!(SessionTicket::open(&shown, EntityKind::Osd, &key).is_err());
    }

    #[test]
    fn texts(text in "(allow|profile|rwx|[ ,;=*\"'/]|pool|namespace|class|tag|with|network|[a-z0-9.:é\n]){0,12}") {
        for service in ["mon", "osd", "mds", "mgr"] {
            // Whatever is taken must be taken again.
            prop_assert_eq!(caps::validate(service, &text), caps::validate(service, &text));
        }
        let _ = parse_keyring(&text);
        let _ = parse_keyring(&format!("[client.x]\n{text}"));
    }
}
