//! Daemons that register with the manager as parts of a service: who is in, what they say of themselves, and when one
//! that is silent goes out.
//!
//! Bounds: [`DAEMONS_MAX`] daemons with [`BYTES_MAX`] of facts in all; what is beyond is not taken, with a line in the log. Only
//! the session of a daemon's own global id speaks for it.

use cluster::services::Facts;
use cluster::{ServiceDaemon, ServiceMap};
use types::{EntityAddrVec, Utime};

const DAEMONS_MAX: usize = 128;
/// Of names and facts; the whole becomes one value of the cluster state.
const BYTES_MAX: usize = 512 << 10;
/// One that has not reported for so many seconds is gone (`mgr_service_beacon_grace`).
const GRACE_S: u64 = 60;

/// Who speaks.
#[derive(Debug, Clone)]
pub struct Speaker {
    pub gid: u64,
    pub addrs: EntityAddrVec,
}

#[derive(Debug, Default)]
pub struct Services {
    map: ServiceMap,
}

impl Services {
    pub fn map(&self) -> &ServiceMap {
        &self.map
    }

    /// Whether a client has registered anything.
    pub fn has(&self, gid: u64) -> bool {
        self.map
            .services
            .values()
            .flat_map(|s| s.values())
            .any(|d| d.gid == gid)
    }

    fn size(&self) -> (usize, usize) {
        let all = self
            .map
            .services
            .iter()
            .flat_map(|(s, d)| d.iter().map(move |d| (s, d)));
        all.fold((0, 0), |(n, bytes), (service, (name, daemon))| {
            (n + 1, bytes + service.len() + name.len() + daemon.size())
        })
    }

    fn of(&mut self, service: &str, name: &str, gid: u64) -> Option<&mut ServiceDaemon> {
        let daemon = self.map.services.get_mut(service)?.get_mut(name)?;
        (daemon.gid == gid).then_some(daemon)
    }

    /// It introduces itself: for the first time, or again over a new connection. False: there is no room for it.
    pub fn register(
        &mut self,
        (service, name): (&str, &str),
        who: &Speaker,
        (metadata, status): (Facts, Facts),
        now: Utime,
    ) -> bool {
        let known = self.map.services.get(service).and_then(|s| s.get(name));
        let known = known.filter(|d| d.gid == who.gid).cloned();
        let mut daemon = known.clone().unwrap_or_else(|| ServiceDaemon {
            start_epoch: self.map.epoch + 1,
            start_stamp: now,
            gid: who.gid,
            ..ServiceDaemon::default()
        });
        daemon.addrs = who.addrs.clone();
        daemon.metadata = metadata;
        if daemon.status != status || known.is_none() {
            daemon.status_stamp = now;
        }
        daemon.status = status;
        daemon.last_beacon = now;
        let had = known.as_ref().map_or(0, ServiceDaemon::size);
        let (n, bytes) = self.size();
        let more = service.len() + name.len() + daemon.size();
        if (known.is_none() && n >= DAEMONS_MAX) || bytes - had + more > BYTES_MAX {
            return false;
        }
        if known.is_none() {
            self.changed(now);
        }
        let daemons = self.map.services.entry(service.to_string()).or_default();
        daemons.insert(name.to_string(), daemon);
        true
    }

    /// Its report: a sign of life, and what has changed. False: there is no room for what it says.
    pub fn report(
        &mut self,
        (service, name): (&str, &str),
        gid: u64,
        (status, tasks): (Option<Facts>, Option<Facts>),
        now: Utime,
    ) -> bool {
        let (_, bytes) = self.size();
        let Some(daemon) = self.of(service, name, gid) else {
            return true;
        };
        daemon.last_beacon = now;
        let mut next = daemon.clone();
        if let Some(status) = status {
            next.status = status;
            next.status_stamp = now;
        }
        if let Some(tasks) = tasks {
            next.task_status = tasks;
        }
        let fits = bytes - daemon.size() + next.size() <= BYTES_MAX;
        if fits {
            *daemon = next;
        }
        fits
    }

    /// It says that it ends.
    pub fn close(&mut self, service: &str, name: &str, gid: u64, now: Utime) {
        if self.of(service, name, gid).is_some() {
            self.retain(now, |s, n, _| (s, n) != (service, name));
        }
    }

    /// Those that are silent for long go out: who went.
    pub fn prune(&mut self, now: Utime) -> Vec<String> {
        let silent = |d: &ServiceDaemon| {
            let passed = now.sec.saturating_sub(d.last_beacon.sec);
            u64::from(passed) > GRACE_S
        };
        let mut gone = Vec::new();
        for (service, daemons) in &self.map.services {
            let names = daemons.iter().filter(|(_, d)| silent(d));
            gone.extend(names.map(|(name, _)| format!("{service}.{name}")));
        }
        if !gone.is_empty() {
            self.retain(now, |_, _, d| !silent(d));
        }
        gone
    }

    fn retain(&mut self, now: Utime, stays: impl Fn(&str, &str, &ServiceDaemon) -> bool) {
        for (service, daemons) in &mut self.map.services {
            daemons.retain(|name, d| stays(service, name, d));
        }
        self.map.services.retain(|_, daemons| !daemons.is_empty());
        self.changed(now);
    }

    fn changed(&mut self, now: Utime) {
        self.map.epoch += 1;
        self.map.modified = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u32) -> Utime {
        Utime {
            sec,
            ..Utime::default()
        }
    }

    fn who(gid: u64) -> Speaker {
        Speaker {
            gid,
            addrs: EntityAddrVec::default(),
        }
    }

    fn facts(key: &str, value: &str) -> Facts {
        Facts::from([(key.to_string(), value.to_string())])
    }

    fn enter(s: &mut Services, name: &str, gid: u64, sec: u32) -> bool {
        let says = (facts("hostname", "h"), Facts::new());
        s.register(("rbd-mirror", name), &who(gid), says, at(sec))
    }

    #[test]
    fn a_daemon_comes_reports_and_goes() {
        let mut s = Services::default();
        assert!(enter(&mut s, "7", 7, 100));
        assert!(enter(&mut s, "8", 8, 101));
        assert_eq!(s.map().epoch, 2);
        assert!(s.report(("rbd-mirror", "7"), 7, (Some(facts("json", "{}")), None), at(130)));
        let seven = &s.map().services["rbd-mirror"]["7"];
        assert_eq!((seven.start_epoch, seven.start_stamp), (1, at(100)));
        assert_eq!((seven.status_stamp, seven.last_beacon), (at(130), at(130)));
        // A beacon alone says no status.
        assert!(s.report(("rbd-mirror", "7"), 7, (None, None), at(150)));
        let seven = &s.map().services["rbd-mirror"]["7"];
        assert_eq!((seven.status_stamp, seven.last_beacon), (at(130), at(150)));
        assert_eq!(s.prune(at(161)), Vec::<String>::new());
        assert_eq!(s.prune(at(162)), ["rbd-mirror.8"]);
        assert_eq!(s.map().epoch, 3);
        s.close("rbd-mirror", "7", 7, at(163));
        assert_eq!((s.map().services.len(), s.map().epoch), (0, 4));
    }

    #[test]
    fn nobody_speaks_for_another() {
        let mut s = Services::default();
        assert!(enter(&mut s, "7", 7, 100));
        assert!(s.report(
            ("rbd-mirror", "7"),
            9,
            (Some(facts("json", "lie")), None),
            at(110)
        ));
        s.close("rbd-mirror", "7", 9, at(110));
        let seven = &s.map().services["rbd-mirror"]["7"];
        assert_eq!((seven.status.len(), seven.last_beacon), (0, at(100)));
        // The same name from another one takes its place, as after a restart.
        assert!(enter(&mut s, "7", 9, 111));
        assert_eq!(s.map().services["rbd-mirror"]["7"].gid, 9);
    }

    #[test]
    fn there_are_bounds() {
        let mut s = Services::default();
        for i in 0..DAEMONS_MAX {
            assert!(enter(&mut s, &i.to_string(), i as u64, 1));
        }
        assert!(!enter(&mut s, "one more", 1000, 1));
        assert!(enter(&mut s, "0", 0, 2), "one that is in comes again");
        let big = facts("json", &"x".repeat(BYTES_MAX));
        assert!(!s.report(("rbd-mirror", "1"), 1, (Some(big), None), at(3)));
        let one = &s.map().services["rbd-mirror"]["1"];
        assert_eq!((one.status.len(), one.last_beacon), (0, at(3)));
    }
}
