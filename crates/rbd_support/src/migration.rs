//! Migrations that clients prepared: executed, committed and aborted as tasks.

use client::{Client, IoCtx};
use cluster::rbd_support::{Action, Ends, Found, FoundImage, Place, Task};
use rbd::migration::{self, EXECUTED, EXECUTING, End, PREPARED};
use rbd::{Error, image};
use types::Errno;

/// One that is named by the image at either end; `place` is its pool and namespace. Words as the real one's.
pub async fn find(io: &IoCtx, action: Action, name: String, place: &str) -> Found {
    let refused = |why: &str| {
        let text = format!("[errno 22] RBD invalid argument (Image {place}/{name} {why})");
        Err((Errno::EINVAL, text))
    };
    let (found, state) = match migration::find(io, &name).await {
        Ok(found) => found,
        Err(e) if e.is_not_found() || e.errno() == Errno::EINVAL => return refused("is not migrating"),
        Err(e) => return Err((e.errno(), e.to_string())),
    };
    match action {
        Action::MigrateExecute if ![PREPARED, EXECUTING].contains(&state) => {
            return refused("is not in ready state");
        }
        Action::MigrateCommit if state != EXECUTED => return refused("has not completed migration"),
        _ => {}
    }
    let id = found.target.id.clone();
    let ends = Ends {
        source: place_of(&found.source),
        target: place_of(&found.target),
    };
    Ok(FoundImage {
        name,
        id,
        migration: Some(Box::new(ends)),
    })
}

fn place_of(end: &End) -> Place {
    let pool = end.io.pool_id();
    let map = end.io.client().map().ok();
    let pool_name = map.and_then(|m| m.pool_name(pool).map(str::to_string));
    Place {
        pool,
        pool_name: pool_name.unwrap_or_default(),
        namespace: String::from_utf8_lossy(end.io.namespace()).into_owned(),
        name: end.name.clone(),
        id: end.id.clone(),
    }
}

fn end_at(client: &Client, place: &Place) -> End {
    let mut io = client.pool_by_id(place.pool);
    io.set_namespace(place.namespace.clone().into_bytes());
    End {
        io,
        name: place.name.clone(),
        id: place.id.clone(),
    }
}

pub async fn perform(
    client: &Client,
    task: &Task,
    tell: &(impl Fn(u64, u64) + Send + Sync),
) -> rbd::Result<()> {
    let Some(ends) = &task.migration else {
        return Err(Error::refused(
            Errno::EINVAL,
            "a task that does not say what migrates",
        ));
    };
    let ends = migration::Ends {
        source: end_at(client, &ends.source),
        target: end_at(client, &ends.target),
    };
    match task.action {
        Action::MigrateExecute => image::execute(&ends, tell).await,
        Action::MigrateCommit => image::commit(&ends, tell).await,
        _ => image::abort(&ends, tell).await,
    }
}
