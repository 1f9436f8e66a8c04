//! A pool as a user sees it: namespace, locator, snapshots, and the operations on its objects.

use super::lister::Lister;
use super::watching::{EVENTS_MAX, Watch};
use super::{Client, unexpected};
use crate::core::list::{Cursor, Spaces};
use crate::core::op::{Operation, Outcome};
use crate::core::snap::SnapContext;
use crate::core::watch::{Kind, Notified};
use crate::core::{Answer, Event, Page, Place, Request, SnapSet, Watcher};
use crate::{Error, Result};
use bytes::Bytes;
use messages::mon::PoolOpKind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use types::{Errno, NOSNAP, PoolId, SNAPDIR, Utime};

/// What a page of omap is asked for; OSDs give no more at once.
const OMAP_PAGE: u64 = 1024;

/// Cheap to clone; a clone has settings of its own.
#[derive(Debug, Clone)]
pub struct IoCtx {
    client: Client,
    pool: PoolId,
    nspace: Bytes,
    key: Bytes,
    snap: u64,
    context: SnapContext,
    timeout: Option<Duration>,
}

impl IoCtx {
    pub(super) fn new(client: Client, pool: PoolId) -> Self {
        let timeout = client.inner.op_timeout;
        Self {
            client,
            pool,
            nspace: Bytes::new(),
            key: Bytes::new(),
            snap: NOSNAP,
            context: SnapContext::default(),
            timeout,
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn pool_id(&self) -> PoolId {
        self.pool
    }

    pub fn set_namespace(&mut self, nspace: impl Into<Bytes>) {
        self.nspace = nspace.into();
    }

    pub fn namespace(&self) -> &Bytes {
        &self.nspace
    }

    /// Objects are placed by this in place of their names; it is part of their identity. Empty: none.
    pub fn set_locator(&mut self, key: impl Into<Bytes>) {
        self.key = key.into();
    }

    /// The snapshot that reads see; None: the newest state. Writes are refused while it is set.
    pub fn set_read_snap(&mut self, snap: Option<u64>) {
        self.snap = snap.unwrap_or(NOSNAP);
    }

    /// The snapshots that writes keep.
    pub fn set_snap_context(&mut self, context: SnapContext) {
        self.context = context;
    }

    /// Operations are given up after so long; what they wrote may still come to pass.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    fn place(&self, oid: &[u8]) -> Place {
        Place {
            pool: self.pool,
            nspace: self.nspace.clone(),
            key: self.key.clone(),
            oid: Bytes::copy_from_slice(oid),
            of_pg: None,
        }
    }

    pub(super) async fn submit(&self, place: Place, operation: Operation) -> Result<Outcome> {
        self.submit_at(place, operation, self.snap).await
    }

    async fn submit_at(&self, place: Place, operation: Operation, snap: u64) -> Result<Outcome> {
        let room = self.client.room(operation.cost()).await?;
        self.client.count(&operation);
        let request = Request {
            place,
            operation,
            snap,
            context: self.context.clone(),
            timeout: self.timeout,
        };
        let told = self.client.ask(room, None, |id| Event::Submit { id, request });
        match told.await? {
            Answer::Outcome(outcome) => Ok(outcome),
            other => Err(unexpected(&other)),
        }
    }

    /// What came of it, also where it was refused: see [`Outcome::done`].
    pub async fn operate(&self, oid: impl AsRef<[u8]>, operation: Operation) -> Result<Outcome> {
        self.submit(self.place(oid.as_ref()), operation).await
    }

    async fn run(&self, oid: impl AsRef<[u8]>, operation: Operation) -> Result<Outcome> {
        self.operate(oid, operation).await?.done()
    }

    // Data

    /// Fewer bytes at the object's end. `length` 0: all from `offset` on.
    pub async fn read(&self, oid: impl AsRef<[u8]>, offset: u64, length: u64) -> Result<Bytes> {
        let done = self.run(oid, Operation::new().read(offset, length)).await?;
        Ok(done.step(0)?.data.clone())
    }

    pub async fn write(&self, oid: impl AsRef<[u8]>, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        self.run(oid, Operation::new().write(offset, data))
            .await
            .map(drop)
    }

    pub async fn write_full(&self, oid: impl AsRef<[u8]>, data: impl Into<Bytes>) -> Result<()> {
        self.run(oid, Operation::new().write_full(data)).await.map(drop)
    }

    pub async fn append(&self, oid: impl AsRef<[u8]>, data: impl Into<Bytes>) -> Result<()> {
        self.run(oid, Operation::new().append(data)).await.map(drop)
    }

    pub async fn truncate(&self, oid: impl AsRef<[u8]>, size: u64) -> Result<()> {
        self.run(oid, Operation::new().truncate(size)).await.map(drop)
    }

    /// Size in bytes, and when it was last written.
    pub async fn stat(&self, oid: impl AsRef<[u8]>) -> Result<(u64, Utime)> {
        self.run(oid, Operation::new().stat()).await?.step(0)?.stat()
    }

    pub async fn remove(&self, oid: impl AsRef<[u8]>) -> Result<()> {
        self.run(oid, Operation::new().remove()).await.map(drop)
    }

    // Attributes

    pub async fn get_xattr(&self, oid: impl AsRef<[u8]>, name: &[u8]) -> Result<Bytes> {
        let done = self.run(oid, Operation::new().get_xattr(name)).await?;
        Ok(done.step(0)?.data.clone())
    }

    pub async fn get_xattrs(&self, oid: impl AsRef<[u8]>) -> Result<BTreeMap<Bytes, Bytes>> {
        let done = self.run(oid, Operation::new().get_xattrs()).await?;
        done.step(0)?.values()
    }

    pub async fn set_xattr(&self, oid: impl AsRef<[u8]>, name: &[u8], value: &[u8]) -> Result<()> {
        let op = Operation::new().set_xattr(name, value);
        self.run(oid, op).await.map(drop)
    }

    pub async fn remove_xattr(&self, oid: impl AsRef<[u8]>, name: &[u8]) -> Result<()> {
        self.run(oid, Operation::new().remove_xattr(name)).await.map(drop)
    }

    // Omap

    /// Keys above `after` with their values, one page.
    pub async fn omap_page(
        &self,
        oid: impl AsRef<[u8]>,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Result<Page<(Bytes, Bytes)>> {
        let op = Operation::new().omap_values(after, prefix, max);
        self.run(oid, op).await?.step(0)?.omap_values()
    }

    pub async fn omap_keys(&self, oid: impl AsRef<[u8]>, after: &[u8], max: u64) -> Result<Page<Bytes>> {
        let op = Operation::new().omap_keys(after, max);
        self.run(oid, op).await?.step(0)?.omap_keys()
    }

    /// All of it. For objects that are known to be small.
    pub async fn omap(&self, oid: impl AsRef<[u8]>) -> Result<BTreeMap<Bytes, Bytes>> {
        let oid = oid.as_ref();
        let mut all = BTreeMap::new();
        let mut after = Bytes::new();
        loop {
            let page = self.omap_page(oid, &after, b"", OMAP_PAGE).await?;
            let last = page.items.last().map(|(k, _)| k.clone());
            all.extend(page.items);
            match (page.more, last) {
                (true, Some(last)) => after = last,
                (true, None) => return Err(Error::Malformed("omap that does not go on".into())),
                (false, _) => return Ok(all),
            }
        }
    }

    pub async fn omap_get(
        &self,
        oid: impl AsRef<[u8]>,
        keys: &BTreeSet<Bytes>,
    ) -> Result<BTreeMap<Bytes, Bytes>> {
        let op = Operation::new().omap_values_by_keys(keys);
        self.run(oid, op).await?.step(0)?.values()
    }

    pub async fn omap_set(&self, oid: impl AsRef<[u8]>, values: &BTreeMap<Bytes, Bytes>) -> Result<()> {
        self.run(oid, Operation::new().set_omap(values)).await.map(drop)
    }

    pub async fn omap_remove(&self, oid: impl AsRef<[u8]>, keys: &BTreeSet<Bytes>) -> Result<()> {
        let op = Operation::new().remove_omap_keys(keys);
        self.run(oid, op).await.map(drop)
    }

    pub async fn omap_header(&self, oid: impl AsRef<[u8]>) -> Result<Bytes> {
        let done = self.run(oid, Operation::new().omap_header()).await?;
        Ok(done.step(0)?.data.clone())
    }

    pub async fn omap_set_header(&self, oid: impl AsRef<[u8]>, header: impl Into<Bytes>) -> Result<()> {
        let op = Operation::new().set_omap_header(header);
        self.run(oid, op).await.map(drop)
    }

    pub async fn omap_clear(&self, oid: impl AsRef<[u8]>) -> Result<()> {
        self.run(oid, Operation::new().clear_omap()).await.map(drop)
    }

    // Classes

    /// A method that only reads.
    pub async fn exec(
        &self,
        oid: impl AsRef<[u8]>,
        class: &str,
        method: &str,
        input: &[u8],
    ) -> Result<Bytes> {
        let op = Operation::new().call(class, method, input, false);
        let done = self.run(oid, op).await?;
        Ok(done.step(0)?.data.clone())
    }

    /// A method that writes: it brings no output.
    pub async fn exec_write(
        &self,
        oid: impl AsRef<[u8]>,
        class: &str,
        method: &str,
        input: &[u8],
    ) -> Result<()> {
        let op = Operation::new().call(class, method, input, true);
        self.run(oid, op).await.map(drop)
    }

    // Watch and notify

    /// Hears of notifies on the object, which must exist. `timeout`: without a sign of us for so long the OSD takes the
    /// watch for dead; None: its default.
    pub async fn watch(&self, oid: impl AsRef<[u8]>, timeout: Option<Duration>) -> Result<Watch> {
        let place = self.place(oid.as_ref());
        let timeout = timeout.map_or(0, seconds);
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let room = self.client.control_room().await?;
        let kind = Kind::Watch { timeout };
        let told = self
            .client
            .ask(room, Some(sender), |id| Event::Watch { id, place, kind });
        match told.await? {
            Answer::Watching(id) => Ok(Watch {
                client: self.client.clone(),
                id,
                events,
                ended: false,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Tells all watchers, and waits for their answers, at most `timeout` for each.
    pub async fn notify(
        &self,
        oid: impl AsRef<[u8]>,
        payload: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Notified> {
        let place = self.place(oid.as_ref());
        let kind = Kind::Notify {
            payload: payload.into(),
            timeout: seconds(timeout).max(1),
        };
        let room = self.client.control_room().await?;
        let told = self.client.ask(room, None, |id| Event::Watch { id, place, kind });
        match told.await? {
            Answer::Notified(n) => Ok(n),
            other => Err(unexpected(&other)),
        }
    }

    pub async fn watchers(&self, oid: impl AsRef<[u8]>) -> Result<Vec<Watcher>> {
        self.run(oid, Operation::new().list_watchers())
            .await?
            .step(0)?
            .watchers()
    }

    // Listing

    /// The objects of the namespace.
    pub fn list(&self) -> Lister {
        Lister {
            spaces: Spaces::One(self.nspace.clone()),
            cursor: Cursor::begin(self.pool),
            end: Cursor::end(),
            filter: None,
            io: self.clone(),
        }
    }

    // Snapshots

    /// Clones of the object, ascending, then its head.
    pub async fn list_snaps(&self, oid: impl AsRef<[u8]>) -> Result<SnapSet> {
        let op = Operation::new().list_snaps();
        let told = self.submit_at(self.place(oid.as_ref()), op, SNAPDIR).await?;
        told.done()?.step(0)?.snap_set()
    }

    pub async fn rollback(&self, oid: impl AsRef<[u8]>, snap: u64) -> Result<()> {
        self.run(oid, Operation::new().rollback(snap)).await.map(drop)
    }

    /// A new snapshot id, for snap contexts.
    pub async fn create_selfmanaged_snap(&self) -> Result<u64> {
        let made = self
            .client
            .pool_op(PoolOpKind::CreateSelfManagedSnap, self.pool, "", 0)
            .await?;
        made.ok_or_else(|| Error::Malformed("a new snapshot without an id".into()))
    }

    /// Clones that only it needs are removed.
    pub async fn remove_selfmanaged_snap(&self, snap: u64) -> Result<()> {
        let op = PoolOpKind::RemoveSelfManagedSnap;
        self.client.pool_op(op, self.pool, "", snap).await.map(drop)
    }

    /// A snapshot of the whole pool.
    pub async fn create_snap(&self, name: &str) -> Result<()> {
        if self.snap_by_name(name)?.is_some() {
            return Err(Error::invalid(Errno::EEXIST, "a snapshot of this name"));
        }
        let op = PoolOpKind::CreateSnap;
        self.client.pool_op(op, self.pool, name, 0).await.map(drop)
    }

    pub async fn remove_snap(&self, name: &str) -> Result<()> {
        if self.snap_by_name(name)?.is_none() {
            return Err(Error::invalid(Errno::ENOENT, "a snapshot of this name"));
        }
        let op = PoolOpKind::RemoveSnap;
        self.client.pool_op(op, self.pool, name, 0).await.map(drop)
    }

    pub fn snap_by_name(&self, name: &str) -> Result<Option<u64>> {
        let map = self.client.map()?;
        let pool = map.pool(self.pool);
        let pool = pool.ok_or_else(|| Error::refused(Errno::ENOENT.code(), "the pool does not exist"))?;
        Ok(pool.pool_snap_by_name(name))
    }
}

fn seconds(t: Duration) -> u32 {
    u32::try_from(t.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}
