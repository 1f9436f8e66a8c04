//! What a primary and a member do with what they hear from one another.
//!
//! Invariants: in order on a connection. A message of an interval above the member's view waits for the view; one
//! below it is refused. An answer is about what is durable.
//!
//! Catching up is folded: a learner gets `Begin` (rewind, and the object's bytes in place) and then `Finish` (the log);
//! a member of the in-sync set gets `Replace`, both in one transaction.

use super::log::Log;
use super::properties::{MIN_SIZE_COPIES, ONE_HISTORY};
use super::rules::Replication;
use super::state::{OSDS, Phase, State, count, is_in, ups};
use super::wire::{Answer, Ask, Request, Tell};

/// Sends from a primary to a member that it is connected to.
pub fn send(s: &mut State, primary: usize, member: usize, ask: Ask) {
    let interval = s.nodes[primary].view.config.interval;
    s.requests[primary][member].push(Request {
        interval,
        old: false,
        ask,
    });
}

/// The member takes the first request; false if it waits for the member's view.
pub fn deliver(model: &Replication, s: &mut State, primary: usize, member: usize) -> bool {
    let known = s.nodes[member].view.config.interval;
    let first = s.requests[primary][member].first().copied();
    let Some(request) = first.filter(|r| s.nodes[member].runs() && r.interval <= known) else {
        return false;
    };
    s.requests[primary][member].remove(0);
    if request.interval < known {
        return true;
    }
    let answered = !request.old || model.rules.answer_on_any_connection;
    let node = &mut s.nodes[member];
    match request.ask {
        Ask::Query => {
            if !model.rules.info_before_durable {
                flush(model, s, member);
            }
            let node = &s.nodes[member];
            let tell = Tell::Info {
                log: node.log,
                dirty: node.content != node.log.last(),
            };
            if answered {
                answer(s, primary, member, request.interval, tell);
            }
            return true;
        }
        Ask::Begin { to, content } => {
            // Answered together with the `Finish` behind it.
            node.log = node.log.first(to as usize);
            node.content = content;
            return true;
        }
        Ask::Finish { log } => node.log = log,
        Ask::Replace { log } => {
            node.log = log;
            node.content = log.last();
        }
        Ask::Apply { entry } => {
            node.log.push(entry);
            node.content = entry;
        }
    }
    if answered {
        node.owed[primary] = node.log.len() as u8 + 1;
    }
    if model.rules.ack_before_durable {
        pay(s, member);
    }
    true
}

/// Everything queued becomes durable, and is answered.
pub fn flush(model: &Replication, s: &mut State, osd: usize) {
    let node = &mut s.nodes[osd];
    node.durable_log = node.log;
    node.durable_content = node.content;
    pay(s, osd);
    acknowledge(model, s, osd);
}

fn pay(s: &mut State, member: usize) {
    let interval = s.nodes[member].view.config.interval;
    for primary in 0..OSDS {
        let owed = std::mem::take(&mut s.nodes[member].owed[primary]);
        if owed > 0 {
            answer(s, primary, member, interval, Tell::Applied { len: owed - 1 });
        }
    }
}

/// An answer finds its way only while the connection is there.
fn answer(s: &mut State, primary: usize, member: usize, interval: u8, tell: Tell) {
    let asker = &s.nodes[primary];
    if asker.is_primary(primary)
        && asker.view.config.interval == interval
        && asker.phase[member] != Phase::Away
    {
        s.answers[primary][member].push(Answer { interval, tell });
    }
}

/// The primary takes the first answer of a member.
pub fn hear(model: &Replication, s: &mut State, primary: usize, member: usize) {
    let told = s.answers[primary][member].remove(0);
    let node = &mut s.nodes[primary];
    if !node.is_primary(primary) || node.view.config.interval != told.interval {
        return;
    }
    match told.tell {
        Tell::Applied { len } => {
            if node.phase[member] == Phase::Finishing {
                node.phase[member] = Phase::Full;
            }
            node.durable[member] = node.durable[member].max(len);
        }
        Tell::Info { log, dirty } => hear_info(model, s, primary, member, log, dirty),
    }
    acknowledge(model, s, primary);
}

fn hear_info(model: &Replication, s: &mut State, primary: usize, member: usize, log: Log, dirty: bool) {
    let node = &mut s.nodes[primary];
    if node.peered || model.rules.trust_own_log || !is_in(node.view.config.in_sync, member) {
        return catch_up(model, s, primary, member, log, dirty);
    }
    node.phase[member] = Phase::Heard;
    node.heads[member] = log.head();
}

/// Once all of the in-sync set were heard and none is ahead, they are brought to the primary's log. Their logs
/// are prefixes of its own, so their heads say all.
pub fn peer(model: &Replication, s: &mut State, primary: usize) {
    let node = &s.nodes[primary];
    if !model.rules.trust_own_log && node.longest(primary) != Some(primary) {
        return;
    }
    s.nodes[primary].peered = true;
    for m in 0..OSDS {
        if s.nodes[primary].phase[m] == Phase::Heard {
            let len = std::mem::take(&mut s.nodes[primary].heads[m]).1 as usize;
            let log = s.nodes[primary].log.first(len);
            catch_up(model, s, primary, m, log, false);
        }
    }
    acknowledge(model, s, primary);
}

fn catch_up(model: &Replication, s: &mut State, primary: usize, member: usize, log: Log, dirty: bool) {
    let node = &mut s.nodes[primary];
    let (ours, content) = (node.log, node.content);
    let common = ours.common(&log);
    if common == ours.len() && common == log.len() && !dirty {
        node.phase[member] = Phase::Full;
        node.durable[member] = common as u8;
        return;
    }
    node.phase[member] = Phase::Finishing;
    let counts = node.view.config.in_sync | node.adding;
    if is_in(counts, member) && !model.rules.rewind_in_sync {
        send(s, primary, member, Ask::Replace { log: ours });
    } else {
        send(
            s,
            primary,
            member,
            Ask::Begin {
                to: common as u8,
                content,
            },
        );
        send(s, primary, member, Ask::Finish { log: ours });
    }
}

/// Rule 1: answers the clients for what is durable on all that count. A held read is answered with the write it
/// shows, so it exposes nothing else.
pub fn acknowledge(model: &Replication, s: &mut State, primary: usize) {
    let node = &s.nodes[primary];
    let config = node.view.config;
    if !node.is_primary(primary) || !node.peered || count(config.in_sync) < model.in_sync_min() {
        return;
    }
    let mut counts = config.in_sync;
    if !model.rules.count_after_commit {
        counts |= node.adding;
    }
    let own = node.log.same(&node.durable_log) as u8;
    let others = ups(counts).filter(|m| *m != primary).map(|m| node.durable[m]);
    let len = others.fold(own, u8::min);
    if len <= node.acked {
        return;
    }
    let shown = node.log.first(len as usize);
    s.nodes[primary].acked = len;
    let copies = s
        .nodes
        .iter()
        .filter(|n| shown.is_prefix_of(&n.durable_log))
        .count();
    if copies < model.min_size && !model.rules.ack_before_durable {
        s.broken = Some(MIN_SIZE_COPIES);
    }
    if s.exposed.is_prefix_of(&shown) {
        s.exposed = shown;
    } else if !shown.is_prefix_of(&s.exposed) {
        s.broken = Some(ONE_HISTORY);
    }
}
