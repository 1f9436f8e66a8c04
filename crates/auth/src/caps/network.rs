//! The network clause of a grant: the grant counts only for peers inside.

use std::net::IpAddr;

/// `prefix` is `None` for a text that parses as a clause but names no network: nobody is inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    prefix: Option<(IpAddr, u8)>,
}

fn bits(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(a) => (u128::from(u32::from(a)) << 96, 32),
        IpAddr::V6(a) => (u128::from(a), 128),
    }
}

impl Network {
    pub fn new(text: &str) -> Self {
        let (ip, len) = match text.split_once('/') {
            Some((ip, len)) => (ip.parse().ok(), len.parse().ok()),
            None => {
                let ip: Option<IpAddr> = text.parse().ok();
                (ip, ip.map(|ip| bits(ip).1))
            }
        };
        let prefix = ip.zip(len).filter(|(ip, len)| *len <= bits(*ip).1);
        Self { prefix }
    }

    pub fn contains(&self, peer: IpAddr) -> bool {
        let Some((net, len)) = self.prefix else {
            return false;
        };
        let ((a, wa), (b, wb)) = (bits(net), bits(peer));
        wa == wb && (len == 0 || (a ^ b) >> (128 - u32::from(len)) == 0)
    }
}

/// True when there is no clause or the peer is inside. A peer without address is never inside.
pub(super) fn admits(net: &Option<Network>, peer: Option<IpAddr>) -> bool {
    match net {
        None => true,
        Some(n) => peer.is_some_and(|p| n.contains(p)),
    }
}
