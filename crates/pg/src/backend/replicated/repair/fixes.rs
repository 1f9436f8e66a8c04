//! What is to be done about a unit whose copies a check found bad: which copy is made good from which others.
//!
//! Invariant: the primary's own copy comes first, since members' copies are made from it.

use super::Fix;
use crate::backend::findings::Inconsistent;
use crate::backend::replicated::Replicated;
use std::collections::VecDeque;
use types::{HObject, OsdId};

impl Replicated {
    /// All of the unit at once, where every object of it has a good copy and some copy is whole.
    pub(crate) fn fixes(&self, head: &HObject, wrong: &[Inconsistent]) -> VecDeque<Fix> {
        let me = self.group.me;
        let bad_on = |osd: OsdId| wrong.iter().any(|w| w.bad().any(|o| o == osd));
        let others = || self.group.in_sync.iter().copied().filter(|o| *o != me);
        let whole: Vec<OsdId> = others().filter(|o| !bad_on(*o)).collect();
        let all_good = wrong.iter().all(|w| w.good.is_some());
        if !all_good || bad_on(me) && whole.is_empty() {
            return self.fixes_one_by_one(wrong);
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
    fn fixes_one_by_one(&self, wrong: &[Inconsistent]) -> VecDeque<Fix> {
        let me = self.group.me;
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
}
