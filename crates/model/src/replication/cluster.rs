//! The cluster state's side: mark-down, boot, commit of proposals, all as single transactions.

use super::rules::Replication;
use super::state::{Config, Flight, State, Status, bit, count, is_in, ups};

/// A primary that begins an interval.
fn begin(config: Config, primary: usize) -> Config {
    Config {
        interval: config.interval + 1,
        primary: primary as u8,
        ..config
    }
}

/// Rule 5: the OSD leaves the in-sync set where rule 4 allows, and another one of it that is up becomes primary.
pub fn mark_down(model: &Replication, s: &mut State, osd: usize) {
    s.up &= !bit(osd);
    let left = s.config.in_sync & !bit(osd);
    // It is never left to OSDs that are all down: the one that goes may be the one that comes back.
    if is_in(s.config.in_sync, osd) && count(left) >= model.in_sync_min() && left & s.up != 0 {
        s.config.in_sync = left;
    }
    if s.config.primary as usize == osd {
        choose_primary(model, s);
    }
}

fn choose_primary(model: &Replication, s: &mut State) {
    let eligible = |o: &usize| is_in(s.up, *o) && is_in(s.config.in_sync, *o);
    let by_up = model.up(s.place, s.up).find(eligible);
    let mut next = by_up.or_else(|| ups(s.config.in_sync).find(eligible));
    if model.rules.primary_outside_in_sync {
        next = model.up(s.place, s.up).next();
    }
    if let Some(next) = next {
        s.config = begin(s.config, next);
        if model.rules.primary_outside_in_sync {
            s.config.in_sync |= bit(next);
        }
    }
}

/// An OSD comes up: what it was before is down first; a PG that waited for it has it.
pub fn boot(model: &Replication, s: &mut State, osd: usize) {
    if is_in(s.up, osd) {
        mark_down(model, s, osd);
    }
    s.up |= bit(osd);
    let primary = s.config.primary as usize;
    if primary == osd {
        if !model.rules.keep_interval_at_boot {
            s.config = begin(s.config, osd);
        }
    } else if !is_in(s.up, primary) && is_in(s.config.in_sync, osd) {
        s.config = begin(s.config, osd);
    }
    s.nodes[osd].status = Status::Live;
}

/// Rule 9: a proposal stands or falls with the configuration that it expects. One whose primary went down meanwhile
/// is refused: mark-down has settled the PG already, and nothing would settle it again.
pub fn commit(model: &Replication, s: &mut State, flight: Flight) {
    let up = is_in(s.up, flight.primary as usize) || model.rules.commit_a_primary_that_is_down;
    if s.config != flight.expect || !up {
        return;
    }
    s.config.in_sync = flight.in_sync;
    if s.config.primary != flight.primary {
        s.config = begin(s.config, flight.primary as usize);
    }
}
