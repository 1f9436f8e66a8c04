//! A file gets another size: nobody reads or writes while its objects are cut.
//!
//! Order: what clients hold of the file's contents comes back, then the new size is durable together with the job that cuts, then objects are
//! cut, then the answer leaves and clients may go on. A reader at the objects would see what was cut, otherwise.

use super::attributes::touched;
use super::{Phase, Request};
use crate::machine::parts::caps::EVERY_F;
use crate::machine::{Machine, Result, Stop, Tx};
use crate::row::{Inode, Job, job};
use messages::fs::cap;
use types::Errno;

const WRITES: u32 = cap::FW | cap::FX | cap::FB;

impl Machine {
    /// `also`: what else is changed with it. Comes back when it is done.
    pub(crate) fn truncate(
        &mut self,
        r: &mut Request,
        ino: u64,
        size: u64,
        also: impl Fn(&mut Inode),
    ) -> Result<()> {
        match r.phase {
            Phase::Cut => return Ok(()),
            Phase::Cutting(_) => return Err(Stop::Wait),
            _ => {}
        }
        if r.is_replay {
            // None was answered as unsafe; and objects are not cut before the server serves.
            return Err(Errno::EINVAL.into());
        }
        self.withhold(r, ino, EVERY_F, None)?;
        if self.probing(ino) {
            // Where its end is has still to be found.
            return self.wait_at(r, ino);
        }
        let inode = self.inode(ino)?;
        let stamp = r.stamp();
        let mut tx = Tx::default();
        self.keep_inode(&mut tx, &inode)?;
        let mut changed = Inode::clone(&inode);
        changed.untold.bytes += size as i64 - inode.size as i64;
        changed.size = size;
        changed.mtime = changed.mtime.max(stamp);
        also(&mut changed);
        touched(&mut changed, stamp);
        let cuts = size < inode.size || size == 0 && inode.max_size > 0;
        let mut cutting = None;
        if cuts {
            changed.truncate_seq += 1;
            changed.truncate_size = size;
            let cut = self.cut(&inode, size, changed.truncate_seq);
            cutting = Some(self.new_job(&mut tx, cut));
        }
        tx.inode(changed);
        self.commit_request(r, tx, 0);
        // Durable before it is answered, also where nothing is cut: it is not carried out by a replay.
        self.early.made = self.tx;
        self.send_truncated(ino);
        self.tell_quota(ino);
        let Some(id) = cutting else { return Ok(()) };
        r.phase = Phase::Cutting(id);
        self.jobs.insert(id, r.id);
        self.start_jobs();
        Err(Stop::Wait)
    }

    /// Room stays until the objects are cut, by which a probe would find its end.
    fn cut(&mut self, inode: &Inode, size: u64, truncate_seq: u32) -> Job {
        let (snap_seq, snaps) = self.snap_context(inode);
        Job {
            kind: job::CUT,
            ino: inode.ino,
            layout: inode.layout,
            pool_ns: inode.pool_ns.clone(),
            from: inode.size.max(inode.max_size),
            to: size,
            truncate_seq,
            snap_seq,
            snaps,
            ..Job::default()
        }
    }

    /// There is nothing behind its end: the next truncation shall not look for it. Nobody writes yet, and who is given less room than it
    /// had asks again (it was always given more than it had asked for).
    pub(crate) fn was_cut(&mut self, tx: &mut Tx, cut: &Job) {
        let Some(inode) = self.cached(cut.ino).filter(|i| i.nlink > 0) else {
            return;
        };
        let room = Self::first_room(&inode);
        let writes = self.caps.get(&cut.ino).map_or(0, |ic| ic.issued()) & WRITES != 0;
        if writes || inode.truncate_seq != cut.truncate_seq || inode.max_size <= room {
            return;
        }
        let mut changed = Inode::clone(&inode);
        changed.max_size = room;
        tx.inode(changed);
    }

    /// Nothing at this inode goes on before it is woken.
    pub(crate) fn wait_at(&mut self, r: &Request, ino: u64) -> Result<()> {
        self.caps.entry(ino).or_default().wait(r.id);
        Err(Stop::Wait)
    }
}
