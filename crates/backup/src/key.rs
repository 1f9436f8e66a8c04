//! Key files: the repository's keys, sealed with what scrypt makes of a password.

use crate::forms::{KeyFile, Mac, MasterKey};
use crate::seal::Key;
use crate::{Error, Result, time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use io::Random;
use std::path::Path;

/// restic's own cost: 32 MiB of memory.
const LOG_N: u8 = 15;
const R: u32 = 8;
const P: u32 = 1;
/// A key file that asks for more is not ours, nor restic's.
const MEMORY_MAX: u64 = 1 << 30;
const P_MAX: u32 = 16;
const PASSWORD_BYTES_MAX: u64 = 4096;

/// What opens a repository: the contents of a key file without blanks around them, as restic reads its `--password-file`.
#[derive(Clone)]
pub struct Password(String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    pub fn new(text: &str) -> Result<Self> {
        match text.trim() {
            "" => Err(Error::refused("the key file is empty")),
            text => Ok(Self(text.into())),
        }
    }
}

pub fn read_password(path: &Path) -> Result<Password> {
    let bytes = io::files::read_bytes(path, PASSWORD_BYTES_MAX).map_err(|e| Error::io(path, e))?;
    let bytes = bytes.ok_or_else(|| Error::refused(format!("there is no key file {}", path.display())))?;
    let named = |what| Error::refused(format!("{}: {what}", path.display()));
    let text = String::from_utf8(bytes).map_err(|_| named("a key file is a line of text"))?;
    Password::new(&text).map_err(|_| named("the key file is empty"))
}

fn derive(password: &Password, salt: &[u8], log_n: u8, r: u32, p: u32) -> Result<Key> {
    let bad = || Error::damaged("a key file with parameters of scrypt that nobody uses");
    let memory = 128u64
        .checked_mul(u64::from(r))
        .and_then(|m| m.checked_shl(u32::from(log_n)));
    if log_n > 40 || p == 0 || p > P_MAX || r == 0 || memory.is_none_or(|m| m > MEMORY_MAX) {
        return Err(bad());
    }
    let params = scrypt::Params::new(log_n, r, p).map_err(|_| bad())?;
    let mut out = [0; 64];
    scrypt::scrypt(password.0.as_bytes(), salt, &params, &mut out).map_err(|_| bad())?;
    Ok(Key::of_bytes(&out))
}

/// A key file for the repository's keys.
pub fn write(master: &Key, password: &Password, now: u64, random: &dyn Random) -> Result<Vec<u8>> {
    let salt: [u8; 64] = random.bytes();
    let user = derive(password, &salt, LOG_N, R, P)?;
    let plain = MasterKey {
        mac: Mac {
            k: STANDARD.encode(master.mac_k),
            r: STANDARD.encode(master.mac_r),
        },
        encrypt: STANDARD.encode(master.encrypt),
    };
    let file = KeyFile {
        created: time::seconds(now),
        username: "skep".into(),
        hostname: io::files::hostname(),
        kdf: "scrypt".into(),
        n: 1 << LOG_N,
        r: R,
        p: P,
        salt: STANDARD.encode(salt),
        data: STANDARD.encode(user.seal(&crate::forms::json(&plain)?, random)?),
    };
    crate::forms::json(&file)
}

/// The repository's keys; None: the password is not the one of this file.
pub fn read(file: &[u8], password: &Password) -> Result<Option<Key>> {
    let bad = |_| Error::damaged("a key file that cannot be read");
    let file: KeyFile = serde_json::from_slice(file).map_err(|e| bad(e.to_string()))?;
    if file.kdf != "scrypt" || !file.n.is_power_of_two() {
        return Err(bad(String::new()));
    }
    let decoded = |text: &str| STANDARD.decode(text).map_err(|e| bad(e.to_string()));
    let log_n = file.n.trailing_zeros() as u8;
    let user = derive(password, &decoded(&file.salt)?, log_n, file.r, file.p)?;
    let Some(plain) = user.open(&decoded(&file.data)?)? else {
        return Ok(None);
    };
    let master: MasterKey = serde_json::from_slice(&plain).map_err(|e| bad(e.to_string()))?;
    let whole = [
        decoded(&master.encrypt)?,
        decoded(&master.mac.k)?,
        decoded(&master.mac.r)?,
    ];
    let whole: [u8; 64] = whole.concat().try_into().map_err(|_| bad(String::new()))?;
    Ok(Some(Key::of_bytes(&whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_password_opens_a_key_file() {
        let random = io::SystemRandom;
        let (master, right) = (Key::random(&random), Password::new(" secret\n").unwrap());
        let file = write(&master, &right, 0, &random).unwrap();
        assert_eq!(
            read(&file, &Password::new("secret").unwrap()).unwrap(),
            Some(master)
        );
        assert_eq!(read(&file, &Password::new("Secret").unwrap()).unwrap(), None);
        assert!(read(b"{}", &right).is_err());
        assert!(Password::new(" \n").is_err());
    }

    #[test]
    fn a_key_file_cannot_ask_for_all_memory() {
        let password = Password::new("x").unwrap();
        for (log_n, r, p) in [
            (40, 8, 1),
            (15, u32::MAX, 1),
            (15, 8, 0),
            (15, 8, 1000),
            (15, 0, 1),
        ] {
            assert!(derive(&password, b"salt", log_n, r, p).is_err());
        }
    }
}
