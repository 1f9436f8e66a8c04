//! The image that a command is about: its id, and whether what is asked for can be done. Words as the real one's.

use crate::{migration, mirror};
use client::{Client, IoCtx};
use cluster::rbd_support::{About, Action, Found, FoundImage, Wanted};
use rbd::header::Header;
use rbd::{Error, Image, ImageOptions, directory, trash};
use types::Errno;

pub async fn find(client: &Client, wanted: &Wanted) -> Found {
    let mut io = client.pool_by_id(wanted.pool);
    io.set_namespace(wanted.namespace.clone().into_bytes());
    let (image, place) = (wanted.image.clone(), place(client, wanted));
    match wanted.about {
        About::Task(Action::TrashRemove) => find_trashed(&io, image).await,
        About::Task(action @ (Action::MigrateExecute | Action::MigrateCommit | Action::MigrateAbort)) => {
            migration::find(&io, action, image, &place).await
        }
        About::Task(action) => find_image(&io, action, image, &place).await,
        About::Mirroring => {
            let id = directory::id_of(&io, &image).await;
            mirror::find(&io, image, id).await
        }
    }
}

/// `rbd`, `rbd/ns`
fn place(client: &Client, wanted: &Wanted) -> String {
    let pool = client.map().ok();
    let pool = pool.and_then(|m| m.pool_name(wanted.pool).map(str::to_string));
    match wanted.namespace.as_str() {
        "" => pool.unwrap_or_default(),
        ns => format!("{}/{ns}", pool.unwrap_or_default()),
    }
}

fn failed(e: Error, missing: &str) -> (Errno, String) {
    match e.is_not_found() {
        true => (
            Errno::ENOENT,
            format!("[errno 2] RBD image not found ({missing})"),
        ),
        false => (e.errno(), e.to_string()),
    }
}

fn plain(name: String, id: String) -> FoundImage {
    FoundImage {
        name,
        id,
        migration: None,
    }
}

async fn find_trashed(io: &IoCtx, id: String) -> Found {
    let found = trash::get(io, &id).await;
    let found = found.map_err(|e| failed(e, "error retrieving image from trash"))?;
    Ok(plain(String::from_utf8_lossy(&found.name).into_owned(), id))
}

async fn find_image(io: &IoCtx, action: Action, image: String, place: &str) -> Found {
    let missing = format!("Image {place}/{image} does not exist");
    let id = directory::id_of(io, &image).await;
    let id = id.map_err(|e| failed(e, &missing))?;
    let header = read_header(io, &id).await.map_err(|e| failed(e, &missing))?;
    if action == Action::Flatten && header.parent.is_none() {
        let why = format!("Image {place}/{image} does not have a parent");
        return Err((Errno::ENOENT, format!("[errno 2] RBD image not found ({why})")));
    }
    if action == Action::Remove && !header.snaps.is_empty() {
        let why = format!("Image {place}/{image} has snapshots");
        return Err((Errno::EBUSY, format!("[errno 16] RBD image is busy ({why})")));
    }
    if header.migration.is_some() {
        let why = format!("Image {place}/{image}: not supported: it is being migrated");
        return Err((Errno::EOPNOTSUPP, why));
    }
    Ok(plain(image, id))
}

async fn read_header(io: &IoCtx, id: &str) -> rbd::Result<Header> {
    let options = ImageOptions {
        read_only: true,
        encrypted: true,
        ..ImageOptions::default()
    };
    let image = Image::open_id(io, id, &options).await?;
    image.header().await
}
