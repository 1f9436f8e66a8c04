//! Sealed disks beside plain ones, cut and torn, and on a real one.

use super::*;
use crate::disk::sim::{Dice, SimDisk, Survival};
use crate::disk::{AlignedVec, HostDisk};

const S: u64 = SECTOR as u64;

fn keys() -> KeyFile {
    KeyFile::parse("k MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=").unwrap()
}

fn over_sim(sim: &SimDisk) -> Arc<dyn Disk> {
    make(Arc::new(sim.clone()), &keys()).unwrap()
}

fn read(file: &dyn DiskFile, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0xee; len];
    file.read_at(&mut data, offset).unwrap();
    data
}

/// Every call beside the same one on a plain disk: what is read is the same, always.
#[test]
fn it_reads_as_a_plain_disk_does() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let plain = SimDisk::new().create("index").unwrap();
        let sim = SimDisk::new();
        let sealed = over_sim(&sim).create("index").unwrap();
        let both = [&plain, &sealed];
        let end = 20 * S;
        for file in both {
            file.set_len(end).unwrap();
        }
        for step in 0..300 {
            // Whole sectors, units, and anything.
            let grain = [S, 16, 1][dice.below(3) as usize];
            let at = dice.below(end / grain) * grain;
            let len = (dice.below(3 * S / grain + 1) * grain).min(end - at);
            let byte = dice.below(256) as u8;
            match dice.below(8) {
                0..4 => {
                    let data = vec![byte; len as usize];
                    both.iter().for_each(|f| f.write_at(&data, at).unwrap());
                }
                4 => {
                    let (a, b) = (vec![byte; S as usize], vec![!byte; 2 * S as usize]);
                    let at = at / S * S % (17 * S);
                    both.iter().for_each(|f| {
                        f.write_vectored_at(&[IoSlice::new(&a), IoSlice::new(&b)], at)
                            .unwrap()
                    });
                }
                5 => {
                    let (at, len) = (at / S * S, len / S * S);
                    both.iter().for_each(|f| f.punch_hole(at, len).unwrap());
                }
                6 => {
                    both.iter().for_each(|f| f.flush().unwrap());
                }
                _ => {
                    let (a, b) = (read(&*plain, at, len as usize), read(&*sealed, at, len as usize));
                    assert!(a == b, "seed {seed}, step {step}: {at}+{len}");
                }
            }
        }
        assert!(
            read(&*plain, 0, end as usize) == read(&*sealed, 0, end as usize),
            "seed {seed}"
        );
        assert_eq!(plain.len().unwrap(), sealed.len().unwrap());
    }
}

#[test]
fn nothing_of_what_was_written_is_on_the_disk() {
    let sim = SimDisk::new();
    let disk = over_sim(&sim);
    for name in ["block", "index"] {
        let file = disk.create(name).unwrap();
        file.write_at(&[b'x'; 2 * SECTOR], 0).unwrap();
        file.write_at(b"xxxxxxxxxxxxxxxxxxxx", 3 * S + 5).unwrap();
        file.flush().unwrap();
        assert!(!sim.content(name).windows(4).any(|w| w == b"xxxx"), "{name}");
        assert_eq!(
            read(&*file, 3 * S, 32),
            [&[0; 5][..], &[b'x'; 20], &[0; 7]].concat()
        );
    }
    // The same bytes at the same place of two files.
    assert_ne!(sim.content("block")[..SECTOR], sim.content("index")[..SECTOR]);
    assert!(disk.create("other").is_err());
    // Another start, with the key and without.
    let again = over(Arc::new(sim.clone()), Some(&keys())).unwrap();
    assert_eq!(read(&*again.open("block").unwrap(), 10, 5), b"xxxxx");
    assert!(over(Arc::new(sim), None).unwrap_err().to_string().contains("'k'"));
}

/// A cut leaves of a write what it would leave on a plain disk, in units.
#[test]
fn what_a_write_does_not_touch_stays_whatever_is_torn() {
    for seed in 0..50 {
        let sim = SimDisk::new();
        let file = over_sim(&sim).create("index").unwrap();
        file.write_at(&[1; 4 * SECTOR], 0).unwrap();
        file.flush().unwrap();
        let mut dice = Dice::new(seed);
        let (at, len) = (dice.below(3 * S), 1 + dice.below(S) as usize);
        file.write_at(&vec![2; len], at).unwrap();
        let left = sim.survivor_of(Survival::Some(seed));
        // Its directory is not synced: whatever became of the name.
        if !left.exists("index").unwrap() {
            continue;
        }
        let file = over(Arc::new(left), Some(&keys()))
            .unwrap()
            .open("index")
            .unwrap();
        let now = read(&*file, 0, 4 * SECTOR);
        let touched = at as usize..at as usize + len;
        for (i, byte) in now.iter().enumerate() {
            match touched.contains(&i) {
                true => assert!([1, 2].contains(byte), "seed {seed}: {byte} at {i}"),
                false => assert_eq!(*byte, 1, "seed {seed} at {i}"),
            }
        }
    }
}

#[test]
fn a_disk_without_a_seal_is_as_it_is() {
    let plain = SimDisk::new();
    let disk = over(Arc::new(plain.clone()), Some(&keys())).unwrap();
    disk.create("block").unwrap().write_at(&[7; SECTOR], 0).unwrap();
    assert_eq!(plain.content("block"), [7; SECTOR]);
    assert_eq!(renew(&plain, Some(&keys())).unwrap(), None);
    // Nor is one whose seal never got a key.
    drop(plain.create(FILE).unwrap());
    let disk = over(Arc::new(plain.clone()), None).unwrap();
    assert_eq!(read(&*disk.open("block").unwrap(), 0, 9), [7; 9]);
}

/// Slices need not be blocks, and large writes go by themselves.
#[test]
fn writes_of_many_slices() {
    let file = over_sim(&SimDisk::new()).create("block").unwrap();
    let data: Vec<u8> = (0..AT_ONCE + 3 * SECTOR).map(|n| (n / 7) as u8).collect();
    let slices: Vec<IoSlice<'_>> = data.chunks(1000).map(IoSlice::new).collect();
    let small = [IoSlice::new(&data[..SECTOR])];
    let end = 2 * AT_ONCE as u64;
    let write = |offset, data| Write { offset, data };
    file.write_all(&[write(end, &small), write(0, &slices), write(end + S, &small)])
        .unwrap();
    assert!(read(&*file, 0, data.len()) == data);
    assert_eq!(read(&*file, end + S, SECTOR), data[..SECTOR]);
    assert_eq!(read(&*file, end, SECTOR), data[..SECTOR]);
}

#[test]
fn queues_of_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = make(Arc::new(HostDisk::new(dir.path())), &keys()).unwrap();
    disk.create("block").unwrap().set_len(64 * S).unwrap();
    let file = disk.open_data("block").unwrap();
    let mut data = AlignedVec::default();
    (0..8u8).for_each(|n| data.extend_from_slice(&[n + 1; SECTOR]));
    if let Some(mut queue) = file.write_queue().unwrap() {
        for _ in 0..2 {
            queue.begin(std::mem::take(&mut data), 3 * S);
            let done = loop {
                if let Some(done) = queue.ended() {
                    break done;
                }
                queue.wait().unwrap();
            };
            done.result.unwrap();
            assert!(
                done.data.len() == 8 * SECTOR && done.data[0] == 1,
                "the owner has what it gave"
            );
            data = done.data;
        }
    } else {
        file.write_at(&data, 3 * S).unwrap();
    }
    assert_eq!(read(&*file, 4 * S, SECTOR), [2; SECTOR]);
    if let Some(mut queue) = file.read_queue().unwrap() {
        queue.push(5, 3 * S, 8 * SECTOR);
        queue.push(6, 0, SECTOR);
        queue.submit();
        let mut done = Vec::new();
        while done.len() < 2 {
            queue.wait().unwrap();
            queue.completed(&mut done);
        }
        done.sort_by_key(|d| d.token);
        assert_eq!(done[0].data.as_ref().unwrap()[..], data[..]);
        assert_eq!(done[1].data.as_ref().unwrap()[..], [0; SECTOR]);
    }
}
