//! Where the operations of an image, a pool or a client spend their time, by stage, and what accounts for it. Asks the OSDs twice, some
//! seconds apart (`dump_op_stages`), and the monitor once (`doctor`). For `skep why` and the console.
//!
//! Bounds: [`AT_A_TIME`] OSDs are asked at a time, each answer is waited for as long as the asker says.

mod about;
mod cause;
mod seen;

pub use about::{About, about};
pub use cause::{Cause, ms};
pub use seen::{Held, Sum};

use cause::{busy, causes, sum};
use client::{Client, Target};
use io::task;
use rbd::directory;
use seen::{Row, Seen};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use types::OsdId;

/// OSDs that are asked at a time.
const AT_A_TIME: usize = 32;
/// Of whom the most operations are, where nobody was named.
const SHOWN_MAX: usize = 5;

/// A question.
#[derive(Debug)]
pub struct Question<'a> {
    /// As it is told again.
    pub name: &'a str,
    pub about: About,
    /// How long to look.
    pub seconds: u64,
    /// How long each answer is waited for.
    pub within: Duration,
    /// How long somebody waits for all of it: OSDs count no longer than that. None: as long as the answers may take.
    pub all: Option<Duration>,
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
    /// Whether a limit of this subject (`dump_qos`) holds for them. Of users that is not known: the servers know sessions.
    fn limited_by(&self, of: &Value) -> bool {
        let same = |name: &str, mine: &str| of[name].as_str().is_none_or(|theirs| theirs == mine);
        match self {
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
            Self::Pool(pool) => row.of.pool == *pool,
            Self::Image { pool, namespace, id } => {
                row.of.pool == *pool && row.of.namespace == *namespace && row.of.image == *id
            }
            Self::Client(name) => row.of.client == *name,
            Self::Address(ip) => {
                let place = row.addr.rsplit_once(':').map_or("", |(place, _)| place);
                place.trim_matches(['[', ']']) == ip
            }
        }
    }
}

async fn filter(client: &Client, about: &About) -> Result<Filter, String> {
    let pool = async |name: &str| client.pool(name).await.map_err(|e| e.to_string());
    Ok(match about {
        About::All => Filter::All,
        About::Pool(name) => Filter::Pool(pool(name).await?.pool_id()),
        About::Image {
            pool: name,
            namespace,
            name: image,
        } => {
            let mut io = pool(name).await?;
            io.set_namespace(namespace.clone().into_bytes());
            let id = directory::id_of(&io, image).await;
            let id = id.map_err(|e| format!("{name}/{image}: {e}"))?;
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

/// What a command answers in time.
async fn answer<T: std::fmt::Display>(
    asked: impl Future<Output = Result<client::CommandOutput, T>>,
    within: Duration,
) -> Result<Value, String> {
    let said = task::timeout(within, asked).await;
    let said = said.map_err(|_| format!("no answer within {} s", within.as_secs()))?;
    let said = said.map_err(|e| e.to_string())?;
    serde_json::from_slice(&said.output).map_err(|e| format!("an answer that cannot be read: {e}"))
}

async fn ask(client: &Client, osds: &[OsdId], seconds: u64, within: Duration) -> Answers {
    let command = json!({"prefix": "dump_op_stages", "seconds": seconds}).to_string();
    let command = command.as_str();
    let one = |osd: &OsdId| {
        let osd = *osd;
        async move {
            (
                osd,
                answer(client.command(Target::Osd(osd), command, ""), within).await,
            )
        }
    };
    let told = task::several(AT_A_TIME, osds.iter().map(one)).await;
    told.into_iter().collect()
}

/// Looks for the time that is asked for.
pub async fn look(client: &Client, question: &Question<'_>) -> Result<Told, String> {
    let (about, seconds, within) = (&question.about, question.seconds, question.within);
    let filter = task::timeout(within, filter(client, about)).await;
    let filter = filter.map_err(|_| {
        let (name, s) = (question.name, within.as_secs());
        format!(
            "what {name} is was not found out within {s} s (its pool, the id of its image): `skep doctor`"
        )
    })??;
    let map = client.map().map_err(|e| e.to_string())?;
    let up: Vec<OsdId> = map.osd_ids().filter(|osd| map.is_up(*osd)).collect();
    if up.is_empty() {
        return Err("no OSD is up: `skep doctor`".into());
    }
    // Longer than the questions to OSDs that hang may last.
    let rounds = up.len().div_ceil(AT_A_TIME) as u64;
    let kept = seconds + within.as_secs().max(1) * (2 + 2 * rounds);
    let kept = question.all.map_or(kept, |all| kept.min(all.as_secs()));
    let before = ask(client, &up, kept, within).await;
    task::sleep(Duration::from_secs(seconds)).await;
    let has_told = |osd: &&OsdId| before.get(*osd).is_some_and(Result::is_ok);
    let counted: Vec<OsdId> = up.iter().filter(has_told).copied().collect();
    let mut after = ask(client, &counted, 1, within).await;
    let mut seen = Seen::default();
    for (osd, first) in before {
        match (first, after.remove(&osd)) {
            (Ok(first), Some(Ok(second))) => seen.add(osd, &first, &second),
            (Ok(_), Some(Err(why))) | (Err(why), _) => seen.silent.push((osd, why)),
            (Ok(_), None) => {}
        }
    }
    for row in &mut seen.rows {
        row.mine = filter.fits(row);
    }
    let causes = causes(&seen);
    Ok(Told {
        about: question.name.to_string(),
        seconds,
        whose: whose(&seen, &map, matches!(about, About::All)),
        busy: busy(&seen),
        held: seen.held(|of| filter.limited_by(of)),
        doctor: doctor(client, &filter, &seen, &causes, within).await,
        causes,
        seen,
    })
}

/// Who does most, where nobody was named: per second.
fn whose(seen: &Seen, map: &types::osdmap::OsdMap, wanted: bool) -> Vec<Busiest> {
    let mut all: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
    for row in seen.rows.iter().filter(|_| wanted) {
        let pool = map.pool_name(row.of.pool).unwrap_or("?");
        let image = match row.of.image.as_str() {
            "" => String::new(),
            id => format!("image {id}"),
        };
        let parts = [pool, &row.of.namespace, &image];
        let place: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        let name = format!("{} ({}) on {}", row.of.client, row.addr, place.join("/"));
        let (ops, bytes) = all.entry((name, row.of.client.clone())).or_default();
        let rate = seen.rate(row);
        *ops += rate;
        *bytes += rate * row.sum.bytes / row.sum.ops.max(1.0);
    }
    let one = |((name, client), (ops, bytes))| Busiest {
        name,
        client,
        ops,
        bytes,
    };
    let mut all: Vec<Busiest> = all.into_iter().map(one).collect();
    all.sort_by(|a, b| b.ops.total_cmp(&a.ops));
    all.truncate(SHOWN_MAX);
    all
}

/// Whole words: `client.12` is not in `client.123`.
fn names_it(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '.');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        // A group's name goes on behind its pool's.
        let ends = word.ends_with('.') || !is_part(after.chars().next());
        ends && !is_part(before.chars().next_back())
    })
}

/// What `doctor` finds blocked or slow that concerns them.
async fn doctor(
    client: &Client,
    filter: &Filter,
    seen: &Seen,
    causes: &[Cause],
    within: Duration,
) -> Result<Vec<Value>, String> {
    let request = json!({"prefix": "doctor", "format": "json"}).to_string();
    let told = answer(client.mon_command(&request, ""), within).await?;
    let mine = seen.rows.iter().filter(|r| r.mine);
    let mut names: Vec<String> = mine.map(|r| r.of.client.clone()).collect();
    match filter {
        Filter::All => {}
        Filter::Pool(pool) => names.push(format!("pg {pool}.")),
        Filter::Image { pool, id, .. } => names.extend([format!("pg {pool}."), id.clone()]),
        Filter::Client(name) => names.push(name.clone()),
        Filter::Address(ip) => names.push(ip.clone()),
    }
    // And the OSDs that they wait for.
    names.extend(
        causes
            .iter()
            .filter_map(|c| c.osd)
            .map(|osd| format!("osd.{osd}")),
    );
    names.sort_unstable();
    names.dedup();
    let concerns = |f: &&Value| {
        let urgent = matches!(f["level"].as_str(), Some("blocked" | "slow"));
        let said = format!(
            "{} {}",
            f["subject"].as_str().unwrap_or(""),
            f["waits_for"].as_str().unwrap_or("")
        );
        urgent && (matches!(filter, Filter::All) || names.iter().any(|n| names_it(&said, n)))
    };
    let findings = told["findings"].as_array();
    Ok(findings
        .into_iter()
        .flatten()
        .filter(concerns)
        .take(SHOWN_MAX)
        .cloned()
        .collect())
}

/// A client at one place, and what it does there in a second.
#[derive(Debug)]
pub struct Busiest {
    /// Client, address and place, for people.
    pub name: String,
    pub client: String,
    pub ops: f64,
    pub bytes: f64,
}

/// An answer.
#[derive(Debug)]
pub struct Told {
    pub about: String,
    pub seconds: u64,
    /// The largest first.
    pub causes: Vec<Cause>,
    /// Who does most, where nobody was named.
    pub whose: Vec<Busiest>,
    /// OSDs with threads that are too busy.
    pub busy: Vec<(OsdId, f64)>,
    pub held: Vec<Held>,
    /// What concerns them of what is blocked or slow; why that is not known.
    pub doctor: Result<Vec<Value>, String>,
    seen: Seen,
}

/// All reads, or all writes, that are asked about.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub sum: Sum,
    /// In a second.
    pub rate: f64,
}

fn size(bytes: f64) -> String {
    match bytes {
        b if b >= 1048576.0 => format!("{:.1} MiB", b / 1048576.0),
        b if b >= 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{b:.0} bytes"),
    }
}

impl Told {
    pub fn kind(&self, write: bool) -> Kind {
        let rows = || {
            self.seen
                .rows
                .iter()
                .filter(move |r| r.mine && r.of.write == write)
        };
        Kind {
            sum: sum(rows()),
            rate: rows().map(|r| self.seen.rate(r)).sum(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.kind(true).sum.ops + self.kind(false).sum.ops == 0.0
    }

    /// OSDs that said something, and those that did not, with why.
    pub fn osds(&self) -> (usize, &[(OsdId, String)]) {
        (self.seen.osds.len(), &self.seen.silent)
    }

    /// Operations of all clients that wait at the OSDs.
    pub fn in_flight(&self) -> u64 {
        self.seen.osds.values().map(|h| h.in_flight).sum()
    }

    pub fn json(&self) -> Value {
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
            "reads": kind(self.kind(false).sum),
            "writes": kind(self.kind(true).sum),
            "causes": self.causes.iter().map(Cause::json).collect::<Vec<_>>(),
            "most": self.whose.iter().map(|b| json!({"who": b.name, "ops_per_s": b.ops, "bytes_per_s": b.bytes})).collect::<Vec<_>>(),
            "busy": self.busy.iter().map(|(osd, busy)| json!({"osd": osd, "busy": busy})).collect::<Vec<_>>(),
            "held_back": self.held.iter().map(|h| json!({"of": h.of, "limits": h.limits, "times": h.times})).collect::<Vec<_>>(),
            "doctor": self.doctor.as_ref().ok(),
            "doctor_error": self.doctor.as_ref().err(),
            "osds": self.seen.osds.iter().map(osd).collect::<Vec<_>>(),
            "silent": self.seen.silent.iter().map(silent).collect::<Vec<_>>(),
            "uncounted": self.seen.uncounted,
        })
    }

    pub fn text(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.parts(&mut out);
        self.beside(&mut out);
        out
    }

    /// How many operations there were, and whose.
    fn head(&self, out: &mut String) {
        let osds = self.seen.osds.len();
        out.push_str(&format!("{}: {} s, {osds} OSDs\n", self.about, self.seconds));
        for (name, write) in [("reads", false), ("writes", true)] {
            let Kind { sum: s, rate } = self.kind(write);
            if s.ops > 0.0 {
                let part = |t: f64| t / s.all().max(1e-12) * 100.0;
                out.push_str(&format!(
                    "  {name:<6} {:>7.0} a second of {}, {} each: queue {:.0} %, turn {:.0} %, durable {:.0} %\n",
                    rate,
                    size(s.bytes / s.ops),
                    ms(s.all() / s.ops),
                    part(s.queue),
                    part(s.turn),
                    part(s.durable),
                ));
            }
        }
        for Busiest { name, ops, bytes, .. } in &self.whose {
            out.push_str(&format!("  {ops:>7.0} a second, {}/s: {name}\n", size(*bytes)));
        }
        if self.is_empty() {
            out.push_str("No operation was answered meanwhile.");
            out.push_str(&match self.in_flight() {
                0 => " None waits at the OSDs: what is slow has not reached them.\n".to_string(),
                n => format!(" {n} wait at the OSDs (of all clients).\n"),
            });
        } else {
            out.push_str("Where the time goes, from when an OSD takes an operation until its answer goes:\n");
        }
    }

    fn parts(&self, out: &mut String) {
        for cause in &self.causes {
            out.push_str(&format!(
                "{:>5.0} %  {}, {} each\n",
                cause.share * 100.0,
                cause.what,
                ms(cause.mean)
            ));
            for why in &cause.why {
                out.push_str(&format!("         {why}\n"));
            }
            if let Some(next) = &cause.next {
                out.push_str(&format!("         next: {next}\n"));
            }
        }
    }

    /// What is in no stage.
    fn beside(&self, out: &mut String) {
        for (osd, busy) in &self.busy {
            out.push_str(&format!(
                "The thread of osd.{osd} works {:.0} % of the time: operations wait in its sockets, too, which is in no stage\n",
                busy * 100.0
            ));
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
        if let Err(why) = &self.doctor {
            out.push_str(&format!("doctor was not asked: {why}\n"));
        }
        for f in self.doctor.iter().flatten() {
            let text = |name: &str| f[name].as_str().unwrap_or_default().to_string();
            out.push_str(&format!(
                "doctor: {}: {}\n         next: {}\n",
                text("subject"),
                text("waits_for"),
                text("next")
            ));
        }
        for (osd, why) in &self.seen.silent {
            out.push_str(&format!("Nothing is known of osd.{osd}: {why}\n"));
        }
        if self.seen.uncounted > 0.0 {
            let n = self.seen.uncounted;
            out.push_str(&format!(
                "{n:.0} operations of others are counted by nobody's name: too many clients at one OSD\n"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::names_it;

    #[test]
    fn whole_words_are_found() {
        for (text, word, found) in [
            ("client.12 holds a lock", "client.12", true),
            ("client.123 holds a lock", "client.12", false),
            ("pg 2.1f waits", "pg 2.", true),
            ("pg 12.1f waits 2.9 s", "pg 2.", false),
            ("osd.3: its disk", "osd.3", true),
            ("10.0.0.17:0/3", "10.0.0.1", false),
            ("at 10.0.0.1:0/3", "10.0.0.1", true),
        ] {
            assert_eq!(names_it(text, word), found, "{word} in {text}");
        }
    }
}
