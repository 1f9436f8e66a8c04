//! A client of the cluster that a command is about.

use crate::options::ClusterArgs;
use ::client::{Client, Conf};
use node::Error;
use std::time::Duration;

/// What administration waits for the cluster, and a gateway for one operation.
const WITHIN: Duration = Duration::from_secs(60);

pub fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

pub async fn connect(c: &ClusterArgs) -> Result<Client, Error> {
    let mut conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
    conf.connect_timeout = WITHIN;
    conf.op_timeout = Some(WITHIN);
    conf.mon_timeout = Some(WITHIN);
    Client::connect(conf).await.map_err(failed)
}
