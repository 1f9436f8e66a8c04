//! The file `seal` of a sealed disk: the disk's own key, under a key of the operator's (AES-256-GCM).
//!
//! Two copies of [`COPY`] bytes, of which either serves. Without this file, or without the operator's key, nothing on the disk can be read: to destroy
//! either is to erase the disk. Under another key of the operator's the same disk's key is sealed anew ([`renew`]), and no data is written again.

use super::xts::KEY_BYTES;
use crate::disk::{Disk, DiskFile};
use crate::key_file::{KeyFile, NAME_MAX};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

pub const FILE: &str = "seal";

pub const MAGIC: &[u8; 8] = b"SKEPSEAL";
/// What is written, and all that is read.
pub const VERSION: u32 = 1;
/// AES-256-XTS in sectors of 4096 bytes.
const CIPHER: u32 = 1;
const TAG: usize = 16;
/// Magic, version, cipher, length of the name, name: what the key is bound to.
const HEADER: usize = 8 + 4 + 4 + 1 + NAME_MAX;
const NONCE_AT: usize = HEADER;
const SEALED_AT: usize = NONCE_AT + NONCE_LEN;
const END: usize = SEALED_AT + KEY_BYTES + TAG;
/// A copy; bytes behind its end are zeros.
pub const COPY: usize = 4096;

fn refused(why: String) -> Error {
    Error::new(ErrorKind::PermissionDenied, why)
}

fn damaged(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("the file '{FILE}' {why}"))
}

fn cipher(key: &[u8; 32]) -> Result<LessSafeKey> {
    let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| Error::other("the cipher refuses its key"))?;
    Ok(LessSafeKey::new(key))
}

fn header(name: &str) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&CIPHER.to_le_bytes());
    out[16] = name.len().min(NAME_MAX) as u8;
    out[17..][..name.len().min(NAME_MAX)].copy_from_slice(&name.as_bytes()[..name.len().min(NAME_MAX)]);
    out
}

fn encode(name: &str, master: &[u8; 32], key: &[u8; KEY_BYTES]) -> Result<Vec<u8>> {
    let header = header(name);
    let mut nonce = [0; NONCE_LEN];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| Error::other("no randomness"))?;
    let mut sealed = key.to_vec();
    let tag = cipher(master)?
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(header),
            &mut sealed,
        )
        .map_err(|_| Error::other("the cipher failed"))?;
    let mut out = header.to_vec();
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&sealed);
    out.extend_from_slice(tag.as_ref());
    out.resize(COPY, 0);
    Ok(out)
}

/// The name of the operator's key in a copy; None: it is none.
fn name_in(copy: &[u8]) -> Result<&str> {
    if copy.len() < END || &copy[..8] != MAGIC {
        return Err(damaged("is damaged"));
    }
    let number = |at: usize| copy[at..at + 4].try_into().ok().map(u32::from_le_bytes);
    if number(8) != Some(VERSION) || number(12) != Some(CIPHER) {
        return Err(damaged("is of a newer program"));
    }
    let name = copy[17..HEADER].get(..usize::from(copy[16]));
    let name = name.and_then(|n| std::str::from_utf8(n).ok());
    name.ok_or_else(|| damaged("is damaged"))
}

/// The disk's key, and whether it is under the first of `keys`.
fn decode(copy: &[u8], keys: Option<&KeyFile>) -> Result<([u8; KEY_BYTES], bool)> {
    let name = name_in(copy)?;
    let Some(keys) = keys else {
        return Err(refused(format!(
            "it is encrypted under the key '{name}': start with the file that has it (--osd-keys)"
        )));
    };
    let Some(master) = keys.get(name) else {
        let known: Vec<&str> = keys.names().collect();
        return Err(refused(format!(
            "it is encrypted under the key '{name}'; the file of keys has {}",
            known.join(", ")
        )));
    };
    let nonce = copy[NONCE_AT..SEALED_AT].try_into().unwrap_or([0; NONCE_LEN]);
    let mut sealed = copy[SEALED_AT..END].to_vec();
    let opened = cipher(master)?.open_in_place(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(&copy[..HEADER]),
        &mut sealed,
    );
    let opened = opened.map_err(|_| {
        refused(format!(
            "the key '{name}' is not the one that it was encrypted under, or '{FILE}' is damaged"
        ))
    })?;
    let key = <[u8; KEY_BYTES]>::try_from(&*opened).map_err(|_| damaged("is damaged"))?;
    sealed.fill(0);
    let is_first = keys.first().is_some_and(|(first, _)| first == name);
    Ok((key, is_first))
}

/// Where the copies are; the first one's word counts.
const COPIES: [u64; 2] = [0, COPY as u64];

/// As much of it as there is; zeros where the file is shorter.
fn copy_at(file: &dyn DiskFile, at: u64) -> Result<Vec<u8>> {
    let mut copy = vec![0; COPY];
    let there = file.len()?.saturating_sub(at).min(COPY as u64) as usize;
    if there > 0 {
        file.read_at(&mut copy[..there], at)?;
    }
    Ok(copy)
}

/// Whether a key was ever kept there: without that, nothing was written under one.
pub fn has_key(disk: &dyn Disk) -> Result<bool> {
    let file = disk.open(FILE)?;
    for at in COPIES {
        if copy_at(&*file, at)?.starts_with(MAGIC) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A key of its own for a disk that has none, under the first of `keys`; durable. The file is locked until it is closed.
pub fn make(disk: &dyn Disk, keys: &KeyFile) -> Result<([u8; KEY_BYTES], Arc<dyn DiskFile>)> {
    let (name, master) = keys.first().ok_or_else(|| refused("no key is given".into()))?;
    let mut key = [0; KEY_BYTES];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| Error::other("no randomness"))?;
    let copy = encode(name, master, &key)?;
    let busy = || Error::new(ErrorKind::WouldBlock, "another process makes a store here");
    if disk.exists(FILE)? {
        // Of an earlier try, without a key in it.
        let old = disk.open(FILE)?;
        if !old.try_lock()? {
            return Err(busy());
        }
        disk.remove(FILE)?;
    }
    let file = disk.create(FILE)?;
    let write = || {
        if !file.try_lock()? {
            return Err(busy());
        }
        // The second first, as whenever they change.
        for at in COPIES.iter().rev() {
            file.write_at(&copy, *at)?;
            file.flush()?;
        }
        disk.sync()
    };
    match write() {
        Ok(()) => Ok((key, file)),
        Err(e) => {
            let _ = disk.remove(FILE);
            Err(e)
        }
    }
}

/// The key of a disk that is sealed, by the first copy that serves.
pub fn read(disk: &dyn Disk, keys: Option<&KeyFile>) -> Result<[u8; KEY_BYTES]> {
    let file = disk.open(FILE)?;
    let mut why: Option<Error> = None;
    for at in COPIES {
        match copy_at(&*file, at).and_then(|copy| decode(&copy, keys)) {
            Ok((key, _)) => return Ok(key),
            // What tells of a key says more than what is damaged.
            Err(e) if why.as_ref().is_none_or(|w| w.kind() == ErrorKind::InvalidData) => why = Some(e),
            Err(_) => {}
        }
    }
    Err(why.unwrap_or_else(|| damaged("is damaged")))
}

/// Both copies whole, and under the first of `keys`, which have to open one of them. The name of that key, if anything was changed.
pub fn renew(disk: &dyn Disk, keys: &KeyFile) -> Result<Option<String>> {
    let file = disk.open(FILE)?;
    let key = read(disk, Some(keys))?;
    let is_good = |at: u64| copy_at(&*file, at).and_then(|copy| decode(&copy, Some(keys)));
    let mut stale: Vec<(bool, u64)> = Vec::new();
    for at in COPIES.iter().rev() {
        match is_good(*at) {
            Ok((_, true)) => {}
            // One that does not serve first: the other one does meanwhile.
            other => stale.push((other.is_ok(), *at)),
        }
    }
    stale.sort_by_key(|(serves, _)| *serves);
    let Some((name, master)) = keys.first().filter(|_| !stale.is_empty()) else {
        return Ok(None);
    };
    let copy = encode(name, master, &key)?;
    for (_, at) in stale {
        file.write_at(&copy, at)?;
        file.flush()?;
    }
    Ok(Some(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{SimDisk, Survival};

    const A: &str = "a MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n";
    const B: &str = "b AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";

    fn keys(lines: &[&str]) -> KeyFile {
        KeyFile::parse(&lines.concat()).unwrap()
    }

    fn opened(disk: &SimDisk, lines: &[&str]) -> Result<[u8; KEY_BYTES]> {
        let keys = keys(lines);
        let key = read(disk, Some(&keys))?;
        renew(disk, &keys)?;
        Ok(key)
    }

    #[test]
    fn a_newer_seal_is_refused_and_stays() {
        let disk = SimDisk::new();
        drop(make(&disk, &keys(&[A])).unwrap());
        let file = disk.open(FILE).unwrap();
        for at in COPIES {
            file.write_at(&(VERSION + 1).to_le_bytes(), at + 8).unwrap();
        }
        let before = disk.content(FILE);
        let said = opened(&disk, &[A]).unwrap_err();
        assert!(said.to_string().contains("of a newer program"), "{said}");
        assert!(disk.content(FILE) == before);
    }

    #[test]
    fn a_disk_has_its_key_for_good_under_changing_keys_of_the_operator() {
        let disk = SimDisk::new();
        let (key, _) = make(&disk, &keys(&[A])).unwrap();
        assert_eq!(opened(&disk, &[A]).unwrap(), key);
        // Under the first one from now on.
        assert_eq!(opened(&disk, &[B, A]).unwrap(), key);
        assert_eq!(opened(&disk, &[B]).unwrap(), key);
        let said = opened(&disk, &[A]).unwrap_err();
        assert!(
            said.to_string()
                .contains("under the key 'b'; the file of keys has a"),
            "{said}"
        );
        let said = read(&disk, None).unwrap_err();
        assert!(said.to_string().contains("encrypted under the key 'b'"), "{said}");
        assert_eq!(said.kind(), ErrorKind::PermissionDenied);
        let other = KeyFile::parse(&A.replacen('a', "b", 1)).unwrap();
        let said = read(&disk, Some(&other)).unwrap_err();
        assert!(said.to_string().contains("'b' is not the one"), "{said}");
        // Every disk has another one.
        assert_ne!(make(&SimDisk::new(), &keys(&[A])).unwrap().0, key);
    }

    #[test]
    fn either_copy_serves_and_a_bad_one_is_mended() {
        for at in [0, COPY] {
            let disk = SimDisk::new();
            let (key, file) = make(&disk, &keys(&[A])).unwrap();
            drop(file);
            disk.flip(FILE, (at + SEALED_AT) as u64, 3);
            let bad = disk.copy();
            assert_eq!(opened(&disk, &[A]).unwrap(), key, "copy at {at}");
            // As good as new: the other one may go now.
            disk.flip(FILE, (COPY - at + SEALED_AT) as u64, 3);
            assert_eq!(read(&disk, Some(&keys(&[A]))).unwrap(), key, "copy at {at}");
            bad.flip(FILE, (COPY - at + SEALED_AT) as u64, 3);
            let said = read(&bad, Some(&keys(&[A]))).unwrap_err();
            assert!(said.to_string().contains("damaged"), "{said}");
        }
    }

    #[test]
    fn a_cut_under_a_change_of_keys_leaves_one_that_opens() {
        let disk = SimDisk::new();
        let (key, file) = make(&disk, &keys(&[A])).unwrap();
        drop(file);
        for n in 0.. {
            let cut = disk.copy();
            cut.cut_at(n);
            let done = opened(&cut, &[B, A]);
            for seed in 0..8 {
                let left = cut.survivor_of(Survival::Some(seed));
                assert_eq!(opened(&left, &[B, A]).unwrap(), key, "cut {n}, seed {seed}");
                // Whole again, whatever was left.
                assert_eq!(opened(&left, &[B]).unwrap(), key, "cut {n}, seed {seed}");
            }
            if done.is_ok() {
                assert!(n > 3, "{n}");
                break;
            }
        }
    }

    #[test]
    fn what_was_cut_short_before_it_had_a_key_is_made_anew_by_one_process() {
        let disk = SimDisk::new();
        drop(disk.create(FILE).unwrap());
        assert!(!has_key(&disk).unwrap());
        let (_, file) = make(&disk, &keys(&[A])).unwrap();
        assert!(has_key(&disk).unwrap());
        assert_eq!(
            make(&disk, &keys(&[A])).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        drop(file);
    }
}
