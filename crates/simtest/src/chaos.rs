//! Carries a plan's faults out, and undoes them.

use crate::check;
use crate::cluster::{Cluster, OsdNode};
use crate::disk::{LOG_BYTES, Pace};
use crate::operator;
use crate::places::{POOL, client_host};
use crate::plan::{Event, Fault, Plan, Wish, storm};
use crate::wishes;
use crate::workload::History;
use io::disk::Space;
use io::disk::sim::{Call, SimDisk, Survival};
use io_sim::{Dice, Process};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use types::PgId;

/// Full weight of an OSD that is in.
const IN: u32 = 0x10000;
const SLOW: Pace = Pace {
    flush_us: (20_000, 300_000),
    hangs: false,
};
const LAGGING: Pace = Pace {
    flush_us: (5_000, 80_000),
    hangs: false,
};
const LATE: Duration = Duration::from_millis(40);
const HUNG: Pace = Pace {
    flush_us: (500, 4000),
    hangs: true,
};

/// Longer than any lease.
const OUTAGE_MIN: Duration = Duration::from_secs(3);
/// Bits that flip at once, at most.
const ROT_MAX: u64 = 12;
const BLOCK: u64 = 4096;
/// Where a store's log begins (docs/internals/disk-format.md).
const LOG_OFFSET: u64 = 64 << 10;

/// Long enough to come up and to be brought to where the others are.
const LIMP_MIN: Duration = Duration::from_secs(5);
/// Less than a lease has left.
const BLIND_MAX: Duration = Duration::from_millis(1200);
/// Long enough to copy what little there is.
const UPMAP_MIN: Duration = Duration::from_secs(2);
/// What a disk says of itself that has been full.
const DISK_BYTES: u64 = 1 << 40;
/// How long an answer is waited for that shall be the last.
const ACK_MAX: Duration = Duration::from_secs(4);

/// In which a lost disk is made up for.
const REPAIRED_MAX: Duration = Duration::from_secs(60);

pub type Clients = Rc<RefCell<Vec<Process>>>;

/// One disk is slow from now on, and all hear late of what others have decided.
pub fn lag(cluster: &Cluster, osd: usize) {
    cluster.osd(osd).pacing.set(LAGGING);
    cluster.etcd.set_slow(LATE);
}

/// Starts every fault at its time; done when the last is undone.
pub async fn run(cluster: &Rc<Cluster>, plan: &Plan, clients: &Clients, history: &Rc<History>) {
    let mut tasks = Vec::new();
    for (n, event) in plan.events.iter().enumerate() {
        let (cluster, clients, event) = (cluster.clone(), clients.clone(), *event);
        let (history, least) = (history.clone(), plan.min_size.max(2));
        let weather = plan.weather;
        let dice = cluster.sim.dice(&format!("fault {n}"));
        tasks.push(tokio::task::spawn_local(async move {
            sleep(event.at).await;
            if cluster.fragile.get() {
                return cluster.sim.trace.note(format_args!("spared: {:?}", event.fault));
            }
            cluster.faults.set(cluster.faults.get() + 1);
            cluster
                .sim
                .trace
                .note(format_args!("FAULT {:?} for {:?}", event.fault, event.lasts));
            let mut hand = Hand {
                cluster: cluster.clone(),
                clients,
                history,
                least,
                dice,
            };
            hand.one(&event).await;
            if event.fault == Fault::Storm {
                cluster.sim.net.set_weather(weather);
            }
            cluster.faults.set(cluster.faults.get() - 1);
            cluster.sim.trace.note(format_args!("UNDONE {:?}", event.fault));
        }));
    }
    for wish in plan.wishes.iter().copied() {
        let cluster = cluster.clone();
        tasks.push(tokio::task::spawn_local(async move {
            sleep(wish.at).await;
            ask_for_scrub(&cluster, wish).await;
        }));
    }
    for t in tasks {
        // A panic ends the program by its hook.
        let _ = t.await;
    }
}

async fn ask_for_scrub(cluster: &Cluster, wish: Wish) {
    let map = cluster.view.osdmap();
    let pgs: Vec<PgId> = map.pgs().filter(|pg| pg.pool == POOL).collect();
    let one = wish.pg.map(|n| pgs[n as usize % pgs.len()]);
    let done = match (cluster.by_commands.get(), one) {
        (true, one) => operator::scrub(cluster, one, wish.asked).await,
        (false, Some(one)) => wishes::wish(cluster, &[one], wish.asked).await,
        (false, None) => wishes::wish(cluster, &pgs, wish.asked).await,
    };
    if let Err(why) = done {
        let line = format!("a scrub cannot be asked for: {why}");
        cluster.wrongs.borrow_mut().push(line);
    }
}

/// All is well again: links, disks, the cluster state, weights; whoever may run, runs.
pub async fn heal(cluster: &Rc<Cluster>, plan: &Plan) {
    cluster.sim.trace.note(format_args!("HEAL"));
    cluster.sim.net.set_weather(plan.weather);
    cluster.sim.net.heal_links();
    cluster.etcd.heal();
    let nodes = cluster.osds.borrow().clone();
    for node in nodes {
        node.pacing.set(Pace::FAST);
        node.disk.borrow().heal();
        cluster.with_process(&node, Process::resume);
        cluster.start_osd(&node);
    }
}

/// Where blocks with data begin in the file that a store keeps them in: behind the superblock and the log.
fn data_blocks(disk: &SimDisk) -> Vec<u64> {
    let content = disk.content("block");
    let first = LOG_OFFSET + LOG_BYTES;
    let starts = (first..).step_by(BLOCK as usize);
    let blocks = content.get(first as usize..).unwrap_or_default();
    let blocks = blocks.chunks(BLOCK as usize).zip(starts);
    let used = blocks.filter(|(b, _)| b.iter().any(|b| *b != 0));
    used.map(|(_, at)| at).collect()
}

/// Flips bits in blocks of data.
pub fn rot(cluster: &Cluster, node: &OsdNode, dice: &mut Dice) {
    let disk = node.disk.borrow();
    let used = data_blocks(&disk);
    if node.gone.get() || used.is_empty() {
        return;
    }
    let bits = 1 + dice.below(ROT_MAX);
    cluster.rot.flipped(node.id, bits);
    for _ in 0..bits {
        let block = used[dice.below(used.len() as u64) as usize];
        let at = block + dice.below(BLOCK);
        disk.flip("block", at, dice.below(8) as u8);
        let line = format_args!("osd.{}: a bit at {at} flips", node.id);
        cluster.sim.trace.note(line);
    }
}

struct Hand {
    cluster: Rc<Cluster>,
    clients: Clients,
    history: Rc<History>,
    /// Copies that a pool keeps.
    least: u8,
    dice: Dice,
}

impl Hand {
    async fn one(&mut self, event: &Event) {
        let (c, lasts) = (self.cluster.clone(), event.lasts);
        match event.fault {
            Fault::Kill { osd, power } => {
                let node = c.osd(osd);
                c.kill_osd(&node, power, self.dice.roll());
                sleep(lasts).await;
                c.start_osd(&node);
            }
            Fault::LastWords { osd } => self.last_words(osd, lasts).await,
            Fault::Blind { osd, cut } => self.blind(osd, cut, lasts).await,
            Fault::Blackout => self.blackout(lasts).await,
            Fault::Pause { osd } => {
                let node = c.osd(osd);
                c.with_process(&node, Process::pause);
                sleep(lasts).await;
                c.with_process(&node, Process::resume);
            }
            Fault::SlowDisk { osd } | Fault::HungDisk { osd } => {
                let node = c.osd(osd);
                let hung = matches!(event.fault, Fault::HungDisk { .. });
                node.pacing.set(if hung { HUNG } else { SLOW });
                sleep(lasts).await;
                node.pacing.set(Pace::FAST);
            }
            Fault::FailedFlush { osd } => {
                let node = c.osd(osd);
                node.may_end.set(true);
                node.disk.borrow().fail(Call::Flush, "block", 0, ErrorKind::Other);
                sleep(lasts).await;
            }
            Fault::LostDisk { osd } => self.lose_disk(osd).await,
            Fault::Out { osd } | Fault::Reweight { osd } => {
                let id = c.osd(osd).id;
                let less = match event.fault {
                    Fault::Out { .. } => 0,
                    _ => IN / 4 + self.dice.below(u64::from(IN) / 2) as u32,
                };
                self.weigh(id, less).await;
                sleep(lasts).await;
                self.weigh(id, IN).await;
            }
            Fault::KillMon => {
                c.kill_mon();
                sleep(lasts).await;
                c.start_mon();
            }
            Fault::KillClient => {
                let clients = self.clients.borrow();
                // One stays, so that something goes on.
                if clients.len() > 1 {
                    clients[self.dice.below(clients.len() as u64 - 1) as usize].kill();
                }
            }
            Fault::Split { place } => self.split(place).await,
            Fault::SplitAndKill { osd } => {
                let place = self.dice.below(2) == 0;
                self.split(place).await;
                // In the middle of it, or while copies are compared.
                sleep(Duration::from_millis(self.dice.below(60))).await;
                let node = c.osd(osd);
                c.kill_osd(&node, self.dice.below(2) == 0, self.dice.roll());
                sleep(lasts).await;
                c.start_osd(&node);
            }
            Fault::Merge => self.merge().await,
            Fault::MergeAndKill { osd } => {
                self.merge().await;
                // Anywhere in what comes of it.
                sleep(Duration::from_millis(self.dice.below(1500))).await;
                let node = c.osd(osd);
                c.kill_osd(&node, self.dice.below(2) == 0, self.dice.roll());
                sleep(lasts).await;
                c.start_osd(&node);
            }
            Fault::AtAck { all, again } => self.at_ack(all, again, lasts).await,
            Fault::FullDisk { osd } => {
                let node = c.osd(osd);
                let room = |available| {
                    let total = DISK_BYTES;
                    node.disk.borrow().set_space(Space { total, available });
                };
                room(0);
                sleep(lasts).await;
                room(DISK_BYTES);
            }
            Fault::Limp { osd } => self.limp(osd, lasts).await,
            Fault::Upmap { osd } => self.upmap(osd, lasts).await,
            Fault::Resize { more } => self.resize(more, lasts).await,
            Fault::MoveHost { osd } => {
                let host = c.osd(osd).hostname();
                for to_rack in [true, false] {
                    let moved = c.move_host(&host, to_rack).await;
                    self.expect(moved, "a host cannot be moved");
                    if to_rack {
                        sleep(lasts).await;
                    }
                }
            }
            Fault::Aim { per_osd } => {
                self.expect(c.aim(per_osd).await, "the autoscaler cannot be told its aim");
            }
            Fault::MarkDown { osd, times } => {
                let id = c.osd(osd).id;
                for _ in 0..times {
                    self.expect(c.mark_down(id).await, "an OSD cannot be marked down");
                    sleep(lasts / u32::from(times)).await;
                }
            }
            Fault::Rot { osd, seen } => {
                let node = c.osd(osd);
                rot(&c, &node, &mut self.dice);
                if seen {
                    c.kill_osd(&node, false, 0);
                    sleep(lasts).await;
                    c.start_osd(&node);
                }
            }
            fault => self.network(fault, lasts).await,
        }
    }

    fn expect(&self, done: Result<(), String>, what: &str) {
        if let Err(why) = done {
            self.cluster.wrongs.borrow_mut().push(format!("{what}: {why}"));
        }
    }

    async fn split(&self, place: bool) {
        self.expect(self.cluster.split(place).await, "the pool cannot be split");
    }

    async fn merge(&self) {
        self.expect(self.cluster.merge().await, "the pool cannot shrink");
    }

    /// Power is lost in the moment at which a client hears that its write is done: with it goes what was only said to be.
    async fn at_ack(&mut self, all: bool, again: bool, lasts: Duration) {
        let c = self.cluster.clone();
        let acks = &self.history.acks;
        let heard = acks.next(|ack| !again || ack.served.attempt > 0);
        let Ok(Some(ack)) = timeout(ACK_MAX, heard).await else {
            return;
        };
        if c.fragile.get() {
            return;
        }
        let nodes = c.osds.borrow().clone();
        let hit: Vec<_> = nodes.iter().filter(|n| all || n.id == ack.served.osd).collect();
        for node in &hit {
            c.kill_osd(node, true, self.dice.roll());
        }
        if all {
            c.wrongs
                .borrow_mut()
                .extend(acks.lacking(&c, None, Survival::Everything));
        }
        sleep(lasts).await;
        for node in &hit {
            c.start_osd(node);
        }
    }

    async fn limp(&mut self, osd: usize, lasts: Duration) {
        let c = self.cluster.clone();
        let node = c.osd(osd);
        c.kill_osd(&node, false, 0);
        c.etcd.set_slow(Duration::from_millis(20 + self.dice.below(150)));
        node.pacing.set(SLOW);
        sleep(Duration::from_millis(self.dice.below(800))).await;
        c.start_osd(&node);
        let end = c.sim.elapsed() + LIMP_MIN + lasts;
        while c.sim.elapsed() < end {
            sleep(Duration::from_millis(200 + self.dice.below(1200))).await;
            for host in self.other_osds(&node) {
                c.sim.net.cut(node.host, host);
                c.sim.net.cut(host, node.host);
            }
        }
        node.pacing.set(Pace::FAST);
        c.etcd.set_slow(Duration::ZERO);
    }

    /// A PG of this OSD goes to one that does not have it.
    async fn upmap(&mut self, osd: usize, lasts: Duration) {
        let c = self.cluster.clone();
        let (from, map) = (c.osd(osd).id, c.view.osdmap());
        let up = |pg: PgId| map.pg_to_up_acting(pg).up;
        let pgs: Vec<PgId> = map
            .pgs()
            .filter(|pg| pg.pool == POOL && up(*pg).contains(&from))
            .collect();
        if pgs.is_empty() {
            return;
        }
        let pg = pgs[self.dice.below(pgs.len() as u64) as usize];
        let others: Vec<_> = map
            .osd_ids()
            .filter(|o| map.is_up(*o) && !up(pg).contains(o))
            .collect();
        if others.is_empty() {
            return;
        }
        let to = others[self.dice.below(others.len() as u64) as usize];
        let how = self.dice.below(3);
        // Who loses it may not hear of that, and neither may clients that read there.
        let blind = match how {
            0 => self.some_clients_and(c.osd(osd).host),
            _ => Vec::new(),
        };
        blind.iter().for_each(|host| c.blind(*host, true));
        self.expect(
            c.upmap(pg, Some((from, to))).await,
            "a PG cannot be placed elsewhere",
        );
        // What comes there may be long on its way to the disk, and its primary may hear late that it has joined.
        let node = c.osds.borrow().iter().find(|n| n.id == to).cloned();
        let slow = node.filter(|_| how == 1);
        if let Some(node) = &slow {
            node.pacing.set(SLOW);
            c.etcd.set_slow(Duration::from_millis(50 + self.dice.below(350)));
        }
        sleep(BLIND_MAX).await;
        blind.iter().for_each(|host| c.blind(*host, false));
        sleep(lasts + UPMAP_MIN).await;
        if let Some(node) = &slow {
            node.pacing.set(Pace::FAST);
            c.etcd.set_slow(Duration::ZERO);
        }
        self.expect(c.upmap(pg, None).await, "a PG cannot be placed as before");
    }

    async fn resize(&mut self, more: bool, lasts: Duration) {
        let c = self.cluster.clone();
        let Some(before) = c.view.osdmap().pool(POOL).map(|p| p.size) else {
            return;
        };
        let there = c.osds.borrow().iter().filter(|n| !n.gone.get()).count();
        let size = if more {
            before + 1
        } else {
            before.saturating_sub(1)
        };
        // Another one may be in effect: each undoes what it did.
        if size < self.least || usize::from(size) > there || self.cluster.resized.replace(true) {
            return;
        }
        self.expect(c.resize(size).await, "the pool cannot have another size");
        sleep(lasts).await;
        self.expect(
            c.resize(before).await,
            "the pool cannot have the size that it had",
        );
        c.resized.set(false);
    }

    async fn network(&mut self, fault: Fault, lasts: Duration) {
        let c = self.cluster.clone();
        let (net, etcd) = (&c.sim.net, &c.etcd);
        match fault {
            Fault::Unplug { osd, state } => {
                let node = c.osd(osd);
                self.unplug(node.host, true);
                if state {
                    etcd.cut(node.host, true);
                }
                sleep(lasts).await;
                self.unplug(node.host, false);
                etcd.cut(node.host, false);
            }
            Fault::Partition { from, to, both } => {
                let (a, b) = (c.osd(from).host, c.osd(to).host);
                net.block(a, b, true);
                if both {
                    net.block(b, a, true);
                }
                sleep(lasts).await;
                net.block(a, b, false);
                if both {
                    net.block(b, a, false);
                }
            }
            Fault::Cut { a, b } => {
                let (a, b) = (c.osd(a).host, c.osd(b).host);
                net.cut(a, b);
                net.cut(b, a);
            }
            Fault::Firewall { a, b, at_once } => {
                let (a, b) = (c.osd(a).host, c.osd(b).host);
                net.reject(a, b, true);
                if at_once {
                    net.cut(a, b);
                    net.cut(b, a);
                }
                sleep(lasts).await;
                net.reject(a, b, false);
            }
            Fault::StateDown => {
                etcd.set_down(true);
                sleep(lasts).await;
                etcd.set_down(false);
            }
            Fault::StateCut { osd } => {
                let host = c.osd(osd).host;
                etcd.cut(host, true);
                sleep(lasts).await;
                etcd.cut(host, false);
            }
            Fault::StateDoubt => {
                etcd.set_doubt(100 + self.dice.below(500));
                sleep(lasts).await;
                etcd.set_doubt(0);
            }
            Fault::Outage => {
                etcd.set_doubt(700);
                sleep(Duration::from_millis(self.dice.below(500))).await;
                etcd.set_down(true);
                sleep(OUTAGE_MIN + lasts).await;
                etcd.set_down(false);
                sleep(Duration::from_millis(300)).await;
                etcd.set_doubt(0);
            }
            Fault::StateSlow => {
                etcd.set_slow(Duration::from_millis(self.dice.below(700)));
                sleep(lasts).await;
                etcd.set_slow(Duration::ZERO);
            }
            Fault::Storm => {
                net.set_weather(storm(&mut self.dice));
                sleep(lasts).await;
            }
            _ => {}
        }
    }

    /// From everybody else.
    fn unplug(&self, host: IpAddr, unplugged: bool) {
        self.cluster.sim.net.unplug(host, unplugged);
    }

    async fn weigh(&self, id: types::OsdId, weight: u32) {
        let nodes = self.cluster.osds.borrow().clone();
        if weight > 0 && nodes.iter().any(|n| n.id == id && n.gone.get()) {
            return;
        }
        if let Err(why) = self.cluster.set_weight(id, weight).await {
            let line = format!("osd.{id} cannot be given weight {weight:#x}: {why}");
            self.cluster.wrongs.borrow_mut().push(line);
        }
    }

    fn other_osds(&self, node: &OsdNode) -> Vec<IpAddr> {
        let osds = self.cluster.osds.borrow();
        let hosts = osds.iter().map(|o| o.host);
        hosts.filter(|h| *h != node.host).collect()
    }

    /// Nothing passes between it and the other OSDs.
    fn cut_off(&self, node: &OsdNode, blocked: bool) {
        for host in self.other_osds(node) {
            self.cluster.sim.net.block(node.host, host, blocked);
            self.cluster.sim.net.block(host, node.host, blocked);
        }
    }

    async fn last_words(&mut self, osd: usize, lasts: Duration) {
        let c = self.cluster.clone();
        let node = c.osd(osd);
        self.cut_off(&node, true);
        sleep(Duration::from_millis(100 + self.dice.below(1500))).await;
        c.kill_osd(&node, self.dice.below(2) == 0, self.dice.roll());
        self.cut_off(&node, false);
        sleep(lasts).await;
        c.start_osd(&node);
    }

    /// Some clients, which go on asking where the PGs were, and this one.
    fn some_clients_and(&mut self, host: IpAddr) -> Vec<IpAddr> {
        let number = self.clients.borrow().len() as u64;
        (0..number)
            .filter(|_| self.dice.below(2) == 0)
            .map(client_host)
            .chain([host])
            .collect()
    }

    async fn blind(&mut self, osd: usize, cut: bool, lasts: Duration) {
        let c = self.cluster.clone();
        let node = c.osd(osd);
        let blind = self.some_clients_and(node.host);
        blind.iter().for_each(|host| c.blind(*host, true));
        self.cut_off(&node, true);
        if cut {
            for host in self.other_osds(&node) {
                c.sim.net.cut(node.host, host);
                c.sim.net.cut(host, node.host);
            }
        }
        sleep(lasts).await;
        self.cut_off(&node, false);
        blind.iter().for_each(|host| c.blind(*host, false));
    }

    async fn blackout(&mut self, lasts: Duration) {
        let c = self.cluster.clone();
        let nodes = c.osds.borrow().clone();
        for node in &nodes {
            c.kill_osd(node, true, self.dice.roll());
        }
        sleep(lasts).await;
        for node in &nodes {
            c.start_osd(node);
        }
    }

    /// Its directory is gone for ever: the operator takes it out and brings another disk. Only while all is clean
    /// and nothing else is wrong; then nothing else goes wrong until all is clean again: what is lost is elsewhere.
    async fn lose_disk(&mut self, osd: usize) {
        let c = self.cluster.clone();
        let node = c.osd(osd);
        if node.gone.get() || c.faults.get() > 1 || check::unclean(&c).is_some() {
            return c
                .sim
                .trace
                .note(format_args!("osd.{} keeps its disk: not clean", node.id));
        }
        node.gone.set(true);
        c.fragile.set(true);
        c.kill_osd(&node, true, self.dice.roll());
        *node.disk.borrow_mut() = crate::disk::new();
        sleep(Duration::from_millis(self.dice.below(3000))).await;
        self.weigh(node.id, 0).await;
        match c.add_osd(Duration::ZERO, 0) {
            Ok(new) => c.start_osd(&new),
            Err(why) => c
                .wrongs
                .borrow_mut()
                .push(format!("a new OSD cannot be made: {why}")),
        }
        // If it does not, the run ends with that.
        check::becomes_clean(&c, REPAIRED_MAX).await;
        c.fragile.set(false);
    }
}
