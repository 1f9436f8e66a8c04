//! What a client's key allows at the metadata server (docs/protocol/files.md, section 17).

use auth::{MdsCaps, MdsNeed};
use std::net::IpAddr;

#[derive(Debug)]
pub struct Access {
    caps: MdsCaps,
    /// What is allowed differs by place, user or address.
    by_place: bool,
    squashes: bool,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    pub write: bool,
    pub policy: bool,
    pub snapshot: bool,
}

impl Access {
    /// A text that cannot be read allows nothing.
    pub fn parse(text: &str) -> Self {
        let caps = MdsCaps::parse(text).unwrap_or_else(|_| MdsCaps::none());
        let by_place = ["path=", "uid=", "root_squash", "network"]
            .iter()
            .any(|word| text.contains(word));
        Self {
            caps,
            by_place,
            squashes: text.contains("root_squash"),
        }
    }

    pub fn all() -> Self {
        Self {
            caps: MdsCaps::allow_all(),
            by_place: false,
            squashes: false,
        }
    }

    /// The path of what is asked for has to be known.
    pub fn needs_path(&self) -> bool {
        self.by_place
    }

    pub fn allows(
        &self,
        fs: &str,
        path: &str,
        (uid, gid): (u32, u32),
        wish: Wish,
        from: Option<IpAddr>,
    ) -> bool {
        let need = |uid| MdsNeed {
            fs,
            path,
            uid,
            read: true,
            write: wish.write,
            full: false,
            policy: wish.policy,
            snapshot: wish.snapshot,
            peer: from,
        };
        // Where the user 0 is squashed, so is the group 0.
        self.caps
            .allows(&need(if self.squashes && gid == 0 { 0 } else { uid }))
    }

    pub fn may_mount(&self, fs: &str, root: Option<&String>, from: IpAddr) -> bool {
        let path = root.map_or("", |r| r.trim_matches('/'));
        let need = MdsNeed {
            fs,
            path,
            uid: 0,
            read: true,
            peer: Some(from),
            ..MdsNeed::default()
        };
        let any = MdsNeed { uid: 1, ..need };
        self.caps.allows(&need) || self.caps.allows(&any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_what_it_says() {
        let w = Wish {
            write: true,
            ..Wish::default()
        };
        let p = Wish { policy: true, ..w };
        for (text, path, who, wish, good) in [
            ("allow *", "a/b", (0, 0), p, true),
            ("allow rw", "a", (0, 0), w, true),
            ("allow rw", "a", (0, 0), p, false),
            ("allow rwp", "a", (0, 0), p, true),
            ("allow r", "a", (0, 0), w, false),
            ("allow r", "a", (0, 0), Wish::default(), true),
            ("allow rw path=/a", "a/b", (5, 5), w, true),
            ("allow rw path=/a", "ab", (5, 5), w, false),
            ("allow rw path=/a", "", (5, 5), w, false),
            ("allow rw fsname=cephfs root_squash", "a", (0, 0), w, false),
            ("allow rw fsname=cephfs root_squash", "a", (7, 0), w, false),
            ("allow rw fsname=cephfs root_squash", "a", (7, 7), w, true),
            ("allow rw fsname=other", "a", (7, 7), w, false),
            ("nonsense", "a", (0, 0), Wish::default(), false),
            ("", "a", (0, 0), Wish::default(), false),
        ] {
            let access = Access::parse(text);
            assert_eq!(
                access.allows("cephfs", path, who, wish, None),
                good,
                "{text} {path} {who:?}"
            );
        }
    }
}
