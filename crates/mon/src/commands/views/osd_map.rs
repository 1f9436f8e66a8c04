//! The OSD map as JSON and as text (`osd dump`, `osd pool ls detail`, `osd info`).

use crate::commands::views::map_flags;
use crate::commands::views::show;
use serde_json::{Map, Value, json};
use types::osdmap::{AFFINITY_DEFAULT, Blocklist, OsdMap, osd_state};
use types::pool::{PgPool, PoolOption, autoscale_mode_name, cache_mode_name, pool_flag};
use types::{IntervalSet, OsdId, PoolId, release};

/// A number where the real one prints a number without bound.
const NO_MEMBER: i32 = 0x7fff_ffff;

fn sorted_flags(flags: u32) -> Vec<String> {
    let text = map_flags::names(flags);
    let mut names: Vec<String> = text
        .split(',')
        .filter(|n| !n.is_empty())
        .map(str::to_string)
        .collect();
    names.sort_unstable();
    names
}

pub fn map_json(m: &OsdMap) -> Value {
    let mut out = Map::new();
    let mut put = |k: &str, v: Value| {
        out.insert(k.to_string(), v);
    };
    put("epoch", m.epoch.into());
    put("fsid", m.fsid.to_string().into());
    put("created", show::time(m.created).into());
    put("modified", show::time(m.modified).into());
    put("last_up_change", show::time(m.last_up_change).into());
    put("last_in_change", show::time(m.last_in_change).into());
    put("flags", map_flags::names(m.flags).into());
    put("flags_num", m.flags.into());
    put("flags_set", sorted_flags(m.flags).into());
    put("crush_version", m.crush_version.into());
    put("full_ratio", f64::from(m.full_ratio).into());
    put("backfillfull_ratio", f64::from(m.backfillfull_ratio).into());
    put("nearfull_ratio", f64::from(m.nearfull_ratio).into());
    put("cluster_snapshot", m.cluster_snapshot.clone().into());
    put("pool_max", m.pool_max.into());
    put("max_osd", m.max_osd().into());
    put(
        "require_min_compat_client",
        release::name(m.require_min_compat_client).into(),
    );
    put("min_compat_client", min_compat_client(m).into());
    put("require_osd_release", release::name(m.require_osd_release).into());
    let pools = m.pools.iter().map(|(id, p)| pool_json(m, *id, p, "pool"));
    put("pools", pools.collect::<Vec<_>>().into());
    put(
        "osds",
        m.osd_ids().map(|id| osd_json(m, id)).collect::<Vec<_>>().into(),
    );
    put(
        "osd_xinfo",
        m.osd_ids().map(|id| xinfo_json(m, id)).collect::<Vec<_>>().into(),
    );
    overrides(m, &mut put);
    put("blocklist", blocklist_json(&m.blocklist));
    put("range_blocklist", blocklist_json(&m.range_blocklist));
    put("erasure_code_profiles", json!(m.erasure_code_profiles));
    let snaps = |q: &std::collections::BTreeMap<PoolId, IntervalSet>| {
        let one = |(pool, set): (&PoolId, &IntervalSet)| json!({"pool": pool, "snaps": intervals(set)});
        Value::from(q.iter().map(one).collect::<Vec<_>>())
    };
    put("removed_snaps_queue", snaps(&m.removed_snaps_queue));
    put("new_removed_snaps", snaps(&m.new_removed_snaps));
    put("new_purged_snaps", snaps(&m.new_purged_snaps));
    let state_names = |bits: u32| osd_state::names(bits);
    let nodes = m.crush_node_flags.iter().map(|(id, bits)| {
        let name = m
            .crush
            .item_name(*id)
            .map_or_else(|| id.to_string(), str::to_string);
        (name, json!(state_names(*bits)))
    });
    put("crush_node_flags", Value::Object(nodes.collect()));
    let classes = m.device_class_flags.iter().map(|(id, bits)| {
        let name = m
            .crush
            .class_names
            .get(id)
            .cloned()
            .unwrap_or_else(|| id.to_string());
        (name, json!(state_names(*bits)))
    });
    put("device_class_flags", Value::Object(classes.collect()));
    put(
        "stretch_mode",
        json!({
            "stretch_mode_enabled": m.stretch.enabled,
            "stretch_bucket_count": m.stretch.bucket_count,
            "degraded_stretch_mode": m.stretch.degraded,
            "recovering_stretch_mode": m.stretch.recovering,
            "stretch_mode_bucket": m.stretch.bucket,
        }),
    );
    Value::Object(out)
}

fn overrides(m: &OsdMap, put: &mut impl FnMut(&str, Value)) {
    let list = |l: Vec<Value>| Value::from(l);
    let upmap = m
        .pg_upmap
        .iter()
        .map(|(pg, osds)| json!({"pgid": pg.to_string(), "osds": osds}));
    put("pg_upmap", list(upmap.collect()));
    let items = m.pg_upmap_items.iter().map(|(pg, pairs)| {
        let pairs: Vec<Value> = pairs
            .iter()
            .map(|(from, to)| json!({"from": from, "to": to}))
            .collect();
        json!({"pgid": pg.to_string(), "mappings": pairs})
    });
    put("pg_upmap_items", list(items.collect()));
    let temp = m
        .pg_temp
        .iter()
        .map(|(pg, osds)| json!({"pgid": pg.to_string(), "osds": osds}));
    put("pg_temp", list(temp.collect()));
    // A flat list of ids and OSDs, as the real one has it.
    let primary = m
        .primary_temp
        .iter()
        .flat_map(|(pg, osd)| [json!(pg.to_string()), json!(osd)]);
    put("primary_temp", list(primary.collect()));
}

fn blocklist_json(list: &Blocklist) -> Value {
    let one =
        |(addr, until): (&types::EntityAddr, &types::Utime)| (addr.to_string(), until.to_string().into());
    Value::Object(list.iter().map(one).collect())
}

fn intervals(set: &IntervalSet) -> Value {
    let one = |(begin, length)| json!({"begin": begin, "length": length});
    set.ranges().map(one).collect::<Vec<_>>().into()
}

/// The oldest client that can use this map.
pub fn min_compat_client(m: &OsdMap) -> &'static str {
    let upmap = !m.pg_upmap.is_empty() || !m.pg_upmap_items.is_empty();
    let sets = !m.crush.choose_args.is_empty();
    if upmap || sets {
        return "luminous";
    }
    match m.crush.tunables.profile() {
        "argonaut" => "argonaut",
        "bobtail" => "bobtail",
        "firefly" => "firefly",
        "hammer" => "hammer",
        _ => "jewel",
    }
}

/// `key` names the id: "pool" in the map, "pool_id" in the list of pools.
pub fn pool_json(m: &OsdMap, id: PoolId, p: &PgPool, key: &str) -> Value {
    let mut out = Map::new();
    out.insert(key.into(), id.into());
    let (count, target, barrier, member) = match &p.stretch {
        Some(s) => (
            s.bucket_count,
            s.bucket_target,
            s.bucket_barrier,
            s.mandatory_member,
        ),
        None => (0, 0, 0, NO_MEMBER),
    };
    let merge = &p.last_pg_merge_meta;
    let snaps: Vec<Value> = p
        .snaps
        .values()
        .map(|s| json!({"snapid": s.id, "stamp": s.stamp.to_string(), "name": s.name}))
        .collect();
    let rest = json!({
        "pool_name": m.pool_name(id).unwrap_or(""),
        "create_time": show::time(p.create_time),
        "flags": p.flags,
        "flags_names": pool_flag::names(p.flags),
        "type": p.kind,
        "size": p.size,
        "min_size": p.min_size,
        "crush_rule": p.crush_rule,
        "peering_crush_bucket_count": count,
        "peering_crush_bucket_target": target,
        "peering_crush_bucket_barrier": barrier,
        "peering_crush_bucket_mandatory_member": member,
        "object_hash": p.object_hash,
        "pg_autoscale_mode": autoscale_mode_name(p.pg_autoscale_mode),
        "pg_num": p.pg_num,
        "pg_placement_num": p.pgp_num,
        "pg_placement_num_target": p.pgp_num_target,
        "pg_num_target": p.pg_num_target,
        "pg_num_pending": p.pg_num_pending,
        "last_pg_merge_meta": {
            "source_pgid": merge.source.to_string(),
            "ready_epoch": merge.ready_epoch,
            "last_epoch_started": merge.last_epoch_started,
            "last_epoch_clean": merge.last_epoch_clean,
            "source_version": merge.source_version.to_string(),
            "target_version": merge.target_version.to_string(),
        },
        "last_change": p.last_change.to_string(),
        "last_force_op_resend": p.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus": p.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous": p.last_force_op_resend_preluminous.to_string(),
        "auid": p.auid,
        "snap_mode": if p.is_pool_snaps_mode() { "pool" } else { "selfmanaged" },
        "snap_seq": p.snap_seq,
        "snap_epoch": p.snap_epoch,
        "pool_snaps": snaps,
        "removed_snaps": interval_text(&p.removed_snaps),
    });
    let more = json!({
        "quota_max_bytes": p.quota_max_bytes,
        "quota_max_objects": p.quota_max_objects,
        "tiers": p.tiers,
        "tier_of": p.tier_of,
        "read_tier": p.read_tier,
        "write_tier": p.write_tier,
        "cache_mode": cache_mode_name(p.cache_mode),
        "target_max_bytes": p.target_max_bytes,
        "target_max_objects": p.target_max_objects,
        "cache_target_dirty_ratio_micro": p.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro": p.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro": p.cache_target_full_ratio_micro,
        "cache_min_flush_age": p.cache_min_flush_age,
        "cache_min_evict_age": p.cache_min_evict_age,
        "erasure_code_profile": p.erasure_code_profile,
        "hit_set_params": {"type": "none"},
        "hit_set_period": p.hit_set_period,
        "hit_set_count": p.hit_set_count,
        "use_gmt_hitset": p.use_gmt_hitset,
        "min_read_recency_for_promote": p.min_read_recency_for_promote,
        "min_write_recency_for_promote": p.min_write_recency_for_promote,
        "hit_set_grade_decay_rate": p.hit_set_grade_decay_rate,
        "hit_set_search_last_n": p.hit_set_search_last_n,
        "grade_table": [],
        "stripe_width": p.stripe_width,
        "expected_num_objects": p.expected_num_objects,
        "fast_read": p.fast_read,
        "options": options_json(p),
        "application_metadata": p.application_metadata,
    });
    for part in [rest, more] {
        if let Value::Object(part) = part {
            out.extend(part);
        }
    }
    Value::Object(out)
}

fn options_json(p: &PgPool) -> Value {
    let mut all: Vec<_> = p.opts.iter().collect();
    all.sort_by_key(|(name, _)| *name);
    let one = |(name, v): (&str, &PoolOption)| (name.to_string(), option_json(v));
    Value::Object(all.into_iter().map(one).collect())
}

pub fn option_json(v: &PoolOption) -> Value {
    match v {
        PoolOption::Str(s) => s.clone().into(),
        PoolOption::Int(i) => (*i).into(),
        PoolOption::Double(d) => (*d).into(),
    }
}

pub fn option_text(v: &PoolOption) -> String {
    match v {
        PoolOption::Str(s) => s.clone(),
        PoolOption::Int(i) => i.to_string(),
        PoolOption::Double(d) => crate::format::json::significant(*d, 6),
    }
}

/// `[1~3,7~1]`, in hex as the real one prints it.
fn interval_text(set: &IntervalSet) -> String {
    let all: Vec<String> = set.ranges().map(|(b, l)| format!("{b:x}~{l:x}")).collect();
    format!("[{}]", all.join(","))
}

pub fn osd_json(m: &OsdMap, id: OsdId) -> Value {
    let Some(o) = m.osd(id) else { return Value::Null };
    json!({
        "osd": id,
        "uuid": o.uuid.to_string(),
        "up": i32::from(m.is_up(id)),
        "in": i32::from(m.is_in(id)),
        "weight": show::weight(m.weight(id)),
        "primary_affinity": show::weight(m.affinity(id)),
        "last_clean_begin": o.info.last_clean_begin,
        "last_clean_end": o.info.last_clean_end,
        "up_from": o.info.up_from,
        "up_thru": o.info.up_thru,
        "down_at": o.info.down_at,
        "lost_at": o.info.lost_at,
        "public_addrs": show::addrs(&o.client_addrs),
        "cluster_addrs": show::addrs(&o.cluster_addrs),
        "heartbeat_back_addrs": show::addrs(&o.hb_back_addrs),
        "heartbeat_front_addrs": show::addrs(&o.hb_front_addrs),
        "public_addr": show::legacy_addr(&o.client_addrs),
        "cluster_addr": show::legacy_addr(&o.cluster_addrs),
        "heartbeat_back_addr": show::legacy_addr(&o.hb_back_addrs),
        "heartbeat_front_addr": show::legacy_addr(&o.hb_front_addrs),
        "state": osd_state::names(o.state),
    })
}

fn xinfo_json(m: &OsdMap, id: OsdId) -> Value {
    let x = m.osd(id).map(|o| o.xinfo).unwrap_or_default();
    json!({
        "osd": id,
        "down_stamp": show::time(x.down_stamp),
        "laggy_probability": f64::from(x.laggy_probability) / f64::from(u32::MAX),
        "laggy_interval": x.laggy_interval,
        "features": x.features,
        "old_weight": x.old_weight,
        "last_purged_snaps_scrub": show::time(x.last_purged_snaps_scrub),
        "dead_epoch": x.dead_epoch,
    })
}

pub fn map_text(m: &OsdMap) -> String {
    let mut out = format!("epoch {}\nfsid {}\n", m.epoch, m.fsid);
    out.push_str(&format!(
        "created {}\nmodified {}\n",
        show::time(m.created),
        show::time(m.modified)
    ));
    out.push_str(&format!(
        "flags {}\ncrush_version {}\n",
        map_flags::names(m.flags),
        m.crush_version
    ));
    let (full, backfill, near) = (m.full_ratio, m.backfillfull_ratio, m.nearfull_ratio);
    out.push_str(&format!(
        "full_ratio {full}\nbackfillfull_ratio {backfill}\nnearfull_ratio {near}\n"
    ));
    let required = release::name(m.require_min_compat_client);
    out.push_str(&format!("require_min_compat_client {required}\n"));
    out.push_str(&format!("min_compat_client {}\n", min_compat_client(m)));
    out.push_str(&format!(
        "require_osd_release {}\n",
        release::name(m.require_osd_release)
    ));
    out.push_str(&format!("stretch_mode_enabled {}\n", m.stretch.enabled));
    out.push_str(&pools_text(m));
    out.push_str(&format!("max_osd {}\n", m.max_osd()));
    for id in m.osd_ids() {
        out.push_str(&osd_text(m, id));
    }
    for (pg, osds) in &m.pg_upmap {
        out.push_str(&format!("pg_upmap {pg} {}\n", show::ids(osds)));
    }
    for (pg, pairs) in &m.pg_upmap_items {
        let flat: Vec<i32> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
        out.push_str(&format!("pg_upmap_items {pg} {}\n", show::ids(&flat)));
    }
    for (pg, osds) in &m.pg_temp {
        out.push_str(&format!("pg_temp {pg} {}\n", show::ids(osds)));
    }
    for (pg, osd) in &m.primary_temp {
        out.push_str(&format!("primary_temp {pg} {osd}\n"));
    }
    for (addr, until) in &m.blocklist {
        out.push_str(&format!("blocklist {addr} expires {until}\n"));
    }
    for (addr, until) in &m.range_blocklist {
        out.push_str(&format!("range blocklist {addr} expires {until}\n"));
    }
    out
}

/// One line per pool.
pub fn pools_text(m: &OsdMap) -> String {
    m.pools
        .iter()
        .map(|(id, p)| format!("{}\n", pool_text(m, *id, p)))
        .collect()
}

fn pool_text(m: &OsdMap, id: PoolId, p: &PgPool) -> String {
    let kind = if p.is_erasure() {
        format!("erasure profile {}", p.erasure_code_profile)
    } else {
        "replicated".to_string()
    };
    let mut out = format!(
        "pool {id} '{}' {kind} size {} min_size {} crush_rule {} object_hash rjenkins pg_num {} pgp_num {}",
        m.pool_name(id).unwrap_or(""),
        p.size,
        p.min_size,
        p.crush_rule,
        p.pg_num,
        p.pgp_num
    );
    let mut word = |when: bool, text: String| {
        if when {
            out.push(' ');
            out.push_str(&text);
        }
    };
    let (pg, pgp) = (p.pg_num_target, p.pgp_num_target);
    word(pg != p.pg_num, format!("pg_num_target {pg}"));
    word(pgp != p.pgp_num, format!("pgp_num_target {pgp}"));
    word(
        true,
        format!("autoscale_mode {}", autoscale_mode_name(p.pg_autoscale_mode)),
    );
    word(true, format!("last_change {}", p.last_change));
    let (a, b, c) = (
        p.last_force_op_resend,
        p.last_force_op_resend_prenautilus,
        p.last_force_op_resend_preluminous,
    );
    word(a != 0 || b != 0 || c != 0, format!("lfor {a}/{b}/{c}"));
    word(p.flags != 0, format!("flags {}", pool_flag::names(p.flags)));
    word(p.quota_max_bytes != 0, format!("max_bytes {}", p.quota_max_bytes));
    word(
        p.quota_max_objects != 0,
        format!("max_objects {}", p.quota_max_objects),
    );
    word(true, format!("stripe_width {}", p.stripe_width));
    word(
        p.expected_num_objects != 0,
        format!("expected_num_objects {}", p.expected_num_objects),
    );
    word(p.fast_read, "fast_read 1".into());
    let mut options: Vec<_> = p.opts.iter().collect();
    options.sort_by_key(|(name, _)| *name);
    for (name, v) in options {
        word(true, format!("{name} {}", option_text(v)));
    }
    let apps: Vec<&str> = p.application_metadata.keys().map(String::as_str).collect();
    word(!apps.is_empty(), format!("application {}", apps.join(",")));
    for s in p.snaps.values() {
        out.push_str(&format!("\n\tsnap {} '{}' {}", s.id, s.name, s.stamp));
    }
    out
}

pub fn osd_text(m: &OsdMap, id: OsdId) -> String {
    let Some(o) = m.osd(id) else { return String::new() };
    let up = if m.is_up(id) { "up  " } else { "down" };
    let into = if m.is_in(id) { "in " } else { "out" };
    let affinity = m.affinity(id);
    let affinity = if affinity == AFFINITY_DEFAULT {
        String::new()
    } else {
        format!(" primary_affinity {}", show::weight(affinity))
    };
    let i = &o.info;
    let addrs = |v: &types::EntityAddrVec| {
        if v.is_empty() {
            String::new()
        } else {
            v.to_string()
        }
    };
    format!(
        "osd.{id} {up} {into} weight {}{affinity} up_from {} up_thru {} down_at {} last_clean_interval [{},{}) {} {} {} {}\n",
        crate::format::json::significant(show::weight(m.weight(id)), 6),
        i.up_from,
        i.up_thru,
        i.down_at,
        i.last_clean_begin,
        i.last_clean_end,
        addrs(&o.client_addrs),
        addrs(&o.cluster_addrs),
        osd_state::names(o.state).join(","),
        o.uuid
    )
}
