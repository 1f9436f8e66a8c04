//! Processor time of processes, and which of them are the server's.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// What /proc counts processor time in.
const TICKS_PER_S: f64 = 100.0;
/// A socket's state in /proc/net/tcp.
const LISTEN: &str = "0A";

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

/// Of the OSDs at these places, those whose process is on this machine and may be looked at.
pub fn servers(places: &[SocketAddr]) -> Vec<u32> {
    let text = io::files::read(Path::new("/proc/net/tcp"))
        .ok()
        .flatten()
        .unwrap_or_default();
    let sockets: Vec<String> = listening(&text, places)
        .iter()
        .map(|i| format!("socket:[{i}]"))
        .collect();
    if sockets.is_empty() {
        return Vec::new();
    }
    let names = io::files::list_dir(Path::new("/proc")).unwrap_or_default();
    let pids = names.iter().filter_map(|n| n.parse::<u32>().ok());
    pids.filter(|pid| has_one(*pid, &sockets)).collect()
}

/// Inodes of sockets that listen at one of the places; `table` is /proc/net/tcp.
fn listening(table: &str, places: &[SocketAddr]) -> Vec<u64> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        // The address as it lies in memory, read as a number of this machine.
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
        let port = u16::from_str_radix(port, 16).ok()?;
        let here = |p: &SocketAddr| p.port() == port && (p.ip() == ip || ip.is_unspecified());
        let listens = *fields.get(3)? == LISTEN && places.iter().any(here);
        listens.then(|| fields.get(9)?.parse().ok()).flatten()
    };
    table.lines().filter_map(row).collect()
}

fn has_one(pid: u32, sockets: &[String]) -> bool {
    let dir = Path::new("/proc").join(pid.to_string()).join("fd");
    let fds = io::files::list_dir(&dir).unwrap_or_default();
    let mut links = fds.iter().filter_map(|fd| std::fs::read_link(dir.join(fd)).ok());
    links.any(|link| sockets.iter().any(|s| link.as_os_str() == s.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_by_their_place() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1A90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 x\n\
            1: 0100007F:1A90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 x\n\
            2: 0100007F:1A91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 x\n";
        let place = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(listening(table, &[place("127.0.0.1:6800")]), [4711]);
        assert!(listening(table, &[place("127.0.0.2:6800"), place("127.0.0.1:1")]).is_empty());
    }
}
