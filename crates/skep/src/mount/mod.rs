//! `skep mount`: a file system in a directory, of a store in this process or of a cluster.

pub mod args;

use crate::{service, up};
use ::client::{Client, Conf, Error as ClientError};
use ::mount::Mounted;
use args::{Mount, NAME};
use io::files::Holder;
use node::{DataDir, Error, Msgr1Port, Node, StartOptions};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use types::Errno;

/// After a SIGKILL the store waits so long for the mount that died with it.
const OWN_SESSION: Duration = Duration::from_secs(15);
/// What the monitor is waited for.
const WITHIN: Duration = Duration::from_secs(60);

pub fn run(args: &Mount) -> Result<(), Error> {
    let at = ::mount::claim(&args.dir).map_err(failed)?;
    let done = match &args.conf {
        Some(conf) => {
            let whole = Whole {
                args,
                at,
                conf: conf.clone(),
                makes: false,
                mounted: OnceLock::new(),
            };
            io::task::block_on(whole.by_itself())
        }
        None => {
            check_apart(&args.place.dir(), &at)?;
            let dir = DataDir::create(&args.place.dir())?;
            let whole = Whole {
                args,
                at,
                conf: dir.conf_path(),
                makes: true,
                mounted: OnceLock::new(),
            };
            match dir.holder()? {
                Holder::Process(_) | Holder::Unknown => io::task::block_on(whole.by_itself()),
                Holder::Nobody => {
                    node::watch_this_thread();
                    io::task::block_on(whole.with_store(&dir))
                }
            }
        }
    };
    done.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })?
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Usage(e.to_string())
}

/// A store below its own mount would wait for itself.
fn check_apart(data: &Path, at: &Path) -> Result<(), Error> {
    let data = real(data);
    match data.starts_with(at) {
        true => Err(failed(format!(
            "the store's directory {} is below {}, where it would be hidden",
            data.display(),
            at.display()
        ))),
        false => Ok(()),
    }
}

/// The path without links; its last names need not be there yet.
fn real(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let known = |up: &Path| Some((io::files::canonical(up).ok()?, whole.strip_prefix(up).ok()?));
    match whole.ancestors().find_map(known) {
        Some((up, rest)) => up.join(rest),
        None => whole.clone(),
    }
}

/// What is mounted, and where.
struct Whole<'a> {
    args: &'a Mount,
    at: PathBuf,
    conf: PathBuf,
    /// The file system is made when it is not there.
    makes: bool,
    mounted: OnceLock<Mounted>,
}

impl Whole<'_> {
    /// Of a cluster that runs elsewhere.
    async fn by_itself(&self) -> Result<(), Error> {
        let why = self.serve().await?;
        eprintln!("{why}: stopped");
        Ok(())
    }

    /// Of a store that this process starts, and ends behind it.
    async fn with_store(&self, dir: &DataDir) -> Result<(), Error> {
        let bar = up::spinner("starting");
        let node = Node::start(dir, self.options(dir)?, &|what| {
            service::starting(what);
            bar.set_message(what.to_string());
        })
        .await;
        bar.finish_and_clear();
        let mut node = node?;
        let mut failure = None;
        let until = async {
            self.serve().await.or_else(|e| {
                failure = Some(e);
                Ok("nothing is mounted")
            })
        };
        let served = node.serve(until).await;
        match (served, failure) {
            (Ok(why), None) => {
                eprintln!("{why}: stopping");
                service::stopping(why);
                node.stop().await;
                Ok(())
            }
            (Ok(_), Some(e)) => {
                service::stopping(&e.to_string());
                node.stop().await;
                Err(e)
            }
            (Err(e), _) => {
                eprintln!("stopping: {e}");
                service::stopping(&e.to_string());
                // Nobody would answer who uses it.
                if let Some(Err(e)) = self.mounted.get().map(Mounted::detach) {
                    eprintln!("{}: {e}", self.at.display());
                }
                node.fall().await;
                Err(e)
            }
        }
    }

    /// A store of one machine's files: no ports that another one may have, no copies that nobody asked for.
    fn options(&self, dir: &DataDir) -> Result<StartOptions, Error> {
        let kept = StartOptions {
            osds: self.args.osds,
            osd_size: self.args.osd_size,
            keep_free: self.args.keep_free,
            ..StartOptions::default()
        };
        Ok(match dir.settings()? {
            Some(_) => kept,
            None => StartOptions {
                osds: Some(self.args.osds.unwrap_or(1)),
                mon_port: Some(0),
                msgr1: Some(Msgr1Port::Off),
                ..kept
            },
        })
    }

    async fn serve(&self) -> Result<&'static str, Error> {
        // From the beginning: whoever ends the process while it mounts finds nothing mounted.
        let mut ends = std::pin::pin!(io::task::termination());
        let conf = Conf::read(&self.conf, &self.args.name, self.args.keyring.as_deref()).map_err(failed)?;
        let conf = Conf {
            connect_timeout: WITHIN,
            mon_timeout: Some(WITHIN),
            ..conf
        };
        let client = Client::connect(conf).await.map_err(failed)?;
        let done = self.serve_by(&client, &mut ends).await;
        client.shutdown().await;
        done
    }

    async fn serve_by(
        &self,
        client: &Client,
        until: impl Future<Output = std::io::Result<&'static str>>,
    ) -> Result<&'static str, Error> {
        let fs = match (&self.args.fs, self.makes) {
            (Some(name), _) => name.as_str(),
            (None, true) => NAME,
            (None, false) => "",
        };
        if self.makes {
            make(client, fs).await.map_err(failed)?;
        }
        let options = ::mount::Options {
            fs: fs.to_string(),
            path: self.args.path.clone(),
            at: self.at.clone(),
            read_only: self.args.read_only,
            allow_other: self.args.allow_other,
            session_timeout: self.makes.then_some(OWN_SESSION),
        };
        let ready = |mounted: Option<&Mounted>| {
            if let Some(mounted) = mounted {
                let _ = self.mounted.set(mounted.clone());
            }
            println!("mounted at {}", self.at.display());
            println!("  conf     {}", self.conf.display());
            service::ready(&format!("mounted at {}", self.at.display()));
            service::lives();
        };
        ::mount::serve(client, &options, ready, until)
            .await
            .map_err(failed)
    }
}

/// It may be there.
async fn make(client: &Client, fs: &str) -> Result<(), ClientError> {
    let said = client
        .mon_command(r#"{"prefix": "fs ls", "format": "json"}"#, "")
        .await?;
    let all: serde_json::Value = serde_json::from_slice(&said.output)
        .map_err(|e| ClientError::Malformed(format!("list of file systems: {e}")))?;
    let mut names = all.as_array().into_iter().flatten();
    if names.any(|f| f["name"] == fs) {
        return Ok(());
    }
    let command = serde_json::json!({"prefix": "fs volume create", "name": fs});
    match client.mon_command(&command.to_string(), "").await {
        Err(e) if e.errno() != Errno::EEXIST => Err(e),
        _ => Ok(()),
    }
}
