//! Who may do what, by owner, policy and ACL, in this order: an explicit Deny; the owner, what a policy allows and ACLs of a container grant; what a canned ACL
//! lets anybody do. A bucket's owner may always see, change and remove its policy.
//!
//! A session of a role may do what its own policies allow, and of that what the owner of the role might do in his own buckets, and in others' what their policies
//! let the session do, or anybody.

use super::caller::{Identity, Noted, Peer};
use super::{Front, acting, expect_owner, session, who};
use crate::Error;
use crate::buckets::Known;
use crate::container::Acl;
use crate::history::Which;
use crate::policy::{Action, Key, Request, VALUE_MAX, Verdict, role_arn, user_arn};
use crate::rados::Pool;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};
use std::collections::BTreeMap;

/// What somebody asks to do.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    pub action: Action,
    pub bucket: &'a str,
    key: Option<&'a str>,
    values: BTreeMap<Key, String>,
    settled: &'static [Key],
}

impl<'a> Ask<'a> {
    pub fn bucket(action: Action, bucket: &'a str) -> Self {
        Self {
            action,
            bucket,
            key: None,
            values: BTreeMap::new(),
            settled: &[],
        }
    }

    pub fn object(action: Action, bucket: &'a str, key: &'a str) -> Self {
        Self {
            key: Some(key),
            ..Self::bucket(action, bucket)
        }
    }

    /// The same of one version by its id, which is another action, and which a condition may look at.
    pub fn version(mut self, which: Which, action: Action) -> Self {
        let id = match which {
            Which::Current => return self,
            Which::Null => "null".to_string(),
            Which::Of(order) => order.to_string(),
        };
        self.action = action;
        self.with(Key::VersionId, Some(id))
    }

    /// What a condition may look at.
    pub fn with(mut self, key: Key, value: Option<impl ToString>) -> Self {
        self.values.extend(value.map(|v| (key, v.to_string())));
        self
    }

    /// A part of an upload, or its end: ACL and storage class were judged when it was begun.
    pub fn of_upload(mut self) -> Self {
        self.settled = &[Key::Acl, Key::StorageClass];
        self
    }
}

/// What a request says of itself, whatever it asks.
fn said<T>(req: &S3Request<T>, now_ms: u64) -> BTreeMap<Key, String> {
    let text = |name: &str| {
        let all = req.headers.get_all(name).iter();
        let all: Vec<&str> = all.filter_map(|v| v.to_str().ok()).collect();
        Some(all.join(",")).filter(|t| !t.is_empty())
    };
    let user = who(req);
    // As AWS has it: a session is asked for by its role.
    let principal = session(req)
        .map(|s| role_arn(&s.role))
        .or_else(|| user.map(user_arn));
    let peer = req.extensions.get::<Peer>();
    let seconds = (now_ms / 1000).to_string();
    let values = [
        (Key::CurrentTime, Some(seconds.clone())),
        (Key::EpochTime, Some(seconds)),
        (Key::PrincipalArn, principal),
        (Key::Referer, text("referer")),
        (
            Key::SecureTransport,
            Some(peer.is_some_and(|p| p.tls).to_string()),
        ),
        (Key::SourceIp, peer.map(|p| p.ip.to_string())),
        (Key::UserAgent, text("user-agent")),
        (Key::Username, user.map(str::to_string)),
    ];
    values.into_iter().filter_map(|(k, v)| Some((k, v?))).collect()
}

/// What is too long to be compared with all patterns of a policy is refused, or one client would take all of a gateway's time.
fn check_values(values: &BTreeMap<Key, String>) -> S3Result<()> {
    match values.iter().find(|(_, value)| value.len() > VALUE_MAX) {
        None => Ok(()),
        Some((key, _)) => {
            let why = format!("where a policy is, {key:?} of a request has at most {VALUE_MAX} bytes");
            Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why))
        }
    }
}

/// The bucket's public ACL counts.
pub fn lists_publicly(known: &Known) -> bool {
    known.bucket.public_read && !known.settings.block().ignore_acls
}

/// Whether the ACLs of a container grant it, which never grant more than objects and their list.
fn granted<T>(req: &S3Request<T>, known: &Known, action: Action) -> bool {
    let Some(grants) = &known.settings.grants else {
        return false;
    };
    let who = req.extensions.get::<Identity>().filter(|i| i.session.is_none());
    let named = |acl: &Acl| who.is_some_and(|w| acl.names(&w.user, w.subuser.as_deref()));
    let public = grants.read.public && !known.settings.block().ignore_acls;
    match action {
        Action::GetObject => public || named(&grants.read),
        Action::ListBucket => (public && grants.read.listings) || named(&grants.read),
        Action::PutObject | Action::DeleteObject => named(&grants.write),
        _ => false,
    }
}

/// Refused if a session asks for what its own policies do not let it.
fn held<T>(req: &S3Request<T>, asked: &Request<'_>) -> S3Result<()> {
    match session(req).is_none_or(|s| s.allows(asked)) {
        true => Ok(()),
        false => Err(Error::AccessDenied.into()),
    }
}

/// Refused where new public ACLs are.
pub fn check_public(known: &Known, public: bool) -> S3Result<()> {
    match public && known.settings.block().acls {
        true => Err(S3Error::with_message(
            S3ErrorCode::AccessDenied,
            "public ACLs are prevented by the BlockPublicAcls setting of the bucket",
        )),
        false => Ok(()),
    }
}

impl<P: Pool> Front<P> {
    /// The bucket, whoever asks. One that is being deleted is there until it is not.
    pub(super) async fn known<T>(&self, req: &S3Request<T>, name: &str) -> S3Result<Known> {
        let known = self.buckets.known(name).await?;
        if let Some(mut notes) = req.extensions.get::<Noted>().map(Noted::lock)
            && notes.bucket.as_deref() == Some(name)
        {
            notes.owner = Some(known.bucket.owner.clone());
            notes.logging.clone_from(&known.settings.of.logging);
        }
        expect_owner(req, "x-amz-expected-bucket-owner", &known.bucket)?;
        Ok(known)
    }

    /// True: by owner, ACL of a container or policy. False: if ACLs let anybody. An error: it is denied.
    pub(super) fn right<T>(&self, req: &S3Request<T>, known: &Known, ask: &Ask<'_>) -> S3Result<bool> {
        let owner = acting(req) == Some(&known.bucket.owner) || granted(req, known, ask.action);
        if session(req).is_none() && known.settings.policy.is_none() {
            return Ok(owner);
        }
        let asked = self.asked(req, ask)?;
        held(req, &asked)?;
        let Some(policy) = &known.settings.policy else {
            return Ok(owner);
        };
        // What a user is denied by name he is denied in his roles, too.
        let user = acting(req).filter(|_| session(req).is_some());
        if user.is_some_and(|user| policy.denies_named(&asked, user)) {
            return Err(Error::AccessDenied.into());
        }
        match policy.judge(&asked) {
            Verdict::Deny => Err(Error::AccessDenied.into()),
            Verdict::Allow if known.settings.block().restrict && policy.is_public() => Ok(owner),
            Verdict::Allow => Ok(true),
            Verdict::Silent => Ok(owner),
        }
    }

    /// As policies see it.
    fn asked<'a, T>(&self, req: &'a S3Request<T>, ask: &Ask<'a>) -> S3Result<Request<'a>> {
        let mut values = said(req, self.clock.now_ms());
        values.extend(ask.values.clone());
        check_values(&values)?;
        Ok(Request {
            action: ask.action,
            bucket: ask.bucket,
            key: ask.key,
            user: session(req).map(|s| s.principal.as_str()).or_else(|| who(req)),
            values,
            settled: ask.settled,
        })
    }

    /// In whose place something is asked that is of no bucket yet: a user, or a session whose policies let it.
    pub(super) fn placed<'a, T>(&self, req: &'a S3Request<T>, ask: &Ask<'a>) -> S3Result<&'a str> {
        if session(req).is_some() {
            held(req, &self.asked(req, ask)?)?;
        }
        acting(req).ok_or_else(|| Error::AccessDenied.into())
    }

    pub(super) fn demand<T>(&self, req: &S3Request<T>, known: &Known, ask: &Ask<'_>) -> S3Result<()> {
        match self.right(req, known, ask)? {
            true => Ok(()),
            false => Err(Error::AccessDenied.into()),
        }
    }

    /// The bucket, if owner or policy permits it.
    pub(super) async fn permitted<T>(&self, req: &S3Request<T>, ask: &Ask<'_>) -> S3Result<Known> {
        let known = self.known(req, ask.bucket).await?;
        self.demand(req, &known, ask)?;
        Ok(known)
    }

    /// The bucket, for its owner alone, whatever its policy says. Sessions of roles are not the owner.
    pub(super) async fn own<T>(&self, req: &S3Request<T>, name: &str) -> S3Result<Known> {
        let known = self.known(req, name).await?;
        match who(req) == Some(&known.bucket.owner) {
            true => Ok(known),
            false => Err(Error::AccessDenied.into()),
        }
    }

    /// The bucket, for who may list it.
    pub(super) async fn listable<T>(&self, req: &S3Request<T>, ask: &Ask<'_>) -> S3Result<Known> {
        let known = self.known(req, ask.bucket).await?;
        match self.right(req, &known, ask)? || lists_publicly(&known) {
            true => Ok(known),
            false => Err(Error::AccessDenied.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_bound() {
        let check = |n: usize| check_values(&BTreeMap::from([(Key::Referer, "r".repeat(n))]));
        assert!(check(VALUE_MAX).is_ok());
        assert_eq!(
            check(VALUE_MAX + 1).unwrap_err().code(),
            &S3ErrorCode::InvalidRequest
        );
    }
}
