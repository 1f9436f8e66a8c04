//! Rows on their way to where they belong, and the journal's end behind them; work on objects.
//!
//! Rows are taken the oldest first, as they are; what they are written as is durable in the journal before ([`Machine::push`]). A segment
//! goes when no row that it holds is dirty.
//!
//! A directory's fragment becomes two between two flushes: names are copied while none is written, then the directory says so by a
//! transaction, and the old object goes when no read of it is under way any more. Until that transaction the old object is what holds.

use super::parts::writes::{FLUSH_ROWS, JOBS_MAX, Write};
use super::{Effect, Machine, RequestId, Tx};
use crate::journal::SEGMENTS_KEPT;
use crate::place;
use crate::row::{Job, Key, Row, job};
use std::collections::BTreeMap;

impl Machine {
    /// Begins to write rows back where there is reason to.
    pub(crate) fn write_back(&mut self) {
        self.trim();
        if self.wb.flushing.is_some() || self.wb.splitting.is_some() {
            return;
        }
        if !self.wb.has_split && self.split_next() {
            return;
        }
        let enough = self.wb.segments.len() > SEGMENTS_KEPT || self.wb.drain;
        if !enough || self.table.dirty_len() == 0 {
            return;
        }
        let rows = self.table.dirty(FLUSH_ROWS);
        let mut writes: BTreeMap<String, Write> = BTreeMap::new();
        let mut taken = Vec::new();
        for (key, row, tx) in rows {
            let dir = match &key {
                Key::Dentry { dir, .. } => match self.inode_opt(*dir) {
                    Ok(Some(inode)) => Some(inode),
                    // Gone with all its objects.
                    Ok(None) => {
                        taken.push((key, tx));
                        continue;
                    }
                    // Its place is not known before its directory is.
                    Err(_) => {
                        self.prefetch(vec![Key::inode(*dir)]);
                        continue;
                    }
                },
                _ => None,
            };
            let (object, stored) = place::of(&key, dir.as_deref());
            let write = writes.entry(object.clone()).or_insert_with(|| Write {
                object,
                ..Write::default()
            });
            match row {
                Some(row) => drop(write.set.insert(stored, row.to_bytes())),
                None => drop(write.remove.insert(stored)),
            }
            taken.push((key, tx));
        }
        if taken.is_empty() {
            return;
        }
        self.wb.has_split = false;
        self.wb.last_flush += 1;
        let id = self.wb.last_flush;
        self.wb.flushing = Some((id, taken));
        let writes = writes.into_values().collect();
        self.push(Effect::Flush { id, writes });
    }

    /// Begins to make two of a fragment that is too large.
    fn split_next(&mut self) -> bool {
        while let Some(ino) = self.wb.crowded.pop_first() {
            let found = self.cached(ino).filter(|d| d.nlink > 0);
            let Some(fragment) = found.as_deref().and_then(place::to_split) else {
                continue;
            };
            self.wb.splitting = Some(ino);
            self.push(Effect::Split { dir: ino, fragment });
            return true;
        }
        false
    }

    pub(crate) fn has_split(&mut self, ino: u64) {
        if self.wb.splitting.take() != Some(ino) {
            return;
        }
        self.wb.has_split = true;
        let found = self.cached(ino).filter(|d| d.nlink > 0);
        if let Some(dir) = found {
            let mut tx = Tx::default();
            let drop = Job {
                kind: job::DROP,
                ino,
                bits: dir.bits,
                split: dir.split,
                ..Job::default()
            };
            let mut changed = crate::row::Inode::clone(&dir);
            place::after_split(&mut changed);
            tx.inode(changed);
            let id = self.new_job(&mut tx, drop);
            self.wb.readers.insert(id, self.loads.last());
            self.commit(tx);
        }
        self.start_jobs();
        self.write_back();
    }

    pub(crate) fn flushed(&mut self, id: u64) {
        let Some((_, taken)) = self.wb.flushing.take_if(|(f, _)| *f == id) else {
            return;
        };
        for (key, tx) in taken {
            self.table.written(&key, tx);
        }
        self.write_back();
        self.start_jobs();
        if !self.wb.is_full() {
            // Changes may have waited for this.
            let all: Vec<RequestId> = std::mem::take(&mut self.wb.waiting);
            self.runnable.extend(all);
        }
    }

    /// Lets go of segments that hold nothing that is not written back.
    fn trim(&mut self) {
        if self.wb.trimming || self.wb.segments.len() <= 1 {
            return;
        }
        let oldest = self.table.oldest_dirty().unwrap_or(self.tx + 1);
        // A segment ends where the next one begins; the last one stays.
        let ends: Vec<u64> = self.wb.segments.iter().skip(1).map(|s| s.2).collect();
        let n = ends.iter().take_while(|first| **first <= oldest).count();
        if n == 0 {
            return;
        }
        let gone: Vec<u64> = self.wb.segments.drain(..n).map(|s| s.0).collect();
        let first = self.wb.segments.first().map_or(self.wb.next_segment, |s| s.0);
        self.wb.trimming = true;
        let next_tx = self.tx + 1;
        self.push(Effect::Trim { first, next_tx, gone });
    }

    // Jobs

    pub(crate) fn start_jobs(&mut self) {
        if self.state != crate::membership::MdsState::Active {
            return;
        }
        let mut later = std::collections::VecDeque::new();
        while self.jobs_running.len() < JOBS_MAX {
            let Some(id) = self.jobs_waiting.pop_front() else {
                break;
            };
            let Some(Row::Job(job)) = self.table.peek(&Key::Job(id)) else {
                continue;
            };
            let job = job.clone();
            let writing = self.wb.flushing.is_some() || self.wb.splitting.is_some();
            let read = self
                .wb
                .readers
                .get(&id)
                .is_some_and(|r| !self.loads.have_ended(*r));
            let cutting = job.kind == job::PROBE && self.is_cutting(job.ino);
            // Rows on their way would bring its objects back; and who reads shall find what he looks for. What is being cut is not there.
            if job.kind == job::PURGE_DIR && writing || read || cutting {
                later.push_back(id);
                continue;
            }
            if job.kind == job::TRIM {
                if self.begin_trim(id, job.from) {
                    self.jobs_running.insert(id);
                } else {
                    later.push_back(id);
                }
                continue;
            }
            self.wb.readers.remove(&id);
            self.jobs_running.insert(id);
            self.push(Effect::Job { id, job });
        }
        later.append(&mut self.jobs_waiting);
        self.jobs_waiting = later;
    }

    fn is_cutting(&self, ino: u64) -> bool {
        let is = |id: &u64| matches!(self.table.peek(&Key::Job(*id)), Some(Row::Job(j)) if j.kind == job::CUT && j.ino == ino);
        self.jobs_running.iter().any(is)
    }

    pub(crate) fn job_done(&mut self, id: u64, size: Option<u64>) {
        if !self.jobs_running.remove(&id) {
            return;
        }
        let kind = match self.table.peek(&Key::Job(id)) {
            Some(Row::Job(j)) => Some(j.clone()),
            _ => None,
        };
        self.trim.take_if(|t| t.job == id);
        let mut tx = Tx::default();
        tx.remove(Key::Job(id));
        if let (Some(job), Some(size)) = (&kind, size)
            && job.kind == job::PROBE
        {
            self.probed(&mut tx, job.ino, size);
        }
        if let Some(job) = kind.as_ref().filter(|j| j.kind == job::CUT) {
            self.was_cut(&mut tx, job);
        }
        self.commit(tx);
        if let Some(request) = self.jobs.remove(&id) {
            if let Some(r) = self.requests.get_mut(&request) {
                r.job_done(id);
            }
            self.runnable.push_back(request);
        }
        if let Some(job) = kind {
            self.wake(job.ino);
        }
        self.start_jobs();
    }
}
