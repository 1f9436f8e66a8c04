//! The pools: what was done there stays, whoever dies. What a server began to do takes its time, piece by piece; of what is under
//! way when it is fenced each piece is done, or is not.

use crate::journal::Head;
use crate::machine::tests::world::Pool;
use crate::machine::{Effect, Event};
use crate::place::Fragment;
use crate::row::{Job, job};
use bytes::Bytes;
use denc::Encode;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Default)]
pub struct Store {
    pub pool: Pool,
    /// How long files are, by their objects.
    pub data: BTreeMap<u64, u64>,
    /// Clients whose writes are taken no more.
    pub fenced: BTreeSet<u64>,
    pub purged: BTreeSet<u64>,
}

type Piece = Box<dyn FnOnce(&mut Store)>;
type Answer = Box<dyn FnOnce(&Store) -> Event>;

/// What a server wants done.
pub struct Work {
    pub life: u64,
    /// Its pieces are under way together; else one after the other.
    at_once: bool,
    pieces: VecDeque<Piece>,
    answer: Answer,
}

/// What became of a piece.
pub enum Progress {
    More(Work),
    Done(Event),
}

impl Work {
    fn new(life: u64, answer: impl FnOnce(&Store) -> Event + 'static) -> Self {
        Self {
            life,
            at_once: false,
            pieces: VecDeque::new(),
            answer: Box::new(answer),
        }
    }

    fn then(mut self, piece: impl FnOnce(&mut Store) + 'static) -> Self {
        self.pieces.push_back(Box::new(piece));
        self
    }

    /// None: it is nothing for the pools.
    pub fn of(life: u64, effect: Effect) -> Option<Self> {
        Some(match effect {
            Effect::Load { id, reads } => Self::new(life, move |s| {
                let row = |r: &crate::machine::Read| s.pool.rows.get(&r.object)?.get(&r.key).cloned();
                let rows = reads.iter().map(row).collect();
                Event::Loaded { id, rows }
            }),
            Effect::Page { id, read } => Self::new(life, move |s| page(s, id, &read)),
            Effect::Olds { snap, .. } => Self::new(life, move |_| Event::Olds {
                snap,
                keys: Vec::new(),
                end: true,
            }),
            Effect::DropSnap { id, .. } => Self::new(life, move |_| Event::JobDone { id, size: None }),
            Effect::Append {
                segment,
                bytes,
                last_tx,
                ..
            } => Self::new(life, move |_| Event::Appended { last_tx })
                .then(move |s| s.pool.segments.entry(segment).or_default().extend(&bytes)),
            Effect::Flush { id, writes } => flush(life, id, writes),
            Effect::Split { dir, fragment } => {
                Self::new(life, move |_| Event::Split { dir }).then(move |s| s.pool.split(dir, fragment))
            }
            Effect::Trim { first, next_tx, gone } => trim(life, first, next_tx, gone),
            Effect::Job { id, job } => carry_out(life, id, Job::clone(&job)),
            Effect::Trace(t) => {
                let ino = t.ino;
                Self::new(life, move |_| Event::Traced { ino }).then(move |s| {
                    s.pool.traces.insert(ino, *t);
                })
            }
            Effect::Fence { client, .. } => Self::new(life, move |_| Event::Fenced { client, epoch: 9 })
                .then(move |s| {
                    s.fenced.insert(client);
                }),
            Effect::Send { .. } | Effect::Close { .. } => return None,
            Effect::Report(_) | Effect::Nudge { .. } => return None,
        })
    }

    /// One piece more. `which` draws one, where they are under way together.
    pub fn go_on(mut self, store: &mut Store, which: impl FnOnce(usize) -> usize) -> Progress {
        let next = match self.at_once && !self.pieces.is_empty() {
            true => which(self.pieces.len()),
            false => 0,
        };
        match self.pieces.remove(next) {
            Some(piece) => {
                piece(store);
                Progress::More(self)
            }
            None => Progress::Done((self.answer)(store)),
        }
    }

    /// Its server writes no more.
    pub fn end(self, store: &mut Store, mut is_done: impl FnMut() -> bool) {
        let under_way = if self.at_once { usize::MAX } else { 1 };
        for piece in self.pieces.into_iter().take(under_way) {
            if is_done() {
                piece(store);
            }
        }
    }
}

fn page(s: &Store, id: u64, read: &crate::machine::PageRead) -> Event {
    let all = s.pool.rows.get(&read.object).into_iter().flatten();
    let behind: Vec<(Bytes, Bytes)> = all
        .filter(|(k, _)| **k > read.key)
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let end = behind.len() as u64 <= read.max;
    let rows = behind.into_iter().take(read.max as usize).collect();
    Event::Paged { id, rows, end }
}

fn flush(life: u64, id: u64, writes: Vec<crate::machine::Write>) -> Work {
    let mut work = Work::new(life, move |_| Event::Flushed { id });
    work.at_once = true;
    for w in writes {
        work = work.then(move |s| s.pool.write(w));
    }
    work
}

fn trim(life: u64, first_segment: u64, next_tx: u64, gone: Vec<u64>) -> Work {
    let head = Head {
        first_segment,
        next_tx,
    };
    let mut work = Work::new(life, |_| Event::Trimmed).then(move |s| s.pool.head = Some(head.to_bytes()));
    for n in gone {
        work = work.then(move |s| drop(s.pool.segments.remove(&n)));
    }
    work
}

fn carry_out(life: u64, id: u64, job: Job) -> Work {
    let (kind, ino) = (job.kind, job.ino);
    let work = Work::new(life, move |s| {
        let found = s.data.get(&ino).copied().unwrap_or_default();
        let size = (kind == job::PROBE).then_some(found);
        Event::JobDone { id, size }
    });
    match kind {
        job::PURGE => work.then(move |s| {
            s.data.remove(&ino);
            s.purged.insert(ino);
        }),
        job::PURGE_DIR => work.then(move |s| {
            let names = format!("skep.dir.{ino:x}.");
            s.pool.rows.retain(|object, _| !object.starts_with(&names));
            s.purged.insert(ino);
        }),
        job::CUT => work.then(move |s| {
            s.data.entry(ino).and_modify(|n| *n = (*n).min(job.to));
        }),
        job::DROP => work.then(move |s| {
            let gone = Fragment {
                bits: job.bits,
                value: job.split,
            };
            s.pool.rows.remove(&gone.object(ino));
        }),
        _ => work,
    }
}
