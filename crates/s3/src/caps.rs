//! Capabilities of users, as radosgw has them: what they may do as administrators. Rows of the object `users`.
//!
//! ```text
//! z USER             Caps
//! ```

use crate::accounts::{Accounts, USERS, User, row};
use crate::rados::{Change, Look, Pool};
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};

const TRIES_MAX: usize = 16;

/// Read, and write.
const READ: u8 = 1;
const WRITE: u8 = 2;
const BOTH: u8 = READ | WRITE;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caps {
    /// When the user was made whose they are: they are no later one's.
    of: u64,
    /// What he may do with roles that are his.
    roles: u8,
}

denc::envelope_denc!(Caps, 1, 1, { of, roles });

impl Caps {
    pub fn reads_roles(self) -> bool {
        self.roles & READ != 0
    }

    pub fn writes_roles(self) -> bool {
        self.roles & WRITE != 0
    }

    /// As radosgw-admin writes them.
    pub fn text(self) -> &'static str {
        match self.roles {
            0 => "",
            READ => "roles=read",
            WRITE => "roles=write",
            _ => "roles=*",
        }
    }
}

/// `roles=*`, `roles=read`, `roles=read, write`.
fn parse(text: &str) -> Result<u8> {
    let wrong = || {
        Error::Invalid(format!(
            "{text:?}: capabilities here are roles=read, roles=write and roles=*"
        ))
    };
    let (kind, what) = text.split_once('=').ok_or_else(wrong)?;
    if kind.trim() != "roles" {
        return Err(wrong());
    }
    let mut bits = what.split(',').map(|word| match word.trim() {
        "read" => Ok(READ),
        "write" => Ok(WRITE),
        "*" => Ok(BOTH),
        _ => Err(wrong()),
    });
    bits.try_fold(0, |all, bit| Ok(all | bit?))
}

impl<P: Pool> Accounts<P> {
    async fn caps_seen(&self, user: &str) -> Result<(Bytes, Option<Bytes>, Caps)> {
        let (of_user, at) = (row("u", user), row("z", user));
        let mut seen = self.pool.look(USERS, Look::keys([&of_user, &at])).await?.values;
        let there = seen.remove(&of_user).ok_or(Error::NoSuchUser)?;
        let created = User::from_bytes(&there)?.created;
        let raw = seen.remove(&at);
        let caps = raw.as_ref().map(Caps::from_bytes).transpose()?;
        let none = Caps {
            of: created,
            roles: 0,
        };
        Ok((there, raw, caps.filter(|c| c.of == created).unwrap_or(none)))
    }

    pub async fn caps(&self, user: &str) -> Result<Caps> {
        self.caps_seen(user).await.map(|(_, _, caps)| caps)
    }

    /// Gives some, or takes them away.
    pub async fn change_caps(&self, user: &str, text: &str, gives: bool) -> Result<Caps> {
        let bits = parse(text)?;
        let at = row("z", user);
        for _ in 0..TRIES_MAX {
            let (there, raw, mut caps) = self.caps_seen(user).await?;
            caps.roles = if gives {
                caps.roles | bits
            } else {
                caps.roles & !bits
            };
            let change = Change::default()
                .expecting(&row("u", user), Some(&there))
                .expecting(&at, raw.as_ref())
                .setting(&at, caps.to_bytes());
            match self.pool.change(USERS, change).await {
                Err(e) if e.is_conflict() => {}
                other => return other.map(|()| caps),
            }
        }
        Err(Error::Conflict("others change the same user"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_radosgw_writes_them() {
        for (text, bits) in [
            ("roles=*", BOTH),
            ("roles=read", READ),
            ("roles = write", WRITE),
            ("roles=read, write", BOTH),
        ] {
            assert_eq!(parse(text), Ok(bits), "{text}");
        }
        for bad in [
            "",
            "roles",
            "roles=",
            "users=*",
            "roles=all",
            "roles=read;users=*",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
