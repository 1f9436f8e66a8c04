//! After a restart: clients come back with what they hold. Until all have come, or their time is over, nothing new begins.
//!
//! Order: `Reconnect` is published, and clients say what they hold; inodes of theirs are read; who did not come is fenced. Then
//! `Rejoin`, then requests that clients had an answer for that may not have been kept (`replays`), then `Active`.

use super::parts::caps::Cap;
use super::parts::reconnecting::Reconnecting;
use super::parts::sessions::State;
use super::{ClientId, Conn, Effect, Machine};
use crate::membership::MdsState;
use crate::row::{Inode, Job, Key, job};
use messages::fs::{CapRecord, MClientReconnect, MClientSession, cap, session_op};
use messages::mon::Body;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// That every client is waited for.
const TIMEOUT_MIN: Duration = Duration::from_secs(5);

impl Machine {
    pub(crate) fn begin_reconnect(&mut self) {
        self.push(Effect::Report(MdsState::Replay));
        self.state = MdsState::Reconnect;
        self.reconnecting = Some(Reconnecting {
            began: self.now.monotonic,
            unfinished: BTreeSet::new(),
            records: Vec::new(),
            said_by: BTreeMap::new(),
        });
        self.push(Effect::Report(MdsState::Reconnect));
        self.go_on_reconnecting();
    }

    pub(crate) fn client_reconnect(&mut self, conn: Conn, client: ClientId, m: MClientReconnect) {
        if self
            .sessions
            .get(client)
            .and_then(|s| s.conn)
            .is_some_and(|c| c != conn)
        {
            // Late: its client has another connection by now, and says it there.
            return;
        }
        let hears = match (&mut self.reconnecting, self.sessions.get_mut(client)) {
            (Some(rc), Some(s)) if s.state != State::Evicted => {
                let hears = rc.hears(client, conn, s.state == State::Away);
                if hears {
                    (s.state, s.lost) = (State::Away, false);
                }
                hears
            }
            _ => false,
        };
        let (Some(rc), true) = (&mut self.reconnecting, hears) else {
            // Its session is gone, and with it what it held.
            let message = MClientSession::short(session_op::CLOSE, 0).message(0);
            self.push(Effect::Send { conn, message });
            if let Some(s) = self.sessions.get_mut(client)
                && s.state == State::Open
            {
                tracing::warn!("client.{client}: it comes back to a session that went on: it is evicted");
                // That one stays, to bring the answer.
                s.conn = None;
                self.evict_client(client);
            }
            return;
        };
        rc.records.extend(m.caps.into_iter().map(|c| (client, c)));
        if m.more {
            rc.unfinished.insert(client);
            return;
        }
        rc.unfinished.remove(&client);
        let now = self.now.monotonic;
        if let Some(s) = self.sessions.get_mut(client) {
            s.state = State::Open;
            s.conn = Some(conn);
            s.renewed = now;
            s.pushed = 0;
        }
        self.go_on_reconnecting();
    }

    pub(crate) fn look_after_reconnect(&mut self) {
        let Some(rc) = &self.reconnecting else { return };
        let (now, window) = (self.now.monotonic, self.options.reconnect);
        let began = rc.began;
        for client in self.sessions.away() {
            // Who said so itself is waited for less long.
            let own = self.sessions.get(client).and_then(|s| s.timeout);
            let own = own.map_or(window, |t| t.max(TIMEOUT_MIN).min(window));
            if now >= began + own {
                tracing::warn!("client.{client}: it did not come back: it is evicted");
                self.evict_client(client);
            }
        }
        self.go_on_reconnecting();
    }

    /// Looks whether all are there, and what they hold is in memory.
    pub(crate) fn go_on_reconnecting(&mut self) {
        let Some(rc) = &self.reconnecting else { return };
        let missing = self
            .sessions
            .iter()
            .any(|(_, s)| matches!(s.state, State::Away | State::Evicted));
        if missing || !rc.unfinished.is_empty() {
            return;
        }
        let mut inos: BTreeSet<u64> = rc.records.iter().map(|(_, c)| c.ino).collect();
        inos.extend(self.writing.iter().chain(&self.strays));
        let wanted: Vec<Key> = inos
            .into_iter()
            .map(Key::inode)
            .filter(|k| !self.table.contains(k))
            .collect();
        if !wanted.is_empty() {
            return self.prefetch(wanted);
        }
        let missing = self.missing_above_reconnected();
        if !missing.is_empty() {
            return self.prefetch(missing);
        }
        let Some(rc) = self.reconnecting.take() else {
            return;
        };
        for (client, record) in rc.records {
            self.take_back(client, record);
        }
        self.come_back();
        self.suspect_leases();
        self.hear_who_replays_nothing();
        self.begin_replays();
    }

    /// Of what clients hold: directories above it, and versions that a flush of theirs may be about.
    fn missing_above_reconnected(&self) -> Vec<Key> {
        let Some(rc) = &self.reconnecting else {
            return Vec::new();
        };
        if self.realms.is_empty() && self.snaps.is_empty() {
            return Vec::new();
        }
        let (mut seen, mut missing) = (BTreeSet::new(), BTreeSet::new());
        for inode in rc.records.iter().filter_map(|(_, c)| self.cached(c.ino)) {
            missing.extend(self.missing_above_but(&inode, &mut seen));
            missing.extend(self.missing_versions(&inode));
        }
        missing.into_iter().collect()
    }

    /// What a client held it holds again.
    pub(crate) fn take_back(&mut self, client: ClientId, record: CapRecord) {
        if self.cached(record.ino).is_none() {
            if self.may_be_made_again(client, record.ino) {
                self.replays.late.insert((client, record.ino), record);
            }
            return;
        }
        self.last_cap_id = self.last_cap_id.max(record.cap_id);
        #[cfg(test)]
        let record = match self.early.is(super::parts::early::Broken::Forgetful) {
            true if self.cached(record.ino).is_some_and(|i| i.is_file()) => without_writes(record),
            _ => record,
        };
        let held = Cap {
            id: record.cap_id,
            pending: record.issued,
            issued: record.issued,
            wanted: record.wanted,
            ..Cap::default()
        };
        let Some(s) = self.sessions.get_mut(client) else {
            return;
        };
        s.caps.insert(record.ino);
        let ic = self.caps.entry(record.ino).or_default();
        ic.holders.insert(client, held);
        self.restore_flocks(client, record.ino, &record.fcntl, &record.flock);
    }

    fn come_back(&mut self) {
        let clients: Vec<ClientId> = self.sessions.iter().map(|(id, _)| id).collect();
        self.osd_barrier = self.osd_barrier.max(self.osd_epoch);
        for client in clients {
            self.send_open(client, 0);
            // Attributes are told with it, and those that it changes again are not yet what it knows.
            if !self.replays.queue.contains_key(&client) {
                self.remind(client);
            }
        }
        let writing: Vec<u64> = self.writing.iter().copied().collect();
        for ino in writing {
            let (issued, wants) = self.caps.get(&ino).map_or((0, 0), |ic| (ic.issued(), ic.wants()));
            // Who trusts the size has seen that nobody else writes, and says what it wrote itself.
            if (issued | wants) & (cap::FW | cap::FB | cap::FX) == 0 && issued & cap::FS == 0 {
                self.probe(ino);
            }
        }
        self.state = MdsState::Rejoin;
        self.push(Effect::Report(MdsState::Rejoin));
    }

    /// All is there again.
    pub(crate) fn begin_serving(&mut self) {
        self.become_active();
        let held: Vec<u64> = self.caps.keys().copied().collect();
        held.into_iter().for_each(|ino| self.settle(ino));
        // Made again by a client that has closed it since, for one.
        let writing = self.writing.iter().copied();
        let known: Vec<u64> = writing.filter(|ino| !self.probing(*ino)).collect();
        known.into_iter().for_each(|ino| self.writers_gone(ino));
        self.tell_all_realms();
        let strays: Vec<u64> = self.strays.iter().copied().collect();
        strays.into_iter().for_each(|ino| self.purge_if_stray(ino));
    }

    // Sizes

    /// A writer is gone for ever: how far it wrote is found by the objects.
    pub(crate) fn probe(&mut self, ino: u64) {
        let Some(inode) = self.cached(ino) else { return };
        if inode.nlink == 0 || inode.max_size <= inode.size || self.probing(ino) {
            return;
        }
        let mut tx = super::Tx::default();
        let probe = Job {
            kind: job::PROBE,
            ino,
            layout: inode.layout,
            pool_ns: inode.pool_ns.clone(),
            from: inode.max_size,
            to: inode.size,
            ..Job::default()
        };
        let id = self.new_job(&mut tx, probe);
        self.probes.insert(ino, id);
        self.commit(tx);
        self.start_jobs();
    }

    /// Its size is being found.
    pub(crate) fn probing(&self, ino: u64) -> bool {
        self.probes.contains_key(&ino)
    }

    pub(crate) fn probed(&mut self, tx: &mut super::Tx, ino: u64, size: u64) {
        self.probes.remove(&ino);
        let Some(inode) = self.cached(ino) else { return };
        if size <= inode.size {
            return;
        }
        let mut changed = Inode::clone(&inode);
        changed.untold.bytes += size as i64 - inode.size as i64;
        changed.size = size;
        changed.change_attr += 1;
        tx.inode(changed);
    }
}

#[cfg(test)]
fn without_writes(mut record: CapRecord) -> CapRecord {
    let writes = cap::FW | cap::FX | cap::FB | cap::AX;
    (record.issued, record.wanted) = (record.issued & !writes, record.wanted & !writes);
    record
}
