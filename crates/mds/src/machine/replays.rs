//! After a restart: what clients were answered that may not have been kept is carried out again, before anything else begins.
//!
//! A client sends it, with a flag and the number of the inode that it made, before it says what capabilities it holds; what it sent
//! asynchronously and had no answer for ([`super::delegated`]) comes without that flag, and asks back like any other request: nobody has
//! given anything up for it, and meanwhile others may have been given what it changes. What is in the list of requests carried out is
//! answered; the rest is done, of each client in its order. Clients need no order between each other: nothing was answered as unsafe that depended on another's ([`super::early`]), or that changes what another's looked at and does not write: where a
//! directory is, layouts, quotas, snapshots. The answer says nothing of inodes, and gives no capabilities: the client
//! has said itself what it holds, on inodes too that this makes again.
//!
//! What a client says of its capabilities belongs behind its own requests, on which it was built: a size or a time that was flushed
//! later is not to be undone by an older change. So it is held until these are carried out ([`Machine::said`]); but not what another's
//! request waits for. What a client changed before one of these was durable before that was answered, or it would not have been
//! answered early. Nothing is given to anybody meanwhile ([`Machine::settle`]), or he would change what an older request changes then.

use super::parts::early::NUMBERS;
use super::parts::held::Said;
use super::{ClientId, Conn, Effect, Machine, Request, RequestId, Result, Tx};
use crate::membership::MdsState;
use crate::row::{Key, ROOT, Row};
use messages::fs::{Trace, request_flag};
use messages::mon::Body;
use std::time::Duration;
use types::Errno;

/// Its client had an answer, for which all was given back that it changes.
pub(crate) fn was_answered(r: &Request) -> bool {
    r.is_replay && r.m.flags & request_flag::REPLAY != 0
}

impl Machine {
    /// Numbers that the server before may have given out.
    pub(crate) fn expect_replays(&mut self) {
        let next = self.counters.next_ino;
        self.replays.numbers = next..next + NUMBERS;
    }

    /// Clients have said what they hold.
    pub(crate) fn begin_replays(&mut self) {
        if self.replays.queue.is_empty() {
            return self.end_replays();
        }
        self.state = MdsState::ClientReplay;
        self.push(Effect::Report(MdsState::ClientReplay));
        let n: usize = self.replays.queue.values().map(|q| q.len()).sum();
        tracing::info!("{n} requests that clients had an answer for are carried out again");
        let first = self.replays.heads();
        self.runnable.extend(first);
    }

    /// `trace`: what a client is told that has had no answer yet; no capability is in it.
    pub(crate) fn finish_replay(&mut self, mut r: Request, result: i32, trace: Trace) {
        if result != 0 {
            tracing::warn!(
                "client.{}: request {} ({:#x}) cannot be carried out again: error {result}",
                r.client,
                r.tid,
                r.m.op
            );
        }
        let made = self
            .sessions
            .get(r.client)
            .and_then(|s| s.done.get(&r.tid).copied());
        let made = made.unwrap_or_default();
        let mut reply = self.bare(&r, result, made);
        reply.extra = self.created(&r, reply.extra);
        if !was_answered(&r) {
            reply.trace = trace;
        }
        self.send(r.client, reply.message(r.tid));
        if let Some(s) = self.sessions.get_mut(r.client) {
            s.requests.remove(&r.tid);
        }
        self.thaw(&mut r);
        let late = match result {
            0 => self.replays.late.remove(&(r.client, made)),
            _ => self.replays.late.remove(&(r.client, r.m.ino)),
        };
        match late {
            Some(record) if result == 0 => self.take_back(r.client, record),
            Some(_) => {
                tracing::warn!(
                    "client.{}: it holds a file that cannot be made again: it is evicted",
                    r.client
                );
                self.evict_client(r.client);
            }
            None => {}
        }
        self.replay_ended(r.client, r.id);
    }

    /// What waits for neither the pools nor a client that is there will not end by itself; nobody is served meanwhile.
    pub(crate) fn look_after_replays(&mut self) {
        if self.state != MdsState::ClientReplay {
            return;
        }
        let now = self.now.monotonic;
        let busy = !self.loads.is_empty() || !self.is_durable() || self.wb.is_full();
        if busy || self.replays.idle_since.is_none() {
            self.replays.idle_since = (!busy).then_some(now);
            return;
        }
        // A client that gives nothing back is evicted before.
        let most = self.options.reconnect + self.place.settings.session_timeout;
        let idle = self
            .replays
            .idle_since
            .map_or(Duration::ZERO, |at| now.saturating_sub(at));
        if idle < most {
            return;
        }
        self.replays.idle_since = None;
        let heads: Vec<RequestId> = self.replays.heads();
        for id in heads {
            if let Some(r) = self.requests.remove(&id) {
                self.finish_replay(r, Errno::ETIMEDOUT.code(), Trace::default());
            }
        }
    }

    /// It was carried out, or its client is gone.
    pub(crate) fn replay_ended(&mut self, client: ClientId, id: RequestId) {
        let next = self.replays.ended(client, id);
        self.replays.idle_since = None;
        self.runnable.extend(next);
        if !self.replays.queue.contains_key(&client) {
            self.hear_held(client);
            self.remind(client);
        }
        if self.state == MdsState::ClientReplay && self.replays.queue.is_empty() {
            self.end_replays();
        }
    }

    fn end_replays(&mut self) {
        self.pass_numbers_over();
        self.replays.late.clear();
        self.begin_serving();
    }

    /// No number is given to two inodes; a client may have written under one that is not there. Durable before one behind them is told
    /// early: the next server would take it for free otherwise, and its maker's replay for wrong.
    fn pass_numbers_over(&mut self) {
        let mut counters = self.counters;
        counters.next_ino = counters.next_ino.max(self.replays.numbers.end);
        let mut tx = Tx::default();
        tx.put(Key::Counters, Row::Counters(counters));
        self.end_stocks(&mut tx);
        self.commit(tx);
    }

    /// A client says something of a capability, which is heard when it can be judged.
    pub(crate) fn said(&mut self, conn: Conn, client: ClientId, said: Said) {
        let replays = self.replays.queue.contains_key(&client) && !self.is_asked_back(client, said.ino());
        if self.reconnecting.is_none() && !replays {
            return self.hear(client, &said);
        }
        if !self.replays.held.keep(client, said) {
            self.push_now(Effect::Close {
                conn,
                why: "too much is said of capabilities after a restart",
            });
        }
    }

    fn hear(&mut self, client: ClientId, said: &Said) {
        if !self.speaks(client) {
            return;
        }
        match said {
            Said::Caps { caps, tid, .. } => self.client_caps(client, caps, *tid),
            Said::Release(item) => self.release(client, item),
        }
    }

    /// What it holds is known, and its own requests are carried out.
    fn hear_held(&mut self, client: ClientId) {
        for said in self.replays.held.take_all(client) {
            self.hear(client, &said);
        }
    }

    /// All are back.
    pub(crate) fn hear_who_replays_nothing(&mut self) {
        for client in self.replays.held.clients() {
            if !self.replays.queue.contains_key(&client) {
                self.hear_held(client);
            }
        }
    }

    fn is_asked_back(&self, client: ClientId, ino: u64) -> bool {
        let cap = self.caps.get(&ino).and_then(|ic| ic.holders.get(&client));
        cap.is_some_and(|c| c.issued & !c.pending != 0)
    }

    /// A capability is asked back of whom something was held about it: it may have given it up by that, and says nothing more.
    /// False: there is none.
    pub(crate) fn hear_asked_back(&mut self) -> bool {
        let Some((client, ino)) = self.replays.asked_back.pop_front() else {
            return false;
        };
        for said in self.replays.held.take(client, ino) {
            self.hear(client, &said);
        }
        true
    }

    /// The server before may have given it out, to the client's stock for one.
    pub(crate) fn may_be_made_again(&self, client: ClientId, ino: u64) -> bool {
        let stock = self.sessions.get(client).map(|s| &s.stock);
        self.replays.numbers.contains(&ino) || stock.is_some_and(|s| s.contains(ino))
    }

    /// The number under which a client knows what it made before we were started again.
    pub(crate) fn replayed_ino(&mut self, client: ClientId, ino: u64) -> Result<u64> {
        let free = self.may_be_made_again(client, ino) && ino > ROOT && self.inode_opt(ino)?.is_none();
        match free {
            true => Ok(ino),
            false => Err(Errno::EINVAL.into()),
        }
    }
}
