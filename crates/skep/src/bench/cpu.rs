//! Processor time of processes, and which of them are the server's.

use std::path::Path;

/// What /proc counts processor time in.
const TICKS_PER_S: f64 = 100.0;

/// Seconds that a process used so far.
fn seconds(pid: &str) -> Option<f64> {
    let text = io::files::read(&Path::new("/proc").join(pid).join("stat"));
    // Behind the name, which may hold anything: user and system time are the 12th and 13th fields.
    let text = text.ok().flatten()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

/// This process.
pub fn own() -> Option<f64> {
    seconds("self")
}

/// All of them; None: there are none, or one of them cannot be seen.
pub fn of(pids: &[u32]) -> Option<f64> {
    match pids.is_empty() {
        true => None,
        false => pids.iter().map(|pid| seconds(&pid.to_string())).sum(),
    }
}

/// OSDs on this machine: `ceph-osd`, and `skep up`.
pub fn servers() -> Vec<u32> {
    let names = io::files::list_dir(Path::new("/proc")).unwrap_or_default();
    let pids = names.iter().filter_map(|n| n.parse::<u32>().ok());
    pids.filter(|pid| is_server(*pid)).collect()
}

fn is_server(pid: u32) -> bool {
    let path = Path::new("/proc").join(pid.to_string()).join("cmdline");
    let text = io::files::read_bytes(&path, 1 << 16).ok().flatten().unwrap_or_default();
    let mut words = text.split(|b| *b == 0);
    let program = words.next().unwrap_or_default();
    match program.rsplit(|b| *b == b'/').next().unwrap_or_default() {
        b"ceph-osd" => true,
        name if name.starts_with(b"skep") => words.any(|w| w == b"up"),
        _ => false,
    }
}
