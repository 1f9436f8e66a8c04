//! Opening: by name, by id, at a snapshot; and what is refused then.

use super::{Image, Inner, SHARDS, View, locked};
use crate::header::{Fixed, Header};
use crate::{Error, Result, directory, features, header, names};
use client::IoCtx;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, RwLock};
use types::{Errno, NOSNAP};

/// Longer chains of clones are refused.
const DEPTH_MAX: u32 = 64;
/// What an encrypted image begins with.
const LUKS: &[u8] = b"LUKS\xba\xbe";

#[derive(Debug, Clone, Default)]
pub struct ImageOptions {
    pub read_only: bool,
    /// The snapshot that is read; it cannot be written.
    pub snap: Option<String>,
    /// Also an image whose data begin like an encrypted image's, as they do when its user encrypted the whole device.
    pub encrypted: bool,
}

/// What it is opened for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub read_only: bool,
    pub migrates: bool,
    pub depth: u32,
}

impl Use {
    pub fn of(read_only: bool) -> Self {
        Self {
            read_only,
            migrates: false,
            depth: 0,
        }
    }

    pub fn migration(read_only: bool) -> Self {
        Self {
            migrates: true,
            ..Self::of(read_only)
        }
    }
}

/// What is opened.
pub(super) enum At {
    Head,
    Named(String),
    Snap(u64),
}

impl Image {
    /// To be closed with [`Image::close`]. Pool and namespace are those of `io`.
    pub async fn open(io: &IoCtx, name: &str, options: &ImageOptions) -> Result<Self> {
        let id = directory::id_of(io, name).await?;
        let opened = Self::open_id(io, &id, options).await;
        opened.map_err(|e| e.about(&format!("image '{name}'")))
    }

    pub async fn open_id(io: &IoCtx, id: &str, options: &ImageOptions) -> Result<Self> {
        let at = options.snap.clone().map_or(At::Head, At::Named);
        let read_only = options.read_only || options.snap.is_some();
        let image = Self::open_at(io.clone(), id.to_string(), at, Use::of(read_only)).await?;
        if !options.encrypted && image.looks_encrypted().await? {
            return Err(Error::unsupported(
                "not supported: its data begin with a LUKS header, so it is encrypted",
            ));
        }
        if !read_only {
            image.inner.begin_watch().await?;
        }
        Ok(image)
    }

    async fn looks_encrypted(&self) -> Result<bool> {
        let view = self.inner.seen();
        if view.header.size_at(self.inner.snap) < LUKS.len() as u64 {
            return Ok(false);
        }
        Ok(self.read(0, LUKS.len() as u64).await? == LUKS)
    }

    /// Without a watch. Boxed, since the parent is opened in the same way.
    pub(super) fn open_at(
        io: IoCtx,
        id: String,
        at: At,
        how: Use,
    ) -> Pin<Box<dyn Future<Output = Result<Self>> + Send>> {
        Box::pin(async move {
            if how.depth > DEPTH_MAX {
                return Err(Error::unsupported(format!(
                    "more than {DEPTH_MAX} clones of each other"
                )));
            }
            let header_oid = names::header(&id);
            let fixed = header::fixed(&io, &header_oid).await?;
            let header = header::read(&io, &header_oid).await?;
            let snap = match at {
                At::Head => NOSNAP,
                At::Snap(id) if header.snap(id).is_some() => id,
                At::Snap(id) => {
                    return Err(Error::refused(
                        Errno::ENOENT,
                        format!("there is no snapshot {id}"),
                    ));
                }
                At::Named(name) => header
                    .snap_named(&name)
                    .map(|s| s.id)
                    .ok_or_else(|| Error::refused(Errno::ENOENT, format!("there is no snapshot '{name}'")))?,
            };
            let inner = Inner::closed(io, id, fixed, snap, how);
            let view = inner.make_view(header, None).await?;
            *locked(&inner.view) = Arc::new(view);
            Ok(Self {
                inner: Arc::new(inner),
            })
        })
    }
}

impl Inner {
    pub(super) fn closed(io: IoCtx, id: String, fixed: Fixed, snap: u64, how: Use) -> Self {
        let nothing = View {
            header: Header {
                size: 0,
                features: 0,
                op_features: 0,
                flags: 0,
                snap_seq: 0,
                snaps: Vec::new(),
                parent: None,
            },
            data: io.clone(),
            beneath: io.clone(),
            parent: None,
        };
        Self {
            header_oid: names::header(&id),
            io,
            id,
            fixed,
            snap,
            read_only: how.read_only,
            migrates: how.migrates,
            depth: how.depth,
            view: Mutex::new(Arc::new(nothing)),
            stale: AtomicBool::new(false),
            refreshing: tokio::sync::Mutex::default(),
            gate: Arc::new(RwLock::default()),
            held: Mutex::default(),
            releasing: AtomicBool::new(false),
            map: Mutex::default(),
            marks: (0..SHARDS).map(|_| tokio::sync::Mutex::default()).collect(),
            copyups: (0..SHARDS).map(|_| RwLock::default()).collect(),
            cookie: AtomicU64::new(0),
            watching: Mutex::default(),
            released: Notify::new(),
            requests: Mutex::default(),
        }
    }

    /// What `header` means for reads and writes; the parent of `before` is kept if it is still the same.
    pub(super) async fn make_view(&self, header: Header, before: Option<&View>) -> Result<View> {
        match self.migrates {
            true => features::check_migrating(header.features, self.snap != NOSNAP)?,
            false => features::check(header.features, self.snap != NOSNAP)?,
        }
        let mut beneath = match self.fixed.data_pool {
            None => self.io.clone(),
            Some(pool) => {
                let mut io = self.io.client().pool_by_id(pool);
                io.set_namespace(self.io.namespace().clone());
                io
            }
        };
        beneath.set_snap_context(Default::default());
        let mut data = beneath.clone();
        match self.snap {
            NOSNAP => data.set_snap_context(header.context()?),
            snap => data.set_read_snap(Some(snap)),
        }
        let parent = self.parent_of(&header, before).await?;
        Ok(View {
            header,
            data,
            beneath,
            parent,
        })
    }

    async fn parent_of(&self, header: &Header, before: Option<&View>) -> Result<Option<Image>> {
        let overlaps = header.snaps.iter().map(|s| s.overlap);
        let most = overlaps.chain([header.overlap_at(NOSNAP)]).max();
        let Some(parent) = header.parent.as_ref().filter(|_| most > Some(0)) else {
            return Ok(None);
        };
        let spec = &parent.spec;
        let known = before.and_then(|v| Some((v.parent.as_ref()?, v.header.parent.as_ref()?)));
        if let Some((image, _)) = known.filter(|(_, p)| p.spec == *spec) {
            return Ok(Some(image.clone()));
        }
        let mut io = self.io.client().pool_by_id(spec.pool);
        io.set_namespace(spec.pool_namespace.clone());
        let id = String::from_utf8_lossy(&spec.image_id).into_owned();
        let how = Use {
            depth: self.depth + 1,
            ..Use::of(true)
        };
        let opened = Image::open_at(io, id, At::Snap(spec.snap_id), how).await;
        opened.map(Some).map_err(|e| e.about("its parent"))
    }
}
