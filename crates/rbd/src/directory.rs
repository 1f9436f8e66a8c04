//! A pool's images as a whole: made, listed, renamed, looked up (docs/protocol/ceph/05-rbd.md, 10.3).
//!
//! The namespace is that of the [`IoCtx`] that is given. Removal is in [`crate::image`], since it has to look into the image.

use crate::calls::Calls;
use crate::header::ask;
use crate::{Error, Layout, Result, error, features, names};
use bytes::Bytes;
use client::{IoCtx, Operation};
use denc::{Decode, Reader};
use objclass::rbd::object_map::NONEXISTENT;
use std::collections::BTreeMap;
use types::Errno;

/// Names in one answer.
const PAGE: u64 = 1024;
const NAME_MAX: usize = 4096;
/// Of `rbd_directory`: images may be added.
const STATE_READY: u8 = 0;

/// How a new image shall be.
#[derive(Debug, Clone)]
pub struct NewImage {
    pub size: u64,
    pub layout: Layout,
    pub features: u64,
    /// Where its data objects go; None: to the pool of its header.
    pub data_pool: Option<i64>,
}

impl NewImage {
    /// Objects of 4 MiB and the usual features.
    pub fn of_size(size: u64) -> Result<Self> {
        Ok(Self {
            size,
            layout: Layout::new(22, 0, 0)?,
            features: features::DEFAULT,
            data_pool: None,
        })
    }
}

pub(crate) fn check_name(name: &str) -> Result<()> {
    let bad = name.is_empty() || name.len() > NAME_MAX || name.contains(['/', '@']);
    match bad {
        true => Err(Error::refused(
            Errno::EINVAL,
            format!("'{name}' is no name for an image"),
        )),
        false => Ok(()),
    }
}

/// Makes an image; its id.
pub async fn create(io: &IoCtx, name: &str, new: &NewImage) -> Result<String> {
    check_name(name)?;
    features::check_new(new.features)?;
    let objects = new.layout.objects(new.size);
    if new.features & features::OBJECT_MAP != 0 && objects > crate::layout::OBJECTS_MAX {
        return Err(Error::refused(
            Errno::EINVAL,
            "more objects than an object map can describe",
        ));
    }
    if exists(io, &format!("{name}.rbd")).await? || exists(io, &names::id_object(name)).await? {
        return Err(Error::refused(
            Errno::EEXIST,
            format!("image '{name}' exists already"),
        ));
    }
    let id = new_id(io);
    add_name(io, name, &id).await?;
    let made = make_objects(io, name, &id, new).await;
    if made.is_err() {
        // What is left would be found by its name, and be no image.
        let _ = io.remove(names::header(&id)).await;
        let _ = io.remove(names::object_map(&id, types::NOSNAP)).await;
        let _ = io.remove(names::id_object(name)).await;
        let _ = remove_name(io, name, &id).await;
    }
    made.map(|()| id)
}

/// Nobody else makes the same: our number in the cluster, and a random one.
fn new_id(io: &IoCtx) -> String {
    let random = io.client().platform().random.u32();
    format!("{:x}{random:08x}", io.client().global_id())
}

pub(crate) async fn exists(io: &IoCtx, oid: &str) -> Result<bool> {
    match io.stat(oid).await {
        Ok(_) => Ok(true),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e.into()),
    }
}

pub(crate) async fn add_name(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    let mut op = Operation::new();
    if !io.namespace().is_empty() {
        // A namespace that was not made, or is being removed, takes no images.
        op = op.rbd("dir_state_assert", |w| w.u8(STATE_READY));
    }
    let op = op.rbd_write("dir_add_image", |w| {
        w.string(name);
        w.string(id);
    });
    ask(io, names::DIRECTORY, op).await.map(drop)
}

pub(crate) async fn remove_name(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    let op = Operation::new().rbd_write("dir_remove_image", |w| {
        w.string(name);
        w.string(id);
    });
    ask(io, names::DIRECTORY, op).await.map(drop)
}

async fn make_objects(io: &IoCtx, name: &str, id: &str, new: &NewImage) -> Result<()> {
    let op = Operation::new()
        .create(true)
        .rbd_write("set_id", |w| w.string(id));
    ask(io, &names::id_object(name), op).await?;
    let layout = &new.layout;
    let mut features = new.features & !(features::STRIPING | features::DATA_POOL);
    if layout.is_striped() {
        features |= features::STRIPING;
    }
    if new.data_pool.is_some() {
        features |= features::DATA_POOL;
    }
    let prefix = names::data_prefix(id, io.pool_id(), new.data_pool);
    let op = Operation::new().create(true).rbd_write("create", |w| {
        w.u64(new.size);
        w.u8(layout.order());
        w.u64(features);
        w.string(&prefix);
        w.i64(new.data_pool.unwrap_or(-1));
    });
    ask(io, &names::header(id), op).await?;
    if layout.is_striped() {
        let op = Operation::new().rbd_write("set_stripe_unit_count", |w| {
            w.u64(layout.unit());
            w.u64(layout.count());
        });
        ask(io, &names::header(id), op).await?;
    }
    if features & features::OBJECT_MAP != 0 {
        let op = Operation::new().rbd_write("object_map_resize", |w| {
            w.u64(layout.objects(new.size));
            w.u8(NONEXISTENT);
        });
        ask(io, &names::object_map(id, types::NOSNAP), op).await?;
    }
    Ok(())
}

/// Names and ids of all images.
pub async fn list(io: &IoCtx) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut after = Bytes::new();
    loop {
        let op = Operation::new().rbd("dir_list", |w| {
            w.blob(&after);
            w.u64(PAGE);
        });
        let done = match ask(io, names::DIRECTORY, op).await {
            Err(e) if e.is_not_found() => return Ok(all),
            other => other?,
        };
        let page: BTreeMap<Bytes, Bytes> = Reader::new(done.step(0)?.data.clone()).get()?;
        let whole = (page.len() as u64) < PAGE;
        if let Some(last) = page.keys().next_back() {
            after = last.clone();
        }
        let text = |b: Bytes| String::from_utf8_lossy(&b).into_owned();
        all.extend(page.into_iter().map(|(name, id)| (text(name), text(id))));
        if whole {
            return Ok(all);
        }
    }
}

/// The namespaces of a pool that were made, besides the default one.
pub async fn namespaces(io: &IoCtx) -> Result<Vec<String>> {
    let mut io = io.clone();
    io.set_namespace("");
    let mut all: Vec<String> = Vec::new();
    loop {
        let after = all.last().cloned().unwrap_or_default();
        let op = Operation::new().rbd("namespace_list", |w| {
            w.string(&after);
            w.u64(PAGE);
        });
        let done = match ask(&io, names::NAMESPACES, op).await {
            Err(e) if e.is_not_found() => return Ok(all),
            other => other?,
        };
        let page: Vec<Bytes> = Reader::new(done.step(0)?.data.clone()).get()?;
        all.extend(page.iter().map(|b| String::from_utf8_lossy(b).into_owned()));
        if (page.len() as u64) < PAGE {
            return Ok(all);
        }
    }
}

/// The id of the image of this name.
pub async fn id_of(io: &IoCtx, name: &str) -> Result<String> {
    let op = Operation::new().rbd("get_id", |_| {});
    match ask(io, &names::id_object(name), op).await {
        Ok(done) => Ok(String::from_bytes(&done.step(0)?.data)?),
        Err(e) if e.is_not_found() => match exists(io, &format!("{name}.rbd")).await? {
            true => Err(Error::unsupported(format!(
                "image '{name}' is of format 1, which is not supported"
            ))),
            false => Err(Error::refused(
                Errno::ENOENT,
                format!("there is no image '{name}'"),
            )),
        },
        Err(e) => Err(e),
    }
}

/// The name of the image of this id.
pub async fn name_of(io: &IoCtx, id: &str) -> Result<String> {
    let op = Operation::new().rbd("dir_get_name", |w| w.string(id));
    match ask(io, names::DIRECTORY, op).await {
        Ok(done) => Ok(String::from_bytes(&done.step(0)?.data)?),
        Err(e) if e.is_not_found() => Err(Error::refused(
            Errno::ENOENT,
            format!("there is no image of id '{id}'"),
        )),
        Err(e) => Err(e),
    }
}

/// Gives an image another name.
pub async fn rename(io: &IoCtx, from: &str, to: &str) -> Result<()> {
    check_name(to)?;
    let id = id_of(io, from).await?;
    if exists(io, &format!("{to}.rbd")).await? || exists(io, &names::id_object(to)).await? {
        return Err(Error::refused(
            Errno::EEXIST,
            format!("image '{to}' exists already"),
        ));
    }
    let op = Operation::new()
        .create(true)
        .rbd_write("set_id", |w| w.string(&id));
    ask(io, &names::id_object(to), op).await?;
    let op = Operation::new().rbd_write("dir_rename_image", |w| {
        w.string(from);
        w.string(to);
        w.string(&id);
    });
    if let Err(e) = ask(io, names::DIRECTORY, op).await {
        let _ = io.remove(names::id_object(to)).await;
        return Err(e);
    }
    error::or_missing(io.remove(names::id_object(from)).await.map_err(Into::into))
}
