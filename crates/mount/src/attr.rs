//! Attributes, as the server and as the kernel have them.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use messages::fs::{InodeStat, SetAttr, setattr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::Utime;

const KIND: u32 = 0o170_000;
/// What `st_blocks` counts.
const SECTOR: u64 = 512;
const BLOCK_MIN: u32 = 4096;

pub fn kind_of(mode: u32) -> FileType {
    match mode & KIND {
        0o010_000 => FileType::NamedPipe,
        0o020_000 => FileType::CharDevice,
        0o040_000 => FileType::Directory,
        0o060_000 => FileType::BlockDevice,
        0o120_000 => FileType::Symlink,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

pub fn is_dir(mode: u32) -> bool {
    mode & KIND == 0o040_000
}

fn time(at: Utime) -> SystemTime {
    UNIX_EPOCH + at.to_duration()
}

/// What is before 1970 cannot be said to the server.
fn utime(at: SystemTime) -> Utime {
    Utime::from_unix(at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

pub fn of_stat(s: &InodeStat, ino: u64) -> FileAttr {
    let is_dir = is_dir(s.mode);
    // As ceph-fuse has it: all that lies below a directory, and two names of its own with those of directories in it.
    let size = if is_dir { s.rbytes } else { s.size };
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: if is_dir { 1 } else { s.size.div_ceil(SECTOR) },
        atime: time(s.atime),
        mtime: time(s.mtime),
        ctime: time(s.ctime),
        crtime: time(s.btime),
        kind: kind_of(s.mode),
        perm: (s.mode & 0o7777) as u16,
        nlink: match is_dir && s.nlink > 0 {
            true => 2 + u32::try_from(s.subdirs).unwrap_or(u32::MAX - 2),
            false => s.nlink,
        },
        uid: s.uid,
        gid: s.gid,
        rdev: s.rdev,
        blksize: s.layout.stripe_unit.max(BLOCK_MIN),
        flags: 0,
    }
}

/// What is to be set; the others of the kernel's wishes are not for a server.
pub fn wished(
    mode: Option<u32>,
    (uid, gid): (Option<u32>, Option<u32>),
    size: Option<u64>,
    (atime, mtime): (Option<TimeOrNow>, Option<TimeOrNow>),
) -> SetAttr {
    let mut set = SetAttr::default();
    if let Some(mode) = mode {
        set.mode = mode & 0o7777;
        set.mask |= setattr::MODE;
    }
    if let Some(uid) = uid {
        set.uid = uid;
        set.mask |= setattr::UID;
    }
    if let Some(gid) = gid {
        set.gid = gid;
        set.mask |= setattr::GID;
    }
    if let Some(size) = size {
        set.size = size;
        set.mask |= setattr::SIZE;
    }
    match atime {
        Some(TimeOrNow::SpecificTime(at)) => {
            set.atime = utime(at);
            set.mask |= setattr::ATIME;
        }
        Some(TimeOrNow::Now) => set.mask |= setattr::ATIME_NOW,
        None => {}
    }
    match mtime {
        Some(TimeOrNow::SpecificTime(at)) => {
            set.mtime = utime(at);
            set.mask |= setattr::MTIME;
        }
        Some(TimeOrNow::Now) => set.mask |= setattr::MTIME_NOW,
        None => {}
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_those_of_the_server() {
        let file = InodeStat {
            mode: 0o104_751,
            size: 1025,
            nlink: 2,
            ..InodeStat::default()
        };
        let a = of_stat(&file, 7);
        assert_eq!((a.ino.0, a.size, a.blocks, a.nlink), (7, 1025, 3, 2));
        assert_eq!((a.kind, a.perm, a.blksize), (FileType::RegularFile, 0o4751, 4096));
        let dir = InodeStat {
            mode: 0o040_755,
            nlink: 1,
            subdirs: 3,
            rbytes: 99,
            ..InodeStat::default()
        };
        assert_eq!((of_stat(&dir, 1).nlink, of_stat(&dir, 1).size), (5, 99));
    }

    #[test]
    fn only_what_is_wished_is_set() {
        let early = UNIX_EPOCH - Duration::from_secs(5);
        let set = wished(
            None,
            (None, Some(4)),
            None,
            (Some(TimeOrNow::Now), Some(TimeOrNow::SpecificTime(early))),
        );
        assert_eq!(set.mask, setattr::GID | setattr::ATIME_NOW | setattr::MTIME);
        assert_eq!((set.gid, set.mtime), (4, Utime::ZERO));
        assert_eq!(wished(None, (None, None), None, (None, None)).mask, 0);
    }
}
