//! Changes that were answered and are not durable yet: bounded, said again to the next server, and waited for by who asks for safety.
//!
//! Vocabulary: a request is *unsafe* from the unsafe answer, which its caller is given at once where the mount wants that, up to the safe
//! one. A change is *lost* where its caller was answered and it came to nothing: the session ended, or the next server could not carry
//! it out again.
//!
//! Invariants: who asks for safety is answered when no change that was answered before is unsafe. A lost one is told to each handle of
//! the inodes that it was about; where nobody was told, to the first who asks.

use super::losses::{Early, Safety, Syncing};
use super::{Answer, Pending, Session, Shared, State, Use};
use client::Error;
use messages::fs::{MClientReply, MClientSession, session_op};
use messages::mon::Body;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// Changes that were answered and are not durable; more are answered when they are.
pub const UNSAFE_MAX: usize = 512;

/// A server that gathers changes is asked so often to make them durable: nobody else tells it of sync(2).
const HURRY_EVERY: Duration = Duration::from_millis(250);

/// What a change is about, as far as handles can be of it.
fn inos_of(p: &Pending) -> Vec<u64> {
    let made = p.early.as_ref().map_or(0, |e| e.ino);
    let all = [p.request.path.ino, p.request.path2.ino, made];
    all.into_iter().filter(|ino| *ino != 0).collect()
}

impl Session {
    /// The answer that comes before its change is durable.
    pub(super) fn hear_early(&mut self, tid: u64, reply: MClientReply) {
        let may = self.options.early && self.unsafes < UNSAFE_MAX;
        let Some(p) = self.pending.get_mut(&tid) else {
            return;
        };
        if p.early.is_some() {
            // Said once more, over a new connection.
            return;
        }
        self.earlies += 1;
        let early = Early {
            order: self.earlies,
            ino: reply.trace.target.as_ref().map_or(0, |t| t.ino),
            reply: None,
        };
        let caller = if may { p.reply.take() } else { None };
        match caller {
            Some(caller) => {
                p.early = Some(early);
                let opened = p.open.take();
                self.unsafes += 1;
                self.hand_out(caller, Ok(reply), opened);
            }
            None => {
                let reply = Some(reply);
                p.early = Some(Early { reply, ..early });
                self.hurry();
            }
        }
    }

    /// Somebody waits for what is not durable.
    fn hurry(&self) {
        if self.state == State::Open {
            self.send(MClientSession::short(session_op::REQUEST_FLUSH_MDLOG, 0).message(0));
        }
    }

    /// What was answered is not old before it is durable, though nobody asks; and what was asked for may be lost with a connection.
    pub(super) fn hurry_old(&mut self) {
        let now = self.now();
        if self.state != State::Open || now < self.hurry_at {
            return;
        }
        self.hurry_at = now + HURRY_EVERY;
        if self.pending.values().any(|p| p.early.is_some()) {
            self.hurry();
        }
    }

    /// Somebody hears what came of a request; or nobody any more, and what it opened is closed.
    pub(super) fn hand_out(
        &mut self,
        caller: oneshot::Sender<crate::Result<Answer>>,
        done: crate::Result<MClientReply>,
        opened: Option<(u64, Use, Shared)>,
    ) {
        let open = opened.as_ref().map(|(_, _, open)| open.clone());
        let is_ok = done.is_ok();
        let heard = caller.send(done.map(|reply| (reply, open)));
        if let (Some((ino, used, open)), false) = (opened, is_ok && heard.is_ok()) {
            open.send_modify(|o| o.leave(used));
            self.let_go(ino);
        }
    }

    /// A request whose caller was answered has come to its end.
    pub(super) fn unsafe_ended(&mut self, p: &Pending, done: crate::Result<MClientReply>) {
        self.unsafes = self.unsafes.saturating_sub(1);
        let why = match done {
            // A server that goes on has carried it out, whatever it finds when it is asked again over a new connection.
            Ok(reply) if reply.result >= 0 || !p.replayed => return,
            Ok(reply) => Error::refused(reply.result, "the next server"),
            Err(why) => why,
        };
        let request = &p.request;
        tracing::error!(
            "file system {}: a change that was answered is lost (operation {:#x} in {:#x}): {why}",
            self.fs,
            request.op,
            request.path.ino
        );
        let number = self.losses.add(inos_of(p));
        self.told.losses.store(number, Ordering::Release);
    }

    pub(super) fn sync(&mut self, ino: Option<u64>, since: u64, reply: oneshot::Sender<Safety>) {
        self.syncs.retain(|s| !s.reply.is_closed());
        self.syncs.push(Syncing {
            upto: self.last_tid,
            ino,
            since,
            reply,
        });
        if self.unsafes > 0 {
            self.hurry();
        }
        self.tell_safe();
    }

    /// Answers those who waited for what is durable now.
    pub(super) fn tell_safe(&mut self) {
        if self.syncs.is_empty() {
            return;
        }
        let oldest = self.pending.iter().find(|(_, p)| p.reply.is_none());
        let oldest = oldest.map_or(u64::MAX, |(tid, _)| *tid);
        let syncs = std::mem::take(&mut self.syncs).into_iter();
        let (done, waiting): (Vec<Syncing>, Vec<Syncing>) = syncs.partition(|s| s.upto < oldest);
        self.syncs = waiting;
        for s in done {
            let _ = s.reply.send(self.losses.tell(s.ino, s.since));
        }
    }
}
