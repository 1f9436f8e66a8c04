//! Where everything of the simulated cluster is: hosts, and the pool.

use std::net::{IpAddr, SocketAddr};
use types::{EntityAddr, OsdId, PoolId};

/// More PGs than this are not split.
pub const PGS_MAX: u32 = 32;
pub const POOL: PoolId = 1;
const MON_PORT: u16 = 3300;

pub fn mon_addr() -> EntityAddr {
    EntityAddr::msgr2(SocketAddr::new(mon_host(), MON_PORT), 0)
}
pub fn mon_host() -> IpAddr {
    [10, 0, 0, 1].into()
}
pub fn operator_host() -> IpAddr {
    [10, 0, 0, 2].into()
}
/// Of -1, no OSD, an address that nobody has.
pub fn osd_host(id: OsdId) -> IpAddr {
    match u8::try_from(id) {
        Ok(id) if id < u8::MAX => [10, 0, 1, id + 1].into(),
        Ok(_) | Err(_) if id >= 0 => [10, 64, (id >> 8) as u8, id as u8].into(),
        _ => [10, 0, 1, 0].into(),
    }
}
pub fn client_host(id: u64) -> IpAddr {
    [10, 0, 2 + (id / 250) as u8, (id % 250) as u8 + 1].into()
}
