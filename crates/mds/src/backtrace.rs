//! Backtraces: where a file or a directory is in the tree, kept at its first object as extended attributes, where tools that look at
//! pools without a metadata server (`cephfs-data-scan`) find what the object belongs to.
//!
//! Source: docs/protocol/files.md; what a ceph-mds of 16.2 wrote is in vectors/filesystem/backtrace.json.

use bytes::Bytes;
use denc::{Encode, Writer};
use messages::fs::Layout;

/// Names of the attributes.
pub const PARENT: &[u8] = b"parent";
pub const LAYOUT: &[u8] = b"layout";
/// Who has no layout says so.
const NO_POOL: i64 = -1;

/// A step up: the name, in which directory, and the version of what it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub dir: u64,
    pub name: Bytes,
    pub version: u64,
}

/// `steps` from the inode up to the root; `pool` is where the object lies.
pub fn parent(ino: u64, steps: &[Step], pool: i64) -> Bytes {
    let mut w = Writer::new();
    w.envelope(5, 4, |w| {
        w.u64(ino);
        w.u32(steps.len() as u32);
        for step in steps {
            w.envelope(2, 2, |w| {
                w.u64(step.dir);
                w.put(&step.name);
                w.u64(step.version);
            });
        }
        w.i64(pool);
        // Pools that it was in before: its objects there are removed.
        w.u32(0);
    });
    w.finish()
}

/// None: of a directory that has none.
pub fn layout(layout: Option<&Layout>, namespace: &str) -> Bytes {
    let l = layout.copied().unwrap_or_default();
    let mut w = Writer::new();
    w.envelope(2, 2, |w| {
        w.u32(l.stripe_unit);
        w.u32(l.stripe_count);
        w.u32(l.object_size);
        w.i64(layout.map_or(NO_POOL, |l| i64::from(l.pool)));
        namespace.encode(w);
    });
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(b: &[u8]) -> String {
        b.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn they_are_written_as_a_real_server_does() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../vectors/filesystem/backtrace.json"
        );
        let said: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let said = |name: &str| said["xattrs"][name].as_str().unwrap().to_string();
        let step = |dir, name: &'static str, version| Step {
            dir,
            name: Bytes::from_static(name.as_bytes()),
            version,
        };
        let of_dir = [step(0x100_0000_0018, "dir", 8), step(1, "bt", 0x5584)];
        let mut of_file = vec![step(0x100_0000_0019, "file", 6)];
        of_file.extend(of_dir.clone());
        let default = Layout {
            stripe_unit: 4 << 20,
            stripe_count: 1,
            object_size: 4 << 20,
            unused: [0; 3],
            pool: 3,
        };
        let file = parent(0x100_0000_001a, &of_file, 3);
        assert_eq!(hex(&file), said("data 1000000001a.00000000 parent"));
        let dir = parent(0x100_0000_0019, &of_dir, 2);
        assert_eq!(hex(&dir), said("meta 10000000019.00000000 parent"));
        assert_eq!(
            hex(&layout(Some(&default), "")),
            said("data 1000000001a.00000000 layout")
        );
        assert_eq!(hex(&layout(None, "")), said("meta 10000000019.00000000 layout"));
    }
}
