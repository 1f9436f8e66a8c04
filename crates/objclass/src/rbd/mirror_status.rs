//! How mirroring of each image goes, told by the daemons of all sites (docs/protocol/ceph/05-rbd.md, 4.11).
//!
//! A status is *up* while the one who wrote it still watches `rbd_mirroring`; addresses are compared without
//! their type. The local site's status and each remote site's have keys of their own.

use super::types::{EntityInst, MirrorImage, MirrorPeer, MirrorStatus, SiteStatus, StoredStatus};
use super::{keys, mirror_image};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, out, stored};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{AddrKind, EntityAddr, EntityName, Errno};

fn local_key(global_id: &[u8]) -> Bytes {
    key(keys::MIRROR_STATUS, global_id)
}

/// What the keys of all remote sites of an image begin with.
fn remote_prefix(global_id: &[u8]) -> Bytes {
    [keys::MIRROR_REMOTE_STATUS, global_id, b"_"].concat().into()
}

fn status_key(global_id: &[u8], mirror_uuid: &[u8]) -> Bytes {
    if mirror_uuid.is_empty() {
        local_key(global_id)
    } else {
        key(&remote_prefix(global_id), mirror_uuid)
    }
}

/// Keys of every status of an image.
pub fn keys_of(object: &mut Object<'_>, global_id: &[u8]) -> Result<Vec<Bytes>> {
    let mut found = vec![local_key(global_id)];
    let prefix = remote_prefix(global_id);
    object.scan(&prefix, b"", |site, _| {
        found.push(key(&prefix, site));
        Ok(Scan::Next)
    })?;
    Ok(found)
}

fn without_type(name: EntityName, addr: EntityAddr) -> EntityInst {
    let kind = AddrKind::Any;
    EntityInst {
        name,
        addr: EntityAddr { kind, ..addr },
    }
}

/// Everybody who watches the object.
fn watching(object: &mut Object<'_>) -> Result<Vec<EntityInst>> {
    let watchers = object.watchers()?;
    Ok(watchers
        .into_iter()
        .map(|w| without_type(w.name, w.addr))
        .collect())
}

fn seen(stored: StoredStatus, watching: &[EntityInst]) -> SiteStatus {
    let up = watching.contains(&stored.origin);
    SiteStatus { up, ..stored.status }
}

/// All statuses of an image; `None` if there are none.
fn load(object: &mut Object<'_>, global_id: &[u8], watching: &[EntityInst]) -> Result<Option<MirrorStatus>> {
    let local = object.get::<StoredStatus>(&local_key(global_id))?;
    let mut remote = Vec::new();
    object.scan(&remote_prefix(global_id), b"", |mirror_uuid, value| {
        let status = seen(stored(value)?, watching);
        remote.push(SiteStatus {
            mirror_uuid: mirror_uuid.clone(),
            ..status
        });
        Ok(Scan::Next)
    })?;
    if local.is_none() && remote.is_empty() {
        return Ok(None);
    }
    let local = local.map(|s| seen(s, watching));
    Ok(Some(MirrorStatus { local, remote }))
}

/// An image that is not mirrored is left alone, without an error: the daemon may be late.
pub fn set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (global_id, mut status): (Bytes, SiteStatus) = input.get()?;
    match mirror_image::by_global_id(object, &global_id)? {
        Some(image) if image.state == MirrorImage::ENABLED => {}
        _ => return done(),
    }
    let caller = object.caller();
    status.up = false;
    status.last_update = object.now();
    // The key tells the site; the value does not repeat it.
    let mirror_uuid = std::mem::take(&mut status.mirror_uuid);
    let key = status_key(&global_id, &mirror_uuid);
    let origin = without_type(caller.name, caller.addr);
    object.set(&key, &StoredStatus { origin, status })?;
    done()
}

pub fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let global_id: Bytes = input.get()?;
    let watching = watching(object)?;
    out(&load(object, &global_id, &watching)?.ok_or(Errno::ENOENT)?)
}

pub fn list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    let watching = watching(object)?;
    let images = mirror_image::page(object, &start_after, max)?;
    let mut statuses = Vec::new();
    for (id, image) in &images {
        if let Some(status) = load(object, &image.global_id, &watching)? {
            statuses.push((id.clone(), status));
        }
    }
    out(&(images, statuses))
}

/// One state for an image. Where no peer receives from us, our own site's. Else the least of what is told by the peers that
/// do, by every other site that ever told something, and by our own where it told something and one of those peers sends, too.
/// A site that tells nothing, or does not watch any more, is unknown.
fn summary_state(status: &MirrorStatus, peers: &[MirrorPeer]) -> u8 {
    let state = |s: Option<&SiteStatus>| s.filter(|s| s.up).map_or(SiteStatus::UNKNOWN, |s| s.state);
    let mut receivers = peers.iter().filter(|p| p.direction != MirrorPeer::RX).peekable();
    if receivers.peek().is_none() {
        return state(status.local.as_ref());
    }
    let both_ways = peers.iter().any(|p| p.direction == MirrorPeer::RX_TX);
    let local = status.local.iter().filter(|_| both_ways);
    let told = local.chain(&status.remote).map(|s| state(Some(s)));
    let of_peer = |p: &MirrorPeer| status.remote.iter().find(|s| s.mirror_uuid == p.mirror_uuid);
    let least = receivers.map(|p| state(of_peer(p))).chain(told).min();
    least.unwrap_or(SiteStatus::UNKNOWN)
}

pub fn get_summary(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let peers: Vec<MirrorPeer> = input.optional()?.unwrap_or_default();
    let watching = watching(object)?;
    let mut counts: BTreeMap<u8, i32> = BTreeMap::new();
    for (_, image) in mirror_image::page(object, b"", u64::MAX)? {
        let status = load(object, &image.global_id, &watching)?.unwrap_or_default();
        *counts.entry(summary_state(&status, &peers)).or_default() += 1;
    }
    out(&counts)
}

pub fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let global_id: Bytes = input.get()?;
    let gone = keys_of(object, &global_id)?;
    object.unset_keys(gone)?;
    done()
}

/// Drops what nobody stands behind any more.
pub fn remove_down(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let watching = watching(object)?;
    let mut gone = Vec::new();
    for prefix in [keys::MIRROR_STATUS, keys::MIRROR_REMOTE_STATUS] {
        object.scan(prefix, b"", |name, value| {
            let status: StoredStatus = stored(value)?;
            if !watching.contains(&status.origin) {
                gone.push(key(prefix, name));
            }
            Ok(Scan::Next)
        })?;
    }
    object.unset_keys(gone)?;
    done()
}

/// Which daemon replays the image; ESTALE if it is gone.
pub fn instance_get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let global_id: Bytes = input.get()?;
    let status: StoredStatus = object.need(&local_key(&global_id))?;
    if !watching(object)?.contains(&status.origin) {
        return Err(Errno::ESTALE);
    }
    out(&status.origin)
}

pub fn instance_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    let watching = watching(object)?;
    let mut instances = Vec::new();
    for (id, image) in mirror_image::page(object, &start_after, max)? {
        let status = object.get::<StoredStatus>(&local_key(&image.global_id))?;
        if let Some(status) = status.filter(|s| watching.contains(&s.origin)) {
            instances.push((id, status.origin));
        }
    }
    out(&instances)
}
