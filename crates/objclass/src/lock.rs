//! Class `lock`: advisory locks on an object, kept in the xattr `lock.<name>`
//! (docs/protocol/ceph/05-rbd.md, section 6).
//!
//! Vocabulary: a *locker* is an entity and a cookie; the *tag* names the purpose that all lockers of a lock
//! share; an *ephemeral* lock takes its object with it when it is released.
//!
//! A locker's expiration (0: never) is looked at whenever the lock is read: who is past it is no locker any
//! more. The xattr stays behind the last unlock, with the type and tag that it had. Who calls is taken from
//! the connection, never from the input, and recorded with a legacy address: that is what clients print and
//! pass to `osd blocklist add`.

use crate::context::{Caller, Result};
use crate::input::Input;
use crate::method::Method;
use crate::object::{Object, done, out};
use bytes::Bytes;
use denc::{Decode, Reader, envelope_denc};
use std::collections::BTreeMap;
use types::{AddrKind, EntityAddr, EntityName, Errno, Utime};

pub const METHODS: &[Method] = &[
    Method::rw("lock", lock),
    Method::rw("unlock", unlock),
    Method::rw("break_lock", break_lock),
    Method::r("get_info", get_info),
    Method::r("list_locks", list_locks),
    Method::r("assert_locked", assert_locked),
    Method::rw("set_cookie", set_cookie),
];

const XATTR_PREFIX: &[u8] = b"lock.";

const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;
const EXCLUSIVE_EPHEMERAL: u8 = 3;

const MAY_RENEW: u8 = 1;
const MUST_RENEW: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockerId {
    pub entity: EntityName,
    pub cookie: Bytes,
}
envelope_denc!(LockerId, 1, 1, { entity, cookie });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockerInfo {
    pub expiration: Utime,
    pub addr: EntityAddr,
    pub description: Bytes,
}
envelope_denc!(LockerInfo, 1, 1, { expiration, addr, description });

/// A lock as its xattr and `get_info` show it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockInfo {
    pub lockers: BTreeMap<LockerId, LockerInfo>,
    pub kind: u8,
    pub tag: Bytes,
}
envelope_denc!(LockInfo, 1, 1, { lockers, kind, tag });

/// A locker, for those who tell people about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    pub entity: EntityName,
    pub cookie: Bytes,
    /// Where it was when it took the lock.
    pub addr: EntityAddr,
}

/// The user attribute in which a lock is kept.
pub fn lock_attr(name: &[u8]) -> Vec<u8> {
    xattr_name(name)
}

/// The lock's name in the input of `lock`; None: it cannot be read.
pub fn lock_name(input: &Bytes) -> Option<Bytes> {
    Input::new(input.clone()).envelope(Bytes::decode).ok()
}

/// Who holds the lock that the attribute describes, at `now`; nobody, if it cannot be read.
pub fn lock_holders(attr: &Bytes, now: Utime) -> Vec<LockHolder> {
    let Ok(info) = LockInfo::decode(&mut Reader::new(attr.clone())) else {
        return Vec::new();
    };
    let lives = |l: &LockerInfo| l.expiration.is_zero() || l.expiration >= now;
    let holders = info.lockers.into_iter().filter(|(_, l)| lives(l));
    holders
        .map(|(id, l)| LockHolder {
            entity: id.entity,
            cookie: id.cookie,
            addr: l.addr,
        })
        .collect()
}

struct Names {
    names: Vec<Bytes>,
}
envelope_denc!(Names, 1, 1, { names });

fn xattr_name(name: &[u8]) -> Vec<u8> {
    [XATTR_PREFIX, name].concat()
}

/// The lock without its expired lockers; empty if there is none.
fn load(object: &mut Object<'_>, name: &[u8]) -> Result<LockInfo> {
    let mut info: LockInfo = object.xattr(&xattr_name(name))?.unwrap_or_default();
    let now = object.now();
    info.lockers
        .retain(|_, l| l.expiration.is_zero() || l.expiration >= now);
    Ok(info)
}

fn store(object: &mut Object<'_>, name: &[u8], info: &LockInfo) -> Result<()> {
    object.set_xattr(&xattr_name(name), info)
}

fn check_kind_and_name(kind: u8, name: &[u8]) -> Result<()> {
    match kind {
        EXCLUSIVE | SHARED | EXCLUSIVE_EPHEMERAL if !name.is_empty() => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

fn locker_of(caller: &Caller, cookie: Bytes) -> LockerId {
    LockerId {
        entity: caller.name,
        cookie,
    }
}

/// `duration` from `now` on; seconds stop at the end of time.
fn expiration(now: Utime, duration: Utime) -> Utime {
    if duration.is_zero() {
        return Utime::ZERO;
    }
    let sum = now.to_duration().saturating_add(duration.to_duration());
    Utime {
        sec: u32::try_from(sum.as_secs()).unwrap_or(u32::MAX),
        nsec: sum.subsec_nanos(),
    }
}

fn lock(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (name, kind, cookie, tag, description, duration, flags) = input.envelope(|r| {
        let head = (r.get::<Bytes>()?, r.u8()?, r.get::<Bytes>()?, r.get::<Bytes>()?);
        let (name, kind, cookie, tag) = head;
        Ok((
            name,
            kind,
            cookie,
            tag,
            r.get::<Bytes>()?,
            r.get::<Utime>()?,
            r.u8()?,
        ))
    })?;
    check_kind_and_name(kind, &name)?;
    if flags & MAY_RENEW != 0 && flags & MUST_RENEW != 0 {
        return Err(Errno::EINVAL);
    }
    let mut info = load(object, &name)?;
    if info.lockers.is_empty() && info.kind == EXCLUSIVE_EPHEMERAL && object.exists()? {
        // Its last locker expired (a released one took the object along): the object goes before it is locked anew.
        object.remove()?;
    }
    if !info.lockers.is_empty() && info.tag != tag {
        return Err(Errno::EBUSY);
    }
    let caller = object.caller();
    let id = locker_of(&caller, cookie);
    let held = info.lockers.remove(&id).is_some();
    if held && flags & (MAY_RENEW | MUST_RENEW) == 0 {
        return Err(Errno::EEXIST);
    }
    if !held && flags & MUST_RENEW != 0 {
        return Err(Errno::ENOENT);
    }
    if !info.lockers.is_empty() && (kind != SHARED || info.kind != kind) {
        return Err(Errno::EBUSY);
    }
    info.kind = kind;
    info.tag = tag;
    let locker = LockerInfo {
        expiration: expiration(object.now(), duration),
        addr: EntityAddr {
            kind: AddrKind::Legacy,
            ..caller.addr
        },
        description,
    };
    info.lockers.insert(id, locker);
    store(object, &name, &info)?;
    done()
}

fn remove_locker(object: &mut Object<'_>, name: &[u8], id: &LockerId) -> Result<Bytes> {
    let mut info = load(object, name)?;
    info.lockers.remove(id).ok_or(Errno::ENOENT)?;
    if info.lockers.is_empty() && info.kind == EXCLUSIVE_EPHEMERAL {
        object.remove()?;
    } else {
        store(object, name, &info)?;
    }
    done()
}

fn unlock(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (name, cookie) = input.envelope(<(Bytes, Bytes)>::decode)?;
    let id = locker_of(&object.caller(), cookie);
    remove_locker(object, &name, &id)
}

fn break_lock(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (name, entity, cookie) = input.envelope(|r| Ok((r.get::<Bytes>()?, r.get()?, r.get()?)))?;
    remove_locker(object, &name, &LockerId { entity, cookie })
}

fn get_info(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let name = input.envelope(Bytes::decode)?;
    out(&load(object, &name)?)
}

fn list_locks(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let xattrs = object.xattrs()?;
    let names = xattrs
        .iter()
        .filter(|(name, _)| name.starts_with(XATTR_PREFIX))
        .map(|(name, _)| name.slice(XATTR_PREFIX.len()..))
        .collect();
    out(&Names { names })
}

/// What a caller claims to hold.
struct Claim {
    name: Bytes,
    kind: u8,
    cookie: Bytes,
    tag: Bytes,
}

impl Claim {
    fn read(r: &mut Reader) -> denc::Result<Self> {
        Ok(Self {
            name: r.get()?,
            kind: r.u8()?,
            cookie: r.get()?,
            tag: r.get()?,
        })
    }

    /// The lock and the caller's entry in it, if it holds exactly what it claims; else EBUSY.
    fn check(self, object: &mut Object<'_>) -> Result<(Bytes, LockInfo, LockerId)> {
        check_kind_and_name(self.kind, &self.name)?;
        object.must_exist()?;
        let info = load(object, &self.name)?;
        let id = locker_of(&object.caller(), self.cookie);
        if info.kind != self.kind || info.tag != self.tag || !info.lockers.contains_key(&id) {
            return Err(Errno::EBUSY);
        }
        Ok((self.name, info, id))
    }
}

fn assert_locked(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    input.envelope(Claim::read)?.check(object)?;
    done()
}

fn set_cookie(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (claim, new_cookie) = input.envelope(|r| Ok((Claim::read(r)?, r.get::<Bytes>()?)))?;
    let (name, mut info, id) = claim.check(object)?;
    let new_id = LockerId {
        entity: id.entity,
        cookie: new_cookie,
    };
    if info.lockers.contains_key(&new_id) {
        return Err(Errno::EBUSY);
    }
    if let Some(locker) = info.lockers.remove(&id) {
        info.lockers.insert(new_id, locker);
    }
    store(object, &name, &info)?;
    done()
}
