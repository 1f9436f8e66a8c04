//! Placement groups out of turn: recovery and backfill before others', and peering anew.
//!
//! Copies are made by risk (`osd::recovery`); what is forced goes before all of that, until the group is whole
//! (`policies::upkeep`) or the wish is taken back. Answers are the real one's.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids;
use crate::commands::spec::{Spec, spec};
use crate::commands::views::pg_stats::Figures;
use cluster::{Changes, Forced, PgProposal};
use std::collections::{BTreeMap, BTreeSet};
use types::pgstats::pg_state;
use types::pool::PgPool;
use types::{Errno, OsdId, PgId, PoolId};

const PG: (&str, &str) = ("pg", "rw");
const POOL: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(PG, "pg force-recovery pgid*:pgid", "recover before others", pg).by_manager(""),
    spec(PG, "pg force-backfill pgid*:pgid", "backfill before others", pg).by_manager(""),
    spec(
        PG,
        "pg cancel-force-recovery pgid*:pgid",
        "recover in turn again",
        pg,
    )
    .by_manager(""),
    spec(
        PG,
        "pg cancel-force-backfill pgid*:pgid",
        "backfill in turn again",
        pg,
    )
    .by_manager(""),
    spec(
        POOL,
        "osd pool force-recovery who*:pool",
        "recover pools before others",
        pool,
    )
    .by_manager(""),
    spec(
        POOL,
        "osd pool force-backfill who*:pool",
        "backfill pools before others",
        pool,
    )
    .by_manager(""),
    spec(
        POOL,
        "osd pool cancel-force-recovery who*:pool",
        "recover pools in turn again",
        pool,
    )
    .by_manager(""),
    spec(
        POOL,
        "osd pool cancel-force-backfill who*:pool",
        "backfill pools in turn again",
        pool,
    )
    .by_manager(""),
    spec(
        POOL,
        "pg repeer pgid:pgid",
        "let a placement group peer anew",
        repeer,
    ),
];

/// A command, taken apart.
#[derive(Clone, Copy)]
struct Wish<'a> {
    cancel: bool,
    backfill: bool,
    /// `force-recovery`
    word: &'a str,
}

impl<'a> Wish<'a> {
    fn of(cmd: &'a Command) -> Self {
        Self {
            cancel: cmd.prefix.contains("cancel"),
            backfill: cmd.prefix.ends_with("backfill"),
            word: cmd.prefix.rsplit(' ').next().unwrap_or_default(),
        }
    }

    /// States in which there is something to force.
    fn states(self) -> u64 {
        use pg_state::{BACKFILL_WAIT, BACKFILLING, DEGRADED, RECOVERING, RECOVERY_WAIT};
        match self.backfill {
            true => DEGRADED | BACKFILL_WAIT | BACKFILLING,
            false => DEGRADED | RECOVERY_WAIT | RECOVERING,
        }
    }

    /// Why there is nothing to do for a group in this state; and the error, if it is one.
    fn idle(self, state: u64, forced: bool) -> Option<(&'static str, Option<Errno>)> {
        let needed = state & self.states() != 0;
        match (self.cancel, self.backfill) {
            (false, false) if !needed => Some(("doesn't require recovery", None)),
            (false, true) if !needed => Some(("doesn't require backfilling", None)),
            (false, false) if forced => Some(("recovery already forced", Some(Errno::EINVAL))),
            (false, true) if forced => Some(("backfill already forced", Some(Errno::EINVAL))),
            (true, false) if !forced => Some(("recovery not forced", None)),
            (true, true) if !forced => Some(("backfill not forced", None)),
            _ => None,
        }
    }
}

/// What becomes of the wish for each of these PGs; `said` and `wrong` of names before them.
fn answer(
    cmd: &Command,
    ctx: &Context<'_>,
    pgs: &[PgId],
    mut said: String,
    mut wrong: Option<Errno>,
) -> Outcome {
    let (wish, figures) = (Wish::of(cmd), Figures::of(ctx));
    let mut forced: BTreeMap<PoolId, Forced> = ctx.state.all_forced().collect();
    let mut told: BTreeMap<OsdId, Vec<String>> = BTreeMap::new();
    let mut touched: BTreeSet<PoolId> = BTreeSet::new();
    for pg in pgs {
        let set = forced.entry(pg.pool).or_default();
        let state = figures.pgs.get(pg).map_or(0, |s| s.state);
        let known = set.set_of(wish.backfill).contains(&pg.seed);
        if let Some((why, errno)) = wish.idle(state, known) {
            said.push_str(&format!("pg {pg} {why}; "));
            wrong = errno.or(wrong);
            continue;
        }
        match wish.cancel {
            true => set.set_of(wish.backfill).remove(&pg.seed),
            false => set.set_of(wish.backfill).insert(pg.seed),
        };
        touched.insert(pg.pool);
        let primary = ctx.map().pg_to_up_acting(*pg).acting_primary;
        told.entry(primary).or_default().push(pg.to_string());
    }
    for (osd, pgs) in &told {
        let pgs = pgs.join(",");
        said.push_str(&format!(
            "instructing pg(s) [{pgs}] on osd.{osd} to {}; ",
            wish.word
        ));
    }
    said.push('\n');
    match wrong {
        Some(errno) if touched.is_empty() => Outcome::error(errno, said),
        _ => Outcome::status(said).with(Changes {
            list: touched.iter().map(|pool| forced[pool].change(*pool)).collect(),
            ..Changes::none()
        }),
    }
}

fn pg(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (mut there, mut said, mut wrong) = (Vec::new(), String::new(), None);
    for text in cmd.list("pgid") {
        let exists = |pg: &PgId| ctx.map().pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
        match text.parse::<PgId>() {
            // The spelling is the real one's.
            Err(()) => {
                said.push_str(&format!("invlaid pgid '{text}'; "));
                wrong = Some(Errno::EINVAL);
            }
            Ok(pg) if !exists(&pg) => {
                said.push_str(&format!("pg {pg} does not exist; "));
                wrong = Some(Errno::ENOENT);
            }
            Ok(pg) => there.push(pg),
        }
    }
    answer(cmd, ctx, &there, said, wrong)
}

fn pool(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let mut pgs: Vec<PgId> = Vec::new();
    for name in cmd.list("who") {
        let Some(id) = ctx.map().pool_by_name(name) else {
            return ids::unknown_pool(name);
        };
        let pg_num = ctx.map().pool(id).map_or(0, |p| p.pg_num);
        pgs.extend((0..pg_num).map(|seed| PgId::new(id, seed)));
    }
    answer(cmd, ctx, &pgs, String::new(), None)
}

/// A new term of the same primary: it peers with all members anew, and no earlier proposal comes true any more.
fn repeer(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("pgid");
    let Ok(pg) = text.parse::<PgId>() else {
        return Outcome::invalid(format!("invalid pgid '{text}'"));
    };
    let Some(now) = ctx.state.pgs.get(pg) else {
        return Outcome::absent(format!("pg '{pg}' does not exist"));
    };
    let same = PgProposal {
        pg,
        expect: now.clone(),
        in_sync: now.in_sync.clone(),
        primary: now.primary,
        acting: ctx
            .map()
            .pool(pg.pool)
            .is_some_and(PgPool::is_erasure)
            .then(|| now.acting.clone()),
    };
    match ctx.state.pgs.refuses(ctx.map(), &same) {
        Some(why) => Outcome::error(Errno::EAGAIN, format!("pg {pg} cannot peer now: {why}")),
        None => Outcome::default().with(Changes {
            pgs: vec![same],
            ..Changes::none()
        }),
    }
}
