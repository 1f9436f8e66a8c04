//! `fs authorize`: an entity that may mount paths of one file system, and what it needs for that of every service.

use super::{Caps, keyring_like_new, new_key, put};
use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::views::file_systems::named;
use auth::{EntityAuth, caps};
use types::AuthName;

/// What stands for every file system.
const ALL: [&str; 2] = ["*", "all"];

pub fn authorize(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let Ok(name) = cmd.text("entity").parse::<AuthName>() else {
        return Outcome::invalid("bad entity name");
    };
    let wanted = match wanted(cmd, ctx) {
        Ok(caps) => caps,
        Err(refusal) => return refusal,
    };
    if let Some(e) = ctx.state.auth.get(&name) {
        if e.caps != wanted {
            return Outcome::invalid(format!(
                "{name} already has fs capabilities that differ from those supplied. To generate a new auth key for \
                 {name}, first remove {name} from configuration files, execute 'ceph auth rm {name}', then execute this \
                 command again."
            ));
        }
        return keyring_like_new(cmd, &name, e);
    }
    let mut entity = EntityAuth::new(new_key(ctx));
    entity.caps = wanted;
    keyring_like_new(cmd, &name, &entity).with(put(name, entity))
}

fn wanted(cmd: &Command, ctx: &Context<'_>) -> Result<Caps, Outcome> {
    let fs = cmd.text("filesystem");
    let every = ALL.contains(&fs);
    if !every && named(ctx, fs).is_none() {
        return Err(Outcome::invalid(format!("filesystem {fs} does not exist.")));
    }
    let of_fs = match every {
        true => String::new(),
        false => format!(" fsname={fs}"),
    };
    let mut grants = Vec::new();
    let mut writes = false;
    let mut words = cmd.list("caps").into_iter().peekable();
    while let Some(path) = words.next() {
        let Some(rights) = words.next() else { break };
        if !rights.starts_with('r') {
            return Err(Outcome::invalid("Permission flags must start with 'r' or 'rw'."));
        }
        writes |= rights.starts_with("rw");
        let mut grant = format!("allow {rights}{of_fs}");
        // Everything needs no path.
        if !matches!(path, "/" | "") {
            grant.push_str(&format!(" path={path}"));
        }
        if words.next_if_eq(&"root_squash").is_some() {
            grant.push_str(" root_squash");
        }
        grants.push(grant);
    }
    let mds = grants.join(", ");
    caps::validate("mds", &mds).map_err(|e| Outcome::invalid(e.to_string()))?;
    let data = if writes { "rw" } else { "r" };
    Ok(Caps::from([
        ("mds".to_string(), mds),
        ("mon".to_string(), format!("allow r{of_fs}")),
        ("osd".to_string(), format!("allow {data} tag cephfs data={fs}")),
    ]))
}
