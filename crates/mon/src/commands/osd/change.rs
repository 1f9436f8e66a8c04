//! Commands that change OSDs: out, in, down, weights, life and death.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::language::ids::parse_osd_id;
use crate::commands::osd::new;
use crate::commands::spec::{DEPRECATED, HIDDEN, Spec, absent, spec};
use crate::commands::views::pg_stats::Figures;
use crate::commands::views::{osd_map, pg_stats};
use crate::format::json::significant;
use cluster::{Change, Changes};
use types::osdmap::{AFFINITY_DEFAULT, Incremental, WEIGHT_IN, osd_state};
use types::{AuthName, EntityKind, Errno, OsdId, Uuid, release};

const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd out ids*:str",
        "take OSDs out: their data moves away",
        out,
    ),
    spec(RW, "osd in ids*:str", "take OSDs in again", into),
    spec(
        RW,
        "osd down ids*:str definitely_dead?:bool",
        "mark OSDs down; running ones come back",
        down,
    ),
    spec(
        RW,
        "osd reweight id:osd weight:float(0.0..1.0)",
        "set the share of data an OSD takes",
        reweight,
    ),
    spec(
        RW,
        "osd primary-affinity id:osd weight:float(0.0..1.0)",
        "set how readily an OSD becomes primary",
        affinity,
    ),
    spec(RW, "osd rm ids*:str", "remove OSDs from the map", remove).flagged(DEPRECATED),
    spec(
        RW,
        "osd lost id:osd yes_i_really_mean_it?:bool",
        "declare the data of an OSD lost for ever",
        lost,
    ),
    spec(
        RW,
        "osd purge id:osd force?:bool yes_i_really_mean_it?:bool",
        "remove all traces of an OSD: map, hierarchy, key",
        purge,
    ),
    spec(
        RW,
        "osd destroy id:osd force?:bool yes_i_really_mean_it?:bool",
        "destroy an OSD but keep its id",
        destroy,
    ),
    spec(
        RW,
        "osd setmaxosd newmax:int(0..)",
        "set the number of slots in the OSD map",
        setmaxosd,
    ),
    spec(
        RW,
        "osd set-full-ratio ratio:float(0.0..1.0)",
        "how full an OSD may be before writes stop",
        full_ratio,
    ),
    spec(
        RW,
        "osd set-backfillfull-ratio ratio:float(0.0..1.0)",
        "how full an OSD may be before it takes no more backfill",
        backfillfull_ratio,
    ),
    spec(
        RW,
        "osd set-nearfull-ratio ratio:float(0.0..1.0)",
        "how full an OSD may be before a warning",
        nearfull_ratio,
    ),
    spec(
        RW,
        "osd set-require-min-compat-client version:str yes_i_really_mean_it?:bool",
        "refuse clients older than a release",
        min_compat,
    ),
    spec(
        RW,
        "osd require-osd-release release:choice(luminous|mimic|nautilus|octopus|pacific) yes_i_really_mean_it?:bool",
        "refuse OSDs older than a release",
        require_release,
    ),
    spec(
        RW,
        "osd stop ids*:str",
        "not here: the process that serves an OSD is stopped",
        stop,
    ),
    spec(
        RW,
        "osd purge-new id:osd yes_i_really_mean_it?:bool",
        "remove all traces of an OSD that never came up",
        purge_new,
    ),
    spec(
        RW,
        "osd purge-actual id:osd yes_i_really_mean_it?:bool",
        "purge, as the manager asks for it",
        purge,
    )
    .flagged(HIDDEN),
    spec(
        RW,
        "osd destroy-actual id:osd yes_i_really_mean_it?:bool",
        "destroy, as the manager asks for it",
        destroy,
    )
    .flagged(HIDDEN),
    absent(
        RW,
        "osd force_healthy_stretch_mode yes_i_really_mean_it?:bool",
        "not here: there is no stretch mode",
    ),
    absent(
        RW,
        "osd force_recovery_stretch_mode yes_i_really_mean_it?:bool",
        "not here: there is no stretch mode",
    ),
];

/// Runs `each` over the OSDs that `ids` name, collecting their sentences. Not one wrong id may be among them.
fn over_ids(
    cmd: &Command,
    ctx: &Context<'_>,
    mut each: impl FnMut(OsdId, &mut Incremental) -> Result<(Option<String>, bool), Outcome>,
) -> Outcome {
    let map = ctx.map();
    let mut inc = ctx.inc();
    let mut said = String::new();
    let mut changed = false;
    for text in cmd.list("ids") {
        let every = matches!(text, "any" | "all" | "*");
        let ids = if every {
            map.osd_ids().collect()
        } else {
            match parse_osd_id(text) {
                Ok(id) => vec![id],
                // The rest is the real one's slip, and known to programs.
                Err(why) => return Outcome::invalid(format!("{why}invalid osd id-1")),
            }
        };
        for id in ids {
            if !map.exists(id) {
                said.push_str(&format!("osd.{id} does not exist. "));
                continue;
            }
            match each(id, &mut inc) {
                Err(refusal) => return refusal,
                Ok((sentence, touched)) => {
                    changed |= touched;
                    // With "all", those that need no change are passed over in silence.
                    if let Some(s) = sentence.filter(|_| touched || !every) {
                        said.push_str(&s);
                    }
                }
            }
        }
    }
    let changes = if changed && inc != ctx.inc() {
        Changes::map(inc)
    } else {
        Changes::none()
    };
    Outcome::status(said).with(changes)
}

fn out(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    over_ids(cmd, ctx, |id, inc| {
        if !map.is_in(id) {
            return Ok((Some(format!("osd.{id} is already out. ")), false));
        }
        inc.mark_out(map, id);
        Ok((Some(format!("marked out osd.{id}. ")), true))
    })
}

fn into(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    over_ids(cmd, ctx, |id, inc| {
        if map.is_in(id) {
            return Ok((Some(format!("osd.{id} is already in. ")), false));
        }
        inc.mark_in(map, id);
        Ok((Some(format!("marked in osd.{id}. ")), true))
    })
}

fn down(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let (mut asked, mut unleased) = (Vec::new(), Vec::new());
    let mut out = over_ids(cmd, ctx, |id, inc| {
        if map.is_down(id) {
            return Ok((Some(format!("osd.{id} is already down. ")), false));
        }
        // One that may serve is asked, and says itself when it serves no more: another in its place while it still
        // answered would let clients read what is old. `--definitely-dead` does not change what a lease says.
        match (ctx.stats.leased.contains(&id), map.osd(id)) {
            (true, Some(o)) => {
                let up_from = Some(o.info.up_from);
                asked.push(Change::AskDown { id, up_from });
            }
            _ => {
                inc.mark_down(map, id);
                unleased.push(id);
            }
        }
        Ok((Some(format!("marked down osd.{id}. ")), true))
    });
    if out.code == 0 {
        out.changes.list.extend(asked);
        out.changes.unleased = unleased;
    }
    out
}

fn remove(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    over_ids(cmd, ctx, |id, inc| {
        if map.is_up(id) {
            let why = format!("osd.{id} is still up; must be down before removal. ");
            return Err(Outcome::error(Errno::EBUSY, why));
        }
        inc.remove_osd(map, id);
        Ok((Some(format!("removed osd.{id}")), true))
    })
}

/// The argument `id` as an OSD that exists.
pub fn the_osd(cmd: &Command, ctx: &Context<'_>) -> Result<OsdId, Outcome> {
    let id = cmd
        .int("id")
        .ok_or_else(|| Outcome::invalid("bad or missing field 'id'"))?;
    match OsdId::try_from(id) {
        Ok(osd) if ctx.map().exists(osd) => Ok(osd),
        _ => Err(Outcome::absent(format!("osd.{id} does not exist"))),
    }
}

/// The argument `weight` in 16.16.
fn the_weight(cmd: &Command) -> Result<(f64, u32), Outcome> {
    let w = cmd
        .real("weight")
        .ok_or_else(|| Outcome::invalid("bad or missing field 'weight'"))?;
    if !(0.0..=65_535.0).contains(&w) {
        return Err(Outcome::invalid(format!("weight {w} is out of range")));
    }
    Ok((w, crush::weight_from_f64(w)))
}

fn reweight(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let ((w, fixed), id) = match (the_weight(cmd), the_osd(cmd, ctx)) {
        (Ok(w), Ok(id)) => (w, id),
        (Err(refusal), _) | (_, Err(refusal)) => return refusal,
    };
    if fixed > WEIGHT_IN {
        return Outcome::invalid(format!("weight {w} is out of range: it lies between 0 and 1"));
    }
    let mut inc = ctx.inc();
    inc.set_weight(id, fixed);
    Outcome::status(format!(
        "reweighted osd.{id} to {} ({fixed:x})",
        significant(w, 6)
    ))
    .with(Changes::map(inc))
}

fn affinity(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let ((w, fixed), id) = match (the_weight(cmd), the_osd(cmd, ctx)) {
        (Ok(w), Ok(id)) => (w, id),
        (Err(refusal), _) | (_, Err(refusal)) => return refusal,
    };
    if fixed > AFFINITY_DEFAULT {
        return Outcome::invalid("primary affinity must be between 0 and 1");
    }
    let mut inc = ctx.inc();
    inc.new_primary_affinity.insert(id, fixed);
    // The real one prints the weight in decimal behind a hex prefix that is not there.
    Outcome::status(format!(
        "set osd.{id} primary-affinity to {} ({fixed})",
        significant(w, 6)
    ))
    .with(Changes::map(inc))
}

/// Slots that the map may have. An empty one takes 115 bytes, and a map has to fit into a value of the cluster's state,
/// which is a MiB: behind 9000 no change of the map would be possible any more, not even back.
const MON_MAX_OSD: i32 = 4096;

const ARE_YOU_SURE: &str = "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.";

fn lost(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if !cmd.flag("yes_i_really_mean_it") {
        return Outcome::error(Errno::EPERM, ARE_YOU_SURE);
    }
    let id = match the_osd(cmd, ctx) {
        Ok(id) => id,
        Err(refusal) => return refusal,
    };
    let map = ctx.map();
    if map.is_up(id) {
        return Outcome::error(Errno::EBUSY, format!("osd.{id} is not down"));
    }
    let epoch = map.osd(id).map_or(0, |o| o.info.down_at);
    let mut inc = ctx.inc();
    inc.new_lost.insert(id, epoch);
    Outcome::status(format!("marked osd lost in epoch {epoch}")).with(Changes::map(inc))
}

/// Why the OSD's data is still needed, if it is.
fn in_use(cmd: &Command, ctx: &Context<'_>, id: OsdId) -> Option<Outcome> {
    if cmd.flag("force") {
        return None;
    }
    let pgs = pg_stats::needed_by(ctx, &Figures::of(ctx), id).len();
    let why = format!(
        "OSD(s) {id} have {pgs} pgs currently mapped to them. \nYou can proceed by passing --force, but be warned that this will likely mean real, permanent data loss."
    );
    (pgs > 0).then(|| Outcome::error(Errno::EBUSY, why))
}

const SURE_TO_DESTROY: &str = "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, permanent data loss, as well as deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you really do.";

/// What was kept for it: its key, and the one that opened its encrypted disk.
fn forget_keys(ctx: &Context<'_>, id: OsdId, changes: &mut Changes) {
    let mut names = vec![AuthName::new(EntityKind::Osd, id.to_string())];
    if let Some(o) = ctx.map().osd(id) {
        names.push(new::lockbox(o.uuid));
        let held = new::disk_keys(o.uuid);
        let keys = ctx.state.config_keys.range(held.clone()..);
        let keys = keys.take_while(|(k, _)| k.starts_with(&held));
        changes
            .list
            .extend(keys.map(|(k, _)| Change::ConfigKeyRm { key: k.clone() }));
    }
    for name in names {
        if ctx.state.auth.get(&name).is_some() {
            changes.push(Change::AuthRm { name });
        }
    }
}

/// The OSD that is to go for good: one that is down and that nothing needs, and the caller is sure. Err: the answer; one
/// that is not there has gone already.
fn doomed(cmd: &Command, ctx: &Context<'_>, are_you_sure: &str) -> Result<OsdId, Outcome> {
    let id = match the_osd(cmd, ctx) {
        Err(r) if r.code == Errno::ENOENT.code() => return Err(Outcome::status(r.status)),
        other => other?,
    };
    if let Some(refusal) = in_use(cmd, ctx, id) {
        return Err(refusal);
    }
    if !cmd.flag("yes_i_really_mean_it") && !cmd.flag("force") {
        return Err(Outcome::error(Errno::EPERM, are_you_sure));
    }
    match ctx.map().is_up(id) {
        true => Err(Outcome::error(Errno::EBUSY, format!("osd.{id} is not `down`."))),
        false => Ok(id),
    }
}

/// Only what the real one calls new: never booted.
fn purge_new(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = match doomed(cmd, ctx, SURE_TO_DESTROY) {
        Ok(id) => id,
        Err(answer) => return answer,
    };
    let booted = ctx.map().osd(id).is_some_and(|o| o.state & osd_state::NEW == 0);
    match booted {
        true => Outcome::error(Errno::EPERM, format!("osd.{id} is not `new`.")),
        false => purge(cmd, ctx),
    }
}

/// Processes are stopped by those who started them; what the map says of their OSDs follows.
fn stop(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    over_ids(cmd, ctx, |id, _| match ctx.map().is_up(id) {
        false => Ok((Some(format!("osd.{id} is already down. ")), false)),
        true => {
            let why = format!(
                "'osd stop' is not here: stop the process that serves osd.{id} ('ceph osd down {id}' lets it come back)"
            );
            Err(Outcome::error(Errno::EOPNOTSUPP, why))
        }
    })
}

fn purge(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = match doomed(cmd, ctx, ARE_YOU_SURE) {
        Ok(id) => id,
        Err(answer) => return answer,
    };
    let map = ctx.map();
    let mut inc = ctx.inc();
    inc.remove_osd(map, id);
    let name = format!("osd.{id}");
    if map.crush.item_id(&name).is_some()
        && let Err(e) = inc.crush_mut(map).remove_item(&name)
    {
        return Outcome::error(Errno::EBUSY, e.to_string());
    }
    let mut changes = Changes::map(inc);
    forget_keys(ctx, id, &mut changes);
    changes.push(Change::OsdMetadata {
        id,
        metadata: Default::default(),
    });
    Outcome::status(format!("purged osd.{id}")).with(changes)
}

fn destroy(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = match doomed(cmd, ctx, SURE_TO_DESTROY) {
        Ok(id) => id,
        Err(answer) => return answer,
    };
    let map = ctx.map();
    let state = map.osd(id).map_or(0, |o| o.state);
    let mut changes = Changes::none();
    if state & osd_state::DESTROYED == 0 {
        let mut inc = ctx.inc();
        inc.new_state.insert(id, osd_state::DESTROYED);
        inc.new_uuid.insert(id, Uuid::default());
        changes = Changes::map(inc);
    }
    forget_keys(ctx, id, &mut changes);
    Outcome::status(format!("destroyed osd.{id}")).with(changes)
}

fn setmaxosd(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let map = ctx.map();
    let wanted = cmd.int("newmax").unwrap_or(-1);
    let Some(max) = i32::try_from(wanted)
        .ok()
        .filter(|n| (0..=MON_MAX_OSD).contains(n))
    else {
        return Outcome::error(
            Errno::ERANGE,
            format!("cannot set max_osd to {wanted} which is > conf.mon_max_osd ({MON_MAX_OSD})"),
        );
    };
    if let Some(id) = map.osd_ids().find(|id| *id >= max) {
        let why =
            format!("cannot shrink max_osd to {max} because osd.{id} (and possibly others) still in use");
        return Outcome::error(Errno::EBUSY, why);
    }
    let mut inc = ctx.inc();
    inc.new_max_osd = Some(max);
    Outcome::status(format!("set new max_osd = {max}")).with(Changes::map(inc))
}

fn ratio(cmd: &Command, ctx: &Context<'_>, put: impl Fn(&mut Incremental, f32)) -> Outcome {
    let Some(r) = cmd.real("ratio").filter(|r| (0.0..=1.0).contains(r)) else {
        return Outcome::invalid("bad or missing field 'ratio'");
    };
    let mut inc = ctx.inc();
    put(&mut inc, r as f32);
    Outcome::status(format!("{} {}", cmd.prefix, significant(r, 6))).with(Changes::map(inc))
}

fn full_ratio(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    ratio(cmd, ctx, |inc, r| inc.new_full_ratio = Some(r))
}
fn backfillfull_ratio(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    ratio(cmd, ctx, |inc, r| inc.new_backfillfull_ratio = Some(r))
}
fn nearfull_ratio(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    ratio(cmd, ctx, |inc, r| inc.new_nearfull_ratio = Some(r))
}

fn min_compat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("version");
    let Some(wanted) = release::from_name(name) else {
        return Outcome::invalid(format!("version {name} is not recognized"));
    };
    let needed = osd_map::min_compat_client(ctx.map());
    if wanted < release::from_name(needed).unwrap_or(0) {
        let why = format!(
            "osdmap current utilizes features that require {needed}; cannot set require_min_compat_client below that to {name}"
        );
        return Outcome::error(Errno::EPERM, why);
    }
    let mut inc = ctx.inc();
    inc.new_require_min_compat_client = Some(wanted);
    Outcome::status(format!("set require_min_compat_client to {name}")).with(Changes::map(inc))
}

fn require_release(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("release");
    let now = ctx.map().require_osd_release;
    match release::from_name(name) {
        None => Outcome::invalid(format!("unrecognized release '{name}'")),
        Some(r) if r < now => Outcome::error(
            Errno::EPERM,
            "require_osd_release cannot be lowered once it has been set",
        ),
        Some(r) if r == now => Outcome::default(),
        Some(_) => Outcome::error(Errno::EPERM, format!("not all up OSDs have {name} features")),
    }
}
