//! To whom global ids were given, as far as this server remembers: so that an id is not given to a second entity. And
//! with which key a daemon came last, by its id: it may be none of the entity's any more while its session goes on.
//!
//! Bound: [`REMEMBERED_MAX`] ids; at the bound the one given longest ago is forgotten, unless a session has it open.

use crate::CryptoKey;
use std::collections::{BTreeMap, VecDeque};
use types::AuthName;

/// Ids that are remembered.
pub const REMEMBERED_MAX: usize = 65_536;

#[derive(Debug)]
struct Owner {
    name: AuthName,
    /// Open sessions that have the id.
    sessions: u32,
    /// That it proved to have; of daemons alone.
    key: Option<CryptoKey>,
}

#[derive(Debug, Default)]
pub(crate) struct Owners {
    by_id: BTreeMap<u64, Owner>,
    /// Every remembered id once, the one to forget next in front.
    order: VecDeque<u64>,
}

impl Owners {
    pub fn of(&self, id: u64) -> Option<&AuthName> {
        self.by_id.get(&id).map(|o| &o.name)
    }

    fn entry(&mut self, id: u64, name: &AuthName) -> &mut Owner {
        if !self.by_id.contains_key(&id) {
            self.make_room();
            self.order.push_back(id);
        }
        let owner = self.by_id.entry(id).or_insert_with(|| Owner {
            name: name.clone(),
            sessions: 0,
            key: None,
        });
        if owner.name != *name {
            owner.name = name.clone();
            owner.key = None;
        }
        owner
    }

    /// Forgets one id if there are too many. Sessions are far fewer than the bound, so one without any is found.
    fn make_room(&mut self) {
        if self.by_id.len() < REMEMBERED_MAX {
            return;
        }
        for _ in 0..self.order.len() {
            let Some(id) = self.order.pop_front() else { return };
            if self.by_id.get(&id).is_some_and(|o| o.sessions > 0) {
                self.order.push_back(id);
                continue;
            }
            self.by_id.remove(&id);
            return;
        }
    }

    pub fn given(&mut self, id: u64, name: &AuthName) {
        self.entry(id, name);
    }

    pub fn proved(&mut self, id: u64, name: &AuthName, key: &CryptoKey) {
        self.entry(id, name).key = Some(key.clone());
    }

    pub fn key_of(&self, id: u64, name: &AuthName) -> Option<&CryptoKey> {
        self.by_id.get(&id).filter(|o| o.name == *name)?.key.as_ref()
    }

    pub fn opened(&mut self, id: u64, name: &AuthName) {
        let owner = self.entry(id, name);
        owner.sessions = owner.sessions.saturating_add(1);
    }

    pub fn closed(&mut self, id: u64) {
        if let Some(owner) = self.by_id.get_mut(&id) {
            owner.sessions = owner.sessions.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECRET_LEN;
    use types::{EntityKind, Utime};

    fn name(id: u64) -> AuthName {
        AuthName::new(EntityKind::Client, id.to_string())
    }

    #[test]
    fn a_key_stays_with_its_id_and_entity() {
        let key = |n: u8| CryptoKey::new([n; SECRET_LEN], Utime::ZERO);
        let mut owners = Owners::default();
        owners.proved(1, &name(1), &key(1));
        owners.opened(1, &name(1));
        // It comes again, with another key, before the end of the first session is heard of.
        owners.proved(1, &name(1), &key(2));
        owners.closed(1);
        owners.opened(1, &name(1));
        assert_eq!(owners.key_of(1, &name(1)), Some(&key(2)));
        assert_eq!(owners.key_of(1, &name(2)), None);
        owners.given(1, &name(2));
        assert_eq!(owners.key_of(1, &name(2)), None, "the key of another");
    }

    #[test]
    fn what_is_open_is_never_forgotten_and_the_table_never_grows() {
        let mut owners = Owners::default();
        owners.opened(1, &name(1));
        for id in 2..2 * REMEMBERED_MAX as u64 {
            owners.given(id, &name(id));
        }
        assert_eq!(owners.of(1), Some(&name(1)));
        assert_eq!(owners.of(2), None);
        assert_eq!(
            (owners.by_id.len(), owners.order.len()),
            (REMEMBERED_MAX, REMEMBERED_MAX)
        );
        owners.closed(1);
        for id in 1_000_000..1_000_000 + REMEMBERED_MAX as u64 {
            owners.given(id, &name(id));
        }
        assert_eq!(owners.of(1), None);
    }
}
