//! `skep s3`: users and keys of the object gateway, and a gateway by itself.

pub mod args;
mod connect;
mod placement;
mod quota;
mod rate;
mod role;
mod show;
mod subuser;
mod usage;

use ::client::Client;
use ::s3::{Admin, Certificate, Error as S3Error, Gateway, Key, KeystoneSettings, Masters, Settings, User};
use args::{KeyCommand, S3Command, Serve, UserCommand};
use connect::{connect, failed};
use io::socket::Listener;
use node::Error;
use serde_json::{Value, json};
use show::show;
use std::time::Duration;
use types::AuthName;

pub fn run(args: &args::S3) -> Result<(), Error> {
    let done = match &args.command {
        S3Command::Serve(serve) => io::task::block_on(serve_alone(serve)),
        S3Command::User(user) => io::task::block_on(of_user(&user.command)),
        S3Command::Subuser(of) => io::task::block_on(subuser::of_subuser(&of.command)),
        S3Command::Key(key) => io::task::block_on(of_key(&key.command)),
        S3Command::Role(of) => io::task::block_on(role::of_role(&of.command)),
        S3Command::Caps(of) => io::task::block_on(role::of_caps(&of.command)),
        S3Command::RolePolicy(of) => io::task::block_on(role::of_policy(&of.command)),
        S3Command::Bucket(bucket) => io::task::block_on(quota::of_buckets(&bucket.command)),
        S3Command::Quota(quota) => io::task::block_on(quota::of_quota(&quota.command)),
        S3Command::Ratelimit(rate) => io::task::block_on(rate::of_rate(&rate.command)),
        S3Command::Placement(placement) => io::task::block_on(placement::of_classes(&placement.command)),
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
            Some(opened.map_err(|e| failed(format!("--s3-cert: {e}")))?)
        }
    };
    let files = files(&args.tuning).await?;
    let listener = Listener::bind(args.listen).map_err(refused)?;
    let listen = listener.local_addr().map_err(refused)?;
    let client = connect(&args.cluster).await?;
    let settings = settings(args, files, &client).await?;
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

/// How it behaves: as the options of the cluster say, and the command line, which counts more.
async fn settings(args: &Serve, (masters, keystone): Files, client: &Client) -> Result<Settings, Error> {
    let tuning = &args.tuning;
    let mut settings = Settings {
        split_at: tuning.split_at,
        day: Duration::from_secs(tuning.lifecycle_day),
        masters,
        endpoints: tuning.endpoints.clone(),
        log_every: Duration::from_secs(tuning.log_every),
        keystone,
        ..Settings::default()
    };
    let name = &args.cluster.name;
    let who: Result<AuthName, ()> = name.parse();
    let who = who.map_err(|()| failed(format!("{name} is no entity")))?;
    let (set, mut wrong) = node::gateway::asked(client, &who).await.map_err(failed)?;
    let (options, more) = node::gateway::meant(set, &tuning.said());
    node::gateway::apply(options, tuning.usage_days, &mut settings);
    wrong.extend(more);
    wrong.iter().for_each(|w| tracing::warn!("{w}"));
    Ok(settings)
}

type Files = (Masters, Option<KeystoneSettings>);

/// Keys of the gateway's own, and which Keystone is asked.
async fn files(tuning: &args::Tuning) -> Result<Files, Error> {
    let masters = match &tuning.master_keys {
        None => Masters::default(),
        Some(file) => {
            let opened = Masters::open(file).await;
            opened.map_err(|e| failed(format!("--s3-master-key: {e}")))?
        }
    };
    let keystone = match &tuning.keystone {
        None => None,
        Some(file) => {
            let opened = KeystoneSettings::open(file).await;
            Some(opened.map_err(|e| failed(format!("--s3-keystone: {e}")))?)
        }
    };
    Ok((masters, keystone))
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
        "topics": report.topics,
        "events_waiting": report.events,
        "events_dropped": report.dropped,
        "queues_changing": report.changing,
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
    subuser::describe(&mut about, &admin.accounts.subusers(id).await?);
    let quotas = admin.limits.quotas(id).await?;
    about["user_quota"] = quota::shown(&quotas.user);
    about["bucket_quota"] = quota::shown(&quotas.bucket);
    about["caps"] = admin.accounts.caps(id).await?.text().into();
    Ok(about)
}

async fn of_key(command: &KeyCommand) -> Result<(), Error> {
    let (KeyCommand::Create { how, of, .. } | KeyCommand::Rm { how, of, .. }) = command;
    let of = subuser::of_key(of)?;
    let client = connect(&how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = match (command, of) {
        (KeyCommand::Create { .. }, Some(id)) => subuser::new_key(&admin, id).await,
        (KeyCommand::Rm { .. }, Some(id)) => {
            let removed = admin.accounts.remove_subuser_key(id).await;
            removed.map(|_| Value::Null)
        }
        (KeyCommand::Create { user, .. }, None) => {
            let user = user.as_deref().unwrap_or_default();
            admin.accounts.create_key(user).await.map(|k| of_one(&k))
        }
        (KeyCommand::Rm { access_key, .. }, None) => {
            let key = access_key.as_deref().unwrap_or_default();
            admin.accounts.remove_key(key).await.map(|()| Value::Null)
        }
    };
    client.shutdown().await;
    show(how, &told.map_err(failed)?);
    Ok(())
}

fn of_one(key: &Key) -> Value {
    let mut one = json!({"user": key.user, "access_key": key.access, "secret_key": key.secret});
    if !key.active {
        one["active"] = false.into();
    }
    one
}

fn about(user: &User, keys: &[Key], buckets: Option<Vec<String>>) -> Value {
    let keys: Vec<Value> = keys.iter().map(of_one).collect();
    let mut about = json!({"user_id": user.id, "display_name": user.display, "keys": keys});
    if let Some(buckets) = buckets {
        about["buckets"] = buckets.into();
    }
    about
}
