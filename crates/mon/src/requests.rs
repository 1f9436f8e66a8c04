//! What a session asks that may change the cluster: decided as a pure function of the state, so that the
//! commit loop can run it again, and answered after the change is durable.

use crate::audit::Record;
use crate::commands::{self, Command, Context, MonInfo, SessionInfo, Target};
use crate::pools::{self, Done, NewPool, PoolError, RuleChoice, SnapRights};
use crate::progress::Progress;
use bytes::Bytes;
use io::Random;
use messages::mon::{
    Body, MLogAck, MMgrCommandReply, MMonCommandAck, MPoolOp, MPoolOpReply, PaxosHeader, PoolOpKind,
};
use messages::osd::MCommandReply;
use metastore::cluster::AUDIT_CHANNEL;
use metastore::{Change, Changes, ClusterState, ClusterStats};
use msgr::Message;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use types::clusterlog::LogEntry;
use types::osdmap::Incremental;
use types::{AuthName, EntityAddr, Errno, Utime};

/// Cluster log entries that one LOG message may add; the rest is not acknowledged and comes again.
pub const LOG_ENTRIES_PER_MESSAGE_MAX: usize = 50;

/// How a command came, and so how it is answered.
#[derive(Debug, Clone)]
pub enum Door {
    /// MON_COMMAND: the answer repeats the request.
    Mon { cmd: Vec<String> },
    /// COMMAND to the monitor.
    Tell,
    /// COMMAND to the manager.
    MgrTell,
    /// MGR_COMMAND.
    Mgr,
}

impl Door {
    pub fn target(&self) -> Target {
        match self {
            Self::Mon { .. } => Target::Mon,
            Self::Tell => Target::TellMon,
            Self::MgrTell | Self::Mgr => Target::Mgr,
        }
    }
}

#[derive(Debug, Clone)]
pub enum Action {
    Command { door: Door, command: Command },
    PoolOp { op: MPoolOp, rights: SnapRights },
    Log { entries: Vec<LogEntry> },
}

/// What somebody had when a request was permitted.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    pub key_epoch: u64,
    pub caps: BTreeMap<String, String>,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub tid: u64,
    pub who: AuthName,
    pub global_id: u64,
    /// It is not carried out when they are others by then. None: no entity's key stands behind the session.
    pub rights: Option<Arc<Rights>>,
    /// What it says its address is, and where its packets come from.
    pub addr: EntityAddr,
    pub sock: SocketAddr,
    pub action: Action,
}

/// What the shell lends to a decision.
pub struct Env<'a> {
    pub now: Utime,
    pub random: &'a dyn Random,
    pub info: &'a MonInfo,
    pub progress: &'a Progress,
    pub stats: &'a ClusterStats,
    pub sessions: &'a [SessionInfo],
}

/// The answer before it is put into a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// 0 or a negative errno.
    pub code: i32,
    pub status: String,
    pub data: Bytes,
}

impl Reply {
    pub fn error(errno: Errno, status: impl Into<String>) -> Self {
        Self {
            code: errno.code(),
            status: status.into(),
            data: Bytes::new(),
        }
    }
}

impl From<PoolError> for Reply {
    fn from(e: PoolError) -> Self {
        Self::error(e.errno, e.text)
    }
}

impl Request {
    /// Whether who asked may still do what it might when it asked: changes wait, and keys are taken away meanwhile.
    fn is_permitted(&self, state: &ClusterState) -> bool {
        self.rights.as_ref().is_none_or(|r| {
            let entity = state.auth.current(&self.who, r.key_epoch);
            entity.is_some_and(|e| e.caps == r.caps)
        })
    }

    /// What is changed, with the record of it, and the answer.
    pub fn decide(&self, state: &ClusterState, env: &Env<'_>) -> (Changes, Reply) {
        let (mut changes, reply) = self.decide_alone(state, env);
        if !changes.is_empty()
            && let Some(record) = Record::of(self, &reply, env.now).filter(|r| r.in_log)
        {
            let entry = state.log_entry(env.now, record.level(), record.text());
            changes.push(Change::Audit(entry));
        }
        (changes, reply)
    }

    fn decide_alone(&self, state: &ClusterState, env: &Env<'_>) -> (Changes, Reply) {
        if !self.is_permitted(state) {
            let why = "access denied: key or capabilities changed meanwhile";
            return (Changes::none(), Reply::error(Errno::EACCES, why));
        }
        match &self.action {
            Action::Command { door, command } => {
                let ctx = Context {
                    state,
                    stats: env.stats,
                    now: env.now,
                    random: env.random,
                    target: door.target(),
                    mon: env.info,
                    progress: env.progress,
                    sessions: env.sessions,
                    who: &self.who,
                    addr: self.addr,
                };
                let out = commands::run(command, &ctx);
                let changes = if out.code < 0 {
                    Changes::none()
                } else {
                    *out.changes
                };
                (
                    changes,
                    Reply {
                        code: out.code,
                        status: out.status,
                        data: out.data,
                    },
                )
            }
            Action::PoolOp { op, rights } => match pool_op(op, (&self.who, *rights), state, env.now) {
                Ok((changes, data)) => (
                    changes,
                    Reply {
                        data,
                        ..Reply::default()
                    },
                ),
                Err(e) => (Changes::none(), e.into()),
            },
            Action::Log { entries } => {
                // Who sends a line is who sent it, and the channel of records is the monitors' own. The log is shown on
                // terminals, and a line of it is one entry.
                let own = |e: &LogEntry| {
                    let mut e = e.clone();
                    e.name = self.who.clone();
                    e.message = io::log::one_line(&e.message);
                    if e.channel == AUDIT_CHANNEL {
                        e.channel = "cluster".into();
                    }
                    Change::Log(e)
                };
                let list = entries.iter().map(own).collect();
                (
                    Changes {
                        list,
                        ..Changes::default()
                    },
                    Reply::default(),
                )
            }
        }
    }

    /// The message that answers; `state` holds what was decided.
    pub fn answer(&self, reply: Reply, state: &ClusterState) -> Message {
        let epoch = state.osdmap.epoch;
        let Reply { code, status, data } = reply;
        match &self.action {
            Action::Command {
                door: Door::Mon { cmd },
                ..
            } => {
                let paxos = PaxosHeader {
                    version: u64::from(epoch),
                };
                MMonCommandAck {
                    paxos,
                    code,
                    status,
                    cmd: cmd.clone(),
                    output: data,
                }
                .message(self.tid)
            }
            Action::Command { door: Door::Mgr, .. } => MMgrCommandReply {
                code,
                status,
                output: data,
            }
            .message(self.tid),
            Action::Command { .. } => MCommandReply {
                tid: self.tid,
                result: code,
                status: status.into(),
                output: data,
            }
            .to_message(),
            Action::PoolOp { op, .. } => pool_op_reply(op, self.tid, code, epoch, data),
            Action::Log { entries } => {
                let last = entries.last().map_or(0, |e| e.seq);
                MLogAck {
                    fsid: state.fsid,
                    last,
                    channel: String::new(),
                }
                .message(self.tid)
            }
        }
    }
}

pub fn pool_op_reply(op: &MPoolOp, tid: u64, code: i32, epoch: u32, data: Bytes) -> Message {
    MPoolOpReply {
        paxos: PaxosHeader {
            version: u64::from(epoch),
        },
        fsid: op.fsid,
        code,
        epoch,
        data: (!data.is_empty()).then_some(data),
    }
    .message(tid)
}

/// What a POOLOP changes, and the data of its answer (docs/protocol/monitor.md).
fn pool_op(
    op: &MPoolOp,
    who: (&AuthName, SnapRights),
    state: &ClusterState,
    now: Utime,
) -> pools::Result<(Changes, Bytes)> {
    let map = &*state.osdmap;
    let mut inc = Incremental::next_after(map, now);
    let Some(kind) = PoolOpKind::from_u32(op.op) else {
        return pools::refuse(Errno::EINVAL, format!("unknown pool operation {:#x}", op.op));
    };
    let exists = map.pool(op.pool).is_some();
    if !exists && !matches!(kind, PoolOpKind::Create | PoolOpKind::Delete) {
        return pools::refuse(Errno::ENOENT, format!("pool {} does not exist", op.pool));
    }
    let mut data = Bytes::new();
    let mut owner = None;
    let done = match kind {
        PoolOpKind::Create => {
            let rule = match op.crush_rule {
                -1 => RuleChoice::Default,
                id => RuleChoice::Id(i64::from(id)),
            };
            pools::create(
                state,
                &NewPool {
                    name: &op.name,
                    rule,
                    ..NewPool::default()
                },
                now,
                &mut inc,
            )?
            .0
        }
        PoolOpKind::Delete => pools::delete(state, op.pool, &mut inc)?,
        PoolOpKind::ChangeAuid => return pools::refuse(Errno::EOPNOTSUPP, "auids are obsolete"),
        PoolOpKind::CreateSnap => pools::create_snap(map, op.pool, &op.name, now, &mut inc)?,
        PoolOpKind::RemoveSnap => pools::remove_snap(map, op.pool, &op.name, &mut inc)?,
        PoolOpKind::CreateSelfManagedSnap => {
            let id = pools::create_selfmanaged_snap(map, op.pool, &mut inc)?;
            data = Bytes::copy_from_slice(&id.to_le_bytes());
            owner = Some(Change::SnapMade {
                pool: op.pool,
                snap: id,
                owner: who.0.clone(),
            });
            Done::Changed(String::new())
        }
        PoolOpKind::RemoveSelfManagedSnap => {
            owner = Some(Change::SnapRemoved {
                pool: op.pool,
                snap: op.snapid,
            });
            pools::remove_selfmanaged_snap(state, op.pool, op.snapid, who, &mut inc)?
        }
    };
    Ok(match done {
        Done::Changed(_) => {
            let mut changes = Changes::map(inc);
            changes.list.extend(owner);
            (changes, data)
        }
        Done::Already(_) => (Changes::none(), data),
    })
}
