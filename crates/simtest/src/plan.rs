//! What one seed draws: the cluster, the clients, and what goes wrong when.
//!
//! Invariant: a plan never destroys what it demands back. A disk is lost only while every PG is clean, once in a run, and
//! only from pools with a copy elsewhere; bits rot on one disk only, while no disk is lost, and in pools of several copies.

use crate::coded::Coded;
use crate::largest::Largest;
use io_sim::{Dice, Weather};
use std::fmt;
use std::time::Duration;

/// When faults begin and end, from the moment that the clients start.
const CALM: Duration = Duration::from_millis(1500);
const STORM: Duration = Duration::from_secs(14);
const FAULTS_MAX: u64 = 7;
/// Leases live for 2 s.
const OUTAGE_MAX: u64 = 9000;
/// Others take a moment to do without it; afterwards it has no lease.
const BLIND_MIN: Duration = Duration::from_millis(1000);
const BLIND_MORE: u64 = 3000;
/// Of twenty values, where large ones are wanted.
const LARGE: u64 = 8;

/// Groups for each OSD that the autoscaler is told to aim at, one after the other.
const AIMS: [u64; 5] = [1, 2, 4, 6, 8];

/// How much a clock's rate may be off where that is tried.
const SLOW_PPM: u64 = 120_000;
const FAST_PPM: u64 = 10_000;

/// Which OSD: its place in the list of those that run.
pub type Nth = usize;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// SIGKILL; with `power` what was not flushed is lost, and peers are told nothing.
    Kill {
        osd: Nth,
        power: bool,
    },
    Pause {
        osd: Nth,
    },
    /// Its cable is pulled; `state`: the cluster state is out of its reach as well.
    Unplug {
        osd: Nth,
        state: bool,
    },
    /// Nothing passes from one OSD to another; `both`: nor back.
    Partition {
        from: Nth,
        to: Nth,
        both: bool,
    },
    /// All connections between two OSDs break.
    Cut {
        a: Nth,
        b: Nth,
    },
    /// A firewall between two OSDs that both live: new connections are refused, and what speaks on one is reset; `at_once`: all
    /// that there are.
    Firewall {
        a: Nth,
        b: Nth,
        at_once: bool,
    },
    /// Cut off from all other OSDs, not from clients, and killed while it is.
    LastWords {
        osd: Nth,
    },
    /// The cluster state cannot be reached, by anybody or by one.
    StateDown,
    StateCut {
        osd: Nth,
    },
    StateSlow,
    SlowDisk {
        osd: Nth,
    },
    HungDisk {
        osd: Nth,
    },
    /// The next flush fails.
    FailedFlush {
        osd: Nth,
    },
    LostDisk {
        osd: Nth,
    },
    /// Weight 0, and back.
    Out {
        osd: Nth,
    },
    Reweight {
        osd: Nth,
    },
    /// Delays, stalls and cuts everywhere.
    Storm,
    KillMon,
    KillClient,
    /// Every OSD loses its power at once.
    Blackout,
    /// The cluster state does not say what became of many transactions.
    StateDoubt,
    /// It is away for longer than leases live, and leaves those in doubt that were on their way.
    Outage,
    /// The pool has twice as many PGs; `place`: which are placed by themselves at once.
    Split {
        place: bool,
    },
    /// The same, and an OSD is killed a moment later.
    SplitAndKill {
        osd: Nth,
    },
    /// The pool shall have half as many PGs.
    Merge,
    /// The same, and an OSD is killed a moment later.
    MergeAndKill {
        osd: Nth,
    },
    /// Bits of the data on its disk flip; `seen`: and it is started again, so that nothing is in its memory.
    Rot {
        osd: Nth,
        seen: bool,
    },
    /// At the moment at which a write is answered power is lost: on all hosts, or where the answer came from. `again`: at the answer
    /// to one that was sent again.
    AtAck {
        all: bool,
        again: bool,
    },
    /// A PG's copy is placed elsewhere, and back (upmap).
    Upmap {
        osd: Nth,
    },
    /// The pool wants one copy more, or one less, and then as many as before.
    Resize {
        more: bool,
    },
    /// Its disk has no room.
    FullDisk {
        osd: Nth,
    },
    /// It is started again, and is behind from then on: its disk is slow, its connections break again and again, and the cluster state
    /// answers late. What it says it has may not be durable yet, and it joins sets of which its primary hears late.
    Limp {
        osd: Nth,
    },
    /// An operator marks it down while it lives, so many times, sometimes before it has settled from the time before.
    MarkDown {
        osd: Nth,
        times: u8,
    },
    /// A host is moved to another place of the CRUSH tree, and back.
    MoveHost {
        osd: Nth,
    },
    /// The autoscaler aims at so many PGs for each OSD from now on.
    Aim {
        per_osd: u64,
    },
    /// Cut off from all other OSDs and from the cluster state, not from clients, of which some are cut off from the cluster
    /// state as well: what it has may be old, and nobody tells it or them. `cut`: its connections break at once.
    Blind {
        osd: Nth,
        cut: bool,
    },
}

/// What a scrub is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub deep: bool,
    pub repair: bool,
}

/// A scrub that an operator asks for.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    pub at: Duration,
    /// Of which PG, counted round; None: of all.
    pub pg: Option<u32>,
    pub asked: Asked,
}

#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub at: Duration,
    /// How long it lasts, where it does.
    pub lasts: Duration,
    pub fault: Fault,
}

impl Event {
    fn is_rot(&self) -> bool {
        matches!(self.fault, Fault::Rot { .. })
    }
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub osds: usize,
    pub size: u8,
    pub min_size: u8,
    pub pgs: u32,
    pub clients: usize,
    pub objects: usize,
    /// Between two operations of a client, at most.
    pub gap: Duration,
    pub value_bytes: u64,
    /// Of twenty values so many may be that large.
    pub large: u64,
    /// Of a hundred reads so many ask for any copy.
    pub any_copy: u64,
    pub weather: Weather,
    /// Of each OSD's clock: the wall's lead, and the rate in millionths.
    pub clocks: Vec<(Duration, i32)>,
    /// Objects that are written once, in the beginning, and only read then: what rots there stays.
    pub cold: usize,
    /// Bits of this OSD's disk flip when all is over, before the last scrubs.
    pub last_rot: Option<Nth>,
    pub events: Vec<Event>,
    pub wishes: Vec<Wish>,
    /// Reads of disks take time.
    pub slow_reads: bool,
    /// What an operator does goes through the monitor, where it can.
    pub by_commands: bool,
    /// Clients copy objects and count as well, and send writes again that are not answered at once.
    pub thrash: bool,
    /// The disk of this OSD is slow from the beginning, and the cluster state answers late: what one says, and what the others know of
    /// it, is long ahead of what is durable.
    pub laggard: Option<Nth>,
    /// The autoscaler and the balancer do their work, quickly.
    pub evens: bool,
    /// An object with records of the largest size allowed.
    pub largest: Option<Largest>,
    /// The pool compresses all that is long enough, by this algorithm.
    pub compression: Option<&'static str>,
    /// The pool has shards by this code; None: copies.
    pub coded: Option<Coded>,
    /// When clients stop asking.
    pub ends: Duration,
}

impl Plan {
    pub fn draw(dice: &mut Dice) -> Self {
        let (size, min_size) = match dice.below(20) {
            0 => (1, 1),
            1 | 2 => (2, 1),
            3 | 4 => (2, 2),
            5 => (3, 1),
            6 => (3, 3),
            _ => (3, 2),
        };
        let osds = (3 + dice.below(3)).max(u64::from(size)) as usize;
        let mut plan = Self {
            osds,
            size,
            min_size,
            pgs: 1 << dice.below(4),
            clients: 2 + dice.below(3) as usize,
            objects: 1 + dice.below(6) as usize,
            gap: Duration::from_millis(10 + dice.below(150)),
            value_bytes: if dice.below(8) == 0 { 100_000 } else { 2_000 },
            large: 1,
            any_copy: 0,
            weather: weather(dice),
            clocks: (0..osds).map(|_| clock(dice)).collect(),
            cold: 0,
            last_rot: None,
            events: Vec::new(),
            wishes: Vec::new(),
            slow_reads: false,
            by_commands: false,
            thrash: false,
            laggard: None,
            evens: false,
            largest: None,
            compression: None,
            coded: None,
            ends: CALM + STORM + Duration::from_secs(2),
        };
        let mut lost = false;
        for _ in 0..1 + dice.below(FAULTS_MAX) {
            let fault = plan.fault(dice);
            if let Fault::LostDisk { .. } = fault {
                if lost || plan.size < 2 {
                    continue;
                }
                lost = true;
            }
            let longest = [600, 3000, 8000][dice.below(3) as usize];
            plan.events.push(Event {
                at: CALM + millis(dice, STORM.as_millis() as u64),
                lasts: millis(dice, longest),
                fault,
            });
        }
        plan.events.sort_by_key(|e| e.at);
        plan.any_copy = [0, 50, 100][dice.below(3) as usize];
        plan
    }

    /// Faults that came later than others, drawn apart: seeds that were wrong once stay what they were where they get
    /// none of these. About half of the seeds do.
    pub fn more(&mut self, dice: &mut Dice) {
        let some = self.osds as u64;
        let mut add = |dice: &mut Dice, longest: u64, fault| {
            let at = CALM + millis(dice, STORM.as_millis() as u64);
            let lasts = millis(dice, longest);
            self.events.push(Event { at, lasts, fault });
        };
        if dice.below(5) == 0 {
            for _ in 0..1 + dice.below(2) {
                add(dice, 6000, Fault::StateDoubt);
            }
        }
        if dice.below(8) == 0 {
            add(dice, OUTAGE_MAX, Fault::Outage);
        }
        if dice.below(4) == 0 {
            for _ in 0..1 + dice.below(2) {
                let osd = dice.below(some) as usize;
                let fault = match dice.below(3) {
                    0 => Fault::Split { place: false },
                    1 => Fault::Split { place: true },
                    _ => Fault::SplitAndKill { osd },
                };
                add(dice, 2000, fault);
            }
        }
        if dice.below(6) == 0 && self.size > 1 {
            let (osd, seen) = (dice.below(some) as usize, dice.below(3) > 0);
            add(dice, 2000, Fault::Rot { osd, seen });
        }
        // What would be lost with a disk may be rotten elsewhere.
        if self.rots() {
            self.events.retain(|e| !matches!(e.fault, Fault::LostDisk { .. }));
        }
        self.events.sort_by_key(|e| e.at);
    }

    /// Half of the seeds whose values are long enough for it compress them: the history is what it was, how it lies on disks is not.
    pub fn compression(&mut self, dice: &mut Dice) {
        if self.value_bytes >= 100_000 && dice.below(2) == 0 {
            let algorithms = ["lz4", "zstd", "snappy", "zlib"];
            self.compression = Some(algorithms[dice.below(4) as usize]);
        }
    }

    /// The same once more: about a quarter of the seeds get a firewall.
    pub fn walls(&mut self, dice: &mut Dice) {
        if dice.below(4) > 0 {
            return;
        }
        for _ in 0..1 + dice.below(2) {
            let a = dice.below(self.osds as u64) as usize;
            let b = (a + 1 + dice.below(self.osds as u64 - 1) as usize) % self.osds;
            let at_once = dice.below(2) == 0;
            self.events.push(Event {
                at: CALM + millis(dice, STORM.as_millis() as u64),
                lasts: millis(dice, 4000),
                fault: Fault::Firewall { a, b, at_once },
            });
        }
        self.events.sort_by_key(|e| e.at);
    }

    /// PGs are merged, in about half of the seeds, and in some split before or afterwards.
    pub fn merges(&mut self, dice: &mut Dice) {
        if dice.below(2) == 0 {
            return;
        }
        for _ in 0..1 + dice.below(3) {
            let osd = dice.below(self.osds as u64) as usize;
            let fault = match dice.below(5) {
                0 => Fault::Split {
                    place: dice.below(2) == 0,
                },
                1 | 2 => Fault::Merge,
                _ => Fault::MergeAndKill { osd },
            };
            self.events.push(Event {
                at: CALM + millis(dice, STORM.as_millis() as u64),
                lasts: millis(dice, 2000),
                fault,
            });
        }
        self.events.sort_by_key(|e| e.at);
    }

    /// And once more: about one of eight seeds is all reads of copies, over a network on which some copies hear of a write much
    /// later than others.
    pub fn readers(&mut self, dice: &mut Dice) {
        if self.size < 3 || dice.below(8) > 0 {
            return;
        }
        self.any_copy = 100;
        self.gap = Duration::from_millis(10 + dice.below(20));
        self.weather.stall_ppm = 20_000;
        self.weather.stall_us_max = 200_000;
    }

    /// The same for what came with scrubs and with reads of copies.
    pub fn latest(&mut self, dice: &mut Dice) {
        let some = self.osds as u64;
        let at = |dice: &mut Dice| CALM + millis(dice, STORM.as_millis() as u64);
        if dice.below(2) == 0 {
            for _ in 0..1 + dice.below(5) {
                let (deep, repair) = [(false, false), (true, false), (true, true)][dice.below(3) as usize];
                self.wishes.push(Wish {
                    at: at(dice),
                    pg: (dice.below(2) == 0).then(|| dice.below(1 << 16) as u32),
                    asked: Asked { deep, repair },
                });
            }
        }
        self.slow_reads = dice.below(2) == 0;
        self.by_commands = dice.below(2) == 0;
        if self.slow_reads && !self.wishes.is_empty() && dice.below(2) == 0 {
            // Large writes go to the disk at once: what looks at such an object waits for it, and writes pass by.
            (self.value_bytes, self.large) = (100_000, LARGE);
            self.wishes
                .iter_mut()
                .for_each(|w| (w.pg, w.asked.deep) = (None, true));
        }
        if dice.below(6) == 0 {
            for _ in 0..1 + dice.below(3) {
                let (osd, cut) = (dice.below(some) as usize, dice.below(2) == 0);
                let (at, lasts) = (at(dice), BLIND_MIN + millis(dice, BLIND_MORE));
                let fault = Fault::Blind { osd, cut };
                self.events.push(Event { at, lasts, fault });
            }
        }
        let mut rotten = self.events.iter().find_map(|e| match e.fault {
            Fault::Rot { osd, .. } => Some(osd),
            _ => None,
        });
        if self.size > 1 && dice.below(if rotten.is_some() { 2 } else { 8 }) == 0 {
            // Once more on the same disk, or a disk where none was to rot.
            let osd = *rotten.get_or_insert(dice.below(some) as usize);
            for _ in 0..1 + dice.below(3) {
                let (at, lasts) = (at(dice), millis(dice, 1000));
                let fault = Fault::Rot {
                    osd,
                    seen: dice.below(2) == 0,
                };
                self.events.push(Event { at, lasts, fault });
            }
            self.events.retain(|e| !matches!(e.fault, Fault::LostDisk { .. }));
        }
        self.events.sort_by_key(|e| e.at);
        if self.rots() || self.size > 1 && dice.below(4) == 0 {
            self.cold = 4 + dice.below(12) as usize;
            self.last_rot = Some(rotten.unwrap_or(dice.below(some) as usize));
        }
    }

    /// What Ceph's thrasher does beside all that: half of the seeds get it.
    pub fn thrash(&mut self, dice: &mut Dice) {
        if dice.below(2) == 0 {
            return;
        }
        self.thrash = true;
        if dice.below(2) == 0 {
            self.clocks = self.clocks.iter().map(|(skew, _)| (*skew, harsh(dice))).collect();
        }
        self.laggard = (dice.below(3) == 0).then(|| dice.below(self.osds as u64) as usize);
        for _ in 0..dice.below(6) {
            let osd = dice.below(self.osds as u64) as usize;
            let fault = match dice.below(10) {
                0..=2 => Fault::AtAck {
                    all: dice.below(3) > 0,
                    again: dice.below(2) == 0,
                },
                3 | 4 => Fault::Upmap { osd },
                5 => Fault::FullDisk { osd },
                6 | 7 => Fault::Limp { osd },
                8 => Fault::Resize {
                    more: dice.below(2) == 0,
                },
                _ => Fault::MoveHost { osd },
            };
            let (at, lasts) = (CALM + millis(dice, STORM.as_millis() as u64), millis(dice, 4000));
            self.events.push(Event { at, lasts, fault });
        }
        self.events.sort_by_key(|e| e.at);
    }

    /// A third of the seeds have an operator who marks down OSDs that live.
    pub fn marks(&mut self, dice: &mut Dice) {
        if dice.below(3) > 0 {
            return;
        }
        for _ in 0..1 + dice.below(3) {
            let fault = Fault::MarkDown {
                osd: dice.below(self.osds as u64) as usize,
                times: 1 + dice.below(6) as u8,
            };
            let (at, lasts) = (CALM + millis(dice, STORM.as_millis() as u64), millis(dice, 2000));
            self.events.push(Event { at, lasts, fault });
        }
        self.events.sort_by_key(|e| e.at);
    }

    /// Where that is asked for the cluster evens itself out while all that goes on: PGs are split and merged again and
    /// again, and copies are moved.
    pub fn evening(&mut self, dice: &mut Dice, asked: bool) {
        if !asked {
            return;
        }
        self.evens = true;
        for _ in 0..2 + dice.below(5) {
            let per_osd = AIMS[dice.below(AIMS.len() as u64) as usize];
            self.events.push(Event {
                at: millis(dice, (CALM + STORM).as_millis() as u64),
                lasts: Duration::ZERO,
                fault: Fault::Aim { per_osd },
            });
        }
        self.events.sort_by_key(|e| e.at);
    }

    /// Where that is asked for the pool has shards: enough OSDs for them, and without what such pools do not do.
    pub fn shards(&mut self, dice: &mut Dice, asked: bool) {
        if !asked {
            return;
        }
        let (k, m) = [(2, 1), (2, 1), (2, 2), (3, 2), (4, 2)][dice.below(5) as usize];
        let unit = [512, 4096][dice.below(2) as usize];
        let coded = Coded { k, m, unit };
        self.coded = Some(coded);
        self.size = coded.size();
        self.min_size = if dice.below(4) == 0 {
            k
        } else {
            k + u8::from(m > 1)
        };
        self.osds = self.osds.max(usize::from(self.size) + dice.below(2) as usize);
        self.clocks.resize_with(self.osds, || clock(dice));
        // Keys are for copies.
        self.largest = None;
        let is_done = |e: &Event| {
            !matches!(
                e.fault,
                Fault::Split { .. }
                    | Fault::SplitAndKill { .. }
                    | Fault::Merge
                    | Fault::MergeAndKill { .. }
                    | Fault::Resize { .. }
            )
        };
        self.events.retain(is_done);
    }

    /// Few seeds have records of the largest size, fewer those that take seconds.
    pub fn largest(&mut self, dice: &mut Dice) {
        if dice.below(16) == 0 {
            let row = dice.below(4) == 0;
            self.largest = Some(Largest { row });
        }
    }

    /// Whether bits rot in this run.
    pub fn rots(&self) -> bool {
        self.events.iter().any(Event::is_rot)
    }

    /// Whether outcomes of changes of the cluster state are unknown in this run: then the operator's are, too.
    pub fn doubts(&self) -> bool {
        self.events
            .iter()
            .any(|e| matches!(e.fault, Fault::StateDoubt | Fault::Outage))
    }

    /// Nothing in this run keeps two OSDs apart but their ends and broken connections, as is so in one process: then their messages go
    /// through memory ([`net::Lanes`]).
    pub fn is_one_process(&self) -> bool {
        !self.events.iter().any(|e| {
            matches!(
                e.fault,
                Fault::Unplug { .. }
                    | Fault::Partition { .. }
                    | Fault::Firewall { .. }
                    | Fault::LastWords { .. }
                    | Fault::Blind { .. }
            )
        })
    }

    fn fault(&self, dice: &mut Dice) -> Fault {
        let osd = dice.below(self.osds as u64) as usize;
        let other = (osd + 1 + dice.below(self.osds as u64 - 1) as usize) % self.osds;
        let coin = dice.below(2) == 0;
        match dice.below(37) {
            0..=6 => Fault::Kill { osd, power: coin },
            7..=9 => Fault::Pause { osd },
            10..=12 => Fault::Unplug { osd, state: coin },
            13..=15 => Fault::Partition {
                from: osd,
                to: other,
                both: coin,
            },
            16 | 17 => Fault::Cut { a: osd, b: other },
            18 => Fault::StateDown,
            19 | 20 => Fault::StateCut { osd },
            21 => Fault::StateSlow,
            22 => Fault::SlowDisk { osd },
            23 => Fault::HungDisk { osd },
            24 => Fault::FailedFlush { osd },
            25 => Fault::LostDisk { osd },
            26 | 27 => Fault::Out { osd },
            28 => Fault::Reweight { osd },
            29 | 30 => Fault::Storm,
            31 => Fault::KillMon,
            32 => Fault::KillClient,
            33..=35 => Fault::LastWords { osd },
            _ => Fault::Blackout,
        }
    }
}

fn millis(dice: &mut Dice, most: u64) -> Duration {
    Duration::from_millis(dice.below(most + 1))
}

fn weather(dice: &mut Dice) -> Weather {
    match dice.below(3) {
        0 => Weather::FAIR,
        1 => Weather {
            latency_us: (100, 5_000),
            ..Weather::FAIR
        },
        _ => Weather {
            latency_us: (100, 3_000),
            stall_ppm: 2_000,
            stall_us_max: 300_000,
            cut_ppm: 300,
        },
    }
}

pub fn storm(dice: &mut Dice) -> Weather {
    Weather {
        latency_us: (100, 20_000),
        stall_ppm: 20_000,
        stall_us_max: 1_000_000,
        cut_ppm: dice.below(3) * 3_000,
    }
}

/// Within what the leases' margin allows for (300 ms of 2 s is far more than clocks of computers drift).
fn clock(dice: &mut Dice) -> (Duration, i32) {
    let skew = if dice.below(4) == 0 {
        dice.below(60_000)
    } else {
        dice.below(100)
    };
    let drift = dice.below(2001) as i32 - 1000;
    (Duration::from_millis(skew), drift)
}

/// As slow as leases and grants allow for: a margin of 300 ms of 2 s, and of 50 ms of 250 ms between two OSDs.
fn harsh(dice: &mut Dice) -> i32 {
    dice.below(SLOW_PPM + FAST_PPM + 1) as i32 - SLOW_PPM as i32
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} OSDs, size {}, min_size {}, {} PGs, {} clients, {} objects and {} cold ones, {} of 20 values up to {} bytes, every {:?}, {}% from any copy",
            self.osds,
            self.size,
            self.min_size,
            self.pgs,
            self.clients,
            self.objects,
            self.cold,
            self.large,
            self.value_bytes,
            self.gap,
            self.any_copy
        )?;
        if self.slow_reads {
            f.write_str(", reads of disks take time")?;
        }
        if self.by_commands {
            f.write_str(", operators give commands")?;
        }
        if self.thrash {
            f.write_str(", clients copy, count and are hasty")?;
        }
        if self.is_one_process() {
            f.write_str(", messages of OSDs in memory")?;
        }
        if let Some(algorithm) = self.compression {
            write!(f, ", compressed by {algorithm}")?;
        }
        if self.evens {
            f.write_str(", it evens itself out")?;
        }
        if let Some(c) = self.coded {
            write!(f, ", {} + {} shards by {} bytes", c.k, c.m, c.unit)?;
        }
        if let Some(osd) = self.laggard {
            write!(f, ", osd.{osd} lags")?;
        }
        if let Some(which) = self.largest {
            write!(f, ", {which:?}")?;
        }
        for e in &self.events {
            write!(f, "\n  at {:?} for {:?}: {:?}", e.at, e.lasts, e.fault)?;
        }
        for w in &self.wishes {
            write!(f, "\n  at {:?}: {:?} of {:?}", w.at, w.asked, w.pg)?;
        }
        Ok(())
    }
}
