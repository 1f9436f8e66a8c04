//! Feature bits of images (docs/protocol/ceph/05-rbd.md, 1.1), and what we make of them.

use crate::{Error, Result};

pub const LAYERING: u64 = 0x1;
pub const STRIPING: u64 = 0x2;
pub const EXCLUSIVE_LOCK: u64 = 0x4;
pub const OBJECT_MAP: u64 = 0x8;
pub const FAST_DIFF: u64 = 0x10;
pub const DEEP_FLATTEN: u64 = 0x20;
pub const JOURNALING: u64 = 0x40;
pub const DATA_POOL: u64 = 0x80;
pub const OPERATIONS: u64 = 0x100;
pub const MIGRATING: u64 = 0x200;
pub const NON_PRIMARY: u64 = 0x400;
pub const DIRTY_CACHE: u64 = 0x800;

/// What new images get, as with librbd 16.
pub const DEFAULT: u64 = LAYERING | EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | DEEP_FLATTEN;

const ALL: u64 = 0xfff;

/// Of the header's `op_features`: it has children of the newer way of cloning, or is one.
pub const OP_CLONE_CHILD: u64 = 0x2;
pub const OP_GROUP: u64 = 0x4;

/// Of the header's and the snapshots' `flags`.
pub const OBJECT_MAP_INVALID: u64 = 0x1;
pub const FAST_DIFF_INVALID: u64 = 0x2;

/// Refused whatever is wanted of the image.
const REFUSED: [(u64, &str); 1] = [(
    DIRTY_CACHE,
    "another client's write-back cache may hold its newest data",
)];

/// Refused unless only a snapshot is read: it does not change any more.
const REFUSED_AT_HEAD: [(u64, &str); 2] = [
    (JOURNALING, "it has the journaling feature"),
    (NON_PRIMARY, "it is a mirror's copy (non-primary)"),
];

/// Whether we may use the image at all; `snapshot`: only one of its snapshots is read.
pub fn check(features: u64, snapshot: bool) -> Result<()> {
    match features & MIGRATING {
        0 => check_migrating(features, snapshot),
        _ => Err(Error::unsupported("not supported: it is being migrated")),
    }
}

/// The same for those who carry out its migration.
pub fn check_migrating(features: u64, snapshot: bool) -> Result<()> {
    if features & !ALL != 0 {
        return Err(Error::unsupported(format!(
            "it has features that this client does not know ({:#x})",
            features & !ALL
        )));
    }
    let at_head = REFUSED_AT_HEAD.iter().filter(|_| !snapshot);
    let mut refused = REFUSED.iter().chain(at_head);
    match refused.find(|(bit, _)| features & bit != 0) {
        Some((_, why)) => Err(Error::unsupported(format!("not supported: {why}"))),
        None => Ok(()),
    }
}

/// Whether features may be asked for together in a new image.
pub fn check_new(features: u64) -> Result<()> {
    let bad = |what: &str| Err(Error::refused(types::Errno::EINVAL, what));
    let has = |bit| features & bit != 0;
    if features & (OPERATIONS | MIGRATING | NON_PRIMARY | DIRTY_CACHE) != 0 || features & !ALL != 0 {
        return bad("features that no new image can have");
    }
    if has(JOURNALING) {
        return Err(Error::unsupported("not supported: the journaling feature"));
    }
    if has(OBJECT_MAP) && !has(EXCLUSIVE_LOCK) {
        return bad("object-map needs exclusive-lock");
    }
    if has(FAST_DIFF) && !has(OBJECT_MAP) {
        return bad("fast-diff needs object-map");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_cannot_serve_is_refused() {
        for (features, snapshot, good) in [
            (DEFAULT, false, true),
            (DEFAULT | STRIPING | DATA_POOL | OPERATIONS, false, true),
            (DEFAULT | JOURNALING, false, false),
            (DEFAULT | JOURNALING, true, true),
            (DEFAULT | MIGRATING, true, false),
            (NON_PRIMARY, false, false),
            (0x1000, true, false),
        ] {
            assert_eq!(check(features, snapshot).is_ok(), good, "{features:#x}");
        }
    }

    #[test]
    fn who_migrates_an_image_opens_it() {
        for (features, snapshot, good) in [
            (DEFAULT | MIGRATING, false, true),
            (DEFAULT | MIGRATING | JOURNALING, false, false),
            (DEFAULT | MIGRATING | JOURNALING, true, true),
            (DEFAULT | MIGRATING | DIRTY_CACHE, true, false),
        ] {
            assert_eq!(check_migrating(features, snapshot).is_ok(), good, "{features:#x}");
        }
    }

    #[test]
    fn new_images_have_features_that_go_together() {
        for (features, good) in [
            (DEFAULT, true),
            (0, true),
            (OBJECT_MAP, false),
            (EXCLUSIVE_LOCK | FAST_DIFF, false),
            (JOURNALING | EXCLUSIVE_LOCK, false),
            (MIGRATING, false),
        ] {
            assert_eq!(check_new(features).is_ok(), good, "{features:#x}");
        }
    }
}
