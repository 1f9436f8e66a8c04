//! Breadth-first search over all reachable states of a model.
//!
//! Vocabulary: a *fault* is an action of the environment that a healed system does without (a crash, a cut). A
//! *dead end* is a reachable state from which no path without faults leads to a goal state.
//!
//! Invariants: traces are shortest ones. A search that meets its bound of states says so and claims nothing.
//! States are told apart by 128-bit fingerprints: for ten million states the chance that two share one is
//! below 10^-24. Not here: symmetry, partial orders, fairness, more than one thread (tests run side by side).

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A system of states and actions.
pub trait Model {
    type State: Clone + Eq + Hash + Debug;
    type Action: Copy + Debug;

    fn initial(&self) -> Self::State;
    /// Every action that is possible in `state`, with what it leads to.
    fn next(&self, state: &Self::State, out: &mut Vec<(Self::Action, Self::State)>);
    /// What must hold in every state; the error names the property.
    fn check(&self, state: &Self::State) -> Result<(), &'static str>;
    /// What must stay reachable without faults.
    fn goal(&self, state: &Self::State) -> bool;
    fn is_fault(&self, action: Self::Action) -> bool;
}

/// How a search ended.
#[derive(Debug)]
pub enum Verdict<A, S> {
    /// Every reachable state was seen, every property holds, there is no dead end.
    Holds,
    /// A property does not hold after these actions.
    Broken {
        property: &'static str,
        trace: Vec<A>,
        state: S,
    },
    /// After these actions no goal can be reached any more.
    DeadEnd { trace: Vec<A>, state: S },
    /// More states than allowed: nothing is known about the rest.
    BoundMet,
}

#[derive(Debug)]
pub struct Report<A, S> {
    pub states: usize,
    pub transitions: usize,
    /// Actions on the longest of the shortest paths.
    pub depth: usize,
    pub verdict: Verdict<A, S>,
}

/// Searches until a property breaks, all states are seen, or `states_max` of them are.
pub fn search<M: Model>(model: &M, states_max: usize) -> Report<M::Action, M::State> {
    let mut graph = Graph::new();
    let mut transitions = 0;
    let mut frontier = VecDeque::new();
    let first = model.initial();
    graph.insert(fingerprint(&first), NO_PARENT, model.goal(&first));
    if let Err(property) = model.check(&first) {
        return graph.broken(model, 0, property, transitions);
    }
    frontier.push_back(first);
    let mut successors = Vec::new();
    let mut from = 0u32;
    while let Some(state) = frontier.pop_front() {
        successors.clear();
        model.next(&state, &mut successors);
        transitions += successors.len();
        for (action, next) in successors.drain(..) {
            let (to, fresh) = graph.insert(fingerprint(&next), from, model.goal(&next));
            if !model.is_fault(action) {
                graph.edges.push(to);
            }
            if !fresh {
                continue;
            }
            if let Err(property) = model.check(&next) {
                return graph.broken(model, to, property, transitions);
            }
            if graph.parents.len() > states_max {
                return graph.report(transitions, Verdict::BoundMet);
            }
            frontier.push_back(next);
        }
        graph.edge_ends.push(graph.edges.len());
        from += 1;
    }
    let verdict = match graph.dead_end() {
        None => Verdict::Holds,
        Some(at) => {
            let (trace, state) = graph.trace(model, at);
            Verdict::DeadEnd { trace, state }
        }
    };
    graph.report(transitions, verdict)
}

const NO_PARENT: u32 = u32::MAX;

/// What is remembered of the states seen, by their number in the order of discovery.
struct Graph {
    ids: HashMap<u128, u32, BuildHasherDefault<Folded>>,
    prints: Vec<u128>,
    parents: Vec<u32>,
    goals: Vec<bool>,
    /// Targets of the edges without faults; those of state `i` end at `edge_ends[i]`.
    edges: Vec<u32>,
    edge_ends: Vec<usize>,
}

impl Graph {
    fn new() -> Self {
        Self {
            ids: HashMap::default(),
            prints: Vec::new(),
            parents: Vec::new(),
            goals: Vec::new(),
            edges: Vec::new(),
            edge_ends: Vec::new(),
        }
    }

    /// The state's number, and whether it is new.
    fn insert(&mut self, print: u128, parent: u32, goal: bool) -> (u32, bool) {
        let id = self.parents.len() as u32;
        match self.ids.entry(print) {
            std::collections::hash_map::Entry::Occupied(old) => (*old.get(), false),
            std::collections::hash_map::Entry::Vacant(slot) => {
                slot.insert(id);
                self.prints.push(print);
                self.parents.push(parent);
                self.goals.push(goal);
                (id, true)
            }
        }
    }

    /// The first state from which no goal is reachable along the edges without faults.
    fn dead_end(&self) -> Option<u32> {
        let n = self.parents.len();
        // The edges turned round: sources of the edges into `i` end at `ends[i]`.
        let mut ends = vec![0usize; n + 1];
        for to in &self.edges {
            ends[*to as usize + 1] += 1;
        }
        for i in 0..n {
            ends[i + 1] += ends[i];
        }
        let mut fill = ends.clone();
        let mut sources = vec![0u32; self.edges.len()];
        let mut start = 0;
        for (from, end) in self.edge_ends.iter().enumerate() {
            for to in &self.edges[start..*end] {
                let slot = &mut fill[*to as usize];
                sources[*slot] = from as u32;
                *slot += 1;
            }
            start = *end;
        }
        let mut alive = self.goals.clone();
        let mut todo: Vec<u32> = (0..n as u32).filter(|i| alive[*i as usize]).collect();
        while let Some(at) = todo.pop() {
            for from in &sources[ends[at as usize]..ends[at as usize + 1]] {
                if !std::mem::replace(&mut alive[*from as usize], true) {
                    todo.push(*from);
                }
            }
        }
        alive.iter().position(|a| !a).map(|i| i as u32)
    }

    /// The actions that lead to a state, found again by running the model along its ancestors.
    fn trace<M: Model>(&self, model: &M, at: u32) -> (Vec<M::Action>, M::State) {
        let mut path = Vec::new();
        let mut id = at;
        while id != 0 {
            path.push(id);
            id = self.parents[id as usize];
        }
        let (mut actions, mut state) = (Vec::new(), model.initial());
        let mut successors = Vec::new();
        for id in path.into_iter().rev() {
            successors.clear();
            model.next(&state, &mut successors);
            let print = self.prints[id as usize];
            let found = successors.drain(..).find(|(_, s)| fingerprint(s) == print);
            // `next` is a function of the state, so the successor that was found once is found again.
            let Some((action, next)) = found else { break };
            actions.push(action);
            state = next;
        }
        (actions, state)
    }

    fn depth(&self) -> usize {
        let mut depth = vec![0u32; self.parents.len()];
        for i in 1..depth.len() {
            depth[i] = depth[self.parents[i] as usize] + 1;
        }
        depth.last().copied().unwrap_or(0) as usize
    }

    fn broken<M: Model>(
        &self,
        model: &M,
        at: u32,
        property: &'static str,
        transitions: usize,
    ) -> Report<M::Action, M::State> {
        let (trace, state) = self.trace(model, at);
        self.report(
            transitions,
            Verdict::Broken {
                property,
                trace,
                state,
            },
        )
    }

    fn report<A, S>(&self, transitions: usize, verdict: Verdict<A, S>) -> Report<A, S> {
        Report {
            states: self.parents.len(),
            transitions,
            depth: self.depth(),
            verdict,
        }
    }
}

fn fingerprint(state: &impl Hash) -> u128 {
    let mut print = Print {
        lanes: [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344],
        word: 0,
        bytes: 0,
    };
    state.hash(&mut print);
    let open = print.word ^ (u64::from(print.bytes) << 56);
    print.take(open);
    let [a, b] = print.lanes;
    (u128::from(mix(a ^ b.rotate_left(32))) << 64) | u128::from(mix(b))
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Two independent 64-bit lanes over the state's bytes, eight at a time.
struct Print {
    lanes: [u64; 2],
    word: u64,
    bytes: u8,
}

impl Print {
    fn take(&mut self, word: u64) {
        let [a, b] = self.lanes;
        let wide = u128::from(a ^ word) * 0x9e37_79b9_7f4a_7c15;
        // The rotation and the sum keep a lane that is zero from staying so.
        self.lanes[0] = ((wide as u64) ^ ((wide >> 64) as u64))
            .rotate_left(23)
            .wrapping_add(0x452821e638d01377);
        self.lanes[1] = mix(b.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15));
    }

    fn byte(&mut self, byte: u8) {
        self.word |= u64::from(byte) << (8 * self.bytes);
        self.bytes += 1;
        if self.bytes == 8 {
            self.take(self.word);
            (self.word, self.bytes) = (0, 0);
        }
    }

    /// Small numbers (lengths, variants) in one byte.
    fn number(&mut self, n: u64) {
        match u8::try_from(n) {
            Ok(small) if small < u8::MAX => self.byte(small),
            _ => {
                self.byte(u8::MAX);
                n.to_le_bytes().into_iter().for_each(|b| self.byte(b));
            }
        }
    }
}

impl Hasher for Print {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.byte(*b));
    }
    fn write_u8(&mut self, n: u8) {
        self.byte(n);
    }
    fn write_usize(&mut self, n: usize) {
        self.number(n as u64);
    }
    fn write_isize(&mut self, n: isize) {
        self.number(n as u64);
    }
    fn finish(&self) -> u64 {
        self.lanes[0] ^ self.lanes[1]
    }
}

/// The table's hash of a fingerprint, which is one already.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
    fn write_u128(&mut self, n: u128) {
        self.0 = (n as u64) ^ ((n >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter from 0 to `top` that steps up by one, and by a fault falls into a pit.
    struct Counter {
        top: u8,
        bad: Option<u8>,
        pit: bool,
    }

    impl Model for Counter {
        type State = u8;
        type Action = &'static str;

        fn initial(&self) -> u8 {
            0
        }
        fn next(&self, state: &u8, out: &mut Vec<(&'static str, u8)>) {
            if *state < self.top {
                out.push(("up", state + 1));
            }
            if self.pit && *state == 2 {
                out.push(("fall", 200));
            }
        }
        fn check(&self, state: &u8) -> Result<(), &'static str> {
            match self.bad == Some(*state) {
                true => Err("bad"),
                false => Ok(()),
            }
        }
        fn goal(&self, state: &u8) -> bool {
            *state == self.top
        }
        fn is_fault(&self, action: &'static str) -> bool {
            action == "fall"
        }
    }

    #[test]
    fn sees_every_state() {
        let r = search(
            &Counter {
                top: 9,
                bad: None,
                pit: false,
            },
            100,
        );
        assert!(matches!(r.verdict, Verdict::Holds), "{r:?}");
        assert_eq!((r.states, r.transitions, r.depth), (10, 9, 9));
    }

    #[test]
    fn finds_what_is_broken_by_the_shortest_way() {
        let r = search(
            &Counter {
                top: 9,
                bad: Some(3),
                pit: true,
            },
            100,
        );
        let Verdict::Broken {
            property: "bad",
            trace,
            state: 3,
        } = r.verdict
        else {
            panic!("{r:?}")
        };
        assert_eq!(trace, ["up"; 3]);
    }

    #[test]
    fn finds_a_dead_end() {
        let r = search(
            &Counter {
                top: 9,
                bad: None,
                pit: true,
            },
            100,
        );
        let Verdict::DeadEnd { trace, state: 200 } = r.verdict else {
            panic!("{r:?}")
        };
        assert_eq!(trace, ["up", "up", "fall"]);
    }

    #[test]
    fn claims_nothing_behind_its_bound() {
        let r = search(
            &Counter {
                top: 9,
                bad: Some(8),
                pit: false,
            },
            5,
        );
        assert!(matches!(r.verdict, Verdict::BoundMet), "{r:?}");
    }
}
