//! Everything that can happen next.
//!
//! An action is atomic as the product's event loop is: a pause falls between two of them. A primary acknowledges
//! as soon as it can, which is the hardest case for every property.

use super::cluster;
use super::log::Entry;
use super::messages;
use super::rules::Replication;
use super::state::{Flight, OSDS, Phase, State, Status, bit, count, is_in, ups};
use super::wire::Ask;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A client's write, new or sent again, reaches an OSD that takes it.
    Write {
        write: u8,
        osd: usize,
    },
    /// All that an OSD queued becomes durable.
    Flush {
        osd: usize,
    },
    Deliver {
        primary: usize,
        member: usize,
    },
    Hear {
        primary: usize,
        member: usize,
    },
    /// An OSD sees the newest cluster state.
    Learn {
        osd: usize,
    },
    Propose {
        osd: usize,
        flight: Flight,
    },
    Commit {
        osd: usize,
    },
    CommitOrphan,
    MarkDown {
        osd: usize,
    },
    Boot {
        osd: usize,
    },
    // Faults.
    Crash {
        osd: usize,
        sent: bool,
    },
    Cut {
        primary: usize,
        member: usize,
        sent: bool,
    },
    LeaseEnds {
        osd: usize,
    },
    LoseDisk {
        osd: usize,
    },
    Move,
}

impl Action {
    pub fn is_fault(self) -> bool {
        matches!(
            self,
            Self::Crash { .. }
                | Self::Cut { .. }
                | Self::LeaseEnds { .. }
                | Self::LoseDisk { .. }
                | Self::Move
        )
    }
}

type Out<'a> = &'a mut Vec<(Action, State)>;

pub fn all(model: &Replication, s: &State, out: Out<'_>) {
    for osd in 0..OSDS {
        writes(model, s, osd, out);
        disk_and_view(model, s, osd, out);
        proposals(model, s, osd, out);
        up_and_down(model, s, osd, out);
        faults(s, osd, out);
        for member in (0..OSDS).filter(|m| *m != osd) {
            connection(model, s, osd, member, out);
        }
    }
    cluster_acts(model, s, out);
    for (_, n) in out.iter_mut() {
        settle(model, n);
    }
}

/// What happens at once without changing anything that can be seen in between; and one form for equal states.
/// An OSD that is not primary uses nothing of its view but the interval; messages of intervals that are over are
/// refused whenever they arrive; a primary asks a member that it reaches.
fn settle(model: &Replication, s: &mut State) {
    for osd in 0..OSDS {
        s.nodes[osd].view.forget_unused(osd);
        for primary in 0..OSDS {
            let known = s.nodes[osd].view.config.interval;
            s.requests[primary][osd].retain(|r| r.interval >= known);
        }
        if !s.nodes[osd].is_primary(osd) {
            continue;
        }
        let node = &s.nodes[osd];
        let members = node.view.config.in_sync | node.adding | model.up_set(node.view.place, node.view.up);
        for m in ups(members & !bit(osd)) {
            if s.nodes[osd].phase[m] == Phase::Away && s.nodes[m].runs() {
                s.nodes[osd].phase[m] = Phase::Asked;
                messages::send(s, osd, m, Ask::Query);
            }
        }
        if !s.nodes[osd].peered {
            messages::peer(model, s, osd);
        }
    }
}

fn cluster_acts(model: &Replication, s: &State, out: Out<'_>) {
    if let Some(flight) = s.orphan {
        let mut n = s.clone();
        n.orphan = None;
        cluster::commit(model, &mut n, flight);
        out.push((Action::CommitOrphan, n));
    }
    if s.budget.moves > 0 {
        let mut n = s.clone();
        n.budget.moves -= 1;
        n.place += 1;
        out.push((Action::Move, n));
    }
}

fn writes(model: &Replication, s: &State, osd: usize, out: Out<'_>) {
    let node = &s.nodes[osd];
    if !node.serves(osd) || !node.peered || count(node.view.config.in_sync) < model.in_sync_min() {
        return;
    }
    // Writes are alike, so they begin in order; answered ones are not sent again.
    let last = (s.issued + 1).min(model.writes);
    for write in (1..=last).filter(|w| !node.log.has(*w) && !s.exposed.has(*w)) {
        let mut n = s.clone();
        n.issued = n.issued.max(write);
        let entry = Entry::new(node.view.config.interval, write);
        n.nodes[osd].log.push(entry);
        n.nodes[osd].content = entry;
        for m in (0..OSDS).filter(|m| matches!(node.phase[*m], Phase::Finishing | Phase::Full)) {
            messages::send(&mut n, osd, m, Ask::Apply { entry });
        }
        out.push((Action::Write { write, osd }, n));
    }
}

fn disk_and_view(model: &Replication, s: &State, osd: usize, out: Out<'_>) {
    let node = &s.nodes[osd];
    if !node.runs() {
        return;
    }
    let queued = node.log != node.durable_log || node.content != node.durable_content;
    if queued || node.owed != [0; OSDS] {
        let mut n = s.clone();
        messages::flush(model, &mut n, osd);
        out.push((Action::Flush { osd }, n));
    }
    let waits = node.flight.is_none() && (node.adding != 0 || node.handing_over);
    let mut newest = s.view();
    newest.forget_unused(osd);
    if node.view != newest || waits {
        let mut n = s.clone();
        learn(model, &mut n, osd);
        out.push((Action::Learn { osd }, n));
    }
}

/// The OSD's view becomes the present one; a new interval begins everything anew.
fn learn(model: &Replication, s: &mut State, osd: usize) {
    let view = s.view();
    let node = &mut s.nodes[osd];
    let before = std::mem::replace(&mut node.view, view);
    if before.config.interval != view.config.interval {
        // A proposal under way expects an interval that is over: nothing can come of it.
        node.forget_role();
        node.owed = Default::default();
        for m in 0..OSDS {
            s.answers[osd][m].clear();
        }
    } else if node.flight.is_none() {
        node.adding = 0;
        node.handing_over = false;
    }
    // One that left the set in the meantime is asked again, as a learner.
    let node = &mut s.nodes[osd];
    for m in (0..OSDS).filter(|m| !is_in(view.config.in_sync, *m)) {
        if node.phase[m] == Phase::Heard {
            node.phase[m] = Phase::Away;
            node.heads[m] = Default::default();
        }
    }
    messages::acknowledge(model, s, osd);
}

fn connection(model: &Replication, s: &State, primary: usize, member: usize, out: Out<'_>) {
    let node = &s.nodes[primary];
    if !s.requests[primary][member].is_empty() {
        let mut n = s.clone();
        if messages::deliver(model, &mut n, primary, member) {
            out.push((Action::Deliver { primary, member }, n));
        }
    }
    if !s.answers[primary][member].is_empty() {
        let mut n = s.clone();
        messages::hear(model, &mut n, primary, member);
        out.push((Action::Hear { primary, member }, n));
    }
    if s.budget.cuts > 0 && node.is_primary(primary) && node.phase[member] != Phase::Away {
        // What was sent is lost, or still comes before anything of the next connection.
        for sent in [false, true] {
            let full = !s.requests[primary][member].is_empty();
            if sent && !full {
                continue;
            }
            let mut n = s.clone();
            n.budget.cuts -= 1;
            n.nodes[primary].phase[member] = Phase::Away;
            disconnect(&mut n, primary, member, sent);
            out.push((
                Action::Cut {
                    primary,
                    member,
                    sent,
                },
                n,
            ));
        }
    }
}

fn disconnect(s: &mut State, primary: usize, member: usize, sent: bool) {
    s.nodes[primary].heads[member] = Default::default();
    let requests = &mut s.requests[primary][member];
    match sent {
        false => requests.clear(),
        true => requests.iter_mut().for_each(|r| r.old = true),
    }
    s.answers[primary][member].clear();
    s.nodes[member].owed[primary] = 0;
}

/// Rules 4 and 6.
fn proposals(model: &Replication, s: &State, osd: usize, out: Out<'_>) {
    let node = &s.nodes[osd];
    let expect = node.view.config;
    if let Some(flight) = node.flight {
        let mut n = s.clone();
        n.nodes[osd].flight = None;
        cluster::commit(model, &mut n, flight);
        out.push((Action::Commit { osd }, n));
        return;
    }
    // One at a time: the outcome of the last one is known. One that expects what is over would be refused: nothing
    // new comes of it.
    if !node.serves(osd) || node.adding != 0 || expect != s.config {
        return;
    }
    let keep = Flight {
        expect,
        in_sync: expect.in_sync,
        primary: expect.primary,
    };
    let mut propose = |flight: Flight| {
        let mut n = s.clone();
        let node = &mut n.nodes[osd];
        node.flight = Some(flight);
        node.adding = flight.in_sync & !expect.in_sync;
        node.handing_over = flight.primary != expect.primary && !model.rules.read_during_hand_over;
        out.push((Action::Propose { osd, flight }, n));
    };
    if let Some(longest) = node.longest(osd).filter(|m| *m != osd) {
        propose(Flight {
            primary: longest as u8,
            ..keep
        });
    }
    let up = model.up_set(node.view.place, node.view.up);
    let away = |m: &usize| *m != osd && matches!(node.phase[*m], Phase::Away | Phase::Asked);
    if count(expect.in_sync) > model.in_sync_min() {
        for m in ups(expect.in_sync).filter(away) {
            propose(Flight {
                in_sync: expect.in_sync & !bit(m),
                ..keep
            });
        }
    }
    for m in ups(up & !expect.in_sync).filter(|m| may_add(model, s, osd, *m)) {
        propose(Flight {
            in_sync: expect.in_sync | bit(m),
            ..keep
        });
    }
    let drained = node.peered && node.acked as usize == node.log.len();
    let covers = drained && up & !expect.in_sync == 0 && count(up) >= model.min_size;
    let full = ups(up).all(|m| m == osd || node.phase[m] == Phase::Full);
    if let Some(first) = model
        .up(node.view.place, node.view.up)
        .next()
        .filter(|_| covers && full)
        && (up != expect.in_sync || first != osd)
    {
        propose(Flight {
            expect,
            in_sync: up,
            primary: first as u8,
        });
    }
}

fn may_add(model: &Replication, s: &State, primary: usize, learner: usize) -> bool {
    let node = &s.nodes[primary];
    match node.phase[learner] {
        Phase::Away | Phase::Asked | Phase::Heard => false,
        Phase::Finishing => model.rules.add_before_full,
        Phase::Full => {
            node.durable[learner] >= node.acked
                || model.rules.add_when_caught_up_once
                || model.rules.add_before_full
        }
    }
}

fn up_and_down(model: &Replication, s: &State, osd: usize, out: Out<'_>) {
    let status = s.nodes[osd].status;
    if is_in(s.up, osd) && (status != Status::Live || model.rules.down_before_lease_end) {
        let mut n = s.clone();
        cluster::mark_down(model, &mut n, osd);
        out.push((Action::MarkDown { osd }, n));
    }
    if matches!(status, Status::Idle | Status::Dead) {
        let mut n = s.clone();
        cluster::boot(model, &mut n, osd);
        learn(model, &mut n, osd);
        out.push((Action::Boot { osd }, n));
    }
}

fn faults(s: &State, osd: usize, out: Out<'_>) {
    let runs = s.nodes[osd].runs();
    if runs && s.budget.crashes > 0 {
        let sending = (0..OSDS).any(|m| !s.requests[osd][m].is_empty());
        for sent in [false, true] {
            if sent && !sending {
                continue;
            }
            let mut n = s.clone();
            n.budget.crashes -= 1;
            end(&mut n, osd, sent, Status::Dead);
            out.push((Action::Crash { osd, sent }, n));
        }
    }
    if s.nodes[osd].status == Status::Live && s.budget.expiries > 0 {
        let mut n = s.clone();
        n.budget.expiries -= 1;
        n.nodes[osd].status = Status::Idle;
        out.push((Action::LeaseEnds { osd }, n));
    }
    if s.budget.losses > 0 {
        let mut n = s.clone();
        n.budget.losses -= 1;
        end(&mut n, osd, false, Status::Lost);
        out.push((Action::LoseDisk { osd }, n));
    }
}

/// A process ends: what it did not make durable is gone, its proposal may still be executed, what it sent may
/// still arrive.
fn end(s: &mut State, osd: usize, sent: bool, status: Status) {
    let node = &mut s.nodes[osd];
    let flight = node.flight.take();
    node.lose_volatile();
    node.status = status;
    if flight.is_some() {
        s.orphan = flight;
    }
    for other in 0..OSDS {
        disconnect(s, osd, other, sent);
        disconnect(s, other, osd, false);
        s.nodes[other].phase[osd] = Phase::Away;
    }
}
