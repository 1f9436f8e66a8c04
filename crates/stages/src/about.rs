//! What somebody asks about.

use std::net::IpAddr;

/// What is asked about, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    All,
    Pool(String),
    Image {
        pool: String,
        namespace: String,
        name: String,
    },
    /// `client.4123`, as the servers number sessions.
    Client(String),
    Address(IpAddr),
}

/// `text`: POOL, POOL[/NAMESPACE]/IMAGE, client.NUMBER or an address; None: all.
pub fn about(text: Option<&str>) -> Result<About, String> {
    let Some(text) = text else { return Ok(About::All) };
    let number = text.strip_prefix("client.");
    if number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        return Ok(About::Client(text.into()));
    }
    if let Ok(ip) = text.parse() {
        return Ok(About::Address(ip));
    }
    if number.is_some() {
        return Err(format!(
            "'{text}' is a user; the servers know sessions: client.NUMBER, as `ceph tell osd.N dump_ops_in_flight` names them, or an address"
        ));
    }
    let parts: Vec<&str> = text.split('/').collect();
    let image = |pool: &str, namespace: &str, name: &str| About::Image {
        pool: pool.into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    match parts[..] {
        _ if parts.iter().any(|p| p.is_empty()) => {
            Err(format!("'{text}' is not POOL or POOL[/NAMESPACE]/IMAGE"))
        }
        [pool] => Ok(About::Pool(pool.into())),
        [pool, name] => Ok(image(pool, "", name)),
        [pool, namespace, name] => Ok(image(pool, namespace, name)),
        _ => Err(format!("'{text}' is not POOL or POOL[/NAMESPACE]/IMAGE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_about() {
        let image = |namespace: &str| About::Image {
            pool: "rbd".into(),
            namespace: namespace.into(),
            name: "vm".into(),
        };
        for (text, want) in [
            (None, About::All),
            (Some("rbd"), About::Pool("rbd".into())),
            (Some("rbd/vm"), image("")),
            (Some("rbd/ns/vm"), image("ns")),
            (Some("client.4123"), About::Client("client.4123".into())),
            (Some("10.0.0.7"), About::Address([10, 0, 0, 7].into())),
            (Some("::1"), About::Address(std::net::Ipv6Addr::LOCALHOST.into())),
        ] {
            assert_eq!(about(text), Ok(want), "{text:?}");
        }
        for text in ["", "/", "rbd/", "a/b/c/d", "client.admin"] {
            assert!(about(Some(text)).is_err(), "{text}");
        }
    }
}
