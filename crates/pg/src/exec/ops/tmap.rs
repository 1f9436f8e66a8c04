//! Trivial maps: TMAPPUT, TMAPUP, TMAP2OMAP (docs/protocol/osd.md, Trivial maps; TMAPGET reads the data as it is).
//!
//! A *map* is an object's data: a header, the number of rows, and the rows, `str key, blob value`, ascending by key. It is
//! older than the omap; what is left of its users are RBD images of format 1, whose names lie in one.
//!
//! Invariants: what is written is a map, with each key once and ascending. A row, and a command, is a step; the data that
//! is read and what is written are charged, so a message changes no map larger than half of what it may cost.

use crate::exec::cost::Cost;
use crate::exec::result::{Fail, OpResult, done};
use crate::exec::run::Exec;
use bytes::Bytes;
use denc::{Reader, Writer};
use messages::osd::OsdOp;
use std::collections::BTreeMap;
use types::Errno;

/// Bytes of a row without key and value.
const ROW_MIN: usize = 8;
/// Flag of TMAP2OMAP: there need be no object, or no data.
const NULL_OK: u8 = 1;

/// The commands of TMAPUP.
mod command {
    /// `str header`.
    pub const HEADER: u8 = b'h';
    /// `str key, blob value`: the row is there, whether it was or not.
    pub const SET: u8 = b's';
    /// `str key, blob value`: it must not be there.
    pub const CREATE: u8 = b'c';
    /// `str key`: it must be there.
    pub const REMOVE: u8 = b'r';
    /// `str key`: it need not be there.
    pub const REMOVE_SLOP: u8 = b'R';
}

#[derive(Debug, Default)]
struct Map {
    header: Bytes,
    rows: BTreeMap<Bytes, Bytes>,
    /// What follows the map: kept by an update.
    behind: Bytes,
}

impl Map {
    /// The map, and whether its rows are ascending, each key once; else the last one of a key is in the map.
    fn decode(data: Bytes, cost: &mut Cost) -> Result<(Self, bool), Fail> {
        let mut r = Reader::new(data);
        let mut map = Self {
            header: r.blob()?,
            ..Self::default()
        };
        let count = r.count(ROW_MIN)?;
        cost.charge(0, count as u64)?;
        let mut ascending = true;
        for _ in 0..count {
            let (key, value) = (r.blob()?, r.blob()?);
            ascending &= map.rows.last_key_value().is_none_or(|(last, _)| *last < key);
            map.rows.insert(key, value);
        }
        map.behind = r.rest();
        Ok((map, ascending))
    }

    /// As [`Map::decode`], where no data is an empty map.
    fn of(data: Bytes, cost: &mut Cost) -> Result<Self, Fail> {
        match data.is_empty() {
            true => Ok(Self::default()),
            false => Ok(Self::decode(data, cost)?.0),
        }
    }

    /// The commands in order, each on what those before it have made.
    fn update(&mut self, commands: Bytes, cost: &mut Cost) -> Result<(), Fail> {
        let mut r = Reader::new(commands);
        while !r.is_empty() {
            cost.charge(0, 1)?;
            let (what, first) = (r.u8()?, r.blob()?);
            match what {
                command::HEADER => self.header = first,
                command::CREATE if self.rows.contains_key(&first) => return Err(Errno::EEXIST.into()),
                command::SET | command::CREATE => {
                    self.rows.insert(first, r.blob()?);
                }
                command::REMOVE if !self.rows.contains_key(&first) => return Err(Errno::ENOENT.into()),
                command::REMOVE | command::REMOVE_SLOP => {
                    self.rows.remove(&first);
                }
                _ => return Err(Errno::EINVAL.into()),
            }
        }
        Ok(())
    }

    /// Encoded.
    fn size(&self) -> usize {
        let rows: usize = self.rows.iter().map(|(k, v)| ROW_MIN + k.len() + v.len()).sum();
        self.header.len() + 8 + rows + self.behind.len()
    }

    fn encode(&self, cost: &mut Cost) -> Result<Bytes, Fail> {
        let size = self.size();
        cost.charge(size as u64, 0)?;
        let mut w = Writer::with_capacity(size);
        w.blob(&self.header);
        w.u32(self.rows.len() as u32);
        for (key, value) in &self.rows {
            w.blob(key);
            w.blob(value);
        }
        w.raw(&self.behind);
        Ok(w.finish())
    }
}

impl Exec<'_> {
    /// The whole of the in-data becomes the object's, in order.
    pub fn tmap_put(&mut self, op: &OsdOp) -> OpResult {
        self.tmap_is_served()?;
        let (map, ascending) = Map::decode(op.indata.clone(), &mut self.cost)?;
        let data = match ascending {
            true => op.indata.clone(),
            false => map.encode(&mut self.cost)?,
        };
        self.checked_write_full(data)?;
        done()
    }

    pub fn tmap_update(&mut self, op: &OsdOp) -> OpResult {
        self.tmap_is_served()?;
        if op.indata.is_empty() {
            return done();
        }
        let data = self.tmap_data(op)?;
        let mut map = Map::of(data, &mut self.cost)?;
        map.update(op.indata.clone(), &mut self.cost)?;
        let data = map.encode(&mut self.cost)?;
        self.checked_write_full(data)?;
        done()
    }

    /// Header and rows go over what the omap has; the data goes.
    pub fn tmap_to_omap(&mut self, op: &OsdOp) -> OpResult {
        if !self.work.new.exists || self.work.new.size == 0 {
            return match op.tmap2omap_flags() & NULL_OK {
                0 => Err(Errno::ENODATA.into()),
                _ => done(),
            };
        }
        // 16.2's code for data that it cannot read.
        if self.req.pool.erasure || !self.req.old.exists {
            return Err(Errno::EINVAL.into());
        }
        let data = self.tmap_data(op)?;
        let (map, _) = Map::decode(data, &mut self.cost)?;
        self.cost.charge(map.size() as u64, 0)?;
        self.truncate(0);
        self.omap_set_header(map.header)?;
        self.omap_set(map.rows.into_iter().collect())?;
        done()
    }

    fn tmap_is_served(&self) -> Result<(), Fail> {
        match self.req.pool.erasure {
            true => Err(Errno::EOPNOTSUPP.into()),
            false => Ok(()),
        }
    }

    /// As every read: the data as before the message, of as much as it has left of the object.
    fn tmap_data(&mut self, op: &OsdOp) -> Result<Bytes, Fail> {
        let size = self.work.new.size;
        if !self.work.new.exists || size == 0 {
            return Ok(Bytes::new());
        }
        self.must_have_existed()?;
        let mut data = self.bytes_of(op)?;
        data.truncate(size as usize);
        Ok(data)
    }
}
