//! Keys of conditions that are known here, and what their values are.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    Date,
    Bool,
    Address,
}

macro_rules! keys {
    ($($key:ident $name:literal $kind:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Key { $($key,)* }

        const KEYS: &[(Key, &str, Kind)] = &[$((Key::$key, $name, Kind::$kind),)*];
    };
}

keys! {
    CurrentTime "aws:CurrentTime" Date,
    EpochTime "aws:EpochTime" Date,
    PrincipalArn "aws:PrincipalArn" Text,
    Referer "aws:Referer" Text,
    SecureTransport "aws:SecureTransport" Bool,
    SourceIp "aws:SourceIp" Address,
    UserAgent "aws:UserAgent" Text,
    Username "aws:username" Text,
    Acl "s3:x-amz-acl" Text,
    CopySource "s3:x-amz-copy-source" Text,
    Delimiter "s3:delimiter" Text,
    MaxKeys "s3:max-keys" Number,
    MetadataDirective "s3:x-amz-metadata-directive" Text,
    Prefix "s3:prefix" Text,
    StorageClass "s3:x-amz-storage-class" Text,
    VersionId "s3:VersionId" Text,
}

impl Key {
    pub fn named(name: &str) -> Option<Self> {
        let found = KEYS.iter().find(|(_, n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(key, ..)| *key)
    }

    pub fn kind(self) -> Kind {
        let found = KEYS.iter().find(|(key, ..)| *key == self);
        found.map_or(Kind::Text, |(.., kind)| *kind)
    }
}
