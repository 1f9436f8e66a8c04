//! Requests: from a client's message to its answer.
//!
//! A request is carried out by one function for its operation, which asks for rows and capabilities first, and changes something only when
//! it has all of them. Where something is missing it is left, and begun again from its start when that is there.

mod attributes;
mod create;
mod layouts;
mod locks;
mod lookup;
mod names;
mod paths;
mod readdir;
mod rename;
mod snapshots;
mod truncate;
mod xattrs;

use super::delegated::is_async;
#[cfg(test)]
use super::parts::early::Broken;
use super::parts::early::may_be_unsafe;
pub(crate) use super::parts::request::done_before;
use super::{Answer, ClientId, Machine, Phase, Request, RequestId, Result, Stop, Tx};
use crate::access::Wish;
use crate::membership::{Assigned, MdsState};
use crate::row::{Inode, Key, NOSNAP, ROOT, Row, S_IFDIR, Sums};
use bytes::Bytes;
use messages::fs::{Layout, MClientReply, MClientRequest, op, request_flag};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::{Errno, Utime};

impl Machine {
    pub(crate) fn begin_request(&mut self, client: ClientId, tid: u64, m: MClientRequest) {
        self.last_request += 1;
        let id = self.last_request;
        // Those come before a client says what it holds.
        let is_replay = m.flags & (request_flag::REPLAY | request_flag::ASYNC) != 0
            && may_be_unsafe(&m)
            && self.reconnecting.is_some();
        #[cfg(test)]
        if is_replay && self.early.is(Broken::Deaf) {
            return;
        }
        if is_replay {
            self.replays.queue.entry(client).or_default().push_back(id);
        }
        if let Some(s) = self.sessions.get_mut(client) {
            s.requests.insert(tid, id);
        }
        let request = Request {
            id,
            client,
            tid,
            m: Arc::new(m),
            began: self.now.monotonic,
            frozen: BTreeSet::new(),
            names: BTreeSet::new(),
            phase: Phase::New,
            is_replay,
            heard_releases: false,
        };
        self.requests.insert(id, request);
        self.runnable.push_back(id);
    }

    /// Carries out what can be.
    pub(crate) fn run_requests(&mut self) {
        while let Some(id) = self.runnable.pop_front() {
            let Some(request) = self.requests.remove(&id) else {
                continue;
            };
            self.run(request);
        }
    }

    fn run(&mut self, r: Request) {
        let may = match self.state {
            MdsState::Active => true,
            MdsState::ClientReplay => self.replays.is_next(r.client, r.id),
            _ => false,
        };
        if !may {
            self.requests.insert(r.id, r);
            return;
        }
        if r.changes() && self.wb.is_full() || self.waits_for_traces(&r.m) {
            self.wb.waiting.push(r.id);
            self.requests.insert(r.id, r);
            return;
        }
        self.begin_run(r.client);
        self.serving = Some(r.client);
        self.carry_out_or_leave(r);
        self.serving = None;
    }

    fn carry_out_or_leave(&mut self, mut r: Request) {
        self.replays.running = r.is_replay;
        let outcome = self.carry_out(&mut r);
        self.replays.running = false;
        match outcome {
            Ok(answer) => self.finish(r, answer.result, answer),
            Err(Stop::Error(e)) => self.finish(r, e.code(), Answer::default()),
            Err(stop) => {
                let id = r.id;
                self.requests.insert(id, r);
                self.end_run();
                match stop {
                    Stop::Load(keys) => self.load(id, keys),
                    Stop::Page(read) => self.load_page(id, read),
                    Stop::Wait | Stop::Error(_) => {}
                }
            }
        }
    }

    fn carry_out(&mut self, r: &mut Request) -> Result<Answer> {
        if is_async(r) {
            self.check_async(r)?;
        }
        if r.phase == Phase::New {
            let m = r.m.clone();
            if !r.is_replay && !std::mem::replace(&mut r.heard_releases, true) {
                self.aside(|machine| machine.embedded_releases(r.client, &m.releases));
            }
            let made = self
                .sessions
                .get(r.client)
                .and_then(|s| s.done.get(&r.tid).copied());
            #[cfg(test)]
            let made = made.filter(|_| !self.early.is(Broken::Twice));
            if made.is_some() {
                // It may have been made just now.
                self.early.made = self.tx;
            }
            match (made, r.m.op) {
                (None, _) => {}
                (Some(made), _) if r.is_replay => return Ok(done_before(made)),
                (Some(made), op::CREATE | op::OPEN) => return self.open_again(r, made),
                (Some(_), op::MKSNAP) => return self.lookupsnap(r),
                (Some(made), _) => return Ok(done_before(made)),
            }
        }
        match r.m.op {
            op::LOOKUP => self.lookup(r),
            op::GETATTR => self.getattr(r),
            op::LOOKUPINO => self.lookup_ino(r),
            op::LOOKUPPARENT => self.lookup_parent(r),
            op::LOOKUPNAME => self.lookup_name(r),
            op::READDIR => self.readdir(r),
            op::OPEN => self.open_file(r),
            op::CREATE => self.create_file(r),
            op::MKNOD => self.mknod(r),
            op::MKDIR => self.mkdir(r),
            op::SYMLINK => self.symlink(r),
            op::LINK => self.link(r),
            op::UNLINK => self.unlink(r),
            op::RMDIR => self.rmdir(r),
            op::RENAME => self.rename(r),
            op::SETATTR => self.setattr(r),
            op::SETXATTR => self.setxattr(r),
            op::RMXATTR => self.rmxattr(r),
            op::SETLAYOUT | op::SETDIRLAYOUT => self.setlayout(r),
            op::GETVXATTR => self.getvxattr(r),
            op::SETFILELOCK => self.setfilelock(r),
            op::GETFILELOCK => self.getfilelock(r),
            op::LSSNAP => self.lssnap(r),
            op::LOOKUPSNAP => self.lookupsnap(r),
            op::MKSNAP => self.mksnap(r),
            op::RMSNAP => self.rmsnap(r),
            op::RENAMESNAP => self.renamesnap(r),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// Answers, and gives back what was kept from others.
    fn finish(&mut self, mut r: Request, result: i32, answer: Answer) {
        if r.is_replay {
            self.end_run();
            return self.finish_replay(r, result, answer.trace);
        }
        let snap = self.realms_told(&answer);
        let leave = self.leave(&r, result);
        let reply = MClientReply {
            op: r.m.op,
            result,
            map_epoch: self.place.epoch,
            safe: true,
            trace: answer.trace,
            extra: self.created(&r, answer.extra),
            snap,
        };
        let shown = [
            reply.trace.dentry.as_ref().map(|d| d.dir.ino),
            reply.trace.target.as_ref().map(|t| t.ino),
        ];
        self.answer(&r, reply, leave);
        if let Some(s) = self.sessions.get_mut(r.client) {
            s.requests.remove(&r.tid);
        }
        self.thaw(&mut r);
        // Who was alone with an inode may not be any more.
        shown.into_iter().flatten().for_each(|ino| self.settle(ino));
    }

    /// Its client is gone: nobody waits for the answer.
    pub(crate) fn abandon(&mut self, id: RequestId) {
        if let Some(mut r) = self.requests.remove(&id) {
            self.thaw(&mut r);
            if r.is_replay {
                self.replay_ended(r.client, id);
            }
        }
        self.forget_lock_waiter(id);
    }

    /// The transaction of a request: it is remembered as carried out, with the inode that it made.
    pub(crate) fn commit_request(&mut self, r: &Request, mut tx: Tx, made: u64) {
        let Some(s) = self.sessions.get_mut(r.client) else {
            return;
        };
        s.forget_done(r.client, r.m.oldest_tid, &mut tx);
        s.done.insert(r.tid, made);
        tx.put(
            Key::Done {
                client: r.client,
                tid: r.tid,
            },
            Row::Done(made),
        );
        let made = self.early.made;
        self.commit(tx);
        self.early.made = made;
        self.early.own = Some(self.tx);
        self.table.owners.give(self.tx, Some(r.client));
    }

    /// What the key of the client says to it.
    pub(crate) fn check_access(
        &mut self,
        r: &Request,
        inode: &Inode,
        name: Option<&Bytes>,
        wish: Wish,
    ) -> Result<()> {
        let path = match self.needs_path(r) {
            true => self.path_of(inode, name)?,
            false => String::new(),
        };
        self.check_path(r, &path, wish)
    }

    /// What is allowed differs by place.
    pub(crate) fn needs_path(&self, r: &Request) -> bool {
        self.sessions.get(r.client).is_none_or(|s| s.access.needs_path())
    }

    pub(crate) fn check_path(&self, r: &Request, path: &str, wish: Wish) -> Result<()> {
        let Some(s) = self.sessions.get(r.client) else {
            return Err(Errno::EACCES.into());
        };
        let (access, from) = (s.access.clone(), s.from);
        let who = (r.m.uid, r.m.gid);
        if access.allows(&self.place.name, path, who, wish, from) {
            return Ok(());
        }
        let basic = Wish {
            policy: false,
            snapshot: false,
            ..wish
        };
        let without = access.allows(&self.place.name, path, who, basic, from);
        Err(if without { Errno::EPERM } else { Errno::EACCES }.into())
    }

    /// What a client changed in its cache has to be allowed, too.
    pub(crate) fn may_flush(&self, client: ClientId, inode: &Inode, who: (u32, u32)) -> bool {
        let Some(s) = self.sessions.get(client) else {
            return false;
        };
        let path = match s.access.needs_path() {
            true => self.path_cached(inode),
            false => String::new(),
        };
        let wish = Wish {
            write: true,
            ..Wish::default()
        };
        s.access.allows(&self.place.name, &path, who, wish, s.from)
    }

    /// Nothing in a snapshot changes.
    pub(crate) fn is_live(snap: u64) -> Result<()> {
        match snap {
            NOSNAP => Ok(()),
            _ => Err(Errno::EROFS.into()),
        }
    }
}

pub(crate) const WRITE: Wish = Wish {
    write: true,
    policy: false,
    snapshot: false,
};
pub(crate) const READ: Wish = Wish {
    write: false,
    policy: false,
    snapshot: false,
};

/// The default layout: objects of 4 MiB.
pub(crate) fn default_layout(place: &Assigned) -> Layout {
    Layout {
        stripe_unit: 4 << 20,
        stripe_count: 1,
        object_size: 4 << 20,
        unused: [0; 3],
        pool: place.data_pools.first().copied().unwrap_or_default() as u32,
    }
}

pub(crate) fn root(place: &Assigned, now: Utime) -> Inode {
    Inode {
        ino: ROOT,
        first: 2,
        mode: S_IFDIR | 0o755,
        nlink: 1,
        ctime: now,
        mtime: now,
        btime: now,
        truncate_size: u64::MAX,
        layout: default_layout(place),
        pin: -1,
        sums: Sums {
            subdirs: 1,
            ..Sums::default()
        },
        ..Inode::default()
    }
}
