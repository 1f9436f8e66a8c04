//! A disk file that is read: pieces that may hold data, one after the other.

use super::digest::{PIECE, length};
use super::format::{self, Format};
use super::nbd::Stretch;
use super::qemu::{self, Served};
use io::sparse::SparseFile;
use node::Error;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// How a file is taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// In place of what its content says.
    pub format: Option<Format>,
    /// Other files that it names are read.
    pub allow_backing: bool,
}

pub struct Source {
    kind: Kind,
    format: Format,
    size: u64,
    /// What is looked at next.
    at: u64,
}

enum Kind {
    Raw(SparseFile),
    /// With what is known of what follows: where each stretch ends, and whether it is zeros.
    Served(Box<Served>, VecDeque<(u64, bool)>),
}

fn failed(what: impl Into<String>) -> Error {
    Error::Usage(what.into())
}

impl Source {
    /// `stop` ends what may take long.
    pub fn open(path: &Path, terms: Terms, stop: &AtomicBool) -> Result<Self, Error> {
        let file = SparseFile::open(path).map_err(|e| failed(e.to_string()))?;
        let (head, tail) = ends(&file).map_err(|e| failed(e.to_string()))?;
        let format = terms.format.unwrap_or_else(|| format::of(&head, &tail));
        if let Some(why) = format::outside(format, &head).filter(|_| !terms.allow_backing) {
            return Err(refused(format, why));
        }
        if format::is_cut(format, &head, file.size()) {
            return Err(failed(
                "the file is cut short: data that it names lie behind its end",
            ));
        }
        if format == Format::Raw {
            return Ok(Self {
                size: file.size(),
                kind: Kind::Raw(file),
                format,
                at: 0,
            });
        }
        Self::serve(&absolute(path)?, format, terms.allow_backing, stop)
    }

    fn serve(path: &Path, format: Format, allow_backing: bool, stop: &AtomicBool) -> Result<Self, Error> {
        let info = qemu::info(path, format)?;
        if let Some(other) = info.others.first().filter(|_| !allow_backing) {
            return Err(refused(format, &format!("it is read together with {other}")));
        }
        qemu::check(path, format, stop)?;
        let served = Served::start(path, format, true)?;
        let size = served.nbd.as_ref().map_or(0, |n| n.size());
        if size != info.virtual_size {
            let said = info.virtual_size;
            return Err(failed(format!("qemu-nbd shows {size} bytes, qemu-img {said}")));
        }
        Ok(Self {
            kind: Kind::Served(Box::new(served), VecDeque::new()),
            format,
            size,
            at: 0,
        })
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Looks no further than that: some formats round the size up.
    pub fn limit(&mut self, size: u64) -> Result<(), Error> {
        if self.size < size {
            return Err(failed(format!("it has {} bytes in place of {size}", self.size)));
        }
        self.size = size;
        Ok(())
    }

    /// The next piece that is not known to be zeros, whole; None: there are no more.
    pub fn next(&mut self) -> std::io::Result<Option<(u64, Vec<u8>)>> {
        let Some(data) = self.data_from(self.at)? else {
            return Ok(None);
        };
        let piece = data / PIECE;
        let mut buf = vec![0; length(self.size, piece) as usize];
        match &mut self.kind {
            Kind::Raw(file) => file.read_at(piece * PIECE, &mut buf)?,
            Kind::Served(served, _) => served.nbd()?.read_at(piece * PIECE, &mut buf)?,
        }
        self.at = (piece + 1) * PIECE;
        Ok(Some((piece, buf)))
    }

    /// The first place from `at` on that may hold data, below the size.
    fn data_from(&mut self, mut at: u64) -> std::io::Result<Option<u64>> {
        let size = self.size;
        let (served, known) = match &mut self.kind {
            Kind::Raw(file) => return Ok(file.data_from(at)?.filter(|d| *d < size)),
            Kind::Served(served, known) => (served, known),
        };
        while at < size {
            match known.front() {
                Some((end, _)) if *end <= at => drop(known.pop_front()),
                Some((_, false)) => return Ok(Some(at)),
                Some((end, true)) => at = *end,
                None => {
                    let mut end = at;
                    known.extend(served.nbd()?.status(at)?.iter().map(|s: &Stretch| {
                        end = end.saturating_add(s.length);
                        (end, s.zero)
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Ends who served it; an image that turns out broken at its end is told.
    pub fn end(self) -> Result<(), Error> {
        match self.kind {
            Kind::Raw(_) => Ok(()),
            Kind::Served(served, _) => served.end(),
        }
    }
}

fn refused(format: Format, why: &str) -> Error {
    failed(format!(
        "refused, since it is {format} and {why}; --allow-backing imports it with what is read there"
    ))
}

/// The file's first and last bytes, as far as formats are told by them.
fn ends(file: &SparseFile) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let size = file.size();
    let mut head = vec![0; size.min(format::HEAD as u64) as usize];
    let mut tail = vec![0; size.min(format::TAIL as u64) as usize];
    file.read_at(0, &mut head)?;
    file.read_at(size - tail.len() as u64, &mut tail)?;
    Ok((head, tail))
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    io::files::canonical(path).map_err(|e| failed(e.to_string()))
}
