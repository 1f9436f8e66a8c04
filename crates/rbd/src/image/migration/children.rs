//! Clones of the target's snapshots, and its place in a group: given back to the source before the target goes.

use super::{Migration, Place, Record, tell};
use crate::calls::Calls;
use crate::header::{self, Header, ask};
use crate::image::Inner;
use crate::{Error, Result, error, names};
use bytes::Bytes;
use client::{Client, IoCtx, Operation};
use denc::Reader;
use objclass::rbd::types::{ChildSpec, Group, GroupImage, GroupImageStatus, ParentSpec};
use std::collections::BTreeSet;
use types::Errno;

/// Of an image in a group: it is whole.
const ATTACHED: u8 = 0;

/// Before anything changes: clones of snapshots that the source has not would lose their parent, and each other one must be able to change it.
pub(super) async fn check(
    client: &Client,
    migration: &Migration,
    target: &Inner,
    record: &Record,
) -> Result<()> {
    let header = &target.seen().header;
    let own = |id: &u64| !record.snap_seqs.values().any(|d| d == id);
    for snap in header.snaps.iter().filter(|s| own(&s.id)) {
        if snap.child_count > 0 || target.has_old_children(snap.id).await? {
            let what = format!(
                "snapshot '{}' of the target has clones, and the source has no such snapshot",
                snap.name
            );
            return Err(Error::refused(Errno::EBUSY, what));
        }
    }
    for link in links(client, migration, record, header) {
        for child in link.new_children().await? {
            link.overlap(&io_of(client, &child), &child.image_id).await?;
        }
        for (io, child) in link.old_children().await? {
            link.overlap(&io, &child).await?;
        }
    }
    Ok(())
}

pub(super) async fn give_back(
    client: &Client,
    migration: &Migration,
    record: &Record,
    header: &Header,
) -> Result<()> {
    for link in links(client, migration, record, header) {
        link.give_back_new().await?;
        link.give_back_old().await?;
    }
    Ok(())
}

fn links<'a>(
    client: &'a Client,
    migration: &'a Migration,
    record: &Record,
    header: &Header,
) -> Vec<Link<'a>> {
    let there = record
        .snap_seqs
        .iter()
        .filter(|(_, t)| header.snap(**t).is_some());
    let link = |(of_source, of_target): (&u64, &u64)| Link {
        client,
        source: &migration.source,
        target: &migration.target,
        of_source: *of_source,
        of_target: *of_target,
    };
    there.map(link).collect()
}

fn io_of(client: &Client, child: &ChildSpec) -> IoCtx {
    let mut io = client.pool_by_id(child.pool);
    io.set_namespace(child.pool_namespace.clone());
    io
}

fn spec(place: &Place, snap_id: u64) -> ParentSpec {
    ParentSpec {
        pool: place.pool,
        pool_namespace: place.namespace.clone().into_bytes().into(),
        image_id: place.id.clone().into_bytes().into(),
        snap_id,
    }
}

/// A snapshot at both sides.
struct Link<'a> {
    client: &'a Client,
    source: &'a Place,
    target: &'a Place,
    of_source: u64,
    of_target: u64,
}

impl Link<'_> {
    async fn new_children(&self) -> Result<BTreeSet<ChildSpec>> {
        let op = Operation::new().rbd("children_list", |w| w.u64(self.of_target));
        match ask(&self.target.io(self.client), &self.target.header(), op).await {
            Ok(done) => Ok(Reader::new(done.step(0)?.data.clone()).get()?),
            Err(e) if e.is_not_found() => Ok(BTreeSet::new()),
            Err(e) => Err(e),
        }
    }

    /// Those of the older way of cloning: they are listed where they are, in the namespace of their parent.
    async fn old_children(&self) -> Result<Vec<(IoCtx, Bytes)>> {
        let pools: Vec<i64> = self.client.map()?.pools.keys().copied().collect();
        let mut all = Vec::new();
        for pool in pools {
            let mut io = self.client.pool_by_id(pool);
            io.set_namespace(self.target.namespace.clone().into_bytes());
            let op = Operation::new().rbd("get_children", |w| {
                w.i64(self.target.pool);
                w.string(&self.target.id);
                w.u64(self.of_target);
            });
            let children: BTreeSet<Bytes> = match ask(&io, names::CHILDREN, op).await {
                Ok(done) => Reader::new(done.step(0)?.data.clone()).get()?,
                Err(e) if e.is_not_found() => continue,
                Err(e) => return Err(e),
            };
            all.extend(children.into_iter().map(|c| (io.clone(), c)));
        }
        Ok(all)
    }

    async fn give_back_new(&self) -> Result<()> {
        let (from, to) = (self.target.io(self.client), self.source.io(self.client));
        for child in self.new_children().await? {
            let io = io_of(self.client, &child);
            if let Some(overlap) = self.overlap(&io, &child.image_id).await? {
                self.attach(&io, &child.image_id, overlap).await?;
                let op = Operation::new().rbd_write("child_attach", |w| {
                    w.u64(self.of_source);
                    w.put(&child);
                });
                there_already(ask(&to, &self.source.header(), op).await.map(drop))?;
            }
            let op = Operation::new().rbd_write("child_detach", |w| {
                w.u64(self.of_target);
                w.put(&child);
            });
            error::or_missing(ask(&from, &self.target.header(), op).await.map(drop))?;
        }
        Ok(())
    }

    async fn give_back_old(&self) -> Result<()> {
        for (io, child) in self.old_children().await? {
            let row = |place: &Place, snap: u64| {
                let (pool, id, child) = (place.pool, place.id.clone(), child.clone());
                move |w: &mut denc::Writer| {
                    w.i64(pool);
                    w.string(&id);
                    w.u64(snap);
                    w.blob(&child);
                }
            };
            if let Some(overlap) = self.overlap(&io, &child).await? {
                let add = Operation::new().rbd_write("add_child", row(self.source, self.of_source));
                there_already(ask(&io, names::CHILDREN, add).await.map(drop))?;
                self.attach(&io, &child, overlap).await?;
            }
            let remove = Operation::new().rbd_write("remove_child", row(self.target, self.of_target));
            error::or_missing(ask(&io, names::CHILDREN, remove).await.map(drop))?;
        }
        Ok(())
    }

    /// Bytes that the clone's head reads from the snapshot. None: it is gone, or it is no clone of this snapshot (any more), whatever the list says.
    async fn overlap(&self, io: &IoCtx, child: &Bytes) -> Result<Option<u64>> {
        let oid = names::header(&String::from_utf8_lossy(child));
        let parent = match header::read(io, &oid).await {
            Ok(header) => header.parent,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e.about("a clone of the target")),
        };
        // Of the source by now: an earlier attempt came as far.
        let either = [
            spec(self.target, self.of_target),
            spec(self.source, self.of_source),
        ];
        let ours = parent.filter(|p| either.contains(&p.spec));
        Ok(ours.map(|p| p.overlap))
    }

    /// The clone reads from the source's snapshot from now on.
    async fn attach(&self, io: &IoCtx, child: &Bytes, overlap: u64) -> Result<()> {
        let oid = names::header(&String::from_utf8_lossy(child));
        let op = Operation::new().rbd_write("parent_attach", |w| {
            w.put(&spec(self.source, self.of_source));
            w.u64(overlap);
            w.bool(true);
        });
        ask(io, &oid, op)
            .await
            .map_err(|e| e.about("a clone of the target"))?;
        tell(io, &oid).await;
        Ok(())
    }
}

fn there_already(done: Result<()>) -> Result<()> {
    match done {
        Err(e) if e.errno() == Errno::EEXIST => Ok(()),
        done => done,
    }
}

/// The source takes the target's place in its group.
pub(super) async fn change_group(client: &Client, migration: &Migration) -> Result<()> {
    let (source, target) = (&migration.source, &migration.target);
    let from = target.io(client);
    let op = Operation::new().rbd("image_group_get", |_| {});
    let done = ask(&from, &target.header(), op).await?;
    let group: Group = Reader::new(done.step(0)?.data.clone()).get()?;
    if group == Group::NONE {
        return Ok(());
    }
    let mut io = client.pool_by_id(group.pool);
    io.set_namespace(target.namespace.clone().into_bytes());
    let oid = format!("rbd_group_header.{}", String::from_utf8_lossy(&group.group_id));
    let image = |place: &Place| GroupImage {
        image_id: place.id.clone().into_bytes().into(),
        pool: place.pool,
    };
    let set = GroupImageStatus {
        image: image(source),
        state: ATTACHED,
    };
    ask(
        &io,
        &oid,
        Operation::new().rbd_write("group_image_set", |w| w.put(&set)),
    )
    .await?;
    let add = Operation::new().rbd_write("image_group_add", |w| w.put(&group));
    ask(&source.io(client), &source.header(), add).await?;
    let gone = image(target);
    let remove = Operation::new().rbd_write("group_image_remove", |w| w.put(&gone));
    ask(&io, &oid, remove).await?;
    let remove = Operation::new().rbd_write("image_group_remove", |w| w.put(&group));
    error::or_missing(ask(&from, &target.header(), remove).await.map(drop))
}
