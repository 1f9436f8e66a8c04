//! What users keep with a subvolume or a snapshot of one: in sections of `.meta`.

use crate::args::{Args, Refusal, invalid, refusal};
use crate::meta::USER;
use crate::place::Place;
use crate::subvolume::{self, Subvolume, write_meta};
use cluster::volumes::{Done, Said};
use serde_json::Value;
use types::Errno;

/// As configparser keeps it.
fn key_of(args: &Args) -> Result<String, Refusal> {
    let key = args.text("key_name").trim().to_lowercase();
    let bad = key.is_empty() || key.contains(['=', ':', '\n', '\r']) || key.starts_with(['[', '#', ';']);
    match bad {
        true => Err(invalid(format!("'{key}' is not a valid key of metadata"))),
        false => Ok(key),
    }
}

fn no_key(key: &str) -> Refusal {
    refusal(Errno::ENOENT, format!("key '{key}' does not exist."))
}

/// The section of a snapshot.
pub fn section_of(snap: &str) -> String {
    format!("SNAP_METADATA_{snap}")
}

/// What the command is about, and its section.
async fn shelf(place: &Place<'_>, args: &Args) -> Result<(Subvolume, String), Refusal> {
    let Some(snap) = args.opt_text("snap_name") else {
        return Ok((subvolume::find(place, args).await?, USER.to_string()));
    };
    let found = subvolume::with_snapshots(place, args).await?;
    subvolume::in_snapshot(place, &found, snap).await?;
    Ok((found, section_of(snap)))
}

pub async fn set(place: &Place<'_>, args: &Args) -> Done {
    let (mut found, section) = shelf(place, args).await?;
    let value: Vec<&str> = args.text("value").lines().map(str::trim).collect();
    found.meta.set(&section, &key_of(args)?, value.join("\n").trim());
    write_meta(place.mount, &found.base, &found.meta).await?;
    Ok(Said::Nothing)
}

pub async fn get(place: &Place<'_>, args: &Args) -> Done {
    let ((found, section), key) = (shelf(place, args).await?, key_of(args)?);
    let value = found.meta.get(&section, &key);
    value
        .map(|v| Said::Text(v.to_string()))
        .ok_or_else(|| no_key(&key))
}

pub async fn ls(place: &Place<'_>, args: &Args) -> Done {
    let (found, section) = shelf(place, args).await?;
    let all = found.meta.all(&section).into_iter();
    Ok(Said::Json(Value::Object(
        all.map(|(k, v)| (k, v.into())).collect(),
    )))
}

pub async fn rm(place: &Place<'_>, args: &Args) -> Done {
    let ((mut found, section), key) = (shelf(place, args).await?, key_of(args)?);
    if found.meta.remove(&section, &key) {
        write_meta(place.mount, &found.base, &found.meta).await?;
        return Ok(Said::Nothing);
    }
    match args.flag("force") {
        true => Ok(Said::Nothing),
        false => Err(no_key(&key)),
    }
}

/// A snapshot has gone: so does what was kept with it.
pub async fn forget(place: &Place<'_>, found: &mut Subvolume, snap: &str) -> Result<(), Refusal> {
    let section = section_of(snap);
    let keys: Vec<String> = found.meta.all(&section).into_keys().collect();
    if keys.is_empty() {
        return Ok(());
    }
    for key in keys {
        found.meta.remove(&section, &key);
    }
    write_meta(place.mount, &found.base, &found.meta).await
}
