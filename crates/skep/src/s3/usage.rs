//! `skep s3 usage`: what gateways wrote down of what was asked. Words and fields are radosgw-admin's.

use super::args::{UsageCommand, UsageOf};
use super::connect::{connect, failed};
use crate::options::Format;
use ::s3::{Admin, Sums, UsageKinds, UsagePlace, UsageWhich};
use node::Error;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use types::Utime;

const SECONDS_OF_AN_HOUR: u64 = 3600;

type Entries = Vec<(UsagePlace, UsageKinds)>;

fn which(of: &UsageOf) -> UsageWhich {
    UsageWhich {
        user: of.uid.clone(),
        bucket: of.bucket.clone(),
        from: of.start_date,
        to: of.end_date,
    }
}

pub async fn of_usage(command: &UsageCommand) -> Result<(), Error> {
    let (UsageCommand::Show { of, .. } | UsageCommand::Trim { of, .. }) = command;
    if let UsageCommand::Trim { really: false, .. } = command
        && of.uid.is_none()
        && of.bucket.is_none()
        && of.start_date.is_none()
        && of.end_date.is_none()
    {
        return Err(failed(
            "this would remove the whole log, of all users: name a user, a bucket or dates, or say --yes-i-really-mean-it",
        ));
    }
    let client = connect(&of.how.cluster).await?;
    let admin = Admin::open(&client).await.map_err(failed)?;
    let told = match command {
        UsageCommand::Trim { .. } => admin.usage.trim(&which(of)).await.map(|()| None),
        UsageCommand::Show { .. } => admin.usage.show(&which(of)).await.map(Some),
    };
    client.shutdown().await;
    let (
        Some(mut entries),
        UsageCommand::Show {
            categories,
            show_log_entries,
            show_log_sum,
            ..
        },
    ) = (told.map_err(failed)?, command)
    else {
        return Ok(());
    };
    if !categories.is_empty() {
        entries
            .iter_mut()
            .for_each(|(_, kinds)| kinds.of.retain(|kind, _| categories.contains(kind)));
    }
    entries.sort_by(|(a, _), (b, _)| {
        let order = |p: &UsagePlace| (p.user.clone(), p.hour, p.bucket.clone());
        order(a).cmp(&order(b))
    });
    match of.how.format {
        Format::Json => {
            let mut shown = Map::new();
            if *show_log_entries {
                shown.insert("entries".into(), in_hours(&entries));
            }
            if *show_log_sum {
                shown.insert("summary".into(), in_sum(&entries));
            }
            println!("{:#}", Value::Object(shown));
        }
        _ => plain(&entries, *show_log_entries, *show_log_sum),
    }
    Ok(())
}

fn of_sums(sums: &Sums) -> Value {
    json!({
        "bytes_sent": sums.bytes_sent,
        "bytes_received": sums.bytes_received,
        "ops": sums.ops,
        "successful_ops": sums.successful_ops,
    })
}

fn of_kinds(kinds: &BTreeMap<String, Sums>) -> Value {
    let one = |(kind, sums): (&String, &Sums)| {
        let mut of = of_sums(sums);
        of["category"] = kind.as_str().into();
        of
    };
    kinds.iter().map(one).collect()
}

/// `2026-11-26T16:00:00.000000Z`.
fn time(hour: u64) -> String {
    let at = Utime::from_unix(Duration::from_secs(hour * SECONDS_OF_AN_HOUR));
    let (y, mo, d, h, mi, s) = at.civil();
    format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.000000Z")
}

/// Of one user after the other.
fn by_user(entries: &Entries) -> BTreeMap<&str, Vec<&(UsagePlace, UsageKinds)>> {
    let mut users: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for entry in entries {
        users.entry(&entry.0.user).or_default().push(entry);
    }
    users
}

fn in_hours(entries: &Entries) -> Value {
    let bucket = |(place, kinds): &&(UsagePlace, UsageKinds)| {
        json!({
            "bucket": place.bucket,
            "time": time(place.hour),
            "epoch": place.hour * SECONDS_OF_AN_HOUR,
            "owner": place.user,
            "categories": of_kinds(&kinds.of),
        })
    };
    let user = |(user, all): (&str, Vec<_>)| json!({"user": user, "buckets": all.iter().map(bucket).collect::<Value>()});
    by_user(entries).into_iter().map(user).collect()
}

fn summed(all: &[&(UsagePlace, UsageKinds)]) -> (BTreeMap<String, Sums>, Sums) {
    let (mut kinds, mut total) = (BTreeMap::<String, Sums>::new(), Sums::default());
    for (kind, sums) in all.iter().flat_map(|(_, k)| &k.of) {
        *kinds.entry(kind.clone()).or_default() += *sums;
        total += *sums;
    }
    (kinds, total)
}

fn in_sum(entries: &Entries) -> Value {
    let user = |(user, all): (&str, Vec<_>)| {
        let (kinds, total) = summed(&all);
        json!({"user": user, "categories": of_kinds(&kinds), "total": of_sums(&total)})
    };
    by_user(entries).into_iter().map(user).collect()
}

fn plain(entries: &Entries, hours: bool, sum: bool) {
    let line = |when: &str, user: &str, bucket: &str, kind: &str, s: &Sums| {
        println!(
            "{when:<17} {user:<20} {bucket:<30} {kind:<24} {:>10} {:>10} {:>16} {:>16}",
            s.ops, s.successful_ops, s.bytes_sent, s.bytes_received
        );
    };
    println!(
        "{:<17} {:<20} {:<30} {:<24} {:>10} {:>10} {:>16} {:>16}",
        "HOUR", "USER", "BUCKET", "OPERATION", "OPS", "GOOD", "SENT", "RECEIVED"
    );
    for (place, kinds) in entries.iter().filter(|_| hours) {
        let when = &time(place.hour)[..16];
        kinds
            .of
            .iter()
            .for_each(|(kind, sums)| line(when, &place.user, &place.bucket, kind, sums));
    }
    for (user, all) in by_user(entries).iter().filter(|_| sum) {
        line("all", user, "", "", &summed(all).1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours() {
        assert_eq!(
            time(1_795_708_800_000 / 1000 / 3600),
            "2026-11-26T16:00:00.000000Z"
        );
    }
}
