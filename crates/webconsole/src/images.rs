//! Images: what is said of them, and changes of them, by `rbd` over the session's client.
//!
//! Bound: [`OPEN_MAX`] images of a page are looked at, [`AT_ONCE`] at a time.

use crate::acts::{ImageStep, Place, Seen};
use crate::cluster::{Asked, Trouble, WITHIN};
use client::{Client, IoCtx};
use io::task;
use rbd::directory::NewImage;
use rbd::header::{Header, Snap};
use rbd::{Image, ImageOptions, directory, header, image, names, trash};

/// Images whose headers one page reads.
pub const OPEN_MAX: usize = 100;
const AT_ONCE: usize = 8;

/// What acts may take. One that takes longer goes on by itself.
const ACT_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

/// Bits as `rbd info` names them.
const FEATURES: [(u64, &str); 9] = [
    (1, "layering"),
    (2, "striping"),
    (4, "exclusive-lock"),
    (8, "object-map"),
    (16, "fast-diff"),
    (32, "deep-flatten"),
    (64, "journaling"),
    (128, "data-pool"),
    (256, "operations"),
];

pub fn features(bits: u64) -> String {
    let names = FEATURES
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .map(|(_, name)| *name);
    names.collect::<Vec<_>>().join(", ")
}

fn words(e: rbd::Error) -> String {
    e.to_string()
}

pub async fn io(client: &Client, place: &Place) -> Asked<IoCtx> {
    let mut io = client.pool(&place.pool).await.map_err(|e| e.to_string())?;
    if !place.namespace.is_empty() {
        io.set_namespace(place.namespace.clone());
    }
    Ok(io)
}

/// What the list of a pool's images says of each.
pub struct Listed {
    pub name: String,
    /// None: it could not be read.
    pub header: Option<Header>,
}

/// A part of a pool's images, in the order of their names.
pub struct Listing {
    /// Images in all.
    pub total: usize,
    pub shown: Vec<Listed>,
}

/// What one page takes of a long list; nothing where it begins behind the end.
fn window<T>(all: impl IntoIterator<Item = T>, first: usize) -> impl Iterator<Item = T> {
    all.into_iter().skip(first).take(OPEN_MAX)
}

/// The images from number `first` on, as many as a page shows.
pub async fn list(io: &IoCtx, first: usize) -> Asked<Listing> {
    let all = directory::list(io).await.map_err(words)?;
    let total = all.len();
    let read = window(all, first).map(|(name, id)| async move {
        let header = header::read(io, &names::header(&id)).await.ok();
        Listed { name, header }
    });
    let shown = task::several(AT_ONCE, read).await;
    Ok(Listing { total, shown })
}

/// An image as its page shows it.
pub struct Shown {
    pub id: String,
    pub fixed: header::Fixed,
    pub header: Header,
    /// Who has it open: clients and their addresses.
    pub watchers: Vec<String>,
    /// The name of the parent, if it can be seen.
    pub parent: Option<String>,
}

pub async fn show(client: &Client, io: &IoCtx, name: &str) -> Asked<Shown> {
    let id = directory::id_of(io, name).await.map_err(words)?;
    let oid = names::header(&id);
    let header = header::read(io, &oid).await.map_err(words)?;
    let fixed = header::fixed(io, &oid).await.map_err(words)?;
    let watchers = io.watchers(&oid).await.map_err(|e| e.to_string())?;
    let parent = match &header.parent {
        None => None,
        Some(parent) => Some(parent_name(client, parent).await),
    };
    Ok(Shown {
        id,
        fixed,
        watchers: watchers
            .iter()
            .map(|w| format!("client.{} at {}", w.client, w.addr))
            .collect(),
        parent,
        header,
    })
}

async fn parent_name(client: &Client, parent: &header::Parent) -> String {
    let spec = &parent.spec;
    let mut io = client.pool_by_id(spec.pool);
    io.set_namespace(spec.pool_namespace.clone());
    let id = String::from_utf8_lossy(&spec.image_id).into_owned();
    let pool = client
        .map()
        .ok()
        .and_then(|m| m.pool_names.get(&spec.pool).map(|n| n.to_string()));
    let pool = pool.unwrap_or_else(|| spec.pool.to_string());
    let name = directory::name_of(&io, &id).await.unwrap_or(id.clone());
    let snap = match header::read(&io, &names::header(&id)).await {
        Ok(h) => h.snap(spec.snap_id).map(|s| s.name.clone()),
        Err(_) => None,
    };
    let snap = snap.unwrap_or_else(|| spec.snap_id.to_string());
    let place = Place {
        pool,
        namespace: String::from_utf8_lossy(&spec.pool_namespace).into_owned(),
    };
    format!("{}@{snap}", place.spec(&name))
}

/// Snapshots that a person made, oldest first.
pub fn users_snaps(header: &Header) -> Vec<&Snap> {
    let mut all: Vec<&Snap> = header.snaps.iter().filter(|s| s.is_users()).collect();
    all.reverse();
    all
}

/// An image in the trash.
pub struct Trashed {
    pub id: String,
    pub name: String,
    /// Since when it is there, in seconds since 1970.
    pub since: u64,
}

/// Those that people put there: as many as a page shows, and how many more there are.
pub async fn trashed(io: &IoCtx) -> Asked<(Vec<Trashed>, usize)> {
    let all = trash::list(io).await.map_err(words)?;
    let mut mine = all.into_iter().filter(|(_, t)| trash::is_thrown_away(t.source));
    let shown = mine.by_ref().take(OPEN_MAX).map(|(id, t)| Trashed {
        id,
        name: String::from_utf8_lossy(&t.name).into_owned(),
        since: t.deletion_time.to_duration().as_secs(),
    });
    let shown = shown.collect();
    Ok((shown, mine.count()))
}

/// Carries out a change; it goes on when nobody waits any more. `ended` is told at its end, whenever that is.
pub async fn perform(
    client: &Client,
    (place, step, seen): (&Place, &ImageStep, &Seen),
    ended: impl FnOnce(&Result<(), Trouble>) + 'static,
) -> Result<(), Trouble> {
    let (client, place, step, seen) = (client.clone(), place.clone(), step.clone(), seen.clone());
    let work = task::spawn_local(async move {
        let done = change(&client, &place, &step, &seen).await;
        ended(&done);
        done
    });
    match task::timeout(ACT_WITHIN, work).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(Trouble::Unknown("it was cut short".into())),
        Err(_) => Err(Trouble::GoesOn(format!(
            "it takes longer than {} s, and goes on",
            ACT_WITHIN.as_secs()
        ))),
    }
}

fn trouble(e: rbd::Error) -> Trouble {
    Trouble::of(e.errno(), e.to_string())
}

/// Whether the names of `step` stand for what they stood for when its page was drawn.
async fn is_as_seen(io: &IoCtx, step: &ImageStep, seen: &Seen) -> Asked<()> {
    let (Some((image, snap)), Some(want)) = (step.about(), &seen.image) else {
        return Ok(());
    };
    let id = directory::id_of(io, image).await.map_err(words)?;
    if id != *want {
        return Err("another image has this name by now: look at its page again".into());
    }
    if let (Some(name), Some(want)) = (snap, seen.snap) {
        let header = header::read(io, &names::header(&id)).await.map_err(words)?;
        if header.snap_named(name).is_none_or(|s| s.id != want) {
            return Err(
                "the snapshot is gone, or another one has its name by now: look at the page again".into(),
            );
        }
    }
    Ok(())
}

async fn change(client: &Client, place: &Place, step: &ImageStep, seen: &Seen) -> Result<(), Trouble> {
    let io = &io(client, place).await.map_err(Trouble::NotDone)?;
    is_as_seen(io, step, seen).await.map_err(Trouble::NotDone)?;
    match step {
        ImageStep::Create { image, size } => {
            let new = NewImage::of_size(*size).map_err(trouble)?;
            directory::create(io, image, &new)
                .await
                .map(drop)
                .map_err(trouble)
        }
        ImageStep::Resize { image, size, shrink } => {
            with(io, image, async |open| open.resize(*size, *shrink).await).await
        }
        ImageStep::CreateSnap { image, snap } => {
            with(io, image, async |open| open.create_snap(snap).await.map(drop)).await
        }
        ImageStep::RemoveSnap { image, snap } => {
            with(io, image, async |open| open.remove_snap(snap).await).await
        }
        ImageStep::ProtectSnap { image, snap, protect } => {
            with(io, image, async |open| open.protect_snap(snap, *protect).await).await
        }
        ImageStep::Clone {
            image,
            snap,
            to,
            name,
        } => {
            let to = self::io(client, to).await.map_err(Trouble::NotDone)?;
            let new = NewImage::of_size(0).map_err(trouble)?;
            let made = image::clone_image(io, image, snap, &to, name, &new).await;
            made.map(drop).map_err(trouble)
        }
        ImageStep::Trash { image } => image::move_to_trash(io, image).await.map_err(trouble),
        ImageStep::Restore { id, name } => image::restore(io, id, name).await.map_err(trouble),
    }
}

/// Opens an image for one change, and closes it whatever came of that: without, others would take us for dead.
async fn with<F>(io: &IoCtx, name: &str, work: F) -> Result<(), Trouble>
where
    F: AsyncFnOnce(&Image) -> rbd::Result<()>,
{
    // Nothing is read of what is in it.
    let options = ImageOptions {
        encrypted: true,
        ..ImageOptions::default()
    };
    let open = task::timeout(WITHIN, Image::open(io, name, &options)).await;
    let open = open
        .map_err(|_| Trouble::NotDone("the image does not open".into()))?
        .map_err(trouble)?;
    let done = work(&open).await;
    let closed = open.close().await;
    done.map_err(trouble)?;
    closed.map_err(|e| Trouble::Unknown(format!("the change was made, and closing the image failed: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_anywhere() {
        let of = |first| window(0..250, first).collect::<Vec<usize>>();
        assert_eq!(of(0), (0..100).collect::<Vec<_>>());
        assert_eq!(of(200), (200..250).collect::<Vec<_>>());
        for behind in [250, 251, usize::MAX - 1, usize::MAX] {
            assert!(of(behind).is_empty(), "{behind}");
        }
    }
}
