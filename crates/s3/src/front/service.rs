//! Which operations there are: the library answers every other with NotImplemented and its name.

use super::Front;
use super::errors::not_built;
use super::hosts::Hosts;
use super::notification_ops::said_id;
use super::page::Document;
use super::raw::XML_BYTES;
use crate::policy::Action;
use crate::rados::Pool;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{HttpError, HttpRequest, HttpResponse, S3, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// The library. Nobody else calls it, so that every answer with a document of its own has that as its body.
#[derive(Clone)]
pub struct Library(S3Service);

impl Library {
    pub async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut answer = self.0.call(request).await?;
        if let Some(Document(text)) = answer.extensions_mut().remove::<Document>() {
            *answer.body_mut() = s3s::Body::from(text);
        }
        Ok(answer)
    }
}

/// The library, over a front.
pub fn built<P: Pool>(front: Front<P>, hosts: Hosts) -> Library {
    let mut config = S3Config::default();
    config.xml_max_body_size = XML_BYTES;
    // Forms do not come to the library (`post_ops`), which would take the file into memory before it asks who sends it.
    config.post_object_max_file_size = 0;
    config.form_max_fields_size = 64 << 10;
    let mut builder = S3ServiceBuilder::new(front.clone());
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.set_auth(front.clone());
    builder.set_access(front);
    builder.set_host(hosts);
    Library(builder.build())
}

macro_rules! answered {
    ($done:expr) => {
        Ok(S3Response::new($done?))
    };
}

#[async_trait::async_trait]
impl<P: Pool> S3 for Front<P> {
    async fn create_bucket(
        &self,
        req: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        answered!(Front::create_bucket(self, req).await)
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        answered!(Front::head_bucket(self, req).await)
    }

    async fn delete_bucket(
        &self,
        req: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        // As radosgw has it; the library takes it for the bucket's deletion.
        match said_id(&req.uri) {
            Some(id) => self.remove_notifications(req, &id).await?,
            None => Front::delete_bucket(self, req).await?,
        }
        Ok(S3Response::with_status(
            DeleteBucketOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn list_buckets(
        &self,
        req: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        answered!(Front::list_buckets(self, req).await)
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        answered!(self.location(req).await)
    }

    async fn put_bucket_encryption(
        &self,
        req: S3Request<PutBucketEncryptionInput>,
    ) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
        self.set_encryption(req).await?;
        Ok(S3Response::new(PutBucketEncryptionOutput::default()))
    }

    async fn get_bucket_encryption(
        &self,
        req: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
        answered!(self.encryption(req).await)
    }

    async fn delete_bucket_encryption(
        &self,
        req: S3Request<DeleteBucketEncryptionInput>,
    ) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
        self.remove_encryption(req).await?;
        Ok(S3Response::with_status(
            DeleteBucketEncryptionOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn put_bucket_website(
        &self,
        req: S3Request<PutBucketWebsiteInput>,
    ) -> S3Result<S3Response<PutBucketWebsiteOutput>> {
        self.set_website(req).await?;
        Ok(S3Response::new(PutBucketWebsiteOutput::default()))
    }

    async fn get_bucket_website(
        &self,
        req: S3Request<GetBucketWebsiteInput>,
    ) -> S3Result<S3Response<GetBucketWebsiteOutput>> {
        answered!(self.website(req).await)
    }

    async fn delete_bucket_website(
        &self,
        req: S3Request<DeleteBucketWebsiteInput>,
    ) -> S3Result<S3Response<DeleteBucketWebsiteOutput>> {
        self.remove_website(req).await?;
        Ok(S3Response::with_status(
            DeleteBucketWebsiteOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn put_bucket_acl(
        &self,
        req: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        self.set_bucket_acl(req).await?;
        Ok(S3Response::new(PutBucketAclOutput::default()))
    }

    async fn get_bucket_acl(
        &self,
        req: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        answered!(self.bucket_acl(req).await)
    }

    async fn get_bucket_versioning(
        &self,
        req: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        answered!(self.versioning(req).await)
    }

    async fn put_bucket_versioning(
        &self,
        req: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        self.set_versioning(req).await?;
        Ok(S3Response::new(PutBucketVersioningOutput::default()))
    }

    async fn get_object_lock_configuration(
        &self,
        req: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        answered!(self.lock(req).await)
    }

    async fn put_object_lock_configuration(
        &self,
        req: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        self.set_lock(req).await?;
        Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
    }

    async fn get_object_retention(
        &self,
        req: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        answered!(self.retention(req).await)
    }

    async fn put_object_retention(
        &self,
        req: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        self.set_retention(req).await?;
        Ok(S3Response::new(PutObjectRetentionOutput::default()))
    }

    async fn get_object_legal_hold(
        &self,
        req: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        answered!(self.hold(req).await)
    }

    async fn put_object_legal_hold(
        &self,
        req: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        self.set_hold(req).await?;
        Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
    }

    async fn get_bucket_policy(
        &self,
        req: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        answered!(self.policy(req).await)
    }

    async fn put_bucket_policy(
        &self,
        req: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<S3Response<PutBucketPolicyOutput>> {
        self.set_policy(req).await?;
        Ok(S3Response::new(PutBucketPolicyOutput::default()))
    }

    async fn delete_bucket_policy(
        &self,
        req: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
        self.remove_policy(req).await?;
        Ok(S3Response::with_status(
            DeleteBucketPolicyOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn get_bucket_policy_status(
        &self,
        req: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        answered!(self.policy_status(req).await)
    }

    async fn get_public_access_block(
        &self,
        req: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
        answered!(self.block(req).await)
    }

    async fn put_public_access_block(
        &self,
        req: S3Request<PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
        self.set_block(req).await?;
        Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
    }

    async fn delete_public_access_block(
        &self,
        req: S3Request<DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<DeletePublicAccessBlockOutput>> {
        self.remove_block(req).await?;
        Ok(S3Response::with_status(
            DeletePublicAccessBlockOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn put_bucket_cors(
        &self,
        req: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        self.set_cors(req).await?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    async fn get_bucket_cors(
        &self,
        req: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        answered!(self.cors(req).await)
    }

    async fn delete_bucket_cors(
        &self,
        req: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        self.remove_cors(req).await?;
        Ok(S3Response::with_status(
            DeleteBucketCorsOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn put_bucket_lifecycle_configuration(
        &self,
        req: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        answered!(self.set_lifecycle(req).await)
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        req: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        answered!(self.lifecycle(req).await)
    }

    async fn delete_bucket_lifecycle(
        &self,
        req: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        self.remove_lifecycle(req).await?;
        Ok(S3Response::with_status(
            DeleteBucketLifecycleOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn put_bucket_notification_configuration(
        &self,
        req: S3Request<PutBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketNotificationConfigurationOutput>> {
        self.set_notifications(req).await?;
        Ok(S3Response::new(
            PutBucketNotificationConfigurationOutput::default(),
        ))
    }

    async fn get_bucket_notification_configuration(
        &self,
        req: S3Request<GetBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketNotificationConfigurationOutput>> {
        let (output, instead) = self.notifications(req).await?;
        let mut answer = S3Response::new(output);
        if let Some(instead) = instead {
            answer.extensions.insert(instead);
        }
        Ok(answer)
    }

    async fn put_bucket_logging(
        &self,
        req: S3Request<PutBucketLoggingInput>,
    ) -> S3Result<S3Response<PutBucketLoggingOutput>> {
        self.set_logging(req).await?;
        Ok(S3Response::new(PutBucketLoggingOutput::default()))
    }

    async fn get_bucket_logging(
        &self,
        req: S3Request<GetBucketLoggingInput>,
    ) -> S3Result<S3Response<GetBucketLoggingOutput>> {
        answered!(self.logging(req).await)
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        answered!(Front::put_object(self, req).await)
    }

    /// The library's own puts the file that it has taken into memory.
    async fn post_object(&self, _: S3Request<PostObjectInput>) -> S3Result<S3Response<PostObjectOutput>> {
        Err(not_built("POST forms"))
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        answered!(Front::get_object(self, req).await)
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let out = Front::head_object(self, req).await?;
        let partial = out.content_range.is_some();
        let mut answer = S3Response::new(out);
        answer.status = partial.then_some(hyper::StatusCode::PARTIAL_CONTENT);
        Ok(answer)
    }

    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        answered!(Front::copy_object(self, req).await)
    }

    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let out = Front::delete_object(self, req).await?;
        Ok(S3Response::with_status(out, hyper::StatusCode::NO_CONTENT))
    }

    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        answered!(Front::delete_objects(self, req).await)
    }

    async fn get_object_tagging(
        &self,
        req: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        answered!(self.tags_of(req).await)
    }

    async fn put_object_tagging(
        &self,
        mut req: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let set = std::mem::take(&mut req.input.tagging.tag_set);
        let (input, actions) = (
            &req.input,
            [Action::PutObjectTagging, Action::PutObjectVersionTagging],
        );
        let of = (actions, input.bucket.as_str(), input.key.as_str());
        let version_id = self.set_tags(&req, of, input.version_id.as_deref(), set).await?;
        Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
    }

    async fn delete_object_tagging(
        &self,
        req: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let actions = [Action::DeleteObjectTagging, Action::DeleteObjectVersionTagging];
        let input = &req.input;
        let of = (actions, input.bucket.as_str(), input.key.as_str());
        let set = self.set_tags(&req, of, input.version_id.as_deref(), Vec::new());
        let version_id = set.await?;
        Ok(S3Response::with_status(
            DeleteObjectTaggingOutput { version_id },
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn put_object_acl(
        &self,
        req: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        self.set_object_acl(req).await?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }

    async fn get_object_acl(
        &self,
        req: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        answered!(self.object_acl(req).await)
    }

    async fn list_objects(
        &self,
        req: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        self.list_v1(req).await
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        self.list_v2(req).await
    }

    async fn list_object_versions(
        &self,
        req: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        answered!(self.list_versions(req).await)
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        answered!(self.create_upload(req).await)
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        answered!(Front::put_part(self, req).await)
    }

    async fn upload_part_copy(
        &self,
        req: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        answered!(self.copy_part(req).await)
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        answered!(self.complete_upload(req).await)
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        self.abort_upload(req).await?;
        Ok(S3Response::with_status(
            AbortMultipartUploadOutput::default(),
            hyper::StatusCode::NO_CONTENT,
        ))
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        answered!(Front::list_parts(self, req).await)
    }

    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        answered!(self.list_uploads(req).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use hyper::Uri;
    use hyper::body::Body;
    use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
    use std::future::poll_fn;
    use std::pin::Pin;

    struct Tiny;

    #[async_trait::async_trait]
    impl S3 for Tiny {
        async fn list_objects(
            &self,
            _: S3Request<ListObjectsInput>,
        ) -> S3Result<S3Response<ListObjectsOutput>> {
            Ok(Document(Bytes::from_static(b"<a/>")).answer())
        }

        async fn list_objects_v2(
            &self,
            _: S3Request<ListObjectsV2Input>,
        ) -> S3Result<S3Response<ListObjectsV2Output>> {
            Ok(S3Response::new(ListObjectsV2Output::default()))
        }
    }

    const EMPTY: &str = concat!(
        r#"<?xml version="1.0" encoding="UTF-8"?>"#,
        r#"<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>"#
    );

    #[test]
    fn a_document_takes_the_place_of_the_body_alone() {
        let library = Library(S3ServiceBuilder::new(Tiny).build());
        let asked = async {
            for (uri, want) in [("/bucket", "<a/>"), ("/bucket?list-type=2", EMPTY)] {
                let mut request = HttpRequest::new(s3s::Body::empty());
                *request.uri_mut() = Uri::from_static(uri);
                let host = HeaderValue::from_static("127.0.0.1");
                request.headers_mut().insert(HOST, host);
                let (head, mut body) = library.call(request).await.unwrap().into_parts();
                assert_eq!(head.status, hyper::StatusCode::OK);
                assert_eq!(head.headers.get(CONTENT_TYPE).unwrap(), "application/xml");
                assert!(head.extensions.get::<Document>().is_none());
                assert_eq!(body.size_hint().exact(), Some(want.len() as u64));
                let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), want);
                assert!(body.is_end_stream());
            }
        };
        io::task::block_on(asked).unwrap();
    }
}
