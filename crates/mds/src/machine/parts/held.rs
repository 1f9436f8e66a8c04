//! What clients said of capabilities before it can be judged.

use super::tx::ClientId;
use messages::fs::{CapItem, MClientCaps};
use msgr::Message;
use std::collections::{BTreeMap, VecDeque};

/// Of one client so many bytes are kept; one that says more is cut.
pub const HELD_MAX: usize = 32 << 20;

/// Of one capability.
#[derive(Debug)]
pub enum Said {
    Caps {
        caps: Box<MClientCaps>,
        tid: u64,
        /// Of the message.
        bytes: usize,
    },
    Release(CapItem),
}

impl Said {
    pub fn caps(caps: MClientCaps, m: &Message) -> Self {
        Self::Caps {
            caps: Box::new(caps),
            tid: m.tid,
            bytes: m.front.len() + m.middle.len() + m.data.len(),
        }
    }

    pub fn ino(&self) -> u64 {
        match self {
            Self::Caps { caps, .. } => caps.ino,
            Self::Release(item) => item.ino,
        }
    }

    fn cost(&self) -> usize {
        let more = match self {
            Self::Caps { bytes, .. } => size_of::<MClientCaps>() + bytes,
            Self::Release(_) => 0,
        };
        size_of::<Self>() + more
    }
}

/// Of each inode in the order in which it came.
#[derive(Debug, Default)]
pub struct Held {
    said: BTreeMap<(ClientId, u64), VecDeque<Said>>,
    bytes: BTreeMap<ClientId, usize>,
}

impl Held {
    /// False: it says too much.
    pub fn keep(&mut self, client: ClientId, said: Said) -> bool {
        let bytes = self.bytes.entry(client).or_default();
        if *bytes + said.cost() > HELD_MAX {
            return false;
        }
        *bytes += said.cost();
        self.said.entry((client, said.ino())).or_default().push_back(said);
        true
    }

    pub fn has(&self, client: ClientId, ino: u64) -> bool {
        self.said.contains_key(&(client, ino))
    }

    pub fn clients(&self) -> Vec<ClientId> {
        self.bytes.keys().copied().collect()
    }

    /// Of one inode.
    pub fn take(&mut self, client: ClientId, ino: u64) -> VecDeque<Said> {
        let said = self.said.remove(&(client, ino)).unwrap_or_default();
        if let Some(bytes) = self.bytes.get_mut(&client) {
            *bytes -= said.iter().map(Said::cost).sum::<usize>();
        }
        said
    }

    /// Of all inodes.
    pub fn take_all(&mut self, client: ClientId) -> Vec<Said> {
        self.bytes.remove(&client);
        let inos: Vec<u64> = self
            .said
            .range((client, 0)..=(client, u64::MAX))
            .map(|((_, ino), _)| *ino)
            .collect();
        let take = |ino| self.said.remove(&(client, ino)).unwrap_or_default();
        inos.into_iter().flat_map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(ino: u64, cap_id: u64) -> Said {
        Said::Release(CapItem {
            ino,
            cap_id,
            mseq: 0,
            issue_seq: 0,
        })
    }

    fn ids(said: impl IntoIterator<Item = Said>) -> Vec<u64> {
        let id = |s| match s {
            Said::Release(item) => item.cap_id,
            Said::Caps { tid, .. } => tid,
        };
        said.into_iter().map(id).collect()
    }

    #[test]
    fn what_is_said_of_an_inode_keeps_its_order() {
        let mut h = Held::default();
        for (client, ino, id) in [(1, 5, 1), (1, 6, 2), (2, 5, 3), (1, 5, 4), (1, u64::MAX, 5)] {
            assert!(h.keep(client, release(ino, id)));
        }
        assert_eq!(ids(h.take(1, 6)), [2]);
        assert!(!h.has(1, 6) && h.has(1, 5));
        assert_eq!(ids(h.take_all(1)), [1, 4, 5]);
        assert_eq!(ids(h.take_all(1)), [] as [u64; 0]);
        assert_eq!(ids(h.take_all(2)), [3]);
        assert!(h.said.is_empty() && h.bytes.is_empty());
    }

    #[test]
    fn so_much_is_kept_and_no_more() {
        let mut h = Held::default();
        let most = HELD_MAX / release(1, 1).cost();
        assert!((0..most as u64).all(|ino| h.keep(1, release(ino, 1))));
        assert!(!h.keep(1, release(1, 1)));
        assert!(h.keep(2, release(1, 1)));
        // What was heard makes room.
        assert_eq!(h.take(1, 3).len(), 1);
        assert!(h.keep(1, release(1, 1)));
    }
}
