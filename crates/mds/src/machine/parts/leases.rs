//! Who may trust a name for a while.

use super::request::RequestId;
use super::tx::ClientId;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long a name may be trusted. Clients count it from when they asked, which is earlier than what the server counts from.
pub const LEASE: Duration = Duration::from_secs(30);
/// And so much longer it is waited for: clocks do not run alike.
pub const MARGIN: Duration = Duration::from_secs(2);
/// Leases of one client; one that has more is given none.
pub const CLIENT_MAX: usize = 16 << 10;
/// The same of all clients.
pub const ALL_MAX: usize = 256 << 10;

/// Questions to a client about what the server before may have told it, that it has not answered; one more waits for an answer.
pub const BLIND_MAX: usize = 32;
/// About what a lease takes in memory, and a name besides its letters.
const LEASE_BYTES: usize = 250;
const NAME_BYTES: usize = 250;

/// A directory, and a name in it.
pub type Name = (u64, Bytes);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    No,
    /// When the client has answered others.
    Later,
    /// And it has not answered.
    Yes,
}

/// Of one client, what it is asked blindly.
#[derive(Debug, Default)]
struct Blind {
    open: usize,
    later: VecDeque<Name>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    seq: u32,
    until: Duration,
    /// Whether it was asked back.
    asked: Asked,
    /// Not given by this server: the one before may have.
    blind: bool,
}

/// Nobody but `except` is given a lease of the name before the request has ended.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    request: RequestId,
    except: Option<ClientId>,
}

#[derive(Debug, Default)]
struct Trust {
    holders: BTreeMap<ClientId, Lease>,
    kept: Vec<Kept>,
    waiting: BTreeSet<RequestId>,
    /// Who may have one by the server before is among the holders, or has given it back.
    swept: bool,
}

impl Trust {
    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.kept.is_empty() && self.waiting.is_empty()
    }

    /// Only the answer to the change itself may bring its client one: what another request of the same client was told before the change is
    /// not what the name says then.
    fn is_kept_from(&self, client: ClientId, request: Option<RequestId>) -> bool {
        let own = |k: &Kept| Some(k.request) == request && k.except == Some(client);
        !self.kept.iter().all(own)
    }

    /// Somebody may still trust the name for whose sake the request waits.
    fn blocks(&self, request: RequestId) -> bool {
        let excepts = self.kept.iter().filter(|k| k.request == request);
        let mut excepts = excepts.map(|k| k.except);
        excepts.any(|except| self.holders.keys().any(|c| Some(*c) != except))
    }

    /// Those who wait and have nobody left to wait for.
    fn wake(&mut self) -> BTreeSet<RequestId> {
        let (stay, woken) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|request| self.blocks(*request));
        self.waiting = stay;
        woken
    }
}

/// Whom to ask a name back of, by the numbers of their leases, and whether somebody may still trust it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asking {
    pub ask: Vec<(ClientId, u32)>,
    pub waits: bool,
}

#[derive(Debug, Default)]
pub struct Leases {
    names: BTreeMap<Name, Trust>,
    /// Of each client, and by when they end.
    of: BTreeMap<ClientId, BTreeSet<Name>>,
    ends: BTreeSet<(Duration, ClientId, Name)>,
    last_seq: u32,
    /// Clients that may trust names by the word of the server before, and until when.
    suspects: BTreeSet<ClientId>,
    suspected_until: Duration,
    blind: BTreeMap<ClientId, Blind>,
    /// What is to be asked now, since others were answered.
    questions: Vec<(ClientId, Name, u32)>,
    /// Letters of all names.
    letters: usize,
}

impl Leases {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn len_of(&self, client: ClientId) -> usize {
        self.of.get(&client).map_or(0, BTreeSet::len)
    }

    /// About how much memory they take.
    pub fn bytes(&self) -> usize {
        self.len() * LEASE_BYTES + self.names.len() * NAME_BYTES + self.letters
    }

    pub fn has_room(&self, client: ClientId) -> bool {
        self.len() < ALL_MAX && self.len_of(client) < CLIENT_MAX
    }

    fn next_seq(&mut self) -> u32 {
        self.last_seq = self.last_seq.wrapping_add(1);
        self.last_seq
    }

    /// The same name, without the message in which it came.
    fn kept_name(&self, name: &Name) -> Name {
        match self.names.get_key_value(name) {
            Some((known, _)) => known.clone(),
            None => (name.0, Bytes::copy_from_slice(&name.1)),
        }
    }

    fn trust(&mut self, name: Name) -> &mut Trust {
        let letters = &mut self.letters;
        let new = |name: &Name| {
            *letters += name.1.len();
            Trust::default()
        };
        self.names.entry(name).or_insert_with_key(new)
    }

    /// Counts a question to the client, if it may be asked now.
    fn ask_blindly(blind: &mut BTreeMap<ClientId, Blind>, client: ClientId, name: &Name) -> Asked {
        let of = blind.entry(client).or_default();
        if of.open < BLIND_MAX {
            of.open += 1;
            return Asked::Yes;
        }
        of.later.push_back(name.clone());
        Asked::Later
    }

    /// One question less: the next ones.
    fn answered(&mut self, client: ClientId) {
        let Some(of) = self.blind.get_mut(&client) else {
            return;
        };
        of.open = of.open.saturating_sub(1);
        while of.open < BLIND_MAX
            && let Some(name) = of.later.pop_front()
        {
            let trust = self.names.get_mut(&name);
            let lease = trust.and_then(|t| t.holders.get_mut(&client));
            if let Some(lease) = lease.filter(|l| l.asked == Asked::Later) {
                lease.asked = Asked::Yes;
                of.open += 1;
                self.questions.push((client, name, lease.seq));
            }
        }
        if of.open == 0 && of.later.is_empty() {
            self.blind.remove(&client);
        }
    }

    /// Whom to ask a name back of by now, since they have answered what they were asked before; what is over meanwhile is left out.
    pub fn questions(&mut self) -> Vec<(ClientId, Name, u32)> {
        let mut questions = std::mem::take(&mut self.questions);
        questions.retain(|(client, name, seq)| {
            let lease = self.names.get(name).and_then(|t| t.holders.get(client));
            lease.is_some_and(|l| l.seq == *seq)
        });
        questions
    }

    fn insert(&mut self, client: ClientId, name: &Name, lease: Lease) {
        self.remove(client, name);
        let name = self.kept_name(name);
        self.of.entry(client).or_default().insert(name.clone());
        self.ends.insert((lease.until, client, name.clone()));
        self.trust(name).holders.insert(client, lease);
    }

    fn remove(&mut self, client: ClientId, name: &Name) {
        let Some(lease) = self.names.get_mut(name).and_then(|t| t.holders.remove(&client)) else {
            return;
        };
        self.ends.remove(&(lease.until, client, name.clone()));
        if let Some(of) = self.of.get_mut(&client) {
            of.remove(name);
            if of.is_empty() {
                self.of.remove(&client);
            }
        }
        if lease.blind && lease.asked == Asked::Yes {
            self.answered(client);
        }
    }

    /// Those who waited for that.
    fn forget(&mut self, client: ClientId, name: &Name) -> BTreeSet<RequestId> {
        self.remove(client, name);
        let woken = self.names.get_mut(name).map(Trust::wake);
        self.forget_if_idle(name);
        woken.unwrap_or_default()
    }

    fn forget_if_idle(&mut self, name: &Name) {
        if self.names.get(name).is_some_and(Trust::is_idle) {
            self.names.remove(name);
            self.letters -= name.1.len();
        }
    }

    /// A lease that begins now, or begins anew, in an answer to `request` if there is one: its number. None: there is no room, somebody changes the name, or the client was asked
    /// for the one it had, and its answer would be taken for this one's.
    pub fn give(
        &mut self,
        client: ClientId,
        name: &Name,
        request: Option<RequestId>,
        now: Duration,
    ) -> Option<u32> {
        let trust = self.names.get(name);
        if trust.is_some_and(|t| t.is_kept_from(client, request)) {
            return None;
        }
        let had = trust.and_then(|t| t.holders.get(&client)).copied();
        if had.is_some_and(|l| l.asked != Asked::No && l.until > now)
            || had.is_none() && !self.has_room(client)
        {
            return None;
        }
        let seq = self.next_seq();
        let lease = Lease {
            seq,
            until: now + LEASE + MARGIN,
            asked: Asked::No,
            blind: false,
        };
        self.insert(client, name, lease);
        Some(seq)
    }

    /// A client wants one for longer: its new number.
    pub fn renew(&mut self, client: ClientId, name: &Name, seq: u32, now: Duration) -> Option<u32> {
        let lease = self.names.get(name)?.holders.get(&client)?;
        let is_it = lease.seq == seq && !lease.blind && lease.until > now;
        is_it.then(|| self.give(client, name, None, now)).flatten()
    }

    /// The name is to change: nobody but `except` is given a lease of it until the request has ended, and all others are asked for theirs.
    /// `suspects`: who may have one by the server before.
    pub fn keep(
        &mut self,
        request: RequestId,
        name: &Name,
        except: Option<ClientId>,
        suspects: &[ClientId],
        now: Duration,
    ) -> Asking {
        let known = self.kept_name(name);
        let trust = self.trust(known);
        let kept = Kept { request, except };
        if !trust.kept.contains(&kept) {
            trust.kept.push(kept);
        }
        let mut asking = Asking::default();
        if !std::mem::replace(&mut trust.swept, true) {
            asking.ask = self.suspect_all(name, except, suspects);
        }
        let Self { names, blind, .. } = self;
        let Some(trust) = names.get_mut(name) else {
            return asking;
        };
        for (client, lease) in trust.holders.iter_mut() {
            if lease.until <= now || Some(*client) == except {
                continue;
            }
            asking.waits = true;
            if lease.asked != Asked::No {
                continue;
            }
            lease.asked = match lease.blind {
                true => Self::ask_blindly(blind, *client, name),
                false => Asked::Yes,
            };
            if lease.asked == Asked::Yes {
                asking.ask.push((*client, lease.seq));
            }
        }
        if asking.waits {
            trust.waiting.insert(request);
        }
        asking
    }

    /// Those who are to be asked at once; of the one who changes the name it is remembered, as long as there is room.
    fn suspect_all(
        &mut self,
        name: &Name,
        except: Option<ClientId>,
        suspects: &[ClientId],
    ) -> Vec<(ClientId, u32)> {
        let mut ask = Vec::new();
        for client in suspects.iter().copied() {
            if self
                .names
                .get(name)
                .is_some_and(|t| t.holders.contains_key(&client))
            {
                continue;
            }
            let asked = match Some(client) != except || !self.has_room(client) {
                true => Self::ask_blindly(&mut self.blind, client, name),
                false => Asked::No,
            };
            let seq = self.next_seq();
            let lease = Lease {
                seq,
                until: self.suspected_until,
                asked,
                blind: true,
            };
            self.insert(client, name, lease);
            if asked == Asked::Yes {
                ask.push((client, seq));
            }
        }
        ask
    }

    /// The request has ended.
    pub fn thaw(&mut self, request: RequestId, name: &Name) {
        if let Some(trust) = self.names.get_mut(name) {
            trust.kept.retain(|k| k.request != request);
            trust.waiting.remove(&request);
        }
        self.forget_if_idle(name);
    }

    /// A client trusts the name no more: who waited for that. What it says of a lease that has ended by its time, or that began anew
    /// since, is nothing. A kernel answers with the number that the server before gave.
    pub fn given_back(&mut self, client: ClientId, name: &Name, seq: u32) -> BTreeSet<RequestId> {
        let lease = self.names.get(name).and_then(|t| t.holders.get(&client));
        // So it does where it took the new one for older than that.
        let newer = |l: &Lease| l.asked == Asked::Yes && seq.wrapping_sub(l.seq) <= u32::MAX / 2;
        match lease.is_some_and(|l| l.seq == seq || l.blind || newer(l)) {
            true => self.forget(client, name),
            false => BTreeSet::new(),
        }
    }

    /// Those that are over by their time: who waited for that.
    pub fn expire(&mut self, now: Duration) -> BTreeSet<RequestId> {
        let mut woken = BTreeSet::new();
        while let Some((until, client, name)) = self.ends.first().cloned()
            && until <= now
        {
            woken.extend(self.forget(client, &name));
        }
        woken
    }

    /// Its session has ended.
    pub fn end_client(&mut self, client: ClientId) -> BTreeSet<RequestId> {
        self.suspects.remove(&client);
        self.blind.remove(&client);
        let names = self.of.get(&client).cloned().unwrap_or_default();
        names.iter().flat_map(|name| self.forget(client, name)).collect()
    }

    /// After a restart: these have come back, and were given what is not known. From now on they hear this server alone.
    pub fn suspect(&mut self, clients: BTreeSet<ClientId>, now: Duration) {
        self.suspects = clients;
        self.suspected_until = now + LEASE + MARGIN;
    }

    pub fn is_suspect(&self, client: ClientId, now: Duration) -> bool {
        now < self.suspected_until && self.suspects.contains(&client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn name(n: &'static str) -> Name {
        (1, Bytes::from_static(n.as_bytes()))
    }

    fn asking(ask: &[(ClientId, u32)], waits: bool) -> Asking {
        Asking {
            ask: ask.to_vec(),
            waits,
        }
    }

    #[test]
    fn a_change_waits_for_all_others_or_for_the_end_of_their_time() {
        let (mut l, a) = (Leases::default(), name("a"));
        assert_eq!(
            (
                l.give(1, &a, None, NOW),
                l.give(2, &a, None, NOW),
                l.give(3, &a, None, NOW)
            ),
            (Some(1), Some(2), Some(3))
        );
        assert_eq!(l.keep(9, &a, Some(1), &[], NOW), asking(&[(2, 2), (3, 3)], true));
        assert_eq!(
            l.keep(9, &a, Some(1), &[], NOW),
            asking(&[], true),
            "it asks once"
        );
        assert_eq!(l.give(4, &a, None, NOW), None, "it is being changed");
        assert!(l.give(1, &a, Some(9), NOW).is_some(), "by this one");
        assert_eq!(
            l.give(1, &a, Some(8), NOW),
            None,
            "by another request of the same client"
        );
        assert_eq!(l.given_back(2, &a, 1), BTreeSet::new());
        assert_eq!(l.given_back(2, &a, 2), BTreeSet::new(), "there is one more");
        assert_eq!(l.keep(9, &a, Some(1), &[], NOW), asking(&[], true));
        let end = NOW + LEASE + MARGIN;
        assert_eq!(l.keep(9, &a, Some(1), &[], end), asking(&[], false));
        assert_eq!(l.expire(end), [9].into());
        l.thaw(9, &a);
        assert_eq!((l.len(), l.names.len(), l.of.len(), l.bytes()), (0, 0, 0, 0));
    }

    #[test]
    fn an_answer_to_the_last_question_gives_nothing_new_back() {
        let (mut l, a) = (Leases::default(), name("a"));
        l.give(2, &a, None, NOW);
        l.keep(9, &a, None, &[], NOW);
        // Who asked is gone.
        l.thaw(9, &a);
        assert_eq!(l.give(2, &a, None, NOW), None);
        let later = NOW + LEASE + MARGIN;
        assert_eq!(l.give(2, &a, None, later), Some(2));
        assert_eq!(l.given_back(2, &a, 1), BTreeSet::new());
        assert_eq!(l.keep(10, &a, None, &[], later), asking(&[(2, 2)], true));
    }

    #[test]
    fn a_lease_is_renewed_while_it_stands() {
        let (mut l, a) = (Leases::default(), name("a"));
        assert_eq!(l.give(2, &a, None, NOW), Some(1));
        let later = NOW + LEASE / 2;
        assert_eq!(l.renew(2, &a, 7, later), None);
        assert_eq!(l.renew(2, &a, 1, later), Some(2));
        assert_eq!(l.expire(NOW + LEASE + MARGIN), BTreeSet::new());
        assert_eq!(l.len_of(2), 1);
        l.keep(9, &a, Some(1), &[], later);
        assert_eq!(l.renew(2, &a, 2, later), None, "it is asked back");
        assert_eq!(l.renew(3, &a, 2, later), None);
    }

    #[test]
    fn what_the_server_before_may_have_given_is_asked_back_once() {
        let (mut l, a) = (Leases::default(), name("a"));
        l.suspect([1, 2, 3].into(), NOW);
        assert!(l.is_suspect(3, NOW) && !l.is_suspect(4, NOW));
        let asked = l.keep(9, &a, Some(1), &[1, 2], NOW);
        assert_eq!((asked.ask.len(), asked.ask[0].0, asked.waits), (1, 2, true));
        // By the number that it knew.
        assert_eq!(l.given_back(2, &a, 77), [9].into());
        assert_eq!(l.keep(9, &a, Some(1), &[1, 2], NOW), asking(&[], false));
        l.thaw(9, &a);
        // What the first one knew of the name stays with it, and is asked back by another's change.
        let asked = l.keep(10, &a, Some(2), &[1, 2], NOW);
        assert_eq!((asked.ask.len(), asked.ask[0].0, asked.waits), (1, 1, true));
        assert!(!l.is_suspect(1, NOW + LEASE + MARGIN));
        assert_eq!(l.end_client(1), [10].into());
    }

    /// Each name has to be asked for by itself; who answers none of them is not asked for all.
    #[test]
    fn a_client_is_asked_blindly_about_so_many_names_at_once() {
        let mut l = Leases::default();
        l.suspect([1, 2, 3].into(), NOW);
        let all: Vec<Name> = (0..3 * BLIND_MAX as u64)
            .map(|n| (n, Bytes::from_static(b"x")))
            .collect();
        let mut asked: BTreeMap<ClientId, Vec<(Name, u32)>> = BTreeMap::new();
        for (n, name) in all.iter().enumerate() {
            let asking = l.keep(n as RequestId, name, Some(1), &[1, 2, 3], NOW);
            assert!(asking.waits);
            for (client, seq) in asking.ask {
                asked.entry(client).or_default().push((name.clone(), seq));
            }
        }
        assert_eq!((asked[&2].len(), asked[&3].len()), (BLIND_MAX, BLIND_MAX));
        // The second answers all that it hears; the third says nothing.
        let mut heard = 0;
        while let Some((name, seq)) = asked.get_mut(&2).and_then(Vec::pop) {
            heard += 1;
            assert_eq!(
                l.given_back(2, &name, seq),
                BTreeSet::new(),
                "the third has said nothing"
            );
            for (client, name, seq) in l.questions() {
                assert_eq!(client, 2);
                asked.entry(client).or_default().push((name, seq));
            }
            assert!(asked[&2].len() <= BLIND_MAX);
        }
        assert_eq!((heard, l.len_of(2), l.len_of(3)), (all.len(), 0, all.len()));
        // Its session ends, and all can go on.
        assert_eq!(l.end_client(3).len(), all.len());
        assert_eq!((l.questions(), l.blind.len()), (vec![], 0));
        for (n, name) in all.iter().enumerate() {
            l.thaw(n as RequestId, name);
        }
        // The one who changed them.
        assert_eq!(l.len(), all.len());
        assert_eq!(l.expire(NOW + LEASE + MARGIN), BTreeSet::new());
        assert_eq!((l.bytes(), l.blind.len()), (0, 0));
    }

    #[test]
    fn what_was_to_be_asked_later_is_over_with_its_time() {
        let mut l = Leases::default();
        l.suspect([2].into(), NOW);
        let all: Vec<Name> = (0..2 * BLIND_MAX as u64).map(|n| (n, Bytes::new())).collect();
        for (n, name) in all.iter().enumerate() {
            l.keep(n as RequestId, name, None, &[2], NOW);
        }
        assert_eq!(l.expire(NOW + LEASE + MARGIN).len(), all.len());
        assert_eq!((l.questions(), l.blind.len(), l.len()), (vec![], 0, 0));
    }

    #[test]
    fn so_many_are_given_and_no_more() {
        let mut l = Leases::default();
        for n in 0..CLIENT_MAX as u64 {
            assert!(l.give(1, &(n, Bytes::new()), None, NOW).is_some());
        }
        let one_more: Name = (CLIENT_MAX as u64, Bytes::new());
        assert_eq!(l.give(1, &one_more, None, NOW), None);
        assert!(
            l.give(1, &(0, Bytes::new()), None, NOW).is_some(),
            "one of its own begins anew"
        );
        assert!(l.give(2, &one_more, None, NOW).is_some());
        l.end_client(1);
        assert_eq!(l.len(), 1);
    }
}
