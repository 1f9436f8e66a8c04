//! `rbd task`: work on images that the cluster shall do by itself (`cluster::rbd_support`).
//!
//! What a task is about was looked up before the command is decided ([`wanted`], `Command::found`).

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::modules::{RBD_SUPPORT, image_or_its_name, refused, spaced};
use crate::commands::spec::{Spec, spec};
use cluster::rbd_support::{self as kept, About, Action, Subject, TASKS_MAX, Task, Wanted};
use cluster::{Change, Changes, ClusterState};
use serde_json::Value;
use types::{Errno, Uuid};

const R: (&str, &str) = ("mgr", "r");
const W: (&str, &str) = ("mgr", "w");

pub const TABLE: &[Spec] = &[
    spec(
        W,
        "rbd task add flatten image_spec:str",
        "copy all that a clone still has from its parent, in the background",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add remove image_spec:str",
        "remove an image in the background",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add trash remove image_id_spec:str",
        "remove an image from the trash in the background",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add migration execute image_spec:str",
        "copy an image that is being migrated to its target, in the background",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add migration commit image_spec:str",
        "end a migration that was executed: remove its source, in the background",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        W,
        "rbd task add migration abort image_spec:str",
        "undo a migration: remove its target, in the background",
        add,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd task list task_id?:str",
        "work in the background that is not done yet",
        list,
    )
    .by_manager(RBD_SUPPORT),
    spec(
        R,
        "rbd task cancel task_id:str",
        "stop work in the background, or do not begin it",
        cancel,
    )
    .by_manager(RBD_SUPPORT),
];

fn action_of(cmd: &Command) -> Option<Action> {
    match cmd.prefix.as_str() {
        "rbd task add flatten" => Some(Action::Flatten),
        "rbd task add remove" => Some(Action::Remove),
        "rbd task add trash remove" => Some(Action::TrashRemove),
        "rbd task add migration execute" => Some(Action::MigrationExecute),
        "rbd task add migration commit" => Some(Action::MigrationCommit),
        "rbd task add migration abort" => Some(Action::MigrationAbort),
        _ => None,
    }
}

fn spec_of(cmd: &Command) -> &str {
    cmd.opt_text("image_spec").unwrap_or(cmd.text("image_id_spec"))
}

/// What has to be looked up before the command can be decided; None also where it will be refused anyway.
pub fn wanted(cmd: &Command, state: &ClusterState) -> Option<Wanted> {
    let action = action_of(cmd).filter(|_| cmd.found.is_none())?;
    let (place, image) = image_or_its_name(spec_of(cmd))?;
    Some(Wanted {
        about: About::Task(action),
        pool: state.osdmap.pool_by_name(place.pool)?,
        namespace: place.namespace.into(),
        image: image.into(),
    })
}

fn add(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (Some(action), Some((place, _))) = (action_of(cmd), image_or_its_name(spec_of(cmd))) else {
        return Outcome::invalid(format!("Invalid image spec: {}", spec_of(cmd)));
    };
    let Some(pool) = ctx.map().pool_by_name(place.pool) else {
        let why = format!("error opening pool '{}'", place.pool);
        return refused(Errno::ENOENT, "RADOS object not found", &why);
    };
    let subject = match &cmd.found {
        Some(Ok(found)) => found.clone(),
        Some(Err((errno, why))) => return Outcome::error(*errno, why.clone()),
        None => return Outcome::not_built("work on images by this server"),
    };
    let all = kept::tasks(ctx.state);
    let same = |t: &&Task| t.action == action && is_about(t, pool, &subject);
    if let Some(task) = all.iter().find(same) {
        return spaced(&task.shown());
    }
    if all.len() >= TASKS_MAX {
        return Outcome::error(Errno::EBUSY, format!("{TASKS_MAX} tasks wait already"));
    }
    let task = Task {
        sequence: all.last().map_or(1, |t| t.sequence + 1),
        id: Uuid::from_random(ctx.random.bytes()).to_string(),
        action,
        pool,
        pool_name: place.pool.into(),
        namespace: place.namespace.into(),
        image_name: subject.name,
        image_id: subject.id,
        sides: subject.sides,
        failures: 0,
        why: None,
        retry_at: 0,
    };
    let set = Change::ConfigKeySet {
        key: task.key(),
        value: task.value(),
    };
    spaced(&task.shown()).with(Changes::one(set))
}

/// A migration is the same by either name.
fn is_about(task: &Task, pool: types::PoolId, subject: &Subject) -> bool {
    match &subject.sides {
        Some(sides) => task
            .sides
            .as_ref()
            .is_some_and(|s| s.target.id == sides.target.id),
        None => task.pool == pool && task.image_id == subject.id,
    }
}

/// As the real one shows it, with why it failed and waits, and how far it is.
fn shown(task: &Task, ctx: &Context<'_>) -> Value {
    let mut out = task.shown();
    if let Some(why) = &task.why {
        out["retry_message"] = why.clone().into();
        out["retry_attempts"] = task.failures.into();
    }
    let running = ctx.mon.images.running.as_ref().filter(|r| r.task.id == task.id);
    if let Some(running) = running {
        out["in_progress"] = true.into();
        out["progress"] = running.progress.into();
    }
    out
}

fn list(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match cmd.opt_text("task_id") {
        None => spaced(&kept::tasks(ctx.state).iter().map(|t| shown(t, ctx)).collect()),
        Some(id) => match kept::task(ctx.state, id) {
            Some(task) => spaced(&shown(&task, ctx)),
            None => Outcome::absent(format!("No such task {id}")),
        },
    }
}

fn cancel(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = cmd.text("task_id");
    let Some(task) = kept::task(ctx.state, id) else {
        return Outcome::absent(format!("No such task {id}"));
    };
    let mut out = shown(&task, ctx);
    out["canceled"] = true.into();
    spaced(&out).with(Changes::one(Change::ConfigKeyRm { key: task.key() }))
}
