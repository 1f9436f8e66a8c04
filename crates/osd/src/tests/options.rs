//! What an OSD says that it goes by is what it goes by.

use super::*;
use cluster::Change;

async fn set(rig: &Rig, who: &str, name: &str, value: &str) {
    let change = Change::ConfigSet {
        who: who.into(),
        name: name.into(),
        value: value.into(),
    };
    let decide = move |_: &cluster::ClusterState| (Changes::one(change.clone()), ());
    rig.cluster.commit(decide).await.unwrap();
}

/// `config show` told two constants, entries with a mask (`osd/host:vm`) never reached an OSD, and the profile only with the
/// next epoch.
#[test]
fn an_osd_tells_the_options_that_it_goes_by() {
    local(async {
        let rig = Rig::bare(vec![0]).await;
        rig.mkfs("osd", 8);
        let boot = OsdBoot {
            metadata: BTreeMap::from([("hostname".to_string(), "vm".to_string())]),
            device_class: "ssd".into(),
            ..rig.boot_of(0)
        };
        rig.cluster.osd_boot(&boot).await.unwrap();
        let osd = rig.osd().await;
        let check = |name: &str, want: &str| assert_eq!(osd.options()[name], want, "{name}");
        check("osd_max_write_size", "90");
        check("osd_max_object_size", "134217728");
        check("osd_hung_disk_timeout", "3");
        check("osd_recovery_profile", "normal");
        check("osd_max_scrubs", "1");
        check("ms_cluster_mode", "crc");

        set(&rig, "osd/host:vm", "osd_hung_disk_timeout", "9").await;
        set(&rig, "osd.0", "osd_hung_disk_timeout", "7").await;
        set(&rig, "global/class:ssd", "osd_recovery_profile", "urgent").await;
        set(&rig, "osd/class:hdd", "osd_max_scrubs", "5").await;
        set(&rig, "osd/host:other", "osd_scrub_begin_hour", "5").await;
        set(&rig, "osd", "osd_scrub_min_interval", "60").await;
        check("osd_hung_disk_timeout", "9");
        assert_eq!(osd.hung_after(), Duration::from_secs(9));
        check("osd_recovery_profile", "urgent");
        check("osd_max_scrubs", "1");
        check("osd_scrub_begin_hour", "0");
        check("osd_scrub_min_interval", "60.000000");
        // What nothing here acts by is not told.
        set(&rig, "osd", "osd_op_queue", "wpq").await;
        assert!(!osd.options().contains_key("osd_op_queue"));
        close(osd);
    });
}

/// What one OSD was told counts for more than what is set for all, until it is taken back.
#[test]
fn what_an_osd_is_told_it_goes_by() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let mut osd = rig.osd().await;
        set(&rig, "osd", "osd_hung_disk_timeout", "9").await;
        let tell = |osd: &mut Osd, name: &str, value: &str| {
            osd.told_options.insert(name.into(), value.into());
            osd.options()[name].clone()
        };
        assert_eq!(tell(&mut osd, "osd_hung_disk_timeout", "20"), "20");
        assert_eq!(osd.hung_after(), Duration::from_secs(20));
        assert_eq!(tell(&mut osd, "osd_max_scrubs", "7"), "7");
        assert_eq!(tell(&mut osd, "osd_recovery_profile", "urgent"), "urgent");
        assert_eq!(tell(&mut osd, "osd_op_history_size", "3"), "3");
        osd.ops.past().limits_changed();
        osd.remember_ops();
        assert_eq!(osd.ops.past().limits().size, 3);
        osd.told_options.remove("osd_hung_disk_timeout");
        assert_eq!(osd.hung_after(), Duration::from_secs(9));
        close(osd);
    });
}

/// Everything that is told is an option that `config set` knows.
#[test]
fn all_that_is_told_has_a_name_of_ceph_s() {
    local(async {
        let rig = Rig::new().await;
        rig.boot().await;
        let osd = rig.osd().await;
        for name in osd.options().keys() {
            let own = ["osd_recovery_profile"].contains(name);
            assert!(own || cluster::options::find(name).is_some(), "{name}");
        }
        close(osd);
    });
}
