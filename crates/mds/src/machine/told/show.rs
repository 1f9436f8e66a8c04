//! How sessions, requests and counters are shown, by the names that the real one uses.

use crate::machine::parts::sessions::State;
use crate::machine::{ClientId, Machine, Request};
use crate::row::{Key, Row};
use messages::fs::op;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use types::Errno;

/// Requests that are shown: the loop serves nobody meanwhile.
const OPS_MAX: usize = 4096;

/// As logs of the real one call operations.
fn op_name(number: u32) -> String {
    let name = match number {
        op::LOOKUP => "lookup",
        op::GETATTR => "getattr",
        op::LOOKUPPARENT => "lookupparent",
        op::LOOKUPINO => "lookupino",
        op::LOOKUPNAME => "lookupname",
        op::GETFILELOCK => "getfilelock",
        op::SETXATTR => "setxattr",
        op::RMXATTR => "rmxattr",
        op::SETLAYOUT => "setlayout",
        op::SETATTR => "setattr",
        op::SETFILELOCK => "setfilelock",
        op::SETDIRLAYOUT => "setdirlayout",
        op::MKNOD => "mknod",
        op::LINK => "link",
        op::UNLINK => "unlink",
        op::RENAME => "rename",
        op::MKDIR => "mkdir",
        op::RMDIR => "rmdir",
        op::SYMLINK => "symlink",
        op::CREATE => "create",
        op::OPEN => "open",
        op::READDIR => "readdir",
        op::LSSNAP => "lssnap",
        op::LOOKUPSNAP => "lookupsnap",
        op::MKSNAP => "mksnap",
        op::RMSNAP => "rmsnap",
        op::RENAMESNAP => "renamesnap",
        other => return format!("{other:#x}"),
    };
    name.to_string()
}

impl Machine {
    /// The clients that all filters fit: `id=`, `auth_name=`, `state=`, `client_metadata.KEY=`, or a number alone.
    pub(super) fn filtered(&self, filters: &[String]) -> Result<BTreeSet<ClientId>, (Errno, String)> {
        let mut left: BTreeSet<ClientId> = self.sessions.iter().map(|(id, _)| id).collect();
        for filter in filters {
            let (key, wanted) = filter.split_once('=').unwrap_or(("id", filter));
            match key {
                "id" => {
                    let id: ClientId = wanted
                        .parse()
                        .map_err(|_| (Errno::EINVAL, format!("'{wanted}' is no number of a client")))?;
                    left.retain(|client| *client == id);
                }
                "auth_name" => left.retain(|c| self.entity(*c).split_once('.').is_some_and(|(_, n)| n == wanted)),
                "state" => left.retain(|c| self.state_of(*c) == wanted),
                _ => match key.strip_prefix("client_metadata.") {
                    Some(field) => left.retain(|c| {
                        let row = self.table.peek(&Key::Session(*c));
                        matches!(row, Some(Row::Session(s)) if s.metadata.get(field).is_some_and(|v| v == wanted))
                    }),
                    None => return Err((Errno::EINVAL, format!("Invalid filter '{filter}'"))),
                },
            }
        }
        Ok(left)
    }

    fn entity(&self, client: ClientId) -> String {
        match self.table.peek(&Key::Session(client)) {
            Some(Row::Session(s)) => s.entity.clone(),
            _ => String::new(),
        }
    }

    fn state_of(&self, client: ClientId) -> &'static str {
        match self.sessions.get(client).map(|s| s.state) {
            Some(State::Open) => "open",
            Some(State::Away) => "reconnecting",
            Some(State::Evicted) => "killing",
            None => "closed",
        }
    }

    pub(super) fn session_shown(&self, client: ClientId) -> Value {
        let Some(s) = self.sessions.get(client) else {
            return Value::Null;
        };
        let mut metadata = Map::new();
        metadata.insert(
            "client_features".into(),
            json!({"feature_bits": format!("{:#018x}", s.features.bits)}),
        );
        if let Some(Row::Session(row)) = self.table.peek(&Key::Session(client)) {
            let said = row
                .metadata
                .iter()
                .map(|(k, v)| (k.clone(), Value::from(v.clone())));
            metadata.extend(said);
        }
        let addr = s.addr.sock.map(|a| a.to_string()).unwrap_or_default();
        let quiet = self.now.monotonic.saturating_sub(s.renewed);
        json!({
            "id": client,
            "entity": {
                "name": {"type": "client", "num": client},
                "addr": {"type": "v1", "addr": addr, "nonce": s.addr.nonce},
            },
            "auth_name": self.entity(client),
            "state": self.state_of(client),
            "num_leases": self.leases.len_of(client),
            "num_caps": s.caps.len(),
            "requests_in_flight": s.requests.len(),
            "num_completed_requests": s.done.len(),
            "num_completed_flushes": s.flushed.len(),
            "connected": s.conn.is_some(),
            "last_seen_s": quiet.as_secs_f64(),
            "reconnecting": s.state == State::Away,
            "inst": format!("client.{client} v1:{addr}/{}", s.addr.nonce),
            "client_metadata": metadata,
        })
    }

    /// Requests under way that have waited for so many seconds: their number, and the oldest.
    pub(super) fn ops(&self, at_least_s: u64) -> Value {
        let age = |r: &Request| self.now.monotonic.saturating_sub(r.began);
        let waiting = || self.requests.values().filter(|r| age(r).as_secs() >= at_least_s);
        let shown = waiting().take(OPS_MAX);
        let ops: Vec<Value> = shown.map(|r| self.op_shown(r, age(r).as_secs_f64())).collect();
        json!({"num_ops": waiting().count(), "ops": ops})
    }

    fn op_shown(&self, r: &Request, age: f64) -> Value {
        let path = String::from_utf8_lossy(&r.m.path.path);
        let name = op_name(r.m.op);
        let (client, tid) = (r.client, r.tid);
        json!({
            "description": format!("client_request(client.{client}:{tid} {name} #{:#x}/{path})", r.m.path.ino),
            "age": age,
            "duration": age,
            "type_data": {
                "flag_point": format!("{:?}", r.phase),
                "reqid": format!("client.{client}:{tid}"),
                "op_type": "client_request",
                "client_info": {"client": format!("client.{client}"), "tid": tid},
            },
        })
    }

    pub(super) fn cache_status(&self) -> Value {
        json!({"pool": {"items": self.table.count(), "bytes": self.table.bytes() + self.leases.bytes()},
               "dirty": self.table.dirty_len(), "memory_limit": self.options.cache_bytes})
    }

    /// Of one logger, or of one counter, where they are named.
    pub(super) fn counters_shown(&self, logger: &str, counter: &str) -> Value {
        let caps: usize = self.sessions.iter().map(|(_, s)| s.caps.len()).sum();
        let all = json!({
            "mds": {
                "request": self.last_request,
                "requests_in_flight": self.requests.len(),
                "caps": caps,
                "leases": self.leases.len(),
                "inodes": self.table.inodes(),
            },
            "mds_log": {"transactions": self.tx, "durable": self.committed, "segments": self.wb.segments.len()},
            "mds_mem": {"bytes": self.table.bytes(), "dirty_rows": self.table.dirty_len()},
            "mds_sessions": {"session_count": self.sessions.len()},
        });
        let Value::Object(mut loggers) = all else {
            return all;
        };
        loggers.retain(|name, _| logger.is_empty() || name == logger);
        for counters in loggers.values_mut() {
            if let Value::Object(counters) = counters {
                counters.retain(|name, _| counter.is_empty() || name == counter);
            }
        }
        Value::Object(loggers)
    }

    pub(super) fn status(&self) -> Value {
        json!({
            "whoami": self.place.rank,
            "fs_name": self.place.name,
            "state": self.state.to_string(),
            "want_state": self.state.to_string(),
            "incarnation": self.place.incarnation,
            "mdsmap_epoch": self.place.epoch,
            "osdmap_epoch": self.osd_epoch,
            "osdmap_epoch_barrier": self.osd_barrier,
            "sessions": self.sessions.len(),
        })
    }
}
