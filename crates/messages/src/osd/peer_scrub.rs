//! What OSDs tell each other of their copies to compare and repair them (docs/internals/scrub.md).
//!
//! Invariants: as in [`super::peer`]. Not here: what the figures are judged by (`pg::scrub`).

use super::peer::Parts;
use super::peer_txn::{decode_txn, encode_txn};
use denc::{Bytes, Decode, Encode, Reader, Result, Writer};
use types::{EVersion, HObject, Transaction};

/// Bits of [`ObjectDigest::faults`]: what is wrong with a copy by itself.
pub mod fault {
    /// The store cannot give the data, or not all of it.
    pub const READ: u32 = 1;
    /// The store cannot give attributes, omap or size.
    pub const STAT: u32 = 2;
    pub const INFO_MISSING: u32 = 4;
    pub const INFO_CORRUPTED: u32 = 8;
    pub const SNAPSET_MISSING: u32 = 16;
    pub const SNAPSET_CORRUPTED: u32 = 32;
    /// A clone has another size than the snapset says.
    pub const SIZE_INFO: u32 = 64;
}

/// One object (a head or a clone) as one OSD holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectDigest {
    pub object: HObject,
    /// In the object info; 0'0 where there is none to read.
    pub version: EVersion,
    pub size: u64,
    /// CRC-32C over names and values of all attributes, and over the names alone.
    pub attrs: u32,
    pub names: u32,
    /// CRC-32C over the data, and over omap header and rows; only of a deep look.
    pub data: Option<u32>,
    pub omap: Option<u32>,
    /// [`fault`].
    pub faults: u32,
    /// Where the first unreadable piece of data is.
    pub bad_offset: u64,
    /// It changed while it was read: nothing here counts.
    pub changed: bool,
    /// Of a shard the sum of its units (`erasure::Sum`); only of a deep look.
    pub units: Option<u64>,
}

impl ObjectDigest {
    /// Of which nothing is known yet.
    pub fn of(object: HObject) -> Self {
        Self {
            object,
            version: EVersion::default(),
            size: 0,
            attrs: 0,
            names: 0,
            data: None,
            omap: None,
            faults: 0,
            bad_offset: 0,
            changed: false,
            units: None,
        }
    }
}

/// Version 2 has `units`.
impl Encode for ObjectDigest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.object);
            w.put(&self.version);
            w.put(&self.size);
            w.put(&self.attrs);
            w.put(&self.names);
            w.put(&self.data);
            w.put(&self.omap);
            w.put(&self.faults);
            w.put(&self.bad_offset);
            w.put(&self.changed);
            w.put(&self.units);
        });
    }
}

impl Decode for ObjectDigest {
    fn decode(r: &mut Reader) -> Result<Self> {
        r.envelope(2, |version, r| {
            Ok(Self {
                object: r.get()?,
                version: r.get()?,
                size: r.get()?,
                attrs: r.get()?,
                names: r.get()?,
                data: r.get()?,
                omap: r.get()?,
                faults: r.get()?,
                bad_offset: r.get()?,
                changed: r.get()?,
                units: if version >= 2 { r.get()? } else { None },
            })
        })
    }
}

/// One object of a unit: what it is and how much of it there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlineItem {
    pub object: HObject,
    pub version: EVersion,
    pub size: u64,
}
denc::envelope_denc!(OutlineItem, 1, 1, { object, version, size });

/// What a unit (a head with its clones), or one object of it, is made of: ascending, the head last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    pub items: Vec<OutlineItem>,
    /// The head's attribute, as it is; empty where it has none.
    pub snapset: Bytes,
}
denc::envelope_denc!(Outline, 1, 1, { items, snapset });

/// A part of one object; an answer holds as much of it as one transaction takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Data of `offset~len`.
    Data { offset: u64, len: u64 },
    /// Rows of the omap behind a key; from the beginning its header, too.
    Omap { after: Option<Bytes> },
    /// All attributes.
    Attrs,
}

impl Encode for Part {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Data { offset, len } => {
                w.u8(1);
                w.u64(*offset);
                w.u64(*len);
            }
            Self::Omap { after } => {
                w.u8(2);
                w.put(after);
            }
            Self::Attrs => w.u8(3),
        }
    }
}

impl Decode for Part {
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(match r.u8()? {
            1 => Self::Data {
                offset: r.u64()?,
                len: r.u64()?,
            },
            2 => Self::Omap { after: r.get()? },
            3 => Self::Attrs,
            _ => return Err(r.invalid("unknown part of an object")),
        })
    }
}

/// Between the primary of a PG and a member that has everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrubBody {
    /// Looks at the objects from `from` up to and with `to`. Answered by `Digests`.
    Digest {
        token: u64,
        from: HObject,
        to: HObject,
        deep: bool,
    },
    Digests {
        token: u64,
        items: Vec<ObjectDigest>,
        /// The first that was not looked at: there were too many.
        next: Option<HObject>,
    },
    /// The steps that make the objects from `from` up to and with `to` anew. Answered by `Pulled`.
    Pull { token: u64, from: HObject, to: HObject },
    /// 0 and the steps, or an error number: EFBIG where they are too many bytes for one transaction, EIO where they
    /// cannot be read there either.
    Pulled {
        token: u64,
        result: i32,
        txn: Transaction,
    },
    /// What are the objects from `from` up to and with `to`? Answered by `Outlined`.
    Outline { token: u64, from: HObject, to: HObject },
    /// 0 and the outline, or EIO: not all of it can be told there.
    Outlined {
        token: u64,
        result: i32,
        outline: Outline,
    },
    /// A part of an object of this version. Answered by `Pieced`.
    Piece {
        token: u64,
        object: HObject,
        version: EVersion,
        part: Part,
    },
    /// 0 and the steps that make the part what it is, up to where something cannot be read; `next`: what of the part is
    /// left. EIO: not even the first of it can be read. ESTALE: the object has another version.
    Pieced {
        token: u64,
        result: i32,
        next: Option<Part>,
        txn: Transaction,
    },
    /// From a member, unasked: it could not read something of this object (a head, or its clones) for a client.
    Damaged { head: HObject },
}

impl ScrubBody {
    /// What only a member says.
    pub fn is_for_primary(&self) -> bool {
        match self {
            Self::Digests { .. }
            | Self::Pulled { .. }
            | Self::Outlined { .. }
            | Self::Pieced { .. }
            | Self::Damaged { .. } => true,
            Self::Digest { .. } | Self::Pull { .. } | Self::Outline { .. } | Self::Piece { .. } => false,
        }
    }
}

pub(super) const FIRST_TAG: u8 = 32;

pub(super) fn encode(body: &ScrubBody, w: &mut Writer, data: &mut Parts) {
    match body {
        ScrubBody::Digest {
            token,
            from,
            to,
            deep,
        } => {
            w.u8(FIRST_TAG);
            w.u64(*token);
            w.put(from);
            w.put(to);
            w.bool(*deep);
        }
        ScrubBody::Digests { token, items, next } => {
            w.u8(FIRST_TAG + 1);
            w.u64(*token);
            w.put(items);
            w.put(next);
        }
        ScrubBody::Pull { token, from, to } => {
            w.u8(FIRST_TAG + 2);
            w.u64(*token);
            w.put(from);
            w.put(to);
        }
        ScrubBody::Pulled { token, result, txn } => {
            w.u8(FIRST_TAG + 3);
            w.u64(*token);
            w.i32(*result);
            encode_txn(txn, w, data);
        }
        _ => encode_pieces(body, w, data),
    }
}

/// What is said of units that are made in pieces, and of damage.
fn encode_pieces(body: &ScrubBody, w: &mut Writer, data: &mut Parts) {
    match body {
        ScrubBody::Outline { token, from, to } => {
            w.u8(FIRST_TAG + 4);
            w.u64(*token);
            w.put(from);
            w.put(to);
        }
        ScrubBody::Outlined {
            token,
            result,
            outline,
        } => {
            w.u8(FIRST_TAG + 5);
            w.u64(*token);
            w.i32(*result);
            w.put(outline);
        }
        ScrubBody::Piece {
            token,
            object,
            version,
            part,
        } => {
            w.u8(FIRST_TAG + 6);
            w.u64(*token);
            w.put(object);
            w.put(version);
            w.put(part);
        }
        ScrubBody::Pieced {
            token,
            result,
            next,
            txn,
        } => {
            w.u8(FIRST_TAG + 7);
            w.u64(*token);
            w.i32(*result);
            w.put(next);
            encode_txn(txn, w, data);
        }
        ScrubBody::Damaged { head } => {
            w.u8(FIRST_TAG + 8);
            w.put(head);
        }
        ScrubBody::Digest { .. }
        | ScrubBody::Digests { .. }
        | ScrubBody::Pull { .. }
        | ScrubBody::Pulled { .. } => {}
    }
}

/// The body whose tag, `FIRST_TAG` or above, was read already; None: no such message.
pub(super) fn decode(tag: u8, r: &mut Reader, data: &mut Reader) -> Result<Option<ScrubBody>> {
    Ok(Some(match tag.wrapping_sub(FIRST_TAG) {
        0 => ScrubBody::Digest {
            token: r.u64()?,
            from: r.get()?,
            to: r.get()?,
            deep: r.bool()?,
        },
        1 => ScrubBody::Digests {
            token: r.u64()?,
            items: r.get()?,
            next: r.get()?,
        },
        2 => ScrubBody::Pull {
            token: r.u64()?,
            from: r.get()?,
            to: r.get()?,
        },
        3 => ScrubBody::Pulled {
            token: r.u64()?,
            result: r.i32()?,
            txn: decode_txn(r, data)?,
        },
        4 => ScrubBody::Outline {
            token: r.u64()?,
            from: r.get()?,
            to: r.get()?,
        },
        5 => ScrubBody::Outlined {
            token: r.u64()?,
            result: r.i32()?,
            outline: r.get()?,
        },
        6 => ScrubBody::Piece {
            token: r.u64()?,
            object: r.get()?,
            version: r.get()?,
            part: r.get()?,
        },
        7 => ScrubBody::Pieced {
            token: r.u64()?,
            result: r.i32()?,
            next: r.get()?,
            txn: decode_txn(r, data)?,
        },
        8 => ScrubBody::Damaged { head: r.get()? },
        _ => return Ok(None),
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::peer::{PeerBody, PeerMsg};
    use super::*;
    use types::{ObjectId, Op, PgId, SPgId};

    fn object(name: &'static str) -> HObject {
        let oid = Bytes::from_static(name.as_bytes());
        HObject::new(3, 77, Bytes::new(), Bytes::new(), oid, types::NOSNAP)
    }

    /// One of a version before tells nothing of units.
    #[test]
    fn digests_of_version_1_decode() {
        let want = ObjectDigest {
            size: 6,
            data: Some(9),
            changed: true,
            ..ObjectDigest::of(object("a"))
        };
        let mut w = Writer::with_capacity(100);
        w.envelope(1, 1, |w| {
            w.put(&want.object);
            w.put(&want.version);
            w.put(&want.size);
            w.put(&want.attrs);
            w.put(&want.names);
            w.put(&want.data);
            w.put(&want.omap);
            w.put(&want.faults);
            w.put(&want.bad_offset);
            w.put(&want.changed);
        });
        assert_eq!(ObjectDigest::from_bytes(&w.finish()).unwrap(), want);
    }

    #[test]
    fn messages_survive_the_wire() {
        let pg = SPgId::replicated(PgId::new(3, 5));
        let (from, to) = (object("a"), object("b"));
        let digest = ObjectDigest {
            object: object("a"),
            version: EVersion::new(4, 5),
            size: 6,
            attrs: 7,
            names: 8,
            data: Some(9),
            omap: None,
            faults: fault::READ | fault::INFO_MISSING,
            bad_offset: 4096,
            changed: true,
            units: Some(11),
        };
        let oid = ObjectId::replicated(object("a"));
        let txn = Transaction {
            collection: pg,
            ops: vec![Op::Write {
                oid,
                offset: 1,
                data: Bytes::from_static(b"data"),
            }],
        };
        let piece = |part| ScrubBody::Piece {
            token: 4,
            object: object("a"),
            version: EVersion::new(4, 5),
            part,
        };
        for body in [
            ScrubBody::Digest {
                token: 1,
                from: from.clone(),
                to: to.clone(),
                deep: true,
            },
            ScrubBody::Digests {
                token: 1,
                items: vec![digest],
                next: Some(object("c")),
            },
            ScrubBody::Pull { token: 2, from, to },
            ScrubBody::Pulled {
                token: 2,
                result: -5,
                txn: txn.clone(),
            },
            ScrubBody::Outline {
                token: 3,
                from: object("a"),
                to: object("b"),
            },
            ScrubBody::Outlined {
                token: 3,
                result: 0,
                outline: Outline {
                    items: vec![OutlineItem {
                        object: object("a"),
                        version: EVersion::new(4, 5),
                        size: 40 << 20,
                    }],
                    snapset: Bytes::from_static(b"set"),
                },
            },
            piece(Part::Data { offset: 7, len: 8 }),
            piece(Part::Omap { after: None }),
            piece(Part::Omap {
                after: Some(Bytes::from_static(b"key")),
            }),
            piece(Part::Attrs),
            ScrubBody::Pieced {
                token: 4,
                result: 0,
                next: Some(Part::Data { offset: 9, len: 6 }),
                txn,
            },
            ScrubBody::Damaged { head: object("a") },
        ] {
            let msg = PeerMsg::Pg {
                pg,
                interval: 9,
                body: PeerBody::Scrub(body),
            };
            assert_eq!(PeerMsg::from_message(&msg.to_message()), Ok(msg));
        }
    }
}
