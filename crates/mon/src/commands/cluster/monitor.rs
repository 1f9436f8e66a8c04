//! Commands about monitors: the map, the quorum, their facts.
//!
//! Monitors hold no elections (they are fronts of the shared cluster state). The quorum is all that live, the living
//! one of the lowest rank leads: what clients do with the quorum stays true.

use crate::commands::cluster::features;
use crate::commands::command::{Command, Format, Outcome};
use crate::commands::context::Context;
use crate::commands::language::signature;
use crate::commands::spec::{DEPRECATED, HIDDEN, NOFORWARD, Spec, absent, spec};
use crate::commands::views::daemons;
use crate::commands::views::monmap::{monmap_json, quorum, quorum_names};
use crate::commands::views::show;
use crate::format;
use crate::format::units;
use cluster::{Change, Changes};
use denc::Encode;
use serde_json::{Map, Value, json};
use types::monmap::{MON_FEATURES, MON_FEATURES_PACIFIC, mon_feature_names};
use types::release;
use types::{EntityAddr, Errno};

const R: (&str, &str) = ("mon", "r");
const RW: (&str, &str) = ("mon", "rw");

pub const TABLE: &[Spec] = &[
    spec(R, "mon dump epoch?:int(0..)", "the monitor map", dump),
    spec(R, "mon getmap epoch?:int(0..)", "the monitor map, binary", getmap),
    spec(R, "mon stat", "monitors in one line", stat),
    spec(
        R,
        "mon metadata id?:str",
        "facts about monitors and their hosts",
        metadata,
    ),
    spec(
        R,
        "mon count-metadata property:str",
        "how many monitors have which value of a fact",
        count_metadata,
    ),
    spec(R, "mon versions", "how many monitors run which version", versions),
    spec(
        R,
        "mon feature ls with_value?:choice(--with-value)",
        "features of the monitors",
        feature_ls,
    ),
    spec(
        R,
        "mon ok-to-stop ids*:str",
        "whether monitors can be stopped without harm",
        ok_to_stop,
    ),
    spec(
        R,
        "mon ok-to-add-offline",
        "whether a monitor can be added that does not run yet",
        ok_to_add,
    ),
    spec(
        R,
        "mon ok-to-rm id:str",
        "whether a monitor can be removed",
        ok_to_rm,
    ),
    spec(
        R,
        "quorum_status",
        "the quorum and the monitor map, as JSON",
        quorum_status,
    ),
    spec(R, "mon_status", "state of the monitor that answers", status).flagged(NOFORWARD | HIDDEN),
    spec(
        RW,
        "mon feature set feature_name:str yes_i_really_mean_it?:bool",
        "require a feature of all monitors: all have all",
        feature_set,
    ),
    spec(
        RW,
        "mon add name:str addr:ip location?*:str",
        "not here: a monitor adds itself when it starts",
        add,
    ),
    spec(
        RW,
        "mon rm name:str",
        "forget a monitor that is gone for good",
        rm,
    ),
    spec(
        RW,
        "mon remove name:str",
        "forget a monitor that is gone for good",
        rm,
    )
    .flagged(DEPRECATED),
    spec(
        RW,
        "mon set-addrs name:str addrs:str",
        "not here: a monitor says its addresses when it starts",
        set_one,
    ),
    spec(
        RW,
        "mon set-rank name:str rank:int",
        "not here: ranks are given in the order of joining",
        set_one,
    ),
    spec(
        RW,
        "mon set-weight name:str weight:int(0..65535)",
        "not here: clients choose among all monitors alike",
        set_one,
    ),
    spec(
        RW,
        "mon set_location name:str args*:str([A-Za-z0-9-_.=])",
        "not here: monitors have no places",
        set_one,
    ),
    spec(
        RW,
        "mon enable-msgr2",
        "speak the second messenger: all do",
        nothing,
    ),
    spec(
        RW,
        "mon scrub",
        "compare the stores of the monitors: there is one for all",
        nothing,
    ),
    spec(
        RW,
        "mon set election_strategy strategy:str",
        "how a leader is found: classic, the lowest rank that lives",
        set_strategy,
    ),
    absent(
        RW,
        "mon add disallowed_leader name:str",
        "not here: the monitor of the lowest rank that lives leads",
    ),
    absent(
        RW,
        "mon rm disallowed_leader name:str",
        "not here: the monitor of the lowest rank that lives leads",
    ),
    absent(
        RW,
        "mon enable_stretch_mode tiebreaker_mon:str new_crush_rule:str dividing_bucket:str",
        "not here: there is no stretch mode",
    ),
    absent(
        RW,
        "mon set_new_tiebreaker name:str yes_i_really_mean_it?:bool",
        "not here: there is no stretch mode",
    ),
];

fn quorum_ranks(ctx: &Context<'_>) -> Vec<i32> {
    quorum(ctx).into_iter().map(|(rank, _)| rank).collect()
}

/// The leader, whose absence the answering monitor would fill.
fn leader(ctx: &Context<'_>) -> (i32, String) {
    let own = || (ctx.mon.rank, ctx.mon.name.clone());
    quorum(ctx).into_iter().next().unwrap_or_else(own)
}

/// `epoch` of the arguments, if it is not the present one.
fn wrong_epoch(cmd: &Command, ctx: &Context<'_>) -> Option<Outcome> {
    let epoch = cmd
        .int("epoch")
        .filter(|e| *e != 0 && *e != i64::from(ctx.state.monmap.epoch))?;
    Some(Outcome::absent(format!("there is no map for epoch {epoch}")))
}

fn dump(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if let Some(refusal) = wrong_epoch(cmd, ctx) {
        return refusal;
    }
    let m = &ctx.state.monmap;
    let with_quorum = || {
        let mut v = monmap_json(ctx);
        if let Some(map) = v.as_object_mut() {
            map.insert("quorum".into(), json!(quorum_ranks(ctx)));
        }
        v
    };
    let plain = || {
        let mut out = format!("epoch {}\nfsid {}\n", m.epoch, m.fsid);
        out.push_str(&format!(
            "last_changed {}\ncreated {}\n",
            m.last_changed, m.created
        ));
        let name = release::name(m.min_mon_release);
        out.push_str(&format!("min_mon_release {} ({name})\n", m.min_mon_release));
        out.push_str(&format!("election_strategy: {}\n", m.strategy));
        for (rank, i) in m.by_rank().enumerate() {
            out.push_str(&format!("{rank}: {} mon.{}\n", i.addrs, i.name));
        }
        out
    };
    cmd.either(with_quorum, plain)
        .saying(format!("dumped monmap epoch {}", m.epoch))
}

fn getmap(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    if let Some(refusal) = wrong_epoch(cmd, ctx) {
        return refusal;
    }
    let m = &ctx.state.monmap;
    Outcome::ok(m.to_bytes()).saying(format!("got monmap epoch {}", m.epoch))
}

fn stat(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let m = &ctx.state.monmap;
    let (rank, name) = leader(ctx);
    let members = quorum(ctx);
    let mons: Vec<String> = m.by_rank().map(|i| format!("{}={}", i.name, i.addrs)).collect();
    cmd.either(
        || {
            json!({
                "epoch": m.epoch,
                "min_mon_release_name": release::name(m.min_mon_release),
                "num_mons": m.ranks.len(),
                "leader": name,
                "quorum": members.iter().map(|(r, n)| json!({"rank": r, "name": n})).collect::<Vec<_>>(),
            })
        },
        || {
            format!(
                "e{}: {} mons at {{{}}} removed_ranks: {{}}, election epoch {}, leader {rank} {name}, quorum {} {}\n",
                m.epoch,
                m.ranks.len(),
                mons.join(","),
                show::ELECTION_EPOCH,
                members.iter().map(|(r, _)| r.to_string()).collect::<Vec<_>>().join(","),
                quorum_names(ctx)
            )
        },
    )
}

fn names(ctx: &Context<'_>) -> Vec<String> {
    ctx.state.monmap.by_rank().map(|i| i.name.clone()).collect()
}

fn metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    match cmd.opt_text("id") {
        None => {
            let one = |name: &String| {
                let mut m = Map::new();
                m.insert("name".into(), name.clone().into());
                m.extend(daemons::mon_facts(ctx, name));
                Value::Object(m)
            };
            cmd.json(&names(ctx).iter().map(one).collect())
        }
        Some(id) if ctx.state.monmap.mon_info.contains_key(id) || id == ctx.mon.name => {
            cmd.json(&Value::Object(daemons::mon_facts(ctx, id)))
        }
        Some(_) => Outcome::absent("requested mon not found"),
    }
}

/// A monitor that runs puts itself into the map again when it starts the next time.
fn rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    let map = &ctx.state.monmap;
    let Some(info) = map.mon_info.get(name) else {
        return Outcome::status(format!("mon.{name} does not exist or has already been removed"));
    };
    if map.ranks.len() == 1 {
        return Outcome::invalid(format!("error: refusing removal of last monitor {name}"));
    }
    let left = map.ranks.len() - 1;
    let said = format!(
        "removing mon.{name} at {}, there will be {left} monitors",
        info.addrs.bracketed()
    );
    let mut next = (**map).clone();
    next.mon_info.remove(name);
    next.ranks.retain(|n| n != name);
    next.last_changed = ctx.now;
    Outcome::status(said).with(Changes::one(Change::MonMap(Box::new(next))))
}

/// Monitors are fronts of the cluster's state, and join by it.
fn add(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (name, text) = (cmd.text("name"), cmd.text("addr"));
    let map = &ctx.state.monmap;
    if let Some(info) = map.mon_info.get(name) {
        let at = info.addrs.bracketed();
        return Outcome::error(
            Errno::EEXIST,
            format!("mon.{name} already exists at address {at}"),
        );
    }
    let Some(addr) = EntityAddr::from_text(text) else {
        return Outcome::invalid(format!("addr {text}does not parse"));
    };
    let has = |i: &&types::monmap::MonInfo| i.addrs.0.iter().any(|a| a.sock == addr.sock);
    if let Some(info) = map.by_rank().find(has) {
        let why = format!(
            "mon.{} already exists at address {}",
            info.name,
            info.addrs.bracketed()
        );
        return Outcome::error(Errno::EEXIST, why);
    }
    let why = format!(
        "'mon add' is not here: mon.{name} adds itself when 'skep up --roles mon' starts with this cluster's state \
         (docs/operating/cluster.md)"
    );
    Outcome::error(Errno::EOPNOTSUPP, why)
}

/// What would be set of one monitor, and is not settable.
fn set_one(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("name");
    if !ctx.state.monmap.mon_info.contains_key(name) {
        let of_map = if cmd.prefix.ends_with("rank") {
            " in monmap"
        } else {
            ""
        };
        return Outcome::absent(format!("mon.{name} does not exist{of_map}"));
    }
    let is_it = |s: &&Spec| signature::prefix(s.sig) == cmd.prefix;
    let why = TABLE.iter().find(is_it).map_or("", |s| s.help);
    Outcome::error(Errno::EOPNOTSUPP, format!("'{}' is {why}", cmd.prefix))
}

fn nothing(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::default()
}

fn set_strategy(cmd: &Command, _: &Context<'_>) -> Outcome {
    match cmd.text("strategy") {
        "classic" => Outcome::default(),
        "disallow" | "connectivity" => Outcome::error(
            Errno::EOPNOTSUPP,
            "only 'classic' is here: the monitor of the lowest rank that lives leads",
        ),
        other => Outcome::invalid(format!("unrecognized election strategy '{other}'")),
    }
}

fn feature_set(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let name = cmd.text("feature_name");
    let m = &ctx.state.monmap;
    let required = m.persistent_features | m.optional_features;
    let Some((bit, _)) = MON_FEATURES.iter().find(|(_, n)| *n == name) else {
        return Outcome::absent(format!("unknown feature '{name}'"));
    };
    if !cmd.flag("yes_i_really_mean_it") {
        let why = format!(
            "please specify '--yes-i-really-mean-it' if you really, **really** want to set feature \
             'mon_feature_t([{name}])' in the monmap."
        );
        return Outcome::error(Errno::EPERM, why);
    }
    match required >> bit & 1 {
        1 => Outcome::status(format!("setting feature 'mon_feature_t([{name}])'")),
        _ => Outcome::error(
            Errno::EOPNOTSUPP,
            format!("feature '{name}' is not here: monitors have those of pacific, and require them all"),
        ),
    }
}

fn count_metadata(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let of = |name: &String| daemons::value_of(&daemons::mon_facts(ctx, name), cmd.text("property"));
    cmd.json(&show::count_values(names(ctx).iter().map(of)))
}

fn versions(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&show::count_values(daemons::mon_versions(ctx)))
}

fn feature_ls(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let with_value = !cmd.text("with_value").is_empty();
    let names = |bits: u64| -> Vec<String> {
        let set = MON_FEATURES.iter().filter(|(bit, _)| bits >> bit & 1 != 0);
        set.map(|(bit, n)| {
            if with_value {
                format!("{n}({})", 1u64 << bit)
            } else {
                n.to_string()
            }
        })
        .collect()
    };
    let m = &ctx.state.monmap;
    let all = names(MON_FEATURES_PACIFIC);
    let (persistent, optional) = (names(m.persistent_features), names(m.optional_features));
    let required = names(m.persistent_features | m.optional_features);
    cmd.either(
        || {
            json!({
                "all": {"supported": all, "persistent": all},
                "monmap": {"persistent": persistent, "optional": optional, "required": required},
            })
        },
        || {
            let list = |l: &[String]| format!("[{}]", l.join(","));
            format!(
                "all features\n\tsupported: {}\n\tpersistent: {}\non current monmap (epoch {})\n\tpersistent: {}\n\trequired: {}\n",
                list(&all),
                list(&all),
                m.epoch,
                list(&persistent),
                list(&required)
            )
        },
    )
}

fn ok_to_stop(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let ids = cmd.list("ids");
    let known: Vec<&str> = ids
        .iter()
        .copied()
        .filter(|i| ctx.state.monmap.mon_info.contains_key(*i))
        .collect();
    // One living monitor is enough: they are fronts of the cluster state.
    let rest: Vec<String> = quorum(ctx)
        .into_iter()
        .map(|(_, n)| n)
        .filter(|n| !known.contains(&n.as_str()))
        .collect();
    if !known.is_empty() && rest.is_empty() {
        let why = format!(
            "not enough monitors would be available () after stopping mons [{}]",
            ids.join(",")
        );
        return Outcome::error(Errno::EBUSY, why);
    }
    let why = format!(
        "quorum should be preserved ({}) after stopping [{}]",
        rest.join(","),
        ids.join(",")
    );
    Outcome::status(why)
}

fn ok_to_add(_: &Command, _: &Context<'_>) -> Outcome {
    Outcome::error(
        Errno::EBUSY,
        "adding a monitor may break quorum (until that monitor starts)",
    )
}

fn ok_to_rm(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let id = cmd.text("id");
    match ctx.state.monmap.mon_info.contains_key(id) {
        false => Outcome::status(format!("mon.{id} does not exist")),
        true if ctx.state.monmap.ranks.len() == 1 => {
            Outcome::error(Errno::EBUSY, format!("removing mon.{id} would break quorum"))
        }
        true => Outcome::default(),
    }
}

fn quorum_features() -> Value {
    json!({
        "quorum_con": release::feature::ALL_PACIFIC.to_string(),
        "quorum_mon": mon_feature_names(MON_FEATURES_PACIFIC),
    })
}

fn age(ctx: &Context<'_>) -> u64 {
    units::seconds_between(ctx.mon.started, ctx.now) as u64
}

fn quorum_status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let v = json!({
        "election_epoch": show::ELECTION_EPOCH,
        "quorum": quorum_ranks(ctx),
        "quorum_names": quorum(ctx).into_iter().map(|(_, name)| name).collect::<Vec<_>>(),
        "quorum_leader_name": leader(ctx).1,
        "quorum_age": age(ctx),
        "features": quorum_features(),
        "monmap": monmap_json(ctx),
    });
    match cmd.format {
        Format::Plain => Outcome::ok(format!("{}\n", format::compact(&v))),
        _ => cmd.json(&v),
    }
}

pub fn mon_status(ctx: &Context<'_>) -> Value {
    /// Connection features that the real one requires of its peers.
    const REQUIRED_CON: &str = "2449958747317026820";
    let names = mon_feature_names(MON_FEATURES_PACIFIC);
    json!({
        "name": ctx.mon.name,
        "rank": ctx.mon.rank,
        "state": if leader(ctx).1 == ctx.mon.name { "leader" } else { "peon" },
        "election_epoch": show::ELECTION_EPOCH,
        "quorum": quorum_ranks(ctx),
        "quorum_age": age(ctx),
        "features": {
            "required_con": REQUIRED_CON,
            "required_mon": names,
            "quorum_con": release::feature::ALL_PACIFIC.to_string(),
            "quorum_mon": names,
        },
        "outside_quorum": [],
        "extra_probe_peers": [],
        "sync_provider": [],
        "monmap": monmap_json(ctx),
        "feature_map": features::feature_map(ctx),
        "stretch_mode": false,
    })
}

fn status(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    cmd.json(&mon_status(ctx))
}
