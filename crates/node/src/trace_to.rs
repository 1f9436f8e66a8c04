//! The collector of traces as `--trace-to` names it, looked at before anything is made. Not here: what goes there (`traces.rs`).

use crate::Error;
use net::post::{Trust, Url};

/// Where a URL has no path.
const PATH: &str = "/v1/traces";

/// Where traces go. It is shown without its secrets.
#[derive(Clone)]
pub struct TraceTo {
    pub(crate) url: Url,
    /// With HTTPS: read once, for the certificates of a host are many.
    pub(crate) trust: Option<Trust>,
}

impl std::fmt::Debug for TraceTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.url, f)
    }
}

impl TraceTo {
    pub fn parse(url: &str) -> Result<Self, Error> {
        let bad = |why: String| Error::Usage(format!("--trace-to: {why}"));
        let url = Url::parse(url).map_err(bad)?.or_path(PATH);
        let trust = match url.is_tls() {
            true => Some(Trust::of_host().map_err(bad)?),
            false => None,
        };
        Ok(Self { url, trust })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_cannot_be_are_refused() {
        for url in ["", "collector", "grpc://collector:4317", "http://"] {
            let found = TraceTo::parse(url);
            let said = found.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.starts_with("--trace-to: "), "{url}: {said}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let to = TraceTo::parse("http://me:secret@collector:4318/hidden").unwrap();
        assert_eq!(format!("{to:?}"), "collector:4318");
    }
}
