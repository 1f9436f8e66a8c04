//! The PG log: one entry per write, successful or failed, and the memory of request ids that follows from it
//! (docs/protocol/ceph/04-osd.md, 7.3).
//!
//! An entry rides in the transaction of its write. In memory stays only what answering a duplicate needs.
//! Statistics ride in the entries as deltas, so that a write costs no row of its own for them; the metadata
//! blob holds the sums as of an entry, and is written again before that entry is trimmed.

use crate::Seq;
use crate::broken::{self, Rule};
use crate::state::intervals::Intervals;
use crate::state::stats::StatsDelta;
use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use std::collections::{HashMap, VecDeque};
use types::{EVersion, HObject, OsdReqId, Utime};

/// Entries kept where memory allows; a client has at most 1024 operations in flight.
pub const LOG_KEPT: usize = 3000;
/// Entries kept however little memory there is.
pub const LOG_KEPT_MIN: usize = 100;
/// Memory of one entry, roughly: the answer, its place in the table and in the order. What RETURNVEC gave comes on top.
pub const LOG_ENTRY_BYTES: u64 = 256;
/// Entries trimmed at a time, where so many are kept.
pub(crate) const LOG_TRIM: usize = 250;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryKind {
    Modify = 1,
    Delete = 2,
    /// A write that failed: nothing but its memory.
    Error = 3,
    /// The PG's own doing: expired watches, trimmed snapshots.
    Internal = 4,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub kind: EntryKind,
    pub version: EVersion,
    pub prior_version: EVersion,
    pub object: HObject,
    pub reqid: OsdReqId,
    pub user_version: u64,
    /// The PG's last user version after this entry.
    pub last_user_version: u64,
    pub mtime: Utime,
    pub result: i32,
    /// The clone made by this write, 0 if none.
    pub clone: u64,
    /// Per-operation return values and output, under RETURNVEC.
    pub returns: Vec<(i32, Bytes)>,
    pub delta: StatsDelta,
    /// What the write wrote of the head's data, if it did nothing else (but to the object info): enough to bring a
    /// copy that has the version before to this one.
    pub ranges: Option<Intervals>,
    /// [`crate::Client::instance`] of who sent it; 0: of before this was written, or nobody.
    pub instance: u64,
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.u8(self.kind as u8);
            w.put(&self.version);
            w.put(&self.prior_version);
            w.put(&self.object);
            w.put(&self.reqid);
            w.u64(self.user_version);
            w.u64(self.last_user_version);
            w.put(&self.mtime);
            w.i32(self.result);
            w.u64(self.clone);
            w.put(&self.returns);
            w.put(&self.delta);
            w.put(&self.ranges);
            w.u64(self.instance);
        });
    }

    fn to_bytes(&self) -> Bytes {
        let mut w = Writer::with_capacity(256 + self.object.oid.len());
        self.encode(&mut w);
        w.finish()
    }
}

impl Decode for LogEntry {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(3, |encoding, r| {
            let kind = match r.u8()? {
                1 => EntryKind::Modify,
                2 => EntryKind::Delete,
                3 => EntryKind::Error,
                4 => EntryKind::Internal,
                _ => return Err(r.invalid("unknown kind of log entry")),
            };
            Ok(Self {
                kind,
                version: r.get()?,
                prior_version: r.get()?,
                object: r.get()?,
                reqid: r.get()?,
                user_version: r.u64()?,
                last_user_version: r.u64()?,
                mtime: r.get()?,
                result: r.i32()?,
                clone: r.u64()?,
                returns: r.get()?,
                delta: r.get()?,
                ranges: if encoding >= 2 { r.get()? } else { None },
                instance: if encoding >= 3 { r.u64()? } else { 0 },
            })
        })
    }
}

/// What a duplicate is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub version: EVersion,
    pub user_version: u64,
    pub result: i32,
    pub returns: Option<Box<[(i32, Bytes)]>>,
    /// The transaction that must be durable first; 0 after a restart.
    pub seq: Seq,
}

/// A request and the client instance that sent it: the number alone is any other's word, who could use up a victim's.
type Sent = (OsdReqId, u64);

/// The memory of request ids, in the order of the log.
#[derive(Debug)]
pub(crate) struct PgLog {
    answers: HashMap<Sent, Answer>,
    order: VecDeque<(EVersion, Sent, Seq)>,
    /// Answers of which it is not known to whom they were given: of an earlier build. Whoever asks gets them.
    anybodys: usize,
    /// Entries to keep.
    keep: usize,
    bytes: u64,
    bytes_max: u64,
}

fn weight(returns: Option<&[(i32, Bytes)]>) -> u64 {
    let out = |(_, out): &(i32, Bytes)| 40 + out.len() as u64;
    LOG_ENTRY_BYTES + returns.map_or(0, |all| all.iter().map(out).sum())
}

impl Default for PgLog {
    fn default() -> Self {
        Self {
            answers: HashMap::new(),
            order: VecDeque::new(),
            anybodys: 0,
            keep: LOG_KEPT,
            bytes: 0,
            bytes_max: u64::MAX,
        }
    }
}

impl PgLog {
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Memory that it takes, roughly.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An empty one with the same bounds.
    pub fn emptied(&self) -> Self {
        Self {
            keep: self.keep,
            bytes_max: self.bytes_max,
            ..Self::default()
        }
    }

    /// So much may it take: entries to keep, and those that are trimmed together.
    pub fn allow(&mut self, bytes: u64) {
        let entries = (bytes / LOG_ENTRY_BYTES) as usize;
        self.keep = (entries - entries / 4).clamp(LOG_KEPT_MIN, LOG_KEPT);
        self.bytes_max = bytes;
    }

    /// Entries trimmed at a time.
    fn step(&self) -> usize {
        LOG_TRIM.min(self.keep / 4).max(1)
    }

    /// The newest version; 0'0 if there is none.
    pub fn head(&self) -> EVersion {
        self.order.back().map_or(EVersion::default(), |(v, ..)| *v)
    }

    /// The newest version that is not above `v`.
    pub fn at_or_before(&self, v: EVersion) -> Option<EVersion> {
        let behind = self.order.partition_point(|(at, ..)| *at <= v);
        Some(self.order.get(behind.checked_sub(1)?)?.0)
    }

    /// The newest version of a transaction up to `seq`; 0'0 where the log remembers none.
    pub fn newest_up_to(&self, seq: Seq) -> EVersion {
        let mut behind = self.order.partition_point(|(.., at)| *at <= seq);
        if broken::is(Rule::StableExact) {
            behind = (behind + 1).min(self.order.len());
        }
        behind
            .checked_sub(1)
            .map_or(EVersion::default(), |i| self.order[i].0)
    }

    /// How many entries came with transactions behind `seq`.
    pub fn since(&self, seq: Seq) -> usize {
        self.order.len() - self.order.partition_point(|(.., at)| *at <= seq)
    }

    /// Whether all entries behind `v`, an entry of this history, are here.
    pub fn reaches(&self, v: EVersion) -> bool {
        match self.at_or_before(v) {
            Some(found) => found == v,
            // Nothing was ever trimmed from a log that begins with the first version.
            None => {
                v == EVersion::default() && self.order.front().is_some_and(|(first, ..)| first.version == 1)
            }
        }
    }

    /// Whether all that a copy lacks is here, whose log is a prefix of this one and ends at `v`: an entry, or older than all
    /// that is here. What lies between was trimmed, or belongs to a PG that was split off, when everybody had it.
    pub fn goes_on_from(&self, v: EVersion) -> bool {
        self.at_or_before(v).is_none_or(|found| found == v)
    }

    pub fn find(&self, reqid: OsdReqId, instance: u64) -> Option<&Answer> {
        let own = self.answers.get(&(reqid, instance));
        match self.anybodys {
            0 => own,
            _ => own.or_else(|| self.answers.get(&(reqid, 0))),
        }
    }

    /// Remembers an entry that was submitted as `seq`.
    pub fn push(&mut self, entry: LogEntry, seq: Seq) {
        let head = self.head();
        assert!(
            entry.version > head,
            "entries of a PG log ascend: {} comes after {head}",
            entry.version
        );
        let sent = (entry.reqid, entry.instance);
        self.order.push_back((entry.version, sent, seq));
        if entry.kind == EntryKind::Internal {
            self.bytes += weight(None);
            return;
        }
        let answer = Answer {
            version: entry.version,
            user_version: if entry.result < 0 { 0 } else { entry.user_version },
            result: entry.result,
            returns: (!entry.returns.is_empty()).then(|| entry.returns.into_boxed_slice()),
            seq,
        };
        self.bytes += weight(answer.returns.as_deref());
        let old = self.answers.insert(sent, answer);
        // Its place in the order goes later, with its own weight.
        let more = old.as_ref().map_or(0, |o| weight(o.returns.as_deref()));
        self.bytes -= more.saturating_sub(LOG_ENTRY_BYTES);
        self.anybodys += usize::from(entry.instance == 0 && old.is_none());
    }

    /// The version up to which the next transaction should trim, once there are a few too many ([`LOG_TRIM`] at most).
    /// Never an entry of a transaction that is not `committed`, nor the newest of those that are: who takes back what
    /// is behind it has to find it.
    pub fn trim_point(&self, committed: Seq) -> Option<EVersion> {
        let step = self.step();
        let long = self.order.len() >= self.keep + step;
        let large = self.bytes > self.bytes_max && self.order.len() > LOG_KEPT_MIN + step;
        if !long && !large {
            return None;
        }
        let trimmed = self.order.len().saturating_sub(self.keep).clamp(step, LOG_TRIM);
        let (version, ..) = self.order[trimmed - 1];
        (self.is_committed(trimmed, committed) || broken::is(Rule::TrimsCommitted)).then_some(version)
    }

    /// The same for all that is too much.
    pub fn excess(&self, committed: Seq) -> Option<EVersion> {
        let last = self.order.len().checked_sub(self.keep + 1)?;
        let (version, ..) = self.order[last];
        self.is_committed(last + 1, committed).then_some(version)
    }

    fn is_committed(&self, at: usize, committed: Seq) -> bool {
        self.order.get(at).is_some_and(|(.., seq)| *seq <= committed)
    }

    /// Forgets what was trimmed.
    pub fn trimmed(&mut self, to: EVersion) {
        while let Some((version, sent, _)) = self.order.front().copied() {
            if version > to {
                break;
            }
            self.order.pop_front();
            self.bytes -= LOG_ENTRY_BYTES;
            // The id may have been used again by a later entry only if this one was forgotten before.
            if self.answers.get(&sent).is_some_and(|a| a.version == version) {
                let gone = self.answers.remove(&sent);
                let returns = gone.as_ref().and_then(|a| a.returns.as_deref());
                self.bytes -= weight(returns) - LOG_ENTRY_BYTES;
                self.anybodys -= usize::from(sent.1 == 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityName;

    fn entry(n: u64) -> LogEntry {
        LogEntry {
            kind: EntryKind::Modify,
            version: EVersion::new(1, n),
            prior_version: EVersion::default(),
            object: HObject::min(),
            reqid: OsdReqId {
                name: EntityName::client(1),
                tid: n,
                inc: 0,
            },
            user_version: n,
            last_user_version: n,
            mtime: Utime::ZERO,
            result: 0,
            clone: 0,
            returns: vec![(1, Bytes::from_static(b"x"))],
            delta: StatsDelta::default(),
            ranges: Some(Intervals::range(3, 9)),
            instance: 77,
        }
    }

    #[test]
    fn survives_its_encoding() {
        assert_eq!(LogEntry::from_bytes(&entry(5).to_bytes()), Ok(entry(5)));
    }

    #[test]
    #[should_panic(expected = "entries of a PG log ascend: 1'4 comes after 1'5")]
    fn an_entry_out_of_order_is_noticed() {
        let mut log = PgLog::default();
        log.push(entry(5), 1);
        log.push(entry(4), 2);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut log = PgLog::default();
        for n in 1..=10_000 {
            log.push(entry(n), n);
            if let Some(to) = log.trim_point(Seq::MAX) {
                log.trimmed(to);
            }
            assert!(log.len() < LOG_KEPT + LOG_TRIM);
            assert_eq!(log.answers.len(), log.order.len());
        }
        assert!(log.find(entry(10_000 - LOG_KEPT as u64 + 1).reqid, 77).is_some());
        assert!(log.find(entry(1).reqid, 77).is_none());
    }

    #[test]
    fn an_entry_of_an_earlier_build_answers_whoever_asks_until_it_is_trimmed() {
        let old = LogEntry {
            instance: 0,
            ..entry(5)
        };
        // As that build wrote it: encoding 2, without the last field.
        let mut raw = old.to_bytes().to_vec();
        raw.truncate(raw.len() - 8);
        raw[0] = 2;
        let len = u32::from_le_bytes([raw[2], raw[3], raw[4], raw[5]]) - 8;
        raw[2..6].copy_from_slice(&len.to_le_bytes());
        assert_eq!(LogEntry::from_bytes(&raw.into()), Ok(old.clone()));
        let mut log = PgLog::default();
        log.push(old.clone(), 1);
        log.push(entry(6), 2);
        assert_eq!(log.find(old.reqid, 77).map(|a| a.version), Some(old.version));
        assert_eq!(log.find(entry(6).reqid, 78), None);
        log.trimmed(old.version);
        assert_eq!((log.find(old.reqid, 77), log.anybodys), (None, 0));
    }
}
