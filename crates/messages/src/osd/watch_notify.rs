//! MWatchNotify (44): events to watchers and notifiers (docs/protocol/ceph/04-osd.md, 12.1).

use crate::osd::{PRIORITY_REPLY, kind};
use bytes::Bytes;
use denc::{Reader, Result, Writer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WatchEvent {
    /// To a watcher.
    Notify = 1,
    /// To the notifier, whose own cookie it carries; the replies are in the data section.
    NotifyComplete = 2,
    /// To a watcher whose watch is gone.
    Disconnect = 3,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MWatchNotify {
    pub event: WatchEvent,
    pub cookie: u64,
    pub ver: u64,
    pub notify_id: u64,
    pub payload: Bytes,
    pub return_code: i32,
    pub notifier_gid: u64,
    pub data: Bytes,
}

const VERSION: u16 = 3;
const COMPAT: u16 = 1;

impl MWatchNotify {
    pub fn to_message(&self) -> msgr::Message {
        let mut w = Writer::with_capacity(48 + self.payload.len());
        w.u8(1);
        w.u8(self.event as u8);
        w.u64(self.cookie);
        w.u64(self.ver);
        w.u64(self.notify_id);
        w.blob(&self.payload);
        w.i32(self.return_code);
        w.u64(self.notifier_gid);
        msgr::Message {
            kind: kind::WATCH_NOTIFY,
            version: VERSION,
            compat: COMPAT,
            priority: PRIORITY_REPLY,
            front: w.finish(),
            data: self.data.clone(),
            ..Default::default()
        }
    }

    pub fn from_message(m: &msgr::Message) -> Result<Self> {
        let r = &mut Reader::new(m.front.clone());
        r.skip(1)?;
        let event = match r.u8()? {
            1 => WatchEvent::Notify,
            2 => WatchEvent::NotifyComplete,
            3 => WatchEvent::Disconnect,
            _ => return Err(r.invalid("unknown watch event")),
        };
        Ok(Self {
            event,
            cookie: r.u64()?,
            ver: r.u64()?,
            notify_id: r.u64()?,
            payload: r.blob()?,
            return_code: if m.version >= 2 { r.i32()? } else { 0 },
            notifier_gid: if m.version >= 3 { r.u64()? } else { 0 },
            data: m.data.clone(),
        })
    }
}
