//! Which objects a range of a file lies in (docs/protocol/ceph/06-filesystem.md, 6.14.1).

use client::Error;
use messages::fs::Layout;
use types::Errno;

/// A part of a range that lies in one object, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub object: u64,
    pub offset: u64,
    pub length: u64,
}

pub fn object_name(ino: u64, object: u64) -> String {
    format!("{ino:x}.{object:08x}")
}

/// An error where the layout is none: it came from the server, and is divided by.
pub fn extents(layout: &Layout, offset: u64, length: u64) -> crate::Result<Vec<Extent>> {
    let (unit, count, size) = (
        u64::from(layout.stripe_unit),
        u64::from(layout.stripe_count),
        u64::from(layout.object_size),
    );
    if unit == 0 || count == 0 || size < unit || size % unit != 0 {
        return Err(Error::invalid(Errno::EIO, "a file without a layout"));
    }
    let mut out: Vec<Extent> = Vec::new();
    let mut done = 0;
    while done < length {
        let at = offset + done;
        let (block, within) = (at / unit, at % unit);
        let (stripe, position) = (block / count, block % count);
        let n = (unit - within).min(length - done);
        let next = Extent {
            object: stripe / (size / unit) * count + position,
            offset: stripe % (size / unit) * unit + within,
            length: n,
        };
        match out.last_mut() {
            Some(e) if e.object == next.object && e.offset + e.length == next.offset => e.length += n,
            _ => out.push(next),
        }
        done += n;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As recorded of libcephfs (vectors/filesystem/striping.json).
    #[test]
    fn ranges_lie_where_stock_clients_put_them() {
        let layout = Layout {
            stripe_unit: 65536,
            stripe_count: 2,
            object_size: 131_072,
            ..Layout::default()
        };
        let all = extents(&layout, 0, 300_000).unwrap();
        let objects: Vec<u64> = all.iter().map(|e| e.object).collect();
        assert_eq!(objects, [0, 1, 0, 1, 2]);
        assert_eq!(all[2].offset, 65536);
        assert_eq!(all.iter().map(|e| e.length).sum::<u64>(), 300_000);
        assert!(extents(&Layout::default(), 0, 1).is_err());
        assert_eq!(object_name(0x100_0000_0001, 3), "10000000001.00000003");
    }
}
