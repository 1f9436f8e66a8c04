//! Logging in: with the name of an entity and its key, as in its keyring. Who has logged in is a client of the cluster of its own.
//!
//! Who shows a wrong key waits for the answer, the longer the more his address has failed; a right key gets in at once, whatever
//! others try from the same place ([`net::guesses`]).
//!
//! Bounds: [`AT_ONCE`] connect to the cluster at the same time, others wait; who is refused holds a connection meanwhile
//! (`connections`).

use crate::cluster::WITHIN;
use crate::rights::Rights;
use crate::settings::Cluster;
use auth::{CryptoKey, EntityAuth};
use client::{Client, Conf};
use io::task;
use net::guesses::Guesses;
use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use types::{AuthName, EntityAddr, EntityKind, Utime};

const AT_ONCE: usize = 4;
/// Pages of a session that are drawn at once.
pub const PAGES_AT_ONCE: usize = 2;
const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// Longer names are nobody's here.
const NAME_BYTES: usize = 128;
const WRONG: &str = "No entity of this name has this key.";

/// Who has logged in, as far as the session keeps it.
#[derive(Debug)]
pub struct Visitor {
    pub client: Client,
    /// Of the key that was shown: another one ends the session.
    epoch: u64,
    /// Places for its pages: [`PAGES_AT_ONCE`].
    pub pages: Semaphore,
    /// What the next page says first: the end of an act.
    pub notice: RefCell<Option<String>>,
}

#[derive(Debug)]
pub struct Door {
    guesses: RefCell<Guesses>,
    busy: Semaphore,
}

impl Default for Door {
    fn default() -> Self {
        Self {
            guesses: RefCell::default(),
            busy: Semaphore::new(AT_ONCE),
        }
    }
}

impl Door {
    /// Err: why somebody stays outside, in words for the page.
    pub async fn enter(
        &self,
        cluster: &Cluster,
        (name, key): (&str, &str),
        (from, now): (IpAddr, Duration),
    ) -> Result<(AuthName, Visitor), String> {
        let Some((name, key, epoch)) = proven(cluster, name, key) else {
            let wait = self.guesses.borrow_mut().failed(from, now);
            task::sleep(wait).await;
            return Err(WRONG.into());
        };
        let rights = rights(cluster, &name, epoch, from).unwrap_or_default();
        if !rights.read {
            let words = format!(
                "{name} may not read the cluster's maps: it takes mon 'allow r', and more to change anything; and grants for a network have \
                 to hold where you are."
            );
            return Err(words);
        }
        let busy = task::timeout(CONNECT_WITHIN, self.busy.acquire()).await;
        let Ok(Ok(_busy)) = busy else {
            return Err("Too many people log in at this moment: try again.".into());
        };
        let client = Client::connect(conf(cluster, name.clone(), key)).await;
        let client = client.map_err(|e| format!("The cluster does not let {name} in: {e}"))?;
        let visitor = Visitor {
            client,
            epoch,
            pages: Semaphore::new(PAGES_AT_ONCE),
            notice: RefCell::default(),
        };
        Ok((name, visitor))
    }
}

/// A name as it was given, for the log: nothing of what is none, which may be a key in the wrong field.
pub fn said_name(given: &str) -> String {
    let name = Some(given.trim()).filter(|n| n.len() <= NAME_BYTES);
    let name = name.and_then(|n| n.parse::<AuthName>().ok());
    name.map_or_else(|| "a name that is none".into(), |n| n.to_string())
}

/// The entity that this is the name and the key of. It takes the same time whatever is wrong.
fn proven(cluster: &Cluster, name: &str, key: &str) -> Option<(AuthName, CryptoKey, u64)> {
    let name: AuthName = Some(name.trim())
        .filter(|n| n.len() <= NAME_BYTES)?
        .parse()
        .ok()
        .filter(|n: &AuthName| n.kind == EntityKind::Client)?;
    let key = CryptoKey::from_text(key.trim()).ok()?;
    let state = cluster.handle.state();
    let epoch = valid(state.auth.get(&name), &key, cluster.handle.now())?;
    Some((name, key, epoch))
}

/// The epoch of the entity's keys, if this is one of them and their time is not over.
fn valid(entity: Option<&EntityAuth>, key: &CryptoKey, now: Utime) -> Option<u64> {
    let nobody = CryptoKey::new([0; 16], Utime::ZERO);
    let is = |have: Option<&CryptoKey>| {
        let same = have.unwrap_or(&nobody).secret().ct_eq(key.secret());
        bool::from(same) & have.is_some()
    };
    let by_key = is(entity.map(|e| &e.key));
    let by_pending = is(entity.and_then(|e| e.pending.as_ref()));
    let entity = entity.filter(|e| (by_key | by_pending) && e.expired(now).is_none())?;
    Some(entity.epoch)
}

/// What the entity may do here now; None: it is gone, or has another key.
fn rights(cluster: &Cluster, name: &AuthName, epoch: u64, from: IpAddr) -> Option<Rights> {
    let state = cluster.handle.state();
    let entity = state.auth.current(name, epoch)?;
    Some(Rights::of(&entity.caps, from))
}

/// The same for one who has logged in.
pub fn rights_of(cluster: &Cluster, name: &AuthName, visitor: &Visitor, from: IpAddr) -> Option<Rights> {
    rights(cluster, name, visitor.epoch, from)
}

/// Whether the key with which the session began is still the entity's.
pub fn is_current(cluster: &Cluster, name: &AuthName, visitor: &Visitor) -> bool {
    cluster.handle.state().auth.current(name, visitor.epoch).is_some()
}

fn conf(cluster: &Cluster, name: AuthName, key: CryptoKey) -> Conf {
    let state = cluster.handle.state();
    let mut mons: Vec<EntityAddr> = state.monmap.by_rank().map(|m| m.addrs.msgr2_or_first()).collect();
    if mons.is_empty() {
        mons.push(cluster.mon);
    }
    let mut conf = Conf::new(name, mons, Some(key));
    conf.connect_timeout = CONNECT_WITHIN;
    conf.op_timeout = Some(WITHIN);
    conf.mon_timeout = Some(WITHIN);
    conf
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::Expiry;

    #[test]
    fn both_keys_let_in_until_their_time_is_over() {
        let key = |n: u8| CryptoKey::new([n; 16], Utime::ZERO);
        let at = Utime { sec: 60, nsec: 0 };
        let before = Utime { sec: 59, nsec: 0 };
        let mut entity = EntityAuth::new(key(1));
        entity.epoch = 7;
        let zeros = key(0);
        assert_eq!(valid(None, &zeros, before), None, "nobody");
        assert_eq!(valid(Some(&entity), &zeros, before), None, "no pending key");
        assert_eq!(valid(Some(&entity), &key(2), before), None);
        entity.pending = Some(key(2));
        entity.expiry = Some(Expiry { at, ended: false });
        for right in [key(1), key(2)] {
            assert_eq!(valid(Some(&entity), &right, before), Some(7));
            assert_eq!(valid(Some(&entity), &right, at), None, "its time is over");
        }
        assert_eq!(valid(Some(&entity), &key(3), before), None);
    }

    #[test]
    fn the_log_has_names_alone() {
        let longest = format!("client.{}", "x".repeat(NAME_BYTES - 7));
        for name in ["client.admin", "client.a b", longest.as_str()] {
            assert_eq!(said_name(name), name);
        }
        let long = longest.clone() + "x";
        for none in [
            "",
            "AQDZkV1lAAAAABAAyT8BXmVYpVUnHxxVnRnxVw==",
            "nobody.x",
            long.as_str(),
        ] {
            assert_eq!(said_name(none), "a name that is none", "{none}");
        }
    }
}
