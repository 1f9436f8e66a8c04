//! The manager's front on its own port: it takes commands and the greetings of service daemons. There is no
//! other manager behind it; the same dispatcher as the monitor's answers (docs/protocol/monitor.md).
//!
//! Invariant: `mgr` capabilities alone give what Ceph's manager answers by itself, and nothing of the monitor's.

use crate::policies::services::{Services, Speaker};
use crate::shell::monitor::{Effect, check_command, heed_keys, text_of};
use crate::shell::requests::{Action, Route};
use crate::shell::session::{Session, SessionId};
use bytes::Bytes;
use cluster::{ClusterState, ServiceMap};
use messages::mon::{Body, MMgrClose, MMgrCommand, MMgrConfigure, MMgrOpen, MMgrReport};
use messages::osd::MCommand;
use msgr::{Message, Peer};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::Utime;

/// Seconds between reports of service daemons.
const STATS_PERIOD: u32 = 5;
const STATS_THRESHOLD: u32 = 5;

#[derive(Default)]
pub struct Manager {
    sessions: BTreeMap<SessionId, Session>,
    services: Services,
}

impl Manager {
    /// False: its key was taken from it while it shook hands; close it.
    pub fn opened(&mut self, id: SessionId, peer: Arc<Peer>, state: &ClusterState) -> bool {
        let mut session = Session::new(peer);
        let stays = session.heed(state);
        if stays {
            self.sessions.insert(id, session);
        }
        stays
    }

    /// Keys or capabilities have changed.
    pub fn heed_keys(&mut self, state: &ClusterState) -> Vec<Effect> {
        heed_keys(&mut self.sessions, state)
    }

    /// Who has registered.
    pub fn services(&self) -> &ServiceMap {
        self.services.map()
    }

    /// Daemons that are silent for long are registered no more.
    pub fn tick(&mut self, now: Utime) {
        for name in self.services.prune(now) {
            tracing::warn!("{name} has not reported for long: it is no longer among the services");
        }
    }

    /// It stays registered while it may come back.
    pub fn closed(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    pub fn message(&mut self, id: SessionId, m: Message, state: &ClusterState, now: Utime) -> Vec<Effect> {
        let kind = m.kind;
        match self.dispatch(id, &m, state, now) {
            Ok(effects) => effects,
            Err(e) => vec![Effect::Close(id, format!("message of type {kind}: {e}"))],
        }
    }

    fn dispatch(
        &mut self,
        id: SessionId,
        m: &Message,
        state: &ClusterState,
        now: Utime,
    ) -> denc::Result<Vec<Effect>> {
        let send = |message| vec![Effect::Send(id, message)];
        Ok(match m.kind {
            MMgrCommand::KIND => {
                let c = MMgrCommand::from_message(m)?;
                self.command(id, m.tid, Route::Mgr, &c.cmd, c.input, state)
            }
            // `ceph tell mgr`, and clients that think the manager old. Its fsid may be zero.
            messages::osd::kind::COMMAND => {
                let c = MCommand::from_message(m)?;
                self.command(id, m.tid, Route::MgrTell, &text_of(&c.cmd), c.input, state)
            }
            MMgrOpen::KIND => {
                self.register(id, MMgrOpen::from_message(m)?, now);
                let configure = MMgrConfigure {
                    stats_period: STATS_PERIOD,
                    stats_threshold: STATS_THRESHOLD,
                    queries: 0,
                    has_metric_config: false,
                };
                send(configure.message(0))
            }
            MMgrReport::KIND => {
                self.report(id, &MMgrReport::from_message(m)?, now)?;
                Vec::new()
            }
            MMgrClose::KIND => {
                let close = MMgrClose::from_message(m)?;
                if let Some(who) = self.speaker(id) {
                    let (service, name) = (&close.service_name, &close.daemon_name);
                    self.services.close(service, name, who.gid, now);
                }
                send(close.message(0))
            }
            other => {
                tracing::debug!(kind = other, "message of a type that the manager does not know");
                Vec::new()
            }
        })
    }

    fn speaker(&self, id: SessionId) -> Option<Speaker> {
        let session = self.sessions.get(&id)?;
        Some(Speaker {
            gid: session.peer.global_id,
            addrs: session.peer.addrs.clone(),
        })
    }

    fn register(&mut self, id: SessionId, open: MMgrOpen, now: Utime) {
        let (Some(who), Some(says)) = (self.speaker(id), open.service) else {
            return;
        };
        let name = (open.service_name.as_str(), open.daemon_name.as_str());
        if !self.services.register(name, &who, says, now) {
            tracing::warn!(
                "{}.{} is not registered: there are too many service daemons",
                name.0,
                name.1
            );
        }
    }

    fn report(&mut self, id: SessionId, report: &MMgrReport, now: Utime) -> denc::Result<()> {
        let Some(who) = self.speaker(id).filter(|w| self.services.has(w.gid)) else {
            return Ok(());
        };
        let says = report.service()?;
        let name = (says.service_name.as_str(), report.daemon_name.as_str());
        let facts = (says.status, says.task_status);
        if !self.services.report(name, who.gid, facts, now) {
            tracing::warn!("what {}.{} says of itself is too long", name.0, name.1);
        }
        Ok(())
    }

    fn command(
        &mut self,
        id: SessionId,
        tid: u64,
        route: Route,
        cmd: &[String],
        input: Bytes,
        state: &ClusterState,
    ) -> Vec<Effect> {
        let Some(session) = self.sessions.get_mut(&id) else {
            return Vec::new();
        };
        session.look_up_mon_caps(&state.auth);
        match check_command(session, &route, cmd, input) {
            Ok(command) => {
                let request = session.request(tid, Action::Command { route, command });
                vec![Effect::Decide(id, Box::new(request))]
            }
            Err(denied) => denied.effects(id, tid, route, session, state),
        }
    }
}
