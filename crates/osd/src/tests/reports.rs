//! What an OSD reports of its placement groups.

use super::*;
use std::collections::BTreeSet;

/// An epoch in which the pool has `size` copies.
async fn resize(rig: &Rig, osd: &mut Osd, size: u8) -> Epoch {
    let edit = move |state: &cluster::ClusterState| {
        let mut changes = Changes::none();
        let mut pool = state.osdmap.pool(POOL).unwrap().clone();
        pool.size = size;
        changes.inc(state, Utime::ZERO).new_pools.insert(POOL, pool);
        (changes, ())
    };
    rig.cluster.commit(edit).await.unwrap();
    osd.on_cluster();
    let queued = osd.store.engine.queued();
    osd.store.engine.wait(queued).unwrap();
    osd.on_store();
    rig.cluster.osdmap().epoch
}

/// `created` was the epoch of the present primary's term, `last_epoch_clean` that of now, clean or not.
#[test]
fn when_a_pg_was_made_and_last_clean() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let made = rig.cluster.osdmap().epoch;
        let mut osd = rig.osd().await;
        let told = |osd: &Osd| {
            let pgs = osd.report().pgs;
            let all: BTreeSet<_> = pgs.values().map(|s| (s.created, s.last_epoch_clean)).collect();
            all.into_iter().collect::<Vec<_>>()
        };
        let clean = resize(&rig, &mut osd, 1).await;
        assert!(clean > made);
        assert_eq!(told(&osd), [(made, clean)]);
        resize(&rig, &mut osd, 2).await;
        assert_eq!(told(&osd), [(made, clean)]);
        resize(&rig, &mut osd, 3).await;
        assert_eq!(told(&osd), [(made, clean)]);
        let again = resize(&rig, &mut osd, 1).await;
        assert_eq!(told(&osd), [(made, again)]);
        close(osd);
    });
}
