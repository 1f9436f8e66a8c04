//! One file becomes an image: made, filled, read back. Whatever ends it before that takes the image along.

use super::args;
use super::digest::Digest;
use super::flow::{self, Flow, failed};
use super::job::{Copied, connect, pool};
use super::source::{Source, Terms};
use super::target::runs;
use ::client::{Client, IoCtx};
use ::rbd::directory::{self, NewImage};
use ::rbd::{Image, ImageOptions, Layout, image};
use bytes::Bytes;
use node::Error;
use std::path::Path;

/// Zeros in such units are not written.
const UNIT: u64 = 64 << 10;

/// The name that a file's image gets by itself.
pub fn name_of(file: &Path) -> Result<String, Error> {
    let stem = file.file_stem().and_then(|s| s.to_str());
    let stem = stem.ok_or_else(|| {
        failed(format!(
            "{}: no name for an image; give one by --image",
            file.display()
        ))
    });
    stem.map(str::to_string)
}

pub async fn run(args: &args::Import, file: &Path, name: &str, flow: &Flow) -> Result<Copied, Error> {
    flow.check()?;
    let terms = Terms {
        format: args.from,
        allow_backing: args.allow_backing,
    };
    let (path, stop) = (file.to_path_buf(), flow.stop.clone());
    let source = io::task::aside("image-open", move || Source::open(&path, terms, &stop)).await;
    let source = source.map_err(failed)??;
    let client = connect(&args.common).await?;
    let done = into_cluster(args, &client, source, name, flow).await;
    client.shutdown().await;
    done
}

async fn into_cluster(
    args: &args::Import,
    client: &Client,
    source: Source,
    name: &str,
    flow: &Flow,
) -> Result<Copied, Error> {
    let io = pool(client, &args.common).await?;
    let (format, size) = (source.format(), source.size());
    let mut new = NewImage::of_size(size).map_err(failed)?;
    new.layout = Layout::new(args.object_size.trailing_zeros() as u8, 0, 0).map_err(failed)?;
    if let Some(data) = &args.data_pool {
        new.data_pool = Some(client.pool(data).await.map_err(failed)?.pool_id());
    }
    flow.check()?;
    directory::create(&io, name, &new).await.map_err(failed)?;
    match fill(&io, name, source, args.object_size, flow).await {
        Ok(digest) => Ok(Copied {
            format,
            size,
            data: digest.data(),
            digest: digest.text(),
        }),
        Err(e) => Err(undo(&io, name, e, flow).await),
    }
}

/// The image goes; why it had to.
async fn undo(io: &IoCtx, name: &str, why: Error, flow: &Flow) -> Error {
    flow.phase("removing the half-made image", 0);
    match image::remove(io, name, &|_, _| {}).await {
        Ok(()) => why,
        Err(e) => failed(format!(
            "{why}; and the half-made image '{name}' could not be removed: {e}"
        )),
    }
}

async fn fill(
    io: &IoCtx,
    name: &str,
    source: Source,
    object_size: u64,
    flow: &Flow,
) -> Result<Digest, Error> {
    let size = source.size();
    let image = open(io, name, false).await?;
    flow.phase("importing", size);
    let (to, unit) = (image.clone(), UNIT.min(object_size) as usize);
    let take = move |piece: u64, data: Bytes| {
        let to = to.clone();
        async move { write(&to, piece, &data, unit).await }
    };
    let written = flow::of_file(flow, source, take).await;
    // Its lock goes with it: what follows is what any client would read.
    let closed = image.close().await.map_err(failed);
    let written = written?;
    closed?;
    let image = open(io, name, true).await?;
    flow.phase("verifying", size);
    let read = flow::of_image(flow, &image, size, flow::only_look).await;
    image.close().await.map_err(failed)?;
    flow::compare(&written, &read?, "the image")?;
    Ok(written)
}

/// Also one whose content is encrypted: it is copied as it is.
pub async fn open(io: &IoCtx, name: &str, read_only: bool) -> Result<Image, Error> {
    let options = ImageOptions {
        read_only,
        encrypted: true,
        ..ImageOptions::default()
    };
    Image::open(io, name, &options).await.map_err(failed)
}

async fn write(image: &Image, piece: u64, data: &Bytes, unit: usize) -> Result<(), Error> {
    for run in runs(data, unit) {
        let at = piece * super::digest::PIECE + run.start as u64;
        let done = image.write(at, data.slice(run)).await;
        done.map_err(|e| failed(format!("writing the image: {e}")))?;
    }
    Ok(())
}
