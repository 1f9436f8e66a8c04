//! Reports of crashes of daemons, as Ceph's manager module `crash` keeps them: JSON under keys of the store of keys and values.
//! A panic of a role writes one (`node::supervise`), and so does whoever posts one.
//!
//! Bound: [`CRASHES_MAX`]; the oldest go.

use crate::changes::Change;
use crate::state::ClusterState;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use types::{Utime, Uuid, release};

const PREFIX: &str = "mgr/crash/crash/";
pub const CRASHES_MAX: usize = 500;
/// Of one backtrace.
const FRAMES_MAX: usize = 100;

/// A panic, and where.
#[derive(Debug, Clone)]
pub struct Crash<'a> {
    /// `osd.3`
    pub entity: &'a str,
    pub thread: &'a str,
    pub what: &'a str,
    /// `file:line`
    pub place: &'a str,
    pub backtrace: &'a [String],
    pub hostname: &'a str,
}

impl Crash<'_> {
    fn json(&self, id: &str, at: Utime) -> Value {
        let frames: Vec<&String> = self.backtrace.iter().take(FRAMES_MAX).collect();
        let (file, line) = self.place.rsplit_once(':').unwrap_or((self.place, ""));
        json!({
            "crash_id": id,
            "timestamp": stamp(at),
            "process_name": "skep",
            "entity_name": self.entity,
            "ceph_version": release::SPOKEN_VERSION,
            "utsname_hostname": self.hostname,
            "utsname_sysname": "Linux",
            "utsname_machine": std::env::consts::ARCH,
            "assert_condition": self.what,
            "assert_func": "panic",
            "assert_file": file,
            "assert_line": line.parse::<u64>().unwrap_or(0),
            "assert_thread_name": self.thread,
            "assert_msg": format!("thread {} panicked: {} ({})", self.thread, self.what, self.place),
            "backtrace": frames,
        })
    }
}

/// `2026-11-25T10:00:00.000000Z`
pub fn stamp(at: Utime) -> String {
    let text = at.to_string();
    match text.split_once('+') {
        Some((time, _)) => format!("{time}Z"),
        None => text,
    }
}

/// A new report; room is made for it.
pub fn report(state: &ClusterState, crash: &Crash<'_>, at: Utime, random: [u8; 16]) -> Vec<Change> {
    let id = format!("{}_{}", stamp(at), Uuid::from_random(random));
    put(state, &id, &crash.json(&id, at))
}

/// Keeps a report under its id; the oldest goes where there are too many.
pub fn put(state: &ClusterState, id: &str, report: &Value) -> Vec<Change> {
    let known: Vec<String> = all(state).into_iter().map(|(id, _)| id).collect();
    let fresh = usize::from(!known.iter().any(|k| k == id));
    let surplus = (known.len() + fresh).saturating_sub(CRASHES_MAX);
    let mut out: Vec<Change> = known.iter().take(surplus).map(|id| rm(id)).collect();
    out.push(Change::ConfigKeySet {
        key: format!("{PREFIX}{id}"),
        value: Bytes::from(report.to_string()),
    });
    out
}

pub fn rm(id: &str) -> Change {
    Change::ConfigKeyRm {
        key: format!("{PREFIX}{id}"),
    }
}

/// Ids and reports, the oldest first: ids begin with the time.
pub fn all(state: &ClusterState) -> Vec<(String, Map<String, Value>)> {
    let rows = state.config_keys.range(PREFIX.to_string()..);
    let rows = rows.map_while(|(k, v)| Some((k.strip_prefix(PREFIX)?, v)));
    let parsed = rows.filter_map(|(id, raw)| match serde_json::from_slice(raw).ok()? {
        Value::Object(report) => Some((id.to_string(), report)),
        _ => None,
    });
    parsed.collect()
}

pub fn get(state: &ClusterState, id: &str) -> Option<Map<String, Value>> {
    let raw = state.config_keys.get(&format!("{PREFIX}{id}"))?;
    match serde_json::from_slice(raw).ok()? {
        Value::Object(report) => Some(report),
        _ => None,
    }
}
