//! Sessions of roles, and of users themselves: the token of a request, and who asks by it.

use super::Front;
use super::caller::Identity;
use super::errors::coded;
use super::texts::url_decoded;
use crate::Error;
use crate::rados::Pool;
use crate::seal::Key;
use crate::session::{self, Claim, Opened, Session};
use hyper::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;

const TOKEN: &str = "x-amz-security-token";

fn bad(why: &str) -> S3Error {
    coded(S3ErrorCode::InvalidToken, why)
}

/// The token of a session, of a header, or of a presigned URL, where there is one. Refused if there are several.
pub(super) fn token(query: &str, headers: &HeaderMap) -> S3Result<Option<String>> {
    let pairs = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_token = url_decoded(name).is_some_and(|n| n.eq_ignore_ascii_case(TOKEN));
        is_token.then(|| url_decoded(value))
    });
    let said = headers.get_all(TOKEN).iter();
    let said = said.map(|v| v.to_str().ok().map(str::to_string));
    let mut all = pairs.chain(said);
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(Some(token)), None) => Ok(Some(token)),
        (Some(None), None) => Err(bad("the token of a session is no text")),
        (Some(_), Some(_)) => Err(bad("the token of a session is there twice")),
    }
}

impl<P: Pool> Front<P> {
    /// A session, by its key, whose signature was good, and its token.
    pub(super) async fn of_token(&self, (sealing, access): (&Key, &str), token: &str) -> S3Result<Identity> {
        let claim = match session::open(sealing, access, token, self.clock.now_ms())? {
            Opened::Good(claim) => claim,
            Opened::Bad => return Err(bad("the token is none of this key's")),
            Opened::Ended => {
                let why = "the session has ended: take the role, or ask for a token, again";
                return Err(coded(S3ErrorCode::ExpiredToken, why));
            }
        };
        if claim.is_of_user() {
            return self.himself(claim).await;
        }
        let role = match self.accounts.role_of(&claim.role, &claim.owner).await {
            Ok(role) if role.id == claim.role_id => role,
            Ok(_) | Err(Error::NoSuchRole) => return Err(bad("the role of the session is no more")),
            Err(e) => return Err(e.into()),
        };
        Ok(Identity {
            session: Some(Arc::new(Session::new(&role, &claim))),
            ..Identity::of(claim.owner)
        })
    }

    /// A user by a token of his own: for as long as the key is there, and not set aside, that he had it made with. So no later user of his name is it.
    async fn himself(&self, claim: Claim) -> S3Result<Identity> {
        let key = self.accounts.key(&claim.name).await?;
        match key.is_some_and(|key| key.active && key.user == claim.owner) {
            true => Ok(Identity::of(claim.owner)),
            false => Err(bad(
                "the key that the session was made with is no more, or not active",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn a_request_has_one_token() {
        let of = |query: &str, said: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append(TOKEN, HeaderValue::from_static(value));
            }
            token(query, &headers).map_err(|e| e.code().as_str().to_string())
        };
        assert_eq!(of("a=b", &[]), Ok(None));
        assert_eq!(of("a=b", &["t"]), Ok(Some("t".into())));
        assert_eq!(of("X-Amz-Security%2DToken=t%2Du", &[]), Ok(Some("t-u".into())));
        for (query, said) in [
            ("X-Amz-Security-Token=t", &["t"][..]),
            ("X-Amz-Security-Token=t&x-amz-security-token=u", &[][..]),
            ("", &["t", "t"][..]),
            ("X-Amz-Security-Token=%ff", &[][..]),
        ] {
            assert_eq!(of(query, said), Err("InvalidToken".into()), "{query} {said:?}");
        }
    }
}
