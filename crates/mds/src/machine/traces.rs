//! Backtraces, written some seconds after a file or a directory got its name.
//!
//! That one is due is a row of its own, made with the change and removed when the object has it; so none is forgotten at a restart.
//! An inode does not go while its backtrace is being written: the object would come back.

use super::parts::traces::Trace;
use super::{Effect, Machine, RequestId, Result, Stop, Tx};
use crate::backtrace::{self, Step};
use crate::membership::MdsState;
use crate::place;
use crate::row::{Inode, Key, Row};
use messages::fs::{MClientRequest, op};
use types::PoolId;

/// Looked at in one go.
const ROUND_MAX: usize = 256;

impl Machine {
    /// It has a name that its object does not say yet.
    pub(crate) fn mark_trace(&mut self, tx: &mut Tx, inode: &Inode) {
        if inode.is_dir() || inode.is_file() {
            self.traces.mark(inode.ino, self.now.monotonic);
            tx.put(Key::Trace(inode.ino), Row::Mark);
        }
    }

    /// `is_first`: its first name is a new one.
    pub(crate) fn put_named(&mut self, tx: &mut Tx, inode: Inode, is_first: bool) {
        if is_first {
            self.mark_trace(tx, &inode);
        }
        tx.inode(inode);
    }

    /// It may make one due, while too many are. What gives room back does not wait.
    pub(crate) fn waits_for_traces(&self, m: &MClientRequest) -> bool {
        let makes = match m.op {
            op::CREATE | op::MKNOD | op::MKDIR | op::RENAME | op::SETLAYOUT | op::SETDIRLAYOUT => true,
            op::SETXATTR => m.path2.path.starts_with(b"ceph."),
            _ => false,
        };
        makes && self.state == MdsState::Active && self.traces.is_full()
    }

    /// Takes note of those that are done, and begins with others.
    pub(crate) fn look_after_traces(&mut self) {
        let mut tx = Tx::default();
        for ino in self.traces.take_written() {
            tx.remove(Key::Trace(ino));
        }
        self.commit(tx);
        self.traces.look(self.now.monotonic);
        self.begin_traces();
        if !self.traces.is_full() && !self.wb.is_full() {
            let all: Vec<RequestId> = std::mem::take(&mut self.wb.waiting);
            self.runnable.extend(all);
        }
    }

    /// Those whose time has come.
    fn begin_traces(&mut self) {
        if self.state != MdsState::Active {
            return;
        }
        for _ in 0..ROUND_MAX {
            let Some(ino) = self.traces.next(self.now.monotonic) else {
                break;
            };
            match self.trace_of(ino) {
                Ok(Some(trace)) => {
                    self.traces.begin(ino, self.now.monotonic);
                    self.push(Effect::Trace(Box::new(trace)));
                }
                Err(Stop::Load(missing)) => {
                    self.prefetch(missing);
                    self.traces.later(ino, self.now.monotonic);
                }
                Ok(None) | Err(_) => self.traces.drop(ino),
            }
        }
    }

    pub(crate) fn traced(&mut self, ino: u64) {
        self.traces.end(ino, self.now.monotonic);
        // Who waited for it goes on; and it may have lost its last name meanwhile.
        self.wake(ino);
        self.begin_traces();
    }

    /// None: it has no name any more.
    fn trace_of(&mut self, ino: u64) -> Result<Option<Trace>> {
        let Some(inode) = self.inode_opt(ino)?.filter(|i| i.nlink > 0) else {
            return Ok(None);
        };
        let mut steps = Vec::new();
        let above = self.ancestors(&inode)?;
        for named in std::iter::once(&inode).chain(&above) {
            if let Some((dir, name)) = named.links.first() {
                steps.push(Step {
                    dir: *dir,
                    name: name.clone(),
                    version: named.version,
                });
            }
        }
        let layout = inode.layout.is_set().then_some(&inode.layout);
        let pool = match inode.is_dir() {
            true => self.place.metadata_pool,
            false => PoolId::from(inode.layout.pool),
        };
        let (snap_seq, snaps) = match inode.is_dir() {
            true => (0, Vec::new()),
            false => self.snap_context(&inode),
        };
        Ok(Some(Trace {
            ino,
            pool,
            namespace: if inode.is_dir() {
                String::new()
            } else {
                inode.pool_ns.clone()
            },
            object: place::data_object(ino, 0),
            parent: backtrace::parent(ino, &steps, pool),
            layout: backtrace::layout(layout, &inode.pool_ns),
            snap_seq,
            snaps,
        }))
    }
}
