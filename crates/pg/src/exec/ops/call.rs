//! CALL: a class method on the object (docs/protocol/ceph/04-osd.md, 9.9; crate `objclass`).

use crate::exec::result::{Done, Fail, OpResult};
use crate::exec::run::Exec;
use crate::exec::work::{Note, Own};
use bytes::Bytes;
use messages::osd::OsdOp;
use objclass::{Caller, Method, ObjectContext, ObjectStat, OmapPage, Watcher};
use types::{Errno, Utime};

/// Methods of class `rbd` that read the object's data. No other class has any that matter: they keep their state in
/// attributes and omap.
const RBD_DATA_METHODS: [&str; 13] = [
    "get_id",
    "migration_get",
    "migration_remove",
    "migration_set",
    "migration_set_state",
    "object_map_load",
    "object_map_resize",
    "object_map_snap_add",
    "object_map_snap_remove",
    "object_map_update",
    "snap_list",
    "snap_rename",
    "sparsify",
];

/// The class method of a CALL, with the names of class and method.
pub(crate) fn method_of(op: &OsdOp) -> Result<(&'static Method, &[u8], &[u8]), Errno> {
    let (class, method, input) = op.call();
    if class + method + input > op.indata.len() {
        return Err(Errno::EINVAL);
    }
    let (class, method) = (&op.indata[..class], &op.indata[class..class + method]);
    let found = objclass::lookup(class, method).map_err(|e| e.errno())?;
    Ok((found, class, method))
}

/// Whether a CALL reads the object's data, as far as it is known beforehand.
pub(crate) fn reads_data(op: &OsdOp) -> bool {
    match method_of(op) {
        Ok((_, b"rbd", name)) => RBD_DATA_METHODS.iter().any(|m| m.as_bytes() == name),
        _ => false,
    }
}

impl Exec<'_> {
    pub fn call(&mut self, op: &OsdOp) -> OpResult {
        let (method, class, name) = method_of(op)?;
        if !method.writes() {
            self.must_have_existed()?;
        }
        let (_, _, len) = op.call();
        let at = class.len() + name.len();
        let input = op.indata.slice(at..at + len);
        let reply = method.call(self, input.clone());
        if class == b"lock" && method.writes() {
            self.note_lock(method.name, &input, reply.rval);
        }
        if reply.rval < 0 {
            return Err(Fail {
                rval: reply.rval,
                out: reply.out,
            });
        }
        Ok(Done {
            rval: reply.rval,
            out: reply.out,
        })
    }

    /// A lock was changed, or refused because others hold it: for people who look who holds an image.
    fn note_lock(&mut self, method: &str, input: &Bytes, rval: i32) {
        if rval >= 0 {
            return self.notes.push(Note::LocksChanged);
        }
        if method != "lock" || rval != Errno::EBUSY.code() {
            return;
        }
        let Some(lock) = objclass::lock_name(input) else {
            return;
        };
        let Ok(Some(attr)) = self.user_xattr(&objclass::lock_attr(&lock)) else {
            return;
        };
        let holders = objclass::lock_holders(&attr, self.req.wall);
        self.notes.push(Note::LockRefused { lock, holders });
    }
}

/// Methods know error numbers only.
fn errno(f: Fail) -> Errno {
    Errno(-f.rval)
}

impl ObjectContext for Exec<'_> {
    fn stat(&mut self) -> objclass::Result<Option<ObjectStat>> {
        let new = &self.work.new;
        Ok(new.exists.then_some(ObjectStat {
            size: new.size,
            mtime: new.info.mtime,
        }))
    }

    fn read(&mut self, offset: u64, len: u64) -> objclass::Result<Bytes> {
        self.must_exist().map_err(errno)?;
        let size = if self.req.old.exists { self.req.old.size } else { 0 };
        if offset >= size {
            return Ok(Bytes::new());
        }
        self.cost.charge(len.min(size - offset), 1)?;
        self.bytes(offset, len.min(size - offset)).map_err(errno)
    }

    fn xattr(&mut self, name: &[u8]) -> objclass::Result<Option<Bytes>> {
        self.user_xattr(name).map_err(errno)
    }

    fn xattrs(&mut self) -> objclass::Result<Vec<(Bytes, Bytes)>> {
        self.user_xattrs().map_err(errno)
    }

    fn omap_get(&mut self, key: &[u8]) -> objclass::Result<Option<Bytes>> {
        self.cost.charge(0, 1)?;
        let rows = Exec::omap_get(self, &[Bytes::copy_from_slice(key)]).map_err(errno)?;
        Ok(rows.into_iter().next().map(|(_, v)| v))
    }

    fn omap_latest(&mut self, key: &[u8]) -> objclass::Result<Option<Bytes>> {
        match self.omap_own(key)? {
            Own::Untouched => ObjectContext::omap_get(self, key),
            Own::Gone => Ok(None),
            Own::Set(value) => Ok(Some(value)),
        }
    }

    fn omap_range(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> objclass::Result<OmapPage> {
        let (rows, more) = self.omap_page(start_after, prefix, max).map_err(errno)?;
        Ok(OmapPage { rows, more })
    }

    fn omap_header(&mut self) -> objclass::Result<Bytes> {
        let header = Exec::omap_header(self).map_err(errno)?;
        self.cost.charge(header.len() as u64, 1)?;
        Ok(header)
    }

    fn snapset_seq(&mut self) -> objclass::Result<u64> {
        Ok(self.work.new.snapset.seq)
    }

    fn watchers(&mut self) -> objclass::Result<Vec<Watcher>> {
        let all = self.work.new.info.watchers.iter();
        Ok(all
            .map(|w| Watcher {
                name: w.name,
                addr: w.addr,
            })
            .collect())
    }

    fn create(&mut self, exclusive: bool) -> objclass::Result<()> {
        Exec::create(self, exclusive).map_err(errno)
    }

    fn write(&mut self, offset: u64, data: Bytes) -> objclass::Result<()> {
        self.checked_write(offset, data).map_err(errno)
    }

    fn write_full(&mut self, data: Bytes) -> objclass::Result<()> {
        self.checked_write_full(data).map_err(errno)
    }

    fn truncate(&mut self, size: u64) -> objclass::Result<()> {
        self.checked_truncate(size).map_err(errno)
    }

    fn remove(&mut self) -> objclass::Result<()> {
        self.must_exist().map_err(errno)?;
        Exec::remove(self);
        Ok(())
    }

    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> objclass::Result<()> {
        Exec::set_xattr(self, name, value).map_err(errno)
    }

    fn remove_xattr(&mut self, name: &[u8]) -> objclass::Result<()> {
        Exec::remove_xattr(self, name).map_err(errno)
    }

    fn omap_set(&mut self, rows: Vec<(Bytes, Bytes)>) -> objclass::Result<()> {
        self.cost.charge(0, rows.len() as u64)?;
        Exec::omap_set(self, rows).map_err(errno)
    }

    fn omap_remove(&mut self, keys: Vec<Bytes>) -> objclass::Result<()> {
        self.cost.charge(0, keys.len() as u64)?;
        Exec::omap_remove(self, keys).map_err(errno)
    }

    fn set_omap_header(&mut self, header: Bytes) -> objclass::Result<()> {
        Exec::omap_set_header(self, header).map_err(errno)
    }

    fn omap_clear(&mut self) -> objclass::Result<()> {
        Exec::omap_clear(self).map(drop).map_err(errno)
    }

    fn caller(&self) -> Caller {
        Caller {
            name: self.req.client.name,
            addr: self.req.client.addr,
        }
    }

    fn now(&self) -> Utime {
        self.req.wall
    }

    fn serial(&mut self) -> (u64, u32) {
        self.serials += 1;
        (self.req.old.info.version.version, self.serials)
    }

    fn random(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let bytes = (self.random)().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_methods_names_methods() {
        for name in RBD_DATA_METHODS {
            assert!(objclass::lookup(b"rbd", name.as_bytes()).is_ok(), "{name}");
        }
    }
}
