//! Class `journal`: metadata and appends of an image's journal (docs/protocol/ceph/05-rbd.md, section 7).
//!
//! Vocabulary: a *tag* groups journal entries written under one circumstance, e.g. one lock owner; tags of a
//! *class* succeed each other. A *client* replays the journal and commits how far it came: one *position*
//! (object, tag, entry) for each of the `splay_width` objects written in turn, newest first.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, Scan, done, key, list_max, out, stored};
use bytes::Bytes;
use denc::{Encode, envelope_denc};
use std::collections::BTreeMap;
use types::Errno;

pub const METHODS: &[Method] = &[
    Method::rw("create", create),
    Method::r("get_order", get_order),
    Method::r("get_splay_width", get_splay_width),
    Method::r("get_pool_id", get_pool_id),
    Method::r("get_minimum_set", get_minimum_set),
    Method::rw("set_minimum_set", set_minimum_set),
    Method::r("get_active_set", get_active_set),
    Method::rw("set_active_set", set_active_set),
    Method::r("get_client", get_client),
    Method::rw("client_register", client_register),
    Method::rw("client_update_data", client_update_data),
    Method::rw("client_update_state", client_update_state),
    Method::rw("client_unregister", client_unregister),
    Method::rw("client_commit", client_commit),
    Method::r("client_list", client_list),
    Method::r("get_next_tag_tid", get_next_tag_tid),
    Method::r("get_tag", get_tag),
    Method::rw("tag_create", tag_create),
    Method::r("tag_list", tag_list),
    Method::rw("guard_append", guard_append),
    Method::rw("append", append),
];

const ORDER: &[u8] = b"order";
const SPLAY_WIDTH: &[u8] = b"splay_width";
const POOL_ID: &[u8] = b"pool_id";
const MINIMUM_SET: &[u8] = b"minimum_set";
const ACTIVE_SET: &[u8] = b"active_set";
const NEXT_TAG_TID: &[u8] = b"next_tag_tid";
const NEXT_TAG_CLASS: &[u8] = b"next_tag_class";
const CLIENT: &[u8] = b"client_";
const TAG: &[u8] = b"tag_";

/// Asks `tag_create` for a class of its own.
const TAG_CLASS_NEW: u64 = u64::MAX;
const STATE_DISCONNECTED: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    object_number: u64,
    tag_tid: u64,
    entry_tid: u64,
}
envelope_denc!(Position, 1, 1, { object_number, tag_tid, entry_tid });

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SetPosition {
    positions: Vec<Position>,
}
envelope_denc!(SetPosition, 1, 1, { positions });

impl SetPosition {
    fn oldest_tag(&self) -> Option<u64> {
        self.positions.iter().map(|p| p.tag_tid).min()
    }

    /// The order of sets: by the newest entry; an empty one comes first.
    fn rank(&self) -> Option<(u64, u64)> {
        self.positions.first().map(|p| (p.tag_tid, p.entry_tid))
    }
}

#[derive(Debug, Clone)]
struct Client {
    id: Bytes,
    data: Bytes,
    commit: SetPosition,
    state: u8,
}
envelope_denc!(Client, 1, 1, { id, data, commit, state });

#[derive(Debug, Clone)]
struct Tag {
    tid: u64,
    class: u64,
    data: Bytes,
}
envelope_denc!(Tag, 1, 1, { tid, class, data });

fn tag_key(tid: u64) -> Bytes {
    key(TAG, format!("{tid:016x}").as_bytes())
}

fn client_key(id: &[u8]) -> Bytes {
    key(CLIENT, id)
}

fn create(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (order, splay_width, pool_id): (u8, u8, i64) = (input.get()?, input.get()?, input.get()?);
    if object.has(ORDER)? {
        return Err(Errno::EEXIST);
    }
    let zero = 0u64.to_bytes();
    let rows = [
        (ORDER, order.to_bytes()),
        (SPLAY_WIDTH, splay_width.to_bytes()),
        (POOL_ID, pool_id.to_bytes()),
        (MINIMUM_SET, zero.clone()),
        (ACTIVE_SET, zero.clone()),
        (NEXT_TAG_TID, zero.clone()),
        (NEXT_TAG_CLASS, zero),
    ];
    let rows = rows.map(|(k, v)| (Bytes::from_static(k), v));
    object.set_rows(rows.into())?;
    done()
}

fn get_order(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<u8>(ORDER)?)
}

fn get_splay_width(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<u8>(SPLAY_WIDTH)?)
}

fn get_pool_id(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<i64>(POOL_ID)?)
}

fn get_minimum_set(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<u64>(MINIMUM_SET)?)
}

fn get_active_set(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<u64>(ACTIVE_SET)?)
}

fn get_next_tag_tid(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    out(&object.need::<u64>(NEXT_TAG_TID)?)
}

/// Sets never go backwards: ESTALE.
fn advance(object: &mut Object<'_>, key: &[u8], wanted: u64) -> Result<Bytes> {
    let have: u64 = object.need(key)?;
    if wanted < have {
        return Err(Errno::ESTALE);
    }
    if wanted > have {
        object.set(key, &wanted)?;
    }
    done()
}

fn set_minimum_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let wanted: u64 = input.get()?;
    if wanted > object.need(ACTIVE_SET)? {
        return Err(Errno::EINVAL);
    }
    advance(object, MINIMUM_SET, wanted)
}

fn set_active_set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let wanted: u64 = input.get()?;
    if wanted < object.need(MINIMUM_SET)? {
        return Err(Errno::EINVAL);
    }
    advance(object, ACTIVE_SET, wanted)
}

fn get_client(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    out(&object.need::<Client>(&client_key(&id))?)
}

fn clients(object: &mut Object<'_>) -> Result<Vec<Client>> {
    client_page(object, b"", u64::MAX)
}

/// Clients behind an id; "" is from the beginning, with the client whose id is empty.
fn client_page(object: &mut Object<'_>, start_after: &[u8], max: u64) -> Result<Vec<Client>> {
    let max = list_max(max);
    let start = match start_after {
        b"" => Bytes::new(),
        id => client_key(id),
    };
    let mut clients = Vec::new();
    object.scan(CLIENT, &start, |_, value| {
        if clients.len() >= max {
            return Ok(Scan::Stop);
        }
        clients.push(stored(value)?);
        Ok(Scan::Next)
    })?;
    Ok(clients)
}

fn client_register(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, data): (Bytes, Bytes) = input.get()?;
    let key = client_key(&id);
    if !object.has(ORDER)? {
        return Err(Errno::ENOENT);
    }
    if object.has(&key)? {
        return Err(Errno::EEXIST);
    }
    // `None` ranks lowest: one client that has committed nothing makes the newcomer start at nothing, too.
    let connected = clients(object)?
        .into_iter()
        .filter(|c| c.state != STATE_DISCONNECTED);
    let first = connected.min_by_key(|c| c.commit.rank());
    let client = Client {
        id,
        data,
        commit: first.map(|c| c.commit).unwrap_or_default(),
        state: 0,
    };
    object.set(&key, &client)?;
    done()
}

fn update_client(object: &mut Object<'_>, id: &[u8], change: impl FnOnce(&mut Client)) -> Result<Bytes> {
    let key = client_key(id);
    let mut client: Client = object.need(&key)?;
    change(&mut client);
    object.set(&key, &client)?;
    done()
}

fn client_update_data(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, data): (Bytes, Bytes) = input.get()?;
    update_client(object, &id, |c| c.data = data)
}

fn client_update_state(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, state): (Bytes, u8) = input.get()?;
    update_client(object, &id, |c| c.state = state)
}

fn client_unregister(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let id: Bytes = input.get()?;
    let key = client_key(&id);
    if !object.has(&key)? {
        return Err(Errno::ENOENT);
    }
    object.unset(&key)?;
    prune_tags(object, Some(&id))?;
    done()
}

fn client_commit(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, commit): (Bytes, SetPosition) = input.get()?;
    if commit.positions.len() > usize::from(object.need::<u8>(SPLAY_WIDTH)?) {
        return Err(Errno::EINVAL);
    }
    let key = client_key(&id);
    let mut client: Client = object.need(&key)?;
    if client.commit != commit {
        client.commit = commit;
        object.set(&key, &client)?;
    }
    done()
}

fn client_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (Bytes, u64) = input.get()?;
    out(&client_page(object, &start_after, max)?)
}

fn get_tag(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let tid: u64 = input.get()?;
    out(&object.need::<Tag>(&tag_key(tid))?)
}

/// Removes the tags that no connected client needs any more: of each class those older than its newest tag
/// among the tags up to the oldest one that a client's commit position names. `leaving` is not counted.
fn prune_tags(object: &mut Object<'_>, leaving: Option<&Bytes>) -> Result<()> {
    let mut needed = None;
    for client in clients(object)? {
        if client.state == STATE_DISCONNECTED || Some(&client.id) == leaving {
            continue;
        }
        let Some(oldest) = client.commit.oldest_tag() else {
            return Ok(());
        };
        needed = Some(needed.map_or(oldest, |n: u64| n.min(oldest)));
    }
    let Some(needed) = needed else { return Ok(()) };
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    let mut surplus = Vec::new();
    object.scan(TAG, b"", |_, value| {
        let tag: Tag = stored(value)?;
        if tag.tid > needed {
            return Ok(Scan::Stop);
        }
        if let Some(older) = newest.insert(tag.class, tag.tid) {
            surplus.push(tag_key(older));
        }
        Ok(Scan::Next)
    })?;
    if surplus.is_empty() {
        return Ok(());
    }
    object.unset_keys(surplus)
}

fn tag_create(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (tid, class, data): (u64, u64, Bytes) = (input.get()?, input.get()?, input.get()?);
    if object.has(&tag_key(tid))? {
        return Err(Errno::EEXIST);
    }
    if tid != object.need::<u64>(NEXT_TAG_TID)? {
        return Err(Errno::ESTALE);
    }
    let next_class: u64 = object.need(NEXT_TAG_CLASS)?;
    let class = if class == TAG_CLASS_NEW {
        object.set(NEXT_TAG_CLASS, &next_class.wrapping_add(1))?;
        next_class
    } else if class < next_class {
        class
    } else {
        return Err(Errno::EINVAL);
    };
    prune_tags(object, None)?;
    object.set(NEXT_TAG_TID, &tid.wrapping_add(1))?;
    object.set(&tag_key(tid), &Tag { tid, class, data })?;
    done()
}

fn tag_list(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (start_after, max): (u64, u64) = input.get()?;
    let (client_id, only_class): (Bytes, Option<u64>) = input.get()?;
    let client: Client = object.need(&client_key(&client_id))?;
    let committed = client.commit.oldest_tag();
    let max = list_max(max);
    let start = match start_after {
        0 => Bytes::new(),
        tid => tag_key(tid),
    };
    let mut tags: BTreeMap<u64, Tag> = BTreeMap::new();
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    object.scan(TAG, &start, |_, value| {
        let tag: Tag = stored(value)?;
        let replayed = committed.is_some_and(|c| tag.tid <= c);
        if tags.len() >= max && !replayed {
            return Ok(Scan::Stop);
        }
        if only_class.is_none_or(|c| c == tag.class) {
            if replayed && let Some(older) = newest.insert(tag.class, tag.tid) {
                tags.remove(&older);
            }
            tags.insert(tag.tid, tag);
        }
        Ok(Scan::Next)
    })?;
    out(&tags.into_values().take(max).collect::<Vec<_>>())
}

fn check_size(size: u64, soft_max: u64) -> Result<()> {
    if size < soft_max {
        Ok(())
    } else {
        Err(Errno::EOVERFLOW)
    }
}

fn guard_append(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let soft_max: u64 = input.get()?;
    if let Some(stat) = object.stat()? {
        check_size(stat.size, soft_max)?;
    }
    done()
}

/// Appends without padding, which every client handles.
fn append(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (soft_max, data): (u64, Bytes) = input.get()?;
    let end = object.stat()?.map_or(0, |stat| stat.size);
    check_size(end, soft_max)?;
    object.write(end, data)?;
    done()
}
