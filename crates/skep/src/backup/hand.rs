//! Backups by hand: one repository, named with its key file.

use super::args;
use crate::image::job::{bar_of, stopped_by_signals};
use crate::options::{ClusterArgs, Format};
use ::backup::prune::Of;
use ::backup::run::{Done, Place, Watch};
use ::backup::{Backup, Environment, Repository, find, time};
use ::client::{Client, Conf};
use indicatif::ProgressBar;
use node::Error;
use rbd::Way;
use serde_json::{Value, json};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

pub fn open(root: &Path, key_file: &Path) -> Result<Arc<Repository>, Error> {
    open_for(root, key_file, args::Compress::Zstd)
}

pub fn open_for(root: &Path, key_file: &Path, compress: args::Compress) -> Result<Arc<Repository>, Error> {
    let password = ::backup::read_password(key_file).map_err(failed)?;
    let mut repo = Repository::open(root, &password, Environment::system()).map_err(failed)?;
    repo.set_compress(compress == args::Compress::Zstd);
    Ok(Arc::new(repo))
}

fn open_to_read(at: &args::At, reading: &args::Reading) -> Result<Arc<Repository>, Error> {
    let password = ::backup::read_password(&at.key.key_file).map_err(failed)?;
    let mut repo = Repository::open(&at.repo, &password, Environment::system()).map_err(failed)?;
    repo.set_lock(!reading.no_lock);
    Ok(Arc::new(repo))
}

pub async fn connect(c: &ClusterArgs) -> Result<Client, Error> {
    let conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
    Client::connect(conf).await.map_err(failed)
}

/// What one piece of work shows and hears.
pub fn watch(stop: &Arc<AtomicBool>, bar: &ProgressBar) -> Watch {
    let bar = bar.clone();
    Watch {
        stop: stop.clone(),
        progress: Rc::new(move |done, of| {
            bar.set_length(of);
            bar.set_position(done.min(of));
        }),
    }
}

pub fn init(args: &args::Init) -> Result<(), Error> {
    let password = ::backup::read_password(&args.at.key.key_file).map_err(failed)?;
    let repo = Repository::create(&args.at.repo, &password, Environment::system()).map_err(failed)?;
    println!("repository {} in {}", &repo.id()[..8], args.at.repo.display());
    Ok(())
}

fn row(backup: &Backup) -> Value {
    json!({
        "id": backup.id.to_string(),
        "time": time::stamp(backup.at),
        "image": backup.image,
        "size": backup.size(),
        "new": backup.number("new"),
        "policy": backup.tag("policy"),
        "cluster": backup.tag("cluster"),
    })
}

pub fn ls(args: &args::Ls) -> Result<(), Error> {
    let repo = open(&args.at.repo, &args.at.key.key_file)?;
    let all = repo.backups().map_err(failed)?;
    if args.format == Format::Json {
        println!("{}", Value::Array(all.iter().map(row).collect()));
        return Ok(());
    }
    let wide = all.iter().map(|b| b.image.len()).max().unwrap_or(0).max(5);
    println!(
        "{:20}  {:8}  {:wide$}  {:>15}  {:>15}  POLICY",
        "TIME", "ID", "IMAGE", "SIZE", "NEW"
    );
    for b in &all {
        let (at, new) = (time::seconds(b.time()), b.number("new").unwrap_or(0));
        let policy = b.tag("policy").unwrap_or("-");
        let (id, image, size) = (b.id.short(), &b.image, b.size());
        println!("{at:20}  {id:8}  {image:wide$}  {size:>15}  {new:>15}  {policy}");
    }
    Ok(())
}

/// How a backup was made, for people and programs.
pub fn told(place: &Place, done: &Done) -> (String, Value) {
    let way = match done.way {
        None => "whole",
        Some(Way::FastDiff) => "fast-diff",
        Some(Way::Clones) => "clones",
    };
    let (at, id) = (time::seconds(done.backup.time()), done.backup.id.short());
    let (read, stored) = (done.read, done.stored);
    let warning = done
        .warning
        .as_ref()
        .map(|w| format!("; {w}"))
        .unwrap_or_default();
    let line = format!("{place}@{at}: {id}, by {way}, {read} bytes read, {stored} new{warning}");
    let mut row = row(&done.backup);
    row["way"] = way.into();
    row["read"] = read.into();
    row["stored"] = stored.into();
    row["warning"] = done.warning.clone().into();
    (line, row)
}

/// Without a policy.
pub fn run(args: &args::Run) -> Result<(), Error> {
    let (Some(of), Some(to), Some(key)) = (&args.of, &args.to, &args.key_file) else {
        return Err(failed("--of needs --to and --key-file"));
    };
    let stop = stopped_by_signals()?;
    let repo = open_for(to, key, args.compress)?;
    let work = async {
        let client = connect(&args.cluster).await?;
        let done = run_all(args, &client, &repo, of, &stop).await;
        client.shutdown().await;
        done
    };
    io::task::block_on(work).map_err(failed)?
}

async fn run_all(
    args: &args::Run,
    client: &Client,
    repo: &Arc<Repository>,
    of: &str,
    stop: &Arc<AtomicBool>,
) -> Result<(), Error> {
    let places = ::backup::run::matching(client, of).await.map_err(failed)?;
    if places.is_empty() {
        return Err(failed(format!("'{of}' names no image")));
    }
    let (mut rows, mut bad) = (Vec::new(), 0);
    for place in &places {
        if stop.load(Ordering::Relaxed) {
            return Err(failed("interrupted"));
        }
        let bar = bar_of(&place.to_string());
        let done = ::backup::run::run(repo, client, place, None, &watch(stop, &bar)).await;
        bar.finish_and_clear();
        match done {
            Ok(done) => {
                let (line, row) = told(place, &done);
                if args.format == Format::Plain {
                    println!("{line}");
                }
                rows.push(row);
            }
            Err(e) => {
                bad += 1;
                eprintln!("skep: {place}: {e}");
                rows.push(json!({"image": place.to_string(), "error": e.to_string()}));
            }
        }
    }
    if args.format == Format::Json {
        println!("{}", Value::Array(rows));
    }
    match bad {
        0 => Ok(()),
        n => Err(failed(format!("{n} of {} were not backed up", places.len()))),
    }
}

pub fn place_of(spec: &str) -> Result<Place, Error> {
    let parts: Vec<&str> = spec.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, image] => (pool, "", image),
        [pool, namespace, image] => (pool, namespace, image),
        _ => return Err(failed(format!("'{spec}' is no POOL/NAME or POOL/NAMESPACE/NAME"))),
    };
    Ok(Place {
        pool: pool.into(),
        namespace: namespace.into(),
        image: image.into(),
    })
}

pub fn restore(args: &args::Restore) -> Result<(), Error> {
    let to = place_of(&args.to)?;
    let stop = stopped_by_signals()?;
    let repo = open_to_read(&args.at, &args.reading)?;
    let all = repo.backups().map_err(failed)?;
    let backup = find(&all, &args.backup).map_err(failed)?;
    let bar = bar_of(&args.to);
    let work = async {
        let client = connect(&args.cluster).await?;
        let done = ::backup::restore::restore(&repo, &client, backup, &to, &watch(&stop, &bar)).await;
        client.shutdown().await;
        done.map_err(failed)
    };
    let done = io::task::block_on(work).map_err(failed)?;
    bar.finish_and_clear();
    let done = done?;
    match args.format {
        Format::Plain => {
            let (size, data) = (done.size, done.data);
            println!(
                "{} -> {to}: {size} bytes, {data} of them in pieces with data, verified",
                backup.name()
            );
        }
        Format::Json => println!(
            "{}",
            json!({"backup": row(backup), "to": to.to_string(), "size": done.size, "data": done.data, "verified": true})
        ),
    }
    Ok(())
}

pub fn verify(args: &args::Verify) -> Result<(), Error> {
    let stop = stopped_by_signals()?;
    let repo = open_to_read(&args.at, &args.reading)?;
    let bar = bar_of("verify");
    let mut progress = |done, of| {
        bar.set_length(of);
        bar.set_position(done);
        !stop.load(Ordering::Relaxed)
    };
    let report = ::backup::verify::verify(&repo, args.read_all, &mut progress).map_err(failed)?;
    bar.finish_and_clear();
    match args.format {
        Format::Json => println!(
            "{}",
            json!({
                "backups": report.backups,
                "packs": report.packs,
                "bytes": report.bytes,
                "blobs": report.blobs,
                "unneeded": report.unneeded,
                "read_all": args.read_all,
                "findings": report.findings,
            })
        ),
        Format::Plain => {
            report.findings.iter().for_each(|f| println!("{f}"));
            let how = if args.read_all {
                "all read"
            } else {
                "data not read"
            };
            println!(
                "{} backups, {} packs with {} bytes, {how}; {} files that no backup needs",
                report.backups, report.packs, report.bytes, report.unneeded
            );
        }
    }
    match report.findings.len() {
        0 => Ok(()),
        n => Err(failed(format!("VERIFY FAILED: {n} findings"))),
    }
}

pub fn prune(args: &args::Prune) -> Result<(), Error> {
    let repo = open(&args.at.repo, &args.at.key.key_file)?;
    let of = Of {
        policy: args.policy.as_deref(),
        cluster: None,
    };
    if args.dry_run {
        let all = repo.backups().map_err(failed)?;
        let now = Environment::system().now();
        let keep = args.keep.as_ref();
        let gone = keep.map(|k| ::backup::prune::unkept(&all, k, of, now));
        let names: Vec<String> = gone.unwrap_or_default().iter().map(|b| b.name()).collect();
        match args.format {
            Format::Json => println!("{}", json!({"would_go": names})),
            Format::Plain => names.iter().for_each(|n| println!("would go: {n}")),
        }
        return Ok(());
    }
    let done = ::backup::prune::prune(&repo, args.keep.as_ref(), of).map_err(failed)?;
    match args.format {
        Format::Json => println!(
            "{}",
            json!({"gone": done.forgotten, "kept": done.kept, "freed": done.freed})
        ),
        Format::Plain => {
            done.forgotten.iter().for_each(|n| println!("gone: {n}"));
            println!("{} backups stay, {} bytes freed", done.kept, done.freed);
        }
    }
    Ok(())
}

pub fn repair(args: &args::Repair) -> Result<(), Error> {
    let stop = stopped_by_signals()?;
    let repo = open(&args.at.repo, &args.at.key.key_file)?;
    let bar = bar_of("repair");
    let mut progress = |done, of| {
        bar.set_length(of);
        bar.set_position(done);
        !stop.load(Ordering::Relaxed)
    };
    let done = ::backup::prune::repair(&repo, &mut progress).map_err(failed)?;
    bar.finish_and_clear();
    if done.found > 0 {
        println!("{} blobs that no index named are found again", done.found);
    }
    if done.packs > 0 {
        println!("{} packs were hit: what can be read of them stays", done.packs);
    }
    match done.lost {
        0 => println!("nothing is lost or changed"),
        n => println!("{n} blobs were lost or changed, and are out; back the images up, then verify"),
    }
    Ok(())
}

pub fn unlock(args: &args::Unlock) -> Result<(), Error> {
    let repo = open(&args.at.repo, &args.at.key.key_file)?;
    let gone = ::backup::unlock(&repo).map_err(failed)?;
    gone.iter().for_each(|who| println!("gone: the lock of {who}"));
    if gone.is_empty() {
        println!("no lock is older than 30 minutes, or of a process of this host that is gone");
    }
    Ok(())
}

pub fn rm(args: &args::Rm) -> Result<(), Error> {
    let repo = open(&args.at.repo, &args.at.key.key_file)?;
    let all = repo.backups().map_err(failed)?;
    let wanted: Result<Vec<&Backup>, _> = args.backups.iter().map(|s| find(&all, s)).collect();
    let wanted = wanted.map_err(failed)?;
    ::backup::prune::remove(&repo, &wanted).map_err(failed)?;
    wanted.iter().for_each(|b| println!("gone: {}", b.name()));
    Ok(())
}

pub fn trial(args: &args::Trial) -> Result<(), Error> {
    let stop = stopped_by_signals()?;
    let repo = open_to_read(&args.at, &args.reading)?;
    let all = repo.backups().map_err(failed)?;
    let wanted: Vec<&Backup> = args
        .backups
        .iter()
        .map(|s| find(&all, s))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let work = async {
        let client = connect(&args.cluster).await?;
        let mut rows = Vec::new();
        let mut bad = 0;
        for backup in wanted {
            let bar = bar_of(&backup.image);
            let tried = ::backup::trial::trial(&repo, &client, backup, &watch(&stop, &bar)).await;
            bar.finish_and_clear();
            bad += usize::from(tried.is_err());
            let name = backup.name();
            match (&tried, args.format) {
                (Ok(t), Format::Plain) => println!("{name}: {t}"),
                (Ok(t), Format::Json) => {
                    rows.push(json!({"backup": row(backup), "compared": t.compared, "bytes": t.bytes}))
                }
                (Err(e), Format::Plain) => eprintln!("skep: {name}: {e}"),
                (Err(e), Format::Json) => rows.push(json!({"backup": row(backup), "error": e.to_string()})),
            }
        }
        client.shutdown().await;
        if args.format == Format::Json {
            println!("{}", Value::Array(rows));
        }
        match bad {
            0 => Ok(()),
            n => Err(failed(format!("TRIAL FAILED: {n} of {}", args.backups.len()))),
        }
    };
    io::task::block_on(work).map_err(failed)?
}
