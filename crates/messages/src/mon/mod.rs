//! Messages between clients and monitors or the manager (docs/protocol/ceph/02-monitor.md).
//!
//! Vocabulary: a *body* is the typed form of one message kind; most live in the front segment alone, the
//! commands carry input and output in the data segment. Maps travel as encoded blobs, so that one encoding
//! serves all receivers.
//!
//! Invariants: decoding ignores what follows the known fields; counts are checked before memory is taken;
//! encoding what was decoded gives the same bytes (vectors/monitor).
//!
//! Not here: what a map holds (`types`), what a command means (`mon`), COMMAND to any daemon (`crate::osd`),
//! AUTH and its reply (crate `auth`).

mod command;
mod maps;
mod mgr;
mod poolop;
mod query;
mod session;

#[cfg(test)]
mod tests;

pub use command::{MMonCommand, MMonCommandAck};
pub use maps::{MFsMap, MFsMapUser, MMdsMap, MMgrMap, MMonMap, MOsdMap, SnapIntervals};
pub use mgr::{MMgrClose, MMgrCommand, MMgrCommandReply, MMgrConfigure, MMgrOpen, MMgrReport};
pub use poolop::{MPoolOp, MPoolOpReply, PoolOpKind};
pub use query::{
    MGetPoolStats, MGetPoolStatsReply, MMonGetVersion, MMonGetVersionReply, MStatfs, MStatfsReply,
};
pub use session::{
    MConfig, MGetConfig, MLog, MLogAck, MMonGetMap, MMonSubscribe, MMonSubscribeAck, MPing,
    SUBSCRIBE_ONETIME, SubscribeItem,
};

use bytes::Bytes;
use denc::{Decode, Encode, Reader, Result, Writer};
use msgr::Message;

/// Priority that ordinary messages carry.
pub const PRIORITY_DEFAULT: u16 = 127;
/// Priority of answers that keep a session alive.
pub const PRIORITY_HIGH: u16 = 196;

/// A typed message body.
pub trait Body: Sized {
    const KIND: u16;
    /// Header version that we write.
    const VERSION: u16;
    const COMPAT: u16;
    const PRIORITY: u16 = PRIORITY_DEFAULT;

    fn encode_front(&self, w: &mut Writer);
    /// `version` is the header's: older senders leave fields out.
    fn decode_front(version: u16, r: &mut Reader) -> Result<Self>;

    fn data(&self) -> Bytes {
        Bytes::new()
    }
    fn set_data(&mut self, _data: Bytes) {}

    /// The message, ready to send in answer to (or as) transaction `tid`.
    fn message(&self, tid: u64) -> Message {
        let mut w = Writer::new();
        self.encode_front(&mut w);
        Message {
            kind: Self::KIND,
            version: Self::VERSION,
            compat: Self::COMPAT,
            priority: Self::PRIORITY,
            tid,
            data_off: 0,
            front: w.finish(),
            middle: Bytes::new(),
            data: self.data(),
        }
    }

    fn from_message(m: &Message) -> Result<Self> {
        let mut r = Reader::new(m.front.clone());
        let mut body = Self::decode_front(m.version, &mut r)?;
        body.set_data(m.data.clone());
        Ok(body)
    }
}

/// What begins the bodies of services that the monitors once agreed on by Paxos: a version and two session
/// fields that nobody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PaxosHeader {
    pub version: u64,
}

impl Encode for PaxosHeader {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.put(&-1i16);
        w.u64(0);
    }
}
impl Decode for PaxosHeader {
    const MIN_SIZE: usize = 18;
    fn decode(r: &mut Reader) -> Result<Self> {
        let version = r.u64()?;
        r.skip(10)?;
        Ok(Self { version })
    }
}

/// `Body` for a struct whose fields follow each other in the front segment.
macro_rules! plain_body {
    ($t:ty, $kind:expr, $v:expr, $c:expr, { $($f:ident),* $(,)? }) => {
        impl crate::mon::Body for $t {
            const KIND: u16 = $kind;
            const VERSION: u16 = $v;
            const COMPAT: u16 = $c;
            fn encode_front(&self, w: &mut denc::Writer) { let _ = &w; $( w.put(&self.$f); )* }
            fn decode_front(_version: u16, r: &mut denc::Reader) -> denc::Result<Self> {
                let _ = &r;
                $( let $f = r.get()?; )*
                Ok(Self { $($f),* })
            }
        }
    };
    ($t:ty, $kind:expr, $v:expr, $c:expr, { $($f:ident),* $(,)? }, data $data:ident) => {
        impl crate::mon::Body for $t {
            const KIND: u16 = $kind;
            const VERSION: u16 = $v;
            const COMPAT: u16 = $c;
            fn encode_front(&self, w: &mut denc::Writer) { $( w.put(&self.$f); )* }
            fn decode_front(_version: u16, r: &mut denc::Reader) -> denc::Result<Self> {
                $( let $f = r.get()?; )*
                Ok(Self { $($f,)* $data: bytes::Bytes::new() })
            }
            fn data(&self) -> bytes::Bytes { self.$data.clone() }
            fn set_data(&mut self, data: bytes::Bytes) { self.$data = data; }
        }
    };
}
use plain_body;
