//! xxHash, 32 and 64 bits (the public specification, version 0.1.1), as CHECKSUM needs it.

const P32: [u32; 5] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1];
const P64: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

fn u32_at(b: &[u8]) -> u32 {
    let mut a = [0; 4];
    a.copy_from_slice(&b[..4]);
    u32::from_le_bytes(a)
}

fn u64_at(b: &[u8]) -> u64 {
    let mut a = [0; 8];
    a.copy_from_slice(&b[..8]);
    u64::from_le_bytes(a)
}

fn round32(acc: u32, lane: u32) -> u32 {
    acc.wrapping_add(lane.wrapping_mul(P32[1]))
        .rotate_left(13)
        .wrapping_mul(P32[0])
}

pub(super) fn xxh32(data: &[u8], seed: u32) -> u32 {
    let stripes = data.chunks_exact(16);
    let mut rest = stripes.remainder();
    let mut h = if data.len() >= 16 {
        let mut acc = [
            seed.wrapping_add(P32[0]).wrapping_add(P32[1]),
            seed.wrapping_add(P32[1]),
            seed,
            seed.wrapping_sub(P32[0]),
        ];
        for s in stripes {
            for (a, lane) in acc.iter_mut().zip(s.chunks_exact(4)) {
                *a = round32(*a, u32_at(lane));
            }
        }
        acc[0]
            .rotate_left(1)
            .wrapping_add(acc[1].rotate_left(7))
            .wrapping_add(acc[2].rotate_left(12))
            .wrapping_add(acc[3].rotate_left(18))
    } else {
        seed.wrapping_add(P32[4])
    };
    h = h.wrapping_add(data.len() as u32);
    while rest.len() >= 4 {
        h = h.wrapping_add(u32_at(rest).wrapping_mul(P32[2]));
        h = h.rotate_left(17).wrapping_mul(P32[3]);
        rest = &rest[4..];
    }
    for b in rest {
        h = h.wrapping_add(u32::from(*b).wrapping_mul(P32[4]));
        h = h.rotate_left(11).wrapping_mul(P32[0]);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P32[1]);
    h = (h ^ (h >> 13)).wrapping_mul(P32[2]);
    h ^ (h >> 16)
}

fn round64(acc: u64, lane: u64) -> u64 {
    acc.wrapping_add(lane.wrapping_mul(P64[1]))
        .rotate_left(31)
        .wrapping_mul(P64[0])
}

fn merge64(h: u64, acc: u64) -> u64 {
    (h ^ round64(0, acc)).wrapping_mul(P64[0]).wrapping_add(P64[3])
}

pub(super) fn xxh64(data: &[u8], seed: u64) -> u64 {
    let stripes = data.chunks_exact(32);
    let mut rest = stripes.remainder();
    let mut h = if data.len() >= 32 {
        let mut acc = [
            seed.wrapping_add(P64[0]).wrapping_add(P64[1]),
            seed.wrapping_add(P64[1]),
            seed,
            seed.wrapping_sub(P64[0]),
        ];
        for s in stripes {
            for (a, lane) in acc.iter_mut().zip(s.chunks_exact(8)) {
                *a = round64(*a, u64_at(lane));
            }
        }
        let h = acc[0]
            .rotate_left(1)
            .wrapping_add(acc[1].rotate_left(7))
            .wrapping_add(acc[2].rotate_left(12))
            .wrapping_add(acc[3].rotate_left(18));
        acc.into_iter().fold(h, merge64)
    } else {
        seed.wrapping_add(P64[4])
    };
    h = h.wrapping_add(data.len() as u64);
    while rest.len() >= 8 {
        h ^= round64(0, u64_at(rest));
        h = h.rotate_left(27).wrapping_mul(P64[0]).wrapping_add(P64[3]);
        rest = &rest[8..];
    }
    if rest.len() >= 4 {
        h ^= u64::from(u32_at(rest)).wrapping_mul(P64[0]);
        h = h.rotate_left(23).wrapping_mul(P64[1]).wrapping_add(P64[2]);
        rest = &rest[4..];
    }
    for b in rest {
        h ^= u64::from(*b).wrapping_mul(P64[4]);
        h = h.rotate_left(11).wrapping_mul(P64[0]);
    }
    h = (h ^ (h >> 33)).wrapping_mul(P64[1]);
    h = (h ^ (h >> 29)).wrapping_mul(P64[2]);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(xxh32(b"", 0), 0x02cc_5d05);
        assert_eq!(xxh64(b"", 0), 0xef46_db37_51d8_e999);
        assert_eq!(xxh32(b"0123456789", u32::MAX), 0x38a6_5e4e);
        assert_eq!(xxh64(b"0123456789", u64::MAX), 0xb68b_7808_1728_1dfa);
        // Long inputs take the striped path.
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition", 0), 0xe229_3b2f);
        assert_eq!(
            xxh64(b"Nobody inspects the spammish repetition", 0),
            0xfbce_a83c_8a37_8bf1
        );
    }
}
