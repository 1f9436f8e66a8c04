//! The forms in which things are kept, each with its version: what this program writes and reads, and what the release before reads.
//!
//! Vocabulary: a *form* has a version by number; a *bit* is an addition to one that a program must know once it is in use.
//!
//! Invariants: versions are the constants of the crates that write them, so nothing is said twice. What the release before does not read is written only
//! after somebody asked for it by a command or an option, which `back` names: a start alone never takes the way back.
//! docs/internals/formats.md has the same table.
//!
//! Not here: reading them (each crate refuses what is newer by itself), and what a machine holds (`upgrade`).

use crate::{copies, datadir};

/// Whether the release before can go on with what this program leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    Always,
    /// Not after this was asked for.
    Until(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub name: &'static str,
    pub place: &'static str,
    /// The newest that this program writes, and the newest that it reads.
    pub writes: u64,
    /// The oldest that it reads.
    pub reads_from: u64,
    /// The newest that the release before reads; 0: it does not know the form at all.
    pub before: u64,
    pub back: Back,
}

/// An addition by feature bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bit {
    /// Name of the form.
    pub of: &'static str,
    pub place: u32,
    pub name: &'static str,
    /// What sets it.
    pub set_by: &'static str,
    /// The release before knows it.
    pub before: bool,
}

pub const DIRECTORY: &str = "data directory";
pub const STORE: &str = "store of an OSD";
pub const SEAL: &str = "seal of an encrypted OSD";
pub const STATE: &str = "cluster state";
pub const STATE_FILE: &str = "file of the cluster state";
pub const COPY: &str = "copy of the cluster state";
pub const FILES: &str = "file system";
#[cfg(feature = "s3")]
pub const BUCKETS: &str = "settings of an S3 bucket";

/// What the release before (dev/release-before names it) reads of buckets' settings, which have added notifications, logging and objects that end by
/// themselves since.
#[cfg(feature = "s3")]
const BUCKETS_BEFORE: u64 = 7;
/// And knows of feature bits.
const STORE_BITS_BEFORE: u64 = 0b111;
const STATE_BITS_BEFORE: u64 = 0b1;

/// A form that the release before reads as well, and that no start changes.
const fn same(name: &'static str, place: &'static str, writes: u64) -> Form {
    Form {
        name,
        place,
        writes,
        reads_from: 1,
        before: writes,
        back: Back::Always,
    }
}

pub fn forms() -> Vec<Form> {
    let all = [
        same(DIRECTORY, "`skep.toml`: `format`", datadir::FORMAT.into()),
        same(STORE, "`osd.N/block`: superblock", store::FORMAT.into()),
        Form {
            before: 0,
            back: Back::Until("`skep up --osd-keys` that makes OSDs"),
            ..same(SEAL, "`osd.N/seal`", io::disk::sealed::VERSION.into())
        },
        same(
            STATE,
            "key `format`, in etcd or the file",
            cluster::format::VERSION.into(),
        ),
        same(
            STATE_FILE,
            "`cluster/state.redb`: `format`",
            metastore::embedded::FORMAT,
        ),
        same(COPY, "`osd.N/cluster.copy`", copies::FORMAT.into()),
        same(FILES, "metadata pool: `skep.journal`", mds::journal::FORM.into()),
        same(
            "rows of a file system",
            "metadata pool",
            mds::row::ENVELOPE.into(),
        ),
    ];
    all.into_iter().chain(of_gateway()).collect()
}

#[cfg(not(feature = "s3"))]
fn of_gateway() -> Vec<Form> {
    Vec::new()
}

/// What the gateway keeps. `s3.meta` has rows of buckets, and of what is in them (`index`).
#[cfg(feature = "s3")]
fn of_gateway() -> Vec<Form> {
    use s3::forms;
    let (meta, index) = ("pool `s3.meta`: buckets", "pool `s3.meta`: index of a bucket");
    vec![
        same("S3 bucket", meta, forms::BUCKET.into()),
        Form {
            before: BUCKETS_BEFORE,
            back: Back::Until("a bucket has notifications, logging or an object with `X-Delete-At`"),
            ..same(BUCKETS, meta, forms::SETTINGS.into())
        },
        same("rule of an S3 lifecycle", meta, forms::RULE.into()),
        same("walk of an S3 lifecycle", meta, forms::WALK.into()),
        same("shard of an S3 index", index, forms::SHARD.into()),
        same("S3 object", index, forms::ENTRY.into()),
        same("attributes of an S3 object", index, forms::ATTRIBUTES.into()),
        same("kinds of data of an S3 object", index, forms::DATA.into()),
        same("S3 upload", index, forms::UPLOAD.into()),
        same("intent to write S3 data", index, forms::INTENT.into()),
        same("piece of S3 data", "data pools of S3", forms::PIECE.into()),
        Form {
            before: 0,
            back: Back::Until("a client makes one (`CreateTopic`)"),
            ..same("S3 topic and its queue", "pool `s3.meta`", forms::TOPICS.into())
        },
    ]
}

/// The form of this name.
pub fn form(name: &str) -> Option<Form> {
    forms().into_iter().find(|f| f.name == name)
}

pub fn bits() -> Vec<Bit> {
    let of_store = store::FEATURE_NAMES.into_iter().map(|(mask, name)| {
        let place = mask.trailing_zeros();
        let set_by = match place {
            0 => "making the store",
            1 => "opening the store",
            2 => {
                "`ceph osd pool set POOL compression_mode` or `ceph config set osd bluestore_compression_mode`, with the first compressed write"
            }
            _ => "",
        };
        let before = STORE_BITS_BEFORE & mask != 0;
        bit(STORE, place, name, set_by, before)
    });
    let of_state = cluster::format::FEATURES.iter().map(|&(place, name)| {
        let set_by = match place {
            0 => "`ceph osd pool set POOL pg_num` (or the autoscaler) that makes it smaller, with the first merge",
            1 => "`ceph osd pool create POOL ... erasure`, with the first such pool",
            2 => "`ceph fs set NAME allow_standby_replay true`, until it is `false` for all",
            _ => "",
        };
        let before = STATE_BITS_BEFORE >> place & 1 == 1;
        bit(STATE, place, name, set_by, before)
    });
    of_store.chain(of_state).collect()
}

fn bit(of: &'static str, place: u32, name: &'static str, set_by: &'static str, before: bool) -> Bit {
    Bit {
        of,
        place,
        name,
        set_by,
        before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_takes_the_way_back_by_itself() {
        for f in forms() {
            assert!(f.reads_from <= f.writes && f.before <= f.writes, "{f:?}");
            let asked = matches!(f.back, Back::Until(by) if !by.is_empty());
            assert_eq!(f.before < f.writes, asked, "{f:?}");
            assert_eq!(form(f.name), Some(f), "one form of that name");
        }
        for b in bits() {
            assert!(!b.set_by.is_empty(), "{b:?}");
            assert!(b.before || b.set_by.starts_with('`'), "a command sets it: {b:?}");
            assert!(form(b.of).is_some(), "{b:?}");
        }
    }

    #[cfg(feature = "s3")]
    #[test]
    fn the_page_has_the_same_table() {
        let page = include_str!("../../../docs/internals/formats.md");
        for f in forms() {
            let back = match f.back {
                Back::Always => "yes".to_string(),
                Back::Until(by) => format!("until {by}"),
            };
            let line = format!(
                "| {} | {} | {} | {} | {} | {back} |",
                f.name, f.place, f.writes, f.reads_from, f.before
            );
            assert!(page.contains(&line), "docs/internals/formats.md lacks:\n{line}");
        }
        for b in bits() {
            let before = if b.before { "yes" } else { "no" };
            let line = format!(
                "| {}, bit {} | {} | {} | {before} |",
                b.of, b.place, b.name, b.set_by
            );
            assert!(page.contains(&line), "docs/internals/formats.md lacks:\n{line}");
        }
        let rows = page.lines().filter(|l| l.starts_with("| ")).count();
        assert_eq!(
            rows,
            forms().len() + bits().len() + 2,
            "rows of both tables, and their heads"
        );
    }
}
