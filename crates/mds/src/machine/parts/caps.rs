//! Who holds which capabilities of an inode, and what each may have.

use super::request::RequestId;
use super::tx::ClientId;
use crate::row::Inode;
use messages::fs::cap;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default)]
pub struct Cap {
    pub id: u64,
    pub pending: u32,
    pub issued: u32,
    pub wanted: u32,
    pub last_sent: u32,
    /// Of the last reply that carried it.
    pub last_issue: u32,
    /// It needs room up to here, and has not heard yet that it has it; 0: none.
    pub room: u64,
    /// Since when something is being revoked.
    pub revoked_at: Option<std::time::Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frozen {
    pub request: RequestId,
    pub mask: u32,
    pub except: Option<ClientId>,
}

#[derive(Debug, Default)]
pub struct InodeCaps {
    pub holders: BTreeMap<ClientId, Cap>,
    pub frozen: Vec<Frozen>,
    pub waiting: BTreeSet<RequestId>,
}

/// What nobody else may be given while one has these bits.
pub fn against(have: u32) -> u32 {
    let mut no = 0;
    for (shared, exclusive) in [(cap::AS, cap::AX), (cap::LS, cap::LX), (cap::XS, cap::XX)] {
        if have & exclusive != 0 {
            no |= shared | exclusive;
        }
        if have & shared != 0 {
            no |= exclusive;
        }
    }
    if have & (cap::FX | cap::FB) != 0 {
        no |= cap::FS | cap::FX | cap::FC | cap::FR | cap::FW | cap::FB;
    }
    if have & cap::FW != 0 {
        no |= cap::FS | cap::FX | cap::FC | cap::FB;
    }
    if have & (cap::FC | cap::FS) != 0 {
        no |= cap::FW | cap::FX | cap::FB;
    }
    if have & cap::FR != 0 {
        no |= cap::FX | cap::FB;
    }
    no
}

/// What all may have together.
pub const SHARED: u32 = cap::PIN | cap::AS | cap::LS | cap::XS;

impl Cap {
    pub fn reads(&self) -> bool {
        self.wanted & (cap::FR | cap::FC) != 0
    }

    pub fn writes(&self) -> bool {
        self.wanted & (cap::FW | cap::FB) != 0
    }

    /// What it is given without having asked, besides what it wants.
    pub fn liked(&self, inode: &Inode) -> u32 {
        let mut bits = SHARED | cap::FS | self.wanted;
        if inode.is_dir() {
            bits |= cap::FX;
        }
        if self.reads() {
            bits |= cap::FC | cap::FR;
        }
        if self.writes() {
            bits |= cap::AX | cap::LX | cap::XX | EVERY_F;
        }
        bits
    }
}

pub const EVERY_F: u32 = cap::FS | cap::FX | cap::FC | cap::FR | cap::FW | cap::FB;

impl InodeCaps {
    pub fn frozen_for(&self, client: ClientId) -> u32 {
        self.frozen
            .iter()
            .filter(|f| f.except != Some(client))
            .fold(0, |m, f| m | f.mask)
    }

    pub fn wants(&self) -> u32 {
        self.holders.values().fold(0, |m, c| m | c.wanted)
    }

    pub fn issued(&self) -> u32 {
        self.holders.values().fold(0, |m, c| m | c.issued)
    }

    pub fn wait(&mut self, request: RequestId) {
        self.waiting.insert(request);
    }

    pub fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.frozen.is_empty() && self.waiting.is_empty()
    }

    /// What it may have, by who else uses the inode, and what is kept back.
    pub fn allowed(&self, client: ClientId, inode: &Inode, caching: bool) -> u32 {
        let Some(cap) = self.holders.get(&client) else {
            return 0;
        };
        let bits = match caching {
            false => self.asking(cap, inode),
            true => self.caching(client, cap, inode),
        };
        bits & !self.frozen_for(client)
    }

    /// Nothing is cached: readers read, writers write, all at the objects.
    pub fn asking(&self, c: &Cap, inode: &Inode) -> u32 {
        let mut bits = cap::PIN;
        if inode.is_file() {
            if c.reads() {
                bits |= cap::FR;
            }
            if c.writes() {
                bits |= cap::AS | cap::FW;
            }
        }
        bits
    }

    /// Who is alone may do everything; several may all read, or some write, where nobody caches.
    pub fn caching(&self, client: ClientId, c: &Cap, inode: &Inode) -> u32 {
        if self.holders.len() == 1 {
            return SHARED | cap::AX | cap::LX | cap::XX | EVERY_F;
        }
        if !inode.is_file() {
            return SHARED | cap::FS;
        }
        let others = || self.holders.iter().filter(|(k, _)| **k != client).map(|(_, o)| o);
        let (others_write, others_read) = (others().any(Cap::writes), others().any(Cap::reads));
        match (c.writes(), others_write) {
            (false, false) => SHARED | cap::FS | cap::FC | cap::FR,
            (true, false) if !others_read => SHARED | EVERY_F,
            (writes, _) => {
                let read = if c.reads() { cap::FR } else { 0 };
                SHARED | read | if writes { cap::FW } else { 0 }
            }
        }
    }

    /// What others hold that stands against it.
    pub fn forbidden(&self, client: ClientId) -> u32 {
        self.holders
            .iter()
            .filter(|(k, _)| **k != client)
            .fold(0, |m, (_, c)| m | against(c.issued))
    }
}

#[cfg(test)]
impl InodeCaps {
    /// Two that stand against each other.
    pub fn conflict(&self) -> Option<(ClientId, ClientId)> {
        let pairs = self
            .holders
            .iter()
            .flat_map(|a| self.holders.iter().map(move |b| (a, b)));
        pairs
            .filter(|((k, a), (l, b))| k != l && against(a.issued) & b.issued != 0)
            .map(|((k, _), (l, _))| (*k, *l))
            .next()
    }
}
