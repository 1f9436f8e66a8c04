//! Disk and sockets of the simulation, with a count of what passes: what they do themselves is not counted.

use super::meter::{Count, count, off};
use io::disk::{AlignedVec, Disk, DiskFile, ReadQueue, Space, Write, WriteDone, WriteQueue};
use io::socket::{Accepted, Connecting, Network, Port, Wire, use_network};
use io_sim::{Sim, SimNet};
use std::io::{IoSlice, Result};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

/// From now on all sockets of this simulation are counted. Before it has any.
pub fn install(sim: &Sim) {
    use_network(Some(Arc::new(CountedNet(sim.net.clone()))));
}

pub fn disk(inner: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(CountedDisk(inner))
}

#[derive(Debug)]
struct CountedDisk(Arc<dyn Disk>);

impl CountedDisk {
    fn file(&self, open: impl FnOnce(&dyn Disk) -> Result<Arc<dyn DiskFile>>) -> Result<Arc<dyn DiskFile>> {
        let file = off(|| open(&*self.0))?;
        Ok(Arc::new(CountedFile(file)))
    }
}

impl Disk for CountedDisk {
    fn name(&self) -> String {
        self.0.name()
    }
    fn exists(&self, file: &str) -> Result<bool> {
        off(|| self.0.exists(file))
    }
    fn open(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        self.file(|d| d.open(file))
    }
    fn open_data(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        self.file(|d| d.open_data(file))
    }
    fn create(&self, file: &str) -> Result<Arc<dyn DiskFile>> {
        self.file(|d| d.create(file))
    }
    fn create_on(&self, file: &str, device: &Path) -> Result<()> {
        off(|| self.0.create_on(file, device))
    }
    fn remove(&self, file: &str) -> Result<()> {
        off(|| self.0.remove(file))
    }
    fn sync(&self) -> Result<()> {
        count(Count::Flushes, 1);
        off(|| self.0.sync())
    }
    fn space(&self) -> Result<Space> {
        off(|| self.0.space())
    }
}

#[derive(Debug)]
struct CountedFile(Arc<dyn DiskFile>);

fn written<'a>(data: impl IntoIterator<Item = &'a IoSlice<'a>>) {
    count(Count::DiskWrites, 1);
    let bytes = data.into_iter().map(|s| s.len() as u64).sum();
    count(Count::DiskBytes, bytes);
}

/// Every method of the trait, those with a default too.
impl DiskFile for CountedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        count(Count::DiskReads, 1);
        off(|| self.0.read_at(buf, offset))
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        written(&[IoSlice::new(data)]);
        off(|| self.0.write_at(data, offset))
    }
    fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        written(data);
        off(|| self.0.write_vectored_at(data, offset))
    }
    fn write_all(&self, writes: &[Write<'_>]) -> Result<()> {
        writes.iter().for_each(|w| written(w.data));
        off(|| self.0.write_all(writes))
    }
    fn read_queue(&self) -> Result<Option<Box<dyn ReadQueue>>> {
        self.0.read_queue()
    }
    fn write_queue(&self) -> Result<Option<Box<dyn WriteQueue>>> {
        let queue = self.0.write_queue()?;
        Ok(queue.map(|q| Box::new(CountedWrites(q)) as Box<dyn WriteQueue>))
    }
    fn is_device(&self) -> bool {
        self.0.is_device()
    }
    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
    fn next_data(&self, offset: u64) -> Result<u64> {
        off(|| self.0.next_data(offset))
    }
    fn flush(&self) -> Result<()> {
        count(Count::Flushes, 1);
        off(|| self.0.flush())
    }
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        off(|| self.0.punch_hole(offset, len))
    }
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        off(|| self.0.allocate(offset, len))
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        off(|| self.0.reserve(offset, len))
    }
    fn uncache(&self, offset: u64, len: u64) {
        off(|| self.0.uncache(offset, len));
    }
    fn set_len(&self, len: u64) -> Result<()> {
        off(|| self.0.set_len(len))
    }
    fn len(&self) -> Result<u64> {
        off(|| self.0.len())
    }
    fn is_empty(&self) -> Result<bool> {
        off(|| self.0.is_empty())
    }
    fn try_lock(&self) -> Result<bool> {
        off(|| self.0.try_lock())
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
}

/// Each is a write and a flush of it.
#[derive(Debug)]
struct CountedWrites(Box<dyn WriteQueue>);

impl WriteQueue for CountedWrites {
    fn begin(&mut self, data: AlignedVec, offset: u64) {
        written(&[IoSlice::new(&data)]);
        count(Count::Flushes, 1);
        off(|| self.0.begin(data, offset));
    }
    fn ended(&mut self) -> Option<WriteDone> {
        off(|| self.0.ended())
    }
    fn wait(&mut self) -> Result<()> {
        off(|| self.0.wait())
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }
}

#[derive(Debug)]
struct CountedNet(SimNet);

impl Network for CountedNet {
    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn Port>> {
        Ok(Box::new(CountedPort(self.0.bind(addr)?)))
    }
    fn connect(&self, addr: SocketAddr) -> Connecting {
        let wire = self.0.connect(addr);
        Box::pin(async move { Ok(counted(wire.await?)) })
    }
}

#[derive(Debug)]
struct CountedPort(Box<dyn Port>);

impl Port for CountedPort {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Accepted> {
        let accepted = self.0.poll_accept(cx);
        accepted.map_ok(|(wire, peer)| (counted(wire), peer))
    }
}

fn counted(wire: Box<dyn Wire>) -> Box<dyn Wire> {
    Box::new(CountedWire(wire))
}

/// A call that says "wait again" is one, too.
#[derive(Debug)]
struct CountedWire(Box<dyn Wire>);

impl Wire for CountedWire {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        off(|| self.0.poll_readable(cx))
    }
    fn try_read(&self, max: usize) -> Result<bytes::Bytes> {
        count(Count::Receives, 1);
        off(|| self.0.try_read(max))
    }
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        off(|| self.0.poll_writable(cx))
    }
    fn try_write(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        count(Count::Sends, 1);
        let sent = off(|| self.0.try_write(slices));
        count(Count::SentBytes, sent.as_ref().map_or(0, |n| *n as u64));
        sent
    }
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }
    fn abort_on_close(&self) {
        off(|| self.0.abort_on_close());
    }
}
