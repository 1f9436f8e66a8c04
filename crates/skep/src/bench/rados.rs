//! Objects as a target: `skep_bench.CLIENT.NUMBER`, one for each operation that may be under way.

use super::args::Rados;
use super::target::{Target, failed, pool, usage};
use ::client::{Client, IoCtx};
use bytes::Bytes;
use node::Error;

/// No OSD takes larger ones.
const OBJECT_MAX: u64 = 90 << 20;

pub struct Objects {
    io: IoCtx,
    client: u64,
    count: u64,
    size: u64,
}

pub fn check(args: &Rados) -> Result<(), Error> {
    if args.object_size > OBJECT_MAX {
        return usage("--object-size: at most 90M");
    }
    if args.object_size < args.job.block_size {
        return usage("--object-size: at least a block, see --block-size");
    }
    Ok(())
}

impl Objects {
    /// Writes every object full, so that reads find data and writes overwrite.
    pub async fn make(client: Client, _: u32, args: Rados) -> Result<Self, Error> {
        let block = args.job.block_size;
        let made = Self {
            io: pool(&client, &args.job).await?,
            client: client.global_id(),
            count: u64::from(args.job.depth),
            size: args.object_size / block * block,
        };
        let full = Bytes::from(vec![0x5a; made.size as usize]);
        for n in 0..made.count {
            if let Err(e) = made.io.write_full(made.name(n), full.clone()).await {
                let _ = made.end().await;
                return usage(format!("filling: {e}"));
            }
        }
        Ok(made)
    }

    fn name(&self, number: u64) -> String {
        format!("skep_bench.{}.{number}", self.client)
    }
}

impl Target for Objects {
    fn span(&self) -> u64 {
        self.count * self.size
    }

    async fn read(&self, at: u64, length: u64) -> Result<Bytes, Error> {
        let name = self.name(at / self.size);
        self.io.read(name, at % self.size, length).await.map_err(failed)
    }

    async fn write(&self, at: u64, data: Bytes) -> Result<(), Error> {
        let name = self.name(at / self.size);
        self.io.write(name, at % self.size, data).await.map_err(failed)
    }

    async fn end(self) -> Result<(), Error> {
        for n in 0..self.count {
            match self.io.remove(self.name(n)).await {
                Err(e) if !e.is_not_found() => return Err(failed(e)),
                _ => {}
            }
        }
        Ok(())
    }
}
