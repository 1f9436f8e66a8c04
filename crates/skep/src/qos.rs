//! `skep qos`: limits and reservations of what clients do per second. Sends the monitor's commands; `status` asks the OSDs.

use crate::options::{ClusterArgs, Format};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use client::{Client, Conf, Target};
use node::Error;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    Pool,
    Namespace,
    Image,
    User,
}

#[derive(Debug, ClapArgs)]
struct Whom {
    what: What,
    /// POOL, POOL/NAMESPACE, POOL[/NAMESPACE]/IMAGE or client.NAME
    who: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Set limits and reservations; those that are not named stay
    Set {
        #[command(flatten)]
        whom: Whom,
        /// KIND_limit, KIND_burst, KIND_burst_seconds=N, of the kinds iops, bps, read_iops, write_iops, read_bps, write_bps;
        /// iops_reserve, bps_reserve=N; N may end in K, M, G, T
        #[arg(required = true, value_name = "NAME=N")]
        amounts: Vec<String>,
        #[command(flatten)]
        how: How,
    },
    /// Take limits and reservations away: all, or those of some kinds
    Rm {
        #[command(flatten)]
        whom: Whom,
        #[arg(value_name = "KIND")]
        kinds: Vec<String>,
        #[command(flatten)]
        how: How,
    },
    /// List limits and reservations
    Ls {
        #[command(flatten)]
        how: How,
    },
    /// What each OSD that is up does about them: its share, what it let through, whom it holds
    Status {
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, ClapArgs)]
struct How {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How to print
    #[arg(short, long, value_enum, default_value = "plain")]
    format: Format,
    /// Seconds to wait for the cluster, and for each answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

fn failed(e: client::Error) -> Error {
    Error::Usage(e.to_string())
}

fn word(what: What) -> String {
    what.to_possible_value()
        .map_or(String::new(), |v| v.get_name().to_string())
}

pub fn run(args: &Args) -> Result<(), Error> {
    let (how, request) = match &args.command {
        Command::Set { whom, amounts, how } => {
            let what = word(whom.what);
            let request = json!({"prefix": "qos set", "what": what, "who": whom.who, "amounts": amounts});
            (how, Some(request))
        }
        Command::Rm { whom, kinds, how } => {
            let what = word(whom.what);
            (
                how,
                Some(json!({"prefix": "qos rm", "what": what, "who": whom.who, "kinds": kinds})),
            )
        }
        Command::Ls { how } => (how, Some(json!({"prefix": "qos ls"}))),
        Command::Status { how } => (how, None),
    };
    let told = io::task::block_on(async {
        let c = &how.cluster;
        let mut conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
        let timeout = Duration::from_secs(how.timeout);
        (conf.connect_timeout, conf.op_timeout, conf.mon_timeout) = (timeout, Some(timeout), Some(timeout));
        let client = Client::connect(conf).await.map_err(failed)?;
        let told = match request {
            Some(request) => ask(&client, request, how.format).await,
            None => status(&client, how.format).await,
        };
        client.shutdown().await;
        told
    });
    let text = told.map_err(|source| Error::Io {
        what: "starting the client".into(),
        source,
    })??;
    if !text.is_empty() {
        println!("{}", text.trim_end());
    }
    Ok(())
}

async fn ask(client: &Client, mut request: Value, format: Format) -> Result<String, Error> {
    if format == Format::Json {
        request["format"] = json!("json-pretty");
    }
    let told = client
        .mon_command(&request.to_string(), "")
        .await
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&told.output).into_owned())
}

async fn status(client: &Client, format: Format) -> Result<String, Error> {
    let map = client.map().map_err(failed)?;
    let up: Vec<_> = map.osd_ids().filter(|osd| map.is_up(*osd)).collect();
    let mut all = Vec::new();
    for osd in up {
        let asked = client
            .command(Target::Osd(osd), r#"{"prefix": "dump_qos"}"#, "")
            .await;
        // One that does not answer has no part in what is shown of the others.
        all.push(match asked {
            Ok(told) => {
                let mut row: Value = serde_json::from_slice(&told.output)
                    .map_err(|e| Error::Usage(format!("osd.{osd}: an answer that cannot be read: {e}")))?;
                row["osd"] = json!(osd);
                row
            }
            Err(e) => json!({"osd": osd, "error": e.to_string()}),
        });
    }
    match format {
        Format::Json => Ok(format!("{:#}", Value::Array(all))),
        Format::Plain => Ok(all.iter().map(|osd| of_osd(osd, &map)).collect()),
    }
}

fn of_osd(osd: &Value, map: &types::osdmap::OsdMap) -> String {
    let mut out = format!("osd.{}: ", osd["osd"]);
    if let Some(why) = osd["error"].as_str() {
        return format!("{out}{why}\n");
    }
    let wait = osd["longest_wait"].as_f64().unwrap_or(0.0);
    out.push_str(&format!(
        "{} objects held back, for {wait:.1} s at most\n",
        osd["objects_waiting"]
    ));
    out.push_str(&of_others(&osd["others"]));
    for limit in osd["limits"].as_array().into_iter().flatten() {
        let share = limit["share"].as_f64().unwrap_or(0.0) * 100.0;
        out.push_str(&format!(
            "  {} {}: {share:.0} % of it; {} operations, {} held back, {} that could not be\n",
            limit["subject"].as_str().unwrap_or_default(),
            name_of(limit, map),
            limit["ops"],
            limit["held_back"],
            limit["not_held"],
        ));
        if limit["ahead"].as_u64().is_some_and(|n| n > 0) {
            out.push_str(&format!("    of these {} ahead of others\n", limit["ahead"]));
        }
    }
    out
}

/// What reservations cost those who have none; nothing where there are none, and of an OSD that does not know them.
fn of_others(others: &Value) -> String {
    let part = others["part"].as_f64().unwrap_or(1.0) * 100.0;
    let count = |name: &str| others[name].as_u64().unwrap_or(0);
    if count("ahead") == 0 {
        return String::new();
    }
    let now = match others["reserved_at_work"].as_bool() {
        Some(true) => format!("at work now, others have {part:.0} % of what they had"),
        _ => "not at work now".to_string(),
    };
    format!(
        "  reservations: {now}; {} operations went ahead, others held back {} times, {} that could not be\n",
        count("ahead"),
        count("held_back"),
        count("not_held"),
    )
}

fn name_of(limit: &Value, map: &types::osdmap::OsdMap) -> String {
    let of = &limit["of"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    if of["user"].is_string() {
        return text(&of["user"]);
    }
    let pool = of["pool"]
        .as_i64()
        .and_then(|id| map.pool_name(id))
        .unwrap_or("?");
    let image = match limit["limits"]["name"].as_str() {
        Some(name) => name.to_string(),
        None => text(&of["id"]),
    };
    let parts = [pool.to_string(), text(&of["namespace"]), image];
    let parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    parts.join("/")
}
