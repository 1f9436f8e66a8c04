//! When an OSD serves, and what becomes of answers when it does not.

use super::*;
use cluster::Change;

const LONG: Duration = Duration::from_secs(600);

/// Until its boot is committed the map may name its earlier run, whose place another one takes with the boot's first transaction.
#[test]
fn an_osd_serves_with_a_lease_and_a_boot_that_is_committed() {
    local(async {
        let rig = Rig::new().await;
        let mut osd = rig.opened();
        assert!(!osd.serving());
        rig.lease(&mut osd, LONG).await;
        assert!(!osd.serving(), "nobody knows of it");
        rig.boot().await;
        let epoch = rig.cluster.osdmap().epoch;
        osd.on_state_reply(StateReply::Booted(Ok(epoch))).unwrap();
        assert!(osd.serving());
        close(osd);
    });
}

/// From the moment at which it asks another may be made primary, before this one hears of it.
#[test]
fn who_has_asked_to_be_marked_down_serves_no_more() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        assert!(osd.serving());
        let wish = |state: &cluster::ClusterState| {
            let up_from = state.osdmap.osd(0).map(|o| o.info.up_from);
            (Changes::one(Change::AskDown { id: 0, up_from }), ())
        };
        rig.cluster.commit(wish).await.unwrap();
        osd.heed_operator();
        assert!(rig.cluster.osdmap().is_up(0), "not marked down yet");
        assert!(!osd.serving());
        close(osd);
    });
}

/// Another may have been made primary meanwhile: an answer leaves when it is sure that nobody was, or never.
#[test]
fn answers_wait_for_the_lease() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        rig.give(&mut osd, 1, 0, write(0, content(0)));
        // Taken while it serves; over before anybody looks at the disk.
        rig.lease(&mut osd, Duration::from_secs(1)).await;
        while osd.serving() {
            io::task::sleep(Duration::from_millis(20)).await;
        }
        let queued = osd.store.engine.queued();
        osd.store.engine.wait(queued).unwrap();
        osd.on_store();
        assert_eq!(osd.held.len(), 1, "durable, and nobody is told");
        rig.lease(&mut osd, LONG).await;
        osd.release_held();
        assert_eq!(osd.held.len(), 0);
        close(osd);
    });
}
