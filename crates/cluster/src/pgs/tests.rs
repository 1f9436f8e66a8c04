//! Settling and proposals, on a map of six OSDs.

use super::*;
use types::osdmap::{Incremental, OsdBoot, OsdMap, osd_state};
use types::pool::PgPool;

/// A map like `vectors/placement/osdmap/lab1.bin`: six OSDs, several pools; all up and in.
pub(super) fn lab(size: u8, min_size: u8) -> OsdMap {
    let raw = include_bytes!("../../../../vectors/placement/osdmap/lab1.bin");
    let mut map = OsdMap::from_bytes(&bytes::Bytes::from_static(raw)).unwrap();
    for pool in map.pools.values_mut() {
        (pool.size, pool.min_size) = (size, min_size);
    }
    map.pg_temp.clear();
    map
}

pub(super) struct Cluster {
    pub map: OsdMap,
    pub pgs: PgConfigs,
}

impl Cluster {
    fn new() -> Self {
        Self::with_copies(1, 1)
    }

    fn with_copies(size: u8, min_size: u8) -> Self {
        Self::of(lab(size, min_size))
    }

    pub fn of(map: OsdMap) -> Self {
        let mut c = Self {
            map,
            pgs: PgConfigs::default(),
        };
        // Any change after which all PGs are looked at.
        c.change(|_, inc| inc.new_weight.extend([(0, 0x10000)]));
        c
    }

    /// One epoch, as a commit makes it; gives the rows that were written.
    pub fn change(&mut self, edit: impl FnOnce(&OsdMap, &mut Incremental)) -> Vec<Write> {
        self.propose(&[], edit)
    }

    /// The same, with proposals that are not refused.
    pub fn propose(
        &mut self,
        proposals: &[PgProposal],
        edit: impl FnOnce(&OsdMap, &mut Incremental),
    ) -> Vec<Write> {
        let mut inc = Incremental::next_after(&self.map, types::Utime::ZERO);
        edit(&self.map, &mut inc);
        let mut next = self.map.clone();
        next.apply(&inc).unwrap();
        let mut ops = Vec::new();
        if self
            .pgs
            .settle(&self.map, &next, &mut inc, (proposals, &[]), &mut ops)
        {
            next = self.map.clone();
            next.apply(&inc).unwrap();
        }
        self.map = next;
        ops
    }

    fn homes(&self) -> BTreeMap<PgId, OsdId> {
        self.pgs.0.iter().map(|(pg, c)| (*pg, c.primary)).collect()
    }

    /// Clients are sent to the home of every PG whose home is up.
    fn check(&self) {
        for (pg, config) in &self.pgs.0 {
            if self.map.is_up(config.primary) {
                assert_eq!(self.map.acting_primary(*pg), Some(config.primary), "{pg}");
            }
        }
    }
}

#[test]
fn pgs_stay_where_their_data_is() {
    let mut c = Cluster::new();
    let homes = c.homes();
    assert_eq!(homes.len(), c.map.pgs().count());
    c.check();
    for id in [0, 3] {
        c.change(|_, inc| {
            let _ = inc.new_weight.insert(id, 0);
        });
        c.check();
    }
    assert_eq!(c.homes(), homes);
    assert!(!c.map.pg_temp.is_empty());
    c.change(|_, inc| inc.new_weight.extend([(0, 0x10000), (3, 0x10000)]));
    c.check();
    assert_eq!(c.homes(), homes);
    assert!(c.map.pg_temp.is_empty(), "back where CRUSH wants them");
}

#[test]
fn a_home_that_is_down_stays_the_home() {
    let mut c = Cluster::new();
    let homes = c.homes();
    let up = osd_state::UP;
    c.change(|_, inc| {
        let _ = inc.new_state.insert(1, up);
    });
    assert!(!c.map.is_up(1));
    c.change(|_, inc| {
        let _ = inc.new_weight.insert(1, 0);
    });
    assert_eq!(c.homes(), homes);
    assert!(homes.iter().any(|(_, o)| *o == 1));
    for (pg, _) in homes.iter().filter(|(_, o)| **o == 1) {
        assert!(
            (0..6).filter(|o| *o != 1).all(|o| !c.pgs.serves(*pg, o)),
            "nobody else serves {pg}"
        );
    }
}

#[test]
fn a_split_starts_at_its_ancestor() {
    let mut c = Cluster::new();
    let (id, before) = c.map.pools.iter().map(|(id, p)| (*id, p.clone())).next().unwrap();
    let old_num = before.pg_num;
    c.change(|map, inc| {
        let pool: &mut PgPool = inc.pool_mut(map, id).unwrap();
        (pool.pg_num, pool.pgp_num) = (old_num * 2, old_num * 2);
    });
    c.check();
    for seed in old_num..old_num * 2 {
        let ancestor = PgId::new(id, before.raw_to_pg(seed));
        assert_eq!(
            c.pgs.get(PgId::new(id, seed)).unwrap().primary,
            c.pgs.get(ancestor).unwrap().primary
        );
    }
}

#[test]
fn rows_come_back_and_go_with_the_pool() {
    let mut c = Cluster {
        map: lab(1, 1),
        pgs: PgConfigs::default(),
    };
    let mut rows = BTreeMap::new();
    let mut keep = |ops: Vec<Write>| {
        for op in ops {
            match op {
                Write::Put { key, value, .. } => drop(rows.insert(key, value)),
                Write::Delete { key } => drop(rows.remove(&key)),
            }
        }
        let mut back = PgConfigs::default();
        for (key, value) in &rows {
            back.take_row(key, Some(value)).unwrap();
        }
        back
    };
    let ops = c.change(|_, inc| inc.new_weight.extend([(0, 0x10000)]));
    assert_eq!(keep(ops), c.pgs);
    let id = *c.map.pools.keys().next().unwrap();
    let ops = c.change(|_, inc| {
        let _ = inc.old_pools.insert(id);
    });
    assert_eq!(keep(ops), c.pgs);
    assert!(c.pgs.0.keys().all(|pg| pg.pool != id));
}

// --- copies ---------------------------------------------------------------------------------------------------

impl Cluster {
    pub fn down(&mut self, osds: &[OsdId]) {
        self.change(|map, inc| osds.iter().for_each(|o| inc.mark_down(map, *o)));
    }

    pub fn boot(&mut self, osd: OsdId) {
        let slot = self.map.osd(osd).unwrap().clone();
        let boot = OsdBoot {
            client_addrs: slot.client_addrs.clone(),
            cluster_addrs: slot.cluster_addrs.clone(),
            hb_back_addrs: slot.hb_back_addrs.clone(),
            hb_front_addrs: slot.hb_front_addrs.clone(),
            features: slot.xinfo.features,
        };
        self.change(|map, inc| inc.boot_osd(map, osd, &boot));
    }

    pub fn any_pg(&self) -> (PgId, PgConfig) {
        let (pg, config) = self.pgs.iter().next().unwrap();
        (pg, config.clone())
    }
}

fn proposal(pg: PgId, expect: &PgConfig, in_sync: &[OsdId]) -> PgProposal {
    PgProposal {
        pg,
        expect: expect.clone(),
        in_sync: in_sync.to_vec(),
        primary: in_sync.first().copied().unwrap_or(-1),
        acting: None,
    }
}

#[test]
fn a_new_pg_starts_with_all_that_are_up() {
    let c = Cluster::with_copies(3, 2);
    for (pg, config) in c.pgs.iter() {
        assert_eq!(config.in_sync, c.map.pg_to_up_acting(pg).up, "{pg}");
        assert_eq!(config.in_sync.len(), 3);
        assert_eq!(config.acting, acting::in_order(&config.in_sync));
    }
    assert!(c.map.pg_temp.is_empty());
}

#[test]
fn who_goes_down_leaves_and_another_in_sync_leads() {
    let mut c = Cluster::with_copies(3, 2);
    let (pg, before) = c.any_pg();
    let [a, b, d] = before.in_sync[..] else { panic!() };
    c.down(&[a]);
    let now = c.pgs.get(pg).unwrap().clone();
    assert_eq!(
        (&now.in_sync[..], now.primary, now.interval),
        (&[b, d][..], b, c.map.epoch)
    );
    assert_eq!(now.acting, [None, Some(b), Some(d)]);
    // The next one stays: two are the least.
    c.down(&[b]);
    let now = c.pgs.get(pg).unwrap().clone();
    assert_eq!((&now.in_sync[..], now.primary), (&[d, b][..], d));
    assert_eq!(
        now.acting,
        [None, Some(b), Some(d)],
        "another primary moves nobody"
    );
    c.down(&[d]);
    assert_eq!(c.pgs.get(pg).unwrap(), &now, "nobody is there, nothing changes");
    c.boot(a);
    assert_eq!(c.pgs.get(pg).unwrap(), &now, "it may lack what the others have");
    c.boot(b);
    let led = c.pgs.get(pg).unwrap();
    assert_eq!((led.primary, led.interval), (b, c.map.epoch));
    c.check();
}

#[test]
fn all_at_once_stay_all_in_sync() {
    let mut c = Cluster::with_copies(3, 1);
    let (pg, before) = c.any_pg();
    c.down(&before.in_sync);
    assert_eq!(c.pgs.get(pg).unwrap(), &before);
    c.boot(before.primary);
    let now = c.pgs.get(pg).unwrap();
    assert_eq!(now.in_sync, [before.primary], "one is enough here");
    assert_eq!(now.interval, c.map.epoch, "it came back: a new term");
}

/// What another member was told of, or proposed by it, counts for an interval: a set that changes under the same primary is
/// the same one, everything else is not. A proposal of what is ends whatever was proposed before it.
#[test]
fn a_proposal_of_what_is_begins_a_new_interval() {
    let mut c = Cluster::with_copies(3, 2);
    let (pg, now) = c.any_pg();
    let [a, b, d] = now.in_sync[..] else { panic!() };
    let mut decided = |expect: &PgConfig, set: &[OsdId]| {
        c.propose(&[proposal(pg, expect, set)], |_, _| ());
        (c.pgs.get(pg).unwrap().clone(), c.map.epoch)
    };
    let (smaller, _) = decided(&now, &[a, b]);
    assert_eq!(
        (&smaller.in_sync[..], smaller.interval),
        (&[a, b][..], now.interval)
    );
    let (same, epoch) = decided(&smaller, &[a, b]);
    assert_eq!((&same.in_sync[..], same.interval), (&[a, b][..], epoch));
    let (larger, _) = decided(&same, &[a, b, d]);
    assert_eq!(larger.interval, same.interval);
    let (led, epoch) = decided(&larger, &[b, a, d]);
    assert_eq!((led.primary, led.interval), (b, epoch));
}

#[test]
fn proposals_are_refused_for_their_reason() {
    let mut c = Cluster::with_copies(3, 2);
    let (pg, now) = c.any_pg();
    let [a, b, d] = now.in_sync[..] else { panic!() };
    let e = (0..6).find(|o| !now.in_sync.contains(o)).unwrap();
    let refuses = |c: &Cluster, set: &[OsdId]| c.pgs.refuses(&c.map, &proposal(pg, &now, set));
    assert_eq!(refuses(&c, &[a, b]), None);
    assert_eq!(refuses(&c, &[a, b, d, e]), None);
    assert_eq!(refuses(&c, &[b, a, d]), None);
    assert_eq!(refuses(&c, &[a]), Some(Refusal::TooFew));
    assert_eq!(refuses(&c, &[]), Some(Refusal::Malformed));
    assert_eq!(refuses(&c, &[a, b, a]), Some(Refusal::Malformed));
    assert_eq!(refuses(&c, &[e, a, b]), Some(Refusal::NotInSync(e)));
    c.propose(&[proposal(pg, &now, &[a, b])], |_, _| {});
    assert_eq!(refuses(&c, &[a, b]), Some(Refusal::Moved));
    assert_eq!(c.map.pg_temp[&pg], [a, b]);
    let next = c.pgs.get(pg).unwrap().clone();
    assert_eq!(next.interval, now.interval, "the same primary's term");
    c.down(&[d]);
    let next = c.pgs.get(pg).unwrap().clone();
    assert_eq!(
        c.pgs.refuses(&c.map, &proposal(pg, &next, &[a, b, d])),
        Some(Refusal::Down(d))
    );
    c.propose(&[proposal(pg, &next, &[b, a])], |_, _| {});
    let led = c.pgs.get(pg).unwrap();
    assert_eq!((led.primary, led.interval), (b, c.map.epoch), "handed over");
    c.check();
}

/// Numbers that look drawn; the same for the same seed.
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// One random event. Gives the PGs whose primary asked for what it has.
fn happen(c: &mut Cluster, dice: &mut Dice) -> Vec<PgId> {
    let mut asserted = Vec::new();
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
                let mut set = now.in_sync.clone();
                match dice.roll(4) {
                    0 => drop(set.remove(dice.roll(set.len()))),
                    1 if !set.contains(&osd) => set.push(osd),
                    2 => set = c.map.pg_to_up_acting(pg).up,
                    _ => continue,
                }
                // A proposal of what is begins a new interval on purpose; it has a test of its own.
                if set == now.in_sync {
                    continue;
                }
                let wish = proposal(pg, now, &set);
                if c.pgs.refuses(&c.map, &wish).is_none() {
                    asserted.extend((set == now.in_sync).then_some(pg));
                    wishes.push(wish);
                }
            }
            c.propose(&wishes, |_, _| {});
        }
    }
    asserted
}

#[test]
fn whatever_happens_the_rules_hold() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let (size, min_size) = [(3, 2), (3, 1), (2, 2), (5, 3)][seed as usize % 4];
        let mut c = Cluster::with_copies(size, min_size);
        for step in 0..60 {
            let before = c.pgs.clone();
            let was_up: Vec<bool> = (0..6).map(|o| c.map.is_up(o)).collect();
            let asserted = happen(&mut c, &mut dice);
            c.check();
            for (pg, now) in c.pgs.iter() {
                let why = format!("seed {seed} step {step} pg {pg}: {:?} -> {now:?}", before.get(pg));
                let Some(old) = before.get(pg) else { continue };
                let distinct: std::collections::BTreeSet<_> = now.in_sync.iter().collect();
                assert_eq!(distinct.len(), now.in_sync.len(), "{why}");
                assert_eq!(now.in_sync[0], now.primary, "{why}");
                let mut standing: Vec<OsdId> = now.acting.iter().copied().flatten().collect();
                assert_eq!(standing.len(), distinct.len(), "{why}");
                assert!(distinct.iter().all(|o| standing.contains(o)), "{why}");
                standing.retain(|o| !distinct.contains(o));
                assert!(standing.is_empty(), "{why}");
                let most = usize::from(size).max(now.in_sync.len());
                assert!(now.acting.len() <= most, "{why}");
                for (at, o) in old.acting.iter().enumerate().take(size.into()) {
                    let stays = o.is_some_and(|o| distinct.contains(&o));
                    assert!(!stays || now.acting[at] == *o, "{why}");
                }
                assert!(
                    now.in_sync.len() >= old.in_sync.len().min(min_size.into()),
                    "{why}"
                );
                assert!(old.in_sync.contains(&now.primary), "{why}");
                let returned = c.map.is_up(now.primary) && !was_up[now.primary as usize];
                let new_term = now.primary != old.primary || returned || asserted.contains(&pg);
                assert_eq!(now.interval != old.interval, new_term, "{why}");
                assert!(!new_term || now.interval == c.map.epoch, "{why}");
                let someone = now.in_sync.iter().any(|o| c.map.is_up(*o));
                assert_eq!(c.map.is_up(now.primary), someone, "{why}");
            }
        }
    }
}

/// OSDs reported the present term's epoch.
#[test]
fn a_pg_keeps_the_epoch_that_it_was_made_in() {
    let mut c = Cluster::with_copies(3, 2);
    let (made, (pg, config)) = (c.map.epoch, c.any_pg());
    assert_eq!(config.created, made);
    c.down(&[config.primary]);
    let after = c.pgs.get(pg).unwrap().clone();
    assert!(after.interval > made && after.created == made);
    c.boot(config.primary);
    let now = c.pgs.get(pg).unwrap().clone();
    let mut other = now.in_sync.clone();
    other.reverse();
    let wish = proposal(pg, &now, &other);
    assert_eq!(c.pgs.refuses(&c.map, &wish), None);
    c.propose(&[wish], |_, _| ());
    let after = c.pgs.get(pg).unwrap().clone();
    assert_eq!((after.primary, after.created), (other[0], made));
    assert_eq!(PgConfig::from_bytes(&after.to_bytes()), Ok(after.clone()));
    // What earlier versions have written does not say, nor in which positions they are.
    for version in [1, 2] {
        let mut w = Writer::new();
        w.envelope(version, 1, |w| {
            w.put(&after.interval);
            w.put(&after.in_sync);
            w.put(&after.primary);
            if version == 2 {
                w.put(&after.created);
            }
        });
        let was = PgConfig {
            created: if version == 2 { made } else { 0 },
            acting: acting::in_order(&after.in_sync),
            ..after.clone()
        };
        assert_eq!(PgConfig::from_bytes(&w.finish()), Ok(was));
    }
}

/// An earlier version's row is that of positions in order: nothing is written anew because of them, and a proposal of who
/// knows none holds.
#[test]
fn positions_are_no_part_of_what_is_expected() {
    let mut c = Cluster::with_copies(3, 2);
    let (pg, now) = c.any_pg();
    let [a, b, d] = now.in_sync[..] else { panic!() };
    let mut unaware = proposal(pg, &now, &[a, b]);
    unaware.expect.acting.clear();
    assert_eq!(c.pgs.refuses(&c.map, &unaware), None);
    c.propose(&[unaware], |_, _| {});
    let positions = |c: &Cluster| c.pgs.get(pg).unwrap().acting.clone();
    assert_eq!(positions(&c), [Some(a), Some(b), None]);
    // Who is to have it for a while, and whose place it is.
    let e = (0..6).find(|o| !now.in_sync.contains(o)).unwrap();
    for (set, want) in [
        (vec![a, b, e], vec![a, b, e]),
        (vec![a, b, e, d], vec![a, b, e, d]),
        (vec![a, b, d], vec![a, b, d]),
    ] {
        let now = c.pgs.get(pg).unwrap().clone();
        c.propose(&[proposal(pg, &now, &set)], |_, _| {});
        assert_eq!(positions(&c), acting::in_order(&want));
    }
}

/// A merge as its primary proposes it.
fn merge_of(c: &Cluster, id: types::PoolId) -> PgMerge {
    let pool = c.map.pool(id).unwrap();
    let source = PgId::new(id, pool.pg_num - 1);
    let target = PgId::new(id, pool.merge_target(source.seed));
    PgMerge {
        source,
        target,
        expect_source: c.pgs.get(source).unwrap().clone(),
        expect_target: c.pgs.get(target).unwrap().clone(),
        source_head: types::EVersion::new(3, 7),
        target_head: types::EVersion::new(3, 9),
    }
}

#[test]
fn the_last_group_becomes_part_of_another_when_both_are_held_alike() {
    let mut c = Cluster::with_copies(1, 1);
    let id = *c.map.pools.iter().find(|(_, p)| p.pg_num >= 4).unwrap().0;
    let pg_num = c.map.pool(id).unwrap().pg_num;
    let wish = merge_of(&c, id);
    assert_eq!(c.pgs.refuses_merge(&c.map, &wish), Some(MergeRefusal::NotWanted));
    c.change(|map, inc| {
        inc.pool_mut(map, id).unwrap().shrink_to(pg_num - 2);
        share_places(map, id, pg_num - 2, inc);
    });
    // Its data is where it was: the map sends clients there.
    let wish = merge_of(&c, id);
    let (s, t) = (wish.expect_source.clone(), wish.expect_target.clone());
    assert_eq!(
        c.map.pg_to_up_acting(wish.source).up,
        c.map.pg_to_up_acting(wish.target).up
    );
    if s.in_sync != t.in_sync {
        assert_eq!(c.pgs.refuses_merge(&c.map, &wish), Some(MergeRefusal::Apart));
        let both = [t.in_sync[0], s.in_sync[0]];
        c.propose(
            &[proposal(wish.source, &s, &[s.in_sync[0], t.in_sync[0]])],
            |_, _| {},
        );
        let now = c.pgs.get(wish.source).unwrap().clone();
        c.propose(&[proposal(wish.source, &now, &both)], |_, _| {});
        let now = c.pgs.get(wish.source).unwrap().clone();
        c.propose(&[proposal(wish.source, &now, &both[..1])], |_, _| {});
        assert_eq!(c.pgs.refuses_merge(&c.map, &wish), Some(MergeRefusal::Moved));
    }
    let wish = merge_of(&c, id);
    assert_eq!(c.pgs.refuses_merge(&c.map, &wish), None);
    let mut inc = Incremental::next_after(&c.map, types::Utime::ZERO);
    wish.change(&c.map, &mut inc);
    let mut next = c.map.clone();
    next.apply(&inc).unwrap();
    let mut ops = Vec::new();
    c.pgs.settle(
        &c.map,
        &next,
        &mut inc,
        (&[], std::slice::from_ref(&wish)),
        &mut ops,
    );
    assert_eq!(next.pool(id).unwrap().pg_num, pg_num - 1);
    assert!(c.pgs.get(wish.source).is_none());
    let target = c.pgs.get(wish.target).unwrap();
    let joined = target.life.joined.as_ref().unwrap();
    assert_eq!((target.interval, joined.epoch), (next.epoch, next.epoch));
    assert_eq!((joined.source, &joined.members), (pg_num - 1, &target.in_sync));
    // What was written is read again.
    let raw = target.to_bytes();
    assert_eq!(&PgConfig::from_bytes(&raw).unwrap(), target);
    // Refused where it was made already.
    c.map = next;
    assert_eq!(c.pgs.refuses_merge(&c.map, &wish), Some(MergeRefusal::NotWanted));
}
