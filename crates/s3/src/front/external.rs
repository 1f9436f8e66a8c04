//! Users whom Keystone knows, as users of this gateway; and whose a key is, ours first.

use super::Front;
use super::caller::Identity;
use super::errors::coded;
use crate::Error;
use crate::keystone::{Keystone, Refused, Who};
use crate::rados::Pool;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// What signatures are checked with, and whose it is.
pub(super) struct Signer {
    pub secret: String,
    user: String,
    /// Where the key is none of ours.
    who: Option<Who>,
}

fn no_key() -> S3Error {
    coded(S3ErrorCode::InvalidAccessKeyId, "there is no such access key")
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
        if let Some(key) = self.accounts.key(access).await? {
            return Ok(Signer {
                secret: key.secret,
                user: key.user,
                who: None,
            });
        }
        let keystone = self.keystone().ok_or_else(no_key)?;
        let key = keystone.key(access).await.map_err(refused)?;
        Ok(Signer {
            secret: key.secret,
            user: key.who.project.clone(),
            who: Some(key.who),
        })
    }

    /// Who it is whose signature was good.
    pub(super) async fn identity(&self, of: &Signer) -> S3Result<Identity> {
        let Some(who) = &of.who else {
            return Ok(Identity::of(of.user.clone()));
        };
        self.admit(who).await?;
        Ok(Identity {
            user: of.user.clone(),
            subuser: who.user.clone(),
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
