//! How much may be under way at once.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes that operations carry, with a little for each.
pub const BYTES_MAX: u64 = 64 << 20;
const EACH: u64 = 4096;

#[derive(Debug, Clone, Default)]
pub struct Room(Arc<(Mutex<u64>, Condvar)>);

/// A share of it, until it is dropped.
#[derive(Debug)]
pub struct Share {
    room: Room,
    bytes: u64,
}

impl Room {
    /// The calling thread waits, and with it what the kernel asks next. One that is larger than all there is goes alone.
    pub fn enter(&self, bytes: u64) -> Share {
        let bytes = bytes + EACH;
        let (used, changed) = &*self.0;
        let is_full = |used: &mut u64| *used > 0 && *used + bytes > BYTES_MAX;
        let used = used.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = changed
            .wait_while(used, is_full)
            .unwrap_or_else(PoisonError::into_inner);
        *used += bytes;
        Share {
            room: self.clone(),
            bytes,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let (used, changed) = &*self.room.0;
        *used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn who_finds_no_room_waits_for_it() {
        let room = Room::default();
        let (first, second) = (room.enter(BYTES_MAX - 10_000), room.enter(100));
        let (done, told) = mpsc::channel();
        let other = room.clone();
        let waits = io::thread::spawn("waits", move || {
            let share = other.enter(10_000);
            done.send(()).unwrap();
            drop(share);
        });
        assert!(told.recv_timeout(Duration::from_millis(100)).is_err());
        drop(first);
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        waits.unwrap().join().unwrap();
        drop(second);
        // One larger than all there is goes alone.
        drop(room.enter(2 * BYTES_MAX));
        assert_eq!(*room.0.0.lock().unwrap(), 0);
    }
}
