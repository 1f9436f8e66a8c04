//! What a file is, by what it begins and ends with, and whether it would have other files read.
//!
//! That is looked at here, before any tool opens the file: an image may come from somebody who wants our files. An image of
//! QEMU's can name a *backing file* (what it does not hold itself is read from there) or a *data file* (it holds no data at all).
//! A raw disk that a guest may have written to can begin with such an image, and then names what the guest likes.
//!
//! Fields, big-endian unless said otherwise:
//! - qcow2: `QFI\xfb`, u32 version at 4, u64 offset of the backing file's name at 8 (0: none); from version 3 on u64
//!   incompatible features at 72, of which bit 2 says that the data are in another file.
//! - QED, little-endian: `QED\0`, u64 features at 16, of which bit 0 says that there is a backing file.
//! - VMDK, little-endian: `KDMV`, u64 capacity at 12 (0: other files hold the data), descriptor as text among the first
//!   sectors; or the descriptor alone, which always names other files. `parentFileNameHint` there names a parent.
//! - VDI, little-endian: u32 0xbeda107f at 64; u32 type at 76 (4: has a parent); u32 place of the first block at 344, u32 size of a block
//!   at 376, u32 count of blocks in the file at 388.
//! - VHDX: `vhdxfile`. VHD: `conectix` at the beginning, or 512 bytes before the end.

use std::fmt;

/// As much of a file's beginning as is looked at.
pub const HEAD: usize = 64 << 10;
/// And of its end.
pub const TAIL: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Raw,
    Qcow2,
    Qed,
    Vmdk,
    Vdi,
    Vhdx,
    /// Read only: QEMU rounds the size of new ones
    Vhd,
}

impl Format {
    pub const ALL: [Self; 7] = [
        Self::Raw,
        Self::Qcow2,
        Self::Qed,
        Self::Vmdk,
        Self::Vdi,
        Self::Vhdx,
        Self::Vhd,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Qed => "qed",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhdx => "vhdx",
            Self::Vhd => "vhd",
        }
    }

    /// As QEMU calls it.
    pub fn driver(self) -> &'static str {
        match self {
            Self::Vhd => "vpc",
            other => other.name(),
        }
    }

    /// By the end of a file's name; raw if that says nothing.
    pub fn of_suffix(suffix: &str) -> Self {
        let known = Self::ALL
            .into_iter()
            .find(|f| suffix.eq_ignore_ascii_case(f.name()));
        known.unwrap_or(Self::Raw)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The first bytes, at most [`HEAD`], and the last [`TAIL`].
pub fn of(head: &[u8], tail: &[u8]) -> Format {
    match head {
        [b'Q', b'F', b'I', 0xfb, ..] => Format::Qcow2,
        [b'Q', b'E', b'D', 0, ..] => Format::Qed,
        _ if head.starts_with(b"KDMV") || is_descriptor(head) => Format::Vmdk,
        _ if head.starts_with(b"vhdxfile") => Format::Vhdx,
        _ if head.get(64..68) == Some(&0xbeda_107f_u32.to_le_bytes()) => Format::Vdi,
        _ if head.starts_with(b"conectix") || tail.starts_with(b"conectix") => Format::Vhd,
        _ => Format::Raw,
    }
}

fn is_descriptor(head: &[u8]) -> bool {
    contains(&head[..head.len().min(512)], b"# Disk DescriptorFile")
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|w| w == what)
}

/// Why other files would be read with this one; None: they would not be.
pub fn outside(format: Format, head: &[u8]) -> Option<&'static str> {
    let bytes = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok());
    let big = |at| bytes(at).map_or(0, u64::from_be_bytes);
    let little = |at| bytes(at).map_or(0, u64::from_le_bytes);
    let version = (big(4) >> 32) as u32;
    match format {
        Format::Qcow2 if version >= 3 && big(72) & 4 != 0 => Some("its data are in another file"),
        Format::Qcow2 if big(8) != 0 => Some("it has a backing file"),
        Format::Qed if little(16) & 1 != 0 => Some("it has a backing file"),
        Format::Vmdk if !head.starts_with(b"KDMV") || little(12) == 0 => Some("its data are in other files"),
        Format::Vmdk if contains(head, b"parentFileNameHint") => Some("it has a parent"),
        Format::Vdi if little(76) as u32 == 4 => Some("it has a parent"),
        _ => None,
    }
}

/// Whether the file ends before its data do; where `qemu-img check` does not see that itself.
pub fn is_cut(format: Format, head: &[u8], size: u64) -> bool {
    let number = |at: usize| {
        let bytes = head.get(at..at + 4).and_then(|b| b.try_into().ok());
        bytes.map_or(0, |b| u64::from(u32::from_le_bytes(b)))
    };
    let data = || number(376).saturating_mul(number(388));
    format == Format::Vdi && number(344).saturating_add(data()) > size
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bytes` at `at` of a beginning that is otherwise zeros.
    fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; 1024];
        for (at, bytes) in parts {
            head[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn formats_are_found_by_content() {
        let qcow2: (usize, &[u8]) = (0, b"QFI\xfb\0\0\0\x03");
        let vmdk: (usize, &[u8]) = (0, b"KDMV");
        let full: (usize, &[u8]) = (12, &[1]);
        for (parts, format, reads_others) in [
            (&[][..], Format::Raw, false),
            (&[qcow2], Format::Qcow2, false),
            (&[qcow2, (14, b"\x02")], Format::Qcow2, true),
            (&[qcow2, (79, b"\x04")], Format::Qcow2, true),
            (&[(0, b"QFI\xfb\0\0\0\x02"), (79, b"\x04")], Format::Qcow2, false),
            (&[(0, b"QED\0")], Format::Qed, false),
            (&[(0, b"QED\0"), (16, b"\x01")], Format::Qed, true),
            (&[vmdk, full], Format::Vmdk, false),
            (&[vmdk], Format::Vmdk, true),
            (
                &[vmdk, full, (600, b"parentFileNameHint=\"x\"")],
                Format::Vmdk,
                true,
            ),
            (&[(0, b"# Disk DescriptorFile\n")], Format::Vmdk, true),
            (&[(0, b"vhdxfile")], Format::Vhdx, false),
            (&[(64, b"\x7f\x10\xda\xbe"), (76, b"\x01")], Format::Vdi, false),
            (&[(64, b"\x7f\x10\xda\xbe"), (76, b"\x04")], Format::Vdi, true),
            (&[(0, b"conectix")], Format::Vhd, false),
        ] {
            let head = head(parts);
            assert_eq!(of(&head, &[0; TAIL]), format, "{parts:?}");
            assert_eq!(outside(format, &head).is_some(), reads_others, "{parts:?}");
        }
        assert_eq!(of(&[0; 9], b"conectix"), Format::Vhd);
    }

    #[test]
    fn a_vdi_says_how_long_it_is() {
        let whole = head(&[(345, b"\x06"), (378, b"\x10"), (388, b"\x04")]);
        assert!(!is_cut(Format::Vdi, &whole, 4_195_840));
        assert!(is_cut(Format::Vdi, &whole, 4_195_839));
        assert!(!is_cut(Format::Raw, &whole, 1));
        assert!(is_cut(Format::Vdi, &[0xff; 1024], u64::from(u32::MAX)));
    }

    #[test]
    fn short_files_are_raw_or_themselves() {
        for bytes in [&b""[..], b"Q", b"QFI", b"QED", b"KDM", b"vhdxfil"] {
            assert_eq!(of(bytes, b""), Format::Raw);
            assert_eq!(outside(Format::Raw, bytes), None);
        }
        assert_eq!(of(b"QFI\xfb", b""), Format::Qcow2);
        assert_eq!(outside(Format::Qcow2, b"QFI\xfb"), None);
    }
}
