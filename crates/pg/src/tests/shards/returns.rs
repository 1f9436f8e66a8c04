//! OSDs that come back at bad moments: what they say of what was confirmed, and what is left of it on the others.

use super::*;

/// A disk that was lost, and whose OSD dies once more before it has heard the others: its birth tells nothing of what was confirmed.
#[test]
fn a_disk_that_was_lost_says_nothing_after_another_restart() {
    let mut c = Cluster::new(3, 2, 1);
    c.run(in_turn(), 300);
    c.do_now("a", vec![write_full(&[1; 100])]);
    c.do_now("b", vec![write_full(&[2; 40])]);
    c.kill(0);
    (c.in_sync, c.acting) = (vec![0, 1, 2], vec![Some(0), Some(1), Some(2)]);
    let node = &mut c.nodes[0];
    (node.store, node.flushed) = Default::default();
    (c.primary, c.interval) = (0, c.epoch);
    c.start(0);
    // What it began with is durable, and nobody was heard.
    c.flush(0);
    c.kill(0);
    (c.in_sync, c.acting) = (vec![0, 1, 2], vec![Some(0), Some(1), Some(2)]);
    (c.primary, c.interval) = (0, c.epoch);
    c.start(0);
    c.settle();
    assert_eq!(c.check("a").unwrap(), [1; 100]);
    assert_eq!(c.check("b").unwrap(), [2; 40]);
    c.check_logs();
}

/// The same in a PG that is new: that it was begun before keeps nobody from it.
#[test]
fn a_new_pg_whose_primary_dies_before_it_has_heard_the_others_is_new() {
    let mut c = Cluster::new(3, 2, 1);
    c.flush(0);
    c.kill(0);
    (c.in_sync, c.acting) = (vec![0, 1, 2], vec![Some(0), Some(1), Some(2)]);
    (c.primary, c.interval) = (0, c.epoch);
    c.start(0);
    c.settle();
    assert_eq!(c.do_now("a", vec![write_full(&[1; 100])]).result, 0);
    c.settle();
    assert_eq!(c.check("a").unwrap(), [1; 100]);
}

/// One of the set stands still while so much is written that the log forgets all that was confirmed, if it may.
#[test]
fn a_log_keeps_an_entry_that_all_have() {
    let mut c = Cluster::new(3, 2, 1);
    c.run(in_turn(), 300);
    let allow = |c: &mut Cluster| {
        if let Role::Primary(pg) = &mut c.nodes[0].role {
            pg.allow(1, u64::MAX);
        }
    };
    // As little as there can be: 100 entries, of which 25 go at a time.
    allow(&mut c);
    for n in 0..100 {
        assert_eq!(c.do_now("a", vec![write_full(&[n; 40])]).result, 0);
    }
    c.cut(0, 2);
    let mut last = 0;
    for n in 0..110 {
        last = c.send("a", vec![write_full(&[n; 50])]);
    }
    c.deliver_all((0, 1));
    c.flush(0);
    c.flush(1);
    assert!(c.answered(last).is_none());
    c.kill(0);
    c.mend();
    assert_eq!((c.primary, &c.in_sync[..]), (1, &[1, 2][..]));
    assert_eq!(c.data("a").unwrap(), [99; 40]);
    c.start(0);
    c.settle();
    assert_eq!(c.check("a").unwrap(), [99; 40]);
    // Logs begin where each has trimmed.
    c.check_all();
}

/// A member that did not hear that something is let go, whose primary dies then.
#[test]
fn what_a_member_was_not_told_to_let_go_goes_later() {
    let mut c = Cluster::new(3, 2, 1);
    c.run(in_turn(), 300);
    assert_eq!(c.do_now("a", vec![write_full(&[1; 100])]).result, 0);
    c.run(in_turn(), 600);
    assert_eq!((0..3).map(|o| c.asides(o)).sum::<usize>(), 0);
    let tid = c.send("a", vec![write_full(&[2; 100])]);
    for member in [1, 2] {
        c.deliver_all((0, member));
        c.flush(member);
        c.deliver_all((member, 0));
    }
    c.flush(0);
    assert_eq!(c.answered(tid).unwrap().result, 0);
    assert!(c.asides(2) > 0);
    // The word goes to all but one.
    for _ in 0..10 {
        c.now += Duration::from_millis(50);
        c.input(0, Input::Tick);
        c.deliver_all((0, 1));
        c.flush(0);
        c.flush(1);
        c.deliver_all((1, 0));
    }
    assert_eq!((c.asides(0), c.asides(1)), (0, 0));
    assert!(c.asides(2) > 0);
    c.kill(0);
    assert_eq!(c.primary, 1);
    assert_eq!(c.do_now("b", vec![write_full(&[3; 40])]).result, 0);
    c.run(in_turn(), 600);
    assert_eq!((c.asides(1), c.asides(2)), (0, 0));
    c.start(0);
    c.settle();
    c.check_all();
}

/// No fewer may be in sync, one dies for good with a write on its way, and another one takes its place.
#[test]
fn one_that_never_comes_back_is_replaced_though_it_lacks_something() {
    let mut c = Cluster::new(4, 2, 1);
    c.min_size = 3;
    c.run(in_turn(), 300);
    assert_eq!(c.do_now("a", vec![write_full(&[1; 100])]).result, 0);
    let tid = c.send("a", vec![write_full(&[2; 100])]);
    c.kill(2);
    c.run(in_turn(), 400);
    assert_eq!(c.in_sync, [0, 1, 2]);
    assert!(c.answered(tid).is_none(), "osd.2 may come back without it");
    c.crush = vec![0, 1, 3];
    c.tell_all();
    c.settle();
    assert_eq!(c.answered(tid).unwrap().result, 0);
    assert_eq!(c.check("a").unwrap(), [2; 100]);
    c.check_logs();
}
