//! Mirroring of a pool, object `rbd_mirroring`: mode, own uuid, peers (docs/protocol/ceph/05-rbd.md, 4.11).

use super::keys;
use super::types::MirrorPeer;
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, Scan, done, key, out};
use bytes::Bytes;
use types::{Errno, Uuid};

const MODE_DISABLED: u32 = 0;
const MODE_IMAGE: u32 = 1;
const MODE_POOL: u32 = 2;

fn uuid(object: &mut Object<'_>) -> Result<Option<Bytes>> {
    object.raw(keys::MIRROR_UUID)
}

fn mode(object: &mut Object<'_>) -> Result<u32> {
    Ok(object.get(keys::MIRROR_MODE)?.unwrap_or(MODE_DISABLED))
}

fn peers(object: &mut Object<'_>) -> Result<Vec<MirrorPeer>> {
    let rows = object.list::<MirrorPeer>(keys::MIRROR_PEER, b"", u64::MAX)?;
    Ok(rows.into_iter().map(|(_, peer)| peer).collect())
}

fn store_peer(object: &mut Object<'_>, peer: &MirrorPeer) -> Result<Bytes> {
    object.set(&key(keys::MIRROR_PEER, &peer.uuid), peer)?;
    done()
}

pub fn uuid_get(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&uuid(object)?.ok_or(Errno::ENOENT)?)
}

pub fn uuid_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let uuid: Bytes = input.get()?;
    if uuid.is_empty() || mode(object)? != MODE_DISABLED {
        return Err(Errno::EINVAL);
    }
    object.set_raw(keys::MIRROR_UUID, uuid)?;
    done()
}

pub fn mode_get(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<u32>(keys::MIRROR_MODE)?)
}

pub fn mode_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let wanted: u32 = input.get()?;
    match wanted {
        MODE_IMAGE | MODE_POOL => {
            if uuid(object)?.is_none() {
                return Err(Errno::EINVAL);
            }
            object.set(keys::MIRROR_MODE, &wanted)?;
        }
        MODE_DISABLED => {
            let mut any = false;
            object.scan(keys::MIRROR_PEER, b"", |_, _| {
                any = true;
                Ok(Scan::Stop)
            })?;
            if any {
                return Err(Errno::EBUSY);
            }
            let gone = [
                keys::MIRROR_MODE,
                keys::MIRROR_UUID,
                keys::MIRROR_REMOTE_NAMESPACE,
            ];
            object.unset_keys(gone.map(Bytes::from_static).into())?;
        }
        _ => return Err(Errno::EINVAL),
    }
    done()
}

pub fn remote_namespace_get(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<Bytes>(keys::MIRROR_REMOTE_NAMESPACE)?)
}

pub fn remote_namespace_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let namespace: Bytes = input.get()?;
    if matches!(mode(object)?, MODE_IMAGE | MODE_POOL) {
        return Err(Errno::EINVAL);
    }
    object.set(keys::MIRROR_REMOTE_NAMESPACE, &namespace)?;
    done()
}

pub fn peer_list(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&peers(object)?)
}

pub fn peer_add(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let peer: MirrorPeer = input.get()?;
    if !peer.is_valid() || peer.direction == MirrorPeer::TX {
        return Err(Errno::EINVAL);
    }
    add_peer(object, peer)
}

/// EINVAL where mirroring is off and for this site itself, ESTALE for a known uuid, EEXIST for a known site.
fn add_peer(object: &mut Object<'_>, peer: MirrorPeer) -> Result<Bytes> {
    if mode(object)? == MODE_DISABLED {
        return Err(Errno::EINVAL);
    }
    let own = uuid(object)?;
    if own.as_ref() == Some(&peer.uuid) {
        return Err(Errno::EINVAL);
    }
    let known = peers(object)?;
    if known.iter().any(|p| p.uuid == peer.uuid) {
        return Err(Errno::ESTALE);
    }
    let same_site = |p: &MirrorPeer| {
        p.site_name == peer.site_name || !peer.mirror_uuid.is_empty() && p.mirror_uuid == peer.mirror_uuid
    };
    if known.iter().any(same_site) {
        return Err(Errno::EEXIST);
    }
    store_peer(object, &peer)
}

pub fn peer_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let uuid: Bytes = input.get()?;
    object.unset(&key(keys::MIRROR_PEER, &uuid))?;
    done()
}

fn need_peer(object: &mut Object<'_>, uuid: &[u8]) -> Result<MirrorPeer> {
    object.need(&key(keys::MIRROR_PEER, uuid))
}

pub fn peer_set_client(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (uuid, client_name): (Bytes, Bytes) = input.get()?;
    let mut peer = need_peer(object, &uuid)?;
    peer.client_name = client_name;
    store_peer(object, &peer)
}

pub fn peer_set_cluster(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (uuid, site_name): (Bytes, Bytes) = input.get()?;
    let mut peer = need_peer(object, &uuid)?;
    if peers(object)?
        .iter()
        .any(|p| p.uuid != uuid && p.site_name == site_name)
    {
        return Err(Errno::EEXIST);
    }
    peer.site_name = site_name;
    store_peer(object, &peer)
}

pub fn peer_set_direction(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (uuid, direction): (Bytes, u8) = input.get()?;
    let mut peer = need_peer(object, &uuid)?;
    peer.direction = direction;
    store_peer(object, &peer)
}

/// The daemon of another site tells that it replays from here: a peer that receives what we send.
pub fn peer_ping(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (site_name, mirror_uuid, direction): (Bytes, Bytes, u8) = (input.get()?, input.get()?, input.get()?);
    if site_name.is_empty() || mirror_uuid.is_empty() || direction != MirrorPeer::TX {
        return Err(Errno::EINVAL);
    }
    let mut known = peers(object)?;
    let found = known.iter().position(|p| p.site_name == site_name);
    let found = found.or_else(|| known.iter().position(|p| p.mirror_uuid == mirror_uuid));
    let now = object.now();
    if let Some(at) = found {
        let mut peer = known.swap_remove(at);
        if peer.direction == MirrorPeer::RX {
            peer.direction = MirrorPeer::RX_TX;
        }
        peer.site_name = site_name;
        peer.mirror_uuid = mirror_uuid;
        peer.last_seen = now;
        return store_peer(object, &peer);
    }
    let peer = MirrorPeer {
        uuid: Uuid::from_random(object.random()).to_string().into(),
        site_name,
        client_name: Bytes::new(),
        direction: MirrorPeer::TX,
        mirror_uuid,
        last_seen: now,
    };
    add_peer(object, peer)
}
