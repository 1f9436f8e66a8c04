//! `skep s3`: users and keys of the object gateway, and a gateway by itself.

pub mod args;
mod connect;
mod quota;
mod rate;
mod usage;

use crate::options::Format;
use ::s3::{Admin, Certificate, Error as S3Error, Gateway, Key, Masters, Settings, User};
use args::{How, KeyCommand, S3Command, Serve, UserCommand};
use connect::{connect, failed};
use io::socket::Listener;
use node::Error;
use serde_json::{Value, json};
use std::time::Duration;

pub fn run(args: &args::S3) -> Result<(), Error> {
    let done = match &args.command {
        S3Command::Serve(serve) => io::task::block_on(serve_alone(serve)),
        S3Command::User(user) => io::task::block_on(of_user(&user.command)),
        S3Command::Key(key) => io::task::block_on(of_key(&key.command)),
        S3Command::Bucket(bucket) => io::task::block_on(quota::of_buckets(&bucket.command)),
        S3Command::Quota(quota) => io::task::block_on(quota::of_quota(&quota.command)),
        S3Command::Ratelimit(rate) => io::task::block_on(rate::of_rate(&rate.command)),
        S3Command::Usage(usage) => io::task::block_on(usage::of_usage(&usage.command)),
        S3Command::Check(check) => io::task::block_on(check_all(check)),
    };
    done.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })?
}

async fn serve_alone(args: &Serve) -> Result<(), Error> {
    let refused = |source| Error::Listen {
        addr: args.listen,
        source,
    };
    let certificate = match args.tuning.tls() {
        None => None,
        Some((certificate, key)) => {
            let opened = Certificate::open("s3", certificate, key).await;
            Some(opened.map_err(|e| failed(format!("--s3-cert and --s3-key: {e}")))?)
        }
    };
    let masters = match &args.tuning.master_keys {
        None => Masters::default(),
        Some(file) => {
            let opened = Masters::open(file).await;
            opened.map_err(|e| failed(format!("--s3-master-key: {e}")))?
        }
    };
    let listener = Listener::bind(args.listen).map_err(refused)?;
    let listen = listener.local_addr().map_err(refused)?;
    let client = connect(&args.cluster).await?;
    let settings = Settings {
        gc_wait: Duration::from_secs(args.tuning.gc_wait),
        split_at: args.tuning.split_at,
        day: Duration::from_secs(args.tuning.lifecycle_day),
        domains: args.tuning.domains.clone(),
        usage_keep: args.tuning.usage_keep(),
        plain_keys: args.tuning.plain_keys,
        masters,
    };
    let registry = metrics::Registry::default();
    let gateway = Gateway::open(&client, &settings, &registry)
        .await
        .map_err(failed)?;
    if let Some(addr) = args.metrics {
        let own = || format!("{}.{}", io::files::hostname(), listen.port());
        let name = args.metrics_name.clone().unwrap_or_else(own);
        let shown = node::show_metrics_of_gateway(addr, &name, &registry);
        shown.map_err(|source| Error::Listen { addr, source })?;
    }
    let acceptor = listener.start().map_err(refused)?;
    println!("S3 at {}://{listen}", args.tuning.scheme());
    let why = gateway
        .serve_until((acceptor, certificate), io::task::termination())
        .await;
    client.shutdown().await;
    let why = why.map_err(|source| Error::Io {
        what: "signals".into(),
        source,
    })?;
    eprintln!("{why}: stopped");
    Ok(())
}

async fn check_all(args: &args::Check) -> Result<(), Error> {
    let client = connect(&args.how.cluster).await?;
    let report = ::s3::check(&client, args.bucket.as_deref()).await;
    client.shutdown().await;
    let report = report.map_err(failed)?;
    let found = report.problems.len() as u64 + report.untold;
    show(&args.how, &of_check(&report));
    match found {
        0 => Ok(()),
        n => Err(failed(format!("{n} problems"))),
    }
}

fn of_check(report: &::s3::Report) -> Value {
    let counts = json!({
        "buckets": report.buckets,
        "shards": report.shards,
        "objects": report.objects,
        "noncurrent": report.older,
        "delete_markers": report.markers,
        "uploads": report.uploads,
        "bytes": report.bytes,
    });
    json!({"counts": counts, "problems": report.problems, "problems_not_shown": report.untold})
}

async fn of_user(command: &UserCommand) -> Result<(), Error> {
    let (UserCommand::Create { how, .. }
    | UserCommand::Ls { how }
    | UserCommand::Info { how, .. }
    | UserCommand::Rm { how, .. }) = command;
    let client = connect(&how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let accounts = &admin.accounts;
    let told = match command {
        UserCommand::Create {
            user, display_name, ..
        } => accounts
            .create(user, display_name)
            .await
            .map(|(user, key)| about(&user, &[key], None)),
        UserCommand::Ls { .. } => accounts.users().await.map(|all| {
            let ids = all.into_iter().map(|u| Value::from(u.id));
            Value::Array(ids.collect())
        }),
        UserCommand::Info { user, .. } => info(&admin, user).await,
        UserCommand::Rm { user, .. } => accounts.remove(user, &admin.buckets).await.map(|()| Value::Null),
    };
    client.shutdown().await;
    show(how, &told.map_err(failed)?);
    Ok(())
}

async fn info(admin: &Admin, id: &str) -> Result<Value, S3Error> {
    let user = admin.accounts.user(id).await?;
    let keys = admin.accounts.keys(id).await?;
    let buckets = admin.buckets.of(id).await?;
    let names = buckets.into_iter().map(|(name, _)| name).collect();
    let mut about = about(&user, &keys, Some(names));
    let quotas = admin.limits.quotas(id).await?;
    about["user_quota"] = quota::shown(&quotas.user);
    about["bucket_quota"] = quota::shown(&quotas.bucket);
    Ok(about)
}

async fn of_key(command: &KeyCommand) -> Result<(), Error> {
    let (KeyCommand::Create { how, .. } | KeyCommand::Rm { how, .. }) = command;
    let client = connect(&how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = match command {
        KeyCommand::Create { user, .. } => admin.accounts.create_key(user).await.map(|k| of_one(&k)),
        KeyCommand::Rm { access_key, .. } => {
            admin.accounts.remove_key(access_key).await.map(|()| Value::Null)
        }
    };
    client.shutdown().await;
    show(how, &told.map_err(failed)?);
    Ok(())
}

fn of_one(key: &Key) -> Value {
    json!({"user": key.user, "access_key": key.access, "secret_key": key.secret})
}

fn about(user: &User, keys: &[Key], buckets: Option<Vec<String>>) -> Value {
    let keys: Vec<Value> = keys.iter().map(of_one).collect();
    let mut about = json!({"user_id": user.id, "display_name": user.display, "keys": keys});
    if let Some(buckets) = buckets {
        about["buckets"] = buckets.into();
    }
    about
}

fn show(how: &How, told: &Value) {
    if how.format == Format::Json {
        return println!("{told:#}");
    }
    match told {
        Value::Null => {}
        Value::Array(names) => names
            .iter()
            .for_each(|n| println!("{}", n.as_str().unwrap_or_default())),
        told => plain(told),
    }
}

/// A line for each thing that is said.
fn plain(told: &Value) {
    let Some(fields) = told.as_object() else { return };
    for (name, value) in fields {
        match value {
            Value::Array(items) if name == "keys" => items.iter().for_each(plain),
            Value::Array(items) if name == "problems" => {
                let texts = items.iter().filter_map(Value::as_str);
                texts.for_each(|t| println!("problem       {t}"));
            }
            Value::Object(_) if name.ends_with("_quota") => println!("{name:<13} {value}"),
            Value::Object(_) => plain(value),
            Value::Number(n) => println!("{name:<18} {n}"),
            Value::Array(items) => {
                let names: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                println!("{name:<13} {}", names.join(" "));
            }
            value => println!("{name:<13} {}", value.as_str().unwrap_or_default()),
        }
    }
}
