//! One run: servers one after the other, clients, a network and pools on virtual time. A seed draws all of it.
//!
//! Connections are lossless, as the messenger's: what is broken is late. A message is lost with the server or the client that it
//! was of. Once a server has the rank, the one before writes no more; it may go on answering for [`GHOST_US`].
//!
//! Checked in each step: two clients hold nothing that stands against each other, by the servers' books and by their own. The
//! history is checked in the end (`super::check`).

use super::client::Client;
use super::history::History;
use super::model::{Said, What};
use super::store::{Progress, Store, Work};
use super::{Plan, Wrong};
use crate::machine::parts::caps::against;
use crate::machine::tests::world::{peer, place};
use crate::machine::{Conn, Effect, Event, Machine, Now, Options};
use crate::membership::{Assigned, MdsState};
use crate::row::ROOT;
use messages::fs::cap;
use msgr::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::Utime;

pub const MS: u64 = 1000;
pub const SECOND: u64 = 1000 * MS;
const GHOST_US: u64 = 2 * SECOND;
/// Names of one directory.
const NAMES: u64 = 5;
/// Operations of one client.
const OPS_MAX: usize = 50;
/// Clients of one run, with those that come for others.
const CLIENTS_MAX: u64 = 8;
const RENEW: u64 = 15 * SECOND;

/// SplitMix64: the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ (b >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let n = self.below(all.len() as u64) as usize;
        all.get(n).copied()
    }
}

enum Happening {
    Server {
        life: u64,
        event: Event,
    },
    Client {
        id: u64,
        life: u64,
        conn: Conn,
        message: Message,
    },
    Closed {
        id: u64,
        conn: Conn,
    },
    Work(u64),
    Tick(u64),
    /// A standby gets the rank.
    Begin,
    /// The server that had it before is gone.
    Ended(u64),
    /// A client is told where the server is.
    Hears {
        id: u64,
        life: u64,
    },
    Act(u64),
    Renew(u64),
    Fault,
    /// A server, and a client with it.
    KillBoth,
    Born,
}

pub struct Sim {
    pub plan: Plan,
    wrong: Option<Wrong>,
    random: Random,
    pub now: u64,
    pushed: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    pub store: Store,
    works: BTreeMap<u64, Work>,
    last_work: u64,
    servers: BTreeMap<u64, Machine>,
    pub life: u64,
    pub clients: BTreeMap<u64, Client>,
    last_client: u64,
    /// Whose it is, and with which server.
    conns: BTreeMap<Conn, (u64, u64)>,
    last_conn: Conn,
    /// When the last message of a direction arrives.
    arrivals: BTreeMap<(Conn, bool), u64>,
    /// Clients that reach nobody until then.
    cut: BTreeMap<u64, u64>,
    /// Clients that may be thrown out: they were parted once.
    excused: BTreeSet<u64>,
    slow_until: u64,
    pub history: History,
    pub is_ending: bool,
    /// What was found in a step.
    pub found: Option<String>,
    pub trace: Option<Vec<String>>,
}

impl Sim {
    pub fn new(seed: u64, plan: Plan, wrong: Option<Wrong>) -> Self {
        let mut sim = Self {
            plan,
            wrong,
            random: Random::new(seed),
            now: 0,
            pushed: 0,
            queue: BTreeMap::new(),
            store: Store::default(),
            works: BTreeMap::new(),
            last_work: 0,
            servers: BTreeMap::new(),
            life: 0,
            clients: BTreeMap::new(),
            last_client: 0,
            conns: BTreeMap::new(),
            last_conn: 0,
            arrivals: BTreeMap::new(),
            cut: BTreeMap::new(),
            excused: BTreeSet::new(),
            slow_until: 0,
            history: History::default(),
            is_ending: false,
            found: None,
            trace: None,
        };
        sim.push(0, Happening::Begin);
        for n in 0..sim.plan.clients {
            sim.push(SECOND + n * 300 * MS, Happening::Born);
        }
        sim.push(3 * SECOND, Happening::Fault);
        sim
    }

    fn push(&mut self, after: u64, what: Happening) {
        self.push_at(self.now + after, what);
    }

    fn push_at(&mut self, at: u64, what: Happening) {
        self.pushed += 1;
        self.queue.insert((at, self.pushed), what);
    }

    fn say(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(t) = &mut self.trace {
            t.push(format!("{:>10.3} {}", now as f64 / MS as f64, text()));
        }
    }

    /// The next thing that happens; false: there is none.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), what)) = self.queue.pop_first() else {
            return false;
        };
        self.now = at;
        let look = match &what {
            Happening::Server { life, .. } | Happening::Tick(life) => Some((Some(*life), None)),
            Happening::Client { id, .. } => Some((None, Some(*id))),
            _ => None,
        };
        match what {
            Happening::Server { life, event } => self.apply(life, event),
            Happening::Client {
                id, conn, message, ..
            } => self.deliver(id, conn, &message),
            Happening::Closed { id, conn } => self.with(id, |_, c| c.is_over |= c.conn == Some(conn)),
            Happening::Work(n) => self.work(n),
            Happening::Tick(life) => self.tick(life),
            Happening::Begin => self.begin(),
            Happening::Ended(life) => self.end_server(life),
            Happening::Hears { id, life } => self.hears(id, life),
            Happening::Act(id) => self.act(id),
            Happening::Renew(id) => self.renew(id),
            Happening::Fault => self.fault(),
            Happening::KillBoth if self.is_ending => {}
            Happening::KillBoth => {
                self.kill_both();
                self.push(SECOND, Happening::Fault);
            }
            Happening::Born => drop(self.born()),
        }
        if let Some((life, id)) = look {
            self.look_at_holdings(life, id);
        }
        true
    }

    /// Of the server and of the client to which something happened: only there more can be held than before.
    fn look_at_holdings(&mut self, life: Option<u64>, id: Option<u64>) {
        let issued = life.and_then(|life| self.issued_to_both(life));
        let wrong = issued.or_else(|| id.and_then(|id| self.both_hold(id)));
        self.found = self.found.take().or(wrong);
    }

    fn issued_to_both(&self, life: u64) -> Option<String> {
        self.servers.get(&life)?.caps.iter().find_map(|(ino, ic)| {
            let who = ic.conflict()?;
            Some(format!("server {life} issues {ino:x} to both {who:?}"))
        })
    }

    /// By their own books. Who is fenced has nothing.
    fn both_hold(&self, id: u64) -> Option<String> {
        let fenced = &self.store.fenced;
        let one = self.clients.get(&id).filter(|_| !fenced.contains(&id))?;
        for other in self
            .clients
            .values()
            .filter(|c| c.id != id && !fenced.contains(&c.id))
        {
            for (ino, c) in &one.caps {
                let has = other.caps.get(ino).map_or(0, |c| c.issued);
                if against(c.issued) & has != 0 || against(has) & c.issued != 0 {
                    let (who, held) = (other.id, c.issued);
                    return Some(format!(
                        "client {id} holds {held:x} of {ino:x}, and client {who} {has:x}"
                    ));
                }
            }
        }
        None
    }

    /// Until it is so; what was found meanwhile, or that nothing goes on.
    pub fn run_until(&mut self, limit: u64, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let end = self.now + limit;
        while !is_so(self) {
            if let Some(found) = self.found.take() {
                return Err(found);
            }
            if self.now > end || !self.step() {
                return Err(format!("after {} s: {what} did not come", limit / SECOND));
            }
        }
        self.found.take().map_or(Ok(()), Err)
    }

    // Servers

    fn machine_now(&self) -> Now {
        Now {
            monotonic: Duration::from_micros(self.now),
            wall: Utime {
                sec: 100 + (self.now / SECOND) as u32,
                nsec: (self.now % SECOND) as u32 * 1000,
            },
        }
    }

    pub fn server(&self) -> Option<&Machine> {
        self.servers.get(&self.life)
    }

    fn begin(&mut self) {
        let old = self.life;
        if self.wrong != Some(Wrong::Unfenced) {
            self.end_works(old);
        }
        if self.servers.contains_key(&old) {
            self.push(GHOST_US, Happening::Ended(old));
        }
        self.life += 1;
        let life = self.life;
        let place = Assigned {
            fresh: life == 1,
            ..place()
        };
        let options = Options {
            caching: self.plan.caching,
            early: self.plan.early,
            cache_bytes: self.plan.cache_bytes,
            async_names: self.plan.async_names,
            ..Options::default()
        };
        let mut m = Machine::new(options, place, self.store.pool.start());
        if let Some(Wrong::Rule(rule)) = self.wrong {
            m.early.broken = Some(rule);
        }
        m.wb.drain = self.random.one_in(2);
        let effects = m.begin(self.machine_now());
        self.say(|| format!("server {life} begins"));
        self.servers.insert(life, m);
        self.carry_out(life, effects);
        self.push(SECOND, Happening::Tick(life));
    }

    fn apply(&mut self, life: u64, event: Event) {
        let now = self.machine_now();
        if let Some(m) = self.servers.get_mut(&life) {
            let effects = m.apply(now, event);
            self.carry_out(life, effects);
        }
    }

    fn tick(&mut self, life: u64) {
        if self.servers.contains_key(&life) {
            self.apply(life, Event::Tick);
            self.push(SECOND, Happening::Tick(life));
        }
    }

    fn carry_out(&mut self, life: u64, effects: Vec<Effect>) {
        for effect in effects {
            self.look_at_fence(life, &effect);
            match effect {
                Effect::Send { conn, message } => self.send_client(conn, Some(message)),
                Effect::Close { conn, .. } => self.send_client(conn, None),
                Effect::Report(state) => self.reported(life, state),
                Effect::Nudge { after } => {
                    let event = Event::Nudge;
                    self.push(after.as_micros() as u64, Happening::Server { life, event });
                }
                other => self.begin_work(life, other),
            }
        }
    }

    /// What a client did that is thrown out may be lost: only who was parted is.
    fn look_at_fence(&mut self, life: u64, effect: &Effect) {
        if let Effect::Fence { client, .. } = effect
            && life == self.life
            && self.clients.get(client).is_some_and(|c| c.has_session)
        {
            self.thrown_out(*client);
        }
    }

    fn thrown_out(&mut self, id: u64) {
        if !self.excused.contains(&id) {
            let life = self.life;
            self.found
                .get_or_insert_with(|| format!("server {life} gives up client {id}, which was never parted"));
        }
    }

    fn reported(&mut self, life: u64, state: MdsState) {
        self.say(|| format!("server {life} is {state:?}"));
        if life != self.life || !matches!(state, MdsState::Reconnect | MdsState::Active) {
            return;
        }
        let ids: Vec<u64> = self.clients.keys().copied().collect();
        for id in ids {
            let late = if self.random.one_in(8) {
                20 * SECOND
            } else {
                SECOND
            };
            let after = 5 * MS + self.random.below(late);
            self.push(after, Happening::Hears { id, life });
        }
    }

    pub fn kill_server(&mut self, next: u64) {
        let life = self.life;
        if self.servers.remove(&life).is_none() {
            return;
        }
        self.say(|| format!("server {life} is killed"));
        self.end_works(life);
        if self.random.one_in(2) {
            // What it had said is lost with it.
            self.queue
                .retain(|_, h| !matches!(h, Happening::Client { life: of, .. } if *of == life));
        }
        self.push(next, Happening::Begin);
    }

    fn end_server(&mut self, life: u64) {
        self.servers.remove(&life);
        self.end_works(life);
    }

    // Pools

    fn pool_delay(&mut self) -> u64 {
        let slow = if self.now < self.slow_until {
            400 * MS
        } else {
            4 * MS
        };
        let most = if self.random.one_in(50) { SECOND } else { slow };
        100 + self.random.below(most)
    }

    fn begin_work(&mut self, life: u64, effect: Effect) {
        if life != self.life && self.wrong != Some(Wrong::Unfenced) {
            // It finds that another has the rank.
            return self.end_server(life);
        }
        if let Some(work) = Work::of(life, effect) {
            self.last_work += 1;
            self.works.insert(self.last_work, work);
            let after = self.pool_delay();
            self.push(after, Happening::Work(self.last_work));
        }
    }

    fn work(&mut self, n: u64) {
        let Some(work) = self.works.remove(&n) else {
            return;
        };
        let (life, drawn) = (work.life, self.random.draw());
        let progress = work.go_on(&mut self.store, |pieces| (drawn % pieces as u64) as usize);
        let after = self.pool_delay();
        match progress {
            Progress::More(work) => {
                self.works.insert(n, work);
                self.push(after, Happening::Work(n));
            }
            Progress::Done(event) => self.push(after / 2, Happening::Server { life, event }),
        }
    }

    fn end_works(&mut self, life: u64) {
        let of: Vec<u64> = self
            .works
            .iter()
            .filter(|(_, w)| w.life == life)
            .map(|(n, _)| *n)
            .collect();
        for n in of {
            if let Some(work) = self.works.remove(&n) {
                let random = &mut self.random;
                work.end(&mut self.store, || random.one_in(2));
            }
        }
    }

    // The network

    /// When a message of this direction arrives.
    fn arrival(&mut self, conn: Conn, to_server: bool, client: u64) -> u64 {
        let most = match self.random.below(40) {
            0 => 2 * SECOND,
            1..4 => 100 * MS,
            _ => 2 * MS,
        };
        let at = self.now + 50 + self.random.below(most);
        let open = self.cut.get(&client).copied().unwrap_or_default();
        let last = self.arrivals.entry((conn, to_server)).or_default();
        *last = at.max(open).max(*last + 1);
        *last
    }

    /// None: the connection ends.
    fn send_client(&mut self, conn: Conn, message: Option<Message>) {
        let Some((id, life)) = self.conns.get(&conn).copied() else {
            return;
        };
        let at = self.arrival(conn, false, id);
        let what = match message {
            Some(message) => Happening::Client {
                id,
                life,
                conn,
                message,
            },
            None => Happening::Closed { id, conn },
        };
        self.push_at(at, what);
    }

    fn send_server(&mut self, c: &mut Client) {
        let out = std::mem::take(&mut c.out);
        let (Some(conn), life) = (c.conn, c.life) else {
            return;
        };
        for message in out {
            let at = self.arrival(conn, true, c.id);
            let event = Event::Message { conn, message };
            self.push_at(at, Happening::Server { life, event });
        }
    }

    // Clients

    fn with(&mut self, id: u64, work: impl FnOnce(&mut Self, &mut Client)) {
        let Some(mut c) = self.clients.remove(&id) else {
            return;
        };
        c.now = self.now;
        work(self, &mut c);
        self.send_server(&mut c);
        match c.is_over {
            true => {
                if c.has_session {
                    self.thrown_out(id);
                }
                self.gone(&c, true);
            }
            false => drop(self.clients.insert(id, c)),
        }
    }

    /// `says`: its host ends its connection.
    fn gone(&mut self, c: &Client, says: bool) {
        let id = c.id;
        self.say(|| format!("client {id} is gone"));
        self.history.gone(id);
        if let (Some(conn), true) = (c.conn, says) {
            let at = self.arrival(conn, true, id);
            let (life, event) = (c.life, Event::Closed { conn });
            self.push_at(at, Happening::Server { life, event });
        }
        if !self.is_ending && self.last_client < CLIENTS_MAX {
            let after = SECOND + self.random.below(5 * SECOND);
            self.push(after, Happening::Born);
        }
    }

    pub fn born(&mut self) -> u64 {
        self.last_client += 1;
        let (id, life) = (self.last_client, self.life);
        self.clients.insert(id, Client::new(id));
        self.push(0, Happening::Hears { id, life });
        self.push(SECOND, Happening::Act(id));
        self.push(RENEW, Happening::Renew(id));
        id
    }

    fn hears(&mut self, id: u64, life: u64) {
        let Some(state) = self.servers.get(&life).map(Machine::state) else {
            return;
        };
        let open = self.cut.get(&id).copied().unwrap_or_default();
        if life != self.life {
            return;
        }
        if open > self.now {
            return self.push_at(open + MS, Happening::Hears { id, life });
        }
        self.with(id, |sim, c| {
            // Nobody takes anything of it.
            c.is_over |= sim.store.fenced.contains(&id);
            if c.is_over || c.life == life && c.conn.is_some() {
                return;
            }
            if !c.has_session && state != MdsState::Active {
                return sim.push(500 * MS, Happening::Hears { id, life });
            }
            sim.last_conn += 1;
            let conn = sim.last_conn;
            sim.conns.insert(conn, (id, life));
            let at = sim.arrival(conn, true, id);
            let event = Event::Opened { conn, peer: peer(id) };
            sim.push_at(at, Happening::Server { life, event });
            c.connected(conn, life);
        });
    }

    fn deliver(&mut self, id: u64, conn: Conn, message: &Message) {
        self.with(id, |sim, c| {
            if c.conn != Some(conn) {
                return;
            }
            sim.say(|| format!("client {id} hears {:x} ({})", message.kind, message.tid));
            c.heard(message, &mut sim.history);
            if let Some(refused) = c.refused.take() {
                sim.found.get_or_insert(refused);
            }
            if c.conn.is_none() {
                let life = sim.life;
                sim.push(SECOND, Happening::Hears { id, life });
            }
        });
    }

    fn renew(&mut self, id: u64) {
        if self.clients.contains_key(&id) {
            self.with(id, |_, c| c.renew());
            self.push(RENEW, Happening::Renew(id));
        }
    }

    fn act(&mut self, id: u64) {
        if !self.clients.contains_key(&id) {
            return;
        }
        let done = self.history.ops.iter().filter(|o| o.client == id).count();
        self.with(id, |sim, c| match sim.is_ending {
            true => c.flush(),
            false if c.has_session && c.is_idle() && done < OPS_MAX => sim.do_something(c),
            false => {}
        });
        let most = if self.random.one_in(12) {
            4 * SECOND
        } else {
            150 * MS
        };
        let after = 5 * MS + self.random.below(most);
        let after = if self.is_ending { SECOND } else { after };
        self.push(after, Happening::Act(id));
    }

    /// Inodes that were made, of whom somebody was told.
    fn made(&self, dirs: bool) -> Vec<u64> {
        let of = |o: &super::history::Op| match (&o.what, &o.said) {
            (What::Make { is_dir, .. }, Some(Said::Made(ino))) if *is_dir == dirs => Some(*ino),
            _ => None,
        };
        let mut all: Vec<u64> = self.history.ops.iter().filter_map(of).collect();
        // Mostly the last ones.
        all.drain(..all.len().saturating_sub(6));
        all
    }

    fn draw_place(&mut self) -> (u64, u8) {
        // Often one that another trusts.
        if self.random.one_in(5) {
            let now = self.now;
            let trusted: Vec<(u64, u8)> = self.clients.values().flat_map(|c| c.leased_names(now)).collect();
            if let Some(at) = self.random.of(&trusted) {
                return at;
            }
        }
        let mut dirs = self.made(true);
        dirs.extend([ROOT, ROOT]);
        let dir = self.random.of(&dirs).unwrap_or(ROOT);
        (dir, self.random.below(NAMES) as u8)
    }

    fn do_something(&mut self, c: &mut Client) {
        let (at, to) = (self.draw_place(), self.draw_place());
        let file = self.made(false);
        let file = self.random.of(&file);
        let size = 1 + self.random.below(100);
        let mode = 0o400 | self.random.below(0o400) as u32;
        let what = match self.random.below(53) {
            0..7 => What::Make { at, is_dir: false },
            7..9 => What::Make { at, is_dir: true },
            9..13 => What::Unlink(at),
            13 => What::Rmdir(at),
            14..=18 if at != to => What::Rename { from: at, to },
            35..37 | 43..47 => What::Lookup(at),
            47..53 => {
                let trusted = c.leased_names(self.now);
                What::Lookup(self.random.of(&trusted).unwrap_or(at))
            }
            39 => What::List(at.0),
            other => {
                let Some(ino) = file else { return };
                match other {
                    14..=20 => What::Link { ino, to },
                    21..=22 => What::Mode { ino, mode },
                    23 => What::Cut { ino, size: size / 2 },
                    37 | 38 => What::Stat(ino),
                    40 if c.caps.contains_key(&ino) => What::Lock { ino, by: c.id },
                    41..43 if c.caps.contains_key(&ino) => What::Unlock { ino, by: c.id },
                    other => return self.use_file(c, other, ino, size),
                }
            }
        };
        let alone = match what {
            What::Mode { ino, mode } => c.change_mode(ino, mode, &mut self.history),
            _ => c.look(&what, &mut self.history),
        };
        let id = c.id;
        self.say(|| format!("client {id}, alone {alone}: {what:?}"));
        if !alone {
            c.ask(&what, &mut self.history);
        }
    }

    fn use_file(&mut self, c: &mut Client, what: u64, ino: u64, size: u64) {
        match what {
            24..26 => c.open_file(ino, self.random.below(3) as u32),
            26..31 => self.write(c, size),
            31 => c.flush(),
            32..34 => {
                let open = c.holding(cap::FW);
                if let Some(ino) = self.random.of(&open) {
                    c.close_file(ino);
                }
            }
            _ => {
                let held = c.holding(cap::PIN);
                if let Some(ino) = self.random.of(&held) {
                    c.release(ino);
                }
            }
        }
    }

    fn write(&mut self, c: &mut Client, size: u64) {
        let open = c.holding(cap::FW);
        let Some(ino) = self.random.of(&open) else {
            return;
        };
        if self.store.fenced.contains(&c.id) {
            c.is_over = true;
            return;
        }
        if c.write(ino, size, &mut self.history) {
            let end = self.store.data.entry(ino).or_default();
            *end = size.max(*end);
        }
    }

    // What goes wrong

    fn fault(&mut self) {
        if self.is_ending {
            return;
        }
        let ids: Vec<u64> = self.clients.keys().copied().collect();
        let id = self.random.of(&ids).unwrap_or_default();
        match self.random.below(12) {
            0..4 => {
                let next = 200 * MS + self.random.below(10 * SECOND);
                self.kill_server(next);
            }
            4 if self.servers.contains_key(&self.life) => self.push(0, Happening::Begin),
            5 => self.kill_client(id),
            6..8 => self.part(id),
            8 => self.kill_both(),
            _ => {
                self.slow_until = self.now + 3 * SECOND;
                // While much is not durable.
                let soon = 300 * MS + self.random.below(1700 * MS);
                let next = if self.random.one_in(2) {
                    Happening::KillBoth
                } else {
                    Happening::Fault
                };
                return self.push(soon, next);
            }
        }
        let after = SECOND + self.random.below(9 * SECOND);
        self.push(after, Happening::Fault);
    }

    fn kill_client(&mut self, id: u64) {
        if let Some(c) = self.clients.remove(&id) {
            let says = self.random.one_in(2);
            self.gone(&c, says);
        }
    }

    /// It reaches nobody for a while.
    fn part(&mut self, id: u64) {
        let long = self.random.one_in(4);
        let most = if long { 150 * SECOND } else { 15 * SECOND };
        let until = self.now + self.random.below(most);
        self.say(|| format!("client {id} reaches nobody until {}", until / MS));
        self.cut.insert(id, until);
        self.excused.insert(id);
    }

    /// The server, and with it a client; one that would have brought back what is not durable, if there is one.
    fn kill_both(&mut self) {
        let early = self.clients.values().filter(|c| c.has_unsafe()).map(|c| c.id);
        let mut ids: Vec<u64> = early.collect();
        if ids.is_empty() {
            ids.extend(self.clients.keys());
        }
        let id = self.random.of(&ids).unwrap_or_default();
        self.kill_server(SECOND);
        self.kill_client(id);
    }

    /// A client that waits for nothing asks.
    pub fn ask(&mut self, id: u64, what: &What) {
        self.with(id, |sim, c| c.ask(what, &mut sim.history));
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self) {
        self.is_ending = true;
        self.cut.clear();
        self.slow_until = 0;
    }

    /// Who was fenced, or has no session yet, is no more waited for.
    pub fn dismiss(&mut self) {
        let fenced = &self.store.fenced;
        let who = self
            .clients
            .values()
            .filter(|c| !c.has_session || fenced.contains(&c.id));
        let ids: Vec<u64> = who.map(|c| c.id).collect();
        for id in ids {
            if let Some(c) = self.clients.remove(&id) {
                self.gone(&c, true);
            }
        }
    }

    /// No client that is gone has a session.
    pub fn has_buried(&self) -> bool {
        let lives = |id: u64| self.clients.contains_key(&id);
        self.server()
            .is_some_and(|m| m.sessions.iter().all(|(id, _)| lives(id)))
    }

    /// All that clients did has come to its end, and a server serves.
    pub fn is_quiet(&self) -> bool {
        let serves = self.server().is_some_and(|m| m.state() == MdsState::Active);
        let fenced = &self.store.fenced;
        let mut clients = self.clients.values().filter(|c| !fenced.contains(&c.id));
        serves && clients.all(|c| c.is_open && c.life == self.life && c.is_quiet())
    }
}
