//! What replies are made of: an inode as a client sees it, layouts, leases, locks.

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;
use types::Utime;

pub type Xattrs = BTreeMap<Bytes, Bytes>;

/// How a file's bytes lie in objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    pub stripe_unit: u32,
    pub stripe_count: u32,
    pub object_size: u32,
    /// Always 0.
    pub unused: [u32; 3],
    pub pool: u32,
}
impl Encode for Layout {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.stripe_unit);
        w.u32(self.stripe_count);
        w.u32(self.object_size);
        w.put(&self.unused);
        w.u32(self.pool);
    }
}

impl Decode for Layout {
    const MIN_SIZE: usize = 28;
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(Self {
            stripe_unit: r.u32()?,
            stripe_count: r.u32()?,
            object_size: r.u32()?,
            unused: [r.u32()?, r.u32()?, r.u32()?],
            pool: r.u32()?,
        })
    }
}

impl Layout {
    pub fn is_set(&self) -> bool {
        self.stripe_unit != 0
    }
}

/// Limits of a directory; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    pub max_bytes: i64,
    pub max_files: i64,
}
denc::envelope_denc!(Quota, 1, 1, { max_bytes, max_files });

/// The capability that comes with an inode; without bits there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapStat {
    pub caps: u32,
    pub wanted: u32,
    pub id: u64,
    pub seq: u32,
    pub mseq: u32,
    pub realm: u64,
    pub flags: u8,
}
denc::plain_denc!(CapStat {
    caps,
    wanted,
    id,
    seq,
    mseq,
    realm,
    flags
});

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InodeStat {
    pub ino: u64,
    pub snapid: u64,
    pub rdev: u32,
    pub version: u64,
    pub xattr_version: u64,
    pub cap: CapStat,
    pub layout: Layout,
    pub ctime: Utime,
    pub mtime: Utime,
    pub atime: Utime,
    pub time_warp_seq: u32,
    pub size: u64,
    pub max_size: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub files: u64,
    pub subdirs: u64,
    pub rbytes: u64,
    pub rfiles: u64,
    pub rsubdirs: u64,
    pub rctime: Utime,
    pub fragtree: Vec<(u32, i32)>,
    pub symlink: Bytes,
    pub dir_hash: u8,
    /// None: not sent, the client keeps what it has.
    pub xattrs: Option<Xattrs>,
    pub inline_version: u64,
    pub inline_data: Bytes,
    pub quota: Quota,
    pub pool_ns: String,
    pub btime: Utime,
    pub change_attr: u64,
    pub dir_pin: i32,
    pub snap_btime: Utime,
    pub rsnaps: u64,
    pub snap_metadata: BTreeMap<String, String>,
    pub fscrypt: u8,
}

/// What Ceph 16 sends; every client reads it.
const INODE_STAT: u8 = 6;

impl Encode for InodeStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(INODE_STAT, 1, |w| {
            w.u64(self.ino);
            w.u64(self.snapid);
            w.u32(self.rdev);
            w.u64(self.version);
            w.u64(self.xattr_version);
            w.put(&self.cap);
            w.put(&self.layout);
            w.put(&self.ctime);
            w.put(&self.mtime);
            w.put(&self.atime);
            w.u32(self.time_warp_seq);
            w.u64(self.size);
            w.u64(self.max_size);
            w.u64(self.truncate_size);
            w.u32(self.truncate_seq);
            w.u32(self.mode);
            w.u32(self.uid);
            w.u32(self.gid);
            w.u32(self.nlink);
            w.u64(self.files);
            w.u64(self.subdirs);
            w.u64(self.rbytes);
            w.u64(self.rfiles);
            w.u64(self.rsubdirs);
            w.put(&self.rctime);
            w.put(&self.fragtree);
            w.put(&self.symlink);
            w.raw(&[self.dir_hash, 0, 0, 0, 0, 0, 0, 0]);
            match &self.xattrs {
                Some(x) => w.sized(|w| w.put(x)),
                None => w.u32(0),
            }
            w.u64(self.inline_version);
            w.put(&self.inline_data);
            w.put(&self.quota);
            w.string(&self.pool_ns);
            w.put(&self.btime);
            w.u64(self.change_attr);
            w.i32(self.dir_pin);
            w.put(&self.snap_btime);
            w.u64(self.rsnaps);
            w.put(&self.snap_metadata);
            w.u8(self.fscrypt);
        });
    }
}

impl InodeStat {
    fn decode_fixed(r: &mut Reader) -> Result<Self> {
        Ok(Self {
            ino: r.u64()?,
            snapid: r.u64()?,
            rdev: r.u32()?,
            version: r.u64()?,
            xattr_version: r.u64()?,
            cap: r.get()?,
            layout: r.get()?,
            ctime: r.get()?,
            mtime: r.get()?,
            atime: r.get()?,
            time_warp_seq: r.u32()?,
            size: r.u64()?,
            max_size: r.u64()?,
            truncate_size: r.u64()?,
            truncate_seq: r.u32()?,
            mode: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            nlink: r.u32()?,
            files: r.u64()?,
            subdirs: r.u64()?,
            rbytes: r.u64()?,
            rfiles: r.u64()?,
            rsubdirs: r.u64()?,
            rctime: r.get()?,
            fragtree: r.get()?,
            symlink: r.blob()?,
            ..Self::default()
        })
    }
}

impl Decode for InodeStat {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(INODE_STAT, |v, r| {
            let mut s = Self::decode_fixed(r)?;
            s.dir_hash = r.u8()?;
            r.skip(7)?;
            let xattrs = r.blob()?;
            if !xattrs.is_empty() {
                s.xattrs = Some(Xattrs::from_bytes(&xattrs)?);
            }
            s.inline_version = r.u64()?;
            s.inline_data = r.blob()?;
            s.quota = r.get()?;
            s.pool_ns = r.string()?;
            s.btime = r.get()?;
            s.change_attr = r.u64()?;
            if v >= 2 {
                s.dir_pin = r.i32()?;
            }
            if v >= 3 {
                s.snap_btime = r.get()?;
            }
            if v >= 4 {
                s.rsnaps = r.u64()?;
            }
            if v >= 5 {
                s.snap_metadata = r.get()?;
            }
            if v >= 6 {
                s.fscrypt = r.u8()?;
            }
            Ok(s)
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirStat {
    pub frag: u32,
    pub auth: i32,
    pub dist: std::collections::BTreeSet<i32>,
}
denc::envelope_denc!(DirStat, 1, 1, { frag, auth, dist });

impl DirStat {
    /// A directory that lies whole at the only rank.
    pub fn whole() -> Self {
        Self {
            auth: -1,
            ..Self::default()
        }
    }
}

/// How long a name may be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseStat {
    pub mask: u16,
    pub duration_ms: u32,
    pub seq: u32,
    pub alternate_name: Bytes,
}
denc::envelope_denc!(LeaseStat, 2, 1, { mask, duration_ms, seq, alternate_name });

/// A byte range lock of one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct FileLock {
    pub start: u64,
    /// 0: to the end.
    pub length: u64,
    pub client: u64,
    pub owner: u64,
    pub pid: u64,
    pub kind: u8,
}
denc::plain_denc!(FileLock {
    start,
    length,
    client,
    owner,
    pid,
    kind
});
