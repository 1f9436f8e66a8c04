//! What a path names: Swift's below `/swift/v1`, TempAuth at `/auth`, as radosgw has them. All else is S3's.

use crate::front::texts::path_decoded;

const ROOT: &str = "/swift/v1";
/// How the account begins, where it is in the path.
pub const ACCOUNT: &str = "AUTH_";
/// In bytes, as Swift counts them.
pub const CONTAINER_MAX: usize = 255;
/// As S3's keys.
pub const OBJECT_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Tokens are given out here.
    Auth,
    /// What there is.
    Info,
    Below(Place),
    /// A path that is Swift's and names nothing; why.
    Wrong(&'static str),
}

/// An account, a container or an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// None: the path says none.
    pub account: Option<String>,
    pub container: Option<String>,
    pub object: Option<String>,
}

/// None: the path is S3's.
pub fn target(path: &str) -> Option<Target> {
    match path.trim_end_matches('/') {
        "/auth" | "/auth/1.0" | "/auth/v1.0" | "/auth/v1" => return Some(Target::Auth),
        "/info" | "/swift/info" => return Some(Target::Info),
        _ => {}
    }
    let rest = path.strip_prefix(ROOT)?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(below(rest)),
        None if rest.is_empty() => Some(below("")),
        None => None,
    }
}

fn below(rest: &str) -> Target {
    let (first, after) = rest.split_once('/').unwrap_or((rest, ""));
    let Some(first) = path_decoded(first) else {
        return Target::Wrong("the path is not URL encoded UTF-8");
    };
    let (account, rest) = match first.strip_prefix(ACCOUNT) {
        Some(account) => (Some(account.to_string()), after),
        None => (None, rest),
    };
    let (container, object) = rest.split_once('/').unwrap_or((rest, ""));
    let (Some(container), Some(object)) = (path_decoded(container), path_decoded(object)) else {
        return Target::Wrong("the path is not URL encoded UTF-8");
    };
    match (container.is_empty(), object.is_empty()) {
        (true, false) => return Target::Wrong("an object without a container"),
        (false, _) => {
            if let Err(why) = check_container(&container) {
                return Target::Wrong(why);
            }
        }
        (true, true) => {}
    }
    if let Err(why) = check_object(&object) {
        return Target::Wrong(why);
    }
    Target::Below(Place {
        account,
        container: Some(container).filter(|c| !c.is_empty()),
        object: Some(object).filter(|o| !o.is_empty()),
    })
}

/// Names that are the same wherever they are shown, and no account's.
pub fn check_container(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("a container has a name"),
        "." | ".." => Err("a container is not called . or .."),
        _ if name.len() > CONTAINER_MAX => Err("a container's name has at most 255 bytes"),
        _ if name.contains('/') => Err("a container's name has no slash"),
        _ if name.starts_with(ACCOUNT) => Err("a container's name does not begin with AUTH_"),
        _ if name.chars().any(char::is_control) => Err("a container's name has no control characters"),
        _ => Ok(()),
    }
}

fn check_object(name: &str) -> Result<(), &'static str> {
    match () {
        () if name.len() > OBJECT_MAX => Err("an object's name has at most 1024 bytes"),
        () if name.contains('\0') => Err("an object's name has no NUL"),
        () => Ok(()),
    }
}

/// `container/object`, as headers and lists name it, with or without a slash in front, URL encoded.
pub fn named(text: &str) -> Result<(String, String), &'static str> {
    let decoded = path_decoded(text.trim()).ok_or("not URL encoded UTF-8")?;
    let (container, object) = pair(&decoded)?;
    match object.is_empty() {
        true => Err("an object has a name"),
        false => Ok((container, object)),
    }
}

/// The same of what is not encoded; an object that is empty is none.
pub fn pair(text: &str) -> Result<(String, String), &'static str> {
    let text = text.strip_prefix('/').unwrap_or(text);
    let (container, object) = text.split_once('/').unwrap_or((text, ""));
    check_container(container)?;
    check_object(object)?;
    Ok((container.to_string(), object.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_what_they_do() {
        let place = |account: &str, container: &str, object: &str| {
            let some = |t: &str| Some(t.to_string()).filter(|t| !t.is_empty());
            Some(Target::Below(Place {
                account: some(account),
                container: some(container),
                object: some(object),
            }))
        };
        for (path, want) in [
            ("/auth/v1.0", Some(Target::Auth)),
            ("/auth", Some(Target::Auth)),
            ("/auth/1.0/", Some(Target::Auth)),
            ("/auth/x", None),
            ("/authors", None),
            ("/info", Some(Target::Info)),
            ("/swift/info", Some(Target::Info)),
            ("/info/x", None),
            ("/", None),
            ("/swift", None),
            ("/swift/v10", None),
            ("/swift/v1", place("", "", "")),
            ("/swift/v1/", place("", "", "")),
            ("/swift/v1/AUTH_a", place("a", "", "")),
            ("/swift/v1/AUTH_a/", place("a", "", "")),
            ("/swift/v1/AUTH%5Fa/c", place("a", "c", "")),
            ("/swift/v1/AUTH_a/c/", place("a", "c", "")),
            ("/swift/v1/c/o", place("", "c", "o")),
            ("/swift/v1/AUTH_a/c/o//p/../q", place("a", "c", "o//p/../q")),
            ("/swift/v1/AUTH_a/c%20d/%2e%2e/%C3%A9", place("a", "c d", "../é")),
        ] {
            assert_eq!(target(path), want, "{path}");
        }
        for bad in [
            "/swift/v1/AUTH_a//o",
            "/swift/v1/c%2Fd/o",
            "/swift/v1/../o",
            "/swift/v1/AUTH_a/AUTH_b/o",
            "/swift/v1/c/%00",
            "/swift/v1/c%01",
            "/swift/v1/%ff",
            "/swift/v1/c/%zz",
        ] {
            assert!(matches!(target(bad), Some(Target::Wrong(_))), "{bad}");
        }
        let long = format!("/swift/v1/c/{}", "x".repeat(1025));
        assert!(matches!(target(&long), Some(Target::Wrong(_))));
    }

    #[test]
    fn objects_are_named_in_headers() {
        assert_eq!(named("/c/a%2Fb"), Ok(("c".into(), "a/b".into())));
        assert_eq!(named("c/a/b"), Ok(("c".into(), "a/b".into())));
        for bad in ["", "c", "c/", "/", "../x", "c/%00", "AUTH_a/c", "%ff/c"] {
            assert!(named(bad).is_err(), "{bad}");
        }
    }
}
