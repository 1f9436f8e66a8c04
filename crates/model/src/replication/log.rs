//! A log of the model.

/// Entries of a log: one for each write at most, since a write that is there is not executed again.
pub const LOG_MAX: usize = 3;

/// A log entry: its version is the interval with its place in the log, beside it stands which write it is.
/// Zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Entry(u8);

/// Intervals fit in four bits: budgets of faults keep far below.
const INTERVAL_MAX: u8 = 15;

impl Entry {
    pub fn new(interval: u8, write: u8) -> Self {
        assert!(interval <= INTERVAL_MAX && write <= LOG_MAX as u8);
        Self(interval << 4 | write)
    }
    pub fn interval(self) -> u8 {
        self.0 >> 4
    }
    pub fn write(self) -> u8 {
        self.0 & 15
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("-"),
            _ => write!(f, "w{}@{}", self.write(), self.interval()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Log {
    entries: [Entry; LOG_MAX],
    len: u8,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

impl Log {
    pub fn entries(&self) -> &[Entry] {
        &self.entries[..self.len as usize]
    }
    pub fn len(&self) -> usize {
        self.len as usize
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub fn last(&self) -> Entry {
        self.entries().last().copied().unwrap_or_default()
    }
    /// The version of the newest entry.
    pub fn head(&self) -> (u8, u8) {
        (self.last().interval(), self.len)
    }
    pub fn has(&self, write: u8) -> bool {
        self.entries().iter().any(|e| e.write() == write)
    }
    pub fn push(&mut self, entry: Entry) {
        self.entries[self.len as usize] = entry;
        self.len += 1;
    }
    pub fn first(&self, len: usize) -> Self {
        let mut log = Self::default();
        for e in &self.entries()[..len] {
            log.push(*e);
        }
        log
    }
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        other.entries().starts_with(self.entries())
    }
    /// Entries in common, by what the protocol can see of them: their versions.
    pub fn common(&self, other: &Self) -> usize {
        let pairs = self.entries().iter().zip(other.entries());
        pairs.take_while(|(a, b)| a.interval() == b.interval()).count()
    }
    /// Entries in common, in truth.
    pub fn same(&self, other: &Self) -> usize {
        let pairs = self.entries().iter().zip(other.entries());
        pairs.take_while(|(a, b)| a == b).count()
    }
    pub fn same_version_other_write(&self, other: &Self) -> bool {
        self.common(other) != self.same(other)
    }
}
