//! Answers that leave before what they say is durable.

use crate::journal::Change;
use crate::row::Key;
use messages::fs::{MClientRequest, op, setattr};
use std::time::Duration;

/// Requests of one client that were answered and are not durable; more are answered when they are.
pub const UNSAFE_MAX: usize = 1024;
/// The same of all clients.
pub const UNSAFE_ALL_MAX: usize = 8192;
/// Bytes of the next append from which on more is answered when it is durable: it has to fit one operation, and so have all replays of a
/// client that was told more.
pub const UNSAFE_BYTES: usize = 4 << 20;
/// Inode numbers that may be given out and not be durable: so many are passed over after a restart, since a client may have written
/// objects under them.
pub const NUMBERS: u64 = 16 << 10;
/// Where nobody waits for it an append begins so long after the one before, so that it takes more.
pub const GATHER: Duration = Duration::from_millis(2);
/// Unless there are so many bytes.
pub const GATHER_BYTES: usize = 128 << 10;
/// Who is silent for so long behind an unsafe answer, until the safe one, waits for that.
pub const QUIET: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Early {
    /// The transaction of the request that is being carried out.
    pub own: Option<u64>,
    /// The last one that was made for it besides.
    pub made: u64,
    /// The last one that changed what is seen otherwise than in rows: sessions, snapshots, realms.
    pub floor: u64,
    /// Answered and not durable.
    pub unsafes: usize,
    /// The next inode number as it is durable, as it will be with the append that is under way, and with the last transaction.
    pub durable_ino: u64,
    pub appending_ino: u64,
    pub made_ino: u64,
    /// When the last append began.
    pub appended: Duration,
    /// What waits is to be appended without gathering more.
    pub hurry: bool,
    /// It will be told when the time of gathering is over.
    pub nudged: bool,
    #[cfg(test)]
    pub broken: Option<Broken>,
}

/// What a test breaks, to see that it is found.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// What is not durable is answered as if it were.
    SafeAtOnce,
    /// Others see what may be lost.
    SeenByOthers,
    /// What was carried out is carried out again.
    Twice,
    /// What clients say again is not heard.
    Deaf,
    /// What others cache is changed without asking it back.
    Rash,
    /// What is asked back counts as given back at once, and is given to the next.
    Generous,
    /// What a client may have changed on its own before a restart is not held by it any more.
    Forgetful,
    /// A name is changed that others trust by a lease.
    Trusted,
    /// Numbers of a client's stock are given out a second time.
    Reused,
    /// After a restart nobody is thought to trust names by the word of the server before.
    Oblivious,
}

impl Early {
    #[cfg(test)]
    pub fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }
}

/// When an answer leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// When everything before it is durable.
    Durable,
    /// At once: all that it says is durable, or will be said again by this client.
    Now,
    /// At once, as one that is not durable; the second answer when this transaction is.
    Unsafe(u64),
}

/// What a client can bring back by saying it again. Not what waits for work on objects, what all clients are told of, or what is
/// remembered outside of rows.
pub fn may_be_unsafe(m: &MClientRequest) -> bool {
    match m.op {
        op::CREATE | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK | op::UNLINK | op::RMDIR | op::RENAME => {
            true
        }
        op::SETATTR => m.args.setattr().mask & setattr::SIZE == 0,
        op::SETXATTR | op::RMXATTR => !m.path2.path.starts_with(b"ceph."),
        _ => false,
    }
}

/// What is seen of it is seen in rows, and in what clients hold.
pub fn is_of_rows(m: &MClientRequest) -> bool {
    match m.op {
        op::SETFILELOCK
        | op::GETFILELOCK
        | op::MKSNAP
        | op::RMSNAP
        | op::RENAMESNAP
        | op::LSSNAP
        | op::LOOKUPSNAP => false,
        op::SETXATTR | op::RMXATTR => may_be_unsafe(m),
        _ => true,
    }
}

/// Who looks at something else than rows has to wait for it.
pub fn is_seen_otherwise(changes: &[Change]) -> bool {
    changes
        .iter()
        .any(|(key, _)| matches!(key, Key::Session(_) | Key::Snap(_) | Key::Realm(_)))
}
