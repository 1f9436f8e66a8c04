//! Accounts: a user, with all that is the user's.

use super::answer::{Done, bad, empty, set, stamp, unbuilt};
use super::asked::{Asked, changed};
use super::listing::{self, Format, PAGE_MAX, Row};
use super::login::is_secret;
use crate::front::Front;
use crate::rados::Pool;
use hyper::{Method, StatusCode};
use s3s::HttpResponse;
use std::collections::BTreeMap;

/// How many a page shall have.
pub fn limit(asked: &Asked) -> Done<usize> {
    match asked.query.said("limit") {
        None => Ok(PAGE_MAX),
        Some(text) => match text.parse() {
            Ok(n) if n <= PAGE_MAX => Ok(n),
            _ => Err(super::answer::refuse(
                StatusCode::PRECONDITION_FAILED,
                format!("Maximum limit is {PAGE_MAX}"),
            )),
        },
    }
}

/// The part of all names in order that was asked for.
fn page(mut rows: Vec<Row>, asked: &Asked) -> Done<Vec<Row>> {
    let (query, max) = (&asked.query, limit(asked)?);
    let prefix = query.get("prefix").unwrap_or_default();
    rows.retain(|r| r.name().starts_with(prefix));
    let reverse = query.is_true("reverse");
    if reverse {
        rows.reverse();
    }
    let beyond = |name: &str, mark: &str| if reverse { name < mark } else { name > mark };
    rows.retain(|r| {
        let after = query.said("marker").is_none_or(|m| beyond(r.name(), m));
        let before = query.said("end_marker").is_none_or(|m| beyond(m, r.name()));
        after && before
    });
    rows.truncate(max);
    Ok(rows)
}

/// Metadata in an answer; secrets for whoever may give access.
pub fn describe(answer: &mut HttpResponse, of: &str, meta: &BTreeMap<String, String>, secrets: bool) {
    for (name, value) in meta.iter().filter(|(n, _)| secrets || !is_secret(n)) {
        set(answer, &format!("x-{of}-meta-{name}"), value);
    }
}

impl<P: Pool> Front<P> {
    pub(super) async fn account(&self, asked: &Asked) -> Done {
        match asked.method {
            Method::GET | Method::HEAD => self.show_account(asked).await,
            Method::POST => self.set_account(asked).await,
            _ => Err(super::answer::refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "an account takes GET, HEAD and POST",
            )),
        }
    }

    async fn show_account(&self, asked: &Asked) -> Done {
        let head = asked.method == Method::HEAD;
        asked.is(if head { "StatAccount" } else { "ListBuckets" });
        let user = asked.own_account()?;
        asked.demand_read()?;
        let account = self.accounts.account(user).await?;
        let made = self.accounts.user(user).await?.created;
        let all = self.buckets.records_of(user).await?;
        let ids: Vec<String> = all.iter().map(|(_, b)| b.id.clone()).collect();
        let counts = self.counter.counts(&ids).await?;
        let (mut rows, mut objects, mut used) = (Vec::with_capacity(all.len()), 0, 0);
        for (name, bucket) in all {
            let held = counts.get(&bucket.id).map(|c| c.held).unwrap_or_default();
            objects += held.objects;
            used += held.bytes;
            rows.push(Row::Container {
                name,
                count: held.objects,
                bytes: held.bytes,
                at: bucket.created,
            });
        }
        let n = rows.len();
        let format = Format::of(&asked.query, asked.header("accept"));
        let mut answer = match head {
            true => empty(StatusCode::NO_CONTENT),
            false => listing::answer(format, ("account", user), &page(rows, asked)?),
        };
        set(&mut answer, "content-type", format.kind());
        set(&mut answer, "x-account-container-count", n.to_string());
        set(&mut answer, "x-account-object-count", objects.to_string());
        set(&mut answer, "x-account-bytes-used", used.to_string());
        set(&mut answer, "x-timestamp", stamp(made));
        set(&mut answer, "accept-ranges", "bytes");
        describe(&mut answer, "account", &account.meta, asked.demand_full().is_ok());
        Ok(answer)
    }

    async fn set_account(&self, asked: &Asked) -> Done {
        asked.is("PutAccountMetadata");
        let user = asked.own_account()?;
        asked.demand_write()?;
        if asked.has("x-account-access-control") {
            return Err(unbuilt("ACLs of accounts"));
        }
        let changes = asked.meta("account")?;
        if let Some((name, _)) = changes.iter().find(|(n, _)| n.starts_with("quota-")) {
            return Err(bad(format!(
                "X-Account-Meta-{name}: quotas are set by `skep s3 quota`"
            )));
        }
        if changes.iter().any(|(name, _)| is_secret(name)) {
            asked.demand_full()?;
        }
        self.accounts
            .change_account(user, |a| changed(&mut a.meta, &changes))
            .await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// What there is, for clients that ask before they do.
    pub(super) fn swift_info(&self) -> String {
        serde_json::json!({
            "swift": {
                "version": "2.30.0",
                "max_file_size": crate::front::object_ops::PUT_MAX,
                "max_object_name_length": super::path::OBJECT_MAX,
                "max_container_name_length": super::path::CONTAINER_MAX,
                "container_listing_limit": PAGE_MAX,
                "account_listing_limit": PAGE_MAX,
                "max_meta_name_length": 128,
                "max_meta_value_length": 256,
                "max_meta_count": super::asked::META_COUNT_MAX,
                "max_meta_overall_size": super::asked::META_BYTES_MAX,
                "allow_account_management": false,
                "account_autocreate": false,
                "strict_cors_mode": true,
                "policies": [{"name": "default", "default": true}],
            },
            "tempauth": {"account_acls": false},
            "tempurl": {
                "methods": ["GET", "HEAD", "PUT", "POST", "DELETE"],
                "allowed_digests": ["sha1", "sha256", "sha512"],
            },
            "slo": {
                "max_manifest_segments": super::slo::SEGMENTS_MAX,
                "max_manifest_size": super::slo::MANIFEST_MAX,
                "min_segment_size": 1,
            },
            "dlo": {"max_segments": super::large::SEGMENTS_MAX},
            "bulk_delete": {
                "max_deletes_per_request": super::bulk::DELETES_MAX,
                "max_failed_deletes": super::bulk::DELETES_MAX,
            },
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::caller::{Noted, Peer};
    use crate::front::swift::path::Place;
    use crate::front::swift::query::Query;
    use hyper::{HeaderMap, Uri};

    fn names(query: &str) -> Vec<String> {
        let asked = Asked {
            method: Method::GET,
            uri: Uri::from_static("/"),
            place: Place::default(),
            query: Query::parse(query).unwrap(),
            headers: HeaderMap::new(),
            caller: None,
            peer: Peer {
                ip: [127, 0, 0, 1].into(),
                tls: false,
            },
            noted: Noted::default(),
        };
        let row = |name: &str| Row::Subdir(name.to_string());
        let rows = ["a", "ab", "b", "c"].map(row).to_vec();
        let rows = page(rows, &asked).unwrap_or_default();
        rows.iter().map(|r| r.name().to_string()).collect()
    }

    #[test]
    fn pages_of_containers() {
        assert_eq!(names(""), ["a", "ab", "b", "c"]);
        assert_eq!(names("limit=2&marker=a"), ["ab", "b"]);
        assert_eq!(names("prefix=a"), ["a", "ab"]);
        assert_eq!(names("marker=a&end_marker=c"), ["ab", "b"]);
        assert_eq!(names("reverse=true&marker=c&limit=2"), ["b", "ab"]);
        assert_eq!(names("reverse=true&end_marker=ab"), ["c", "b"]);
        assert!(names("limit=x").is_empty() && names("limit=10001").is_empty());
    }
}
