//! A pool whose first copy lies on one host, the others elsewhere: for what one machine writes and reads most.
//!
//! Clients compute placement from the CRUSH map, so this is a rule: take HOST, one OSD, emit; take all other hosts, one
//! OSD each for the rest, emit. CRUSH has no "all but": the second root is a bucket of its own, [`far_name`], in which every
//! other host lies a second time. The first OSD leads, so the writer's own host does.
//!
//! Invariants: what is below a far root is what lies beside its host under the host's own root; the leading monitor mends
//! that when hosts come, go or move ([`mend`]). Weights need no care: a bucket's sum follows to all its places.
//!
//! Not here: more than one failure domain above the host (racks): the other copies lie on any other hosts.

use crate::policies::pool_change::pool_mut;
use crate::policies::pool_change::refuse;
use crate::policies::pool_change::{Done, PoolError, Result};
use crush::{CrushMap, Rule, RuleKind, Step, step_op};
use std::collections::BTreeSet;
use types::Errno;
use types::osdmap::{Incremental, OsdMap};

const FAR: &str = "far-from-";

/// The root that holds all hosts but this one.
pub fn far_name(host: &str) -> String {
    format!("{FAR}{host}")
}

pub fn rule_name(host: &str) -> String {
    format!("near-{host}")
}

/// True for a bucket in which hosts lie only a second time.
pub fn is_far(crush: &CrushMap, bucket: i32) -> bool {
    !crush.is_shadow(bucket)
        && crush.item_name(bucket).is_some_and(|n| n.starts_with(FAR))
        && crush.item_type(bucket) == crush.type_id("root")
}

fn failed(e: impl std::fmt::Display) -> PoolError {
    PoolError {
        errno: Errno::EINVAL,
        text: e.to_string(),
    }
}

/// The hosts under the same root as `host`, without it.
fn beside(crush: &CrushMap, host: i32) -> BTreeSet<i32> {
    let mut root = host;
    // No deeper than there are buckets, even in a client's map with a cycle.
    for _ in crush.iter_buckets() {
        let above =
            |b: &&crush::Bucket| b.items.contains(&root) && !crush.is_shadow(b.id) && !is_far(crush, b.id);
        match crush.iter_buckets().find(above) {
            Some(up) => root = up.id,
            None => break,
        }
    }
    let kind = crush.type_id("host");
    let mut found = BTreeSet::new();
    let (mut todo, mut seen) = (vec![root], BTreeSet::new());
    while let Some(id) = todo.pop() {
        let Some(bucket) = crush.bucket(id).filter(|_| seen.insert(id)) else {
            continue;
        };
        match crush.item_type(id) == kind {
            true => drop(found.insert(id)),
            false => todo.extend(bucket.items.iter().filter(|i| **i < 0)),
        }
    }
    found.remove(&host);
    found
}

/// Lets a pool keep its first copies on `host`.
pub fn set(map: &OsdMap, pool: &str, host: &str, inc: &mut Incremental) -> Result<Done> {
    let Some(id) = map.pool_by_name(pool) else {
        return refuse(Errno::ENOENT, format!("unrecognized pool '{pool}'"));
    };
    let kind = map.crush.type_id("host");
    let Some(bucket) = map
        .crush
        .item_id(host)
        .filter(|b| *b < 0 && map.crush.item_type(*b) == kind)
    else {
        return refuse(Errno::ENOENT, format!("there is no host {host}: ceph osd tree"));
    };
    let size = map.pool(id).map_or(1, |p| usize::from(p.size));
    let others = beside(&map.crush, bucket).len();
    if others + 1 < size {
        return refuse(
            Errno::EINVAL,
            format!("pool '{pool}' has {size} copies, and there are {others} hosts beside {host}"),
        );
    }
    let said = format!("pool '{pool}' keeps its first copies on {host}, the others on other hosts");
    let rule = match map.crush.rule_id(&rule_name(host)) {
        Some(rule) => u32::try_from(rule).unwrap_or(u32::MAX),
        None => make(inc.crush_mut(map), host, bucket)?,
    };
    let Ok(rule) = u8::try_from(rule) else {
        return refuse(
            Errno::EINVAL,
            format!("rule {rule} has too high a number for a pool"),
        );
    };
    if map.pool(id).is_some_and(|p| p.crush_rule == rule) {
        return Ok(Done::Already(said));
    }
    pool_mut(map, inc, id)?.crush_rule = rule;
    Ok(Done::Changed(said))
}

/// Makes the far root and the rule; the rule's number.
fn make(crush: &mut CrushMap, host: &str, bucket: i32) -> Result<u32> {
    let far = far_name(host);
    if crush.item_id(&far).is_none() {
        crush.add_bucket(&far, "root").map_err(failed)?;
    }
    fill(crush, host, bucket)?;
    let far = crush.item_id(&far).unwrap_or(bucket);
    let domain = crush.type_id("host").unwrap_or(1);
    let emit = Step::new(step_op::EMIT, 0, 0);
    let rule = Rule {
        kind: RuleKind::Replicated as u8,
        min_size: 1,
        max_size: 10,
        steps: vec![
            Step::new(step_op::TAKE, bucket, 0),
            Step::new(step_op::CHOOSE_FIRSTN, 1, 0),
            emit,
            Step::new(step_op::TAKE, far, 0),
            Step::new(step_op::CHOOSELEAF_FIRSTN, -1, domain),
            emit,
        ],
    };
    crush.add_rule(&rule_name(host), rule).map_err(failed)
}

/// Puts what is missing under a far root and takes out what is not to be there. True if anything changed.
fn fill(crush: &mut CrushMap, host: &str, bucket: i32) -> Result<bool> {
    let far = far_name(host);
    let have: BTreeSet<i32> = crush
        .item_id(&far)
        .and_then(|id| crush.bucket(id))
        .map_or_else(BTreeSet::new, |b| b.items.iter().copied().collect());
    let want = beside(crush, bucket);
    let name = |crush: &CrushMap, id: i32| crush.item_name(id).unwrap_or_default().to_string();
    for id in want.difference(&have) {
        let item = name(crush, *id);
        crush.link_item(&item, &[("root", &far)]).map_err(failed)?;
    }
    for id in have.difference(&want) {
        let item = name(crush, *id);
        crush.unlink_item(&item, &far).map_err(failed)?;
    }
    Ok(want != have)
}

/// The CRUSH map with its far roots put right, where they are not.
pub fn mend(crush: &CrushMap) -> Option<CrushMap> {
    let far = crush.iter_buckets().filter(|b| is_far(crush, b.id));
    let hosts: Vec<(String, i32)> = far
        .filter_map(|b| {
            let host = crush.item_name(b.id)?.strip_prefix(FAR)?.to_string();
            let id = crush.item_id(&host)?;
            Some((host, id))
        })
        .collect();
    // Asked once a second, and hardly ever there is one.
    if hosts.is_empty() {
        return None;
    }
    let mut next = crush.clone();
    let mut changed = false;
    for (host, id) in hosts {
        match fill(&mut next, &host, id) {
            Ok(some) => changed |= some,
            Err(e) => tracing::warn!("{} is not what it should be: {e}", far_name(&host)),
        }
    }
    changed.then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::Cluster;
    use std::collections::BTreeMap;

    fn cmd(c: &mut Cluster, text: &str) {
        let out = c.run(text, b"");
        assert_eq!(out.code, 0, "{text}: {}", out.status);
    }

    fn host(c: &mut Cluster, name: &str, osds: &[i32]) {
        cmd(
            c,
            &format!(r#"{{"prefix":"osd crush add-bucket","name":"{name}","type":"host"}}"#),
        );
        cmd(
            c,
            &format!(r#"{{"prefix":"osd crush move","name":"{name}","args":["root=default"]}}"#),
        );
        for id in osds {
            cmd(
                c,
                &format!(
                    r#"{{"prefix":"osd crush set","id":{id},"weight":0.004,"args":["host={name}","root=default"]}}"#
                ),
            );
        }
    }

    fn mended(c: &mut Cluster) -> bool {
        let Some(next) = mend(&c.state.osdmap.crush) else {
            return false;
        };
        let mut changes = cluster::Changes::none();
        *changes.inc(&c.state, c.now).crush_mut(&c.state.osdmap) = next;
        c.state = c.state.apply(changes, c.now).unwrap().0;
        true
    }

    /// Where each PG should be, by the host of each copy.
    fn homes(c: &Cluster) -> Vec<Vec<String>> {
        let map = &c.state.osdmap;
        let of: BTreeMap<i32, String> = ["h1", "h2", "h3", "h4"]
            .into_iter()
            .filter_map(|h| Some((h, map.crush.item_id(h)?)))
            .flat_map(|(h, id)| {
                map.crush
                    .devices_under(id)
                    .into_iter()
                    .map(move |o| (o, h.to_string()))
            })
            .collect();
        map.pgs()
            .map(|pg| map.pg_to_up_acting(pg).up.iter().map(|o| of[o].clone()).collect())
            .collect()
    }

    fn four_hosts() -> Cluster {
        let mut c = Cluster::with_osds(8);
        host(&mut c, "h1", &[0, 1]);
        host(&mut c, "h2", &[2, 3]);
        host(&mut c, "h3", &[4, 5]);
        cmd(
            &mut c,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":32,"size":3}"#,
        );
        c
    }

    #[test]
    fn the_first_copy_is_near_and_the_others_are_not() {
        let mut c = four_hosts();
        cmd(&mut c, r#"{"prefix":"osd pool near","pool":"p","host":"h2"}"#);
        let check = |c: &Cluster| {
            let mut seen = BTreeSet::new();
            for home in homes(c) {
                assert_eq!((home.len(), home[0].as_str()), (3, "h2"), "{home:?}");
                assert_eq!(home.iter().collect::<BTreeSet<_>>().len(), 3, "{home:?}");
                seen.extend(home);
            }
            seen.len()
        };
        // `vm` keeps 6 and 7, which are on no host of ours yet.
        cmd(&mut c, r#"{"prefix":"osd out","ids":["6","7"]}"#);
        mended(&mut c);
        assert_eq!(check(&c), 3);
        assert!(!mended(&mut c), "nothing to mend");
        // A new host takes its part, and none of the first copies.
        host(&mut c, "h4", &[6, 7]);
        cmd(&mut c, r#"{"prefix":"osd in","ids":["6","7"]}"#);
        assert!(mended(&mut c) && !mended(&mut c));
        assert_eq!(check(&c), 4);
        // Its host down: the others serve.
        cmd(&mut c, r#"{"prefix":"osd down","ids":["2","3"]}"#);
        for home in homes(&c) {
            assert!(home.len() == 2 && !home.contains(&"h2".to_string()), "{home:?}");
        }
        // Asked again it is so already; and a healthy cluster has nothing to say against it.
        let out = c.run(r#"{"prefix":"osd pool near","pool":"p","host":"h2"}"#, b"");
        assert!(out.code == 0 && out.changes.is_empty(), "{}", out.status);
        let spread = crate::policies::spread::Spread::of(
            &c.state.osdmap,
            u32::from(c.state.osdmap.pool(1).unwrap().crush_rule),
        );
        assert!(spread.domains.len() >= 3, "{spread:?}");
    }

    #[test]
    fn mistakes_are_refused() {
        let mut c = four_hosts();
        for (text, code, why) in [
            (
                r#"{"prefix":"osd pool near","pool":"q","host":"h2"}"#,
                -2,
                "unrecognized pool",
            ),
            (
                r#"{"prefix":"osd pool near","pool":"p","host":"h9"}"#,
                -2,
                "no host h9",
            ),
            (
                r#"{"prefix":"osd pool near","pool":"p","host":"default"}"#,
                -2,
                "no host",
            ),
        ] {
            let out = c.run(text, b"");
            assert!(
                out.code == code && out.status.contains(why),
                "{text}: {} {}",
                out.code,
                out.status
            );
        }
        cmd(
            &mut c,
            r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"5"}"#,
        );
        let out = c.run(r#"{"prefix":"osd pool near","pool":"p","host":"h1"}"#, b"");
        assert!(out.status.contains("hosts beside h1"), "{}", out.status);
    }
}
