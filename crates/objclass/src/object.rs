//! The object as methods use it: the context with the method's flags enforced, and typed values.
//!
//! A method without the read flag that reads, or without the write flag that writes, gets EIO; `stat` is free
//! for all (docs/protocol/ceph/05-rbd.md, section 2, rule 10). A stored value that does not decode is EIO (rule 9).

use crate::context::{Caller, ObjectContext, ObjectStat, OmapPage, Result, Watcher};
use bytes::Bytes;
use denc::{Decode, Encode, Reader};
use types::{Errno, Utime};

/// Rows taken from the context at a time by [`Object::scan`]: few at first, since a page may have read, and been charged for,
/// as many rows behind the prefix, and then twice as many each time.
const SCAN_PAGE_FIRST: usize = 4;
const SCAN_PAGE: usize = 256;

/// The most entries a listing returns, whatever the client asked for. Clients ask for 64 to 1024 at a time.
pub const LIST_MAX: usize = 1 << 16;

/// How many entries a client that asks for `max` gets at most.
pub fn list_max(max: u64) -> usize {
    usize::try_from(max).unwrap_or(LIST_MAX).min(LIST_MAX)
}

/// Whether a scan goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    Next,
    Stop,
}

pub struct Object<'a> {
    context: &'a mut dyn ObjectContext,
    may_read: bool,
    may_write: bool,
    rval: i32,
    failure_out: Bytes,
}

impl<'a> Object<'a> {
    pub(crate) fn new(context: &'a mut dyn ObjectContext, may_read: bool, may_write: bool) -> Self {
        Self {
            context,
            may_read,
            may_write,
            rval: 0,
            failure_out: Bytes::new(),
        }
    }

    pub(crate) fn rval(&self) -> i32 {
        self.rval
    }

    pub(crate) fn take_failure_out(&mut self) -> Bytes {
        std::mem::take(&mut self.failure_out)
    }

    /// Sets the positive return value of a successful call.
    pub fn set_rval(&mut self, value: u16) {
        self.rval = i32::from(value);
    }

    /// Data that goes with a failure.
    pub fn set_failure_out(&mut self, out: Bytes) {
        self.failure_out = out;
    }

    fn reading(&mut self) -> Result<&mut dyn ObjectContext> {
        if self.may_read {
            Ok(self.context)
        } else {
            Err(Errno::EIO)
        }
    }

    fn writing(&mut self) -> Result<&mut dyn ObjectContext> {
        if self.may_write {
            Ok(self.context)
        } else {
            Err(Errno::EIO)
        }
    }

    // Existence and data.

    pub fn stat(&mut self) -> Result<Option<ObjectStat>> {
        self.context.stat()
    }

    pub fn exists(&mut self) -> Result<bool> {
        Ok(self.stat()?.is_some())
    }

    /// ENOENT if the object does not exist.
    pub fn must_exist(&mut self) -> Result<ObjectStat> {
        self.stat()?.ok_or(Errno::ENOENT)
    }

    pub fn read(&mut self, offset: u64, len: u64) -> Result<Bytes> {
        self.reading()?.read(offset, len)
    }

    pub fn read_all(&mut self) -> Result<Bytes> {
        let size = self.must_exist()?.size;
        self.read(0, size)
    }

    pub fn create(&mut self) -> Result<()> {
        self.writing()?.create(false)
    }

    pub fn write(&mut self, offset: u64, data: Bytes) -> Result<()> {
        self.writing()?.write(offset, data)
    }

    pub fn write_full(&mut self, data: Bytes) -> Result<()> {
        self.writing()?.write_full(data)
    }

    pub fn truncate(&mut self, size: u64) -> Result<()> {
        self.writing()?.truncate(size)
    }

    pub fn remove(&mut self) -> Result<()> {
        self.writing()?.remove()
    }

    pub fn snapset_seq(&mut self) -> Result<u64> {
        self.reading()?.snapset_seq()
    }

    pub fn watchers(&mut self) -> Result<Vec<Watcher>> {
        self.reading()?.watchers()
    }

    // Attributes.

    pub fn xattr<T: Decode>(&mut self, name: &[u8]) -> Result<Option<T>> {
        self.reading()?.xattr(name)?.map(|v| stored(&v)).transpose()
    }

    pub fn xattrs(&mut self) -> Result<Vec<(Bytes, Bytes)>> {
        self.reading()?.xattrs()
    }

    pub fn set_xattr<T: Encode + ?Sized>(&mut self, name: &[u8], value: &T) -> Result<()> {
        self.set_xattr_raw(name, value.to_bytes())
    }

    pub fn set_xattr_raw(&mut self, name: &[u8], value: Bytes) -> Result<()> {
        self.writing()?.set_xattr(name, value)
    }

    /// The object exists. A missing attribute is no error.
    pub fn remove_xattr(&mut self, name: &[u8]) -> Result<()> {
        self.writing()?.remove_xattr(name)
    }

    // Omap.

    /// None if there is none.
    pub fn omap_header<T: Decode>(&mut self) -> Result<Option<T>> {
        let header = self.reading()?.omap_header()?;
        (!header.is_empty()).then(|| stored(&header)).transpose()
    }

    pub fn set_omap_header<T: Encode + ?Sized>(&mut self, header: &T) -> Result<()> {
        self.writing()?.set_omap_header(header.to_bytes())
    }

    pub fn raw(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        self.reading()?.omap_get(key)
    }

    pub fn get<T: Decode>(&mut self, key: &[u8]) -> Result<Option<T>> {
        self.raw(key)?.map(|v| stored(&v)).transpose()
    }

    /// The value as the message leaves it up to here.
    pub fn latest<T: Decode>(&mut self, key: &[u8]) -> Result<Option<T>> {
        let value = self.reading()?.omap_latest(key)?;
        value.map(|v| stored(&v)).transpose()
    }

    /// The value, or ENOENT.
    pub fn need<T: Decode>(&mut self, key: &[u8]) -> Result<T> {
        self.get(key)?.ok_or(Errno::ENOENT)
    }

    pub fn has(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.raw(key)?.is_some())
    }

    pub fn set<T: Encode + ?Sized>(&mut self, key: &[u8], value: &T) -> Result<()> {
        self.set_raw(key, value.to_bytes())
    }

    pub fn set_raw(&mut self, key: &[u8], value: Bytes) -> Result<()> {
        self.set_rows(vec![(Bytes::copy_from_slice(key), value)])
    }

    pub fn set_rows(&mut self, rows: Vec<(Bytes, Bytes)>) -> Result<()> {
        self.writing()?.omap_set(rows)
    }

    pub fn unset(&mut self, key: &[u8]) -> Result<()> {
        self.unset_keys(vec![Bytes::copy_from_slice(key)])
    }

    /// Missing keys are no error; a missing object stays missing.
    pub fn unset_keys(&mut self, keys: Vec<Bytes>) -> Result<()> {
        match self.exists()? {
            true => self.writing()?.omap_remove(keys),
            false => Ok(()),
        }
    }

    /// Removes all rows and the header, without a look at them; a missing object stays missing.
    pub fn clear_omap(&mut self) -> Result<()> {
        match self.exists()? {
            true => self.writing()?.omap_clear(),
            false => Ok(()),
        }
    }

    /// At most `max` rows with `prefix` strictly behind `start_after`, or fewer, but one if there is any.
    pub fn page(&mut self, prefix: &[u8], start_after: &[u8], max: usize) -> Result<OmapPage> {
        self.reading()?.omap_range(start_after, prefix, max)
    }

    /// Calls `row(name, value)` for the keys that begin with `prefix` and lie strictly behind `start_after`,
    /// in order; `name` is the key without the prefix.
    pub fn scan(
        &mut self,
        prefix: &[u8],
        start_after: &[u8],
        mut row: impl FnMut(&Bytes, &Bytes) -> Result<Scan>,
    ) -> Result<()> {
        self.scan_keys(prefix, start_after, |key, value| {
            row(&key.slice(prefix.len()..), value)
        })
    }

    /// As [`scan`](Self::scan), with whole keys.
    pub fn scan_keys(
        &mut self,
        prefix: &[u8],
        start_after: &[u8],
        mut row: impl FnMut(&Bytes, &Bytes) -> Result<Scan>,
    ) -> Result<()> {
        let mut at = Bytes::copy_from_slice(start_after);
        let mut rows = SCAN_PAGE_FIRST;
        loop {
            let page = self.reading()?.omap_range(&at, prefix, rows)?;
            rows = SCAN_PAGE.min(rows * 2);
            for (key, value) in &page.rows {
                if row(key, value)? == Scan::Stop {
                    return Ok(());
                }
            }
            match page.rows.last() {
                Some((last, _)) if page.more => at = last.clone(),
                _ => return Ok(()),
            }
        }
    }

    /// As [`scan`](Self::scan) with decoded values, collected into a list of at most `max` (and [`LIST_MAX`]).
    /// `after` is the name (without prefix) to start behind; a row whose name is empty is never listed.
    pub fn list<T: Decode>(&mut self, prefix: &[u8], after: &[u8], max: u64) -> Result<Vec<(Bytes, T)>> {
        let max = list_max(max);
        let mut out = Vec::new();
        if max == 0 {
            return Ok(out);
        }
        self.scan(prefix, &key(prefix, after), |name, value| {
            out.push((name.clone(), stored(value)?));
            Ok(if out.len() < max { Scan::Next } else { Scan::Stop })
        })?;
        Ok(out)
    }

    // Environment.

    pub fn caller(&self) -> Caller {
        self.context.caller()
    }

    pub fn now(&self) -> Utime {
        self.context.now()
    }

    pub fn serial(&mut self) -> (u64, u32) {
        self.context.serial()
    }

    pub fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.context.random(&mut out);
        out
    }
}

/// Decodes a value found in the object; EIO if it is not what it should be.
pub fn stored<T: Decode>(value: &Bytes) -> Result<T> {
    T::decode(&mut Reader::new(value.clone())).map_err(|_| Errno::EIO)
}

/// `prefix` and `name` as one key.
pub fn key(prefix: &[u8], name: &[u8]) -> Bytes {
    [prefix, name].concat().into()
}

/// A value that is kept as bare bytes, without a length in front.
pub struct Raw(pub Bytes);

impl Decode for Raw {
    const MIN_SIZE: usize = 0;
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self(r.rest()))
    }
}

/// A method's output.
pub fn out<T: Encode + ?Sized>(value: &T) -> Result<Bytes> {
    Ok(value.to_bytes())
}

/// No output.
pub fn done() -> Result<Bytes> {
    Ok(Bytes::new())
}
