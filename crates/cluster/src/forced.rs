//! Placement groups that operators want copied before all others (`pg force-recovery`, `pg force-backfill`): a wish for each
//! kind of copying, which ends when the group is whole, gone, or the wish is taken back.
//!
//! Kept as configuration keys, one for each pool that has any, as the manager's modules keep theirs: an older server passes them over.
//! Invariant: what a pool keeps is no larger than its groups. Not here: what is copied when (`osd::recovery`).

use crate::changes::Change;
use crate::state::ClusterState;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Bound;
use types::PoolId;
use types::pgstats::pg_state;

/// `pg/forced/<pool>` -> {"recovery": [seed], "backfill": [seed]}.
const KEY: &str = "pg/forced/";

/// Of one pool, by seed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forced {
    pub recovery: BTreeSet<u32>,
    pub backfill: BTreeSet<u32>,
}

impl Forced {
    /// Flags of [`pg_state`].
    pub fn flags(&self, seed: u32) -> u64 {
        let flag = |set: &BTreeSet<u32>, flag| if set.contains(&seed) { flag } else { 0 };
        flag(&self.recovery, pg_state::FORCED_RECOVERY) | flag(&self.backfill, pg_state::FORCED_BACKFILL)
    }

    pub fn set_of(&mut self, backfill: bool) -> &mut BTreeSet<u32> {
        match backfill {
            true => &mut self.backfill,
            false => &mut self.recovery,
        }
    }

    /// Keeps those that fit.
    pub fn retain(&mut self, fits: impl Fn(u32) -> bool) {
        self.recovery.retain(|seed| fits(*seed));
        self.backfill.retain(|seed| fits(*seed));
    }

    /// Puts this in place of what is kept of the pool.
    pub fn change(&self, pool: PoolId) -> Change {
        let key = format!("{KEY}{pool}");
        match self.recovery.is_empty() && self.backfill.is_empty() {
            true => Change::ConfigKeyRm { key },
            false => {
                let all = json!({"recovery": self.recovery, "backfill": self.backfill});
                let value = Bytes::from(all.to_string());
                Change::ConfigKeySet { key, value }
            }
        }
    }

    /// What does not read is nobody's wish: people can set keys, too.
    fn parse(raw: &[u8]) -> Self {
        let all: Value = serde_json::from_slice(raw).unwrap_or_default();
        let seeds = |name: &str| {
            let list = all[name].as_array().map_or(&[][..], Vec::as_slice);
            list.iter()
                .filter_map(|v| u32::try_from(v.as_u64()?).ok())
                .collect()
        };
        Self {
            recovery: seeds("recovery"),
            backfill: seeds("backfill"),
        }
    }
}

impl ClusterState {
    /// All pools that have any. A key that is written otherwise than [`Forced::change`] does is nobody's wish: nothing could
    /// take it back.
    pub fn all_forced(&self) -> impl Iterator<Item = (PoolId, Forced)> {
        let from = (Bound::Included(KEY), Bound::Unbounded);
        let rows = self.config_keys.range::<str, _>(from);
        rows.map_while(|(key, raw)| Some((key.strip_prefix(KEY)?, raw)))
            .filter_map(|(text, raw)| Some((canonical(text)?, Forced::parse(raw))))
    }
}

fn canonical(text: &str) -> Option<PoolId> {
    text.parse().ok().filter(|pool: &PoolId| pool.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_our_own_writing_count() {
        for (text, pool) in [
            ("7", Some(7)),
            ("-1", Some(-1)),
            ("07", None),
            ("+7", None),
            ("7 ", None),
            ("", None),
        ] {
            assert_eq!(canonical(text), pool, "{text:?}");
        }
    }

    #[test]
    fn what_is_kept_reads_back_and_junk_is_nothing() {
        let mut forced = Forced::default();
        assert!(matches!(forced.change(7), Change::ConfigKeyRm { key } if key == "pg/forced/7"));
        forced.set_of(false).extend([0, 3, u32::MAX]);
        forced.set_of(true).insert(3);
        let Change::ConfigKeySet { value, .. } = forced.change(7) else {
            panic!("kept");
        };
        assert_eq!(Forced::parse(&value), forced);
        let both = pg_state::FORCED_RECOVERY | pg_state::FORCED_BACKFILL;
        assert_eq!((forced.flags(3), forced.flags(1)), (both, 0));
        for junk in [
            "",
            "[]",
            "7",
            r#"{"recovery":7}"#,
            r#"{"recovery":["x",-1,4294967296]}"#,
        ] {
            assert_eq!(Forced::parse(junk.as_bytes()), Forced::default(), "{junk}");
        }
    }
}
