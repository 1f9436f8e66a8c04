//! `skep status|doctor|conf|down`: talk to a running store by its data directory.

use crate::args;
use node::{DataDir, Error};
use std::time::{Duration, Instant};

/// `skep status`: what the running process says over its admin socket.
pub fn status(args: &args::Status) -> Result<(), Error> {
    ask(args, "skep status")
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
    let Some(pid) = dir.holder()? else {
        return Err(Error::NotRunning(dir.root().to_path_buf()));
    };
    io::files::terminate(pid).map_err(|source| Error::Io {
        what: format!("stopping pid {pid}"),
        source,
    })?;
    let start = Instant::now();
    let bar = crate::up::spinner("stopping");
    while dir.holder()? == Some(pid) {
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
