//! Keys of subvolumes: who may use one, kept in files beside the groups (`/volumes/$ID.meta`, `/volumes/_GROUP:NAME.meta`, JSON) and in
//! capabilities of the entity `client.ID`.
//!
//! Files are written before the key is given, and after it was taken: whoever has a key is listed.

use crate::args::{Args, Refusal, check_name, failed, invalid, refusal};
use crate::group;
use crate::place::Place;
use crate::subvolume::{self, Subvolume};
use auth::Context;
use bytes::Bytes;
use cluster::volumes::{Done, Said};
use cluster::{Change, Changes, ClusterState, new_entity};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{AuthName, EntityKind, Errno};

/// Of the layout of the files, as 16.2.15 writes it.
const VERSION: u64 = 6;
const AUTH_COMPAT: u64 = 6;
const SUBVOLUME_COMPAT: u64 = 1;
const FILE_MODE: u32 = 0o755;
/// Entities of one subvolume, and subvolumes of one entity.
const MEMBERS_MAX: usize = 4096;
const EVICT_MAX: Duration = Duration::from_secs(20);

fn auth_file(id: &str) -> String {
    format!("{}/${id}.meta", group::BASE)
}

fn subvolume_file(in_group: &str, name: &str) -> String {
    let shown = if in_group == group::NO_GROUP { "" } else { in_group };
    format!("{}/_{shown}:{name}.meta", group::BASE)
}

/// What the file of an entity calls a subvolume.
fn member(in_group: &str, name: &str) -> String {
    let shown = if in_group == group::NO_GROUP {
        "None"
    } else {
        in_group
    };
    format!("{shown}/{name}")
}

fn id_of(args: &Args) -> Result<&str, Refusal> {
    let id = check_name("entity", args.text("auth_id"))?;
    match id
        .chars()
        .all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | ',' | '='))
    {
        true => Ok(id),
        false => Err(invalid(format!("'{id}' is not a valid auth ID"))),
    }
}

fn level_of(args: &Args) -> Result<&str, Refusal> {
    match args.opt_text("access_level").unwrap_or("rw") {
        level @ ("r" | "rw") => Ok(level),
        other => Err(invalid(format!(
            "Invalid access level '{other}': r and rw are possible"
        ))),
    }
}

/// None: there is no such file, or nothing in it.
async fn read(place: &Place<'_>, path: &str) -> Result<Option<Map<String, Value>>, Refusal> {
    let text = match place.mount.read_all(path).await {
        Err(e) if e.is_not_found() => return Ok(None),
        text => text.map_err(failed)?,
    };
    if text.is_empty() {
        return Ok(None);
    }
    let map = serde_json::from_slice::<Value>(&text).ok();
    let map = map.and_then(|v| v.as_object().cloned());
    map.map(Some)
        .ok_or_else(|| refusal(Errno::EIO, format!("'/{path}' cannot be read")))
}

async fn write(place: &Place<'_>, path: &str, map: &Map<String, Value>) -> Result<(), Refusal> {
    let text = Value::Object(map.clone()).to_string();
    let write = place.mount.write_all(path, FILE_MODE, Bytes::from(text));
    write.await.map_err(failed)
}

async fn unlink(place: &Place<'_>, path: &str) -> Result<(), Refusal> {
    match place.mount.unlink(path).await {
        Err(e) if e.is_not_found() => Ok(()),
        done => done.map_err(failed),
    }
}

/// The members of a file: `auths` or `subvolumes`.
fn members<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(name.to_string()).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("it was made one"),
    }
}

fn levels(map: &Map<String, Value>, name: &str) -> Vec<(String, String)> {
    let all = map.get(name).and_then(Value::as_object);
    let all = all.into_iter().flatten();
    all.map(|(k, v)| {
        (
            k.clone(),
            v["access_level"].as_str().unwrap_or_default().to_string(),
        )
    })
    .collect()
}

pub async fn authorized_list(place: &Place<'_>, args: &Args) -> Done {
    let found = subvolume::find(place, args).await?;
    let map = read(place, &subvolume_file(&found.group, &found.name)).await?;
    let all = levels(&map.unwrap_or_default(), "auths").into_iter();
    Ok(Said::Json(all.map(|(id, level)| json!({id: level})).collect()))
}

/// What an entity may of data and of the tree, as capabilities that say so.
async fn grants(place: &Place<'_>, s: &Subvolume, level: &str) -> Result<(String, String), Refusal> {
    let stat = s.stat(place).await?;
    let pool = i64::from(stat.layout.pool);
    let pool = place.pools.iter().find(|(id, _)| *id == pool);
    let (_, pool) = pool.ok_or_else(|| refusal(Errno::ENOENT, "the subvolume's data pool is gone"))?;
    let mut osd = format!("allow {level} pool={pool}");
    if !stat.pool_ns.is_empty() {
        osd += &format!(" namespace={}", stat.pool_ns);
    }
    Ok((format!("allow {level} path={}", s.path()), osd))
}

fn entity_of(id: &str) -> AuthName {
    AuthName::new(EntityKind::Client, id)
}

fn parts(caps: &BTreeMap<String, String>, service: &str) -> Vec<String> {
    let text = caps.get(service).map_or("", String::as_str);
    let parts = text.split([',', ';']).map(str::trim);
    parts.filter(|p| !p.is_empty()).map(str::to_string).collect()
}

/// Capabilities with those for the path replaced by `mds`, and with `osd`; what no other subvolume of the entity needs goes.
fn merged(
    caps: &BTreeMap<String, String>,
    path: &str,
    grant: Option<(&str, &str)>,
    drop_osd: &BTreeSet<String>,
) -> BTreeMap<String, String> {
    let mut out = caps.clone();
    let is_ours = |part: &String| part.ends_with(&format!(" path={path}"));
    let mut mds: Vec<String> = parts(caps, "mds").into_iter().filter(|p| !is_ours(p)).collect();
    let mut osd: Vec<String> = parts(caps, "osd")
        .into_iter()
        .filter(|p| !drop_osd.contains(p))
        .collect();
    if let Some((m, o)) = grant {
        mds.push(m.to_string());
        if !osd.iter().any(|p| p == o) {
            osd.push(o.to_string());
        }
        out.entry("mon".into()).or_insert_with(|| "allow r".into());
    }
    out.insert("mds".into(), mds.join(","));
    out.insert("osd".into(), osd.join(","));
    out.retain(|_, text| !text.is_empty());
    out
}

/// Data capabilities that the entity's other subvolumes need.
async fn needed(
    place: &Place<'_>,
    file: &Map<String, Value>,
    but: &str,
) -> Result<BTreeSet<String>, Refusal> {
    let mut out = BTreeSet::new();
    for (name, level) in levels(file, "subvolumes") {
        let Some((in_group, sub)) = name.split_once('/').filter(|_| name != but) else {
            continue;
        };
        let in_group = if in_group == "None" {
            group::NO_GROUP
        } else {
            in_group
        };
        // One that was removed needs nothing.
        if let Some(other) = subvolume::at(place, in_group, sub).await? {
            out.insert(grants(place, &other, &level).await?.1);
        }
    }
    Ok(out)
}

/// Capabilities are text without quotes: what else is in a path would be read as words of theirs.
fn check_path(path: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
    match path.chars().all(plain) {
        true => Ok(()),
        false => Err(invalid(format!(
            "'{path}' cannot stand in capabilities: letters, digits and _ . - are possible in names"
        ))),
    }
}

pub async fn authorize(place: &Place<'_>, args: &Args) -> Done {
    let found = subvolume::find(place, args).await?;
    check_path(found.path())?;
    let (id, level) = (id_of(args)?, level_of(args)?);
    let tenant = args.opt_text("tenant_id");
    let name = entity_of(id);
    let known = read(place, &auth_file(id)).await?;
    let may_exist = known.is_some() || args.flag("allow_existing_id");
    let exists = place.config.cluster.state().auth.get(&name).is_some();
    if id == "admin" || exists && !may_exist {
        return Err(not_ours(id));
    }
    if let Some(known) = &known
        && known.get("tenant_id").and_then(Value::as_str) != tenant
    {
        let why = format!("auth ID: {id} is already in use");
        return Err(refusal(Errno::EPERM, why));
    }
    let mut file = known.unwrap_or_else(|| fresh_auth(tenant));
    let (this, members_file) = (
        member(&found.group, &found.name),
        subvolume_file(&found.group, &found.name),
    );
    let needed = needed(place, &file, &this).await?;
    let (mds, osd) = grants(place, &found, level).await?;
    let entry = json!({"access_level": level, "dirty": false});
    let subvolumes = members(&mut file, "subvolumes");
    let full = || format!("auth ID: {id} has too many subvolumes");
    add_member(subvolumes, &this, entry.clone(), full)?;
    let mut list = read(place, &members_file).await?.unwrap_or_else(fresh_subvolume);
    let auths = members(&mut list, "auths");
    add_member(auths, id, entry, || "too many auth IDs".into())?;
    write(place, &auth_file(id), &file).await?;
    write(place, &members_file, &list).await?;
    let other = other_level(&osd, level);
    let stale = if needed.contains(&other) {
        BTreeSet::new()
    } else {
        BTreeSet::from([other])
    };
    let grant = Grant {
        mds: &mds,
        osd: &osd,
        may_exist,
    };
    let key = match put_caps(place, &name, found.path(), Some(&grant), &stale).await? {
        Put::Done(key) => key,
        Put::NotOurs => {
            // Somebody has made it since we looked.
            unlist(place, &found, id).await?;
            return Err(not_ours(id));
        }
    };
    Ok(match (tenant, key) {
        (Some(_), Some(key)) => Said::Text(key),
        _ => Said::Nothing,
    })
}

fn add_member(
    to: &mut Map<String, Value>,
    name: &str,
    entry: Value,
    full: impl Fn() -> String,
) -> Result<(), Refusal> {
    if to.len() >= MEMBERS_MAX && !to.contains_key(name) {
        return Err(refusal(Errno::ENOSPC, full()));
    }
    to.insert(name.to_string(), entry);
    Ok(())
}

fn not_ours(id: &str) -> Refusal {
    let why = format!("auth ID: {id} exists and not created by mgr plugin. Not allowed to modify");
    refusal(Errno::EPERM, why)
}

/// The same capability of data with the other right.
fn other_level(osd: &str, level: &str) -> String {
    let other = if level == "rw" { "r" } else { "rw" };
    osd.replacen(&format!("allow {level} "), &format!("allow {other} "), 1)
}

fn fresh_auth(tenant: Option<&str>) -> Map<String, Value> {
    let v = json!({
        "dirty": false,
        "tenant_id": tenant,
        "subvolumes": {},
        "compat_version": AUTH_COMPAT,
        "version": VERSION,
    });
    v.as_object().cloned().unwrap_or_default()
}

fn fresh_subvolume() -> Map<String, Value> {
    let v = json!({"auths": {}, "compat_version": SUBVOLUME_COMPAT, "version": VERSION});
    v.as_object().cloned().unwrap_or_default()
}

struct Grant<'a> {
    mds: &'a str,
    osd: &'a str,
    /// An entity of that name is ours, or may be changed.
    may_exist: bool,
}

enum Put {
    /// With the key.
    Done(Option<String>),
    NotOurs,
}

/// Makes or changes an entity. Without a grant one that is left without subvolumes goes.
async fn put_caps(
    place: &Place<'_>,
    name: &AuthName,
    path: &str,
    grant: Option<&Grant<'_>>,
    drop_osd: &BTreeSet<String>,
) -> Result<Put, Refusal> {
    let config = place.config;
    let cx = Context {
        now: config.cluster.now(),
        entropy: &*config.entropy,
    };
    let fresh = new_entity(&cx, &[]);
    let decide = |state: &ClusterState| {
        let mut entity = match state.auth.get(name) {
            Some(_) if grant.is_some_and(|g| !g.may_exist) => return (Changes::none(), Put::NotOurs),
            Some(entity) => entity.clone(),
            None if grant.is_none() => return (Changes::none(), Put::Done(None)),
            None => fresh.clone(),
        };
        let caps = merged(&entity.caps, path, grant.map(|g| (g.mds, g.osd)), drop_osd);
        let name = name.clone();
        if grant.is_none() && !caps.contains_key("mds") {
            return (Changes::one(Change::AuthRm { name }), Put::Done(None));
        }
        let key = entity.key.to_text();
        if caps == entity.caps && state.auth.get(&name).is_some() {
            return (Changes::none(), Put::Done(Some(key)));
        }
        entity.caps = caps;
        let put = Change::AuthPut { name, entity };
        (Changes::one(put), Put::Done(Some(key)))
    };
    let done = config.cluster.commit(decide).await;
    done.map(|d| d.reply)
        .map_err(|e| refusal(Errno::EIO, e.to_string()))
}

pub async fn deauthorize(place: &Place<'_>, args: &Args) -> Done {
    let found = subvolume::find(place, args).await?;
    let id = id_of(args)?;
    match revoke(place, &found, id).await? {
        true => Ok(Said::Nothing),
        false => Err(refusal(Errno::ENOENT, format!("auth ID: {id} doesn't exist"))),
    }
}

/// Takes from an entity what it has of a subvolume; false: nothing is known of such an entity.
async fn revoke(place: &Place<'_>, found: &Subvolume, id: &str) -> Result<bool, Refusal> {
    let Some(file) = read(place, &auth_file(id)).await? else {
        return Ok(false);
    };
    let this = member(&found.group, &found.name);
    let level = levels(&file, "subvolumes").into_iter().find(|(n, _)| *n == this);
    let Some((_, level)) = level else {
        return Ok(true);
    };
    let needed = needed(place, &file, &this).await?;
    let osd = match grants(place, found, &level).await {
        Ok((_, osd)) => Some(osd),
        // Its data, or their pool, have gone.
        Err((Errno::ENOENT, _)) => None,
        Err(e) => return Err(e),
    };
    let stale: BTreeSet<String> = osd.into_iter().filter(|o| !needed.contains(o)).collect();
    put_caps(place, &entity_of(id), found.path(), None, &stale).await?;
    unlist(place, found, id).await?;
    Ok(true)
}

/// Strikes the two from each other's files.
async fn unlist(place: &Place<'_>, found: &Subvolume, id: &str) -> Result<(), Refusal> {
    let members_file = subvolume_file(&found.group, &found.name);
    if let Some(mut list) = read(place, &members_file).await? {
        members(&mut list, "auths").remove(id);
        write(place, &members_file, &list).await?;
    }
    let Some(mut file) = read(place, &auth_file(id)).await? else {
        return Ok(());
    };
    let subvolumes = members(&mut file, "subvolumes");
    subvolumes.remove(&member(&found.group, &found.name));
    match subvolumes.is_empty() {
        true => unlink(place, &auth_file(id)).await,
        false => write(place, &auth_file(id), &file).await,
    }
}

/// The subvolume is about to go: so do all rights to it. Those to data would outlast it, for they name pools.
pub async fn revoke_all(place: &Place<'_>, in_group: &str, name: &str) -> Result<(), Refusal> {
    let Some(list) = read(place, &subvolume_file(in_group, name)).await? else {
        return Ok(());
    };
    let found = match subvolume::at(place, in_group, name).await {
        Ok(Some(found)) if found.checked_data().is_ok() => found,
        // One whose `.meta` says nothing can be removed all the same.
        Ok(_) | Err((Errno::EIO, _)) => {
            tracing::warn!("subvolume '{name}' has no readable .meta: keys keep what they may there");
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    for (id, _) in levels(&list, "auths") {
        revoke(place, &found, &id).await?;
    }
    Ok(())
}

/// The subvolume has gone, and with it the list of those who might use it.
pub async fn forget(place: &Place<'_>, in_group: &str, name: &str) -> Result<(), Refusal> {
    unlink(place, &subvolume_file(in_group, name)).await
}

/// Ends the sessions of an entity that has mounted the subvolume.
pub async fn evict(place: &Place<'_>, args: &Args) -> Done {
    let found = subvolume::find(place, args).await?;
    let id = id_of(args)?;
    let filters = [
        format!("auth_name={id}"),
        format!("client_metadata.root={}", found.path()),
    ];
    let cmd = json!({"prefix": "session evict", "filters": filters}).to_string();
    match io::task::timeout(EVICT_MAX, place.mount.command(&cmd)).await {
        Ok(Ok(_)) => Ok(Said::Nothing),
        Ok(Err(e)) => {
            let why = format!("the metadata server does not end sessions for us: {e}");
            Err(refusal(Errno::EOPNOTSUPP, why))
        }
        Err(_) => Err(refusal(Errno::ETIMEDOUT, "the metadata server does not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(mds: &str, osd: &str) -> BTreeMap<String, String> {
        [("mds", mds), ("osd", osd), ("mon", "allow r")]
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .into()
    }

    /// What a real one leaves in the cluster, without the same words twice.
    #[test]
    fn capabilities_are_added_replaced_and_taken() {
        let none = BTreeSet::new();
        let one = merged(
            &BTreeMap::new(),
            "/a",
            Some(("allow rw path=/a", "allow rw pool=p")),
            &none,
        );
        assert_eq!(one, caps("allow rw path=/a", "allow rw pool=p"));
        let two = merged(
            &one,
            "/b",
            Some(("allow r path=/b", "allow r pool=p namespace=n")),
            &none,
        );
        let want = caps(
            "allow rw path=/a,allow r path=/b",
            "allow rw pool=p,allow r pool=p namespace=n",
        );
        assert_eq!(two, want);
        let stale = BTreeSet::from([other_level("allow r pool=p", "r")]);
        let less = merged(&two, "/a", Some(("allow r path=/a", "allow r pool=p")), &stale);
        let want = caps(
            "allow r path=/b,allow r path=/a",
            "allow r pool=p namespace=n,allow r pool=p",
        );
        assert_eq!(less, want);
        let stale = BTreeSet::from(["allow r pool=p".to_string()]);
        let rest = merged(&less, "/a", None, &stale);
        assert_eq!(rest, caps("allow r path=/b", "allow r pool=p namespace=n"));
        let stale = BTreeSet::from(["allow r pool=p namespace=n".to_string()]);
        assert!(!merged(&rest, "/b", None, &stale).contains_key("mds"));
    }

    #[test]
    fn paths_add_no_words_to_capabilities() {
        assert_eq!(check_path("/volumes/_nogroup/a-b.c/0f"), Ok(()));
        for path in ["/v/a,allow *", "/v/a b", "/v/a=b", "/v/\"a", "/v/a;b", "/v/ä"] {
            assert!(check_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn files_are_named_as_the_real_ones() {
        assert_eq!(subvolume_file(group::NO_GROUP, "a1"), "volumes/_:a1.meta");
        assert_eq!(subvolume_file("gg", "a3"), "volumes/_gg:a3.meta");
        assert_eq!(member(group::NO_GROUP, "a1"), "None/a1");
        let mut file = fresh_auth(Some("t1"));
        let entry = json!({"access_level": "rw", "dirty": false});
        members(&mut file, "subvolumes").insert("None/a1".into(), entry);
        let want = r#"{"dirty":false,"tenant_id":"t1","subvolumes":{"None/a1":{"access_level":"rw","dirty":false}},"compat_version":6,"version":6}"#;
        assert_eq!(Value::Object(file).to_string(), want);
    }
}
