//! `skep why`: where the operations of an image, a pool or a client spend their time, and what accounts for it (`stages`).

pub mod args;

use crate::options::Format;
use args::Args;
use client::{Client, Conf};
use node::Error;
use stages::{Question, about, look};
use std::time::Duration;

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

pub fn run(args: &Args) -> Result<(), Error> {
    let within = Duration::from_secs(args.timeout);
    let question = Question {
        name: args.what.as_deref().unwrap_or("all clients"),
        about: about(args.what.as_deref()).map_err(Error::Usage)?,
        seconds: args.seconds,
        within,
        all: None,
    };
    let told = io::task::block_on(async {
        let c = &args.cluster;
        let mut conf = Conf::read(&c.conf, &c.name, c.keyring.as_deref()).map_err(failed)?;
        (conf.connect_timeout, conf.op_timeout, conf.mon_timeout) = (within, Some(within), Some(within));
        let client = Client::connect(conf).await.map_err(failed)?;
        let told = look(&client, &question).await;
        client.shutdown().await;
        told.map_err(Error::Usage)
    });
    let told = told.map_err(|source| Error::Io {
        what: "starting the client".into(),
        source,
    })??;
    let said = match args.format {
        Format::Json => format!("{:#}", told.json()),
        Format::Plain => told.text(),
    };
    println!("{}", said.trim_end());
    Ok(())
}
