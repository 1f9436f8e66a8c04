//! Swift, version 1, over the same buckets: a container is a bucket, an object is an object.
//!
//! What may be done is judged by S3's own operations (`asked` makes their requests), so that Swift never gives more than S3 does: policies,
//! the block of public access, quotas, locks and encryption hold alike. What Swift has beside is a subuser's access, ACLs of containers (which hold for S3, too), and temporary URLs.

mod account_ops;
mod answer;
mod asked;
mod bulk;
mod container_ops;
mod ends;
mod gate;
mod kept;
mod large;
mod listing;
mod login;
mod object_ops;
pub(in crate::front) mod path;
mod query;
mod slo;
mod tempurl;
mod token;

/// Whether a parser of Swift's takes it, for fuzzing.
#[cfg(feature = "testing")]
pub fn takes(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let path = path::target(&text).is_some_and(|t| !matches!(t, path::Target::Wrong(_)));
    let token = token::Token::parse(&text);
    let forged = token.as_ref().is_some_and(|t| t.is_good(&[7; 32], t.version, 0));
    assert!(!forged, "a token that nobody signed");
    let url = query::Query::parse(&text).and_then(|q| tempurl::TempUrl::parse(&q).ok());
    let forged = url.as_ref().is_some_and(|u| {
        let keys = ["a key that nobody has"].into_iter();
        u.is_good(keys, &hyper::Method::GET, ("/swift/v1/AUTH_a/c/", "o"), 0)
    });
    assert!(!forged, "a URL that nobody signed");
    let acl = crate::container::Acl::parse(&text).is_ok();
    path || token.is_some() || url.is_some() || acl || path::named(&text).is_ok() || slo::is_list(input)
}
