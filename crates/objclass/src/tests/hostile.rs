//! Hostile inputs and hostile stored state, by a seeded mutator: no method may panic, none may make more output
//! or a larger object than its limits allow, and a failed one leaves no trace.

use super::replay::inputs;
use crate::memory::{MemoryObject, OBJECT_SIZE_MAX, State};
use crate::method::Method;
use crate::registry::CLASSES;
use bytes::Bytes;

/// Output grows with the object and the input, not beyond.
const OUT_FACTOR: usize = 16;
const OUT_FLOOR: usize = 4096;

/// xorshift64*: the same sequence in every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(3) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.next() as u8),
                4 if bytes.len() >= at + 4 && bytes.len() >= 4 => {
                    let value = [0u32, 1, 0x7fff_ffff, u32::MAX, 4096][self.below(5)];
                    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                }
                _ => bytes.extend((0..self.below(9)).map(|i| i as u8)),
            }
        }
    }
}

fn size_of(state: &Option<State>) -> usize {
    let rows = |m: &std::collections::BTreeMap<Bytes, Bytes>| {
        m.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>()
    };
    state
        .as_ref()
        .map_or(0, |s| s.data.len() + rows(&s.omap) + rows(&s.xattrs))
}

fn attack(method: &Method, object: &mut MemoryObject, input: Vec<u8>) {
    if object.committed.is_none() && !method.writes() {
        return;
    }
    let bound = OUT_FLOOR + OUT_FACTOR * (input.len() + size_of(&object.committed));
    let reply = method.call(object, Bytes::from(input));
    assert!(
        reply.out.len() <= bound,
        "{}: {} bytes out",
        method.name,
        reply.out.len()
    );
    let size = object.pending.as_ref().map_or(0, |s| s.data.len() as u64);
    assert!(size <= OBJECT_SIZE_MAX);
    // Objects stay small, so that the run is short.
    if reply.rval < 0 || size > 1 << 20 {
        object.roll_back();
    } else {
        object.commit();
    }
}

#[test]
fn mutated_inputs_on_every_method() {
    let mut random = Random::new(20_261_121);
    for class in CLASSES {
        for method in class.methods {
            let recorded = inputs(class.name, method.name);
            let mut object = MemoryObject::new(random.below(2) == 0);
            for round in 0..120 {
                let mut input = match recorded.get(random.below(recorded.len())) {
                    Some(input) if round % 4 != 0 => input.clone(),
                    _ => (0..random.below(60)).map(|_| random.next() as u8).collect(),
                };
                if round % 3 != 0 {
                    random.mutate(&mut input);
                }
                attack(method, &mut object, input);
            }
        }
    }
}

/// Every method of a class on one object, whose rows and data are damaged now and then.
#[test]
fn damaged_state_under_every_method() {
    let mut random = Random::new(7);
    for class in CLASSES {
        let mut object = MemoryObject::new(true);
        let rounds = if class.methods.len() > 50 { 6000 } else { 800 };
        for _ in 0..rounds {
            let method = &class.methods[random.below(class.methods.len())];
            let recorded = inputs(class.name, method.name);
            let mut input = recorded
                .get(random.below(recorded.len()))
                .cloned()
                .unwrap_or_default();
            if random.below(4) == 0 {
                random.mutate(&mut input);
            }
            attack(method, &mut object, input);
            if random.below(5) == 0 {
                damage(&mut object, &mut random);
            }
        }
    }
}

fn damage(object: &mut MemoryObject, random: &mut Random) {
    let Some(state) = &mut object.committed else {
        return;
    };
    match random.below(3) {
        0 => random.mutate(&mut state.data),
        which => {
            let rows = if which == 1 {
                &mut state.omap
            } else {
                &mut state.xattrs
            };
            if let Some(value) = {
                let at = random.below(rows.len());
                rows.values_mut().nth(at)
            } {
                let mut bytes = value.to_vec();
                random.mutate(&mut bytes);
                *value = bytes.into();
            }
        }
    }
    object.roll_back();
}
