//! Arbitrary messages from an authenticated client: each gets one answer (or is dropped aloud), nothing
//! panics, and the statistics, the store and a reload still agree.

use super::*;
use proptest::prelude::*;

/// Numbers that arguments are made of: small ones, borders, nonsense. None makes a large object.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    3,
    7,
    100,
    4096,
    1 << 20,
    1 << 27,
    u32::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..16u64, 2 => proptest::sample::select(&NUMBERS[..])]
}

fn code_of() -> impl Strategy<Value = OpCode> {
    prop_oneof![
        20 => proptest::sample::select(OpCode::ALL),
        1 => any::<u16>().prop_map(OpCode),
    ]
}

/// In-data: noise, or what decodes as strings, maps and cursors.
fn indata() -> impl Strategy<Value = Vec<u8>> {
    let rows = proptest::collection::vec(("[a-d]{1,3}", "[x-z]{0,4}"), 0..4);
    let commands = proptest::collection::vec(("[hscrR]", "[a-d]", "[x-z]{0,4}"), 0..4);
    prop_oneof![
        2 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => Just(Vec::new()),
        2 => rows.clone().prop_map(|r| denc::Encode::to_bytes(&r).to_vec()),
        // A trivial map, and the commands that change one.
        1 => ("[a-d]{0,3}", rows.clone()).prop_map(|(header, rows)| {
            let mut w = denc::Writer::new();
            w.string(&header);
            w.put(&rows);
            w.finish().to_vec()
        }),
        1 => commands.prop_map(|all| {
            let mut w = denc::Writer::new();
            for (what, key, value) in all {
                w.raw(what.as_bytes());
                w.string(&key);
                if what == "s" || what == "c" {
                    w.string(&value);
                }
            }
            w.finish().to_vec()
        }),
        1 => ("[a-d]{0,3}", number()).prop_map(|(after, max)| {
            let mut w = denc::Writer::new();
            w.string(&after);
            w.u64(max);
            w.string("");
            w.finish().to_vec()
        }),
        1 => Just(denc::Encode::to_bytes(&HObject::min()).to_vec()),
        1 => "[ab]".prop_map(|oid| {
            let mut w = denc::Writer::new();
            w.string(&oid);
            w.put(&ObjectLocator { pool: POOL, key: Bytes::new(), nspace: Bytes::new(), hash: -1 });
            w.u32(3);
            w.u64(5);
            w.finish().to_vec()
        }),
    ]
}

fn any_op() -> impl Strategy<Value = OsdOp> {
    let arg = (number(), number(), number(), any::<u32>(), any::<[u8; 4]>());
    (code_of(), 0..4u32, arg, indata(), any::<bool>()).prop_map(
        |(code, flags, (a, b, c, d, raw), data, fit)| {
            let mut op = OsdOp::ranged(code, a, b).with_flags(flags).with_data(data);
            op.arg[16..24].copy_from_slice(&c.to_le_bytes());
            op.arg[24..28].copy_from_slice(&d.to_le_bytes());
            if fit {
                // Lengths that fit the in-data let the operation come further.
                match code {
                    code::GETXATTR | code::SETXATTR | code::RMXATTR | code::CMPXATTR => {
                        let n = op.indata.len() as u32;
                        op.arg[..4].copy_from_slice(&(n / 2).to_le_bytes());
                        op.arg[4..8].copy_from_slice(&(n - n / 2).to_le_bytes());
                        op.arg[8..10].copy_from_slice(&raw[..2]);
                    }
                    code::WATCH => {
                        op = op.with_watch(messages::osd::WatchArg {
                            cookie: a,
                            op: raw[0] % 9,
                            timeout: u32::from(raw[1]),
                            ..Default::default()
                        });
                    }
                    _ => op.arg[8..16].copy_from_slice(&(op.indata.len() as u64).to_le_bytes()),
                }
            }
            op
        },
    )
}

#[derive(Debug, Clone)]
pub(super) struct Hostile {
    pub oid: &'static str,
    pub ops: Vec<OsdOp>,
    flags: u32,
    snapid: u64,
    seq: u64,
    snaps: Vec<u64>,
    tid: u64,
}

impl Hostile {
    pub fn request(self, rig: &mut Rig) -> MOSDOp {
        let mut m = rig.request(self.oid, self.ops);
        (m.flags, m.snapid, m.snap_seq, m.snaps) = (self.flags, self.snapid, self.seq, self.snaps);
        m.tid = self.tid + 1;
        m
    }
}

pub(super) fn message() -> impl Strategy<Value = Hostile> {
    let snapid = prop_oneof![6 => Just(NOSNAP), 1 => Just(SNAPDIR), 2 => 0..8u64];
    let context = (0..8u64, proptest::collection::vec(0..8u64, 0..4), any::<bool>());
    (
        proptest::sample::select(&["a", "b"][..]),
        proptest::collection::vec(any_op(), 0..5),
        any::<u32>(),
        snapid,
        context,
        1..60u64,
    )
        .prop_map(|(oid, ops, flags, snapid, (seq, mut snaps, valid), tid)| {
            if valid {
                snaps.sort_unstable_by(|a, b| b.cmp(a));
                snaps.dedup();
                snaps.retain(|s| *s <= seq);
            }
            Hostile {
                oid,
                ops,
                flags: flags & !flag::PARALLELEXEC,
                snapid,
                seq,
                snaps,
                tid,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_message_gets_one_answer_and_breaks_nothing(
        all in proptest::collection::vec(message(), 1..30),
        cold in proptest::option::of(0..4u64),
    ) {
        let mut rig = Rig::new();
        rig.run("a", vec![write_full(b"0123456789"), set_xattr(b"a", b"1"), omap_set(&[("k", "v")])]);
        if let Some(lucky) = cold {
            rig.cool_down(lucky);
        }
        for (n, h) in all.into_iter().enumerate() {
            let m = h.request(&mut rig);
            rig.send(m);
            let answers = rig
                .out
                .drain(..)
                .filter(|o| matches!(o, Output::Reply { .. } | Output::Dropped { .. }))
                .count();
            prop_assert_eq!(answers, 1);
            if n % 7 == 6 {
                rig.tick_after(Duration::from_secs(5));
                rig.restart();
            }
            if n == 12 {
                rig.set_pool(PoolView { removed_snaps: SnapIntervals::range(2, 5), ..pool() });
                rig.settle(5);
            }
        }
        let s = rig.pg.stats();
        let counted = rig.count_objects();
        prop_assert_eq!(
            (s.objects, s.bytes, s.clones, s.whiteouts, s.omap_objects),
            (counted.objects, counted.bytes, counted.clones, counted.whiteouts, counted.omap_objects)
        );
        prop_assert_eq!(rig.store.object_count() as i64, s.objects);
        if cold.is_some() {
            prop_assert_eq!(rig.cold().held(), 0);
        }
        rig.tid = 1000;
        prop_assert_eq!(rig.run("a", vec![write_full(b"still here")]).result, 0);
    }
}
