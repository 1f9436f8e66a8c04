//! `skep s3 quota` and `skep s3 bucket`: how much may be there, and how much is. Fields are named as radosgw-admin names them.

use super::args::{BucketCommand, QuotaCommand, QuotaScope, Whose};
use super::connect::{connect, failed};
use super::show::show;
use crate::options::Format;
use ::s3::{Admin, BucketStats, Error as S3Error, Quota, Scope};
use node::Error;
use serde_json::{Value, json};

pub fn shown(quota: &Quota) -> Value {
    json!({
        "enabled": quota.enabled,
        "check_on_raw": false,
        "max_size": quota.max_bytes,
        "max_size_kb": quota.max_bytes.max(0).unsigned_abs().div_ceil(1024),
        "max_objects": quota.max_objects,
    })
}

fn scope(whose: &Whose) -> Result<Scope<'_>, Error> {
    let scope = whose.quota_scope;
    match (&whose.uid, &whose.bucket, scope) {
        (None, Some(_), Some(QuotaScope::User)) => Err(failed("the scope of a bucket's quota is bucket")),
        (None, Some(bucket), _) => Ok(Scope::Bucket(bucket)),
        (_, _, None) => Err(failed("--quota-scope=user or --quota-scope=bucket is wanted")),
        (Some(uid), _, Some(QuotaScope::User)) => Ok(Scope::User(uid)),
        (Some(uid), _, Some(QuotaScope::Bucket)) => Ok(Scope::BucketsOf(uid)),
        (None, None, _) if !whose.default => Err(failed("--uid, --bucket or --default is wanted")),
        (None, None, Some(QuotaScope::User)) => Ok(Scope::Users),
        (None, None, Some(QuotaScope::Bucket)) => Ok(Scope::BucketsOfUsers),
    }
}

async fn apply(
    admin: &Admin,
    scope: Scope<'_>,
    change: Option<impl Fn(&mut Quota)>,
) -> Result<Quota, S3Error> {
    if let Scope::User(user) | Scope::BucketsOf(user) = scope {
        admin.accounts.user(user).await?;
    }
    match change {
        None => admin.limits.get(scope).await,
        Some(change) => admin.limits.set(scope, change).await,
    }
}

pub async fn of_quota(command: &QuotaCommand) -> Result<(), Error> {
    let (QuotaCommand::Set { whose, .. }
    | QuotaCommand::Enable { whose }
    | QuotaCommand::Disable { whose }
    | QuotaCommand::Get { whose }) = command;
    let scope = scope(whose)?;
    let client = connect(&whose.how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let change = |quota: &mut Quota| match command {
        QuotaCommand::Set {
            max_size,
            max_objects,
            ..
        } => {
            quota.max_bytes = max_size.unwrap_or(quota.max_bytes);
            quota.max_objects = max_objects.map_or(quota.max_objects, |n| n.max(-1));
        }
        QuotaCommand::Enable { .. } => quota.enabled = true,
        QuotaCommand::Disable { .. } => quota.enabled = false,
        QuotaCommand::Get { .. } => {}
    };
    let change = (!matches!(command, QuotaCommand::Get { .. })).then_some(change);
    let told = apply(&admin, scope, change).await;
    client.shutdown().await;
    show(&whose.how, &shown(&told.map_err(failed)?));
    Ok(())
}

fn of_one(stats: &BucketStats) -> Value {
    let held = stats.count.map(|c| c.held);
    let usage = held.map(|h| json!({"rgw.main": {"size": h.bytes, "num_objects": h.objects}}));
    json!({
        "bucket": stats.name,
        "id": stats.id,
        "owner": stats.owner,
        "usage": usage.unwrap_or(json!({})),
        "bucket_quota": shown(&stats.quota),
    })
}

pub async fn of_buckets(command: &BucketCommand) -> Result<(), Error> {
    let BucketCommand::Stats { bucket, uid, how } = command;
    let client = connect(&how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let stats = admin.stats(bucket.as_deref(), uid.as_deref()).await;
    client.shutdown().await;
    let stats = stats.map_err(failed)?;
    if how.format == Format::Json {
        let all: Vec<Value> = stats.iter().map(of_one).collect();
        match (bucket, all.as_slice()) {
            (Some(_), [one]) => println!("{one:#}"),
            _ => println!("{:#}", Value::Array(all)),
        }
        return Ok(());
    }
    println!(
        "{:<40} {:<20} {:>18} {:>12}  QUOTA",
        "BUCKET", "OWNER", "BYTES", "OBJECTS"
    );
    for of in &stats {
        let number = |n: Option<i64>| n.map_or("not counted".to_string(), |n| n.to_string());
        let held = of.count.map(|c| c.held);
        println!(
            "{:<40} {:<20} {:>18} {:>12}  {}",
            of.name,
            of.owner,
            number(held.map(|h| h.bytes)),
            number(held.map(|h| h.objects)),
            quota_text(&of.quota)
        );
    }
    Ok(())
}

fn quota_text(quota: &Quota) -> String {
    let max = |n: i64, of: &str| (n >= 0).then(|| format!("{n} {of}"));
    let parts: Vec<String> = [max(quota.max_bytes, "bytes"), max(quota.max_objects, "objects")]
        .into_iter()
        .flatten()
        .collect();
    match quota.enabled && !parts.is_empty() {
        true => parts.join(", "),
        false => "-".into(),
    }
}
