//! Who gets a lifeline: OSDs, from those that keep them, at the address that was meant. Nobody else hears of them.

#![allow(clippy::unwrap_used)]

use auth::{AllowNone, ConMode, Entropy, NoneClient};
use msgr::*;
use std::sync::Arc;
use types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Utime};

fn entropy() -> Arc<dyn Entropy> {
    Arc::new(|b: &mut [u8]| b.fill(3))
}

/// An OSD's address in its run `nonce`.
fn addr(nonce: u32) -> EntityAddr {
    EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), nonce)
}

/// What both sides know after the handshake: the server's peer asked for a lifeline, the client that they are kept. None: refused.
fn check(kind: EntityKind, asks: bool, keeps: bool, meant: u32) -> Option<(bool, bool)> {
    let config = ServerConfig {
        lifelines: keeps,
        ..ServerConfig::new(
            EntityName::osd(0),
            EntityAddrVec::one(addr(9)),
            Arc::new(AllowNone),
            entropy(),
        )
    };
    let mut server = ServerConnection::new(Arc::new(config), "127.0.0.1:5000".parse().unwrap(), 1);
    let mut config = ClientConfig {
        kind,
        gid: 3,
        modes: vec![ConMode::Crc],
        ..ClientConfig::new(EntityKind::Osd, addr(meant), 5, entropy())
    };
    if asks {
        config.flags |= FLAG_LIFELINE;
    }
    let name = AuthName::new(kind, "3");
    let mut client = ClientConnection::new(config, NoneClient { name, global_id: 3 });
    let mut peer = None;
    loop {
        server.feed(&client.output().take());
        if let Some(Event::Ready(p)) = server.next(Utime::ZERO).ok()? {
            peer = Some(p);
        }
        client.feed(&server.output().take());
        if let Some(ClientEvent::Ready(ident)) = client.next(Utime::ZERO).ok()? {
            // Nothing is left to be said, on which a lifeline's end depends.
            assert!(client.output().is_empty() && server.output().is_empty());
            return Some((peer?.lifeline, ident.flags & FLAG_LIFELINE != 0));
        }
    }
}

#[test]
fn only_osds_get_lifelines_and_only_from_who_keeps_them() {
    use EntityKind::{Client, Osd};
    assert_eq!(check(Osd, true, true, 9), Some((true, true)));
    assert_eq!(check(Osd, false, true, 9), Some((false, true)));
    assert_eq!(check(Osd, false, false, 9), Some((false, false)));
    assert_eq!(check(Osd, true, false, 9), None);
    assert_eq!(check(Client, true, true, 9), None);
    // A stock client sees the flags that it always saw.
    assert_eq!(check(Client, false, true, 9), Some((false, false)));
}

#[test]
fn another_run_at_the_same_port_is_another_process() {
    assert_eq!(check(EntityKind::Osd, true, true, 8), None);
}
