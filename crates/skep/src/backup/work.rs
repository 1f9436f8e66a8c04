//! What policies want done: backups that are due, then trials, then what is kept no longer; and the rows that say how it went.
//!
//! One image after the other. Whoever runs it at the same time is kept off each image by its lease ([`::backup::run`]), and off
//! taking away by the repository's lock.

use super::args;
use super::hand::{connect, failed, open_for, told, watch};
use super::policies::{put, read, remove, with_client};
use crate::image::job::{bar_of, stopped_by_signals};
use crate::options::{ClusterArgs, Format};
use ::backup::keep::Keep;
use ::backup::prune::Of;
use ::backup::run::Place;
use ::backup::{Environment, Repository};
use ::client::Client;
use ::cluster::backups::{self, Policy, Row};
use node::Error;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks at what is due.
const LOOK_EVERY: Duration = Duration::from_secs(15);
const PRUNE_EVERY_SEC: u64 = 86_400;
/// Of an error that is kept.
const ERROR_BYTES_MAX: usize = 1000;

struct Round<'a> {
    client: &'a Client,
    /// As they are after what was done.
    rows: RefCell<BTreeMap<(String, String), Row>>,
    stop: &'a Arc<AtomicBool>,
    now: bool,
    env: Environment,
}

/// What one round did.
#[derive(Default)]
struct Did {
    lines: Vec<String>,
    rows: Vec<Value>,
    bad: usize,
}

impl Did {
    fn good(&mut self, line: String, row: Value) {
        self.lines.push(line);
        self.rows.push(row);
    }

    fn failed(&mut self, what: &str, why: &str) {
        self.bad += 1;
        self.rows.push(json!({"image": what, "error": why}));
        eprintln!("skep: {what}: {why}");
    }
}

pub fn run(args: &args::Run) -> Result<(), Error> {
    let stop = stopped_by_signals()?;
    let did = with_client(&args.cluster, async |client| {
        let kept = read(client).await?;
        let known = |name: &&String| kept.policies.iter().any(|p| p.name == **name);
        if let Some(name) = args.policies.iter().find(|n| !known(n)) {
            return Err(failed(format!("there is no policy '{name}'")));
        }
        let here = io::files::hostname();
        let wanted = |p: &&Policy| match args.policies.is_empty() {
            true => p.host == here,
            false => args.policies.contains(&p.name),
        };
        let policies: Vec<&Policy> = kept.policies.iter().filter(wanted).collect();
        let round = Round {
            client,
            rows: RefCell::new(kept.rows.clone()),
            stop: &stop,
            now: args.now,
            env: Environment::system(),
        };
        round.run(&policies).await
    })?;
    match args.format {
        Format::Json => println!("{}", Value::Array(did.rows)),
        Format::Plain => did.lines.iter().for_each(|l| println!("{l}")),
    }
    match did.bad {
        0 => Ok(()),
        n => Err(failed(format!("{n} failed"))),
    }
}

/// Until a signal comes.
pub fn serve(args: &args::Serve) -> Result<(), Error> {
    let stop = stopped_by_signals()?;
    let work = async {
        while !stop.load(Ordering::Relaxed) {
            // The cluster may be away for a while: that is no reason to end.
            if let Err(e) = look(&args.cluster, &stop).await {
                eprintln!("skep: {e}");
            }
            let mut left = LOOK_EVERY;
            while !left.is_zero() && !stop.load(Ordering::Relaxed) {
                let step = left.min(Duration::from_millis(200));
                io::task::sleep(step).await;
                left -= step;
            }
        }
    };
    io::task::block_on(work).map_err(failed)
}

async fn look(cluster: &ClusterArgs, stop: &Arc<AtomicBool>) -> Result<(), Error> {
    let client = connect(cluster).await?;
    let done = async {
        let kept = read(&client).await?;
        let here = io::files::hostname();
        let policies: Vec<&Policy> = kept.policies.iter().filter(|p| p.host == here).collect();
        let round = Round {
            client: &client,
            rows: RefCell::new(kept.rows.clone()),
            stop,
            now: false,
            env: Environment::system(),
        };
        let did = round.run(&policies).await?;
        did.lines.iter().for_each(|l| println!("{l}"));
        Ok(())
    };
    let done = done.await;
    client.shutdown().await;
    done
}

impl Round<'_> {
    async fn run(&self, policies: &[&Policy]) -> Result<Did, Error> {
        let mut did = Did::default();
        for policy in policies {
            if let Err(e) = self.policy(policy, &mut did).await {
                did.failed(&format!("policy {}", policy.name), &e.to_string());
                let now = self.env.now();
                let failed = |row: &mut Row| (row.last, row.error) = (now, Some(short(&e.to_string())));
                self.tell(policy, "", failed).await?;
            }
            self.check()?;
        }
        Ok(did)
    }

    fn check(&self) -> Result<(), Error> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(failed("interrupted")),
            false => Ok(()),
        }
    }

    fn row(&self, policy: &Policy, image: &str) -> Row {
        let key = (policy.name.clone(), image.to_string());
        self.rows.borrow().get(&key).cloned().unwrap_or_default()
    }

    async fn tell(&self, policy: &Policy, image: &str, change: impl FnOnce(&mut Row)) -> Result<(), Error> {
        let mut row = self.row(policy, image);
        change(&mut row);
        put(self.client, &backups::row_key(&policy.name, image), &row.json()).await?;
        let key = (policy.name.clone(), image.to_string());
        self.rows.borrow_mut().insert(key, row);
        Ok(())
    }

    async fn policy(&self, policy: &Policy, did: &mut Did) -> Result<(), Error> {
        let (whole, now) = (self.row(policy, ""), self.env.now());
        // As a whole it fails before any image does: it is not tried at every look.
        if !self.now && whole.error.is_some() && !whole.is_due(policy.every, now) {
            return Ok(());
        }
        let places = ::backup::run::matching(self.client, &policy.of)
            .await
            .map_err(failed)?;
        self.forget_gone(policy, &places).await?;
        if places.is_empty() {
            return Err(failed(format!("'{}' names no image", policy.of)));
        }
        let due = |p: &&Place| self.is_due(policy, p) || self.is_trial_due(policy, p);
        if !places.iter().any(|p| due(&p)) {
            return Ok(());
        }
        let repo = self.open(policy)?;
        for place in &places {
            if self.is_due(policy, place) {
                self.back_up(policy, &repo, place, did).await?;
            }
            if self.is_trial_due(policy, place) {
                self.try_newest(policy, &repo, place, did).await?;
            }
        }
        drop(repo);
        let pruned = self.prune(policy, did)?;
        if whole.error.is_some() || pruned.is_some() {
            let well = |row: &mut Row| {
                (row.last, row.error) = (now, None);
                row.pruned = pruned.or(row.pruned);
            };
            self.tell(policy, "", well).await?;
        }
        Ok(())
    }

    fn open(&self, policy: &Policy) -> Result<Arc<Repository>, Error> {
        let compress = match policy.compress {
            true => args::Compress::Zstd,
            false => args::Compress::None,
        };
        open_for(Path::new(&policy.to), Path::new(&policy.key_file), compress)
    }

    fn is_due(&self, policy: &Policy, place: &Place) -> bool {
        self.now
            || self
                .row(policy, &place.to_string())
                .is_due(policy.every, self.env.now())
    }

    fn is_trial_due(&self, policy: &Policy, place: &Place) -> bool {
        let row = self.row(policy, &place.to_string());
        policy.trial.is_some_and(|t| row.is_trial_due(t, self.env.now()))
    }

    /// Images that are gone have no turn any more; their backups stay.
    async fn forget_gone(&self, policy: &Policy, places: &[Place]) -> Result<(), Error> {
        let there: BTreeSet<String> = places.iter().map(Place::to_string).collect();
        let gone =
            |(p, image): &&(String, String)| *p == policy.name && !image.is_empty() && !there.contains(image);
        let gone: Vec<(String, String)> = self.rows.borrow().keys().filter(gone).cloned().collect();
        for key in gone {
            remove(self.client, &backups::row_key(&key.0, &key.1)).await?;
            self.rows.borrow_mut().remove(&key);
        }
        Ok(())
    }

    async fn back_up(
        &self,
        policy: &Policy,
        repo: &Arc<Repository>,
        place: &Place,
        did: &mut Did,
    ) -> Result<(), Error> {
        self.check()?;
        let (image, now) = (place.to_string(), self.env.now());
        let bar = bar_of(&image);
        let watching = watch(self.stop, &bar);
        let done = ::backup::run::run(repo, self.client, place, Some(&policy.name), &watching).await;
        bar.finish_and_clear();
        match done {
            Ok(done) => {
                let (line, row) = told(place, &done);
                did.good(line, row);
                let good = |row: &mut Row| {
                    (row.last, row.error) = (now, done.warning.as_deref().map(short));
                    row.good = Some(done.backup.time());
                    row.backup = Some(done.backup.id.short());
                    (row.read, row.stored) = (done.read, done.stored);
                };
                self.tell(policy, &image, good).await
            }
            Err(e) => {
                let why = short(&e.to_string());
                did.failed(&image, &why);
                self.tell(policy, &image, |row| (row.last, row.error) = (now, Some(why)))
                    .await
            }
        }
    }

    async fn try_newest(
        &self,
        policy: &Policy,
        repo: &Arc<Repository>,
        place: &Place,
        did: &mut Did,
    ) -> Result<(), Error> {
        self.check()?;
        let (image, now) = (place.to_string(), self.env.now());
        let bar = bar_of(&image);
        let tried = async {
            let mut all = repo.backups()?;
            // Another cluster may have one of the same name.
            let ours = self.client.fsid()?.to_string();
            all.retain(|b| b.tag("cluster") == Some(&ours));
            let backup = ::backup::find(&all, &format!("{image}@latest"))?;
            let watching = watch(self.stop, &bar);
            let tried = ::backup::trial::trial(repo, self.client, backup, &watching).await?;
            Ok::<_, ::backup::Error>((backup.name(), tried))
        };
        let tried = tried.await;
        bar.finish_and_clear();
        self.check()?;
        let error = match tried {
            Ok((name, t)) => {
                let row = json!({"trial": name, "compared": t.compared, "bytes": t.bytes});
                did.good(format!("{name}: tried: {t}"), row);
                None
            }
            Err(e) => {
                let why = short(&e.to_string());
                did.failed(&image, &format!("trial: {why}"));
                Some(why)
            }
        };
        let tell = |row: &mut Row| {
            row.trial = Some(now);
            row.trial_good = if error.is_none() {
                Some(now)
            } else {
                row.trial_good
            };
            row.trial_error = error;
        };
        self.tell(policy, &image, tell).await
    }

    /// When, if it was done.
    fn prune(&self, policy: &Policy, did: &mut Did) -> Result<Option<u64>, Error> {
        let now = self.env.now();
        let last = self.row(policy, "").pruned.unwrap_or(policy.since);
        if !self.now && now.saturating_sub(last) < PRUNE_EVERY_SEC {
            return Ok(None);
        }
        let keep: Keep = policy.keep.parse().map_err(failed)?;
        // What was read of the repository before is not true any more afterwards: it is opened for this alone.
        let repo = self.open(policy)?;
        let all = repo.backups().map_err(failed)?;
        let ours = self.client.fsid().map_err(failed)?.to_string();
        let of = Of {
            policy: Some(&policy.name),
            cluster: Some(&ours),
        };
        if ::backup::prune::unkept(&all, &keep, of, now).is_empty() {
            return Ok(Some(now));
        }
        match ::backup::prune::prune(&repo, Some(&keep), of) {
            Ok(done) => {
                let (n, freed) = (done.forgotten.len(), done.freed);
                did.lines.push(format!(
                    "policy {}: {n} backups kept no longer, {freed} bytes freed",
                    policy.name
                ));
                Ok(Some(now))
            }
            Err(e @ ::backup::Error::Busy(_)) => {
                // The next round will do.
                did.lines
                    .push(format!("policy {}: nothing was taken away: {e}", policy.name));
                Ok(None)
            }
            Err(e) => Err(failed(format!("what is kept no longer was not taken away: {e}"))),
        }
    }
}

fn short(text: &str) -> String {
    let mut end = text.len().min(ERROR_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}
