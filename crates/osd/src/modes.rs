//! How an OSD's connections are to be protected, by the central configuration.

use cluster::ClusterState;
use msgr::Modes;
use types::{AuthName, EntityKind, OsdId};

pub fn name_of(osd: OsdId) -> AuthName {
    AuthName::new(EntityKind::Osd, osd.to_string())
}

pub fn of(state: &ClusterState, osd: OsdId) -> Modes {
    let me = name_of(osd);
    Modes::of(EntityKind::Osd, |name| state.option(&me, name))
}
