//! A pool of shards in place of one of copies: what it is made of, and whether the shards of a placement group fit together.

use crate::copies::{self, Copy, Part};
use erasure::{Code, Layout};
use std::collections::BTreeMap;
use types::pool::{POOL_TYPE_ERASURE, PgPool, pool_flag};
use types::{Incremental, OsdId, OsdMap};

const PROFILE: &str = "code";
const RULE: &str = "shards";

/// Data and parity shards, and bytes of a stripe on one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coded {
    pub k: u8,
    pub m: u8,
    pub unit: u32,
}

impl Coded {
    pub fn size(self) -> u8 {
        self.k + self.m
    }

    /// Makes a pool one of these: its profile and its rule, each shard on a host of its own.
    pub fn shape(self, map: &OsdMap, inc: &mut Incremental, pool: &mut PgPool) -> Result<(), String> {
        let words = [("k", self.k), ("m", self.m)].map(|(word, n)| (word.to_string(), n.to_string()));
        inc.new_erasure_code_profiles.insert(PROFILE.into(), words.into());
        let crush = inc.crush_mut(map);
        let rule = match crush.rule_id(RULE) {
            Some(rule) => rule,
            None => crush
                .add_simple_rule(RULE, "default", "host", None, crush::RuleKind::Erasure)
                .map_err(|e| e.to_string())? as i32,
        };
        pool.kind = POOL_TYPE_ERASURE;
        pool.size = self.size();
        pool.crush_rule = u8::try_from(rule).map_err(|e| e.to_string())?;
        pool.stripe_width = u32::from(self.k) * self.unit;
        pool.erasure_code_profile = PROFILE.into();
        pool.flags |= pool_flag::EC_OVERWRITES;
        Ok(())
    }
}

/// What does not fit together of the shards of a placement group, each with the OSD that has it.
pub fn difference(coded: Coded, shards: &[(OsdId, &Copy)]) -> Option<String> {
    let (first, rest) = shards.split_first()?;
    for (osd, shard) in rest {
        if let Some(why) = copies::difference(first.1, shard) {
            return Some(format!("osd.{} and osd.{osd} differ: {why}", first.0));
        }
    }
    let (k, m) = (usize::from(coded.k), usize::from(coded.m));
    let layout = Layout::new(k, m, u64::from(coded.unit)).ok()?;
    let code = Code::reed_solomon(k, m).ok()?;
    let parts: Vec<&BTreeMap<String, Part>> = shards.iter().map(|(_, s)| &s.parts).collect();
    let oids = parts.first()?.keys();
    let mut bad = oids.filter_map(|oid| {
        let units: Option<Vec<&Part>> = parts.iter().map(|p| p.get(oid)).collect();
        parity_differs(&layout, &code, &units?)
            .map(|shard| format!("{oid}: shard {shard} is not the others' parity"))
    });
    bad.next()
}

/// The first shard with bytes where it can have none, or else of parity that the data shards do not give.
fn parity_differs(layout: &Layout, code: &Code, shards: &[&Part]) -> Option<usize> {
    let size = shards.first()?.size;
    let (_, len) = layout.extent_on_shard(&layout.stripes(0, size));
    let len = len as usize;
    let more = |part: &&Part| part.data.iter().skip(len).any(|b| *b != 0);
    if let Some(shard) = shards.iter().position(more) {
        return Some(shard);
    }
    // Behind what a shard has there are zeros.
    let whole = |part: &&Part| {
        let mut bytes = part.data.to_vec();
        bytes.resize(len, 0);
        bytes
    };
    let all: Vec<Vec<u8>> = shards.iter().map(whole).collect();
    let (data, parity) = all.split_at(layout.k().min(all.len()));
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let made = code.encode(&data).ok()?;
    let mut both = made.iter().zip(parity);
    both.position(|(made, there)| made != there)
        .map(|n| layout.k() + n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_does_not_fit_is_noticed() {
        let (layout, code) = (Layout::new(2, 1, 4).unwrap(), Code::reed_solomon(2, 1).unwrap());
        let part = |data: &[u8]| Part {
            size: 6,
            data: data.to_vec().into(),
        };
        let (a, b) = (part(&[1, 2, 3, 4]), part(&[5, 6]));
        let parity = code.encode(&[&[1, 2, 3, 4], &[5, 6, 0, 0]]).unwrap();
        assert_eq!(parity_differs(&layout, &code, &[&a, &b, &part(&parity[0])]), None);
        let mut wrong = parity[0].clone();
        wrong[3] ^= 1;
        assert_eq!(parity_differs(&layout, &code, &[&a, &b, &part(&wrong)]), Some(2));
        // What stands behind the object's bytes counts, also behind its last stripe.
        assert_eq!(
            parity_differs(&layout, &code, &[&a, &part(&[5, 6, 7]), &part(&parity[0])]),
            Some(2)
        );
        let long = part(&[5, 6, 0, 0, 9]);
        assert_eq!(
            parity_differs(&layout, &code, &[&a, &long, &part(&parity[0])]),
            Some(1)
        );
    }
}
