//! Containers: buckets, with metadata and ACLs of Swift's.

use super::account_ops::{describe, limit};
use super::answer::{Done, Refusal, bad, denied, empty, refuse, set, stamp, unbuilt};
use super::asked::{Asked, changed};
use super::kept::{kind_of, shown};
use super::listing::{self, Format, Row, room, short};
use super::login::is_secret;
use super::query::Query;
use crate::Error;
use crate::buckets::Known;
use crate::container::{Acl, Container};
use crate::front::permit::Ask;
use crate::front::{Front, TRIES_MAX};
use crate::objects::{Item, LIST_MAX, Listing};
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::settings::Settings;
use hyper::{Method, StatusCode};
use s3s::S3Result;
use s3s::dto::DeleteBucketInput;
use std::ops::ControlFlow;

/// Names of a container that one request looks at.
const LOOKED_MAX: usize = 100_000;

const UNBUILT: [(&str, &str); 8] = [
    (
        "x-versions-",
        "Swift's versions of objects (S3 has versioning of buckets)",
    ),
    ("x-history-location", "Swift's versions of objects"),
    ("x-container-sync-", "synchronization of containers"),
    ("x-container-meta-web-", "websites"),
    (
        "x-container-meta-quota-",
        "quotas by metadata (skep s3 quota sets them)",
    ),
    (
        "x-container-meta-access-control-",
        "CORS by metadata (S3's PutBucketCors sets it)",
    ),
    ("x-container-sharding", "sharding by hand"),
    ("x-container-host", "hosts of containers"),
];

/// What a request sets of a container.
#[derive(Debug, Default)]
struct Changes {
    meta: Vec<(String, Option<String>)>,
    /// None: as they are.
    read: Option<String>,
    write: Option<String>,
}

fn acl(asked: &Asked, which: &str) -> Done<Option<(String, Acl)>> {
    let removes = asked.has(&format!("x-remove-container-{which}"));
    let text = match asked.header(&format!("x-container-{which}")) {
        Some(text) => text,
        None if removes => "",
        None => return Ok(None),
    };
    let acl = Acl::parse(text).map_err(bad)?;
    Ok(Some((text.trim().to_string(), acl)))
}

impl Changes {
    fn of(asked: &Asked) -> Done<Self> {
        asked.refuse_headers(&UNBUILT)?;
        match asked.header("x-storage-policy") {
            None | Some("" | "default") => {}
            Some(other) => {
                return Err(bad(format!(
                    "Invalid X-Storage-Policy {other:?}: default is the only one"
                )));
            }
        }
        let (read, write) = (acl(asked, "read")?, acl(asked, "write")?);
        if write.as_ref().is_some_and(|(_, a)| a.public || a.listings) {
            return Err(bad("X-Container-Write: referrers read, and do not write"));
        }
        let changes = Self {
            meta: asked.meta("container")?,
            read: read.map(|(text, _)| text),
            write: write.map(|(text, _)| text),
        };
        if changes.grants() {
            asked.demand_full()?;
        }
        Ok(changes)
    }

    /// Whether they give access to others, or take it: by ACLs, or by keys of temporary URLs, which do what the owner may.
    fn grants(&self) -> bool {
        self.read.is_some() || self.write.is_some() || self.meta.iter().any(|(name, _)| is_secret(name))
    }

    /// Access is given by the container's owner alone, whatever its policy says.
    fn check(&self, asked: &Asked, owner: &str) -> Done<()> {
        let owns = asked.caller.as_ref().is_some_and(|c| c.user == owner);
        match owns || !self.grants() {
            true => Ok(()),
            false => Err(denied()),
        }
    }

    fn is_empty(&self) -> bool {
        self.meta.is_empty() && self.read.is_none() && self.write.is_none()
    }

    fn apply(&self, settings: &mut Settings) -> S3Result<()> {
        let mut container = settings.container.clone().unwrap_or_default();
        changed(&mut container.meta, &self.meta)?;
        if let Some(read) = &self.read {
            let opens = Acl::parse(read).is_ok_and(|a| a.public);
            if opens && settings.block.unwrap_or_default().acls {
                return Err(Error::AccessDenied.into());
            }
            container.read.clone_from(read);
        }
        if let Some(write) = &self.write {
            container.write.clone_from(write);
        }
        settings.container = Some(container).filter(|c| *c != Container::default());
        Ok(())
    }
}

/// Prefix and delimiter of a listing. With `path`, which wins: objects below a folder, and no further folders.
fn within(query: &Query) -> (Option<String>, Option<String>) {
    let said = |name: &str| query.get(name).map(str::to_string);
    match query.get("path") {
        None => (said("prefix"), said("delimiter").filter(|d| !d.is_empty())),
        Some("") => (Some(String::new()), Some("/".into())),
        Some(path) => (Some(format!("{}/", path.trim_end_matches('/'))), Some("/".into())),
    }
}

fn no_container() -> Refusal {
    Error::NoSuchBucket.into()
}

impl<P: Pool> Front<P> {
    /// The container, if it is in the account that the path names.
    pub(super) async fn located(&self, asked: &Asked) -> Done<Known> {
        let known = self.known(&asked.request(()), asked.container()).await?;
        let named = asked.place.account.as_deref();
        match named.is_none_or(|a| a == known.bucket.owner) {
            true => Ok(known),
            false => Err(no_container()),
        }
    }

    pub(super) async fn of_container(&self, asked: &Asked) -> Done {
        if asked.caller.as_ref().is_some_and(|c| c.by_url) {
            return Err(denied());
        }
        match asked.method {
            Method::GET => self.list_container(asked).await,
            Method::HEAD => self.stat_container(asked).await,
            Method::PUT => self.put_container(asked).await,
            Method::POST => self.post_container(asked).await,
            Method::DELETE => self.delete_container(asked).await,
            _ => Err(refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "a container takes GET, HEAD, PUT, POST and DELETE",
            )),
        }
    }

    async fn put_container(&self, asked: &Asked) -> Done {
        asked.is("CreateBucket");
        let user = asked.own_account()?;
        asked.demand_write()?;
        let changes = Changes::of(asked)?;
        let mut settings = Settings::default();
        changes.apply(&mut settings)?;
        let made = self
            .buckets
            .create(asked.container(), user, (false, "", &settings));
        match made.await {
            Ok(()) => Ok(empty(StatusCode::CREATED)),
            Err(Error::BucketYours) => {
                if !changes.is_empty() {
                    self.change_container(asked, &changes).await?;
                }
                Ok(empty(StatusCode::ACCEPTED))
            }
            Err(e) => Err(e.into()),
        }
    }

    async fn change_container(&self, asked: &Asked, changes: &Changes) -> Done<()> {
        let ask = Ask::bucket(Action::PutBucketAcl, asked.container());
        let req = asked.request(());
        for _ in 0..TRIES_MAX {
            let known = self.permitted(&req, &ask).await?;
            changes.check(asked, &known.bucket.owner)?;
            let mut settings = known.settings.of.clone();
            changes.apply(&mut settings)?;
            match self.buckets.set_settings(ask.bucket, &known, &settings).await {
                Err(Error::Conflict(_)) => {}
                other => return Ok(other?),
            }
        }
        Err(Error::Conflict("others change the same container").into())
    }

    async fn post_container(&self, asked: &Asked) -> Done {
        asked.is("PutBucketMetadata");
        self.located(asked).await?;
        asked.demand_write()?;
        let changes = Changes::of(asked)?;
        self.change_container(asked, &changes).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn delete_container(&self, asked: &Asked) -> Done {
        asked.is("DeleteBucket");
        self.located(asked).await?;
        asked.demand_write()?;
        let bucket = asked.container().to_string();
        let input = DeleteBucketInput {
            bucket,
            ..DeleteBucketInput::default()
        };
        self.delete_bucket(asked.request(input)).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// What is said of a container with its list and without.
    async fn describe_container(
        &self,
        asked: &Asked,
        known: &Known,
        answer: &mut s3s::HttpResponse,
    ) -> Done<()> {
        let id = known.bucket.id.clone();
        let counts = self.counter.counts(std::slice::from_ref(&id)).await?;
        let held = counts.get(&id).map(|c| c.held).unwrap_or_default();
        set(answer, "x-container-object-count", held.objects.to_string());
        set(answer, "x-container-bytes-used", held.bytes.to_string());
        set(answer, "x-timestamp", stamp(known.bucket.created));
        set(answer, "x-storage-policy", "default");
        set(answer, "accept-ranges", "bytes");
        let caller = asked.caller.as_ref();
        let owner = caller.is_some_and(|c| c.user == known.bucket.owner) && asked.demand_full().is_ok();
        if let Some(container) = &known.settings.of.container {
            describe(answer, "container", &container.meta, owner);
            let acls = [("read", &container.read), ("write", &container.write)];
            for (name, text) in acls.iter().filter(|(_, text)| owner && !text.is_empty()) {
                set(answer, &format!("x-container-{name}"), text);
            }
        }
        Ok(())
    }

    async fn stat_container(&self, asked: &Asked) -> Done {
        asked.is("HeadBucket");
        self.located(asked).await?;
        asked.demand_read()?;
        let ask = Ask::bucket(Action::ListBucket, asked.container());
        let known = self.listable(&asked.request(()), &ask).await?;
        let mut answer = empty(StatusCode::NO_CONTENT);
        let format = Format::of(&asked.query, asked.header("accept"));
        set(&mut answer, "content-type", format.kind());
        self.describe_container(asked, &known, &mut answer).await?;
        Ok(answer)
    }

    async fn list_container(&self, asked: &Asked) -> Done {
        asked.is("ListObjects");
        self.located(asked).await?;
        asked.demand_read()?;
        let (query, max) = (&asked.query, limit(asked)?);
        if query.is_true("reverse") {
            return Err(unbuilt("reverse listings of objects"));
        }
        let (prefix, delimiter) = within(query);
        // What is judged is what is listed.
        let ask = Ask::bucket(Action::ListBucket, asked.container())
            .with(Key::Prefix, prefix.as_ref())
            .with(Key::Delimiter, delimiter.as_ref())
            .with(Key::MaxKeys, Some(max));
        let known = self.listable(&asked.request(()), &ask).await?;
        let listing = Listing {
            prefix: prefix.unwrap_or_default(),
            delimiter,
            after: query.said("marker").map(str::to_string),
            max,
        };
        let _room = room(max).await?;
        let (end, folder) = (query.said("end_marker"), query.has("path"));
        let rows = self.found_of(&known, listing, |item| match item {
            item if end.is_some_and(|e| item.name() >= e) => ControlFlow::Break(()),
            Item::Prefix(_) if folder => ControlFlow::Continue(None),
            item => ControlFlow::Continue(Some(row(item))),
        });
        let rows = rows.await?;
        let format = Format::of(query, asked.header("accept"));
        let mut answer = listing::answer(format, ("container", asked.container()), &rows);
        self.describe_container(asked, &known, &mut answer).await?;
        Ok(answer)
    }

    /// What `of` makes of a listing's items, until it breaks off; None: of what is not wanted.
    pub(super) async fn found_of<T>(
        &self,
        known: &Known,
        mut listing: Listing,
        of: impl Fn(Item) -> ControlFlow<(), Option<T>>,
    ) -> Done<Vec<T>> {
        let (max, mut looked, mut found) = (listing.max, 0, Vec::new());
        while found.len() < max {
            if looked >= LOOKED_MAX {
                let why =
                    "Too many names that are not listed are between those that are: list them by prefix";
                return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, why));
            }
            // Whole pages, where not all is wanted.
            listing.max = match looked == found.len() {
                true => (max - looked).min(LIST_MAX),
                false => LIST_MAX,
            };
            let page = self.objects.list(&known.bucket.id, &listing).await?;
            listing.after = page.items.last().map(|i| i.name().to_string());
            looked += page.items.len();
            for item in page.items {
                match of(item) {
                    ControlFlow::Break(()) => return Ok(found),
                    ControlFlow::Continue(one) => found.extend(one),
                }
                if found.len() == max {
                    return Ok(found);
                }
            }
            if !page.more {
                break;
            }
        }
        Ok(found)
    }
}

fn row(item: Item) -> Row {
    match item {
        Item::Prefix(prefix) => Row::Subdir(prefix),
        Item::Object(name, entry) => {
            let (bytes, hash) = shown(&entry);
            Row::Object {
                name,
                hash,
                bytes,
                kind: short(kind_of(&entry)),
                at: entry.modified,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::caller::{Noted, Peer};
    use crate::front::swift::asked::{Caller, headers};
    use crate::front::swift::path::Place;
    use hyper::Uri;

    #[test]
    fn what_is_listed_is_judged() {
        let of = |query: &str| {
            let (prefix, delimiter) = within(&Query::parse(query).unwrap());
            (prefix.unwrap_or("none".into()), delimiter.unwrap_or_default())
        };
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(of("delimiter="), pair("none", ""));
        assert_eq!(of("prefix=a&delimiter=-"), pair("a", "-"));
        assert_eq!(of("prefix=a&path=b"), pair("b/", "/"));
        assert_eq!(of("prefix=a&path=b//&delimiter=-"), pair("b/", "/"));
        assert_eq!(of("prefix=a&path="), pair("", "/"));
    }

    #[test]
    fn access_is_given_by_the_owner_alone() {
        let may = |header: &'static str, user: &str| {
            let asked = Asked {
                method: Method::POST,
                uri: Uri::from_static("/"),
                place: Place::default(),
                query: Query::default(),
                headers: headers(&[(header, "x")]),
                caller: Some(Caller {
                    user: user.into(),
                    ..Caller::default()
                }),
                peer: Peer {
                    ip: [127, 0, 0, 1].into(),
                    tls: false,
                },
                noted: Noted::default(),
            };
            Changes::of(&asked).unwrap().check(&asked, "owner").is_ok()
        };
        for header in [
            "x-container-meta-temp-url-key",
            "x-container-meta-temp-url-key-2",
            "x-remove-container-meta-temp-url-key",
            "x-container-read",
            "x-container-write",
            "x-remove-container-read",
        ] {
            assert!(may(header, "owner") && !may(header, "other"), "{header}");
        }
        assert!(may("x-container-meta-room", "other"));
    }
}
