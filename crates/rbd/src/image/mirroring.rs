//! Snapshots for mirroring, at the primary site: made, and removed when there are too many
//! (docs/protocol/ceph/05-rbd.md, 4.2, 4.11 and the table of objects).
//!
//! Order: the snapshot is added as incomplete; what else the image consists of is stored beside it; then it is complete, and
//! other sites copy it. What a crash leaves incomplete is removed by the next one, before it adds its own: so however often one is
//! cut short, few are left.

use super::{Image, Inner, detached};
use crate::calls::Calls;
use crate::header::{Header, Snap, ask};
use crate::mirror::Mirrored;
use crate::{Error, Result, directory, error, features, names};
use bytes::Bytes;
use client::Operation;
use denc::{Reader, Writer};
use objclass::rbd::types::{MirrorNamespace, SnapshotNamespace};
use std::collections::BTreeMap;
use types::{Errno, NOSNAP, Uuid};

/// Snapshots that a site may have left to copy. Beyond that those between go: the oldest is what the site has, the one after it
/// what it may be copying.
pub const LINKED_MAX: usize = 5;
const BETWEEN: usize = 2;
/// Of [`MirrorNamespace::state`].
const PRIMARY: u8 = 0;
/// Features that follow from others, or that an image has for a while; a copy's own are not taken from these.
const OWN_FEATURES: u64 = features::STRIPING
    | features::DATA_POOL
    | features::FAST_DIFF
    | features::OPERATIONS
    | features::MIGRATING
    | features::NON_PRIMARY
    | features::DIRTY_CACHE;
/// Pieces of a state that are looked for when it is removed.
const PIECES_MAX: u32 = 4096;

impl Image {
    /// A snapshot for the sites `peers`; its id. `unique` makes its name.
    pub async fn create_mirror_snap(
        &self,
        mirrored: &Mirrored,
        peers: Vec<String>,
        unique: Uuid,
    ) -> Result<u64> {
        let inner = self.inner.clone();
        let name = format!(".mirror.primary.{}.{unique}", mirrored.global_id);
        detached(async move {
            let _alone = inner.alone().await?;
            let view = inner.seen();
            must_be_primary(&view.header)?;
            inner.remove_snaps(&left_over(&view.header)).await?;
            let view = inner.seen();
            let namespace = SnapshotNamespace::Mirror(MirrorNamespace {
                state: PRIMARY,
                complete: false,
                peer_uuids: peers.iter().map(|p| Bytes::from(p.clone())).collect(),
                primary_uuid: Bytes::new(),
                primary_snap_id: NOSNAP,
                last_copied_object: 0,
                snap_seqs: BTreeMap::new(),
            });
            let id = inner.add_snap(&view.beneath, &name, &namespace).await?;
            let mapped = inner.snap_map(&view.header, id).await;
            inner.changed().await?;
            mapped?;
            inner.store_state(id).await?;
            let op = Operation::new().rbd_write("mirror_image_snapshot_set_copy_progress", |w| {
                w.u64(id);
                w.bool(true);
                w.u64(0);
            });
            ask(&inner.io, &inner.header_oid, op).await?;
            inner.changed().await?;
            inner.remove_surplus(&peers).await?;
            Ok(id)
        })
        .await
    }
}

fn mirrored(snap: &Snap) -> Option<&MirrorNamespace> {
    match &snap.namespace {
        SnapshotNamespace::Mirror(m) => Some(m),
        _ => None,
    }
}

fn must_be_primary(header: &Header) -> Result<()> {
    // Newest first.
    match header.snaps.iter().find_map(mirrored) {
        Some(m) if m.state == PRIMARY => Ok(()),
        _ => Err(Error::refused(Errno::EINVAL, "the image is not primary here")),
    }
}

/// What a crash left incomplete, and what all sites are done with, oldest first. The newest complete one stays, or the newest of
/// all: by it the image is primary here.
fn left_over(header: &Header) -> Vec<u64> {
    let all = header.snaps.iter().filter_map(|s| Some((s.id, mirrored(s)?)));
    let ours: Vec<(u64, &MirrorNamespace)> = all.filter(|(_, m)| m.state == PRIMARY).collect();
    let newest = ours.iter().find(|(_, m)| m.complete).or(ours.first());
    let stays = newest.map(|(id, _)| *id);
    let over =
        |(id, m): &&(u64, &MirrorNamespace)| Some(*id) != stays && (!m.complete || m.peer_uuids.is_empty());
    ours.iter().rev().filter(over).map(|(id, _)| *id).collect()
}

impl Inner {
    /// What the image is besides its data: `rbd_mirror_snapshot.<id>.<snapshot>.<n>`, in pieces of an object's size.
    async fn store_state(&self, snap: u64) -> Result<()> {
        let state = self.state().await?;
        let size = usize::try_from(self.fixed.layout.object_size()).unwrap_or(usize::MAX);
        let head = |pieces: u32| {
            let mut w = Writer::new();
            w.envelope(1, 1, |w| w.u32(pieces));
            w.finish()
        };
        let first = size.saturating_sub(head(1).len()).min(state.len());
        let (first, rest) = state.split_at(first);
        let rest: Vec<&[u8]> = rest.chunks(size).collect();
        let count = u32::try_from(rest.len() + 1).unwrap_or(u32::MAX);
        let mut begin = head(count).to_vec();
        begin.extend_from_slice(first);
        let pieces = std::iter::once(begin).chain(rest.into_iter().map(<[u8]>::to_vec));
        for (n, piece) in (0..).zip(pieces) {
            let oid = names::mirror_state(&self.id, snap, n);
            self.io.write_full(oid, Bytes::from(piece)).await?;
        }
        Ok(())
    }

    async fn state(&self) -> Result<Bytes> {
        let name = directory::name_of(&self.io, &self.id).await?;
        let op = Operation::new().rbd("snapshot_get_limit", |_| {});
        let limit: u64 = Reader::new(self.asked(op).await?).get()?;
        let metadata = self.metadata().await?;
        let header = &self.seen().header;
        let users: Vec<&Snap> = header
            .snaps
            .iter()
            .rev()
            .filter(|s| s.namespace == SnapshotNamespace::User)
            .collect();
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.string(&name);
            w.u64(header.features & !OWN_FEATURES);
            w.u64(limit);
            w.u32(u32::try_from(users.len()).unwrap_or(u32::MAX));
            for snap in users {
                w.u64(snap.id);
                w.envelope(1, 1, |w| {
                    w.put(&snap.namespace);
                    w.string(&snap.name);
                    w.u8(snap.protection);
                });
            }
            w.put(&metadata);
        });
        Ok(w.finish())
    }

    pub(super) async fn asked(&self, op: Operation) -> Result<Bytes> {
        let done = ask(&self.io, &self.header_oid, op).await?;
        Ok(done.step(0)?.data.clone())
    }

    /// Removes what all sites are done with, and of each site what is more than [`LINKED_MAX`].
    async fn remove_surplus(&self, peers: &[String]) -> Result<()> {
        let view = self.seen();
        let mut gone = left_over(&view.header);
        for peer in peers {
            let linked =
                |s: &&Snap| mirrored(s).is_some_and(|m| m.complete && m.peer_uuids.contains(peer.as_bytes()));
            let all: Vec<&Snap> = view.header.snaps.iter().rev().filter(linked).collect();
            let surplus = all.len().saturating_sub(LINKED_MAX);
            for snap in all.iter().skip(BETWEEN).take(surplus) {
                self.unlink(snap.id, peer).await?;
                let others = mirrored(snap).map_or(0, |m| m.peer_uuids.len());
                if others <= 1 {
                    gone.push(snap.id);
                }
            }
        }
        self.remove_snaps(&gone).await
    }

    async fn remove_snaps(&self, gone: &[u64]) -> Result<()> {
        for id in gone {
            self.refresh().await?;
            self.remove_state(*id).await?;
            self.drop_snap(*id).await?;
        }
        match gone.is_empty() {
            true => Ok(()),
            false => self.changed().await,
        }
    }

    async fn unlink(&self, snap: u64, peer: &str) -> Result<()> {
        let op = Operation::new().rbd_write("mirror_image_snapshot_unlink_peer", |w| {
            w.u64(snap);
            w.string(peer);
        });
        let done = ask(&self.io, &self.header_oid, op).await;
        error::or_missing(done.map(drop))
    }

    async fn remove_state(&self, snap: u64) -> Result<()> {
        for n in 0..PIECES_MAX {
            match self.io.remove(names::mirror_state(&self.id, snap, n)).await {
                Ok(()) => {}
                Err(e) => return error::or_missing(Err(Error::from(e))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Id, complete, linked to a site.
    fn header(snaps: &[(u64, bool, bool)]) -> Header {
        let snap = |(id, complete, linked): &(u64, bool, bool)| Snap {
            id: *id,
            name: format!("s{id}"),
            namespace: SnapshotNamespace::Mirror(MirrorNamespace {
                state: PRIMARY,
                complete: *complete,
                peer_uuids: linked.then(|| Bytes::from_static(b"p")).into_iter().collect(),
                primary_uuid: Bytes::new(),
                primary_snap_id: NOSNAP,
                last_copied_object: 0,
                snap_seqs: BTreeMap::new(),
            }),
            size: 0,
            flags: 0,
            protection: 0,
            overlap: 0,
            child_count: 0,
        };
        Header {
            size: 0,
            features: 0,
            op_features: 0,
            flags: 0,
            snap_seq: 0,
            snaps: snaps.iter().rev().map(snap).collect(),
            parent: None,
        }
    }

    #[test]
    fn what_is_left_over_goes_and_the_image_stays_primary() {
        type Case = (&'static [(u64, bool, bool)], &'static [u64]);
        let cases: [Case; 6] = [
            (&[], &[]),
            // Done with by all sites, but the only one.
            (&[(1, true, false)], &[]),
            (&[(1, false, true)], &[]),
            (&[(1, true, false), (2, true, true), (3, true, true)], &[1]),
            // Cut short again and again.
            (&[(1, true, true), (2, false, true), (3, false, true)], &[2, 3]),
            (&[(1, false, true), (2, false, true)], &[1]),
        ];
        for (snaps, gone) in cases {
            assert_eq!(left_over(&header(snaps)), gone, "{snaps:?}");
        }
    }
}
