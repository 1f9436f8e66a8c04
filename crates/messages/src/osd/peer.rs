//! The messages between OSDs: ours alone, since no client ever sees them (docs/internals/replication.md).
//!
//! One message kind for all. The front holds everything but the data of writes, which lies one behind the other
//! in the data segment, so that a large write is not copied on its way from a client to a member's store.
//!
//! Invariants: decoding takes memory bounded by the message's size; a transaction that comes out touches what its
//! operations name and nothing else (whether that is the PG's own is for the receiver to check).

use super::peer_scrub::{self, ScrubBody};
use super::peer_txn::SharedTxn;
use denc::{Bytes, BytesMut, Error, Reader, Result, Writer};
use types::{EVersion, Epoch, HObject, SPgId};

/// Message number; outside of what any Ceph daemon uses.
pub const KIND: u16 = 0x5345;
const VERSION: u16 = 1;
/// Before everything that clients send.
const PRIORITY: u16 = 196;

/// What a member says that it has of a PG.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgInfo {
    /// The collection exists.
    pub exists: bool,
    /// Its objects are those of its log: no backfill was begun and not ended.
    pub complete: bool,
    /// Newest and oldest entry of its log; both 0'0 where it is empty.
    pub head: EVersion,
    pub tail: EVersion,
    /// Objects (heads) that its log does not speak for.
    pub dirty: Vec<HObject>,
}
denc::envelope_denc!(PgInfo, 1, 1, { exists, complete, head, tail, dirty });

/// Between the primary of a PG and a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerBody {
    Query,
    /// Everything that it speaks of is durable.
    Info(PgInfo),
    /// Drops log entries behind `to`; their objects are dirty from then on. Answered by `Info`.
    Rewind {
        to: EVersion,
    },
    /// Drops the log; incomplete from then on. Answered by `Info`.
    Reset,
    /// Objects from `from` up to and with `to`, at most `max`. Answered by `Listing`.
    Scan {
        token: u64,
        from: HObject,
        to: HObject,
        max: u32,
    },
    /// Objects with the version in their object info, ascending; 0'0 where it has none.
    Listing {
        token: u64,
        items: Vec<(HObject, EVersion)>,
        /// Where the next scan begins; None: there is nothing behind.
        next: Option<HObject>,
    },
    Apply {
        seq: u64,
        txn: SharedTxn,
    },
    /// Durable, or refused: 0 or an error number.
    Applied {
        seq: u64,
        result: i32,
    },
    /// The member knows a newer interval.
    Stale {
        known: Epoch,
    },
    /// A member of `in_sync` wants to answer reads. Answered by `Granted`.
    Ask {
        token: u64,
    },
    /// It may, for a while counted from the sending of the question; where `pg_num` (that of the primary's pool) is 0 it may
    /// not. All of `in_sync` have what is in the log up to `stable`.
    Granted {
        token: u64,
        pg_num: u32,
        stable: EVersion,
    },
    /// News for those that were granted it; without an answer.
    Stable {
        to: EVersion,
    },
    /// Comparing and repairing copies.
    Scrub(ScrubBody),
    /// Of a shard's object the bytes of `offset~len`, offsets as on the shard. Answered by `Units`.
    ReadUnits {
        token: u64,
        object: HObject,
        offset: u64,
        len: u64,
    },
    /// Takes back what is behind `to`, lets go of all that is set aside, and counts as incomplete from then on: its shard is to be
    /// brought up from there. Answered by `Info`.
    Learn {
        to: EVersion,
    },
    /// 0 and the bytes, cut off at the object's end there, or an error number (EIO, ENOENT). `version`: in the object info;
    /// 0'0 where there is none.
    Units {
        token: u64,
        result: i32,
        version: EVersion,
        data: Bytes,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerMsg {
    /// `stamp` is the sender's own clock; the answer carries it back.
    Ping {
        stamp: u64,
        epoch: Epoch,
    },
    Pong {
        stamp: u64,
        epoch: Epoch,
    },
    Pg {
        pg: SPgId,
        interval: Epoch,
        body: PeerBody,
    },
    /// A whole object for COPY_FROM.
    Fetch {
        id: u64,
        object: HObject,
    },
    /// An error number, or the object as `pg` encodes it.
    Fetched {
        id: u64,
        result: i32,
        copy: Bytes,
    },
}

impl PeerMsg {
    pub fn to_message(&self) -> msgr::Message {
        let mut w = Writer::with_capacity(self.room());
        let mut data = Parts::default();
        self.encode(&mut w, &mut data);
        msgr::Message {
            kind: KIND,
            version: VERSION,
            compat: VERSION,
            priority: PRIORITY,
            front: w.finish(),
            data: data.join(),
            ..Default::default()
        }
    }

    pub fn from_message(m: &msgr::Message) -> Result<Self> {
        let mut r = Reader::new(m.front.clone());
        let mut data = Reader::new(m.data.clone());
        if m.compat > VERSION {
            return Err(r.invalid("a newer version of messages between OSDs"));
        }
        match r.u8()? {
            1 => Ok(Self::Ping {
                stamp: r.u64()?,
                epoch: r.u32()?,
            }),
            2 => Ok(Self::Pong {
                stamp: r.u64()?,
                epoch: r.u32()?,
            }),
            3 => {
                let (pg, interval) = (r.get()?, r.u32()?);
                let body = decode_body(&mut r, &mut data)?;
                Ok(Self::Pg { pg, interval, body })
            }
            4 => Ok(Self::Fetch {
                id: r.u64()?,
                object: r.get()?,
            }),
            5 => Ok(Self::Fetched {
                id: r.u64()?,
                result: r.i32()?,
                copy: data.rest(),
            }),
            _ => Err(r.invalid("unknown message between OSDs")),
        }
    }

    /// What its front takes, roughly.
    fn room(&self) -> usize {
        match self {
            Self::Pg {
                body: PeerBody::Apply { txn, .. },
                ..
            } => 64 + txn.wire_len(),
            Self::Pg {
                body: PeerBody::Applied { .. },
                ..
            }
            | Self::Ping { .. }
            | Self::Pong { .. } => 48,
            _ => 256,
        }
    }

    fn encode(&self, w: &mut Writer, data: &mut Parts) {
        match self {
            Self::Ping { stamp, epoch } => put_stamp(w, 1, *stamp, *epoch),
            Self::Pong { stamp, epoch } => put_stamp(w, 2, *stamp, *epoch),
            Self::Pg { pg, interval, body } => {
                w.u8(3);
                w.put(pg);
                w.u32(*interval);
                encode_body(body, w, data);
            }
            Self::Fetch { id, object } => {
                w.u8(4);
                w.u64(*id);
                w.put(object);
            }
            Self::Fetched { id, result, copy } => {
                w.u8(5);
                w.u64(*id);
                w.i32(*result);
                data.push(copy.clone());
            }
        }
    }
}

fn put_stamp(w: &mut Writer, tag: u8, stamp: u64, epoch: Epoch) {
    w.u8(tag);
    w.u64(stamp);
    w.u32(epoch);
}

fn encode_body(body: &PeerBody, w: &mut Writer, data: &mut Parts) {
    match body {
        PeerBody::Query => w.u8(1),
        PeerBody::Info(info) => {
            w.u8(2);
            w.put(info);
        }
        PeerBody::Rewind { to } => {
            w.u8(3);
            w.put(to);
        }
        PeerBody::Reset => w.u8(4),
        PeerBody::Scan { token, from, to, max } => {
            w.u8(5);
            w.u64(*token);
            w.put(from);
            w.put(to);
            w.u32(*max);
        }
        PeerBody::Listing { token, items, next } => {
            w.u8(6);
            w.u64(*token);
            w.put(items);
            w.put(next);
        }
        PeerBody::Apply { seq, txn } => {
            w.u8(7);
            w.u64(*seq);
            txn.encode(w, data);
        }
        PeerBody::Applied { seq, result } => {
            w.u8(8);
            w.u64(*seq);
            w.i32(*result);
        }
        PeerBody::Stale { known } => {
            w.u8(9);
            w.u32(*known);
        }
        PeerBody::Scrub(body) => peer_scrub::encode(body, w, data),
        _ => encode_more(body, w, data),
    }
}

/// What is said of grants, and of units.
fn encode_more(body: &PeerBody, w: &mut Writer, parts: &mut Parts) {
    match body {
        PeerBody::Ask { token } => {
            w.u8(10);
            w.u64(*token);
        }
        PeerBody::Granted {
            token,
            pg_num,
            stable,
        } => {
            w.u8(11);
            w.u64(*token);
            w.u32(*pg_num);
            w.put(stable);
        }
        PeerBody::Stable { to } => {
            w.u8(12);
            w.put(to);
        }
        PeerBody::Learn { to } => {
            w.u8(15);
            w.put(to);
        }
        PeerBody::ReadUnits {
            token,
            object,
            offset,
            len,
        } => {
            w.u8(13);
            w.u64(*token);
            w.put(object);
            w.u64(*offset);
            w.u64(*len);
        }
        PeerBody::Units {
            token,
            result,
            version,
            data,
        } => {
            w.u8(14);
            w.u64(*token);
            w.i32(*result);
            w.put(version);
            parts.push(data.clone());
        }
        _ => {}
    }
}

fn decode_body(r: &mut Reader, data: &mut Reader) -> Result<PeerBody> {
    Ok(match r.u8()? {
        1 => PeerBody::Query,
        2 => PeerBody::Info(r.get()?),
        3 => PeerBody::Rewind { to: r.get()? },
        4 => PeerBody::Reset,
        5 => PeerBody::Scan {
            token: r.u64()?,
            from: r.get()?,
            to: r.get()?,
            max: r.u32()?,
        },
        6 => PeerBody::Listing {
            token: r.u64()?,
            items: r.get()?,
            next: r.get()?,
        },
        7 => PeerBody::Apply {
            seq: r.u64()?,
            txn: SharedTxn::decode(r, data)?,
        },
        8 => PeerBody::Applied {
            seq: r.u64()?,
            result: r.i32()?,
        },
        9 => PeerBody::Stale { known: r.u32()? },
        10 => PeerBody::Ask { token: r.u64()? },
        11 => PeerBody::Granted {
            token: r.u64()?,
            pg_num: r.u32()?,
            stable: r.get()?,
        },
        12 => PeerBody::Stable { to: r.get()? },
        13 => PeerBody::ReadUnits {
            token: r.u64()?,
            object: r.get()?,
            offset: r.u64()?,
            len: r.u64()?,
        },
        14 => PeerBody::Units {
            token: r.u64()?,
            result: r.i32()?,
            version: r.get()?,
            // Nothing else of such a message is in the data segment.
            data: data.rest(),
        },
        15 => PeerBody::Learn { to: r.get()? },
        tag => match peer_scrub::decode(tag, r, data)? {
            Some(body) => PeerBody::Scrub(body),
            None => return Err(bad(r)),
        },
    })
}

fn bad(r: &Reader) -> Error {
    r.invalid("unknown message of a placement group")
}

/// What goes into the data segment, piece by piece.
#[derive(Debug, Default)]
pub(super) struct Parts {
    first: Bytes,
    /// Those behind it; most messages have none.
    more: Vec<Bytes>,
}

impl Parts {
    pub fn push(&mut self, part: Bytes) {
        if self.first.is_empty() {
            self.first = part;
        } else if !part.is_empty() {
            self.more.push(part);
        }
    }

    /// One buffer; no copy where at most one piece holds anything.
    pub fn join(self) -> Bytes {
        if self.more.is_empty() {
            return self.first;
        }
        let more = self.more.iter().map(Bytes::len).sum::<usize>();
        let mut all = BytesMut::with_capacity(self.first.len() + more);
        all.extend_from_slice(&self.first);
        self.more.iter().for_each(|p| all.extend_from_slice(p));
        all.freeze()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use types::{ObjectId, Op, PgId, Transaction};

    fn object(name: &str) -> HObject {
        let (none, oid) = (Bytes::new(), Bytes::copy_from_slice(name.as_bytes()));
        HObject::new(3, 77, none.clone(), none, oid, types::NOSNAP)
    }

    fn check(body: PeerBody) {
        let pg = SPgId::replicated(PgId::new(3, 5));
        let msg = PeerMsg::Pg {
            pg,
            interval: 9,
            body,
        };
        assert_eq!(PeerMsg::from_message(&msg.to_message()), Ok(msg));
    }

    #[test]
    fn messages_survive_the_wire() {
        let v = EVersion::new(4, 44);
        check(PeerBody::Query);
        check(PeerBody::Info(PgInfo {
            exists: true,
            complete: true,
            head: v,
            tail: v,
            dirty: vec![object("a")],
        }));
        check(PeerBody::Rewind { to: v });
        check(PeerBody::Reset);
        check(PeerBody::Scan {
            token: 3,
            from: object("a"),
            to: object("b"),
            max: 7,
        });
        check(PeerBody::Listing {
            token: 3,
            items: vec![(object("a"), v)],
            next: Some(object("b")),
        });
        check(PeerBody::Applied { seq: 6, result: -28 });
        check(PeerBody::Stale { known: 8 });
        check(PeerBody::Ask { token: 4 });
        check(PeerBody::Granted {
            token: 4,
            pg_num: 32,
            stable: v,
        });
        check(PeerBody::Stable { to: v });
        check(PeerBody::Learn { to: v });
        check(PeerBody::ReadUnits {
            token: 5,
            object: object("u"),
            offset: 4096,
            len: 8192,
        });
        for data in ["", "units of one shard"] {
            check(PeerBody::Units {
                token: 5,
                result: -5,
                version: v,
                data: Bytes::from_static(data.as_bytes()),
            });
        }
        for msg in [
            PeerMsg::Ping { stamp: 5, epoch: 6 },
            PeerMsg::Pong { stamp: 5, epoch: 6 },
            PeerMsg::Fetch {
                id: 1,
                object: object("x"),
            },
            PeerMsg::Fetched {
                id: 1,
                result: -2,
                copy: Bytes::from_static(b"copy"),
            },
        ] {
            assert_eq!(PeerMsg::from_message(&msg.to_message()), Ok(msg));
        }
    }

    /// Every kind of step, twice: data of several writes lies one behind the other.
    #[test]
    fn transactions_survive_the_wire() {
        let oid = ObjectId::replicated(object("a"));
        let b = |s: &'static str| Bytes::from_static(s.as_bytes());
        let (src, dst) = (oid.clone(), ObjectId::replicated(object("c").with_snap(4)));
        let steps = vec![
            Op::Touch { oid: oid.clone() },
            Op::Write {
                oid: oid.clone(),
                offset: 5,
                data: b("first"),
            },
            Op::Zero {
                oid: oid.clone(),
                offset: 5,
                len: 6,
            },
            Op::Truncate {
                oid: oid.clone(),
                size: 6,
            },
            Op::Write {
                oid: oid.clone(),
                offset: 50,
                data: b("second one"),
            },
            Op::Remove { oid: oid.clone() },
            Op::SetAttrs {
                oid: oid.clone(),
                attrs: vec![(b("n"), b("v"))],
            },
            Op::RemoveAttr {
                oid: oid.clone(),
                name: b("n"),
            },
            Op::RemoveAttrs { oid: oid.clone() },
            Op::OmapSet {
                oid: oid.clone(),
                entries: vec![(b("k"), b("v"))],
            },
            Op::OmapRemove {
                oid: oid.clone(),
                keys: vec![b("k")],
            },
            Op::OmapRemoveRange {
                oid: oid.clone(),
                first: b("a"),
                last: b("z"),
            },
            Op::OmapClear { oid: oid.clone() },
            Op::OmapSetHeader { oid, header: b("h") },
            Op::Clone {
                src: src.clone(),
                dst: dst.clone(),
            },
            Op::CloneRange {
                src: src.clone(),
                dst: dst.clone(),
                src_offset: 1,
                len: 2,
                dst_offset: 3,
            },
            Op::Rename { src, dst },
            Op::CreateCollection,
            Op::RemoveCollection,
            Op::SetMeta { meta: b("meta") },
            Op::LogAppend {
                version: EVersion::new(1, 2),
                entry: b("entry"),
            },
            Op::LogTrim {
                to: EVersion::new(1, 1),
            },
        ];
        let txn = |ops: Vec<Op>| Transaction {
            collection: SPgId::replicated(PgId::new(3, 5)),
            ops,
        };
        let twice: Vec<Op> = steps.iter().chain(&steps).cloned().collect();
        check(PeerBody::Apply {
            seq: 1,
            txn: txn(twice).into(),
        });
        // One for several members, each with its own number.
        let shared = SharedTxn::from(txn(steps));
        for seq in [8, 9] {
            let txn = shared.clone();
            check(PeerBody::Apply { seq, txn });
        }
        // A cut data segment is an error, not a shorter write.
        let one = Op::Write {
            oid: ObjectId::replicated(object("a")),
            offset: 0,
            data: b("data"),
        };
        let msg = PeerMsg::Pg {
            pg: SPgId::replicated(PgId::new(3, 5)),
            interval: 1,
            body: PeerBody::Apply {
                seq: 1,
                txn: txn(vec![one]).into(),
            },
        };
        let mut cut = msg.to_message();
        cut.data = cut.data.slice(..3);
        assert!(PeerMsg::from_message(&cut).is_err());
    }
}
