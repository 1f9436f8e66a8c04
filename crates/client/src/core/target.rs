//! Where an operation goes: object to PG, PG to OSD, by the present map
//! (docs/protocol/ceph/03-placement.md; docs/protocol/ceph/04-osd.md, 7.4 and 7.7).
//!
//! Two targets are equal only if nothing happened between their maps that could have made an OSD drop the operation: then,
//! and only then, it need not be sent again.
//!
//! Invariant: the cache of placements belongs to one epoch, and holds at most the PGs of the map.

use crate::{Error, Result};
use bytes::Bytes;
use std::collections::HashMap;
use std::rc::Rc;
use types::osdmap::OsdMap;
use types::osdmap::map_flag;
use types::pool::pool_flag;
use types::{AddrKind, EntityAddr, Epoch, Errno, HObject, NOSNAP, OsdId, PgId, PoolId, SPgId};

/// Names of more bytes are refused by every OSD.
const NAME_MAX: usize = 2048;
const NSPACE_MAX: usize = 256;

/// An object's name with all that places it. A PG is named by its seed, `of_pg`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub pool: PoolId,
    pub nspace: Bytes,
    /// The locator; empty: the name itself.
    pub key: Bytes,
    pub oid: Bytes,
    /// A hash within a PG, for operations on the PG itself.
    pub of_pg: Option<u32>,
}

impl Place {
    pub fn check(&self) -> Result<()> {
        if self.oid.len() > NAME_MAX || self.key.len() > NAME_MAX || self.nspace.len() > NSPACE_MAX {
            return Err(Error::invalid(Errno::ENAMETOOLONG, "name of an object"));
        }
        if self.oid.is_empty() && self.of_pg.is_none() {
            return Err(Error::invalid(Errno::EINVAL, "an object without a name"));
        }
        Ok(())
    }

    /// As backoffs name ranges.
    pub fn hobject(&self, hash: u32) -> HObject {
        HObject::new(
            self.pool,
            hash,
            self.nspace.clone(),
            self.key.clone(),
            self.oid.clone(),
            NOSNAP,
        )
    }
}

/// A PG's members as one epoch has them.
#[derive(Debug, PartialEq, Eq)]
pub struct Members {
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    pub primary: OsdId,
    size: u8,
    min_size: u8,
    pg_num: u32,
    /// The pool's word that all that was sent before is to be sent again.
    resend: Epoch,
    erasure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub pg: SPgId,
    /// The object's hash; of a PG its seed.
    pub hash: u32,
    pub osd: OsdId,
    pub addr: EntityAddr,
    members: Rc<Members>,
}

impl Target {
    /// A member that is not the primary.
    pub fn is_copy(&self) -> bool {
        self.osd != self.members.primary
    }

    /// PGs of the pool.
    pub fn pg_num(&self) -> u32 {
        self.members.pg_num
    }
}

/// What there is to be done with an operation now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    To(Target),
    /// Flags of map or pool hold it back.
    Paused,
    /// The PG has no OSD that could take it.
    NoPrimary,
    /// The pool is not in this map.
    NoPool,
    Refused(Error),
}

/// What decides about an operation's way besides its name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Need {
    pub writes: bool,
    /// Full pools do not hold it back: it said so itself, or it is about a watch.
    pub though_full: bool,
    /// Any member may answer it: which one of them, counted round.
    pub any: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Placements {
    epoch: Epoch,
    known: HashMap<PgId, Rc<Members>>,
}

impl Placements {
    pub fn way(&mut self, map: &OsdMap, place: &Place, need: Need) -> Way {
        let Some(pool) = map.pool(place.pool) else {
            return Way::NoPool;
        };
        if pool.has(pool_flag::EIO) {
            return Way::Refused(Error::invalid(Errno::EIO, "the pool's flag eio"));
        }
        if pool.read_tier >= 0 || pool.write_tier >= 0 {
            return Way::Refused(Error::Unsupported("pools under a cache tier"));
        }
        if is_paused(map, pool, need) {
            return Way::Paused;
        }
        let raw = place
            .of_pg
            .unwrap_or_else(|| pool.object_to_raw(&place.nspace, &place.key, &place.oid));
        let pg = PgId::new(place.pool, pool.raw_to_pg(raw));
        let members = self.members(map, pg);
        let osd = match need.any {
            Some(n) if !need.writes => any_of(map, &members, n),
            _ => members.primary,
        };
        let Some(addr) = addr(map, osd) else {
            return Way::NoPrimary;
        };
        let shard = match members.erasure {
            true => members
                .acting
                .iter()
                .position(|o| *o == osd)
                .map_or(-1, |i| i as i8),
            false => -1,
        };
        Way::To(Target {
            pg: SPgId { pg, shard },
            hash: if place.of_pg.is_some() { pg.seed } else { raw },
            osd,
            addr,
            members,
        })
    }

    /// The primary of a PG, a seed beyond `pg_num` folded back; None: it has none that could be asked, or no pool.
    pub fn primary(&mut self, map: &OsdMap, pg: PgId) -> Option<(OsdId, EntityAddr)> {
        let seed = map.pool(pg.pool)?.raw_to_pg(pg.seed);
        let osd = self.members(map, PgId::new(pg.pool, seed)).primary;
        addr(map, osd).map(|addr| (osd, addr))
    }

    fn members(&mut self, map: &OsdMap, pg: PgId) -> Rc<Members> {
        if self.epoch != map.epoch {
            self.epoch = map.epoch;
            self.known.clear();
        }
        let made = self.known.entry(pg).or_insert_with(|| {
            let sets = map.pg_to_up_acting(pg);
            let pool = map.pool(pg.pool);
            let of = |f: fn(&types::PgPool) -> u32| pool.map_or(0, f);
            Rc::new(Members {
                up: sets.up,
                acting: sets.acting,
                primary: sets.acting_primary,
                size: pool.map_or(0, |p| p.size),
                min_size: pool.map_or(0, |p| p.min_size),
                pg_num: of(|p| p.pg_num),
                resend: of(|p| p.last_force_op_resend),
                erasure: pool.is_some_and(|p| p.is_erasure()),
            })
        });
        made.clone()
    }
}

/// Where clients reach an OSD; None: it is down, gone, or speaks no messenger v2.
pub fn addr(map: &OsdMap, osd: OsdId) -> Option<EntityAddr> {
    let slot = map.osd(osd).filter(|_| map.is_up(osd))?;
    let good = |a: &&EntityAddr| a.kind == AddrKind::Msgr2 && a.sock.is_some();
    slot.client_addrs.0.iter().find(good).copied()
}

fn any_of(map: &OsdMap, members: &Members, n: u64) -> OsdId {
    // Shards of an erasure-coded object are no copies.
    if members.erasure {
        return members.primary;
    }
    let up: Vec<OsdId> = members.acting.iter().copied().filter(|o| map.is_up(*o)).collect();
    match up.len() as u64 {
        0 => members.primary,
        len => up[(n % len) as usize],
    }
}

fn is_paused(map: &OsdMap, pool: &types::PgPool, need: Need) -> bool {
    if !need.writes {
        return map.has_flag(map_flag::PAUSERD);
    }
    let full = map.has_flag(map_flag::FULL) || pool.has(pool_flag::FULL);
    map.has_flag(map_flag::PAUSEWR) || (full && !need.though_full)
}
