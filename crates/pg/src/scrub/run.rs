//! One scrub of the PG: stretches compared while writes go on, then what is suspect checked while its writes wait.
//!
//! A unit that a member could not read is checked *alone*: a run without stretches, of which nobody but the unit hears.
//!
//! Bounds: one stretch at a time, of [`STRETCH_OBJECTS`] objects and about [`STRETCH_BYTES`] of data; [`CHECKS_MAX`]
//! checks at a time; [`TRIES_MAX`] looks at one object; what waits is bounded by [`super::state`].

use super::compare::{Compare, Own};
use super::state::{ALONE_MAX, Check, FOUND_MAX, Run};
use crate::Pg;
use crate::api::{Context, Output, ScrubOrder, ScrubResult};
use crate::backend::digest::version_now;
use crate::backend::findings::Inconsistent;
use crate::broken::{self, Rule};
use crate::front::parked::{Job, JobId, Order, Task};
use crate::probe::{self, Scrubbed};
use crate::state::range::behind;
use crate::store::IoError;
use messages::osd::peer_scrub::ObjectDigest;
use types::{HObject, OsdId};

const STRETCH_OBJECTS: usize = 32;
const STRETCH_BYTES: u64 = 4 << 20;
const CHECKS_MAX: usize = 2;
/// The PG's own changes (of watches, of trimmed snapshots) do not wait for a check: what they pass is looked at again.
const TRIES_MAX: u32 = 8;
/// What a stretch counts for with the budget beside its data.
const OBJECT_COST: u64 = 4 << 10;

impl Pg {
    pub(crate) fn begin_scrub(&mut self, order: ScrubOrder, ctx: &mut Context<'_>) {
        self.begin_scrub_periods(ctx);
        let runs = self.scrub.run.as_ref().is_some_and(|r| !r.alone);
        if runs || !self.can_scrub() {
            return;
        }
        tracing::info!(
            "pg {}: {}{} begins",
            self.state.id,
            if order.deep { "deep-scrub" } else { "scrub" },
            if order.repair { " with repair" } else { "" }
        );
        probe::tell(self.state.id.pg, self.backend.group().me, Scrubbed::Began(order));
        let cursor = self.state.range.start_cursor(self.state.pool.id).with_snap(0);
        let mut run = Run::new(order, self.state.log.head(), Some(cursor));
        // What is checked alone goes on as a part of it.
        if let Some(alone) = self.scrub.run.take() {
            (run.suspects, run.checks) = (alone.suspects, alone.checks);
            (run.found, run.mended) = (alone.found, alone.mended);
            (run.shallow, run.deep, run.fixed) = (alone.shallow, alone.deep, alone.fixed);
        }
        self.scrub.run = Some(Box::new(run));
    }

    /// Has one unit looked at, beside whatever runs.
    pub(super) fn check_alone(&mut self, head: HObject, order: ScrubOrder, ctx: &mut Context<'_>) {
        let at = self.state.log.head();
        let run = self
            .scrub
            .run
            .get_or_insert_with(|| Box::new(Run::new(order, at, None)));
        let checked = run.checks.values().any(|c| c.head == head);
        if !checked && run.suspects.len() < ALONE_MAX {
            run.suspect(head, order);
            self.begin_checks(ctx);
        }
    }

    /// The PG is not whole any more, or ends: a later run begins from the start.
    pub(super) fn stop_scrub(&mut self, ctx: &mut Context<'_>) {
        let Some(run) = self.scrub.run.take() else { return };
        if !run.alone {
            tracing::info!("pg {}: the scrub is given up: it is not whole now", self.state.id);
            probe::tell(self.state.id.pg, self.backend.group().me, Scrubbed::GivenUp);
        }
        self.repair(ctx, |b, lent| b.drop_mending(None, lent));
        if let Some(c) = run.stretch {
            c.leave(ctx);
        }
        for (token, check) in run.checks {
            if let Some(c) = check.compare {
                c.leave(ctx);
            }
            match check.job {
                Some(job) => self.copy_job_ends(job, ctx),
                None => self.drop_check_job(token, ctx),
            }
        }
    }

    /// The shell lets one stretch be compared.
    pub(crate) fn scrub_granted(&mut self, ctx: &mut Context<'_>) {
        let Some(run) = self.scrub.run.as_ref().filter(|r| r.wants_grant()) else {
            return;
        };
        let Some(from) = run.cursor.clone() else { return };
        let deep = run.order.deep;
        let begun = self
            .stretch_end(&from, deep, ctx)
            .and_then(|(to, cost)| Ok((self.compare_all(from, to, deep, ctx)?, cost)));
        match begun {
            Ok((compare, cost)) => {
                self.tell_scrubbed(cost, ctx);
                if let Some(run) = &mut self.scrub.run {
                    run.stretch = Some(compare);
                }
            }
            Err(e) => {
                tracing::error!("pg {}: scrub: {e}", self.state.id);
                self.stop_scrub(ctx);
            }
        }
    }

    /// The last object of the stretch that begins at `from`, never in the middle of an object's clones, and what it costs.
    fn stretch_end(
        &self,
        from: &HObject,
        deep: bool,
        ctx: &mut Context<'_>,
    ) -> Result<(HObject, u64), IoError> {
        let copies = self.backend.group().in_sync.len().max(1) as u64;
        let found = self.state.list_objects(from, STRETCH_OBJECTS + 1, ctx.store)?;
        let (mut bytes, mut cost, mut last) = (0, 0, None);
        for oid in found.iter().take(STRETCH_OBJECTS) {
            if bytes >= STRETCH_BYTES {
                break;
            }
            let size = match deep {
                true => ctx.store.stat(oid).ok().flatten().map_or(0, |s| s.size),
                false => 0,
            };
            bytes += size;
            cost += (size + OBJECT_COST) * copies;
            if oid.object.is_head() {
                last = Some(oid.object.clone());
            }
        }
        let all = found.len() <= STRETCH_OBJECTS && bytes < STRETCH_BYTES;
        let to = match (all, last, found.first()) {
            (true, ..) | (_, _, None) => self.state.range.end_cursor(self.state.pool.id),
            (_, Some(last), _) => last,
            // One object has more clones than a stretch.
            (_, None, Some(first)) => first.object.head(),
        };
        Ok((to, cost.max(OBJECT_COST)))
    }

    /// Asks all members for the same objects, and begins to look at them here.
    fn compare_all(
        &mut self,
        from: HObject,
        to: HObject,
        deep: bool,
        ctx: &mut Context<'_>,
    ) -> Result<Compare, IoError> {
        let look = self.repair(ctx, |b, lent| b.digest(&from, &to, deep, lent))?;
        Ok(Compare {
            token: look.token,
            from,
            to,
            own: Own::Walking(Box::new(look.own)),
            theirs: look.asked.into_iter().map(|osd| (osd, None)).collect(),
        })
    }

    pub(super) fn digests(
        &mut self,
        from: OsdId,
        token: u64,
        items: Vec<ObjectDigest>,
        next: Option<HObject>,
    ) {
        let Some(run) = &mut self.scrub.run else { return };
        let compare = run.compares().find(|c| c.token == token);
        if let Some(slot) = compare.and_then(|c| c.theirs.get_mut(&from)) {
            *slot = Some((items, next));
        }
    }

    pub(super) fn go_on_scrubbing(&mut self, ctx: &mut Context<'_>) {
        if let Some(run) = &mut self.scrub.run {
            run.compares().for_each(|c| c.go_on(ctx));
        }
        self.end_stretch();
        let ready = |c: &Check| c.compare.as_ref().is_some_and(Compare::is_done);
        let tokens: Vec<u64> = match &self.scrub.run {
            Some(run) => run
                .checks
                .iter()
                .filter(|(_, c)| ready(c))
                .map(|(t, _)| *t)
                .collect(),
            None => return,
        };
        for token in tokens {
            self.conclude(token, ctx);
        }
        self.begin_checks(ctx);
        let over = |r: &Run| {
            r.cursor.is_none() && r.stretch.is_none() && r.suspects.is_empty() && r.checks.is_empty()
        };
        if self.scrub.run.as_deref().is_some_and(over) {
            self.end_scrub(ctx);
        }
    }

    /// All have said what they have in the stretch.
    fn end_stretch(&mut self) {
        let me = self.backend.group().me;
        let end = self.state.range.end_cursor(self.state.pool.id);
        let Some(run) = &mut self.scrub.run else { return };
        if !run.stretch.as_ref().is_some_and(Compare::is_done) {
            return;
        }
        let Some(compare) = run.stretch.take() else { return };
        let (sides, next) = compare.sides(me);
        let stop = next.map(|n| n.head().with_snap(0));
        run.objects += sides.first().map_or(0, |(_, items)| items.len() as u64);
        let order = run.order;
        let (wrong, changed) = compare.judge(me, &*self.backend);
        let within = |o: &HObject| stop.as_ref().is_none_or(|s| o < s);
        for object in wrong.iter().map(|w| &w.object).chain(&changed) {
            if within(object) {
                run.suspect(object.head(), order);
            }
        }
        run.cursor = match stop {
            None if compare.to == end => None,
            None => Some(behind(&compare.to)),
            Some(stop) if stop <= compare.from => {
                // One object has more clones than an answer takes: it is looked at by itself, as far as that goes.
                let head = compare.from.head();
                run.suspect(head.clone(), order);
                Some(behind(&head))
            }
            Some(stop) => Some(stop),
        };
    }

    fn begin_checks(&mut self, ctx: &mut Context<'_>) {
        while let Some(run) = &mut self.scrub.run
            && run.checks.len() < CHECKS_MAX
            && let Some((head, order)) = run.next_suspect()
        {
            let token = self.backend.number();
            run.checks.insert(
                token,
                Check {
                    head: head.clone(),
                    order,
                    job: None,
                    compare: None,
                    tries: 0,
                    before: None,
                    repairing: false,
                },
            );
            let order = match broken::is(Rule::CheckHolds) {
                true => Order::Free,
                false => Order::Shared,
            };
            let job = Job::new(Task::Check { token }, head, order, Vec::new());
            self.park(job, ctx);
            if let Some(run) = &mut self.scrub.run {
                run.compares().for_each(|c| c.go_on(ctx));
            }
        }
    }

    /// The check has its turn: nothing that clients send changes the object until it ends. False: nobody wants it.
    pub(crate) fn check_begins(&mut self, token: u64, job: JobId, ctx: &mut Context<'_>) -> bool {
        match self.scrub.run.as_mut().and_then(|r| r.checks.get_mut(&token)) {
            Some(check) => check.job = Some(job),
            None => return false,
        }
        self.look(token, ctx);
        true
    }

    /// Looks at the object on all copies.
    fn look(&mut self, token: u64, ctx: &mut Context<'_>) {
        let check = self.scrub.run.as_ref().and_then(|r| r.checks.get(&token));
        let Some((head, deep)) = check.map(|c| (c.head.clone(), c.order.deep)) else {
            return;
        };
        let compare = self.compare_all(head.with_snap(0), head, deep, ctx);
        let check = self.scrub.run.as_mut().and_then(|r| r.checks.get_mut(&token));
        match (compare, check) {
            (Ok(compare), Some(check)) => {
                check.tries += 1;
                check.compare = Some(compare);
            }
            (Ok(compare), None) => compare.leave(ctx),
            (Err(e), _) => {
                tracing::error!("pg {}: scrub: {e}", self.state.id);
                self.end_check(token, ctx);
            }
        }
    }

    /// All have said what they have of a checked object.
    fn conclude(&mut self, token: u64, ctx: &mut Context<'_>) {
        let me = self.backend.group().me;
        let shard = self.state.id.shard;
        let Some(check) = self.scrub.run.as_mut().and_then(|r| r.checks.get_mut(&token)) else {
            return;
        };
        let Some(compare) = check.compare.take() else {
            return;
        };
        let (wrong, changed) = compare.judge(me, &*self.backend);
        let moved = |d: &ObjectDigest| {
            let oid = types::ObjectId {
                shard,
                object: d.object.clone(),
            };
            version_now(&oid, ctx.store) != d.version
        };
        let passed = match &compare.own {
            Own::Done(items, _) => items.iter().any(moved),
            Own::Walking(_) => false,
        };
        let again = (passed || !changed.is_empty()) && !broken::is(Rule::CheckHolds);
        if again && check.tries < TRIES_MAX {
            return self.look(token, ctx);
        }
        self.decide(token, wrong, ctx);
    }

    fn decide(&mut self, token: u64, wrong: Vec<Inconsistent>, ctx: &mut Context<'_>) {
        if !wrong.is_empty() {
            probe::tell(
                self.state.id.pg,
                self.backend.group().me,
                Scrubbed::Judged(&wrong),
            );
        }
        let Some(run) = &mut self.scrub.run else { return };
        let Some(check) = run.checks.get_mut(&token) else {
            return;
        };
        let (head, repair) = (check.head.clone(), check.order.repair);
        let may_mend = |w: &Inconsistent| w.good.is_some() || !w.partly().is_empty();
        if let Some(before) = check.before.take() {
            let left: u32 = wrong.iter().map(|w| w.shallow + w.deep).sum();
            let had: u32 = before.iter().map(|w| w.shallow + w.deep).sum();
            run.fixed += had.saturating_sub(left);
            if left == 0 {
                run.mended.push(head);
            }
        } else if repair && wrong.iter().any(may_mend) {
            let mended = wrong.clone();
            if let Some(check) = self.scrub.run.as_mut().and_then(|r| r.checks.get_mut(&token)) {
                (check.before, check.repairing) = (Some(wrong), true);
            }
            return self.repair(ctx, |b, lent| b.mend(head, &mended, token, lent));
        }
        for w in wrong {
            tracing::error!(
                "pg {}: {}: {} of {} copies are bad{}",
                self.state.id,
                w.object,
                w.bad().count(),
                w.sides.len(),
                if w.good.is_some() {
                    ""
                } else {
                    ", and none is good"
                }
            );
            if let Some(run) = &mut self.scrub.run {
                run.note(w);
            }
        }
        self.end_check(token, ctx);
    }

    /// The repair has ended, well or not: what it came to is looked at.
    pub(crate) fn check_repaired(&mut self, token: u64, ctx: &mut Context<'_>) {
        if let Some(check) = self.scrub.run.as_mut().and_then(|r| r.checks.get_mut(&token)) {
            (check.repairing, check.tries) = (false, 0);
            self.look(token, ctx);
        }
    }

    fn end_check(&mut self, token: u64, ctx: &mut Context<'_>) {
        let check = self.scrub.run.as_mut().and_then(|r| r.checks.remove(&token));
        if let Some(check) = check {
            if let Some(c) = check.compare {
                c.leave(ctx);
            }
            if let Some(job) = check.job {
                self.copy_job_ends(job, ctx);
            }
        }
    }

    /// The object is another PG's now.
    pub(crate) fn check_dropped(&mut self, token: u64, ctx: &mut Context<'_>) {
        let check = self.scrub.run.as_mut().and_then(|r| r.checks.remove(&token));
        if let Some(c) = check.and_then(|c| c.compare) {
            c.leave(ctx);
        }
        self.repair(ctx, |b, lent| b.drop_mending(Some(token), lent));
    }

    fn end_scrub(&mut self, ctx: &mut Context<'_>) {
        let Some(run) = self.scrub.run.take() else { return };
        if run.alone {
            return self.end_alone(*run, ctx);
        }
        let found = self.scrub.found.get_or_insert_default();
        // A light look does not see what a deep one has found.
        let kept = |w: &Inconsistent| !run.order.deep && w.deep > 0;
        found.retain(|o, w| kept(w) && !run.found.contains_key(o));
        let s = &mut self.state.meta.scrub;
        (s.version, s.at) = (run.began_at, ctx.wall);
        s.shallow_errors = run.shallow;
        if run.order.deep {
            (s.deep_version, s.deep_at, s.deep_errors) = (run.began_at, ctx.wall, run.deep);
        }
        found.extend(run.found);
        if s.errors() == 0 {
            s.clean_at = ctx.wall;
            found.clear();
        }
        let errors = run.shallow + run.deep + run.fixed;
        tracing::info!(
            "pg {}: {} of {} objects ended: {errors} bad copies, {} repaired",
            self.state.id,
            if run.order.deep { "deep-scrub" } else { "scrub" },
            run.objects,
            run.fixed
        );
        self.scrub.ended += 1;
        self.write_stamps(ctx);
        let result = ScrubResult {
            order: run.order,
            objects: run.objects,
            errors,
            fixed: run.fixed,
        };
        probe::tell(self.state.id.pg, self.backend.group().me, Scrubbed::Ended(result));
        ctx.out.push(Output::ScrubEnded(result));
    }

    /// All units that were checked alone are done with: what is known of them is what was found now.
    fn end_alone(&mut self, run: Run, ctx: &mut Context<'_>) {
        if self.scrub.found.is_none() && run.found.is_empty() {
            return;
        }
        let found = self.scrub.found.get_or_insert_default();
        let s = &mut self.state.meta.scrub;
        let before = *s;
        let of = |heads: &[HObject], w: &Inconsistent| heads.contains(&w.object.head());
        let again: Vec<HObject> = run.found.keys().map(HObject::head).collect();
        found.retain(|_, w| {
            let gone = of(&run.mended, w) || of(&again, w);
            if gone {
                s.shallow_errors = s.shallow_errors.saturating_sub(w.shallow);
                s.deep_errors = s.deep_errors.saturating_sub(w.deep);
            }
            !gone
        });
        for (object, w) in run.found {
            if found.len() < FOUND_MAX {
                s.shallow_errors = s.shallow_errors.saturating_add(w.shallow);
                s.deep_errors = s.deep_errors.saturating_add(w.deep);
                found.insert(object, w);
            }
        }
        if *s != before {
            self.write_stamps(ctx);
        }
    }
}
