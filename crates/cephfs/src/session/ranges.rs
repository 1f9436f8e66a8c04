//! Locks on bytes of files as requests say them, and as the session keeps them: ranges, which of one owner do not overlap.

use messages::fs::{Args, FileLock, FilePath, MClientRequest, lock, op};
use types::Errno;

/// Calls that wait for a lock; more are refused.
pub const LOCKERS_MAX: usize = 512;

/// Ranges of one file that are locked from here; more are refused.
pub const LOCKS_MAX: usize = 4096;
pub const ENOLCK: Errno = Errno(37);
/// The process is no part of who owns a lock.
pub const OWNER_BIT: u64 = 1 << 63;

/// `rule`: [`lock`].
pub fn request_of(operation: u32, rule: u8, ino: u64, l: &FileLock, waits: bool) -> MClientRequest {
    let mut args = Vec::with_capacity(35);
    args.extend([rule, l.kind]);
    for n in [l.owner | OWNER_BIT, l.pid, l.start, l.length] {
        args.extend(n.to_le_bytes());
    }
    args.push(u8::from(waits));
    MClientRequest {
        op: operation,
        path: FilePath::new(ino, bytes::Bytes::new()),
        args: Args::from_slice(&args),
        ..MClientRequest::default()
    }
}

/// What a request asks for.
pub fn lock_of(args: &Args) -> FileLock {
    FileLock {
        start: args.u64_at(18),
        length: args.u64_at(26),
        client: 0,
        owner: args.u64_at(2),
        pid: args.u64_at(10),
        kind: args.u8_at(1),
    }
}

/// It takes or gives back a lock; otherwise it may end a wait.
pub fn is_lock(m: &MClientRequest) -> bool {
    m.op == op::SETFILELOCK && m.args.u8_at(0) == lock::FCNTL
}

/// All of a file, for the same owner.
pub fn whole(l: &FileLock) -> FileLock {
    FileLock {
        start: 0,
        length: 0,
        ..*l
    }
}

/// It leaves two of a range of its owner.
pub fn splits(all: &[FileLock], new: &FileLock) -> bool {
    let inside = |l: &FileLock| l.start < new.start && end_of(new) < end_of(l);
    all.iter().any(|l| l.owner == new.owner && inside(l))
}

/// It is answered when others have given back what it asks for, whenever that is.
pub fn is_patient(m: &MClientRequest) -> bool {
    m.op == op::SETFILELOCK && m.args.u8_at(34) != 0
}

/// Not included; the end of all files is `u64::MAX`.
fn end_of(l: &FileLock) -> u64 {
    match l.length {
        0 => u64::MAX,
        n => l.start.saturating_add(n),
    }
}

fn between(l: &FileLock, start: u64, end: u64) -> FileLock {
    FileLock {
        start,
        length: if end == u64::MAX { 0 } else { end - start },
        ..*l
    }
}

/// Takes the place of what its owner had there; what touches and is of the same kind becomes one.
pub fn put(all: &mut Vec<FileLock>, new: FileLock) {
    let (mut start, mut end) = (new.start, end_of(&new));
    let mut rest = Vec::new();
    all.retain(|l| {
        let (from, to) = (l.start, end_of(l));
        if l.owner != new.owner || to < start || end < from {
            return true;
        }
        if l.kind == new.kind {
            (start, end) = (start.min(from), end.max(to));
            return false;
        }
        if to == start || end == from {
            return true;
        }
        rest.extend((from < start).then(|| between(l, from, start)));
        rest.extend((end < to).then(|| between(l, end, to)));
        false
    });
    all.extend(rest);
    if new.kind != lock::UNLOCK {
        all.push(between(&new, start, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn l(owner: u64, start: u64, length: u64, kind: u8) -> FileLock {
        FileLock {
            start,
            length,
            client: 0,
            owner,
            pid: 1,
            kind,
        }
    }

    fn said(all: &[FileLock]) -> Vec<(u64, u64, u64, u8)> {
        let mut said: Vec<_> = all.iter().map(|l| (l.owner, l.start, l.length, l.kind)).collect();
        said.sort_unstable();
        said
    }

    #[test]
    fn ranges_are_split_and_joined_as_the_server_does() {
        let mut all = Vec::new();
        put(&mut all, l(1, 0, 100, lock::EXCL));
        put(&mut all, l(1, 40, 20, lock::UNLOCK));
        assert_eq!(said(&all), [(1, 0, 40, lock::EXCL), (1, 60, 40, lock::EXCL)]);
        put(&mut all, l(2, 0, 0, lock::SHARED));
        put(&mut all, l(1, 0, 40, lock::SHARED));
        put(&mut all, l(1, 100, 0, lock::EXCL));
        let want = [
            (1, 0, 40, lock::SHARED),
            (1, 60, 0, lock::EXCL),
            (2, 0, 0, lock::SHARED),
        ];
        assert_eq!(said(&all), want);
        put(&mut all, l(1, 30, 40, lock::SHARED));
        assert_eq!(
            said(&all)[..2],
            [(1, 0, 70, lock::SHARED), (1, 70, 0, lock::EXCL)]
        );
        put(&mut all, l(1, 0, 0, lock::UNLOCK));
        put(&mut all, l(2, 5, 0, lock::UNLOCK));
        assert_eq!(said(&all), [(2, 0, 5, lock::SHARED)]);
    }

    #[test]
    fn what_is_given_back_may_make_two_of_one() {
        let all = [l(1, 0, 0, lock::EXCL), l(2, 10, 10, lock::EXCL)];
        assert!(splits(&all, &l(1, 1, 1, lock::UNLOCK)) && splits(&all, &l(2, 12, 2, lock::UNLOCK)));
        assert!(!splits(&all, &l(1, 0, 5, lock::UNLOCK)) && !splits(&all, &l(1, 5, 0, lock::UNLOCK)));
        assert!(!splits(&all, &l(2, 10, 2, lock::UNLOCK)) && !splits(&all, &l(3, 12, 2, lock::UNLOCK)));
        assert!(!splits(&all, &whole(&l(2, 12, 2, lock::UNLOCK))));
    }

    #[test]
    fn a_request_says_what_it_asks_for() {
        let asked = l(7, 10, 0, lock::EXCL);
        let m = request_of(op::SETFILELOCK, lock::FCNTL, 5, &asked, true);
        let want = FileLock {
            owner: 7 | OWNER_BIT,
            ..asked
        };
        assert_eq!(lock_of(&m.args), want);
        assert!(is_patient(&m) && m.args.u8_at(0) == lock::FCNTL);
        assert!(!is_patient(&request_of(
            op::SETFILELOCK,
            lock::FCNTL,
            5,
            &asked,
            false
        )));
    }
}
