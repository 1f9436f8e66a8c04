//! Object maps: what is known of each data object, two bits each (docs/protocol/ceph/05-rbd.md, 4.7 and 5).
//!
//! Layout, on disk and on the wire:
//! - 18 bytes of header: u32 14, then an envelope (1, 1) of u64 number of entries;
//! - data: entry `i` in byte `i / 4`, the first entry in the highest two bits; unused bits are 0;
//! - u32 length of the footer, footer. The footer is empty on the wire, or: u32 crc of the 14 header bytes,
//!   u32 number of blocks, one u32 crc for each block of 4096 data bytes (the last may be shorter).
//!
//! States: 0 nonexistent, 1 exists, 2 pending, 3 exists and unchanged since the newest snapshot ("clean").
//!
//! An update touches only the bytes that change and the checksums of their blocks; everything else rewrites the
//! object. Whatever does not fit this layout or its checksums is EINVAL: the client then marks the map invalid.

use crate::context::Result;
use crate::input::Input;
use crate::object::{Object, done};
use bytes::Bytes;
use denc::{Reader, Writer};
use types::Errno;
use types::checksum::crc32c;

/// Entries that an image can have.
const ENTRIES_MAX: u64 = 256_000_000;
const PER_BYTE: u64 = 4;
const BLOCK: u64 = 4096;
const HEADER: u64 = 18;
const HEADER_BODY: u32 = 14;
/// Footer fields in front of the block checksums: crc of the header, number of blocks.
const FOOTER_FIXED: u64 = 8;

pub const NONEXISTENT: u8 = 0;
pub const EXISTS: u8 = 1;
/// It is being removed.
pub const PENDING: u8 = 2;
/// It exists, and is unchanged since the newest snapshot.
pub const CLEAN: u8 = 3;
/// Of a state that a client gives only two bits count.
const STATE_MASK: u8 = 3;

/// The low bit of every entry in a byte.
const LOW: u8 = 0b0101_0101;

/// `state` in all four entries of a byte.
fn spread(state: u8) -> u8 {
    state * LOW
}

/// The low bits of the entries of `byte` that are EXISTS.
fn exists_bits(byte: u8) -> u8 {
    byte & !(byte >> 1) & LOW
}

/// The low bits of the entries of `byte` that are CLEAN.
fn clean_bits(byte: u8) -> u8 {
    byte & byte >> 1 & LOW
}

fn data_len(entries: u64) -> u64 {
    entries.div_ceil(PER_BYTE)
}

fn passes(old: u8, filter: Option<u8>) -> bool {
    filter.is_none_or(|f| old == f || f == EXISTS && old == CLEAN)
}

fn shift_of(entry: u64) -> u32 {
    6 - 2 * (entry % PER_BYTE) as u32
}

/// The 14 bytes that the header's checksum covers.
fn header_body(entries: u64) -> Bytes {
    let mut w = Writer::with_capacity(HEADER_BODY as usize);
    w.envelope(1, 1, |w| w.u64(entries));
    w.finish()
}

/// What is known of each data object of an image, or of one of its snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectMap {
    entries: u64,
    data: Vec<u8>,
}

impl ObjectMap {
    fn decode_header(r: &mut Reader) -> denc::Result<u64> {
        if r.u32()? != HEADER_BODY {
            return Err(r.invalid("length of the object map header"));
        }
        let entries = r.envelope(1, |_, r| r.u64())?;
        if entries > ENTRIES_MAX {
            return Err(r.invalid("more entries than an image can have"));
        }
        Ok(entries)
    }

    /// From its form with checksums, which must be right, or from that without.
    pub fn decode(r: &mut Reader) -> denc::Result<Self> {
        let entries = Self::decode_header(r)?;
        let data = r.bytes(data_len(entries) as usize)?;
        let footer_len = r.u32()? as usize;
        r.limited(footer_len, |r| {
            if footer_len == 0 {
                Ok(())
            } else {
                check_footer(r, entries, &data)
            }
        })?;
        Ok(Self {
            entries,
            data: data.to_vec(),
        })
    }

    pub fn encode(&self, with_checksums: bool) -> Bytes {
        let body = header_body(self.entries);
        let blocks = self.data.len().div_ceil(BLOCK as usize);
        let mut w = Writer::with_capacity(HEADER as usize + self.data.len() + 4 * blocks + 12);
        w.blob(&body);
        w.raw(&self.data);
        if with_checksums {
            w.u32(FOOTER_FIXED as u32 + 4 * blocks as u32);
            w.u32(crc32c(0, &body));
            w.u32(blocks as u32);
            for block in self.data.chunks(BLOCK as usize) {
                w.u32(crc32c(0, block));
            }
        } else {
            w.u32(0);
        }
        w.finish()
    }

    fn from_input(bytes: Bytes) -> Result<Self> {
        Self::decode(&mut Reader::new(bytes)).map_err(|_| Errno::EINVAL)
    }

    /// The object's map; `None` if it is missing or empty.
    fn load(object: &mut Object<'_>) -> Result<Option<Self>> {
        match object.stat()? {
            Some(stat) if stat.size > 0 => Self::from_input(object.read(0, stat.size)?).map(Some),
            _ => Ok(None),
        }
    }

    fn store(&self, object: &mut Object<'_>) -> Result<Bytes> {
        object.write_full(self.encode(true))?;
        done()
    }

    /// Zeroes the bits behind the last entry.
    fn trim(&mut self) {
        let used = self.entries % PER_BYTE;
        if let (Some(last), 1..) = (self.data.last_mut(), used) {
            *last &= 0xff << (8 - 2 * used);
        }
    }

    /// The number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// None: it is beyond the end.
    pub fn get(&self, entry: u64) -> Option<u8> {
        let byte = self.data.get((entry / PER_BYTE) as usize)?;
        (entry < self.entries).then(|| byte >> shift_of(entry) & STATE_MASK)
    }

    /// As `object_map_update` does for the entries `first..end`: those that are `filter`, or clean where it is
    /// [`EXISTS`]. Entries beyond the end are left out.
    pub fn update(&mut self, first: u64, end: u64, state: u8, filter: Option<u8>) {
        for entry in first..end.min(self.entries) {
            let (at, shift) = ((entry / PER_BYTE) as usize, shift_of(entry));
            let old = self.data[at] >> shift & STATE_MASK;
            if passes(old, filter) {
                self.data[at] ^= (old ^ state & STATE_MASK) << shift;
            }
        }
    }

    /// A snapshot was made: what exists is unchanged since.
    pub fn snap_added(&mut self) {
        for byte in &mut self.data {
            *byte |= exists_bits(*byte) << 1;
        }
    }

    /// A snapshot goes: what is unchanged since it, but was changed before it, counts as changed again.
    pub fn snap_removed(&mut self, mut removed: Self) {
        // Entries that the removed map lacks count as EXISTS there.
        if removed.entries < self.entries {
            removed.resize(self.entries, EXISTS);
        }
        for (byte, other) in self.data.iter_mut().zip(&removed.data) {
            *byte &= !((clean_bits(*byte) & exists_bits(*other)) << 1);
        }
    }

    /// Grows or shrinks; new entries get `state`.
    pub fn resize(&mut self, entries: u64, state: u8) {
        if entries > self.entries && !self.entries.is_multiple_of(PER_BYTE) {
            let free = 0xffu8 >> (2 * (self.entries % PER_BYTE));
            if let Some(last) = self.data.last_mut() {
                *last = *last & !free | spread(state) & free;
            }
        }
        self.data.resize(data_len(entries) as usize, spread(state));
        self.entries = entries;
        self.trim();
    }
}

fn check_footer(r: &mut Reader, entries: u64, data: &[u8]) -> denc::Result<()> {
    if r.u32()? != crc32c(0, &header_body(entries)) {
        return Err(r.invalid("checksum of the object map header"));
    }
    if r.u32()? as usize != data.len().div_ceil(BLOCK as usize) {
        return Err(r.invalid("number of blocks in the object map"));
    }
    for block in data.chunks(BLOCK as usize) {
        if r.u32()? != crc32c(0, block) {
            return Err(r.invalid("checksum of an object map block"));
        }
    }
    Ok(())
}

pub fn load(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let map = ObjectMap::load(object)?.ok_or(Errno::ENOENT)?;
    Ok(map.encode(false))
}

pub fn save(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    ObjectMap::from_input(input.rest())?.store(object)
}

pub fn resize(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (entries, state): (u64, u8) = input.get()?;
    if entries > ENTRIES_MAX {
        return Err(Errno::EINVAL);
    }
    let state = state & STATE_MASK;
    let mut map = ObjectMap::load(object)?.unwrap_or_default();
    if entries < map.entries {
        // What is dropped must be nothing but the default state.
        let mut restored = map.clone();
        restored.resize(entries, state);
        restored.resize(map.entries, state);
        if restored != map {
            return Err(Errno::ESTALE);
        }
    }
    map.resize(entries, state);
    map.store(object)
}

/// Blocks of a stored map, read without the rest of it.
struct Window {
    /// First data byte of the window, from the start of the data.
    start: u64,
    data: Vec<u8>,
    /// Where the window's first checksum lies in the object.
    checksums_at: u64,
}

impl Window {
    /// The blocks that hold the entries `first..end`, checked against their checksums.
    fn load(object: &mut Object<'_>, entries: u64, first: u64, end: u64) -> Result<Self> {
        let len = data_len(entries);
        let from_block = first / PER_BYTE / BLOCK;
        let to_block = ((end - 1) / PER_BYTE / BLOCK) + 1;
        let start = from_block * BLOCK;
        let data = object
            .read(HEADER + start, (to_block * BLOCK).min(len) - start)?
            .to_vec();
        if data.len() as u64 != (to_block * BLOCK).min(len) - start {
            return Err(Errno::EINVAL);
        }
        let footer_at = HEADER + len;
        let checksums_at = footer_at + 4 + FOOTER_FIXED + 4 * from_block;
        let mut fixed = Reader::new(object.read(footer_at, 4 + FOOTER_FIXED)?);
        let mut checksums = Reader::new(object.read(checksums_at, 4 * (to_block - from_block))?);
        let mut check = || -> denc::Result<()> {
            let blocks = len.div_ceil(BLOCK) as u32;
            let wanted = (
                FOOTER_FIXED as u32 + 4 * blocks,
                crc32c(0, &header_body(entries)),
                blocks,
            );
            if (fixed.u32()?, fixed.u32()?, fixed.u32()?) != wanted {
                return Err(fixed.invalid("object map footer"));
            }
            for block in data.chunks(BLOCK as usize) {
                if checksums.u32()? != crc32c(0, block) {
                    return Err(checksums.invalid("checksum of an object map block"));
                }
            }
            Ok(())
        };
        check().map_err(|_| Errno::EINVAL)?;
        Ok(Self {
            start,
            data,
            checksums_at,
        })
    }

    /// Writes the changed bytes `from..to` of the window and the checksums of their blocks.
    fn store(&self, object: &mut Object<'_>, from: usize, to: usize) -> Result<()> {
        let changed = Bytes::copy_from_slice(&self.data[from..to]);
        object.write(HEADER + self.start + from as u64, changed)?;
        let first = from / BLOCK as usize;
        let blocks = self
            .data
            .chunks(BLOCK as usize)
            .take((to - 1) / BLOCK as usize + 1)
            .skip(first);
        let mut w = Writer::new();
        for block in blocks {
            w.u32(crc32c(0, block));
        }
        object.write(self.checksums_at + 4 * first as u64, w.finish())
    }
}

pub fn update(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let (first, end, state): (u64, u64, u8) = (input.get()?, input.get()?, input.get()?);
    let filter: Option<u8> = input.get()?;
    let state = state & STATE_MASK;
    object.must_exist()?;
    let header = object.read(0, HEADER)?;
    let entries = ObjectMap::decode_header(&mut Reader::new(header)).map_err(|_| Errno::EINVAL)?;
    if first >= end || end > entries {
        return Err(Errno::ERANGE);
    }
    let mut window = Window::load(object, entries, first, end)?;
    let skipped = window.start * PER_BYTE;
    let mut changed: Option<(usize, usize)> = None;
    for entry in first - skipped..end - skipped {
        let (at, shift) = ((entry / PER_BYTE) as usize, shift_of(entry));
        let old = window.data[at] >> shift & 3;
        if passes(old, filter) && old != state {
            window.data[at] ^= (old ^ state) << shift;
            changed = Some((changed.map_or(at, |c| c.0), at + 1));
        }
    }
    if let Some((from, to)) = changed {
        window.store(object, from, to)?;
    }
    done()
}

pub fn snap_add(object: &mut Object<'_>, _: &mut Input) -> Result<Bytes> {
    let mut map = ObjectMap::load(object)?.ok_or(Errno::ENOENT)?;
    map.snap_added();
    map.store(object)
}

pub fn snap_remove(object: &mut Object<'_>, input: &mut Input) -> Result<Bytes> {
    let removed = ObjectMap::from_input(input.rest())?;
    let mut map = ObjectMap::load(object)?.ok_or(Errno::ENOENT)?;
    map.snap_removed(removed);
    map.store(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_the_description() {
        assert_eq!(crc32c(0, &header_body(3)), 0x31f3_3d3b);
        assert_eq!(crc32c(0, &[0x40]), 0x417b_1dbc);
    }

    #[test]
    fn resizing_keeps_what_stays_and_clears_what_goes() {
        let mut map = ObjectMap::default();
        map.resize(6, 1);
        assert_eq!(map.data, [0b0101_0101, 0b0101_0000]);
        map.resize(9, 2);
        assert_eq!(map.data, [0b0101_0101, 0b0101_1010, 0b1000_0000]);
        map.resize(5, 0);
        assert_eq!(map.data, [0b0101_0101, 0b0100_0000]);
        map.resize(0, 0);
        assert!(map.data.is_empty());
    }

    #[test]
    fn a_map_changes_as_the_stored_one_does() {
        let mut map = ObjectMap::default();
        map.resize(5, NONEXISTENT);
        let states = |map: &ObjectMap| (0..6).map(|i| map.get(i)).collect::<Vec<_>>();
        map.update(1, 9, EXISTS, None);
        map.snap_added();
        let before = map.clone();
        map.update(2, 3, EXISTS, None);
        map.update(3, 4, PENDING, Some(EXISTS));
        map.update(0, 1, PENDING, Some(EXISTS));
        assert_eq!(states(&map), [Some(0), Some(3), Some(1), Some(2), Some(3), None]);
        // The removed snapshot's map says which of the unchanged ones had changed before it.
        let mut removed = before;
        removed.update(1, 2, EXISTS, None);
        map.snap_removed(removed);
        assert_eq!(states(&map), [Some(0), Some(1), Some(1), Some(2), Some(3), None]);
        for checksums in [false, true] {
            let bytes = map.encode(checksums);
            assert_eq!(ObjectMap::decode(&mut Reader::new(bytes)).unwrap(), map);
        }
    }

    #[test]
    fn states_are_found_in_bytes() {
        let byte = 0b0001_1011;
        assert_eq!(exists_bits(byte), 0b0001_0000);
        assert_eq!(clean_bits(byte), 0b0000_0001);
    }
}
