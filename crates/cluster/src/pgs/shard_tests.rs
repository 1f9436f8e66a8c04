//! Settling and proposals of PGs of shards, on a map of six OSDs.

use super::tests::{Cluster, Dice, lab};
use super::*;
use crush::{ITEM_NONE, RuleKind};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::osdmap::OsdMap;
use types::places;
use types::pool::POOL_TYPE_ERASURE;

/// Every pool of the map is one of k + m shards, each on an OSD of its own.
fn coded_map(k: u8, m: u8) -> OsdMap {
    let mut map = lab(1, 1);
    let crush = Arc::make_mut(&mut map.crush);
    let rule = crush.add_simple_rule("shards", "default", "osd", None, RuleKind::Erasure);
    let words = [("k", k), ("m", m)].map(|(word, n)| (word.to_string(), n.to_string()));
    map.erasure_code_profiles.insert("code".into(), words.into());
    let rule = u8::try_from(rule.unwrap()).unwrap();
    for pool in map.pools.values_mut() {
        pool.kind = POOL_TYPE_ERASURE;
        (pool.size, pool.min_size) = (k + m, k + u8::from(m > 1));
        (pool.crush_rule, pool.erasure_code_profile) = (rule, "code".into());
    }
    map.pg_upmap.clear();
    map.pg_upmap_items.clear();
    map.primary_temp.clear();
    map
}

fn coded(k: u8, m: u8) -> Cluster {
    Cluster::of(coded_map(k, m))
}

/// That these have the shards, led by the one that is first.
fn wish(pg: PgId, now: &PgConfig, acting: &[Option<OsdId>], primary: OsdId) -> PgProposal {
    PgProposal {
        pg,
        expect: now.clone(),
        in_sync: acting.iter().copied().flatten().collect(),
        primary,
        acting: Some(acting.to_vec()),
    }
}

fn shards(acting: &[Option<OsdId>]) -> Vec<OsdId> {
    acting.iter().map(|o| o.unwrap_or(ITEM_NONE)).collect()
}

/// Clients are sent to the primary, and find each shard in its position.
fn check(c: &Cluster, why: &str) {
    for (pg, config) in c.pgs.iter() {
        let pool = c.map.pool(pg.pool).unwrap();
        assert_eq!(config.acting.len(), usize::from(pool.size), "{why}: {pg}");
        if !c.map.is_up(config.primary) {
            assert!(config.in_sync.iter().all(|o| !c.map.is_up(*o)), "{why}: {pg}");
            continue;
        }
        let sets = c.map.pg_to_up_acting(pg);
        let alive = |o: &OsdId| if c.map.is_up(*o) { *o } else { ITEM_NONE };
        let want: Vec<OsdId> = shards(&config.acting).iter().map(alive).collect();
        assert_eq!(sets.acting, want, "{why}: {pg}");
        assert_eq!(sets.acting_primary, config.primary, "{why}: {pg}");
    }
}

#[test]
fn a_new_pg_has_its_shards_where_crush_lists_them() {
    let c = coded(4, 2);
    for (pg, config) in c.pgs.iter() {
        let up = c.map.pg_to_up_acting(pg).up;
        assert_eq!(shards(&config.acting), up, "{pg}");
        assert_eq!(config.in_sync.len(), 6);
    }
    assert!(c.map.pg_temp.is_empty() && c.map.primary_temp.is_empty());
    check(&c, "new");
}

#[test]
fn a_pg_does_not_begin_with_too_few() {
    let mut map = coded_map(4, 2);
    let pools = std::mem::take(&mut map.pools);
    let names = std::mem::take(&mut map.pool_names);
    let mut c = Cluster::of(map);
    c.down(&[0, 1, 2]);
    c.change(|_, inc| {
        inc.new_pools.extend(pools);
        inc.new_pool_names.extend(names);
    });
    assert_eq!(c.pgs.iter().count(), 0, "three");
    c.boot(1);
    assert_eq!(
        c.pgs.iter().count(),
        0,
        "four have objects, and five are min_size"
    );
    c.boot(2);
    assert_eq!(c.pgs.iter().count(), c.map.pgs().count());
    for (pg, config) in c.pgs.iter() {
        assert_eq!((config.in_sync.len(), config.acting.len()), (5, 6), "{pg}");
    }
    check(&c, "five");
}

#[test]
fn who_goes_down_leaves_a_hole_and_the_first_that_is_up_leads() {
    let mut c = coded(3, 3);
    let (pg, before) = c.any_pg();
    let at: Vec<OsdId> = before.acting.iter().copied().flatten().collect();
    c.down(&[at[0]]);
    let now = c.pgs.get(pg).unwrap().clone();
    assert_eq!(now.primary, at[1]);
    let mut want = before.acting.clone();
    want[0] = None;
    assert_eq!(now.acting, want);
    check(&c, "one");
    // It is back, and has its shard again; the other goes on leading.
    c.boot(at[0]);
    assert_eq!(c.pgs.get(pg), Some(&now), "it may lack what the others have");
    want[0] = Some(at[0]);
    c.propose(&[wish(pg, &now, &want, at[1])], |_, _| {});
    let now = c.pgs.get(pg).unwrap().clone();
    assert_eq!((now.primary, &now.acting), (at[1], &before.acting));
    assert_eq!(c.map.primary_temp.get(&pg), Some(&at[1]), "the map says so");
    check(&c, "back");
    c.propose(&[wish(pg, &now, &want, at[0])], |_, _| {});
    assert!(!c.map.primary_temp.contains_key(&pg) && !c.map.pg_temp.contains_key(&pg));
    check(&c, "handed over");
}

/// Four data shards on six OSDs. With three down nothing is written, so all six have what was: whichever of them comes back
/// helps.
#[test]
fn below_k_nobody_leaves_by_itself() {
    let mut c = coded(4, 2);
    let (pg, before) = c.any_pg();
    let at: Vec<OsdId> = before.acting.iter().copied().flatten().collect();
    c.down(&[at[0], at[2], at[4]]);
    let now = c.pgs.get(pg).unwrap().clone();
    assert_eq!((&now.acting, now.primary), (&before.acting, at[1]));
    assert_eq!(now.in_sync.len(), 6);
    check(&c, "three are down");
    // Nor does the one that leads leave any out.
    let mut fewer = before.acting.clone();
    fewer[0] = None;
    let refused = c.pgs.refuses(&c.map, &wish(pg, &now, &fewer, at[1]));
    assert_eq!(refused, Some(Refusal::TooFew));
    // With the fourth there is enough again, and one may go: five are the least.
    c.boot(at[2]);
    let now = c.pgs.get(pg).unwrap().clone();
    assert_eq!(now.in_sync.len(), 5);
    assert!(
        [at[1], at[2], at[3], at[5]]
            .iter()
            .all(|o| now.in_sync.contains(o))
    );
    check(&c, "four are up");
}

#[test]
fn all_at_once_stay_all_in_sync() {
    let mut c = coded(2, 2);
    let (pg, before) = c.any_pg();
    c.down(&before.in_sync);
    assert_eq!(c.pgs.get(pg), Some(&before));
    check(&c, "all down");
    let last = before.acting[3].unwrap();
    c.boot(last);
    let now = c.pgs.get(pg).unwrap();
    assert_eq!((now.primary, &now.acting), (last, &before.acting));
    assert_eq!(now.interval, c.map.epoch);
    check(&c, "one up");
}

#[test]
fn positions_that_are_not_the_sets_are_refused() {
    let mut c = coded(2, 2);
    let (pg, now) = c.any_pg();
    let [Some(a), Some(b), Some(d), Some(e)] = now.acting[..] else {
        panic!()
    };
    let new = (0..6).find(|o| !now.in_sync.contains(o)).unwrap();
    let refuses = |c: &Cluster, acting: &[Option<OsdId>]| {
        let now = c.pgs.get(pg).unwrap();
        c.pgs.refuses(&c.map, &wish(pg, now, acting, a))
    };
    let (a_, b_, d_, e_, new_) = (Some(a), Some(b), Some(d), Some(e), Some(new));
    assert_eq!(refuses(&c, &[a_, b_, d_, e_]), None);
    assert_eq!(refuses(&c, &[a_, b_, d_, new_]), None, "it takes the shard over");
    assert_eq!(refuses(&c, &[a_, b_, d_]), None, "a hole");
    let misplaced = Some(Refusal::Misplaced);
    assert_eq!(
        refuses(&c, &[a_, b_, e_, d_]),
        misplaced,
        "two change their shards"
    );
    assert_eq!(refuses(&c, &[a_, b_, e_, None]), misplaced, "one does");
    assert_eq!(refuses(&c, &[a_, b_, d_, e_, new_]), misplaced, "a fifth shard");
    assert_eq!(refuses(&c, &[a_, b_, d_, None, e_]), misplaced);
    assert_eq!(
        refuses(&c, &[a_, b_, None, None]),
        Some(Refusal::TooFew),
        "three are the least"
    );
    // Who is not in the set has no shard, and who is has one.
    for (acting, set) in [
        (vec![a_, b_, d_, e_], vec![a, b, d]),
        (vec![a_, b_, d_, None], vec![a, b, d, e]),
        (vec![a_, b_, d_, None], vec![a, b, new]),
    ] {
        let odd = PgProposal {
            in_sync: set,
            ..wish(pg, &now, &acting, a)
        };
        assert_eq!(c.pgs.refuses(&c.map, &odd), misplaced, "{odd:?}");
    }
    let silent = PgProposal {
        acting: None,
        ..wish(pg, &now, &now.acting, a)
    };
    assert_eq!(c.pgs.refuses(&c.map, &silent), misplaced, "it has to say where");
    // What was refused before would move one that has joined elsewhere meanwhile.
    let old = now.clone();
    c.propose(&[wish(pg, &now, &[a_, b_, d_, new_], a)], |_, _| {});
    let now = c.pgs.get(pg).unwrap().clone();
    assert_eq!(now.acting, [a_, b_, d_, new_]);
    assert_eq!(c.map.pg_temp[&pg], [a, b, d, new]);
    let late = c.pgs.refuses(&c.map, &wish(pg, &old, &old.acting, a));
    assert_eq!(late, Some(Refusal::Moved));
    check(&c, "taken over");
}

#[test]
fn copies_say_nothing_of_positions() {
    let c = Cluster::of(lab(3, 2));
    let (pg, now) = c.any_pg();
    let odd = wish(pg, &now, &now.acting, now.primary);
    assert_eq!(c.pgs.refuses(&c.map, &odd), Some(Refusal::Misplaced));
}

/// One random event: an OSD goes or comes, is weighted, or primaries take in whom [`places::target`] names, leave somebody out, or hand
/// over.
fn happen(c: &mut Cluster, dice: &mut Dice) {
    let osd = dice.roll(6) as OsdId;
    match dice.roll(6) {
        0 | 1 if c.map.is_up(osd) => c.down(&[osd]),
        0..=2 if !c.map.is_up(osd) => c.boot(osd),
        3 => {
            let weight = [0, 0x8000, 0x10000][dice.roll(3)];
            c.change(|_, inc| inc.new_weight.extend([(osd, weight)]));
        }
        _ => {
            let mut wishes = Vec::new();
            for (pg, now) in c.pgs.iter() {
                let up = c.map.pg_to_up_acting(pg).up;
                let mut acting = now.acting.clone();
                let shard = dice.roll(acting.len());
                match dice.roll(3) {
                    0 => acting[shard] = None,
                    1 => acting[shard] = places::target(&acting, &places::listed(&up), acting.len())[shard],
                    _ => {}
                }
                let set: Vec<OsdId> = acting.iter().copied().flatten().collect();
                let wish = wish(pg, now, &acting, set[dice.roll(set.len())]);
                if c.pgs.refuses(&c.map, &wish).is_none() {
                    wishes.push(wish);
                }
            }
            c.propose(&wishes, |_, _| {});
        }
    }
}

#[test]
fn whatever_happens_the_rules_hold() {
    for seed in 0..8 {
        let mut dice = Dice(seed);
        let (k, m) = [(4, 2), (2, 1), (2, 2), (3, 3)][seed as usize % 4];
        let mut c = coded(k, m);
        let least = usize::from(k + u8::from(m > 1));
        for step in 0..60 {
            let before = c.pgs.clone();
            happen(&mut c, &mut dice);
            check(&c, &format!("seed {seed} step {step}"));
            for (pg, now) in c.pgs.iter() {
                let why = format!("seed {seed} step {step} pg {pg}: {:?} -> {now:?}", before.get(pg));
                let Some(old) = before.get(pg) else { continue };
                let standing: Vec<OsdId> = now.acting.iter().copied().flatten().collect();
                let set: BTreeSet<OsdId> = now.in_sync.iter().copied().collect();
                assert_eq!(standing.iter().copied().collect::<BTreeSet<_>>(), set, "{why}");
                assert_eq!(
                    (standing.len(), now.in_sync.len()),
                    (set.len(), set.len()),
                    "{why}"
                );
                for (at, o) in old.acting.iter().enumerate() {
                    let stays = o.is_some_and(|o| set.contains(&o));
                    assert!(!stays || now.acting[at] == *o, "{why}");
                }
                assert!(now.in_sync.len() >= old.in_sync.len().min(least), "{why}");
                assert!(old.in_sync.contains(&now.primary), "{why}");
                let alive = now.in_sync.iter().filter(|o| c.map.is_up(**o)).count();
                let leaves = old.in_sync.iter().any(|o| !set.contains(o));
                assert!(
                    !leaves || alive >= usize::from(k),
                    "{why}: the others have all objects"
                );
                let raw = now.to_bytes();
                assert_eq!(PgConfig::from_bytes(&raw).as_ref(), Ok(now), "{why}");
            }
        }
    }
}

#[test]
fn groups_of_shards_are_not_merged() {
    let mut c = coded(2, 2);
    let (id, pg_num) = c
        .map
        .pools
        .iter()
        .map(|(id, p)| (*id, p.pg_num))
        .max_by_key(|p| p.1)
        .unwrap();
    c.change(|map, inc| inc.pool_mut(map, id).unwrap().shrink_to(pg_num - 1));
    let source = PgId::new(id, pg_num - 1);
    let target = PgId::new(id, c.map.pool(id).unwrap().merge_target(pg_num - 1));
    let of = |pg| c.pgs.get(pg).unwrap().clone();
    let wish = PgMerge {
        source,
        target,
        expect_source: of(source),
        expect_target: of(target),
        source_head: Default::default(),
        target_head: Default::default(),
    };
    assert_eq!(c.pgs.refuses_merge(&c.map, &wish), Some(MergeRefusal::Shards));
}
