//! The OSD map, kept up to date from what monitors and OSDs send (docs/protocol/ceph/02-monitor.md, section 7).
//!
//! Invariants: epochs only grow; a message of another cluster changes nothing; a map that does not decode or apply leaves the
//! last good one and asks for a full one.

use bytes::Bytes;
use denc::Decode;
use messages::mon::MOsdMap;
use std::sync::Arc;
use types::osdmap::{Incremental, OsdMap};
use types::{Epoch, Uuid};

#[derive(Debug, Default)]
pub struct Maps {
    now: Option<Arc<OsdMap>>,
    /// Only a full map helps.
    pub broken: bool,
}

/// What one step through a message was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// The next epoch.
    To(Epoch),
    /// Epochs in between were never seen: whatever is under way may have been dropped.
    Over(Epoch),
}

impl Maps {
    pub fn now(&self) -> Option<&Arc<OsdMap>> {
        self.now.as_ref()
    }

    pub fn epoch(&self) -> Epoch {
        self.now.as_ref().map_or(0, |m| m.epoch)
    }

    /// The next epoch that `m` leads to, taken; None: it leads no further.
    pub fn step(&mut self, m: &MOsdMap, fsid: Option<Uuid>) -> Option<Stepped> {
        let have = self.epoch();
        let known = fsid.or(self.now.as_ref().map(|n| n.fsid));
        if known.is_some_and(|f| f != m.fsid) {
            return None;
        }
        let last = *m.fulls.keys().chain(m.incrementals.keys()).max()?;
        if last <= have {
            return None;
        }
        if have > 0 && !self.broken {
            let next = have + 1;
            if let Some(inc) = m.incrementals.get(&next) {
                return self.increment(inc).then_some(Stepped::To(next));
            }
            if let Some(full) = m.fulls.get(&next) {
                return self.replace(full).then_some(Stepped::To(next));
            }
            // They can still be had: whoever asks again gets them.
            if next >= m.oldest && m.oldest > 0 {
                return None;
            }
        }
        let (epoch, full) = m.fulls.range(have + 1..).next()?;
        let first = have == 0;
        self.replace(full).then_some(match first {
            true => Stepped::To(*epoch),
            false => Stepped::Over(*epoch),
        })
    }

    fn increment(&mut self, raw: &Bytes) -> bool {
        let Some(now) = &mut self.now else {
            return false;
        };
        let applied = Incremental::from_bytes(raw)
            .map_err(|e| e.to_string())
            .and_then(|inc| Arc::make_mut(now).apply(&inc).map_err(|e| e.to_string()));
        if let Err(e) = &applied {
            tracing::warn!("increment after OSD map {}: {e}", now.epoch);
            self.broken = true;
        }
        applied.is_ok()
    }

    fn replace(&mut self, raw: &Bytes) -> bool {
        match OsdMap::from_bytes(raw) {
            Ok(map) => {
                self.now = Some(Arc::new(map));
                self.broken = false;
                true
            }
            Err(e) => {
                tracing::warn!("OSD map: {e}");
                false
            }
        }
    }
}
