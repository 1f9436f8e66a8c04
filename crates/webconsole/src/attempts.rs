//! Failed attempts to log in, counted per address and in total: who guesses, waits.
//!
//! Bounds: [`ADDRESSES_MAX`] addresses are remembered, each for [`WINDOW`]; when there are more, nobody new gets in until some
//! are forgotten.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

pub const PER_ADDRESS: u32 = 10;
pub const IN_TOTAL: u32 = 100;
pub const WINDOW: Duration = Duration::from_secs(60);
const ADDRESSES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct Attempts {
    failed: HashMap<IpAddr, Window>,
    total: Window,
}

#[derive(Debug, Default, Clone, Copy)]
struct Window {
    since: Duration,
    count: u32,
}

impl Window {
    fn is_over(&self, now: Duration) -> bool {
        self.count == 0 || now.saturating_sub(self.since) >= WINDOW
    }

    fn add(&mut self, now: Duration) {
        if self.is_over(now) {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
    }

    /// How long nobody may try.
    fn closed_for(&self, now: Duration, most: u32) -> Option<Duration> {
        let closed = !self.is_over(now) && self.count >= most;
        closed.then(|| (self.since + WINDOW).saturating_sub(now))
    }
}

/// Whoever has a network of version 6 has all addresses of it.
fn place(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        },
        v4 => v4,
    }
}

impl Attempts {
    /// Counts an attempt before it is made; Err: how long to wait. [`Self::succeeded`] takes it back.
    pub fn begin(&mut self, ip: IpAddr, now: Duration) -> Result<(), Duration> {
        let ip = place(ip);
        self.failed.retain(|_, w| !w.is_over(now));
        if let Some(wait) = self.total.closed_for(now, IN_TOTAL) {
            return Err(wait);
        }
        if !self.failed.contains_key(&ip) && self.failed.len() >= ADDRESSES_MAX {
            return Err(WINDOW);
        }
        let of = self.failed.entry(ip).or_default();
        if let Some(wait) = of.closed_for(now, PER_ADDRESS) {
            return Err(wait);
        }
        of.add(now);
        self.total.add(now);
        Ok(())
    }

    pub fn succeeded(&mut self, ip: IpAddr) {
        if let Some(of) = self.failed.get_mut(&place(ip)) {
            of.count = of.count.saturating_sub(1);
        }
        self.total.count = self.total.count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ip(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(n))
    }

    const fn at(secs: u64) -> Duration {
        Duration::from_secs(1000 + secs)
    }

    #[test]
    fn an_address_waits_after_its_failures_and_others_do_not() {
        let mut a = Attempts::default();
        for _ in 0..PER_ADDRESS {
            assert_eq!(a.begin(ip(1), at(0)), Ok(()));
        }
        assert_eq!(a.begin(ip(1), at(20)), Err(Duration::from_secs(40)));
        assert_eq!(a.begin(ip(2), at(20)), Ok(()));
        assert_eq!(a.begin(ip(1), at(60)), Ok(()));
    }

    #[test]
    fn what_succeeded_does_not_count() {
        let mut a = Attempts::default();
        for _ in 0..10 * IN_TOTAL {
            assert_eq!(a.begin(ip(1), at(0)), Ok(()));
            a.succeeded(ip(1));
        }
    }

    #[test]
    fn many_addresses_share_a_total() {
        let mut a = Attempts::default();
        for n in 0..IN_TOTAL {
            assert_eq!(a.begin(ip(n), at(0)), Ok(()));
        }
        assert!(a.begin(ip(5000), at(59)).is_err());
        assert_eq!(a.begin(ip(5000), at(60)), Ok(()));
    }

    #[test]
    fn addresses_are_bounded() {
        let mut a = Attempts::default();
        for n in 0..(ADDRESSES_MAX as u32 + 10) {
            // Each at another time, so that the total does not close.
            a.total = Window::default();
            let _ = a.begin(ip(n), at(0));
        }
        assert_eq!(a.failed.len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_network_of_version_6_is_one_place() {
        let of = |s: &str| place(s.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::4"), of("2001:db8:1:3::4"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
