//! Commands that change the CRUSH map: weights, buckets, places, rules, tunables.
//!
//! The new map goes into the increment whole. What the editing functions refuse is refused with their words,
//! except where the real one has words that programs know.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use crate::format::json::significant;
use cluster::Changes;
use crush::{CrushMap, EditError, RuleKind, Tunables};
use denc::Decode;
use std::sync::Arc;
use types::{Errno, OsdId};

const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd crush reweight name:str([A-Za-z0-9-_.]) weight:float(0.0..)",
        "set the CRUSH weight of a device",
        reweight,
    ),
    spec(
        RW,
        "osd crush reweight-subtree name:str([A-Za-z0-9-_.]) weight:float(0.0..)",
        "set the CRUSH weight of all devices below a bucket",
        reweight_subtree,
    ),
    spec(
        RW,
        "osd crush add-bucket name:str([A-Za-z0-9-_.]) type:str args?*:str([A-Za-z0-9-_.=])",
        "make a bucket, and place it if a place is given",
        add_bucket,
    ),
    spec(
        RW,
        "osd crush rename-bucket srcname:str([A-Za-z0-9-_.]) dstname:str([A-Za-z0-9-_.])",
        "rename a bucket",
        rename_bucket,
    ),
    spec(
        RW,
        "osd crush set id:osd weight:float(0.0..) args*:str([A-Za-z0-9-_.=])",
        "place a device with a weight",
        set,
    ),
    spec(
        RW,
        "osd crush add id:osd weight:float(0.0..) args*:str([A-Za-z0-9-_.=])",
        "place a device with a weight",
        set,
    ),
    spec(
        RW,
        "osd crush set prior_version?:int",
        "replace the CRUSH map by the one in the input",
        set_map,
    ),
    spec(
        RW,
        "osd crush create-or-move id:osd weight:float(0.0..) args*:str([A-Za-z0-9-_.=])",
        "place a device; the weight counts only for a new one",
        create_or_move,
    ),
    spec(
        RW,
        "osd crush move name:str([A-Za-z0-9-_.]) args*:str([A-Za-z0-9-_.=])",
        "move a bucket or device with all below it",
        move_item,
    ),
    spec(
        RW,
        "osd crush rm name:str([A-Za-z0-9-_.]) ancestor?:str([A-Za-z0-9-_.])",
        "remove a device or an empty bucket",
        rm,
    ),
    spec(
        RW,
        "osd crush remove name:str([A-Za-z0-9-_.]) ancestor?:str([A-Za-z0-9-_.])",
        "remove a device or an empty bucket",
        rm,
    )
    .flagged(DEPRECATED),
    spec(
        RW,
        "osd crush tunables profile:choice(legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default)",
        "set all tunables to a named profile",
        tunables,
    ),
    spec(
        RW,
        "osd crush set-tunable tunable:choice(straw_calc_version) value:int",
        "set one tunable",
        set_tunable,
    ),
    spec(
        RW,
        "osd crush rule create-replicated name:str([A-Za-z0-9-_.]) root:str([A-Za-z0-9-_.]) type:str([A-Za-z0-9-_.]) class?:str([A-Za-z0-9-_.])",
        "make a rule for replicated pools",
        create_replicated,
    ),
    spec(
        RW,
        "osd crush rule create-simple name:str([A-Za-z0-9-_.]) root:str([A-Za-z0-9-_.]) type:str([A-Za-z0-9-_.]) mode?:choice(firstn|indep)",
        "make a rule",
        create_simple,
    ),
    spec(
        RW,
        "osd crush rule rm name:str([A-Za-z0-9-_.])",
        "remove a rule that no pool uses",
        rule_rm,
    ),
    spec(
        RW,
        "osd crush rule rename srcname:str([A-Za-z0-9-_.]) dstname:str([A-Za-z0-9-_.])",
        "rename a rule",
        rule_rename,
    ),
    spec(
        RW,
        "osd crush swap-bucket source:str dest:str yes_i_really_mean_it?:bool",
        "let two buckets change places, with all below them",
        swap,
    ),
    spec(
        RW,
        "osd crush set-all-straw-buckets-to-straw2",
        "make buckets of the old kind straw2",
        straw2,
    ),
    spec(
        RW,
        "osd crush link name:str args*:str([A-Za-z0-9-_.=])",
        "let a bucket lie in one more place",
        link,
    ),
    spec(
        RW,
        "osd crush unlink name:str([A-Za-z0-9-_.]) ancestor?:str([A-Za-z0-9-_.])",
        "take a bucket or device out of a place, or out of all, and keep it",
        unlink,
    ),
    spec(
        RW,
        "osd crush reweight-all",
        "make every bucket's weight the sum of what is in it",
        reweight_all,
    ),
];

/// The most that a 16.16 weight can hold.
const WEIGHT_MAX: f64 = 65_535.0;

/// An edit's refusal as an answer.
pub fn refused(e: &EditError) -> Outcome {
    let errno = match e {
        EditError::NoSuchItem(_) | EditError::NoSuchRule(_) => Errno::ENOENT,
        EditError::NameTaken(_) => Errno::EEXIST,
        EditError::NotEmpty(_) => Errno::ENOTEMPTY,
        EditError::InUse(_) => Errno::EBUSY,
        EditError::Full => Errno::ENOSPC,
        _ => Errno::EINVAL,
    };
    Outcome::error(errno, e.to_string())
}

/// Edits the map; `said` when it succeeds.
pub fn edit(
    ctx: &Context<'_>,
    said: String,
    f: impl FnOnce(&mut CrushMap) -> Result<(), EditError>,
) -> Outcome {
    let mut inc = ctx.inc();
    match f(inc.crush_mut(ctx.map())) {
        Ok(()) => Outcome::status(said).with(Changes::map(inc)),
        Err(e) => refused(&e),
    }
}

fn weight(cmd: &Command) -> Result<(String, u32), Outcome> {
    let w = cmd
        .real("weight")
        .ok_or_else(|| Outcome::invalid("bad or missing field 'weight'"))?;
    if !(0.0..=WEIGHT_MAX).contains(&w) {
        let why = format!("weight {w} is out of range");
        return Err(Outcome::error(Errno::EOVERFLOW, why));
    }
    Ok((significant(w, 6), crush::weight_from_f64(w)))
}

/// `host=a root=default` as pairs, sorted, and as text.
type Place<'a> = (Vec<(&'a str, &'a str)>, String);

fn location(cmd: &Command) -> Result<Place<'_>, Outcome> {
    let mut out = Vec::new();
    for arg in cmd.list("args") {
        match arg.split_once('=') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() => out.push((kind, name)),
            _ => {
                return Err(Outcome::invalid(format!(
                    "invalid argument '{arg}': expected TYPE=NAME"
                )));
            }
        }
    }
    out.sort_unstable();
    let text: Vec<String> = out.iter().map(|(k, n)| format!("{k}={n}")).collect();
    Ok((out, format!("{{{}}}", text.join(","))))
}

/// True when `id` lies in all of these buckets already, the nearest of them its parent.
fn is_at(c: &CrushMap, id: i32, location: &[(&str, &str)]) -> bool {
    let now = c.location_of(id);
    let inside = |(k, n): &(&str, &str)| now.iter().any(|(t, b)| t == k && b == n);
    let parent = now
        .last()
        .is_some_and(|(t, b)| location.iter().any(|(k, n)| k == t && n == b));
    !location.is_empty() && parent && location.iter().all(inside)
}

fn reweight(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let (text, w) = match weight(cmd) {
        Ok(w) => w,
        Err(refusal) => return refusal,
    };
    match ctx.map().crush.item_id(name) {
        None => Outcome::absent(format!("device '{name}' does not appear in the crush map")),
        Some(id) if id < 0 => Outcome::invalid(format!("device '{name}' is not a leaf in the crush map")),
        Some(id) => edit(
            ctx,
            format!("reweighted item id {id} name '{name}' to {text} in crush map"),
            |c| c.reweight_item(name, w),
        ),
    }
}

fn reweight_subtree(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let (text, w) = match weight(cmd) {
        Ok(w) => w,
        Err(refusal) => return refusal,
    };
    let c = &ctx.map().crush;
    match c.item_id(name) {
        None => Outcome::absent(format!("device '{name}' does not appear in the crush map")),
        Some(id) if id >= 0 => Outcome::invalid(format!("device '{name}' is not a subtree in the crush map")),
        Some(id) => {
            let devices = c.devices_under(id);
            edit(
                ctx,
                format!("reweighted subtree id {id} name '{name}' to {text} in crush map"),
                |c| {
                    for d in devices {
                        let device = c.item_name(d).unwrap_or_default().to_string();
                        c.reweight_item(&device, w)?;
                    }
                    Ok(())
                },
            )
        }
    }
}

fn add_bucket(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, kind) = (cmd.text("name"), cmd.text("type"));
    let (place, text) = match location(cmd) {
        Ok(l) => l,
        Err(refusal) => return refusal,
    };
    let c = &ctx.map().crush;
    if c.item_id(name).is_some() {
        return Outcome::status(format!("bucket '{name}' already exists"));
    }
    match c.type_id(kind) {
        None => return Outcome::invalid(format!("type '{kind}' does not exist")),
        Some(0) => return Outcome::invalid(format!("type '{kind}' is for devices, not buckets")),
        Some(_) => {}
    }
    let said = if place.is_empty() {
        format!("added bucket {name} type {kind} to crush map")
    } else {
        format!("added bucket {name} type {kind} to location {text}")
    };
    edit(ctx, said, |c| {
        c.add_bucket(name, kind)?;
        if place.is_empty() {
            Ok(())
        } else {
            c.move_item(name, &place)
        }
    })
}

fn rename_bucket(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (from, to) = (cmd.text("srcname"), cmd.text("dstname"));
    let c = &ctx.map().crush;
    match (c.item_id(from), c.item_id(to)) {
        (None, Some(_)) => Outcome::status(format!(
            "srcname = '{from}' does not exist and dstname = '{to}' already exists"
        )),
        (None, None) => Outcome::absent(format!("srcname = '{from}' does not exist")),
        (Some(_), Some(_)) => Outcome::error(Errno::EEXIST, format!("dstname = '{to}' already exists")),
        (Some(id), None) if id >= 0 => Outcome::error(
            Errno::ENOTDIR,
            format!("srcname = '{from}' is not a bucket because its id = {id} is >= 0"),
        ),
        (Some(_), None) => edit(ctx, format!("renamed bucket {from} into {to}"), |c| {
            c.rename_item(from, to)
        }),
    }
}

/// What placing a device takes: id, weight as text and number, place and its text.
type Placing<'a> = (OsdId, (String, u32), Vec<(&'a str, &'a str)>, String);

fn placing<'a>(cmd: &'a Command, ctx: &Context<'_>) -> Result<Placing<'a>, Outcome> {
    let id = cmd
        .int("id")
        .ok_or_else(|| Outcome::invalid("bad or missing field 'id'"))?;
    let osd = OsdId::try_from(id).ok().filter(|o| ctx.map().exists(*o));
    let missing = || {
        Outcome::absent(format!(
            "osd.{id} does not exist. Create it before updating the crush map"
        ))
    };
    let osd = osd.ok_or_else(missing)?;
    let w = weight(cmd)?;
    let (place, text) = location(cmd)?;
    Ok((osd, w, place, text))
}

fn set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    // Two commands share this prefix: without an id it replaces the map.
    if cmd.prefix == "osd crush set" && !cmd.args.contains_key("id") {
        return set_map(cmd, ctx);
    }
    let (id, (shown, w), place, text) = match placing(cmd, ctx) {
        Ok(p) => p,
        Err(refusal) => return refusal,
    };
    let c = &ctx.map().crush;
    let head = format!("set item id {id} name 'osd.{id}' weight {shown} at location {text}");
    if is_at(c, id, &place) && c.weight_of(id) == Some(w) {
        return Outcome::status(format!("{head}: no change"));
    }
    edit(ctx, format!("{head} to crush map"), |c| c.add_osd(id, w, &place))
}

fn create_or_move(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (id, (shown, w), place, text) = match placing(cmd, ctx) {
        Ok(p) => p,
        Err(refusal) => return refusal,
    };
    let c = &ctx.map().crush;
    let said =
        format!("create-or-move updated item name 'osd.{id}' weight {shown} at location {text} to crush map");
    if is_at(c, id, &place) {
        return Outcome::status(said);
    }
    let w = c.weight_of(id).unwrap_or(w);
    edit(ctx, said, |c| c.add_osd(id, w, &place))
}

fn move_item(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let (place, text) = match location(cmd) {
        Ok(l) => l,
        Err(refusal) => return refusal,
    };
    let c = &ctx.map().crush;
    let Some(id) = c.item_id(name) else {
        return Outcome::absent(format!("item {name} does not exist"));
    };
    if is_at(c, id, &place) {
        let said = format!("no need to move item id {id} name '{name}' to location {text} in crush map");
        return Outcome::status(said);
    }
    let said = format!("moved item id {id} name '{name}' to location {text} in crush map");
    edit(ctx, said, |c| c.move_item(name, &place))
}

fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    if cmd.opt_text("ancestor").is_some() {
        return unlink(cmd, ctx);
    }
    match ctx.map().crush.item_id(name) {
        None => Outcome::status(format!("device '{name}' does not appear in the crush map")),
        Some(id) => {
            let said = format!("removed item id {id} name '{name}' from crush map");
            let out = edit(ctx, said, |c| c.remove_item(name));
            if out.code == Errno::ENOTEMPTY.code() {
                return Outcome::error(Errno::ENOTEMPTY, "(39) Directory not empty");
            }
            out
        }
    }
}

fn link(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let (place, text) = match location(cmd) {
        Ok(l) => l,
        Err(refusal) => return refusal,
    };
    let c = &ctx.map().crush;
    let Some(id) = c.item_id(name) else {
        return Outcome::absent(format!("item {name} does not exist"));
    };
    let holds = |(_, bucket): &(&str, &str)| {
        let b = c.item_id(bucket).and_then(|b| c.bucket(b));
        b.is_some_and(|b| b.items.contains(&id))
    };
    if place.iter().any(holds) {
        let said = format!("no need to move item id {id} name '{name}' to location {text} in crush map");
        return Outcome::status(said);
    }
    if id >= 0 {
        return Outcome::invalid(format!(
            "'{name}' is a device: only buckets can lie in several places"
        ));
    }
    let said = format!("linked item id {id} name '{name}' to location {text} in crush map");
    edit(ctx, said, |c| c.link_item(name, &place))
}

fn unlink(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let c = &ctx.map().crush;
    let Some(id) = c.item_id(name) else {
        return Outcome::status(format!("device '{name}' does not appear in the crush map"));
    };
    let said = format!("removed item id {id} name '{name}' from crush map");
    let Some(ancestor) = cmd.opt_text("ancestor") else {
        return edit(ctx, said, |c| c.unlink_everywhere(name));
    };
    let Some(from) = c.item_id(ancestor) else {
        return Outcome::absent(format!("no ancestor item '{ancestor}'"));
    };
    match c.bucket(from).is_some_and(|b| b.items.contains(&id)) {
        false => Outcome::status(format!("item {id} does not appear in that position")),
        true => edit(ctx, said, |c| c.unlink_item(name, ancestor).map(|_| ())),
    }
}

fn reweight_all(_: &Command, ctx: &Context<'_>) -> Outcome {
    edit(ctx, "reweighted crush hierarchy".into(), CrushMap::reweight_all)
}

fn tunables(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("profile");
    let Some(t) = Tunables::by_name(name) else {
        return Outcome::invalid(format!("unrecognized profile '{name}'"));
    };
    edit(ctx, format!("adjusted tunables profile to {name}"), |c| {
        c.tunables = t;
        Ok(())
    })
}

fn set_tunable(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, value) = (cmd.text("tunable"), cmd.int("value").unwrap_or(-1));
    if name != "straw_calc_version" {
        return Outcome::invalid(format!("unrecognized tunable '{name}'"));
    }
    let Some(v) = u8::try_from(value).ok().filter(|v| *v <= 2) else {
        return Outcome::invalid("value must be 0 or 1; got ".to_string() + &value.to_string());
    };
    edit(ctx, format!("adjusted tunable {name} to {v}"), |c| {
        c.tunables.straw_calc_version = v;
        Ok(())
    })
}

fn create_rule(cmd: &Command, ctx: &Context<'_>, in_places: bool, class: Option<&str>) -> Outcome {
    let (name, root, domain) = (cmd.text("name"), cmd.text("root"), cmd.text("type"));
    let c = &ctx.map().crush;
    if c.rule_id(name).is_some() {
        return Outcome::status(format!("rule {name} already exists"));
    }
    if c.item_id(root).is_none() {
        return Outcome::absent(format!("root item {root} does not exist"));
    }
    if c.type_id(domain).is_none() {
        return Outcome::invalid(format!("unknown type {domain}"));
    }
    if let Some(class) = class
        && c.class_id(class).is_none()
    {
        return Outcome::invalid(format!("device class {class} does not exist"));
    }
    edit(ctx, String::new(), |c| {
        if !in_places {
            return c
                .add_simple_rule(name, root, domain, class, RuleKind::Replicated)
                .map(|_| ());
        }
        // The steps of a rule for shards, in which an OSD that falls out moves no other, for copies.
        let id = c.add_simple_rule(name, root, domain, class, RuleKind::Erasure)?;
        if let Some(rule) = c.rules.get_mut(id as usize).and_then(Option::as_mut) {
            rule.kind = RuleKind::Replicated as u8;
        }
        Ok(())
    })
}

fn create_replicated(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    create_rule(cmd, ctx, false, cmd.opt_text("class"))
}

fn swap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (source, dest) = (cmd.text("source"), cmd.text("dest"));
    let c = &ctx.map().crush;
    for name in [source, dest] {
        match c.item_id(name) {
            None => return Outcome::absent(format!("item {name} does not exist")),
            Some(id) if id >= 0 => return Outcome::invalid(format!("item {name} is not a bucket")),
            Some(_) => {}
        }
    }
    if c.item_id(source).is_some_and(|id| c.parent(id).is_some()) && !cmd.flag("yes_i_really_mean_it") {
        let why = format!(
            "source item {source} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"
        );
        return Outcome::error(Errno::EPERM, why);
    }
    let mut inc = ctx.inc();
    match inc.crush_mut(ctx.map()).swap_buckets(source, dest) {
        Ok(()) => Outcome::status(format!("swapped bucket of {source} to {dest}")).with(Changes::map(inc)),
        Err(_) => Outcome::invalid("failed to swap bucket contents: (22) Invalid argument"),
    }
}

fn straw2(_: &Command, ctx: &Context<'_>) -> Outcome {
    let old = |b: &crush::Bucket| b.alg() == crush::Alg::Straw;
    match ctx.map().crush.iter_buckets().any(old) {
        true => edit(ctx, String::new(), CrushMap::straw_to_straw2),
        false => Outcome::default(),
    }
}

fn create_simple(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    create_rule(cmd, ctx, cmd.text("mode") == "indep", None)
}

fn rule_rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let Some(id) = ctx.map().crush.rule_id(name) else {
        return Outcome::status(format!("rule {name} does not exist"));
    };
    if ctx.map().pools.values().any(|p| i32::from(p.crush_rule) == id) {
        return Outcome::error(Errno::EBUSY, format!("crush ruleset {name} {id} is in use"));
    }
    edit(ctx, String::new(), |c| c.remove_rule(name))
}

fn rule_rename(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (from, to) = (cmd.text("srcname"), cmd.text("dstname"));
    let c = &ctx.map().crush;
    match (c.rule_id(from), c.rule_id(to)) {
        (None, Some(_)) => Outcome::status(format!("already renamed to '{to}'")),
        (None, None) => Outcome::absent(format!("source rule name '{from}' does not exist")),
        (Some(_), Some(_)) => Outcome::error(
            Errno::EEXIST,
            format!("destination rule name '{to}' already exists"),
        ),
        (Some(_), None) => edit(ctx, String::new(), |c| c.rename_rule(from, to)),
    }
}

/// `osd setcrushmap`: the whole map from the input, checked before it replaces the one in use.
pub fn set_map(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    if let Some(prior) = cmd.int("prior_version") {
        let now = i64::from(map.crush_version);
        if prior == now - 1 && CrushMap::from_bytes(&cmd.inbuf).is_ok_and(|c| c == *map.crush) {
            return Outcome::status(now.to_string());
        }
        if prior != now {
            let why = format!("prior_version {prior} != crush version {now}");
            return Outcome::error(Errno::EPERM, why);
        }
    }
    let wrong = |why: String| Outcome::invalid(format!("Failed to parse crushmap: {why}"));
    let new = match CrushMap::from_bytes(&cmd.inbuf) {
        Ok(new) => new,
        Err(_) if cmd.inbuf.is_empty() => return wrong("End of buffer".into()),
        Err(e) => return wrong(e.to_string()),
    };
    if let Err(e) = new.validate() {
        return wrong(e.to_string());
    }
    for (id, p) in &map.pools {
        if new.rule(u32::from(p.crush_rule)).is_none() {
            let name = map.pool_name(*id).unwrap_or("?");
            return Outcome::invalid(format!(
                "pool '{name}' uses rule {}, which the new map does not have",
                p.crush_rule
            ));
        }
    }
    let mut inc = ctx.inc();
    inc.crush = Some(Arc::new(new));
    Outcome::status((map.crush_version + 1).to_string()).with(Changes::map(inc))
}
