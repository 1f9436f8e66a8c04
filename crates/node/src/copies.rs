//! Copies of the cluster state beside each OSD's store, for `skep cluster rebuild` when the state itself is lost.
//!
//! ```text
//! DIR/osd.N/cluster.copy    8 bytes "SKEPCOPY", u32 format, u32 crc32c of the rest,
//!                           then fsid, u64 version, utime, vec of (key, value)
//! ```
//! Little-endian, as denc writes. The copy holds everything durable, keys and passwords too: mode 0600, like the state's own
//! file. It is written soon after the OSD map changed (at most every [`EVERY_MIN`]), after other changes within
//! [`EVERY_MAX`]; what was committed since is what a rebuild loses.
//!
//! Bounds: [`COPY_BYTES_MAX`]; for each OSD one thread, and one copy that waits for its disk. A copy that cannot be written is
//! a line in the log, nothing more; a disk that does not answer holds up no other's.

use crate::Error;
use bytes::Bytes;
use denc::{Decode, Encode};
use io::task;
use metastore::ClusterHandle;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use types::{Utime, Uuid};

const MAGIC: &[u8; 8] = b"SKEPCOPY";
/// What is written, and the newest that is read.
pub(crate) const FORMAT: u32 = 1;
const HEAD: usize = 16;
pub(crate) const NAME: &str = "cluster.copy";
const COPY_BYTES_MAX: u64 = 256 << 20;
const EVERY_MIN: Duration = Duration::from_secs(3);
const EVERY_MAX: Duration = Duration::from_secs(60);

/// A copy, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    pub fsid: Uuid,
    /// Counts commits: the higher, the newer.
    pub version: u64,
    pub stamp: Utime,
    pub rows: Vec<(String, Bytes)>,
}
denc::plain_denc!(Copy {
    fsid,
    version,
    stamp,
    rows
});

impl Copy {
    async fn of(cluster: &ClusterHandle) -> Result<Self, metastore::Error> {
        let rows = cluster.rows().await?;
        let version = rows
            .iter()
            .find(|(key, _)| key == cluster::keys::VERSION)
            .and_then(|(_, value)| u64::from_bytes(value).ok())
            .unwrap_or(0);
        Ok(Self {
            fsid: cluster.state().fsid,
            version,
            stamp: cluster.now(),
            rows,
        })
    }

    fn pack(&self) -> Vec<u8> {
        let body = self.to_bytes();
        let mut out = Vec::with_capacity(HEAD + body.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&types::checksum::crc32c(0, &body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    fn unpack(raw: &[u8]) -> Result<Self, String> {
        let (Some(magic), Some(format), Some(crc)) = (raw.get(..8), raw.get(8..12), raw.get(12..HEAD)) else {
            return Err("too short".into());
        };
        let number = |b: &[u8]| b.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
        let body = &raw[HEAD..];
        match () {
            () if magic != MAGIC => Err("not a copy of a cluster state".into()),
            () if number(format) > FORMAT => {
                Err(format!("format {} is newer than this program", number(format)))
            }
            () if number(crc) != types::checksum::crc32c(0, body) => {
                Err("damaged: its checksum is another".into())
            }
            () => Self::from_bytes(&Bytes::copy_from_slice(body)).map_err(|e| e.to_string()),
        }
    }

    /// The copy in an OSD's directory.
    pub fn read(osd: &Path) -> Result<Self, String> {
        match io::files::read_bytes(&osd.join(NAME), COPY_BYTES_MAX) {
            Ok(Some(raw)) => Self::unpack(&raw),
            Ok(None) => Err("no copy".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Keeps the copies of these OSDs up to date for as long as the process runs.
pub(crate) async fn keep(osds: Vec<PathBuf>, cluster: ClusterHandle) {
    let mut changes = cluster.subscribe_state();
    let places: Vec<Rc<Place>> = osds.into_iter().map(Place::of).collect();
    loop {
        let epoch = changes.borrow_and_update().osdmap.epoch;
        match Copy::of(&cluster).await {
            Ok(copy) => {
                let raw = Bytes::from(copy.pack());
                places.iter().for_each(|place| place.write(raw.clone()));
            }
            Err(e) => tracing::warn!("the copies of the cluster state are not up to date: {e}"),
        }
        task::sleep(EVERY_MIN).await;
        if changes.changed().await.is_err() {
            return;
        }
        let moved = changes.wait_for(|state| state.osdmap.epoch != epoch);
        // A map counts at once; without one the rest waits its time.
        if let Ok(Err(_)) = task::timeout(EVERY_MAX, moved).await {
            return;
        }
    }
}

/// One OSD's copy.
struct Place {
    path: PathBuf,
    /// To be written once the disk has answered.
    next: RefCell<Option<Bytes>>,
    busy: Cell<bool>,
}

impl Place {
    fn of(osd: PathBuf) -> Rc<Self> {
        Rc::new(Self {
            path: osd.join(NAME),
            next: RefCell::new(None),
            busy: Cell::new(false),
        })
    }

    /// Writes this as soon as the disk has answered for what was before it.
    fn write(self: &Rc<Self>, raw: Bytes) {
        *self.next.borrow_mut() = Some(raw);
        if self.busy.replace(true) {
            return;
        }
        let place = self.clone();
        task::spawn_local(async move {
            while let Some(raw) = place.next.take() {
                if let Err(e) = place.put(raw).await {
                    tracing::warn!("a copy of the cluster state is not up to date: {e}");
                }
            }
            place.busy.set(false);
        });
    }

    async fn put(&self, raw: Bytes) -> Result<(), Error> {
        let path = self.path.clone();
        // Not here: the caller's thread looks after all roles, and the watchdog counts on it.
        let written = task::aside("copies", move || {
            io::files::replace(&path, &raw, 0o600).map_err(|source| Error::DataDir { path, source })
        });
        written.await.map_err(Error::Thread)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> Copy {
        Copy {
            fsid: Uuid([7; 16]),
            version: 12,
            stamp: Utime::ZERO,
            rows: vec![
                ("version".into(), Bytes::from_static(b"x")),
                ("auth/a".into(), Bytes::new()),
            ],
        }
    }

    #[test]
    fn a_newer_copy_is_refused_by_its_number() {
        let mut raw = copy().pack();
        raw[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        let said = Copy::unpack(&raw).unwrap_err();
        assert_eq!(said, format!("format {} is newer than this program", FORMAT + 1));
    }

    #[test]
    fn a_copy_comes_back_and_a_damaged_one_does_not() {
        let copy = copy();
        let raw = copy.pack();
        assert_eq!(Copy::unpack(&raw), Ok(copy));
        for at in 0..raw.len() {
            let mut bad = raw.clone();
            bad[at] ^= 1;
            // A lower format number is the one thing that is not noticed, and none was ever written.
            assert!(Copy::unpack(&bad).is_err() || at == 8, "byte {at}");
            assert!(Copy::unpack(&raw[..at]).is_err(), "cut at {at}");
        }
    }
}
