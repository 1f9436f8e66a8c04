//! Space that the index will need, held behind its file's end.
//!
//! What was accepted has its room in the data file from then on, but the index takes its room when it is written, in a
//! checkpoint. If another program has taken the last of the file system by then, the index grows into what it holds: what was
//! accepted comes to its place, and nothing that grows is accepted any more until there is room.
//!
//! Bound: a store that goes on changing with no room at all can use it up. Not here: whether the host has room
//! enough to hold more (`store.rs`).

use io::disk::DiskFile;
use std::sync::Arc;

/// By default none.
#[derive(Debug, Default)]
pub struct Slack {
    file: Option<Arc<dyn DiskFile>>,
    bytes: u64,
    /// The file's length when it was looked at last.
    len: u64,
    /// From the file's start up to here nothing is missing.
    held: u64,
}

impl Slack {
    pub fn behind(file: Arc<dyn DiskFile>, bytes: u64) -> Self {
        Self {
            file: Some(file),
            bytes,
            len: 0,
            held: 0,
        }
    }

    /// How much of the host's space it wants; half of what it may have serves for a while.
    pub fn missing(&mut self) -> Option<u64> {
        let len = self.file.as_ref()?.len().ok()?;
        if len < self.len {
            // What was held behind the old end went with it.
            self.held = self.held.min(len);
        }
        self.len = len;
        let least = len + self.bytes / 2;
        (self.held < least).then(|| len + self.bytes - self.held.max(len))
    }

    /// That the host cannot is no reason not to serve.
    pub fn hold(&mut self) {
        let Some(file) = &self.file else { return };
        let to = self.len + self.bytes;
        match file.reserve(self.held, to - self.held) {
            Ok(()) => self.held = to,
            Err(e) => tracing::debug!(error = %e, "no space is held for the index"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::disk::{Disk, HostDisk};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_file_has_its_length_and_more_space() {
        let dir = tempfile::tempdir().unwrap();
        let file = HostDisk::new(dir.path()).create("index").unwrap();
        file.write_at(&[1; 4096], 3 << 20).unwrap();
        let mut slack = Slack::behind(file.clone(), 1 << 20);
        // Holes are filled, too; what they take is not known.
        assert_eq!(slack.missing(), Some(1 << 20));
        slack.hold();
        assert_eq!(slack.missing(), None);
        let seen = || std::fs::metadata(dir.path().join("index")).unwrap();
        assert_eq!(seen().len(), (3 << 20) + 4096);
        assert!(
            seen().blocks() * 512 >= (4 << 20) + 4096,
            "{}",
            seen().blocks() * 512
        );
        // It grows into half of that, then more is wanted; cut, it loses what it held.
        file.set_len((7 << 19) + 4096).unwrap();
        assert_eq!(slack.missing(), None);
        file.set_len((7 << 19) + 8192).unwrap();
        assert_eq!(slack.missing(), Some((1 << 19) + 4096));
        slack.hold();
        assert_eq!(slack.missing(), None);
        file.set_len(1 << 20).unwrap();
        assert_eq!(slack.missing(), Some(1 << 20));
        slack.hold();
        assert!(seen().blocks() * 512 >= 2 << 20, "{}", seen().blocks() * 512);
    }

    #[test]
    fn none_is_none() {
        let mut slack = Slack::default();
        slack.hold();
        assert_eq!(slack.missing(), None);
    }
}
