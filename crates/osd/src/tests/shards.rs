//! Slots of a pool of shards: an OSD has one for each shard that it has or is to have.

use super::*;
use crate::placement::Placement;
use crate::slot::Role;
use types::pool::POOL_TYPE_ERASURE;

/// Three OSDs that are up, and a pool of shards, or copies.
async fn rig(kind: u8, size: u8) -> Rig {
    let rig = Rig::bare(vec![0, 1, 2]).await;
    rig.mkfs("osd", 8);
    for id in 0..3 {
        let at = EntityAddrVec::one(addr(6800 + id as u16));
        let boot = OsdBoot {
            uuid: Uuid([8 + id as u8; 16]),
            client_addrs: at.clone(),
            cluster_addrs: at.clone(),
            hb_back_addrs: at.clone(),
            hb_front_addrs: at,
            ..rig.boot_of(id)
        };
        rig.cluster.osd_boot(&boot).await.unwrap();
    }
    rig.add_pool_of(PgPool {
        kind,
        size,
        min_size: size - 1,
        pg_num: 8,
        pgp_num: 8,
        ..PgPool::default()
    })
    .await;
    rig
}

/// CRUSH wants a PG here from now on; None: where it wanted it by itself.
async fn wanted(rig: &Rig, pg: PgId, up: Option<Vec<i32>>) {
    let wish = |state: &cluster::ClusterState| {
        let mut changes = Changes::none();
        let inc = changes.inc(state, Utime::ZERO);
        match &up {
            Some(up) => drop(inc.new_pg_upmap.insert(pg, up.clone())),
            None => assert!(inc.old_pg_upmap.insert(pg)),
        }
        (changes, ())
    };
    rig.cluster.commit(wish).await.unwrap();
}

/// A PG that the OSD leads, or does not, and who stands where.
fn pg_of(rig: &Rig, osd: i32, leads: bool) -> (PgId, Vec<i32>) {
    let state = rig.cluster.state();
    let mut pgs = state.pgs.iter().filter(|(_, c)| (c.primary == osd) == leads);
    let (pg, config) = pgs.next().unwrap();
    (pg, config.acting.iter().map(|o| o.unwrap()).collect())
}

/// The shards of a PG that an OSD has slots of, and the one that leads.
fn slots_of(rig: &Rig, osd: i32, pg: PgId) -> (Vec<i8>, Option<i8>) {
    let placement = Placement::new(osd, rig.cluster.state());
    let its = placement.groups().keys().filter(|slot| slot.pg == pg);
    let shards = its.map(|slot| slot.shard).collect();
    (shards, placement.lead(pg).map(|slot| slot.shard))
}

/// A PG in which the OSD has no part, and who stands where.
fn pg_without(rig: &Rig, osd: i32) -> (PgId, Vec<i32>) {
    let state = rig.cluster.state();
    let mut pgs = state.pgs.iter().filter(|(_, c)| !c.in_sync.contains(&osd));
    let (pg, config) = pgs.next().unwrap();
    (pg, config.acting.iter().map(|o| o.unwrap()).collect())
}

#[test]
fn an_osd_keeps_its_shard_wherever_crush_lists_it() {
    local(async {
        let rig = rig(POOL_TYPE_ERASURE, 3).await;
        let (pg, at) = pg_of(&rig, 0, true);
        let [a, b, c] = at[..] else { panic!("{at:?}") };
        wanted(&rig, pg, Some(vec![b, c, a])).await;
        assert_eq!(slots_of(&rig, a, pg), (vec![0], Some(0)));
        assert_eq!(slots_of(&rig, b, pg), (vec![1], None));
        assert_eq!(slots_of(&rig, c, pg), (vec![2], None));
        // Nothing is to move: what it has of another shard is nobody's.
        let placement = Placement::new(a, rig.cluster.state());
        let stray = |shard: &i8| placement.is_stray(SPgId { pg, shard: *shard });
        assert_eq!((-1..3).filter(stray).collect::<Vec<_>>(), [-1, 1, 2]);
        let group = placement.group(SPgId { pg, shard: 0 }).unwrap();
        assert!(group.is_whole() && group.up == [a, b, c], "{group:?}");
    });
}

#[test]
fn who_is_to_have_a_shard_has_a_slot_for_it_beside_who_has_it() {
    local(async {
        let rig = rig(POOL_TYPE_ERASURE, 2).await;
        let (pg, at) = pg_without(&rig, 0);
        let [a, b] = at[..] else { panic!("{at:?}") };
        // It is listed where somebody stays: it gets the other one's.
        wanted(&rig, pg, Some(vec![0, a])).await;
        assert_eq!(slots_of(&rig, a, pg), (vec![0], Some(0)));
        assert_eq!(slots_of(&rig, b, pg), (vec![1], None));
        assert_eq!(slots_of(&rig, 0, pg), (vec![1], None));
        let placement = Placement::new(b, rig.cluster.state());
        assert!(
            !placement.is_stray(SPgId { pg, shard: 0 }),
            "the PG is not in place"
        );
        let group = placement.group(SPgId { pg, shard: 1 }).unwrap();
        assert_eq!((&group.in_sync[..], &group.up[..]), (&[a, b][..], &[a, 0][..]));
        assert_eq!(group.acting, [Some(a), Some(b)]);
        assert_eq!(group.learners, [None, Some(0)], "a stays where it is");
    });
}

#[test]
fn the_code_is_that_of_the_pools_profile() {
    local(async {
        let rig = rig(POOL_TYPE_ERASURE, 3).await;
        let placement = Placement::new(0, rig.cluster.state());
        let coding = |p: &Placement| p.pool(POOL).unwrap().coding.clone();
        assert!(coding(&placement).is_none(), "nobody knows its profile");
        let wish = |state: &cluster::ClusterState| {
            let mut changes = Changes::none();
            let map = state.osdmap.clone();
            let inc = changes.inc(state, Utime::ZERO);
            let words = [("k", "2"), ("m", "1")].map(|(k, v)| (k.to_string(), v.to_string()));
            inc.new_erasure_code_profiles.insert("code".into(), words.into());
            let pool = inc.pool_mut(&map, POOL).unwrap();
            pool.erasure_code_profile = "code".into();
            pool.stripe_width = 8192;
            (changes, ())
        };
        rig.cluster.commit(wish).await.unwrap();
        let placement = placement.next(rig.cluster.state());
        let first = coding(&placement).unwrap();
        // It is made once.
        let next = placement.next(rig.cluster.state());
        assert!(Arc::ptr_eq(&first, &coding(&next).unwrap()));
        assert!(
            Placement::new(0, rig.cluster.state())
                .pool(POOL)
                .unwrap()
                .coding
                .is_some()
        );
    });
}

#[test]
fn nobody_is_no_member() {
    local(async {
        let rig = rig(POOL_TYPE_ERASURE, 3).await;
        let (pg, at) = pg_of(&rig, 0, true);
        let gone = at[2];
        let down = |state: &cluster::ClusterState| (cluster::boot::down(state, &[gone], Utime::ZERO), ());
        rig.cluster.commit(down).await.unwrap();
        let state = rig.cluster.state();
        let up = state.osdmap.pg_to_up_acting(pg).up;
        assert_eq!(up, [at[0], at[1], i32::MAX], "nobody");
        let placement = Placement::new(at[0], state);
        let group = placement.group(SPgId { pg, shard: 0 }).unwrap();
        assert_eq!(
            (&group.up, group.members()),
            (&at[..2].to_vec(), at[..2].to_vec())
        );
        assert!(!group.is_whole() && group.is_enough());
    });
}

#[test]
fn a_slot_comes_and_goes() {
    local(async {
        let rig = rig(POOL_TYPE_ERASURE, 2).await;
        let mut osd = rig.osd().await;
        let (pg, at) = pg_without(&rig, 0);
        let slots = |osd: &Osd| -> Vec<i8> {
            let of = osd.slots.iter().filter(|(slot, _)| slot.pg == pg);
            of.map(|(slot, s)| match &s.role {
                Role::Replica(r) => r.id().shard,
                Role::Primary(_) => panic!("{slot} leads"),
            })
            .collect()
        };
        assert!(slots(&osd).is_empty());
        wanted(&rig, pg, Some(vec![at[0], 0])).await;
        osd.on_cluster();
        assert_eq!(slots(&osd), [1]);
        assert_eq!(osd.leading(pg), None);
        wanted(&rig, pg, None).await;
        osd.on_cluster();
        assert!(slots(&osd).is_empty());
        close(osd);
    });
}

#[test]
fn copies_have_one_slot_without_a_shard() {
    local(async {
        let rig = rig(PgPool::default().kind, 3).await;
        let (pg, at) = pg_of(&rig, 0, true);
        let [a, b, c] = at[..] else { panic!("{at:?}") };
        wanted(&rig, pg, Some(vec![b, c, a])).await;
        assert_eq!(slots_of(&rig, a, pg), (vec![-1], Some(-1)));
        assert_eq!(slots_of(&rig, b, pg), (vec![-1], None));
        let osd = rig.osd().await;
        assert_eq!(osd.leading(pg), Some(SPgId::replicated(pg)));
        assert!(osd.slots.keys().all(|slot| slot.shard == -1));
        close(osd);
    });
}
