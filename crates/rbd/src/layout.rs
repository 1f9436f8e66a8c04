//! Where an image's bytes lie: arithmetic between places in the image and places in its objects.
//!
//! The image is cut into *units*; `count` neighbouring objects (an object set) take units in turn until all of them are full. Without the
//! striping feature a unit is a whole object and the count is 1.

use crate::{Error, Result};
use std::collections::BTreeMap;
use types::Errno;

/// Sizes of objects, as powers of two: 4 KiB to 32 MiB.
pub const ORDERS: std::ops::RangeInclusive<u8> = 12..=25;
/// No object set is wider.
const COUNT_MAX: u64 = 1 << 20;
/// Objects that an object map can describe.
pub const OBJECTS_MAX: u64 = 256_000_000;

/// Invariants: the order is one of [`ORDERS`], the unit divides the object's size, the count is at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    order: u8,
    unit: u64,
    count: u64,
}

/// What of an image's range lies in one object: one extent there, and where its pieces lie in the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectExtent {
    pub object: u64,
    pub offset: u64,
    pub length: u64,
    /// (from the range's beginning, length), in the order of the object.
    pub pieces: Vec<(u64, u64)>,
}

impl Layout {
    /// `unit` and `count`: (0, 0) for none.
    pub fn new(order: u8, unit: u64, count: u64) -> Result<Self> {
        let bad = |what: String| Error::refused(Errno::EINVAL, what);
        if !ORDERS.contains(&order) {
            return Err(bad(format!(
                "objects of 2^{order} bytes: 2^12 to 2^25 are possible"
            )));
        }
        let size = 1 << order;
        let (unit, count) = match (unit, count) {
            (0, 0) => (size, 1),
            other => other,
        };
        if unit == 0 || count == 0 || size % unit != 0 || count > COUNT_MAX {
            return Err(bad(format!(
                "striping by units of {unit} bytes over {count} objects of {size} bytes"
            )));
        }
        Ok(Self { order, unit, count })
    }

    pub fn order(&self) -> u8 {
        self.order
    }

    pub fn unit(&self) -> u64 {
        self.unit
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_striped(&self) -> bool {
        (self.unit, self.count) != (self.object_size(), 1)
    }

    pub fn object_size(&self) -> u64 {
        1 << self.order
    }

    /// Bytes of an object set.
    fn set_size(&self) -> u64 {
        self.object_size() * self.count
    }

    /// Objects that an image of `size` bytes can have.
    pub fn objects(&self, size: u64) -> u64 {
        let (sets, rest) = (size / self.set_size(), size % self.set_size());
        sets * self.count + rest.div_ceil(self.unit).min(self.count)
    }

    /// Bytes of an object that lie below `size` in the image. They are its first ones.
    pub fn used(&self, object: u64, size: u64) -> u64 {
        let (set, at) = (object / self.count, object % self.count);
        let Some(start) = set.checked_mul(self.set_size()) else {
            return 0;
        };
        let rest = size.saturating_sub(start).min(self.set_size());
        let stripe = self.unit * self.count;
        let last = (rest % stripe).saturating_sub(at * self.unit).min(self.unit);
        rest / stripe * self.unit + last
    }

    /// A place in the image as (object, offset in it).
    fn place(&self, at: u64) -> (u64, u64) {
        let (block, within) = (at / self.unit, at % self.unit);
        let (stripe, position) = (block / self.count, block % self.count);
        let stripes = self.object_size() / self.unit;
        let object = stripe / stripes * self.count + position;
        (object, stripe % stripes * self.unit + within)
    }

    /// The objects of a range, ascending. There is one extent in each: units of a range that meet in an object are neighbours.
    pub fn extents(&self, offset: u64, length: u64) -> Vec<ObjectExtent> {
        let mut found: BTreeMap<u64, ObjectExtent> = BTreeMap::new();
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let (object, within) = self.place(at);
            let n = (self.unit - at % self.unit).min(length - done);
            let extent = found.entry(object).or_insert_with(|| ObjectExtent {
                object,
                offset: within,
                length: 0,
                pieces: Vec::new(),
            });
            debug_assert_eq!(extent.offset + extent.length, within);
            extent.length += n;
            match extent.pieces.last_mut() {
                Some((start, len)) if *start + *len == done => *len += n,
                _ => extent.pieces.push((done, n)),
            }
            done += n;
        }
        found.into_values().collect()
    }

    /// Ranges of the image that an extent of an object holds, in the order of the object: (offset, length).
    pub fn ranges(&self, object: u64, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let (set, position) = (object / self.count, object % self.count);
        let stripes = self.object_size() / self.unit;
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let stripe = set * stripes + at / self.unit;
            let start = (stripe * self.count + position) * self.unit + at % self.unit;
            let n = (self.unit - at % self.unit).min(length - done);
            match found.last_mut() {
                Some((from, len)) if *from + *len == start => *len += n,
                _ => found.push((start, n)),
            }
            done += n;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(order: u8, unit: u64, count: u64) -> Layout {
        Layout::new(order, unit, count).unwrap()
    }

    #[test]
    fn without_striping_objects_follow_each_other() {
        let plain = layout(22, 0, 0);
        let found = plain.extents((4 << 20) - 10, 30);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].object, found[0].offset, found[0].length),
            (0, (4 << 20) - 10, 10)
        );
        assert_eq!(
            (found[1].object, found[1].offset, &found[1].pieces[..]),
            (1, 0, &[(10, 20)][..])
        );
        for (size, objects) in [(0, 0), (1, 1), (4 << 20, 1), ((4 << 20) + 1, 2)] {
            assert_eq!(plain.objects(size), objects, "{size}");
        }
    }

    #[test]
    fn units_go_round_the_objects_of_a_set() {
        // Two units each in three objects: units 0 to 5 are the first set.
        let l = layout(13, 4096, 3);
        let objects: Vec<u64> = (0..9).map(|unit| l.place(unit * 4096).0).collect();
        assert_eq!(objects, [0, 1, 2, 0, 1, 2, 3, 4, 5]);
        let found = l.extents(0, 4 * 4096);
        assert_eq!(found[0].length, 8192);
        assert_eq!(found[0].pieces, [(0, 4096), (3 * 4096, 4096)]);
        assert_eq!(l.ranges(0, 0, 8192), [(0, 4096), (3 * 4096, 4096)]);
    }

    /// Every byte of small images, by the definition.
    #[test]
    fn all_of_it_agrees_with_the_place_of_each_byte() {
        for (unit, count) in [(0, 0), (1024, 1), (1024, 3), (4096, 2), (512, 5)] {
            let l = layout(12, unit, count);
            for size in [1, 511, 512, 4096, 5000, 12288, 20481, 33000] {
                let mut used: BTreeMap<u64, u64> = BTreeMap::new();
                for at in 0..size {
                    let (object, within) = l.place(at);
                    let end = used.entry(object).or_default();
                    *end = (*end).max(within + 1);
                    assert_eq!(l.ranges(object, within, 1), [(at, 1)]);
                }
                let objects = used.keys().last().map_or(0, |o| o + 1);
                assert_eq!(l.objects(size), objects, "{l:?} {size}");
                for object in 0..objects + 2 {
                    let want = used.get(&object).copied().unwrap_or(0);
                    assert_eq!(l.used(object, size), want, "{l:?} {size} {object}");
                }
                for extent in l.extents(size / 3, size - size / 3) {
                    let ranges = l.ranges(extent.object, extent.offset, extent.length);
                    let pieces: Vec<_> = extent.pieces.iter().map(|(at, n)| (at + size / 3, *n)).collect();
                    assert_eq!(ranges, pieces);
                }
            }
        }
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        for (order, unit, count) in [
            (11, 0, 0),
            (26, 0, 0),
            (22, 3000, 2),
            (22, 8 << 20, 1),
            (22, 4096, 0),
        ] {
            assert!(Layout::new(order, unit, count).is_err(), "{order} {unit} {count}");
        }
    }
}
