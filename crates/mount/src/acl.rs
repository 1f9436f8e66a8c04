//! POSIX access control lists, as the kernel passes them in attributes: what they make of a mode, and what is inherited (acl(5)).
//!
//! Format: u32 version (2), then for each entry u16 tag, u16 permissions, u32 id; little-endian.

use bytes::Bytes;
use fuser::Errno;
use messages::fs::Xattrs;

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD: usize = 4;
const EACH: usize = 8;
/// Of one list: the kernel reads no longer ones.
const ENTRIES_MAX: usize = (4096 - HEAD) / EACH;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// EINVAL: it is none.
    pub fn parse(value: &[u8]) -> Result<Self, Errno> {
        let (head, rest) = value.split_at_checked(HEAD).ok_or(Errno::EINVAL)?;
        if head != VERSION.to_le_bytes() || rest.len() % EACH != 0 || rest.len() / EACH > ENTRIES_MAX {
            return Err(Errno::EINVAL);
        }
        let entry = |e: &[u8]| Entry {
            tag: u16::from_le_bytes([e[0], e[1]]),
            perm: u16::from_le_bytes([e[2], e[3]]),
            id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
        };
        let acl = Self(rest.chunks_exact(EACH).map(entry).collect());
        match acl.is_valid() {
            true => Ok(acl),
            false => Err(Errno::EINVAL),
        }
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|e| e.tag == tag).count();
        let named = count(USER) + count(GROUP);
        let known = count(USER_OBJ) + count(GROUP_OBJ) + count(OTHER) + count(MASK) + named;
        let once = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1);
        let masked = count(MASK) == 1 || count(MASK) == 0 && named == 0;
        once && masked && known == self.0.len() && self.0.iter().all(|e| e.perm <= 7)
    }

    pub fn bytes(&self) -> Bytes {
        let mut out = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            out.extend(e.tag.to_le_bytes());
            out.extend(e.perm.to_le_bytes());
            out.extend(e.id.to_le_bytes());
        }
        out.into()
    }

    /// A mode says all of it.
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// What a mode says of the group: where there is a mask, that.
    fn group_tag(&self) -> u16 {
        match self.0.iter().any(|e| e.tag == MASK) {
            true => MASK,
            false => GROUP_OBJ,
        }
    }

    fn classes(&self) -> [(u16, u32); 3] {
        [(USER_OBJ, 6), (self.group_tag(), 3), (OTHER, 0)]
    }

    /// The lowest nine bits of a mode.
    pub fn mode(&self) -> u32 {
        let bits = self.classes().map(|(tag, shift)| {
            let perm = self.0.iter().find(|e| e.tag == tag).map_or(0, |e| e.perm);
            u32::from(perm) << shift
        });
        bits.iter().fold(0, |all, b| all | b)
    }

    fn change(&mut self, mut perm: impl FnMut(u16, u32) -> u32) {
        for (tag, shift) in self.classes() {
            for e in self.0.iter_mut().filter(|e| e.tag == tag) {
                e.perm = (perm(e.perm, shift) & 7) as u16;
            }
        }
    }

    /// After chmod.
    pub fn with_mode(mut self, mode: u32) -> Self {
        self.change(|_, shift| mode >> shift);
        self
    }

    /// Of what is made in a directory with this default list.
    fn inherited(mut self, mode: u32) -> Self {
        self.change(|perm, shift| u32::from(perm) & mode >> shift);
        self
    }
}

/// The mode and the lists of what is made in a directory of these attributes. A damaged list is none.
pub fn fresh(dir: &Xattrs, mode: u32, umask: u32, is_dir: bool) -> (u32, Xattrs) {
    let mut xattrs = Xattrs::new();
    let default = dir.get(DEFAULT).map(|value| Acl::parse(value));
    let Some(Ok(default)) = default else {
        return (mode & !umask, xattrs);
    };
    if is_dir {
        xattrs.insert(Bytes::from_static(DEFAULT), default.bytes());
    }
    let access = default.inherited(mode);
    if !access.is_mode() {
        xattrs.insert(Bytes::from_static(ACCESS), access.bytes());
    }
    (mode & !0o777 | access.mode(), xattrs)
}

/// The list that belongs to a mode that was changed; None: there is none, or it stays.
pub fn after_chmod(xattrs: &Xattrs, mode: u32) -> Option<Bytes> {
    let old = xattrs.get(ACCESS)?;
    let new = Acl::parse(old).ok()?.with_mode(mode).bytes();
    (new != *old).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u32 = u32::MAX;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries
            .iter()
            .map(|(tag, perm, id)| Entry {
                tag: *tag,
                perm: *perm,
                id: *id,
            })
            .collect())
    }

    fn named() -> Acl {
        acl(&[
            (USER_OBJ, 7, ME),
            (USER, 6, 1000),
            (GROUP_OBJ, 4, ME),
            (MASK, 6, ME),
            (OTHER, 4, ME),
        ])
    }

    #[test]
    fn lists_are_read_as_they_are_written() {
        let (all, plain) = (
            named(),
            acl(&[(USER_OBJ, 6, ME), (GROUP_OBJ, 4, ME), (OTHER, 0, ME)]),
        );
        assert_eq!(Acl::parse(&all.bytes()).unwrap(), all);
        assert_eq!((all.mode(), all.is_mode()), (0o764, false));
        assert_eq!((plain.mode(), plain.is_mode()), (0o640, true));
        assert_eq!(
            named().with_mode(0o710),
            acl(&[
                (USER_OBJ, 7, ME),
                (USER, 6, 1000),
                (GROUP_OBJ, 4, ME),
                (MASK, 1, ME),
                (OTHER, 0, ME)
            ])
        );
        assert_eq!(plain.with_mode(0o755).mode(), 0o755);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let good = named().bytes();
        let mut other = good.to_vec();
        other[0] = 1;
        for bad in [
            &good[..3],
            &good[..good.len() - 1],
            &other,
            &good[..4],
            &good[..12],
        ] {
            assert!(Acl::parse(bad).is_err());
        }
        // A named user without a mask; a tag and permissions that there are not.
        for bad in [
            acl(&[
                (USER_OBJ, 7, ME),
                (USER, 6, 1),
                (GROUP_OBJ, 4, ME),
                (OTHER, 4, ME),
            ]),
            acl(&[
                (USER_OBJ, 7, ME),
                (0x40, 6, 1),
                (GROUP_OBJ, 4, ME),
                (OTHER, 4, ME),
            ]),
            acl(&[(USER_OBJ, 8, ME), (GROUP_OBJ, 4, ME), (OTHER, 4, ME)]),
        ] {
            assert!(Acl::parse(&bad.bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_made_inherits() {
        let mut dir = Xattrs::new();
        assert_eq!(fresh(&dir, 0o100_666, 0o022, false), (0o100_644, Xattrs::new()));
        dir.insert(Bytes::from_static(DEFAULT), named().bytes());
        // No umask where there is a default list.
        let (mode, xattrs) = fresh(&dir, 0o100_640, 0o077, false);
        assert_eq!((mode, xattrs.len()), (0o100_640, 1));
        let access = Acl::parse(&xattrs[ACCESS]).unwrap();
        assert_eq!(
            access,
            acl(&[
                (USER_OBJ, 6, ME),
                (USER, 6, 1000),
                (GROUP_OBJ, 4, ME),
                (MASK, 4, ME),
                (OTHER, 0, ME)
            ])
        );
        let (mode, xattrs) = fresh(&dir, 0o777, 0, true);
        assert_eq!((mode, &xattrs[DEFAULT]), (0o764, &named().bytes()));
        assert_eq!(after_chmod(&xattrs, 0o764), None);
        let after = after_chmod(&xattrs, 0o700).unwrap();
        assert_eq!(Acl::parse(&after).unwrap().mode(), 0o700);
        // One that a mode says is none.
        let plain = acl(&[(USER_OBJ, 6, ME), (GROUP_OBJ, 4, ME), (OTHER, 0, ME)]);
        dir.insert(Bytes::from_static(DEFAULT), plain.bytes());
        assert_eq!(fresh(&dir, 0o666, 0, false), (0o640, Xattrs::new()));
    }
}
