//! An image's header as its clients know it, and the questions that read it.
//!
//! What never changes ([`Fixed`]) is read once; the rest again whenever a client says that it changed.

use crate::calls::Calls;
use crate::{Error, Layout, Result, features};
use bytes::Bytes;
use client::{IoCtx, Operation, Outcome, SnapContext};
use denc::{Decode, Reader};
use objclass::rbd::types::{ParentSpec, SnapshotInfo, SnapshotNamespace};
use types::{Errno, NOSNAP};

/// Snapshots that one question asks for, with four steps each.
const SNAPS_AT_ONCE: usize = 256;
/// A snapshot may go between two questions; then all is asked again.
const READS_MAX: u32 = 16;

/// What was settled when the image was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    pub prefix: String,
    /// Data objects are named as those of format 1.
    pub is_old: bool,
    pub data_pool: Option<i64>,
    pub layout: Layout,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub size: u64,
    pub features: u64,
    pub op_features: u64,
    pub flags: u64,
    pub snap_seq: u64,
    /// Newest first.
    pub snaps: Vec<Snap>,
    pub parent: Option<Parent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snap {
    pub id: u64,
    pub name: String,
    pub namespace: SnapshotNamespace,
    pub size: u64,
    pub flags: u64,
    pub protection: u8,
    /// Bytes that it reads from the parent where it has none itself.
    pub overlap: u64,
    pub child_count: u32,
}

impl Snap {
    /// A person made it, not groups, mirroring or the trash.
    pub fn is_users(&self) -> bool {
        self.namespace == SnapshotNamespace::User
    }
}

pub const UNPROTECTED: u8 = 0;
pub const UNPROTECTING: u8 = 1;
pub const PROTECTED: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    pub spec: ParentSpec,
    /// Of the head.
    pub overlap: u64,
}

impl Header {
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    pub fn snap(&self, id: u64) -> Option<&Snap> {
        self.snaps.iter().find(|s| s.id == id)
    }

    /// A user's snapshot of this name.
    pub fn snap_named(&self, name: &str) -> Option<&Snap> {
        let mut users = self.snaps.iter().filter(|s| s.is_users());
        users.find(|s| s.name == name)
    }

    pub fn context(&self) -> Result<SnapContext> {
        Ok(SnapContext::new(
            self.snap_seq,
            self.snaps.iter().map(|s| s.id).collect(),
        )?)
    }

    /// Of the head ([`NOSNAP`]) or a snapshot; 0 for one that is gone.
    pub fn size_at(&self, snap: u64) -> u64 {
        match snap {
            NOSNAP => self.size,
            id => self.snap(id).map_or(0, |s| s.size),
        }
    }

    pub fn overlap_at(&self, snap: u64) -> u64 {
        match snap {
            NOSNAP => self.parent.as_ref().map_or(0, |p| p.overlap),
            id => self.snap(id).map_or(0, |s| s.overlap),
        }
    }

    /// The object map can be believed.
    pub fn has_valid_map(&self) -> bool {
        self.has(features::OBJECT_MAP) && self.flags & features::OBJECT_MAP_INVALID == 0
    }
}

/// The output of step `at`.
fn output<T: Decode>(done: &Outcome, at: usize) -> Result<T> {
    Ok(T::from_bytes(&done.step(at)?.data)?)
}

fn pair<A: Decode, B: Decode>(done: &Outcome, at: usize) -> Result<(A, B)> {
    output(done, at)
}

/// An exact answer: every step must have gone well.
pub(crate) async fn ask(io: &IoCtx, oid: &str, op: Operation) -> Result<Outcome> {
    let done = io.operate(oid, op).await.and_then(Outcome::done);
    done.map_err(|e| Error::from(e).about(oid))
}

pub async fn fixed(io: &IoCtx, oid: &str) -> Result<Fixed> {
    let first = Operation::new()
        .rbd("get_object_prefix", |_| {})
        .rbd("get_data_pool", |_| {})
        .rbd("get_size", |w| w.u64(NOSNAP))
        .rbd("get_features", |w| {
            w.u64(NOSNAP);
            w.bool(true);
        });
    let done = ask(io, oid, first).await?;
    let prefix: Bytes = output(&done, 0)?;
    let prefix = String::from_utf8(prefix.to_vec())
        .map_err(|_| Error::refused(Errno::EIO, "a prefix of data objects that is no text"))?;
    let data_pool: i64 = output(&done, 1)?;
    let (order, _): (u8, u64) = pair(&done, 2)?;
    let (features, _): (u64, u64) = pair(&done, 3)?;
    let (unit, count) = match features & features::STRIPING {
        0 => (0, 0),
        _ => {
            let op = Operation::new().rbd("get_stripe_unit_count", |_| {});
            pair(&ask(io, oid, op).await?, 0)?
        }
    };
    Ok(Fixed {
        prefix,
        is_old: false,
        data_pool: (data_pool >= 0).then_some(data_pool),
        layout: Layout::new(order, unit, count)?,
    })
}

/// The header as it is now.
pub async fn read(io: &IoCtx, oid: &str) -> Result<Header> {
    for _ in 0..READS_MAX {
        match read_once(io, oid).await {
            // A snapshot went meanwhile, or the image.
            Err(e) if e.is_not_found() => io.stat(oid).await.map(drop)?,
            other => return other,
        }
    }
    Err(Error::refused(
        Errno::EBUSY,
        "snapshots come and go faster than they can be read",
    ))
}

fn question() -> Operation {
    Operation::new()
        .rbd("get_size", |w| w.u64(NOSNAP))
        .rbd("get_features", |w| {
            w.u64(NOSNAP);
            w.bool(false);
        })
        .rbd("get_flags", |w| w.u64(NOSNAP))
        .rbd("get_snapcontext", |_| {})
        .rbd("parent_get", |_| {})
        .rbd("parent_overlap_get", |w| w.u64(NOSNAP))
        .rbd("op_features_get", |_| {})
}

async fn read_once(io: &IoCtx, oid: &str) -> Result<Header> {
    let done = ask(io, oid, question()).await?;
    let (_, size): (u8, u64) = pair(&done, 0)?;
    let (features, _): (u64, u64) = pair(&done, 1)?;
    let (snap_seq, ids): (u64, Vec<u64>) = pair(&done, 3)?;
    let spec: ParentSpec = output(&done, 4)?;
    let overlap: Option<u64> = output(&done, 5)?;
    let mut snaps = Vec::with_capacity(ids.len());
    for some in ids.chunks(SNAPS_AT_ONCE) {
        snaps.extend(read_snaps(io, oid, some).await?);
    }
    Ok(Header {
        size,
        features,
        op_features: output(&done, 6)?,
        flags: output(&done, 2)?,
        snap_seq,
        snaps,
        parent: spec.exists().then(|| Parent {
            spec,
            overlap: overlap.unwrap_or(0),
        }),
    })
}

async fn read_snaps(io: &IoCtx, oid: &str, ids: &[u64]) -> Result<Vec<Snap>> {
    let ask_one = |op: Operation, id: &u64| {
        op.rbd("snapshot_get", |w| w.u64(*id))
            .rbd("parent_overlap_get", |w| w.u64(*id))
            .rbd("get_flags", |w| w.u64(*id))
            .rbd("get_protection_status", |w| w.u64(*id))
    };
    let done = ask(io, oid, ids.iter().fold(Operation::new(), ask_one)).await?;
    let one = |at: usize| -> Result<Snap> {
        let data = done.step(4 * at)?.data.clone();
        let info: SnapshotInfo = Reader::new(data).get()?;
        Ok(Snap {
            id: info.id,
            name: String::from_utf8_lossy(&info.name).into_owned(),
            namespace: info.namespace,
            size: info.image_size,
            overlap: output::<Option<u64>>(&done, 4 * at + 1)?.unwrap_or(0),
            flags: output(&done, 4 * at + 2)?,
            protection: output(&done, 4 * at + 3)?,
            child_count: info.child_count,
        })
    };
    (0..ids.len()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snap(id: u64, name: &str, namespace: SnapshotNamespace) -> Snap {
        Snap {
            id,
            name: name.into(),
            namespace,
            size: id * 100,
            flags: 0,
            protection: UNPROTECTED,
            overlap: id,
            child_count: 0,
        }
    }

    #[test]
    fn only_a_users_snapshot_has_a_users_name() {
        let trash = SnapshotNamespace::Trash {
            original_name: Bytes::from_static(b"a"),
            original_kind: 0,
        };
        let header = Header {
            size: 1000,
            features: features::DEFAULT,
            op_features: 0,
            flags: 0,
            snap_seq: 9,
            snaps: vec![snap(7, "a", trash), snap(3, "a", SnapshotNamespace::User)],
            parent: None,
        };
        assert_eq!(header.snap_named("a").map(|s| s.id), Some(3));
        assert_eq!(
            (header.size_at(NOSNAP), header.size_at(3), header.size_at(4)),
            (1000, 300, 0)
        );
        assert_eq!((header.overlap_at(NOSNAP), header.overlap_at(7)), (0, 7));
        assert_eq!(header.context().unwrap().snaps(), [7, 3]);
    }
}
