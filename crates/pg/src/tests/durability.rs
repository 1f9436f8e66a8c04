//! When answers leave, what a restart keeps, and duplicates (docs/protocol/ceph/04-osd.md, 7.3, 7.5).

use super::*;
use crate::state::log::{LOG_KEPT, LOG_TRIM};
use types::Op;

#[test]
fn a_small_overwrite_is_one_write_one_attribute_one_log_entry() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(&[1; 8192])]);
    rig.run("o", vec![write(4096, &[2; 4096])]);
    let last = &rig.store.last;
    assert!(
        matches!(&last[..], [Op::Write { .. }, Op::SetAttrs { attrs, .. }, Op::LogAppend { .. }] if attrs.len() == 1),
        "{last:?}"
    );
}

#[test]
fn answers_wait_for_durability_in_order_and_per_object() {
    let mut rig = Rig::new();
    rig.run("quiet", vec![write_full(b"q")]);
    rig.auto_commit = false;
    let send = |rig: &mut Rig, oid: &str, o: OsdOp| {
        let m = rig.request(oid, vec![o]);
        rig.send(m);
        rig.tid
    };
    let base = rig.store.seq;
    let w1 = send(&mut rig, "o", write_full(b"1"));
    let r1 = send(&mut rig, "o", read(0, 0));
    let w2 = send(&mut rig, "o", write_full(b"22"));
    let r2 = send(&mut rig, "o", read(0, 0));
    let bad = send(&mut rig, "o", op(OpCode(0)));
    let other = send(&mut rig, "quiet", read(0, 0));
    let tids = |rig: &mut Rig| rig.replies().iter().map(|r| r.tid).collect::<Vec<_>>();
    assert_eq!(tids(&mut rig), [other], "only what shows nothing new");
    assert!(rig.pg.is_waiting());
    rig.apply(Input::Committed(base));
    assert!(tids(&mut rig).is_empty());
    rig.apply(Input::Committed(base + 1));
    let got = rig.replies();
    assert_eq!(got.iter().map(|r| r.tid).collect::<Vec<_>>(), [w1, r1]);
    assert_eq!(
        got[1].ops[0].outdata, "1",
        "the read sees the write before it, not the one after"
    );
    rig.apply(Input::Committed(base + 2));
    assert_eq!(tids(&mut rig), [w2, r2, bad]);
    assert!(!rig.pg.is_waiting());
}

#[test]
fn a_duplicate_is_answered_not_executed_also_after_a_restart() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    let m = rig.request("o", vec![append(b"!")]);
    let first = rig.answer(m.clone());
    let mut create = rig.request("o", vec![read(0, 1), excl()]);
    assert_eq!(rig.answer(create.clone()).result, -17);
    rig.one("p", op(code::CREATE));
    let mut call = rig.request("p", vec![OsdOp::on_class("hello", "write_return_data", b"")]);
    call.flags = flag::RETURNVEC;
    assert_eq!(rig.answer(call.clone()).result, 42);
    for restart in [false, true] {
        if restart {
            rig.restart();
        }
        let mut again = m.clone();
        again.retry_attempt = 1;
        again.ops[0].indata = "something else".into();
        let r = rig.answer(again);
        assert_eq!((r.result, r.retry_attempt), (0, 1));
        assert_eq!(
            (r.user_version, r.replay_version),
            (first.user_version, first.replay_version)
        );
        assert_eq!(rig.data("o", NOSNAP).unwrap(), "x!");
        create.retry_attempt = 1;
        let r = rig.answer(create.clone());
        assert_eq!((r.result, r.ops[1].rval, r.ops[0].outdata.len()), (-17, 0, 0));
        let r = rig.answer(call.clone());
        assert_eq!((r.result, r.ops[0].rval), (42, 42));
        assert_eq!(r.ops[0].outdata, "you might see this");
    }
    rig.gid += 1;
    assert_eq!(rig.answer(m).result, 0);
    assert_eq!(
        rig.data("o", NOSNAP).unwrap(),
        "x!!",
        "another client's id is another request"
    );
}

#[test]
fn a_duplicate_in_flight_waits_for_the_original() {
    let mut rig = Rig::new();
    rig.auto_commit = false;
    let m = rig.request("o", vec![append(b"z")]);
    for attempt in 0..3 {
        let mut m = m.clone();
        m.retry_attempt = attempt;
        rig.send(m);
    }
    assert!(rig.replies().is_empty());
    rig.apply(Input::Committed(rig.store.seq));
    let got: Vec<_> = rig
        .replies()
        .iter()
        .map(|r| (r.result, r.retry_attempt))
        .collect();
    assert_eq!(got, [(0, 0), (0, 1), (0, 2)]);
    rig.auto_commit = true;
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "z");
}

#[test]
fn a_refused_transaction_leaves_everything_as_it_was_and_is_not_remembered() {
    let mut rig = Rig::new();
    rig.run("o", vec![write_full(b"x")]);
    let stats = rig.pg.stats();
    let m = rig.request("o", vec![append(b"y"), set_xattr(b"a", b"b")]);
    rig.store.fail_next = Some(Errno::ENOSPC);
    assert_eq!(rig.answer(m.clone()).result, -28);
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "x");
    assert_eq!(rig.pg.stats().version, stats.version);
    assert_eq!(rig.answer(m).result, 0);
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "xy");
    let s = rig.pg.stats();
    rig.restart();
    assert_eq!(rig.pg.stats().bytes, s.bytes);
}

#[test]
fn the_log_is_trimmed_and_the_statistics_outlive_it() {
    let mut rig = Rig::new();
    for n in 0..LOG_KEPT + 3 * LOG_TRIM {
        rig.run(&format!("o{}", n % 10), vec![append(b"x")]);
        assert!(rig.pg.log_len() <= LOG_KEPT + LOG_TRIM);
    }
    let s = rig.pg.stats();
    assert_eq!((s.objects, s.bytes), (10, (LOG_KEPT + 3 * LOG_TRIM) as i64));
    // Less memory: the next writes trim it down, and no further.
    rig.pg.keep_log_entries(1);
    for n in 0..20 {
        rig.run(&format!("o{}", n % 10), vec![append(b"x")]);
    }
    let kept = crate::state::log::LOG_KEPT_MIN;
    assert!(
        (kept..kept + LOG_TRIM).contains(&rig.pg.log_len()),
        "{}",
        rig.pg.log_len()
    );
    let s = rig.pg.stats();
    let len = rig.pg.log_len();
    rig.restart();
    let t = rig.pg.stats();
    assert_eq!(
        (t.objects, t.bytes, t.writes, t.version),
        (s.objects, s.bytes, s.writes, s.version)
    );
    assert_eq!(rig.pg.log_len(), len);
}

#[test]
fn user_versions_grow_over_deletion_and_restart() {
    let mut rig = Rig::new();
    let mut last = 0;
    let mut step = |rig: &mut Rig, o: OsdOp| {
        let uv = rig.run("o", vec![o]).user_version;
        assert!(uv > last, "{uv} after {last}");
        last = uv;
    };
    step(&mut rig, write_full(b"a"));
    step(&mut rig, set_xattr(b"a", b"b"));
    step(&mut rig, op(code::DELETE));
    rig.restart();
    step(&mut rig, write_full(b"a"));
    rig.restart();
    step(&mut rig, append(b"a"));
}

#[test]
fn a_client_cannot_use_up_the_request_id_of_another() {
    let mut rig = Rig::new();
    let mut forged = rig.request("o", vec![write_full(b"forged")]);
    forged.reqid = OsdReqId {
        name: EntityName::client(rig.gid + 1),
        tid: 50,
        inc: 0,
    };
    assert_eq!(rig.answer(forged).result, 0);
    rig.gid += 1;
    rig.tid = 49;
    assert_eq!(rig.one("o", append(b"!")), 0);
    assert_eq!(rig.data("o", NOSNAP).unwrap(), "forged!");
}
