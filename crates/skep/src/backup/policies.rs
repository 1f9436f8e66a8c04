//! Policies: kept by the cluster under `config-key`, by the commands that every Ceph has.

use super::args;
use super::hand::{connect, failed};
use crate::options::Format;
use ::backup::time;
use ::client::Client;
use ::cluster::backups::{self, Policy, Row};
use bytes::Bytes;
use node::Error;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the cluster keeps of backups.
pub struct Kept {
    pub policies: Vec<Policy>,
    pub rows: BTreeMap<(String, String), Row>,
}

async fn ask(client: &Client, command: Value, input: Bytes) -> Result<Bytes, Error> {
    let done = client.mon_command(&command.to_string(), input).await;
    Ok(done.map_err(failed)?.output)
}

pub async fn read(client: &Client) -> Result<Kept, Error> {
    let mut keys: BTreeMap<String, Bytes> = BTreeMap::new();
    for prefix in [backups::POLICY, backups::ROW] {
        let command = json!({"prefix": "config-key dump", "key": prefix, "format": "json"});
        let output = ask(client, command, Bytes::new()).await?;
        let all: BTreeMap<String, String> = serde_json::from_slice(&output)
            .map_err(|e| failed(format!("an answer that cannot be read: {e}")))?;
        keys.extend(all.into_iter().map(|(k, v)| (k, Bytes::from(v))));
    }
    Ok(Kept {
        policies: backups::policies(&keys),
        rows: backups::rows(&keys),
    })
}

pub async fn put(client: &Client, key: &str, value: &Value) -> Result<(), Error> {
    let command = json!({"prefix": "config-key set", "key": key});
    ask(client, command, Bytes::from(value.to_string()))
        .await
        .map(drop)
}

pub async fn remove(client: &Client, key: &str) -> Result<(), Error> {
    ask(
        client,
        json!({"prefix": "config-key rm", "key": key}),
        Bytes::new(),
    )
    .await
    .map(drop)
}

/// Does something with a connection.
pub fn with_client<T>(
    cluster: &crate::options::ClusterArgs,
    work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
) -> Result<T, Error> {
    let all = async {
        let client = connect(cluster).await?;
        let done = work(&client).await;
        client.shutdown().await;
        done
    };
    io::task::block_on(all).map_err(failed)?
}

pub fn set(args: &args::PolicySet) -> Result<(), Error> {
    if !backups::is_name(&args.policy) {
        let most = backups::NAME_MAX;
        return Err(failed(format!(
            "a policy's name has 1 to {most} letters, digits, and ._-"
        )));
    }
    let absolute = |path: &std::path::Path| match path.is_absolute() {
        true => Ok(path.display().to_string()),
        false => Err(failed(format!(
            "{}: name a path from the root, since others run the policy",
            path.display()
        ))),
    };
    let now = ::backup::Environment::system().now();
    let policy = Policy {
        name: args.policy.clone(),
        of: args.of.clone(),
        to: absolute(&args.to)?,
        every: args.every,
        keep: args.keep.to_string(),
        key_file: absolute(&args.key_file)?,
        compress: args.compress == args::Compress::Zstd,
        trial: args.trial,
        host: args.host.clone().unwrap_or_else(io::files::hostname),
        since: now,
    };
    with_client(&args.cluster, async |client| {
        // A pattern without a pool fails now, not at night.
        let images = ::backup::run::matching(client, &policy.of)
            .await
            .map_err(failed)?;
        put(client, &backups::policy_key(&policy.name), &policy.json()).await?;
        println!(
            "policy {}: {} images now, every {}",
            policy.name,
            images.len(),
            time::duration(policy.every)
        );
        Ok(())
    })
}

pub fn rm(args: &args::PolicyRm) -> Result<(), Error> {
    with_client(&args.cluster, async |client| {
        let kept = read(client).await?;
        if !kept.policies.iter().any(|p| p.name == args.policy) {
            return Err(failed(format!("there is no policy '{}'", args.policy)));
        }
        remove(client, &backups::policy_key(&args.policy)).await?;
        for (policy, image) in kept.rows.keys().filter(|(p, _)| *p == args.policy) {
            remove(client, &backups::row_key(policy, image)).await?;
        }
        Ok(())
    })
}

pub fn ls(args: &args::PolicyLs) -> Result<(), Error> {
    let kept = with_client(&args.cluster, async |client| read(client).await)?;
    let rows_of = |name: &str| {
        let name = name.to_string();
        kept.rows.iter().filter(move |((p, _), _)| *p == name)
    };
    if args.format == Format::Json {
        let policy = |p: &Policy| {
            let mut o = p.json();
            o["name"] = p.name.clone().into();
            let images = rows_of(&p.name).map(|((_, image), row)| {
                let mut r = row.json();
                r["image"] = image.clone().into();
                r
            });
            o["images"] = images.collect();
            o
        };
        println!("{}", Value::Array(kept.policies.iter().map(policy).collect()));
        return Ok(());
    }
    for p in &kept.policies {
        let trial = p
            .trial
            .map(|t| format!(", tried every {}", time::duration(t)))
            .unwrap_or_default();
        println!(
            "{}: {} to {} every {}, keeps {}{trial}, by host {}",
            p.name,
            p.of,
            p.to,
            time::duration(p.every),
            p.keep,
            p.host
        );
        for ((_, image), row) in rows_of(&p.name) {
            let name = if image.is_empty() { "(the policy)" } else { image };
            println!("  {name}: {}", stands(row));
        }
    }
    Ok(())
}

fn stands(row: &Row) -> String {
    let mut out = match (row.good, &row.backup) {
        (Some(at), Some(id)) => format!("{} ({id}), {} bytes new", time::seconds(at), row.stored),
        _ => "no backup".to_string(),
    };
    if let Some(why) = &row.error {
        out.push_str(&format!("; FAILED at {}: {why}", time::seconds(row.last)));
    }
    if let Some(at) = row.trial_good {
        out.push_str(&format!("; tried {}", time::seconds(at)));
    }
    if let Some(why) = &row.trial_error {
        out.push_str(&format!("; TRIAL FAILED: {why}"));
    }
    out
}
