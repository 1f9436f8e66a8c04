//! A file of lines that is appended to and moved aside when it is full: `NAME`, `NAME.1` (the one before) and so on, the
//! oldest removed. For its owner alone. Nothing is flushed: a host that loses power may lose the last lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    /// None: to be opened (again).
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
    /// Older files beside the present one.
    kept: u32,
}

impl LogFile {
    /// Opens nothing yet.
    pub fn new(path: &Path, bytes_max: u64, kept: u32) -> Self {
        Self {
            path: path.to_path_buf(),
            file: None,
            bytes: 0,
            bytes_max,
            kept,
        }
    }

    /// A line (with its end) as one write. After an error the file is opened anew with the next line.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let done = self.try_append(line);
        if done.is_err() {
            self.file = None;
        }
        done
    }

    fn try_append(&mut self, line: &[u8]) -> io::Result<()> {
        self.open()?;
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.bytes_max {
            self.rotate()?;
            self.open()?;
        }
        if let Some(file) = &mut self.file {
            file.write_all(line)?;
            self.bytes += line.len() as u64;
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        self.bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    fn numbered(&self, n: u32) -> PathBuf {
        match n {
            0 => self.path.clone(),
            n => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{n}"));
                name.into()
            }
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        let absent_is_fine = |done: io::Result<()>| match done {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        };
        if self.kept == 0 {
            return absent_is_fine(fs::remove_file(&self.path));
        }
        for n in (0..self.kept).rev() {
            absent_is_fine(fs::rename(self.numbered(n), self.numbered(n + 1)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_few_bounded_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, "old\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut log = LogFile::new(&path, 100, 2);
        for n in 0..100 {
            log.append(format!("line {n:03}\n").as_bytes()).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
        let text: String = ["audit.log.2", "audit.log.1", "audit.log"]
            .iter()
            .map(|n| fs::read_to_string(dir.path().join(n)).unwrap())
            .collect();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() > 20 && lines.last() == Some(&"line 099"), "{lines:?}");
        assert!(lines.windows(2).all(|w| w[0] < w[1]), "none is lost between");
        for name in names {
            let meta = fs::metadata(dir.path().join(name)).unwrap();
            assert!(meta.len() <= 100 && meta.permissions().mode() & 0o777 == 0o600);
        }
    }

    /// A disk that fails is tried again with each line.
    #[test]
    fn it_goes_on_after_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/audit.log");
        let mut log = LogFile::new(&path, 100, 2);
        assert!(log.append(b"lost\n").is_err());
        fs::create_dir(dir.path().join("later")).unwrap();
        log.append(b"kept\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept\n");
    }
}
