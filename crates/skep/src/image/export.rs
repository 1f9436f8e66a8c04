//! An image, or a snapshot of one, becomes a file: made, filled, read back. Whatever ends it before that takes the file along.

use super::args;
use super::digest::Digest;
use super::flow::{self, Flow, failed};
use super::format::Format;
use super::job::{Copied, connect, pool};
use super::source::{Source, Terms};
use super::target::{Made, Target};
use ::client::{Client, IoCtx};
use ::rbd::{Image, ImageOptions};
use bytes::Bytes;
use node::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where an image goes, and as what.
pub fn place_of(args: &args::Export, image: &str) -> (PathBuf, Format) {
    let suffix = |p: &PathBuf| p.extension().and_then(|s| s.to_str()).map(Format::of_suffix);
    let by_name = args.output.as_ref().and_then(suffix);
    let format = args.to.or(by_name).unwrap_or(Format::Raw);
    let file = match &args.output {
        Some(file) => file.clone(),
        None => args
            .dir
            .clone()
            .unwrap_or_default()
            .join(format!("{image}.{format}")),
    };
    (file, format)
}

pub async fn run(
    args: &args::Export,
    image: &str,
    file: &Path,
    format: Format,
    flow: &Flow,
) -> Result<Copied, Error> {
    flow.check()?;
    let client = connect(&args.common).await?;
    let done = from_cluster(args, &client, image, file, format, flow).await;
    client.shutdown().await;
    done
}

async fn from_cluster(
    args: &args::Export,
    client: &Client,
    image: &str,
    file: &Path,
    format: Format,
    flow: &Flow,
) -> Result<Copied, Error> {
    let io = pool(client, &args.common).await?;
    let image = open(&io, image).await?;
    let done = copy(&image, file, format, flow).await;
    image.close().await.map_err(failed)?;
    let (digest, size) = done?;
    Ok(Copied {
        format,
        size,
        data: digest.data(),
        digest: digest.text(),
    })
}

async fn open(io: &IoCtx, spec: &str) -> Result<Image, Error> {
    let (name, snap) = match spec.split_once('@') {
        Some((name, snap)) => (name, Some(snap.to_string())),
        None => (spec, None),
    };
    let options = ImageOptions {
        read_only: true,
        encrypted: true,
        snap,
    };
    Image::open(io, name, &options).await.map_err(failed)
}

async fn copy(image: &Image, file: &Path, format: Format, flow: &Flow) -> Result<(Digest, u64), Error> {
    let size = image.size().await.map_err(failed)?;
    let path = file.to_path_buf();
    let target = io::task::aside("image-make", move || Target::create(&path, format, size)).await;
    let target = Arc::new(Mutex::new(target.map_err(failed)??));
    flow.phase("exporting", size);
    let to = target.clone();
    let take = move |piece: u64, data: Bytes| {
        let to = to.clone();
        async move {
            let write = move || {
                to.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .write(piece, &data)
            };
            let done = io::task::aside("image-file", write).await.and_then(|w| w);
            done.map_err(|e| failed(format!("writing the file: {e}")))
        }
    };
    let read = flow::of_image(flow, image, size, take).await?;
    let target = Arc::into_inner(target).ok_or_else(|| failed("the file is still being written"))?;
    let target = target.into_inner().unwrap_or_else(PoisonError::into_inner);
    let made = io::task::aside("image-sync", move || target.finish()).await;
    let made = made.map_err(failed)??;
    verify(file, format, &read, size, made, flow).await?;
    Ok((read, size))
}

async fn verify(
    file: &Path,
    format: Format,
    written: &Digest,
    size: u64,
    made: Made,
    flow: &Flow,
) -> Result<(), Error> {
    let (path, stop) = (file.to_path_buf(), flow.stop.clone());
    let again = move || {
        let terms = Terms {
            format: Some(format),
            allow_backing: false,
        };
        let mut source = Source::open(&path, terms, &stop)?;
        source.limit(size)?;
        Ok::<_, Error>(source)
    };
    let source = io::task::aside("image-open", again).await.map_err(failed)??;
    flow.phase("verifying", size);
    let read = flow::of_file(flow, source, flow::only_look).await?;
    flow::compare(written, &read, "the file")?;
    made.keep();
    Ok(())
}
