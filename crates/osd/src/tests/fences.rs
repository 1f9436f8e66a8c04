//! Who is fenced, by whichever of its addresses and by its instance; and what becomes of its sessions.

use super::*;
use auth::{AuthMethod, PeerCaps};
use cluster::ClusterState;
use msgr::Peer;
use net::{ConnId, NetEvent};
use std::net::SocketAddr;
use types::addr::AddrKind;

fn at(text: &str, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(text.parse().unwrap(), nonce)
}

/// A client of this global id opens a session.
fn open(osd: &mut Osd, conn: u64, gid: u64, claimed: EntityAddr, sock: &str) -> Arc<Client> {
    let peer = Peer {
        name: EntityName::client(gid),
        auth_name: AuthName::new(EntityKind::Client, "x"),
        global_id: gid,
        caps: PeerCaps::AllowAll,
        key_epoch: None,
        addrs: EntityAddrVec::one(claimed),
        sock: sock.parse::<SocketAddr>().unwrap(),
        features: msgr::features::SUPPORTED,
        method: AuthMethod::Cephx,
        secure: false,
        server_challenge: None,
        lifeline: false,
        lossless: false,
        monmap_epoch: None,
    };
    let (conn, peer) = (ConnId(conn), Arc::new(peer));
    osd.on_net(NetEvent::Opened { conn, peer });
    osd.sessions.client(conn).unwrap()
}

async fn edit(rig: &Rig, osd: &mut Osd, add: &[EntityAddr], remove: &[EntityAddr]) {
    let decide = |state: &ClusterState| {
        let mut changes = Changes::none();
        let inc = changes.inc(state, Utime::ZERO);
        let until = Utime {
            sec: u32::MAX,
            nsec: 0,
        };
        inc.new_blocklist.extend(add.iter().map(|e| (*e, until)));
        inc.old_blocklist.extend(remove);
        (changes, ())
    };
    rig.cluster.commit(decide).await.unwrap();
    osd.on_cluster();
}

/// True once the cluster state knows that this instance is fenced, so that every OSD hears of it.
async fn everybody_knows(rig: &Rig, gid: u64) {
    let mut state = rig.cluster.subscribe_state();
    state.wait_for(|s| s.is_fenced_id(gid)).await.unwrap();
}

/// What a PG of this OSD thinks of the client.
fn is_refused(osd: &Osd, client: &Client) -> bool {
    let (_, pg) = osd.pgs().next().unwrap();
    client.is_fenced(pg.pool())
}

#[test]
fn a_fenced_instance_stays_fenced_under_another_nonce_or_address() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        let victim = at("10.0.0.5:0", 77);
        let entry = victim.to_blocklist_form();
        let first = open(&mut osd, 1, 4200, victim, "10.0.0.5:999");
        // The same instance by another connection, under another name of its address; and somebody else.
        let twin = open(&mut osd, 2, 4200, at("10.0.0.5:0", 78), "10.0.0.5:998");
        let other = open(&mut osd, 3, 4300, at("10.0.0.5:0", 79), "10.0.0.5:997");
        assert!(!is_refused(&osd, &first) && !is_refused(&osd, &twin));
        edit(&rig, &mut osd, &[entry], &[]).await;
        assert!(
            is_refused(&osd, &first) && is_refused(&osd, &twin),
            "with the map that says so"
        );
        assert!(!is_refused(&osd, &other));
        // When its sessions are over, it comes again as somebody else at another host.
        for conn in [1, 2] {
            osd.on_net(NetEvent::Closed { conn: ConnId(conn) });
        }
        let again = open(&mut osd, 4, 4200, at("10.9.9.9:0", 80), "10.9.9.9:1");
        assert!(is_refused(&osd, &again));
        everybody_knows(&rig, 4200).await;
        osd.on_cluster();
        // An OSD that never saw it under the fenced address, or this one after a restart.
        close(osd);
        let mut osd = rig.osd().await;
        let late = open(&mut osd, 1, 4200, at("10.8.8.8:0", 81), "10.8.8.8:1");
        assert!(is_refused(&osd, &late));
        let other = open(&mut osd, 2, 4300, at("10.0.0.5:0", 79), "10.0.0.5:1");
        assert!(!is_refused(&osd, &other));
        // The entry goes, and with it what it fenced.
        edit(&rig, &mut osd, &[], &[entry]).await;
        assert!(!is_refused(&osd, &late));
        assert_eq!(rig.cluster.state().fenced_ids().count(), 0);
        close(osd);
    });
}

#[test]
fn who_is_met_under_a_fenced_address_later_is_remembered_as_well() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        let net = EntityAddr {
            kind: AddrKind::Any,
            nonce: 0,
            sock: Some("10.0.0.5:0".parse().unwrap()),
        };
        edit(&rig, &mut osd, &[net], &[]).await;
        // It says that it is another host, but it sends from the fenced one.
        let liar = open(&mut osd, 1, 4200, at("10.9.9.9:0", 5), "10.0.0.5:1");
        assert!(is_refused(&osd, &liar));
        let moved = open(&mut osd, 2, 4200, at("10.9.9.9:0", 5), "10.9.9.9:1");
        assert!(is_refused(&osd, &moved));
        everybody_knows(&rig, 4200).await;
        close(osd);
    });
}

/// Capabilities go by where packets come from.
#[test]
fn a_network_is_that_of_the_socket() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        let client = open(&mut osd, 1, 4200, at("10.0.0.5:0", 5), "192.168.7.7:1");
        assert_eq!(client.from, "192.168.7.7".parse().ok());
        assert_eq!(client.addr, at("10.0.0.5:0", 5));
        close(osd);
    });
}

/// By the wire: the connection ends with the map, and the next one is told why nothing is done.
#[test]
fn the_session_of_a_fenced_client_ends_at_once() {
    local(async {
        let rig = Rig::new().await;
        let mut running = start(&rig).await;
        let m = rig.request(1, 0, write(0, vec![1; 10]));
        running.client.send(m.to_message()).await.unwrap();
        assert_eq!(reply(&mut running.client).await.result, 0);
        // Its address is what the server saw: an entry for the whole host.
        let entry = at("127.0.0.1:0", 0).to_blocklist_form();
        let decide = |state: &ClusterState| {
            let mut changes = Changes::none();
            let until = Utime {
                sec: u32::MAX,
                nsec: 0,
            };
            changes.inc(state, Utime::ZERO).new_blocklist.insert(entry, until);
            (changes, ())
        };
        rig.cluster.commit(decide).await.unwrap();
        while running.client.recv().await.is_ok() {}
        let l = Loop {
            stop: running.stop,
            ended: running.ended,
            at: rig.cluster.osdmap().osd(0).unwrap().client_addrs.first(),
        };
        let mut client = connect(l.at).await;
        let m = rig.request(2, 0, write(0, vec![2; 10]));
        client.send(m.to_message()).await.unwrap();
        assert_eq!(reply(&mut client).await.result, Errno::EBLOCKLISTED.code());
        l.stop.send(true).unwrap();
        l.ended.await.unwrap().unwrap();
    });
}
