//! What a member does where the primary asks for units: reads them from its shard's object, beside the loop.
//!
//! Invariants: version and bytes of an answer are read in one step. Nothing is waited for to be durable: what the primary makes of it waits
//! for that. Each question is answered, or its asker's connection is gone, or it is told that this OSD has left.
//!
//! Bounds: [`WAITING_MAX`] questions wait for the disk, more are read at once; [`LEN_MAX`].

use super::cut::on_shard;
use crate::backend::digest::version_now;
use crate::store::{ObjectStore, Ticket};
use bytes::Bytes;
use messages::osd::peer::PeerBody;
use types::{EVersion, Epoch, Errno, HObject, ObjectId, OsdId, SPgId};

const WAITING_MAX: usize = 128;
/// More than the largest object is (osd_max_object_size), in whole stripes.
const LEN_MAX: u64 = 160 << 20;

/// A question, and who has asked it.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub asker: OsdId,
    pub interval: Epoch,
    pub token: u64,
    pub object: HObject,
    pub offset: u64,
    pub len: u64,
}

/// For whom an answer is.
pub(crate) type Answer = (OsdId, Epoch, PeerBody);

/// Questions that wait for the disk.
#[derive(Debug, Default)]
pub(crate) struct UnitReads {
    waiting: Vec<(Ticket, Question)>,
}

impl UnitReads {
    /// The answer, where nothing has to be waited for.
    pub fn ask(&mut self, id: SPgId, q: Question, store: &mut dyn ObjectStore) -> Option<Answer> {
        let ours = q.object.pool == id.pg.pool && !q.object.max && id.shard >= 0;
        if !ours || q.len > LEN_MAX {
            return Some(answer_with(
                &q,
                Errno::EINVAL.code(),
                EVersion::default(),
                Bytes::new(),
            ));
        }
        let oid = on_shard(&ObjectId::replicated(q.object.clone()), id.shard as usize);
        let ticket = match self.waiting.len() < WAITING_MAX {
            true => store.prefetch(&oid, q.offset, q.len),
            false => None,
        };
        match ticket {
            Some(ticket) => {
                self.waiting.push((ticket, q));
                None
            }
            None => Some(answer(id, &q, store)),
        }
    }

    /// A read of the disk has ended. None: it is none of these. An asker whose connection has ended gets no answer.
    pub fn ended(
        &mut self,
        id: SPgId,
        ticket: Ticket,
        store: &mut dyn ObjectStore,
    ) -> Option<Option<Answer>> {
        let at = self.waiting.iter().position(|(t, _)| *t == ticket)?;
        let (ticket, q) = self.waiting.swap_remove(at);
        let answer = (q.asker >= 0).then(|| answer(id, &q, store));
        store.release(ticket);
        Some(answer)
    }

    pub fn disconnected(&mut self, osd: OsdId) {
        for (_, q) in self.waiting.iter_mut().filter(|(_, q)| q.asker == osd) {
            q.asker = -1;
        }
    }

    pub fn askers(&self) -> impl Iterator<Item = (OsdId, Epoch)> + '_ {
        let known = self.waiting.iter().filter(|(_, q)| q.asker >= 0);
        known.map(|(_, q)| (q.asker, q.interval))
    }

    pub fn leave(self, store: &mut dyn ObjectStore) {
        self.waiting.into_iter().for_each(|(t, _)| store.release(t));
    }
}

fn answer(id: SPgId, q: &Question, store: &mut dyn ObjectStore) -> Answer {
    let oid = on_shard(&ObjectId::replicated(q.object.clone()), id.shard.max(0) as usize);
    let version = version_now(&oid, store);
    let read = match store.stat(&oid) {
        Ok(Some(_)) => store.read(&oid, q.offset, q.len).map(Some),
        Ok(None) => Ok(None),
        Err(e) => Err(e),
    };
    match read {
        Ok(Some(data)) => answer_with(q, 0, version, data),
        Ok(None) => answer_with(q, Errno::ENOENT.code(), version, Bytes::new()),
        Err(e) => {
            tracing::error!("pg {id}: {}: units cannot be read: {e}", q.object);
            answer_with(q, Errno::EIO.code(), version, Bytes::new())
        }
    }
}

fn answer_with(q: &Question, result: i32, version: EVersion, data: Bytes) -> Answer {
    let token = q.token;
    let body = PeerBody::Units {
        token,
        result,
        version,
        data,
    };
    (q.asker, q.interval, body)
}
