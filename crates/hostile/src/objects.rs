//! What browsers and clients of S3 send that this house reads itself: forms, their policies, the XML of a bucket's encryption;
//! and of Swift's: paths, tokens, temporary URLs, ACLs, lists of segments.
//!
//! Framing: a byte that says which, and the input.

use s3::testing;

pub fn objects(input: &[u8]) -> bool {
    let Some((which, rest)) = input.split_first() else {
        return false;
    };
    // What was found stays found: new ones come behind.
    match (which % 4, which / 4 % 3) {
        (_, 1) => testing::notifications(rest),
        (_, 2) => testing::topics(rest),
        (0, _) => testing::form(rest),
        (1, _) => testing::policy(rest),
        (3, _) => testing::swift(rest),
        _ => testing::encryption(rest),
    }
}

fn form(fields: &[(&str, &str)], file: &str) -> String {
    let boundary = testing::BOUNDARY;
    let part = |(name, value): &(&str, &str)| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields: String = fields.iter().map(part).collect();
    format!(
        "{fields}--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a b.txt\"\r\nContent-Type: text/plain\r\n\r\n{file}\r\n--{boundary}--\r\n"
    )
}

/// Of notifications, of topics, and of roles.
fn told() -> Vec<Vec<u8>> {
    let notifications = [
        "<NotificationConfiguration/>",
        "<NotificationConfiguration xmlns=\"x\"><TopicConfiguration><Id>i</Id><Topic>arn:aws:sns:us-east-1:u:t</Topic><Event>s3:ObjectCreated:*</Event><Filter><S3Key><FilterRule><Name>prefix</Name><Value>a/</Value></FilterRule></S3Key></Filter></TopicConfiguration></NotificationConfiguration>",
        "<NotificationConfiguration><TopicConfiguration><Topic>t</Topic><Event>e</Event><Filter><S3Metadata><FilterRule><Name>x-amz-meta-a</Name><Value>&lt;&#98;</Value></FilterRule></S3Metadata><S3Tags/></Filter></TopicConfiguration></NotificationConfiguration>",
    ];
    let topics = [
        "Action=ListTopics&Version=2010-03-31",
        "Action=CreateTopic&Name=t&Attributes.entry.1.key=push-endpoint&Attributes.entry.1.value=http%3A%2F%2Fh.test%2F",
        "Action=SetTopicAttributes&TopicArn=arn%3Aaws%3Asns%3Aus-east-1%3Au%3At&AttributeName=OpaqueData&AttributeValue=x",
        "Action=AssumeRole&RoleArn=arn%3Aaws%3Aiam%3A%3A%3Arole%2Fr&RoleSessionName=se&DurationSeconds=900&Policy=%7B%22Statement%22%3A%7B%22Effect%22%3A%22Allow%22%2C%22Action%22%3A%22%2A%22%2C%22Resource%22%3A%22%2A%22%7D%7D",
        "Action=CreateRole&RoleName=r&Path=%2F&AssumeRolePolicyDocument=x&MaxSessionDuration=7200",
        "Action=GetSessionToken&DurationSeconds=900",
        "Action=UpdateAccessKey&UserName=u&AccessKeyId=K&Status=Inactive",
        "Action=ListUsers&Marker=a&MaxItems=5",
    ];
    let framed = |which: u8, text: &str| [&[which][..], text.as_bytes()].concat();
    let notifications = notifications.iter().map(|t| framed(4, t));
    notifications.chain(topics.iter().map(|t| framed(8, t))).collect()
}

/// Written by hand: recorded ones would hold keys.
pub fn seeds() -> Vec<Vec<u8>> {
    let forms = [
        form(&[], ""),
        form(&[("key", "k")], "the file"),
        form(&[("key", "u/${filename}"), ("acl", "private")], "\r\n--Xy\r\n-"),
        form(
            &[("policy", "e30="), ("x-amz-signature", "00"), ("x-ignore-a", "")],
            "x\r\n",
        ),
        form(
            &[("success_action_redirect", "http://a.test/?b=c")],
            &"line\r\n".repeat(20),
        ),
    ];
    let policies = [
        "[]",
        "[{\"bucket\": \"b\"}, {\"acl\": \"private\"}]",
        "[[\"starts-with\", \"$key\", \"u/\"], [\"eq\", \"$acl\", \"private\"]]",
        "[[\"content-length-range\", 0, 1048576], [\"content-length-range\", \"5\", \"9\"]]",
        "[{\"x-amz-credential\": \"k/20261126/us-east-1/s3/aws4_request\"}]",
    ];
    let policy = |conditions: &str| {
        format!("{{\"expiration\": \"2026-11-26T12:00:00.000Z\", \"conditions\": {conditions}}}")
    };
    let rule = |inner: &str| {
        format!(
            "<ServerSideEncryptionConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Rule>{inner}</Rule></ServerSideEncryptionConfiguration>"
        )
    };
    let by = |inner: &str| {
        rule(&format!(
            "<ApplyServerSideEncryptionByDefault>{inner}</ApplyServerSideEncryptionByDefault>"
        ))
    };
    let texts = [
        by("<SSEAlgorithm>AES256</SSEAlgorithm>"),
        by("<SSEAlgorithm>aws:kms</SSEAlgorithm><KMSMasterKeyID>a&amp;b</KMSMasterKeyID>"),
        rule("<BucketKeyEnabled>true</BucketKeyEnabled>"),
        rule(""),
    ];
    let swifts = [
        "/swift/v1/AUTH_alice/c%20d/a/../b",
        "AUTH_tkAAAAAGX7wAAAAAAAAAAAKmFsaWNlOmFwcAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "temp_url_sig=sha256:AAAA&temp_url_expires=2026-11-26T00:00:00Z&temp_url_prefix=o/",
        ".r:*,.rlistings,bob,carol:app",
        r#"[{"path":"/c/o","etag":"e","size_bytes":5}]"#,
    ];
    let framed = |which: u8, text: String| [&[which][..], text.as_bytes()].concat();
    let forms = forms.into_iter().map(|f| framed(0, f));
    let policies = policies.iter().map(|p| framed(1, policy(p)));
    forms
        .chain(policies)
        .chain(texts.into_iter().map(|t| framed(2, t)))
        .chain(swifts.iter().map(|t| framed(3, (*t).to_string())))
        .chain(told())
        .collect()
}
