//! The admin socket's commands, and the client side for `skep status`.
//!
//! `skep status` shows this process; any other word is run as a monitor command (`ceph daemon
//! DIR/skep.asok status`), read-only ones only.

use crate::{DataDir, Error};
use metastore::ClusterHandle;
use serde_json::{Value, json};

/// Asks the process that serves `dir`.
pub fn ask(dir: &DataDir, request: &str) -> Result<String, Error> {
    let path = dir.admin_path();
    if dir.holder()?.is_none() {
        return Err(Error::NotRunning(dir.root().to_path_buf()));
    }
    let answer = io::task::block_on(io::admin::ask(&path, request)).and_then(|r| r);
    let bytes = answer.map_err(|source| Error::Io {
        what: format!("asking {}", path.display()),
        source,
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What the answers are made from.
#[derive(Clone)]
pub struct AdminContext {
    pub dir: DataDir,
    pub cluster: ClusterHandle,
    pub mon_addr: String,
    pub version: &'static str,
}

impl AdminContext {
    pub async fn answer(&self, request: String) -> Vec<u8> {
        let parsed: Value =
            serde_json::from_str(&request).unwrap_or_else(|_| json!({ "prefix": request.trim() }));
        let text = |key: &str| parsed.get(key).and_then(Value::as_str).unwrap_or_default();
        let out = match text("prefix") {
            "skep status" | "status" => self.status(text("format") != "plain"),
            "version" | "0" => json!({"version": self.version}).to_string(),
            "help" | "get_command_descriptions" => {
                json!({"status": "state of this process and of its cluster", "version": "version", "help": "this list"})
                    .to_string()
            }
            other => json!({"error": format!("unknown command {other:?}; try help")}).to_string(),
        };
        out.into_bytes()
    }

    fn status(&self, as_json: bool) -> String {
        let state = self.cluster.state();
        let stats = self.cluster.stats();
        let map = &state.osdmap;
        let memory = io::files::resident_bytes().unwrap_or(0);
        let (mut total, mut available) = (0i64, 0i64);
        for report in stats.osds.values() {
            total += report.stat.statfs.total;
            available += report.stat.statfs.available;
        }
        let osds: Vec<Value> = map
            .osd_ids()
            .map(|id| {
                let report = stats.osds.get(&id);
                json!({
                    "id": id,
                    "up": map.is_up(id),
                    "in": map.is_in(id),
                    "pgs": report.map_or(0, |r| r.pgs.len()),
                    "used_bytes": report.map_or(0, |r| r.stat.statfs.used()),
                    "total_bytes": report.map_or(0, |r| r.stat.statfs.total),
                })
            })
            .collect();
        let value = json!({
            "running": true,
            "version": self.version,
            "pid": std::process::id(),
            "fsid": state.fsid.to_string(),
            "data": self.dir.root(),
            "mon": self.mon_addr,
            "osdmap_epoch": map.epoch,
            "osds": osds,
            "pools": map.pools.len(),
            "total_bytes": total,
            "available_bytes": available,
            "resident_bytes": memory,
        });
        if as_json {
            serde_json::to_string_pretty(&value).unwrap_or_default()
        } else {
            plain(&value)
        }
    }
}

fn plain(v: &Value) -> String {
    let n = |key: &str| v[key].as_i64().unwrap_or(0);
    let osds = v["osds"].as_array().cloned().unwrap_or_default();
    let up = osds.iter().filter(|o| o["up"] == json!(true)).count();
    let mut out = format!(
        "running   pid {}, skep {}\ncluster   {}\nmonitor   {}\ndata      {}\nosds      {up} of {} up, map epoch {}\npools     {}\nspace     {} of {} used\nmemory    {} resident\n",
        v["pid"],
        v["version"].as_str().unwrap_or_default(),
        v["fsid"].as_str().unwrap_or_default(),
        v["mon"].as_str().unwrap_or_default(),
        v["data"].as_str().unwrap_or_default(),
        osds.len(),
        v["osdmap_epoch"],
        v["pools"],
        size(n("total_bytes") - n("available_bytes")),
        size(n("total_bytes")),
        size(n("resident_bytes")),
    );
    for o in osds {
        let state = if o["up"] == json!(true) { "up" } else { "down" };
        out.push_str(&format!(
            "  osd.{:<4} {state:<5} {:>4} pgs  {:>10} of {} used\n",
            o["id"],
            o["pgs"],
            size(o["used_bytes"].as_i64().unwrap_or(0)),
            size(o["total_bytes"].as_i64().unwrap_or(0)),
        ));
    }
    out
}

/// `1.5 GiB`.
fn size(bytes: i64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}
