//! Sessions whose keys or capabilities change under them.

use super::*;
use auth::{CryptoKey, EntityAuth, PeerCaps};
use cluster::{Change, ClusterState};
use net::ConnId;
use pg::{Allow, Need};

fn entity() -> AuthName {
    AuthName::new(EntityKind::Client, "x")
}

async fn put(rig: &Rig, key: u8, caps: &str) -> Arc<ClusterState> {
    let entity_auth = EntityAuth::new(CryptoKey::new([key; 16], Utime::ZERO)).with_cap("osd", caps);
    let change = |_: &ClusterState| {
        let put = Change::AuthPut {
            name: entity(),
            entity: entity_auth.clone(),
        };
        (Changes::one(put), ())
    };
    rig.cluster.commit(change).await.unwrap();
    rig.cluster.state()
}

async fn remove(rig: &Rig) -> Arc<ClusterState> {
    let change = |_: &ClusterState| (Changes::one(Change::AuthRm { name: entity() }), ());
    rig.cluster.commit(change).await.unwrap();
    rig.cluster.state()
}

/// A session with the ticket that the monitor makes of `state`.
fn peer(state: &ClusterState) -> msgr::Peer {
    let known = state.auth.get(&entity()).unwrap();
    msgr::Peer {
        name: EntityName::client(4100),
        auth_name: entity(),
        global_id: 4100,
        caps: PeerCaps::Texts(known.caps.clone()),
        key_epoch: Some(known.epoch),
        addrs: EntityAddrVec::one(addr(4000)),
        sock: ([127, 0, 0, 1], 4000).into(),
        features: u64::MAX,
        method: auth::AuthMethod::Cephx,
        secure: false,
        server_challenge: None,
        lifeline: false,
        lossless: false,
        monmap_epoch: None,
    }
}

fn may_write(osd: &Osd, client: &Client) -> bool {
    let need = Need {
        pool: osd.placement.pool(POOL).unwrap(),
        nspace: b"",
        oid: b"x",
        from: client.from,
    };
    let what = Allow::Data {
        read: false,
        write: true,
    };
    client.caps.allows(&need, what)
}

/// A removed client went on for as long as it stayed connected; fewer capabilities came with its next ticket.
#[test]
fn a_session_ends_with_its_key_and_may_what_its_entity_may() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        let conn = ConnId(7);
        let state = put(&rig, 1, "allow rw").await;
        assert!(osd.sessions.heed(&state).is_empty());
        assert!(osd.sessions.opened(conn, &peer(&state)));
        // As an operation that waits holds it.
        let waiting = osd.sessions.get_mut(conn).unwrap().client.clone();
        assert!(may_write(&osd, &waiting));

        let state = put(&rig, 1, "allow r").await;
        assert!(osd.sessions.heed(&state).is_empty(), "the session goes on");
        assert!(!may_write(&osd, &waiting), "judged by what holds now");
        let state = put(&rig, 1, "allow *").await;
        assert!(osd.sessions.heed(&state).is_empty());
        assert!(may_write(&osd, &waiting) && osd.sessions.may_command(conn));

        let before = peer(&state);
        let state = put(&rig, 2, "allow *").await;
        assert_eq!(osd.sessions.heed(&state), [conn], "another key");
        assert!(!may_write(&osd, &waiting) && !osd.sessions.may_command(conn));
        osd.sessions.closed(conn);
        // It shook hands before, and opens only now.
        assert!(!osd.sessions.opened(ConnId(8), &before));
        osd.sessions.closed(ConnId(8));

        assert!(osd.sessions.opened(ConnId(9), &peer(&state)));
        let waiting = osd.sessions.get_mut(ConnId(9)).unwrap().client.clone();
        let gone = remove(&rig).await;
        assert_eq!(osd.sessions.heed(&gone), [ConnId(9)]);
        assert!(!may_write(&osd, &waiting));
        osd.sessions.closed(ConnId(9));
        // Made anew with the same key and rights: what the old one had is over all the same.
        let anew = put(&rig, 2, "allow *").await;
        osd.sessions.heed(&anew);
        assert!(!osd.sessions.opened(ConnId(10), &peer(&state)));
        osd.sessions.closed(ConnId(10));
        assert!(osd.sessions.opened(ConnId(11), &peer(&anew)));
        osd.sessions.closed(ConnId(11));
        close(osd);
    });
}
