//! Pools: how many copies, how much is in them, what clients do there.

use crate::cluster::{Peek, ask};
use crate::show::{self, anchor, bytes, cell, count, fill, head, num, percent};
use crate::visit::{Drawn, Visit};
use maud::{Markup, html};
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

pub async fn draw(visit: Rc<Visit>) -> Drawn {
    let client = visit.client();
    let (pools, df, rates) = tokio::join!(
        ask(client, "osd pool ls", &[("detail", "detail".into())]),
        ask(client, "df", &[("detail", "detail".into())]),
        ask(client, "osd pool stats", &[]),
    );
    let empty = Value::Null;
    let used = by_id(df.as_ref().map_or(&[][..], |df| df.list("pools")), "id");
    let rates = by_id(
        rates
            .as_ref()
            .ok()
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice),
        "pool_id",
    );
    let body = show::asked(&pools, |pools| {
        let pools = pools.as_array().map_or(&[][..], Vec::as_slice);
        if pools.is_empty() {
            return show::none("There are no pools yet: ceph osd pool create NAME makes one.");
        }
        let heads = [
            "Pool", "Use", "#Copies", "#Groups", "#Stored", "Full", "#Used", "#Objects", "#Room", "#Read",
            "#Write", "Quota",
        ];
        let rows: Vec<Markup> = pools
            .iter()
            .map(|p| {
                let id = p.number("pool_id");
                let of = |all: &BTreeMap<u64, &Value>| {
                    all.get(&id).map_or_else(|| empty.clone(), |v| (*v).clone())
                };
                row(p, &of(&used)["stats"], &of(&rates)["client_io_rate"])
            })
            .collect();
        show::table("Pools", &heads, &rows)
    });
    Drawn::new("Pools", show::live(&visit, 10, &body))
}

fn by_id<'a>(all: &'a [Value], name: &str) -> BTreeMap<u64, &'a Value> {
    all.iter().map(|v| (v.number(name), v)).collect()
}

/// The applications of a pool.
fn uses(pool: &Value) -> Vec<String> {
    let all = pool["application_metadata"].as_object();
    all.map(|a| a.keys().cloned().collect()).unwrap_or_default()
}

/// Names of the pools that are for images.
pub fn rbd_pools(pools: &Value) -> Vec<String> {
    let all = pools.as_array().map_or(&[][..], Vec::as_slice);
    let of_images = all.iter().filter(|p| uses(p).iter().any(|u| u == "rbd"));
    of_images.map(|p| p.text("pool_name").to_string()).collect()
}

fn row(pool: &Value, stats: &Value, rates: &Value) -> Markup {
    let name = pool.text("pool_name");
    let uses = uses(pool);
    let title = match uses.iter().any(|u| u == "rbd") {
        true => anchor("/images", &[("pool", name)], name),
        false => html! { (name) },
    };
    let share = stats.float("percent_used");
    let groups = match pool.number("pg_num") == pool.number("pg_num_target") {
        true => pool.number("pg_num").to_string(),
        false => format!(
            "{}, on the way to {}",
            pool.number("pg_num"),
            pool.number("pg_num_target")
        ),
    };
    let rate = |bytes_name: &str, ops: &str| {
        format!(
            "{}/s, {} op/s",
            bytes(rates.number(bytes_name)),
            count(rates.number(ops))
        )
    };
    html! {
        (head(&title))
        (cell(uses.join(", ")))
        (num(format!("{} (serves with {})", pool.number("size"), pool.number("min_size"))))
        (num(groups))
        (num(bytes(stats.number("stored"))))
        td.full { (fill(share, &format!("{name} is full to"))) " " (percent(share)) }
        (num(bytes(stats.number("bytes_used"))))
        (num(count(stats.number("objects"))))
        (num(bytes(stats.number("max_avail"))))
        (num(rate("read_bytes_sec", "read_op_per_sec")))
        (num(rate("write_bytes_sec", "write_op_per_sec")))
        (cell(quota(pool)))
    }
}

fn quota(pool: &Value) -> String {
    let (most, objects) = (pool.number("quota_max_bytes"), pool.number("quota_max_objects"));
    let parts = [
        (most > 0).then(|| bytes(most)),
        (objects > 0).then(|| format!("{objects} objects")),
    ];
    let all: Vec<String> = parts.into_iter().flatten().collect();
    if all.is_empty() {
        "none".into()
    } else {
        all.join(", ")
    }
}
