//! The short run's mutator: small damage of the kinds that break decoders, the same in every run.

pub struct Mutator(u64);

/// Words that tend to be special as a count, a length or an offset.
const WORDS: [u32; 8] = [
    0,
    1,
    255,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

impl Mutator {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
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

    /// One to four changes: a flipped bit, a special byte or word, a cut, a piece twice, a piece gone.
    pub fn mutate(&mut self, input: &[u8]) -> Vec<u8> {
        let mut out = input.to_vec();
        for _ in 0..=self.below(4) {
            if out.is_empty() {
                out.push(self.next() as u8);
            }
            let at = self.below(out.len());
            let end = (at + 1 + self.below(32)).min(out.len());
            match self.below(8) {
                0 | 1 => out[at] ^= 1 << self.below(8),
                2 => out[at] = [0, 1, 2, 0x7f, 0x80, 0xff][self.below(6)],
                3 | 4 => {
                    let word = WORDS[self.below(WORDS.len())].to_le_bytes();
                    out[at..].iter_mut().zip(word).for_each(|(o, b)| *o = b);
                }
                5 => out.truncate(at),
                6 => {
                    let piece = out[at..end].to_vec();
                    out.splice(at..at, piece);
                }
                _ => drop(out.drain(at..end)),
            }
        }
        out
    }
}
