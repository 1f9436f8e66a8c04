//! What running notifications of one OSD hold in memory: their payloads, and what watchers have answered.
//!
//! Bounds: `bytes_max` over all PGs of the OSD, half of that for one client. At the bound a notification, or an
//! acknowledgement, is refused with EBUSY; one that never fits with E2BIG.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use types::Errno;

/// What one weighs without its payload.
const OVERHEAD: usize = 512;
/// Where nobody says more.
const BYTES_DEFAULT: usize = 16 << 20;

/// The bytes of one OSD; its PGs share them.
#[derive(Debug, Clone)]
pub struct NotifyBytes {
    bytes_max: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    /// By global id.
    clients: BTreeMap<u64, usize>,
}

impl Default for NotifyBytes {
    fn default() -> Self {
        Self::new(BYTES_DEFAULT)
    }
}

impl NotifyBytes {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            held: Arc::default(),
        }
    }

    /// Room for a notification of `client` with `payload` bytes.
    pub(crate) fn take(&self, client: u64, payload: usize) -> Result<NotifyCharge, Errno> {
        self.take_more(client, OVERHEAD + payload)
    }

    /// Room for so many bytes more of a notification that runs.
    pub(crate) fn take_more(&self, client: u64, bytes: usize) -> Result<NotifyCharge, Errno> {
        if bytes > self.bytes_max / 2 {
            return Err(Errno::E2BIG);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.clients.get(&client).copied().unwrap_or(0);
        if held.all + bytes > self.bytes_max || own + bytes > self.bytes_max / 2 {
            return Err(Errno::EBUSY);
        }
        held.all += bytes;
        held.clients.insert(client, own + bytes);
        Ok(NotifyCharge {
            of: self.clone(),
            client,
            bytes,
        })
    }
}

/// What a notification, or an answer to one, holds until it is dropped.
#[derive(Debug)]
pub(crate) struct NotifyCharge {
    of: NotifyBytes,
    client: u64,
    bytes: usize,
}

impl Drop for NotifyCharge {
    fn drop(&mut self) {
        let mut held = self.of.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= self.bytes;
        if let Some(own) = held.clients.get_mut(&self.client) {
            *own -= self.bytes;
            if *own == 0 {
                held.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_half_and_all_give_back() {
        let all = NotifyBytes::new(100 << 10);
        let of = |client, kib: usize| all.take(client, kib << 10);
        let mut held = vec![of(1, 20).unwrap(), of(1, 25).unwrap()];
        assert_eq!(of(1, 5).err(), Some(Errno::EBUSY));
        assert_eq!(of(1, 60).err(), Some(Errno::E2BIG), "never");
        held.push(of(2, 20).unwrap());
        held.push(of(3, 25).unwrap());
        assert_eq!(of(4, 20).err(), Some(Errno::EBUSY));
        assert_eq!(all.take_more(1, 20 << 10).err(), Some(Errno::EBUSY));
        held.clear();
        let held = all.held.lock().unwrap();
        assert!(held.all == 0 && held.clients.is_empty());
    }
}
