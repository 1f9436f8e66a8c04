//! Latencies in bounded memory: counted in classes, each at most 1/64 wide of what it counts.

use std::time::Duration;

/// Classes per power of two.
const FINE: u64 = 64;
const FINE_BITS: u32 = 6;

#[derive(Debug, Default)]
pub struct Histogram {
    classes: Vec<u64>,
    count: u64,
    max_us: u64,
}

/// Below [`FINE`] each microsecond has a class of its own.
fn class(us: u64) -> usize {
    if us < FINE {
        return us as usize;
    }
    let shift = us.ilog2() - FINE_BITS;
    ((u64::from(shift) + 1) * FINE + (us >> shift) - FINE) as usize
}

/// The least that falls into it.
fn least(class: usize) -> u64 {
    let class = class as u64;
    if class < FINE {
        return class;
    }
    let shift = class / FINE - 1;
    (FINE + class % FINE) << shift
}

impl Histogram {
    pub fn add(&mut self, took: Duration) {
        let us = took.as_micros() as u64;
        let class = class(us);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// In microseconds; 100: the largest itself.
    pub fn percentile(&self, p: f64) -> u64 {
        let wanted = (self.count as f64 * p / 100.0).ceil() as u64;
        let mut seen = 0;
        if p >= 100.0 {
            return self.max_us;
        }
        for (class, n) in self.classes.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return least(class);
            }
        }
        self.max_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_narrow_and_touch() {
        for us in (0..5000).chain([1 << 20, (1 << 40) + 12345]) {
            let c = class(us);
            assert!(least(c) <= us && us < least(c + 1), "{us}");
            assert!(least(c + 1) - least(c) <= 1 + us / FINE, "{us}");
        }
    }

    #[test]
    fn percentiles_of_a_thousand() {
        let mut h = Histogram::default();
        (1..=1000).for_each(|us| h.add(Duration::from_micros(us)));
        let near = |got: u64, want: u64| got <= want && got + 1 + want / FINE >= want;
        assert!(near(h.percentile(50.0), 500) && near(h.percentile(99.0), 990));
        assert_eq!((h.percentile(100.0), h.count()), (1000, 1000));
    }
}
