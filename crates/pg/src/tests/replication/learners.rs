//! What a learner holds when its primary dies.

use super::*;

/// All that is on its way there.
fn deliver_all(c: &mut Cluster, link: (OsdId, OsdId)) {
    while c.links.get(&link).is_some_and(|q| !q.is_empty()) {
        c.deliver(link);
    }
}

fn everybody(n: u32) -> Vec<OsdId> {
    (0..n as OsdId).collect()
}

/// The primary dies, osd.1 leads, and in the end all are the same.
fn without_the_primary(c: &mut Cluster, n: u32) {
    c.kill(0);
    c.run(in_turn(), 1500);
    assert_eq!((c.group.primary, c.group.in_sync.contains(&2)), (1, true));
    c.check_equal();
    c.start(0);
    c.set_up(&everybody(n));
    c.run(in_turn(), 2500);
    assert_eq!(c.group.in_sync, everybody(n));
    c.check_equal();
}

/// With three copies the next primary has not heard all of `in_sync` when it fills the learner; with four it has.
const COPIES: [u32; 2] = [3, 4];

/// osd.2 missed a write and is about to be caught up by its log; nothing of what it says arrives.
/// `unseen`: a write to another object before that, of which only the primary knows.
fn with_a_learner(n: u32, unseen: Option<Vec<OsdOp>>) -> Cluster {
    let mut c = Cluster::new(n as usize, n, 2);
    c.run(in_turn(), 300);
    for oid in ["a", "b", "c"] {
        c.send(oid, vec![append(b"one")]);
    }
    c.run(in_turn(), 200);
    c.kill(2);
    c.send("a", vec![append(b"two")]);
    c.run(in_turn(), 300);
    assert_eq!(
        c.group.in_sync,
        everybody(n).into_iter().filter(|o| *o != 2).collect::<Vec<_>>()
    );
    if let Some(ops) = unseen {
        c.send("b", ops);
    }
    c.start(2);
    c.set_up(&everybody(n));
    c.deliver((0, 2));
    c.flush(2);
    c.deliver((2, 0));
    let learner = c.pg().members().into_iter().find(|m| m.osd == 2).unwrap();
    assert_eq!((learner.state, learner.backfill), ("recovering", false));
    c
}

/// Clients' writes go to a learner where it has their object already. One that was never durable on all of `in_sync` is undone by the
/// next primary, which looks at the learner's log alone: it stayed in its object, and the copies differed. Found by
/// `random_histories_lose_nothing` in one of some thousand histories.
#[test]
fn a_learner_holds_no_write_that_the_next_primary_may_undo() {
    for (n, what) in COPIES
        .into_iter()
        .flat_map(|n| [(n, vec![append(b"lost")]), (n, vec![op(code::DELETE)])])
    {
        let mut c = with_a_learner(n, None);
        c.send("b", what);
        c.flush(0);
        deliver_all(&mut c, (0, 2));
        c.flush(2);
        // Nobody else has heard of it.
        without_the_primary(&mut c, n);
        let tid = c.send("b", vec![read(0, 0)]);
        c.run(in_turn(), 200);
        assert_eq!(&c.answered(tid).unwrap().ops[0].outdata[..], b"one");
    }
}

/// Nor a copy of an object with such a write in it.
#[test]
fn an_object_is_copied_to_a_learner_when_its_last_write_stays() {
    for n in COPIES {
        let mut c = with_a_learner(n, Some(vec![append(b"lost")]));
        c.flush(0);
        // Asked what it has; copied; what it says of that is lost.
        deliver_all(&mut c, (0, 2));
        c.flush(2);
        deliver_all(&mut c, (2, 0));
        deliver_all(&mut c, (0, 2));
        c.flush(2);
        without_the_primary(&mut c, n);
    }
}

/// A PG that is written to without a pause is caught up all the same, and the learner gets every write.
#[test]
fn a_learner_becomes_full_under_load() {
    let mut c = with_a_learner(3, None);
    for n in 0..2000u32 {
        c.send(
            ["a", "b", "c", "d"][n as usize % 4],
            vec![append(&n.to_le_bytes())],
        );
        c.run(in_turn(), 7);
        if c.group.in_sync.contains(&2) {
            break;
        }
    }
    assert_eq!(c.group.in_sync, [0, 1, 2]);
    c.run(in_turn(), 3000);
    c.check_equal();
}

/// Removing a snapshot's clones waits for nobody: where the object is on its way to a learner just then, it goes there once more.
#[test]
fn what_is_trimmed_while_an_object_is_copied_is_gone_on_the_copy() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    c.send("a", vec![append(b"one")]);
    c.snapc = (1, vec![1]);
    c.run(in_turn(), 200);
    c.kill(2);
    c.send("a", vec![append(b"two")]);
    c.run(in_turn(), 300);
    assert_eq!(c.group.in_sync, [0, 1]);
    c.start(2);
    c.set_up(&everybody(3));
    // Asked what it has, told so, given the copy, whose arrival nobody has heard of.
    deliver_all(&mut c, (0, 2));
    c.flush(2);
    deliver_all(&mut c, (2, 0));
    deliver_all(&mut c, (0, 2));
    c.flush(2);
    deliver_all(&mut c, (2, 0));
    deliver_all(&mut c, (0, 2));
    let clones = |c: &mut Cluster, osd| c.content(osd).iter().filter(|o| o.contains("//a@1")).count();
    assert_eq!(
        (clones(&mut c, 0), clones(&mut c, 2)),
        (1, 1),
        "copied, with its clone"
    );
    (c.snapc, c.removed) = ((1, Vec::new()), SnapIntervals::range(1, 2));
    c.tell_all();
    c.now += Duration::from_millis(10);
    c.input(0, Input::Tick);
    assert_eq!(clones(&mut c, 0), 0, "trimmed");
    c.run(in_turn(), 1500);
    assert_eq!(c.group.in_sync, everybody(3));
    c.check_equal();
}

/// Who is proposed may be in the set already, and lead next: what is answered from then on is durable there, too.
#[test]
fn an_answer_waits_for_who_may_have_joined() {
    let mut c = Cluster::new(2, 2, 1);
    c.run(in_turn(), 300);
    c.kill(1);
    c.run(in_turn(), 200);
    assert_eq!(c.group.in_sync, [0]);
    c.undecided = true;
    c.start(1);
    c.set_up(&everybody(2));
    c.run(in_turn(), 300);
    assert!(!c.proposals.is_empty(), "it has everything");
    let tid = c.send("a", vec![append(b"one")]);
    c.flush(0);
    assert!(c.answered(tid).is_none(), "osd.1 does not have it");
    c.decide();
    c.kill(0);
    assert_eq!((c.group.primary, &c.group.in_sync[..]), (1, &[1][..]));
    c.undecided = false;
    c.start(0);
    c.set_up(&everybody(2));
    c.run(in_turn(), 1500);
    assert!(c.answered(tid).is_none_or(|r| r.result == 0));
    c.check_equal();
}

/// Clients that never stop do not keep a PG from going back to the primary that CRUSH wants.
#[test]
fn a_pg_is_handed_over_under_load() {
    let mut c = Cluster::new(3, 3, 2);
    c.run(in_turn(), 300);
    c.kill(0);
    c.run(in_turn(), 300);
    c.start(0);
    c.set_up(&[0, 1, 2]);
    let mut pick = in_turn();
    // There is always a write on its way: the next one is sent before the last is answered.
    let mut last = c.send("a", vec![append(b"first")]);
    for n in 0..400u32 {
        let next = c.send(
            ["a", "b", "c", "d"][n as usize % 4],
            vec![append(&n.to_le_bytes())],
        );
        for _ in 0..100 {
            c.run(&mut pick, 1);
            if c.answered(last).is_some() {
                break;
            }
        }
        last = next;
        if c.group.primary == 0 {
            break;
        }
    }
    assert_eq!(c.group.in_sync, [0, 1, 2]);
}
