//! What an OSD tells about itself.

use super::table::{Answer, Args};
use crate::osd::Osd;
use cluster::{Change, Changes};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use types::clusterlog::LogLevel;
use types::{EntityName, Errno, release};

/// Characters of a message for the cluster log.
const MESSAGE_MAX: usize = 4096;
/// Watchers that are told of.
const WATCHERS_MAX: usize = 10_000;

pub fn version(_: &mut Osd, _: &Args<'_>) -> Answer {
    Ok(
        json!({"version": release::SPOKEN_VERSION, "release": release::SPOKEN_NAME, "release_type": "stable"})
            .into(),
    )
}

pub fn status(osd: &mut Osd, _: &Args<'_>) -> Answer {
    let state = match () {
        () if osd.membership.is_hung() => "disk hangs",
        () if osd.serving() => "active",
        () => "no lease",
    };
    Ok(json!({
        "cluster_fsid": osd.placement.state.fsid.to_string(),
        "osd_fsid": osd.store.engine.identity().osd_uuid.to_string(),
        "whoami": osd.id,
        "state": state,
        "oldest_map": osd.placement.state.history.first(),
        "newest_map": osd.placement.epoch(),
        "num_pgs": osd.pgs().count(),
    })
    .into())
}

pub fn blocklist(osd: &Osd) -> Value {
    let entries = osd.placement.state.osdmap.blocklist.iter();
    entries
        .map(|(addr, until)| json!({"addr": addr.to_string(), "expire": until.to_string()}))
        .collect()
}

pub fn mapped_pools(osd: &mut Osd, _: &Args<'_>) -> Answer {
    let pools: BTreeSet<i64> = osd.slots.keys().map(|slot| slot.pg.pool).collect();
    Ok(json!(pools).into())
}

pub fn cache_status(osd: &mut Osd, _: &Args<'_>) -> Answer {
    let objects: usize = osd.pgs().map(|(_, pg)| pg.cached_objects()).sum();
    Ok(json!({"object_ctx": objects, "store_bytes": osd.store.engine.memory_bytes()}).into())
}

pub fn scrubs(osd: &mut Osd, _: &Args<'_>) -> Answer {
    // A member of a PG that is scrubbed is not asked before: nothing is reserved there.
    let most = osd.options().remove("osd_max_scrubs");
    let most: u64 = most.and_then(|v| v.parse().ok()).unwrap_or_default();
    Ok(json!({"scrubs_local": osd.scrubs.count(), "scrubs_remote": 0, "osd_max_scrubs": most}).into())
}

pub fn objecter(_: &mut Osd, _: &Args<'_>) -> Answer {
    Ok(json!({
        "ops": [], "linger_ops": [], "pool_ops": [], "pool_stat_ops": [], "statfs_ops": [], "command_ops": [],
    })
    .into())
}

pub fn watchers(osd: &mut Osd, _: &Args<'_>) -> Answer {
    let mut out = Vec::new();
    for (_, pg) in osd.pgs() {
        for w in pg.watchers(WATCHERS_MAX - out.len()) {
            out.push(json!({
                "namespace": String::from_utf8_lossy(&w.object.nspace),
                "object": String::from_utf8_lossy(&w.object.oid),
                "entity_name": {"type": "client", "num": w.client},
                "cookie": w.cookie,
                "timeout": w.timeout.as_secs(),
                "entity_addr_t": {"type": "any", "addr": w.addr.place(), "nonce": w.addr.nonce},
            }));
        }
    }
    Ok(out.into_iter().collect::<Value>().into())
}

/// From `value` milliseconds on; none: from a second on, the real one's measure.
pub fn network(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let threshold = args.int("value").unwrap_or(1000).max(0) as u64;
    let slow = osd
        .links
        .trips()
        .filter(|(_, t)| t.as_millis() as u64 >= threshold);
    let entry = |(peer, trip): (i32, std::time::Duration)| {
        let ms = trip.as_secs_f64() * 1000.0;
        json!({"from osd": osd.id, "to osd": peer, "interface": "back", "average": ms})
    };
    let entries: Vec<Value> = slow.map(entry).collect();
    Ok(json!({"threshold": threshold, "entries": entries}).into())
}

/// As the real one: written in the name of this OSD, and not waited for.
pub fn cluster_log(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let message: String = args.list("message").join(" ").chars().take(MESSAGE_MAX).collect();
    let (cluster, id, now) = (osd.cluster.clone(), osd.id, osd.wall());
    let name = osd.auth_name();
    io::task::spawn_local(async move {
        let log = |state: &cluster::ClusterState| {
            let mut entry = state.log_entry(now, LogLevel::Error, message.clone());
            (entry.name, entry.rank) = (name.clone(), EntityName::osd(id));
            (Changes::one(Change::Log(entry)), ())
        };
        if let Err(e) = cluster.commit(log).await {
            tracing::warn!("osd.{id}: not written to the cluster's log: {e}");
        }
    });
    Ok(Value::String(String::new()).into())
}

/// Sums since the first question; they are kept for `seconds` (60) from now on, or as long as somebody goes on asking.
pub fn stages(osd: &mut Osd, args: &Args<'_>) -> Answer {
    let seconds = u64::try_from(args.int("seconds").unwrap_or(60));
    let seconds = seconds.map_err(|_| (Errno::EINVAL, "'seconds' is negative".to_string()))?;
    let now = osd.clock.monotonic();
    osd.stages.ask(now, Duration::from_secs(seconds));
    let (samples, sum) = osd.disk_time.sampled();
    let trips = osd.links.trips();
    let trips = trips.map(|(peer, trip)| json!({"osd": peer, "seconds": trip.as_secs_f64()}));
    let here = json!({
        "commits": {"samples": samples, "seconds": sum.as_secs_f64()},
        // OSDs of one file system may share a thread.
        "thread": format!("{} {:?}", std::process::id(), std::thread::current().id()),
        "loop_seconds": osd.turns.spent().as_secs_f64(),
        "recovery_bytes": osd.meters.osd.recovery_bytes.get(),
        "scrub_bytes": osd.meters.osd.scrub_bytes.get(),
        "in_flight": osd.ops.len(),
        "limits": osd.dump_qos()["limits"].take(),
        "round_trips": trips.collect::<Vec<_>>(),
    });
    let mut told = osd.stages.json(now);
    told["osd"] = json!(osd.id);
    told["now"] = json!(now.as_secs_f64());
    told["here"] = here;
    Ok(told.into())
}
