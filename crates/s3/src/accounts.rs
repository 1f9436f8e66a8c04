//! Users and their keys: rows of the object `users` of the system pool.
//!
//! ```text
//! u USER             User
//! k ACCESS           Key: whose, and the secret
//! a USER 00 ACCESS   (empty): the keys of a user
//! q USER, d          Quotas (`quota`)
//! r USER             Rate (`rate`)
//! w, m, t            of Swift (`subusers`)
//! o, v, p, y         of roles (`roles`)
//! z USER             Caps (`caps`)
//! ```
//!
//! A secret is stored as it is, since signatures are checked with it; the pool is for gateways and administrators alone.

use crate::buckets::Buckets;
use crate::names::{NAME_MAX, check_name};
use crate::rados::{Change, Look, PAGE, Pool};
use crate::topics::Topics;
use crate::{Clock, Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Writer};
use std::fmt;

pub const USERS: &str = "users";
/// Keys of one user.
const KEYS_MAX: usize = 100;
const ACCESS_CHARS: usize = 20;
const SECRET_BYTES: usize = 30;
const TRIES_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: String,
    pub display: String,
    pub created: u64,
}

denc::envelope_denc!(User, 1, 1, { id, display, created });

#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    pub user: String,
    pub access: String,
    pub secret: String,
    pub created: u64,
    /// It is taken: not set aside by its owner, or by an administrator.
    pub active: bool,
}

const WITH_STATUS: u8 = 2;

impl Encode for Key {
    /// Who does not know that a key may be set aside would take it.
    fn encode(&self, w: &mut Writer) {
        let version = if self.active { 1 } else { WITH_STATUS };
        w.envelope(version, version, |w| {
            w.put(&self.user);
            w.put(&self.access);
            w.put(&self.secret);
            w.put(&self.created);
            if version >= WITH_STATUS {
                w.bool(self.active);
            }
        });
    }
}

impl Decode for Key {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(WITH_STATUS, |version, r| {
            Ok(Self {
                user: r.get()?,
                access: r.get()?,
                secret: r.get()?,
                created: r.get()?,
                active: version < WITH_STATUS || r.bool()?,
            })
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} of {}", self.access, self.user)
    }
}

#[derive(Clone)]
pub struct Accounts<P> {
    pub(crate) pool: P,
    pub(crate) clock: Clock,
}

pub(crate) fn row(class: &str, name: &str) -> Bytes {
    [class.as_bytes(), name.as_bytes()].concat().into()
}

pub(crate) fn keys_prefix(user: &str) -> Bytes {
    [b"a", user.as_bytes(), &[0]].concat().into()
}

/// Capitals and digits at random, five bits each.
pub(crate) fn letters(clock: &Clock, n: usize) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bytes = vec![0; n];
    clock.fill(&mut bytes);
    bytes
        .iter()
        .map(|b| LETTERS[usize::from(b % 32)] as char)
        .collect()
}

/// Rows whose keys begin with `prefix`, all.
pub(crate) async fn all_rows<P: Pool>(pool: &P, oid: &str, prefix: &Bytes) -> Result<Vec<(Bytes, Bytes)>> {
    let (mut rows, mut after) = (Vec::new(), prefix.clone());
    loop {
        let seen = pool.look(oid, Look::rows(&after, prefix, PAGE)).await?;
        let more = seen.more;
        rows.extend(seen.rows);
        match rows.last() {
            Some((last, _)) if more => after = last.clone(),
            _ => return Ok(rows),
        }
    }
}

/// Makes an object for rows where there is none.
pub(crate) async fn ensure<P: Pool>(pool: &P, oid: &str) -> Result<()> {
    let make = Change {
        create: true,
        ..Change::default()
    };
    match pool.change(oid, make).await {
        Err(e) if e.is_conflict() => Ok(()),
        other => other,
    }
}

impl<P: Pool> Accounts<P> {
    pub fn new(pool: P, clock: Clock) -> Self {
        Self { pool, clock }
    }

    pub(crate) async fn get<T: Decode>(&self, row: &Bytes) -> Result<Option<T>> {
        let seen = self.pool.look(USERS, Look::keys([row])).await?;
        Ok(seen.values.get(row).map(T::from_bytes).transpose()?)
    }

    pub async fn user(&self, id: &str) -> Result<User> {
        self.get(&row("u", id)).await?.ok_or(Error::NoSuchUser)
    }

    /// As it is now, whatever is remembered.
    pub async fn user_now(&self, id: &str) -> Result<User> {
        let row = row("u", id);
        let seen = self.pool.look(USERS, Look::keys([&row]).fresh()).await?;
        let user = seen.values.get(&row).map(User::from_bytes).transpose()?;
        user.ok_or(Error::NoSuchUser)
    }

    /// The first of these that is no user.
    pub async fn missing<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Result<Option<&'a str>> {
        let ids: Vec<&str> = ids.into_iter().collect();
        let look = Look {
            keys: ids.iter().map(|id| row("u", id)).collect(),
            ..Look::default()
        };
        let seen = self.pool.look(USERS, look).await?;
        Ok(ids
            .into_iter()
            .find(|id| !seen.values.contains_key(&row("u", id))))
    }

    pub async fn users(&self) -> Result<Vec<User>> {
        let rows = all_rows(&self.pool, USERS, &row("u", "")).await?;
        let users = rows.iter().map(|(_, v)| Ok(User::from_bytes(v)?));
        users.collect()
    }

    /// Some in order, behind this one, and whether there are more.
    pub async fn users_after(&self, after: &str, max: u64) -> Result<(Vec<User>, bool)> {
        let look = Look::rows(&row("u", after), &row("u", ""), max);
        let seen = self.pool.look(USERS, look).await?;
        let users = seen.rows.iter().map(|(_, v)| Ok(User::from_bytes(v)?));
        Ok((users.collect::<Result<_>>()?, seen.more))
    }

    /// A user with a first key.
    pub async fn create(&self, id: &str, display: &str) -> Result<(User, Key)> {
        let (user, key) = (self.new_user(id, display).await?, self.new_key(id));
        self.make(&user, self.adding(&key)).await?;
        Ok((user, key))
    }

    /// And one who has none yet.
    pub async fn create_without_key(&self, id: &str, display: &str) -> Result<User> {
        let user = self.new_user(id, display).await?;
        self.make(&user, Change::default()).await?;
        Ok(user)
    }

    /// Under a name that nobody has.
    async fn new_user(&self, id: &str, display: &str) -> Result<User> {
        check_name(id)?;
        if display.len() > NAME_MAX {
            return Err(Error::Invalid(format!(
                "a display name has at most {NAME_MAX} bytes"
            )));
        }
        let user = User {
            id: id.to_string(),
            display: if display.is_empty() { id } else { display }.to_string(),
            created: self.clock.now_ms(),
        };
        match self.user(id).await {
            // What a removal that was cut off has left, or who made one meanwhile.
            Err(Error::NoSuchUser) => {
                self.remove_left_keys(id).await?;
                self.remove_topics(id).await?;
            }
            other => return Err(other.map_or_else(|e| e, |_| Error::UserExists)),
        }
        Ok(user)
    }

    async fn make(&self, user: &User, change: Change) -> Result<()> {
        let at = row("u", &user.id);
        let change = change.expecting(&at, None).setting(&at, user.to_bytes());
        match self.pool.change(USERS, change).await {
            Err(e) if e.is_conflict() => Err(Error::UserExists),
            other => other,
        }
    }

    /// A user of another system, who has no key here. `create`: made where there is none.
    pub(crate) async fn ensure_user(&self, id: &str, display: &str, create: bool) -> Result<()> {
        match self.user(id).await {
            Err(Error::NoSuchUser) if create => {}
            other => return other.map(drop),
        }
        check_name(id)?;
        self.remove_left_keys(id).await?;
        let user = User {
            id: id.to_string(),
            display: display.to_string(),
            created: self.clock.now_ms(),
        };
        let change = Change::default()
            .expecting(&row("u", id), None)
            .setting(&row("u", id), user.to_bytes());
        match self.pool.change(USERS, change).await {
            // Another request has made it.
            Err(e) if e.is_conflict() => Ok(()),
            other => other,
        }
    }

    fn new_key(&self, user: &str) -> Key {
        let access = letters(&self.clock, ACCESS_CHARS);
        let mut secret = [0; SECRET_BYTES];
        self.clock.fill(&mut secret);
        Key {
            user: user.to_string(),
            access,
            secret: STANDARD.encode(secret),
            created: self.clock.now_ms(),
            active: true,
        }
    }

    fn adding(&self, key: &Key) -> Change {
        let of_user = [&keys_prefix(&key.user)[..], key.access.as_bytes()]
            .concat()
            .into();
        Change::default()
            .expecting(&row("k", &key.access), None)
            .setting(&row("k", &key.access), key.to_bytes())
            .setting(&of_user, Bytes::from_static(b"1"))
    }

    pub async fn keys(&self, user: &str) -> Result<Vec<Key>> {
        let prefix = keys_prefix(user);
        let mut keys = Vec::new();
        for (of_user, _) in all_rows(&self.pool, USERS, &prefix).await? {
            let access = String::from_utf8_lossy(&of_user[prefix.len()..]).into_owned();
            keys.extend(self.get::<Key>(&row("k", &access)).await?);
        }
        Ok(keys)
    }

    pub async fn create_key(&self, user: &str) -> Result<Key> {
        let there = self.user(user).await?;
        if self.keys(user).await?.len() >= KEYS_MAX {
            return Err(Error::Invalid(format!("a user has at most {KEYS_MAX} keys")));
        }
        let key = self.new_key(user);
        let change = self
            .adding(&key)
            .expecting(&row("u", user), Some(&there.to_bytes()));
        match self.pool.change(USERS, change).await {
            Err(e) if e.is_conflict() => Err(Error::NoSuchUser),
            other => other.map(|()| key),
        }
    }

    /// Whose key it is.
    pub async fn key(&self, access: &str) -> Result<Option<Key>> {
        self.get(&row("k", access)).await
    }

    /// One of this user's.
    async fn key_of(&self, user: &str, access: &str) -> Result<Key> {
        let key = self.key(access).await?.filter(|key| key.user == user);
        key.ok_or(Error::NoSuchAccessKey)
    }

    pub async fn remove_key_of(&self, user: &str, access: &str) -> Result<()> {
        let key = self.key_of(user, access).await?;
        self.remove_seen(&key).await
    }

    /// Sets one of this user's aside, or has it be taken again.
    pub async fn set_key_active(&self, user: &str, access: &str, active: bool) -> Result<()> {
        let at = row("k", access);
        for _ in 0..TRIES_MAX {
            let old = self.key_of(user, access).await?;
            let key = Key {
                active,
                ..old.clone()
            };
            let change = Change::default()
                .expecting(&at, Some(&old.to_bytes()))
                .setting(&at, key.to_bytes());
            match self.pool.change(USERS, change).await {
                Err(e) if e.is_conflict() => {}
                other => return other,
            }
        }
        Err(Error::Conflict("others change the same key"))
    }

    pub async fn remove_key(&self, access: &str) -> Result<()> {
        let key = self.key(access).await?.ok_or(Error::NoSuchAccessKey)?;
        self.remove_seen(&key).await
    }

    async fn remove_seen(&self, key: &Key) -> Result<()> {
        let change = self.removing(key);
        match self.pool.change(USERS, change).await {
            Err(e) if e.is_conflict() => Err(Error::NoSuchAccessKey),
            other => other,
        }
    }

    fn removing(&self, key: &Key) -> Change {
        let of_user = [&keys_prefix(&key.user)[..], key.access.as_bytes()]
            .concat()
            .into();
        let at = row("k", &key.access);
        Change::default()
            .expecting(&at, Some(&key.to_bytes()))
            .unsetting(&at)
            .unsetting(&of_user)
    }

    /// Keys that were made while their user was removed: who is made under his name shall not have them. An error where somebody is by now, whose they may be.
    async fn remove_left_keys(&self, id: &str) -> Result<()> {
        for key in self.keys(id).await? {
            let change = self.removing(&key).expecting(&row("u", id), None);
            let changed = self.pool.change(USERS, change).await;
            if matches!(&changed, Err(e) if e.is_conflict()) {
                // Or another has removed the same.
                match self.key(&key.access).await? {
                    None => continue,
                    Some(_) => return Err(Error::Conflict("others change the same user")),
                }
            }
            changed?;
        }
        Ok(())
    }

    /// Who is made under a name that was another's shall not find his topics.
    async fn remove_topics(&self, id: &str) -> Result<()> {
        let topics = Topics::new(self.pool.clone(), self.clock.clone());
        for topic in topics.of(id).await? {
            topics.delete(id, &topic.name).await?;
        }
        Ok(())
    }

    /// With all keys and topics; refused while there are buckets of this user's.
    pub async fn remove(&self, id: &str, buckets: &Buckets<P>) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let user = self.user(id).await?;
            let owned = buckets.of(id).await?;
            if !owned.is_empty() {
                let names: Vec<String> = owned.into_iter().take(10).map(|b| b.0).collect();
                return Err(Error::UserHasBuckets(names.join(", ")));
            }
            let mut change = Change::default()
                .expecting(&row("u", id), Some(&user.to_bytes()))
                .unsetting(&row("u", id))
                .unsetting(&row("q", id))
                .unsetting(&row("r", id))
                .unsetting(&row("z", id));
            for key in self.keys(id).await? {
                let key = self.removing(&key);
                change.expect.extend(key.expect);
                change.unset.extend(key.unset);
            }
            change.unset.extend(self.swift_rows(id).await?);
            let change = self.removing_roles(id, change).await?;
            match self.pool.change(USERS, change).await {
                Err(e) if e.is_conflict() => {}
                Err(e) => return Err(e),
                Ok(()) => {
                    // No more are made from now on; one may have been since they were looked at.
                    self.remove_left_keys(id).await?;
                    return self.remove_topics(id).await;
                }
            }
        }
        Err(Error::Conflict("others change the same user"))
    }
}
