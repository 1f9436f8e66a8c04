//! File systems and daemons without a store: one of each, a failure, a change of mind.

use super::ranks::MdsBoot;
use super::*;
use crate::format::Feature;
use crate::tests::Rig;
use types::fsmap::{MdsState, mds_flag};
use types::{EntityAddr, Epoch};

fn addr(port: u16, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(([127, 0, 0, 1], port).into(), nonce)
}

fn daemon(gid: u64) -> MdsDaemon {
    MdsDaemon {
        rados: addr(0, 1000 + gid as u32),
        metadata: BTreeMap::from([("hostname".to_string(), format!("h{gid}"))]),
    }
}

fn boots(rig: &mut Rig, gid: u64, name: &str) {
    let boot = MdsBoot {
        gid,
        name,
        addr: addr(6800, gid as u32),
        daemon: &daemon(gid),
    };
    let changes = super::boot(&rig.state, &boot, Utime::ZERO).unwrap();
    rig.commit(changes);
}

fn makes(rig: &mut Rig, name: &str) -> i32 {
    let state = rig.state.clone();
    let mut draft = Draft::of(&state, Utime::ZERO);
    let new = NewFs {
        name,
        metadata_pool: 1,
        data_pool: 2,
        fscid: None,
        recover: false,
    };
    let fscid = create(&mut draft, &new).unwrap();
    rig.commit(draft.done());
    fscid
}

fn says(rig: &mut Rig, gid: u64, at: MdsState) -> Result<(), String> {
    let changes = report(&rig.state, gid, at, Utime::ZERO)?;
    rig.commit(changes);
    Ok(())
}

/// Rank 0 of the only file system: who has it, in which state; and the standbys.
fn shown(rig: &Rig) -> (Option<(u64, MdsState)>, Vec<u64>) {
    let map = &rig.state.fsmap;
    let fs = &map.filesystems[0].mds_map;
    let rank = fs.up.get(&0).map(|gid| (*gid, fs.mds_info[gid].state));
    (rank, map.standby_daemons.keys().copied().collect())
}

fn fenced(rig: &Rig, gid: u64) -> bool {
    let blocked = |a: &EntityAddr| rig.state.osdmap.blocklisted(a).is_some();
    let all = [addr(6800, gid as u32), daemon(gid).rados];
    assert!(
        all.iter().all(blocked) || !all.iter().any(blocked),
        "half a daemon is fenced"
    );
    all.iter().all(blocked)
}

#[test]
fn the_first_daemon_makes_a_file_system_and_the_second_waits() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    boots(&mut rig, 12, "b");
    assert_eq!(rig.state.fsmap.standby_daemons.len(), 2);
    let fscid = makes(&mut rig, "fs");
    assert_eq!(rig.state.fsmap.legacy_client_fscid, fscid);
    assert_eq!(shown(&rig), (Some((11, MdsState::Creating)), vec![12]));
    says(&mut rig, 11, MdsState::Active).unwrap();
    assert_eq!(shown(&rig), (Some((11, MdsState::Active)), vec![12]));
    assert!(
        says(&mut rig, 12, MdsState::Active).is_err(),
        "a standby has no rank to speak of"
    );
    assert!(says(&mut rig, 11, MdsState::Replay).is_err(), "never back");
    rig.check("file systems");
}

#[test]
fn a_failure_fences_in_the_same_commit_and_the_standby_replays() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    makes(&mut rig, "fs");
    says(&mut rig, 11, MdsState::Active).unwrap();
    boots(&mut rig, 12, "b");
    let first = rig.state.fsmap.filesystems[0].mds_map.inc[&0];
    let (epoch, osd_epoch) = (rig.state.fsmap.epoch, rig.state.osdmap.epoch);
    let changes = fail(&rig.state, &[11], "lives no more", Utime::ZERO);
    rig.commit(changes);
    assert_eq!(shown(&rig), (Some((12, MdsState::Replay)), vec![]));
    assert!(fenced(&rig, 11) && !fenced(&rig, 12));
    let map = rig.state.fsmap.filesystems[0].mds_map.clone();
    assert_eq!(rig.state.osdmap.epoch, osd_epoch + 1);
    assert_eq!(map.last_failure_osd_epoch, rig.state.osdmap.epoch as Epoch);
    assert_eq!((map.epoch, map.last_failure), (epoch + 1, epoch + 1));
    assert!(map.inc[&0] > first);
    assert!(!rig.state.mds.contains_key(&11) && rig.state.mds.contains_key(&12));
    assert!(
        says(&mut rig, 11, MdsState::Active).is_err(),
        "the one before has no say"
    );
    for at in [
        MdsState::Reconnect,
        MdsState::Rejoin,
        MdsState::ClientReplay,
        MdsState::Active,
    ] {
        says(&mut rig, 12, at).unwrap();
    }
    rig.check("file systems");
}

#[test]
fn without_a_standby_the_rank_is_failed_until_one_comes() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    makes(&mut rig, "fs");
    says(&mut rig, 11, MdsState::Active).unwrap();
    let gone = leave(&rig.state, 11, Utime::ZERO);
    rig.commit(gone);
    let map = &rig.state.fsmap.filesystems[0].mds_map;
    assert_eq!((map.failed.len(), map.in_ranks.len()), (1, 1));
    // The same name, started again.
    boots(&mut rig, 12, "a");
    assert_eq!(shown(&rig), (Some((12, MdsState::Replay)), vec![]));
}

#[test]
fn a_new_run_of_a_name_takes_the_place_of_the_one_before() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    makes(&mut rig, "fs");
    says(&mut rig, 11, MdsState::Active).unwrap();
    boots(&mut rig, 12, "a");
    assert!(fenced(&rig, 11));
    assert_eq!(shown(&rig), (Some((12, MdsState::Replay)), vec![]));
}

#[test]
fn a_rank_that_was_not_made_to_its_end_is_made_again() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    makes(&mut rig, "fs");
    boots(&mut rig, 12, "b");
    let changes = fail(&rig.state, &[11], "lives no more", Utime::ZERO);
    rig.commit(changes);
    assert!(fenced(&rig, 11));
    assert_eq!(shown(&rig), (Some((12, MdsState::Creating)), vec![]));
}

#[test]
fn a_damaged_rank_goes_to_nobody() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    makes(&mut rig, "fs");
    says(&mut rig, 11, MdsState::Active).unwrap();
    boots(&mut rig, 12, "b");
    says(&mut rig, 11, MdsState::Damaged).unwrap();
    assert_eq!(shown(&rig), (None, vec![12]));
    let map = &rig.state.fsmap.filesystems[0].mds_map;
    assert!(map.damaged.contains(&0) && map.failed.is_empty());
}

#[test]
fn a_file_system_that_nobody_may_join_waits() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    let state = rig.state.clone();
    let mut draft = Draft::of(&state, Utime::ZERO);
    let new = NewFs {
        name: "old",
        metadata_pool: 1,
        data_pool: 2,
        fscid: Some(7),
        recover: true,
    };
    assert_eq!(create(&mut draft, &new), Ok(7));
    rig.commit(draft.done());
    assert_eq!(shown(&rig), (None, vec![11]));
    let state = rig.state.clone();
    let mut draft = Draft::of(&state, Utime::ZERO);
    draft.map.by_id_mut(7).unwrap().mds_map.flags &= !mds_flag::NOT_JOINABLE;
    rig.commit(draft.done());
    assert_eq!(shown(&rig), (Some((11, MdsState::Replay)), vec![]));
    assert_eq!(rig.state.fsmap.next_filesystem_id, 8);
}

#[test]
fn removal_fences_and_a_state_is_read_as_it_was_written() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    let fscid = makes(&mut rig, "fs");
    rig.check("file systems");
    let state = rig.state.clone();
    let mut draft = Draft::of(&state, Utime::ZERO);
    remove(&mut draft, fscid);
    rig.commit(draft.done());
    assert!(fenced(&rig, 11));
    assert_eq!(rig.state.fsmap.legacy_client_fscid, -1);
    assert!(rig.state.fsmap.filesystems.is_empty() && rig.state.mds.is_empty());
    rig.check("file systems");
}

fn allows(rig: &mut Rig, fscid: i32, on: bool) {
    let state = rig.state.clone();
    let mut draft = Draft::of(&state, Utime::ZERO);
    let map = &mut draft.map.by_id_mut(fscid).unwrap().mds_map;
    map.flags = match on {
        true => map.flags | mds_flag::ALLOW_STANDBY_REPLAY,
        false => map.flags & !mds_flag::ALLOW_STANDBY_REPLAY,
    };
    rig.commit(draft.done());
}

fn fails(rig: &mut Rig, gid: u64) {
    let changes = fail(&rig.state, &[gid], "lives no more", Utime::ZERO);
    rig.commit(changes);
}

/// Who follows rank 0 of each file system.
fn followers(rig: &Rig) -> Vec<Vec<u64>> {
    let all = rig.state.fsmap.filesystems.iter();
    all.map(|fs| fs.mds_map.followers().map(|f| f.gid).collect())
        .collect()
}

/// One file system with an active server, and two more daemons.
fn followed() -> (Rig, i32) {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    let fscid = makes(&mut rig, "fs");
    allows(&mut rig, fscid, true);
    boots(&mut rig, 12, "b");
    assert_eq!(followers(&rig), [[0; 0]], "nobody follows what is being made");
    says(&mut rig, 11, MdsState::Active).unwrap();
    boots(&mut rig, 13, "c");
    assert_eq!(followers(&rig), [[12]], "one for a rank, the longest waiting");
    assert_eq!(shown(&rig), (Some((11, MdsState::Active)), vec![13]));
    rig.check("a follower");
    (rig, fscid)
}

#[test]
fn the_follower_takes_over_and_the_next_one_follows_it() {
    let (mut rig, _) = followed();
    let info = rig.state.fsmap.info(12).unwrap().clone();
    assert_eq!((info.rank, info.state), (0, MdsState::StandbyReplay));
    assert!(
        says(&mut rig, 12, MdsState::Active).is_err(),
        "the rank is another's"
    );
    assert!(says(&mut rig, 12, MdsState::Damaged).is_err());
    fails(&mut rig, 11);
    assert_eq!(shown(&rig), (Some((12, MdsState::Replay)), vec![13]));
    assert!(fenced(&rig, 11) && !fenced(&rig, 12));
    let map = &rig.state.fsmap.filesystems[0].mds_map;
    assert_eq!(map.mds_info[&12].incarnation, map.inc[&0]);
    assert_eq!(map.inc[&0], rig.state.fsmap.epoch as i32);
    assert_eq!(followers(&rig), [[0; 0]]);
    says(&mut rig, 12, MdsState::Active).unwrap();
    assert_eq!(followers(&rig), [[13]]);
    rig.check("a follower that took over");
}

#[test]
fn a_follower_that_dies_frees_no_rank_and_is_not_fenced() {
    let (mut rig, _) = followed();
    let osd_epoch = rig.state.osdmap.epoch;
    fails(&mut rig, 12);
    assert_eq!(shown(&rig), (Some((11, MdsState::Active)), vec![]));
    assert_eq!(followers(&rig), [[13]]);
    assert!(!fenced(&rig, 12) && rig.state.osdmap.epoch == osd_epoch);
    assert!(!rig.state.mds.contains_key(&12) && rig.state.fsmap.info(12).is_none());
    rig.check("a follower that died");
}

#[test]
fn without_the_knob_the_follower_begins_anew() {
    let (mut rig, fscid) = followed();
    let osd_epoch = rig.state.osdmap.epoch;
    allows(&mut rig, fscid, false);
    assert_eq!(followers(&rig), [[0; 0]]);
    assert_eq!(shown(&rig), (Some((11, MdsState::Active)), vec![13]));
    assert!(rig.state.fsmap.info(12).is_none() && !rig.state.mds.contains_key(&12));
    assert_eq!(rig.state.osdmap.epoch, osd_epoch, "nobody is fenced");
    rig.check("a follower no more");
    boots(&mut rig, 14, "b");
    fails(&mut rig, 11);
    assert_eq!(
        shown(&rig),
        (Some((13, MdsState::Replay)), vec![14]),
        "who waits longest now"
    );
}

/// An older program would take a follower's end for that of the rank's holder.
#[test]
fn older_programs_are_kept_out_while_a_file_system_allows_followers() {
    let bit = 1 << Feature::Followers as u32;
    let features = |rig: &Rig| rig.state.format.unwrap().features;
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    let (one, two) = (makes(&mut rig, "one"), makes(&mut rig, "two"));
    assert_eq!(features(&rig) & bit, 0);
    allows(&mut rig, one, true);
    assert_eq!(features(&rig) & bit, bit, "also before anybody follows");
    allows(&mut rig, two, true);
    allows(&mut rig, one, false);
    assert_eq!(features(&rig) & bit, bit, "the other one allows it");
    rig.check("a state with followers");
    allows(&mut rig, two, false);
    assert_eq!(features(&rig) & bit, 0);
    allows(&mut rig, two, true);
    let state = rig.state.clone();
    let mut draft = Draft::of(&state, Utime::ZERO);
    remove(&mut draft, two);
    rig.commit(draft.done());
    assert_eq!(features(&rig) & bit, 0, "it is gone");
    rig.check("a state without followers");
}

#[test]
fn a_damaged_rank_does_not_go_to_its_follower() {
    let (mut rig, _) = followed();
    says(&mut rig, 11, MdsState::Damaged).unwrap();
    assert_eq!(shown(&rig), (None, vec![13]));
}

#[test]
fn a_follower_is_no_standby_of_another_file_system() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    let one = makes(&mut rig, "one");
    boots(&mut rig, 12, "b");
    let two = makes(&mut rig, "two");
    says(&mut rig, 11, MdsState::Active).unwrap();
    says(&mut rig, 12, MdsState::Active).unwrap();
    allows(&mut rig, one, true);
    allows(&mut rig, two, true);
    boots(&mut rig, 13, "c");
    assert_eq!(followers(&rig), [vec![13], vec![]]);
    fails(&mut rig, 12);
    assert!(rig.state.fsmap.by_id(two).unwrap().mds_map.up.is_empty());
    assert_eq!(followers(&rig), [vec![13], vec![]]);
    // A plain standby gets the free rank before anybody follows.
    boots(&mut rig, 14, "d");
    assert_eq!(rig.state.fsmap.by_id(two).unwrap().mds_map.up[&0], 14);
    let state = rig.state.clone();
    let mut draft = Draft::of(&state, Utime::ZERO);
    remove(&mut draft, one);
    rig.commit(draft.done());
    assert!(
        rig.state.fsmap.info(13).is_none(),
        "it is gone with its file system"
    );
    rig.check("several file systems");
}

/// It would end with who it follows, and be missed where another rank is free.
#[test]
fn a_daemon_of_the_same_process_does_not_follow() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    let fscid = makes(&mut rig, "fs");
    says(&mut rig, 11, MdsState::Active).unwrap();
    allows(&mut rig, fscid, true);
    boots(&mut rig, 12, "a.2");
    assert_eq!(followers(&rig), [[0; 0]]);
    assert_eq!(shown(&rig), (Some((11, MdsState::Active)), vec![12]));
    boots(&mut rig, 13, "b.2");
    assert_eq!(followers(&rig), [[13]]);
}

/// It would take the rank for its own, and write.
#[test]
fn a_daemon_of_an_older_program_follows_nobody() {
    let mut rig = Rig::new();
    boots(&mut rig, 11, "a");
    let fscid = makes(&mut rig, "fs");
    says(&mut rig, 11, MdsState::Active).unwrap();
    boots(&mut rig, 12, "b");
    let mut changes = Changes::none();
    changes.push(Change::MdsDaemon {
        gid: 12,
        daemon: Some(daemon(12)),
    });
    rig.commit(changes);
    allows(&mut rig, fscid, true);
    assert_eq!(followers(&rig), [[0; 0]]);
    boots(&mut rig, 13, "c");
    assert_eq!(followers(&rig), [[13]]);
}
