//! The monitor as a state machine: sessions and messages in, effects out. It never waits.
//!
//! What only reads is answered at once from the newest snapshot. What may change the cluster becomes
//! [`Effect::Decide`]: the shell commits it and comes back with [`Monitor::state_changed`] before it sends the
//! answer, so that everybody's subscriptions are served before the change is acknowledged.
//!
//! Bounds: sessions are bounded by the connections of the shell; per session see [`crate::shell::subscriptions`] and
//! [`crate::shell::session`].

use crate::commands;
use crate::commands::command::Command;
use crate::commands::command::INPUT_BYTES_MAX;
use crate::commands::context::Context;
use crate::commands::context::Target;
use crate::commands::context::{MonInfo, SessionInfo};
use crate::policies::pools::SnapRights;
use crate::policies::progress::Progress;
use crate::policies::usage;
use crate::shell::requests::{Action, Env, LOG_ENTRIES_PER_MESSAGE_MAX, Reply, Request, Route};
use crate::shell::session::{HOSTNAME_BYTES_MAX, Session, SessionId};
use crate::shell::subscriptions::Topic;
use crate::shell::{decisions, publish};
use auth::Access;
use bytes::Bytes;
use cluster::{ClusterState, ClusterStats};
use messages::mon::{
    Body, MConfig, MGetConfig, MGetPoolStats, MGetPoolStatsReply, MLog, MMgrCommand, MMonCommand, MMonGetMap,
    MMonGetVersion, MMonGetVersionReply, MMonSubscribe, MPing, MPoolOp, MStatfs, MStatfsReply, PaxosHeader,
    PoolOpKind,
};
use messages::osd::MCommand;
use msgr::{Message, Peer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{Errno, Uuid};

/// What the shell shall do next, in order.
#[derive(Debug)]
pub enum Effect {
    Send(SessionId, Message),
    Close(SessionId, String),
    /// Commit what the request decides, then answer it.
    Decide(SessionId, Box<Request>),
    /// Keep a record of what was refused before it was decided.
    Refused(Box<Request>, Reply),
    /// Ask the key server (ticket renewal).
    Renew(SessionId, Message),
}

pub struct Monitor {
    pub info: MonInfo,
    state: Arc<ClusterState>,
    stats: Arc<ClusterStats>,
    sessions: BTreeMap<SessionId, Session>,
    progress: Progress,
}

impl Monitor {
    pub fn new(info: MonInfo, state: Arc<ClusterState>, stats: Arc<ClusterStats>) -> Self {
        Self {
            info,
            state,
            stats,
            sessions: BTreeMap::new(),
            progress: Progress::default(),
        }
    }

    pub fn state(&self) -> &Arc<ClusterState> {
        &self.state
    }

    /// False: its key was taken from it while it shook hands; close it.
    pub fn opened(&mut self, id: SessionId, peer: Arc<Peer>) -> bool {
        let mut session = Session::new(peer);
        let stays = session.heed(&self.state);
        if stays {
            self.sessions.insert(id, session);
        }
        stays
    }

    /// What a session that was opened hears unasked: a newer monitor map than its client has, where that said which it has.
    pub fn greeting(&self, id: SessionId) -> Option<Message> {
        let known = self.session(id)?.peer.monmap_epoch?;
        (known < self.state.monmap.epoch).then(|| publish::mon_map(&self.state))
    }

    pub fn closed(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// The sessions of all but monitors.
    pub fn clients(&self) -> Vec<SessionId> {
        let is_client = |s: &Session| s.peer.auth_name.kind != types::EntityKind::Mon;
        let clients = self.sessions.iter().filter(|(_, s)| is_client(s));
        clients.map(|(id, _)| *id).collect()
    }

    pub fn session_infos(&self) -> Vec<SessionInfo> {
        let info = |s: &Session| SessionInfo {
            name: s.peer.auth_name.clone(),
            global_id: s.peer.global_id,
            addr: s.addr(),
            from: s.peer.sock.ip(),
            features: s.peer.features,
        };
        self.sessions.values().map(info).collect()
    }

    /// Whom the blocklist may fence; nobody while it is empty.
    pub fn instances(&self) -> Vec<cluster::Instance> {
        let map = &self.state.osdmap;
        if map.blocklist.is_empty() && map.range_blocklist.is_empty() {
            return Vec::new();
        }
        self.session_infos()
            .iter()
            .filter_map(SessionInfo::instance)
            .collect()
    }

    pub fn stats_changed(&mut self, stats: Arc<ClusterStats>) {
        self.stats = stats;
    }

    /// Looks how far healing is. Call it about once a second.
    pub fn observe(&mut self, now: types::Utime) {
        self.progress.observe(&self.state, &self.stats, now);
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    pub fn stats(&self) -> &Arc<ClusterStats> {
        &self.stats
    }

    /// Serves every subscription that the newer state is due to.
    pub fn state_changed(&mut self, state: Arc<ClusterState>) -> Vec<Effect> {
        if state.version <= self.state.version {
            return Vec::new();
        }
        let old = std::mem::replace(&mut self.state, state);
        let mut out = match Arc::ptr_eq(&old.auth, &self.state.auth) {
            true => Vec::new(),
            false => heed_keys(&mut self.sessions, &self.state),
        };
        if let Some(rank) = self.state.monmap.rank_of(&self.info.name) {
            self.info.rank = rank as i32;
        }
        let ids: Vec<_> = self.sessions.keys().copied().collect();
        out.extend(ids.into_iter().flat_map(|id| self.serve(id, None)));
        out
    }

    /// What a session is due for, among `topics` or all.
    fn serve(&mut self, id: SessionId, topics: Option<Vec<Topic>>) -> Vec<Effect> {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Vec::new();
        };
        let topics = topics.unwrap_or_else(|| session.subscriptions.topics());
        let mut out = Vec::new();
        for topic in topics {
            out.extend(
                publish::due(session, &topic, &self.state)
                    .into_iter()
                    .map(|m| Effect::Send(id, m)),
            );
        }
        out
    }

    /// One message of an open session. A body that cannot be decoded closes the connection, as Ceph does.
    pub fn message(&mut self, id: SessionId, m: Message, env: &MessageEnv<'_>) -> Vec<Effect> {
        if !self.sessions.contains_key(&id) {
            return Vec::new();
        }
        let kind = m.kind;
        match self.dispatch(id, m, env) {
            Ok(effects) => effects,
            Err(e) => vec![Effect::Close(id, format!("message of type {kind}: {e}"))],
        }
    }

    fn dispatch(&mut self, id: SessionId, m: Message, env: &MessageEnv<'_>) -> denc::Result<Vec<Effect>> {
        let tid = m.tid;
        let send = |message| vec![Effect::Send(id, message)];
        Ok(match m.kind {
            MMonGetMap::KIND => send(publish::mon_map(&self.state)),
            MMonSubscribe::KIND => self.subscribe(id, MMonSubscribe::from_message(&m)?),
            MMonGetVersion::KIND => self
                .get_version(&MMonGetVersion::from_message(&m)?, tid)
                .map_or_else(Vec::new, send),
            auth::MAUTH => vec![Effect::Renew(id, m)],
            MStatfs::KIND => self
                .statfs(id, &MStatfs::from_message(&m)?, tid)
                .map_or_else(Vec::new, send),
            MGetPoolStats::KIND => self
                .pool_stats(id, &MGetPoolStats::from_message(&m)?, tid)
                .map_or_else(Vec::new, send),
            MPoolOp::KIND => self.pool_op(id, MPoolOp::from_message(&m)?, tid),
            MMonCommand::KIND => self.mon_command(id, MMonCommand::from_message(&m)?, tid),
            messages::osd::kind::COMMAND => self.tell(id, MCommand::from_message(&m)?),
            // Some clients address the manager's message here when there is one process only.
            MMgrCommand::KIND => {
                let c = MMgrCommand::from_message(&m)?;
                self.command(id, tid, Route::Mgr, &c.cmd, c.input)
            }
            MLog::KIND => self.log(id, MLog::from_message(&m)?, tid),
            MPing::KIND => send(self.ping(id, env)),
            MGetConfig::KIND => self.get_config(id, &MGetConfig::from_message(&m)?, tid),
            other => {
                tracing::debug!(kind = other, "message of a type that the monitor does not know");
                Vec::new()
            }
        })
    }

    fn subscribe(&mut self, id: SessionId, body: MMonSubscribe) -> Vec<Effect> {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Vec::new();
        };
        if !body.hostname.is_empty() && body.hostname.len() <= HOSTNAME_BYTES_MAX {
            session.hostname = body.hostname;
        }
        let named = session.subscriptions.set(&body.what);
        if named.contains(&Topic::Config) {
            // Asked for anew: answered even if nothing changed, unless for a later version.
            let start = session.subscriptions.get(&Topic::Config).map_or(0, |w| w.next);
            session.config_sent = match start > self.state.config.version {
                true => Some(publish::config_of(session, &self.state)),
                false => None,
            };
        }
        self.serve(id, Some(named))
    }

    fn get_version(&self, body: &MMonGetVersion, tid: u64) -> Option<Message> {
        let (newest, oldest) = match body.what.as_str() {
            "osdmap" => (self.state.osdmap.epoch, self.state.history.first()),
            "monmap" => (self.state.monmap.epoch, 1),
            "mdsmap" | "fsmap" => (self.state.fsmap.epoch, 1),
            // The real monitor does not answer either.
            _ => return None,
        };
        let reply = MMonGetVersionReply {
            handle: body.handle,
            newest: newest.into(),
            oldest: oldest.into(),
        };
        Some(reply.message(tid))
    }

    /// A stock client of messenger v1 may ask before it has the monitor map, and names no cluster then.
    fn is_ours(&self, fsid: Uuid) -> bool {
        fsid == self.state.fsid || fsid.is_nil()
    }

    /// No answer to a foreign fsid, an unknown pool, or without permission.
    fn statfs(&self, id: SessionId, body: &MStatfs, tid: u64) -> Option<Message> {
        if !self.is_ours(body.fsid) || !self.sessions.get(&id)?.may("pg", Access::R) {
            return None;
        }
        let mut reply = MStatfsReply {
            fsid: self.state.fsid,
            version: self.stats.version,
            kb_total: 0,
            kb_used: 0,
            kb_avail: 0,
            num_objects: 0,
        };
        match body.data_pool {
            None => {
                let raw = usage::raw(&self.state, &self.stats);
                reply.kb_total = raw.total / 1024;
                reply.kb_used = raw.used / 1024;
                reply.kb_avail = raw.available / 1024;
                reply.num_objects = raw.objects;
            }
            Some(pool) => {
                self.state.osdmap.pool(pool)?;
                let sum = self.stats.pool_sum(pool);
                reply.kb_avail = usage::pool_max_avail(&self.state, &self.stats, pool) / 1024;
                reply.kb_used = sum.num_bytes.max(0) as u64 / 1024;
                reply.kb_total = reply.kb_avail + reply.kb_used;
                reply.num_objects = sum.num_objects.max(0) as u64;
            }
        }
        Some(reply.message(tid))
    }

    fn pool_stats(&self, id: SessionId, body: &MGetPoolStats, tid: u64) -> Option<Message> {
        if !self.is_ours(body.fsid) || !self.sessions.get(&id)?.may("pg", Access::R) {
            return None;
        }
        // Each once, however often it is asked for: it costs a look at every PG.
        let names: BTreeSet<&String> = body.pools.iter().collect();
        let stat = |name: &String| {
            let pool = self.state.osdmap.pool_by_name(name)?;
            Some((name.clone(), self.stats.pool_stat(pool)))
        };
        let reply = MGetPoolStatsReply {
            paxos: PaxosHeader {
                version: self.stats.version,
            },
            fsid: self.state.fsid,
            pools: names.into_iter().filter_map(stat).collect(),
            per_pool: true,
        };
        Some(reply.message(tid))
    }

    fn request(&self, id: SessionId, tid: u64, action: Action) -> Vec<Effect> {
        let Some(session) = self.sessions.get(&id) else {
            return Vec::new();
        };
        vec![Effect::Decide(id, Box::new(session.request(tid, action)))]
    }

    fn pool_op(&self, id: SessionId, op: MPoolOp, tid: u64) -> Vec<Effect> {
        let epoch = self.state.osdmap.epoch;
        let refuse = |errno: Errno| {
            vec![Effect::Send(
                id,
                decisions::pool_op_reply(&op, tid, errno.code(), epoch, Bytes::new()),
            )]
        };
        if !self.is_ours(op.fsid) {
            return refuse(Errno::EINVAL);
        }
        if let Some(rights) = self.pool_op_rights(id, &op) {
            return self.request(id, tid, Action::PoolOp { op, rights });
        }
        let mut out = refuse(Errno::EPERM);
        if let Some(session) = self.sessions.get(&id) {
            let rights = SnapRights::Own;
            let request = session.request(tid, Action::PoolOp { op, rights });
            let reply = Reply::error(Errno::EPERM, "access denied");
            out.push(Effect::Refused(Box::new(request), reply));
        }
        out
    }

    /// Self-managed snapshots need the right to write to the pool, everything else to change the OSD map.
    fn pool_op_rights(&self, id: SessionId, op: &MPoolOp) -> Option<SnapRights> {
        let session = self.sessions.get(&id)?;
        if session.may("osd", Access::W) {
            return Some(SnapRights::Pool);
        }
        let kind = PoolOpKind::from_u32(op.op);
        let own = matches!(
            kind,
            Some(PoolOpKind::CreateSelfManagedSnap | PoolOpKind::RemoveSelfManagedSnap)
        );
        let map = &self.state.osdmap;
        match (map.pool(op.pool), map.pool_name(op.pool)) {
            _ if !own => None,
            (Some(pool), Some(name)) => session.snap_rights(name, pool),
            // That it does not exist is no secret: the map says so.
            _ => Some(SnapRights::Own),
        }
    }

    fn mon_command(&self, id: SessionId, body: MMonCommand, tid: u64) -> Vec<Effect> {
        let route = Route::Mon {
            cmd: body.cmd.clone(),
        };
        if !self.is_ours(body.fsid) {
            return self.refuse(id, tid, route, Reply::error(Errno::EPERM, "wrong fsid"));
        }
        self.command(id, tid, route, &body.cmd, body.input)
    }

    fn tell(&self, id: SessionId, body: MCommand) -> Vec<Effect> {
        if !self.is_ours(body.fsid) {
            return self.refuse(
                id,
                body.tid,
                Route::Tell,
                Reply::error(Errno::EACCES, "wrong fsid"),
            );
        }
        let cmd = text_of(&body.cmd);
        self.command(id, body.tid, Route::Tell, &cmd, body.input)
    }

    /// A command by any route: parsed, permitted, then decided.
    pub fn command(
        &self,
        id: SessionId,
        tid: u64,
        route: Route,
        cmd: &[String],
        input: Bytes,
    ) -> Vec<Effect> {
        let Some(session) = self.sessions.get(&id) else {
            return Vec::new();
        };
        match check_command(session, &route, cmd, input) {
            Ok(command) => self.request(id, tid, Action::Command { route, command }),
            Err(denied) => denied.effects(id, tid, route, session, &self.state),
        }
    }

    fn refuse(&self, id: SessionId, tid: u64, route: Route, reply: Reply) -> Vec<Effect> {
        vec![Effect::Send(id, refusal(tid, route, reply, &self.state))]
    }

    fn log(&self, id: SessionId, body: MLog, tid: u64) -> Vec<Effect> {
        let allowed = self.sessions.get(&id).is_some_and(|s| s.may("log", Access::W));
        let mut entries = body.entries;
        if !self.is_ours(body.fsid) || entries.is_empty() || !allowed {
            return Vec::new();
        }
        entries.truncate(LOG_ENTRIES_PER_MESSAGE_MAX);
        self.request(id, tid, Action::Log { entries })
    }

    /// A question of the own process, see [`crate::shell::ask`].
    pub fn ask(
        &self,
        command: &str,
        env: &MessageEnv<'_>,
    ) -> (crate::shell::ask::Answer, Option<crate::shell::audit::Record>) {
        let sessions = self.session_infos();
        let who = types::AuthName::new(types::EntityKind::Client, "admin");
        crate::shell::ask::run(
            command,
            &self.context(env, &sessions, &who, types::EntityAddr::BLANK),
        )
    }

    fn context<'a>(
        &'a self,
        env: &MessageEnv<'a>,
        sessions: &'a [SessionInfo],
        who: &'a types::AuthName,
        addr: types::EntityAddr,
    ) -> Context<'a> {
        Context {
            state: &self.state,
            stats: &self.stats,
            now: env.now,
            random: env.random,
            target: Target::TellMon,
            mon: &self.info,
            progress: &self.progress,
            sessions,
            who,
            addr,
        }
    }

    fn ping(&self, id: SessionId, env: &MessageEnv<'_>) -> Message {
        let sessions = self.session_infos();
        let who = self
            .sessions
            .get(&id)
            .map(|s| (s.peer.auth_name.clone(), s.addr()));
        let (who, addr) = who.unwrap_or_else(|| {
            (
                types::AuthName::new(types::EntityKind::Client, ""),
                types::EntityAddr::BLANK,
            )
        });
        let ctx = self.context(env, &sessions, &who, addr);
        MPing {
            text: Some(commands::ping_text(&ctx)),
        }
        .message(0)
    }

    fn get_config(&self, id: SessionId, body: &MGetConfig, tid: u64) -> Vec<Effect> {
        let allowed = self
            .sessions
            .get(&id)
            .is_some_and(|s| publish::may_ask_config(s, &body.name));
        let options = match allowed {
            true => self
                .state
                .config
                .effective(&body.name, &body.host, &body.device_class),
            false => BTreeMap::new(),
        };
        vec![Effect::Send(id, MConfig { options }.message(tid))]
    }

    /// Decides a request against `state`, with what the shell lends.
    pub fn env<'a>(&'a self, env: &MessageEnv<'a>, sessions: &'a [SessionInfo]) -> Env<'a> {
        Env {
            now: env.now,
            random: env.random,
            info: &self.info,
            progress: &self.progress,
            stats: &self.stats,
            sessions,
        }
    }
}

/// Keys or capabilities have changed: sessions get the rights of now, and those whose keys are gone end at once.
pub fn heed_keys(sessions: &mut BTreeMap<SessionId, Session>, state: &ClusterState) -> Vec<Effect> {
    let gone =
        |(id, s): (&SessionId, &mut Session)| (!s.heed(state)).then(|| (*id, s.peer.auth_name.clone()));
    let gone: Vec<_> = sessions.iter_mut().filter_map(gone).collect();
    let end = |(id, name)| {
        sessions.remove(&id);
        Effect::Close(id, format!("{name} has no such key any more"))
    };
    gone.into_iter().map(end).collect()
}

/// Time and randomness of one step.
#[derive(Clone, Copy)]
pub struct MessageEnv<'a> {
    pub now: types::Utime,
    pub random: &'a dyn io::Random,
}

/// The strings of COMMAND; bytes that are no text cannot be JSON, and the parser says so.
pub fn text_of(cmd: &[Bytes]) -> Vec<String> {
    cmd.iter()
        .map(|b| String::from_utf8_lossy(b).into_owned())
        .collect()
}

/// Why a command is not decided: the answer, and what was asked if it was understood.
#[derive(Debug)]
pub struct Denied {
    pub reply: Reply,
    pub asked: Option<Box<Command>>,
}

impl From<Reply> for Denied {
    fn from(reply: Reply) -> Self {
        Self { reply, asked: None }
    }
}

impl Denied {
    pub fn effects(
        self,
        id: SessionId,
        tid: u64,
        route: Route,
        session: &Session,
        state: &ClusterState,
    ) -> Vec<Effect> {
        let mut out = Vec::new();
        if let Some(command) = self.asked {
            let (route, command) = (route.clone(), *command);
            let request = session.request(tid, Action::Command { route, command });
            out.push(Effect::Refused(Box::new(request), self.reply.clone()));
        }
        out.push(Effect::Send(id, refusal(tid, route, self.reply, state)));
        out
    }
}

/// Parses a command and checks the caller's capabilities.
pub fn check_command(
    session: &Session,
    route: &Route,
    cmd: &[String],
    input: Bytes,
) -> Result<Command, Denied> {
    if input.len() > INPUT_BYTES_MAX {
        let why = format!("input is longer than {INPUT_BYTES_MAX} bytes");
        return Err(Reply::error(Errno::E2BIG, why).into());
    }
    let parse = match route {
        Route::Tell => commands::parse_told,
        _ => commands::parse,
    };
    let command = parse(cmd, input).map_err(|o| Reply {
        code: o.code,
        status: o.status,
        data: o.data,
    })?;
    let Some(need) = commands::need(&command) else {
        return Err(Reply::error(Errno::EINVAL, "command not known").into());
    };
    let args = commands::cap_args(&command);
    let (prefix, access) = (&command.prefix, need.access);
    let mon = || session.may_command(need.module, prefix, &args, access);
    let mgr = |module| session.may_mgr_command(need.module, module, prefix, &args, access);
    let allowed = match (route, need.manager) {
        // Whoever got in may know what commands there are: the `ceph` program asks before every one.
        (Route::Mon { .. } | Route::Mgr, _) if *prefix == commands::DESCRIPTIONS => true,
        // As with every daemon that is told something.
        (Route::Tell, _) => mon() && session.may_all(),
        (Route::Mon { .. }, _) => mon(),
        (Route::Mgr | Route::MgrTell, Some(module)) => mgr(module),
        // The monitor's business, whatever its route.
        (Route::Mgr | Route::MgrTell, None) => mgr("") && mon(),
    };
    match allowed {
        true => Ok(command),
        false => Err(Denied {
            reply: Reply::error(Errno::EACCES, "access denied"),
            asked: Some(Box::new(command)),
        }),
    }
}

/// The message that refuses a command before it was decided.
pub fn refusal(tid: u64, route: Route, reply: Reply, state: &ClusterState) -> Message {
    let command = Command::default();
    let who = types::AuthName::new(types::EntityKind::Client, "");
    let action = Action::Command { route, command };
    Request {
        tid,
        who,
        global_id: 0,
        rights: None,
        addr: types::EntityAddr::BLANK,
        sock: (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        action,
    }
    .answer(reply, state)
}
