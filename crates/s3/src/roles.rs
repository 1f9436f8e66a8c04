//! Roles: what users take for a while to do less, or in another's buckets. Rows of the object `users`.
//!
//! ```text
//! o NAME             Role
//! y                  what tokens of sessions are sealed with: 32 random bytes, which the first gateway that needs them makes
//! ```
//!
//! A role belongs to the user of that name who was there when it was made, and to no later one: where that user is no more, or is
//! another, the role is as good as removed. Gateways remember no roles: a change counts from the next request on.

use crate::accounts::{Accounts, Key, USERS, User, all_rows, letters, row};
use crate::names::NAME_MAX;
use crate::policy::Policy;
use crate::rados::{Change, Look, Pool};
use crate::seal::Key as Sealing;
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;

/// Of all users, and of one.
const ROLES_MAX: usize = 1000;
const OF_USER_MAX: usize = 100;
/// Of the policy that says who may take a role.
const TRUST_MAX: usize = 4 << 10;
/// Policies of one role, and their bytes in all.
const POLICIES_MAX: usize = 20;
const POLICIES_BYTES: usize = 10 << 10;
const ROLE_NAME_MAX: usize = 64;
/// Seconds that a session may last.
pub const SESSION_MIN: u64 = 900;
pub const SESSION_MAX: u64 = 43_200;
pub const SESSION_DEFAULT: u64 = 3600;
const SEALING_BYTES: usize = 32;
const ID_CHARS: usize = 16;
const TRIES_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// One that is made again under the same name has another.
    pub id: String,
    pub name: String,
    /// A user, in whose place its sessions act as far as its policies let them.
    pub owner: String,
    /// When the owner was made.
    pub of: u64,
    /// Who may take it: the text of a policy.
    pub trust: String,
    /// What its sessions may do: texts of policies, by their names.
    pub policies: BTreeMap<String, String>,
    /// Seconds.
    pub session_max: u64,
    pub created: u64,
}

denc::envelope_denc!(Role, 1, 1, { id, name, owner, of, trust, policies, session_max, created });

/// Names of roles, of their policies and of sessions: what is the same in an ARN and in a policy.
pub fn check_part(what: &str, name: &str, (least, most): (usize, usize)) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
    match (least..=most).contains(&name.len()) && name.chars().all(good) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "{what} has {least} to {most} letters, digits and _ + = , . @ -"
        ))),
    }
}

fn sealing_row() -> Bytes {
    row("y", "")
}

fn sealing(raw: &Bytes) -> Result<Sealing> {
    Sealing::new(raw).ok_or_else(|| Error::Damaged("what tokens of sessions are sealed with".into()))
}

fn check_session_max(seconds: u64) -> Result<()> {
    match (SESSION_DEFAULT..=SESSION_MAX).contains(&seconds) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "the longest session of a role has {SESSION_DEFAULT} to {SESSION_MAX} seconds"
        ))),
    }
}

impl Role {
    /// Adds one of its policies, or replaces it.
    pub fn put_policy(&mut self, name: &str, text: &str) -> Result<()> {
        check_part("a policy's name", name, (1, NAME_MAX))?;
        Policy::of_rights(text).map_err(Error::Invalid)?;
        self.policies.insert(name.to_string(), text.to_string());
        let bytes: usize = self.policies.values().map(String::len).sum();
        match self.policies.len() <= POLICIES_MAX && bytes <= POLICIES_BYTES {
            true => Ok(()),
            false => Err(Error::Invalid(format!(
                "a role has at most {POLICIES_MAX} policies, of {POLICIES_BYTES} bytes in all"
            ))),
        }
    }

    pub fn set_session_max(&mut self, seconds: u64) -> Result<()> {
        check_session_max(seconds)?;
        self.session_max = seconds;
        Ok(())
    }
}

impl<P: Pool> Accounts<P> {
    /// Whether a text says who may take a role, of users who are there.
    pub async fn check_trust(&self, text: &str) -> Result<()> {
        if text.len() > TRUST_MAX {
            return Err(Error::Invalid(format!(
                "the policy of who may take a role has at most {TRUST_MAX} bytes"
            )));
        }
        let policy = Policy::of_trust(text).map_err(Error::Invalid)?;
        match self.missing(policy.users()).await? {
            None => Ok(()),
            Some(user) => Err(Error::Invalid(format!(
                "there is no user {user}, who is a principal"
            ))),
        }
    }

    pub async fn create_role(
        &self,
        name: &str,
        owner: &str,
        trust: &str,
        session_max: u64,
    ) -> Result<Role> {
        check_part("a role's name", name, (1, ROLE_NAME_MAX))?;
        check_session_max(session_max)?;
        self.check_trust(trust).await?;
        let there = self.user(owner).await?;
        let all = self.roles().await?;
        let own = all.iter().filter(|r| r.owner == owner).count();
        if all.len() >= ROLES_MAX || own >= OF_USER_MAX {
            return Err(Error::Invalid(format!(
                "there are at most {ROLES_MAX} roles, and {OF_USER_MAX} of one user"
            )));
        }
        let at = row("o", name);
        let role = Role {
            id: format!("AROA{}", letters(&self.clock, ID_CHARS)),
            name: name.to_string(),
            owner: owner.to_string(),
            of: there.created,
            trust: trust.to_string(),
            policies: BTreeMap::new(),
            session_max,
            created: self.clock.now_ms(),
        };
        let change = Change::default()
            .expecting(&row("u", owner), Some(&there.to_bytes()))
            .expecting(&at, None)
            .setting(&at, role.to_bytes());
        match self.pool.change(USERS, change).await {
            Err(e) if e.is_conflict() => match self.get::<Role>(&at).await? {
                Some(_) => Err(Error::RoleExists),
                None => Err(Error::Conflict("others change the same user")),
            },
            other => other.map(|()| role),
        }
    }

    /// All, in the order of their names: also those whose owner is no more.
    pub async fn roles(&self) -> Result<Vec<Role>> {
        let rows = all_rows(&self.pool, USERS, &row("o", "")).await?;
        rows.iter().map(|(_, raw)| Ok(Role::from_bytes(raw)?)).collect()
    }

    /// Whether its owner is still there or not.
    pub async fn any_role(&self, name: &str) -> Result<Role> {
        self.get(&row("o", name)).await?.ok_or(Error::NoSuchRole)
    }

    /// A role of this user's, and both are there.
    pub async fn role_of(&self, name: &str, owner: &str) -> Result<Role> {
        let (at, of_user) = (row("o", name), row("u", owner));
        let seen = self.pool.look(USERS, Look::keys([&at, &of_user])).await?;
        let role = seen.values.get(&at).map(Role::from_bytes).transpose()?;
        let user = seen.values.get(&of_user).map(User::from_bytes).transpose()?;
        let owned = |r: &Role| r.owner == owner && user.is_some_and(|u| u.created == r.of);
        role.filter(owned).ok_or(Error::NoSuchRole)
    }

    pub async fn change_role(&self, name: &str, change: impl Fn(&mut Role) -> Result<()>) -> Result<Role> {
        let at = row("o", name);
        for _ in 0..TRIES_MAX {
            let old = self.any_role(name).await?;
            let mut role = old.clone();
            change(&mut role)?;
            let set = Change::default()
                .expecting(&at, Some(&old.to_bytes()))
                .setting(&at, role.to_bytes());
            match self.pool.change(USERS, set).await {
                Err(e) if e.is_conflict() => {}
                other => return other.map(|()| role),
            }
        }
        Err(Error::Conflict("others change the same role"))
    }

    /// With its policies; its sessions are refused from then on.
    pub async fn remove_role(&self, name: &str, check: impl Fn(&Role) -> Result<()>) -> Result<()> {
        let at = row("o", name);
        for _ in 0..TRIES_MAX {
            let old = self.any_role(name).await?;
            check(&old)?;
            let gone = Change::default()
                .expecting(&at, Some(&old.to_bytes()))
                .unsetting(&at);
            match self.pool.change(USERS, gone).await {
                Err(e) if e.is_conflict() => {}
                other => return other,
            }
        }
        Err(Error::Conflict("others change the same role"))
    }

    /// A user's, in the order of their names.
    pub async fn roles_of(&self, user: &str) -> Result<Vec<Role>> {
        let there = self.user(user).await?;
        let mut roles = self.roles().await?;
        roles.retain(|r| r.owner == user && r.of == there.created);
        Ok(roles)
    }

    /// Rows of a user's roles.
    pub(crate) async fn role_rows(&self, user: &str) -> Result<Vec<Bytes>> {
        let roles = self.roles().await?.into_iter();
        let own = roles.filter(|r| r.owner == user);
        Ok(own.map(|r| row("o", &r.name)).collect())
    }

    /// A key that was made for a user, if it is one; and what tokens of sessions are sealed with, if that was made.
    pub async fn key_or_sealing(&self, access: &str) -> Result<(Option<Key>, Option<Sealing>)> {
        let (at, by) = (row("k", access), sealing_row());
        let seen = self.pool.look(USERS, Look::keys([&at, &by])).await?;
        let key = seen.values.get(&at).map(Key::from_bytes).transpose()?;
        Ok((key, seen.values.get(&by).map(sealing).transpose()?))
    }

    /// What tokens of sessions are sealed with: made where there is none, once for all gateways.
    pub async fn sealing(&self) -> Result<Sealing> {
        let at = sealing_row();
        for _ in 0..TRIES_MAX {
            let seen = self.pool.look(USERS, Look::keys([&at])).await?;
            if let Some(raw) = seen.values.get(&at) {
                return sealing(raw);
            }
            let mut bytes = vec![0; SEALING_BYTES];
            self.clock.fill(&mut bytes);
            let make = Change::default().expecting(&at, None).setting(&at, bytes.into());
            match self.pool.change(USERS, make).await {
                Err(e) if e.is_conflict() => {}
                other => other?,
            }
        }
        Err(Error::Conflict("others make what tokens of sessions are sealed with"))
    }
}
