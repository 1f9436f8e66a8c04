//! CRC-32C in Ceph's convention (docs/protocol/ceph/01-messenger.md, 1.4): the register starts at the seed, and
//! nothing is inverted at the start or the end.

use crc_fast::{CrcAlgorithm, Digest};

/// The running value over `data`, starting from `seed`. Chains: `crc32c(crc32c(s, a), b) == crc32c(s, a ++ b)`.
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    // The library's state is the register itself, before the final inversion.
    let mut d = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    d.update(data);
    !(d.finalize() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_convention() {
        assert_eq!(crc32c(0, b"foo bar baz"), 4_119_623_852);
        assert_eq!(crc32c(1234, b"foo bar baz"), 881_700_046);
        assert_eq!(crc32c(0xffff_ffff, b"foo bar baz"), 0xa0a2_31ab);
        assert_eq!(crc32c(7, b""), 7);
        assert_eq!(crc32c(crc32c(9, b"ab"), b"c"), crc32c(9, b"abc"));
    }
}
