//! What is looked at before an operation touches an object, in the order of docs/protocol/ceph/04-osd.md, 7.1.

use crate::api::{Allow, ClientOp, ClusterView, Need};
use crate::exec::cost::{COPIES_MAX, OPS_MAX, PG_OPS_MAX, READ_CALLS_MAX, SNAPS_MAX, WRITTEN_MAX};
use crate::exec::ops::call::method_of;
use crate::exec::ops::copy::{copies, source_of};
use crate::pool::PoolView;
use crate::state::range::HashRange;
use messages::osd::{MOSDOp, OpClass, OsdOp, code, flag};
use types::{Errno, NOSNAP, SNAPDIR};

pub const NAME_MAX: usize = 2048;
pub const NSPACE_MAX: usize = 256;
/// What a message names that is about the objects of all namespaces.
pub(crate) const ALL_NAMESPACES: &[u8] = &[1];

/// What kind of message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Operations on the PG.
    Pg,
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Drop(&'static str),
    Refuse(Errno),
    Go(Class),
}

/// A ping reads; every other watch operation writes.
fn is_ping(op: &OsdOp) -> bool {
    op.code == code::WATCH && op.watch().op == crate::exec::ops::watch::PING
}

fn writes(op: &OsdOp) -> Result<bool, Errno> {
    if op.code == code::CALL {
        return Ok(method_of(op)?.0.writes());
    }
    Ok(matches!(op.code.class(), OpClass::Write | OpClass::ReadWrite) && !is_ping(op))
}

/// The class of the message: by its operations, whatever its flags say.
pub(crate) fn classify(m: &MOSDOp) -> Result<Class, Errno> {
    if m.ops.is_empty() || m.ops.iter().any(|op| op.code.0 == 0) {
        return Err(Errno::EINVAL);
    }
    let mut write = false;
    for op in &m.ops {
        write |= writes(op)?;
    }
    Ok(match write {
        _ if m.is_pg_op() => Class::Pg,
        true => Class::Write,
        false => Class::Read,
    })
}

/// True if the client may read the object that `op` names beside the message's own. What does not decode names none, and
/// a pool that is not there has none: the execution says so.
fn may_read_other(c: &ClientOp, op: &OsdOp, cluster: &dyn ClusterView) -> bool {
    // The other operations that name one (SET_REDIRECT, SET_CHUNK) are not served.
    if !copies(op) {
        return true;
    }
    let Ok(source) = source_of(op) else { return true };
    let Some(pool) = cluster.pool(source.oloc.pool) else {
        return true;
    };
    let need = Need {
        pool,
        nspace: &source.oloc.nspace,
        oid: &source.oid,
        from: c.client.from,
    };
    let read = Allow::Data {
        read: true,
        write: false,
    };
    c.client.caps.allows(&need, read)
}

fn allowed(c: &ClientOp, pool: &PoolView, cluster: &dyn ClusterView) -> bool {
    let need = Need {
        pool,
        nspace: &c.op.oloc.nspace,
        oid: &c.op.oid,
        from: c.client.from,
    };
    let caps = &c.client.caps;
    c.op.ops.iter().all(|op| {
        if !may_read_other(c, op, cluster) {
            return false;
        }
        // It tells of the objects of all namespaces, whichever its sender names.
        let need = match op.code {
            code::SCRUBLS => Need {
                nspace: ALL_NAMESPACES,
                ..need
            },
            _ => need,
        };
        if op.code == code::CALL {
            // classify has found the method, so the names are its table's: text.
            let Ok((method, class, name)) = method_of(op) else {
                return false;
            };
            let text = |b| std::str::from_utf8(b).unwrap_or("");
            return caps.allows(
                &need,
                Allow::Call {
                    class: text(class),
                    method: text(name),
                    read: method.reads(),
                    write: method.writes(),
                },
            );
        }
        let (read, write) = match op.code.class() {
            _ if is_ping(op) => (true, false),
            _ if op.code == code::WATCH => (true, true),
            OpClass::Read | OpClass::None => (true, false),
            OpClass::Write | OpClass::Cache => (false, true),
            OpClass::ReadWrite => (true, true),
        };
        caps.allows(&need, Allow::Data { read, write })
    })
}

/// Steps 5 to 13 and 15; what needs the PG's memory or the object comes after.
pub(crate) fn admit(c: &ClientOp, pool: &PoolView, range: &HashRange, cluster: &dyn ClusterView) -> Verdict {
    let m = &c.op;
    if m.pgid.pg.pool != pool.id {
        return Verdict::Drop("another pool");
    }
    let class = match classify(m) {
        Ok(class) => class,
        Err(e) => return Verdict::Refuse(e),
    };
    if class != Class::Pg && !range.contains(m.hash) {
        return Verdict::Drop("the hash is not this PG's");
    }
    if m.has(flag::PARALLELEXEC) {
        return Verdict::Refuse(Errno::EINVAL);
    }
    // Before the rights, which are looked at for each operation.
    let ops_max = match class {
        Class::Pg => PG_OPS_MAX,
        Class::Read if m.ops.iter().all(|op| op.code == code::CALL) => READ_CALLS_MAX,
        Class::Read | Class::Write => OPS_MAX,
    };
    let many_copies = || m.ops.iter().filter(|op| copies(op)).count() > COPIES_MAX;
    if m.ops.len() > ops_max || m.snaps.len() > SNAPS_MAX || m.ops.len() > COPIES_MAX && many_copies() {
        return Verdict::Refuse(Errno::E2BIG);
    }
    if !allowed(c, pool, cluster) {
        return Verdict::Refuse(Errno::EPERM);
    }
    if c.client.is_fenced(pool) {
        return Verdict::Refuse(Errno::EBLOCKLISTED);
    }
    // Clients that know the flag ask no more; this is for others, and for those whose map is older.
    if pool.eio {
        return Verdict::Refuse(Errno::EIO);
    }
    if class == Class::Pg {
        return Verdict::Go(class);
    }
    match object_checks(c, class) {
        Ok(()) => Verdict::Go(class),
        Err(e) => Verdict::Refuse(e),
    }
}

fn object_checks(c: &ClientOp, class: Class) -> Result<(), Errno> {
    let m = &c.op;
    if m.oid.len() > NAME_MAX || m.oloc.key.len() > NAME_MAX || m.oloc.nspace.len() > NSPACE_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if m.oid.is_empty() {
        return Err(Errno::EINVAL);
    }
    if class == Class::Write && m.snapid != NOSNAP {
        return Err(Errno::EINVAL);
    }
    if m.ops.iter().map(|op| op.indata.len() as u64).sum::<u64>() > WRITTEN_MAX {
        return Err(Errno::EMSGSIZE);
    }
    Ok(())
}

/// Step 15: the snapshot directory and LIST_SNAPS belong together. Comes after the duplicates.
pub(crate) fn snapdir_fits(m: &MOSDOp) -> bool {
    let lists = |op: &OsdOp| op.code == code::LIST_SNAPS;
    if m.snapid == SNAPDIR {
        m.ops.iter().all(lists)
    } else {
        !m.ops.iter().any(lists)
    }
}
