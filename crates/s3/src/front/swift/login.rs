//! Who asks: TempAuth, which gives out tokens for keys, and tokens and temporary URLs as requests bring them. A token that is not of TempAuth is one of Keystone's, if
//! there is one to ask; neither is ever tried as the other.
//!
//! Nothing of TempAuth is remembered: with each request its subuser is read, so that a key that was changed or removed is good for nothing from then on.

use super::answer::{Done, Refusal, bad, empty, missing, refuse, set};
use super::asked::{Asked, Caller};
use super::path::{ACCOUNT, Place};
use super::tempurl::{self, TempUrl};
use super::token::{self, Token};
use crate::Error;
use crate::front::Front;
use crate::front::texts::Names;
use crate::keystone::{Keystone, Refused};
use crate::rados::Pool;
use hyper::StatusCode;
use s3s::HttpResponse;

/// How long a token holds, as radosgw's `rgw_swift_token_expiration`.
const TOKEN_SECONDS: u64 = 24 * 60 * 60;
const NAME_MAX: usize = 300;
const TEMP_URL_KEYS: [&str; 2] = ["temp-url-key", "temp-url-key-2"];

pub fn unauthorized(why: &str) -> Refusal {
    refuse(StatusCode::UNAUTHORIZED, why)
}

fn unknown() -> Refusal {
    unauthorized("This server could not verify that you are authorized to access the document you requested.")
}

/// Not shown to who may not give access to others.
pub fn is_secret(name: &str) -> bool {
    TEMP_URL_KEYS.contains(&name)
}

/// The path that a temporary URL's signature is of, up to the object.
fn signed_path(place: &Place) -> String {
    let account = place.account.as_ref();
    let account = account.map_or(String::new(), |a| format!("{ACCOUNT}{a}/"));
    format!(
        "/swift/v1/{account}{}/",
        place.container.as_deref().unwrap_or_default()
    )
}

impl<P: Pool> Front<P> {
    fn now_s(&self) -> u64 {
        self.clock.now_ms() / 1000
    }

    /// Where the account of a user is, as clients come in.
    fn storage_url(&self, asked: &Asked, user: &str) -> Done<String> {
        let base = match self.swift.as_ref().and_then(|s| s.url.clone()) {
            Some(url) => url.trim_end_matches('/').to_string(),
            None => {
                let host = asked
                    .header("host")
                    .ok_or_else(|| bad("a Host header is wanted"))?;
                let scheme = if asked.peer.tls { "https" } else { "http" };
                format!("{scheme}://{host}")
            }
        };
        Ok(format!("{base}/swift/v1/{ACCOUNT}{}", Names::url().write(user)))
    }

    /// A token for a key. That a subuser is not there is not told from a wrong key.
    pub(super) async fn log_in(&self, asked: &Asked) -> Done {
        let said = |a: &str, b: &str| asked.header(a).or(asked.header(b)).map(str::to_string);
        let id = said("x-auth-user", "x-storage-user").ok_or_else(unknown)?;
        let secret = said("x-auth-key", "x-storage-pass").ok_or_else(unknown)?;
        let (user, name) = id
            .split_once(':')
            .filter(|_| id.len() <= NAME_MAX)
            .ok_or_else(unknown)?;
        let signer = self.accounts.signer(user, name).await?;
        let has = signer.subuser.as_ref().map_or("", |s| s.secret.as_str());
        let right = token::same(has, &secret) && !has.is_empty();
        let subuser = signer.subuser.filter(|_| right).ok_or_else(unknown)?;
        asked.noted.lock().user = Some(subuser.user.clone());
        let payers = self.rates.admit(Some(&subuser.user), None, false).await?;
        asked.noted.lock().payers = payers;
        let expires = self.now_s() + TOKEN_SECONDS;
        let token = token::made(&signer.secret, (user, name), expires, subuser.version);
        let mut answer = empty(StatusCode::NO_CONTENT);
        set(&mut answer, "x-storage-url", self.storage_url(asked, user)?);
        set(&mut answer, "x-auth-token", &token);
        set(&mut answer, "x-storage-token", &token);
        set(&mut answer, "x-auth-token-expires", TOKEN_SECONDS.to_string());
        Ok(answer)
    }

    /// None: it brings no token, and is anybody's.
    pub(super) async fn caller(&self, asked: &Asked) -> Done<Option<Caller>> {
        if tempurl::is_one(&asked.query) {
            return self.by_url(asked).await.map(Some);
        }
        let said = asked.header("x-auth-token").or(asked.header("x-storage-token"));
        let Some(text) = said else { return Ok(None) };
        if let Some(keystone) = self.keystone().filter(|_| !token::is_ours(text)) {
            return self.by_keystone(asked, keystone, text).await.map(Some);
        }
        let token = Token::parse(text).ok_or_else(unknown)?;
        let signer = self.accounts.signer(&token.user, &token.subuser).await?;
        let good = |s: &crate::Subuser| {
            !s.secret.is_empty() && token.is_good(&signer.secret, s.version, self.now_s())
        };
        let subuser = signer.subuser.as_ref().filter(|s| good(s)).ok_or_else(unknown)?;
        Ok(Some(Caller {
            user: subuser.user.clone(),
            subuser: Some(subuser.name.clone()),
            access: Some(subuser.access),
            ..Caller::default()
        }))
    }

    /// A user of the project that the token is for; with a role of administrators, in the account that is named.
    async fn by_keystone(&self, asked: &Asked, keystone: &Keystone, token: &str) -> Done<Caller> {
        let who = keystone.token(token).await.map_err(|e| match e {
            Refused::Unknown => unknown(),
            Refused::Unfit(why) => refuse(StatusCode::FORBIDDEN, why),
            Refused::Busy => refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too much is asked of the service of identity; try again later.",
            ),
            Refused::Away(why) => {
                tracing::debug!("s3: {why}");
                let why = "The service of identity cannot be asked whose this token is; try again later.";
                refuse(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        })?;
        let named = asked.place.account.as_deref();
        if let Some(account) = named.filter(|a| who.admin && *a != who.project) {
            let by = who.user.as_deref().unwrap_or_default();
            tracing::info!(
                "s3: {}:{by}, an administrator of Keystone's, in the account {account:?}: {} {:?}",
                who.project,
                asked.method,
                asked.uri.path()
            );
            return match self.accounts.user(account).await {
                Err(Error::NoSuchUser) => Err(missing()),
                other => Ok(Caller {
                    user: other?.id,
                    ..Caller::default()
                }),
            };
        }
        self.admit(&who).await?;
        Ok(Caller {
            user: who.project,
            subuser: who.user,
            ..Caller::default()
        })
    }

    /// Whoever has a temporary URL does what its owner signed it for.
    async fn by_url(&self, asked: &Asked) -> Done<Caller> {
        let url = TempUrl::parse(&asked.query).map_err(unauthorized)?;
        let wrong = || unauthorized("Temp URL invalid");
        let (Some(container), Some(object)) = (&asked.place.container, &asked.place.object) else {
            return Err(wrong());
        };
        let known = match self.buckets.known(container).await {
            Err(Error::NoSuchBucket) => return Err(wrong()),
            other => other?,
        };
        let owner = known.bucket.owner.as_str();
        if asked.place.account.as_deref().is_some_and(|a| a != owner) {
            return Err(wrong());
        }
        let account = self.accounts.account(owner).await?.meta;
        let of_container = known.settings.of.container.as_ref().map(|c| &c.meta);
        let (path, now) = (signed_path(&asked.place), self.now_s());
        let good = |meta: Option<&std::collections::BTreeMap<String, String>>| {
            let keys = TEMP_URL_KEYS
                .iter()
                .filter_map(|k| meta?.get(*k).map(String::as_str));
            url.is_good(keys, &asked.method, (&path, object), now)
        };
        let scope = match (good(Some(&account)), good(of_container)) {
            (true, _) => None,
            (false, true) => Some(container.clone()),
            (false, false) => return Err(wrong()),
        };
        let unsigned = ["x-object-manifest", "x-copy-from", "x-copy-from-account"];
        if unsigned.iter().any(|h| asked.has(h)) || asked.query.has("multipart-manifest") {
            return Err(bad("The header or query is not allowed in a temporary URL"));
        }
        Ok(Caller {
            user: owner.to_string(),
            by_url: true,
            scope,
            ..Caller::default()
        })
    }

    /// What a reader of a temporary URL is told besides: a name to save the object under.
    pub(super) fn dispose(asked: &Asked, answer: &mut HttpResponse) {
        if !asked.caller.as_ref().is_some_and(|c| c.by_url) || !answer.status().is_success() {
            return;
        }
        // As Swift does: metadata are of the owner, but for those that are said to be public.
        let headers = answer.headers_mut();
        let names: Vec<_> = headers.keys().cloned().collect();
        let hidden = |n: &str| {
            let meta = n.strip_prefix("x-object-meta-");
            meta.is_some_and(|m| !m.starts_with("public-")) || n == "x-object-manifest"
        };
        for name in names.iter().filter(|n| hidden(n.as_str())) {
            headers.remove(name);
        }
        let last = asked.object().rsplit('/').next().unwrap_or_default();
        let name = asked.query.said("filename").unwrap_or(last);
        let how = if asked.query.has("inline") {
            "inline"
        } else {
            "attachment"
        };
        let plain: String = name.chars().filter(|c| !c.is_control() && *c != '"').collect();
        let coded = Names::url().write(name).replace('/', "%2F");
        let text = match how == "inline" && !asked.query.has("filename") {
            true => how.to_string(),
            false => format!("{how}; filename=\"{plain}\"; filename*=UTF-8''{coded}"),
        };
        set(answer, "content-disposition", text);
    }
}
