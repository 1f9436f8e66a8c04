//! This OSD's membership of the cluster: its lease, whether it is up, and whom it takes for dead.
//!
//! Invariants: it serves only while its lease is live by its own clock, and never while its disk hangs or its pulse has fenced it; the lease is
//! renewed by the [`Pulse`] as long as the loop turns, so a loop that hangs loses it. It boots only with a lease, and comes back only if it
//! reaches most of the peers that are up and hold a lease. Nothing here waits: what is asked of the cluster state answers by an event.

pub mod beats;

use crate::pulse::Pulse;
use cluster::OsdBoot;
use io::Clock;
use metastore::lease::{Lease, LeaseTimes};
use pg::broken::{self, Rule};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use types::{EntityAddr, OsdId};

/// Returns of one that was at fault itself make the next such one within this time later: 1 s, doubled each time, up to the longest.
const FLAPS_WITHIN: Duration = Duration::from_secs(600);
const RETURN_AFTER_MAX: Duration = Duration::from_secs(10);
/// Returns that are remembered.
const RETURNS_MAX: usize = 16;
pub struct Membership {
    clock: Arc<dyn Clock>,
    pulse: Arc<Pulse>,
    boot: OsdBoot,
    run: u32,
    times: LeaseTimes,
    /// A batch of the store that is not flushed for so long means that the disk hangs.
    hung_after: Duration,
    lease: Option<Lease>,
    touched: Duration,
    began: Duration,
    leasing: bool,
    booting: bool,
    /// It has been up since it was started.
    booted: bool,
    /// Who waits for that, and our address.
    ready: Option<(oneshot::Sender<EntityAddr>, EntityAddr)>,
    not_before: Duration,
    /// It knows that it is marked down.
    noticed: bool,
    returns: VecDeque<Duration>,
    stepping_down: bool,
    /// It was marked down for what is wrong with itself, and may be again: its disk or its loop hung, its peers did not hear it.
    at_fault: bool,
    /// The oldest transaction seen waiting for the disk, since then.
    unflushed: Option<(u64, Duration)>,
    hung: bool,
    unleased: BTreeMap<OsdId, Duration>,
    marking: BTreeSet<OsdId>,
    /// Silent peers, as last reported.
    silent: BTreeSet<OsdId>,
}

pub struct MembershipParts {
    pub clock: Arc<dyn Clock>,
    pub pulse: Arc<Pulse>,
    pub boot: OsdBoot,
    pub run: u32,
    pub times: LeaseTimes,
    pub hung_after: Duration,
    pub ready: Option<(oneshot::Sender<EntityAddr>, EntityAddr)>,
}

impl Membership {
    pub fn new(p: MembershipParts) -> Self {
        let began = p.clock.monotonic();
        Self {
            clock: p.clock,
            pulse: p.pulse,
            boot: p.boot,
            run: p.run,
            times: p.times,
            hung_after: p.hung_after,
            lease: None,
            touched: began,
            began,
            leasing: false,
            booting: false,
            booted: false,
            ready: p.ready,
            not_before: Duration::ZERO,
            noticed: false,
            returns: VecDeque::new(),
            stepping_down: false,
            at_fault: false,
            unflushed: None,
            hung: false,
            unleased: BTreeMap::new(),
            marking: BTreeSet::new(),
            silent: BTreeSet::new(),
        }
    }

    pub fn serving(&self) -> bool {
        let valid = |l: &Lease| l.is_valid(self.clock.monotonic());
        let leased = || self.lease.as_ref().is_some_and(valid) || broken::is(Rule::Lease) && self.booted;
        // Who asked to be marked down serves no more from then on: another may, before this one hears of it. And who was
        // started again serves only once its boot is committed: until then the map may name its earlier run, whose
        // place another takes with the boot's first transaction.
        let leaving = self.stepping_down && !broken::is(Rule::SteppingDown);
        let booted = self.booted || broken::is(Rule::BootedFirst);
        !self.hung && !leaving && booted && !self.pulse.is_fenced() && leased()
    }

    /// Until when it may serve, as things stand.
    pub fn valid_until(&self) -> Duration {
        match broken::is(Rule::Lease) {
            true => Duration::MAX,
            false => self.lease.as_ref().map_or(Duration::ZERO, Lease::valid_until),
        }
    }

    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    pub fn is_hung(&self) -> bool {
        self.hung
    }

    /// When it may come back, having been away once more: at once where nothing is wrong with itself. A lease that ended under load
    /// or an operator's wish says nothing of that.
    fn return_at(&mut self, now: Duration) -> Duration {
        if !std::mem::take(&mut self.at_fault) {
            return now;
        }
        while self.returns.front().is_some_and(|at| *at + FLAPS_WITHIN < now)
            || self.returns.len() >= RETURNS_MAX
        {
            self.returns.pop_front();
        }
        let wait = match self.returns.len() as u32 {
            0 => Duration::ZERO,
            n => (Duration::from_secs(1) * (1 << (n - 1).min(6))).min(RETURN_AFTER_MAX),
        };
        self.returns.push_back(now);
        now + wait
    }
}
