//! Roles: what users take for a while to do less, or in another's buckets. Rows of the object `users`.
//!
//! ```text
//! o NAME             Role
//! v NAME             Held: whose the name is, from its first role on
//! p OWNER 00 NAME    names of a user's: 1 where the role is there, 0 where it was
//! y                  what tokens of sessions are sealed with: 32 random bytes, which the first gateway that needs them makes
//! ```
//!
//! A role belongs to the user of that name who was there when it was made, and to no later one: where that user is no more, or is
//! another, the role is as good as removed. Policies of buckets have the name of a role and outlive it, so a name stays its
//! first owner's: nobody else makes a role of it and so gets into those buckets. Gateways remember no roles: a change counts from the next request on.

use crate::accounts::{Accounts, Key, USERS, User, all_rows, letters, row};
use crate::names::NAME_MAX;
use crate::policy::Policy;
use crate::rados::{Change, Look, Pool};
use crate::seal::Key as Sealing;
use crate::{Error, Result};
use bytes::Bytes;
use denc::{Decode, Encode};
use std::collections::BTreeMap;

/// Roles of one user, and names that he has, or had, roles of.
const OF_USER_MAX: usize = 100;
const NAMES_MAX: usize = 1000;
/// Roles that are read at once: each has 14 KiB and more.
const AT_ONCE: usize = 32;
const THERE: &[u8] = b"1";
const WAS: &[u8] = b"0";
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

/// Who may make a role of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    owner: String,
    /// When the owner was made.
    of: u64,
}

denc::envelope_denc!(Held, 1, 1, { owner, of });

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

fn names_prefix(owner: &str) -> Bytes {
    [b"p", owner.as_bytes(), &[0]].concat().into()
}

fn name_row(owner: &str, name: &str) -> Bytes {
    [&names_prefix(owner)[..], name.as_bytes()].concat().into()
}

/// One that cannot be read is passed over: it is no reason to show nothing of the others.
fn read(at: &Bytes, raw: &Bytes) -> Option<Role> {
    let role = Role::from_bytes(raw);
    if let Err(e) = &role {
        tracing::warn!("s3: the row {at:?} of a role cannot be read: {e}");
    }
    role.ok()
}

/// Whether a user may have a role more, of this name. Of what was seen: several at the same time make some more.
fn check_names(names: &[(String, bool)], name: &str) -> Result<()> {
    let there = names.iter().filter(|(_, there)| *there).count();
    let known = names.iter().any(|(n, _)| n == name);
    match there < OF_USER_MAX && (known || names.len() < NAMES_MAX) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a user has at most {OF_USER_MAX} roles, and in all his time {NAMES_MAX} names of roles"
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

    /// The first of these that is no role.
    pub async fn missing_role<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<&'a str>> {
        let names: Vec<&str> = names.into_iter().collect();
        for some in names.chunks(AT_ONCE) {
            let look = Look {
                keys: some.iter().map(|name| row("o", name)).collect(),
                ..Look::default()
            };
            let seen = self.pool.look(USERS, look).await?;
            let missing = some
                .iter()
                .find(|name| !seen.values.contains_key(&row("o", name)));
            if let Some(name) = missing {
                return Ok(Some(*name));
            }
        }
        Ok(None)
    }

    /// `force`: also of a name that was another's.
    pub async fn create_role(
        &self,
        name: &str,
        owner: &str,
        trust: &str,
        session_max: u64,
        force: bool,
    ) -> Result<Role> {
        check_part("a role's name", name, (1, ROLE_NAME_MAX))?;
        check_session_max(session_max)?;
        self.check_trust(trust).await?;
        let there = self.user(owner).await?;
        check_names(&self.names_of(owner).await?, name)?;
        let (at, held) = (row("o", name), row("v", name));
        let seen = self.pool.look(USERS, Look::keys([&at, &held])).await?.values;
        let own = Held {
            owner: owner.to_string(),
            of: there.created,
        };
        let holder = seen.get(&held);
        if seen.contains_key(&at) {
            return Err(Error::RoleExists);
        }
        // A row that cannot be read is another's.
        if !force && holder.is_some_and(|raw| Held::from_bytes(raw).ok().as_ref() != Some(&own)) {
            return Err(Error::RoleNameHeld);
        }
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
            .expecting(&held, holder)
            .setting(&at, role.to_bytes())
            .setting(&held, own.to_bytes())
            .setting(&name_row(owner, name), Bytes::from_static(THERE));
        match self.pool.change(USERS, change).await {
            Err(e) if e.is_conflict() => match self.get::<Role>(&at).await? {
                Some(_) => Err(Error::RoleExists),
                None => Err(Error::Conflict("others change the same user or name")),
            },
            other => other.map(|()| role),
        }
    }

    /// Names of all, in their order: also of those whose owner is no more, or that cannot be read.
    pub async fn role_names(&self) -> Result<Vec<String>> {
        let prefix = row("o", "");
        let rows = all_rows(&self.pool, USERS, &prefix).await?;
        let name = |at: &Bytes| String::from_utf8_lossy(&at[prefix.len()..]).into_owned();
        Ok(rows.iter().map(|(at, _)| name(at)).collect())
    }

    /// Names that a user has or had roles of, in their order, and whether the role is there.
    async fn names_of(&self, owner: &str) -> Result<Vec<(String, bool)>> {
        let prefix = names_prefix(owner);
        let rows = all_rows(&self.pool, USERS, &prefix).await?;
        let name = |at: &Bytes| String::from_utf8_lossy(&at[prefix.len()..]).into_owned();
        Ok(rows
            .iter()
            .map(|(at, state)| (name(at), state[..] == *THERE))
            .collect())
    }

    /// Rows of the roles that are there, in the order of their names.
    async fn rows_of(&self, names: &[(String, bool)]) -> Result<Vec<(Bytes, Bytes)>> {
        let there = names.iter().filter(|(_, there)| *there);
        let there: Vec<Bytes> = there.map(|(name, _)| row("o", name)).collect();
        let mut rows = Vec::new();
        for some in there.chunks(AT_ONCE) {
            let look = Look {
                keys: some.iter().cloned().collect(),
                ..Look::default()
            };
            rows.extend(self.pool.look(USERS, look).await?.values);
        }
        Ok(rows)
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

    /// With its policies; its sessions are refused from then on. The name stays the owner's.
    pub async fn remove_role(&self, name: &str, check: impl Fn(&Role) -> Result<()>) -> Result<()> {
        let at = row("o", name);
        for _ in 0..TRIES_MAX {
            let old = self.any_role(name).await?;
            check(&old)?;
            let gone = Change::default()
                .expecting(&at, Some(&old.to_bytes()))
                .unsetting(&at)
                .setting(&name_row(&old.owner, name), Bytes::from_static(WAS));
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
        let rows = self.rows_of(&self.names_of(user).await?).await?;
        let roles = rows.iter().filter_map(|(at, raw)| read(at, raw));
        Ok(roles
            .filter(|r| r.owner == user && r.of == there.created)
            .collect())
    }

    /// Adds what goes with a user: his roles, each as it was seen, so that none is taken that another has made meanwhile. Who holds
    /// a name stays, so that a later user of his name does not get it either.
    pub(crate) async fn removing_roles(&self, user: &str, mut change: Change) -> Result<Change> {
        let names = self.names_of(user).await?;
        for (at, raw) in self.rows_of(&names).await? {
            if read(&at, &raw).is_some_and(|r| r.owner == user) {
                change = change.expecting(&at, Some(&raw)).unsetting(&at);
            }
        }
        let rows = names.iter().map(|(name, _)| name_row(user, name));
        change.unset.extend(rows);
        Ok(change)
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
        Err(Error::Conflict(
            "others make what tokens of sessions are sealed with",
        ))
    }
}
