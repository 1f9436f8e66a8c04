//! The disk under the store's folder: is there room, how long does a flush take, and does it stand for what it says. Devices: are
//! they there, empty, ours to write.

use super::{Finding, Verdict};
use crate::settle::StartOptions;
use io::Clock;
use io::disk::{Disk, DiskFile, HostDisk};
use io::machine::Device;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "skep-preflight.tmp";
const BLOCK: usize = 4096;
/// Of the file that is written to, over and over.
const BLOCKS: u64 = 1024;
const WRITES_MAX: usize = 2000;
/// Flash cannot be written durably so quickly: something in front of it answers.
const TOO_QUICK: Duration = Duration::from_micros(15);
/// Flash that must be written before it answers, as that of disks without protection against power loss.
const SLOW: Duration = Duration::from_millis(1);
const OSD_BYTES_MIN: u64 = 1 << 30;
/// What has to be zeros on a device, and how much of a file system is of use.
const EMPTY_BYTES: usize = 68 << 10;

pub fn look(
    dir: &Path,
    options: &StartOptions,
    osds: u32,
    probe: Duration,
    clock: &dyn Clock,
) -> Vec<Finding> {
    let mut found = folder(dir, options, osds, probe, clock);
    found.extend(options.devices.iter().map(|d| device(d)));
    found
}

/// The folder, or what is there of the way to it.
fn existing(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|d| d.is_dir()).map(Path::to_path_buf)
}

fn folder(dir: &Path, options: &StartOptions, osds: u32, lasts: Duration, clock: &dyn Clock) -> Vec<Finding> {
    let about = format!("folder {}", dir.display());
    let bad = |text: String| vec![Finding::new(&about, Verdict::Bad, text)];
    let Some(dir) = existing(dir) else {
        return bad("there is no such folder, nor one above it".into());
    };
    let disk = HostDisk::new(&dir);
    if disk.exists(FILE).unwrap_or(false) {
        // Of an earlier one that was killed.
        drop(disk.remove(FILE));
    }
    let times = match probe(&disk, lasts, clock) {
        Ok(times) => times,
        Err(e) => return bad(format!("{}: it cannot be written to: {e}", dir.display())),
    };
    let mut found = vec![space(&about, options, osds, &disk)];
    found.push(kind(&format!("file system of {}", dir.display()), &dir));
    found.push(flushes(
        &format!("flushes of {}", dir.display()),
        io::machine::device(&dir),
        times,
    ));
    found
}

fn space(about: &str, options: &StartOptions, osds: u32, disk: &HostDisk) -> Finding {
    let space = match disk.space() {
        Ok(space) => space,
        Err(e) => return Finding::new(about, Verdict::Bad, format!("its free space is not known: {e}")),
    };
    let osds = u64::from(osds).saturating_sub(options.devices.len() as u64);
    let usable = space.available.saturating_sub(kept_free(options, space.total));
    let gib = usable as f64 / f64::from(1 << 30);
    let text = format!("{gib:.1} GiB for {osds} OSDs beside what is kept free");
    let verdict = match usable >= OSD_BYTES_MIN * osds.max(1) {
        true => Verdict::Good,
        false => Verdict::Warning,
    };
    Finding::new(about, verdict, text)
}

fn kept_free(options: &StartOptions, total: u64) -> u64 {
    match options.keep_free {
        Some(keep) => keep.of(total),
        None => store::Options::for_memory(osd::MEMORY_DEFAULT).host_reserve_bytes,
    }
}

fn kind(about: &str, dir: &Path) -> Finding {
    let kind = io::machine::file_system_type(dir).unwrap_or_else(|| "unknown".into());
    match kind.as_str() {
        "ext4" | "xfs" | "btrfs" | "zfs" | "f2fs" => Finding::new(about, Verdict::Good, kind.clone()),
        "tmpfs" | "ramfs" => {
            let text = format!("{kind}: nothing in it outlives the machine's restart");
            Finding::new(about, Verdict::Warning, text)
        }
        "overlay" => {
            let text =
                "overlay, as of containers: mount a volume of the host here, or data go with the container";
            Finding::new(about, Verdict::Warning, text)
        }
        other => {
            let text = format!("{other}: not tried; ext4, xfs and btrfs are");
            Finding::new(about, Verdict::Warning, text)
        }
    }
}

/// How long durable writes of 4 KiB took, sorted.
fn probe(disk: &HostDisk, lasts: Duration, clock: &dyn Clock) -> std::io::Result<Vec<Duration>> {
    let file = disk.create(FILE)?;
    // It stays as long as it is open, and no longer, also where this is killed.
    disk.remove(FILE)?;
    let block = [0x5au8; BLOCK];
    for at in 0..BLOCKS {
        file.write_at(&block, at * BLOCK as u64)?;
    }
    file.flush()?;
    write_durably(&*file, lasts, clock)
}

fn write_durably(file: &dyn DiskFile, lasts: Duration, clock: &dyn Clock) -> std::io::Result<Vec<Duration>> {
    let (begin, mut times) = (clock.monotonic(), Vec::new());
    while times.len() < WRITES_MAX && (times.len() < 5 || clock.monotonic() - begin < lasts) {
        let start = clock.monotonic();
        // Not one behind the other: a disk shall not make one write of them.
        let at = (times.len() as u64 * 257) % BLOCKS;
        file.write_at(&[times.len() as u8; BLOCK], at * BLOCK as u64)?;
        file.flush()?;
        times.push(clock.monotonic() - start);
    }
    times.sort();
    Ok(times)
}

fn flushes(about: &str, device: Option<Device>, times: Vec<Duration>) -> Finding {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (median, late) = (at(0.5), at(0.99));
    let disk = match &device {
        Some(d) => format!(" on {}", d.name),
        None => String::new(),
    };
    let measured = format!(
        "a durable write of 4 KiB takes {} (99 %: {}){disk}",
        shown(median),
        shown(late)
    );
    let volatile = device.as_ref().and_then(|d| d.volatile_cache);
    let (verdict, why) = match (device.and_then(|d| d.spins), volatile) {
        _ if median < TOO_QUICK => (
            Verdict::Warning,
            "no disk is so quick: something before it answers that may lose what it holds when the power goes",
        ),
        (Some(true), _) => (
            Verdict::Warning,
            "the kernel takes it for a disk that turns (of a virtual disk it may not know better): each small write waits for it",
        ),
        (_, Some(true)) if median > SLOW => (
            Verdict::Warning,
            "flash without protection against power loss, it seems: each write waits for the flash; one with it (of data centres) \
             answers in some 50 us",
        ),
        (_, Some(false)) => (Verdict::Good, "the disk says that its cache outlives the power"),
        (_, Some(true)) => (Verdict::Good, "it has a cache that flushes empty"),
        (_, None) => (Verdict::Good, "the kernel does not say what cache it has"),
    };
    Finding::new(about, verdict, format!("{measured}: {why}"))
}

fn shown(time: Duration) -> String {
    match time.as_micros() {
        us @ 0..1000 => format!("{us} us"),
        us => format!("{:.1} ms", us as f64 / 1000.0),
    }
}

fn device(path: &Path) -> Finding {
    let about = format!("device {}", path.display());
    if !io::disk::is_device(path) {
        return Finding::new(&about, Verdict::Bad, "not a block device");
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Finding::new(&about, Verdict::Bad, "not a block device");
    };
    let mut first = vec![0; EMPTY_BYTES];
    let read = HostDisk::new(dir)
        .open(&name.to_string_lossy())
        .and_then(|file| file.read_at(&mut first, 0));
    match read {
        Err(e) => Finding::new(
            &about,
            Verdict::Bad,
            format!("it cannot be opened for reading and writing: {e}"),
        ),
        Ok(()) if first.iter().any(|b| *b != 0) => {
            let text = "not empty: its first 68 KiB are not zeros (`wipefs -a` and `blkdiscard -z` make them so, and destroy what is on it)";
            Finding::new(&about, Verdict::Bad, text)
        }
        Ok(()) => {
            let spins = io::machine::device(path).and_then(|d| d.spins);
            let text = match spins {
                Some(true) => "empty; a disk that turns",
                Some(false) => "empty; flash",
                None => "empty",
            };
            Finding::new(&about, Verdict::Good, text)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn said(device: Option<Device>, us: u64) -> (Verdict, String) {
        let found = flushes("x", device, vec![Duration::from_micros(us); 10]);
        (found.verdict, found.text)
    }

    /// Sees what is in a folder whenever it is asked for the time: during the probe.
    struct Looks(PathBuf, std::sync::Mutex<Vec<Vec<String>>>);

    impl Clock for Looks {
        fn monotonic(&self) -> Duration {
            let mut seen = self.1.lock().unwrap();
            seen.push(io::files::list_dir(&self.0).unwrap());
            Duration::from_micros(100) * seen.len() as u32
        }

        fn wall(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn a_probe_that_is_killed_leaves_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let clock = Looks(tmp.path().to_path_buf(), Default::default());
        let times = probe(&HostDisk::new(tmp.path()), Duration::ZERO, &clock).unwrap();
        assert_eq!(times.len(), 5);
        let seen = clock.1.into_inner().unwrap();
        assert!(seen.len() > 10 && seen.iter().all(Vec::is_empty), "{seen:?}");
    }

    #[test]
    fn what_a_flush_says_of_its_disk() {
        let disk = |spins, volatile_cache| {
            let name = "sda".to_string();
            Some(Device {
                name,
                spins,
                volatile_cache,
            })
        };
        let flash = |us| said(disk(Some(false), Some(true)), us);
        assert_eq!(flash(200).0, Verdict::Good);
        assert_eq!(flash(2500).0, Verdict::Warning);
        assert!(
            flash(2500)
                .1
                .contains("2.5 ms (99 %: 2.5 ms) on sda: flash without")
        );
        assert!(flash(3).1.contains("no disk is so quick"));
        assert_eq!(said(disk(Some(false), Some(false)), 30).0, Verdict::Good);
        assert_eq!(said(disk(Some(true), Some(true)), 9000).0, Verdict::Warning);
        assert_eq!(said(None, 100).0, Verdict::Good);
    }
}
