//! Leases: for how long a client may trust a name without a capability on its directory.
//!
//! Where several change one directory, Fs of it would go to and fro, and all names with it. There an answer brings a lease of its one
//! name instead. Before a name changes all who have one give it back, or let it run out: nobody is fenced for a lease.
//!
//! Invariants: a client is given a lease by answers alone, with a capability on the directory; it counts from when it asked, the server
//! from when it answered. What a client says with a request that it gave up is not believed: some of 16.2 go on trusting it. After a
//! restart clients still trust names (a reconnect ends no lease), and the server knows none: until the last of these is over, whoever
//! came back with a capability on a directory is asked for each of its names before that changes.

#[cfg(test)]
use super::parts::early::Broken;
use super::parts::leases::{LEASE, Name};
use super::replays::was_answered;
use super::{Caching, ClientId, Machine, Request, Result, Stop};
use crate::membership::MdsState;
use crate::row::{Inode, NOSNAP};
use bytes::Bytes;
use messages::fs::{InodeStat, LeaseStat, MClientLease, cap, lease_action};
use messages::mon::Body;

/// The lease is one.
const VALID: u16 = 3;
/// And the name is the inode's first one.
const PRIMARY: u16 = 4;
/// Of the cache's bytes, one in so many for leases; beyond that none is given.
const CACHE_SHARE: usize = 4;
/// What is asked back, as the real server names it.
const NAME: u16 = 1;

impl Machine {
    pub(crate) fn gives_leases(&self) -> bool {
        self.options.leases
            && self.options.caching != Caching::Nothing
            && self.state == MdsState::Active
            && !self.replays.running
    }

    fn may_lease(&self, client: ClientId) -> bool {
        let is_full = self.leases.bytes() >= self.options.cache_bytes / CACHE_SHARE;
        self.gives_leases() && !is_full && self.leases.has_room(client)
    }

    /// Names of the directory are told one by one: Fs of it was taken from somebody too often of late.
    pub(crate) fn tells_by_names(&self, client: ClientId, dir: u64) -> bool {
        let contested = self
            .caps
            .get(&dir)
            .is_some_and(|ic| ic.is_contested(self.now.monotonic));
        contested && self.may_lease(client)
    }

    /// An answer shows the name: how long it may be trusted. `dir`: as the answer shows it; `target`: what it stands for, if anything.
    pub(crate) fn lease(
        &mut self,
        r: &Request,
        dir: &InodeStat,
        name: &Bytes,
        target: Option<&Inode>,
    ) -> LeaseStat {
        let holds = dir.cap.caps;
        if !self.may_lease(r.client) || holds & cap::PIN == 0 || holds & (cap::FS | cap::FX) != 0 {
            return LeaseStat::default();
        }
        let name: Name = (dir.ino, name.clone());
        let Some(seq) = self.leases.give(r.client, &name, Some(r.id), self.now.monotonic) else {
            return LeaseStat::default();
        };
        let is_first = target.is_some_and(|t| t.links.first() == Some(&name));
        LeaseStat {
            mask: VALID | if is_first { PRIMARY } else { 0 },
            duration_ms: LEASE.as_millis() as u32,
            seq,
            ..LeaseStat::default()
        }
    }

    /// Names are to change: goes on when nobody but `except` trusts them any more.
    pub(crate) fn take_names(
        &mut self,
        r: &mut Request,
        names: &[(u64, &Bytes)],
        except: Option<ClientId>,
    ) -> Result<()> {
        if was_answered(r) {
            // They were given back before it was answered, and nobody else has been told what was not durable.
            return Ok(());
        }
        #[cfg(test)]
        if self.early.is(Broken::Trusted) {
            return Ok(());
        }
        let now = self.now.monotonic;
        let mut waits = false;
        for (dir, name) in names.iter().copied() {
            let name: Name = (dir, name.clone());
            let suspects = self.suspects_of(dir);
            let asking = self.leases.keep(r.id, &name, except, &suspects, now);
            for (client, seq) in asking.ask {
                self.send_lease(client, lease_action::REVOKE, &name, seq);
            }
            waits |= asking.waits;
            r.names.insert(name);
        }
        match waits {
            true => Err(Stop::Wait),
            false => Ok(()),
        }
    }

    /// The request has ended.
    pub(crate) fn thaw_names(&mut self, r: &mut Request) {
        for name in std::mem::take(&mut r.names) {
            self.leases.thaw(r.id, &name);
        }
    }

    /// Who keeps names of a directory keeps the directory, and said so when it came back.
    fn suspects_of(&self, dir: u64) -> Vec<ClientId> {
        let now = self.now.monotonic;
        let holders = self.caps.get(&dir).map(|ic| ic.holders.keys().copied());
        let holders = holders.into_iter().flatten();
        holders.filter(|c| self.leases.is_suspect(*c, now)).collect()
    }

    /// All who come back are there.
    pub(crate) fn suspect_leases(&mut self) {
        #[cfg(test)]
        if self.early.is(Broken::Oblivious) {
            return;
        }
        let clients = self.sessions.iter().map(|(id, _)| id).collect();
        self.leases.suspect(clients, self.now.monotonic);
    }

    fn send_lease(&mut self, client: ClientId, action: u8, (dir, name): &Name, seq: u32) {
        let m = MClientLease {
            action,
            mask: NAME,
            ino: *dir,
            first: NOSNAP,
            last: NOSNAP,
            seq,
            duration_ms: match action {
                lease_action::RENEW => LEASE.as_millis() as u32,
                _ => 0,
            },
            name: name.clone(),
        };
        self.send_counted(client, m.message(0));
    }

    pub(crate) fn client_lease(&mut self, client: ClientId, m: &MClientLease) {
        let name: Name = (m.ino, m.name.clone());
        match m.action {
            lease_action::RELEASE | lease_action::REVOKE_ACK => {
                let woken = self.leases.given_back(client, &name, m.seq);
                self.runnable.extend(woken);
                for (client, name, seq) in self.leases.questions() {
                    self.send_lease(client, lease_action::REVOKE, &name, seq);
                }
            }
            // One that is refused runs out.
            lease_action::RENEW if self.gives_leases() => {
                let seq = self.leases.renew(client, &name, m.seq, self.now.monotonic);
                if let Some(seq) = seq {
                    self.send_lease(client, lease_action::RENEW, &name, seq);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn look_after_leases(&mut self) {
        let woken = self.leases.expire(self.now.monotonic);
        self.runnable.extend(woken);
    }

    pub(crate) fn end_leases(&mut self, client: ClientId) {
        let woken = self.leases.end_client(client);
        self.runnable.extend(woken);
    }
}
