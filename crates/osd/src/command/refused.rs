//! What the real OSD is told (16.2.15) and this one refuses, each with its reason: they are listed, so that the `ceph` program
//! sends them and shows the reason.

use super::table::{Answer, Args, Part, Spec, arg, spec, word};
use crate::osd::Osd;
use types::Errno;

pub const TABLE: &[Spec] = &[
    no("abort", "not here: a process is ended by a signal", &[]),
    no("assert", "not here: a process is ended by a signal", &[]),
    no("bluefs debug_inject_read_zeros", "not here: no BlueStore", &[]),
    no("bluefs files list", "not here: no BlueStore", &[]),
    no("bluefs stats", "not here: no BlueStore", &[]),
    no("bluestore allocator dump block", "not here: no BlueStore", &[]),
    no(
        "bluestore allocator fragmentation block",
        "not here: no BlueStore",
        &[],
    ),
    no("bluestore allocator score block", "not here: no BlueStore", &[]),
    no(
        "bluestore bluefs device info",
        "not here: no BlueStore",
        &[
            word("bluestore"),
            word("bluefs"),
            word("device"),
            word("info"),
            arg("alloc_size", "CephInt").optional(),
        ],
    ),
    no("cache drop", "not here: caches go by the memory's budget", &[]),
    no("calc_objectstore_db_histogram", "not here: no RocksDB", &[]),
    no("compact", "not here: the index needs none", &[]),
    no(
        "config help",
        "not here: 'ceph config help' has it",
        &[word("config"), word("help"), arg("var", "CephString").optional()],
    ),
    no(
        "debug dump_missing",
        "not here: 'ceph pg PG query' has the members",
        &[
            word("debug"),
            word("dump_missing"),
            arg("filename", "CephFilepath"),
        ],
    ),
    no(
        "debug kick_recovery_wq",
        "not here: osd_recovery_profile says how fast it goes",
        &[word("debug"), word("kick_recovery_wq"), arg("delay", "CephInt")],
    ),
    no("dump_objectstore_kv_stats", "not here: no RocksDB", &[]),
    no(
        "dump_op_pq_state",
        "not here: operations wait at their objects: see 'ops'",
        &[],
    ),
    no("dump_pg_recovery_stats", "not here: states are not timed", &[]),
    no("dump_pgstate_history", "not here: past states are not kept", &[]),
    no(
        "dump_recovery_reservations",
        "not here: recovery goes by a budget, not by reservations",
        &[],
    ),
    no("dump_scrubs", "not here: 'ceph pg dump' has the stamps", &[]),
    no(
        "flush_journal",
        "not here: 'ceph osd down' or a stop flushes",
        &[],
    ),
    no(
        "flush_store_cache",
        "not here: caches go by the memory's budget",
        &[],
    ),
    no(
        "getomap",
        "not here: 'rados listomapvals' reads it",
        &[
            word("getomap"),
            arg("pool", "CephString"),
            arg("objname", "CephObjectname"),
        ],
    ),
    no(
        "injectdataerr",
        "not here: faults are not made here",
        &[
            word("injectdataerr"),
            arg("pool", "CephString"),
            arg("objname", "CephObjectname"),
            arg("shardid", "CephInt").optional(),
        ],
    ),
    no(
        "injectfull",
        "not here: faults are not made here",
        &[
            word("injectfull"),
            arg("type", "CephString").optional(),
            arg("count", "CephInt").optional(),
        ],
    ),
    no(
        "injectmdataerr",
        "not here: faults are not made here",
        &[
            word("injectmdataerr"),
            arg("pool", "CephString"),
            arg("objname", "CephObjectname"),
            arg("shardid", "CephInt").optional(),
        ],
    ),
    no("leak_some_memory", "not here: faults are not made here", &[]),
    no(
        "list_devices",
        "not here: an OSD lives in files; 'ceph osd metadata' names them",
        &[],
    ),
    no("log dump", "not here: every line is written at once", &[]),
    no("log reopen", "not here: the log goes to the standard error", &[]),
    no("reset_pg_recovery_stats", "not here: states are not timed", &[]),
    no(
        "reset_purged_snaps_last",
        "not here: no index of snapshots to scrub",
        &[],
    ),
    no(
        "rmomapkey",
        "not here: it would change one copy: use 'rados'",
        &[
            word("rmomapkey"),
            arg("pool", "CephString"),
            arg("objname", "CephObjectname"),
            arg("key", "CephString"),
        ],
    ),
    no(
        "scrub_purged_snaps",
        "not here: no index of snapshots to scrub",
        &[],
    ),
    no(
        "set_recovery_delay",
        "not here: osd_recovery_profile says how fast it goes",
        &[word("set_recovery_delay"), arg("utime", "CephInt").optional()],
    ),
    no(
        "setomapheader",
        "not here: it would change one copy: use 'rados'",
        &[
            word("setomapheader"),
            arg("pool", "CephString"),
            arg("objname", "CephObjectname"),
            arg("header", "CephString"),
        ],
    ),
    no(
        "setomapval",
        "not here: it would change one copy: use 'rados'",
        &[
            word("setomapval"),
            arg("pool", "CephString"),
            arg("objname", "CephObjectname"),
            arg("key", "CephString"),
            arg("val", "CephString"),
        ],
    ),
    no(
        "smart",
        "not here: an OSD lives in files: ask the host",
        &[word("smart"), arg("devid", "CephString").optional()],
    ),
    no(
        "truncobj",
        "not here: it would change one copy: use 'rados'",
        &[
            word("truncobj"),
            arg("pool", "CephString"),
            arg("objname", "CephObjectname"),
            arg("len", "CephInt"),
        ],
    ),
];

const fn no(prefix: &'static str, why: &'static str, parts: &'static [Part]) -> Spec {
    spec(prefix, why, refuse).with(parts)
}

fn refuse(_: &mut Osd, args: &Args<'_>) -> Answer {
    let prefix = args.text("prefix");
    let why = TABLE.iter().find(|s| s.prefix == prefix).map_or("", |s| s.help);
    Err((Errno::EOPNOTSUPP, format!("'{prefix}' is {why}")))
}
