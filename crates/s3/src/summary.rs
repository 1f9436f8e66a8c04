//! What a listing shows of an entry, read where its bytes lie: the record's other fields are passed over, and nothing is copied.
//!
//! Invariants: of bytes that [`Entry`](crate::record::Entry) is decoded from, a summary says the same; an entry whose own envelope, attributes or
//! checksum need a newer decoder is refused here, too. Fields that are passed over are not looked at: an entry that is damaged, or needs a newer decoder,
//! there alone is listed, and reading it is refused.

use crate::record::{SEALED, WITH_CLASS};
use denc::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary<'a> {
    pub size: u64,
    /// Without quotes.
    pub etag: &'a str,
    /// Milliseconds since 1970.
    pub modified: u64,
    /// The storage class; empty: STANDARD.
    pub class: &'a str,
    /// Of the checksum that the client chose, if it did.
    pub algorithm: Option<&'a str>,
}

impl<'a> Summary<'a> {
    pub fn of(entry: &'a [u8]) -> Result<Self> {
        let (_, mut fields) = Scan { rest: entry, at: 0 }.envelope(SEALED)?;
        let size = fields.u64()?;
        let etag = fields.text()?;
        let modified = fields.u64()?;
        fields.skip_data()?;
        let class = fields.class()?;
        let algorithm = match fields.u8()? {
            0 => None,
            _ => Some(fields.envelope(1)?.1.text()?),
        };
        Ok(Self {
            size,
            etag,
            modified,
            class,
            algorithm,
        })
    }
}

/// A position in bytes, which all are untrusted.
struct Scan<'a> {
    rest: &'a [u8],
    /// How many came before.
    at: usize,
}

impl<'a> Scan<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(n) else {
            return Err(Error::Short {
                at: self.at,
                need: n,
                left: self.rest.len(),
            });
        };
        self.rest = rest;
        self.at += n;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn blob(&mut self) -> Result<&'a [u8]> {
        let n = self.u32()? as usize;
        self.take(n)
    }

    fn text(&mut self) -> Result<&'a str> {
        let at = self.at;
        std::str::from_utf8(self.blob()?).map_err(|_| Error::Invalid {
            at,
            what: "string is not UTF-8",
        })
    }

    /// The version of a versioned struct, and its fields.
    fn envelope(&mut self, known: u8) -> Result<(u8, Self)> {
        let start = self.at;
        let [version, compat] = self.array()?;
        if compat > known {
            return Err(Error::TooNew {
                at: start,
                compat,
                known,
            });
        }
        let len = self.u32()? as usize;
        let at = self.at;
        let rest = self.take(len)?;
        Ok((version, Self { rest, at }))
    }

    /// Where the bytes are (`place::Data`): a kind, a tag, and a place if it is elsewhere.
    fn skip_data(&mut self) -> Result<()> {
        let at = self.at;
        let n = match self.u8()? {
            0 => 0,
            1 | 2 => 16,
            3 | 4 => 20,
            _ => {
                return Err(Error::Invalid {
                    at,
                    what: "kind of data",
                });
            }
        };
        self.take(n)?;
        Ok(())
    }

    /// That of attributes, which are passed over whole where they have none.
    fn class(&mut self) -> Result<&'a str> {
        let (version, mut fields) = self.envelope(WITH_CLASS)?;
        if version < WITH_CLASS {
            return Ok("");
        }
        // Headers, what the client named himself, tags: two texts for each.
        for _ in 0..3 {
            for _ in 0..fields.u32()? {
                fields.blob()?;
                fields.blob()?;
            }
        }
        // Whether everybody may read it.
        fields.u8()?;
        fields.text()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::place::{Data, Place, Tag};
    use crate::record::{Attributes, Checksum, Entry};
    use crate::version::{Lock, Order, Version};
    use bytes::Bytes;
    use denc::{Decode, Encode};
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use proptest::sample::select;

    fn shown(entry: &Entry) -> Summary<'_> {
        Summary {
            size: entry.size,
            etag: &entry.etag,
            modified: entry.modified,
            class: &entry.attributes.class,
            algorithm: entry.checksum.as_ref().map(|c| c.algorithm.as_str()),
        }
    }

    fn data() -> impl Strategy<Value = Data> {
        (0..3u8, any::<[u8; 16]>(), 0..3u32).prop_map(|(kind, tag, place)| match kind {
            0 => Data::None,
            1 => Data::Stripes(Tag(tag), Place(place)),
            _ => Data::Manifest(Tag(tag), Place(place)),
        })
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        let some = || btree_map("[a-z-]{0,9}", ".{0,9}", 0..3);
        let class = select(vec!["", "COLD", "é<"]);
        (some(), some(), some(), any::<bool>(), class).prop_map(
            |(headers, meta, tags, public_read, class)| Attributes {
                headers,
                meta,
                tags,
                public_read,
                class: class.to_string(),
            },
        )
    }

    prop_compose! {
        pub(crate) fn entries()(
            (size, etag, modified, parts) in (any::<u64>(), ".{0,40}", any::<u64>(), any::<u32>()),
            (data, attributes) in (data(), attributes()),
            algorithm in proptest::option::of(select(vec!["CRC32", "CRC64NVME", ""])),
            version in proptest::option::of(any::<u64>()),
        ) -> Entry {
            Entry {
                size,
                etag,
                modified,
                data,
                attributes,
                checksum: algorithm.map(|a| Checksum { algorithm: a.into(), value: "AA==".into() }),
                parts,
                upload: "u".repeat(parts as usize % 3),
                version: version.map(|at| Version { order: Order::new(at, 1), null: at % 2 == 0 }),
                lock: Lock { hold: size % 2 == 0, ..Lock::default() },
                sealed: None,
            }
        }
    }

    proptest! {
        #[test]
        fn a_summary_says_what_the_entry_says(entry in entries()) {
            let bytes = entry.to_bytes();
            prop_assert_eq!(Summary::of(&bytes), Ok(shown(&entry)));
        }

        /// What was changed or cut off anywhere is refused, or read as the entry is.
        #[test]
        fn damaged_entries_are_no_others(
            entry in entries(),
            at in any::<prop::sample::Index>(),
            (byte, cut) in (any::<u8>(), any::<bool>()),
        ) {
            let mut bytes = entry.to_bytes().to_vec();
            let at = at.index(bytes.len());
            match cut {
                true => bytes.truncate(at),
                false => bytes[at] = byte,
            }
            let bytes = Bytes::from(bytes);
            match Entry::from_bytes(&bytes) {
                Ok(read) => prop_assert_eq!(Summary::of(&bytes), Ok(shown(&read))),
                // It may be damaged where a summary does not look: it must end, and not panic.
                Err(_) => {
                    let _ = Summary::of(&bytes);
                }
            }
        }

        #[test]
        fn any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            if let Ok(read) = Entry::from_bytes(&bytes) {
                prop_assert_eq!(Summary::of(&bytes), Ok(shown(&read)));
            }
            let _ = Summary::of(&bytes);
        }
    }

    #[test]
    fn an_entry_of_a_later_program_is_refused() {
        let mut bytes = vec![SEALED + 1, SEALED + 1];
        bytes.extend([0; 4]);
        let refused = Error::TooNew {
            at: 0,
            compat: SEALED + 1,
            known: SEALED,
        };
        assert_eq!(Summary::of(&bytes), Err(refused.clone()));
        assert_eq!(Entry::from_bytes(&bytes.into()), Err(refused));
    }
}
