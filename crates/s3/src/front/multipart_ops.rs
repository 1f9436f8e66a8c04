//! Uploads in parts.

use super::attributes::{attributes, check_key, class_named, class_of, refuse_unbuilt};
use super::customer::{OBJECT, Seal, describe_seal, etag_of};
use super::digest::{self, ALGORITHMS, Announced, Digest, checksum_values, set_checksum};
use super::errors::{invalid, not_built};
use super::lock_ops::lock_given;
use super::object_ops::{PUT_MAX, Source, length, source_name, terms, version_of, wanted_of_source};
use super::permit::Ask;
use super::texts::{Names, etag, etags, owner, page_size, timestamp};
use super::{Front, acting};
use crate::Error;
use crate::amount::Amount;
use crate::buckets::Bucket;
use crate::multipart::{Named, PARTS_MAX, Whole};
use crate::notify::How as By;
use crate::objects::Condition;
use crate::policy::{Action, Key};
use crate::rados::Pool;
use crate::record::{Checksum, Part as PartRecord, Upload};
use crate::seal::How;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::*;
use s3s::{S3Request, S3Result, TrailingHeaders};

/// Parts and uploads of one page.
const PAGE_MAX: usize = 1000;

fn part_number(n: i32) -> S3Result<u32> {
    let n = u32::try_from(n).ok().filter(|n| (1..=PARTS_MAX).contains(n));
    n.ok_or_else(|| invalid("a part's number is from 1 to 10000"))
}

/// A checksum over the parts' checksums, as S3 makes it of those that cannot be joined.
fn composite(algorithm: &str, parts: &[(&Named, &PartRecord)]) -> Option<Checksum> {
    let mut hasher = digest::hasher(algorithm)?;
    for (_, part) in parts {
        let sum = part.checksum.as_ref().filter(|c| c.algorithm == algorithm)?;
        hasher.update(&STANDARD.decode(&sum.value).ok()?);
    }
    Some(Checksum {
        algorithm: algorithm.to_string(),
        value: format!("{}-{}", digest::value(hasher)?, parts.len()),
    })
}

/// ETag and checksum of what the parts make.
fn whole(upload: &Upload, parts: &[(&Named, &PartRecord)]) -> crate::Result<Whole> {
    let mut md5 = Md5::new();
    for (_, part) in parts {
        let raw = hex::decode(&part.etag).map_err(|_| Error::Damaged("a part's ETag".into()))?;
        md5.update(&raw);
    }
    // Joined checksums of the whole object are not computed: none is said then.
    let composed = upload.algorithm.as_deref().filter(|a| *a != "CRC64NVME");
    Ok(Whole {
        etag: format!("{}-{}", hex::encode(md5.finalize()), parts.len()),
        checksum: composed.and_then(|a| composite(a, parts)),
    })
}

impl<P: Pool> Front<P> {
    pub async fn create_upload(
        &self,
        mut req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<CreateMultipartUploadOutput> {
        let acl = req.input.acl.as_ref().map(|a| a.as_str());
        let ask = Ask::object(Action::PutObject, &req.input.bucket, &req.input.key)
            .with(Key::Acl, acl)
            .with(Key::StorageClass, class_named(&req.headers));
        let known = self.permitted(&req, &ask).await?;
        refuse_unbuilt(&req.headers)?;
        let (class, _) = self.class(&req.headers).await?;
        check_key(&req.input.key)?;
        let full = req
            .input
            .checksum_type
            .as_ref()
            .is_some_and(|t| t.as_str() == ChecksumType::FULL_OBJECT);
        let algorithm = req
            .input
            .checksum_algorithm
            .as_ref()
            .map(|a| a.as_str().to_ascii_uppercase());
        if full && algorithm.as_deref() != Some("CRC64NVME") {
            return Err(not_built(
                "checksums of whole objects made of parts (of each part they are)",
            ));
        }
        if algorithm.as_deref().is_some_and(|a| digest::hasher(a).is_none()) {
            return Err(invalid("an algorithm of checksums that is not known here"));
        }
        let input = &mut req.input;
        let mut attributes = attributes!(input)?;
        attributes.class = class;
        let of = (req.input.bucket.as_str(), req.input.key.as_str());
        self.check_attributes(&req, &known, of, &attributes)?;
        let lock = self.new_lock(&req, &known, of, &lock_given!(req.input))?;
        let seal = self.new_seal(&req, &known, &req.input.key)?;
        let (bucket, input) = (&known.bucket, &mut req.input);
        let sealed = seal.map(|s| s.1);
        let id = self
            .objects
            .begin_upload(
                &bucket.id,
                &input.key,
                attributes,
                algorithm,
                (lock, sealed.clone()),
            )
            .await?;
        let mut out = CreateMultipartUploadOutput {
            bucket: Some(input.bucket.clone()),
            key: Some(input.key.clone()),
            checksum_algorithm: input.checksum_algorithm.take(),
            checksum_type: input.checksum_type.take(),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        };
        describe_seal!(out, sealed.as_ref());
        Ok(out)
    }

    /// Takes in a part, which is checked against what was announced.
    async fn take_part(
        &self,
        bucket: &Bucket,
        (key, id, class): (&str, &str, &str),
        number: i32,
        (mut body, length, seal): (Source, Option<u64>, Option<Seal>),
        announced: Announced,
        trailers: Option<&TrailingHeaders>,
    ) -> S3Result<PartRecord> {
        let number = part_number(number)?;
        self.limits
            .check(bucket, Amount::part(length.unwrap_or(0)))
            .await?;
        let mut digest = Digest::new(announced);
        let data = &self.objects.data;
        let data = &data.at(data.classes().place(class).await?);
        let stored = data
            .take(
                (&bucket.id, key),
                (&mut body, seal.as_ref().map(|s| s.0.clone())),
                length,
                PUT_MAX,
                &mut digest,
            )
            .await?;
        let (etag, checksum) = match digest.finish(trailers) {
            Ok((md5, checksum)) => (etag_of(seal.as_ref().map(|s| (&s.0, &s.1)), md5), checksum),
            Err(e) => {
                data.abandon(stored.claim).await;
                return Err(e.into());
            }
        };
        let _admitted = match self.limits.admit(bucket, Amount::part(stored.size)).await {
            Ok(admitted) => admitted,
            Err(e) => {
                data.abandon(stored.claim).await;
                return Err(e.into());
            }
        };
        Ok(self
            .objects
            .put_part((&bucket.id, key, id), number, stored, etag, checksum)
            .await?)
    }

    pub async fn put_part(&self, mut req: S3Request<UploadPartInput>) -> S3Result<UploadPartOutput> {
        let ask = Ask::object(Action::PutObject, &req.input.bucket, &req.input.key).of_upload();
        let bucket = self.permitted(&req, &ask).await?.bucket;
        refuse_unbuilt(&req.headers)?;
        let customer = self.customer(&req, OBJECT)?;
        let trailers = req.trailing_headers.take();
        let input = &mut req.input;
        let upload = self
            .objects
            .upload(&bucket.id, &input.key, &input.upload_id)
            .await?;
        let key = self.opened_part((customer, &req.headers), &upload, (&bucket.id, &input.key))?;
        let values = checksum_values!(input);
        let algorithm = input.checksum_algorithm.as_ref().map(|a| a.as_str().to_string());
        let algorithm = algorithm.or(upload.algorithm.clone());
        let announced = Announced::new(
            input.content_md5.take(),
            values,
            algorithm.as_deref(),
            &req.headers,
        )?;
        let length = length(input.content_length, &req.headers);
        let sealed = upload.sealed.clone();
        let body = (Source(input.body.take()), length, key.zip(sealed.clone()));
        let class = upload.attributes.class.as_str();
        let to = (input.key.as_str(), input.upload_id.as_str(), class);
        let part = self
            .take_part(&bucket, to, input.part_number, body, announced, trailers.as_ref())
            .await?;
        let mut out = UploadPartOutput {
            e_tag: etag(&part.etag),
            ..UploadPartOutput::default()
        };
        set_checksum!(out, &part.checksum);
        describe_seal!(out, sealed.as_ref());
        Ok(out)
    }

    pub async fn copy_part(&self, req: S3Request<UploadPartCopyInput>) -> S3Result<UploadPartCopyOutput> {
        let ask = Ask::object(Action::PutObject, &req.input.bucket, &req.input.key)
            .with(Key::CopySource, source_name(&req.input.copy_source))
            .of_upload();
        let bucket = self.permitted(&req, &ask).await?.bucket;
        refuse_unbuilt(&req.headers)?;
        let input = &req.input;
        let upload = self
            .objects
            .upload(&bucket.id, &input.key, &input.upload_id)
            .await?;
        let customer = self.customer(&req, OBJECT)?;
        let key = self.opened_part((customer, &req.headers), &upload, (&bucket.id, &input.key))?;
        let from = self
            .source(&req, (&input.copy_source, false), wanted_of_source!(input))
            .await?;
        let source = &from.entry;
        let range = match &input.copy_source_range {
            None => 0..source.size,
            Some(text) => {
                let range = Range::parse(text).ok().and_then(|r| r.check(source.size).ok());
                range.ok_or_else(|| invalid("x-amz-copy-source-range is not within the source"))?
            }
        };
        let body = (
            self.sent(&from, range.start, range.end).await?,
            Some(range.end - range.start),
            key.zip(upload.sealed.clone()),
        );
        let announced = Announced {
            md5: None,
            checksum: upload.algorithm.clone().map(|a| (a, None)),
            trails: false,
        };
        let class = upload.attributes.class.as_str();
        let to = (input.key.as_str(), input.upload_id.as_str(), class);
        let part = self
            .take_part(&bucket, to, input.part_number, body, announced, None)
            .await?;
        let mut result = CopyPartResult {
            e_tag: etag(&part.etag),
            last_modified: Some(timestamp(part.modified)),
            ..CopyPartResult::default()
        };
        set_checksum!(result, &part.checksum);
        let mut out = UploadPartCopyOutput {
            copy_part_result: Some(result),
            copy_source_version_id: from.version,
            ..UploadPartCopyOutput::default()
        };
        describe_seal!(out, upload.sealed.as_ref());
        Ok(out)
    }

    pub async fn complete_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let ask = Ask::object(Action::PutObject, &req.input.bucket, &req.input.key).of_upload();
        let known = self.permitted(&req, &ask).await?;
        let by = self.asker(&req);
        let input = req.input;
        let mut named = Vec::new();
        for part in input.multipart_upload.and_then(|m| m.parts).unwrap_or_default() {
            let mut part = part;
            let values = checksum_values!(part);
            let mut given = ALGORITHMS.iter().zip(values).filter_map(|((name, _), v)| {
                Some(Checksum {
                    algorithm: name.to_string(),
                    value: v?,
                })
            });
            named.push(Named {
                number: part_number(part.part_number.unwrap_or_default())?,
                etag: part.e_tag.map(ETag::into_value).unwrap_or_default(),
                checksum: given.next(),
            });
        }
        let condition = Condition {
            matches: etags(input.if_match.as_ref()),
            none_match: etags(input.if_none_match.as_ref()),
        };
        let upload = (
            known.bucket.id.as_str(),
            input.key.as_str(),
            input.upload_id.as_str(),
        );
        let one = Amount { bytes: 0, objects: 1 };
        let _admitted = self.limits.admit(&known.bucket, one).await?;
        let entry = self
            .telling(&known, (&input.bucket, &input.key), By::Complete, &by)
            .complete(upload, &named, &terms(&known, condition), whole)
            .await?;
        let mut out = CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            expiration: self.expiration(&known, &input.key, &entry),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: etag(&entry.etag),
            version_id: version_of(&known, &entry),
            ..CompleteMultipartUploadOutput::default()
        };
        set_checksum!(out, &entry.checksum);
        // Of a client's key this answer has no place.
        if matches!(&entry.sealed, Some(s) if matches!(s.how, How::Master(_))) {
            let name = ServerSideEncryption::AES256;
            out.server_side_encryption = Some(ServerSideEncryption::from_static(name));
        }
        Ok(out)
    }

    pub async fn abort_upload(&self, req: S3Request<AbortMultipartUploadInput>) -> S3Result<()> {
        let ask = Ask::object(Action::AbortMultipartUpload, &req.input.bucket, &req.input.key);
        let bucket = self.permitted(&req, &ask).await?.bucket;
        let upload = (
            bucket.id.as_str(),
            req.input.key.as_str(),
            req.input.upload_id.as_str(),
        );
        Ok(self.objects.abort(upload).await?)
    }

    pub async fn list_parts(&self, req: S3Request<ListPartsInput>) -> S3Result<ListPartsOutput> {
        let ask = Ask::object(
            Action::ListMultipartUploadParts,
            &req.input.bucket,
            &req.input.key,
        );
        let bucket = self.permitted(&req, &ask).await?.bucket;
        let asks = acting(&req).unwrap_or("anonymous").to_string();
        let input = req.input;
        let upload = (bucket.id.as_str(), input.key.as_str(), input.upload_id.as_str());
        let record = self.objects.upload(upload.0, upload.1, upload.2).await?;
        let after = input.part_number_marker.unwrap_or_default();
        let after = u32::try_from(after).map_err(|_| invalid("a part's number is not negative"))?;
        let max = page_size(input.max_parts, PAGE_MAX)?;
        let page = self.objects.parts(upload, after, max).await?;
        let next = page.parts.last().map(|(n, _)| *n as i32).filter(|_| page.more);
        let part = |(number, part): (u32, PartRecord)| {
            let mut out = Part {
                e_tag: etag(&part.etag),
                last_modified: Some(timestamp(part.modified)),
                part_number: Some(number as i32),
                size: Some(part.size as i64),
                ..Part::default()
            };
            set_checksum!(out, &part.checksum);
            out
        };
        Ok(ListPartsOutput {
            parts: Some(page.parts.into_iter().map(part).collect()),
            is_truncated: Some(page.more),
            next_part_number_marker: next,
            part_number_marker: Some(after as i32),
            max_parts: Some(max as i32),
            checksum_algorithm: record.algorithm.map(ChecksumAlgorithm::from),
            initiator: Some(Initiator {
                display_name: Some(asks.clone()),
                id: Some(asks),
            }),
            owner: owner(&bucket.owner),
            storage_class: Some(StorageClass::from(class_of(&record.attributes).to_string())),
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            ..ListPartsOutput::default()
        })
    }

    pub async fn list_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<ListMultipartUploadsOutput> {
        let ask = Ask::bucket(Action::ListBucketMultipartUploads, &req.input.bucket)
            .with(Key::Prefix, req.input.prefix.as_ref())
            .with(Key::Delimiter, req.input.delimiter.as_ref());
        let bucket = self.permitted(&req, &ask).await?.bucket;
        let input = req.input;
        if input.delimiter.as_ref().is_some_and(|d| !d.is_empty()) {
            return Err(not_built("listing uploads with a delimiter"));
        }
        let names = Names::new(input.encoding_type.as_ref())?;
        let max = page_size(input.max_uploads, PAGE_MAX)?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let id = input.upload_id_marker.clone().unwrap_or_default();
        let after = input
            .key_marker
            .as_deref()
            .filter(|k| !k.is_empty())
            .map(|key| (key, id.as_str()));
        let page = self.objects.uploads(&bucket.id, &prefix, after, max).await?;
        let last = page.uploads.last().filter(|_| page.more);
        let last = last.map(|(key, id, _)| (names.write(key), id.clone()));
        let upload = |(key, id, upload): (String, String, Upload)| MultipartUpload {
            checksum_algorithm: upload.algorithm.map(ChecksumAlgorithm::from),
            initiated: Some(timestamp(upload.begun)),
            key: Some(names.write(&key)),
            owner: owner(&bucket.owner),
            storage_class: Some(StorageClass::from(class_of(&upload.attributes).to_string())),
            upload_id: Some(id),
            ..MultipartUpload::default()
        };
        Ok(ListMultipartUploadsOutput {
            uploads: Some(page.uploads.into_iter().map(upload).collect()),
            is_truncated: Some(page.more),
            next_key_marker: last.as_ref().map(|l| l.0.clone()),
            next_upload_id_marker: last.map(|l| l.1),
            key_marker: input.key_marker.map(|k| names.write(&k)),
            upload_id_marker: input.upload_id_marker,
            max_uploads: Some(max as i32),
            prefix: Some(names.write(&prefix)),
            encoding_type: input.encoding_type,
            bucket: Some(input.bucket),
            ..ListMultipartUploadsOutput::default()
        })
    }
}
