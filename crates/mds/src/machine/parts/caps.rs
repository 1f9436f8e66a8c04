//! Who holds which capabilities of an inode, and what each may have.

use super::request::RequestId;
use super::tx::ClientId;
use crate::row::Inode;
use messages::fs::cap;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What clients may keep of what they were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// They ask each time.
    Nothing,
    /// What all may have together; and a directory is one client's that changes it alone.
    Shared,
    /// Who is alone buffers what it changes, too.
    Exclusive,
}

/// Capabilities of one client from which on listings give it no more.
pub const CLIENT_MAX: usize = 1 << 20;
/// So many requests about a directory in a row make it their client's own, also where others have looked at it before.
const ALONE: u32 = 8;
/// What was shown in so many messages is kept apart; the oldest are taken together then.
const SHOWN_MAX: usize = 16;
/// Where Fs was given up for a change twice in so long, it would be again.
const CONTESTED: Duration = Duration::from_secs(30);

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
    /// Snapshots up to this one were there before it: the client can have nothing to say of them.
    pub seen: u64,
    /// Since when something is being revoked.
    pub revoked_at: Option<std::time::Duration>,
    /// What messages that it may not have heard yet gave it, by their numbers.
    pub shown: Vec<(u32, u32)>,
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
    /// Of a directory: who was shown it last, and how often in a row.
    pub run: (ClientId, u32),
    /// When others gave Fs up for a change last.
    pub taken: Option<Duration>,
    /// Until when that is taken for what goes on.
    pub contested: Option<Duration>,
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
    /// `seen`: the last snapshot that there is.
    pub fn new(id: u64, seen: u64) -> Self {
        Self {
            id,
            issued: cap::PIN,
            pending: cap::PIN,
            seen,
            ..Self::default()
        }
    }

    /// The message that was numbered last says all that it has.
    pub fn show(&mut self) {
        let bits = self.pending;
        self.shown.pop_if(|(_, before)| *before & !bits == 0);
        if self.shown.len() >= SHOWN_MAX {
            let (_, oldest) = self.shown.remove(0);
            if let Some((_, next)) = self.shown.first_mut() {
                *next |= oldest;
            }
        }
        self.shown.push((self.last_sent, bits));
    }

    pub fn reads(&self) -> bool {
        self.wanted & (cap::FR | cap::FC) != 0
    }

    pub fn writes(&self) -> bool {
        self.wanted & (cap::FW | cap::FB) != 0
    }

    /// What it may wait for, and does not ask for a second time. What it could cache it is given with the next answer: a directory that
    /// several change would go to and fro.
    pub fn awaited(&self, inode: &Inode) -> u32 {
        if !inode.is_file() {
            return 0;
        }
        self.wanted | if self.writes() { cap::AS | cap::FW } else { 0 }
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

    /// The same but for what this request keeps back.
    pub fn frozen_by_others(&self, client: ClientId, request: RequestId) -> u32 {
        self.frozen
            .iter()
            .filter(|f| f.except != Some(client) && f.request != request)
            .fold(0, |m, f| m | f.mask)
    }

    /// The client is shown the directory.
    pub fn shown_to(&mut self, client: ClientId) {
        self.run = match self.run {
            (last, n) if last == client => (client, n.saturating_add(1)),
            _ => (client, 1),
        };
    }

    /// Somebody is about to change it, and all but `except` give Fs up.
    pub fn taken_back(&mut self, except: Option<ClientId>, now: Duration) {
        let others = || self.holders.iter().filter(|(k, _)| Some(**k) != except);
        let again = self.taken.is_some_and(|at| now.saturating_sub(at) < CONTESTED);
        let is_taken = others().any(|(_, c)| c.issued & cap::FS != 0);
        // Where nobody has it because it is contested, it stays so while there are others.
        if is_taken && again || self.is_contested(now) && others().next().is_some() {
            self.contested = Some(now + CONTESTED);
        }
        if is_taken {
            self.taken = Some(now);
        }
    }

    pub fn is_contested(&self, now: Duration) -> bool {
        self.contested.is_some_and(|until| now < until)
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

    /// What it may have, by who else uses the inode.
    pub fn allowed(&self, client: ClientId, inode: &Inode, caching: Caching) -> u32 {
        let Some(cap) = self.holders.get(&client) else {
            return 0;
        };
        match caching {
            Caching::Nothing => self.asking(cap, inode),
            Caching::Shared => self.sharing(client, cap, inode),
            Caching::Exclusive => self.caching(client, cap, inode),
        }
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

    /// All cache what nobody can change but by asking, and contents of files that nobody writes. Who changes a directory alone keeps what
    /// it knows of it: without Fx a client gives up Fs with each change of its own.
    pub fn sharing(&self, client: ClientId, c: &Cap, inode: &Inode) -> u32 {
        if inode.is_dir() {
            let alone = self.holders.len() == 1 || self.run.0 == client && self.run.1 >= ALONE;
            return SHARED | cap::FS | if alone { cap::FX } else { 0 };
        }
        let alone = if self.holders.len() == 1 { cap::FX } else { 0 };
        if !self.holders.values().any(Cap::writes) {
            return SHARED | cap::FS | cap::FC | cap::FR | alone;
        }
        let mut others = self.holders.iter().filter(|(k, _)| **k != client).map(|(_, o)| o);
        if others.all(|o| !o.reads() && !o.writes()) {
            // What it wrote it knows itself.
            return SHARED | cap::FS | cap::FX | cap::FR | cap::FW;
        }
        let read = if c.reads() { cap::FR } else { 0 };
        SHARED | read | if c.writes() { cap::FW } else { 0 }
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

    pub fn others_hold(&self, client: ClientId, bits: u32) -> bool {
        let mut others = self.holders.iter().filter(|(k, _)| **k != client);
        others.any(|(_, c)| c.issued & bits != 0)
    }

    /// What others hold that stands against it. Of a directory Fc and Fr are the right to change it alone.
    pub fn forbidden(&self, client: ClientId, inode: &Inode) -> u32 {
        let others = self.holders.iter().filter(|(k, _)| **k != client);
        let ops = inode.is_dir() && self.others_hold(client, cap::FC | cap::FR);
        let of_ops = if ops { against(cap::FX) } else { 0 };
        others.fold(of_ops, |m, (_, c)| m | against(c.issued))
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
