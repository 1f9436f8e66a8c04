//! An image as a target: one that is made for it, or one that exists.

use super::args::Rbd;
use super::target::{Target, failed, pool, usage};
use ::client::{Client, IoCtx};
use ::rbd::directory::{self, NewImage};
use ::rbd::{Image, ImageOptions, image};
use bytes::Bytes;
use node::Error;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A write when an image is filled.
const FILL: u64 = 4 << 20;
const IMAGE_MAX: u64 = 1 << 44;

pub struct Disk {
    io: IoCtx,
    image: Image,
    size: u64,
    block: u64,
    /// It was made for this.
    made: Option<String>,
    /// What each block was last written with; only to verify.
    written: Option<RefCell<BTreeMap<u64, Written>>>,
}

/// The last stamp of a block, and how many writes of it are under way: after two at once nobody knows which one stayed.
#[derive(Default)]
struct Written {
    stamp: u64,
    under_way: u32,
    unsure: bool,
}

pub fn check(args: &Rbd) -> Result<(), Error> {
    let job = &args.job;
    if args.image.is_some() && job.clients > 1 {
        return usage("--image: one client; several would take the lock from each other");
    }
    if args.image.is_some() && job.rw.writes() && !args.overwrite {
        return usage("--image: the job writes, which overwrites the image's data; say so by --overwrite");
    }
    if args.image.is_none() && (args.image_size < job.block_size || args.image_size > IMAGE_MAX) {
        return usage("--image-size: at least a block, at most 16T");
    }
    Ok(())
}

impl Disk {
    pub async fn make(client: Client, number: u32, args: Rbd) -> Result<Self, Error> {
        let io = pool(&client, &args.job).await?;
        let made = match &args.image {
            Some(_) => None,
            None => {
                let name = format!("skep_bench.{}.{number}", client.global_id());
                let new = NewImage::of_size(args.image_size).map_err(failed)?;
                directory::create(&io, &name, &new).await.map_err(failed)?;
                Some(name)
            }
        };
        let opened = Self::open(&io, &args, made.clone()).await;
        if let (Err(_), Some(name)) = (&opened, &made) {
            let _ = image::remove(&io, name, &|_, _| {}).await;
        }
        opened
    }

    async fn open(io: &IoCtx, args: &Rbd, made: Option<String>) -> Result<Self, Error> {
        let name = made.as_ref().or(args.image.as_ref());
        let name = name.ok_or_else(|| failed("no image"))?;
        let options = ImageOptions {
            read_only: made.is_none() && !args.job.rw.writes(),
            ..ImageOptions::default()
        };
        let image = Image::open(io, name, &options).await.map_err(failed)?;
        let (size, block) = (image.size().await.map_err(failed)?, args.job.block_size);
        if size < block {
            image.close().await.map_err(failed)?;
            return usage("the image is smaller than a block");
        }
        let disk = Self {
            io: io.clone(),
            image,
            size: size / block * block,
            block,
            made,
            written: args.verify.then(RefCell::default),
        };
        if disk.made.is_some()
            && let Err(e) = disk.fill().await
        {
            disk.image.close().await.map_err(failed)?;
            return Err(e);
        }
        Ok(disk)
    }

    /// So that reads find data, and writes overwrite.
    async fn fill(&self) -> Result<(), Error> {
        let full = Bytes::from(vec![0x5a; FILL as usize]);
        let mut at = 0;
        while at < self.size {
            let n = FILL.min(self.size - at);
            let data = full.slice(..n as usize);
            self.image.write(at, data).await.map_err(failed)?;
            at += n;
        }
        Ok(())
    }

    /// A block that says where it is, and which write it was.
    fn stamped(&self, at: u64, stamp: u64) -> Bytes {
        let words = [at.to_le_bytes(), stamp.to_le_bytes()].concat();
        let times = (self.block as usize).div_ceil(words.len());
        Bytes::from(words.repeat(times)).slice(..self.block as usize)
    }

    async fn verify(&self) -> Result<(), Error> {
        let Some(written) = &self.written else {
            return Ok(());
        };
        let sure: Vec<(u64, u64)> = written
            .borrow()
            .iter()
            .filter(|(_, w)| !w.unsure)
            .map(|(at, w)| (*at, w.stamp))
            .collect();
        for (at, stamp) in sure {
            let have = self.image.read(at, self.block).await.map_err(failed)?;
            if have != self.stamped(at, stamp) {
                return usage(format!(
                    "VERIFY FAILED: the block at {at} is not what was written"
                ));
            }
        }
        Ok(())
    }
}

impl Target for Disk {
    fn span(&self) -> u64 {
        self.size
    }

    async fn read(&self, at: u64, length: u64) -> Result<Bytes, Error> {
        self.image.read(at, length).await.map_err(failed)
    }

    async fn write(&self, at: u64, data: Bytes) -> Result<(), Error> {
        let Some(written) = &self.written else {
            return self.image.write(at, data).await.map_err(failed);
        };
        let stamp = {
            let mut written = written.borrow_mut();
            let block = written.entry(at).or_default();
            block.unsure = block.under_way > 0;
            block.under_way += 1;
            block.stamp += 1;
            block.stamp
        };
        let done = self.image.write(at, self.stamped(at, stamp)).await;
        if let Some(block) = written.borrow_mut().get_mut(&at) {
            block.under_way -= 1;
        }
        done.map_err(failed)
    }

    async fn end(self) -> Result<(), Error> {
        let verified = self.verify().await;
        self.image.close().await.map_err(failed)?;
        if let Some(name) = &self.made {
            image::remove(&self.io, name, &|_, _| {}).await.map_err(failed)?;
        }
        verified
    }
}
