//! How much a PG is written to.

/// As of the last round.
#[derive(Debug, Default, Clone, Copy)]
pub struct Activity {
    /// Its writes since it was made; None: not looked at yet.
    writes: Option<u64>,
    /// Writes of the last rounds, each counting half as much as the next.
    pub recent: u64,
}

impl Activity {
    pub fn count(&mut self, writes: u64) {
        // What was written before this OSD led it says nothing of now.
        let before = self.writes.replace(writes).unwrap_or(writes);
        self.recent = self.recent / 2 + writes.saturating_sub(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_long_ago_counts_less_and_less() {
        let mut activity = Activity::default();
        activity.count(700);
        assert_eq!(activity.recent, 0, "all of it before it was looked at");
        activity.count(800);
        activity.count(800);
        assert_eq!(activity.recent, 50);
        (0..8).for_each(|_| activity.count(800));
        assert_eq!(activity.recent, 0);
    }
}
