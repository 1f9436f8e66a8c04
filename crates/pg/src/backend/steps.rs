//! Steps of transactions, as those who keep a PG's part on an OSD ask about them.

use types::{ObjectId, Op};

/// Makes a collection's log empty, as if it had never had an entry: one that is only trimmed takes none that is older
/// than its newest was. The metadata goes, too; without any a member counts as incomplete.
pub(crate) fn clear_log() -> [Op; 2] {
    [Op::RemoveCollection, Op::CreateCollection]
}

/// The objects that a step touches.
pub(crate) fn objects_of(op: &Op) -> impl Iterator<Item = &ObjectId> {
    let (one, other) = match op {
        Op::Touch { oid }
        | Op::Write { oid, .. }
        | Op::Zero { oid, .. }
        | Op::Truncate { oid, .. }
        | Op::Remove { oid }
        | Op::SetAttrs { oid, .. }
        | Op::RemoveAttr { oid, .. }
        | Op::RemoveAttrs { oid }
        | Op::OmapSet { oid, .. }
        | Op::OmapRemove { oid, .. }
        | Op::OmapRemoveRange { oid, .. }
        | Op::OmapClear { oid }
        | Op::OmapSetHeader { oid, .. } => (Some(oid), None),
        Op::Clone { src, dst } | Op::CloneRange { src, dst, .. } | Op::Rename { src, dst } => {
            (Some(src), Some(dst))
        }
        Op::CreateCollection
        | Op::RemoveCollection
        | Op::SetMeta { .. }
        | Op::LogAppend { .. }
        | Op::LogTrim { .. } => (None, None),
    };
    one.into_iter().chain(other)
}
