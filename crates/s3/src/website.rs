//! Websites of buckets: what a browser that asks for a path is to get. No I/O.

/// One of the two forms: all requests go elsewhere, or there is an index document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Website {
    /// What is got in place of a path that ends with a slash.
    pub index: String,
    /// The key of what is got with an error; empty: a page of ours.
    pub error: String,
    pub all_to: Option<Redirect>,
    pub routes: Vec<Route>,
}

denc::envelope_denc!(Website, 1, 1, { index, error, all_to, routes });

/// Where a request goes, if it is as is said here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    pub prefix: Option<String>,
    /// The status that it would be answered with.
    pub status: Option<u32>,
    pub to: Redirect,
}

denc::envelope_denc!(Route, 1, 1, { prefix, status, to });

/// What is not said stays as it was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redirect {
    pub host: Option<String>,
    pub protocol: Option<String>,
    /// In place of the key.
    pub key: Option<String>,
    /// In place of the prefix that was looked at.
    pub prefix: Option<String>,
    pub code: u32,
}

denc::envelope_denc!(Redirect, 1, 1, { host, protocol, key, prefix, code });

impl Website {
    /// The key of what is got for a path, without its first slash.
    pub fn document(&self, path: &str) -> String {
        match path.is_empty() || path.ends_with('/') {
            true => format!("{path}{}", self.index),
            false => path.to_string(),
        }
    }

    /// The first rule that fits; `status`: of the answer that there would be. None: nothing was looked for yet.
    pub fn route(&self, path: &str, status: Option<u32>) -> Option<&Route> {
        self.routes.iter().find(|route| {
            let begins = route.prefix.as_ref().is_none_or(|p| path.starts_with(p.as_str()));
            begins && route.status == status
        })
    }
}

impl Redirect {
    /// The key that a browser is sent to.
    pub fn key(&self, path: &str, prefix: Option<&str>) -> String {
        match (&self.key, &self.prefix) {
            (Some(key), _) => key.clone(),
            (None, Some(with)) => {
                let rest = path.strip_prefix(prefix.unwrap_or_default()).unwrap_or(path);
                format!("{with}{rest}")
            }
            (None, None) => path.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::{Decode, Encode};

    #[test]
    fn paths_lead_to_documents_and_elsewhere() {
        let site = Website {
            index: "i.html".into(),
            routes: vec![
                Route {
                    prefix: Some("docs/".into()),
                    to: Redirect {
                        prefix: Some("documents/".into()),
                        ..Redirect::default()
                    },
                    ..Route::default()
                },
                Route {
                    prefix: None,
                    status: Some(404),
                    to: Redirect {
                        key: Some("lost".into()),
                        ..Redirect::default()
                    },
                },
            ],
            ..Website::default()
        };
        for (path, document) in [("", "i.html"), ("a/", "a/i.html"), ("a", "a"), ("a/b", "a/b")] {
            assert_eq!(site.document(path), document);
        }
        let to = |path: &str, status| {
            let route = site.route(path, status)?;
            Some(route.to.key(path, route.prefix.as_deref()))
        };
        assert_eq!(to("docs/a", None).as_deref(), Some("documents/a"));
        assert_eq!(to("other", None), None);
        assert_eq!(to("other", Some(404)).as_deref(), Some("lost"));
        assert_eq!(to("other", Some(403)), None);
        assert_eq!(Redirect::default().key("k", None), "k");
        assert_eq!(Website::from_bytes(&site.to_bytes()), Ok(site));
    }
}
