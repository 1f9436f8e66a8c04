//! Settings of files and directories, which clients set as attributes under `ceph.`: layouts, quotas, pins, subvolumes.

use super::{Answer, Request};
use crate::access::Wish;
use crate::machine::parts::caps::EVERY_F;
use crate::machine::{Machine, Result, Stop, Tx};
use crate::row::{Inode, Job, Key, ROOT, Row, job};
use bytes::Bytes;
use messages::fs::{Layout, cap};
use types::Errno;

const POLICY: Wish = Wish {
    write: true,
    policy: true,
    snapshot: false,
};
/// What a stripe unit is a multiple of.
const STRIPE_GRAIN: u32 = 64 << 10;
/// Ranks that a directory may be pinned to.
const PINS_MAX: i32 = 256;

type Parsed<T> = std::result::Result<T, Errno>;

impl Machine {
    pub(crate) fn setlayout(&mut self, r: &mut Request) -> Result<Answer> {
        let inode = self.live(r)?;
        let a = r.m.args;
        let layout = Layout {
            stripe_unit: a.u32_at(0),
            stripe_count: a.u32_at(4),
            object_size: a.u32_at(8),
            unused: [0; 3],
            pool: a.u32_at(24),
        };
        self.put_layout(r, &inode, layout, inode.pool_ns.clone())
    }

    /// `value` None: it is removed.
    pub(crate) fn set_setting(
        &mut self,
        r: &mut Request,
        name: &Bytes,
        value: Option<Bytes>,
    ) -> Result<Answer> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::EINVAL)?.to_string();
        let inode = self.live(r)?;
        self.check_access(r, &inode, None, POLICY)?;
        self.realms_of(&inode)?;
        // Whoever has all shared capabilities trusts its times.
        self.withhold(r, inode.ino, cap::XS | cap::XX, None)?;
        let inode = self.inode(inode.ino)?;
        let text = match &value {
            Some(v) => Some(
                std::str::from_utf8(v)
                    .map_err(|_| Errno::EINVAL)?
                    .trim_end_matches('\0'),
            ),
            None => None,
        };
        for kind in ["ceph.dir.layout", "ceph.file.layout"] {
            if let Some(rest) = name.strip_prefix(kind) {
                if (kind == "ceph.dir.layout") != inode.is_dir() {
                    return Err(Errno::EINVAL.into());
                }
                return self.set_layout_text(r, &inode, rest.trim_start_matches('.'), text);
            }
        }
        let mut changed = Inode::clone(&inode);
        match (name.as_str(), text) {
            ("ceph.quota" | "ceph.quota.max_bytes" | "ceph.quota.max_files", text) => {
                return self.set_quota(r, &inode, &name, text.unwrap_or("0"));
            }
            ("ceph.dir.pin", text) => {
                let pin: i32 = text.unwrap_or("-1").trim().parse().map_err(|_| Errno::EINVAL)?;
                if !inode.is_dir() || inode.ino == ROOT {
                    return Err(Errno::EINVAL.into());
                }
                if pin >= PINS_MAX {
                    return Err(Errno::EDOM.into());
                }
                changed.pin = pin.max(-1);
            }
            ("ceph.dir.pin.random" | "ceph.dir.pin.distributed", _) if inode.is_dir() => {}
            ("ceph.dir.subvolume", text) if inode.is_dir() => {
                changed.is_subvolume = matches!(text.map(str::trim), Some("1"));
            }
            _ => return Err(Errno::EINVAL.into()),
        }
        self.commit_changed(r, &inode, changed)
    }

    fn set_layout_text(
        &mut self,
        r: &mut Request,
        inode: &Inode,
        field: &str,
        text: Option<&str>,
    ) -> Result<Answer> {
        let (mut layout, mut ns) = match inode.is_dir() && !inode.layout.is_set() {
            true => self.inherited_layout(inode)?,
            false => (inode.layout, inode.pool_ns.clone()),
        };
        match (field, text) {
            ("", None) if inode.is_dir() => {
                if inode.ino == ROOT {
                    return Err(Errno::EINVAL.into());
                }
                if !inode.layout.is_set() {
                    return Err(Errno::ENODATA.into());
                }
                let mut changed = Inode::clone(inode);
                (changed.layout, changed.pool_ns) = (Layout::default(), String::new());
                return self.commit_changed(r, inode, changed);
            }
            ("pool_namespace", None) => ns.clear(),
            (_, None) => return Err(Errno::EINVAL.into()),
            ("" | "json", Some(text)) => {
                for (k, v) in pairs(text)? {
                    self.set_field(&mut layout, &mut ns, &k, &v)?;
                }
            }
            (field, Some(text)) => self.set_field(&mut layout, &mut ns, field, text)?,
        }
        self.put_layout(r, inode, layout, ns)
    }

    fn set_field(&self, layout: &mut Layout, ns: &mut String, field: &str, text: &str) -> Parsed<()> {
        let number = || text.trim().parse::<u32>().map_err(|_| Errno::EINVAL);
        match field {
            "stripe_unit" => layout.stripe_unit = number()?,
            "stripe_count" => layout.stripe_count = number()?,
            "object_size" => layout.object_size = number()?,
            "pool" | "pool_name" | "pool_id" => layout.pool = self.pool_named(text.trim())?,
            "pool_namespace" => *ns = text.to_string(),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn pool_named(&self, text: &str) -> Parsed<u32> {
        if let Ok(id) = text.parse::<u32>() {
            return Ok(id);
        }
        let found = self.pool_names.iter().find(|(_, n)| n.as_str() == text);
        found.map(|(id, _)| *id as u32).ok_or(Errno::EINVAL)
    }

    pub(crate) fn check_layout(&self, l: &Layout) -> Result<()> {
        let good = l.stripe_unit > 0
            && l.stripe_count > 0
            && l.object_size > 0
            && l.stripe_unit.is_multiple_of(STRIPE_GRAIN)
            && l.object_size.is_multiple_of(l.stripe_unit)
            && self.place.data_pools.contains(&i64::from(l.pool));
        match good {
            true => Ok(()),
            false => Err(Errno::EINVAL.into()),
        }
    }

    fn put_layout(&mut self, r: &mut Request, inode: &Inode, layout: Layout, ns: String) -> Result<Answer> {
        self.check_layout(&layout)?;
        self.check_access(r, inode, None, POLICY)?;
        // Who has a file open learns of it before writing anything.
        let back = if inode.is_file() {
            EVERY_F
        } else {
            cap::XS | cap::XX
        };
        self.withhold(r, inode.ino, back, None)?;
        let inode = self.inode(inode.ino)?;
        if !inode.is_dir() && !inode.is_file() {
            return Err(Errno::EINVAL.into());
        }
        if inode.is_file() && (inode.size > 0 || inode.truncate_seq > 1) {
            return Err(Errno::ENOTEMPTY.into());
        }
        if self.traces.is_running(inode.ino) {
            // It would be written where the object was.
            self.caps.entry(inode.ino).or_default().wait(r.id);
            return Err(Stop::Wait);
        }
        let mut changed = Inode::clone(&inode);
        (changed.layout, changed.pool_ns) = (layout, ns);
        if changed.max_size > 0 {
            changed.max_size = Self::first_room(&changed);
        }
        let mut tx = Tx::default();
        self.mark_trace(&mut tx, &changed);
        let moved = (inode.layout.pool, &inode.pool_ns) != (changed.layout.pool, &changed.pool_ns);
        if inode.is_file() && moved {
            // The empty object that says its name, or that a client tried its rights by, is not found any more.
            let (snap_seq, snaps) = self.snap_context(&inode);
            let purge = Job {
                kind: job::PURGE,
                ino: inode.ino,
                layout: inode.layout,
                pool_ns: inode.pool_ns.clone(),
                snap_seq,
                snaps,
                ..Job::default()
            };
            self.new_job(&mut tx, purge);
        }
        let answer = self.commit_changed_with(r, &inode, changed, tx)?;
        self.start_jobs();
        Ok(answer)
    }

    fn set_quota(&mut self, r: &mut Request, inode: &Inode, name: &str, text: &str) -> Result<Answer> {
        if !inode.is_dir() {
            return Err(Errno::EINVAL.into());
        }
        let mut changed = Inode::clone(inode);
        let number = |t: &str| match t.trim().parse::<i64>() {
            Ok(n) if n >= 0 => Ok(n),
            _ => Err(Errno::EINVAL),
        };
        match name {
            "ceph.quota.max_bytes" => changed.quota.max_bytes = number(text)?,
            "ceph.quota.max_files" => changed.quota.max_files = number(text)?,
            _ if text.trim() == "0" => changed.quota = Default::default(),
            _ => {
                for (k, v) in pairs(text)? {
                    match k.as_str() {
                        "max_bytes" => changed.quota.max_bytes = number(&v)?,
                        "max_files" => changed.quota.max_files = number(&v)?,
                        _ => return Err(Errno::EINVAL.into()),
                    }
                }
            }
        }
        let mut tx = Tx::default();
        let new_realm = changed.has_quota() && inode.realm_seq == 0;
        if new_realm {
            changed.realm_seq = 1;
            changed.realm_created = 1;
            self.realms.insert(inode.ino);
            tx.put(Key::Realm(inode.ino), Row::Mark);
        }
        self.keep_inode(&mut tx, inode)?;
        super::attributes::touched(&mut changed, r.stamp());
        tx.inode(changed);
        self.commit_request(r, tx, 0);
        if new_realm {
            self.send_split(inode.ino);
        }
        let ended = inode.has_quota();
        let inode = self.inode(inode.ino)?;
        if ended && !inode.has_quota() {
            self.send_quota(&inode);
        }
        self.tell_quota(inode.ino);
        Ok(self.target(r, &inode))
    }

    /// What clients do not know themselves.
    pub(crate) fn setting_text(&mut self, inode: &Inode, name: &str) -> Result<String> {
        let own = inode.layout.is_set() && (inode.ino != ROOT);
        for kind in ["ceph.dir.layout.", "ceph.file.layout."] {
            let Some(field) = name.strip_prefix(kind) else {
                continue;
            };
            let (l, ns) = match inode.layout.is_set() {
                true => (inode.layout, inode.pool_ns.clone()),
                false => self.inherited_layout(inode)?,
            };
            let pool = self
                .pool_names
                .get(&i64::from(l.pool))
                .cloned()
                .unwrap_or_default();
            return match field {
                "json" => Ok(serde_json::json!({
                    "stripe_unit": l.stripe_unit,
                    "stripe_count": l.stripe_count,
                    "object_size": l.object_size,
                    "pool_name": pool,
                    "pool_id": l.pool,
                    "pool_namespace": ns,
                    "inheritance": if own { "@set" } else if inode.ino == ROOT { "@default" } else { "@inherited" },
                })
                .to_string()),
                "pool_id" => Ok(l.pool.to_string()),
                "pool_name" => Ok(pool),
                _ => Err(Errno::ENODATA.into()),
            };
        }
        match name {
            "ceph.dir.subvolume" if inode.is_dir() => Ok(u8::from(inode.is_subvolume).to_string()),
            _ => Err(Errno::ENODATA.into()),
        }
    }
}

/// `k=v k=v`, or a JSON object.
fn pairs(text: &str) -> Parsed<Vec<(String, String)>> {
    if text.trim_start().starts_with('{') {
        let v: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|_| Errno::EINVAL)?;
        let plain = |v: serde_json::Value| match v {
            serde_json::Value::String(s) => s,
            other => other.to_string(),
        };
        return Ok(v.into_iter().map(|(k, v)| (k, plain(v))).collect());
    }
    let one = |part: &str| {
        let (k, v) = part.split_once('=')?;
        Some((k.to_string(), v.to_string()))
    };
    let all: Option<Vec<_>> = text.split_whitespace().map(one).collect();
    all.filter(|a| !a.is_empty()).ok_or(Errno::EINVAL)
}
