//! Subusers, who speak Swift with a key of their own, and what accounts have as accounts of Swift: rows of the object `users`.
//!
//! ```text
//! w USER 00 NAME     Subuser
//! m USER             Account: metadata, keys of temporary URLs among them
//! t                  what gateways sign tokens with: 32 random bytes, which the first of them makes
//! ```
//!
//! A subuser belongs to the user of that name who was there when it was made, and to no later one.

use crate::accounts::{Accounts, USERS, User, all_rows, row};
use crate::names::check_name;
use crate::rados::{Change, Look, Pool};
use crate::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use std::fmt;

/// Of one user.
const SUBUSERS_MAX: usize = 100;
const SECRET_BYTES: usize = 30;
const TRIES_MAX: usize = 16;
/// What tokens are signed with.
pub const TOKEN_SECRET_BYTES: usize = 32;

/// What a subuser may do, as radosgw names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
    /// And change who else may.
    Full,
}

const NAMES: [(&str, Access); 4] = [
    ("read", Access::Read),
    ("write", Access::Write),
    ("readwrite", Access::ReadWrite),
    ("full", Access::Full),
];

impl Access {
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, a)| *a)
            .ok_or_else(|| "the access is read, write, readwrite or full".to_string())
    }

    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(_, a)| *a == self)
            .map_or("", |(name, _)| name)
    }

    pub fn reads(self) -> bool {
        self != Self::Write
    }

    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

impl Encode for Access {
    fn encode(&self, w: &mut denc::Writer) {
        w.u8(match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::ReadWrite => 3,
            Self::Full => 4,
        });
    }
}

impl Decode for Access {
    fn decode(r: &mut denc::Reader) -> denc::Result<Self> {
        Ok(match r.u8()? {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::ReadWrite,
            4 => Self::Full,
            _ => return Err(r.invalid("access of a subuser")),
        })
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Subuser {
    pub user: String,
    pub name: String,
    pub access: Access,
    /// Empty: there is none.
    pub secret: String,
    /// Another with each change: tokens of before are good for nothing.
    pub version: u64,
    /// When its user was made.
    pub of: u64,
}

denc::envelope_denc!(Subuser, 1, 1, { user, name, access, secret, version, of });

impl fmt::Debug for Subuser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subuser {}:{}", self.user, self.name)
    }
}

impl Subuser {
    /// As clients name it.
    pub fn id(&self) -> String {
        format!("{}:{}", self.user, self.name)
    }
}

/// What is said of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// By names in lower case, without `x-account-meta-`.
    pub meta: BTreeMap<String, String>,
}

denc::envelope_denc!(Account, 1, 1, { meta });

fn prefix(user: &str) -> Bytes {
    [b"w", user.as_bytes(), &[0]].concat().into()
}

fn subuser_row(user: &str, name: &str) -> Bytes {
    [&prefix(user)[..], name.as_bytes()].concat().into()
}

fn secret_row() -> Bytes {
    Bytes::from_static(b"t")
}

/// A subuser as its token is judged, with what tokens are signed with.
pub struct Signer {
    pub secret: Bytes,
    /// None: there is no such subuser.
    pub subuser: Option<Subuser>,
}

impl<P: Pool> Accounts<P> {
    /// `USER:NAME`.
    fn parts(id: &str) -> Result<(&str, &str)> {
        let (user, name) = id
            .split_once(':')
            .ok_or_else(|| Error::Invalid("a subuser is USER:NAME".into()))?;
        check_name(name)?;
        Ok((user, name))
    }

    pub async fn subusers(&self, user: &str) -> Result<Vec<Subuser>> {
        let rows = all_rows(&self.pool, USERS, &prefix(user)).await?;
        let all = rows.iter().map(|(_, v)| Ok(Subuser::from_bytes(v)?));
        all.collect()
    }

    fn new_secret(&self) -> String {
        let mut bytes = [0; SECRET_BYTES];
        self.clock.fill(&mut bytes);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// With a first key.
    pub async fn create_subuser(&self, id: &str, access: Access) -> Result<Subuser> {
        let (user, name) = Self::parts(id)?;
        let there = self.user(user).await?;
        let of_user = self.subusers(user).await?;
        if of_user.len() >= SUBUSERS_MAX {
            return Err(Error::Invalid(format!(
                "a user has at most {SUBUSERS_MAX} subusers"
            )));
        }
        let subuser = Subuser {
            user: user.to_string(),
            name: name.to_string(),
            access,
            secret: self.new_secret(),
            version: self.clock.random_u64(),
            of: there.created,
        };
        let at = subuser_row(user, name);
        // One of a user who was removed is no more.
        let old = of_user.iter().find(|s| s.name == name);
        if old.is_some_and(|s| s.of == there.created) {
            return Err(Error::Invalid(format!("the subuser {id} exists")));
        }
        let change = Change::default()
            .expecting(&row("u", user), Some(&there.to_bytes()))
            .expecting(&at, old.map(Encode::to_bytes).as_ref())
            .setting(&at, subuser.to_bytes());
        match self.pool.change(USERS, change).await {
            Err(e) if e.is_conflict() => Err(Error::Conflict("others change the same user")),
            other => other.map(|()| subuser),
        }
    }

    async fn change_subuser(&self, id: &str, change: impl Fn(&mut Subuser)) -> Result<Subuser> {
        let (user, name) = Self::parts(id)?;
        let at = subuser_row(user, name);
        for _ in 0..TRIES_MAX {
            let (_, seen) = self.pair(user, name).await?;
            let seen = seen.ok_or_else(|| Error::Invalid(format!("there is no subuser {id}")))?;
            let mut next = seen.clone();
            change(&mut next);
            next.version = self.clock.random_u64();
            let set = Change::default()
                .expecting(&at, Some(&seen.to_bytes()))
                .setting(&at, next.to_bytes());
            match self.pool.change(USERS, set).await {
                Err(e) if e.is_conflict() => {}
                other => return other.map(|()| next),
            }
        }
        Err(Error::Conflict("others change the same subuser"))
    }

    pub async fn set_access(&self, id: &str, access: Access) -> Result<Subuser> {
        self.change_subuser(id, |s| s.access = access).await
    }

    /// In place of the one before; tokens that were got with that are good for nothing from then on.
    pub async fn new_subuser_key(&self, id: &str) -> Result<Subuser> {
        let secret = self.new_secret();
        self.change_subuser(id, |s| s.secret.clone_from(&secret)).await
    }

    pub async fn remove_subuser_key(&self, id: &str) -> Result<Subuser> {
        self.change_subuser(id, |s| s.secret.clear()).await
    }

    pub async fn remove_subuser(&self, id: &str) -> Result<()> {
        let (user, name) = Self::parts(id)?;
        let (_, seen) = self.pair(user, name).await?;
        if seen.is_none() {
            return Err(Error::Invalid(format!("there is no subuser {id}")));
        }
        let gone = Change::default().unsetting(&subuser_row(user, name));
        self.pool.change(USERS, gone).await
    }

    /// All that goes with a user.
    pub(crate) async fn swift_rows(&self, user: &str) -> Result<Vec<Bytes>> {
        let mut rows = vec![row("m", user)];
        rows.extend(
            all_rows(&self.pool, USERS, &prefix(user))
                .await?
                .into_iter()
                .map(|(r, _)| r),
        );
        Ok(rows)
    }

    async fn pair(&self, user: &str, name: &str) -> Result<(Option<Bytes>, Option<Subuser>)> {
        let (of_user, at) = (row("u", user), subuser_row(user, name));
        let secret = secret_row();
        let look = Look::keys([&of_user, &at, &secret]);
        let mut seen = self.pool.look(USERS, look).await?;
        let there = seen.values.get(&of_user).map(User::from_bytes).transpose()?;
        let subuser = seen.values.get(&at).map(Subuser::from_bytes).transpose()?;
        let subuser = subuser.filter(|s| there.as_ref().is_some_and(|u| u.created == s.of));
        Ok((seen.values.remove(&secret), subuser))
    }

    /// What is needed to judge a token, or to give one out: all as it is at one moment.
    pub async fn signer(&self, user: &str, name: &str) -> Result<Signer> {
        for _ in 0..TRIES_MAX {
            if let (Some(secret), subuser) = self.pair(user, name).await? {
                if secret.len() != TOKEN_SECRET_BYTES {
                    return Err(Error::Damaged("what tokens are signed with".into()));
                }
                return Ok(Signer { secret, subuser });
            }
            let mut bytes = vec![0; TOKEN_SECRET_BYTES];
            self.clock.fill(&mut bytes);
            let make = Change::default()
                .expecting(&secret_row(), None)
                .setting(&secret_row(), bytes.into());
            match self.pool.change(USERS, make).await {
                Err(e) if e.is_conflict() => {}
                other => other?,
            }
        }
        Err(Error::Conflict("others make the secret of tokens"))
    }

    pub async fn account(&self, user: &str) -> Result<Account> {
        Ok(self.get(&row("m", user)).await?.unwrap_or_default())
    }

    /// Changes what is said of an account, if its user is there.
    pub async fn change_account(
        &self,
        user: &str,
        change: impl Fn(&mut Account) -> Result<()>,
    ) -> Result<()> {
        let (of_user, at) = (row("u", user), row("m", user));
        for _ in 0..TRIES_MAX {
            let seen = self.pool.look(USERS, Look::keys([&of_user, &at])).await?;
            let there = seen.values.get(&of_user).ok_or(Error::NoSuchUser)?;
            let old = seen.values.get(&at);
            let mut account = old.map(Account::from_bytes).transpose()?.unwrap_or_default();
            change(&mut account)?;
            let set = Change::default()
                .expecting(&of_user, Some(there))
                .expecting(&at, old)
                .setting(&at, account.to_bytes());
            match self.pool.change(USERS, set).await {
                Err(e) if e.is_conflict() => {}
                other => return other,
            }
        }
        Err(Error::Conflict("others change the same account"))
    }
}
