//! Device classes.

use crate::commands::command::{Command, Outcome, lines};
use crate::commands::context::Context;
use crate::commands::crush::change;
use crate::commands::crush::change::edit;
use crate::commands::language::ids::parse_osd_id;
use crate::commands::spec::{Spec, spec};
use cluster::Changes;
use crush::EditError;
use serde_json::{Value, json};
use types::{Errno, OsdId};

const R: (&str, &str) = ("osd", "r");
const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "osd crush class ls", "device classes", ls),
    spec(
        R,
        "osd crush class ls-osd class:str([A-Za-z0-9-_])",
        "OSDs of a device class",
        ls_osd,
    ),
    spec(
        R,
        "osd crush get-device-class ids*:str",
        "device classes of OSDs",
        get,
    ),
    spec(
        RW,
        "osd crush set-device-class class:str ids*:str",
        "give OSDs without a class one",
        set,
    ),
    spec(
        RW,
        "osd crush rm-device-class ids*:str",
        "take the device class from OSDs",
        rm,
    ),
    spec(
        RW,
        "osd crush class create class:str([A-Za-z0-9-_])",
        "make a device class that no device has yet",
        create,
    ),
    spec(
        RW,
        "osd crush class rm class:str([A-Za-z0-9-_])",
        "take a device class from its devices, and away",
        remove,
    ),
    spec(
        RW,
        "osd crush class rename srcname:str([A-Za-z0-9-_]) dstname:str([A-Za-z0-9-_])",
        "rename a device class; rules that take it go on",
        rename,
    ),
];

fn ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let names: Vec<&String> = ctx.map().crush.class_names.values().collect();
    cmd.json(&json!(names))
}

fn ls_osd(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let c = &ctx.map().crush;
    let class = c.class_id(cmd.text("class"));
    let of = |id: &OsdId| class.is_some() && c.class_of.get(id) == class.as_ref();
    let ids: Vec<OsdId> = ctx.map().osd_ids().filter(of).collect();
    cmd.either(|| json!(ids), || lines(&ids))
}

/// The OSDs that `ids` name, whether they exist or not.
fn named(cmd: &Command, ctx: &Context<'_>) -> Result<Vec<OsdId>, Outcome> {
    let mut out = Vec::new();
    for text in cmd.list("ids") {
        if matches!(text, "all" | "any" | "*") {
            out.extend(ctx.map().osd_ids());
        } else {
            let wrong = |why| Outcome::invalid(format!("{why}, unable to parse osd id:\"{text}\". "));
            out.push(parse_osd_id(text).map_err(wrong)?);
        }
    }
    Ok(out)
}

fn get(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let ids = match named(cmd, ctx) {
        Ok(ids) => ids,
        Err(refusal) => return refusal,
    };
    let class = |id: &OsdId| ctx.map().crush.class_name_of(*id).unwrap_or("");
    let one = |id: &OsdId| json!({"osd": id, "device_class": class(id)});
    let plain = || match ids.as_slice() {
        [one] => format!("{}\n", class(one)),
        many => lines(many.iter().map(|id| format!("osd.{id} {}", class(id)))),
    };
    cmd.either(|| ids.iter().map(one).collect::<Vec<Value>>().into(), plain)
}

fn create(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let class = cmd.text("class");
    if ctx.map().crush.class_id(class).is_some() {
        return Outcome::status(format!("class '{class}' already exists"));
    }
    let mut inc = ctx.inc();
    match inc.crush_mut(ctx.map()).create_class(class) {
        Ok(id) => Outcome::status(format!("created class {class} with id {id} to crush map"))
            .with(Changes::map(inc)),
        Err(e) => change::refused(&e),
    }
}

fn remove(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let class = cmd.text("class");
    if ctx.map().crush.class_id(class).is_none() {
        return Outcome::default();
    }
    let mut inc = ctx.inc();
    match inc.crush_mut(ctx.map()).remove_class(class) {
        Ok(id) => Outcome::status(format!("removed class {class} with id {id} from crush map"))
            .with(Changes::map(inc)),
        Err(EditError::InUse(rule)) => {
            let why = format!("class '{class}' still referenced by crush_rule(s): '{rule}'");
            Outcome::error(Errno::EBUSY, why)
        }
        Err(e) => change::refused(&e),
    }
}

fn rename(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (from, to) = (cmd.text("srcname"), cmd.text("dstname"));
    let c = &ctx.map().crush;
    match (c.class_id(from), c.class_id(to)) {
        // As after a first try whose answer was lost.
        (None, Some(_)) => Outcome::status(format!("already renamed to '{to}'")),
        (None, None) => Outcome::absent(format!(
            "fail to rename '{from}' to '{to}' : (2) No such file or directory"
        )),
        (Some(_), Some(_)) => Outcome::error(
            Errno::EEXIST,
            format!("fail to rename '{from}' to '{to}' : (17) File exists"),
        ),
        (Some(_), None) => edit(ctx, format!("rename class '{from}' to '{to}'"), |c| {
            c.rename_class(from, to)
        }),
    }
}

fn text_of(ids: &[OsdId]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let class = cmd.text("class");
    let ids = match named(cmd, ctx) {
        Ok(ids) => ids,
        Err(refusal) => return refusal,
    };
    let (mut todo, mut said) = (Vec::new(), String::new());
    for id in ids {
        if !ctx.map().exists(id) {
            said.push_str(&format!("osd.{id} does not exist. "));
            continue;
        }
        match ctx.map().crush.class_name_of(id) {
            Some(now) if now == class => said.push_str(&format!(
                "osd.{id} already set to class {class}. set-device-class item id {id} name 'osd.{id}' \
                 device_class '{class}': no change. "
            )),
            Some(now) => {
                let why = format!(
                    "osd.{id} has already bound to class '{now}', can not reset class to '{class}'; use 'ceph osd crush rm-device-class <id>' to remove old class first"
                );
                return Outcome::error(Errno::EBUSY, why);
            }
            None => todo.push(id),
        }
    }
    said.push_str(&format!("set osd(s) {} to class '{class}'", text_of(&todo)));
    if todo.is_empty() {
        return Outcome::status(said);
    }
    edit(ctx, said, |c| {
        todo.iter().try_for_each(|id| c.set_device_class(*id, class))
    })
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let ids = match named(cmd, ctx) {
        Ok(ids) => ids,
        Err(refusal) => return refusal,
    };
    let mut said = String::new();
    let mut done = Vec::new();
    let mut inc = ctx.inc();
    for id in ids {
        if !ctx.map().exists(id) {
            said.push_str(&format!("osd.{id} does not exist. "));
        } else if ctx.map().crush.class_name_of(id).is_none() {
            said.push_str(&format!("osd.{id} belongs to no class, "));
        } else if let Err(e) = inc.crush_mut(ctx.map()).remove_device_class(id) {
            return change::refused(&e);
        } else {
            done.push(id);
        }
    }
    said.push_str(&format!("done removing class of osd(s): {}", text_of(&done)));
    let changes = if done.is_empty() {
        Changes::none()
    } else {
        Changes::map(inc)
    };
    Outcome::status(said).with(changes)
}
