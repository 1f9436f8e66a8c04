//! Health of file systems.

use crate::commands::checks::check::{Check, Severity, check, warn};
use crate::commands::context::Context;
use crate::commands::views::file_systems::{Standing, followers, standbys_wanted};

fn count(n: usize, one: &str, many: &str) -> String {
    match n {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    }
}

pub fn file_systems(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let map = &*ctx.state.fsmap;
    let all: Vec<(&str, Standing, i32)> = map
        .filesystems
        .iter()
        .map(|fs| {
            let m = &fs.mds_map;
            (m.fs_name.as_str(), Standing::of(m), m.max_mds)
        })
        .collect();
    let standbys = map.standby_daemons.len();
    let lines = |text: fn(&str, &Standing, i32) -> Option<String>| -> Vec<String> {
        all.iter()
            .filter_map(|(name, s, max)| text(name, s, *max))
            .collect()
    };
    let degraded = lines(|name, s, _| s.degraded.then(|| format!("fs {name} is degraded")));
    if !degraded.is_empty() {
        let n = degraded.len();
        let text = count(n, "filesystem is degraded", "filesystems are degraded");
        found.push(warn("FS_DEGRADED", text, n as u64, degraded));
    }
    let failed = lines(|name, s, _| (s.failed > 0).then(|| format!("fs {name} has {} failed mds", s.failed)));
    if !failed.is_empty() && standbys == 0 {
        let n = failed.len();
        let text = count(
            n,
            "filesystem has a failed mds daemon",
            "filesystems have a failed mds daemon",
        );
        found.push(warn("FS_WITH_FAILED_MDS", text, n as u64, failed));
    }
    offline_or_few(&all, found);
    damage(ctx, found);
    let wanted = standbys_wanted(map);
    // Who follows a rank is there for it, too.
    let standbys = standbys + followers(map).count();
    if standbys < wanted {
        let more = wanted - standbys;
        found.push(warn(
            "MDS_INSUFFICIENT_STANDBY",
            "insufficient standby MDS daemons available".into(),
            1,
            vec![format!("have {standbys}; want {more} more")],
        ));
    }
}

fn offline_or_few(all: &[(&str, Standing, i32)], found: &mut Vec<Check>) {
    let lines = |text: fn(&str, &Standing, i32) -> Option<String>| -> Vec<String> {
        all.iter()
            .filter_map(|(name, s, max)| text(name, s, *max))
            .collect()
    };
    let offline = lines(|name, s, _| {
        (s.up == 0 && !s.stopped).then(|| format!("fs {name} is offline because no MDS is active for it."))
    });
    if !offline.is_empty() {
        let n = offline.len();
        let text = count(n, "filesystem is offline", "filesystems are offline");
        found.push(check("MDS_ALL_DOWN", Severity::Err, text, n as u64, offline));
    }
    let fewer = lines(|name, s, max| {
        let wanted = max.max(0) as usize;
        (s.ranks < wanted).then(|| format!("fs {name} has {} MDS online, but wants {wanted}", s.ranks))
    });
    if !fewer.is_empty() {
        let n = fewer.len();
        let text = count(
            n,
            "filesystem is online with fewer MDS than max_mds",
            "filesystems are online with fewer MDS than max_mds",
        );
        found.push(warn("MDS_UP_LESS_THAN_MAX", text, n as u64, fewer));
    }
}

fn damage(ctx: &Context<'_>, found: &mut Vec<Check>) {
    let mut detail = Vec::new();
    for fs in &ctx.state.fsmap.filesystems {
        let ranks = fs.mds_map.damaged.iter();
        detail.extend(ranks.map(|rank| format!("fs {} mds.{rank} is damaged", fs.mds_map.fs_name)));
    }
    if !detail.is_empty() {
        let n = detail.len();
        let text = count(n, "mds daemon damaged", "mds daemons damaged");
        found.push(check("MDS_DAMAGE", Severity::Err, text, n as u64, detail));
    }
}
