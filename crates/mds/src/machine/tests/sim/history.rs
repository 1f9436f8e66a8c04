//! What clients did and were told, and whether a file system that does one thing after the other could have told them that.
//!
//! Vocabulary: an operation is *settled* when no death can undo it: it was answered as durable. What a client did on its own,
//! under its capabilities, is *loose*. Of a client that is gone what is not settled was done, or was not: its *tail*. A change of
//! names that was not done is followed by none that was, since the journal has an order; what is loose travels another way, and
//! may be seen later. What the client looked at behind any of it says nothing to anybody.
//!
//! The search is Wing and Gong's with Lowe's memory: since a client does one thing at a time, a state is how far each client is,
//! and the file system. Bounds: [`STATES_MAX`].

use super::model::{Model, Said, What};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// A history that needs more states is not decided, and is an error.
const STATES_MAX: usize = 20_000;
/// How that error begins.
pub const NOT_DECIDED: &str = "the history was not decided";
/// Above the numbers of clients: of what is in no order with the rest of a client's.
const ALONE: u64 = 1 << 40;

#[derive(Debug, Clone)]
pub struct Op {
    pub client: u64,
    pub what: What,
    pub from: u64,
    /// When it was answered.
    pub to: u64,
    pub said: Option<Said>,
    pub settled: bool,
    pub loose: bool,
    /// Of a client that is gone.
    tail: bool,
}

#[derive(Debug, Default)]
pub struct History {
    pub ops: Vec<Op>,
    clock: u64,
}

impl History {
    pub fn begin(&mut self, client: u64, what: What, loose: bool) -> usize {
        self.clock += 1;
        self.ops.push(Op {
            client,
            what,
            from: self.clock,
            to: u64::MAX,
            said: None,
            settled: false,
            loose,
            tail: false,
        });
        self.ops.len() - 1
    }

    pub fn said(&mut self, op: usize, said: Said) {
        self.clock += 1;
        self.ops[op].said = Some(said);
        self.ops[op].to = self.clock;
    }

    pub fn settled(&mut self, op: usize) {
        self.ops[op].settled = true;
    }

    /// Nothing more comes of this client.
    pub fn gone(&mut self, client: u64) {
        let (mut is_open, mut is_lost) = (false, false);
        let mut alone = BTreeMap::new();
        for (n, op) in self
            .ops
            .iter_mut()
            .enumerate()
            .filter(|(_, o)| o.client == client)
        {
            let looks = reads(&op.what);
            is_open |= !op.settled;
            is_lost |= !op.settled && !op.loose && !looks;
            let in_tail = match (looks, op.loose) {
                (true, _) => is_open,
                (false, true) => !op.settled,
                (false, false) => is_lost,
            };
            if in_tail {
                op.tail = true;
                op.to = u64::MAX;
            }
            if in_tail && let (true, Some(ino)) = (op.loose, changed(&op.what)) {
                // In order with what it did to the same file, and with nothing else.
                op.client = *alone.entry(ino).or_insert(ALONE | n as u64);
            }
        }
        self.unlock(client);
    }

    /// It lost its locks, at some time.
    fn unlock(&mut self, client: u64) {
        let mut locked = BTreeMap::new();
        for op in self.ops.iter().filter(|o| o.client == client) {
            if let (What::Lock { ino, .. }, Some(Said::Done)) = (&op.what, &op.said) {
                locked.insert(*ino, op.from);
            }
        }
        for (ino, from) in locked {
            let n = self.ops.len();
            self.ops.push(Op {
                client: ALONE | n as u64,
                what: What::Unlock { ino, by: client },
                from,
                to: u64::MAX,
                said: Some(Said::Done),
                settled: true,
                loose: true,
                tail: true,
            });
        }
    }

    /// The clients that have something to say, and what, in order.
    fn by_client(&self) -> Vec<Vec<usize>> {
        let ids: BTreeSet<u64> = self.ops.iter().map(|o| o.client).collect();
        let of = |id: u64| -> Vec<usize> {
            let all = 0..self.ops.len();
            all.filter(|n| self.ops[*n].client == id).collect()
        };
        ids.into_iter().map(of).collect()
    }

    pub fn check(&self) -> Result<(), String> {
        let clients = self.by_client();
        let least = clients.iter().map(|ops| self.least(ops)).collect();
        let search = Search { clients, least };
        let (mut seen, mut stack) = (BTreeSet::new(), Vec::new());
        let mut next = Some(State {
            at: vec![0; search.clients.len()],
            lost: 0,
            model: Model::default(),
        });
        let mut furthest = (0, Vec::new());
        loop {
            if let Some(state) = next {
                let done: usize = state.at.iter().sum();
                if done > furthest.0 || furthest.1.is_empty() {
                    furthest = (done, state.at.clone());
                }
                if self.is_end(&search.clients, &state) {
                    return Ok(());
                }
                if seen.insert(state.digest()) {
                    self.ways_on(&search, state, &mut stack);
                }
                if seen.len() > STATES_MAX {
                    let text = self.explain(&search.clients, &furthest.1);
                    return Err(format!("{NOT_DECIDED}; {text}"));
                }
            }
            let Some(way) = stack.pop() else {
                return Err(self.explain(&search.clients, &furthest.1));
            };
            next = self.go(&search, &way);
        }
    }

    /// When the first of the operations from each one on was answered.
    fn least(&self, ops: &[usize]) -> Vec<u64> {
        let mut least = vec![u64::MAX; ops.len() + 1];
        for (i, n) in ops.iter().enumerate().rev() {
            least[i] = least[i + 1].min(self.ops[*n].to);
        }
        least
    }

    fn is_end(&self, clients: &[Vec<usize>], state: &State) -> bool {
        let left = clients.iter().zip(&state.at).map(|(ops, at)| &ops[*at..]);
        left.flatten().all(|n| self.ops[*n].tail)
    }

    /// The likely one last: it is tried first.
    fn ways_on(&self, search: &Search, state: State, stack: &mut Vec<Way>) {
        let ends = search.least.iter().zip(&state.at).map(|(least, at)| least[*at]);
        let first = ends.min().unwrap_or(u64::MAX);
        let heads = search.clients.iter().zip(&state.at).enumerate();
        let mut may: Vec<(usize, usize)> = heads
            .filter_map(|(c, (ops, at))| ops.get(*at).map(|n| (c, *n)))
            .filter(|(_, n)| self.ops[*n].from < first)
            .collect();
        may.sort_by_key(|(_, n)| std::cmp::Reverse(self.ops[*n].to));
        let from = Rc::new(state);
        for (client, n) in may {
            let op = &self.ops[n];
            let way = |skips: bool| Way {
                from: Rc::clone(&from),
                client,
                skips,
            };
            if op.tail && from.at[client] + 1 < search.clients[client].len() {
                stack.push(way(true));
            }
            let is_free = op.loose || reads(&op.what);
            if is_free || from.lost & bit(client) == 0 {
                stack.push(way(false));
            }
        }
    }

    /// None: that could not have been said.
    fn go(&self, search: &Search, way: &Way) -> Option<State> {
        let (from, c) = (&way.from, way.client);
        let n = search.clients[c][from.at[c]];
        let op = &self.ops[n];
        let (model, lost) = match way.skips {
            true if op.loose || reads(&op.what) => (from.model.clone(), from.lost),
            true => (from.model.clone(), from.lost | bit(c)),
            false => (from.model.after(n, &op.what, op.said.as_ref())?, from.lost),
        };
        let mut at = from.at.clone();
        at[c] += 1;
        Some(State { at, lost, model })
    }

    /// Where nothing more fitted, and what was to come there.
    fn explain(&self, clients: &[Vec<usize>], at: &[usize]) -> String {
        let mut text = String::from("no order of what was done tells what was told; where it ends:");
        for (ops, at) in clients.iter().zip(at) {
            let from = at.saturating_sub(3);
            for (i, n) in ops.iter().enumerate().skip(from).take(5) {
                let mark = if i == *at { ">" } else { " " };
                text.push_str(&format!("\n{mark} {n}: {:?}", self.ops[*n]));
            }
        }
        text
    }
}

struct Search {
    clients: Vec<Vec<usize>>,
    /// Of each client, [`History::least`].
    least: Vec<Vec<u64>>,
}

/// One operation more of a client, done or not; looked at when it is taken.
struct Way {
    from: Rc<State>,
    client: usize,
    skips: bool,
}

#[derive(Hash)]
struct State {
    at: Vec<usize>,
    /// Clients of which a change of names was not done.
    lost: u64,
    model: Model,
}

impl State {
    /// Kept in its place.
    fn digest(&self) -> (u64, u64) {
        let half = |salt: u64| {
            let mut h = DefaultHasher::new();
            (salt, self).hash(&mut h);
            h.finish()
        };
        (half(1), half(2))
    }
}

fn bit(client: usize) -> u64 {
    1u64.checked_shl(client as u32).unwrap_or_default()
}

/// The file that a client may change on its own.
fn changed(what: &What) -> Option<u64> {
    match what {
        What::Write { ino, .. } | What::Mode { ino, .. } => Some(*ino),
        _ => None,
    }
}

fn reads(what: &What) -> bool {
    matches!(what, What::Lookup(_) | What::Stat(_) | What::List(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::ROOT;

    fn made(h: &mut History, client: u64, settled: bool) {
        let what = What::Make {
            at: (ROOT, 1),
            is_dir: false,
        };
        let op = h.begin(client, what, false);
        h.said(op, Said::Made(9));
        h.ops[op].settled = settled;
    }

    fn looked(h: &mut History, client: u64, said: Said) {
        let op = h.begin(client, What::Lookup((ROOT, 1)), false);
        h.said(op, said);
        h.settled(op);
    }

    #[test]
    fn what_is_settled_is_not_lost() {
        for settled in [true, false] {
            let mut h = History::default();
            made(&mut h, 1, settled);
            h.gone(1);
            looked(&mut h, 2, Said::Error(-2));
            assert_eq!(h.check().is_ok(), !settled);
        }
    }

    #[test]
    fn what_was_written_and_not_flushed_may_be_seen_in_part() {
        for (size, may) in [(0, true), (3, true), (5, true), (4, false)] {
            let mut h = History::default();
            made(&mut h, 1, true);
            for size in [3, 5] {
                let op = h.begin(1, What::Write { ino: 9, size }, true);
                h.said(op, Said::Done);
            }
            h.gone(1);
            let op = h.begin(2, What::Stat(9), false);
            let (mode, links) = (None, Some(1));
            let size = Some(size);
            h.said(op, Said::Attrs { mode, links, size });
            h.settled(op);
            assert_eq!(h.check().is_ok(), may, "{size:?}");
        }
    }

    #[test]
    fn what_was_seen_stays() {
        let mut h = History::default();
        made(&mut h, 1, false);
        h.gone(1);
        looked(&mut h, 2, Said::Found(9));
        assert!(h.check().is_ok());
        looked(&mut h, 3, Said::Error(-2));
        assert!(h.check().is_err());
    }
}
