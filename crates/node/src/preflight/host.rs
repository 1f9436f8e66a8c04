//! The machine around the disks: clock, memory, descriptors, io_uring, addresses and ports, etcd.

use super::{Finding, Verdict};
use crate::EtcdSettings;
use crate::platform::Platform;
use crate::settle::{self, Msgr1Port, StartOptions};
use crate::state::etcd_store;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What the process takes beside its OSDs.
const BESIDE: u64 = 256 << 20;
const DESCRIPTORS_FEW: u64 = 16_384;
const ETCD_WITHIN: Duration = Duration::from_secs(10);
const ETCD_READS: usize = 10;
const ETCD_SLOW: Duration = Duration::from_millis(50);

pub fn look(options: &StartOptions, osds: u32, platform: &Platform) -> Vec<Finding> {
    let mut found = vec![clock(), memory(options, osds), descriptors(platform), uring()];
    match settle::first_bind(options) {
        Err(why) => found.push(Finding::new("address", Verdict::Bad, why.to_string())),
        Ok(at) => {
            found.push(address(at, options.etcd.is_some()));
            found.extend(ports(at, options).into_iter().map(|at| port(at, Verdict::Bad)));
        }
    }
    if options.metrics_port != 0 {
        // A store whose /metrics cannot be served says so, and serves.
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), options.metrics_port);
        found.push(port(at, Verdict::Warning));
    }
    if let Some(s3) = options.s3.as_ref().filter(|s3| s3.listen.port() != 0) {
        // The store serves without, and S3 comes when it can.
        found.push(port(s3.listen, Verdict::Warning));
    }
    found
}

/// The monitor's; 0 stands for any.
fn ports(at: IpAddr, options: &StartOptions) -> Vec<SocketAddr> {
    let mon = options.mon_port.unwrap_or(settle::MON_PORT);
    let msgr1 = match options.msgr1 {
        Some(Msgr1Port::Off) => 0,
        Some(Msgr1Port::At(port)) => port,
        None if mon == 0 => 0,
        None => settle::MSGR1_PORT,
    };
    let both = [mon, msgr1].into_iter().filter(|port| *port != 0);
    both.map(|port| SocketAddr::new(at, port)).collect()
}

fn port(at: SocketAddr, otherwise: Verdict) -> Finding {
    let about = format!("port {}", at.port());
    match io::machine::may_listen(at) {
        Ok(()) => Finding::new(&about, Verdict::Good, format!("{at} is free")),
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            let text = format!("{at} is taken: by another store, or by a Ceph?");
            Finding::new(&about, otherwise, text)
        }
        Err(e) => Finding::new(&about, otherwise, format!("{at}: {e}")),
    }
}

fn clock() -> Finding {
    match io::machine::clock_is_kept() {
        Some(true) => Finding::new("clock", Verdict::Good, "kept by a time service"),
        Some(false) => {
            let text = "no time service keeps it (chrony, systemd-timesyncd): tickets of clients end too early or too late";
            Finding::new("clock", Verdict::Warning, text)
        }
        None => Finding::new(
            "clock",
            Verdict::Good,
            "the kernel does not say whether it is kept",
        ),
    }
}

fn memory(options: &StartOptions, osds: u32) -> Finding {
    let each = options.osd_memory.unwrap_or(osd::MEMORY_DEFAULT);
    let need = u64::from(osds) * each + BESIDE;
    let mib = |bytes: u64| bytes >> 20;
    let Some(have) = io::machine::available_memory() else {
        return Finding::new(
            "memory",
            Verdict::Good,
            "the kernel does not say how much there is",
        );
    };
    let text = format!(
        "{} MiB for {} OSDs of {} MiB and the rest; {} MiB can be taken",
        mib(need),
        osds,
        mib(each),
        mib(have)
    );
    let verdict = if have >= need {
        Verdict::Good
    } else {
        Verdict::Warning
    };
    Finding::new("memory", verdict, text)
}

fn descriptors(platform: &Platform) -> Finding {
    let n = platform.descriptors;
    match n >= DESCRIPTORS_FEW {
        true => Finding::new("descriptors", Verdict::Good, format!("{n} are allowed")),
        false => {
            let text = format!(
                "{n} are allowed (ulimit -n): few clients can connect; the unit file of the package allows 1048576"
            );
            Finding::new("descriptors", Verdict::Warning, text)
        }
    }
}

fn uring() -> Finding {
    match io::disk::has_io_uring() {
        true => Finding::new("io_uring", Verdict::Good, "can be used"),
        false => {
            let text = "cannot be used (kernel, seccomp or sysctl kernel.io_uring_disabled): threads do its work, which costs more";
            Finding::new("io_uring", Verdict::Warning, text)
        }
    }
}

fn address(at: IpAddr, many: bool) -> Finding {
    if !io::machine::has_address(at) {
        return Finding::new(
            "address",
            Verdict::Bad,
            format!("{at} is not one of this machine"),
        );
    }
    if at.is_loopback() && many {
        let text = format!("{at}: other machines of the cluster cannot reach it (--bind)");
        return Finding::new("address", Verdict::Warning, text);
    }
    Finding::new("address", Verdict::Good, format!("{at} is one of this machine"))
}

/// Whether it answers, and how quickly: every change of the cluster's state waits for it.
pub async fn etcd(settings: &EtcdSettings, platform: &Platform) -> Finding {
    let bad = |text: String| Finding::new("etcd", Verdict::Bad, text);
    let look = async {
        let store = etcd_store(settings, platform, &|_| {})
            .await
            .map_err(|e| e.to_string())?;
        let mut times = Vec::new();
        for _ in 0..ETCD_READS {
            let start = platform.clock.monotonic();
            store.get("preflight").await.map_err(|e| e.to_string())?;
            times.push(platform.clock.monotonic() - start);
        }
        times.sort();
        Ok::<Duration, String>(times[ETCD_READS / 2])
    };
    match io::task::timeout(ETCD_WITHIN, look).await {
        Err(_) => bad(format!(
            "{} does not answer within {} s",
            settings.endpoints.join(", "),
            ETCD_WITHIN.as_secs()
        )),
        Ok(Err(why)) => bad(why),
        Ok(Ok(median)) => {
            let text = format!("answers a read in {:.1} ms", median.as_secs_f64() * 1000.0);
            match median < ETCD_SLOW {
                true => Finding::new("etcd", Verdict::Good, text),
                false => Finding::new(
                    "etcd",
                    Verdict::Warning,
                    format!("{text}: failures are noticed and decided later"),
                ),
            }
        }
    }
}
