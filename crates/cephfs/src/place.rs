//! Where a file system's metadata server is: what the monitor says of it.

use client::{Client, Error};
use serde_json::Value;
use types::{EntityAddr, Errno};

/// How far the server of rank 0 is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nobody, or it reads what the one before has left.
    Away,
    /// It waits for those who had a session.
    Reconnect,
    /// It takes nobody who had one and has not come back.
    Rejoin,
    Active,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub fs: String,
    pub epoch: u32,
    pub gid: u64,
    pub stage: Stage,
    pub addr: Option<EntityAddr>,
    pub ranks: usize,
    pub max_file_size: u64,
}

/// `name` empty: the only one there is.
pub async fn standing(client: &Client, name: &str) -> crate::Result<Standing> {
    let said = client
        .mon_command(r#"{"prefix": "fs dump", "format": "json"}"#, "")
        .await?;
    let dump: Value = serde_json::from_slice(&said.output)
        .map_err(|e| Error::Malformed(format!("map of file systems: {e}")))?;
    of_dump(&dump, name)
}

fn of_dump(dump: &Value, name: &str) -> crate::Result<Standing> {
    let all = dump["filesystems"].as_array().map_or(&[][..], Vec::as_slice);
    let mut maps = all.iter().map(|fs| &fs["mdsmap"]);
    let map = match name {
        "" => maps.next(),
        _ => maps.find(|m| m["fs_name"] == name),
    };
    let map = map.ok_or_else(|| {
        Error::refused(
            Errno::ENOENT.code(),
            format!("file system '{name}' does not exist"),
        )
    })?;
    let gid = map["up"]["mds_0"].as_u64().unwrap_or_default();
    let info = &map["info"][format!("gid_{gid}")];
    let stage = match info["state"].as_str().unwrap_or_default() {
        "up:reconnect" => Stage::Reconnect,
        "up:rejoin" | "up:clientreplay" => Stage::Rejoin,
        "up:active" => Stage::Active,
        _ => Stage::Away,
    };
    Ok(Standing {
        fs: map["fs_name"].as_str().unwrap_or_default().to_string(),
        epoch: map["epoch"].as_u64().unwrap_or_default() as u32,
        gid,
        stage,
        addr: addr_of(info),
        ranks: map["in"].as_array().map_or(0, Vec::len),
        max_file_size: map["max_file_size"].as_u64().unwrap_or(u64::MAX),
    })
}

fn addr_of(info: &Value) -> Option<EntityAddr> {
    let all = info["addrs"]["addrvec"].as_array()?;
    let v2 = all.iter().find(|a| a["type"] == "v2")?;
    let sock = v2["addr"].as_str()?.parse().ok()?;
    let nonce = v2["nonce"].as_u64().unwrap_or_default() as u32;
    Some(EntityAddr::msgr2(sock, nonce))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dump(state: &str) -> Value {
        let addrs = json!({"addrvec": [
            {"type": "v2", "addr": "127.0.0.1:6800", "nonce": 7},
            {"type": "v1", "addr": "127.0.0.1:6801", "nonce": 7},
        ]});
        json!({"filesystems": [{"id": 3, "mdsmap": {
            "fs_name": "a", "epoch": 12, "in": [0], "up": {"mds_0": 4101},
            "info": {"gid_4101": {"gid": 4101, "state": state, "addrs": addrs}},
        }}]})
    }

    #[test]
    fn a_server_is_found_by_name_and_state() {
        for (state, stage) in [
            ("up:replay", Stage::Away),
            ("up:reconnect", Stage::Reconnect),
            ("up:rejoin", Stage::Rejoin),
            ("up:active", Stage::Active),
        ] {
            let s = of_dump(&dump(state), "a").unwrap();
            assert_eq!((s.gid, s.stage, s.ranks), (4101, stage, 1));
            assert_eq!(s.addr.unwrap().sock, Some("127.0.0.1:6800".parse().unwrap()));
        }
        assert!(of_dump(&dump("up:active"), "b").unwrap_err().is_not_found());
        assert_eq!(of_dump(&dump("up:active"), "").unwrap().fs, "a");
    }
}
