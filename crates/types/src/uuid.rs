//! 16 raw bytes in the order of the printed hex digits.

use denc::{Decode, Encode, Reader, Result, Writer};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A random (version 4) id from 16 random bytes.
    pub fn from_random(mut b: [u8; 16]) -> Self {
        b[6] = b[6] & 0x0f | 0x40;
        b[8] = b[8] & 0x3f | 0x80;
        Self(b)
    }

    pub fn is_nil(self) -> bool {
        self.0 == [0; 16]
    }
}

impl Encode for Uuid {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}
impl Decode for Uuid {
    const MIN_SIZE: usize = 16;
    fn decode(r: &mut Reader) -> Result<Self> {
        Ok(Self(r.array()?))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}
impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Uuid {
    type Err = ();
    fn from_str(s: &str) -> std::result::Result<Self, ()> {
        let hex: Vec<u8> = s.bytes().filter(|b| *b != b'-').collect();
        if s.len() != 36 || hex.len() != 32 {
            return Err(());
        }
        let mut out = [0; 16];
        for (o, pair) in out.iter_mut().zip(hex.chunks(2)) {
            let text = std::str::from_utf8(pair).map_err(|_| ())?;
            *o = u8::from_str_radix(text, 16).map_err(|_| ())?;
        }
        Ok(Self(out))
    }
}
