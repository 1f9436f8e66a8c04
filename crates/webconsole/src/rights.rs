//! What an entity's capabilities at the monitor let it do here: the monitor's own check, asked of the key database.
//!
//! Who may read the cluster's maps may look; who may also change the OSD map sees buttons. Each act is checked again where it is
//! carried out, by the monitor's and the OSDs' capabilities as they are then.

use auth::caps::{Access, MonCaps, MonNeed};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
}

impl Rights {
    /// `caps`: the text for `mon`. `peer`: where the browser is, for grants that hold in a network alone.
    pub fn of(caps: Option<&str>, peer: IpAddr) -> Self {
        let caps = caps
            .and_then(|text| MonCaps::parse(text).ok())
            .unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_decide() {
        let check = |caps: Option<&str>, read, write| {
            let found = Rights::of(caps, "10.1.2.3".parse().unwrap());
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
}
