//! Sessions of roles, and of users themselves: temporary keys and their tokens, which every gateway of the cluster verifies, and none remembers.
//!
//! ```text
//! access key         ASIA and 16 characters at random
//! secret             HMAC-SHA256(key of the cluster, access key): a signature is checked before its token is looked at
//! token              base64(version, salt, AES-256-GCM(Claim)) under HKDF(key of the cluster, salt), bound to the access key
//! ```
//!
//! So a token is good with its own key alone, until it ends; the role, or the key that the user had it made with, is looked up with each request. Of another cluster nothing opens.

use crate::accounts::letters;
use crate::policy::{Policy, Request, Verdict, session_principal};
use crate::roles::Role;
use crate::seal::Key;
use crate::{Clock, Result};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use denc::{Decode, Encode, Reader, Writer};

/// Keys of users, which are made at random, may begin so, too: they are looked for first.
const PREFIX: &str = "ASIA";
const ACCESS_CHARS: usize = 20;
const SECRET_BYTES: usize = 30;
const VERSION: u8 = 1;
/// Of what is taken for a token at all.
const TOKEN_MAX: usize = 8 << 10;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Empty: the user is the owner himself, and `name` the key that he had it made with.
    pub role: String,
    /// The role's, when it was taken.
    pub role_id: String,
    /// The role's.
    pub owner: String,
    pub name: String,
    /// Milliseconds since 1970.
    pub until: u64,
    /// Narrows what the role may do; empty: nothing does.
    pub policy: String,
}

const OF_USER: u8 = 2;

impl Encode for Claim {
    /// Who knows of sessions of roles alone takes no other.
    fn encode(&self, w: &mut Writer) {
        let version = if self.is_of_user() { OF_USER } else { 1 };
        w.envelope(version, version, |w| {
            w.put(&self.role);
            w.put(&self.role_id);
            w.put(&self.owner);
            w.put(&self.name);
            w.put(&self.until);
            w.put(&self.policy);
        });
    }
}

impl Decode for Claim {
    fn decode(r: &mut Reader) -> denc::Result<Self> {
        r.envelope(OF_USER, |_, r| {
            Ok(Self {
                role: r.get()?,
                role_id: r.get()?,
                owner: r.get()?,
                name: r.get()?,
                until: r.get()?,
                policy: r.get()?,
            })
        })
    }
}

impl Claim {
    /// Of a user himself, by one of his keys.
    pub fn of_user(user: &str, access: &str, until: u64) -> Self {
        Self {
            role: String::new(),
            role_id: String::new(),
            owner: user.to_string(),
            name: access.to_string(),
            until,
            policy: String::new(),
        }
    }

    pub fn is_of_user(&self) -> bool {
        self.role.is_empty()
    }
}

/// What a client gets.
pub struct Made {
    pub access: String,
    pub secret: String,
    pub token: String,
}

/// What a token is worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    Good(Claim),
    /// Forged, cut, of another key or of another cluster.
    Bad,
    Ended,
}

/// Whether a key looks like one of a session.
pub fn is_temporary(access: &str) -> bool {
    access.len() == ACCESS_CHARS && access.starts_with(PREFIX)
}

pub fn secret(key: &Key, access: &str) -> String {
    STANDARD.encode(&key.secret_of(access)[..SECRET_BYTES])
}

fn belongs(access: &str) -> Vec<u8> {
    [&[VERSION], access.as_bytes()].concat()
}

pub fn make(key: &Key, claim: &Claim, clock: &Clock) -> Result<Made> {
    let access = format!("{PREFIX}{}", letters(clock, ACCESS_CHARS - PREFIX.len()));
    let sealed = key.seal(claim.to_bytes().to_vec(), &belongs(&access), clock)?;
    Ok(Made {
        secret: secret(key, &access),
        token: URL_SAFE_NO_PAD.encode([&[VERSION], &sealed[..]].concat()),
        access,
    })
}

pub fn open(key: &Key, access: &str, token: &str, now_ms: u64) -> Result<Opened> {
    if token.len() > TOKEN_MAX {
        return Ok(Opened::Bad);
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let Some((&VERSION, sealed)) = bytes.split_first() else {
        return Ok(Opened::Bad);
    };
    let Some(text) = key.open(sealed, &belongs(access))? else {
        return Ok(Opened::Bad);
    };
    Ok(match Claim::from_bytes(&text) {
        Ok(claim) if claim.until <= now_ms => Opened::Ended,
        Ok(claim) => Opened::Good(claim),
        // A newer gateway's.
        Err(_) => Opened::Bad,
    })
}

/// A role that somebody has taken, and what may be done so.
#[derive(Debug)]
pub struct Session {
    pub role: String,
    /// The role's, and the session's name.
    pub id: String,
    /// As policies of buckets know it.
    pub principal: String,
    rights: Vec<Policy>,
    narrowed: Option<Policy>,
}

/// What cannot be read lets nobody do anything.
fn rights(text: &str) -> Policy {
    Policy::of_rights(text).unwrap_or_else(|_| Policy::closed())
}

impl Session {
    pub fn new(role: &Role, claim: &Claim) -> Self {
        Self {
            role: role.name.clone(),
            id: format!("{}:{}", role.id, claim.name),
            principal: session_principal(&role.name, &claim.name),
            rights: role.policies.values().map(|text| rights(text)).collect(),
            narrowed: Some(&claim.policy).filter(|p| !p.is_empty()).map(|p| rights(p)),
        }
    }

    /// Whether its own policies let it: one of the role's allows it, none denies it, and what narrows it allows it, too.
    pub fn allows(&self, asked: &Request<'_>) -> bool {
        let mut allowed = false;
        for policy in &self.rights {
            match policy.judge(asked) {
                Verdict::Deny => return false,
                Verdict::Allow => allowed = true,
                Verdict::Silent => {}
            }
        }
        let narrowed = self.narrowed.as_ref();
        allowed && narrowed.is_none_or(|p| p.judge(asked) == Verdict::Allow)
    }
}
