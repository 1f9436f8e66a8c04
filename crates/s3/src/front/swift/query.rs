//! The query of a request.

use crate::front::texts::url_decoded;
use std::collections::BTreeMap;

/// By names; of what is there twice the first.
#[derive(Debug, Clone, Default)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// None: it is not URL encoded.
    pub fn parse(text: &str) -> Option<Self> {
        let mut of = BTreeMap::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (url_decoded(name)?, url_decoded(value)?);
            of.entry(name).or_insert(value);
        }
        Some(Self(of))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What is there and not empty.
    pub fn said(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|v| !v.is_empty())
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|v| ["true", "1", "yes", "on", "t", "y"].contains(&v.to_ascii_lowercase().as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read() {
        let query = Query::parse("format=json&prefix=a%2Fb+c&bulk-delete&format=xml&reverse=True").unwrap();
        assert_eq!(query.get("format"), Some("json"));
        assert_eq!(query.get("prefix"), Some("a/b c"));
        assert!(query.has("bulk-delete") && query.said("bulk-delete").is_none());
        assert!(query.is_true("reverse") && !query.is_true("format"));
        assert!(Query::parse("a=%").is_none());
    }
}
