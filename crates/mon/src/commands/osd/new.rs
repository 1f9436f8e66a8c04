//! New OSDs: a number in the map, and the keys that come with it.
//!
//! Asked again with the same uuid and keys, each command gives the same answer and changes nothing.

use crate::commands::command::{Command, Outcome};
use crate::commands::context::Context;
use crate::commands::spec::{DEPRECATED, Spec, spec};
use auth::{CryptoKey, EntityAuth};
use bytes::Bytes;
use cluster::{Change, Changes};
use serde_json::Value;
use types::osdmap::{MAX_OSD_LIMIT, osd_state};
use types::{AuthName, EntityKind, Errno, OsdId, Uuid};

const RW: (&str, &str) = ("osd", "rw");

pub const TABLE: &[Spec] = &[
    spec(
        RW,
        "osd new uuid:uuid id?:osd",
        "make an OSD with this uuid, and with the keys of the input",
        new,
    ),
    spec(RW, "osd create uuid?:uuid id?:osd", "make an OSD", create).flagged(DEPRECATED),
];

/// Who fetches the key of an OSD's encrypted disk.
pub fn lockbox(uuid: Uuid) -> AuthName {
    AuthName::new(EntityKind::Client, format!("osd-lockbox.{uuid}"))
}

/// Beginning of the keys under which it is kept.
pub fn disk_keys(uuid: Uuid) -> String {
    format!("dm-crypt/osd/{uuid}/")
}

/// What the input of `osd new` holds.
#[derive(Default)]
struct Secrets {
    cephx: Option<CryptoKey>,
    /// The lockbox's key, and what it opens.
    disk: Option<(CryptoKey, String)>,
    class: bool,
}

fn secrets(cmd: &Command) -> Result<Secrets, Outcome> {
    if cmd.inbuf.iter().all(u8::is_ascii_whitespace) {
        return Ok(Secrets::default());
    }
    let Ok(Value::Object(given)) = serde_json::from_slice::<Value>(&cmd.inbuf) else {
        return Err(Outcome::invalid("the input is not a JSON object of secrets"));
    };
    let text = |name: &str| given.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
    let key = |name: &str| match text(name).map(CryptoKey::from_text) {
        None => Ok(None),
        Some(Ok(key)) => Ok(Some(key)),
        Some(Err(e)) => Err(Outcome::invalid(format!("{name}: {e}"))),
    };
    let disk = match (key("cephx_lockbox_secret")?, text("dmcrypt_key")) {
        (None, None) => None,
        (Some(lockbox), Some(disk)) => Some((lockbox, disk.to_string())),
        _ => {
            return Err(Outcome::invalid(
                "requires both a cephx lockbox secret and a dm-crypt key.",
            ));
        }
    };
    let cephx = key("cephx_secret")?;
    if disk.is_some() && cephx.is_none() {
        return Err(Outcome::invalid("requires a cephx secret."));
    }
    let class = text("crush_device_class").is_some();
    Ok(Secrets { cephx, disk, class })
}

fn answer(cmd: &Command, id: OsdId) -> Outcome {
    cmd.either(|| serde_json::json!({"osdid": id}), || format!("{id}\n"))
}

fn the_uuid(cmd: &Command) -> Result<Uuid, Outcome> {
    let text = cmd.text("uuid");
    let uuid = text.parse::<Uuid>().ok().filter(|u| !u.is_nil());
    uuid.ok_or_else(|| Outcome::invalid(format!("invalid UUID value '{text}'.")))
}

fn holder(ctx: &Context<'_>, uuid: Uuid) -> Option<OsdId> {
    let map = ctx.map();
    map.osd_ids()
        .find(|id| map.osd(*id).is_some_and(|o| o.uuid == uuid))
}

/// A slot for the uuid in the map, the one that is wanted if one is. Err: the answer.
fn slot(ctx: &Context<'_>, uuid: Uuid, wanted: Option<i64>) -> Result<(OsdId, Changes), Outcome> {
    let map = ctx.map();
    let mut inc = ctx.inc();
    let full = || Outcome::error(Errno::ENOSPC, "the OSD map has no free slot");
    let Some(wanted) = wanted else {
        let id = inc.create_osd(map, uuid).ok_or_else(full)?;
        return Ok((id, Changes::map(inc)));
    };
    let possible = |id: &OsdId| (0..MAX_OSD_LIMIT as i32).contains(id);
    let Some(id) = OsdId::try_from(wanted).ok().filter(possible) else {
        return Err(Outcome::invalid(format!("osd.{wanted} is not a possible id")));
    };
    let state = map.osd(id).map_or(0, |o| o.state);
    if map.exists(id) && state & osd_state::DESTROYED == 0 {
        let why = format!("id {id} already in use and does not match uuid {uuid}");
        return Err(Outcome::invalid(why));
    }
    inc.create_osd_with_id(map, id, uuid);
    if map.exists(id) {
        // These bits are turned over, after its weight has taken "new" away: destroyed goes, new comes.
        inc.new_state.insert(id, osd_state::DESTROYED | osd_state::NEW);
    }
    Ok((id, Changes::map(inc)))
}

fn new(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    let (uuid, secrets) = match the_uuid(cmd).and_then(|u| Ok((u, secrets(cmd)?))) {
        Ok(given) => given,
        Err(refusal) => return refusal,
    };
    let (id, mut changes) = match holder(ctx, uuid) {
        Some(id) if cmd.int("id").is_some_and(|wanted| wanted != i64::from(id)) => {
            let why = format!("uuid {uuid} already in use for different id {id}");
            return Outcome::error(Errno::EEXIST, why);
        }
        Some(id) => (id, Changes::none()),
        None => match slot(ctx, uuid, cmd.int("id")) {
            Ok(made) => made,
            Err(refusal) => return refusal,
        },
    };
    let is_new = !changes.list.is_empty() || changes.osdmap.is_some();
    let entities = keys_of(id, uuid, &secrets);
    let same = |(name, e): &(AuthName, EntityAuth)| {
        let have = ctx.state.auth.get(name);
        have.is_some_and(|h| h.key.secret() == e.key.secret())
    };
    if !is_new && !entities.iter().all(same) {
        return Outcome::error(Errno::EEXIST, format!("osd.{id} exists but secrets do not match"));
    }
    if is_new {
        for (name, entity) in entities {
            let have = ctx.state.auth.get(&name);
            if have.is_some_and(|h| h.key.secret() != entity.key.secret()) {
                return Outcome::error(
                    Errno::EEXIST,
                    format!("entity {name} exists but key does not match"),
                );
            }
            let entity = match have {
                Some(have) => have.replaced_by(entity),
                None => entity,
            };
            changes.push(Change::AuthPut { name, entity });
        }
        if let Some((_, disk)) = &secrets.disk {
            changes.push(Change::ConfigKeySet {
                key: format!("{}luks", disk_keys(uuid)),
                value: Bytes::from(disk.clone()),
            });
        }
    }
    let said = match secrets.class {
        true => format!("note: osd.{id} says its device class itself when it boots"),
        false => String::new(),
    };
    answer(cmd, id).saying(said).with(changes)
}

/// The entities that the secrets are for, with the rights that they have in Ceph.
fn keys_of(id: OsdId, uuid: Uuid, secrets: &Secrets) -> Vec<(AuthName, EntityAuth)> {
    let entity = |key: &CryptoKey, caps: &[(&str, String)]| {
        let mut e = EntityAuth::new(key.clone());
        e.caps = caps.iter().map(|(s, c)| ((*s).to_string(), c.clone())).collect();
        e
    };
    let mut out = Vec::new();
    if let Some(key) = &secrets.cephx {
        let caps = [
            ("mgr", "allow profile osd".to_string()),
            ("mon", "allow profile osd".to_string()),
            ("osd", "allow *".to_string()),
        ];
        out.push((AuthName::new(EntityKind::Osd, id.to_string()), entity(key, &caps)));
    }
    if let Some((key, _)) = &secrets.disk {
        let cap = format!(
            "allow command \"config-key get\" with key=\"{}luks\"",
            disk_keys(uuid)
        );
        out.push((lockbox(uuid), entity(key, &[("mon", cap)])));
    }
    out
}

fn create(cmd: &Command, ctx: &Context<'_>) -> Outcome {
    // Without a uuid the real one looks at no id either.
    let (uuid, wanted) = match cmd.opt_text("uuid") {
        None => (Uuid::from_random(ctx.random.bytes()), None),
        Some(_) => match the_uuid(cmd) {
            Ok(uuid) => (uuid, cmd.int("id")),
            Err(refusal) => return refusal,
        },
    };
    match holder(ctx, uuid) {
        Some(id) if cmd.int("id").is_some_and(|wanted| wanted != i64::from(id)) => {
            let why = format!("uuid {uuid} already in use for different id {id}");
            Outcome::error(Errno::EEXIST, why)
        }
        Some(id) => answer(cmd, id),
        None => match slot(ctx, uuid, wanted) {
            Ok((id, changes)) => answer(cmd, id).with(changes),
            Err(refusal) => refusal,
        },
    }
}
