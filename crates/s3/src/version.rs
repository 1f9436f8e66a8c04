//! What is written of versions: their places, delete markers, and locks.

use denc::{Decode, Encode, Reader, Writer};
use std::fmt;

/// Where a version is among those of its key: newest first. In hex it is the id that clients are told, but for `null`.
///
/// The first half is a time (65,536 to a millisecond), turned round; the one after is later whatever the gateways' clocks say. The
/// second is random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order([u8; 16]);

impl Order {
    /// Bytes of its text.
    pub const TEXT: usize = 32;

    /// The first of a millisecond.
    pub fn at(ms: u64) -> u64 {
        (ms & (u64::MAX >> 16)) << 16
    }

    pub fn new(at: u64, random: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(!at).to_be_bytes());
        bytes[8..].copy_from_slice(&random.to_be_bytes());
        Self(bytes)
    }

    pub fn time(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        !u64::from_be_bytes(bytes)
    }

    /// In lower case alone: a version has one id.
    pub fn parse(text: &str) -> Option<Self> {
        let lower = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let bytes = hex::decode(text).ok().filter(|_| lower)?;
        Some(Self(bytes.try_into().ok()?))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for Order {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}

impl Decode for Order {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self(r.array()?))
    }
    const MIN_SIZE: usize = 16;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub order: Order,
    /// Written while versioning was off or suspended: its id is `null`.
    pub null: bool,
}

denc::envelope_denc!(Version, 1, 1, { order, null });

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.null {
            true => f.write_str("null"),
            false => fmt::Display::fmt(&self.order, f),
        }
    }
}

/// Until then a version stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Nobody may shorten it; else (`GOVERNANCE`) who has the right to.
    pub compliance: bool,
    /// Milliseconds since 1970.
    pub until: u64,
}

denc::envelope_denc!(Retention, 1, 1, { compliance, until });

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lock {
    pub retention: Option<Retention>,
    /// A legal hold.
    pub hold: bool,
}

denc::envelope_denc!(Lock, 1, 1, { retention, hold });

impl Lock {
    /// Whether the version may not be removed now. `bypass`: by somebody who may end a retention of governance.
    pub fn holds(&self, now: u64, bypass: bool) -> bool {
        let kept = |r: Retention| r.until > now && (r.compliance || !bypass);
        self.hold || self.retention.is_some_and(kept)
    }
}

/// Is there as long as a key has rows of versions, and changes with each change of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub generation: u64,
    /// Which of those rows is the version `null`, if one is.
    pub null: Option<Order>,
}

denc::envelope_denc!(Head, 1, 1, { generation, null });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_versions_come_first() {
        let at = Order::at(1_700_000_000_000);
        let (old, new) = (Order::new(at, u64::MAX), Order::new(at + 1, 0));
        assert!(new < old && new.to_string() < old.to_string());
        assert_eq!(new.time(), at + 1);
        assert_eq!(Order::parse(&new.to_string()), Some(new));
        for bad in [
            "",
            "null",
            "0",
            &new.to_string().to_uppercase(),
            &"0".repeat(34),
            &"g".repeat(32),
        ] {
            assert_eq!(Order::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_lock_holds_for_its_time() {
        let of = |compliance| Lock {
            retention: Some(Retention {
                compliance,
                until: 10,
            }),
            hold: false,
        };
        assert!(of(true).holds(9, true) && of(false).holds(9, false));
        assert!(!of(true).holds(10, false) && !of(false).holds(9, true));
        let hold = Lock {
            retention: None,
            hold: true,
        };
        assert!(hold.holds(0, true) && !Lock::default().holds(0, false));
    }
}
