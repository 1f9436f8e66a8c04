//! Whose request it is: a key that was removed is good for nothing from then on, so none is remembered.

use super::Front;
use crate::rados::Pool;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The user of a request whose signature was good.
#[derive(Debug, Clone)]
pub struct Identity {
    pub user: String,
}

impl<P: Pool> Front<P> {
    async fn key_of(&self, access: &str) -> S3Result<crate::accounts::Key> {
        let key = self.accounts.key(access).await?;
        key.ok_or_else(|| {
            S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, "there is no such access key")
        })
    }
}

#[async_trait::async_trait]
impl<P: Pool> S3Auth for Front<P> {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(self.key_of(access_key).await?.secret.into())
    }
}

#[async_trait::async_trait]
impl<P: Pool> S3Access for Front<P> {
    /// Anybody may ask; what is asked for decides.
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(access) = cx.credentials().map(|c| c.access_key.clone()) else {
            return Ok(());
        };
        let user = self.key_of(&access).await?.user;
        cx.extensions_mut().insert(Identity { user });
        Ok(())
    }
}
