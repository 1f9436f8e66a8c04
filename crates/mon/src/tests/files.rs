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

/// What a command answers, in a text.
fn said(rig: &mut Rig, words: &str) -> String {
    let text = format!("{{{words}}}");
    let done = command(rig, 1, &text);
    assert_eq!(done.code, 0, "{}", done.status);
    String::from_utf8(done.output.to_vec()).unwrap()
}

fn boots(rig: &mut Rig, gid: u64, name: &str) {
    rig.change(1, |state| {
        let addr = |port| EntityAddr::msgr2(([127, 0, 0, 1], port).into(), gid as u32);
        let daemon = cluster::files::MdsDaemon {
            rados: addr(0),
            metadata: BTreeMap::new(),
        };
        let boot = cluster::files::MdsBoot {
            gid,
            name,
            addr: addr(6800),
            daemon: &daemon,
        };
        cluster::files::boot(state, &boot, Utime::ZERO).unwrap()
    });
}

#[test]
fn a_standby_that_follows_is_shown_as_one() {
    let mut rig = Rig::new();
    rig.admin(1);
    volume(&mut rig, "a");
    boots(&mut rig, 11, "x");
    rig.change(1, |state| {
        cluster::files::report(state, 11, types::fsmap::MdsState::Active, Utime::ZERO).unwrap()
    });
    boots(&mut rig, 12, "y");
    boots(&mut rig, 13, "z");
    let stat = r#""prefix":"mds stat""#;
    assert_eq!(
        said(&mut rig, stat).trim_end(),
        "a:1 {0=x=up:active} 2 up:standby"
    );
    let set = |on| format!(r#""prefix":"fs set","fs_name":"a","var":"allow_standby_replay","val":"{on}""#);
    said(&mut rig, &set(true));
    assert_eq!(
        said(&mut rig, stat).trim_end(),
        "a:1 {0=x=up:active} 1 up:standby-replay 1 up:standby"
    );
    let status = said(&mut rig, r#""prefix":"fs status""#);
    let row = |line: &&str| line.contains("0-s") && line.contains("standby-replay") && line.contains('y');
    assert_eq!(status.lines().filter(row).count(), 1, "{status}");
    let status = said(&mut rig, r#""prefix":"status""#);
    assert!(
        status.contains("1/1 daemons up, 1 standby, 1 hot standby"),
        "{status}"
    );
    let dump = said(&mut rig, r#""prefix":"fs dump""#);
    assert!(dump.contains("[mds.y{0:12} state up:standby-replay"), "{dump}");
    assert!(dump.contains("flags\t32\n"), "{dump}");
    // Three are wanted, and there are two.
    let few = "insufficient standby MDS daemons available";
    let wanted = |n| format!(r#""prefix":"fs set","fs_name":"a","var":"standby_count_wanted","val":"{n}""#);
    let health = r#""prefix":"health""#;
    said(&mut rig, &wanted(2));
    assert!(
        !said(&mut rig, health).contains(few),
        "who follows is one of them"
    );
    said(&mut rig, &wanted(3));
    assert!(said(&mut rig, health).contains(few));
    // The follower is enough to stop who serves.
    said(&mut rig, r#""prefix":"mds ok-to-stop","ids":["x","z"]"#);
    let both = command(&mut rig, 1, r#"{"prefix":"mds ok-to-stop","ids":["x","y"]}"#);
    assert_eq!(both.code, 0, "z is left: {}", both.status);
    let all = command(&mut rig, 1, r#"{"prefix":"mds ok-to-stop","ids":["x","y","z"]}"#);
    assert!(
        all.code < 0 && all.status.contains("insufficent standby"),
        "{}",
        all.status
    );
    // The one that followed has to begin anew.
    said(&mut rig, &set(false));
    assert_eq!(
        said(&mut rig, stat).trim_end(),
        "a:1 {0=x=up:active} 1 up:standby"
    );
}
