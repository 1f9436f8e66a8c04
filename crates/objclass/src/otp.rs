//! Class `otp`: devices that make one-time codes, and attempts at them, in one object (docs/protocol/classes.md). radosgw asks
//! for such a code before it lets a version of an object be removed.

use crate::context::Result;
use crate::input::Input;
use crate::method::Method;
use crate::object::{LIST_MAX, Object, done, key, out};
use auth::totp;
use bytes::Bytes;
use denc::{Decode, envelope_denc};
use std::collections::{BTreeMap, BTreeSet};
use types::{Errno, Utime};

pub const METHODS: &[Method] = &[
    Method::r("get_current_time", get_current_time),
    Method::rw("otp_check", check),
    Method::r("otp_get", get),
    Method::r("otp_get_result", get_result),
    Method::rw("otp_remove", remove),
    Method::rw("otp_set", set),
];

const LIST: &[u8] = b"header";
const PREFIX: &[u8] = b"otp/";
/// A kind of seed; all others are hexadecimal.
const BASE32: u8 = 2;
/// Attempts at a device within one step; others are not looked at.
const ATTEMPTS_MAX: usize = 5;

struct Device {
    /// 2: codes by the time. Nothing else is looked at for others, either.
    kind: u8,
    id: Bytes,
    seed: Bytes,
    seed_kind: u8,
    /// The seed's bytes, which the server fills in.
    secret: Bytes,
    offset: i32,
    /// In seconds.
    step: u32,
    /// Steps before and after the present whose codes are good.
    window: u32,
}
envelope_denc!(Device, 1, 1, { kind, id, seed, seed_kind, secret, offset, step, window });

/// How an attempt ended.
mod outcome {
    /// Nobody knows it, or it was one too many.
    pub const UNKNOWN: u8 = 0;
    pub const RIGHT: u8 = 1;
    pub const WRONG: u8 = 2;
}

#[derive(Clone)]
struct Attempt {
    /// By which its client finds it again.
    token: Bytes,
    time: Utime,
    outcome: u8,
}
envelope_denc!(Attempt, 1, 1, { token, time, outcome });

struct Row {
    device: Device,
    attempts: Vec<Attempt>,
    /// The step of the last code that was right: no code counts twice, nor one of before.
    last: u64,
}
envelope_denc!(Row, 1, 1, { device, attempts, last });

#[derive(Default)]
struct Ids {
    ids: BTreeSet<Bytes>,
}
envelope_denc!(Ids, 1, 1, { ids });

struct Devices {
    devices: Vec<Device>,
}
envelope_denc!(Devices, 1, 1, { devices });

struct Ended {
    attempt: Attempt,
}
envelope_denc!(Ended, 1, 1, { attempt });

struct Now {
    time: Utime,
}
envelope_denc!(Now, 1, 1, { time });

fn listed(object: &mut Object<'_>) -> Result<Ids> {
    Ok(object.get(LIST)?.unwrap_or_default())
}

/// New devices, and others in place of those that are there, whose attempts stay.
fn set(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let devices: Vec<Device> = input.envelope(|r| r.get())?;
    let mut list = listed(object)?;
    let mut rows = BTreeMap::new();
    for mut device in devices {
        let secret = match device.seed_kind {
            BASE32 => totp::base32(&device.seed),
            _ => totp::hex(&device.seed),
        };
        device.secret = secret.ok_or(Errno::EINVAL)?.into();
        let at = key(PREFIX, &device.id);
        let (attempts, last) = match object.get::<Row>(&at)? {
            Some(row) => (row.attempts, row.last),
            None => (Vec::new(), 0),
        };
        list.ids.insert(device.id.clone());
        rows.insert(
            at,
            Row {
                device,
                attempts,
                last,
            },
        );
    }
    let rows = rows
        .into_iter()
        .map(|(at, row)| (at, denc::Encode::to_bytes(&row)));
    let list = (Bytes::from_static(LIST), denc::Encode::to_bytes(&list));
    object.set_rows(rows.chain([list]).collect())?;
    done()
}

fn remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let ids: Vec<Bytes> = input.envelope(|r| r.get())?;
    let mut list = listed(object)?;
    let gone: Vec<Bytes> = ids.into_iter().filter(|id| list.ids.remove(id)).collect();
    if !gone.is_empty() {
        object.unset_keys(gone.iter().map(|id| key(PREFIX, id)).collect())?;
        object.set(LIST, &list)?;
    }
    done()
}

fn get(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (all, ids) = input.envelope(<(bool, Vec<Bytes>)>::decode)?;
    let list = listed(object)?;
    let asked: Vec<Bytes> = match all {
        true => list.ids.into_iter().collect(),
        false => ids.into_iter().filter(|id| list.ids.contains(id)).collect(),
    };
    let mut devices = Vec::new();
    for id in asked.into_iter().take(LIST_MAX) {
        devices.push(object.need::<Row>(&key(PREFIX, &id))?.device);
    }
    out(&Devices { devices })
}

/// What `otp_check` and `otp_get_result` take: device, code, token.
fn attempt(input: &mut Input) -> Result<(Bytes, Bytes, Bytes)> {
    input.envelope(|r| Ok((r.get()?, r.get()?, r.get()?)))
}

/// Notes whether a code is right: a client asks for that afterwards, since what writes gives no data.
fn check(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, code, token) = attempt(input)?;
    let at = key(PREFIX, &id);
    let mut row: Row = object.need(&at)?;
    let time = object.now();
    let step = row.device.step;
    // A step of no time: EINVAL, where 16.2's OSD ends.
    let present = (i64::from(time.sec) - i64::from(row.device.offset))
        .checked_div(step.into())
        .ok_or(Errno::EINVAL)?;
    row.attempts
        .retain(|a| a.time.sec.saturating_add(step) >= time.sec);
    if row.attempts.len() >= ATTEMPTS_MAX {
        return done();
    }
    let steps = totp::around(present, row.device.window, row.last);
    let found = totp::step_of(&row.device.secret, &code, steps);
    let outcome = match found {
        Some(_) => outcome::RIGHT,
        None => outcome::WRONG,
    };
    row.last = found.unwrap_or(row.last);
    row.attempts.push(Attempt { token, time, outcome });
    object.set(&at, &row)?;
    done()
}

fn get_result(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (id, _, token) = attempt(input)?;
    let row: Row = object.need(&key(PREFIX, &id))?;
    let found = row.attempts.iter().rev().find(|a| a.token == token);
    let unknown = || Attempt {
        token: token.clone(),
        time: object.now(),
        outcome: outcome::UNKNOWN,
    };
    let attempt = found.cloned().unwrap_or_else(unknown);
    out(&Ended { attempt })
}

fn get_current_time(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    input.envelope(|_| Ok(()))?;
    out(&Now { time: object.now() })
}
