//! Users whom Keystone knows, as users of this gateway; and whose a key is, ours first.

use super::Front;
use super::caller::Identity;
use super::errors::coded;
use crate::Error;
use crate::keystone::{Keystone, Refused, Who};
use crate::rados::Pool;
use crate::seal::Key as Sealing;
use crate::session::{self, is_temporary};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// What signatures are checked with, and whose it is.
pub(super) struct Signer {
    pub secret: String,
    access: String,
    user: String,
    /// Where the key is none of ours.
    who: Option<Who>,
    /// Of a session's key: what its token is sealed with.
    sealing: Option<Sealing>,
}

impl Signer {
    /// Good with its token alone.
    pub fn is_temporary(&self) -> bool {
        self.sealing.is_some()
    }

    /// It was made here for a user, and is neither temporary nor of another service.
    pub fn is_own(&self) -> bool {
        self.sealing.is_none() && self.who.is_none()
    }

    pub fn access(&self) -> &str {
        &self.access
    }
}

fn no_key() -> S3Error {
    coded(
        S3ErrorCode::InvalidAccessKeyId,
        "there is no such access key, or it is not active",
    )
}

fn refused(why: Refused) -> S3Error {
    match why {
        Refused::Unknown => no_key(),
        Refused::Unfit(why) => coded(S3ErrorCode::AccessDenied, why),
        Refused::Busy => coded(
            S3ErrorCode::SlowDown,
            "too much is asked of the service of identity",
        ),
        Refused::Away(why) => {
            tracing::debug!("s3: {why}");
            let why =
                "the key is none of this gateway's own, and its service of identity cannot be asked now";
            coded(S3ErrorCode::ServiceUnavailable, why)
        }
    }
}

impl<P: Pool> Front<P> {
    pub(super) fn keystone(&self) -> Option<&Keystone> {
        self.keystone.as_ref()
    }

    /// By a key's public part. Keys of ours go first: Keystone can take none of them over.
    pub(super) async fn key_of(&self, access: &str) -> S3Result<Signer> {
        let (own, sealing) = match is_temporary(access) {
            true => self.accounts.key_or_sealing(access).await?,
            false => (self.accounts.key(access).await?, None),
        };
        // One that was set aside is not looked for elsewhere either.
        if own.as_ref().is_some_and(|key| !key.active) {
            return Err(no_key());
        }
        if let Some(key) = own {
            return Ok(Signer {
                secret: key.secret,
                access: key.access,
                user: key.user,
                who: None,
                sealing: None,
            });
        }
        // Whoever makes one up does not know its secret.
        if let Some(sealing) = sealing {
            return Ok(Signer {
                secret: session::secret(&sealing, access),
                access: access.to_string(),
                user: String::new(),
                who: None,
                sealing: Some(sealing),
            });
        }
        let keystone = self.keystone().ok_or_else(no_key)?;
        let key = keystone.key(access).await.map_err(refused)?;
        Ok(Signer {
            secret: key.secret,
            access: access.to_string(),
            user: key.who.project.clone(),
            who: Some(key.who),
            sealing: None,
        })
    }

    /// Who it is whose signature was good. `token`: of a session, as the request has it.
    pub(super) async fn identity(&self, of: &Signer, token: Option<&str>) -> S3Result<Identity> {
        match (&of.sealing, token) {
            (Some(sealing), Some(token)) => return self.of_token((sealing, &of.access), token).await,
            (Some(_), None) => {
                let why = "a temporary key goes with its token, x-amz-security-token";
                return Err(coded(S3ErrorCode::AccessDenied, why));
            }
            (None, Some(_)) => {
                let why = "the key is no temporary one: no token goes with it";
                return Err(coded(S3ErrorCode::InvalidToken, why));
            }
            (None, None) => {}
        }
        let Some(who) = &of.who else {
            return Ok(Identity::of(of.user.clone()));
        };
        self.admit(who).await?;
        Ok(Identity {
            user: of.user.clone(),
            subuser: who.user.clone(),
            session: None,
        })
    }

    /// Makes a project's user, where there is none and that is allowed.
    pub(super) async fn admit(&self, who: &Who) -> S3Result<()> {
        let create = self.keystone().is_some_and(|k| k.settings().create_users);
        match self.accounts.ensure_user(&who.project, &who.name, create).await {
            Err(Error::NoSuchUser) => {
                let why = "the project is no user of this gateway";
                Err(coded(S3ErrorCode::AccessDenied, why))
            }
            other => Ok(other?),
        }
    }
}
