"""Calls by the actions that policies name, for those who look what an action lets somebody do."""
from botocore.exceptions import ClientError

# What each action lets somebody do; `k` and `t` have tags, `u` is an upload under way.
OBJECTS = {
    's3:GetObject': [lambda c, b, u: c.get_object(Bucket=b, Key='k'), lambda c, b, u: c.head_object(Bucket=b, Key='k')],
    's3:PutObject': [lambda c, b, u: c.put_object(Bucket=b, Key='new', Body=b'n'),
                     lambda c, b, u: c.create_multipart_upload(Bucket=b, Key='v'),
                     lambda c, b, u: c.upload_part(Bucket=b, Key='u', UploadId=u, PartNumber=1, Body=b'p')],
    's3:DeleteObject': [lambda c, b, u: c.delete_object(Bucket=b, Key='gone')],
    's3:GetObjectTagging': [lambda c, b, u: c.get_object_tagging(Bucket=b, Key='k')],
    's3:PutObjectTagging': [lambda c, b, u: c.put_object_tagging(Bucket=b, Key='t', Tagging={'TagSet': [{'Key': 'a', 'Value': 'c'}]})],
    's3:DeleteObjectTagging': [lambda c, b, u: c.delete_object_tagging(Bucket=b, Key='t')],
    's3:GetObjectAcl': [lambda c, b, u: c.get_object_acl(Bucket=b, Key='k')],
    's3:PutObjectAcl': [lambda c, b, u: c.put_object_acl(Bucket=b, Key='k', ACL='private')],
    's3:ListMultipartUploadParts': [lambda c, b, u: c.list_parts(Bucket=b, Key='u', UploadId=u)],
    's3:AbortMultipartUpload': [lambda c, b, u: c.abort_multipart_upload(Bucket=b, Key='u', UploadId=u)],
}
BUCKETS = {
    's3:ListBucket': [lambda c, b: c.list_objects(Bucket=b), lambda c, b: c.list_objects_v2(Bucket=b), lambda c, b: c.head_bucket(Bucket=b)],
    's3:ListBucketVersions': [lambda c, b: c.list_object_versions(Bucket=b)],
    's3:ListBucketMultipartUploads': [lambda c, b: c.list_multipart_uploads(Bucket=b)],
    's3:GetBucketLocation': [lambda c, b: c.get_bucket_location(Bucket=b)],
    's3:GetBucketAcl': [lambda c, b: c.get_bucket_acl(Bucket=b)],
    's3:PutBucketAcl': [lambda c, b: c.put_bucket_acl(Bucket=b, ACL='private')],
    's3:GetBucketVersioning': [lambda c, b: c.get_bucket_versioning(Bucket=b)],
    's3:GetBucketPolicyStatus': [lambda c, b: c.get_bucket_policy_status(Bucket=b)],
    's3:PutBucketCORS': [lambda c, b: c.put_bucket_cors(Bucket=b, CORSConfiguration={'CORSRules': [
        {'AllowedOrigins': ['*'], 'AllowedMethods': ['GET']}]})],
    's3:GetBucketCORS': [lambda c, b: c.get_bucket_cors(Bucket=b)],
    's3:PutBucketPublicAccessBlock': [lambda c, b: c.put_public_access_block(
        Bucket=b, PublicAccessBlockConfiguration={'BlockPublicAcls': False})],
    's3:GetBucketPublicAccessBlock': [lambda c, b: c.get_public_access_block(Bucket=b)],
    's3:DeleteBucket': [lambda c, b: c.delete_bucket(Bucket=b)],
}


def denied(call, *args, **kw):
    """HEAD has no body that says why."""
    try:
        call(*args, **kw)
    except ClientError as e:
        assert e.response['Error']['Code'] in ('AccessDenied', '403'), e
        return
    raise AssertionError('not denied: %s' % (args,))
