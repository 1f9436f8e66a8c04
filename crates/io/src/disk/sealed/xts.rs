//! AES-256-XTS (IEEE 1619) over sectors of [`SECTOR`] bytes, each with a number of its own as the tweak.
//!
//! It keeps lengths, so formats stay as they are, and hides what was written from who has the disk. It proves nothing: what somebody has
//! changed there is other bytes, which the layers above find by their checksums.

#![allow(unsafe_code)] // the cipher is a C library's

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CipherInit_ex, EVP_CipherUpdate,
    EVP_aes_256_xts,
};
use std::fmt;
use std::io::{Error, Result};
use std::ptr::{NonNull, null, null_mut};
use std::sync::{Mutex, PoisonError};

pub const SECTOR: usize = 4096;
/// What one operation of the cipher covers: parts of sectors are whole multiples of it.
pub const UNIT: usize = 16;
/// Two different halves: of the data and of the tweaks.
pub const KEY_BYTES: usize = 64;

/// Contexts that wait for the next caller; as many threads use a file at once.
const IDLE_MAX: usize = 8;

/// Unchanged for good, so that a context is made from it only once.
pub struct Xts {
    key: [u8; KEY_BYTES],
    idle: Mutex<Vec<Pair>>,
}

struct Pair {
    seal: Context,
    open: Context,
}

/// One direction under one key.
struct Context(NonNull<EVP_CIPHER_CTX>);

// SAFETY: the context is owned memory that is not tied to a thread; it is used through `&mut` alone.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `EVP_CIPHER_CTX_new`, and freed once.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) }
    }
}

impl Context {
    fn new(key: &[u8; KEY_BYTES], seals: bool) -> Result<Self> {
        // SAFETY: no arguments; null is looked at.
        let raw = unsafe { EVP_CIPHER_CTX_new() };
        let context = Self(NonNull::new(raw).ok_or_else(|| Error::other("no memory for a cipher"))?);
        // SAFETY: the context is alive, the key has the cipher's 64 bytes, and no tweak is read yet.
        let done = unsafe {
            EVP_CipherInit_ex(
                context.0.as_ptr(),
                EVP_aes_256_xts(),
                null_mut(),
                key.as_ptr(),
                null(),
                i32::from(seals),
            )
        };
        match done {
            1 => Ok(context),
            _ => Err(Error::other("the cipher refuses its key")),
        }
    }

    /// In place. `data`: from the sector's start on, [`UNIT`]s, no more than a sector.
    fn pass(&mut self, tweak: u128, data: &mut [u8]) -> Result<()> {
        let failed = || Error::other("the cipher failed");
        if data.is_empty() || data.len() > SECTOR || data.len() % UNIT != 0 {
            return Err(failed());
        }
        let tweak = tweak.to_le_bytes();
        let (mut out, ctx, len) = (0, self.0.as_ptr(), data.len());
        let place = data.as_mut_ptr();
        // SAFETY: the context has its key; the tweak has 16 bytes; -1 keeps the direction. Input and output are the same memory of `data.len()`
        // bytes, which this cipher allows, and it writes as many as it reads.
        let done = unsafe {
            EVP_CipherInit_ex(ctx, null(), null_mut(), null(), tweak.as_ptr(), -1) == 1
                && EVP_CipherUpdate(ctx, place, &mut out, place, len as i32) == 1
        };
        match done && out as usize == len {
            true => Ok(()),
            false => Err(failed()),
        }
    }
}

impl fmt::Debug for Xts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Xts")
    }
}

impl Drop for Xts {
    fn drop(&mut self) {
        self.key.fill(0);
        std::hint::black_box(&self.key);
    }
}

impl Xts {
    pub fn new(key: [u8; KEY_BYTES]) -> Result<Self> {
        let xts = Self {
            key,
            idle: Mutex::default(),
        };
        // A key that the cipher does not take is found out now.
        xts.with(|_| Ok(()))?;
        Ok(xts)
    }

    fn with<T>(&self, f: impl FnOnce(&mut Pair) -> Result<T>) -> Result<T> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle().pop();
        let mut pair = match waiting {
            Some(pair) => pair,
            None => Pair {
                seal: Context::new(&self.key, true)?,
                open: Context::new(&self.key, false)?,
            },
        };
        let done = f(&mut pair)?;
        let mut idle = idle();
        if idle.len() < IDLE_MAX {
            idle.push(pair);
        }
        Ok(done)
    }

    /// In place; `first`: the tweak of the first sector, those behind it have the next numbers. Sectors from their start; the last one may be a part.
    pub fn seal(&self, first: u128, data: &mut [u8]) -> Result<()> {
        self.with(|pair| {
            let mut tweaks = first..;
            let mut sectors = data.chunks_mut(SECTOR).zip(tweaks.by_ref());
            sectors.try_for_each(|(sector, tweak)| pair.seal.pass(tweak, sector))
        })
    }

    /// In place, as [`Xts::seal`]. Units of zeros are what was never written, or given back to the host, and stay zeros: nothing that is
    /// sealed comes to that but by one chance in 2^128.
    pub fn open(&self, first: u128, data: &mut [u8]) -> Result<()> {
        self.with(|pair| {
            let mut tweaks = first..;
            let mut sectors = data.chunks_mut(SECTOR).zip(tweaks.by_ref());
            sectors.try_for_each(|(sector, tweak)| {
                let holes = Holes::of(sector);
                if holes.count * UNIT == sector.len() {
                    return Ok(());
                }
                pair.open.pass(tweak, sector)?;
                holes.fill(sector);
                Ok(())
            })
        })
    }
}

/// Which units of a sector are zeros.
struct Holes {
    bits: [u64; SECTOR / UNIT / 64],
    count: usize,
}

impl Holes {
    fn of(sector: &[u8]) -> Self {
        let mut holes = Self {
            bits: [0; SECTOR / UNIT / 64],
            count: 0,
        };
        let (units, _) = sector.as_chunks::<UNIT>();
        for (i, unit) in units.iter().enumerate() {
            if u128::from_ne_bytes(*unit) == 0 {
                holes.bits[i / 64] |= 1 << (i % 64);
                holes.count += 1;
            }
        }
        holes
    }

    fn fill(&self, sector: &mut [u8]) {
        if self.count == 0 {
            return;
        }
        let (units, _) = sector.as_chunks_mut::<UNIT>();
        for (i, unit) in units.iter_mut().enumerate() {
            if self.bits[i / 64] >> (i % 64) & 1 == 1 {
                *unit = [0; UNIT];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IEEE 1619-2007, Annex B, vectors 10 and 11: AES-256, the first 32 bytes of 512.
    #[test]
    fn published_vectors() {
        let key: Vec<u8> = [
            "2718281828459045235360287471352662497757247093699959574966967627",
            "3141592653589793238462643383279502884197169399375105820974944592",
        ]
        .concat()
        .as_bytes()
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect();
        let xts = Xts::new(key.try_into().unwrap()).unwrap();
        let mut data: Vec<u8> = (0..512u32).map(|n| n as u8).collect();
        let plain = data.clone();
        xts.seal(0xff, &mut data).unwrap();
        let begin = [
            0x1c, 0x3b, 0x3a, 0x10, 0x2f, 0x77, 0x03, 0x86, 0xe4, 0x83, 0x6c, 0x99, 0xe3, 0x70, 0xcf, 0x9b,
        ];
        assert_eq!(data[..16], begin);
        xts.open(0xff, &mut data).unwrap();
        assert_eq!(data, plain);
    }

    fn xts() -> Xts {
        let mut key = [0; KEY_BYTES];
        (0..).zip(&mut key).for_each(|(n, b)| *b = n);
        Xts::new(key).unwrap()
    }

    #[test]
    fn parts_of_a_sector_are_as_in_the_whole() {
        let xts = xts();
        let mut whole = vec![7; 2 * SECTOR];
        xts.seal(5, &mut whole).unwrap();
        let mut part = vec![7; SECTOR + 48];
        xts.seal(5, &mut part).unwrap();
        assert_eq!(part[..], whole[..SECTOR + 48]);
        // The same bytes look different in each sector, and under each tweak.
        assert_ne!(whole[..SECTOR], whole[SECTOR..]);
        let mut other = vec![7; SECTOR];
        xts.seal(5 | 1 << 64, &mut other).unwrap();
        assert_ne!(other[..], whole[..SECTOR]);
    }

    #[test]
    fn what_was_never_written_reads_as_zeros() {
        let xts = xts();
        let mut data = vec![9; SECTOR];
        xts.seal(1, &mut data).unwrap();
        data[32..64].fill(0);
        data.resize(2 * SECTOR, 0);
        xts.open(1, &mut data).unwrap();
        assert!(data[32..64].iter().chain(&data[SECTOR..]).all(|b| *b == 0));
        assert!(data[..32].iter().chain(&data[64..SECTOR]).all(|b| *b == 9));
    }

    #[test]
    fn other_lengths_are_refused() {
        for len in [1, 15, 17, SECTOR + 8] {
            assert!(xts().seal(0, &mut vec![1; len]).is_err(), "{len}");
        }
        assert!(Xts::new([3; KEY_BYTES]).is_err(), "halves that are the same");
    }
}
