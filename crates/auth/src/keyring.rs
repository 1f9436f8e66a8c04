//! Keyring files: INI text with one section per entity, as every Ceph client reads it
//! (docs/protocol/ceph/01-messenger.md, 6.11).
//!
//! Values may be quoted with `"` (with `\"` and `\\` inside); `caps_mon` and `caps mon` are the same
//! name; `#` and `;` begin a comment line. A `pending key` is read, for keyrings of newer Cephs. Printing is what
//! `ceph auth get` prints.

use crate::{CryptoKey, EntityAuth, KeyDb};
use std::collections::BTreeMap;
use types::AuthName;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("keyring line {line}: {what}")]
pub struct KeyringError {
    pub line: usize,
    pub what: String,
}

struct Section {
    name: AuthName,
    line: usize,
    key: Option<CryptoKey>,
    pending: Option<CryptoKey>,
    caps: BTreeMap<String, String>,
}

/// Reads all sections; a section without a key is an error.
pub fn parse_keyring(text: &str) -> Result<KeyDb, KeyringError> {
    let mut db = KeyDb::default();
    let mut open: Option<Section> = None;
    for (i, raw) in text.lines().enumerate() {
        let fail = |what: String| KeyringError { line: i + 1, what };
        let line = raw.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            close(&mut db, open.take())?;
            let name = rest.strip_suffix(']').map(str::trim);
            let name = name.and_then(|n| n.parse().ok());
            let name = name.ok_or_else(|| fail(format!("'{line}' names no entity")))?;
            open = Some(Section {
                name,
                line: i + 1,
                key: None,
                pending: None,
                caps: BTreeMap::new(),
            });
            continue;
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| fail(format!("'{line}' is not name = value")))?;
        let section = open
            .as_mut()
            .ok_or_else(|| fail("value before the first section".into()))?;
        let name = name.trim().replace('_', " ");
        let value = unquote(value.trim()).ok_or_else(|| fail("quote without end".into()))?;
        match name.split_once(' ') {
            None if name == "key" => {
                let key = CryptoKey::from_text(&value).map_err(|e| fail(format!("key: {e}")))?;
                section.key = Some(key);
            }
            Some(("pending", "key")) => {
                let key = CryptoKey::from_text(&value).map_err(|e| fail(format!("pending key: {e}")))?;
                section.pending = Some(key);
            }
            Some(("caps", service)) => {
                section.caps.insert(service.trim().to_string(), value);
            }
            // Real keyrings carry "auid" here; whatever else stands there concerns nobody we know.
            _ => {}
        }
    }
    close(&mut db, open)?;
    Ok(db)
}

fn close(db: &mut KeyDb, section: Option<Section>) -> Result<(), KeyringError> {
    let Some(s) = section else { return Ok(()) };
    let key = s.key.ok_or_else(|| KeyringError {
        line: s.line,
        what: format!("{} has no key", s.name),
    })?;
    let entity = EntityAuth {
        caps: s.caps,
        pending: s.pending,
        ..EntityAuth::new(key)
    };
    db.entities.insert(s.name, entity);
    Ok(())
}

fn unquote(v: &str) -> Option<String> {
    let Some(inner) = v.strip_prefix('"') else {
        return Some(v.to_string());
    };
    let mut out = String::new();
    let mut chars = inner.chars();
    loop {
        match chars.next()? {
            '"' => return Some(out),
            '\\' => out.push(chars.next()?),
            c => out.push(c),
        }
    }
}

/// One section, tab-indented, capabilities sorted by service.
pub fn print_section(name: &AuthName, entity: &EntityAuth) -> String {
    let mut out = format!("[{name}]\n\tkey = {}\n", entity.key.to_text());
    for (service, text) in &entity.caps {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        out.push_str(&format!("\tcaps {service} = \"{text}\"\n"));
    }
    out
}

pub fn print_keyring(db: &KeyDb) -> String {
    db.entities.iter().map(|(n, e)| print_section(n, e)).collect()
}
