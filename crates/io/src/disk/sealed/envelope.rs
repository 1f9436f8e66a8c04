//! The file `seal` of a sealed disk: the disk's own key, under a key of the operator's (AES-256-GCM).
//!
//! Two copies of [`COPY`] bytes, of which either serves. Without this file, or without the operator's key, nothing on the disk can be read: to destroy
//! either is to erase the disk. Under another key of the operator's the same disk's key is sealed anew, and no data is written again.

use super::xts::KEY_BYTES;
use crate::disk::{Disk, DiskFile};
use crate::key_file::{KeyFile, NAME_MAX};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::io::{Error, ErrorKind, Result};

pub const FILE: &str = "seal";

const MAGIC: &[u8; 8] = b"SKEPSEAL";
const VERSION: u32 = 1;
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
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(header), &mut sealed)
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
    let number = |at: usize| copy[at..at + 4].try_into().map(u32::from_le_bytes);
    if copy.len() < END || &copy[..8] != MAGIC {
        return Err(damaged("is damaged"));
    }
    if number(8) != Ok(VERSION) || number(12) != Ok(CIPHER) {
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
        refused(format!("the key '{name}' is not the one that it was encrypted under, or '{FILE}' is damaged"))
    })?;
    let key = <[u8; KEY_BYTES]>::try_from(&*opened).map_err(|_| damaged("is damaged"))?;
    sealed.fill(0);
    let is_first = keys.first().is_some_and(|(first, _)| first == name);
    Ok((key, is_first))
}

fn write(file: &dyn DiskFile, copy: &[u8]) -> Result<()> {
    // The second first: one of the two is whole at any time.
    for at in [COPY as u64, 0] {
        file.write_at(copy, at)?;
        file.flush()?;
    }
    Ok(())
}

/// A key of its own for a disk that has none, under the first of `keys`; durable.
pub fn make(disk: &dyn Disk, keys: &KeyFile) -> Result<[u8; KEY_BYTES]> {
    let (name, master) = keys.first().ok_or_else(|| refused("no key is given".into()))?;
    let mut key = [0; KEY_BYTES];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| Error::other("no randomness"))?;
    let copy = encode(name, master, &key)?;
    let file = disk.create(FILE)?;
    write(&*file, &copy)?;
    disk.sync()?;
    Ok(key)
}

/// The key of a disk that is sealed, by the first copy that serves. Where `keys` has another first key than the one that it is under, and the
/// disk may be written, it is under that from now on.
pub fn read(disk: &dyn Disk, keys: Option<&KeyFile>) -> Result<[u8; KEY_BYTES]> {
    let file = disk.open(FILE)?;
    let mut found = None;
    let mut why = damaged("is damaged");
    for at in [0, COPY as u64] {
        let mut copy = vec![0; COPY];
        match file.read_at(&mut copy, at).and_then(|()| decode(&copy, keys)) {
            Ok(good) => {
                found = Some(good);
                break;
            }
            // The first one's word counts: it is the newer one.
            Err(e) if at == 0 || why.kind() == ErrorKind::InvalidData => why = e,
            Err(_) => {}
        }
    }
    let (key, is_first) = found.ok_or(why)?;
    if let Some((name, master)) = keys.and_then(|k| k.first()).filter(|_| !is_first && !file.is_read_only()) {
        write(&*file, &encode(name, master, &key)?)?;
    }
    Ok(key)
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

    #[test]
    fn a_disk_has_its_key_for_good_under_changing_keys_of_the_operator() {
        let disk = SimDisk::new();
        let key = make(&disk, &keys(&[A])).unwrap();
        assert_eq!(read(&disk, Some(&keys(&[A]))).unwrap(), key);
        // Under the first one from now on.
        assert_eq!(read(&disk, Some(&keys(&[B, A]))).unwrap(), key);
        assert_eq!(read(&disk, Some(&keys(&[B]))).unwrap(), key);
        let said = read(&disk, Some(&keys(&[A]))).unwrap_err();
        assert!(said.to_string().contains("under the key 'b'; the file of keys has a"), "{said}");
        let said = read(&disk, None).unwrap_err();
        assert!(said.to_string().contains("encrypted under the key 'b'"), "{said}");
        assert_eq!(said.kind(), ErrorKind::PermissionDenied);
        let other = KeyFile::parse(&A.replacen('a', "b", 1)).unwrap();
        let said = read(&disk, Some(&other)).unwrap_err();
        assert!(said.to_string().contains("'b' is not the one"), "{said}");
        // Every disk has another one.
        assert_ne!(make(&SimDisk::new(), &keys(&[A])).unwrap(), key);
    }

    #[test]
    fn either_copy_serves() {
        let disk = SimDisk::new();
        let key = make(&disk, &keys(&[A])).unwrap();
        disk.flip(FILE, 3, 0);
        assert_eq!(read(&disk, Some(&keys(&[A]))).unwrap(), key);
        disk.flip(FILE, (COPY + SEALED_AT) as u64, 0);
        let said = read(&disk, Some(&keys(&[A]))).unwrap_err();
        assert!(said.to_string().contains("damaged"), "{said}");
    }

    #[test]
    fn a_cut_under_a_change_of_keys_leaves_one_that_opens() {
        let disk = SimDisk::new();
        let key = make(&disk, &keys(&[A])).unwrap();
        let begin = disk.calls();
        for n in 0.. {
            let cut = disk.copy();
            cut.cut_at(n);
            let done = read(&cut, Some(&keys(&[B, A])));
            for seed in 0..8 {
                let left = cut.survivor_of(Survival::Some(seed));
                assert_eq!(read(&left, Some(&keys(&[B, A]))).unwrap(), key, "cut {n}, seed {seed}");
            }
            if done.is_ok() {
                assert!(n > 3, "{n}");
                break;
            }
        }
        assert!(begin > 0);
    }
}
