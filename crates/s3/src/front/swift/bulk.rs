//! Deletes of many, and what is said of them.

use super::answer::{Done, Refusal, bad, missing, text_answer, unbuilt};
use super::asked::{Asked, collected};
use super::listing::Format;
use super::path;
use crate::front::Front;
use crate::front::texts::path_decoded;
use crate::history::{Found, Which};
use crate::rados::Pool;
use hyper::StatusCode;
use s3s::dto::{DeleteBucketInput, DeleteObjectInput};
use s3s::{Body, HttpResponse};
use serde_json::json;
use std::fmt::Write;

pub const DELETES_MAX: usize = 1000;
/// Names, each with three bytes for one.
const BODY_MAX: usize = DELETES_MAX * (path::CONTAINER_MAX + path::OBJECT_MAX + 2) * 3;

/// What became of each.
#[derive(Debug, Default)]
pub struct Bulk {
    deleted: usize,
    missing: usize,
    errors: Vec<(String, String)>,
}

impl Bulk {
    pub fn add(&mut self, name: &str, done: Done<()>) {
        match done {
            Ok(()) => self.deleted += 1,
            Err(e) if e.status == StatusCode::NOT_FOUND => self.missing += 1,
            Err(e) => self.failed(name.to_string(), &e.status.to_string()),
        }
    }

    pub fn failed(&mut self, name: String, status: &str) {
        self.errors.push((name, status.to_string()));
    }

    fn status(&self) -> &'static str {
        match self.errors.is_empty() {
            true if self.deleted + self.missing > 0 => "200 OK",
            _ => "400 Bad Request",
        }
    }

    pub fn answer(&self, asked: &Asked) -> HttpResponse {
        let format = match asked.header("accept") {
            Some(accept) if accept.contains("json") => Format::Json,
            _ => Format::Plain,
        };
        let text = match format {
            Format::Json => json!({
                "Number Deleted": self.deleted,
                "Number Not Found": self.missing,
                "Response Status": self.status(),
                "Response Body": "",
                "Errors": self.errors.iter().map(|(n, s)| json!([n, s])).collect::<Vec<_>>(),
            })
            .to_string(),
            _ => {
                let mut out = format!(
                    "Number Deleted: {}\nNumber Not Found: {}\nResponse Body: \nResponse Status: {}\nErrors:\n",
                    self.deleted,
                    self.missing,
                    self.status()
                );
                // Writing to a string does not fail.
                let _ = self
                    .errors
                    .iter()
                    .try_for_each(|(n, s)| writeln!(out, "{n}, {s}"));
                out
            }
        };
        text_answer(StatusCode::OK, format.kind(), text)
    }
}

impl<P: Pool> Front<P> {
    /// An object, if it is there: Swift's clients are told if it is not.
    pub(super) async fn delete_one_of(&self, asked: &Asked, container: &str, object: &str) -> Done<()> {
        let mut asked = asked.clone();
        asked.place.container = Some(container.to_string());
        asked.place.object = Some(object.to_string());
        asked.demand_write()?;
        let known = self.located(&asked).await?;
        let input = DeleteObjectInput {
            bucket: container.to_string(),
            key: object.to_string(),
            ..DeleteObjectInput::default()
        };
        // Who may not delete does not hear whether there is one.
        let ask = crate::front::permit::Ask::object(crate::policy::Action::DeleteObject, container, object);
        self.demand(&asked.request(()), &known, &ask)?;
        let there = self.objects.version(&known.bucket.id, object, Which::Current);
        let there = there.await?;
        // Not there for anybody, and removed, as Swift does it.
        if let Found::Object(entry) = &there
            && entry.attributes.has_ended(self.clock.now_ms())
        {
            let of = (known.bucket.id.as_str(), known.settings.of.versioning);
            self.objects.delete_seen(of.0, object, entry, of.1).await?;
            return Err(missing());
        }
        if !matches!(there, Found::Object(_)) {
            return Err(missing());
        }
        self.delete_object(asked.request(input)).await?;
        Ok(())
    }

    async fn delete_container_of(&self, asked: &Asked, container: &str) -> Done<()> {
        let mut asked = asked.clone();
        asked.place.container = Some(container.to_string());
        asked.demand_write()?;
        self.located(&asked).await?;
        let input = DeleteBucketInput {
            bucket: container.to_string(),
            ..DeleteBucketInput::default()
        };
        self.delete_bucket(asked.request(input)).await?;
        Ok(())
    }

    /// A list of names, one a line, URL encoded: of objects, or of containers that are empty.
    pub(super) async fn bulk_delete(&self, asked: &Asked, body: Body) -> Done {
        asked.is("DeleteObjects");
        asked.own_account()?;
        asked.demand_write()?;
        if asked.query.has("extract-archive") {
            return Err(unbuilt("extract-archive"));
        }
        let text = collected(body, BODY_MAX).await?;
        let text = std::str::from_utf8(&text).map_err(|_| bad("the list is not UTF-8"))?;
        let names: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        if names.len() > DELETES_MAX {
            let why = format!("Maximum Bulk Deletes: {DELETES_MAX} per request");
            return Err(super::answer::refuse(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        let mut bulk = Bulk::default();
        for name in names {
            let pair = path_decoded(name).ok_or("not URL encoded UTF-8");
            let done = match pair.and_then(|n| path::pair(&n)) {
                Err(e) => Err(bad(e)),
                Ok((container, object)) if object.is_empty() => {
                    self.delete_container_of(asked, &container).await
                }
                Ok((container, object)) => self.delete_one_of(asked, &container, &object).await,
            };
            bulk.add(name, done.map_err(|e: Refusal| e));
        }
        Ok(bulk.answer(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_each_is_told() {
        let mut bulk = Bulk::default();
        assert_eq!(bulk.status(), "400 Bad Request");
        bulk.add("a", Ok(()));
        bulk.add("b", Err(missing()));
        assert_eq!((bulk.deleted, bulk.missing, bulk.status()), (1, 1, "200 OK"));
        bulk.add("c", Err(bad("x")));
        assert_eq!(bulk.errors, [("c".to_string(), "400 Bad Request".to_string())]);
        assert_eq!(bulk.status(), "400 Bad Request");
    }
}
