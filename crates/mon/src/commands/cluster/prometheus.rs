//! The cluster's figures in Prometheus' text format, under the names and labels of Ceph's module `prometheus`. What is not known
//! is left out.
//!
//! What OSDs count one by one (`ceph_osd_op_w` and its like) is added by the process that runs them (`node::exporter`).

use crate::commands::checks::Report;
use crate::commands::cluster::df::PoolUse;
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::daemons::{mds_facts, mgr_versions, mon_facts, osd_facts, value_of};
use crate::commands::views::monmap;
use crate::commands::views::pg_stats::{Figures, count};
use cluster::{RecoveryRates, backups};
use std::collections::BTreeMap;
use std::fmt::Display;
use types::EntityAddrVec;
use types::osdmap::{OsdSlot, map_flag};
use types::pgstats::{PgStat, pg_state};
use types::pool::PoolOption;

/// One family of figures: its lines, below its type.
#[derive(Default)]
struct Family {
    is_counter: bool,
    lines: Vec<String>,
}

#[derive(Default)]
struct Page(BTreeMap<String, Family>);

type Labels<'a> = &'a [(&'a str, &'a str)];

/// As the format wants it within quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

impl Page {
    fn put(&mut self, name: &str, is_counter: bool, labels: Labels<'_>, value: impl Display) {
        let family = self.0.entry(format!("ceph_{name}")).or_default();
        family.is_counter = is_counter;
        let labels: Vec<String> = labels
            .iter()
            .map(|(k, v)| format!("{k}=\"{}\"", escaped(v)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        family.lines.push(format!("ceph_{name}{labels} {value}\n"));
    }

    fn gauge(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.put(name, false, labels, value);
    }

    fn counter(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.put(name, true, labels, value);
    }

    fn text(self) -> String {
        let mut out = String::new();
        for (name, family) in self.0 {
            let kind = if family.is_counter { "counter" } else { "gauge" };
            out.push_str(&format!("# TYPE {name} {kind}\n"));
            out.extend(family.lines);
        }
        out
    }
}

pub const TABLE: &[Spec] = &[spec(
    ("mgr", "r"),
    "skep metrics",
    "the cluster's figures in Prometheus' text format (skep's own)",
    metrics,
)];

fn metrics(_: &Command, ctx: &Context<'_>) -> Outcome {
    // As with Ceph's: where several say the same, rules and boards cannot join it.
    let m = &ctx.state.mgrmap;
    if m.available && m.active_name != ctx.mon.mgr_name {
        return Outcome::ok("");
    }
    let figures = Figures::of(ctx);
    let mut page = Page::default();
    health(&mut page, ctx, &figures);
    monitors(&mut page, ctx);
    managers(&mut page, ctx);
    file_systems(&mut page, ctx);
    osds(&mut page, ctx);
    pools(&mut page, ctx, &figures);
    pgs(&mut page, &figures);
    space(&mut page, &figures);
    images(&mut page, ctx);
    of_backups(&mut page, ctx);
    Outcome::ok(page.text())
}

fn health(page: &mut Page, ctx: &Context<'_>, figures: &Figures) {
    let report = Report::with(ctx, figures);
    let status = match report.status() {
        "HEALTH_OK" => 0,
        "HEALTH_WARN" => 1,
        _ => 2,
    };
    page.gauge("health_status", &[], status);
    for check in report.checks.values() {
        let labels = [("name", check.code), ("severity", check.severity.name())];
        page.gauge("health_detail", &labels, 1);
    }
}

fn monitors(page: &mut Page, ctx: &Context<'_>) {
    let quorum: Vec<String> = monmap::quorum(ctx).into_iter().map(|(_, name)| name).collect();
    for (rank, info) in ctx.state.monmap.by_rank().enumerate() {
        let daemon = format!("mon.{}", info.name);
        let known = u8::from(quorum.contains(&info.name));
        page.gauge("mon_quorum_status", &[("ceph_daemon", &daemon)], known);
        let facts = mon_facts(ctx, &info.name);
        let labels = [
            ("ceph_daemon", daemon.as_str()),
            ("hostname", &value_of(&facts, "hostname")),
            ("public_addr", &host_of(&info.addrs)),
            ("rank", &rank.to_string()),
            ("ceph_version", &value_of(&facts, "ceph_version")),
        ];
        page.gauge("mon_metadata", &labels, 1);
    }
}

/// The machine alone, as Ceph's labels of monitors and OSDs have it.
fn host_of(addrs: &EntityAddrVec) -> String {
    let sock = addrs.first().sock;
    sock.map(|s| s.ip().to_string()).unwrap_or_default()
}

/// The active one has 1, others 0.
fn managers(page: &mut Page, ctx: &Context<'_>) {
    let m = &ctx.state.mgrmap;
    let active = m.available.then_some(&m.active_name).into_iter();
    let standbys = m.standbys.values().map(|s| &s.name);
    for (name, version) in active.chain(standbys).zip(mgr_versions(ctx)) {
        let daemon = format!("mgr.{name}");
        let is_active = u8::from(m.available && *name == m.active_name);
        page.gauge("mgr_status", &[("ceph_daemon", &daemon)], is_active);
        let labels = [
            ("ceph_daemon", daemon.as_str()),
            ("hostname", &mgr_host(ctx, name)),
            ("ceph_version", &version),
        ];
        page.gauge("mgr_metadata", &labels, 1);
    }
}

/// A manager is in the process of a monitor.
fn mgr_host(ctx: &Context<'_>, mgr: &str) -> String {
    if mgr == ctx.mon.mgr_name {
        return ctx.mon.hostname.clone();
    }
    let mon = ctx.stats.mons.values().find(|m| m.mgr_name == mgr);
    mon.map(|m| value_of(&mon_facts(ctx, &m.name), "hostname"))
        .unwrap_or_default()
}

fn file_systems(page: &mut Page, ctx: &Context<'_>) {
    for fs in &ctx.state.fsmap.filesystems {
        let id = fs.fscid.to_string();
        let data: Vec<String> = fs.mds_map.data_pools.iter().map(|p| p.to_string()).collect();
        let labels = [
            ("data_pools", data.join(",")),
            ("fs_id", id.clone()),
            ("metadata_pool", fs.mds_map.metadata_pool.to_string()),
            ("name", fs.mds_map.fs_name.clone()),
        ];
        page.gauge("fs_metadata", &borrowed(&labels), 1);
        for info in fs.mds_map.mds_info.values() {
            let facts = mds_facts(ctx, info);
            let labels = [
                ("ceph_daemon", format!("mds.{}", info.name)),
                ("fs_id", id.clone()),
                ("hostname", value_of(&facts, "hostname")),
                ("public_addr", info.addrs.first().place_and_nonce()),
                ("rank", info.rank.to_string()),
                ("ceph_version", value_of(&facts, "ceph_version")),
            ];
            page.gauge("mds_metadata", &borrowed(&labels), 1);
        }
    }
}

fn borrowed<'a>(labels: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    labels.iter().map(|(k, v)| (*k, v.as_str())).collect()
}

fn osds(page: &mut Page, ctx: &Context<'_>) {
    let map = ctx.map();
    let flags = [
        ("noup", map_flag::NOUP),
        ("nodown", map_flag::NODOWN),
        ("noout", map_flag::NOOUT),
        ("noin", map_flag::NOIN),
        ("nobackfill", map_flag::NOBACKFILL),
        ("norebalance", map_flag::NOREBALANCE),
        ("norecover", map_flag::NORECOVER),
        ("noscrub", map_flag::NOSCRUB),
        ("nodeep_scrub", map_flag::NODEEP_SCRUB),
    ];
    for (name, flag) in flags {
        page.gauge(&format!("osd_flag_{name}"), &[], u8::from(map.flags & flag != 0));
    }
    let mut disks = Disks::new();
    for id in map.osd_ids() {
        let daemon = format!("osd.{id}");
        let labels = [("ceph_daemon", daemon.as_str())];
        page.gauge("osd_up", &labels, u8::from(map.is_up(id)));
        page.gauge("osd_in", &labels, u8::from(map.is_in(id)));
        page.gauge("osd_weight", &labels, f64::from(map.weight(id)) / 65_536.0);
        metadata(page, ctx, id, &daemon, &mut disks);
        let Some(report) = ctx.stats.osds.get(&id) else {
            continue;
        };
        let stat = &report.stat;
        let ms = stat.commit_latency_ns / 1_000_000;
        page.gauge("osd_commit_latency_ms", &labels, ms);
        page.gauge("osd_apply_latency_ms", &labels, stat.apply_latency_ns / 1_000_000);
        page.gauge("osd_numpg", &labels, stat.num_pgs);
        page.gauge("osd_stat_bytes", &labels, count(stat.statfs.total));
        let used = stat.statfs.total - stat.statfs.available;
        page.gauge("osd_stat_bytes_used", &labels, count(used));
        let slow = [("type", "SLOW_OPS"), ("ceph_daemon", daemon.as_str())];
        page.gauge("daemon_health_metrics", &slow, stat.slow_ops_count);
    }
    shared_disks(page, disks);
    let slow = ctx.stats.osds.values().map(|r| u64::from(r.stat.slow_ops_count));
    page.gauge("healthcheck_slow_ops", &[], slow.sum::<u64>());
}

/// OSDs by the path of the disk that they lie on, and its machine.
type Disks = BTreeMap<(String, String), Vec<String>>;

/// One line for each disk, as boards join it with what a machine says of its disks.
fn shared_disks(page: &mut Page, disks: Disks) {
    for ((path, host), osds) in disks {
        let osds = osds.join("+");
        let labels = [
            ("ceph_daemon", osds.as_str()),
            ("device", &path),
            ("instance", &host),
        ];
        page.gauge("disk_occupation_human", &labels, 1);
    }
}

fn metadata(page: &mut Page, ctx: &Context<'_>, id: types::OsdId, daemon: &str, disks: &mut Disks) {
    let facts = osd_facts(ctx, id);
    let fact = |name: &str| match facts.get(name).and_then(|v| v.as_str()) {
        Some(text) => text.to_string(),
        None => String::new(),
    };
    let class = ctx.map().crush.class_name_of(id).unwrap_or_default();
    let host = ctx.osd_host(id);
    let at = |addrs: fn(&OsdSlot) -> &EntityAddrVec| ctx.map().osd(id).map(|o| host_of(addrs(o)));
    let labels = [
        ("back_iface", fact("back_iface")),
        ("ceph_daemon", daemon.to_string()),
        ("cluster_addr", at(|o| &o.cluster_addrs).unwrap_or_default()),
        ("device_class", class.to_string()),
        ("front_iface", fact("front_iface")),
        ("hostname", host.clone()),
        ("objectstore", fact("osd_objectstore")),
        ("public_addr", at(|o| &o.client_addrs).unwrap_or_default()),
        ("ceph_version", fact("ceph_version")),
    ];
    page.gauge("osd_metadata", &borrowed(&labels), 1);
    // The disks that it says it lies on.
    let devices = fact("devices");
    for device in devices.split(',').filter(|d| !d.is_empty()) {
        let path = format!("/dev/{device}");
        let labels = [
            ("ceph_daemon", daemon),
            ("device", path.as_str()),
            ("db_device", ""),
            ("wal_device", ""),
            ("instance", &host),
            ("devices", &devices),
            ("device_ids", ""),
        ];
        page.gauge("disk_occupation", &labels, 1);
        let on_it = disks.entry((path, host.clone())).or_default();
        on_it.push(daemon.to_string());
    }
}

fn pools(page: &mut Page, ctx: &Context<'_>, figures: &Figures) {
    for (id, pool) in &ctx.map().pools {
        let number = id.to_string();
        let name = ctx.map().pool_name(*id).unwrap_or_default();
        let labels = [("pool_id", number.as_str())];
        let compression = match pool.opts.get("compression_mode") {
            Some(PoolOption::Str(mode)) => mode,
            _ => "none",
        };
        let description = match ctx.map().code_of(pool) {
            None => format!("replica:{}", pool.size),
            Some(code) => format!("ec:{}+{}", code.k, code.m),
        };
        let facts = [
            ("pool_id", number.as_str()),
            ("name", name),
            ("type", pool.type_name()),
            ("description", &description),
            ("compression_mode", compression),
        ];
        page.gauge("pool_metadata", &facts, 1);
        let u = PoolUse::of(ctx, figures, *id, pool);
        let s = &u.sum;
        page.gauge("pool_stored", &labels, u.stored());
        page.gauge("pool_stored_raw", &labels, u.stored_raw());
        page.gauge("pool_bytes_used", &labels, u.used());
        page.gauge("pool_max_avail", &labels, u.max_avail());
        page.gauge("pool_avail_raw", &labels, u.avail_raw as u64);
        page.gauge("pool_percent_used", &labels, u.ratio());
        page.gauge("pool_compress_bytes_used", &labels, u.compressed_used);
        page.gauge("pool_compress_under_bytes", &labels, u.compressed_original);
        page.gauge("pool_objects", &labels, count(s.num_objects));
        page.gauge("pool_quota_bytes", &labels, pool.quota_max_bytes);
        page.gauge("pool_quota_objects", &labels, pool.quota_max_objects);
        page.counter("pool_rd", &labels, count(s.num_rd));
        page.counter("pool_rd_bytes", &labels, count(s.num_rd_kb) * 1024);
        page.counter("pool_wr", &labels, count(s.num_wr));
        page.counter("pool_wr_bytes", &labels, count(s.num_wr_kb) * 1024);
        // Ceph spells this label otherwise.
        let repaired = [("poolid", number.as_str())];
        page.counter("pool_objects_repaired", &repaired, count(s.num_objects_repaired));
        healing(page, &ctx.stats.recovery_rates(Some(*id)), &labels);
    }
}

fn healing(page: &mut Page, rates: &RecoveryRates, labels: Labels<'_>) {
    let rows = [
        ("recovering_objects_per_sec", rates.objects),
        ("recovering_bytes_per_sec", rates.bytes),
        ("recovering_keys_per_sec", rates.keys),
        ("num_objects_recovered", rates.objects_done),
        ("num_bytes_recovered", rates.bytes_done),
    ];
    for (name, n) in rows {
        page.gauge(&format!("pool_{name}"), labels, n);
    }
}

fn pgs(page: &mut Page, figures: &Figures) {
    let mut by_pool: BTreeMap<i64, Vec<&PgStat>> = BTreeMap::new();
    for (pg, stat) in &figures.pgs {
        by_pool.entry(pg.pool).or_default().push(stat);
    }
    for (pool, stats) in by_pool {
        let number = pool.to_string();
        let labels = [("pool_id", number.as_str())];
        page.gauge("pg_total", &labels, stats.len());
        for (bit, name) in pg_state::NAMES {
            let n = stats.iter().filter(|s| s.state & bit != 0).count();
            page.gauge(&format!("pg_{}", name.replace('-', "_")), &labels, n);
        }
    }
    let sum = figures.sum();
    page.gauge("num_objects_degraded", &[], count(sum.num_objects_degraded));
    page.gauge("num_objects_misplaced", &[], count(sum.num_objects_misplaced));
    page.gauge("num_objects_unfound", &[], count(sum.num_objects_unfound));
}

fn space(page: &mut Page, figures: &Figures) {
    let t = &figures.total;
    page.gauge("cluster_total_bytes", &[], count(t.total));
    page.gauge("cluster_total_used_bytes", &[], count(t.used()));
    page.gauge("cluster_total_used_raw_bytes", &[], count(t.total - t.available));
}

/// Ours: Ceph has no such thing. Times are seconds since 1970.
fn of_backups(page: &mut Page, ctx: &Context<'_>) {
    for ((policy, image), row) in backups::rows(&ctx.state.config_keys) {
        if image.is_empty() {
            continue;
        }
        let labels = [("policy", policy.as_str()), ("image", image.as_str())];
        let rows = [
            ("last_success_time", row.good),
            ("last_trial_success_time", row.trial_good),
            ("last_stored_bytes", row.good.map(|_| row.stored)),
            ("failed", Some(u64::from(row.error.is_some()))),
        ];
        for (name, n) in rows {
            if let Some(n) = n {
                page.gauge(&format!("skep_backup_{name}"), &labels, n);
            }
        }
    }
}

fn images(page: &mut Page, ctx: &Context<'_>) {
    for (key, s) in ctx.stats.image_sums() {
        let Some(image) = ctx.mon.images.names.get(&key) else {
            continue;
        };
        let Some(pool) = ctx.map().pool_name(key.pool) else {
            continue;
        };
        let labels = [
            ("pool", pool),
            ("namespace", key.namespace.as_str()),
            ("image", image.as_str()),
        ];
        let rows = [
            ("write_ops", s.write_ops),
            ("read_ops", s.read_ops),
            ("write_bytes", s.write_bytes),
            ("read_bytes", s.read_bytes),
            ("write_latency_sum", s.write_latency_ns),
            ("write_latency_count", s.write_ops),
            ("read_latency_sum", s.read_latency_ns),
            ("read_latency_count", s.read_ops),
        ];
        for (name, n) in rows {
            page.counter(&format!("rbd_{name}"), &labels, n);
        }
    }
}
