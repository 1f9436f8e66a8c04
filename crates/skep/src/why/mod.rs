//! `skep why`: where the operations of an image, a pool or a client spend their time, and what accounts for it. Asks the OSDs twice, some
//! seconds apart (`dump_op_stages`), and the monitor once (`doctor`).

pub mod args;
mod cause;
mod seen;

use crate::options::Format;
use args::{About, Args};
use cause::{Cause, causes, ms, sum};
use client::{Client, Conf, Target};
use node::Error;
use rbd::directory;
use seen::{Held, Row, Seen, Sum};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use types::OsdId;

/// OSDs that are asked at a time.
const AT_A_TIME: usize = 32;
/// Of whom the most operations are, where nobody was named.
const SHOWN_MAX: usize = 5;

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

/// Which rows are asked about.
enum Filter {
    All,
    Pool(i64),
    Image {
        pool: i64,
        namespace: String,
        id: String,
    },
    Client(String),
    /// As rows show it, without port and nonce.
    Address(String),
}

impl Filter {
    /// Whether a limit of this subject (`dump_qos`) may be why they wait: of their pool, namespace or image, and whatever user's.
    fn limited_by(&self, of: &Value) -> bool {
        let same = |name: &str, mine: &str| of[name].as_str().is_none_or(|theirs| theirs == mine);
        match self {
            _ if of["pool"].is_null() => true,
            Self::Pool(pool) => of["pool"] == *pool,
            Self::Image { pool, namespace, id } => {
                of["pool"] == *pool && same("namespace", namespace) && same("id", id)
            }
            Self::All | Self::Client(_) | Self::Address(_) => true,
        }
    }

    fn fits(&self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Pool(pool) => row.pool == *pool,
            Self::Image { pool, namespace, id } => {
                row.pool == *pool && row.namespace == *namespace && row.image == *id
            }
            Self::Client(name) => row.client == *name,
            Self::Address(ip) => {
                let place = row.addr.rsplit_once(':').map_or("", |(place, _)| place);
                place.trim_matches(['[', ']']) == ip
            }
        }
    }
}

pub fn run(args: &Args) -> Result<(), Error> {
    let about = args::about(args.what.as_deref()).map_err(Error::Usage)?;
    let told = io::task::block_on(async {
        let c = &args.cluster;
        let mut conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
        let timeout = Duration::from_secs(args.timeout);
        (conf.connect_timeout, conf.op_timeout, conf.mon_timeout) = (timeout, Some(timeout), Some(timeout));
        let client = Client::connect(conf).await.map_err(failed)?;
        let told = look(&client, &about, args).await;
        client.shutdown().await;
        told
    });
    let told = told.map_err(|source| Error::Io {
        what: "starting the client".into(),
        source,
    })??;
    println!("{}", told.trim_end());
    Ok(())
}

async fn filter(client: &Client, about: &About) -> Result<Filter, Error> {
    let pool = async |name: &str| client.pool(name).await.map_err(failed);
    Ok(match about {
        About::All => Filter::All,
        About::Pool(name) => Filter::Pool(pool(name).await?.pool_id()),
        About::Image { pool: name, namespace, name: image } => {
            let mut io = pool(name).await?;
            io.set_namespace(namespace.clone().into_bytes());
            let id = directory::id_of(&io, image).await;
            let id = id.map_err(|e| failed(format!("{name}/{image}: {e}")))?;
            Filter::Image {
                pool: io.pool_id(),
                namespace: namespace.clone(),
                id,
            }
        }
        About::Client(name) => Filter::Client(name.clone()),
        About::Address(ip) => Filter::Address(ip.to_string()),
    })
}

/// Answers by OSD; what went wrong instead.
type Answers = BTreeMap<OsdId, Result<Value, String>>;

async fn ask(client: &Client, osds: &[OsdId], seconds: u64) -> Answers {
    let command = json!({"prefix": "dump_op_stages", "seconds": seconds}).to_string();
    let mut all = Answers::new();
    for some in osds.chunks(AT_A_TIME) {
        let one = |osd: OsdId| {
            let (client, command) = (client.clone(), command.clone());
            let task = io::task::spawn_local(async move {
                let told = client.command(Target::Osd(osd), &command, "").await;
                let told = told.map_err(|e| e.to_string())?;
                serde_json::from_slice(&told.output).map_err(|e| format!("an answer that cannot be read: {e}"))
            });
            (osd, task)
        };
        let tasks: Vec<_> = some.iter().copied().map(one).collect();
        for (osd, task) in tasks {
            let told = task.await.unwrap_or_else(|e| Err(e.to_string()));
            all.insert(osd, told);
        }
    }
    all
}

async fn look(client: &Client, about: &About, args: &Args) -> Result<String, Error> {
    let filter = filter(client, about).await?;
    let map = client.map().map_err(failed)?;
    let up: Vec<OsdId> = map.osd_ids().filter(|osd| map.is_up(*osd)).collect();
    if up.is_empty() {
        return Err(failed("no OSD is up: `skep doctor`"));
    }
    let kept = args.seconds + 2 * args.timeout;
    let before = ask(client, &up, kept).await;
    io::task::sleep(Duration::from_secs(args.seconds)).await;
    let after = ask(client, &up, 1).await;
    let mut seen = Seen::default();
    for (osd, told) in after {
        match (before.get(&osd), told) {
            (Some(Ok(first)), Ok(second)) => seen.add(osd, first, &second),
            (Some(Err(why)), _) => seen.silent.push((osd, why.clone())),
            (_, Err(why)) => seen.silent.push((osd, why)),
            (None, Ok(_)) => {}
        }
    }
    for row in &mut seen.rows {
        row.mine = filter.fits(row);
    }
    let told = Told {
        about: args.what.clone().unwrap_or_else(|| "all clients".into()),
        seconds: args.seconds,
        whose: whose(&seen, &map, matches!(about, About::All)),
        causes: causes(&seen),
        held: seen.held(|of| filter.limited_by(of)),
        doctor: doctor(client, &filter, &seen).await,
        seen,
    };
    Ok(match args.format {
        Format::Json => format!("{:#}", told.json()),
        Format::Plain => told.text(),
    })
}

/// Who does most, where nobody was named.
fn whose(seen: &Seen, map: &types::osdmap::OsdMap, wanted: bool) -> Vec<(String, Sum)> {
    let mut all: BTreeMap<String, Sum> = BTreeMap::new();
    for row in seen.rows.iter().filter(|_| wanted) {
        let pool = map.pool_name(row.pool).unwrap_or("?");
        let parts = [pool, &row.namespace, if row.image.is_empty() { "" } else { &row.image }];
        let place: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        let name = format!("{} ({}) on {}", row.client, row.addr, place.join("/"));
        all.entry(name).or_default().add(&row.sum);
    }
    let mut all: Vec<(String, Sum)> = all.into_iter().collect();
    all.sort_by(|a, b| b.1.ops.total_cmp(&a.1.ops));
    all.truncate(SHOWN_MAX);
    all
}

/// What `doctor` finds blocked or slow that concerns them. Empty where the monitor does not say.
async fn doctor(client: &Client, filter: &Filter, seen: &Seen) -> Vec<Value> {
    let request = json!({"prefix": "doctor", "format": "json"}).to_string();
    let Ok(told) = client.mon_command(&request, "").await else {
        return Vec::new();
    };
    let told: Value = serde_json::from_slice(&told.output).unwrap_or_default();
    let mut names: Vec<String> = seen.rows.iter().filter(|r| r.mine).map(|r| r.client.clone()).collect();
    match filter {
        Filter::All => names.push(String::new()),
        Filter::Pool(pool) => names.push(format!("pg {pool}.")),
        Filter::Image { pool, id, .. } => names.extend([format!("pg {pool}."), id.clone()]),
        Filter::Client(name) => names.push(name.clone()),
        Filter::Address(ip) => names.push(ip.clone()),
    }
    names.sort_unstable();
    names.dedup();
    let concerns = |f: &&Value| {
        let urgent = matches!(f["level"].as_str(), Some("blocked" | "slow"));
        let said = format!("{} {}", f["subject"].as_str().unwrap_or(""), f["waits_for"].as_str().unwrap_or(""));
        urgent && names.iter().any(|n| said.contains(n.as_str()))
    };
    let findings = told["findings"].as_array().or_else(|| told.as_array());
    findings.into_iter().flatten().filter(concerns).take(5).cloned().collect()
}

struct Told {
    about: String,
    seconds: u64,
    whose: Vec<(String, Sum)>,
    causes: Vec<Cause>,
    held: Vec<Held>,
    doctor: Vec<Value>,
    seen: Seen,
}

fn size(bytes: f64) -> String {
    match bytes {
        b if b >= 1048576.0 => format!("{:.1} MiB", b / 1048576.0),
        b if b >= 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{b:.0} bytes"),
    }
}

impl Told {
    fn kind(&self, write: bool) -> Sum {
        sum(self.seen.rows.iter().filter(|r| r.mine && r.write == write))
    }

    fn json(&self) -> Value {
        let kind = |s: Sum| {
            json!({
                "ops": s.ops, "bytes": s.bytes, "queue_seconds": s.queue, "turn_seconds": s.turn, "durable_seconds": s.durable,
            })
        };
        let osd = |(id, h): (&OsdId, &seen::Host)| {
            json!({
                "osd": id, "seconds": h.seconds, "commit_seconds": h.commit, "busy": h.busy,
                "recovery_bytes_per_s": h.recovery, "scrub_bytes_per_s": h.scrub, "in_flight": h.in_flight,
            })
        };
        let silent = |(osd, why): &(OsdId, String)| json!({"osd": osd, "error": why});
        json!({
            "about": self.about,
            "seconds": self.seconds,
            "reads": kind(self.kind(false)),
            "writes": kind(self.kind(true)),
            "causes": self.causes.iter().map(Cause::json).collect::<Vec<_>>(),
            "most": self.whose.iter().map(|(name, s)| json!({"who": name, "ops": s.ops, "bytes": s.bytes})).collect::<Vec<_>>(),
            "held_back": self.held.iter().map(|h| json!({"of": h.of, "limits": h.limits, "times": h.times})).collect::<Vec<_>>(),
            "doctor": self.doctor,
            "osds": self.seen.osds.iter().map(osd).collect::<Vec<_>>(),
            "silent": self.seen.silent.iter().map(silent).collect::<Vec<_>>(),
            "uncounted": self.seen.uncounted,
        })
    }

    fn text(&self) -> String {
        let mut out = format!("{}: {} s, {} OSDs\n", self.about, self.seconds, self.seen.osds.len());
        for (name, write) in [("reads", false), ("writes", true)] {
            let s = self.kind(write);
            if s.ops > 0.0 {
                let part = |t: f64| t / s.all().max(1e-12) * 100.0;
                out.push_str(&format!(
                    "  {name:<6} {:>7.0} a second of {}, {} each: queue {:.0} %, turn {:.0} %, durable {:.0} %\n",
                    s.ops / self.seconds as f64,
                    size(s.bytes / s.ops),
                    ms(s.all() / s.ops),
                    part(s.queue),
                    part(s.turn),
                    part(s.durable),
                ));
            }
        }
        for (name, s) in &self.whose {
            let per_s = self.seconds as f64;
            out.push_str(&format!("  {:>7.0} a second, {}/s: {name}\n", s.ops / per_s, size(s.bytes / per_s)));
        }
        if self.causes.is_empty() {
            out.push_str("No operation was answered meanwhile.");
            let waiting: u64 = self.seen.osds.values().map(|h| h.in_flight).sum();
            out.push_str(&match waiting {
                0 => " None waits at the OSDs: what is slow has not reached them.\n".to_string(),
                n => format!(" {n} wait at the OSDs (of all clients).\n"),
            });
        } else {
            out.push_str("Where the time goes, of what the servers see; the way to the client comes on top:\n");
        }
        for cause in &self.causes {
            out.push_str(&format!("{:>5.0} %  {}, {} each\n", cause.share * 100.0, cause.what, ms(cause.mean)));
            for why in &cause.why {
                out.push_str(&format!("         {why}\n"));
            }
            if let Some(next) = &cause.next {
                out.push_str(&format!("         next: {next}\n"));
            }
        }
        for h in &self.held {
            let limits = h.limits.as_object().into_iter().flatten();
            let limits: Vec<String> = limits.map(|(name, n)| format!("{name}={n}")).collect();
            out.push_str(&format!(
                "Held back by a limit {:.0} times meanwhile, before the stages above: {} ({})\n         next: `skep qos ls`\n",
                h.times,
                limits.join(" "),
                h.of
            ));
        }
        for f in &self.doctor {
            let text = |name: &str| f[name].as_str().unwrap_or_default().to_string();
            out.push_str(&format!(
                "doctor: {}: {}\n         next: {}\n",
                text("subject"),
                text("waits_for"),
                text("next")
            ));
        }
        for (osd, why) in &self.seen.silent {
            out.push_str(&format!("osd.{osd} did not answer: {why}\n"));
        }
        if self.seen.uncounted > 0.0 {
            let n = self.seen.uncounted;
            out.push_str(&format!("{n:.0} operations of others are counted by nobody's name: too many clients at one OSD\n"));
        }
        out
    }
}
