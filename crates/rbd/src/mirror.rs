//! What a pool says about the mirroring of its images: which take part by snapshots, and for whom those are
//! (docs/protocol/ceph/05-rbd.md, 4.11).

use crate::calls::Calls;
use crate::header::ask;
use crate::{Result, names};
use bytes::Bytes;
use client::{IoCtx, Operation};
use denc::Reader;
use objclass::rbd::types::{MirrorImage, MirrorPeer};
use std::collections::BTreeMap;

const PAGE: u64 = 1024;
/// Of [`MirrorImage::mode`]: by snapshots, not by a journal.
const BY_SNAPSHOTS: u8 = 1;

/// An image that takes part by snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrored {
    pub id: String,
    /// The same at all sites.
    pub global_id: String,
}

/// Ids of the sites that fetch what is new here. They are the pool's, whatever the namespace.
pub async fn peers(io: &IoCtx) -> Result<Vec<String>> {
    let mut io = io.clone();
    io.set_namespace("");
    let op = Operation::new().rbd("mirror_peer_list", |_| {});
    let done = match ask(&io, names::MIRRORING, op).await {
        Err(e) if e.is_not_found() => return Ok(Vec::new()),
        other => other?,
    };
    let all: Vec<MirrorPeer> = Reader::new(done.step(0)?.data.clone()).get()?;
    let fetches = all.iter().filter(|p| p.direction != MirrorPeer::RX);
    Ok(fetches.map(|p| text(&p.uuid)).collect())
}

/// None: it takes no part, or by its journal.
pub async fn of_image(io: &IoCtx, id: &str) -> Result<Option<Mirrored>> {
    let op = Operation::new().rbd("mirror_image_get", |w| w.string(id));
    let done = match ask(io, names::MIRRORING, op).await {
        Err(e) if e.is_not_found() => return Ok(None),
        other => other?,
    };
    let image: MirrorImage = Reader::new(done.step(0)?.data.clone()).get()?;
    let takes_part = image.state == MirrorImage::ENABLED && image.mode == BY_SNAPSHOTS;
    Ok(takes_part.then(|| Mirrored {
        id: id.into(),
        global_id: text(&image.global_id),
    }))
}

/// All of the pool's namespace.
pub async fn images(io: &IoCtx) -> Result<Vec<Mirrored>> {
    let (mut all, mut after) = (Vec::new(), Bytes::new());
    loop {
        let op = Operation::new().rbd("mirror_image_list", |w| {
            w.blob(&after);
            w.u64(PAGE);
        });
        let done = match ask(io, names::MIRRORING, op).await {
            Err(e) if e.is_not_found() => return Ok(all),
            other => other?,
        };
        let page: BTreeMap<Bytes, Bytes> = Reader::new(done.step(0)?.data.clone()).get()?;
        for id in page.keys() {
            all.extend(of_image(io, &text(id)).await?);
        }
        match page.into_keys().next_back() {
            Some(last) => after = last,
            None => return Ok(all),
        }
    }
}

fn text(b: &Bytes) -> String {
    String::from_utf8_lossy(b).into_owned()
}
