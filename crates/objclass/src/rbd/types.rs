//! Structures of class `rbd` (docs/protocol/ceph/05-rbd.md, section 3), byte-exact. Names and ids are byte strings;
//! numbers that stand for states stay numbers where the class stores them unread.

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer, envelope_denc, plain_denc};
use std::collections::{BTreeMap, BTreeSet};
use types::{EntityAddr, EntityName, NOSNAP, Utime};

/// Whose snapshot it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotNamespace {
    User,
    Group {
        pool: i64,
        group_id: Bytes,
        group_snapshot_id: Bytes,
    },
    /// In the trash: removed by its user, still needed by a child.
    Trash {
        original_name: Bytes,
        original_kind: u32,
    },
    Mirror(MirrorNamespace),
    /// From a newer client; kept as it is, never accepted for a new snapshot.
    Unknown {
        kind: u32,
        body: Bytes,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorNamespace {
    pub state: u8,
    pub complete: bool,
    pub peer_uuids: BTreeSet<Bytes>,
    pub primary_uuid: Bytes,
    /// For primary states: clean since this snapshot.
    pub primary_snap_id: u64,
    pub last_copied_object: u64,
    pub snap_seqs: BTreeMap<u64, u64>,
}
plain_denc!(MirrorNamespace {
    state,
    complete,
    peer_uuids,
    primary_uuid,
    primary_snap_id,
    last_copied_object,
    snap_seqs
});

impl MirrorNamespace {
    pub fn is_primary(&self) -> bool {
        self.state < 2
    }
}

impl SnapshotNamespace {
    pub fn kind(&self) -> u32 {
        match self {
            Self::User => 0,
            Self::Group { .. } => 1,
            Self::Trash { .. } => 2,
            Self::Mirror(_) => 3,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Equal for the purpose of names: two in the trash always are.
    pub fn same(&self, other: &Self) -> bool {
        self == other || self.is_trash() && other.is_trash()
    }

    pub fn is_trash(&self) -> bool {
        matches!(self, Self::Trash { .. })
    }
}

impl Encode for SnapshotNamespace {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.kind());
            match self {
                Self::User => {}
                Self::Group {
                    pool,
                    group_id,
                    group_snapshot_id,
                } => {
                    w.i64(*pool);
                    w.blob(group_id);
                    w.blob(group_snapshot_id);
                }
                Self::Trash {
                    original_name,
                    original_kind,
                } => {
                    w.blob(original_name);
                    w.u32(*original_kind);
                }
                Self::Mirror(mirror) => w.put(mirror),
                Self::Unknown { body, .. } => w.raw(body),
            }
        });
    }
}

impl Decode for SnapshotNamespace {
    const MIN_SIZE: usize = 10;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(1, |_, r| {
            Ok(match r.u32()? {
                0 => Self::User,
                1 => Self::Group {
                    pool: r.i64()?,
                    group_id: r.blob()?,
                    group_snapshot_id: r.blob()?,
                },
                2 => Self::Trash {
                    original_name: r.blob()?,
                    original_kind: r.u32()?,
                },
                3 => Self::Mirror(r.get()?),
                kind => Self::Unknown { kind, body: r.rest() },
            })
        })
    }
}

/// A snapshot as clients see it.
#[derive(Debug, Clone)]
pub struct SnapshotInfo {
    pub id: u64,
    pub namespace: SnapshotNamespace,
    pub name: Bytes,
    pub image_size: u64,
    pub timestamp: Utime,
    pub child_count: u32,
}
envelope_denc!(SnapshotInfo, 1, 1, { id, namespace, name, image_size, timestamp, child_count });

/// A snapshot as the header stores it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub id: u64,
    pub name: Bytes,
    pub image_size: u64,
    pub protection: u8,
    pub flags: u64,
    pub namespace: SnapshotNamespace,
    pub timestamp: Utime,
    pub child_count: u32,
    pub parent_overlap: Option<u64>,
}
envelope_denc!(Snapshot, 8, 8, {
    id, name, image_size, protection, flags, namespace, timestamp, child_count, parent_overlap
});

impl Snapshot {
    pub fn info(self) -> SnapshotInfo {
        SnapshotInfo {
            id: self.id,
            namespace: self.namespace,
            name: self.name,
            image_size: self.image_size,
            timestamp: self.timestamp,
            child_count: self.child_count,
        }
    }
}

/// A snapshot of another image that this one was cloned from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentSpec {
    pub pool: i64,
    pub pool_namespace: Bytes,
    pub image_id: Bytes,
    pub snap_id: u64,
}
envelope_denc!(ParentSpec, 1, 1, { pool, pool_namespace, image_id, snap_id });

impl ParentSpec {
    pub const NONE: Self = Self {
        pool: -1,
        pool_namespace: Bytes::new(),
        image_id: Bytes::new(),
        snap_id: NOSNAP,
    };

    pub fn exists(&self) -> bool {
        self.pool >= 0 && !self.image_id.is_empty() && self.snap_id != NOSNAP
    }
}

/// The header's record of the parent. Without `head_overlap` only snapshots still need it.
#[derive(Debug, Clone)]
pub struct Parent {
    pub spec: ParentSpec,
    pub head_overlap: Option<u64>,
}

impl Encode for Parent {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.i64(self.spec.pool);
            w.blob(&self.spec.pool_namespace);
            w.blob(&self.spec.image_id);
            w.u64(self.spec.snap_id);
            w.put(&self.head_overlap);
        });
    }
}

impl Decode for Parent {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            if version < 2 {
                return Err(r.invalid("parent record from before nautilus"));
            }
            let spec = ParentSpec {
                pool: r.i64()?,
                pool_namespace: r.blob()?,
                image_id: r.blob()?,
                snap_id: r.u64()?,
            };
            Ok(Self {
                spec,
                head_overlap: r.get()?,
            })
        })
    }
}

/// A clone of this image. Sets of them are ordered by pool, namespace, image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildSpec {
    pub pool: i64,
    pub pool_namespace: Bytes,
    pub image_id: Bytes,
}

impl Encode for ChildSpec {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.i64(self.pool);
            w.blob(&self.image_id);
            w.blob(&self.pool_namespace);
        });
    }
}

impl Decode for ChildSpec {
    const MIN_SIZE: usize = 18;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            let (pool, image_id) = (r.i64()?, r.blob()?);
            let pool_namespace = if version >= 2 { r.blob()? } else { Bytes::new() };
            Ok(Self {
                pool,
                pool_namespace,
                image_id,
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    pub header_type: u8,
    pub pool: i64,
    pub pool_namespace: Bytes,
    pub image_name: Bytes,
    pub image_id: Bytes,
    pub snap_seqs: BTreeMap<u64, u64>,
    pub overlap: u64,
    pub flatten: bool,
    pub mirroring: bool,
    pub state: u8,
    pub state_description: Bytes,
    pub mirror_image_mode: u8,
    pub source_spec: Bytes,
}

impl Migration {
    pub const SOURCE: u8 = 1;
    pub const DESTINATION: u8 = 2;
}

impl Encode for Migration {
    fn encode(&self, w: &mut Writer) {
        // Only an import from elsewhere must not be taken for a plain migration by an older client.
        let compat = if self.source_spec.is_empty() { 1 } else { 3 };
        w.envelope(3, compat, |w| {
            w.u8(self.header_type);
            w.i64(self.pool);
            w.blob(&self.pool_namespace);
            w.blob(&self.image_name);
            w.blob(&self.image_id);
            w.put(&self.snap_seqs);
            w.u64(self.overlap);
            w.bool(self.flatten);
            w.bool(self.mirroring);
            w.u8(self.state);
            w.blob(&self.state_description);
            w.u8(self.mirror_image_mode);
            w.blob(&self.source_spec);
        });
    }
}

impl Decode for Migration {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(3, |version, r| {
            Ok(Self {
                header_type: r.u8()?,
                pool: r.i64()?,
                pool_namespace: r.blob()?,
                image_name: r.blob()?,
                image_id: r.blob()?,
                snap_seqs: r.get()?,
                overlap: r.u64()?,
                flatten: r.bool()?,
                mirroring: r.bool()?,
                state: r.u8()?,
                state_description: r.blob()?,
                mirror_image_mode: if version >= 2 { r.u8()? } else { 0 },
                source_spec: if version >= 3 { r.blob()? } else { Bytes::new() },
            })
        })
    }
}

#[derive(Debug, Clone)]
pub struct TrashImage {
    pub source: u8,
    pub name: Bytes,
    pub deletion_time: Utime,
    pub deferment_end_time: Utime,
    pub state: u8,
}

impl Encode for TrashImage {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.u8(self.source);
            w.blob(&self.name);
            w.put(&self.deletion_time);
            w.put(&self.deferment_end_time);
            w.u8(self.state);
        });
    }
}

impl Decode for TrashImage {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            Ok(Self {
                source: r.u8()?,
                name: r.blob()?,
                deletion_time: r.get()?,
                deferment_end_time: r.get()?,
                state: if version >= 2 { r.u8()? } else { 0 },
            })
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub pool: i64,
    pub group_id: Bytes,
}
envelope_denc!(Group, 1, 1, { pool, group_id });

impl Group {
    pub const NONE: Self = Self {
        pool: -1,
        group_id: Bytes::new(),
    };
}

/// An image in a group; mind the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupImage {
    pub image_id: Bytes,
    pub pool: i64,
}
envelope_denc!(GroupImage, 1, 1, { image_id, pool });

#[derive(Debug, Clone)]
pub struct GroupImageStatus {
    pub image: GroupImage,
    pub state: u8,
}
envelope_denc!(GroupImageStatus, 1, 1, { image, state });

#[derive(Debug, Clone)]
pub struct ImageSnapshot {
    pub pool: i64,
    pub image_id: Bytes,
    pub snap_id: u64,
}
envelope_denc!(ImageSnapshot, 1, 1, { pool, image_id, snap_id });

#[derive(Debug, Clone)]
pub struct GroupSnapshot {
    pub id: Bytes,
    pub name: Bytes,
    pub state: u8,
    pub snapshots: Vec<ImageSnapshot>,
}
envelope_denc!(GroupSnapshot, 1, 1, { id, name, state, snapshots });

impl GroupSnapshot {
    pub const INCOMPLETE: u8 = 0;
}

/// Another site that images are mirrored to or from.
#[derive(Debug, Clone)]
pub struct MirrorPeer {
    pub uuid: Bytes,
    pub site_name: Bytes,
    pub client_name: Bytes,
    pub direction: u8,
    pub mirror_uuid: Bytes,
    pub last_seen: Utime,
}

impl MirrorPeer {
    pub const RX: u8 = 0;
    pub const TX: u8 = 1;
    pub const RX_TX: u8 = 2;

    pub fn is_valid(&self) -> bool {
        let needs_client = self.direction != Self::TX;
        !self.uuid.is_empty()
            && !self.site_name.is_empty()
            && self.direction <= Self::RX_TX
            && (!needs_client || !self.client_name.is_empty())
    }
}

impl Encode for MirrorPeer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.blob(&self.uuid);
            w.blob(&self.site_name);
            w.blob(&self.client_name);
            w.i64(-1); // a pool id, once
            w.u8(self.direction);
            w.blob(&self.mirror_uuid);
            w.put(&self.last_seen);
        });
    }
}

impl Decode for MirrorPeer {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            let (uuid, site_name, client_name) = (r.blob()?, r.blob()?, r.blob()?);
            r.skip(8)?;
            let (direction, mirror_uuid, last_seen) = match version {
                0 | 1 => (Self::RX_TX, Bytes::new(), Utime::ZERO),
                _ => (r.u8()?, r.blob()?, r.get()?),
            };
            Ok(Self {
                uuid,
                site_name,
                client_name,
                direction,
                mirror_uuid,
                last_seen,
            })
        })
    }
}

#[derive(Debug, Clone)]
pub struct MirrorImage {
    pub global_id: Bytes,
    pub state: u8,
    pub mode: u8,
}

impl MirrorImage {
    pub const DISABLING: u8 = 0;
    pub const ENABLED: u8 = 1;
}

impl Encode for MirrorImage {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.blob(&self.global_id);
            w.u8(self.state);
            w.u8(self.mode);
        });
    }
}

impl Decode for MirrorImage {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            Ok(Self {
                global_id: r.blob()?,
                state: r.u8()?,
                mode: if version >= 2 { r.u8()? } else { 0 },
            })
        })
    }
}

/// How mirroring of an image goes, as one site tells it. An empty `mirror_uuid` is the local site.
#[derive(Debug, Clone, Default)]
pub struct SiteStatus {
    pub mirror_uuid: Bytes,
    pub state: u8,
    pub description: Bytes,
    pub last_update: Utime,
    pub up: bool,
}

impl SiteStatus {
    pub const UNKNOWN: u8 = 0;

    fn encode_fields(&self, w: &mut Writer) {
        w.u8(self.state);
        w.blob(&self.description);
        w.put(&self.last_update);
        w.bool(self.up);
    }

    fn decode_fields(mirror_uuid: Bytes, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            mirror_uuid,
            state: r.u8()?,
            description: r.blob()?,
            last_update: r.get()?,
            up: r.bool()?,
        })
    }
}

impl Encode for SiteStatus {
    fn encode(&self, w: &mut Writer) {
        let version = if self.mirror_uuid.is_empty() { 1 } else { 2 };
        w.envelope(version, version, |w| {
            if version == 2 {
                w.blob(&self.mirror_uuid);
            }
            self.encode_fields(w);
        });
    }
}

impl Decode for SiteStatus {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            let mirror_uuid = if version >= 2 { r.blob()? } else { Bytes::new() };
            Self::decode_fields(mirror_uuid, r)
        })
    }
}

/// An entity with its address: who wrote a status, who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityInst {
    pub name: EntityName,
    pub addr: EntityAddr,
}
plain_denc!(EntityInst { name, addr });

/// A status with who wrote it; the address has the type "any".
#[derive(Debug, Clone)]
pub struct StoredStatus {
    pub origin: EntityInst,
    pub status: SiteStatus,
}

impl Encode for StoredStatus {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.put(&self.origin));
        w.put(&self.status);
    }
}

impl Decode for StoredStatus {
    fn decode(r: &mut Reader) -> Result<Self> {
        let origin = r.envelope(1, |_, r| r.get())?;
        Ok(Self {
            origin,
            status: r.get()?,
        })
    }
}

/// What all sites tell about an image.
#[derive(Debug, Clone, Default)]
pub struct MirrorStatus {
    pub local: Option<SiteStatus>,
    pub remote: Vec<SiteStatus>,
}

impl Encode for MirrorStatus {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            match &self.local {
                Some(local) => local.encode_fields(w),
                None => SiteStatus::default().encode_fields(w),
            }
            w.bool(self.local.is_some());
            w.u32(self.remote.len() as u32);
            for site in &self.remote {
                w.blob(&site.mirror_uuid);
                site.encode_fields(w);
            }
        });
    }
}

#[derive(Debug, Clone)]
pub struct MirrorImageMap {
    pub instance_id: Bytes,
    pub mapped_time: Utime,
    pub data: Bytes,
}
envelope_denc!(MirrorImageMap, 1, 1, { instance_id, mapped_time, data });
