//! A code: its rows, and what is computed with them.

use crate::kernel::{Factor, Kernel};
use crate::matrix::{Matrix, combine};
use crate::{K_MAX, M_MAX};

/// Bytes of each unit worked on at a time, so that what is summed up stays in the processor's cache.
const BLOCK: usize = 16 << 10;

/// What cannot be computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("no code of {k} data and {m} parity shards: 1 to {K_MAX} and 1 to {M_MAX}")]
    Size { k: usize, m: usize },
    #[error("the first rows of a code are those of the data itself")]
    NotSystematic,
    #[error("{have} shards do not give {want}")]
    TooFew { have: usize, want: usize },
    #[error("there is no shard {shard} of {shards}")]
    NoSuchShard { shard: usize, shards: usize },
    #[error("{got} units where {want} belong together")]
    Count { got: usize, want: usize },
    #[error("units of different lengths")]
    Lengths,
    #[error("units of no bytes, or stripes of more than {max}")]
    Unit { max: u64 },
}

/// Rows of coefficients, ready for use: sums of units, each times one coefficient.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sums(Vec<Vec<Option<Factor>>>);

impl Sums {
    fn new<'a>(rows: impl Iterator<Item = &'a [u8]>) -> Self {
        // A coefficient of 0 adds nothing.
        let factor = |c: &u8| (*c != 0).then(|| Factor::new(*c));
        Self(rows.map(|row| row.iter().map(factor).collect()).collect())
    }

    fn of(&self, kernel: Kernel, units: &[&[u8]]) -> Vec<Vec<u8>> {
        let len = units.first().map_or(0, |u| u.len());
        let mut sums = vec![vec![0; len]; self.0.len()];
        for from in (0..len).step_by(BLOCK) {
            let range = from..len.min(from + BLOCK);
            for (row, sum) in self.0.iter().zip(&mut sums) {
                for (factor, unit) in row.iter().zip(units) {
                    if let Some(factor) = factor {
                        kernel.add_times(factor, &unit[range.clone()], &mut sum[range.clone()]);
                    }
                }
            }
        }
        sums
    }
}

/// k data shards and m of parity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    rows: Matrix,
    parity: Sums,
    kernel: Kernel,
}

impl Code {
    /// Any k of the k + m shards give all.
    pub fn reed_solomon(k: usize, m: usize) -> Result<Self, Unfit> {
        let bad = Unfit::Size { k, m };
        if !(1..=K_MAX).contains(&k) || !(1..=M_MAX).contains(&m) {
            return Err(bad);
        }
        Self::of(Matrix::reed_solomon(k, m).ok_or(bad)?)
    }

    /// A code of any rows, one for each shard; the first are those of the data.
    pub fn of(rows: Matrix) -> Result<Self, Unfit> {
        let (shards, k) = (rows.rows(), rows.columns());
        let m = shards.saturating_sub(k);
        if !(1..=K_MAX).contains(&k) || !(1..=M_MAX).contains(&m) {
            return Err(Unfit::Size { k, m });
        }
        let is_data = |n: usize| {
            rows.row(n)
                .iter()
                .enumerate()
                .all(|(c, v)| *v == u8::from(c == n))
        };
        if !(0..k).all(is_data) {
            return Err(Unfit::NotSystematic);
        }
        Ok(Self {
            parity: Sums::new((k..shards).map(|n| rows.row(n))),
            rows,
            kernel: Kernel::best(),
        })
    }

    /// The same code, computed in this way.
    pub fn with_kernel(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }

    pub fn k(&self) -> usize {
        self.rows.columns()
    }

    pub fn m(&self) -> usize {
        self.rows.rows() - self.k()
    }

    /// Data and parity.
    pub fn shards(&self) -> usize {
        self.rows.rows()
    }

    /// The parity units of these data units, which are of one length.
    pub fn encode(&self, data: &[&[u8]]) -> Result<Vec<Vec<u8>>, Unfit> {
        same_length(data, self.k())?;
        Ok(self.parity.of(self.kernel, data))
    }

    /// How units of `wanted` are made of units of some of `present`. The first that are enough are taken: whoever would rather
    /// read some of them than others names them first.
    pub fn recipe(&self, present: &[usize], wanted: &[usize]) -> Result<Recipe, Unfit> {
        let shards = self.shards();
        if let Some(shard) = present.iter().chain(wanted).find(|n| **n >= shards) {
            let shard = *shard;
            return Err(Unfit::NoSuchShard { shard, shards });
        }
        let too_few = Unfit::TooFew {
            have: present.len(),
            want: self.k(),
        };
        let from = self.rows.independent(present).ok_or(too_few.clone())?;
        let data = self.rows.inverse_of(&from).ok_or(too_few)?;
        let rows: Vec<Vec<u8>> = wanted.iter().map(|n| combine(self.rows.row(*n), &data)).collect();
        Ok(Recipe {
            from,
            sums: Sums::new(rows.iter().map(Vec::as_slice)),
            kernel: self.kernel,
        })
    }

    /// Units of the shards `wanted`, out of those of others.
    pub fn rebuild(&self, present: &[(usize, &[u8])], wanted: &[usize]) -> Result<Vec<Vec<u8>>, Unfit> {
        let known: Vec<usize> = present.iter().map(|(n, _)| *n).collect();
        let recipe = self.recipe(&known, wanted)?;
        let unit = |n: &usize| present.iter().find(|(p, _)| p == n).map(|(_, unit)| *unit);
        let units: Vec<&[u8]> = recipe.from.iter().filter_map(unit).collect();
        recipe.follow(&units)
    }

    /// Brings the unit of a parity shard up to a change of a data shard's unit: `old` has become `new`.
    pub fn change(
        &self,
        data: usize,
        old: &[u8],
        new: &[u8],
        shard: usize,
        parity: &mut [u8],
    ) -> Result<(), Unfit> {
        let (k, shards) = (self.k(), self.shards());
        if data >= k || !(k..shards).contains(&shard) {
            let shard = if data >= k { data } else { shard };
            return Err(Unfit::NoSuchShard { shard, shards });
        }
        if old.len() != new.len() || new.len() != parity.len() {
            return Err(Unfit::Lengths);
        }
        if let Some(factor) = &self.parity.0[shard - k][data] {
            // The coefficient times the difference, in two terms.
            self.kernel.add_times(factor, old, parity);
            self.kernel.add_times(factor, new, parity);
        }
        Ok(())
    }
}

/// How some shards' units are made of others'.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    from: Vec<usize>,
    sums: Sums,
    kernel: Kernel,
}

impl Recipe {
    /// The shards whose units are needed.
    pub fn from(&self) -> &[usize] {
        &self.from
    }

    /// `units` in the order of [`Recipe::from`], of one length.
    pub fn follow(&self, units: &[&[u8]]) -> Result<Vec<Vec<u8>>, Unfit> {
        same_length(units, self.from.len())?;
        Ok(self.sums.of(self.kernel, units))
    }
}

fn same_length(units: &[&[u8]], want: usize) -> Result<(), Unfit> {
    let got = units.len();
    if got != want {
        return Err(Unfit::Count { got, want });
    }
    match units.windows(2).all(|w| w[0].len() == w[1].len()) {
        true => Ok(()),
        false => Err(Unfit::Lengths),
    }
}
