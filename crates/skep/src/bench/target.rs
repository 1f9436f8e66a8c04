//! What a client of a bench works on, and how it gets there.

use super::args::Job;
use ::client::{Client, Conf, IoCtx};
use node::Error;

pub fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

pub fn usage<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Usage(what.into()))
}

pub async fn connect(job: &Job) -> Result<Client, Error> {
    let c = &job.cluster;
    let conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
    Client::connect(conf).await.map_err(failed)
}

pub async fn pool(client: &Client, job: &Job) -> Result<IoCtx, Error> {
    let mut io = client.pool(&job.pool).await.map_err(failed)?;
    if let Some(namespace) = &job.namespace {
        io.set_namespace(namespace.clone());
    }
    Ok(io)
}

/// What a client works on.
pub trait Target: Sized + 'static {
    /// Bytes that can be read and written, a multiple of the block size.
    fn span(&self) -> u64;
    async fn read(&self, at: u64, length: u64) -> Result<bytes::Bytes, Error>;
    async fn write(&self, at: u64, data: bytes::Bytes) -> Result<(), Error>;
    /// Removes what was made for it.
    async fn end(self) -> Result<(), Error>;
}
