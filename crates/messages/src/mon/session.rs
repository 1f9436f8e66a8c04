//! What every session uses: the map request, subscriptions, configuration, log, ping
//! (docs/protocol/ceph/02-monitor.md, sections 4, 5, 10).

use super::{Body, PaxosHeader, plain_body};
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::BTreeMap;
use types::clusterlog::LogEntry;
use types::{AuthName, Uuid};

/// Flag of a subscription that ends with its first answer.
pub const SUBSCRIBE_ONETIME: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonGetMap {}
plain_body!(MMonGetMap, 5, 1, 1, {});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeItem {
    /// Lowest wanted epoch or version.
    pub start: u64,
    pub flags: u8,
}

impl SubscribeItem {
    pub fn onetime(self) -> bool {
        self.flags & SUBSCRIBE_ONETIME != 0
    }
}
impl Encode for SubscribeItem {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.start);
        w.u8(self.flags);
    }
}
impl Decode for SubscribeItem {
    const MIN_SIZE: usize = 9;
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(Self {
            start: r.u64()?,
            flags: r.u8()?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonSubscribe {
    pub what: BTreeMap<String, SubscribeItem>,
    pub hostname: String,
}

impl Body for MMonSubscribe {
    const KIND: u16 = 15;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.what);
        w.string(&self.hostname);
    }
    fn decode_front(version: u16, r: &mut Reader) -> Result<Self> {
        let what = r.get()?;
        let hostname = if version >= 3 { r.string()? } else { String::new() };
        Ok(Self { what, hostname })
    }
}

/// Only for clients without stateful subscriptions (before Jewel); harmless for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MMonSubscribeAck {
    pub interval_seconds: u32,
    pub fsid: Uuid,
}
plain_body!(MMonSubscribeAck, 16, 1, 1, { interval_seconds, fsid });

/// The complete central configuration of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MConfig {
    pub options: BTreeMap<String, String>,
}
plain_body!(MConfig, 62, 1, 1, { options });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MGetConfig {
    pub name: AuthName,
    pub host: String,
    pub device_class: String,
}
plain_body!(MGetConfig, 63, 1, 1, { name, host, device_class });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MLog {
    pub paxos: PaxosHeader,
    pub fsid: Uuid,
    pub entries: Vec<LogEntry>,
}
plain_body!(MLog, 52, 1, 1, { paxos, fsid, entries });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MLogAck {
    pub fsid: Uuid,
    /// The last entry that need not be sent again.
    pub last: u64,
    pub channel: String,
}
plain_body!(MLogAck, 53, 1, 1, { fsid, last, channel });

/// Empty as a request; the answer carries a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MPing {
    pub text: Option<String>,
}

impl Body for MPing {
    const KIND: u16 = 2;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 0;
    fn encode_front(&self, w: &mut Writer) {
        if let Some(text) = &self.text {
            w.string(text);
        }
    }
    fn decode_front(_: u16, r: &mut Reader) -> Result<Self> {
        Ok(Self {
            text: if r.is_empty() { None } else { Some(r.string()?) },
        })
    }
}
