//! To whom global ids were given, as far as this server remembers: so that an id is not given to a second entity.
//!
//! Bound: [`REMEMBERED_MAX`] ids; at the bound the one given longest ago is forgotten, unless a session has it open.

use std::collections::{BTreeMap, VecDeque};
use types::AuthName;

/// Ids that are remembered.
pub const REMEMBERED_MAX: usize = 65_536;

#[derive(Debug)]
struct Owner {
    name: AuthName,
    /// Open sessions that have the id.
    sessions: u32,
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
        });
        if owner.name != *name {
            owner.name = name.clone();
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
    use types::EntityKind;

    fn name(id: u64) -> AuthName {
        AuthName::new(EntityKind::Client, id.to_string())
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
