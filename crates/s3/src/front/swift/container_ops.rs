//! Containers: buckets, with metadata and ACLs of Swift's.

use super::account_ops::{describe, limit};
use super::answer::{Done, Refusal, bad, denied, empty, refuse, set, stamp, unbuilt};
use super::asked::{Asked, changed};
use super::kept::{kind_of, seen};
use super::listing::{self, Format, Row};
use super::login::is_secret;
use crate::Error;
use crate::buckets::Known;
use crate::container::{Acl, Container};
use crate::front::Front;
use crate::front::permit::Ask;
use crate::objects::{Item, LIST_MAX, Listing};
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::settings::Settings;
use hyper::{Method, StatusCode};
use s3s::S3Result;
use s3s::dto::DeleteBucketInput;

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
        let meta = asked.meta("container")?;
        if read.is_some() || write.is_some() || meta.iter().any(|(name, _)| is_secret(name)) {
            asked.demand_full()?;
        }
        Ok(Self {
            meta,
            read: read.map(|(text, _)| text),
            write: write.map(|(text, _)| text),
        })
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
        let changed = self.try_change_settings(&req, ask, |s| changes.apply(s));
        Ok(changed.await?)
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
        // Objects below a folder, and no further folders.
        let folder = query.get("path");
        let prefix = match folder {
            None => query.get("prefix").unwrap_or_default().to_string(),
            Some("") => String::new(),
            Some(path) => format!("{}/", path.trim_end_matches('/')),
        };
        let delimiter = match folder {
            Some(_) => Some("/".to_string()),
            None => query.said("delimiter").map(str::to_string),
        };
        let ask = Ask::bucket(Action::ListBucket, asked.container())
            .with(Key::Prefix, query.get("prefix").or(folder))
            .with(Key::Delimiter, delimiter.as_ref())
            .with(Key::MaxKeys, Some(max));
        let known = self.listable(&asked.request(()), &ask).await?;
        let listing = Listing {
            prefix,
            delimiter,
            after: query.said("marker").map(str::to_string),
            max,
        };
        let end = query.said("end_marker");
        let rows = self
            .rows_of(&known, listing, |row| {
                let before = end.is_none_or(|e| row.name() < e);
                let wanted = folder.is_none() || !matches!(row, Row::Subdir(_));
                (before, wanted)
            })
            .await?;
        let format = Format::of(query, asked.header("accept"));
        let mut answer = listing::answer(format, ("container", asked.container()), &rows);
        self.describe_container(asked, &known, &mut answer).await?;
        Ok(answer)
    }

    /// Rows of a listing until `of` says first that there are no more; those of which it says then that they are wanted.
    pub(super) async fn rows_of(
        &self,
        known: &Known,
        mut listing: Listing,
        of: impl Fn(&Row) -> (bool, bool),
    ) -> Done<Vec<Row>> {
        let (max, mut rows) = (listing.max, Vec::new());
        while rows.len() < max {
            listing.max = (max - rows.len()).min(LIST_MAX);
            let page = self.objects.list(&known.bucket.id, &listing).await?;
            listing.after = page.items.last().map(|i| i.name().to_string());
            for item in page.items {
                let row = row(item);
                match of(&row) {
                    (false, _) => return Ok(rows),
                    (true, true) => rows.push(row),
                    (true, false) => {}
                }
            }
            if !page.more {
                break;
            }
        }
        Ok(rows)
    }
}

fn row(item: Item) -> Row {
    match item {
        Item::Prefix(prefix) => Row::Subdir(prefix),
        Item::Object(name, entry) => {
            let (bytes, hash) = seen(&entry).unwrap_or((entry.size, entry.etag.clone()));
            Row::Object {
                name,
                hash,
                bytes,
                kind: kind_of(&entry),
                at: entry.modified,
            }
        }
    }
}
