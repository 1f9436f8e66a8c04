//! From an empty directory to a mounted one, and back.

use crate::fs::Files;
use crate::shared::Shared;
use cephfs::Mount;
use client::Client;
use fuser::{Config, MountOption, Session, SessionACL};
use io::mounts::{self, Mounted, Point};
use io::task::{self, Background};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KIND: &str = "skep";
/// What the table of mounts calls ours; the kind is that of any program, where root mounts.
const SOURCE: &str = "skep:";
const DEVICE: &str = "/dev/fuse";
/// Threads that read what the kernel asks; tasks carry it out.
const READERS: usize = 2;
/// A call waits for the server through restarts and failovers.
const WITHIN: Duration = Duration::from_secs(300);
/// That programs which have files open get to close them, once the directory is taken away.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// That what was answered is durable at the end: who stops services kills them after 90 s.
const SAFE_WITHIN: Duration = Duration::from_secs(60);

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Options {
    /// The file system.
    pub fs: String,
    /// What of it is mounted, from its root.
    pub path: String,
    /// As [`claim`] gave it.
    pub at: PathBuf,
    pub read_only: bool,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// That the server waits for us without a word, also after it was started again.
    pub session_timeout: Option<Duration>,
}

#[derive(Debug)]
pub enum Error {
    /// The directory, and why nothing can be mounted there.
    Point(PathBuf, String),
    Files(client::Error),
    Io(&'static str, std::io::Error),
    /// The metadata server lets us do nothing any more.
    Over,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Point(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Files(e) => write!(f, "{e}"),
            Self::Io(what, e) => write!(f, "{what}: {e}"),
            Self::Over => write!(f, "the metadata server has refused this client: mount again"),
        }
    }
}

impl std::error::Error for Error {}

impl From<client::Error> for Error {
    fn from(e: client::Error) -> Self {
        Self::Files(e)
    }
}

/// Looks whether something can be mounted at a directory, and says its whole path. What a dead program of ours left mounted there is
/// taken away.
pub fn claim(path: &Path) -> Result<PathBuf, Error> {
    let refuse = |why: &str| Error::Point(path.to_path_buf(), why.to_string());
    let told = |e: std::io::Error| refuse(&e.to_string());
    if !Path::new(DEVICE).exists() {
        return Err(refuse(
            "this machine has no /dev/fuse: load the kernel's module (modprobe fuse), or give it to the container",
        ));
    }
    let at = mounts::resolve(path).map_err(told)?;
    match mounts::look(&at).map_err(told)? {
        Point::Free => Ok(at),
        Point::Missing => Err(refuse("there is no such directory")),
        Point::NoDirectory => Err(refuse("it is no directory")),
        Point::NotEmpty => Err(refuse("the directory is not empty, and would be hidden")),
        Point::Mounted(kind) => Err(refuse(&format!("a file system is mounted there ({kind})"))),
        Point::Dead(kind) => {
            let ours = Mounted::find(&at, SOURCE).map_err(told)?.ok_or_else(|| {
                refuse(&format!(
                    "a file system whose program has ended is mounted there ({kind}): umount it"
                ))
            })?;
            ours.detach().map_err(told)?;
            tracing::info!(
                "{}: what a process that has ended left mounted is taken away",
                at.display()
            );
            claim(path)
        }
    }
}

/// Mounts, says so with what it mounted, and serves until `until` completes or somebody unmounts it; then all is written, and nothing mounted. Says why it
/// ended.
pub async fn serve(
    client: &Client,
    options: &Options,
    ready: impl FnOnce(Option<&Mounted>),
    until: impl Future<Output = std::io::Result<&'static str>>,
) -> Result<&'static str, Error> {
    let how = cephfs::Options {
        timeout: WITHIN,
        session_timeout: options.session_timeout,
        full_fails: true,
        early: true,
        root: format!("/{}", options.path.trim_matches('/')),
        ..cephfs::Options::new(&options.fs)
    };
    let mount = Mount::connect(client, how).await?;
    let done = serve_mount(&mount, options, ready, until).await;
    let safe = task::timeout(SAFE_WITHIN, mount.sync()).await;
    let safe = safe.unwrap_or(Err(client::Error::TimedOut));
    mount.close().await;
    if let (Err(_), Err(e)) = (&done, &safe) {
        tracing::error!("changes that were answered may be lost: {e}");
    }
    let why = done?;
    safe?;
    Ok(why)
}

async fn serve_mount(
    mount: &Mount,
    options: &Options,
    ready: impl FnOnce(Option<&Mounted>),
    until: impl Future<Output = std::io::Result<&'static str>>,
) -> Result<&'static str, Error> {
    let root = mount.stat(options.path.trim_matches('/')).await?;
    if !crate::attr::is_dir(root.mode) {
        return Err(Error::Point(
            options.path.clone().into(),
            "it is no directory".into(),
        ));
    }
    let threads = |e| Error::Io("threads of the mount", e);
    let shared = Shared::new(mount.clone(), root.ino);
    let background = Background::start("mount").map_err(threads)?;
    let files = Files::new(shared.clone(), background);
    let (at, config) = (options.at.clone(), config(options));
    // Mounting waits for the kernel, which may ask already.
    let session = task::aside("fuse-mount", move || Session::new(files, &at, &config)).await;
    let session = session
        .map_err(threads)?
        .map_err(|e| Error::Point(options.at.clone(), format!("cannot be mounted: {e}")))?;
    let ours = Mounted::find(&options.at, SOURCE).unwrap_or_default();
    let mut served = Box::pin(task::aside("fuse", move || session.run()));
    ready(ours.as_ref());
    let why = tokio::select! {
        biased;
        ended = &mut served => {
            ended.map_err(threads)?.map_err(|e| Error::Io("the kernel's side of the mount", e))?;
            "unmounted"
        }
        why = until => {
            take_away(&options.at, ours, &mut served).await;
            why.map_err(|e| Error::Io("signals", e))?
        }
        () = over(mount) => {
            take_away(&options.at, ours, &mut served).await;
            return Err(Error::Over);
        }
    };
    shared.close_all();
    Ok(why)
}

/// Completes when no call will be answered any more.
async fn over(mount: &Mount) {
    while !mount.is_over() {
        task::sleep(LOOK_EVERY).await;
    }
}

fn config(options: &Options) -> Config {
    let mut all = Config::default();
    all.mount_options = vec![
        MountOption::FSName(format!("{SOURCE}{}", options.fs)),
        MountOption::Subtype(KIND.into()),
        MountOption::DefaultPermissions,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    if options.read_only {
        all.mount_options.push(MountOption::RO);
    }
    all.acl = match options.allow_other {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    all.n_threads = Some(READERS);
    all
}

/// Where programs use it, it goes from the directory at once, with all they have written, and from them when they close what they have
/// open; they are not waited for long. What others have mounted over it stays, and it below.
async fn take_away<T>(at: &Path, ours: Option<Mounted>, served: &mut (impl Future<Output = T> + Unpin)) {
    let done = match ours {
        Some(ours) => task::aside("unmount", move || take(&ours)).await.flatten(),
        None => Err(std::io::Error::other(
            "what is mounted there is not known, and is left",
        )),
    };
    if let Err(e) = done {
        tracing::warn!("{}: {e}", at.display());
    }
    if task::timeout(CLOSE_WITHIN, served).await.is_err() {
        tracing::warn!(
            "{}: programs still have files open, which fail from now on",
            at.display()
        );
    }
}

fn take(ours: &Mounted) -> std::io::Result<()> {
    ours.check()?;
    if let Err(e) = ours.unmount() {
        tracing::warn!("{e}: the mount is taken away from programs that use it");
        let synced = ours.sync();
        return ours.detach().and(synced);
    }
    Ok(())
}
