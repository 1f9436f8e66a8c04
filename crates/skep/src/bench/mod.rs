//! `skep bench rados|rbd`: operations per second, latencies, and the processor time that they take, by our own clients, against any
//! cluster.
//!
//! Each client is a thread with connections of its own and a [`Target`]: objects, or an image. `depth` tasks on it do one operation
//! after the other. What is written overwrites blocks of what was filled before, so the steady state is measured.

pub mod args;
mod cpu;
mod job;
mod rados;
mod rbd;
mod report;

use ::client::{Client, Conf, IoCtx};
use args::{BenchCommand, Job};
use node::Error;

pub fn run(args: &args::Bench) -> Result<(), Error> {
    match &args.command {
        BenchCommand::Rados(a) => {
            rados::check(a)?;
            let a = a.clone();
            let target = move |client, number| rados::Objects::make(client, number, a.clone());
            job::run("rados", &job_of(args), target)
        }
        BenchCommand::Rbd(a) => {
            rbd::check(a)?;
            let a = a.clone();
            let target = move |client, number| rbd::Disk::make(client, number, a.clone());
            job::run("rbd", &job_of(args), target)
        }
    }
}

fn job_of(args: &args::Bench) -> Job {
    match &args.command {
        BenchCommand::Rados(a) => a.job.clone(),
        BenchCommand::Rbd(a) => a.job.clone(),
    }
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

fn usage<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Usage(what.into()))
}

async fn connect(job: &Job) -> Result<Client, Error> {
    let c = &job.cluster;
    let conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
    Client::connect(conf).await.map_err(failed)
}

async fn pool(client: &Client, job: &Job) -> Result<IoCtx, Error> {
    let mut io = client.pool(&job.pool).await.map_err(failed)?;
    if let Some(namespace) = &job.namespace {
        io.set_namespace(namespace.clone());
    }
    Ok(io)
}

/// What a client works on.
trait Target: Sized + 'static {
    /// Bytes that can be read and written, a multiple of the block size.
    fn span(&self) -> u64;
    async fn read(&self, at: u64, length: u64) -> Result<bytes::Bytes, Error>;
    async fn write(&self, at: u64, data: bytes::Bytes) -> Result<(), Error>;
    /// Removes what was made for it.
    async fn end(self) -> Result<(), Error>;
}
