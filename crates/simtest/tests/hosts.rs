//! What a cluster asks of its state grows as the cluster does, not faster (docs/internals/growth.md), and a lost rack is served.

#![allow(clippy::unwrap_used)]

use simtest::hosts::{Window, run};

fn asked(osds: usize) -> Vec<Window> {
    io_sim::run(1, None, |sim| run(sim, osds)).unwrap().unwrap()
}

fn of<'a>(windows: &'a [Window], name: &str) -> &'a Window {
    windows.iter().find(|w| w.name == name).unwrap()
}

#[test]
fn a_cluster_at_rest_writes_its_reports_and_nothing_else() {
    for osds in [3, 12] {
        let windows = asked(osds);
        let idle = of(&windows, "idle");
        // Each OSD reports every 3 s.
        let reports = (osds as f64 * idle.virtual_s / 3.0).round() as u64;
        let written = idle.counts.transactions;
        assert!(written.abs_diff(reports) <= osds as u64, "{written} of {reports}");
        assert_eq!((idle.counts.reads, idle.counts.leases), (0, 0));
        let lost = of(&windows, "rack-seen").virtual_s + of(&windows, "rack-served").virtual_s;
        assert!(lost < 10.0, "{lost} s until every group is served");
    }
}
