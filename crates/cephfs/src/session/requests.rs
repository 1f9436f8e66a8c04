//! Requests from beginning to end: numbered, sent, sent again, answered or given up.

use super::{Answer, Pending, Session, State, Use, ranges};
use client::Error;
use messages::fs::{MClientReply, MClientRequest, lock, op, request_flag};
use messages::mon::Body;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests about locks that go on without a time limit.
const LATE_MAX: usize = 8192;

/// The first whose answer may have to be repeated: what is older the server forgets. Of locks it keeps no answers, and who waits for one
/// may wait for hours.
fn oldest(pending: &BTreeMap<u64, Pending>, tid: u64) -> u64 {
    let kept = pending.iter().find(|(_, p)| p.request.op != op::SETFILELOCK);
    kept.map_or(tid, |(tid, _)| *tid)
}

/// Whether it is of use without its caller.
fn goes_on(p: &Pending) -> bool {
    let gives_back = || ranges::lock_of(&p.request.args).kind == lock::UNLOCK;
    ranges::is_lock(&p.request) && (p.sent || gives_back())
}

impl Session {
    pub(super) fn begin(
        &mut self,
        mut request: Box<MClientRequest>,
        hold: Option<Use>,
        reply: oneshot::Sender<crate::Result<Answer>>,
    ) {
        if let Some(why) = &self.refused {
            let _ = reply.send(Err(why.clone()));
            return;
        }
        if self.state == State::Closing {
            let _ = reply.send(Err(Error::Closed));
            return;
        }
        if self.refuses_lock(&request) {
            let why = Error::invalid(ranges::ENOLCK, "too many locks of one file");
            let _ = reply.send(Err(why));
            return;
        }
        self.last_tid += 1;
        request.stamp = self.wall();
        let until = match ranges::is_patient(&request) {
            true => Duration::MAX,
            false => self.now() + self.options.timeout,
        };
        let pending = Pending {
            request,
            hold,
            open: None,
            reply: Some(reply),
            sent: false,
            early: None,
            replayed: false,
            until,
        };
        self.pending.insert(self.last_tid, pending);
        if self.state == State::Open {
            self.send_request(self.last_tid, false);
        }
    }

    pub(super) fn send_request(&mut self, tid: u64, replay: bool) {
        let oldest = oldest(&self.pending, tid);
        let epoch = self.standing.as_ref().map_or(0, |s| s.epoch);
        let Some(p) = self.pending.get_mut(&tid) else {
            return;
        };
        let m = &mut p.request;
        m.oldest_tid = oldest;
        m.map_epoch = epoch;
        if p.sent {
            m.retries = m.retries.saturating_add(1);
        }
        if let (true, Some(early)) = (replay, &p.early) {
            m.flags |= request_flag::REPLAY;
            m.ino = early.ino;
            p.replayed = true;
        }
        p.sent = true;
        let message = p.request.message(tid);
        self.send(message);
    }

    /// A request has come to its end.
    pub(super) fn finish(&mut self, tid: u64, done: crate::Result<MClientReply>) {
        let Some(mut p) = self.pending.remove(&tid) else {
            return;
        };
        match p.reply.take() {
            Some(caller) => self.hand_out(caller, done, p.open.take()),
            None => self.unsafe_ended(&p, done),
        }
        self.tell_safe();
    }

    /// Callers that have waited long enough are told so.
    pub(super) fn end_late(&mut self) {
        let now = self.now();
        let late = |p: &Pending| p.reply.is_some() && p.until <= now;
        let late = self.pending.iter().filter(|(_, p)| late(p));
        let tids: Vec<u64> = late.map(|(tid, _)| *tid).collect();
        for tid in tids {
            self.give_up(tid);
        }
    }

    /// Nobody waits for it any more. What became of a lock that the server was asked for is heard all the same, and one that is given back
    /// is given back when the server is there: who had it may be dead.
    fn give_up(&mut self, tid: u64) {
        let left = self.pending.values().filter(|p| p.until == Duration::MAX).count();
        let Some(p) = self
            .pending
            .get_mut(&tid)
            .filter(|p| goes_on(p) && left < LATE_MAX)
        else {
            return self.finish(tid, Err(Error::TimedOut));
        };
        p.until = Duration::MAX;
        if let Some(caller) = p.reply.replace(oneshot::channel().0) {
            let _ = caller.send(Err(Error::TimedOut));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(operation: u32) -> Pending {
        Pending {
            request: Box::new(MClientRequest {
                op: operation,
                ..MClientRequest::default()
            }),
            hold: None,
            open: None,
            reply: None,
            sent: true,
            early: None,
            replayed: false,
            until: Duration::MAX,
        }
    }

    #[test]
    fn locks_go_on_without_their_callers() {
        let asked = |kind, sent| {
            let l = messages::fs::FileLock {
                kind,
                ..messages::fs::FileLock::default()
            };
            Pending {
                request: Box::new(ranges::request_of(op::SETFILELOCK, lock::FCNTL, 1, &l, false)),
                sent,
                ..pending(op::SETFILELOCK)
            }
        };
        assert!(goes_on(&asked(lock::UNLOCK, false)) && goes_on(&asked(lock::EXCL, true)));
        assert!(!goes_on(&asked(lock::EXCL, false)) && !goes_on(&pending(op::CREATE)));
    }

    #[test]
    fn who_waits_for_a_lock_keeps_no_answers_at_the_server() {
        let mut all = BTreeMap::from([(3, pending(op::SETFILELOCK))]);
        for tid in 4..1000 {
            all.insert(tid, pending(op::CREATE));
            assert_eq!(oldest(&all, tid), tid);
            all.remove(&tid);
        }
        all.insert(1000, pending(op::MKDIR));
        all.insert(1001, pending(op::CREATE));
        assert_eq!(oldest(&all, 1001), 1000);
        assert_eq!(oldest(&BTreeMap::new(), 7), 7);
    }
}
