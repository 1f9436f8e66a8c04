//! `skep status|doctor|conf|down`: talk to a running store by its data directory.

use crate::args;
use io::files::Holder;
use node::{DataDir, Error};
use serde_json::Value;
use std::time::{Duration, Instant};

/// `skep status`: what the running process says over its admin socket.
pub fn status(args: &args::StatusOf) -> Result<(), Error> {
    if !args.whole && !args.alive {
        return ask(&args.status, "skep status");
    }
    let dir = DataDir::existing(&args.status.place.dir())?;
    if args.alive {
        // Answered by the thread that looks after all roles.
        node::admin::ask(&dir, r#"{"prefix": "version"}"#)?;
        println!("alive");
        return Ok(());
    }
    let answer = node::admin::ask(&dir, r#"{"prefix": "skep status", "format": "json"}"#)?;
    let status = serde_json::from_str(&answer)
        .map_err(|e| Error::Usage(format!("an answer that cannot be read ({e}): {answer}")))?;
    match lacks(&status) {
        None => {
            println!("whole");
            Ok(())
        }
        Some(why) => Err(Error::Usage(why)),
    }
}

/// What keeps a cluster from being whole, by the answer of `skep status`.
fn lacks(status: &Value) -> Option<String> {
    let cluster = &status["cluster"];
    let (Some(groups), Some(osds)) = (
        cluster["pgmap"]["pgs_by_state"].as_array(),
        status["osds"].as_array(),
    ) else {
        return Some("no monitor runs in this process that could say whether the cluster is whole".into());
    };
    let is_clean = |state: &Value| {
        let words: Vec<&str> = state.as_str().unwrap_or_default().split('+').collect();
        words.contains(&"active") && words.contains(&"clean")
    };
    let count = |g: &Value| g["count"].as_u64().unwrap_or(0);
    let down = osds.iter().filter(|o| o["in"] == true && o["up"] != true).count();
    let unclean: u64 = groups
        .iter()
        .filter(|g| !is_clean(&g["state_name"]))
        .map(count)
        .sum();
    (down > 0 || unclean > 0).then(|| {
        format!(
            "not whole: {down} OSDs that are in are down, {unclean} placement groups are not active and clean"
        )
    })
}

/// `skep doctor`: what its monitor finds wrong, and the next step.
pub fn doctor(args: &args::Status) -> Result<(), Error> {
    ask(args, "doctor")
}

fn ask(args: &args::Status, command: &str) -> Result<(), Error> {
    let dir = DataDir::existing(&args.place.dir())?;
    let format = if args.format == args::Format::Json {
        "json-pretty"
    } else {
        "plain"
    };
    let answer = node::admin::ask(
        &dir,
        &format!("{{\"prefix\": \"{command}\", \"format\": \"{format}\"}}"),
    )?;
    println!("{}", answer.trim_end());
    Ok(())
}

/// `skep pool near`: one question to the running process, which changes the cluster.
pub fn pool(args: &args::Pool) -> Result<(), Error> {
    let args::PoolCommand::Near { pool, host, place } = &args.command;
    let dir = DataDir::existing(&place.dir())?;
    let request = serde_json::json!({"prefix": "skep pool near", "pool": pool, "host": host});
    let answer = node::admin::ask(&dir, &request.to_string())?;
    let answer: serde_json::Value = serde_json::from_str(&answer)
        .map_err(|e| Error::Usage(format!("an answer that cannot be read ({e}): {answer}")))?;
    match answer.get("error").and_then(serde_json::Value::as_str) {
        Some(why) => Err(Error::Usage(why.to_string())),
        None => {
            println!("{}", answer["text"].as_str().unwrap_or_default());
            Ok(())
        }
    }
}

/// `skep conf`: the ceph.conf, for `> /etc/ceph/ceph.conf` or a look.
pub fn conf(args: &args::Where) -> Result<(), Error> {
    let dir = DataDir::existing(&args.dir())?;
    let path = dir.conf_path();
    let text = io::files::read(&path).map_err(|source| Error::DataDir {
        path: path.clone(),
        source,
    })?;
    match text {
        Some(text) => print!("{text}"),
        None => return Err(Error::NotRunning(dir.root().to_path_buf())),
    }
    Ok(())
}

/// `skep down`: SIGTERM, then wait until the lock is free.
pub fn down(args: &args::Down) -> Result<(), Error> {
    let dir = DataDir::existing(&args.place.dir())?;
    let pid = match dir.holder()? {
        Holder::Process(pid) => pid,
        Holder::Nobody => return Err(Error::NotRunning(dir.root().to_path_buf())),
        Holder::Unknown => {
            let path = dir.lock_path();
            return Err(Error::Usage(format!(
                "{} is held by a process that does not say which it is",
                path.display()
            )));
        }
    };
    io::files::terminate(pid).map_err(|source| Error::Io {
        what: format!("stopping pid {pid}"),
        source,
    })?;
    let start = Instant::now();
    let bar = crate::up::spinner("stopping");
    while dir.holder()? == Holder::Process(pid) {
        if start.elapsed() > Duration::from_secs(args.timeout) {
            return Err(Error::Usage(format!(
                "pid {pid} has not ended after {} s; it goes on stopping",
                args.timeout
            )));
        }
        bar.tick();
        std::thread::sleep(Duration::from_millis(50));
    }
    bar.finish_and_clear();
    println!("stopped");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_cluster_lacks() {
        let status = |osds: Value, groups: Value| json!({"osds": osds, "cluster": {"pgmap": {"pgs_by_state": groups}}});
        let up = || json!([{"up": true, "in": true}, {"up": false, "in": false}]);
        let clean = json!([{"state_name": "active+clean", "count": 7}, {"state_name": "active+clean+scrubbing+deep", "count": 1}]);
        assert_eq!(lacks(&status(up(), clean.clone())), None);
        assert_eq!(lacks(&status(up(), json!([]))), None);
        let down = lacks(&status(json!([{"up": false, "in": true}]), clean)).unwrap();
        assert!(down.contains("1 OSDs"), "{down}");
        for state in [
            "active+undersized+degraded",
            "unknown",
            "peering",
            "active+cleanish",
        ] {
            let groups = json!([{"state_name": state, "count": 3}]);
            let said = lacks(&status(up(), groups)).unwrap();
            assert!(said.contains("3 placement groups"), "{state}: {said}");
        }
        assert!(
            lacks(&json!({"osds": [], "cluster": null}))
                .unwrap()
                .contains("no monitor")
        );
    }
}
