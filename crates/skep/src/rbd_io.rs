//! `skep rbd-io` (hidden): our RBD client driven by lines on stdin, for tests in mixed company with other clients.
//!
//! Each line is a command with its arguments; each is answered by one line, `ok ...` or `error ENAME text`. Data come from files
//! and go to files. One image is open at a time, and stays so, with its lock, between commands.

use crate::args::RbdIo;
use ::client::{Client, Conf, IoCtx};
use node::Error;
use rbd::directory::{self, NewImage};
use rbd::{Image, ImageOptions, Layout, image};
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;
use types::Errno;

/// While no line comes the image's own tasks go on: notifies are answered, the lock is handed over.
const POLL: Duration = Duration::from_millis(2);

pub fn run(args: &RbdIo) -> Result<(), Error> {
    let cluster = &args.cluster;
    let conf = Conf::read(&cluster.conf, &cluster.name, cluster.keyring.as_deref()).map_err(failed)?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let done = io::task::block_on(async {
        let client = Client::connect(conf).await.map_err(failed)?;
        let mut io = client.pool(&args.pool).await.map_err(failed)?;
        if let Some(namespace) = &args.namespace {
            io.set_namespace(namespace.clone());
        }
        let mut session = Session { io, image: None };
        session.serve(&lines).await;
        if let Some(image) = session.image.take() {
            image.close().await.map_err(|e| Error::Usage(e.to_string()))?;
        }
        client.shutdown().await;
        Ok(())
    });
    done.map_err(|source| Error::Io {
        what: "runtime".into(),
        source,
    })?
}

fn failed(e: ::client::Error) -> Error {
    Error::Usage(e.to_string())
}

struct Session {
    io: IoCtx,
    image: Option<Image>,
}

type Answer = rbd::Result<String>;

fn bad(what: impl Into<String>) -> rbd::Error {
    rbd::Error::refused(Errno::EINVAL, what)
}

fn number(text: &str) -> rbd::Result<u64> {
    text.parse().map_err(|_| bad(format!("'{text}' is no number")))
}

/// `key=value` among the words.
fn option<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|w| w.strip_prefix(key)?.strip_prefix('='))
}

impl Session {
    async fn serve(&mut self, lines: &Receiver<String>) {
        loop {
            let line = match lines.try_recv() {
                Ok(line) => line,
                Err(TryRecvError::Empty) => {
                    io::task::sleep(POLL).await;
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
            };
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some((command, rest)) = words.split_first() else {
                continue;
            };
            match self.one(command, rest).await {
                Ok(said) => println!("ok {said}"),
                Err(e) => println!("error {} {}", e.errno().name(), e.to_string().replace('\n', " ")),
            }
            let _ = std::io::stdout().flush();
        }
    }

    async fn one(&mut self, command: &str, words: &[&str]) -> Answer {
        match (command, words) {
            ("create", [name, size, options @ ..]) => self.create(name, number(size)?, options).await,
            ("list", []) => {
                let names = directory::list(&self.io).await?;
                Ok(names.keys().cloned().collect::<Vec<_>>().join(" "))
            }
            ("rename", [from, to]) => directory::rename(&self.io, from, to).await.map(nothing),
            ("remove", [name]) => image::remove(&self.io, name, &|_, _| {}).await.map(nothing),
            ("clone", [parent, snap, child]) => {
                let (io, new) = (&self.io, NewImage::of_size(0)?);
                image::clone_image(io, parent, snap, io, child, &new).await
            }
            ("open", [name, options @ ..]) => self.open(name, options).await,
            ("close", []) => match self.image.take() {
                Some(image) => image.close().await.map(nothing),
                None => Err(bad("no image is open")),
            },
            _ => self.on_image(command, words).await,
        }
    }

    async fn create(&self, name: &str, size: u64, options: &[&str]) -> Answer {
        let given = |key: &str| option(options, key).map(number).transpose();
        let mut new = NewImage::of_size(size)?;
        let order = given("order")?.unwrap_or(22) as u8;
        new.layout = Layout::new(order, given("unit")?.unwrap_or(0), given("count")?.unwrap_or(0))?;
        if let Some(features) = given("features")? {
            new.features = features;
        }
        if let Some(pool) = option(options, "data-pool") {
            new.data_pool = Some(self.io.client().pool(pool).await?.pool_id());
        }
        directory::create(&self.io, name, &new).await
    }

    async fn open(&mut self, name: &str, options: &[&str]) -> Answer {
        if self.image.is_some() {
            return Err(bad("an image is open"));
        }
        let how = ImageOptions {
            read_only: options.contains(&"ro"),
            snap: option(options, "snap").map(str::to_string),
            encrypted: options.contains(&"encrypted"),
        };
        let image = match option(options, "id") {
            Some(id) => Image::open_id(&self.io, id, &how).await?,
            None => Image::open(&self.io, name, &how).await?,
        };
        let id = image.id().to_string();
        self.image = Some(image);
        Ok(id)
    }

    async fn on_image(&self, command: &str, words: &[&str]) -> Answer {
        let image = self.image.as_ref().ok_or_else(|| bad("no image is open"))?;
        match (command, words) {
            ("read", [at, length, file]) => {
                let data = image.read(number(at)?, number(length)?).await?;
                std::fs::write(file, &data).map_err(|e| bad(format!("{file}: {e}")))?;
                Ok(data.len().to_string())
            }
            ("write", [at, file]) => {
                let data = std::fs::read(file).map_err(|e| bad(format!("{file}: {e}")))?;
                image.write(number(at)?, data).await.map(nothing)
            }
            ("fill", [at, length, byte]) => {
                let data = vec![number(byte)? as u8; number(length)? as usize];
                image.write(number(at)?, data).await.map(nothing)
            }
            ("discard", [at, length]) => image.discard(number(at)?, number(length)?).await.map(nothing),
            ("zero", [at, length]) => image
                .write_zeroes(number(at)?, number(length)?)
                .await
                .map(nothing),
            ("flush", []) => image.flush().await.map(nothing),
            ("size", []) => Ok(image.size().await?.to_string()),
            ("features", []) => Ok(image.features().await?.to_string()),
            ("owner", []) => Ok(image.owns_lock().to_string()),
            ("map", []) => Ok(format!("{:?}", image.uses_object_map())),
            ("resize", [size, options @ ..]) => {
                let shrink = options.contains(&"shrink");
                image.resize(number(size)?, shrink).await.map(nothing)
            }
            ("snap-create", [name]) => Ok(image.create_snap(name).await?.to_string()),
            ("snap-remove", [name]) => image.remove_snap(name).await.map(nothing),
            ("snap-protect", [name]) => image.protect_snap(name, true).await.map(nothing),
            ("snap-unprotect", [name]) => image.protect_snap(name, false).await.map(nothing),
            ("snap-list", []) => {
                let snaps = image.snaps().await?;
                Ok(snaps.iter().map(|s| s.name.clone()).collect::<Vec<_>>().join(" "))
            }
            ("flatten", []) => image.flatten().await.map(nothing),
            _ => Err(bad(format!("unknown command, or wrong arguments: {command}"))),
        }
    }
}

fn nothing((): ()) -> String {
    String::new()
}
