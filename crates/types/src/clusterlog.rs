//! One line of the cluster log (docs/protocol/ceph/02-monitor.md, 10.2): what `ceph -w` and `ceph log last` show.

use crate::{AuthName, EntityAddrVec, EntityName, Utime};
use denc::{Decode, Encode, Reader, Result, Writer};

/// `priority` of a [`LogEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum LogLevel {
    Debug = 0,
    Info = 1,
    Security = 2,
    Warning = 3,
    Error = 4,
}

impl LogLevel {
    pub const ALL: [Self; 5] = [
        Self::Debug,
        Self::Info,
        Self::Security,
        Self::Warning,
        Self::Error,
    ];

    pub fn from_u16(v: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|l| *l as u16 == v)
    }

    /// As `ceph -w` prints it, without the brackets.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Debug => "DBG",
            Self::Info => "INF",
            Self::Security => "SEC",
            Self::Warning => "WRN",
            Self::Error => "ERR",
        }
    }

    /// As it stands in subscriptions (`log-info`) and arguments.
    pub fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Security => "sec",
            Self::Warning => "warn",
            Self::Error => "error",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    pub name: AuthName,
    pub rank: EntityName,
    pub addrs: EntityAddrVec,
    pub stamp: Utime,
    /// Counts the entries of one sender.
    pub seq: u64,
    pub level: LogLevel,
    pub message: String,
    /// "cluster" or "audit".
    pub channel: String,
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 5, |w| {
            w.put(&self.name);
            w.put(&self.rank);
            w.put(&self.addrs);
            w.put(&self.stamp);
            w.u64(self.seq);
            w.u16(self.level as u16);
            w.string(&self.message);
            w.string(&self.channel);
        });
    }
}

impl Decode for LogEntry {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(5, |_, r| {
            Ok(Self {
                name: r.get()?,
                rank: r.get()?,
                addrs: r.get()?,
                stamp: r.get()?,
                seq: r.u64()?,
                level: LogLevel::from_u16(r.u16()?).ok_or_else(|| r.invalid("unknown log priority"))?,
                message: r.string()?,
                channel: r.string()?,
            })
        })
    }
}
