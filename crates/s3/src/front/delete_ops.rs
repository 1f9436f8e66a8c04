//! Deletes: of an object, of a version, of many.

use super::attributes::{check_key, which};
use super::errors::not_built;
use super::object_ops::{KNOWN_FOR, terms};
use super::permit::Ask;
use super::raw::{self, Leaf};
use super::texts::etags;
use super::{Front, acting};
use crate::Error;
use crate::buckets::Known;
use crate::history::{Deleted, Which};
use crate::notify::{Asker, How};
use crate::objects::{Condition, Terms};
use crate::policy::Action;
use crate::rados::Pool;
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ObjectIdentifier,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

/// Keys of one request that deletes many.
const DELETE_MAX: usize = 1000;
const DELETE_AT_ONCE: usize = 16;
const DELETE_LEAVES: [(&str, Leaf); 6] = [
    ("Key", Leaf::Text),
    ("VersionId", Leaf::Text),
    ("Quiet", Leaf::Text),
    ("ETag", Leaf::Text),
    ("LastModifiedTime", Leaf::Text),
    ("Size", Leaf::Number),
];

impl<P: Pool> Front<P> {
    pub async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> S3Result<DeleteObjectOutput> {
        check_key(&req.input.key)?;
        if req.input.if_match_last_modified_time.is_some() || req.input.if_match_size.is_some() {
            return Err(not_built("deletes on condition of a time or a size"));
        }
        let which = which(req.input.version_id.as_deref())?;
        let ask = Ask::object(Action::DeleteObject, &req.input.bucket, &req.input.key)
            .version(which, Action::DeleteObjectVersion);
        let known = self.permitted(&req, &ask).await?;
        let of = (req.input.bucket.as_str(), req.input.key.as_str(), which);
        let bypass = self.bypasses(&req, &known, of, req.input.bypass_governance_retention)?;
        let by = self.asker(&req);
        let input = req.input;
        let condition = Condition {
            matches: etags(input.if_match.as_ref()),
            none_match: None,
        };
        let id = &known.bucket.id;
        let terms = Terms {
            bypass,
            ..terms(&known, condition)
        };
        let objects = self.telling(&known, (&input.bucket, &input.key), How::Delete, &by);
        let deleted = objects.delete(id, &input.key, which, &terms).await?;
        Ok(DeleteObjectOutput {
            delete_marker: deleted.marker.then_some(true),
            version_id: input.version_id.or(deleted.version.map(|v| v.to_string())),
            ..DeleteObjectOutput::default()
        })
    }

    pub async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> S3Result<DeleteObjectsOutput> {
        let mut known = self.known(&req, &req.input.bucket).await?;
        let mut since = self.clock.now_ms();
        // Of a session each key is judged.
        if known.settings.policy.is_none() && acting(&req) != Some(&known.bucket.owner) {
            return Err(Error::AccessDenied.into());
        }
        raw::check_request(&req, &DELETE_LEAVES)?;
        let delete = &req.input.delete;
        if delete.objects.len() > DELETE_MAX {
            return Err(S3Error::with_message(
                S3ErrorCode::MalformedXML,
                "at most 1000 keys at once",
            ));
        }
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        let by = (req.input.bucket.clone(), self.asker(&req));
        for some in delete.objects.chunks(DELETE_AT_ONCE) {
            let now = self.clock.now_ms();
            if now.abs_diff(since) >= KNOWN_FOR {
                known = self.still(known, &req.input.bucket, since).await?;
                since = now;
            }
            let mut begun = Vec::with_capacity(some.len());
            // Those of one key one after the other: they change the same rows.
            for of_key in some.chunk_by(|a, b| a.key == b.key) {
                let mut asked = Vec::with_capacity(of_key.len());
                for object in of_key {
                    // A policy may take a while to judge.
                    io::task::yield_now().await;
                    asked.push((object.clone(), self.may_delete(&req, &known, object)));
                }
                let (front, known, by) = (self.clone(), known.clone(), by.clone());
                begun.push(io::task::spawn_local(async move {
                    let mut done = Vec::with_capacity(asked.len());
                    for (object, how) in asked {
                        let deleted = match how {
                            Ok(how) => front.delete_one(&known, &object, how, &by).await,
                            Err(e) => Err(e),
                        };
                        done.push((object, deleted));
                    }
                    done
                }));
            }
            for task in begun {
                for (object, done) in task.await.map_err(S3Error::internal_error)? {
                    match done {
                        Ok(done) => deleted.push(told_deleted(object, done)),
                        Err(e) => errors.push(told_failed(object, &e)),
                    }
                }
            }
        }
        Ok(DeleteObjectsOutput {
            deleted: (!delete.quiet.unwrap_or(false)).then_some(deleted),
            errors: (!errors.is_empty()).then_some(errors),
            ..DeleteObjectsOutput::default()
        })
    }

    /// Which version is to be deleted, and whether by who may end retentions of governance.
    fn may_delete(
        &self,
        req: &S3Request<DeleteObjectsInput>,
        known: &Known,
        object: &ObjectIdentifier,
    ) -> S3Result<(Which, bool)> {
        check_key(&object.key)?;
        if object.last_modified_time.is_some() || object.size.is_some() {
            return Err(not_built("deletes on condition of a time or a size"));
        }
        let which = which(object.version_id.as_deref())?;
        let of = (req.input.bucket.as_str(), object.key.as_str(), which);
        let ask = Ask::object(Action::DeleteObject, of.0, of.1).version(which, Action::DeleteObjectVersion);
        self.demand(req, known, &ask)?;
        let bypass = self.bypasses(req, known, of, req.input.bypass_governance_retention)?;
        Ok((which, bypass))
    }

    async fn delete_one(
        &self,
        known: &Known,
        object: &ObjectIdentifier,
        (which, bypass): (Which, bool),
        (bucket, by): &(String, Asker),
    ) -> S3Result<Deleted> {
        let etag = object.e_tag.as_ref().map(|e| e.value().to_string());
        let condition = Condition {
            matches: etag.map(crate::objects::Etags::One),
            none_match: None,
        };
        let terms = Terms {
            bypass,
            ..terms(known, condition)
        };
        Ok(self
            .telling(known, (bucket, &object.key), How::Delete, by)
            .delete(&known.bucket.id, &object.key, which, &terms)
            .await?)
    }
}

fn told_deleted(object: ObjectIdentifier, done: Deleted) -> DeletedObject {
    DeletedObject {
        key: Some(object.key),
        version_id: object.version_id,
        delete_marker: done.marker.then_some(true),
        delete_marker_version_id: done.version.filter(|_| done.marker).map(|v| v.to_string()),
    }
}

fn told_failed(object: ObjectIdentifier, e: &S3Error) -> s3s::dto::Error {
    s3s::dto::Error {
        code: Some(e.code().as_str().to_string()),
        key: Some(object.key),
        message: e.message().map(str::to_string),
        version_id: object.version_id,
    }
}
