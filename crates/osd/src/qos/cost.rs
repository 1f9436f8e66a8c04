//! What a client's message costs, if it is one of those that limits are for: reads and writes of objects' data.
//!
//! What only looks after an image (watches, notifies, locks and other class methods, omap, attributes, listings) costs
//! nothing: held back, it would be mistaken for a client that is gone.

use crate::qos::bucket::Cost;
use messages::osd::{MOSDOp, OsdOp, code, flag};

/// What a read, or a copy, counts as until it is known what there was.
const UNKNOWN: u64 = 4 << 20;
/// No object is larger.
const OBJECT_MAX: u64 = 128 << 20;

/// Bytes read and written, where it is about data.
fn one(op: &OsdOp) -> Option<(Option<u64>, Option<u64>)> {
    let brought = op.indata.len() as u64;
    Some(match op.code {
        code::READ | code::SYNC_READ | code::SPARSE_READ => (Some(op.extent().length.min(UNKNOWN)), None),
        code::CMPEXT | code::CHECKSUM => (Some(0), None),
        code::WRITE | code::WRITEFULL | code::APPEND => (None, Some(brought)),
        code::WRITESAME => (None, Some(op.write_same().length.min(OBJECT_MAX))),
        code::ZERO | code::TRUNCATE | code::DELETE | code::ROLLBACK => (None, Some(0)),
        code::COPY_FROM | code::COPY_FROM2 => (None, Some(UNKNOWN)),
        code::CALL if is_copyup(op) => (None, Some(brought)),
        _ => return None,
    })
}

/// A clone's object gets its parent's data.
fn is_copyup(op: &OsdOp) -> bool {
    let (class, method, _) = op.call();
    let name = |at: usize, len: usize| op.indata.get(at..at.saturating_add(len));
    name(0, class) == Some(b"rbd") && matches!(name(class, method), Some(b"copyup" | b"sparse_copyup"))
}

/// None: it is not limited.
pub fn of(m: &MOSDOp) -> Option<Cost> {
    of_ops(m.flags, &m.ops)
}

fn of_ops(flags: u32, ops: &[OsdOp]) -> Option<Cost> {
    // What frees a full cluster has to go.
    if flags & flag::FULL_FORCE != 0 && ops.iter().all(|op| op.code == code::DELETE) {
        return None;
    }
    let mut cost = Cost::default();
    for (read, written) in ops.iter().filter_map(one) {
        (cost.ops, cost.reads, cost.writes) = (
            1,
            cost.reads | u32::from(read.is_some()),
            cost.writes | u32::from(written.is_some()),
        );
        cost.read_bytes = cost.read_bytes.saturating_add(read.unwrap_or(0));
        cost.write_bytes = cost.write_bytes.saturating_add(written.unwrap_or(0));
    }
    (cost.ops > 0).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::osd::op_flag;

    fn cost(flags: u32, ops: Vec<OsdOp>) -> Option<Cost> {
        of_ops(flags, &ops)
    }

    fn data(reads: u32, writes: u32, read_bytes: u64, write_bytes: u64) -> Option<Cost> {
        Some(Cost {
            ops: 1,
            reads,
            writes,
            read_bytes,
            write_bytes,
        })
    }

    #[test]
    fn data_costs_and_what_looks_after_it_does_not() {
        let ranged = |code, len| OsdOp::ranged(code, 4096, len);
        let write = || ranged(code::WRITE, 3).with_data("abc");
        let hint = || OsdOp::new(code::SETALLOCHINT);
        assert_eq!(cost(0, vec![hint(), write()]), data(0, 1, 0, 3));
        assert_eq!(cost(0, vec![write(), write()]), data(0, 1, 0, 6));
        assert_eq!(cost(0, vec![ranged(code::READ, 100)]), data(1, 0, 100, 0));
        assert_eq!(
            cost(0, vec![ranged(code::READ, u64::MAX)]),
            data(1, 0, UNKNOWN, 0)
        );
        let compare = OsdOp::new(code::CMPEXT).with_data("abc");
        assert_eq!(cost(0, vec![compare, write()]), data(1, 1, 0, 3));
        let copyup = OsdOp::on_class("rbd", "copyup", b"12");
        assert_eq!(cost(0, vec![copyup]), data(0, 1, 0, 10 + 1));
        for free in [
            OsdOp::on_class("lock", "unlock", b"12"),
            OsdOp::on_class("rbd", "copyupx", b"12"),
            OsdOp::new(code::WATCH),
            OsdOp::new(code::NOTIFY),
            OsdOp::new(code::OMAPSETVALS).with_data("abc"),
            OsdOp::new(code::STAT),
            OsdOp::new(code::PGNLS),
        ] {
            assert_eq!(cost(0, vec![free.clone()]), None, "{:?}", free.code);
            let with_flags = free.with_flags(op_flag::FAILOK);
            assert!(cost(0, vec![with_flags, write()]).is_some());
        }
        let delete = || OsdOp::new(code::DELETE);
        assert!(cost(0, vec![delete()]).is_some());
        assert!(cost(flag::FULL_FORCE, vec![delete()]).is_none());
        assert!(cost(flag::FULL_FORCE, vec![delete(), write()]).is_some());
        // Nobody names a class with a length that is not there.
        let mut odd = OsdOp::on_class("rbd", "copyup", b"");
        odd.indata = odd.indata.slice(..4);
        assert_eq!(cost(0, vec![odd]), None);
    }
}
