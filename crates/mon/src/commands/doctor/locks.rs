//! The doctor on locks (class `lock`), of RBD images above all: who holds one that others want, or that it does not watch any
//! more, and how to take it away.
//!
//! Everything comes from the OSDs' reports, which name a lock only where somebody was refused it lately, or where its
//! holder's watch ended without its doing: nobody looks through all images.
//!
//! A client that takes RBD's exclusive lock by itself watches the image, and its cookie begins with [`AUTO`]: without
//! a watch it is dead. A lock taken by `rbd lock add` is nobody's to watch; people take it away.

use crate::commands::context::Context;
use crate::commands::doctor::finding::{Finding, Level};
use crate::format::shell::{quoted, seen, word};
use crate::format::units;
use types::pgstats::{HeldLock, holder};

const RBD_LOCK: &str = "rbd_lock";
const HEADER: &str = "rbd_header.";
/// Of the cookies of locks that librbd takes by itself.
const AUTO: &str = "auto ";

pub fn held(ctx: &Context<'_>, out: &mut Vec<Finding>) {
    for lock in ctx.stats.osds.values().flat_map(|r| &r.locks) {
        out.push(finding(ctx, lock));
    }
}

fn finding(ctx: &Context<'_>, l: &HeldLock) -> Finding {
    let blocked = ctx.map().is_blocklisted(&l.addr);
    let of_itself = l.lock == RBD_LOCK && l.cookie.starts_with(AUTO);
    let dead = blocked || of_itself && l.watch == holder::NO_WATCH;
    let mut waits = format!(
        "its lock {} is held by {} at {} (cookie \"{}\"), {}",
        seen(&l.lock),
        l.holder,
        l.addr.to_blocklist_form(),
        seen(&l.cookie),
        state(ctx, l, blocked, of_itself)
    );
    if l.refused > 0 {
        waits += &format!(
            "; {} was refused it {} ago ({} refusals of late)",
            l.refused_by,
            units::age(l.refused_last, ctx.now),
            l.refused
        );
    }
    let level = match (l.refused > 0, dead) {
        (true, _) => Level::Blocked,
        (false, true) => Level::Risk,
        (false, false) => Level::Note,
    };
    let since = match l.lost.is_zero() {
        true => l.refused_since,
        false => l.lost,
    };
    Finding::new(level, subject(ctx, l), waits, next(ctx, l, blocked, of_itself)).since(since)
}

/// `image 10f2... (rbd_header.10f2..., pool 'vms')`
fn subject(ctx: &Context<'_>, l: &HeldLock) -> String {
    let pool = ctx.map().pool_name(l.pg.pool).unwrap_or("?");
    let (nspace, object) = (seen(&l.nspace), seen(&l.object));
    let place = match nspace.is_empty() {
        true => format!("pool '{pool}'"),
        false => format!("pool '{pool}', namespace '{nspace}'"),
    };
    match image_id(l) {
        Some(id) => format!("image {} in {place} ({object})", seen(id)),
        None => format!("object {object} in {place}"),
    }
}

fn image_id(l: &HeldLock) -> Option<&str> {
    let id = l.object.strip_prefix(HEADER)?;
    (l.lock == RBD_LOCK).then_some(id)
}

fn state(ctx: &Context<'_>, l: &HeldLock, blocked: bool, of_itself: bool) -> String {
    let lost = match l.lost.is_zero() {
        true => String::new(),
        false => format!(" (its watch ended {} ago)", units::age(l.lost, ctx.now)),
    };
    let block = match blocked {
        true => "is blocklisted and ",
        false => "",
    };
    match (l.watch, of_itself) {
        (holder::CONNECTED, _) => format!("which {block}watches it and is connected"),
        (holder::AWAY, _) => format!("which {block}has a watch and is not connected now"),
        (_, true) => format!("which {block}watches it no more{lost}: that client is dead or was cut off"),
        (_, false) => format!("which {block}does not watch it{lost}: a lock that somebody took by hand"),
    }
}

fn next(ctx: &Context<'_>, l: &HeldLock, blocked: bool, of_itself: bool) -> String {
    let addr = l.addr.to_blocklist_form();
    let pool = word(ctx.map().pool_name(l.pg.pool).unwrap_or("?"));
    let nspace = match l.nspace.is_empty() {
        true => String::new(),
        false => format!(" --namespace {}", word(&l.nspace)),
    };
    let (cookie, holder) = (quoted(&l.cookie), &l.holder);
    let remove = match image_id(l) {
        Some(id) => {
            let id = word(id);
            format!(
                "rbd lock rm {pool}/IMAGE {cookie} {holder}{nspace} (rbd info --pool {pool}{nspace} --image-id {id} says the IMAGE)"
            )
        }
        None => {
            let (object, lock) = (word(&l.object), word(&l.lock));
            format!("rados -p {pool}{nspace} lock break {object} {lock} {holder} --lock-cookie {cookie}")
        }
    };
    match (blocked, l.watch, of_itself) {
        // It cannot write any more.
        (true, ..) => remove,
        (false, holder::NO_WATCH, true) => format!(
            "the next client that opens the image for writing takes it over; else: ceph osd blocklist add {addr}; {remove}"
        ),
        (false, holder::NO_WATCH, false) => format!("if whoever took it is done: {remove}"),
        (false, ..) => format!(
            "have that client give it up; if it is dead or hangs: ceph osd blocklist add {addr}; {remove}"
        ),
    }
}
