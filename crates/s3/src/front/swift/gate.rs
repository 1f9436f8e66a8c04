//! Where requests to Swift come in: who asks, what is asked for, and the answer, whatever came of it.

use super::answer::{Done, Refusal, bad, denied, missing, refuse, set, text_answer, unbuilt};
use super::asked::Asked;
use super::login::unauthorized;
use super::path::{Place, Target};
use super::query::Query;
use crate::front::Front;
use crate::front::access::announced;
use crate::front::caller::{Noted, Peer};
use crate::rados::Pool;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use s3s::{Body, HttpResponse};

const TRANS_ID_CHARS: usize = 21;

impl<P: Pool> Front<P> {
    /// Answers whatever happens.
    pub(in crate::front) async fn swift_answer(
        &self,
        target: Target,
        (parts, body): (Parts, Body),
        noted: &Noted,
        peer: Peer,
    ) -> HttpResponse {
        let done = self.swift_done(target, (parts, body), noted, peer).await;
        let mut answer = done.unwrap_or_else(|e| e.answer());
        if answer.status() == StatusCode::UNAUTHORIZED {
            set(&mut answer, "www-authenticate", "Swift realm=\"unknown\"");
        }
        let id = format!("{}{}", self.clock.tag(), self.clock.tag());
        let id = format!("tx{}-{:010x}", &id[..TRANS_ID_CHARS], self.clock.now_ms() / 1000);
        set(&mut answer, "x-trans-id", &id);
        set(&mut answer, "x-openstack-request-id", &id);
        answer
    }

    async fn swift_done(
        &self,
        target: Target,
        (parts, body): (Parts, Body),
        noted: &Noted,
        peer: Peer,
    ) -> Done {
        let query = Query::parse(parts.uri.query().unwrap_or_default())
            .ok_or_else(|| bad("the query is not URL encoded"))?;
        let mut asked = Asked {
            method: parts.method,
            uri: parts.uri,
            place: Place::default(),
            query,
            headers: parts.headers,
            caller: None,
            peer,
            noted: noted.clone(),
        };
        let reads = matches!(asked.method, Method::GET | Method::HEAD);
        match target {
            Target::Wrong(why) => Err(refuse(StatusCode::PRECONDITION_FAILED, why)),
            Target::Auth if reads => {
                asked.is("Auth");
                self.log_in(&asked).await
            }
            Target::Info if reads => {
                asked.is("GetInfo");
                let kind = "application/json; charset=UTF-8";
                Ok(text_answer(StatusCode::OK, kind, self.swift_info()))
            }
            Target::Auth | Target::Info => Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "GET is wanted")),
            Target::Below(place) => {
                asked.place = place;
                asked.caller = self.caller(&asked).await?;
                self.hold_swift_rate(&asked, !reads).await?;
                let done = self.below(&asked, body).await;
                done.map_err(|e| told(&asked, e))
            }
        }
    }

    /// As with S3: refused if more is asked than rate limits allow, before a body is read.
    async fn hold_swift_rate(&self, asked: &Asked, writes: bool) -> Done<()> {
        let user = asked.caller.as_ref().map(|c| c.user.as_str());
        // What nobody may do has no limits to be held against, and is not read.
        if user.is_none() && writes {
            return Err(unauthorized("Authentication is required"));
        }
        asked.noted.lock().user = user.map(str::to_string);
        let bucket = asked.place.container.as_deref();
        let payers = self.rates.admit(user, bucket, writes).await?;
        if writes {
            self.rates.charge(&payers, true, announced(&asked.headers));
        }
        asked.noted.lock().payers = payers;
        Ok(())
    }

    async fn below(&self, asked: &Asked, body: Body) -> Done {
        let form = asked
            .header("content-type")
            .is_some_and(|c| c.trim_start().starts_with("multipart/form-data"));
        if asked.method == Method::POST && form {
            return Err(unbuilt("forms of Swift's (S3 has forms)"));
        }
        asked.refuse_queries(&["extract-archive", "version-id"])?;
        match (&asked.place.container, &asked.place.object) {
            (None, _) if asked.query.has("bulk-delete") => match asked.method {
                Method::POST | Method::DELETE => self.bulk_delete(asked, body).await,
                _ => Err(bad("bulk-delete is a POST or a DELETE")),
            },
            (None, _) => self.account(asked).await,
            (Some(_), None) => self.of_container(asked).await,
            (Some(_), Some(_)) => {
                let mut answer = self.of_object(asked, body).await?;
                Self::dispose(asked, &mut answer);
                Ok(answer)
            }
        }
    }
}

/// What may be told to who asks: to nobody known that a name is wanted, and to strangers to an account nothing of what is in it.
fn told(asked: &Asked, e: Refusal) -> Refusal {
    let stranger = match (&asked.caller, &asked.place.account) {
        (Some(caller), Some(account)) => caller.user != *account,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let e = match e.no_container {
        true if stranger => denied(),
        true => missing(),
        false => e,
    };
    match (e.status, &asked.caller) {
        (StatusCode::FORBIDDEN, None) => unauthorized("Authentication is required"),
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::swift::asked::Caller;

    fn status(caller: Option<&str>, account: Option<&str>, e: Refusal) -> u16 {
        let asked = Asked {
            method: Method::GET,
            uri: hyper::Uri::from_static("/"),
            place: Place {
                account: account.map(str::to_string),
                ..Place::default()
            },
            query: Query::default(),
            headers: hyper::HeaderMap::new(),
            caller: caller.map(|user| Caller {
                user: user.into(),
                ..Caller::default()
            }),
            peer: Peer {
                ip: [127, 0, 0, 1].into(),
                tls: false,
            },
            noted: Noted::default(),
        };
        told(&asked, e).status.as_u16()
    }

    #[test]
    fn strangers_do_not_hear_what_there_is() {
        let none = || Refusal::from(crate::Error::NoSuchBucket);
        assert_eq!(status(Some("a"), Some("a"), none()), 404);
        assert_eq!(status(Some("a"), None, none()), 404);
        assert_eq!(status(Some("a"), Some("b"), none()), 403);
        assert_eq!(status(None, Some("b"), none()), 401);
        assert_eq!(status(None, None, denied()), 401);
        assert_eq!(status(Some("a"), Some("b"), denied()), 403);
        assert_eq!(status(Some("a"), Some("b"), bad("x")), 400);
    }
}
