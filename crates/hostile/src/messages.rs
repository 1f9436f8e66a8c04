//! Message bodies, as they come out of frames whose checksums were right.
//!
//! Input: u16 kind, u16 header version, u32 length of the front, front, data. Every decoder of that kind gets it;
//! what decodes is encoded and must decode again.

use crate::take::{take, take_bytes};
use bytes::Bytes;
use messages::fs::MClientLease;
use messages::mon::*;
use messages::osd::{MCommand, MCommandReply, MOSDBackoff, MOSDOp, MOSDOpReply, MWatchNotify, kind};
use msgr::Message;

fn check<T: Body>(m: &Message) -> bool {
    if m.kind != T::KIND {
        return false;
    }
    let body = T::from_message(m);
    if let Ok(body) = &body {
        let again = body.message(m.tid);
        assert!(
            T::from_message(&again).is_ok(),
            "kind {}: does not read what it wrote",
            T::KIND
        );
    }
    body.is_ok()
}

macro_rules! check_osd {
    ($m:expr, $decoded:ident, $($t:ty: $kind:expr),* $(,)?) => {$(
        if $m.kind == $kind && let Ok(body) = <$t>::from_message($m) {
            let again = body.to_message();
            $decoded = true;
            assert!(<$t>::from_message(&again).is_ok(), "kind {}: does not read what it wrote", $kind);
        }
    )*};
}

pub fn messages(mut data: &[u8]) -> bool {
    let (kind_number, version, front_len) =
        (take::<2>(&mut data), take::<2>(&mut data), take::<4>(&mut data));
    let front = Bytes::copy_from_slice(take_bytes(&mut data, front_len));
    let m = Message {
        kind: kind_number as u16,
        version: version as u16,
        compat: 1,
        tid: 7,
        front,
        data: Bytes::copy_from_slice(data),
        ..Message::default()
    };
    let mut decoded = false;
    check_osd!(&m, decoded,
        MOSDOp: kind::OSD_OP,
        MOSDOpReply: kind::OSD_OPREPLY,
        MWatchNotify: kind::WATCH_NOTIFY,
        MOSDBackoff: kind::OSD_BACKOFF,
        MCommand: kind::COMMAND,
        MCommandReply: kind::COMMAND_REPLY,
    );
    macro_rules! check_all { ($($t:ty),* $(,)?) => {$( decoded |= check::<$t>(&m); )*}; }
    check_all!(
        MClientLease,
        MMonCommand,
        MMonCommandAck,
        MFsMap,
        MFsMapUser,
        MMdsMap,
        MMgrMap,
        MMonMap,
        MOsdMap,
        MMgrClose,
        MMgrCommand,
        MMgrCommandReply,
        MMgrConfigure,
        MMgrOpen,
        MMgrReport,
        MPoolOp,
        MPoolOpReply,
        MGetPoolStats,
        MGetPoolStatsReply,
        MMonGetVersion,
        MMonGetVersionReply,
        MStatfs,
        MStatfsReply,
        MConfig,
        MGetConfig,
        MLog,
        MLogAck,
        MMonGetMap,
        MMonSubscribe,
        MMonSubscribeAck,
        MPing,
    );
    decoded
}
