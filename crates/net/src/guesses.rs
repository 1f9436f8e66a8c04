//! Who fails to authenticate waits for its answer, the longer the more it has failed: an address learns of a few wrong
//! keys a second, over however many connections it asks.
//!
//! Only refusals wait. A right key gets in at once, from the same address, too; so who hangs up at once can tell a wrong
//! key by the silence, as fast as it may open connections (`connections_max` and what bounds them per address).
//!
//! Bounds: [`ADDRESSES_MAX`] addresses; at the bound the one that failed longest ago is forgotten.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;
/// Between the answers to an address's first failures.
const PAUSE: Duration = Duration::from_millis(100);
/// Between its answers after many failures.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// No refusal waits for longer.
const WAIT_MAX: Duration = Duration::from_secs(8);
/// Without a failure for so long, an address begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Duration,
    /// When the next answer may leave.
    next: Duration,
}

#[derive(Debug, Default)]
pub struct Guesses {
    by_addr: BTreeMap<IpAddr, Failures>,
}

/// An address of IPv6 stands for its network: one host has 2^64 of them.
pub fn source(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        },
    }
}

impl Guesses {
    /// Credentials from `ip` were refused: so long the answer waits.
    pub fn failed(&mut self, ip: IpAddr, now: Duration) -> Duration {
        let ip = source(ip);
        if !self.by_addr.contains_key(&ip) {
            self.make_room(now);
        }
        let f = self.by_addr.entry(ip).or_insert(Failures {
            count: 0,
            last: now,
            next: now,
        });
        if now.saturating_sub(f.last) > FORGOTTEN_AFTER {
            f.count = 0;
        }
        f.count = f.count.saturating_add(1);
        f.last = now;
        let pause = PAUSE.saturating_mul(f.count).min(PAUSE_MAX);
        f.next = (f.next.max(now) + pause).min(now + WAIT_MAX);
        f.next - now
    }

    fn make_room(&mut self, now: Duration) {
        if self.by_addr.len() < ADDRESSES_MAX {
            return;
        }
        self.by_addr
            .retain(|_, f| now.saturating_sub(f.last) <= FORGOTTEN_AFTER);
        if self.by_addr.len() >= ADDRESSES_MAX {
            let oldest = self.by_addr.iter().min_by_key(|(_, f)| f.last).map(|(ip, _)| *ip);
            oldest.map(|ip| self.by_addr.remove(&ip));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    /// One address could try 394 keys a second.
    #[test]
    fn an_address_learns_of_a_few_wrong_keys_a_second() {
        let mut guesses = Guesses::default();
        // One after the other: each attempt begins when the last was answered.
        let mut now = Duration::ZERO;
        let mut answered = 0;
        while now < Duration::from_secs(60) {
            now += guesses.failed(ip(1), now);
            answered += 1;
        }
        assert!((50..80).contains(&answered), "{answered} in a minute");
        // Many at once: nobody waits for ever, nor is anybody answered sooner for asking twice.
        let at = now;
        let waits: Vec<Duration> = (0..100).map(|_| guesses.failed(ip(1), at)).collect();
        assert!(waits.is_sorted());
        assert_eq!(waits[99], WAIT_MAX);
        // Others are not concerned, and all is forgotten in the end.
        assert_eq!(guesses.failed(ip(2), at), PAUSE);
        let later = at + FORGOTTEN_AFTER * 3;
        assert_eq!(guesses.failed(ip(1), later), PAUSE);
    }

    #[test]
    fn the_table_has_a_bound() {
        let mut guesses = Guesses::default();
        for n in 0..2 * ADDRESSES_MAX as u32 {
            guesses.failed(ip(n), Duration::from_millis(n.into()));
        }
        assert_eq!(guesses.by_addr.len(), ADDRESSES_MAX);
        let near: IpAddr = "2001:db8::1".parse().unwrap();
        let same: IpAddr = "2001:db8::2".parse().unwrap();
        assert_eq!(source(near), source(same));
    }
}
