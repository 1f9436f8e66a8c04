//! WATCH, NOTIFY, NOTIFY_ACK, LIST_WATCHERS (docs/protocol/ceph/04-osd.md, section 12). The table of what runs
//! is the front's.

use crate::exec::result::{OpResult, done};
use crate::exec::run::Exec;
use crate::exec::work::{Change, Effect, Note, NotifyRequest};
use crate::state::object_info::{WatchKey, WatchRecord, key_of};
use bytes::Bytes;
use denc::{Reader, Writer};
use messages::osd::OsdOp;
use types::Errno;

const UNWATCH: u8 = 0;
const LEGACY_WATCH: u8 = 1;
const WATCH: u8 = 3;
const RECONNECT: u8 = 5;
pub(crate) const PING: u8 = 7;

/// Used where the client says 0 (osd_client_watch_timeout, osd_default_notify_timeout).
pub(crate) const TIMEOUT_DEFAULT_S: u32 = 30;
/// The longest that a client may ask for; of a watch a record stays with the object: what is lost is found out within the
/// hour.
pub(crate) const WATCH_TIMEOUT_MAX_S: u32 = 3600;
/// Watches of one object.
const WATCHERS_MAX: usize = 4096;
/// An event about a notify without its payload, roughly.
const EVENT_BYTES: u64 = 128;

impl Exec<'_> {
    fn key(&self, cookie: u64) -> WatchKey {
        (self.req.client.name.num, cookie)
    }

    pub fn watch(&mut self, op: &OsdOp) -> OpResult {
        self.must_exist()?;
        let a = op.watch();
        let key = self.key(a.cookie);
        let at = self.work.new.info.watchers.iter().position(|w| key_of(w) == key);
        match (a.op, at) {
            (PING | RECONNECT, None) => return Err(Errno::ENOTCONN.into()),
            (PING, Some(_)) => {
                self.req
                    .watches
                    .check(&self.req.head.object, key, self.req.conn)?;
                self.notes.push(Note::Ping(key));
            }
            (UNWATCH, None) => {}
            (UNWATCH, Some(at)) => {
                self.work.new.info.watchers.remove(at);
                self.effects.push(Effect::Remove(key));
                self.info_changed();
            }
            (WATCH | LEGACY_WATCH | RECONNECT, at) => self.register(a.cookie, a.timeout, at)?,
            _ => return Err(Errno::EINVAL.into()),
        }
        done()
    }

    fn info_changed(&mut self) {
        self.work.change = self.work.change.max(Change::Info);
    }

    fn register(&mut self, cookie: u64, timeout: u32, at: Option<usize>) -> Result<(), Errno> {
        let record = WatchRecord {
            name: self.req.client.name,
            cookie,
            timeout_s: if timeout == 0 { TIMEOUT_DEFAULT_S } else { timeout }.min(WATCH_TIMEOUT_MAX_S),
            addr: self.req.client.addr,
        };
        let watchers = &mut self.work.new.info.watchers;
        match at {
            Some(at) => watchers[at] = record.clone(),
            None if watchers.len() >= WATCHERS_MAX => return Err(Errno::EBUSY),
            None => watchers.push(record.clone()),
        }
        self.effects.push(Effect::Connect(record));
        self.info_changed();
        Ok(())
    }

    pub fn list_watchers(&mut self) -> OpResult {
        self.must_exist()?;
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.u32(self.work.new.info.watchers.len() as u32);
            for r in &self.work.new.info.watchers {
                w.envelope(2, 1, |w| {
                    w.put(&r.name);
                    w.u64(r.cookie);
                    w.u32(r.timeout_s);
                    w.put(&r.addr);
                });
            }
        });
        Ok(w.finish().into())
    }

    pub fn notify(&mut self, op: &OsdOp) -> OpResult {
        self.must_exist()?;
        if !self.req.watches.can_notify(&self.req.head.object) {
            return Err(Errno::EBUSY.into());
        }
        let (timeout_s, payload) = notify_input(&op.indata).unwrap_or_default();
        // Each watcher gets it all.
        let watchers = self.work.new.info.watchers.len() as u64;
        let event = EVENT_BYTES + payload.len() as u64;
        self.cost.charge(watchers * event, watchers)?;
        self.notify_id = self.notify_id.wrapping_add(1);
        let id = u64::from(self.req.pool.epoch) << 32 | u64::from(self.notify_id);
        let charge = self
            .req
            .watches
            .room_for_notify(self.req.client.global_id, payload.len())?;
        self.effects.push(Effect::Notify(NotifyRequest {
            id,
            conn: self.req.conn,
            cookie: op.first_u64(),
            gid: self.req.client.global_id,
            timeout_s,
            // It may outlive its message by minutes, and must not keep all of that.
            payload: Bytes::copy_from_slice(&payload),
            charge,
            ver: self.req.old.info.user_version,
        }));
        Ok(Bytes::copy_from_slice(&id.to_le_bytes()).into())
    }

    /// Input: notify id, watch cookie, reply. An acknowledgement that fits nothing is ignored.
    pub fn notify_ack(&mut self, op: &OsdOp) -> OpResult {
        let mut r = Reader::new(op.indata.clone());
        let (id, cookie) = (r.u64()?, r.u64()?);
        let reply = r.blob().unwrap_or_default();
        let key = self.key(cookie);
        let object = &self.req.head.object;
        let charge = self.req.watches.room_for_reply(object, id, key, reply.len())?;
        self.effects.push(Effect::Ack {
            id,
            key,
            reply: Bytes::copy_from_slice(&reply),
            charge,
        });
        done()
    }
}

/// `u32 version, u32 timeout, blob payload`.
fn notify_input(indata: &Bytes) -> denc::Result<(u32, Bytes)> {
    let mut r = Reader::new(indata.clone());
    r.skip(4)?;
    Ok((r.u32()?, r.blob()?))
}
