//! What a client that listed a bucket found out about entries whose changes were never completed.

use super::header::{load_header, save_header};
use super::index::find;
use super::log::{self, COMPLETE};
use super::types::{DirEntry, Header, LogEntry};
use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done};
use bytes::Bytes;
use types::{Errno, Utime};

const REMOVE: u8 = b'r';
const UPDATE: u8 = b'u';
/// With either: the change is noted in the log.
const LOGGED: u8 = 0x80;
/// After so long an announced change is given up, where the header does not say another time.
const TAG_TIMEOUT_S: u64 = 120;

/// Suggestions one behind the other, each a kind and an entry. Those about an entry that is being changed are passed over.
pub fn suggest(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let mut header = load_header(object)?;
    let mut changed = false;
    let mut seen = std::collections::BTreeSet::new();
    while let Some(kind) = input.optional::<u8>()? {
        let given: DirEntry = input.get()?;
        let (at, here) = find(object, &given.key)?;
        // Rows are read as they were before the call: a second suggestion for one waits for the next.
        if seen.contains(&at) {
            continue;
        }
        changed |= apply(object, &mut header, kind, given, &at, here)?;
        seen.insert(at);
    }
    if changed {
        save_header(object, &mut header)?;
    }
    done()
}

fn is_over(since: Utime, timeout_s: u64, now: Utime) -> bool {
    u64::from(since.sec).saturating_add(timeout_s) < u64::from(now.sec)
}

/// Whether the header has changed.
fn apply(
    object: &mut Object<'_>,
    header: &mut Header,
    kind: u8,
    given: DirEntry,
    at: &Bytes,
    here: Option<DirEntry>,
) -> Result<bool> {
    let Some(mut here) = here else { return Ok(false) };
    let timeout_s = match header.tag_timeout {
        0 => TAG_TIMEOUT_S,
        seconds => seconds,
    };
    let now = object.now();
    let before = here.pending.len();
    here.pending.retain(|(_, p)| !is_over(p.since, timeout_s, now));
    if !here.pending.is_empty() {
        if here.pending.len() < before {
            object.set(at, &here)?;
        }
        return Ok(false);
    }
    if here.index_ver > given.index_ver {
        // It has changed since the client saw it.
        return Ok(false);
    }
    match kind & !LOGGED {
        REMOVE => {
            if here.exists {
                header.uncount(&here.meta);
            }
            object.unset(at)?;
            let logged = note(object, header, kind, &here, 1)?;
            Ok(here.exists || logged)
        }
        UPDATE => {
            if here.exists {
                header.uncount(&here.meta);
            }
            header.count(&given.meta);
            let entry = DirEntry {
                index_ver: header.ver,
                exists: true,
                ..given
            };
            object.set(at, &entry)?;
            note(object, header, kind, &entry, 0)?;
            Ok(true)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn note(object: &mut Object<'_>, header: &mut Header, kind: u8, entry: &DirEntry, op: u8) -> Result<bool> {
    if kind & LOGGED == 0 || header.log_stopped {
        return Ok(false);
    }
    let entry = LogEntry {
        name: entry.key.name.clone(),
        instance: entry.key.instance.clone(),
        mtime: entry.meta.mtime,
        ver: entry.ver,
        tag: entry.tag.clone(),
        op,
        state: COMPLETE,
        index_ver: header.ver,
        ..LogEntry::default()
    };
    log::append(object, header, entry)?;
    Ok(true)
}
