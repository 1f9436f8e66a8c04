//! Collections: their metadata and logs.

use super::*;
use crate::store::ObjectReads;
use types::EVersion;

const OTHER: SPgId = SPgId { pg: PG.pg, shard: 2 };

pub fn run<S: Subject>(s: &mut S) {
    made_and_removed(s);
    metadata(s);
    log(s);
}

fn at(epoch: u32, version: u64) -> EVersion {
    EVersion::new(epoch, version)
}

fn append(version: EVersion) -> Op {
    let entry = bytes(&format!("entry {version}"));
    Op::LogAppend { version, entry }
}

pub fn check_log(s: &mut impl ObjectReads, collection: SPgId, expected: &[EVersion]) {
    let entries = s.log_entries(collection).unwrap();
    let versions: Vec<EVersion> = entries.iter().map(|(v, _)| *v).collect();
    assert_eq!(versions, expected);
    for (v, e) in entries {
        assert_eq!(e, bytes(&format!("entry {v}")));
    }
}

fn made_and_removed<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    assert!(case.store().has_collection(PG).unwrap());
    case.refused([Op::CreateCollection], Errno::EEXIST);
    // Nothing is done in one that is not there.
    let other = [
        touch("a"),
        Op::SetMeta { meta: bytes("m") },
        append(at(1, 1)),
        Op::RemoveCollection,
    ];
    for op in other {
        assert_eq!(case.submit_to(OTHER, [op]), Err(Errno::ENOENT));
    }
    case.holds(|s| {
        assert!(!s.has_collection(OTHER).unwrap());
        assert_eq!(s.meta(OTHER).unwrap(), None);
        assert!(s.log_entries(OTHER).unwrap().is_empty());
    });
    let all = [
        Op::CreateCollection,
        Op::SetMeta { meta: bytes("m") },
        append(at(2, 1)),
    ];
    case.submit_to(OTHER, all).unwrap();
    case.submit([append(at(1, 1))]);
    case.holds(|s| check_log(s, OTHER, &[at(2, 1)]));
    case.submit_to(OTHER, [Op::RemoveCollection]).unwrap();
    case.holds(|s| {
        assert!(!s.has_collection(OTHER).unwrap());
        assert_eq!(s.meta(OTHER).unwrap(), None);
        check_log(s, OTHER, &[]);
        check_log(s, PG, &[at(1, 1)]);
    });
    // One of the same name has nothing of the earlier one.
    case.submit_to(OTHER, [Op::CreateCollection, append(at(1, 7))])
        .unwrap();
    case.holds(|s| {
        assert_eq!(s.meta(OTHER).unwrap(), None);
        check_log(s, OTHER, &[at(1, 7)]);
    });
}

fn metadata<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.holds(|s| assert_eq!(s.meta(PG).unwrap(), None));
    let large = "m".repeat(70_000);
    for meta in ["first", &large, "third"] {
        case.submit([Op::SetMeta { meta: bytes(meta) }]);
        case.holds(|s| assert_eq!(s.meta(PG).unwrap().unwrap(), meta));
    }
    // An empty one is none.
    case.submit([Op::SetMeta { meta: Bytes::new() }]);
    case.holds(|s| assert_eq!(s.meta(PG).unwrap(), None));
}

fn log<S: Subject>(s: &mut S) {
    let mut case = Case::new(s);
    case.submit([append(at(1, 1)), append(at(1, 2))]);
    case.submit([append(at(2, 3)), append(at(2, 10))]);
    case.holds(|s| check_log(s, PG, &[at(1, 1), at(1, 2), at(2, 3), at(2, 10)]));
    // Versions ascend: the epoch first.
    for old in [at(2, 10), at(2, 9), at(1, 11), at(0, 0)] {
        case.refused([append(old)], Errno::EINVAL);
    }
    case.submit([Op::LogTrim { to: at(1, 2) }, append(at(3, 4))]);
    case.holds(|s| check_log(s, PG, &[at(2, 3), at(2, 10), at(3, 4)]));
    case.submit([Op::LogTrim { to: at(1, 1) }, Op::LogTrim { to: at(2, 5) }]);
    case.holds(|s| check_log(s, PG, &[at(2, 10), at(3, 4)]));
    // All of it, and no further: what comes later is kept.
    case.submit([Op::LogTrim { to: at(9, 9) }]);
    case.holds(|s| check_log(s, PG, &[]));
    case.refused([append(at(3, 4))], Errno::EINVAL);
    case.submit([append(at(3, 5))]);
    case.holds(|s| check_log(s, PG, &[at(3, 5)]));
}
