//! Snapshots: made, listed, protected, removed (docs/protocol/ceph/05-rbd.md, 4.2 and 10.4).

use super::{Image, Inner, detached};
use crate::calls::Calls;
use crate::header::{PROTECTED, Snap, UNPROTECTED, UNPROTECTING, ask};
use crate::notify::{AsyncId, Message, Response};
use crate::{Error, Result, names};
use bytes::Bytes;
use client::{IoCtx, Operation};
use denc::{Decode, Encode};
use objclass::rbd::types::SnapshotNamespace;
use std::time::Duration;
use types::Errno;

/// What the owner of the lock gets to answer, and then to do it, looked at once a second.
const OWNER_TIMEOUT: Duration = Duration::from_secs(30);
const LOOKS_MAX: u32 = 120;

/// What an owner who keeps the lock is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Snap,
    NoSnap,
}

/// Ids that others used before us are left behind; so often we try.
const ID_TRIES: u32 = 16;

impl Image {
    /// Newest first, those in the trash and of groups among them.
    pub async fn snaps(&self) -> Result<Vec<Snap>> {
        Ok(self.inner.view().await?.header.snaps.clone())
    }

    /// Keeps what is written up to now; its id.
    pub async fn create_snap(&self, name: &str) -> Result<u64> {
        if name.is_empty() || name.contains(['@', '/']) {
            let what = format!("'{name}' is no name for a snapshot");
            return Err(Error::refused(Errno::EINVAL, what));
        }
        let (inner, name) = (self.inner.clone(), name.to_string());
        detached(async move {
            let _alone = match inner.alone().await {
                Err(e) if inner.owner_keeps_it(&e) => {
                    inner.ask_owner(Wish::Snap, &name).await?;
                    return inner.snap_id(&name);
                }
                other => other?,
            };
            let view = inner.seen();
            if view.header.snap_named(&name).is_some() {
                let what = format!("snapshot '{name}' exists already");
                return Err(Error::refused(Errno::EEXIST, what));
            }
            let id = inner
                .add_snap(&view.beneath, &name, &SnapshotNamespace::User)
                .await?;
            let mapped = inner.snap_map(&view.header, id).await;
            inner.changed().await?;
            mapped.map(|()| id)
        })
        .await
    }

    /// One that clones still need stays in the trash until they do not.
    pub async fn remove_snap(&self, name: &str) -> Result<()> {
        let (inner, name) = (self.inner.clone(), name.to_string());
        detached(async move {
            let _alone = match inner.alone().await {
                Err(e) if inner.owner_keeps_it(&e) => return inner.ask_owner(Wish::NoSnap, &name).await,
                other => other?,
            };
            let id = inner.snap_id(&name)?;
            let op = Operation::new().rbd_write("snapshot_trash_add", |w| w.u64(id));
            match ask(&inner.io, &inner.header_oid, op).await {
                Err(e) if e.errno() == Errno::EBUSY => {
                    let what = format!("snapshot '{name}' is protected");
                    return Err(Error::refused(Errno::EBUSY, what));
                }
                other => other?,
            };
            inner.refresh().await?;
            let done = inner.drop_snap(id).await;
            inner.changed().await?;
            done
        })
        .await
    }

    /// A protected snapshot cannot be removed; the older way of cloning needs it.
    pub async fn protect_snap(&self, name: &str, protect: bool) -> Result<()> {
        let (inner, name) = (self.inner.clone(), name.to_string());
        detached(async move {
            let _alone = inner.alone().await?;
            let id = inner.snap_id(&name)?;
            if protect {
                inner.set_protection(id, PROTECTED).await?;
                return inner.changed().await;
            }
            inner.set_protection(id, UNPROTECTING).await?;
            let children = inner.has_old_children(id).await;
            let to = match children {
                Ok(false) => UNPROTECTED,
                _ => PROTECTED,
            };
            inner.set_protection(id, to).await?;
            inner.changed().await?;
            match children? {
                false => Ok(()),
                true => Err(Error::refused(
                    Errno::EBUSY,
                    format!("snapshot '{name}' has clones"),
                )),
            }
        })
        .await
    }
}

impl Inner {
    /// The lock's owner lives, and does not hand it over (`rbd device map --exclusive`, `lock_acquire`).
    fn owner_keeps_it(&self, e: &Error) -> bool {
        e.errno() == Errno::EROFS && self.check_writable().is_ok()
    }

    /// Has the owner do it, and waits until it is done.
    async fn ask_owner(&self, wish: Wish, name: &str) -> Result<()> {
        let id = AsyncId {
            client: self.me(),
            request: self.io.client().platform().random.u64(),
        };
        let (name, namespace) = (Bytes::copy_from_slice(name.as_bytes()), SnapshotNamespace::User);
        let message = match wish {
            Wish::Snap => Message::SnapCreate { name, namespace, id },
            Wish::NoSnap => Message::SnapRemove { name, namespace, id },
        };
        let told = self
            .io
            .notify(&self.header_oid, message.to_bytes(), OWNER_TIMEOUT);
        let told = told.await?;
        let said = told.replies.iter().filter(|(_, _, reply)| !reply.is_empty());
        let said = said
            .filter_map(|(_, _, reply)| Response::from_bytes(reply).ok())
            .next();
        match said.map(|r| r.result) {
            Some(0) => self.wait_for_owner(&message, wish).await,
            Some(code) => {
                let what = format!("the owner of the exclusive lock keeps it, and refuses to do it ({code})");
                Err(Error::refused(Errno::EBUSY, what))
            }
            None => Err(Error::refused(
                Errno::ETIMEDOUT,
                "the owner of the exclusive lock keeps it, and does not answer",
            )),
        }
    }

    async fn wait_for_owner(&self, message: &Message, wish: Wish) -> Result<()> {
        let name = match message {
            Message::SnapCreate { name, .. } | Message::SnapRemove { name, .. } => {
                String::from_utf8_lossy(name)
            }
            _ => Default::default(),
        };
        for _ in 0..LOOKS_MAX {
            self.refresh().await?;
            if self.seen().header.snap_named(&name).is_some() == (wish == Wish::Snap) {
                return Ok(());
            }
            io::task::sleep(Duration::from_secs(1)).await;
        }
        let what = "the owner of the exclusive lock does not do what it said it would";
        Err(Error::refused(Errno::ETIMEDOUT, what))
    }

    fn snap_id(&self, name: &str) -> Result<u64> {
        let view = self.seen();
        let snap = view.header.snap_named(name);
        let none = || Error::refused(Errno::ENOENT, format!("there is no snapshot '{name}'"));
        snap.map(|s| s.id).ok_or_else(none)
    }

    /// A new id from the pool of the data, recorded in the header.
    pub(super) async fn add_snap(
        &self,
        data: &IoCtx,
        name: &str,
        namespace: &SnapshotNamespace,
    ) -> Result<u64> {
        for _ in 0..ID_TRIES {
            let id = data.create_selfmanaged_snap().await?;
            let op = Operation::new().rbd_write("snapshot_add", |w| {
                w.string(name);
                w.u64(id);
                w.put(namespace);
            });
            match ask(&self.io, &self.header_oid, op).await {
                Ok(_) => return Ok(id),
                Err(e) => {
                    data.remove_selfmanaged_snap(id).await?;
                    if e.errno() != Errno::ESTALE {
                        return Err(e);
                    }
                }
            }
        }
        Err(Error::refused(
            Errno::ESTALE,
            "others add snapshots faster than we can",
        ))
    }

    /// Removes one that is in the trash, unless clones need it.
    pub(super) async fn drop_snap(&self, id: u64) -> Result<()> {
        let view = self.seen();
        let Some(snap) = view.header.snap(id) else {
            return Ok(());
        };
        if snap.child_count > 0 {
            return Ok(());
        }
        self.unsnap_map(&view.header, id).await?;
        crate::error::or_missing(view.beneath.remove_selfmanaged_snap(id).await.map_err(Into::into))?;
        let op = Operation::new().rbd_write("snapshot_remove", |w| w.u64(id));
        ask(&self.io, &self.header_oid, op).await.map(drop)
    }

    /// A clone of the snapshot is gone: it goes, too, if that was the last one and its user removed it.
    pub(super) async fn child_left(self: &std::sync::Arc<Self>, id: u64) -> Result<()> {
        let _alone = self.alone().await?;
        self.refresh().await?;
        let view = self.seen();
        let in_trash = view.header.snap(id).is_some_and(|s| s.namespace.is_trash());
        if !in_trash {
            return Ok(());
        }
        self.drop_snap(id).await?;
        self.changed().await
    }

    pub(super) async fn set_protection(&self, id: u64, status: u8) -> Result<()> {
        let op = Operation::new().rbd_write("set_protection_status", |w| {
            w.u64(id);
            w.u8(status);
        });
        ask(&self.io, &self.header_oid, op).await.map(drop)
    }

    /// Clones of the older kind, in any pool that we may see.
    pub(super) async fn has_old_children(&self, snap: u64) -> Result<bool> {
        let client = self.io.client();
        let pools: Vec<i64> = client.map()?.pools.keys().copied().collect();
        for pool in pools {
            let op = Operation::new().rbd("get_children", |w| {
                w.i64(self.io.pool_id());
                w.string(&self.id);
                w.u64(snap);
            });
            // A clone of the older kind is in the namespace of its parent.
            let mut io = client.pool_by_id(pool);
            io.set_namespace(self.io.namespace().clone());
            match ask(&io, names::CHILDREN, op).await {
                Ok(_) => return Ok(true),
                Err(e) if matches!(e.errno(), Errno::ENOENT | Errno::EPERM | Errno::EACCES) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(false)
    }
}
