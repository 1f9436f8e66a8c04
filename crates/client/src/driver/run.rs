//! The thread: waits for what happens, gives it to the machine, does what the machine wants.
//!
//! Invariants: nothing here decides anything about operations; all connections, timers and answers pass through one loop, up to
//! [`BATCH`] events a turn, so that messages of one turn leave in one write.

use super::daemon::Daemons;
use super::link::{self, Handshake};
use super::{Command, Room, View};
use crate::conf::Conf;
use crate::core::mon::Credentials;
use crate::core::watch::WatchEvent;
use crate::core::{Answer, ConnId, Core, Effect, Event, Now, OpId, WatchId};
use crate::driver::Platform;
use crate::{Error, Result};
use auth::Entropy;
use net::{ClientError, DialEvent, Dialled, dial};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use types::{EntityAddr, EntityKind, Utime};

const BATCH: usize = 64;
/// Messages that connections have read and the machine has not seen.
const READ_MAX: usize = 64;
/// Events of a watch whose registration has not been told yet.
const EARLY_MAX: usize = 64;
/// Without a timer of the machine.
const IDLE: Duration = Duration::from_secs(3600);

pub(super) struct Boot {
    /// Part of our identity.
    pub nonce: u32,
    pub conf: Conf,
    pub credentials: Credentials,
    pub platform: Platform,
}

struct Pending {
    reply: oneshot::Sender<Result<Answer>>,
    events: Option<mpsc::Sender<WatchEvent>>,
    /// Given back with it.
    _room: Room,
}

struct Conn {
    link: Dialled<Handshake>,
    got: Rc<RefCell<Credentials>>,
}

type Heard = (ConnId, DialEvent);

struct Driver {
    conf: Conf,
    platform: Platform,
    entropy: Arc<dyn Entropy>,
    nonce: u32,
    core: Core,
    conns: BTreeMap<ConnId, Conn>,
    daemons: Daemons,
    heard: mpsc::Sender<Heard>,
    pending: HashMap<OpId, Pending>,
    watches: HashMap<WatchId, mpsc::Sender<WatchEvent>>,
    early: Vec<(WatchId, WatchEvent)>,
    view: watch::Sender<View>,
    stoppers: Vec<oneshot::Sender<()>>,
    stopped: bool,
}

pub(super) async fn run(
    boot: Boot,
    mut commands: mpsc::UnboundedReceiver<Command>,
    view: watch::Sender<View>,
) {
    let (heard, mut hears) = mpsc::channel(READ_MAX);
    let mut driver = Driver::new(boot, heard, view);
    driver.apply(Event::Timer);
    let mut orphaned = false;
    while !driver.stopped {
        let pause = driver.pause();
        tokio::select! {
            // Always in this order: the same events give the same run. Either queue is emptied below, and timers are looked at
            // with each event.
            biased;
            command = commands.recv(), if !orphaned => match command {
                Some(command) => driver.command(command),
                None => {
                    orphaned = true;
                    driver.apply(Event::Stop);
                }
            },
            // The driver holds a sender: there is always another one.
            Some((conn, event)) = hears.recv() => driver.heard(conn, event),
            () = io::task::sleep(pause) => driver.apply(Event::Timer),
        }
        for _ in 0..BATCH {
            match (hears.try_recv(), driver.stopped) {
                (Ok((conn, event)), false) => driver.heard(conn, event),
                _ => break,
            }
        }
        for _ in 0..BATCH {
            match (driver.stopped, orphaned) {
                (false, false) => match commands.try_recv() {
                    Ok(command) => driver.command(command),
                    Err(_) => break,
                },
                _ => break,
            }
        }
    }
    driver.end(&mut commands);
}

impl Driver {
    fn new(boot: Boot, heard: mpsc::Sender<Heard>, view: watch::Sender<View>) -> Self {
        let entropy = net::entropy(boot.platform.random.clone());
        let core = Core::new(
            boot.conf.mons.clone(),
            boot.credentials,
            boot.conf.limits,
            entropy.clone(),
        );
        Self {
            nonce: boot.nonce,
            conf: boot.conf,
            platform: boot.platform,
            entropy,
            core,
            conns: BTreeMap::new(),
            daemons: Daemons::default(),
            heard,
            pending: HashMap::new(),
            watches: HashMap::new(),
            early: Vec::new(),
            view,
            stoppers: Vec::new(),
            stopped: false,
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.platform.clock.monotonic(),
            wall: Utime::from_unix(self.platform.clock.wall()),
        }
    }

    fn pause(&self) -> Duration {
        let now = self.platform.clock.monotonic();
        self.core.deadline().map_or(IDLE, |at| at.saturating_sub(now))
    }

    fn apply(&mut self, event: Event) {
        let now = self.now();
        self.core.apply(event, now);
        while let Some(effect) = self.core.effect() {
            self.effect(effect);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Ask {
                id,
                event,
                reply,
                room,
                events,
            } => {
                let pending = Pending {
                    reply,
                    events,
                    _room: room,
                };
                self.pending.insert(id, pending);
                self.apply(*event);
            }
            Command::Cancel(id) => {
                // The machine lets go of it before its room is another's.
                self.apply(Event::Cancel { id });
                self.pending.remove(&id);
            }
            Command::Unwatch(watch) => {
                self.watches.remove(&watch);
                self.apply(Event::Unwatch { id: None, watch });
            }
            Command::Confirmed(watch, reply) => {
                let _ = reply.send(self.core.confirmed(watch));
            }
            Command::Daemon(order) => {
                let env = super::daemon::Env {
                    conf: &self.conf,
                    platform: &self.platform,
                    entropy: &self.entropy,
                    nonce: self.nonce,
                    credentials: self.core.credentials(),
                };
                if self.daemons.carry_out(order, &env) {
                    self.apply(Event::TicketsRefused);
                }
            }
            Command::Stop(done) => {
                self.stoppers.push(done);
                self.apply(Event::Stop);
            }
        }
    }

    fn heard(&mut self, conn: ConnId, event: DialEvent) {
        let Some(known) = self.conns.get(&conn) else {
            return;
        };
        let event = match event {
            DialEvent::Ready(_) => Event::Opened {
                conn,
                credentials: known.got.borrow().clone(),
            },
            DialEvent::Message(message) => Event::Message { conn, message },
            DialEvent::Ended(why) => {
                self.conns.remove(&conn);
                let refused = matches!(&why, ClientError::Protocol(msgr::Error::Auth(_)));
                let why = why.to_string();
                Event::Ended { conn, refused, why }
            }
        };
        self.apply(event);
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Dial {
                conn,
                peer,
                addr,
                credentials,
            } => self.dial(conn, peer, addr, credentials),
            Effect::Send { conn, message } => {
                // Where it cannot be queued the connection ends, and says so.
                if let Some(c) = self.conns.get(&conn) {
                    c.link.send(message);
                }
            }
            Effect::HangUp { conn } => drop(self.conns.remove(&conn)),
            Effect::Done { id, told } => self.done(id, told),
            Effect::Watch { watch, event } => self.watched(watch, event),
            Effect::Map(map) => {
                let global_id = self.core.global_id();
                self.view.send_modify(|v| {
                    v.map = Some(map);
                    v.global_id = global_id;
                });
            }
            Effect::Denied(why) => {
                tracing::warn!("the monitors refuse {}: {why}", self.conf.name);
                self.view.send_modify(|v| v.denied = Some(why));
            }
            Effect::Stopped => self.stopped = true,
        }
    }

    fn dial(&mut self, conn: ConnId, peer: EntityKind, addr: EntityAddr, credentials: Credentials) {
        let Some(sock) = addr.sock else { return };
        let global_id = match peer {
            EntityKind::Mon => 0,
            _ => credentials.global_id(),
        };
        let config = link::config(
            &self.conf,
            peer,
            addr,
            self.nonce,
            global_id,
            self.entropy.clone(),
        );
        let (handshake, got) = Handshake::new(credentials);
        let link = dial(
            sock,
            config,
            handshake,
            link::options(&self.conf),
            self.platform.clock.clone(),
            conn,
            self.heard.clone(),
        );
        self.conns.insert(conn, Conn { link, got });
    }

    fn done(&mut self, id: OpId, told: Result<Answer>) {
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        let watch = match &told {
            Ok(Answer::Watching(watch)) => Some(*watch),
            _ => None,
        };
        if let (Some(watch), Some(events)) = (watch, pending.events) {
            self.watches.insert(watch, events);
        }
        let unheard = pending.reply.send(told).is_err();
        let Some(watch) = watch else { return };
        if unheard {
            return self.command(Command::Unwatch(watch));
        }
        for (of, event) in std::mem::take(&mut self.early) {
            match of == watch {
                true => self.watched(of, event),
                false => self.early.push((of, event)),
            }
        }
    }

    fn watched(&mut self, watch: WatchId, event: WatchEvent) {
        let lost = matches!(event, WatchEvent::Lost(_));
        let Some(events) = self.watches.get(&watch) else {
            if self.early.len() < EARLY_MAX {
                self.early.push((watch, event));
            }
            return;
        };
        // Whoever does not listen has lost the watch: what he missed cannot be told from nothing.
        if events.try_send(event).is_err() {
            return self.command(Command::Unwatch(watch));
        }
        if lost {
            self.watches.remove(&watch);
        }
    }

    /// Nobody is left waiting.
    fn end(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        commands.close();
        while let Ok(command) = commands.try_recv() {
            match command {
                Command::Ask { reply, .. } => drop(reply.send(Err(Error::Closed))),
                Command::Stop(done) => self.stoppers.push(done),
                Command::Confirmed(..) | Command::Cancel(_) | Command::Unwatch(_) | Command::Daemon(_) => {}
            }
        }
        for done in self.stoppers.drain(..) {
            let _ = done.send(());
        }
    }
}
