//! `df`: raw space by device class, and space by pool.
//!
//! What a pool can still take follows its CRUSH rule: the OSD that would be full first, at its share of the
//! weight, limits all of them. What a pool *stores* is what clients see, one copy of it; what it *uses* is what the
//! OSDs say they have allocated for it, all copies: whole blocks, each block that clones share once, and nothing for
//! holes. Keys and values of omaps count as many bytes as they have.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::pg_stats::{Figures, count};
use crate::format::{Align, Table, units};
use crate::policies::places;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::OsdId;
use types::pgstats::{ObjectStatSum, StoreStatfs};
use types::pool::PgPool;

pub fn df(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let detail = cmd.text("detail") == "detail";
    let figures = Figures::of(ctx);
    cmd.either(
        || json_form(ctx, &figures, detail),
        || plain(ctx, &figures, detail),
    )
}

/// One pool's numbers.
pub(super) struct PoolUse {
    pub(super) sum: ObjectStatSum,
    stored_data: u64,
    stored_omap: u64,
    used_data: u64,
    used_omap: u64,
    /// What compressed data takes of the disks, and how much it is uncompressed; all copies.
    pub(super) compressed_used: u64,
    pub(super) compressed_original: u64,
    /// Raw bytes free for it, over all copies or shards.
    pub(super) avail_raw: f64,
    /// Raw bytes for each that is stored.
    rate: f64,
}

impl PoolUse {
    pub(super) fn of(ctx: &Context<'_>, figures: &Figures, id: i64, pool: &PgPool) -> Self {
        let sum = figures.pool_sum(id);
        let taken = figures.pools.get(&id).copied().unwrap_or_default();
        let (pgs, members) = figures.pool_pgs(id).fold((0, 0), |(pgs, members), s| {
            (pgs + 1, members + places::present(&s.acting).count() as u64)
        });
        let used_omap = count(taken.omap_allocated);
        Self {
            sum,
            stored_data: count(sum.num_bytes),
            // Only the copies that there are can have been counted.
            stored_omap: used_omap * pgs / members.max(1),
            used_data: count(taken.allocated),
            used_omap,
            compressed_used: count(taken.data_compressed_allocated),
            compressed_original: count(taken.data_compressed_original),
            avail_raw: avail_raw(ctx, figures, u32::from(pool.crush_rule)),
            rate: ctx.map().raw_rate(pool),
        }
    }

    pub(super) fn stored(&self) -> u64 {
        self.stored_data + self.stored_omap
    }

    pub(super) fn used(&self) -> u64 {
        self.used_data + self.used_omap
    }

    /// What clients see, with all copies or parity.
    pub(super) fn stored_raw(&self) -> u64 {
        (self.stored() as f64 * self.rate) as u64
    }

    pub(super) fn max_avail(&self) -> u64 {
        (self.avail_raw / self.rate) as u64
    }

    pub(super) fn ratio(&self) -> f64 {
        let used = self.used() as f64;
        let all = used + self.avail_raw;
        if all > 0.0 { used / all } else { 0.0 }
    }
}

fn avail_raw(ctx: &Context<'_>, figures: &Figures, rule: u32) -> f64 {
    let map = ctx.map();
    let Some(root) = map.crush.rule_root(rule) else {
        return 0.0;
    };
    let weighted = |id: &OsdId| {
        let w = map.crush.weight_of(*id).unwrap_or(0);
        f64::from(w) * f64::from(map.weight(*id)) / 65_536.0
    };
    let osds: Vec<OsdId> = map
        .crush
        .devices_under(root)
        .into_iter()
        .filter(|id| map.is_in(*id))
        .collect();
    let total: f64 = osds.iter().map(weighted).sum();
    let full_ratio = if map.full_ratio > 0.0 {
        f64::from(map.full_ratio)
    } else {
        1.0
    };
    let free = |id: &OsdId| {
        let disk = figures.disks.get(id)?;
        let reserve = disk.total as f64 * (1.0 - full_ratio);
        let share = weighted(id) / total;
        (share > 0.0).then(|| (disk.available as f64 - reserve).max(0.0) / share)
    };
    osds.iter().filter_map(free).reduce(f64::min).unwrap_or(0.0)
}

fn by_class(ctx: &Context<'_>, figures: &Figures) -> BTreeMap<String, StoreStatfs> {
    let mut out: BTreeMap<String, StoreStatfs> = BTreeMap::new();
    for (id, disk) in &figures.disks {
        let class = ctx.map().crush.class_name_of(*id).unwrap_or("");
        *out.entry(class.to_string()).or_default() += *disk;
    }
    out
}

fn raw_ratio(s: &StoreStatfs) -> f64 {
    if s.total > 0 {
        s.used() as f64 / s.total as f64
    } else {
        0.0
    }
}

fn raw_json(s: &StoreStatfs) -> Map<String, Value> {
    let mut m = Map::new();
    m.insert("total_bytes".into(), count(s.total).into());
    m.insert("total_avail_bytes".into(), count(s.available).into());
    m.insert("total_used_bytes".into(), count(s.used()).into());
    m.insert("total_used_raw_bytes".into(), count(s.used()).into());
    m.insert("total_used_raw_ratio".into(), raw_ratio(s).into());
    m
}

fn json_form(ctx: &Context<'_>, figures: &Figures, detail: bool) -> Value {
    let mut stats = raw_json(&figures.total);
    for key in ["num_osds", "num_per_pool_osds", "num_per_pool_omap_osds"] {
        stats.insert(key.into(), figures.disks.len().into());
    }
    let classes: Map<String, Value> = by_class(ctx, figures)
        .iter()
        .map(|(class, s)| (class.clone(), Value::Object(raw_json(s))))
        .collect();
    let pools: Vec<Value> = ctx
        .map()
        .pools
        .iter()
        .map(|(id, p)| {
            let u = PoolUse::of(ctx, figures, *id, p);
            let stats = if detail { detailed(p, &u) } else { brief(&u) };
            json!({"name": ctx.map().pool_name(*id).unwrap_or(""), "id": id, "stats": stats})
        })
        .collect();
    json!({"stats": stats, "stats_by_class": classes, "pools": pools})
}

fn brief(u: &PoolUse) -> Value {
    json!({
        "stored": u.stored(),
        "objects": count(u.sum.num_objects),
        "kb_used": u.used().div_ceil(1024),
        "bytes_used": u.used(),
        "percent_used": u.ratio(),
        "max_avail": u.max_avail(),
    })
}

fn detailed(p: &PgPool, u: &PoolUse) -> Value {
    json!({
        "stored": u.stored(),
        "stored_data": u.stored_data,
        "stored_omap": u.stored_omap,
        "objects": count(u.sum.num_objects),
        "kb_used": u.used().div_ceil(1024),
        "bytes_used": u.used(),
        "data_bytes_used": u.used_data,
        "omap_bytes_used": u.used_omap,
        "percent_used": u.ratio(),
        "max_avail": u.max_avail(),
        "quota_objects": p.quota_max_objects,
        "quota_bytes": p.quota_max_bytes,
        "dirty": 0,
        "rd": count(u.sum.num_rd),
        "rd_bytes": count(u.sum.num_rd_kb) * 1024,
        "wr": count(u.sum.num_wr),
        "wr_bytes": count(u.sum.num_wr_kb) * 1024,
        "compress_bytes_used": u.compressed_used,
        "compress_under_bytes": u.compressed_original,
        "stored_raw": u.stored_raw(),
        "avail_raw": u.avail_raw as u64,
    })
}

fn plain(ctx: &Context<'_>, figures: &Figures, detail: bool) -> String {
    let mut raw = Table::new()
        .left(&["CLASS"])
        .right(&["SIZE", "AVAIL", "USED", "RAW USED", "%RAW USED"]);
    let mut line = |name: &str, s: &StoreStatfs| {
        let used = units::bytes(count(s.used()));
        raw.row([
            name.to_string(),
            units::bytes(count(s.total)),
            units::bytes(count(s.available)),
            used.clone(),
            used,
            units::percent(raw_ratio(s)),
        ]);
    };
    for (class, s) in by_class(ctx, figures) {
        line(&class, &s);
    }
    line("TOTAL", &figures.total);
    let pools = pool_table(ctx, figures, detail);
    format!(
        "--- RAW STORAGE ---\n{} \n--- POOLS ---\n{}",
        raw.print(),
        pools.print()
    )
}

fn pool_table(ctx: &Context<'_>, figures: &Figures, detail: bool) -> Table {
    let mut t = Table::new().left(&["POOL"]).right(&["ID", "PGS", "STORED"]);
    if detail {
        t = t.right(&["(DATA)", "(OMAP)"]);
    }
    t = t.right(&["OBJECTS", "USED"]);
    if detail {
        t = t.right(&["(DATA)", "(OMAP)"]);
    }
    t = t.right(&["%USED", "MAX AVAIL"]);
    if detail {
        t = t.columns(
            Align::Right,
            &[
                "QUOTA OBJECTS",
                "QUOTA BYTES",
                "DIRTY",
                "USED COMPR",
                "UNDER COMPR",
            ],
        );
    }
    for (id, p) in &ctx.map().pools {
        let u = PoolUse::of(ctx, figures, *id, p);
        let bytes = units::bytes;
        let mut row = vec![
            ctx.map().pool_name(*id).unwrap_or("").to_string(),
            id.to_string(),
            p.pg_num.to_string(),
            bytes(u.stored()),
        ];
        if detail {
            row.extend([bytes(u.stored_data), bytes(u.stored_omap)]);
        }
        row.extend([units::si(count(u.sum.num_objects)), bytes(u.used())]);
        if detail {
            row.extend([bytes(u.used_data), bytes(u.used_omap)]);
        }
        row.extend([units::percent(u.ratio()), bytes(u.max_avail())]);
        if detail {
            let or_na = |n: u64, text: String| if n == 0 { "N/A".to_string() } else { text };
            row.extend([
                or_na(p.quota_max_objects, units::si(p.quota_max_objects)),
                or_na(p.quota_max_bytes, bytes(p.quota_max_bytes)),
                "N/A".into(),
                bytes(u.compressed_used),
                bytes(u.compressed_original),
            ]);
        }
        t.row(row);
    }
    t
}

#[cfg(test)]
mod tests {
    use crate::commands::sample::Cluster;
    use types::pgstats::StoreStatfs;

    /// Used was what clients stored, times the copies, whatever the disks held; and omaps were always empty.
    #[test]
    fn used_is_what_the_osds_have_allocated() {
        let mut c = Cluster::with_osds(4);
        let make = r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"pgp_num":8,"size":3}"#;
        assert_eq!(c.run(make, b"").code, 0);
        c.report();
        c.pool_bytes(1, 8 << 20);
        let taken = StoreStatfs {
            allocated: 1 << 20,
            omap_allocated: 3000,
            data_compressed: 90_000,
            data_compressed_allocated: 100 << 10,
            data_compressed_original: 300 << 10,
            ..StoreStatfs::default()
        };
        let report = |c: &mut Cluster| {
            (0..4).for_each(|id| c.each_osd(id, |s| s.pool_statfs = [(1, taken)].into()));
        };
        report(&mut c);
        let doc = c.json(r#"{"prefix":"df","detail":"detail"}"#);
        let check = |key: &str, want: u64| assert_eq!(doc["pools"][0]["stats"][key], want, "{key}");
        check("stored_data", 8 << 20);
        check("stored_omap", 4000);
        check("stored", (8 << 20) + 4000);
        check("data_bytes_used", 4 << 20);
        check("omap_bytes_used", 12_000);
        check("bytes_used", (4 << 20) + 12_000);
        check("compress_bytes_used", 400 << 10);
        check("compress_under_bytes", 1200 << 10);
        let text = c.run(r#"{"prefix":"df","detail":"detail"}"#, b"");
        let text = String::from_utf8_lossy(&text.data).into_owned();
        assert!(text.contains("400 KiB") && text.contains("1.2 MiB"), "{text}");
        check("stored_raw", 3 * ((8 << 20) + 4000));
        // An OSD that is out keeps what it has until it is emptied.
        assert_eq!(c.run(r#"{"prefix":"osd out","ids":["3"]}"#, b"").code, 0);
        report(&mut c);
        let doc = c.json("df");
        assert_eq!(doc["pools"][0]["stats"]["bytes_used"], (4 << 20) + 12_000);
    }
}
