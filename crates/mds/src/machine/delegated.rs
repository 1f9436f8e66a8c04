//! Asynchronous requests: a client that has a directory for itself makes and removes names in it without waiting for the answer
//! (docs/decisions/0079-asynchronous-names.md).
//!
//! A file's number comes from a stock that its client was given before. It is given with a change of the session's row, and told when
//! that is durable. The stock ends with the server: what was sent and not answered comes again before all else, under its number; a client
//! that has come back begins with an empty stock.
//!
//! Invariants: a number is in one stock at most, and in none once a file has it; Fc and Fr of a directory (to make, to remove) go
//! with Fx, to a client that knows of all this and wants them.

use super::parts::stock::{LOW, STOCK, Stock};
use super::{ClientId, Machine, Request, Result, Tx};
use crate::row::{Inode, Key, ROOT, Row, SessionRow};
use bytes::Bytes;
use denc::Encode;
use messages::fs::{Created, cap, op, request_flag};
use std::sync::Arc;
use types::Errno;

/// Of a session: numbers are delegated to it.
pub const FEATURE: u32 = 13;
/// What a kernel takes a file for that it has made so.
const OF_NEW_FILE: u32 = cap::PIN
    | cap::AS
    | cap::AX
    | cap::LS
    | cap::XS
    | cap::XX
    | cap::FS
    | cap::FX
    | cap::FC
    | cap::FR
    | cap::FW
    | cap::FB;
/// And the name of that.
const CAP_ID: u64 = 1;

pub(crate) fn is_async(r: &Request) -> bool {
    r.m.flags & request_flag::ASYNC != 0
}

impl Machine {
    /// The session is told now what the server knows of.
    pub(crate) fn delegates_to(&mut self, client: ClientId) -> bool {
        let on = self.options.async_names;
        self.sessions.get_mut(client).is_some_and(|s| {
            s.delegates = on && s.features.has(FEATURE);
            on
        })
    }

    /// What a directory's own client may have besides Fx.
    pub(crate) fn ops_of(&self, client: ClientId, inode: &Inode) -> u32 {
        let delegates = self.sessions.get(client).is_some_and(|s| s.delegates);
        match delegates && inode.is_dir() {
            true => cap::FC | cap::FR,
            false => 0,
        }
    }

    pub(crate) fn check_async(&self, r: &Request) -> Result<()> {
        let knows = self
            .sessions
            .get(r.client)
            .is_some_and(|s| s.delegates || r.is_replay && !s.stock.is_empty());
        match knows && matches!(r.m.op, op::CREATE | op::UNLINK) {
            true => Ok(()),
            // Its client goes on as if it were done, under a number that it was never given.
            false => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// The number that the client has given to the file.
    pub(crate) fn given_ino(&mut self, r: &Request) -> Result<u64> {
        let ino = r.m.ino;
        let has = self.sessions.get(r.client).is_some_and(|s| s.stock.contains(ino));
        let free = has && ino > ROOT && self.inode_opt(ino)?.is_none();
        match free {
            true => Ok(ino),
            false => Err(Errno::EINVAL.into()),
        }
    }

    /// The file has its number; a stock that is low is filled with the same change.
    pub(crate) fn restock(&mut self, r: &Request, tx: &mut Tx, ino: u64) {
        let counters = &mut self.counters;
        let Some(s) = self.sessions.get_mut(r.client) else {
            return;
        };
        #[cfg(test)]
        let reuses = self.early.is(super::parts::early::Broken::Reused);
        #[cfg(not(test))]
        let reuses = false;
        s.stock.take(ino);
        if !s.delegates || r.is_replay || r.m.op != op::CREATE || s.stock.len() >= LOW {
            return;
        }
        let (first, n) = (counters.next_ino, STOCK - s.stock.len());
        counters.next_ino += if reuses { 0 } else { n };
        s.stock.add(first, n);
        s.fresh.push((first, n));
        let row = Arc::new(SessionRow {
            delegated: s.stock.runs(),
            ..SessionRow::clone(&s.row)
        });
        s.row = row.clone();
        tx.put(Key::Counters, Row::Counters(*counters));
        tx.put(Key::Session(r.client), Row::Session(row));
    }

    /// The client goes on with all that it may have of a new file; what it may not keep is asked back behind the answer.
    pub(crate) fn as_made_by(&mut self, client: ClientId, ino: u64) {
        if self.replays.running {
            return;
        }
        let holder = self.caps.get_mut(&ino).and_then(|ic| ic.holders.get_mut(&client));
        if let Some(cap) = holder {
            cap.id = CAP_ID;
            cap.pending |= OF_NEW_FILE;
            cap.issued |= OF_NEW_FILE;
        }
    }

    /// The answer to CREATE says which file was made, and which numbers are the client's from now on.
    pub(crate) fn created(&mut self, r: &Request, extra: Bytes) -> Bytes {
        let made = <[u8; 8]>::try_from(&extra[..]).ok().map(u64::from_le_bytes);
        let session = self.sessions.get_mut(r.client).filter(|s| s.delegates);
        match (made, session) {
            (Some(ino), Some(s)) if r.m.op == op::CREATE => Created {
                ino,
                delegated: std::mem::take(&mut s.fresh),
            }
            .to_bytes(),
            _ => extra,
        }
    }

    /// All that was sent to the server before is carried out: nobody has a number any more.
    pub(crate) fn end_stocks(&mut self, tx: &mut Tx) {
        for (client, s) in &mut self.sessions.all {
            if s.row.delegated.is_empty() {
                continue;
            }
            s.stock = Stock::default();
            let row = Arc::new(SessionRow {
                delegated: Vec::new(),
                ..SessionRow::clone(&s.row)
            });
            s.row = row.clone();
            tx.put(Key::Session(*client), Row::Session(row));
        }
    }
}
