//! What the simulated disk promises, and how it breaks promises on demand.

use super::*;

fn disk_with(data: &[u8]) -> (SimDisk, Arc<dyn DiskFile>) {
    let disk = SimDisk::new();
    let f = disk.create("f").unwrap();
    disk.sync().unwrap();
    f.write_at(data, 0).unwrap();
    f.flush().unwrap();
    (disk, f)
}

#[test]
fn flushed_data_survives_every_cut() {
    let (disk, _f) = disk_with(&[7; 2000]);
    for seed in 0..50 {
        assert_eq!(disk.survivor(seed).content("f"), vec![7; 2000]);
    }
}

#[test]
fn unflushed_data_survives_in_sectors() {
    let (disk, f) = disk_with(&[1; 2048]);
    f.write_at(&[2; 2048], 0).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let c = disk.survivor(seed).content("f");
        for s in c.chunks(SECTOR) {
            assert!(s.iter().all(|b| *b == s[0]), "a sector is never torn");
        }
        seen.insert(c.chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>());
    }
    assert!(seen.len() > 10 && seen.contains(&vec![1; 4]) && seen.contains(&vec![2; 4]));
}

#[test]
fn after_a_cut_nothing_works() {
    let (disk, f) = disk_with(&[1; 10]);
    disk.cut_at(disk.calls() + 2);
    f.write_at(&[2; 10], 0).unwrap();
    assert!(f.flush().is_err());
    assert!(f.read_at(&mut [0; 1], 0).is_err());
}

#[test]
fn an_unsynced_name_may_be_lost() {
    let disk = SimDisk::new();
    disk.create("f").unwrap().write_at(b"x", 0).unwrap();
    let kept = (0..50).filter(|s| disk.survivor(*s).exists("f").unwrap()).count();
    assert!(kept > 0 && kept < 50);
}

#[test]
fn a_lying_flush_keeps_nothing() {
    let (disk, f) = disk_with(&[1; 10]);
    disk.lie(|flush| flush.file == "f" && flush.lowest < 5);
    f.write_at(&[2; 5], 5).unwrap();
    f.flush().unwrap();
    f.write_at(&[3; 5], 0).unwrap();
    f.flush().unwrap();
    let left = disk.survivor_of(Survival::Nothing).content("f");
    assert_eq!(left, [[1; 5], [2; 5]].concat());
    let left = disk.survivor_of(Survival::Everything).content("f");
    assert_eq!(left, [[3; 5], [2; 5]].concat());
}

#[test]
fn every_call_keeps_the_survivors_asked_for() {
    let (disk, f) = disk_with(&[1; 10]);
    disk.sample_each(1, [1000, 1000, 3000]);
    f.write_at(&[2; 5], 5).unwrap();
    assert_eq!(disk.survivors().len(), 1, "nothing was pending");
    f.flush().unwrap();
    let kept: Vec<_> = disk.survivors().iter().map(|s| s.content("f")).collect();
    assert_eq!(kept.len(), 5);
    assert_eq!((&kept[0], &kept[1]), (&vec![1; 10], &[[1; 5], [2; 5]].concat()));
}

#[test]
fn faults_hit_the_named_call() {
    let (disk, f) = disk_with(&[1; 10]);
    disk.fail(Call::Flush, "f", 1, ErrorKind::Other);
    f.flush().unwrap();
    assert!(f.flush().is_err());
    disk.heal();
    f.flush().unwrap();
    disk.flip("f", 3, 0);
    assert_eq!(disk.content("f")[3], 0);
}
