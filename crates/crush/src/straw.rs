//! The per-item numbers that bucket algorithms derive from weights (docs/protocol/ceph/03-placement.md, 5.5): needed
//! only when a bucket is built or changed; a binary map carries them.

use crate::map::{Alg, Bucket, BucketBody};

/// Items that a tree bucket can hold: its node count is one byte on the wire.
pub(crate) const TREE_ITEMS_MAX: usize = 64;

/// Length of the node array of a tree bucket with `items` items.
pub(crate) fn tree_nodes(items: usize) -> usize {
    match items {
        0 => 0,
        n => 2usize << (usize::BITS - (n - 1).leading_zeros()),
    }
}

/// Node weights of a tree bucket: leaves at odd nodes, each inner node the sum below it.
fn tree_weights(weights: &[u32]) -> Vec<u32> {
    let count = tree_nodes(weights.len());
    let mut nodes = vec![0u32; count];
    for (i, w) in weights.iter().enumerate() {
        let mut n = 2 * i + 1;
        nodes[n] = *w;
        // Walk up to the root, which is the node in the middle of the array.
        while n != count / 2 {
            let half = n & n.wrapping_neg();
            n = if n & (half << 1) != 0 { n - half } else { n + half };
            nodes[n] = nodes[n].wrapping_add(*w);
        }
    }
    nodes
}

/// Straw lengths, 16.16, for the calculation `version` of the tunables (0, or anything else for 1).
fn straw_lengths(weights: &[u32], version: u8) -> Vec<u32> {
    let size = weights.len();
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by_key(|i| weights[*i]);
    let w = |i: usize| weights[order[i]];
    let mut straws = vec![0u32; size];
    let (mut straw, mut below, mut last) = (1.0f64, 0.0f64, 0.0f64);
    let mut left = size as i64;
    let mut i = 0;
    while i < size {
        if w(i) == 0 {
            i += 1;
            if version >= 1 {
                left -= 1;
            }
            continue;
        }
        straws[order[i]] = (straw * 65536.0) as u32;
        i += 1;
        if i == size {
            break;
        }
        let step = (f64::from(w(i - 1)) - last) * left as f64;
        if version == 0 {
            if w(i) == w(i - 1) {
                continue;
            }
            below += step;
            let equal = (i..size).take_while(|j| w(*j) == w(i)).count();
            left -= equal as i64;
        } else {
            below += step;
            left -= 1;
        }
        // A 32-bit product, wrap included.
        let next = f64::from((left as u32).wrapping_mul(w(i).wrapping_sub(w(i - 1))));
        let p = below / (below + next);
        straw *= (1.0 / p).powf(1.0 / left as f64);
        last = f64::from(w(i - 1));
    }
    straws
}

impl Bucket {
    /// A bucket over `items` with all derived numbers; `None` if the algorithm cannot hold them (a uniform
    /// bucket of unequal weights, a tree of more than 64 items).
    pub fn build(
        id: i32,
        kind: u16,
        alg: Alg,
        items: Vec<i32>,
        weights: Vec<u32>,
        straw_calc_version: u8,
    ) -> Option<Self> {
        let total = weights.iter().fold(0u32, |s, w| s.wrapping_add(*w));
        let body = match alg {
            Alg::Uniform => {
                let item_weight = weights.first().copied().unwrap_or(0);
                if weights.iter().any(|w| *w != item_weight) {
                    return None;
                }
                BucketBody::Uniform { item_weight }
            }
            Alg::List => {
                let sums = weights
                    .iter()
                    .scan(0u32, |s, w| {
                        *s = s.wrapping_add(*w);
                        Some(*s)
                    })
                    .collect();
                BucketBody::List { weights, sums }
            }
            Alg::Tree if items.len() > TREE_ITEMS_MAX => return None,
            Alg::Tree => BucketBody::Tree {
                nodes: tree_weights(&weights),
            },
            Alg::Straw => BucketBody::Straw {
                straws: straw_lengths(&weights, straw_calc_version),
                weights,
            },
            Alg::Straw2 => BucketBody::Straw2 { weights },
        };
        Some(Self {
            id,
            kind,
            hash: 0,
            weight: total,
            items,
            body,
        })
    }

    /// Weights of all items, in order.
    pub fn item_weights(&self) -> Vec<u32> {
        (0..self.items.len()).map(|i| self.item_weight(i)).collect()
    }
}
