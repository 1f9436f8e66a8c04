//! Who may have a connection: the places of one listener.
//!
//! Vocabulary: a connection is *new* until its session is open. *Trusted* are daemons of the cluster and administrators.
//!
//! Invariants, where `max` is what the listener may have at once:
//! - new connections have an eighth of the places, and one address half of those; one more takes the place of the oldest (of
//!   its address), so whoever opens connections and says nothing keeps nobody out;
//! - an eighth is kept for the trusted, who have the others' places, too;
//! - all other sessions share the rest. One entity, or one address, has at most three quarters of it: a host of thousands of
//!   virtual machines with one key may be large, but never alone. When all are taken, the entity that has the most gives one
//!   up to who has fewer: its longest silent.
//!
//! Not here: closing anything (`server`), deadlines (`connection`).

use crate::connections::ConnId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use types::AuthName;

/// Parts of the whole.
const NEW_PART: usize = 8;
const TRUSTED_PART: usize = 8;

#[derive(Debug)]
struct Session {
    ip: IpAddr,
    entity: AuthName,
    trusted: bool,
}

#[derive(Debug)]
pub(crate) struct Places {
    new_max: usize,
    trusted_max: usize,
    others_max: usize,
    new: BTreeMap<ConnId, IpAddr>,
    sessions: HashMap<ConnId, Session>,
    trusted: usize,
    entities: HashMap<AuthName, BTreeSet<ConnId>>,
    addresses: HashMap<IpAddr, usize>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPlace {
    #[error("its entity has too many connections")]
    Entity,
    #[error("its address has too many connections")]
    Address,
    #[error("there are too many connections")]
    All,
}

impl Places {
    pub fn new(max: usize) -> Self {
        let (new_max, trusted_max) = ((max / NEW_PART).max(1), (max / TRUSTED_PART).max(1));
        Self {
            new_max,
            trusted_max,
            others_max: max.saturating_sub(new_max + trusted_max).max(1),
            new: BTreeMap::new(),
            sessions: HashMap::new(),
            trusted: 0,
            entities: HashMap::new(),
            addresses: HashMap::new(),
        }
    }

    /// What one entity or address may have of the others' places.
    fn share(&self) -> usize {
        (self.others_max / 4 * 3).max(1)
    }

    /// A connection came in; names the one that has to go for it.
    pub fn arrived(&mut self, conn: ConnId, ip: IpAddr) -> Option<ConnId> {
        let oldest_of = |new: &BTreeMap<ConnId, IpAddr>, ip: IpAddr| {
            let mut its = new.iter().filter(|(_, at)| **at == ip).map(|(c, _)| *c);
            let oldest = its.next();
            (oldest, oldest.map_or(0, |_| 1 + its.count()))
        };
        let gone = match self.new.len() >= (self.new_max / 2).max(1) {
            false => None,
            true => match oldest_of(&self.new, ip) {
                (oldest, n) if n >= (self.new_max / 2).max(1) => oldest,
                _ if self.new.len() >= self.new_max => self.new.keys().next().copied(),
                _ => None,
            },
        };
        if let Some(gone) = gone {
            self.new.remove(&gone);
        }
        self.new.insert(conn, ip);
        gone
    }

    /// Its session is to be opened; names the one that has to go for it. `silence` tells for how long one has said nothing.
    pub fn opened(
        &mut self,
        conn: ConnId,
        ip: IpAddr,
        entity: &AuthName,
        trusted: bool,
        silence: impl Fn(ConnId) -> u32,
    ) -> Result<Option<ConnId>, NoPlace> {
        let trusted = trusted && self.trusted < self.trusted_max;
        let gone = match trusted {
            true => None,
            false => self.place_of_another(ip, entity, silence)?,
        };
        if let Some(gone) = gone {
            self.left(gone);
        }
        self.new.remove(&conn);
        match trusted {
            true => self.trusted += 1,
            false => {
                self.entities.entry(entity.clone()).or_default().insert(conn);
                *self.addresses.entry(ip).or_default() += 1;
            }
        }
        let entity = entity.clone();
        self.sessions.insert(conn, Session { ip, entity, trusted });
        Ok(gone)
    }

    fn place_of_another(
        &self,
        ip: IpAddr,
        entity: &AuthName,
        silence: impl Fn(ConnId) -> u32,
    ) -> Result<Option<ConnId>, NoPlace> {
        let own = self.entities.get(entity).map_or(0, BTreeSet::len);
        if own >= self.share() {
            return Err(NoPlace::Entity);
        }
        if self.addresses.get(&ip).copied().unwrap_or(0) >= self.share() {
            return Err(NoPlace::Address);
        }
        if self.sessions.len() - self.trusted < self.others_max {
            return Ok(None);
        }
        let most = self.entities.values().max_by_key(|conns| conns.len());
        let most = most.filter(|conns| conns.len() > own + 1).ok_or(NoPlace::All)?;
        // The oldest of those silent for as long.
        let longest = most
            .iter()
            .copied()
            .max_by_key(|c| (silence(*c), std::cmp::Reverse(*c)));
        longest.map(Some).ok_or(NoPlace::All)
    }

    /// A connection ended, or is none of the counted any more.
    pub fn left(&mut self, conn: ConnId) {
        self.new.remove(&conn);
        let Some(s) = self.sessions.remove(&conn) else {
            return;
        };
        if s.trusted {
            self.trusted -= 1;
            return;
        }
        if let Some(conns) = self.entities.get_mut(&s.entity) {
            conns.remove(&conn);
            if conns.is_empty() {
                self.entities.remove(&s.entity);
            }
        }
        if let Some(n) = self.addresses.get_mut(&s.ip) {
            *n -= 1;
            if *n == 0 {
                self.addresses.remove(&s.ip);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use types::EntityKind;

    fn ip(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    fn client(id: &str) -> AuthName {
        AuthName::new(EntityKind::Client, id)
    }

    struct Rig {
        places: Places,
        next: u64,
    }

    impl Rig {
        /// 8 new ones, 8 trusted, 48 others of whom one entity has at most 36.
        fn new() -> Self {
            Self {
                places: Places::new(64),
                next: 0,
            }
        }

        fn arrive(&mut self, at: u8) -> (u64, Option<u64>) {
            self.next += 1;
            let gone = self.places.arrived(ConnId(self.next), ip(at));
            (self.next, gone.map(|c| c.0))
        }

        fn open(&mut self, at: u8, entity: &str, trusted: bool) -> Result<Option<u64>, NoPlace> {
            let (conn, _) = self.arrive(at);
            let opened = self
                .places
                .opened(ConnId(conn), ip(at), &client(entity), trusted, |_| 0);
            if opened.is_err() {
                self.places.left(ConnId(conn));
            }
            opened.map(|gone| gone.map(|c| c.0))
        }
    }

    #[test]
    fn silent_connections_give_way_to_newer_ones_and_first_those_of_the_same_address() {
        let mut rig = Rig::new();
        for n in 1..=4 {
            assert_eq!(rig.arrive(1), (n, None));
        }
        assert_eq!(rig.arrive(1), (5, Some(1)));
        for n in 6..=9 {
            assert_eq!(rig.arrive(n as u8), (n, None));
        }
        assert_eq!(rig.arrive(2), (10, Some(2)), "the oldest of all");
        assert_eq!(rig.places.new.len(), 8);
    }

    #[test]
    fn one_key_never_has_all_places_and_gives_them_up_to_others() {
        let mut rig = Rig::new();
        for n in 0..36 {
            assert_eq!(rig.open(n, "reader", false), Ok(None), "{n}");
        }
        assert_eq!(rig.open(40, "reader", false), Err(NoPlace::Entity));
        for n in 0..12 {
            assert_eq!(rig.open(n, &format!("other{n}"), false), Ok(None), "{n}");
        }
        // Full: the reader's oldest goes.
        assert_eq!(rig.open(41, "one more", false), Ok(Some(1)));
        for n in 0..40 {
            assert!(rig.open(42, &format!("more{n}"), false).is_ok() || n > 30);
        }
        let most = rig.places.entities.values().map(BTreeSet::len).max();
        assert!(most <= Some(2), "{most:?}");
        assert_eq!(rig.places.sessions.len(), 48);
    }

    #[test]
    fn one_address_never_has_all_places() {
        let mut rig = Rig::new();
        for n in 0..36 {
            assert_eq!(rig.open(1, &format!("vm{n}"), false), Ok(None));
        }
        assert_eq!(rig.open(1, "vm", false), Err(NoPlace::Address));
        assert_eq!(rig.open(2, "vm", false), Ok(None));
    }

    #[test]
    fn places_are_kept_for_the_trusted() {
        let mut rig = Rig::new();
        for n in 0..48 {
            assert_eq!(rig.open(n, &format!("c{n}"), false), Ok(None));
        }
        assert_eq!(rig.open(60, "c60", false), Err(NoPlace::All), "all have one each");
        for n in 0..8 {
            assert_eq!(rig.open(1, "admin", true), Ok(None), "{n}");
        }
        assert_eq!(rig.open(1, "admin", true), Err(NoPlace::All));
        let trusted = rig
            .places
            .sessions
            .iter()
            .find(|(_, s)| s.trusted)
            .map(|(c, _)| *c);
        rig.places.left(trusted.unwrap());
        assert_eq!(rig.open(1, "admin", true), Ok(None));
    }

    #[test]
    fn who_left_is_forgotten() {
        let mut rig = Rig::new();
        rig.open(1, "a", false).unwrap();
        rig.open(1, "b", true).unwrap();
        rig.arrive(3);
        for n in 1..=3 {
            rig.places.left(ConnId(n));
        }
        let p = &rig.places;
        assert!(p.new.is_empty() && p.sessions.is_empty() && p.entities.is_empty() && p.addresses.is_empty());
        assert_eq!(p.trusted, 0);
    }
}
