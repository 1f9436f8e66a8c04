//! Connections that open, speak and break; what monitors answer.

use super::mon::{Asker, Credentials};
use super::session::Daemon;
use super::{Answer, ConnId, Core, Effect, Waiting};
use crate::{Error, Result};
use auth::{MAUTH_REPLY, MAuthReply};
use denc::Decode;
use messages::mon::{
    Body, MGetPoolStatsReply, MMgrCommandReply, MMgrMap, MMonCommandAck, MMonGetVersionReply, MMonMap,
    MOsdMap, MPoolOpReply, MStatfsReply,
};
use messages::osd::kind;
use msgr::Message;
use types::{EntityKind, Epoch, MgrMap, MonMap, OsdId};

impl Core {
    pub(super) fn opened(&mut self, conn: ConnId, credentials: Credentials) {
        if self.mon.is_ours(conn) {
            return self.mon_opened(conn, credentials);
        }
        if self.manager.conn() == Some(conn) {
            return self.mgr_opened(conn);
        }
        let Some(osd) = self.sessions.osd(conn) else {
            return self.hang_up(conn);
        };
        let Some(session) = self.sessions.of_mut(osd) else {
            return;
        };
        session.opened(conn);
        let commands = session.commands.clone();
        for tid in session.ops.clone() {
            self.send_op(tid);
        }
        for tid in commands {
            self.send_command(tid);
        }
    }

    fn mon_opened(&mut self, conn: ConnId, credentials: Credentials) {
        let now = self.now.mono;
        for other in self.mon.opened(conn, now) {
            self.hang_up(other);
        }
        self.mon.credentials = credentials;
        self.mon.took_tickets(now, true);
        for m in self.mon.greeting(self.maps.epoch()) {
            self.send(conn, m);
        }
        for at in [self.mon.ping_at(), self.mon.renew_at()].into_iter().flatten() {
            self.wake_at(at);
        }
    }

    pub(super) fn ended(&mut self, conn: ConnId, refused: bool, why: &str) {
        if self.mon.is_ours(conn) {
            let alone = self.mon.ended(conn, self.now.mono);
            if alone && refused {
                self.effects.push_back(Effect::Denied(why.to_string()));
            }
            if let Some(at) = self.mon.hunt_at {
                self.wake_at(at);
            }
            return;
        }
        let is_mgr = self.manager.conn() == Some(conn);
        let osd = self.sessions.forget_conn(conn);
        if refused && (is_mgr || osd.is_some()) {
            self.mon.tickets_refused(self.now.mono);
        }
        if is_mgr {
            return self.mgr_broke(why);
        }
        let Some(osd) = osd else { return };
        tracing::debug!("osd.{osd}: {why}");
        self.broke(osd);
    }

    /// Gives up the connection to an OSD.
    pub(super) fn lost(&mut self, osd: OsdId) {
        let conn = self.sessions.of(osd).and_then(|s| s.conn());
        if let Some(conn) = conn {
            self.sessions.forget_conn(conn);
            self.hang_up(conn);
        }
        self.broke(osd);
    }

    /// What was under way over it waits for the next one, in order; there may be a newer map.
    fn broke(&mut self, osd: OsdId) {
        let Some(session) = self.sessions.of_mut(osd) else {
            return;
        };
        let at = session.broke(self.now.mono);
        let tids: Vec<_> = session.ops.iter().copied().collect();
        self.unsent(osd);
        for tid in tids {
            use super::inflight::Owner;
            let owner = self.inflight.get(tid).map(|op| op.owner);
            if matches!(owner, Some(Owner::Linger(_) | Owner::Ping(_))) {
                self.go_or_register(tid);
            }
        }
        self.lost_lingers(osd);
        self.wake_at(at);
        self.want_map();
    }

    /// Dials an OSD that there is something to say to, unless that is under way.
    pub(super) fn dial_osd(&mut self, osd: OsdId) {
        let now = self.now.mono;
        let Some(session) = self.sessions.of(osd) else {
            return;
        };
        if session.is_due(now) {
            let addr = session.addr;
            let conn = self.dial(EntityKind::Osd, addr);
            self.sessions.dialling(osd, conn);
        }
    }

    pub(super) fn message(&mut self, conn: ConnId, m: Message) {
        if self.mon.open_conn() == Some(conn) {
            self.mon.hears(self.now.mono);
            if let Err(e) = self.mon_message(&m) {
                tracing::warn!("message {} of a monitor: {e}", m.kind);
            }
            return;
        }
        if self.manager.open_conn() == Some(conn) {
            if [MMgrCommandReply::KIND, kind::COMMAND_REPLY].contains(&m.kind) {
                self.command_reply(Daemon::Mgr, &m);
            }
            return;
        }
        let Some(osd) = self.sessions.osd(conn) else {
            return;
        };
        match m.kind {
            kind::COMMAND_REPLY => self.command_reply(Daemon::Osd(osd), &m),
            kind::OSD_OPREPLY => self.reply(osd, &m),
            kind::WATCH_NOTIFY => self.hear(&m),
            kind::OSD_BACKOFF => self.backoff(osd, &m),
            MOsdMap::KIND => match MOsdMap::from_message(&m) {
                Ok(maps) => self.take_maps(&maps),
                Err(e) => tracing::warn!("maps of osd.{osd}: {e}"),
            },
            _ => {}
        }
    }

    fn mon_message(&mut self, m: &Message) -> Result<()> {
        match m.kind {
            MMonMap::KIND => {
                let first = self.mon.map.is_none();
                let map = MonMap::from_bytes(&MMonMap::from_message(m)?.map)?;
                self.mon.take_map(map)?;
                if first {
                    for q in self.mon.questions() {
                        self.send_mon(Some(q));
                    }
                }
            }
            MOsdMap::KIND => self.take_maps(&MOsdMap::from_message(m)?),
            MMgrMap::KIND => self.take_mgr_map(MgrMap::from_bytes(&MMgrMap::from_message(m)?.map)?),
            MAUTH_REPLY => self.tickets(m)?,
            MMonCommandAck::KIND => {
                let a = MMonCommandAck::from_message(m)?;
                let (code, status, output) = (a.code, a.status, a.output);
                let answer = Answer::Command { code, status, output };
                self.answered(m.tid, Ok(answer), 0);
            }
            MPoolOpReply::KIND => self.pool_op_reply(m)?,
            MMonGetVersionReply::KIND => self.version(&MMonGetVersionReply::from_message(m)?),
            MStatfsReply::KIND => {
                let answer = Answer::Statfs(MStatfsReply::from_message(m)?);
                self.answered(m.tid, Ok(answer), 0);
            }
            MGetPoolStatsReply::KIND => {
                let answer = Answer::PoolStats(MGetPoolStatsReply::from_message(m)?);
                self.answered(m.tid, Ok(answer), 0);
            }
            _ => {}
        }
        Ok(())
    }

    fn pool_op_reply(&mut self, m: &Message) -> Result<()> {
        let r = MPoolOpReply::from_message(m)?;
        let snap = match &r.data {
            Some(d) if d.len() >= 8 => Some(u64::from_bytes(d)?),
            _ => None,
        };
        let told = match r.code {
            c if c < 0 => Err(Error::refused(c, "pool operation")),
            _ => Ok(Answer::PoolOp { snap }),
        };
        self.answered(m.tid, told, r.epoch);
        Ok(())
    }

    fn version(&mut self, r: &MMonGetVersionReply) {
        let newest = Epoch::try_from(r.newest).unwrap_or(Epoch::MAX);
        let Some(asked) = self.mon.answered(r.handle) else {
            return;
        };
        match asked.asker {
            Asker::User(id) => {
                let (newest, oldest) = (r.newest, r.oldest);
                self.tell(id, Ok(Answer::Version { newest, oldest }));
            }
            Asker::Latest(id) => self.tell_at(id, Ok(Answer::Latest(newest)), newest, asked.deadline),
            Asker::Missing => {
                self.pools_as_of(newest);
                self.commands_as_of(newest);
            }
            Asker::Ping => {}
        }
        if newest > self.maps.epoch() {
            self.want_map();
        }
    }

    /// A question has its answer, which is told once the map has reached `epoch`.
    fn answered(&mut self, tid: u64, told: Result<Answer>, epoch: Epoch) {
        if let Some(asked) = self.mon.answered(tid)
            && let Asker::User(id) = asked.asker
        {
            self.tell_at(id, told, epoch, asked.deadline);
        }
    }

    fn tell_at(
        &mut self,
        id: super::OpId,
        told: Result<Answer>,
        epoch: Epoch,
        deadline: Option<std::time::Duration>,
    ) {
        if self.maps.epoch() >= epoch {
            return self.tell(id, told);
        }
        // As many as there can be questions.
        if self.waiting.len() >= super::mon::QUESTIONS_MAX {
            return self.tell(id, Err(Error::Busy));
        }
        self.waiting.push(Waiting {
            id,
            epoch,
            told,
            deadline,
        });
        self.want_map();
    }

    pub(super) fn tell_waiting(&mut self) {
        let epoch = self.maps.epoch();
        let (ready, rest) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|w| w.epoch <= epoch);
        self.waiting = rest;
        let ready: Vec<Waiting> = ready;
        for w in ready {
            self.tell(w.id, w.told);
        }
        if !self.waiting.is_empty() {
            self.want_map();
        }
    }

    fn tickets(&mut self, m: &Message) -> Result<()> {
        let reply = MAuthReply::from_bytes(&m.front)?;
        let Credentials::Cephx(c) = &mut self.mon.credentials else {
            return Ok(());
        };
        let taken = match reply.result {
            r if r < 0 => Err(format!("renewal refused: {r}")),
            _ => c.renewed(&reply.payload).map_err(|e| e.to_string()),
        };
        match taken {
            Ok(()) => {
                tracing::debug!("the monitor renewed the tickets");
                self.mon.took_tickets(self.now.mono, false);
                if let Some(at) = self.mon.renew_at() {
                    self.wake_at(at);
                }
                Ok(())
            }
            Err(e) => {
                self.leave_mon();
                Err(Error::Auth(e))
            }
        }
    }

    /// Only another session helps.
    pub(super) fn leave_mon(&mut self) {
        if let Some(conn) = self.mon.open_conn() {
            self.hang_up(conn);
            self.mon.ended(conn, self.now.mono);
        }
    }
}
