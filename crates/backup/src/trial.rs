//! A backup is tried: every piece is read from the repository, and compared with the image's snapshot that it was made of, if
//! that is still there. Needs no room in the cluster.

use crate::forms::Id;
use crate::lock::Lock;
use crate::manifest::Backup;
use crate::repository::Repository;
use crate::restore::{compare, each_piece};
use crate::run::{Watch, beside, pool};
use crate::{Error, Result};
use client::Client;
use rbd::{Image, ImageOptions};
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Debug)]
pub struct Tried {
    pub bytes: u64,
    /// With the snapshot in the cluster.
    pub compared: bool,
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.compared {
            true => write!(
                f,
                "{} bytes read, and the same as the image's snapshot",
                self.bytes
            ),
            false => write!(
                f,
                "{} bytes read; its snapshot is gone, so there is nothing to compare with",
                self.bytes
            ),
        }
    }
}

/// The error says what is wrong with the backup.
pub async fn trial(repo: &Arc<Repository>, client: &Client, backup: &Backup, watch: &Watch) -> Result<Tried> {
    let lock = Lock::to_read(repo)?;
    let repo = lock.repo();
    let wanted = backup.clone();
    let contents = Rc::new(beside(repo, move |repo| repo.contents(&wanted)).await?);
    let about = &contents.about;
    let (size, piece) = (about.size, about.piece);
    let (reader, seen) = (repo.clone(), Rc::new(RefCell::new(HashSet::<Id>::new())));
    let read = move |number: u64, id: Id| {
        let (repo, new) = (reader.clone(), seen.borrow_mut().insert(id));
        async move {
            // What is there once is read once.
            if !new {
                return Ok(true);
            }
            let length = beside(&repo, move |repo| Ok(repo.load(&id)?.len() as u64)).await?;
            Ok(length == piece.min(size - number * piece))
        }
    };
    if let Some(bad) = each_piece(contents.clone(), watch, read).await? {
        return Err(Error::Damaged(format!(
            "the piece at {} has another length",
            bad * piece
        )));
    }
    let compared = match snapshot_of(client, backup, &contents.about).await? {
        None => false,
        Some(image) => {
            let differ = compare(&image, contents.clone(), watch).await?;
            image.close().await?;
            if let Some(at) = differ {
                return Err(Error::refused(format!(
                    "TRIAL FAILED: what the backup has at {at} is not what snapshot '{}' has",
                    contents.about.snapshot
                )));
            }
            true
        }
    };
    Ok(Tried {
        bytes: size,
        compared,
    })
}

async fn snapshot_of(client: &Client, backup: &Backup, about: &crate::About) -> Result<Option<Image>> {
    if backup.tag("cluster") != Some(client.fsid()?.to_string().as_str()) {
        return Ok(None);
    }
    let io = pool(client, &about.pool, &about.namespace).await?;
    let options = ImageOptions {
        read_only: true,
        snap: Some(about.snapshot.clone()),
        encrypted: true,
    };
    match Image::open_id(&io, &about.id, &options).await {
        Ok(image) => Ok(Some(image)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e.into()),
    }
}
