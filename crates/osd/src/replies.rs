//! Answers that wait for room: a client's operation with a large answer is done when what the client has not taken yet, and
//! what all have not, leave room for that answer (`net::Connections::promise`).
//!
//! Invariants: operations of one connection stay in order, so later ones wait behind the one without room. What waits has its
//! message's permit, which bounds it; a connection that ends takes it along.

use crate::osd::{InFlight, Osd};
use crate::sessions::Sessions;
use messages::osd::{MOSDOp, OsdOp, code, flag};
use net::ConnId;
use pg::ClientOp;

/// Answers below this are made at once: what they take is bounded by the number of messages in flight.
const LARGE: u64 = 64 << 10;
/// No object is larger.
const OBJECT_MAX: u64 = 128 << 20;
/// A page of names, keys or rows.
const LISTING: u64 = 256 << 10;
/// A read that does not say how much, and reads of other things.
const UNKNOWN: u64 = 4 << 20;

/// About how large the answer may be; what asks for more than the largest is refused before it is made (`pg::exec::cost`).
fn answer_bytes(op: &MOSDOp) -> u64 {
    let all: u64 = op.ops.iter().map(one).sum();
    all.min(OBJECT_MAX)
}

fn one(op: &OsdOp) -> u64 {
    match op.code {
        code::READ | code::SPARSE_READ | code::SYNC_READ => match op.extent().length {
            0 => UNKNOWN,
            n => n.min(OBJECT_MAX),
        },
        // It comes in whole before it is written.
        code::COPY_FROM | code::COPY_FROM2 => OBJECT_MAX,
        // Pages of what the client bounds by a number of entries.
        code::OMAPGETKEYS | code::OMAPGETVALS | code::GETXATTRS | code::PGLS | code::PGNLS => LISTING,
        _ => 0,
    }
}

impl Osd {
    /// Takes on a client's operation, now or when there is room for its answer.
    pub fn admit(&mut self, mut op: ClientOp) {
        let conn = ConnId(op.conn);
        if self.sessions.is_choked(conn) || !self.promise(&mut op) {
            return self.sessions.choke(op);
        }
        self.route(op);
    }

    fn promise(&self, op: &mut ClientOp) -> bool {
        // What a write sends on has to leave first; peers' own messages, and answers, never wait here.
        let peers = &self.meters.net.peers;
        if op.op.flags & flag::WRITE != 0 && !peers.has_room(0) {
            peers.wait.inc();
            return false;
        }
        let bytes = answer_bytes(&op.op);
        if bytes < LARGE {
            return !self.conns.has_to_wait(ConnId(op.conn));
        }
        let Some(promise) = self.conns.promise(ConnId(op.conn), bytes as usize) else {
            return false;
        };
        if let Some(flight) = op
            .permit
            .rider
            .as_mut()
            .and_then(|p| p.downcast_mut::<InFlight>())
        {
            flight.promise = Some(promise);
        }
        true
    }

    /// At the end of each turn, where something waits: takes on what has room now.
    pub fn admit_choked(&mut self) {
        for conn in self.sessions.choked() {
            while let Some(mut op) = self.sessions.next_choked(conn) {
                if !self.promise(&mut op) {
                    self.sessions.choke_again(op);
                    break;
                }
                self.route(op);
            }
        }
    }
}

impl Sessions {
    /// An operation of this connection waits for room.
    pub fn is_choked(&self, conn: ConnId) -> bool {
        self.has_choked() && self.choked.contains_key(&conn)
    }

    pub fn has_choked(&self) -> bool {
        !self.choked.is_empty()
    }

    fn choked(&self) -> Vec<ConnId> {
        self.choked.keys().copied().collect()
    }

    fn choke(&mut self, op: ClientOp) {
        self.choked.entry(ConnId(op.conn)).or_default().push_back(op);
    }

    fn choke_again(&mut self, op: ClientOp) {
        self.choked.entry(ConnId(op.conn)).or_default().push_front(op);
    }

    fn next_choked(&mut self, conn: ConnId) -> Option<ClientOp> {
        let waiting = self.choked.get_mut(&conn)?;
        let op = waiting.pop_front();
        if waiting.is_empty() {
            self.choked.remove(&conn);
        }
        op
    }
}
