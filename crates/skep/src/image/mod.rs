//! `skep image import|export`: disk files become images of a cluster, Skep's or Ceph's, and back.
//!
//! Raw files are read and written here, by their holes; every other format by QEMU's own tools ([`qemu`]), over NBD ([`nbd`]). What
//! was written is read back and compared by its checksum ([`digest`]) before it counts as done.
//!
//! Vocabulary: a *piece* is 4 MiB of a disk, what is read, hashed and written at once; a *source* is a file that is read, a
//! *target* one that is made; a *job* is one copy.

pub mod args;
mod digest;
mod export;
mod flow;
mod format;
mod import;
pub mod job;
mod nbd;
mod qemu;
mod source;
mod target;

use args::ImageCommand;
use flow::failed;
use job::Job;
use node::Error;
use std::collections::BTreeSet;

pub fn run(args: &args::Image) -> Result<(), Error> {
    match &args.command {
        ImageCommand::Import(a) => run_import(a),
        ImageCommand::Export(a) => run_export(a),
    }
}

fn run_import(args: &args::Import) -> Result<(), Error> {
    if args.image.is_some() && args.files.len() > 1 {
        return Err(failed("--image is for one file"));
    }
    let named = |file| match &args.image {
        Some(name) => Ok(name.clone()),
        None => import::name_of(file),
    };
    let names = args
        .files
        .iter()
        .map(|f| named(f))
        .collect::<Result<Vec<_>, _>>()?;
    let jobs: Vec<Job> = args
        .files
        .iter()
        .zip(&names)
        .map(|(file, name)| Job {
            from: file.display().to_string(),
            to: format!("{}/{name}", args.common.pool),
            keys: ("file", "image"),
        })
        .collect();
    check_apart(&jobs)?;
    let one = |number: usize, flow| {
        let (file, name) = (&args.files[number], &names[number]);
        async move { import::run(args, file, name, &flow).await }
    };
    job::run(&args.common, &jobs, one)
}

fn run_export(args: &args::Export) -> Result<(), Error> {
    if args.output.is_some() && args.images.len() > 1 {
        return Err(failed("--output is for one image; --dir for several"));
    }
    let places: Vec<_> = args.images.iter().map(|i| export::place_of(args, i)).collect();
    let jobs: Vec<Job> = args
        .images
        .iter()
        .zip(&places)
        .map(|(image, (file, _))| Job {
            from: format!("{}/{image}", args.common.pool),
            to: file.display().to_string(),
            keys: ("image", "file"),
        })
        .collect();
    check_apart(&jobs)?;
    let one = |number: usize, flow| {
        let (image, (file, format)) = (&args.images[number], &places[number]);
        async move { export::run(args, image, file, *format, &flow).await }
    };
    job::run(&args.common, &jobs, one)
}

/// Two that go to one place would fail half way.
fn check_apart(jobs: &[Job]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    match jobs.iter().find(|j| !seen.insert(&j.to)) {
        Some(job) => Err(failed(format!("two of them would become {}", job.to))),
        None => Ok(()),
    }
}
