//! QEMU's tools, for formats other than raw: `qemu-img` says what an image is and makes new ones, `qemu-nbd` reads and writes
//! them. Stock programs, each a process that ends with what it was started for.
//!
//! Invariants: the format is always named, so that no tool guesses from an image's content; paths are absolute, so that none
//! is taken for a protocol's address; no call waits without a bound; a running `qemu-nbd` has one client on a socket in a
//! directory that only its owner can enter, and ends when that one leaves.

use super::format::Format;
use super::nbd::Nbd;
use io::sparse::PrivateDir;
use node::Error;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Take};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// `qemu-img` only looks at headers, or writes them.
const TOOL_LIMIT: Duration = Duration::from_secs(30);
/// Until `qemu-nbd` serves: it reads tables of the image first.
const START_LIMIT: Duration = Duration::from_secs(30);
/// One answer of `qemu-nbd`.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// From its client's goodbye until it has closed the image and ended.
const END_LIMIT: Duration = Duration::from_secs(120);
/// `qemu-img check` reads all tables of an image.
const CHECK_LIMIT: Duration = Duration::from_secs(1800);
/// Exit statuses of `qemu-img check`: all is well, it found errors, only space that nobody uses, or has no check of this format.
const CHECK_GOOD: i32 = 0;
const CHECK_CORRUPT: i32 = 2;
const CHECK_LEAKS: i32 = 3;
const CHECK_UNKNOWN: i32 = 63;
const LOOK: Duration = Duration::from_millis(5);
/// What a tool says beyond that is not read.
const SAID_MAX: u64 = 1 << 20;
/// As much of an error is shown.
const SHOWN_MAX: usize = 300;
pub const PACKAGE: &str = "qemu-utils (Debian, Ubuntu) or qemu-img (Fedora, RHEL)";

fn failed(what: impl Into<String>) -> Error {
    Error::Usage(what.into())
}

/// What a child says on a pipe, read beside; dropped with it if nobody asks.
struct Said(std::sync::mpsc::Receiver<Vec<u8>>);

impl Said {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let (sender, receiver) = channel();
        if let Some(pipe) = pipe {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let mut pipe: Take<_> = pipe.take(SAID_MAX);
                let _ = pipe.read_to_end(&mut text);
                let _ = sender.send(text);
            });
        }
        Self(receiver)
    }

    /// Who has ended has said all; a grandchild may hold the pipe.
    fn text(&self) -> Vec<u8> {
        self.0.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
    }
}

/// A child with its outputs; ended and reaped when it is dropped.
struct Process {
    name: &'static str,
    child: Child,
    out: Said,
    err: Said,
}

impl Process {
    fn start(name: &'static str, args: &[&OsStr]) -> Result<Self, Error> {
        let mut command = Command::new(name);
        command.args(args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // Messages are looked into; and a signal from the terminal is ours to handle: the child would leave first.
        command.env("LC_ALL", "C").process_group(0);
        let mut child = command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => failed(format!(
                "{name} is needed for formats other than raw, and is not here: install {PACKAGE}"
            )),
            _ => failed(format!("{name}: {e}")),
        })?;
        let (out, err) = (Said::of(child.stdout.take()), Said::of(child.stderr.take()));
        Ok(Self {
            name,
            child,
            out,
            err,
        })
    }

    /// Its exit status, -1 where a signal ended it; None: it runs on.
    fn ended(&mut self) -> Result<Option<i32>, Error> {
        let status = self.child.try_wait();
        let status = status.map_err(|e| failed(format!("{}: {e}", self.name)))?;
        Ok(status.map(|s| s.code().unwrap_or(-1)))
    }

    fn wait(&mut self, limit: Duration, stop: &AtomicBool) -> Result<i32, Error> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(failed("interrupted"));
            }
            if Instant::now() >= end {
                let (name, s) = (self.name, limit.as_secs());
                return Err(failed(format!("{name} has not ended within {s} s")));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Its own words about why it failed: a line, without control characters, since an image may have a part in it.
    fn complaint(&self) -> Error {
        let text = self.err.text();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let line: String = lines.join("; ").chars().take(SHOWN_MAX).collect();
        let line = line.strip_prefix(&format!("{}: ", self.name)).unwrap_or(&line);
        match line {
            "" => failed(format!("{} failed and did not say why", self.name)),
            line => failed(format!(
                "{}: {}",
                self.name,
                line.escape_debug().to_string().replace("\\'", "'")
            )),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs `qemu-img` to its end; what it said.
fn qemu_img(args: &[&OsStr]) -> Result<Vec<u8>, Error> {
    let mut process = Process::start("qemu-img", args)?;
    match process.wait(TOOL_LIMIT, &AtomicBool::new(false))? {
        0 => Ok(process.out.text()),
        _ => Err(process.complaint()),
    }
}

/// An error if tables of the image are broken, or name places beyond the file's end: those would be read as zeros.
pub fn check(path: &Path, format: Format, stop: &AtomicBool) -> Result<(), Error> {
    let words = ["check", "--output", "json", "-f", format.driver(), "--"].map(OsStr::new);
    let mut process = Process::start("qemu-img", &[&words[..], &[path.as_os_str()]].concat())?;
    match process.wait(CHECK_LIMIT, stop)? {
        CHECK_GOOD | CHECK_LEAKS | CHECK_UNKNOWN => Ok(()),
        CHECK_CORRUPT => {
            let said: Value = serde_json::from_slice(&process.out.text()).unwrap_or_default();
            let errors = said["corruptions"]
                .as_u64()
                .map_or("errors".into(), |n| format!("{n} errors"));
            Err(failed(format!(
                "the file is damaged or cut short: qemu-img check finds {errors}"
            )))
        }
        _ => Err(process.complaint()),
    }
}

/// What `qemu-img info` says of an image.
#[derive(Debug, PartialEq, Eq)]
pub struct Info {
    pub virtual_size: u64,
    /// Other files that its content is read from.
    pub others: Vec<String>,
}

pub fn info(path: &Path, format: Format) -> Result<Info, Error> {
    let words = ["info", "--output", "json", "-f", format.driver(), "--"].map(OsStr::new);
    let said = qemu_img(&[&words[..], &[path.as_os_str()]].concat())?;
    read_info(&said, path).ok_or_else(|| failed("qemu-img info said what cannot be understood"))
}

fn read_info(said: &[u8], path: &Path) -> Option<Info> {
    let info: Value = serde_json::from_slice(said).ok()?;
    let named = ["full-backing-filename", "backing-filename"];
    let mut others: Vec<String> = named.iter().filter_map(|n| text(&info[*n])).take(1).collect();
    let data = &info["format-specific"]["data"];
    others.extend(text(&data["data-file"]));
    let extents = data["extents"].as_array().into_iter().flatten();
    let extents = extents.filter_map(|e| text(&e["filename"]));
    others.extend(extents.filter(|e| Path::new(e) != path));
    Some(Info {
        virtual_size: info["virtual-size"].as_u64()?,
        others,
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(|t| t.escape_debug().to_string())
}

/// A new image; `path` must not exist, which the caller made sure of.
pub fn create(path: &Path, format: Format, size: u64) -> Result<(), Error> {
    let size = size.to_string();
    let words = ["create", "-q", "-f", format.driver(), "--"].map(OsStr::new);
    qemu_img(&[&words[..], &[path.as_os_str(), OsStr::new(&size)]].concat()).map(drop)
}

/// A `qemu-nbd` with one image, and the connection to it.
pub struct Served {
    pub nbd: Option<Nbd<UnixStream>>,
    process: Process,
}

impl Served {
    pub fn start(path: &Path, format: Format, read_only: bool) -> Result<Self, Error> {
        let dir = PrivateDir::new("skep-image-", &io::SystemRandom);
        let dir = dir.map_err(|e| failed(format!("a directory among the temporary files: {e}")))?;
        let socket = dir.path().join("nbd");
        let format = format!("--format={}", format.driver());
        let mut args = vec![OsStr::new(&format), OsStr::new("--socket"), socket.as_os_str()];
        args.extend(read_only.then_some(OsStr::new("--read-only")));
        args.extend([OsStr::new("--"), path.as_os_str()]);
        let mut process = Process::start("qemu-nbd", &args)?;
        let stream = connect(&mut process, &socket)?;
        // Nobody else shall come, and nothing shall stay, even if this process is killed.
        drop(dir);
        let nbd = open(stream).map_err(|e| {
            match process.wait(Duration::from_secs(1), &AtomicBool::new(false)) {
                Ok(_) => process.complaint(),
                Err(_) => failed(format!("qemu-nbd: {e}")),
            }
        })?;
        Ok(Self {
            nbd: Some(nbd),
            process,
        })
    }

    pub fn nbd(&mut self) -> std::io::Result<&mut Nbd<UnixStream>> {
        let gone = || std::io::Error::other("qemu-nbd has ended");
        self.nbd.as_mut().ok_or_else(gone)
    }

    /// Closes the image, and waits until that is done.
    pub fn end(mut self) -> Result<(), Error> {
        if let Some(nbd) = self.nbd.take() {
            nbd.close().map_err(|e| failed(format!("qemu-nbd: {e}")))?;
        }
        match self.process.wait(END_LIMIT, &AtomicBool::new(false))? {
            0 => Ok(()),
            _ => Err(self.process.complaint()),
        }
    }
}

fn open(stream: UnixStream) -> std::io::Result<Nbd<UnixStream>> {
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    Nbd::open(stream)
}

/// Until the socket is there and listens.
fn connect(process: &mut Process, socket: &Path) -> Result<UnixStream, Error> {
    let end = Instant::now() + START_LIMIT;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(_) if process.ended()?.is_some() => return Err(process.complaint()),
            Err(_) if Instant::now() < end => std::thread::sleep(LOOK),
            Err(e) => return Err(failed(format!("qemu-nbd does not serve the image: {e}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_qemu_img_says() {
        let of = |text: &str| read_info(text.as_bytes(), Path::new("/d/a.vmdk"));
        let others = |text: &str| of(text).unwrap().others;
        let alone =
            r#"{"virtual-size": 512, "format-specific": {"data": {"extents": [{"filename": "/d/a.vmdk"}]}}}"#;
        let want = Info {
            virtual_size: 512,
            others: vec![],
        };
        assert_eq!(of(alone), Some(want));
        let backed = r#"{"virtual-size": 512, "backing-filename": "b", "full-backing-filename": "/d/b"}"#;
        assert_eq!(others(backed), ["/d/b"]);
        let split = r#"{"virtual-size": 1, "format-specific": {"data": {"extents": [{"filename": "/etc/x\u001b"}]}}}"#;
        assert_eq!(others(split), ["/etc/x\\u{1b}"]);
        let apart = r#"{"virtual-size": 1, "format-specific": {"data": {"data-file": "x"}}}"#;
        assert_eq!(others(apart), ["x"]);
        for bad in ["", "[]", "{}", r#"{"virtual-size": -1}"#] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
