//! CALL: a class method on the object (docs/protocol/ceph/04-osd.md, 9.9; crate `objclass`).

use crate::exec::{Done, Exec, Fail, OpResult};
use crate::front::checks::method_of;
use bytes::Bytes;
use messages::osd::OsdOp;
use objclass::{Caller, ObjectContext, ObjectStat, OmapPage, Watcher};
use types::{Errno, Utime};

impl Exec<'_, '_> {
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
            return self.watches.locks.forget(&self.head.object);
        }
        if method != "lock" || rval != Errno::EBUSY.code() {
            return;
        }
        let Some(name) = objclass::lock_name(input) else {
            return;
        };
        let Ok(Some(attr)) = self.user_xattr(&objclass::lock_attr(&name)) else {
            return;
        };
        let holders = objclass::lock_holders(&attr, self.ctx.wall);
        let (by, now) = (self.client.name, self.ctx.now);
        self.watches
            .locks
            .refused(&self.head.object, &name, holders, by, now);
    }
}

/// Methods know error numbers only.
fn errno(f: Fail) -> Errno {
    Errno(-f.rval)
}

impl ObjectContext for Exec<'_, '_> {
    fn stat(&mut self) -> objclass::Result<Option<ObjectStat>> {
        let new = &self.work.new;
        Ok(new.exists.then_some(ObjectStat {
            size: new.size,
            mtime: new.info.mtime,
        }))
    }

    fn read(&mut self, offset: u64, len: u64) -> objclass::Result<Bytes> {
        self.must_exist().map_err(errno)?;
        let size = if self.old.exists { self.old.size } else { 0 };
        if offset >= size {
            return Ok(Bytes::new());
        }
        self.cost.charge(len.min(size - offset), 1)?;
        let data = self.ctx.store.read(self.source, offset, len.min(size - offset));
        data.map_err(|e| errno(e.into()))
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

    fn omap_range(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> objclass::Result<OmapPage> {
        let (rows, more) = self.omap_page(start_after, prefix, max).map_err(errno)?;
        Ok(OmapPage { rows, more })
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

    fn omap_set(&mut self, rows: Vec<(Bytes, Bytes)>) -> objclass::Result<()> {
        self.cost.charge(0, rows.len() as u64)?;
        Exec::omap_set(self, rows).map_err(errno)
    }

    fn omap_remove(&mut self, keys: Vec<Bytes>) -> objclass::Result<()> {
        self.cost.charge(0, keys.len() as u64)?;
        Exec::omap_remove(self, keys).map_err(errno)
    }

    fn caller(&self) -> Caller {
        Caller {
            name: self.client.name,
            addr: self.client.addr,
        }
    }

    fn now(&self) -> Utime {
        self.ctx.wall
    }

    fn random(&mut self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let bytes = (self.ctx.random)().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
}
