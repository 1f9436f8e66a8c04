//! What an entity's capabilities at the monitor let it do here: the monitor's own check, asked of the key database.
//!
//! Who may read the cluster's maps may look; who may also change the OSD map sees buttons. Each act is checked again where it is
//! carried out, by the monitor's and the OSDs' capabilities as they are then.
//!
//! What monitors and OSDs see is the console's address, not the browser's: an entity with a grant for a network in which the
//! browser is not may do nothing here, or it could do from everywhere what it may do there.

use auth::caps::{Access, MgrCaps, MonCaps, MonNeed, OsdCaps};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
}

impl Rights {
    /// `all`: texts by service. `peer`: where the browser is, for grants that hold in a network alone.
    pub fn of(all: &BTreeMap<String, String>, peer: IpAddr) -> Self {
        if !hold_for(all, peer) {
            return Self::default();
        }
        let caps = all.get("mon").and_then(|text| MonCaps::parse(text).ok());
        let caps = caps.unwrap_or_default();
        let args = BTreeMap::new();
        let may = |service, access| {
            caps.allows(&MonNeed {
                service,
                command: "",
                args: &args,
                access,
                peer: Some(peer),
            })
        };
        let read = ["mon", "osd", "pg"].into_iter().all(|s| may(s, Access::R));
        Self {
            read,
            write: read && may("osd", Access::RW),
        }
    }
}

/// Whether all grants for a network hold for `peer`. What does not parse gives nothing.
fn hold_for(all: &BTreeMap<String, String>, peer: IpAddr) -> bool {
    all.iter().all(|(service, text)| match service.as_str() {
        "mon" => MonCaps::parse(text).ok().is_none_or(|c| c.hold_for(peer)),
        "osd" => OsdCaps::parse(text).ok().is_none_or(|c| c.hold_for(peer)),
        "mgr" => MgrCaps::parse(text).ok().is_none_or(|c| c.hold_for(peer)),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_decide() {
        let check = |caps: Option<&str>, read, write| {
            let caps: BTreeMap<_, _> = caps.map(|c| ("mon".into(), c.into())).into_iter().collect();
            let found = Rights::of(&caps, "10.1.2.3".parse().unwrap());
            assert_eq!(found, Rights { read, write }, "{caps:?}");
        };
        check(Some("allow *"), true, true);
        check(Some("allow rw"), true, true);
        check(Some("allow r"), true, false);
        check(Some("profile rbd"), true, false);
        check(Some("profile read-only"), true, false);
        check(Some("allow r, allow service osd rw"), true, true);
        check(Some("allow r network 10.0.0.0/8"), true, false);
        check(Some("allow * network 192.168.0.0/16"), false, false);
        check(Some("allow command \"status\""), false, false);
        check(Some("allow w"), false, false);
        check(Some("not a capability"), false, false);
        check(None, false, false);
    }

    #[test]
    fn grants_for_a_network_are_judged_by_where_the_browser_is() {
        let caps = |service: &str, text: &str| {
            BTreeMap::from([
                ("mon".to_string(), "allow *".to_string()),
                (service.to_string(), text.to_string()),
            ])
        };
        for (service, text) in [
            ("mon", "allow r, allow * network 10.1.0.0/16"),
            ("osd", "allow r pool=a, allow rwx pool=b network 10.1.0.0/16"),
            ("osd", "profile rbd pool=vms network 10.1.0.0/16"),
            ("mgr", "allow r network 10.1.0.0/16"),
        ] {
            let read = |peer: &str| Rights::of(&caps(service, text), peer.parse().unwrap()).read;
            assert!(read("10.1.2.3"), "{text}");
            assert!(!read("10.2.0.1") && !read("::1"), "{text}");
        }
        // What the OSDs do not understand gives nothing there.
        assert!(Rights::of(&caps("osd", "no capability"), "10.1.2.3".parse().unwrap()).read);
    }
}
