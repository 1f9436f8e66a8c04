//! What was heard, for a while: bounded in number and in time.

use std::collections::BTreeMap;

/// A SHA-256: what is asked about is a secret, and not kept.
pub type Name = [u8; 32];

/// Times are milliseconds of a clock that does not jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Until then it is taken as it is.
    pub fresh: u64,
    /// And until then where nobody can be asked.
    pub end: u64,
}

#[derive(Debug)]
pub struct Cache<T> {
    of: BTreeMap<Name, (T, Term)>,
    max: usize,
}

/// What is known of something.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<T> {
    Nothing,
    Fresh(T),
    /// To be asked again.
    Old(T),
}

impl<T: Clone> Cache<T> {
    pub fn new(max: usize) -> Self {
        Self {
            of: BTreeMap::new(),
            max,
        }
    }

    pub fn get(&self, name: &Name, now: u64) -> Heard<T> {
        match self.of.get(name) {
            Some((what, term)) if now < term.fresh && now < term.end => Heard::Fresh(what.clone()),
            Some((what, term)) if now < term.end => Heard::Old(what.clone()),
            _ => Heard::Nothing,
        }
    }

    /// Whether it was to be taken as it is then.
    pub fn is_fresh(&self, name: &Name, then: u64) -> bool {
        self.of.get(name).is_some_and(|(_, term)| then < term.fresh)
    }

    /// Where there is no room what has ended goes, and else what ends first.
    pub fn put(&mut self, name: Name, what: T, term: Term, now: u64) {
        if self.of.len() >= self.max && !self.of.contains_key(&name) {
            self.of.retain(|_, (_, term)| now < term.end);
            if self.of.len() >= self.max {
                let first = self.of.iter().min_by_key(|(_, (_, term))| term.end);
                let first = first.map(|(name, _)| *name);
                first.map(|name| self.of.remove(&name));
            }
        }
        self.of.insert(name, (what, term));
    }

    pub fn remove(&mut self, name: &Name) {
        self.of.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded() {
        let mut cache = Cache::new(2);
        let term = |fresh, end| Term { fresh, end };
        cache.put([1; 32], "a", term(10, 20), 0);
        assert_eq!(cache.get(&[1; 32], 9), Heard::Fresh("a"));
        assert_eq!(cache.get(&[1; 32], 10), Heard::Old("a"));
        assert_eq!(cache.get(&[1; 32], 20), Heard::Nothing);
        assert_eq!(cache.get(&[2; 32], 0), Heard::Nothing);
        cache.put([2; 32], "b", term(10, 30), 0);
        cache.put([3; 32], "c", term(10, 40), 0);
        assert_eq!(cache.get(&[1; 32], 0), Heard::Nothing, "what ends first goes");
        assert_eq!(cache.get(&[2; 32], 0), Heard::Fresh("b"));
        cache.put([2; 32], "d", term(10, 30), 0);
        assert_eq!(
            cache.get(&[3; 32], 0),
            Heard::Fresh("c"),
            "it was there: no room is wanted"
        );
        cache.put([4; 32], "e", term(50, 60), 45);
        assert_eq!(cache.of.len(), 1, "what has ended goes");
        cache.remove(&[4; 32]);
        assert_eq!(cache.get(&[4; 32], 46), Heard::Nothing);
        // Fresh never goes beyond the end.
        cache.put([5; 32], "f", term(100, 50), 45);
        assert_eq!(cache.get(&[5; 32], 50), Heard::Nothing);
    }
}
