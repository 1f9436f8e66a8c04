//! What is to be done about a unit whose copies a check found bad: which copy is made good from which others.
//!
//! Invariant: the primary's own copy comes first, since members' copies are made from it.

use crate::backend::findings::Inconsistent;
use crate::backend::group::Group;
use std::collections::VecDeque;
use types::{HObject, OsdId};

/// One bad copy.
#[derive(Debug)]
pub(crate) enum Fix {
    Pull {
        from: HObject,
        to: HObject,
        /// None: this OSD and any full member of `in_sync`.
        sources: Option<Vec<OsdId>>,
        /// No single copy can give all of it, or not at once.
        pieces: bool,
    },
    Push {
        member: OsdId,
        from: HObject,
        to: HObject,
    },
}

impl Fix {
    /// The same, and its pulls do not ask for all at once any more.
    pub fn in_pieces(self) -> Self {
        match self {
            Self::Pull {
                from, to, sources, ..
            } => Self::Pull {
                from,
                to,
                sources,
                pieces: true,
            },
            push @ Self::Push { .. } => push,
        }
    }
}

/// What makes the copies of the unit good: all of it at once, where every object of it has a good copy and some copy is whole.
pub(crate) fn fixes(group: &Group, head: &HObject, wrong: &[Inconsistent]) -> VecDeque<Fix> {
    let me = group.me;
    let bad_on = |osd: OsdId| wrong.iter().any(|w| w.bad().any(|o| o == osd));
    let others = || group.in_sync.iter().copied().filter(|o| *o != me);
    let whole: Vec<OsdId> = others().filter(|o| !bad_on(*o)).collect();
    let all_good = wrong.iter().all(|w| w.good.is_some());
    if !all_good || bad_on(me) && whole.is_empty() {
        return one_by_one(me, wrong);
    }
    let (from, to) = (head.with_snap(0), head.clone());
    let mut fixes = VecDeque::new();
    if bad_on(me) {
        fixes.push_back(Fix::Pull {
            from: from.clone(),
            to: to.clone(),
            sources: Some(whole),
            pieces: false,
        });
    }
    fixes.extend(others().filter(|o| bad_on(*o)).map(|member| Fix::Push {
        member,
        from: from.clone(),
        to: to.clone(),
    }));
    fixes
}

/// Version by version, where no copy of the unit is whole. Those of which nobody has a whole copy come last: what they
/// come to is not sure.
fn one_by_one(me: OsdId, wrong: &[Inconsistent]) -> VecDeque<Fix> {
    let (good, parts): (Vec<_>, Vec<_>) = wrong.iter().partition(|w| w.good.is_some());
    let mut fixes = VecDeque::new();
    for w in good.into_iter().chain(parts) {
        let (sources, pieces) = match w.good {
            Some(good) => (vec![good], false),
            None => (w.partly(), true),
        };
        if sources.is_empty() {
            continue;
        }
        if w.bad().any(|o| o == me) {
            fixes.push_back(Fix::Pull {
                from: w.object.clone(),
                to: w.object.clone(),
                sources: Some(sources),
                pieces,
            });
        }
        fixes.extend(w.bad().filter(|o| *o != me).map(|member| Fix::Push {
            member,
            from: w.object.clone(),
            to: w.object.clone(),
        }));
    }
    fixes
}
