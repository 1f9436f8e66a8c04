//! A disk file that is made. Until it is finished it goes when it is dropped.

use super::digest::{PIECE, is_zero};
use super::format::Format;
use super::qemu::{self, Served};
use io::sparse::SparseFile;
use node::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Zeros in such units are left out.
const UNIT: usize = 64 << 10;

pub struct Target {
    kind: Kind,
    _made: Made,
}

enum Kind {
    Raw(SparseFile),
    Served(Box<Served>),
}

/// A file that is removed again, unless it is kept.
pub struct Made {
    path: PathBuf,
    keep: bool,
}

impl Made {
    pub fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.keep {
            // Half an image is worth nothing; that it stays has no other remedy.
            let _ = io::files::remove(&self.path);
        }
    }
}

fn failed(what: impl std::fmt::Display) -> Error {
    Error::Usage(what.to_string())
}

impl Target {
    /// A file of `size` bytes of zeros; `path` must not exist.
    pub fn create(path: &Path, format: Format, size: u64) -> Result<Self, Error> {
        if format == Format::Vhd {
            let what =
                "vhd can be read, not written: its sizes are rounded to an old disk geometry; use vhdx";
            return Err(failed(what));
        }
        let file = SparseFile::create(path, if format == Format::Raw { size } else { 0 }).map_err(failed)?;
        let made = Made {
            path: path.to_path_buf(),
            keep: false,
        };
        let kind = match format {
            Format::Raw => Kind::Raw(file),
            other => {
                let path = io::files::canonical(path).map_err(failed)?;
                // The name is ours; the tool fills what has it.
                qemu::create(&path, other, size)?;
                Kind::Served(Box::new(Served::start(&path, other, false)?))
            }
        };
        if let Kind::Served(served) = &kind {
            let has = served
                .nbd
                .as_ref()
                .filter(|n| !n.is_read_only())
                .map_or(0, |n| n.size());
            if has < size {
                return Err(failed(format!("the new file has {has} bytes in place of {size}")));
            }
        }
        Ok(Self { kind, _made: made })
    }

    /// The part of a piece that is not zeros.
    pub fn write(&mut self, piece: u64, data: &[u8]) -> std::io::Result<()> {
        for run in runs(data, UNIT) {
            let (at, part) = (piece * PIECE + run.start as u64, &data[run]);
            match &mut self.kind {
                Kind::Raw(file) => file.write_at(at, part)?,
                Kind::Served(served) => served.nbd()?.write_at(at, part)?,
            }
        }
        Ok(())
    }

    /// Durable; what is left is to keep it.
    pub fn finish(self) -> Result<Made, Error> {
        match self.kind {
            Kind::Raw(file) => file.sync().map_err(failed)?,
            Kind::Served(mut served) => {
                served.nbd().and_then(|n| n.flush()).map_err(failed)?;
                served.end()?;
            }
        }
        Ok(self._made)
    }
}

/// What of `data` is not zeros, in units of `unit` bytes.
pub fn runs(data: &[u8], unit: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (i, part) in data.chunks(unit).enumerate() {
        if is_zero(part) {
            continue;
        }
        let (start, end) = (i * unit, i * unit + part.len());
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out() {
        let mut data = vec![0; 10];
        assert!(runs(&data, 2).is_empty());
        for at in [2, 5, 9] {
            data[at] = 1;
        }
        assert_eq!(runs(&data, 2), [2..6, 8..10]);
        assert_eq!(runs(&[1, 0, 0, 1, 0, 0, 1], 2), [0..4, 6..7]);
    }

    #[test]
    fn what_is_not_kept_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.raw");
        let mut target = Target::create(&path, Format::Raw, 3 * PIECE + 1).unwrap();
        assert!(Target::create(&path, Format::Raw, 1).is_err(), "it exists");
        target.write(1, b"data").unwrap();
        drop(target.finish().unwrap());
        assert!(!path.exists());
        Target::create(&path, Format::Raw, 1)
            .unwrap()
            .finish()
            .unwrap()
            .keep();
        assert_eq!(std::fs::read(&path).unwrap(), [0]);
        assert!(Target::create(&dir.path().join("x"), Format::Vhd, 1).is_err());
    }
}
