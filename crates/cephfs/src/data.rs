//! Files' bytes by path: a file is opened, read or written, and closed. See [`crate::file`].

use crate::mount::{Mount, about};
use crate::snap::is_snapped;
use bytes::{Bytes, BytesMut};
use client::Error;
use messages::fs::{Args, MClientRequest, op, open_flag};
use types::Errno;

/// More is read or written part by part.
pub const CHUNK: u64 = 8 << 20;
/// Of [`Mount::read_all`] and [`Mount::write_all`].
const WHOLE_MAX: u64 = 64 << 20;

impl Mount {
    /// Fewer bytes at the file's end.
    pub async fn read(&self, path: impl AsRef<[u8]>, offset: u64, length: u64) -> crate::Result<Bytes> {
        let path = path.as_ref();
        let stat = self.stat(path).await?;
        let file = match is_snapped(&stat) {
            true => None,
            false => Some(self.open(path, 0).await?),
        };
        let mut out = BytesMut::new();
        while (out.len() as u64) < length {
            let n = (length - out.len() as u64).min(CHUNK);
            let at = offset + out.len() as u64;
            let part = match &file {
                Some(file) => file.read(at, n).await?,
                None => self.read_snapped(&stat, at, n).await?,
            };
            let is_last = (part.len() as u64) < n;
            out.extend_from_slice(&part);
            if is_last {
                break;
            }
        }
        Ok(out.freeze())
    }

    /// A whole file, up to 64 MiB.
    pub async fn read_all(&self, path: impl AsRef<[u8]>) -> crate::Result<Bytes> {
        let path = path.as_ref();
        if self.stat(path).await?.size > WHOLE_MAX {
            return Err(Error::invalid(Errno::EFBIG, "a file read whole"));
        }
        self.read(path, 0, WHOLE_MAX).await
    }

    /// Durable when it returns.
    pub async fn write(&self, path: impl AsRef<[u8]>, offset: u64, data: Bytes) -> crate::Result<()> {
        let file = self.open(path.as_ref(), open_flag::WRONLY).await?;
        let mut done = 0;
        while done < data.len() {
            let n = (data.len() - done).min(CHUNK as usize);
            let part = data.slice(done..done + n);
            file.write(offset + done as u64, part).await?;
            done += n;
        }
        file.sync().await
    }

    /// Makes a file of this content, or puts it in place of the one that is there: whoever looks sees the one or the other.
    pub async fn write_all(&self, path: impl AsRef<[u8]>, mode: u32, data: Bytes) -> crate::Result<()> {
        let path = path.as_ref();
        let fresh = [path, b".tmp"].concat();
        match self.unlink(&fresh).await {
            Err(e) if e.is_not_found() => {}
            done => done?,
        }
        self.create(&fresh, mode).await?;
        self.write(&fresh, 0, data).await?;
        self.rename(&fresh, path).await
    }

    async fn open(&self, path: &[u8], flags: u32) -> crate::Result<crate::File> {
        let words = [flags, 0, 0, 0, 0, u32::MAX, 0];
        let request = MClientRequest {
            args: Args::words(&words),
            ..about(op::OPEN, path)
        };
        let (_, file) = self.open_as(self.own_by(), request, flags).await?;
        Ok(file)
    }
}
