//! Capabilities: what an entity may do at each kind of service (docs/protocol/ceph/01-messenger.md, section 7).
//!
//! A text is a list of *grants*; a *profile* is a named list of grants. Parsing accepts what 16.2 accepts
//! and fails with its words (vectors/auth/caps-validate.jsonl); evaluation is per service: [`MonCaps`],
//! [`OsdCaps`], [`MgrCaps`], [`MdsCaps`]. What a text does not grant is denied.

mod args;
mod cursor;
mod mds;
mod mgr;
mod mon;
mod network;
mod osd;

pub use mds::{MdsCaps, MdsNeed};
pub use mgr::{MgrCaps, MgrNeed};
pub use mon::{MonCaps, MonNeed};
pub use network::Network;
pub use osd::{ClassCall, OsdCaps, OsdNeed};

use std::fmt;
use std::ops::BitOr;

/// A set of the rights read, write, execute.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Access(u8);

impl Access {
    pub const NONE: Self = Self(0);
    pub const R: Self = Self(1);
    pub const W: Self = Self(2);
    pub const X: Self = Self(4);
    pub const RW: Self = Self(3);
    pub const ALL: Self = Self(7);

    pub fn contains(self, need: Self) -> bool {
        self.0 & need.0 == need.0
    }
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, o: Self) -> Self {
        Self(self.0 | o.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, c) in [(Self::R, "r"), (Self::W, "w"), (Self::X, "x")] {
            f.write_str(if self.contains(bit) { c } else { "-" })?;
        }
        Ok(())
    }
}

/// Why a text is not a capability: the words of the real monitor, status -EINVAL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CapsError(pub String);

impl CapsError {
    /// `rest` is what could not be parsed. Monitor and manager say "end" when nothing is left.
    fn stopped(service: &str, rest: &str, text: &str) -> Self {
        let at = match service {
            "mon" | "mgr" if rest.is_empty() => "end".to_string(),
            _ => format!("'{rest}'"),
        };
        Self(format!(
            "{service} capability parse failed, stopped at {at} of '{text}'"
        ))
    }
}

/// Longest capability text taken: a ticket with it must fit a frame sent before authentication.
pub const CAPS_TEXT_MAX: usize = 4096;

/// Checks one service's text as `auth add`, `auth caps` and `auth get-or-create` do.
pub fn validate(service: &str, text: &str) -> Result<(), CapsError> {
    if text.len() > CAPS_TEXT_MAX {
        return Err(CapsError(format!(
            "{service} capability is longer than {CAPS_TEXT_MAX} bytes"
        )));
    }
    match service {
        "mon" => MonCaps::parse(text).map(drop),
        "osd" => OsdCaps::parse(text).map(drop),
        "mds" => MdsCaps::parse(text).map(drop),
        "mgr" => MgrCaps::parse(text).map(drop),
        other => Err(CapsError(format!("unknown cap type '{other}'"))),
    }
}
