//! What a request changes and how it is answered: a pure function of the state, so that the commit loop can run it again.

use crate::commands;
use crate::commands::context::Context;
use crate::policies::pool_change::refuse;
use crate::policies::pools::{self, Done, NewPool, RuleChoice, SnapRights};
use crate::shell::audit::Record;
use crate::shell::requests::{Action, Env, Reply, Request, Route};
use bytes::Bytes;
use cluster::{AUDIT_CHANNEL, Change, Changes, ClusterState};
use messages::mon::{
    Body, MLogAck, MMgrCommandReply, MMonCommandAck, MPoolOp, MPoolOpReply, PaxosHeader, PoolOpKind,
};
use messages::osd::MCommandReply;
use msgr::Message;
use types::clusterlog::LogEntry;
use types::osdmap::Incremental;
use types::{AuthName, Errno, Utime};

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
            Action::Command { route, command } => {
                let ctx = Context {
                    state,
                    stats: env.stats,
                    now: env.now,
                    random: env.random,
                    target: route.target(),
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
                route: Route::Mon { cmd },
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
            Action::Command {
                route: Route::Mgr, ..
            } => MMgrCommandReply {
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
        return refuse(Errno::EINVAL, format!("unknown pool operation {:#x}", op.op));
    };
    let exists = map.pool(op.pool).is_some();
    if !exists && !matches!(kind, PoolOpKind::Create | PoolOpKind::Delete) {
        return refuse(Errno::ENOENT, format!("pool {} does not exist", op.pool));
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
        PoolOpKind::ChangeAuid => return refuse(Errno::EOPNOTSUPP, "auids are obsolete"),
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
