//! Slots of a pool of shards: an OSD has one for each shard that it has or is to have.

use super::*;
use crate::placement::Placement;
use crate::slot::Role;
use types::pool::POOL_TYPE_ERASURE;

/// Three OSDs that are up, and a pool of three shards, or copies.
async fn rig(kind: u8) -> Rig {
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
        size: 3,
        min_size: 2,
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

#[test]
fn an_osd_that_changes_its_place_has_two_shards_of_a_pg() {
    local(async {
        let rig = rig(POOL_TYPE_ERASURE).await;
        let (pg, at) = pg_of(&rig, 0, true);
        let [a, b, c] = at[..] else { panic!("{at:?}") };
        assert_eq!(slots_of(&rig, a, pg), (vec![0], Some(0)));
        assert_eq!(slots_of(&rig, b, pg), (vec![1], None));
        wanted(&rig, pg, Some(vec![b, c, a])).await;
        assert_eq!(slots_of(&rig, a, pg), (vec![0, 2], Some(0)));
        assert_eq!(slots_of(&rig, b, pg), (vec![0, 1], None));
        assert_eq!(slots_of(&rig, c, pg), (vec![1, 2], None));
        let placement = Placement::new(a, rig.cluster.state());
        for shard in [-1, 0, 1, 2] {
            assert!(
                !placement.is_stray(SPgId { pg, shard }),
                "the PG is not in place: {shard}"
            );
        }
        wanted(&rig, pg, None).await;
        let placement = Placement::new(a, rig.cluster.state());
        let stray = |shard: &i8| placement.is_stray(SPgId { pg, shard: *shard });
        assert_eq!((0..3).filter(stray).collect::<Vec<_>>(), [1, 2]);
    });
}

#[test]
fn a_slot_comes_and_goes_and_another_one_of_its_pg_stays() {
    local(async {
        let rig = rig(POOL_TYPE_ERASURE).await;
        let mut osd = rig.osd().await;
        let (pg, at) = pg_of(&rig, 0, false);
        let has = at.iter().position(|o| *o == 0).unwrap() as i8;
        let slots = |osd: &Osd| -> Vec<i8> {
            let of = osd.slots.iter().filter(|(slot, _)| slot.pg == pg);
            of.map(|(slot, s)| match &s.role {
                Role::Replica(r) => r.id().shard,
                Role::Primary(_) => panic!("{slot} leads"),
            })
            .collect()
        };
        assert_eq!(slots(&osd), [has]);
        let mut turned = at.clone();
        turned.rotate_left(1);
        wanted(&rig, pg, Some(turned)).await;
        osd.on_cluster();
        let gets = (has + 2) % 3;
        assert_eq!(slots(&osd), [has.min(gets), has.max(gets)]);
        assert_eq!(osd.leading(pg), None);
        wanted(&rig, pg, None).await;
        osd.on_cluster();
        assert_eq!(slots(&osd), [has]);
        close(osd);
    });
}

#[test]
fn copies_have_one_slot_without_a_shard() {
    local(async {
        let rig = rig(PgPool::default().kind).await;
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
