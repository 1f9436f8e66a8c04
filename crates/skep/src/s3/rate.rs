//! `skep s3 ratelimit`: how much may be asked of a gateway in a minute. Fields are named as radosgw-admin names them.

use super::args::{QuotaScope, RateOf, RatelimitCommand};
use super::connect::{connect, failed};
use super::show::show;
use ::s3::{Admin, Error as S3Error, Rate, RateScope};
use node::Error;
use serde_json::{Value, json};

fn scope(whose: &RateOf) -> Result<RateScope<'_>, Error> {
    match (&whose.uid, &whose.bucket, whose.ratelimit_scope) {
        (Some(uid), _, None | Some(QuotaScope::User)) => Ok(RateScope::User(uid)),
        (_, Some(bucket), None | Some(QuotaScope::Bucket)) => Ok(RateScope::Bucket(bucket)),
        _ => Err(failed(
            "--uid goes with the scope user, --bucket with the scope bucket",
        )),
    }
}

fn shown(scope: RateScope<'_>, rate: &Rate) -> Value {
    let of = json!({
        "max_read_ops": rate.max_read_ops,
        "max_write_ops": rate.max_write_ops,
        "max_read_bytes": rate.max_read_bytes,
        "max_write_bytes": rate.max_write_bytes,
        "enabled": rate.enabled,
    });
    match scope {
        RateScope::User(_) => json!({"user_ratelimit": of}),
        RateScope::Bucket(_) => json!({"bucket_ratelimit": of}),
    }
}

async fn apply(admin: &Admin, scope: RateScope<'_>, command: &RatelimitCommand) -> Result<Rate, S3Error> {
    if let RateScope::User(user) = scope {
        admin.accounts.user(user).await?;
    }
    let enabled = match command {
        RatelimitCommand::Get { .. } => return admin.rates.get(scope).await,
        RatelimitCommand::Set { .. } => None,
        RatelimitCommand::Enable { .. } => Some(true),
        RatelimitCommand::Disable { .. } => Some(false),
    };
    let set = admin.rates.set(scope, |rate| {
        rate.enabled = enabled.unwrap_or(rate.enabled);
        if let RatelimitCommand::Set { most, .. } = command {
            rate.max_read_ops = most.max_read_ops.unwrap_or(rate.max_read_ops);
            rate.max_write_ops = most.max_write_ops.unwrap_or(rate.max_write_ops);
            rate.max_read_bytes = most.max_read_bytes.unwrap_or(rate.max_read_bytes);
            rate.max_write_bytes = most.max_write_bytes.unwrap_or(rate.max_write_bytes);
        }
    });
    set.await
}

pub async fn of_rate(command: &RatelimitCommand) -> Result<(), Error> {
    let (RatelimitCommand::Set { whose, .. }
    | RatelimitCommand::Enable { whose }
    | RatelimitCommand::Disable { whose }
    | RatelimitCommand::Get { whose }) = command;
    let scope = scope(whose)?;
    let client = connect(&whose.how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = apply(&admin, scope, command).await;
    client.shutdown().await;
    show(&whose.how, &shown(scope, &told.map_err(failed)?));
    Ok(())
}
