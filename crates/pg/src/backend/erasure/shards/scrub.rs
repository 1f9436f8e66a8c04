//! What a scrub finds of the shards, and which of them are made good for it.
//!
//! Not here: the judgement ([`judge`]), how units come to be written anew ([`super::repair`]).

use super::Shards;
use super::repair::{Extent, Owner};
use crate::backend::Lent;
use crate::backend::erasure::judge::{Found, judge};
use crate::backend::findings::{Inconsistent, Side, shard_error};
use messages::osd::peer_scrub::ObjectDigest;
use std::collections::BTreeMap;
use types::{HObject, OsdId};

impl Shards {
    pub(super) fn judged<'a>(
        &self,
        object: &HObject,
        sides: &[(OsdId, Option<&'a ObjectDigest>)],
    ) -> Option<Inconsistent> {
        let place = |osd: OsdId| match osd == self.group.me {
            true => Some(self.own),
            false => self.members.get(&osd).map(|m| m.place),
        };
        let found = |(osd, digest): &(OsdId, Option<&'a ObjectDigest>)| {
            Some(Found {
                osd: *osd,
                shard: place(*osd)?,
                digest: *digest,
            })
        };
        let found: Vec<Found<'_>> = sides.iter().filter_map(found).collect();
        judge(object, &self.coding, &found)
    }

    /// Makes good every shard of which an object is bad, and others are good enough to make it of.
    pub(super) fn begin_mending(
        &mut self,
        head: HObject,
        wrong: &[Inconsistent],
        token: u64,
        ctx: &mut Lent<'_>,
    ) {
        let mut places: BTreeMap<usize, Extent> = BTreeMap::new();
        let mendable = || wrong.iter().filter(|w| w.good.is_some());
        for side in mendable().flat_map(|w| &w.sides) {
            if side.bad
                && let Ok(place) = usize::try_from(side.shard)
            {
                let extent = places.entry(place).or_insert(Extent::Units);
                *extent = (*extent).max(extent_of(side));
            }
        }
        // All of them before the first begins: the check hears once, of the last.
        for (place, extent) in places {
            self.begin_repair(head.clone(), place, (Owner::Check(token), extent), ctx);
        }
        let good = mendable().find_map(|w| w.good);
        self.note_good(token, good);
        if !self.is_mending(token) {
            ctx.front.checked(token);
        }
        self.go_on_repairing(ctx);
    }
}

/// Units alone, where nothing but they is bad.
fn extent_of(side: &Side) -> Extent {
    let units = shard_error::READ | shard_error::EC_HASH;
    match side.errors != 0 && side.errors & !units == 0 {
        true => Extent::Units,
        false => Extent::Whole,
    }
}
