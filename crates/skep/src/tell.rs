//! `skep tell`: one command to an OSD, a PG's primary or the manager, as `ceph tell` sends it.
//!
//! The words are sent as they are, without a look at the commands that the daemon has: it refuses what it does not know.

use crate::args;
use client::{Client, Conf, Target};
use node::Error;
use serde_json::{Map, Value};
use std::io::Write;
use std::time::Duration;

pub fn run(args: &args::Tell) -> Result<(), Error> {
    let cmd = command(args.target, &args.words).map_err(Error::Usage)?;
    let failed = |e: client::Error| Error::Usage(format!("{}: {e}", args.target));
    let told = io::task::block_on(async {
        let c = &args.cluster;
        let mut conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
        let timeout = Duration::from_secs(args.timeout);
        conf.connect_timeout = timeout;
        conf.op_timeout = Some(timeout);
        conf.mon_timeout = Some(timeout);
        let client = Client::connect(conf).await.map_err(failed)?;
        let told = client.command(args.target, &cmd, "").await.map_err(failed);
        client.shutdown().await;
        told
    });
    let told = told.map_err(|source| Error::Io {
        what: "starting the client".into(),
        source,
    })??;
    if !told.status.is_empty() {
        eprintln!("{}", told.status.trim_end());
    }
    let written = std::io::stdout().write_all(&told.output);
    written.map_err(|source| Error::Io {
        what: "writing the answer".into(),
        source,
    })
}

/// One JSON object: the words without `=` are the prefix, the others arguments. One that begins with `{` is sent as it is.
fn command(target: Target, words: &[String]) -> Result<String, String> {
    if let [json] = words
        && json.starts_with('{')
    {
        return Ok(json.clone());
    }
    let (args, prefix): (Vec<_>, Vec<_>) = words.iter().partition(|w| w.contains('='));
    let mut object = Map::new();
    for (key, value) in args.iter().filter_map(|a| a.split_once('=')) {
        if object.insert(key.to_string(), Value::from(value)).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    let prefix = prefix.iter().map(|w| w.as_str()).collect::<Vec<_>>().join(" ");
    if prefix.is_empty() {
        return Err("no command".into());
    }
    object.insert("prefix".into(), prefix.into());
    if let Target::Pg(pg) = target {
        object.entry("pgid").or_insert_with(|| pg.to_string().into());
    }
    Ok(Value::Object(object).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(target: &str, words: &[&str]) -> Result<Value, String> {
        let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        let text = command(target.parse().map_err(|e| format!("{e}"))?, &words)?;
        serde_json::from_str(&text).map_err(|e| e.to_string())
    }

    #[test]
    fn words_become_a_command() {
        for (target, words, want) in [
            ("osd.0", &["perf", "dump"][..], r#"{"prefix": "perf dump"}"#),
            (
                "osd.0",
                &["config", "get", "key=osd_memory_target"],
                r#"{"prefix": "config get", "key": "osd_memory_target"}"#,
            ),
            ("2.1f", &["query"], r#"{"prefix": "query", "pgid": "2.1f"}"#),
            ("mgr", &[r#"{"prefix": "x=y"}"#], r#"{"prefix": "x=y"}"#),
        ] {
            assert_eq!(of(target, words), Ok(serde_json::from_str(want).unwrap()));
        }
        assert!(of("osd.0", &["key=x"]).is_err());
        assert!(of("osd.0", &["get", "a=1", "a=2"]).is_err());
    }
}
