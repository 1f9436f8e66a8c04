//! What a bucket has as a container of Swift: metadata, and who else may read and write it. The grants hold for S3, too.
//!
//! An ACL is a list with commas: `.r:*` (anybody reads objects), `.rlistings` (and lists, where anybody reads), `USER` or `USER:*` (that user with all keys),
//! `USER:SUBUSER`. What is not known is refused when it is set; what cannot be read later grants nothing.

use std::collections::BTreeMap;

/// Bytes of an ACL's text.
const ACL_MAX: usize = 4096;
/// As S3's names of users, with their subusers.
const ELEMENTS_MAX: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Container {
    /// By names in lower case, without `x-container-meta-`.
    pub meta: BTreeMap<String, String>,
    /// ACLs as they were set; empty: there is none.
    pub read: String,
    pub write: String,
}

denc::envelope_denc!(Container, 1, 1, { meta, read, write });

/// An ACL as requests need it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acl {
    /// Anybody.
    pub public: bool,
    pub listings: bool,
    /// With a subuser, if that one alone.
    users: Vec<(String, Option<String>)>,
}

impl Acl {
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > ACL_MAX {
            return Err(format!("an ACL has at most {ACL_MAX} bytes"));
        }
        let mut acl = Self::default();
        for element in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            match element {
                ".r:*" | ".ref:*" | ".referrer:*" | ".referer:*" => acl.public = true,
                ".rlistings" => acl.listings = true,
                other if other.starts_with('.') => {
                    return Err(format!(
                        "the ACL's {other}: of those with a dot .r:* and .rlistings are built"
                    ));
                }
                other => acl.users.push(user(other)?),
            }
        }
        match acl.users.len() > ELEMENTS_MAX {
            true => Err(format!("an ACL names at most {ELEMENTS_MAX} users")),
            false => Ok(acl),
        }
    }

    /// Whether it names this user, or this subuser.
    pub fn names(&self, user: &str, subuser: Option<&str>) -> bool {
        let is = |(of, sub): &(String, Option<String>)| {
            of == user && sub.as_deref().is_none_or(|s| subuser == Some(s))
        };
        self.users.iter().any(is)
    }
}

fn user(text: &str) -> Result<(String, Option<String>), String> {
    let (user, sub) = match text.split_once(':') {
        None => (text, None),
        Some((user, "*")) => (user, None),
        Some((user, sub)) => (user, Some(sub)),
    };
    let good = |name: &str| crate::names::check_name(name).is_ok();
    match good(user) && sub.is_none_or(good) {
        true => Ok((user.to_string(), sub.map(str::to_string))),
        false => Err(format!("the ACL's {text:?} is neither a user nor USER:SUBUSER")),
    }
}

/// Both ACLs of a container.
#[derive(Debug, Clone, Default)]
pub struct Grants {
    pub read: Acl,
    pub write: Acl,
}

impl Grants {
    pub fn of(container: &Container, bucket: &str) -> Self {
        let read = |text: &str| {
            Acl::parse(text).unwrap_or_else(|e| {
                tracing::error!("s3: bucket {bucket}: an ACL that cannot be read: {e}");
                Acl::default()
            })
        };
        Self {
            read: read(&container.read),
            write: read(&container.write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acls_are_read_or_refused() {
        let acl = Acl::parse(".r:*, .rlistings,bob,carol:app , dave:*").unwrap();
        assert!(acl.public && acl.listings);
        for (user, sub, named) in [
            ("bob", None, true),
            ("bob", Some("x"), true),
            ("carol", None, false),
            ("carol", Some("app"), true),
            ("carol", Some("apps"), false),
            ("dave", Some("x"), true),
            ("eve", None, false),
            ("*", None, false),
        ] {
            assert_eq!(acl.names(user, sub), named, "{user} {sub:?}");
        }
        assert_eq!(Acl::parse(""), Ok(Acl::default()));
        for bad in [
            ".r:example.com",
            ".r:-*",
            "*:*",
            "*",
            "a b",
            "a:b:c",
            ":b",
            "a:",
            ".x",
        ] {
            assert!(Acl::parse(bad).is_err(), "{bad}");
        }
        assert!(Acl::parse(&"a,".repeat(101)).is_err());
        assert!(Acl::parse(&"a".repeat(5000)).is_err());
    }
}
