//! Maps of file systems: who is sent which, of what is there and of what is not.

use super::*;
use denc::Decode;
use messages::mon::{MFsMapUser, MMdsMap};
use types::MdsMap;

fn volume(rig: &mut Rig, name: &str) {
    let text = format!(r#"{{"prefix":"fs volume create","name":"{name}"}}"#);
    let done = command(rig, 1, &text);
    assert_eq!(done.code, 0, "{}", done.status);
}

fn map_in(m: &Message) -> MdsMap {
    let body = MMdsMap::from_message(m).unwrap();
    let map = MdsMap::from_bytes(&body.map).unwrap();
    assert_eq!((body.epoch, &body.fs_name), (map.epoch, &map.fs_name));
    map
}

fn names_in(m: &Message) -> Vec<String> {
    let map = MFsMapUser::from_message(m).unwrap().map;
    map.filesystems.into_iter().map(|fs| fs.name).collect()
}

#[test]
fn a_file_system_is_followed_from_before_it_was_made() {
    let mut rig = Rig::new();
    rig.admin(1);
    let none = map_in(&rig.subscribe(1, &[("mdsmap", 0, 0)])[0]);
    assert!(!none.enabled && none.in_ranks.is_empty() && none.data_pools.is_empty());
    volume(&mut rig, "a");
    rig.admin(2);
    let made = map_in(&rig.subscribe(2, &[("mdsmap", 0, 0)])[0]);
    assert_eq!((made.fs_name.as_str(), made.enabled), ("a", true));
    // No daemon has it yet, and a client that found no rank would give up.
    assert_eq!((made.in_ranks, made.up.len()), ([0].into(), 0));
    assert!(made.epoch > none.epoch);
    assert!(
        rig.subscribe(2, &[("mdsmap.1", u64::from(made.epoch) + 1, 0)])
            .is_empty(),
        "nothing new"
    );
    let absent = map_in(&rig.subscribe(2, &[("mdsmap.77", 0, 0)])[0]);
    assert!(!absent.enabled && absent.in_ranks.is_empty());
}

#[test]
fn a_key_for_one_file_system_is_shown_no_other() {
    let mut rig = Rig::new();
    rig.admin(1);
    volume(&mut rig, "a");
    volume(&mut rig, "b");
    rig.open(2, &[("mon", "allow r fsname=b")]);
    assert_eq!(names_in(&rig.subscribe(2, &[("fsmap.user", 0, 1)])[0]), ["b"]);
    assert_eq!(
        names_in(&rig.subscribe(1, &[("fsmap.user", 0, 1)])[0]),
        ["a", "b"]
    );
    let other = map_in(&rig.subscribe(2, &[("mdsmap.1", 0, 0)])[0]);
    assert!(!other.enabled && other.data_pools.is_empty(), "{other:?}");
    let own = map_in(&rig.subscribe(2, &[("mdsmap.2", 0, 0)])[0]);
    assert_eq!(own.fs_name, "b");
}
