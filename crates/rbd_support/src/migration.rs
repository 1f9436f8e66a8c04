//! Tasks of migrations: which one somebody names, and carrying it out.

use client::{Client, IoCtx};
use cluster::rbd_support::{Action, Found, Place, Sides, Subject};
use rbd::image::migration::{self as live, Standing};
use types::Errno;

/// Words as the real one's; `shown`: as it was named.
pub async fn find(io: &IoCtx, name: &str, action: Action, shown: &str) -> Found {
    let refused = |why: &str| {
        let why = format!("[errno 22] RBD invalid argument (Image {shown} {why})");
        Err((Errno::EINVAL, why))
    };
    let standing = match live::find(io, name).await {
        Ok(Some(standing)) => standing,
        Ok(None) => return refused("is not migrating"),
        Err(e) => return Err((e.errno(), e.to_string())),
    };
    if let Err(why) = allowed(action, standing.state, standing.has_target) {
        return refused(why);
    }
    Ok(Subject {
        name: name.into(),
        id: standing.migration.target.id.clone(),
        sides: Some(Box::new(sides(io.client(), standing))),
    })
}

/// Whether this can be done with a migration in this state. `has_target`: the target takes part in it still.
fn allowed(action: Action, state: u8, has_target: bool) -> Result<(), &'static str> {
    match (action, state, has_target) {
        (Action::MigrationExecute, live::PREPARED | live::EXECUTING, true) => Ok(()),
        (Action::MigrationExecute, _, true) => Err("is not in ready state"),
        (Action::MigrationCommit, live::EXECUTED, _) => Ok(()),
        (Action::MigrationCommit, _, true) => Err("has not completed migration"),
        (Action::MigrationAbort, _, true) | (Action::MigrationAbort, live::ABORTING, _) => Ok(()),
        _ => Err("is not migrating"),
    }
}

fn sides(client: &Client, standing: Standing) -> Sides {
    let map = client.map().ok();
    let place = |p: live::Place| Place {
        pool_name: map
            .as_ref()
            .and_then(|m| m.pool_name(p.pool).map(str::to_string))
            .unwrap_or_default(),
        pool: p.pool,
        namespace: p.namespace,
        name: p.name,
        id: p.id,
    };
    Sides {
        source: place(standing.migration.source),
        target: place(standing.migration.target),
    }
}

pub async fn perform(
    client: &Client,
    action: Action,
    sides: &Sides,
    unfinished: &live::Unfinished,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> rbd::Result<()> {
    let place = |p: &Place| live::Place {
        pool: p.pool,
        namespace: p.namespace.clone(),
        name: p.name.clone(),
        id: p.id.clone(),
    };
    let migration = live::Migration {
        source: place(&sides.source),
        target: place(&sides.target),
    };
    match action {
        Action::MigrationExecute => live::execute(client, &migration, unfinished, progress).await,
        Action::MigrationCommit => live::commit(client, &migration, progress).await,
        _ => live::abort(client, &migration, progress).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_allows_what_ceph_allows_and_what_was_cut_short_goes_on() {
        use Action::{MigrationAbort as Abort, MigrationCommit as Commit, MigrationExecute as Execute};
        for (action, state, has_target, good) in [
            (Execute, live::PREPARED, true, true),
            (Execute, live::EXECUTING, true, true),
            (Execute, live::EXECUTED, true, false),
            (Execute, live::ABORTING, true, false),
            (Execute, live::EXECUTING, false, false),
            (Commit, live::EXECUTING, true, false),
            (Commit, live::EXECUTED, true, true),
            (Commit, live::EXECUTED, false, true),
            (Commit, live::ABORTING, false, false),
            (Abort, live::PREPARED, true, true),
            (Abort, live::EXECUTED, true, true),
            (Abort, live::ABORTING, true, true),
            (Abort, live::ABORTING, false, true),
            // Its source is on the way out.
            (Abort, live::EXECUTED, false, false),
        ] {
            let told = allowed(action, state, has_target);
            assert_eq!(told.is_ok(), good, "{action:?} {state} {has_target} {told:?}");
        }
    }
}
