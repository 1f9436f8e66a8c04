//! Capabilities of users, as radosgw has them: what they may do as administrators. Rows of the object `users`.
//!
//! ```text
//! z USER             Caps
//! ```

use crate::accounts::{Accounts, USERS, User, row};
use crate::rados::{Change, Look, Pool};
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};

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
    /// And with all users, and their keys.
    users: u8,
}

const WITH_USERS: u8 = 2;

impl Encode for Caps {
    fn encode(&self, w: &mut Writer) {
        let version = if self.users == 0 { 1 } else { WITH_USERS };
        w.envelope(version, version, |w| {
            w.put(&self.of);
            w.put(&self.roles);
            if version >= WITH_USERS {
                w.put(&self.users);
            }
        });
    }
}

impl Decode for Caps {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_USERS, |version, r| {
            Ok(Self {
                of: r.get()?,
                roles: r.get()?,
                users: if version < WITH_USERS { 0 } else { r.get()? },
            })
        })
    }
}

impl Caps {
    pub fn reads_roles(self) -> bool {
        self.roles & READ != 0
    }

    pub fn writes_roles(self) -> bool {
        self.roles & WRITE != 0
    }

    pub fn reads_users(self) -> bool {
        self.users & READ != 0
    }

    pub fn writes_users(self) -> bool {
        self.users & WRITE != 0
    }

    /// As radosgw-admin takes them.
    pub fn text(self) -> String {
        let one = |(kind, bits): (&str, u8)| match bits {
            0 => None,
            READ => Some(format!("{kind}=read")),
            WRITE => Some(format!("{kind}=write")),
            _ => Some(format!("{kind}=*")),
        };
        let all = [("roles", self.roles), ("users", self.users)];
        all.into_iter().filter_map(one).collect::<Vec<_>>().join(";")
    }
}

/// Of roles, and of users: `roles=*`, `users=read`, `roles=read, write; users=*`.
fn parse(text: &str) -> Result<(u8, u8)> {
    let wrong = || {
        Error::Invalid(format!(
            "{text:?}: capabilities here are roles and users, each =read, =write or =*, several with a semicolon between them"
        ))
    };
    let (mut roles, mut users) = (0, 0);
    for one in text.split(';') {
        let (kind, what) = one.split_once('=').ok_or_else(wrong)?;
        let of = match kind.trim() {
            "roles" => &mut roles,
            "users" => &mut users,
            _ => return Err(wrong()),
        };
        for word in what.split(',') {
            *of |= match word.trim() {
                "read" => READ,
                "write" => WRITE,
                "*" => BOTH,
                _ => return Err(wrong()),
            };
        }
    }
    Ok((roles, users))
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
            ..Caps::default()
        };
        Ok((there, raw, caps.filter(|c| c.of == created).unwrap_or(none)))
    }

    pub async fn caps(&self, user: &str) -> Result<Caps> {
        self.caps_seen(user).await.map(|(_, _, caps)| caps)
    }

    /// Gives some, or takes them away.
    pub async fn change_caps(&self, user: &str, text: &str, gives: bool) -> Result<Caps> {
        let (roles, users) = parse(text)?;
        let at = row("z", user);
        for _ in 0..TRIES_MAX {
            let (there, raw, mut caps) = self.caps_seen(user).await?;
            (caps.roles, caps.users) = match gives {
                true => (caps.roles | roles, caps.users | users),
                false => (caps.roles & !roles, caps.users & !users),
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
            ("roles=*", (BOTH, 0)),
            ("roles=read", (READ, 0)),
            ("roles = write", (WRITE, 0)),
            ("roles=read, write", (BOTH, 0)),
            ("users=*", (0, BOTH)),
            ("users=read;roles=write", (WRITE, READ)),
            ("users=read; users=write", (0, BOTH)),
        ] {
            assert_eq!(parse(text), Ok(bits), "{text}");
        }
        for bad in [
            "",
            "roles",
            "roles=",
            "buckets=*",
            "roles=all",
            "roles=read;",
            "roles=read;buckets=*",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn who_does_not_know_of_a_capability_refuses_it() {
        for (roles, users, version, text) in [
            (0, 0, 1, ""),
            (BOTH, 0, 1, "roles=*"),
            (READ, WRITE, 2, "roles=read;users=write"),
            (0, BOTH, 2, "users=*"),
        ] {
            let caps = Caps { of: 7, roles, users };
            let bytes = caps.to_bytes();
            assert_eq!(bytes[..2], [version, version]);
            assert_eq!(Caps::from_bytes(&bytes), Ok(caps));
            assert_eq!(caps.text(), text);
        }
    }
}
