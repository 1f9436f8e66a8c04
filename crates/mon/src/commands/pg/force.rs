//! Placement groups out of turn: recovery and backfill before others', and peering anew.
//!
//! Copies are made by risk here, the fewest first (`osd::recovery`): nothing is done out of turn. What needs no copying
//! is told as by the real one, and so is that nothing was forced before; the rest refuses.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids;
use crate::commands::spec::{Spec, absent, spec};
use crate::commands::views::pg_stats::Figures;
use types::pgstats::pg_state;
use types::{Errno, PgId};

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
    absent(
        ("pg", "r"),
        "pg getmap",
        "not here: there is no such map; 'ceph pg dump' has the figures",
    )
    .by_manager(""),
];

const COPYING: u64 = pg_state::RECOVERING
    | pg_state::RECOVERY_WAIT
    | pg_state::BACKFILLING
    | pg_state::BACKFILL_WAIT
    | pg_state::DEGRADED;

/// What is said of PGs that exist. Err: some need what is asked for, and it cannot be had.
fn answer(cmd: &Command, ctx: &Context<'_>, pgs: &[PgId]) -> Result<String, Outcome> {
    let figures = Figures::of(ctx);
    let (cancel, backfill) = (cmd.prefix.contains("cancel"), cmd.prefix.ends_with("backfill"));
    let state = |pg: &PgId| figures.pgs.get(pg).map_or(0, |s| s.state);
    let needs = pgs.iter().find(|pg| !cancel && state(pg) & COPYING != 0);
    if let Some(pg) = needs {
        let why = format!(
            "'{}' is not here: the copies at most risk are made first. pg {pg} is in turn; 'ceph config set osd \
             osd_recovery_profile urgent' makes all go faster",
            cmd.prefix
        );
        return Err(Outcome::error(Errno::EOPNOTSUPP, why));
    }
    let said = |pg: &PgId| match (cancel, backfill) {
        (false, false) => format!("pg {pg} doesn't require recovery; "),
        (false, true) => format!("pg {pg} doesn't require backfilling; "),
        (true, false) => format!("pg {pg} recovery not forced; "),
        (true, true) => format!("pg {pg} backfill not forced; "),
    };
    Ok(pgs.iter().map(said).collect())
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
    match answer(cmd, ctx, &there) {
        Err(refusal) => refusal,
        Ok(of_them) => {
            let said = format!("{said}{of_them}\n");
            match wrong {
                Some(errno) if there.is_empty() => Outcome::error(errno, said),
                _ => Outcome::status(said),
            }
        }
    }
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
    match answer(cmd, ctx, &pgs) {
        Ok(said) => Outcome::status(format!("{said}\n")),
        Err(refusal) => refusal,
    }
}

/// A configuration that is settled stays settled: there is no history to find again.
fn repeer(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let text = cmd.text("pgid");
    let Ok(pg) = text.parse::<PgId>() else {
        return Outcome::invalid(format!("invalid pgid '{text}'"));
    };
    if ctx.map().pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num) {
        return Outcome::absent(format!("pg '{pg}' does not exist"));
    }
    let state = Figures::of(ctx).pgs.get(&pg).map_or(0, |s| s.state);
    match state & pg_state::ACTIVE != 0 {
        true => Outcome::status(format!("pg {pg} is active: its configuration is settled")),
        false => Outcome::error(
            Errno::EOPNOTSUPP,
            format!(
                "pg {pg} is {}: every change of the map settles it, and peering anew would not; 'ceph doctor' tells what \
                 it waits for",
                pg_state::names(state)
            ),
        ),
    }
}
